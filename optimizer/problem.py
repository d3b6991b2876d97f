"""Snapshot and request -> what the searches work on: pod classes, unit trees, free amounts.

A *unit* is what is placed whole or not at all: a root of the group forest or a pod of its own.
Its tree mirrors the forest; *tasks* hang at the leaves, each the pending pods of one *class*.
Pods of a class are interchangeable: same requests, same nodes, same interactions.

Nothing here knows an API's name, and nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.interactions import Interactions, Signature, build_interactions
from topology.levels import NO_DOMAIN, DomainColumn, build_column
from topology.masks import NodeFilters
from topology.model import NO_GROUP, PODS, PodFlag, is_gpu
from topology.units import scale_amounts
from topology.usage import count_usage, request_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.interactions import ExclusiveRule
    from topology.model import Group, PodSpec, Snapshot
    from topology.plan import Request

__all__ = [
    "BROKEN",
    "FREE_CHOICE",
    "Problem",
    "Relax",
    "Required",
    "Task",
    "TreeNode",
    "Unit",
    "UnitKey",
    "build_problem",
    "count_free",
]

FREE_CHOICE: Final = -1
"""`Required.pinned` of a group that may choose its domain."""
BROKEN: Final = -2
"""`Required.pinned` of a group whose running members already break the constraint."""

NO_UNIT: Final = -1
"""`Problem.unit_of_pod` of a pod that belongs to no unit of the problem."""

DEFAULT_SCHEDULER: Final = "default-scheduler"

DEVICE_PREFIX: Final = "deviceclass/"
"""Pseudo resource that counts the free DRA devices of a class on a node."""


@dataclass(frozen=True, slots=True)
class Relax:
    """Which facts of the snapshot to leave out, to find out what is in a group's way."""

    empty: bool = False
    """Every running pod but DaemonSet and static ones is gone."""
    filters: bool = False
    """Taints, cordons and readiness are ignored."""
    pins: bool = False
    """Running members do not pin a domain."""
    devices: bool = False
    """Devices held by claims are free."""
    evictable_below: int | None = None
    """Running pods of a lower priority that may be evicted are gone."""
    plan: bool = False
    """What the plan gives to other units is not there."""


@dataclass(frozen=True, slots=True)
class Task:
    """Pending pods of one class in one leaf."""

    leaf: int
    """Index into `Unit.tree`."""
    pod_class: int
    pods: tuple[int, ...]
    """Pod indices in the order in which they are placed (rank, then ref)."""

    @property
    def count(self) -> int:
        """Number of pods."""
        return len(self.pods)


@dataclass(frozen=True, slots=True)
class Required:
    """One required topology term: the column, and the domain running members pin."""

    column: int
    pinned: int = FREE_CHOICE


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node of a unit's tree; the root is node 0, children follow parents."""

    group: int
    """Index into `Snapshot.groups`, NO_GROUP for a pod of its own."""
    children: tuple[int, ...] = ()
    tasks: tuple[int, ...] = ()
    min_count: int = 0
    """Pods of the subtree needed, running ones included."""
    min_groups: int = 0
    running: int = 0
    """Running members of the subtree."""
    required: tuple[Required, ...] = ()
    preferred: tuple[int, ...] = ()
    """Columns, finest first."""
    slices: tuple[tuple[int, int], ...] = ()
    """(column, size), outer to inner."""
    standing: tuple[Mapping[int, int], ...] = ()
    """For each entry of `slices`: running members by domain."""
    exclusive: tuple[ExclusiveRule, ...] = ()


UnitKey = tuple[int, str]
"""(group or NO_GROUP, reference)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed whole or not at all."""

    ref: str
    tree: tuple[TreeNode, ...]
    tasks: tuple[Task, ...]
    priority: int
    created: int
    gpus: int
    """GPUs of all its pending pods."""
    blocked: str = ""

    @property
    def key(self) -> UnitKey:
        """What tells it from all others: a group and a pod may have one reference."""
        return self.root.group, self.ref

    @property
    def root(self) -> TreeNode:
        """Node 0."""
        return self.tree[0]

    @property
    def num_pods(self) -> int:
        """Pending pods."""
        return sum(t.count for t in self.tasks)

    def has_quorum(self, at: int = 0) -> bool:
        """Tell whether enough running and pending pods exist for the floors of a subtree."""
        node = self.tree[at]
        ready = sum(self.has_quorum(c) for c in node.children)
        return ready >= node.min_groups and self.count_members(at) >= node.min_count

    def count_members(self, at: int = 0) -> int:
        """Count the running and pending pods of a subtree."""
        return self.tree[at].running + self.count_pending(at)

    def count_pending(self, at: int = 0) -> int:
        """Count the pending pods of a subtree."""
        node = self.tree[at]
        own = sum(self.tasks[t].count for t in node.tasks)
        return own + sum(self.count_pending(c) for c in node.children)

    def count_own_running(self, at: int) -> int:
        """Count the running members of a group itself, those of its children left out."""
        node = self.tree[at]
        return node.running - sum(self.tree[c].running for c in node.children)

    def count_needed(self, at: int = 0) -> int:
        """Count the new pods that a subtree needs at least to succeed with one."""
        node = self.tree[at]
        children = sorted(self.count_needed(c) for c in node.children)
        return max(node.min_count - node.running, sum(children[: node.min_groups]), int(at == 0))

    def walk(self, at: int = 0) -> list[int]:
        """Return the indices of a subtree, parents first."""
        found = [at]
        for child in self.tree[at].children:
            found += self.walk(child)
        return found


@dataclass(frozen=True, slots=True)
class Problem:
    """A fleet and the units to place; axes N nodes, R resources, S pod classes."""

    snapshot: Snapshot
    units: tuple[Unit, ...]
    """By priority (highest first), creation time, ref: the scheduler's own order."""
    resources: tuple[str, ...]
    free: NDArray[np.int32]
    """i32[N, R] tensor units."""
    requests: NDArray[np.int32]
    """i32[S, R] tensor units."""
    amounts: NDArray[np.int64]
    """i64[S, R] the same in canonical units."""
    eligible: NDArray[np.bool_]
    """bool[S, N] nodes that pass every filter that does not depend on other pending pods."""
    class_gpus: NDArray[np.int64]
    """i64[S] GPUs of one pod."""
    node_gpus: NDArray[np.int64]
    """i64[N] free GPUs in pieces, never below zero: the order in which nodes are filled."""
    columns: tuple[DomainColumn, ...]
    interactions: Interactions
    class_specs: tuple[int, ...]
    """(S,) index into `PodTable.specs`."""
    signatures: tuple[Signature, ...]
    """(S,) interactions of each class."""
    reservations: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Node -> pending pods nominated to it."""
    pod_classes: Mapping[int, int] = field(default_factory=dict)
    """Pending pod -> class; of the units, and of all that are nominated to a node."""
    unit_of_pod: Mapping[int, int] = field(default_factory=dict)
    """Pending pod -> unit, NO_UNIT for a nominated pod that is not to be placed."""


class _Columns:
    """Domain columns by path, built once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index: dict[tuple[str, ...], int] = {}
        self.columns: list[DomainColumn] = []

    def __call__(self, path: tuple[str, ...]) -> int:
        if path not in self._index:
            self._index[path] = len(self.columns)
            self.columns.append(build_column(self._snapshot.nodes, path))
        return self._index[path]


def build_problem(
    snapshot: Snapshot,
    request: Request,
    *,
    relax: Relax | None = None,
    placed: Mapping[int, int] | None = None,
    only: Sequence[str] | None = None,
) -> Problem:
    """Compile the units that a request is about.

    Args:
      snapshot: The fleet.
      request: Names the groups; None means everything pending.
      relax: Facts to leave out.
      placed: Pod -> node of pods that count as running there (a plan so far).
      only: Refs of units to compile, instead of those of the request.

    Returns:
      The problem; units without any pending pod are part of it, with no tasks.
    """
    relax = relax or Relax()
    placed = placed or {}
    pods = snapshot.pods
    pending = np.flatnonzero(pods.is_pending)
    if placed:
        pending = pending[~np.isin(pending, np.fromiter(placed, np.int64, len(placed)))]
    members = _Members(snapshot, pending)
    roots = members.select(request, only)
    asked_for = {p for root in roots for p in members.pending_of(root)}
    # Pods that others must leave room for need a class too, though they are not placed here.
    nominated = set(pending[pods.nominated[pending] >= 0].tolist())
    wanted = np.array(sorted(asked_for | nominated), np.int64)

    columns = _Columns(snapshot)
    nodes_of = pods.node.copy()
    for pod, node in placed.items():
        nodes_of[pod] = node
    interactions = build_interactions(snapshot, wanted, nodes_of, columns, relax_empty=relax.empty)

    resources = _find_resources(snapshot, wanted)
    free = count_free(snapshot, resources, relax, placed)
    class_index: dict[tuple[int, ...], int] = {}
    pod_classes: dict[int, int] = {}
    for pod in wanted.tolist():
        kind = (int(pods.spec[pod]), *interactions.signature(pod))
        pod_classes[pod] = class_index.setdefault(kind, len(class_index))
    class_specs = tuple(key[0] for key in class_index)
    all_requests = _request_rows(snapshot, resources)
    asked = all_requests[list(class_specs)].reshape(len(class_specs), len(resources))
    scaled = scale_amounts(free, asked)
    filters = NodeFilters(snapshot.nodes)
    eligible = np.zeros((len(class_specs), len(snapshot.nodes)), bool)
    for s, key in enumerate(class_index):
        masks = filters.evaluate(pods.specs[key[0]])
        mask = masks.affinity.copy()
        if not relax.filters:
            mask &= masks.taints & masks.ready
        mask &= _has_shared_devices(snapshot, pods.specs[key[0]], relax)
        eligible[s] = mask & interactions.allowed_nodes(key[1:])
    gpu_columns = [r for r, name in enumerate(resources) if is_gpu(name)]
    builder = _UnitBuilder(snapshot, request, relax, columns, interactions, members, pod_classes)
    units = sorted(
        (builder.build(root) for root in roots), key=lambda u: (-u.priority, u.created, u.ref)
    )
    return Problem(
        snapshot=snapshot,
        units=tuple(units),
        resources=resources,
        free=scaled.free,
        requests=scaled.requests,
        amounts=asked,
        eligible=eligible,
        class_gpus=asked[:, gpu_columns].sum(axis=1),
        node_gpus=np.maximum(free[:, gpu_columns], 0).sum(axis=1),
        columns=tuple(columns.columns),
        interactions=interactions,
        class_specs=class_specs,
        signatures=tuple(Signature(*key[1:]) for key in class_index),
        reservations={} if relax.empty else _find_reservations(snapshot, pending),
        pod_classes=pod_classes,
        unit_of_pod=dict.fromkeys(nominated, NO_UNIT)
        | {p: u for u, unit in enumerate(units) for t in unit.tasks for p in t.pods},
    )


def _find_resources(snapshot: Snapshot, wanted: NDArray[np.int64]) -> tuple[str, ...]:
    specs = {int(x) for x in np.unique(snapshot.pods.spec[wanted])}
    names = {name for x in specs for name, _ in snapshot.pods.specs[x].requests} | {PODS}
    known = {d.device_class for d in snapshot.devices}
    for x in specs:
        for claim in snapshot.pods.specs[x].claims:
            if claim.allocated_nodes is None and not claim.shared_by_group:
                names |= {DEVICE_PREFIX + c for c, _ in claim.devices if c in known}
    return tuple(sorted(names))


def _request_rows(snapshot: Snapshot, resources: tuple[str, ...]) -> NDArray[np.int64]:
    rows = request_matrix(snapshot, resources)
    for r, name in enumerate(resources):
        if name.startswith(DEVICE_PREFIX):
            device_class = name.removeprefix(DEVICE_PREFIX)
            for x, spec in enumerate(snapshot.pods.specs):
                rows[x, r] = sum(
                    count
                    for claim in spec.claims
                    if claim.allocated_nodes is None and not claim.shared_by_group
                    for c, count in claim.devices
                    if c == device_class
                )
    return rows


def count_free(
    snapshot: Snapshot,
    resources: tuple[str, ...],
    relax: Relax,
    placed: Mapping[int, int],
) -> NDArray[np.int64]:
    """Return i64[N, R]: what a changed fleet has free, in canonical units, negative where short."""
    usage = count_usage(snapshot, resources)
    pods = snapshot.pods
    free = usage.free
    rows = _request_rows(snapshot, resources)
    if relax.empty:
        stays = (pods.flags & (PodFlag.DAEMON | PodFlag.STATIC)) != 0
        holding = np.flatnonzero(pods.holds_room & (pods.node >= 0) & ~stays)
        np.add.at(free, pods.node[holding], request_matrix(snapshot, resources)[pods.spec[holding]])
    elif relax.evictable_below is not None:
        gone = np.flatnonzero(_find_evictable(snapshot, relax.evictable_below))
        np.add.at(free, pods.node[gone], request_matrix(snapshot, resources)[pods.spec[gone]])
    for r, name in enumerate(resources):
        if name.startswith(DEVICE_PREFIX):
            free[:, r] = 0
            for count in snapshot.devices:
                if DEVICE_PREFIX + count.device_class == name:
                    held_is_free = relax.empty or relax.devices
                    free[count.node, r] = count.total if held_is_free else count.free
    for pod, node in placed.items():
        free[node] -= rows[pods.spec[pod]]
    return free


def _find_evictable(snapshot: Snapshot, priority: int) -> NDArray[np.bool_]:
    """Return bool[P]: running pods whose own or root group's priority is strictly lower."""
    pods = snapshot.pods
    own = pods.priority.astype(np.int64)
    if snapshot.groups:
        of_group = np.array([group.priority for group in snapshot.groups], np.int64)
        evictable = np.array([group.evictable for group in snapshot.groups])
        inside = pods.group != NO_GROUP
        own = np.where(inside, of_group[pods.group], own)
        lower = (own < priority) & (~inside | evictable[pods.group])
    else:
        lower = own < priority
    held = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.NOT_PREEMPTIBLE | PodFlag.TERMINATING
    result: NDArray[np.bool_] = (
        lower & pods.holds_room & (pods.node >= 0) & ((pods.flags & held) == 0)
    )
    return result


def _has_shared_devices(snapshot: Snapshot, spec: PodSpec, relax: Relax) -> NDArray[np.bool_]:
    """Return bool[N]: nodes with the devices of the claims that the pod's group shares."""
    mask = np.ones(len(snapshot.nodes), bool)
    known = {d.device_class for d in snapshot.devices}
    for claim in spec.claims:
        if claim.shared_by_group and claim.allocated_nodes is None:
            for device_class, count in claim.devices:
                if device_class in known:
                    free = np.zeros(len(mask), np.int64)
                    for d in snapshot.devices:
                        if d.device_class == device_class:
                            free[d.node] = d.total if relax.empty or relax.devices else d.free
                    mask &= free >= count
    return mask


def _find_reservations(
    snapshot: Snapshot, pending: NDArray[np.int64]
) -> dict[int, tuple[int, ...]]:
    reserved: dict[int, list[int]] = {}
    for pod in pending[snapshot.pods.nominated[pending] >= 0].tolist():
        reserved.setdefault(int(snapshot.pods.nominated[pod]), []).append(pod)
    return {node: tuple(found) for node, found in reserved.items()}


class _Members:
    """The group forest with the pods below each group."""

    def __init__(self, snapshot: Snapshot, pending: NDArray[np.int64]) -> None:
        self.snapshot = snapshot
        pods = snapshot.pods
        self.children: dict[int, list[int]] = {}
        for g, group in enumerate(snapshot.groups):
            if group.parent != NO_GROUP:
                self.children.setdefault(group.parent, []).append(g)
        # Pods with a nomination first: once they have a node, nobody need leave room to them.
        unnamed = pods.nominated[pending] < 0
        order = pending[np.lexsort((pending, pods.rank[pending], unnamed))]
        self.pending: dict[int, list[int]] = {}
        self.single: list[int] = []
        for pod, g in zip(order.tolist(), pods.group[order].tolist(), strict=True):
            if g == NO_GROUP:
                self.single.append(pod)
            else:
                self.pending.setdefault(g, []).append(pod)
        self.running: dict[int, list[int]] = {}
        bound = np.flatnonzero(pods.is_running_member & (pods.group != NO_GROUP))
        for pod, g in zip(bound.tolist(), pods.group[bound].tolist(), strict=True):
            self.running.setdefault(g, []).append(pod)

    def root_of(self, g: int) -> int:
        while self.snapshot.groups[g].parent != NO_GROUP:
            g = self.snapshot.groups[g].parent
        return g

    def subtree(self, g: int) -> list[int]:
        found = [g]
        for child in self.children.get(g, ()):
            found += self.subtree(child)
        return found

    def pending_of(self, root: int) -> list[int]:
        """Return the pending pods of a root; a pod of its own is the root ~pod."""
        if root < 0:
            return [~root]
        return [p for g in self.subtree(root) for p in self.pending.get(g, ())]

    def select(self, request: Request, only: Sequence[str] | None) -> list[int]:
        groups, pods = self.snapshot.groups, self.snapshot.pods
        refs = request.groups if only is None else only
        if refs is None:
            roots = [
                g
                for g, group in enumerate(groups)
                if group.parent == NO_GROUP and self.pending_of(g)
            ]
            # Pods of another scheduler count where they run; where they go is its business.
            own = [
                ~p for p in self.single if pods.specs[pods.spec[p]].scheduler == DEFAULT_SCHEDULER
            ]
            return roots + own
        wanted = set(refs)
        found = {self.root_of(g) for g, group in enumerate(groups) if group.ref in wanted}
        singles = [~p for p in self.single if pods.refs[p] in wanted]
        return sorted(found) + singles


@dataclass(slots=True)
class _UnitBuilder:
    snapshot: Snapshot
    request: Request
    relax: Relax
    columns: _Columns
    interactions: Interactions
    members: _Members
    pod_classes: Mapping[int, int]

    def build(self, root: int) -> Unit:
        pods = self.snapshot.pods
        if root < 0:
            pod = ~root
            task = Task(0, self.pod_classes[pod], (pod,))
            required = self._affinity_terms([pod])
            node = TreeNode(NO_GROUP, tasks=(0,), min_count=1, required=required)
            gpus = pods.specs[pods.spec[pod]].gpus
            priority, created = int(pods.priority[pod]), int(pods.created[pod])
            return Unit(pods.refs[pod], (node,), (task,), priority, created, gpus)
        group = self.snapshot.groups[root]
        tree: list[TreeNode] = []
        tasks: list[Task] = []
        blocked: list[str] = []
        self._add(root, tree, tasks, blocked)
        gpus = sum(pods.specs[pods.spec[t.pods[0]]].gpus * t.count for t in tasks)
        return Unit(
            group.ref,
            tuple(tree),
            tuple(tasks),
            group.priority,
            group.created,
            gpus,
            blocked[0] if blocked else "",
        )

    def _add(self, g: int, tree: list[TreeNode], tasks: list[Task], blocked: list[str]) -> int:
        group = self.snapshot.groups[g]
        reason = self._blocked(group)
        if reason:
            blocked.append(reason)
        at = len(tree)
        tree.append(TreeNode(g))
        children = tuple(
            self._add(c, tree, tasks, blocked) for c in self.members.children.get(g, ())
        )
        pending = self.members.pending.get(g, [])
        by_class: dict[int, list[int]] = {}
        for pod in pending:
            by_class.setdefault(self.pod_classes[pod], []).append(pod)
        own = []
        for pod_class, found in by_class.items():
            own.append(len(tasks))
            tasks.append(Task(at, pod_class, tuple(found)))
        running = [p for h in self.members.subtree(g) for p in self.members.running.get(h, ())]
        slices = tuple((self.columns(s.path), s.size) for s in group.slices if s.required)
        standing = tuple(self._count_standing(column, running) for column, _ in slices)
        holds_floor = self.request.assume_gangs or not group.is_inferred
        floor = group.min_count
        if group.policy == "basic" and group.kind == "group":
            # Below a composite, a basic group counts as a child only with at least one pod.
            floor = int(group.parent != NO_GROUP)
        tree[at] = TreeNode(
            group=g,
            children=children,
            tasks=tuple(own),
            min_count=floor if holds_floor else 0,
            min_groups=group.min_groups if holds_floor else 0,
            running=len(running),
            required=(
                *self._required(group, running),
                *self._affinity_terms(pending),
                # A running member outside every domain is in no run: no cut will do any more.
                *(
                    Required(column, BROKEN)
                    for (column, _), counts in zip(slices, standing, strict=True)
                    if NO_DOMAIN in counts
                ),
            ),
            preferred=tuple(self.columns(t.path) for t in group.topology if not t.required),
            slices=slices,
            standing=standing,
            exclusive=self.interactions.exclusive_rules(g, group),
        )
        return at

    def _blocked(self, group: Group) -> str:
        """Return why the group's scheduler refuses it; some rules hold from 1.37 on only."""
        since_137 = group.blocked.startswith("1.37: ")
        if since_137 and self.request.release in ("1.35", "1.36"):
            return ""
        return group.blocked.removeprefix("1.37: ")

    def _required(self, group: Group, running: list[int]) -> tuple[Required, ...]:
        terms = []
        for term in group.topology:
            if not term.required:
                continue
            column = self.columns(term.path)
            pinned = FREE_CHOICE
            if running and not self.relax.pins and not self.relax.empty:
                nodes = self.snapshot.pods.node[running]
                codes = np.full(len(nodes), NO_DOMAIN)  # of members on nodes that were not read
                codes[nodes >= 0] = self.columns.columns[column].codes[nodes[nodes >= 0]]
                distinct = np.unique(codes)
                whole = len(distinct) == 1 and distinct[0] != NO_DOMAIN
                pinned = int(distinct[0]) if whole else BROKEN
            terms.append(Required(column, pinned))
        return tuple(terms)

    def _count_standing(self, column: int, running: list[int]) -> dict[int, int]:
        """Count running members by domain, NO_DOMAIN for those in none."""
        if self.relax.pins or self.relax.empty:
            return {}
        counts: dict[int, int] = {}
        for node in self.snapshot.pods.node[running].tolist():
            domain = int(self.columns.columns[column].codes[node]) if node >= 0 else NO_DOMAIN
            counts[domain] = counts.get(domain, 0) + 1
        return counts

    def _affinity_terms(self, pods: Sequence[int]) -> tuple[Required, ...]:
        """Self-affinity binds a leaf's pods to one domain, like a required term."""
        keys = {k for pod in pods for k in self.interactions.self_affine_keys(pod)}
        return tuple(Required(self.columns((k,))) for k in sorted(keys))
