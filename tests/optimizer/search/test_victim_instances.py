"""Instances whose optimum is known: reached, and proven."""

from __future__ import annotations

import pytest

from bench.instances_victims import make_victims
from ray_jobs.pipeline import make_plan
from topology.plan import Bound, Request


@pytest.mark.parametrize(
    ("groups", "per_domain", "want_cost"),
    [
        pytest.param(20, 16, 32, id="20 gangs, domains of 16 nodes"),
        pytest.param(100, 16, 40, id="100 gangs, domains of 16 nodes"),
        pytest.param(100, 64, 232, id="100 gangs, domains of 64 nodes"),
    ],
)
def test_known_optimum(groups: int, per_domain: int, want_cost: int) -> None:
    request = Request(
        command="preempt",
        groups=("bench/preemptor",),
        objective=("min:weightedVictimGpus",),
        preempt=True,
    )
    plan = make_plan(make_victims(groups, per_domain), request)
    assert plan.verification is not None
    assert plan.verification.violations == ()
    assert plan.criteria["podsPlaced"] == per_domain // 2
    assert plan.criteria["weightedVictimGpus"] == want_cost
    assert plan.bound == Bound("weightedVictimGpus", want_cost, 0.0, "optimal")
