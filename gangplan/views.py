"""Answers as tables and as lists of names."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gangplan.comparison_view import show_comparison
from gangplan.inspection import is_schedulable
from gangplan.tables import count, format_share, format_table, shorten
from optimizer.fragmentation import count_free_gpus
from topology.errors import RequestError
from topology.levels import NO_DOMAIN, build_column, find_keys_in_use, find_paths
from topology.model import HOSTNAME, NO_GROUP, is_gpu
from topology.owners import find_owner, find_owners
from topology.usage import count_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from gangplan.inspection import Inspection
    from topology.model import Group, Snapshot
    from topology.plan import Cause, Eviction, GroupPlan, Plan, ResizePlan, Verification

__all__ = [
    "name_inspection",
    "name_plan",
    "show_domains",
    "show_explanation",
    "show_inspection",
    "show_plan",
    "show_verification",
]


@dataclass(frozen=True, slots=True)
class _Gpus:
    """Whole accelerators of every node; axis N."""

    allocatable: NDArray[np.int64]
    used: NDArray[np.int64]
    free: NDArray[np.int64]
    """On nodes that take new pods; never below zero."""

    @property
    def is_whole(self) -> NDArray[np.bool_]:
        """bool[N], has GPUs, all of them free."""
        whole: NDArray[np.bool_] = (self.free == self.allocatable) & (self.allocatable > 0)
        return whole


def _count_gpus(snapshot: Snapshot) -> _Gpus:
    gpus = count_free_gpus(snapshot)
    usage = count_usage(snapshot)
    columns = [r for r, name in enumerate(usage.resources) if is_gpu(name)]
    return _Gpus(gpus.allocatable, usage.used[:, columns].sum(axis=1), gpus.free)


def _paths_in_use(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return one path for every topology key: the one groups name, else the key alone."""
    named = {path[-1]: path for path in find_paths(snapshot.groups)}
    return [named.get(key, (key,)) for key in find_keys_in_use(snapshot)]


_LEVEL = ("LEVEL", "DOMAINS", "NODES", "GPUS", "USED", "FREE", "WHOLE-FREE")
_GROUP = ("GROUP", "PRIORITY", "MIN", "SIZE", "RUNNING", "PENDING", "GPUS", "TOPOLOGY")


def show_inspection(inspection: Inspection, *, wide: bool) -> str:
    """Return the levels with their free GPUs, then the groups that wait.

    WHOLE-FREE counts nodes with all GPUs free; 8-GPU-GANG is the most pods of 8 GPUs that one
    domain of the level takes.
    """
    snapshot = inspection.snapshot
    gpus = _count_gpus(snapshot)
    sizes = (1, 2, 4, 8) if wide else (1, 8)
    gangs = {(gang["key"], gang["gpusPerPod"]): gang["pods"] for gang in inspection.largest_gangs}
    columns = [
        build_column(snapshot.nodes, path)
        for path in _paths_in_use(snapshot)
        if path != (HOSTNAME,)
    ]
    columns.sort(key=lambda column: (len(column.values), column.key))
    whole = np.zeros(len(snapshot.nodes), np.int64)
    rows = [(*_level_row("*", whole, gpus), *(gangs.get((None, size), 0) for size in sizes))]
    for column in columns:
        fits = (gangs.get((column.key, size), 0) for size in sizes)
        rows.append((*_level_row(column.key, column.codes, gpus), *fits))
    most = int(gpus.free.max(initial=0))
    rows.append(
        (*_level_row("node", np.arange(len(whole)), gpus), *(most // size for size in sizes))
    )
    blocks = [format_table([*_LEVEL, *(f"{size}-GPU-GANG" for size in sizes)], rows)]
    waiting = _waiting_rows(inspection, wide=wide)
    if waiting:
        blocks.append(format_table(_GROUP + (("API", "QUEUE") if wide else ()), waiting))
    return "\n\n".join(blocks)


def _level_row(name: str, codes: NDArray[np.integer], gpus: _Gpus) -> tuple[object, ...]:
    within = codes != NO_DOMAIN
    whole = int(gpus.allocatable[within].sum())
    return (
        name,
        len(np.unique(codes[within])),
        int(within.sum()),
        whole,
        format_share(int(gpus.used[within].sum()), whole),
        format_share(int(gpus.free[within].sum()), whole),
        int(gpus.is_whole[within].sum()),
    )


def _waiting_rows(inspection: Inspection, *, wide: bool) -> list[tuple[object, ...]]:
    """Return a row for every group with pending pods, dearest first, and one for single pods."""
    snapshot = inspection.snapshot
    groups, pods = snapshot.groups, snapshot.pods
    waits, runs = pods.is_pending, pods.is_running_member
    if inspection.shown_pods is not None:
        waits = waits & inspection.shown_pods
    owners = find_owners(snapshot)
    spec_gpus = np.array([spec.gpus for spec in pods.specs] or [0], np.int64)
    # Row len(groups) gathers the pods in no group.
    slots = np.where(owners == NO_GROUP, len(groups), owners)
    pending = np.bincount(slots[waits], minlength=len(groups) + 1)
    running = np.bincount(slots[runs], minlength=len(groups) + 1)
    wanted = np.bincount(
        slots[waits], weights=spec_gpus[pods.spec[waits]], minlength=len(groups) + 1
    ).astype(np.int64)
    keys: dict[int, list[str]] = {}
    for g in range(len(groups)):
        keys.setdefault(find_owner(groups, g), []).extend(_topology_words(groups[g]))
    rows: list[tuple[object, ...]] = []
    order = sorted(range(len(groups)), key=lambda g: (-groups[g].priority, groups[g].ref))
    for g in (g for g in order if pending[g]):
        group = groups[g]
        row = (
            group.ref,
            group.priority,
            group.min_count,
            group.size,
            running[g],
            pending[g],
            wanted[g],
            ", ".join(dict.fromkeys(keys[g])),
        )
        rows.append((*row, group.api, group.queue) if wide else row)
    if pending[-1]:
        single = ("(no group)", None, None, None, None, pending[-1], wanted[-1], None)
        rows.append((*single, "v1/Pod", None) if wide else single)
    return rows


def _topology_words(group: Group) -> list[str]:
    """Return the topology keys that bind a group or subgroup, with what is special about them."""
    each = "each subgroup" if group.kind == "subgroup" else ""
    modes = [(t.key, "" if t.required else "preferred") for t in group.topology]
    modes += [(s.path[-1], f"slices of {s.size}") for s in group.slices]
    modes += [(e.key, "exclusive") for e in group.exclusive if e.key is not None]
    notes = [(key, " ".join(word for word in (each, mode) if word)) for key, mode in modes]
    return [f"{key} ({note})" if note else key for key, note in notes]


def show_domains(inspection: Inspection, key: str, *, wide: bool) -> str:
    """Return one row for every domain of a label key, or for every node (key `node`).

    Raises:
      RequestError: When no node carries the key.
    """
    snapshot = inspection.snapshot
    gpus = _count_gpus(snapshot)
    if key == "node":
        codes: NDArray[np.integer] = np.arange(len(snapshot.nodes))
        names = [node.name for node in snapshot.nodes]
    else:
        paths = {path[-1]: path for path in _paths_in_use(snapshot)}
        if key not in paths:
            raise RequestError(
                f"--by {key}: is no topology label of this snapshot; "
                f"choose {', '.join(['node', *paths])}"
            )
        column = build_column(snapshot.nodes, paths[key])
        codes, names = column.codes, ["/".join(value) for value in column.values]
    headings = ["NODE" if key == "node" else "DOMAIN", "NODES", "GPUS", "USED", "FREE"]
    headings += ["WHOLE-FREE", "SCHEDULABLE"]
    within = codes != NO_DOMAIN
    takes = np.array([is_schedulable(node) for node in snapshot.nodes], np.bool_)
    pods = snapshot.pods
    held = np.bincount(pods.node[pods.holds_room & (pods.node >= 0)], minlength=len(codes))
    columns = [
        np.bincount(codes[within], weights=values[within], minlength=len(names)).astype(np.int64)
        for values in (
            np.ones(len(codes), np.int64),
            gpus.allocatable,
            gpus.used,
            gpus.free,
            gpus.is_whole,
            takes,
            held,
        )
    ]
    sums = np.stack(columns, axis=1).reshape(len(names), len(columns))
    rows: list[tuple[object, ...]] = []
    for name, row in zip(["*", *names], [sums.sum(axis=0).tolist(), *sums.tolist()], strict=True):
        nodes, offered, used, free, whole, takers, of_pods = row
        shares = (format_share(used, offered), format_share(free, offered))
        cells = (name, nodes, offered, *shares, whole, takers)
        rows.append((*cells, of_pods) if wide else cells)
    return format_table([*headings, "PODS"] if wide else headings, rows)


def _in_order(plan: Plan) -> list[GroupPlan]:
    return sorted(plan.groups, key=lambda g: (-g.priority, g.group))


def _count_gpus_of(snapshot: Snapshot, refs: Iterable[str]) -> int:
    pods = snapshot.pods
    rows = (bisect_left(pods.refs, ref) for ref in refs)  # refs are sorted
    return sum(pods.specs[pods.spec[p]].gpus for p in rows)


def show_plan(snapshot: Snapshot, plan: Plan, *, wide: bool) -> str:
    """Return what happens to each group, then how good the plan is and whether it verified."""
    if plan.resize is not None:
        evictions = [_show_evictions(snapshot, plan, wide=wide)] if plan.evictions else []
        return "\n\n".join([_show_resize(plan.resize), *evictions, _show_quality(plan)])
    placed = [p.pod for g in plan.groups for p in g.pods]
    left = [ref for g in plan.groups for ref in g.pending_pods]
    total = (
        "*",
        None,
        f"{sum(g.outcome == 'placed' for g in plan.groups)} of {len(plan.groups)} placed",
        f"{len(placed)} of {len(placed) + len(left)}",
        None,
        count(len({p.node for g in plan.groups for p in g.pods}), "node"),
        None,
    )
    rows: list[tuple[object, ...]] = [total + _wide_total(snapshot, plan) if wide else total]
    for group in _in_order(plan):
        row = (
            group.group,
            group.priority,
            "placed" if group.outcome == "placed" else "not placed",
            f"{len(group.pods)} of {len(group.pods) + len(group.pending_pods)}",
            shorten(_domain_names(group), 99 if wide else 2),
            shorten(_node_counts(group), 99 if wide else 3),
            group.cause.name if group.cause else None,
        )
        rows.append(row + _wide_cells(snapshot, group) if wide else row)
    headings = ["GROUP", "PRIORITY", "OUTCOME", "PODS", "DOMAIN", "NODES", "CAUSE"]
    if wide:
        headings += ["GPUS", "MIN", "POLICY", "API"]
    blocks = [format_table(headings, rows)]
    if plan.evictions:
        blocks.append(_show_evictions(snapshot, plan, wide=wide))
    if plan.comparison is not None:
        blocks.append(show_comparison(plan, plan.comparison, wide=wide))
    return "\n\n".join([*blocks, _show_quality(plan)])


def _show_resize(resize: ResizePlan) -> str:
    """Return what becomes of a pod that is resized where it runs, and why not."""
    amounts = resize.to_dict()
    changes = [f"{r} {amounts['from'][r]} to {amounts['to'][r]}" for r in sorted(amounts["to"])]
    outcome = "would be resized" if resize.outcome == "resized" else "not resized"
    cause = resize.cause
    row = (resize.pod, resize.node, ", ".join(changes), outcome, cause.name if cause else None)
    table = format_table(("RESIZE", "NODE", "REQUESTS", "OUTCOME", "CAUSE"), [row])
    return table if cause is None else f"{table}\n\n{cause.message}"


def _show_evictions(snapshot: Snapshot, plan: Plan, *, wide: bool) -> str:
    """Return who would go: a row for each group or single pod, or for each pod where wide."""
    total = (
        "*",
        count(len(plan.evictions), "pod"),
        _count_gpus_of(snapshot, (e.pod for e in plan.evictions)),
        count(len({e.node for e in plan.evictions}), "node"),
        None,
    )
    units: dict[tuple[str, str | None], list[Eviction]] = {}
    for eviction in plan.evictions:
        name = eviction.pod if wide or eviction.group is None else eviction.group
        units.setdefault((name, eviction.preemptor), []).append(eviction)
    rows: list[tuple[object, ...]] = [total]
    for (name, preemptor), gone in sorted(units.items(), key=lambda entry: entry[0][0]):
        nodes = sorted({e.node for e in gone})
        gpus = _count_gpus_of(snapshot, (e.pod for e in gone))
        row = (name, count(len(gone), "pod"), gpus, shorten(nodes, 99 if wide else 3), preemptor)
        rows.append(row)
    return format_table(["WOULD EVICT", "PODS", "GPUS", "NODES", "FOR"], rows)


def _wide_total(snapshot: Snapshot, plan: Plan) -> tuple[object, ...]:
    placed = (p.pod for g in plan.groups for p in g.pods)
    return (_count_gpus_of(snapshot, placed), None, None, None)


def _wide_cells(snapshot: Snapshot, group: GroupPlan) -> tuple[object, ...]:
    gpus = _count_gpus_of(snapshot, (p.pod for p in group.pods))
    return (gpus, group.min_count, group.policy, group.api)


def _domain_names(group: GroupPlan) -> list[str]:
    """Return the value of each domain, each once, with its key."""
    names = dict.fromkeys(f"{d.key}={d.value}" for d in group.domains)
    return list(names)


def _node_counts(group: GroupPlan) -> list[str]:
    """Return each node with the pods it gets where it gets several."""
    counts: dict[str, int] = {}
    for pod in group.pods:
        counts[pod.node] = counts.get(pod.node, 0) + 1
    return [f"{node} ({n})" if n > 1 else node for node, n in sorted(counts.items())]


def _show_quality(plan: Plan) -> str:
    asked = [criterion.partition(":")[2] for criterion in plan.request.objective]
    bound = plan.bound
    names = dict.fromkeys([*(n for n in asked if n in plan.criteria), bound.criterion])
    rows = [
        (
            name,
            plan.criteria.get(name),
            bound.value if name == bound.criterion else None,
            bound.proof if name == bound.criterion and bound.proof != "none" else None,
        )
        for name in names
    ]
    lines = [format_table(("CRITERION", "VALUE", "BOUND", "PROOF"), rows)]
    if plan.verification is not None:
        lines += ["", _show_verdict(plan.verification)]
    return "\n".join(lines)


def _show_verdict(verification: Verification) -> str:
    verdict = "verified" if verification.is_valid else "NOT VALID"
    broken = count(len(verification.violations), "violation")
    return f"{verdict}: {count(verification.checks, 'check')}, {broken}"


def show_explanation(plan: Plan, *, wide: bool) -> str:
    """Return why each group waits: its cause in one word and in one line."""
    rows: list[tuple[object, ...]] = []
    victims = Counter(e.preemptor for e in plan.evictions if e.preemptor)
    for group in _in_order(plan):
        evicted = victims[group.group] or victims[group.composite or ""]
        fits = "would evict" if evicted else "fits now"
        cause = group.cause.name if group.cause else fits
        message = _say_cause(group.cause) if group.cause else _fits_message(group, evicted)
        pods = len(group.pods) + len(group.pending_pods)
        row = (group.group, group.priority, cause, message)
        rows.append((*row, pods, group.min_count, group.api) if wide else row)
    headings = ["GROUP", "PRIORITY", "CAUSE", "MESSAGE", *(["PODS", "MIN", "API"] if wide else [])]
    return format_table(headings, rows)


def _say_cause(cause: Cause) -> str:
    """Return the message, and the counts as the scheduler's own event has them."""
    event = cause.details.get("event")
    return f"{cause.message}; {event}" if event else cause.message


def _fits_message(group: GroupPlan, evicted: int) -> str:
    domains = ", ".join(_domain_names(group))
    where = f" in {domains}" if domains else ""
    if evicted:
        gone = "1 pod was" if evicted == 1 else f"{evicted} pods were"
        return f"{count(len(group.pods), 'pod')} would fit{where} if {gone} evicted for it"
    fit = "pod fits" if len(group.pods) == 1 else "pods fit"
    return f"{len(group.pods)} {fit}{where} now"


def show_verification(verification: Verification) -> str:
    """Return the verdict, and a row for every rule that is broken."""
    lines = [_show_verdict(verification)]
    if verification.violations:
        rows = [(v.rule, v.object, v.wanted, v.found) for v in verification.violations]
        lines += ["", format_table(("RULE", "OBJECT", "WANTED", "FOUND"), rows)]
    return "\n".join(lines)


def name_inspection(inspection: Inspection) -> list[str]:
    """Return `node/…`, `group/…` and `pod/…` references of what was read."""
    document = inspection.to_dict()
    return [
        *(f"node/{n['node']}" for n in document["nodes"]),
        *(f"group/{g['group']}" for g in document["groups"]),
        *(f"pod/{p['pod']}" for p in document["pods"]),
    ]


def name_plan(plan: Plan) -> Sequence[str]:
    """Return the placed pods of a plan; of an explanation, the groups that are not placed."""
    if plan.request.command == "explain":
        return [f"group/{g.group}" for g in _in_order(plan) if g.outcome == "notPlaced"]
    if plan.resize is not None:
        return [f"pod/{plan.resize.pod}"] if plan.resize.outcome == "resized" else []
    return [f"pod/{ref}" for ref in sorted(p.pod for g in plan.groups for p in g.pods)]
