"""The group forest -> units: which roots a request is about, and the tree and tasks of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.devices.needs import is_held_to_one_node
from optimizer.units import BROKEN, FREE_CHOICE, Required, Task, TreeNode, Unit
from topology.levels import NO_DOMAIN, build_column
from topology.model import HOSTNAME, NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.interactions import Interactions
    from topology.levels import DomainColumn
    from topology.model import Group, Snapshot
    from topology.plan import Request

__all__ = ["ColumnIndex", "GroupForest", "UnitBuilder"]

DEFAULT_SCHEDULER: Final = "default-scheduler"


class ColumnIndex:
    """Domain columns by path, built once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._index: dict[tuple[str, ...], int] = {}
        self.columns: list[DomainColumn] = []

    def __call__(self, path: tuple[str, ...]) -> int:
        """Return the index of the column of a path, built when first asked for."""
        if path not in self._index:
            self._index[path] = len(self.columns)
            self.columns.append(build_column(self._snapshot.nodes, path))
        return self._index[path]


class GroupForest:
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
        """Return the group without a parent above a group, or itself."""
        while self.snapshot.groups[g].parent != NO_GROUP:
            g = self.snapshot.groups[g].parent
        return g

    def subtree(self, g: int) -> list[int]:
        """Return a group and all below it, parents first."""
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
        """Return the roots that a request, or `only` in its place, is about."""
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
class UnitBuilder:
    """Compiles roots of the forest into units."""

    snapshot: Snapshot
    request: Request
    columns: ColumnIndex
    interactions: Interactions
    forest: GroupForest
    pod_classes: Mapping[int, int]
    """Pending pod -> class."""
    is_pinned: bool
    """Running members pin the domain they are in."""

    def build(self, root: int) -> Unit:
        """Compile one root; a pod of its own is the root ~pod."""
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
            self._add(c, tree, tasks, blocked) for c in self.forest.children.get(g, ())
        )
        pending = self.forest.pending.get(g, [])
        by_class: dict[int, list[int]] = {}
        for pod in pending:
            by_class.setdefault(self.pod_classes[pod], []).append(pod)
        own = []
        for pod_class, found in by_class.items():
            own.append(len(tasks))
            tasks.append(Task(at, pod_class, tuple(found)))
        running = [p for h in self.forest.subtree(g) for p in self.forest.running.get(h, ())]
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
                *self._claim_terms(g),
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
            if running and self.is_pinned:
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
        if not self.is_pinned:
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

    def _claim_terms(self, g: int) -> tuple[Required, ...]:
        """Bind the pods of a group to one node if all of them share a claim of one node."""
        if self.snapshot.groups[g].kind != "group":
            return ()
        pods = self.forest.pending_of(g)
        specs = {int(self.snapshot.pods.spec[pod]) for pod in pods}
        held = [
            {
                (need.name, need.claim)
                for need in self.snapshot.pods.specs[x].claims
                if is_held_to_one_node(self.snapshot, need)
            }
            for x in specs
        ]
        is_held = len(pods) > 1 and bool(set.intersection(*held))
        return (Required(self.columns((HOSTNAME,))),) if is_held else ()
