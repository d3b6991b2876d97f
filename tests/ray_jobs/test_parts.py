"""Fleets cut into parts on purpose: plans are valid, told, the same for any workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_fleets import Rows, tiny_fleets

from optimizer.answer import assign_pods
from optimizer.problem import build_problem
from optimizer.search.place import place_greedily
from ray_jobs.pipeline import make_plan
from topology.model import AffinityTerm, LabelSelector, Requirement
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topology.model import Snapshot
    from topology.plan import Plan

ZONE = "topology.kubernetes.io/zone"
Groups = dict[str, str]


def cut(monkeypatch: pytest.MonkeyPatch, nodes: int) -> None:
    """Let every fleet of more nodes be cut into parts of so many."""
    monkeypatch.setattr("optimizer.search.parts.MAX_NODES", nodes)
    monkeypatch.setattr("optimizer.search.parts.CUT_FROM", 0)


def outcomes(plan: Plan) -> Groups:
    return {entry.group: entry.outcome for entry in plan.groups}


def fleet(*gangs: tuple[int, str | None, int], racks: int = 4, nodes: int = 2) -> Snapshot:
    """Racks of empty nodes with 8 GPUs, two racks a zone; gangs (pods of 8, key, priority)."""
    machines = [
        make_node(f"n{r}{i}", rack=f"r{r}", labels={ZONE: f"z{r // 2}"})
        for r in range(racks)
        for i in range(nodes)
    ]
    groups = [
        make_group(f"ml/g{i}", count, key=key, priority=priority)
        for i, (count, key, priority) in enumerate(gangs)
    ]
    pods = [
        make_pods(f"p{i}", count, group=f"ml/g{i}", spec=make_spec(gpus=8))
        for i, (count, _, _) in enumerate(gangs)
    ]
    return make_snapshot(machines, *pods, groups=groups)


@pytest.mark.parametrize(
    ("snapshot", "want_placed"),
    [
        pytest.param(fleet((2, RACK, 0), (2, RACK, 0)), 4, id="a rack each"),
        pytest.param(fleet((3, None, 0)), 3, id="more than a part, across parts"),
        pytest.param(fleet((4, ZONE, 0), (2, RACK, 0)), 6, id="a key wider than the parts"),
        pytest.param(fleet((2, RACK, 9), (7, None, 5)), 2, id="too large beside a more urgent one"),
        pytest.param(fleet((7, None, 9), (2, RACK, 5)), 7, id="the urgent one spans all parts"),
        pytest.param(fleet((9, None, 0), (1, None, 0)), 1, id="one too many, and a small one"),
        pytest.param(fleet((1, None, 0), (1, None, 0), (2, RACK, 0)), 4, id="room left in a part"),
    ],
)
def test_pods_placed_by_a_fleet_cut_by_racks(
    snapshot: Snapshot, want_placed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, 2)
    plan = make_plan(snapshot, Request())
    assert plan.verification is not None
    assert plan.verification.violations == ()
    assert plan.criteria["podsPlaced"] == want_placed


def test_a_cut_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, 2)
    plan = make_plan(fleet((4, ZONE, 0), (2, RACK, 0), (9, None, 0)), Request())
    assert any("searched in 1 parts of up to 2 nodes" in line for line in plan.warnings)
    assert any(f"wider domains ({ZONE})" in line for line in plan.warnings)


def test_small_fleets_are_not_cut() -> None:
    plan = make_plan(fleet((4, ZONE, 0)), Request())
    assert not any("parts" in line for line in plan.warnings)


def test_all_that_waits_placed_is_optimal(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, 2)
    plan = make_plan(fleet((2, RACK, 5), (3, None, 0)), Request())
    assert plan.bound.proof == "optimal"


def test_groups_that_other_pods_repel_are_placed_on_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    selector = LabelSelector((Requirement("app", "In", ("x",)),))
    spec = make_spec(anti_affinity=(AffinityTerm(RACK, selector, ("ml",)),))
    nodes = [make_node(f"n{i}", rack=f"r{i}") for i in range(4)]
    pods = make_pods("p", 4, group="ml/g", spec=spec, labels={"app": "x"})
    cut(monkeypatch, 1)
    plan = make_plan(make_snapshot(nodes, pods, groups=[make_group("ml/g", 4)]), Request())
    assert plan.verification is not None
    assert plan.verification.violations == ()
    assert {pod.node for entry in plan.groups for pod in entry.pods} == {"n0", "n1", "n2", "n3"}


@pytest.mark.parametrize(
    ("nominated", "want_node"),
    [
        pytest.param("n00", "n01", id="its node is left free"),
        pytest.param("", "n00", id="none: the first node"),
    ],
)
def test_room_is_left_to_a_nominated_pod_that_is_not_asked_for(
    nominated: str, want_node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [make_node(f"n{r}{i}", rack=f"r{r}") for r in range(2) for i in range(2)]
    spec = make_spec(gpus=8)
    urgent = make_pods("p0", 1, group="ml/g0", spec=spec, nominated=nominated, priority=9)
    pods = [urgent, make_pods("p1", 1, group="ml/g1", spec=spec)]
    groups = [make_group("ml/g0", 1, priority=9), make_group("ml/g1", 1)]
    cut(monkeypatch, 2)
    plan = make_plan(make_snapshot(nodes, *pods, groups=groups), Request(groups=("ml/g1",)))
    assert plan.verification is not None
    assert plan.verification.violations == ()
    assert [pod.node for entry in plan.groups for pod in entry.pods] == [want_node]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=tiny_fleets(), nodes=st.integers(1, 2))
def test_cut_fleets_are_no_worse_than_greedy_and_no_better_than_the_best(
    rows: Rows, nodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = rows.build()
    whole = make_plan(snapshot, Request())
    with monkeypatch.context() as patch:
        cut(patch, nodes)
        plan = make_plan(snapshot, Request())
    assert plan.verification is not None
    assert plan.verification.violations == ()
    assert outcomes(plan).keys() == outcomes(whole).keys()
    problem = build_problem(snapshot, Request())
    greedy = assign_pods(problem, place_greedily(problem, Request()))
    value = value_of(snapshot, {snapshot.pods.refs.index(p) for p in placed_by(plan)})
    assert value >= value_of(snapshot, greedy)
    if whole.bound.proof == "optimal":
        best = {snapshot.pods.refs.index(p) for p in placed_by(whole)}
        assert value <= value_of(snapshot, best)


def placed_by(plan: Plan) -> set[str]:
    return {pod.pod for entry in plan.groups for pod in entry.pods}


def value_of(snapshot: Snapshot, placed: Iterable[int]) -> list[tuple[int, int]]:
    """GPUs placed at each priority, most urgent first: what `max:priority` compares."""
    pods = snapshot.pods
    gpus = dict.fromkeys(
        {group.priority for group in snapshot.groups} | set(pods.priority.tolist()), 0
    )
    for p in placed:
        g = int(pods.group[p])
        priority = int(pods.priority[p]) if g < 0 else snapshot.groups[g].priority
        gpus[priority] += pods.specs[pods.spec[p]].gpus
    return sorted(gpus.items(), reverse=True)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_session")
def test_workers_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cut(monkeypatch, 2)
    gangs = [(1 + i % 3, RACK if i % 2 and i % 3 < 2 else None, i % 4) for i in range(12)]
    snapshot = fleet(*gangs, racks=8)
    texts = {
        json.dumps(make_plan(snapshot, Request(), workers=workers).to_dict())
        for workers in (None, 1, 2)
    }
    assert len(texts) == 1
