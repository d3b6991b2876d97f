"""What was read, in the words of the Inspection document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gangplan.tables import count
from topology.device_counts import count_by_class
from topology.levels import find_keys_in_use
from topology.model import NO_GROUP, NO_NODE, PodFlag
from topology.owners import find_owner, find_owners
from topology.plan import API_VERSION
from topology.usage import count_usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.deadlocks import Deadlock
    from topology.model import Group, Node, Snapshot, Taint

__all__ = [
    "Inspection",
    "Stranded",
    "find_states",
    "find_stranded",
    "inspect_snapshot",
    "is_schedulable",
]

_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def is_schedulable(node: Node) -> bool:
    """Tell whether a node is ready and not cordoned; other taints may be tolerated."""

    def keeps_all_away(taint: Taint) -> bool:
        return taint.key in _NOT_READY and taint.effect != "PreferNoSchedule"

    return node.ready and not node.unschedulable and not any(map(keeps_all_away, node.taints))


@dataclass(frozen=True, slots=True)
class Stranded:
    """A gang that runs below its minimum: what it holds does no work."""

    group: str
    running: int
    min_count: int
    gpus: int

    @property
    def message(self) -> str:
        """A line for the user."""
        return (
            f"{self.group}: stranded below its minimum: {self.running} of {self.min_count} pods "
            f"run and hold {count(self.gpus, 'GPU')}; complete the gang or delete it"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `stranded`."""
        return {
            "group": self.group,
            "running": self.running,
            "minCount": self.min_count,
            "gpus": self.gpus,
        }


def find_stranded(snapshot: Snapshot) -> tuple[Stranded, ...]:
    """Return gangs whose running pods are fewer than their minimum and hold GPUs, by ref."""
    pods, groups = snapshot.pods, snapshot.groups
    runs = pods.is_running_member & (pods.group != NO_GROUP)
    owners = find_owners(snapshot)[runs]
    gpus = np.array([spec.gpus for spec in pods.specs] or [0], np.int64)[pods.spec[runs]]
    running = np.bincount(owners, minlength=len(groups))
    held = np.zeros(len(groups), np.int64)
    np.add.at(held, owners, gpus)
    return tuple(
        Stranded(group.ref, int(running[g]), group.min_count, int(held[g]))
        for g, group in enumerate(groups)
        if group.kind == "group" and 0 < running[g] < group.min_count and held[g] > 0
    )


@dataclass(frozen=True, slots=True)
class Inspection:
    """A snapshot, ready to be shown; `to_dict` is the Inspection document."""

    snapshot: Snapshot
    summary: Mapping[str, Any]
    """`digest`, `release`, `nodes`, `pods`, `groups`, as in a Plan."""
    fragmentation: Mapping[str, Any]
    largest_gangs: tuple[Mapping[str, Any], ...] = ()
    """`key` (None: the fleet), `gpusPerPod`, `pods`, `domain`: what one domain still takes."""
    stranded: tuple[Stranded, ...] = ()
    deadlocks: tuple[Deadlock, ...] = ()
    shown_pods: NDArray[np.bool_] | None = None
    """bool[P], the pods to list, and with them their groups; None: all."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines for the user: those of the reader, then stranded gangs, then deadlocks."""
        return (*self.snapshot.warnings, *self.findings)

    @property
    def findings(self) -> tuple[str, ...]:
        """A line for each stranded gang and each deadlock."""
        return (*(s.message for s in self.stranded), *(d.message for d in self.deadlocks))

    def to_dict(self) -> dict[str, Any]:
        """Return the Inspection document of the contract."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Inspection",
            "snapshot": dict(self.summary),
            "nodes": describe_nodes(self.snapshot),
            "pods": describe_pods(self.snapshot, self.shown_pods),
            "groups": describe_groups(self.snapshot, self.shown_pods),
            "fragmentation": dict(self.fragmentation),
            "largestGangs": [dict(gang) for gang in self.largest_gangs],
            "stranded": [s.to_dict() for s in self.stranded],
            "deadlocks": [d.to_dict() for d in self.deadlocks],
            "warnings": list(self.warnings),
            "errors": [
                {"object": e.object, "kind": e.kind, "field": e.field, "message": e.message}
                for e in self.snapshot.errors
            ],
        }


def inspect_snapshot(
    snapshot: Snapshot, *, release: str = "1.37", shown_pods: NDArray[np.bool_] | None = None
) -> Inspection:
    """Measure a snapshot; `shown_pods` bool[P] narrows the pods and groups that are listed."""
    from data.digest import digest_snapshot
    from optimizer.fragmentation import find_largest_gangs, measure_fragmentation

    stranded = find_stranded(snapshot)
    deadlocks: tuple[Deadlock, ...] = ()
    if len(stranded) > 1:
        # The decoder behind this takes a moment to import; most fleets have no use for it.
        from optimizer.deadlocks import find_deadlocks

        deadlocks = find_deadlocks(snapshot, release)
    return Inspection(
        snapshot,
        {
            "digest": digest_snapshot(snapshot),
            "release": release,
            "nodes": len(snapshot.nodes),
            "pods": len(snapshot.pods),
            "groups": sum(group.kind == "group" for group in snapshot.groups),
        },
        measure_fragmentation(snapshot),
        tuple(find_largest_gangs(snapshot)),
        stranded,
        deadlocks,
        shown_pods,
    )


def describe_nodes(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Return the entries of `nodes`, by name; free amounts are never below zero."""
    from data.quantities import format_quantity

    usage = count_usage(snapshot)
    free = np.maximum(usage.free, 0).tolist()
    keys = find_keys_in_use(snapshot)
    devices = count_by_class(snapshot.devices)
    return [
        {
            "node": node.name,
            "allocatable": {r: format_quantity(a, r) for r, a in sorted(node.allocatable.items())},
            "free": {
                r: format_quantity(amount, r)
                for r, amount in zip(usage.resources, free[n], strict=True)
                if r in node.allocatable
            },
            "domains": {key: node.labels[key] for key in keys if key in node.labels},
            "devices": {
                name: {"total": total, "free": left}
                for name, (total, left) in devices.get(n, {}).items()
            },
            "schedulable": is_schedulable(node),
        }
        for n, node in enumerate(snapshot.nodes)
    ]


def describe_pods(snapshot: Snapshot, shown: NDArray[np.bool_] | None) -> list[dict[str, Any]]:
    """Return the entries of `pods`, by namespace and name."""
    from data.quantities import format_quantity

    pods = snapshot.pods
    states = find_states(snapshot)
    owners = find_owners(snapshot).tolist()
    requests = [{r: format_quantity(a, r) for r, a in spec.requests} for spec in pods.specs]
    nodes, specs = pods.node.tolist(), pods.spec.tolist()
    rows = range(len(pods)) if shown is None else np.flatnonzero(shown).tolist()
    return [
        {
            "pod": pods.refs[p],
            "node": snapshot.nodes[nodes[p]].name if nodes[p] >= 0 else None,
            "group": snapshot.groups[owners[p]].ref if owners[p] != NO_GROUP else None,
            "state": states[p],
            "requests": requests[specs[p]],
        }
        for p in rows
    ]


def find_states(snapshot: Snapshot) -> list[str]:
    """Return the state of every pod.

    A terminating pod without a node counts as finished: it never takes one.
    """
    pods = snapshot.pods
    done = ~pods.is_live | ((pods.flags & PodFlag.TERMINATING) != 0)
    conditions = [
        pods.is_live & (pods.node != NO_NODE),
        done,
        (pods.flags & PodFlag.WAITING) != 0,
        (pods.flags & PodFlag.GATED) != 0,
    ]
    states: list[str] = np.select(
        conditions, ["bound", "finished", "waiting", "gated"], "pending"
    ).tolist()
    return states


@dataclass(frozen=True, slots=True)
class _Roster:
    """Columns of the pod table as lists, and which pods and subgroups belong to what."""

    groups: Sequence[Group]
    leaves: Mapping[int, Sequence[int]]
    """Subgroups that own pods themselves, by the group above them."""
    members: Mapping[int, Sequence[int]]
    """Pods by the leaf that owns them."""
    ranks: Sequence[int]
    templates: Sequence[str]
    runs: Sequence[bool]
    waits: Sequence[bool]


def _read_roster(snapshot: Snapshot) -> _Roster:
    groups, pods = snapshot.groups, snapshot.pods
    parents = {group.parent for group in groups}
    leaves: dict[int, list[int]] = {}
    for g, group in enumerate(groups):
        if group.kind == "subgroup" and g not in parents and not group.is_leader:
            leaves.setdefault(find_owner(groups, g), []).append(g)
    members: dict[int, list[int]] = {}
    for p, g in enumerate(pods.group.tolist()):
        members.setdefault(g, []).append(p)
    return _Roster(
        groups,
        leaves,
        members,
        pods.rank.tolist(),
        [pods.templates[t] for t in pods.template.tolist()],
        pods.is_running_member.tolist(),
        pods.is_pending.tolist(),
    )


def describe_groups(snapshot: Snapshot, shown: NDArray[np.bool_] | None) -> list[dict[str, Any]]:
    """Return the entries of `groups`: composites and groups, subgroups inside them.

    With `shown`, only groups that own a shown pod, and what is above them.
    """
    groups, pods = snapshot.groups, snapshot.pods
    wanted = set(range(len(groups)))
    if shown is not None:
        wanted = set()
        for g in np.unique(pods.group[shown & (pods.group != NO_GROUP)]).tolist():
            while g != NO_GROUP:
                wanted.add(g)
                g = groups[g].parent
    owned: dict[int, list[int]] = {}
    for p, g in enumerate(find_owners(snapshot).tolist()):
        owned.setdefault(g, []).append(p)
    roster = _read_roster(snapshot)
    return [
        _describe_group(roster, g, owned.get(g, []))
        for g, group in enumerate(groups)
        if group.kind != "subgroup" and g in wanted
    ]


def _describe_group(roster: _Roster, g: int, own: Sequence[int]) -> dict[str, Any]:
    groups = roster.groups
    group = groups[g]
    subgroups = sorted(
        (_subgroup_name(group, groups[leaf]), leaf) for leaf in roster.leaves.get(g, ())
    )
    subgroups.sort(key=lambda pair: (0, int(pair[0])) if pair[0].isdecimal() else (1, 0))
    index: dict[int, int | None] = dict.fromkeys(own)
    for position, (name, leaf) in enumerate(subgroups):
        for p in roster.members.get(leaf, ()):
            index[p] = int(name) if name.isdecimal() else position
    leaders = [p for p in own if roster.templates[p] == "leader"]
    ranks = {roster.ranks[p]: p for p in own}
    return {
        "group": group.ref,
        "api": group.api,
        "kind": group.kind,
        "policy": group.policy,
        "minCount": group.min_groups if group.kind == "composite" else group.min_count,
        "size": group.size,
        "running": sum(roster.runs[p] for p in own),
        "pending": sum(roster.waits[p] for p in own),
        "priority": group.priority,
        "disruptionMode": group.disruption,
        "composite": groups[group.parent].ref if group.parent != NO_GROUP else None,
        "queue": group.queue or None,
        "blocked": group.blocked or None,
        "topology": [
            {"key": term.key, "mode": "required" if term.required else "preferred"}
            for term in group.topology
        ],
        "leader": index[leaders[0]] if leaders else None,
        "subgroups": [{"name": name, "size": groups[leaf].size} for name, leaf in subgroups],
        # Ranks that repeat (each pod set counts from 0) tell no pod from another.
        "subgroupIndex": {str(rank): index[p] for rank, p in sorted(ranks.items()) if rank >= 0}
        if subgroups and len(ranks) == len(own)
        else {},
    }


def _subgroup_name(group: Group, leaf: Group) -> str:
    return leaf.ref.removeprefix(f"{group.ref}#")
