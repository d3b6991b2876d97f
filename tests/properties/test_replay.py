"""What holds for every replayed plan: it verifies, it repeats, and the search is never worse."""

from __future__ import annotations

import pytest
from crowded_fleets import crowded_fleets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_fleets import Rows, tiny_fleets

from optimizer.problem import build_problem
from optimizer.replay.compare import score_plan
from ray_jobs.pipeline import make_plan
from topology.plan import Request

PREEMPT = (
    "max:priority",
    "min:pdbViolations",
    "min:highestVictimPriority",
    "min:victimUnits",
    "min:victimPods",
)
RELEASES = st.sampled_from(("1.35", "1.36", "1.37"))
thorough = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True
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


@settings(thorough, max_examples=40)
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


@settings(thorough, max_examples=40)
@given(rows=crowded_fleets(), seed=st.integers(0, 9), effort=st.sampled_from(("quick", "normal")))
def test_replay_depends_on_neither_seed_nor_effort(rows: Rows, seed: int, effort: str) -> None:
    def replay(**options: object) -> object:
        request = Request(policy="replay", preempt=True, objective=PREEMPT, **options)  # type: ignore[arg-type]
        document = make_plan(rows.build(), request).to_dict()
        return {key: document[key] for key in ("groups", "evictions", "criteria")}

    assert replay(seed=seed, effort=effort) == replay()


if __name__ == "__main__":
    pytest.main([__file__])
