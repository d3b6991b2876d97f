"""Brute force: every way to put at most six pending pods on at most six nodes.

Written from the definitions of `topology.model`, one rule a function, with no code of the search,
of the verifier or of the exact model. Rules it knows: node filters, room, floors of the group
forest, required topology, slices, exclusive domains, affinity to a pod's own kind, anti-affinity,
host ports, hard spread.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from topology.model import NO_GROUP, PodFlag
from topology.selectors import find_untolerated, matches_node_affinity, matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topology.model import Node, Snapshot

__all__ = ["Oracle"]

MAX_PODS = 6
MAX_NODES = 6


class Oracle:
    """Answers for one snapshot; `where` maps pods (indices) to nodes, new ones included."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        pods = snapshot.pods
        self.pending = [p for p in range(len(pods)) if pods.is_pending[p]]
        self.bound = {p: int(pods.node[p]) for p in range(len(pods)) if pods.holds_room[p]}
        assert len(self.pending) <= MAX_PODS
        assert len(snapshot.nodes) <= MAX_NODES

    def find_best(self, objective: Sequence[str]) -> tuple[int, ...]:
        """Return the best value of all placements that break no rule."""
        return max(self.value(new, objective) for new in self.placements())

    def placements(self) -> Iterator[dict[int, int]]:
        """Yield every placement that breaks no rule, the empty one included."""
        for new in self._assign(0, {}):
            if self.is_valid(new):
                yield new

    def _assign(self, i: int, new: dict[int, int]) -> Iterator[dict[int, int]]:
        """Enumerate; a node that is full or refuses the pod is left out at once."""
        if i == len(self.pending):
            yield dict(new)
            return
        yield from self._assign(i + 1, new)
        p = self.pending[i]
        for n, node in enumerate(self.snapshot.nodes):
            new[p] = n
            if self._may_enter(p, node) and self._has_room(p, n, new):
                yield from self._assign(i + 1, new)
            del new[p]

    def value(self, new: Mapping[int, int], objective: Sequence[str]) -> tuple[int, ...]:
        """Return what a placement is worth in every level, signs applied."""
        pods, groups = self.snapshot.pods, self.snapshot.groups
        gpus = {p: pods.row(p).spec.gpus for p in new}
        rank = {}
        for p in self.pending:
            leaf = int(pods.group[p])
            rank[p] = int(pods.priority[p]) if leaf == NO_GROUP else groups[leaf].priority
        with_pods = {g for p in new for g in self._above(p) if groups[g].kind == "group"}
        single = [p for p in new if pods.group[p] == NO_GROUP]
        found: list[int] = []
        for item in objective:
            direction, _, criterion = item.partition(":")
            sign = 1 if direction == "max" else -1
            match criterion:
                case "priority":
                    for priority in sorted(set(rank.values()), reverse=True):
                        found.append(sign * sum(gpus[p] for p in new if rank[p] == priority))
                case "gpusPlaced":
                    found.append(sign * sum(gpus.values()))
                case "podsPlaced":
                    found.append(sign * len(new))
                case "weightedGpus":
                    found.append(sign * sum(gpus[p] * rank[p] for p in new))
                case "groupsPlaced":
                    found.append(sign * (len(with_pods) + len(single)))
        return tuple(found)

    def is_valid(self, new: Mapping[int, int]) -> bool:
        """Tell whether a placement breaks no rule."""
        pods = self.snapshot.pods
        if not all(
            self._may_enter(p, self.snapshot.nodes[n]) and self._has_room(p, n, new)
            for p, n in new.items()
        ):
            return False
        where = {**self.bound, **new}
        touched = {g for p in new for g in self._above(p)}
        return (
            all(self._succeeds(g, where) for g in touched)
            and not any(self.snapshot.groups[g].blocked for g in touched)
            and all(self._shares_domains(g, where) for g in touched)
            and all(self._has_whole_runs(g, where) for g in touched)
            and self._keeps_apart(new, where)
            and all(self._has_company(p, new) for p in new)
            and self._is_exclusive(new, where)
            and all(self._is_spread(p, new, where) for p in new if pods.row(p).spec.spread)
        )

    def _above(self, p: int) -> Iterator[int]:
        g = int(self.snapshot.pods.group[p])
        while g != NO_GROUP:
            yield g
            g = self.snapshot.groups[g].parent

    def _members(self, g: int, where: Mapping[int, int]) -> list[int]:
        terminating = PodFlag.TERMINATING
        flags = self.snapshot.pods.flags
        return [p for p in where if g in self._above(p) and not int(flags[p]) & terminating]

    def _may_enter(self, p: int, node: Node) -> bool:
        spec = self.snapshot.pods.row(p).spec
        return (
            node.ready
            and matches_node_affinity(spec, node)
            and find_untolerated(spec, node) is None
            and all(term.key in node.labels for term in spec.spread)
        )

    def _has_room(self, p: int, n: int, new: Mapping[int, int]) -> bool:
        used: Counter[str] = Counter()
        for q, at in (*self.bound.items(), *new.items()):
            if at == n:
                used.update(dict(self.snapshot.pods.row(q).spec.requests))
        offered = self.snapshot.nodes[n].allocatable
        wanted = self.snapshot.pods.row(p).spec.requests
        return all(used[resource] <= offered.get(resource, 0) for resource, _ in wanted)

    def _succeeds(self, g: int, where: Mapping[int, int]) -> bool:
        """A group succeeds by its pods and by its children; children that fail count nothing."""
        group = self.snapshot.groups[g]
        if self._count(g, where) < group.min_count:
            return False
        good = 0
        for c, child in enumerate(self.snapshot.groups):
            if child.parent == g and self._succeeds(c, where):
                good += child.policy != "basic" or self._count(c, where) > 0
        return good >= group.min_groups

    def _count(self, g: int, where: Mapping[int, int]) -> int:
        pods = self.snapshot.pods
        own = sum(int(pods.group[p]) == g for p in self._members(g, where))
        children = [c for c, child in enumerate(self.snapshot.groups) if child.parent == g]
        return own + sum(self._count(c, where) for c in children if self._succeeds(c, where))

    def _domain(self, n: int, path: Sequence[str]) -> tuple[str, ...] | None:
        if n < 0 or any(key not in self.snapshot.nodes[n].labels for key in path):
            return None
        return tuple(self.snapshot.nodes[n].labels[key] for key in path)

    def _shares_domains(self, g: int, where: Mapping[int, int]) -> bool:
        for term in self.snapshot.groups[g].topology:
            domains = {self._domain(where[p], term.path) for p in self._members(g, where)}
            if term.required and (None in domains or len(domains) > 1):
                return False
        return True

    def _has_whole_runs(self, g: int, where: Mapping[int, int]) -> bool:
        for term in self.snapshot.groups[g].slices:
            counts = Counter(self._domain(where[p], term.path) for p in self._members(g, where))
            short = [count for count in counts.values() if count % term.size]
            if term.required and (None in counts or len(short) > 1):
                return False
        return True

    def _keeps_apart(self, new: Mapping[int, int], where: Mapping[int, int]) -> bool:
        pods = self.snapshot.pods
        for p in where:
            for q in where:
                if p == q or (p not in new and q not in new):
                    continue
                a, b = pods.row(p), pods.row(q)
                for term in a.spec.anti_affinity:
                    selected = (
                        term.all_namespaces or b.ref.partition("/")[0] in term.namespaces
                    ) and matches_selector(term.selector, b.labels)
                    here = self._domain(where[p], (term.key,))
                    if selected and here and here == self._domain(where[q], (term.key,)):
                        return False
                if where[p] == where[q] and any(
                    (x.port, x.protocol) == (y.port, y.protocol)
                    and (x.ip == y.ip or "0.0.0.0" in (x.ip, y.ip))
                    for x in a.spec.host_ports
                    for y in b.spec.host_ports
                ):
                    return False
        return True

    def _has_company(self, p: int, new: Mapping[int, int]) -> bool:
        """Affinity to pods that stand, or, where none does, to the other newcomers that want it.

        Terms select none but pods of their carriers' kind, so an order exists in which each finds
        one before it if, and only if, all newcomers are in one domain.
        """
        pods = self.snapshot.pods
        for term in pods.row(p).spec.affinity:
            here = self._domain(new[p], (term.key,))
            matching = [
                q
                for q in (*self.bound, *new)
                if pods.refs[q].partition("/")[0] in term.namespaces
                and matches_selector(term.selector, pods.row(q).labels)
            ]
            old = [q for q in matching if q in self.bound]
            domains = {self._domain(self.bound[q], (term.key,)) for q in old} - {None}
            if not domains:
                domains = {self._domain(new[q], (term.key,)) for q in matching if q in new}
                if len(domains) > 1:
                    return False
            if here is None or here not in domains:
                return False
        return True

    def _is_exclusive(self, new: Mapping[int, int], where: Mapping[int, int]) -> bool:
        groups = self.snapshot.groups
        for peers in {e.peers for group in groups for e in group.exclusive}:
            for key in {e.key for group in groups for e in group.exclusive if e.peers == peers}:
                if key is None:
                    continue
                for value in {node.labels.get(key) for node in self.snapshot.nodes} - {None}:
                    there = {
                        p
                        for p, n in where.items()
                        if n >= 0 and self.snapshot.nodes[n].labels.get(key) == value
                    }
                    owners = [
                        (g, any(e.key == key for e in group.exclusive if e.peers == peers))
                        for g, group in enumerate(groups)
                        if any(e.peers == peers for e in group.exclusive)
                        and any(g in self._above(p) for p in there)
                    ]
                    touched = any(
                        p in new and g in self._above(p) for p in there for g, _ in owners
                    )
                    if touched and len(owners) > 1 and any(keyed for _, keyed in owners):
                        return False
        return True

    def _is_spread(self, p: int, new: Mapping[int, int], where: Mapping[int, int]) -> bool:
        pod = self.snapshot.pods.row(p)
        namespace = pod.ref.partition("/")[0]
        for term in pod.spec.spread:
            eligible = [
                n
                for n, node in enumerate(self.snapshot.nodes)
                if all(t.key in node.labels for t in pod.spec.spread)
                and (not term.honor_affinity or matches_node_affinity(pod.spec, node))
                and (not term.honor_taints or find_untolerated(pod.spec, node) is None)
            ]
            counts = Counter({self.snapshot.nodes[n].labels[term.key]: 0 for n in eligible})
            for q, n in where.items():
                other = self.snapshot.pods.row(q)
                if (
                    n in eligible
                    and not other.flags & PodFlag.TERMINATING
                    and other.ref.partition("/")[0] == namespace
                    and matches_selector(term.selector, other.labels)
                ):
                    counts[self.snapshot.nodes[n].labels[term.key]] += 1
            least = min(counts.values(), default=0) if len(counts) >= term.min_domains else 0
            if counts[self.snapshot.nodes[new[p]].labels[term.key]] - least > term.max_skew:
                return False
        return True
