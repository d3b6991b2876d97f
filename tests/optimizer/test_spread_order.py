"""Pods without a spread constraint that would break one of pods placed in the same plan."""

from __future__ import annotations

from builders import make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.problem import build_problem
from optimizer.search.place import search_placement
from optimizer.spread_order import find_unspread
from ray_jobs.pipeline import make_plan
from topology.model import LabelSelector, Requirement, SpreadTerm
from topology.plan import Request

ZONE = "topology.kubernetes.io/zone"
APP = LabelSelector((Requirement("app", "In", ("web",)),))


def make_fleet(crowd: int):
    """Two zones of one node; a spread gang of two, and a crowd that counts but is not spread."""
    nodes = [
        make_node("n0", gpus=8, labels={ZONE: "a"}),
        make_node("n1", gpus=1, labels={ZONE: "b"}),
    ]
    even = make_spec(gpus=1, spread=(SpreadTerm(ZONE, 1, APP),))
    groups = [
        make_group("ml/even", 2, priority=10),
        make_group("ml/crowd", crowd, priority=1),
    ]
    return make_snapshot(
        nodes,
        make_pods("even", 2, group="ml/even", spec=even, labels={"app": "web"}),
        make_pods("crowd", crowd, group="ml/crowd", labels={"app": "web"}),
        groups=groups,
    )


def test_a_crowd_that_tips_the_balance_stays_out() -> None:
    plan = make_plan(make_fleet(3), Request())
    outcome = {entry.group: entry.outcome for entry in plan.groups}
    assert outcome == {"ml/even": "placed", "ml/crowd": "notPlaced"}
    assert plan.verification is not None
    assert plan.verification.is_valid


def test_one_more_is_within_the_skew() -> None:
    plan = make_plan(make_fleet(1), Request())
    assert {entry.outcome for entry in plan.groups} == {"placed"}
    assert plan.verification is not None
    assert plan.verification.is_valid


def test_nothing_is_left_out_where_all_holds() -> None:
    request = Request()
    problem = build_problem(make_fleet(1), request)
    assert find_unspread(problem, search_placement(problem, request).placements) == []
