"""What holds for every replayed plan: it verifies, it repeats, and the search is never worse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders import RACK, make_group, make_pods, make_spec
from crowded_fleets import crowded_fleets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_fleets import Rows, tiny_fleets

from optimizer.problem import build_problem
from optimizer.replay.compare import score_plan
from optimizer.replay.state import WorkingSnapshot
from optimizer.verify import verify_plan
from ray_jobs.pipeline import make_plan
from topology.model import NO_GROUP
from topology.plan import PlacedPod, Request

if TYPE_CHECKING:
    from topology.plan import Eviction

PREEMPT = (
    "max:priority",
    "min:pdbViolations",
    "min:highestVictimPriority",
    "min:victimUnits",
    "min:victimPods",
)
RELEASES = st.sampled_from(("1.35", "1.36", "1.37"))
thorough = settings(
    max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
)


@thorough
@given(rows=tiny_fleets(), release=RELEASES)
def test_replayed_placement_verifies(rows: Rows, release: str) -> None:
    plan = make_plan(rows.build(), Request(policy="replay", release=release))
    assert plan.verification is not None
    assert plan.verification.violations == ()


@thorough
@given(rows=crowded_fleets(), release=RELEASES)
def test_replayed_preemption_verifies(rows: Rows, release: str) -> None:
    request = Request(policy="replay", release=release, preempt=True, objective=PREEMPT)
    plan = make_plan(rows.build(), request)
    assert plan.verification is not None
    assert plan.verification.violations == ()


@settings(thorough, max_examples=25)
@given(rows=crowded_fleets(), preempt=st.booleans())
def test_search_is_never_worse(rows: Rows, preempt: bool) -> None:
    snapshot = rows.build()
    request = Request(policy="compare", effort="quick", preempt=preempt)
    if preempt:
        request = Request(policy="compare", effort="quick", preempt=True, objective=PREEMPT)
    plan = make_plan(snapshot, request)
    assert plan.comparison is not None
    problem = build_problem(snapshot, request)
    replayed = plan.comparison.replay
    assert score_plan(problem, request, plan) >= score_plan(problem, request, replayed)
    assert plan.verification is not None
    assert plan.verification.is_valid


@settings(thorough, max_examples=25)
@given(rows=crowded_fleets(), seed=st.integers(0, 9), effort=st.sampled_from(("quick", "normal")))
def test_replay_depends_on_neither_seed_nor_effort(rows: Rows, seed: int, effort: str) -> None:
    def replay(**options: object) -> object:
        request = Request(policy="replay", preempt=True, objective=PREEMPT, **options)  # type: ignore[arg-type]
        document = make_plan(rows.build(), request).to_dict()
        return {key: document[key] for key in ("groups", "evictions", "criteria")}

    assert replay(seed=seed, effort=effort) == replay()


@settings(thorough, max_examples=25)
@given(rows=crowded_fleets())
def test_no_victim_of_1_37_could_be_spared(rows: Rows) -> None:
    """In-place sparing leaves nobody out whom the frozen nodes have room for."""
    snapshot = rows.build()
    plan = make_plan(snapshot, Request(policy="replay", preempt=True, objective=PREEMPT))
    units: dict[object, list[Eviction]] = {}
    for eviction in plan.evictions:
        g = int(snapshot.pods.group[snapshot.pods.refs.index(eviction.pod)])
        goes_whole = g != NO_GROUP and snapshot.groups[g].disruption == "all"
        units.setdefault(g if goes_whole else eviction.pod, []).append(eviction)
    for unit in units.values():
        others = tuple(eviction for eviction in plan.evictions if eviction not in unit)
        assert not verify_plan(snapshot, replace(plan, evictions=others, criteria={})).is_valid


@settings(thorough, max_examples=25)
@given(rows=tiny_fleets())
def test_no_single_pod_is_left_where_it_fits(rows: Rows) -> None:
    """What the filters refuse, the verifier refuses too: on every node, by some rule."""
    snapshot = rows.build()
    plan = make_plan(snapshot, Request(policy="replay"))
    for i, entry in enumerate(plan.groups):
        if entry.api != "v1/Pod" or entry.outcome == "placed":
            continue
        for node in snapshot.nodes:
            seat = PlacedPod(entry.group, node.name)
            placed = replace(entry, outcome="placed", cause=None, pods=(seat,), pending_pods=())
            groups = (*plan.groups[:i], placed, *plan.groups[i + 1 :])
            assert not verify_plan(snapshot, replace(plan, groups=groups, criteria={})).is_valid


@settings(thorough, max_examples=25)
@given(rows=crowded_fleets(), copies=st.integers(1, 3))
def test_shortcuts_change_nothing(rows: Rows, copies: int) -> None:
    """Gangs alike share what they met in a domain, and amounts alone spare victims faster."""
    for i in range(copies):
        rows.groups.append(make_group(f"ml/t{i}", 1, size=2, key=RACK, priority=7))
        pods = make_pods(f"t{i}", 2, group=f"ml/t{i}", spec=make_spec(cpu=1_000), priority=7)
        rows.pods += pods
    snapshot, request = rows.build(), Request(policy="replay", preempt=True, objective=PREEMPT)
    want = make_plan(snapshot, request)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkingSnapshot, "is_plain", lambda *_: False)
        assert make_plan(snapshot, request) == want
