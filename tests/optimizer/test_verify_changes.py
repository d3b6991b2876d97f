"""Moves of running pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec
from plan_builders import broken_rules, make_plan

from optimizer.verify import verify_plan
from topology.model import Budget, LabelSelector, Phase, PodFlag, Requirement
from topology.plan import Move

if TYPE_CHECKING:
    from topology.assemble import GroupRow

FOUR, EIGHT = make_spec(gpus=4), make_spec(gpus=8)


def move(*steps: tuple[str, str, str], mode: Any = "live", wave: int = 1) -> list[Move]:
    return [
        Move(i, wave, f"ml/{pod}-0", source, target, mode)
        for i, (pod, source, target) in enumerate(steps, 1)
    ]


@pytest.mark.parametrize(
    ("moves", "want"),
    [
        pytest.param(
            move(("a", "n", "t"), ("b", "m", "n"), ("a", "t", "m")), [], id="by way of a third node"
        ),
        pytest.param(move(("a", "n", "m"), ("b", "m", "n")), ["capacity"], id="swap, one by one"),
        pytest.param(
            move(("a", "n", "m"), ("b", "m", "n"), mode="restart"), [], id="swap, stopped together"
        ),
        pytest.param(
            [
                *move(("a", "n", "m"), mode="restart"),
                Move(2, 2, "ml/b-0", "m", "n", "restart"),
            ],
            ["capacity"],
            id="restarts in two waves are two steps",
        ),
        pytest.param(move(("a", "t", "n")), ["move-source"], id="not where the plan says"),
    ],
)
def test_every_move_finds_room(moves: list[Move], want: list[str]) -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m"), make_node("t")],
        make_pods("a", 1, spec=make_spec(gpus=5), on="n"),
        make_pods("b", 1, spec=make_spec(gpus=6), on="m"),
    )
    plan = make_plan(snapshot, {}, moves=moves)
    found = broken_rules(verify_plan(snapshot, plan))
    assert [rule for rule in found if rule != "move-target"] == want


@pytest.mark.parametrize(
    ("fields", "group", "want"),
    [
        pytest.param({}, None, [], id="plain pod"),
        pytest.param({"flags": PodFlag.DAEMON}, None, ["movable"], id="DaemonSet pod"),
        pytest.param({"flags": PodFlag.STATIC}, None, ["movable"], id="static pod"),
        pytest.param({"flags": PodFlag.NOT_MOVABLE}, None, ["movable"], id="pod says no"),
        pytest.param({}, make_group("ml/g", 1, movable=False), ["movable"], id="group says no"),
        pytest.param({"flags": PodFlag.NOT_PREEMPTIBLE}, None, [], id="not preemptible, movable"),
        pytest.param(
            {"spec": make_spec(node_selector=(("pool", "a"),))},
            None,
            ["node-affinity"],
            id="filters hold at the target",
        ),
    ],
)
def test_what_may_be_moved(fields: dict[str, Any], group: GroupRow | None, want: list[str]) -> None:
    snapshot = make_snapshot(
        [make_node("n", labels={"pool": "a"}), make_node("m")],
        make_pods("a", 1, on="n", group=group.group.ref if group else "", **fields),
        groups=[group] if group else [],
    )
    plan = make_plan(snapshot, {}, moves=move(("a", "n", "m")))
    assert broken_rules(verify_plan(snapshot, plan)) == want


@pytest.mark.parametrize(
    ("allowed", "mode", "phase", "want"),
    [
        pytest.param(0, "live", Phase.RUNNING, ["move-budget"], id="none may be disrupted"),
        pytest.param(0, "live", Phase.PENDING, [], id="not started yet"),
        pytest.param(1, "live", Phase.RUNNING, [], id="one after the other"),
        pytest.param(1, "restart", Phase.RUNNING, ["move-budget"], id="two at once"),
        pytest.param(2, "restart", Phase.RUNNING, [], id="two at once allowed"),
    ],
)
def test_moves_respect_budgets(allowed: int, mode: str, phase: Phase, want: list[str]) -> None:
    rows = make_pods("a", 1, on="n", labels={"app": "a"})
    rows += make_pods("b", 1, on="n", labels={"app": "a"})
    for row in rows:
        row.phase = phase
    snapshot = make_snapshot(
        [make_node("n"), make_node("m")],
        rows,
        budgets=[Budget("ml/b", LabelSelector((Requirement("app", "Exists"),)), allowed)],
    )
    plan = make_plan(snapshot, {}, moves=move(("a", "n", "m"), ("b", "n", "m"), mode=mode))
    assert broken_rules(verify_plan(snapshot, plan)) == want


def test_moves_make_room_for_new_pods() -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m")],
        make_pods("a", 1, spec=FOUR, on="n"),
        make_pods("new", 1, spec=EIGHT),
    )
    moves = move(("a", "n", "m"))
    placed = {"ml/new-0": "n"}
    assert verify_plan(snapshot, make_plan(snapshot, placed, moves=moves)).violations == ()
    assert broken_rules(verify_plan(snapshot, make_plan(snapshot, placed))) == ["capacity"]
