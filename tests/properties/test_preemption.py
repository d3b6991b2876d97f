"""What holds for every plan with evictions: it verifies, and no victim could be spared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from crowded_fleets import crowded_fleets
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from optimizer.verify import verify_plan
from ray_jobs.pipeline import make_plan
from topology.model import NO_GROUP
from topology.plan import Request

if TYPE_CHECKING:
    from tiny_fleets import Rows

    from topology.plan import Eviction

OBJECTIVES = (
    (
        "max:priority",
        "min:pdbViolations",
        "min:highestVictimPriority",
        "min:victimUnits",
        "min:victimPods",
    ),
    ("max:groupsPlaced", "min:victimPods"),
    ("max:gpusPlaced", "min:weightedVictimGpus"),
)


@given(
    crowded_fleets(),
    st.sampled_from(OBJECTIVES),
    st.sampled_from(("1.36", "1.37")),
    st.sampled_from(("soft", "hard")),
)
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_valid_and_nobody_goes_for_nothing(
    rows: Rows, objective: tuple[str, ...], release: str, pdb: Any
) -> None:
    snapshot = rows.build()
    request = Request(preempt=True, objective=objective, release=release, pdb=pdb)
    plan = make_plan(snapshot, request)
    assert plan.verification is not None
    if plan.verification.violations:
        # Not the doing of evictions: two spread constraints over the same pods, say.
        alone = make_plan(snapshot, replace(request, preempt=False, objective=objective[:1]))
        assume(alone.verification is not None and alone.verification.is_valid)
    assert plan.verification.violations == ()
    assert not (pdb == "hard" and plan.criteria["pdbViolations"])
    pods = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    units: dict[object, list[Eviction]] = {}
    for eviction in plan.evictions:
        g = int(snapshot.pods.group[pods[eviction.pod]])
        goes_whole = g != NO_GROUP and snapshot.groups[g].disruption == "all"
        units.setdefault(g if goes_whole else eviction.pod, []).append(eviction)
    for unit in units.values():
        others = tuple(eviction for eviction in plan.evictions if eviction not in unit)
        without = verify_plan(snapshot, replace(plan, evictions=others, criteria={}))
        assert not without.is_valid


@given(crowded_fleets())
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
def test_same_question_same_plan(rows: Rows) -> None:
    snapshot = rows.build()
    request = Request(preempt=True, objective=OBJECTIVES[0])
    assert make_plan(snapshot, request).to_dict() == make_plan(snapshot, request).to_dict()
