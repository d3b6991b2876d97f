"""Small random fleets: the plan is as good as the best of all victim sets and all placements.

Victim units, budgets and costs are written down here a second time, from the definitions.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from oracle import Oracle

from ray_jobs.pipeline import make_plan
from topology.model import (
    NO_GROUP,
    AffinityTerm,
    Budget,
    HostPort,
    LabelSelector,
    Phase,
    PodFlag,
    Requirement,
    SpreadTerm,
)
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model import Snapshot
    from topology.plan import Plan

PLACING = ("groupsPlaced", "podsPlaced", "gpusPlaced", "priority")
OBJECTIVES = (
    (
        "max:priority",
        "min:pdbViolations",
        "min:highestVictimPriority",
        "min:victimUnits",
        "min:victimPods",
    ),
    ("max:groupsPlaced", "min:victimPods"),
    ("max:groupsPlaced", "min:victimUnits", "min:victimPods"),
    ("max:gpusPlaced", "min:weightedVictimGpus", "min:victimPods"),
    ("max:podsPlaced", "min:highestVictimPriority", "min:victimGpus", "min:victimPods"),
)


def draw_fleet(
    rng: random.Random, gangs: int, priorities: tuple[int, ...] = (10,), cpu_only: bool = False
) -> Snapshot:
    """Two or three nodes with up to five running units; pending gangs of these priorities."""
    names = [f"n{i}" for i in range(2 if gangs > 2 else rng.choice((2, 3, 3)))]
    nodes = [
        make_node(
            name,
            gpus=rng.choice((2, 4, 4)),
            cpu=rng.choice((4_000, 8_000)),
            rack=rng.choice(("a", "a", "b", None)),
        )
        for name in names
    ]
    groups, rows = [], []
    for v in range(rng.randint(2, 5 if gangs < 3 else 4)):
        spec = _draw_spec(rng, running=True)
        fields: dict[str, Any] = {
            "priority": rng.choice((0, 3, 5, 5, 9, 10, 20)),
            "labels": {"app": rng.choice(("x", "y"))},
            "flags": rng.choice((0,) * 8 + (PodFlag.TERMINATING, PodFlag.DAEMON)),
        }
        kind = rng.choice(("pod", "pod", "single", "all", "below all", "kept"))
        if kind == "pod":
            rows += make_pods(f"v{v}", 1, spec=spec, on=rng.choice(names), **fields)
            continue
        count = rng.choice((1, 2, 2, 3))
        on = [rng.choice(names) for _ in range(count)]
        parent = ""
        mode = "all" if kind in ("all", "kept") else "single"
        if kind == "below all":
            parent = f"ml/top{v}"
            top = {"kind": "composite", "disruption": "all", "priority": fields["priority"]}
            groups.append(make_group(parent, 0, size=count, **top))
        groups.append(
            make_group(
                f"ml/v{v}",
                0,
                size=count,
                parent=parent,
                disruption=mode,
                evictable=kind != "kept",
                priority=fields["priority"],
            )
        )
        rows += make_pods(f"v{v}", count, group=f"ml/v{v}", spec=spec, on=on, **fields)
    for g in range(gangs):
        count = rng.choice((1, 2)) if gangs > 1 else rng.choice((1, 2, 3))
        key = rng.choice((None, RACK))
        priority = rng.choice(priorities)
        spec = _draw_spec(rng, running=False)
        if cpu_only and rng.random() < 0.4:
            spec = make_spec(gpus=0, cpu=rng.choice((1_000, 3_000)))
        floor = count if len(priorities) == 1 else rng.randint(1, count)
        groups.append(make_group(f"ml/g{g}", floor, size=count, key=key, priority=priority))
        rows += make_pods(
            f"g{g}",
            count,
            group=f"ml/g{g}",
            spec=spec,
            labels={"app": rng.choice(("x", "y"))},
            priority=priority,
        )
    budgets = [
        Budget(f"ml/b{b}", _select(app), rng.choice((0, 0, 1)))
        for b, app in enumerate(("x", "y"))
        if rng.random() < 0.5
    ]
    return make_snapshot(nodes, rows, groups=groups, budgets=budgets)


def _draw_spec(rng: random.Random, *, running: bool) -> Any:
    fields: dict[str, Any] = {}
    odd = rng.random()
    if odd < 0.1:
        fields["anti_affinity"] = (AffinityTerm(RACK, _select(rng.choice("xy")), ("ml",)),)
    elif odd < 0.15:
        fields["host_ports"] = (HostPort(80),)
    elif odd < 0.25 and not running:
        fields["spread"] = (SpreadTerm(RACK, 1, _select(rng.choice("xy"))),)
    # All pending pods ask for GPUs: those that do not are placed whatever the objective says.
    gpus = rng.choice((0, 1, 1, 2, 2, 4) if running else (1, 1, 2, 2, 4))
    return make_spec(gpus=gpus, cpu=rng.choice((0, 1_000, 3_000)), **fields)


def _select(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def find_units(snapshot: Snapshot, below: int) -> list[list[int]]:
    """The pods that go together, for every unit of lower priority that may go."""
    pods, groups = snapshot.pods, snapshot.groups
    together: defaultdict[tuple[str, int], list[int]] = defaultdict(list)
    for p in range(len(pods)):
        row = pods.row(p)
        if row.node < 0 or row.flags & PodFlag.TERMINATING or row.phase != Phase.RUNNING:
            continue
        g, highest = row.group, NO_GROUP
        while g != NO_GROUP:
            highest = g if groups[g].disruption == "all" else highest
            g = groups[g].parent
        together["pod" if highest == NO_GROUP else "group", max(highest, p * (highest < 0))].append(
            p
        )
    return [unit for unit in together.values() if all(_may_go(snapshot, p, below) for p in unit)]


def _may_go(snapshot: Snapshot, p: int, below: int) -> bool:
    row = snapshot.pods.row(p)
    g, priority, evictable = row.group, row.priority, True
    while g != NO_GROUP:
        priority = snapshot.groups[g].priority
        evictable = evictable and snapshot.groups[g].evictable
        g = snapshot.groups[g].parent
    return priority < below and evictable and not row.flags & PodFlag.DAEMON


def priority_of(snapshot: Snapshot, unit: list[int]) -> int:
    """Of the root group, or of the pod itself."""
    row = snapshot.pods.row(unit[0])
    g, priority = row.group, row.priority
    while g != NO_GROUP:
        g, priority = snapshot.groups[g].parent, snapshot.groups[g].priority
    return priority


def count_costs(snapshot: Snapshot, units: list[list[int]]) -> dict[str, int]:
    pods = [snapshot.pods.row(p) for unit in units for p in unit]
    priority = [
        p.priority if p.group == NO_GROUP else snapshot.groups[p.group].priority for p in pods
    ]
    gpus = [p.spec.gpus for p in pods]
    excess = 0
    for budget in snapshot.budgets:
        assert budget.selector is not None
        (app,) = budget.selector.requirements[0].values
        excess += max(0, sum(p.labels.get("app") == app for p in pods) - budget.allowed)
    return {
        "victimPods": len(pods),
        "victimUnits": len(units),
        "victimGpus": sum(gpus),
        "weightedVictimGpus": sum(a * b for a, b in zip(priority, gpus, strict=True)),
        "highestVictimPriority": max(priority, default=-1),
        "pdbViolations": excess,
    }


def without(snapshot: Snapshot, units: list[list[int]]) -> Snapshot:
    phase = snapshot.pods.phase.copy()
    phase[[p for unit in units for p in unit]] = Phase.FAILED
    return replace(snapshot, pods=replace(snapshot.pods, phase=phase))


def value(
    after: Snapshot, new: dict[int, int], costs: dict[str, int], objective: tuple[str, ...]
) -> tuple[int, ...]:
    oracle = Oracle(after)
    found: list[int] = []
    for item in objective:
        criterion = item.partition(":")[2]
        found += oracle.value(new, (item,)) if criterion in PLACING else (-costs[criterion],)
    return tuple(found)


def all_values(
    snapshot: Snapshot, objective: tuple[str, ...], hard: bool
) -> Iterator[tuple[int, ...]]:
    units = find_units(snapshot, 10)
    for size in range(len(units) + 1):
        for chosen in itertools.combinations(units, size):
            costs = count_costs(snapshot, list(chosen))
            if hard and costs["pdbViolations"]:
                continue
            after = without(snapshot, list(chosen))
            for new in Oracle(after).placements():
                yield value(after, new, costs, objective)


def read_plan(snapshot: Snapshot, plan: Plan) -> tuple[dict[int, int], list[list[int]]]:
    pods = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    nodes = {node.name: n for n, node in enumerate(snapshot.nodes)}
    new = {pods[pod.pod]: nodes[pod.node] for entry in plan.groups for pod in entry.pods}
    gone = {pods[eviction.pod] for eviction in plan.evictions}
    units = [unit for unit in find_units(snapshot, 10) if gone & set(unit)]
    assert sorted(p for unit in units for p in unit) == sorted(gone)
    return new, units


@pytest.mark.parametrize("seed", range(240))
def test_best_of_all_victim_sets(seed: int) -> None:
    rng = random.Random(seed)
    snapshot = draw_fleet(rng, gangs=rng.choice((1, 1, 2)))
    objective = rng.choice(OBJECTIVES)
    pdb = rng.choice(("soft", "soft", "hard"))
    plan = make_plan(
        snapshot, Request(command="preempt", objective=objective, preempt=True, pdb=pdb)
    )
    assert plan.verification is not None
    assert plan.verification.violations == ()
    new, units = read_plan(snapshot, plan)
    costs = count_costs(snapshot, units)
    want = {k: v for k, v in costs.items() if units or k != "highestVictimPriority"}
    assert {k: v for k, v in plan.criteria.items() if k in costs} == want
    after = without(snapshot, units)
    assert Oracle(after).is_valid(new)
    found = value(after, new, costs, objective)
    want_best = max(all_values(snapshot, objective, pdb == "hard"))
    assert found == want_best
    assert plan.bound.proof == "optimal"


def staged_values(snapshot: Snapshot, hard: bool) -> Iterator[tuple[tuple[int, ...], int]]:
    """Values of all plans of several priorities, and how many pods each places.

    The GPUs of each priority, and between one and the next what goes of those whom the next may
    not evict: more than the ones above need, nobody may take for those below.
    """
    pods, groups = snapshot.pods, snapshot.groups
    rows = [pods.row(p) for p in range(len(pods)) if pods.is_pending[p]]
    with_gpus = {groups[row.group].priority for row in rows if row.spec.gpus}
    steps = sorted(with_gpus, reverse=True)
    everybody = {groups[row.group].priority for row in rows}
    units = find_units(snapshot, max(everybody))
    for size in range(len(units) + 1):
        for chosen in itertools.combinations(units, size):
            costs = count_costs(snapshot, list(chosen))
            if hard and costs["pdbViolations"]:
                continue
            after = without(snapshot, list(chosen))
            guards = {p: _guard(snapshot, list(chosen), p) for p in steps[1:]}
            last = [-costs[item.partition(":")[2]] for item in OBJECTIVES[0][1:]]
            for new in Oracle(after).placements():
                found: list[int] = []
                for step in steps:
                    found += guards.get(step, ())
                    found.append(_count_gpus(snapshot, new, step))
                if any(not row.spec.gpus for row in rows):
                    found.append(len(new))
                yield (*found, *last), len(new)


def _guard(snapshot: Snapshot, chosen: list[list[int]], least: int) -> list[int]:
    kept = [unit for unit in chosen if priority_of(snapshot, unit) >= least]
    costs = count_costs(snapshot, kept)
    return [-costs[item.partition(":")[2]] for item in OBJECTIVES[0][1:]]


def _count_gpus(snapshot: Snapshot, new: dict[int, int], priority: int) -> int:
    rows = [snapshot.pods.row(p) for p in new]
    return sum(row.spec.gpus for row in rows if snapshot.groups[row.group].priority == priority)


@pytest.mark.parametrize("seed", range(160))
def test_several_priorities(seed: int) -> None:
    """Never better than the best, nor said to be optimal where it is not; mostly proven."""
    rng = random.Random(10_000 + seed)
    snapshot = draw_fleet(rng, rng.choice((2, 2, 3)), (10, 10, 6, 4), rng.random() < 0.3)
    pdb = rng.choice(("soft", "soft", "hard"))
    request = Request(command="place", objective=OBJECTIVES[0], preempt=True, pdb=pdb)
    plan = make_plan(snapshot, request)
    assert plan.verification is not None
    assert plan.verification.violations == ()
    new, units = read_plan(snapshot, plan)
    costs = count_costs(snapshot, units)
    values = dict(staged_values(snapshot, pdb == "hard"))
    want_best = max(values)
    pending = [snapshot.pods.row(p) for p in np.flatnonzero(snapshot.pods.is_pending)]
    priorities = {snapshot.groups[r.group].priority for r in pending if r.spec.gpus}
    found: list[int] = []
    for i, step in enumerate(sorted(priorities, reverse=True)):
        found += _guard(snapshot, units, step) if i else ()
        found.append(_count_gpus(snapshot, new, step))
    if any(not row.spec.gpus for row in pending):
        found.append(len(new))
    found += [-costs[item.partition(":")[2]] for item in OBJECTIVES[0][1:]]
    if plan.bound.proof == "optimal":
        assert tuple(found) == want_best
    else:
        assert any(not row.spec.gpus for row in pending)
        assert tuple(found) <= want_best
