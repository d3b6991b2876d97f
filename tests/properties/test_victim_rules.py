"""Plans that the search makes, broken in one way each: the verifier names the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from plan_builders import broken_rules

from bench.victim_fleets import draw_question
from optimizer.verify import verify_plan
from ray_jobs.pipeline import make_plan
from topology.model import NO_GROUP
from topology.plan import Eviction, Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model import Snapshot
    from topology.plan import Plan


def changes(snapshot: Snapshot, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Yield a rule, and the plan with that rule broken."""
    evictions = plan.evictions
    first = evictions[0]
    placed = {entry.group for entry in plan.groups if entry.outcome == "placed"}
    left_out = [entry.group for entry in plan.groups if entry.outcome == "notPlaced"]

    def other(eviction: Eviction) -> Plan:
        return replace(plan, evictions=(eviction, *evictions[1:]))

    yield "preempt-asked", replace(plan, request=replace(plan.request, preempt=False))
    yield "evicted-once", replace(plan, evictions=(*evictions, first))
    yield "preemptor", other(replace(first, preemptor=None))
    if left_out:
        yield "preemptor", other(replace(first, preemptor=left_out[0]))
    elsewhere = next(node.name for node in snapshot.nodes if node.name != first.node)
    yield "evict-node", other(replace(first, node=elsewhere))
    if plan.criteria["pdbViolations"]:
        yield "pdb-hard", replace(plan, request=replace(plan.request, pdb="hard"))
    for name in ("victimPods", "victimUnits", "victimGpus", "pdbViolations"):
        yield "criterion", replace(plan, criteria={**plan.criteria, name: plan.criteria[name] - 1})
    pods = snapshot.pods
    gone = {eviction.pod for eviction in evictions}
    for p in np.flatnonzero(pods.is_running_member).tolist():
        row = pods.row(p)
        above = row.priority if row.group == NO_GROUP else snapshot.groups[row.group].priority
        if above >= 1_000 and row.ref not in gone:
            more = Eviction(row.ref, snapshot.nodes[row.node].name, preemptor=min(placed))
            yield "evict-priority", replace(plan, evictions=(*evictions, more))
        if row.ref in gone and row.group != NO_GROUP:
            inside = pods.group == row.group
            if snapshot.groups[row.group].disruption == "all" and inside.sum() > 1:
                rest = tuple(e for e in evictions if e.pod != row.ref)
                yield "evict-unit", replace(plan, evictions=rest)


@pytest.mark.parametrize("seed", range(40))
def test_every_change_is_caught(seed: int) -> None:
    snapshot, objective, _ = draw_question(seed)
    plan = make_plan(snapshot, Request(preempt=True, objective=objective))
    assert verify_plan(snapshot, plan).violations == ()
    if not plan.evictions:
        return
    for rule, changed in changes(snapshot, plan):
        assert rule in broken_rules(verify_plan(snapshot, changed))
