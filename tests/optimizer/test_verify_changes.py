"""Evictions by preemption and drain, and moves."""

from __future__ import annotations

from dataclasses import replace
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


def preempt(
    victim: dict[str, Any] | None = None,
    group: GroupRow | None = None,
    preemptor: dict[str, Any] | None = None,
    **request: Any,
) -> list[str]:
    """Rules broken when `ml/new-0`, priority 10, evicts `ml/old-0` from the only node."""
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods(
            "old", 1, spec=EIGHT, on="n", group=group.group.ref if group else "", **(victim or {})
        ),
        make_pods("new", 1, **{"spec": EIGHT, "priority": 10, **(preemptor or {})}),
        groups=[group] if group else [],
    )
    plan = make_plan(snapshot, {"ml/new-0": "n"}, victims={"ml/old-0": "ml/new-0"}, **request)
    return broken_rules(verify_plan(snapshot, plan))


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param({"victim": {"priority": 9}}, [], id="lower"),
        pytest.param({"victim": {"priority": 10}}, ["evict-priority"], id="equal never"),
        pytest.param({"victim": {"flags": PodFlag.DAEMON}}, ["evict-pinned"], id="DaemonSet"),
        pytest.param({"victim": {"flags": PodFlag.STATIC}}, ["evict-pinned"], id="static"),
        pytest.param(
            {"victim": {"flags": PodFlag.NOT_PREEMPTIBLE}}, ["evictable"], id="pod says no"
        ),
        pytest.param(
            {"group": make_group("ml/g", 1, evictable=False)}, ["evictable"], id="group says no"
        ),
        pytest.param(
            {"preemptor": {"spec": make_spec(gpus=8, never_preempts=True)}},
            ["never-preempts"],
            id="preemptor never preempts",
        ),
        pytest.param(
            {"victim": {"priority": 100}, "group": make_group("ml/g", 1, priority=5)},
            [],
            id="1.37: priority of the victim's group",
        ),
        pytest.param(
            {
                "victim": {"priority": 100},
                "group": make_group("ml/g", 1, priority=5),
                "release": "1.36",
            },
            ["evict-priority"],
            id="1.36: a single pod sees the pod's own priority",
        ),
    ],
)
def test_victim(arguments: dict[str, Any], want: list[str]) -> None:
    assert preempt(**arguments) == want


def test_group_that_never_preempts() -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("old", 1, spec=EIGHT, on="n"),
        make_pods("new", 1, spec=EIGHT, group="ml/g"),
        groups=[make_group("ml/g", 1, priority=10, never_preempts=True)],
    )
    plan = make_plan(snapshot, {"ml/new-0": "n"}, victims={"ml/old-0": "ml/g"})
    assert broken_rules(verify_plan(snapshot, plan)) == ["never-preempts"]


@pytest.mark.parametrize(
    ("modes", "victims", "release", "want"),
    [
        pytest.param(("single", "single"), ["x-0"], "1.37", [], id="single: one pod"),
        pytest.param(("single", "all"), ["x-0"], "1.37", ["evict-unit"], id="all: half of it"),
        pytest.param(("single", "all"), ["x-0", "x-1"], "1.37", [], id="all: whole"),
        pytest.param(
            ("all", "single"), ["x-0", "x-1"], "1.37", ["evict-unit"], id="the highest all counts"
        ),
        pytest.param(("all", "all"), ["x-0", "x-1", "y-0", "y-1"], "1.37", [], id="whole tree"),
        pytest.param(("single", "all"), ["x-0"], "1.36", [], id="1.36: single pod breaks a unit"),
    ],
)
def test_units_go_whole(
    modes: tuple[str, str], victims: list[str], release: str, want: list[str]
) -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m")],
        make_pods("x", 2, spec=FOUR, on=["n", "m"], group="ml/x"),
        make_pods("y", 2, spec=FOUR, on=["n", "m"], group="ml/y"),
        make_pods("new", 1, spec=FOUR, priority=10),
        groups=[
            make_group("ml/c", 0, kind="composite", min_groups=2, disruption=modes[0]),
            make_group("ml/x", 2, parent="ml/c", disruption=modes[1]),
            make_group("ml/y", 2, parent="ml/c", disruption=modes[1]),
        ],
    )
    plan = make_plan(
        snapshot,
        {"ml/new-0": "n"},
        victims={f"ml/{name}": "ml/new-0" for name in victims},
        release=release,
    )
    assert broken_rules(verify_plan(snapshot, plan)) == want


def test_composite_may_be_the_preemptor() -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("old", 1, spec=EIGHT, on="n"),
        make_pods("x", 1, spec=EIGHT, group="ml/x"),
        groups=[
            make_group("ml/c", 0, kind="composite", min_groups=1, priority=10),
            make_group("ml/x", 1, parent="ml/c", priority=10),
        ],
    )
    plan = make_plan(snapshot, {"ml/x-0": "n"}, victims={"ml/old-0": "ml/c"})
    assert verify_plan(snapshot, plan).violations == ()


@pytest.mark.parametrize(
    ("budgets", "stated", "want"),
    [
        pytest.param([("ml/b", 1, "a")], 1, [], id="two of them, one allowed"),
        pytest.param([("ml/b", 1, "a")], 0, ["criterion"], id="violation kept quiet"),
        pytest.param([("ml/b", 2, "a")], 0, [], id="allowed"),
        pytest.param([("x/b", 0, "a")], 0, [], id="budget of another namespace"),
        pytest.param([("ml/b", 0, "b")], 0, [], id="budget of other pods"),
        pytest.param([("ml/b", 0, None)], 0, [], id="null selector matches nobody"),
    ],
)
def test_budget_violations_are_counted(
    budgets: list[tuple[str, int, str | None]], stated: int, want: list[str]
) -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("old", 2, spec=FOUR, on="n", labels={"app": "a"}),
        make_pods("new", 1, spec=EIGHT, priority=10),
        budgets=[
            Budget(
                ref, LabelSelector((Requirement("app", "In", (app,)),)) if app else None, allowed
            )
            for ref, allowed, app in budgets
        ],
    )
    plan = make_plan(
        snapshot,
        {"ml/new-0": "n"},
        victims={"ml/old-0": "ml/new-0", "ml/old-1": "ml/new-0"},
        criteria={"pdbViolations": stated},
    )
    assert broken_rules(verify_plan(snapshot, plan)) == want


@pytest.mark.parametrize(
    ("placed", "want"),
    [
        pytest.param({"ml/x-0": "m", "ml/x-1": "m"}, [], id="comes back as a unit"),
        pytest.param({"ml/x-0": "m"}, ["floor"], id="comes back in part"),
        pytest.param({}, [], id="stays away"),
        pytest.param({"ml/x-0": "n", "ml/x-1": "n"}, ["taint"], id="back on the drained node"),
    ],
)
def test_drained_pods_wait_again(placed: dict[str, str], want: list[str]) -> None:
    snapshot = make_snapshot(
        [make_node("n", unschedulable=True), make_node("m")],
        make_pods("x", 2, spec=FOUR, on="n", group="ml/x"),
        groups=[make_group("ml/x", 2, disruption="all")],
    )
    plan = make_plan(snapshot, placed, drained=["ml/x-0", "ml/x-1"])
    assert broken_rules(verify_plan(snapshot, plan)) == want


def test_drain_may_take_one_pod_of_an_all_group() -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m")],
        make_pods("x", 2, spec=FOUR, on=["n", "m"], group="ml/x"),
        groups=[make_group("ml/x", 2, disruption="all", evictable=False)],
    )
    plan = make_plan(snapshot, {}, drained=["ml/x-0"], drain_unit="pod")
    assert verify_plan(snapshot, plan).violations == ()


def test_drained_group_has_an_entry() -> None:
    snapshot = make_snapshot([make_node("n")], make_pods("x", 1, on="n"))
    plan = make_plan(snapshot, {}, drained=["ml/x-0"])
    assert verify_plan(snapshot, plan).violations == ()
    assert broken_rules(verify_plan(snapshot, replace(plan, groups=()))) == ["drain-listed"]


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
