"""The verifier on re-packings: plans broken in each way that it should notice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot
from plan_builders import broken_rules, make_plan

from optimizer.verify import verify_plan
from topology.move_request import FreeGoal, GoalOutcome, MoveRequest
from topology.plan import Move

if TYPE_CHECKING:
    from topology.model import Snapshot


def make_fleet(**fields: Any) -> Snapshot:
    """A gang of two on a0 and a1, a pod alone on b0; racks a, b of two nodes."""
    return make_snapshot(
        [make_node(f"{rack}{i}", rack=rack) for rack in "ab" for i in range(2)],
        make_pods("g", 2, on=["a0", "a1"], group="ml/g"),
        make_pods("solo", 1, on="b0", priority=5),
        groups=[make_group("ml/g", 2, **fields)],
    )


def move(step: int, pod: str, source: str, target: str, wave: int = 1, mode: str = "live") -> Move:
    return Move(step, wave, f"ml/{pod}", source, target, mode)  # type: ignore[arg-type]


def check(
    *moves: Move, fleet: Snapshot | None = None, goals: Any = (), **request: Any
) -> list[str]:
    from dataclasses import replace

    snapshot = fleet or make_fleet()
    request.setdefault("mode", moves[0].mode if moves else "live")
    plan = make_plan(snapshot, {}, moves=moves, move=MoveRequest(**request))
    return broken_rules(verify_plan(snapshot, replace(plan, goals=tuple(goals))))


SOLO = move(1, "solo-0", "b0", "b1")


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param({}, [], id="allowed"),
        pytest.param({"mode": "restart"}, ["move-mode"], id="another mode"),
        pytest.param({"keep": ("ml/solo-0",)}, ["keep"], id="kept"),
        pytest.param({"movable": ("ml/g-0",)}, ["movable-list"], id="not listed"),
        pytest.param({"movable": (), "movable_groups": ("ml/g",)}, ["movable-list"], id="group"),
        pytest.param({"priority_ceiling": 4}, ["priority-ceiling"], id="too important"),
        pytest.param({"priority_ceiling": 5}, [], id="just not too important"),
        pytest.param({"max_moves": 0}, ["max-moves"], id="too many moves"),
        pytest.param({"max_disturbed": 0}, ["max-disturbed"], id="too many pods"),
    ],
)
def test_what_a_request_allows(request_: dict[str, Any], want: list[str]) -> None:
    assert check(SOLO, **request_) == want


def test_a_drained_node_takes_nothing() -> None:
    outcome = GoalOutcome("drain b1", 1, 0)
    assert check(SOLO, drain=("b1",), goals=[outcome]) == ["drain-target"]


@pytest.mark.parametrize(
    ("goals", "want"),
    [
        pytest.param([GoalOutcome(f"free {RACK}:1", 1, 0)], [], id="as it is"),
        pytest.param([GoalOutcome(f"free {RACK}:1", 1, 1)], ["goal"], id="claimed, not reached"),
        pytest.param([], ["goal"], id="left out"),
        pytest.param(
            [GoalOutcome(f"free {RACK}:1", 1, 0), GoalOutcome("free zone:1", 1, 1)],
            ["goal"],
            id="never asked",
        ),
    ],
)
def test_goals_are_counted_again(goals: list[GoalOutcome], want: list[str]) -> None:
    assert check(SOLO, free=(FreeGoal(RACK, None, 1),), goals=goals) == want


def restart(step: int, pod: str, source: str, target: str, wave: int = 1) -> Move:
    return move(step, pod, source, target, wave, "restart")


@pytest.mark.parametrize(
    ("moves", "fields", "want"),
    [
        pytest.param(
            [restart(1, "g-0", "a0", "b0"), restart(2, "g-1", "a1", "b1")],
            {"disruption": "all", "key": RACK},
            [],
            id="as a whole",
        ),
        pytest.param(
            [restart(1, "g-0", "a0", "a1"), restart(2, "g-1", "a1", "a1")],
            {"disruption": "all"},
            [],
            id="one pod comes back to its node",
        ),
        pytest.param(
            [restart(1, "g-0", "a0", "b0")],
            {"disruption": "all"},
            ["restart-floor", "restart-unit"],
            id="half of an all group",
        ),
        pytest.param(
            [restart(1, "g-0", "a0", "b0"), restart(2, "g-1", "a1", "b1", wave=2)],
            {},
            ["restart-floor"],
            id="a gang in two waves",
        ),
        pytest.param(
            [restart(1, "g-0", "a0", "b0"), restart(2, "g-1", "a1", "a0")],
            {"key": RACK},
            ["topology"],
            id="split over racks",
        ),
    ],
)
def test_restarts(moves: list[Move], fields: dict[str, Any], want: list[str]) -> None:
    assert check(*moves, fleet=make_fleet(**fields)) == want


def test_every_prefix_keeps_the_topology() -> None:
    moves = [move(1, "g-0", "a0", "b0"), move(2, "g-1", "a1", "b1", wave=2)]
    assert check(*moves, fleet=make_fleet(key=RACK)) == ["topology"]
    assert check(*moves, fleet=make_fleet()) == []


@pytest.mark.parametrize(
    ("most", "want"), [pytest.param(2, [], id="two"), pytest.param(1, ["max-parallel"], id="one")]
)
def test_units_on_the_way_at_once(most: int, want: list[str]) -> None:
    moves = [
        restart(1, "g-0", "a0", "b1"),
        restart(2, "g-1", "a1", "b1"),
        restart(3, "solo-0", "b0", "b1"),
    ]
    assert check(*moves, max_parallel=most) == want


@pytest.mark.parametrize(
    ("criteria", "want"),
    [
        pytest.param({"domainsFreed": 1}, [], id="the rack that comes free"),
        pytest.param({"domainsFreed": 0}, ["criterion"], id="fewer than come free"),
        pytest.param({"domainsFreed": 2}, ["criterion"], id="more than come free"),
        pytest.param({"gpuSecondsLost": 0}, [], id="not started, nothing lost"),
        pytest.param({"gpuSecondsLost": 1}, ["criterion"], id="more lost than was done"),
    ],
)
def test_what_is_freed_and_lost_is_counted_again(criteria: dict[str, int], want: list[str]) -> None:
    from dataclasses import replace

    fleet = make_snapshot(
        [make_node(f"{rack}{i}", rack=rack) for rack in "ab" for i in range(2)],
        make_pods("solo", 1, on="b0"),
        make_pods("other", 1, on="a0"),
    )
    request = MoveRequest(mode="live", free=(FreeGoal(RACK, None, 1),))
    plan = make_plan(fleet, {}, moves=[move(1, "solo-0", "b0", "a1")], move=request)
    plan = replace(
        plan,
        request=replace(plan.request, command="repack"),
        goals=(GoalOutcome(f"free {RACK}:1", 1, 1),),
        criteria=criteria,
    )
    assert broken_rules(verify_plan(fleet, plan)) == want
