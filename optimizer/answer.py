"""Placements in indices -> a plan in names: groups, domains, causes, criteria, bound."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import seat_pods
from optimizer.explain import Explainer
from optimizer.explain_eviction import EvictionAdviser
from optimizer.explain_words import say_quorum
from optimizer.fragmentation import measure_fragmentation
from optimizer.shortfall import list_some
from topology.levels import NO_DOMAIN
from topology.model import NO_GROUP
from topology.owners import group_ref
from topology.plan import Bound, Cause, ChosenDomain, Eviction, GroupPlan, PlacedPod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from optimizer.problem import Problem, Unit, UnitKey
    from optimizer.search.place import PlaceResult
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = [
    "assign_pods",
    "count_criteria",
    "describe_bound",
    "describe_evictions",
    "describe_groups",
    "find_conditions",
    "find_idle",
]


def assign_pods(problem: Problem, result: PlaceResult) -> dict[int, int]:
    """Give every placed pod of every unit its node."""
    placed: dict[int, int] = {}
    for u, placement in result.placements.items():
        placed |= seat_pods(problem.units[u], placement)
    return placed


def describe_groups(
    snapshot: Snapshot,
    request: Request,
    problem: Problem,
    placed: Mapping[int, int],
    progress: Callable[[str], None],
    cycles: Mapping[UnitKey, str] | None = None,
    notes: list[str] | None = None,
    *,
    causes: bool = True,
) -> tuple[GroupPlan, ...]:
    """Write the entry of every group of the request, sorted by reference.

    `cycles` holds what a scheduler said of the units that its own cycle left out; `notes` takes
    lines for the user about what was not looked for. Without `causes` nothing says why a group is
    not placed, which takes longest.
    """
    unplaced = [
        unit
        for unit in problem.units
        if not (_is_idle(unit) or any(p in placed for t in unit.tasks for p in t.pods))
    ]
    why: dict[UnitKey, Cause] = {}
    if unplaced and causes:
        progress(f"explaining {len(unplaced)} groups that are not placed")
        explainer = Explainer(snapshot, request, problem, placed, [u.ref for u in unplaced])
        said = cycles or {}
        why = {unit.key: explainer.explain(unit, said.get(unit.key, "")) for unit in unplaced}
        if request.command == "explain" and request.policy == "optimize":
            why = _add_remedies(explainer, why, unplaced, [] if notes is None else notes)
    entries: list[GroupPlan] = []
    for unit in problem.units:
        entries += _describe_unit(snapshot, problem, unit, placed, why.get(unit.key))
    return tuple(sorted(entries, key=lambda e: e.group))


def _add_remedies(
    explainer: Explainer,
    causes: Mapping[UnitKey, Cause],
    units: Sequence[Unit],
    notes: list[str],
) -> dict[UnitKey, Cause]:
    """Say of each cause what eviction, or other gangs giving up, would change."""
    found = _add_deadlocks(explainer, causes, units)
    if not explainer.request.preempt:
        adviser = EvictionAdviser(explainer)
        found = {unit.key: adviser.add(unit, found[unit.key]) for unit in units}
        if line := adviser.describe_skipped():
            notes.append(line)
    return found


def _add_deadlocks(
    explainer: Explainer, causes: Mapping[UnitKey, Cause], units: Sequence[Unit]
) -> dict[UnitKey, Cause]:
    """Name the gangs that each cause's group is in a deadlock with."""
    found = dict(causes)
    if sum(bool(unit.root.running) for unit in explainer.problem.units) < 2:
        return found
    from optimizer.deadlocks import find_deadlocks

    for deadlock in find_deadlocks(explainer.snapshot, explainer.request.release):
        refs = [gang.group for gang in deadlock.gangs]
        for unit in units:
            if unit.ref not in refs or unit.root.group == NO_GROUP:
                continue
            others = [ref for ref in refs if ref != unit.ref]
            cause = found[unit.key]
            message = (
                f"{cause.message}; it and {list_some(others)} block one another: each holds GPUs "
                "that the others need"
            )
            details = {**cause.details, "deadlock": others}
            found[unit.key] = replace(cause, message=message, details=details)
    return found


def find_idle(problem: Problem) -> list[str]:
    """Return a line for each unit of the request that has nothing to place and lacks nothing."""
    return [
        f"group {unit.ref} has no pod that waits for a node; it is left out"
        for unit in problem.units
        if _is_idle(unit)
    ]


def _is_idle(unit: Unit) -> bool:
    return not unit.tasks and unit.has_quorum()


def _describe_unit(
    snapshot: Snapshot,
    problem: Problem,
    unit: Unit,
    placed: Mapping[int, int],
    cause: Cause | None,
) -> list[GroupPlan]:
    pods = snapshot.pods
    if unit.root.group == NO_GROUP:
        pod = unit.tasks[0].pods[0]
        node = placed.get(pod)
        entry = GroupPlan(unit.ref, "v1/Pod", "basic", 1, unit.priority, "notPlaced", cause)
        if node is None:
            return [replace(entry, pending_pods=(unit.ref,))]
        own_pod = PlacedPod(unit.ref, snapshot.nodes[node].name)
        return [replace(entry, outcome="placed", pods=(own_pod,))]
    entries = []
    for at, node_of_tree in enumerate(unit.tree):
        group = snapshot.groups[node_of_tree.group]
        if group.kind != "group":
            continue
        composite = None
        if group.parent != NO_GROUP:
            composite = snapshot.groups[group.parent].ref
        inside = set(unit.walk(at))
        members = sorted(p for task in unit.tasks if task.leaf in inside for p in task.pods)
        own = tuple(_describe_pod(snapshot, p, placed[p]) for p in members if p in placed)
        waiting = tuple(pods.refs[p] for p in members if p not in placed)
        why = cause
        if not own and cause is None and not unit.has_quorum(at):
            why = Cause("quorum-missing", *say_quorum(snapshot, unit, at))
        elif not own and cause is None:
            why = Cause(
                "busy",
                "the rest of its composite group is placed without it: it needs more room than is "
                "left in the domain that was chosen",
                {"composite": composite},
            )
        if not members and cause is None:
            continue
        entries.append(
            GroupPlan(
                group=group.ref,
                api=group.api,
                policy=group.policy,
                min_count=group.min_count,
                priority=group.priority,
                outcome="placed" if own else "notPlaced",
                cause=None if own else why,
                domains=_describe_domains(problem, unit, at, placed) if own else (),
                pods=own,
                pending_pods=waiting,
                composite=composite,
            )
        )
    return entries


def _describe_pod(snapshot: Snapshot, pod: int, node: int) -> PlacedPod:
    pods = snapshot.pods
    leaf = snapshot.groups[pods.group[pod]]
    is_subgroup = leaf.kind == "subgroup" and not leaf.is_leader
    template = pods.templates[pods.template[pod]]
    return PlacedPod(
        pods.refs[pod],
        snapshot.nodes[node].name,
        leaf.name if is_subgroup else None,
        template or None,
    )


def _describe_domains(
    problem: Problem, unit: Unit, at: int, placed: Mapping[int, int]
) -> tuple[ChosenDomain, ...]:
    """Name the domain of every required or preferred term that all its pods share."""
    found = []
    members = _nodes_of_members(problem, unit, placed)
    for below in unit.walk(at):
        node = unit.tree[below]
        nodes = [n for leaf in unit.walk(below) for n in members.get(leaf, ())]
        if not nodes or min(nodes) < 0:
            continue
        subgroup = None
        if below != at and node.group != NO_GROUP:
            subgroup = problem.snapshot.groups[node.group].name
        for column in (*(r.column for r in node.required), *node.preferred):
            codes = np.unique(problem.columns[column].codes[nodes])
            if len(codes) == 1 and codes[0] != NO_DOMAIN:
                key = problem.columns[column].key
                found.append(ChosenDomain(key, problem.columns[column].names[codes[0]], subgroup))
    return tuple(sorted(set(found), key=lambda d: (d.subgroup or "", d.key, d.value)))


def _nodes_of_members(
    problem: Problem, unit: Unit, placed: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return leaf -> nodes of its running and new pods; MISSING_NODE where it is not known."""
    pods = problem.snapshot.pods
    found: dict[int, list[int]] = {}
    for task in unit.tasks:
        found.setdefault(task.leaf, []).extend(placed[p] for p in task.pods if p in placed)
    for at, node in enumerate(unit.tree):
        if node.running and node.group != NO_GROUP:
            own = pods.is_running_member & (pods.group == node.group)
            found.setdefault(at, []).extend(pods.node[own].tolist())
    return found


def count_criteria(
    snapshot: Snapshot, groups: tuple[GroupPlan, ...], placed: Mapping[int, int]
) -> dict[str, int]:
    """Count the criteria of a plan without evictions and moves."""
    gpus = np.array([spec.gpus for spec in snapshot.pods.specs], np.int64)
    of_pod = {pod.pod: entry.priority for entry in groups for pod in entry.pods}
    total = weighted = 0
    for pod in placed:
        amount = int(gpus[snapshot.pods.spec[pod]])
        total += amount
        weighted += amount * of_pod.get(snapshot.pods.refs[pod], 0)
    return {
        "groupsPlaced": sum(entry.outcome == "placed" for entry in groups),
        "podsPlaced": len(placed),
        "gpusPlaced": total,
        "weightedGpus": weighted,
        "victimPods": 0,
        "victimUnits": 0,
        "victimGpus": 0,
        "weightedVictimGpus": 0,
        "pdbViolations": 0,
        "gpuSecondsLost": 0,
        "moves": 0,
        "movedGpus": 0,
        "disturbedPods": 0,
        "fragmentation": measure_fragmentation(snapshot, placed)["fragmentation"],
    }


def describe_bound(result: PlaceResult) -> Bound:
    """State the bound of the first level that is not proven, or that all are."""
    for level, value, bound in zip(result.levels, result.score, result.bounds, strict=True):
        if bound is None:
            return Bound(level.criterion, None, None, "none")
        if value < bound:
            gap = round((bound - value) / max(abs(bound), 1), 6)
            return Bound(level.criterion, bound * level.sign, gap, "bound")
    first = result.levels[0]
    value = result.score[0] if result.score else 0
    if first.criterion == "priority":
        value = sum(
            v
            for lv, v in zip(result.levels, result.score, strict=True)
            if lv.criterion == "priority"
        )
        return Bound("gpusPlaced", value, 0.0, "optimal")
    return Bound(first.criterion, value * first.sign, 0.0, "optimal")


def describe_evictions(
    snapshot: Snapshot, evictions: Iterable[tuple[int, str]]
) -> tuple[Eviction, ...]:
    """Write the entry of every victim, (pod, ref of what it goes for), in their order."""
    pods = snapshot.pods
    found = []
    for pod, preemptor in evictions:
        node = snapshot.nodes[pods.node[pod]].name
        owner = group_ref(snapshot, pod)
        found.append(Eviction(pods.refs[pod], node, owner, "preemption", preemptor))
    return tuple(found)


def find_conditions(snapshot: Snapshot, problem: Problem) -> tuple[tuple[str, str], ...]:
    """List the groups of the request, placed or not, that rely on what is not modelled."""
    found: set[tuple[str, str]] = set()
    for unit in problem.units:
        for task in unit.tasks:
            group = unit.tree[task.leaf].group
            spec_index = problem.class_specs[task.pod_class]
            spec = snapshot.pods.specs[spec_index]
            reasons = set(spec.unmodelled)
            if spec_index in problem.interactions.conditional_specs:
                reasons.add("inter-pod affinity to pods that are pending themselves")
            while group != NO_GROUP:
                reasons |= set(snapshot.groups[group].unmodelled)
                if snapshot.groups[group].kind == "group":
                    break
                group = snapshot.groups[group].parent
            ref = unit.ref if group == NO_GROUP else snapshot.groups[group].ref
            found |= {(ref, reason) for reason in reasons}
    return tuple(sorted(found))
