"""Many preemptors in one model: counted as good as listed, and never worse than taking turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from bench.instances_joint import SHAPES, make_joint
from optimizer.objective import PREEMPT_OBJECTIVE
from optimizer.problem import build_problem
from optimizer.search import preempt_together
from optimizer.search.cheap_nodes import find_cheap_nodes
from optimizer.search.flat_rows import FlatRows
from optimizer.search.kinds import describe_counted
from optimizer.search.victim_model import empty_fleet
from optimizer.victims import find_victims
from ray_jobs.pipeline import make_plan
from topology.plan import Request

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan

REQUEST = Request(command="place", preempt=True, objective=PREEMPT_OBJECTIVE)


def plan_of(snapshot: Snapshot) -> Plan:
    plan = make_plan(snapshot, REQUEST)
    assert plan.verification is not None
    assert plan.verification.violations == ()
    return plan


def score_of(plan: Plan) -> tuple[int, ...]:
    costs = ("pdbViolations", "highestVictimPriority", "victimUnits", "victimPods")
    return (plan.criteria["gpusPlaced"], *(-plan.criteria.get(name, -1) for name in costs))


@pytest.mark.parametrize("shape", SHAPES)
def test_counted_is_as_good_as_listed(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = make_joint(SHAPES[shape], nodes=48, victims=16, preemptors=4)
    counted = plan_of(snapshot)
    monkeypatch.setattr(FlatRows, "collect", lambda _self, _u: False)
    listed = plan_of(snapshot)
    assert counted.bound.proof == "optimal"
    assert (score_of(counted), counted.bound) == (score_of(listed), listed.bound)


@pytest.mark.parametrize("shape", ["kinds", "levels in racks", "levels among victims", "elastic"])
@pytest.mark.parametrize(
    ("limit", "plenty"),
    [
        pytest.param(0, (1,), id="turns"),
        pytest.param(60, (2, 1), id="cheapest nodes"),
    ],
)
def test_beyond_the_exact_size(
    shape: str, limit: int, plenty: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = make_joint(SHAPES[shape], nodes=48, victims=16, preemptors=6)
    best = score_of(plan_of(snapshot))
    monkeypatch.setattr(preempt_together, "MAX_TOGETHER", limit)
    monkeypatch.setattr(preempt_together, "PLENTY", plenty)
    found = plan_of(snapshot)
    assert score_of(found) <= best
    assert found.bound.proof != "optimal" or score_of(found) == best


def test_same_question_same_plan() -> None:
    snapshot = make_joint(SHAPES["levels in racks"], nodes=48, victims=16, preemptors=8)
    assert plan_of(snapshot).to_dict() == plan_of(snapshot).to_dict()


def test_a_shared_victim_is_charged_once() -> None:
    """Both gangs use what one running gang gives back, and it goes for the higher of them."""
    plan = plan_of(
        make_snapshot(
            [make_node("n0"), make_node("n1")],
            make_pods("v", 2, group="ml/v", spec=make_spec(gpus=8), on=["n0", "n1"]),
            make_pods("g", 1, group="ml/g", spec=make_spec(gpus=8), priority=10),
            make_pods("h", 1, group="ml/h", spec=make_spec(gpus=8), priority=20),
            groups=[
                make_group("ml/v", 2, disruption="all"),
                make_group("ml/g", 1, priority=10),
                make_group("ml/h", 1, priority=20),
            ],
        )
    )
    assert plan.criteria["groupsPlaced"] == 2
    assert plan.criteria["victimUnits"] == 1
    assert {eviction.preemptor for eviction in plan.evictions} <= {"ml/g", "ml/h"}
    assert plan.bound.proof == "optimal"


@pytest.mark.parametrize(
    ("fields", "want_floor"),
    [
        pytest.param({"min_count": 3}, 3, id="plain gang"),
        pytest.param({"min_count": 2}, 2, id="more than its floor"),
        pytest.param({"min_count": 0}, 1, id="no floor: one pod at least"),
        pytest.param({"min_count": 3, "key": RACK}, 3, id="in one rack"),
    ],
)
def test_kinds_that_are_counted(fields: dict[str, object], want_floor: int) -> None:
    snapshot = make_snapshot(
        [make_node("n0", rack="a")],
        make_pods("g", 3, group="ml/g"),
        groups=[make_group("ml/g", size=3, **fields)],  # type: ignore[arg-type]
    )
    problem = build_problem(snapshot, REQUEST)
    kind = describe_counted(problem, problem.units[0])
    assert kind is not None
    assert (kind.floor, kind.is_whole) == (want_floor, want_floor == 3)


@pytest.mark.parametrize(
    ("key", "want_nodes"),
    [
        pytest.param(None, ["n0", "n2", "n3"], id="cheapest nodes"),
        pytest.param(RACK, ["n2", "n3"], id="cheapest rack that holds a gang"),
    ],
)
def test_cheap_nodes(key: str | None, want_nodes: list[str]) -> None:
    """Two pods of 4 GPUs; n0 is empty but alone, n1 is full, n2 and n3 are half full."""
    racks = {"n0": "a", "n1": "a", "n2": "b", "n3": "b"}
    held = {"n1": 8, "n2": 4, "n3": 4}
    snapshot = make_snapshot(
        [make_node(name, gpus=4 if name == "n0" else 8, rack=r) for name, r in racks.items()],
        *(
            make_pods(f"v{name}", 1, spec=make_spec(gpus=gpus), on=name)
            for name, gpus in held.items()
        ),
        make_pods("g", 2, group="ml/g", spec=make_spec(gpus=4), priority=10),
        groups=[make_group("ml/g", 2, key=key, priority=10)],
    )
    fleet = empty_fleet(
        snapshot,
        REQUEST,
        victims=find_victims(snapshot, 10),
        gone=(),
        placed={},
        only=["ml/g"],
    )
    found = find_cheap_nodes(fleet, [0], 2 if key is None else 1)
    assert [snapshot.nodes[n].name for n in found] == want_nodes
