"""What holds for every plan with evictions: it verifies, and no victim could be spared."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from builders import RACK, make_group, make_spec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tiny_fleets import Rows, tiny_fleets

from optimizer.verify import verify_plan
from ray_jobs.pipeline import make_plan
from topology.assemble import PodRow
from topology.model import NO_GROUP, AffinityTerm, LabelSelector, Phase
from topology.plan import Request

if TYPE_CHECKING:
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
REPEL = AffinityTerm(RACK, LabelSelector(), ("ml",))


@st.composite
def crowded_fleets(draw: st.DrawFn) -> Rows:
    """A tiny fleet with one to four running units of low priority besides."""
    rows = draw(tiny_fleets())
    names = [node.name for node in rows.nodes]
    for i in range(draw(st.integers(1, 4))):
        priority = draw(st.sampled_from((-5, -1, -1, 0, 5)))
        mode = draw(st.sampled_from(("pod", "single", "all")))
        count = draw(st.integers(1, 2))
        group = "" if mode == "pod" else f"ml/r{i}"
        if group:
            rows.groups.append(make_group(group, 0, size=count, priority=priority, disruption=mode))
        spec = make_spec(
            gpus=draw(st.sampled_from((0, 1, 1, 2))),
            cpu=draw(st.sampled_from((0, 1_000, 3_000))),
            anti_affinity=draw(st.sampled_from(((), (), (REPEL,)))),
        )
        for j in range(count):
            fields: dict[str, Any] = {"labels": {"app": draw(st.sampled_from(("g0", "g1", "x")))}}
            node = draw(st.sampled_from(names))
            rows.pods.append(
                PodRow(
                    f"ml/r{i}-{j}",
                    spec,
                    node=node,
                    group=group,
                    phase=Phase.RUNNING,
                    priority=priority,
                    **fields,
                )
            )
    return rows


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
