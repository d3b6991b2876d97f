"""What holds for every plan: it verifies, is as good as brute force, and follows from its input."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from builders import make_node
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import Oracle
from tiny_fleets import Rows, tiny_fleets, tiny_gangs

from ray_jobs.pipeline import make_plan
from topology.plan import Request

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan

OBJECTIVES = (
    ("max:priority", "max:gpusPlaced", "min:fragmentation"),
    ("max:groupsPlaced",),
    ("max:gpusPlaced", "max:podsPlaced"),
    ("max:weightedGpus", "max:podsPlaced"),
    ("max:podsPlaced", "min:gpusPlaced"),
)


def _settings(examples: int) -> Any:
    return settings(max_examples=examples, suppress_health_check=list(HealthCheck))


def _placed(snapshot: Snapshot, plan: Plan) -> dict[int, int]:
    pods = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    nodes = {node.name: n for n, node in enumerate(snapshot.nodes)}
    return {pods[pod.pod]: nodes[pod.node] for entry in plan.groups for pod in entry.pods}


def _check(rows: Rows, objective: tuple[str, ...]) -> None:
    snapshot = rows.build()
    plan = make_plan(snapshot, Request(objective=objective))
    assert plan.verification is not None
    assert plan.verification.violations == ()
    oracle = Oracle(snapshot)
    placed = _placed(snapshot, plan)
    assert oracle.is_valid(placed)
    want_value = oracle.find_best(objective)
    assert oracle.value(placed, objective) == want_value
    assert plan.bound.proof == "optimal"


@given(tiny_fleets(), st.sampled_from(OBJECTIVES))
@_settings(60)
def test_plans_are_valid_and_as_good_as_brute_force(rows: Rows, objective: tuple[str, ...]) -> None:
    _check(rows, objective)


@pytest.mark.slow
@given(tiny_fleets(), st.sampled_from(OBJECTIVES))
@_settings(1000)
def test_many_plans_are_as_good_as_brute_force(rows: Rows, objective: tuple[str, ...]) -> None:
    _check(rows, objective)


@given(tiny_fleets(), st.integers(0, 1000))
@_settings(25)
def test_the_order_of_the_input_changes_nothing(rows: Rows, seed: int) -> None:
    shuffle = random.Random(seed).shuffle
    other = Rows(list(rows.nodes), list(rows.pods), list(rows.groups))
    for some in (other.nodes, other.pods, other.groups):
        shuffle(some)
    want_plan = make_plan(rows.build(), Request()).to_dict()
    assert make_plan(other.build(), Request()).to_dict() == want_plan


@given(tiny_fleets(), st.integers(0, 3))
@_settings(25)
def test_the_same_question_gives_the_same_bytes(rows: Rows, seed: int) -> None:
    request = Request(seed=seed)
    want_bytes = json.dumps(make_plan(rows.build(), request).to_dict())
    assert json.dumps(make_plan(rows.build(), request).to_dict()) == want_bytes


@given(tiny_gangs())
@_settings(40)
def test_one_more_empty_node_never_makes_a_gang_unplaceable(rows: Rows) -> None:
    before = make_plan(rows.build(), Request())
    extra = make_node("n9", gpus=4, rack="a")
    after = make_plan(Rows([*rows.nodes, extra], rows.pods, rows.groups).build(), Request())
    was = {e.group for e in before.groups if e.outcome == "placed"}
    assert was <= {e.group for e in after.groups if e.outcome == "placed"}


@given(tiny_fleets(), st.sampled_from(OBJECTIVES))
@_settings(40)
def test_a_gang_gets_its_floor_or_nothing(rows: Rows, objective: tuple[str, ...]) -> None:
    snapshot = rows.build()
    plan = make_plan(snapshot, Request(objective=objective))
    index = {group.ref: g for g, group in enumerate(snapshot.groups)}
    running = snapshot.pods.is_running_member
    for entry in plan.groups:
        if not entry.pods or entry.group not in index:
            continue
        below = {index[entry.group]}
        for g, group in enumerate(snapshot.groups):
            if group.parent in below:
                below.add(g)
        members = sum(
            bool(running[p]) and int(snapshot.pods.group[p]) in below
            for p in range(len(snapshot.pods))
        )
        assert members + len(entry.pods) >= entry.min_count


@given(tiny_fleets(), st.data())
@_settings(60)
def test_plans_leave_room_to_nominated_pods(rows: Rows, data: st.DataObject) -> None:
    names = [node.name for node in rows.nodes]
    waiting = [pod for pod in rows.pods if not pod.node]
    for pod in waiting:
        pod.nominated = data.draw(st.sampled_from(["", "", *names]))
    refs = sorted({pod.group or pod.ref for pod in waiting})
    asked = data.draw(st.sampled_from([None, *((ref,) for ref in refs)]))
    plan = make_plan(rows.build(), Request(groups=asked))
    assert plan.verification is not None
    assert plan.verification.violations == ()
