"""Who may be moved, who goes together, and why the others stay."""

from __future__ import annotations

from typing import Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot

from optimizer.repack.movers import find_movers
from topology.model import (
    Budget,
    ClaimNeed,
    LabelSelector,
    PodFlag,
    PodSpec,
    Requirement,
    Snapshot,
    SpreadTerm,
)
from topology.move_request import MoveRequest
from topology.plan import Request

APP = LabelSelector((Requirement("app", "In", ("x",)),))


def find(snapshot: Snapshot, groups: tuple[str, ...] = (), **move: Any) -> Any:
    return find_movers(snapshot, Request(command="repack", groups=groups, move=MoveRequest(**move)))


def make_gang(count: int, min_count: int, **fields: Any) -> Snapshot:
    """A running gang `ml/g` on as many nodes of one rack, and a pod alone."""
    nodes = [make_node(f"n{i}", rack="a") for i in range(count)]
    return make_snapshot(
        nodes,
        make_pods("g", count, group="ml/g", on=[node.name for node in nodes]),
        make_pods("solo", 1, on="n0"),
        groups=[make_group("ml/g", min_count, size=count, **fields)],
    )


@pytest.mark.parametrize(
    ("snapshot", "mode", "want_units"),
    [
        pytest.param(make_gang(2, 2), "live", [1, 1, 1], id="live, each pod alone"),
        pytest.param(make_gang(2, 2), "restart", [2, 1], id="at its minimum, all together"),
        pytest.param(make_gang(3, 2), "restart", [1, 1, 1, 1], id="one more than its minimum"),
        pytest.param(
            make_gang(3, 2, disruption="all"), "restart", [3, 1], id="disruption all, together"
        ),
        pytest.param(
            make_gang(2, 0, policy="basic"), "restart", [1, 1, 1], id="basic, each pod alone"
        ),
    ],
)
def test_units(snapshot: Snapshot, mode: str, want_units: list[int]) -> None:
    assert [len(m.pods) for m in find(snapshot, mode=mode).movers] == want_units


def make_solo(**fields: Any) -> Snapshot:
    budgets = fields.pop("budgets", ())
    return make_snapshot(
        [make_node("n")], make_pods("solo", 1, on="n", **fields), budgets=tuple(budgets)
    )


@pytest.mark.parametrize(
    ("snapshot", "move", "want"),
    [
        pytest.param(
            make_solo(flags=PodFlag.NOT_MOVABLE), {}, "its API says", id="KAI safe-to-consolidate"
        ),
        pytest.param(make_solo(), {"keep": ("ml/solo-0",)}, "--keep ml/solo-0", id="kept"),
        pytest.param(
            make_solo(), {"movable": ("ml/other",)}, "not among --movable", id="not listed"
        ),
        pytest.param(
            make_solo(priority=7),
            {"priority_ceiling": 6},
            "above --priority-ceiling 6",
            id="ceiling",
        ),
        pytest.param(
            make_solo(labels={"app": "x"}, budgets=[Budget("ml/pdb", APP, 0)]),
            {},
            "disruption budget ml/pdb allows 0",
            id="budget",
        ),
        pytest.param(
            make_solo(spec=PodSpec(claims=(ClaimNeed("gpu"),))),
            {},
            "resource claims",
            id="devices",
        ),
        pytest.param(
            make_solo(spec=PodSpec(spread=(SpreadTerm(RACK, 1, APP),))), {}, "spread", id="spread"
        ),
    ],
)
def test_stays(snapshot: Snapshot, move: dict[str, Any], want: str) -> None:
    found = find(snapshot, **move)
    assert found.movers == ()
    assert want in found.staying[0]


def test_daemon_pods_are_no_obstacle() -> None:
    found = find(make_solo(flags=PodFlag.DAEMON))
    assert (found.movers, found.staying) == ((), {})


def test_the_whole_unit_stays_with_one_pod() -> None:
    found = find(make_gang(2, 2), keep=("ml/g-1",))
    assert [m.pods for m in found.movers] == [(2,)]
    assert found.staying[0] == "restarts together with ml/g-1, which stays: --keep ml/g-1"


def test_a_group_that_waits_is_not_moved() -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("g", 1, group="ml/g", on="n"),
        make_pods("h", 1, group="ml/g"),
        groups=[make_group("ml/g", 1, size=2)],
    )
    assert find(snapshot, ("ml/g",)).staying == {0: "its group waits for a node itself"}


def test_a_split_group_moves_no_single_pod() -> None:
    snapshot = make_snapshot(
        [make_node("a", rack="a"), make_node("b", rack="b")],
        make_pods("g", 2, group="ml/g", on=["a", "b"]),
        groups=[make_group("ml/g", 2, key=RACK)],
    )
    reasons = set(find(snapshot, mode="live").staying.values())
    assert reasons == {f"its group does not stand as it should in {RACK}"}
