"""Filters that depend on other pods, kept up to date while pods come and victims go and return.

Source: kube-scheduler InterPodAffinity (terms of newcomers, anti-affinity of those that stand),
NodePorts, PodTopologySpread; exclusive topology of LeaderWorkerSet and JobSet.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.interactions import carries_term, meets_term
from optimizer.victims import selects
from topology.levels import NO_DOMAIN, build_column
from topology.model import NO_GROUP, PodFlag
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optimizer.problem import Problem
    from topology.model import AffinityTerm

    Indices = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["ExclusiveDomains", "Neighbours"]


@dataclass(frozen=True, slots=True)
class _Table:
    """Pods of one description in each domain of a key."""

    codes: NDArray[np.int32]
    """i32[N], NO_DOMAIN for nodes that are in no domain."""
    counts: NDArray[np.int64]
    """i64[D + 1]; the last entry takes what is in no domain, and is never read."""

    def at(self, nodes: Indices) -> Indices:
        """Return i64[n]: the count in the domain of each node, 0 where it is in none."""
        codes = self.codes[nodes]
        found: Indices = np.where(codes == NO_DOMAIN, 0, self.counts[codes])
        return found


def _copy(codes: NDArray[np.int32], counts: NDArray[np.int32]) -> _Table:
    return _Table(codes, np.append(counts.astype(np.int64), 0))


class _Wants(NamedTuple):
    """What a pod needs of its neighbours."""

    free_of: tuple[_Table, ...]
    """No pod may stand in the domain."""
    affinity: tuple[_Table, ...]
    is_self_affine: bool
    """The pod meets its own affinity terms: the first of its kind may go anywhere."""
    spreads: tuple[tuple[int, int], ...]
    """(constraint, 1 where the pod counts itself)."""


class Neighbours:
    """Counts of standing pods by domain, for every term that a pending pod meets."""

    def __init__(self, problem: Problem) -> None:
        self._snapshot = snapshot = problem.snapshot
        self._problem = problem
        tables = problem.interactions
        self._holders = [_copy(c.codes, c.holders) for c in tables.conflicts]
        self._matched = [_copy(c.codes, c.matched) for c in tables.conflicts]
        self._spreads = [_copy(s.codes, s.counts) for s in tables.spreads]
        terms = {t: None for x in problem.class_specs for t in snapshot.pods.specs[x].affinity}
        self._affinity: dict[AffinityTerm, _Table] = {}
        for term in terms:
            column = build_column(snapshot.nodes, (term.key,))
            self._affinity[term] = _Table(column.codes, np.zeros(len(column.values) + 1, np.int64))
        self.is_trivial = not (tables.conflicts or tables.spreads or terms)
        self._changes: dict[tuple[int, int, str, bool], tuple[_Table, ...]] = {}
        self._wants: dict[tuple[int, int, str, bool], _Wants] = {}
        pods = snapshot.pods
        if terms:
            for p in np.flatnonzero(pods.is_live & (pods.node >= 0)).tolist():
                for table in self._find_changed(p):
                    if any(table is other for other in self._affinity.values()):
                        table.counts[table.codes[pods.node[p]]] += 1

    def _kind(self, pod: int) -> tuple[int, int, str, bool]:
        pods = self._snapshot.pods
        is_going = bool(pods.flags[pod] & PodFlag.TERMINATING)
        namespace = pods.refs[pod].partition("/")[0]
        return int(pods.spec[pod]), int(pods.labels[pod]), namespace, is_going

    def shift(self, pod: int, node: int, change: int) -> None:
        """Count a pod in (1) or out (-1) on a node."""
        for table in self._find_changed(pod):
            table.counts[table.codes[node]] += change

    def is_counted(self, pod: int) -> bool:
        """Tell whether some pending pod minds where a pod stands."""
        return bool(self._find_changed(pod))

    def _find_changed(self, pod: int) -> tuple[_Table, ...]:
        kind = self._kind(pod)
        if kind not in self._changes:
            spec, labels, namespace, is_going = kind
            pods, tables = self._snapshot.pods, self._problem.interactions
            found: list[_Table] = []
            for t, conflict in enumerate(tables.conflicts):
                if carries_term(pods.specs[spec], conflict.term):
                    found.append(self._holders[t])
                if meets_term(self._snapshot, conflict.term, kind[:3]):
                    found.append(self._matched[t])
            for t, spread in enumerate(tables.spreads):
                # Spread does not count pods that terminate; affinity does.
                is_near = spread.namespace == namespace and not is_going
                if is_near and matches_selector(spread.term.selector, pods.label_sets[labels]):
                    found.append(self._spreads[t])
            found += [
                table
                for term, table in self._affinity.items()
                if selects(self._snapshot, term, pod)
            ]
            self._changes[kind] = tuple(found)
        return self._changes[kind]

    def _find_wanted(self, pod: int) -> _Wants:
        kind = self._kind(pod)
        if kind not in self._wants:
            spec = self._snapshot.pods.specs[kind[0]]
            own = self._problem.interactions.signature(pod)
            spreads = range(len(self._spreads))
            self._wants[kind] = _Wants(
                free_of=(
                    *(table for t, table in enumerate(self._matched) if own.holds >> t & 1),
                    *(table for t, table in enumerate(self._holders) if own.matched >> t & 1),
                ),
                affinity=tuple(self._affinity[term] for term in spec.affinity),
                is_self_affine=all(selects(self._snapshot, t, pod) for t in spec.affinity),
                spreads=tuple(
                    (t, own.spread_matched >> t & 1) for t in spreads if own.spreads >> t & 1
                ),
            )
        return self._wants[kind]

    def allows(self, pod: int, nodes: Indices) -> Mask:
        """Tell, for i64[n] nodes, where those that stand there let a pending pod in: bool[n]."""
        passes = np.ones(len(nodes), bool)
        wants = self._find_wanted(pod)
        for table in wants.free_of:
            passes &= table.at(nodes) == 0
        passes &= self._meets_affinity(wants, nodes)
        for t, own in wants.spreads:
            spread, table = self._problem.interactions.spreads[t], self._spreads[t]
            floor = spread.find_floor(table.counts[:-1].astype(np.int32))
            passes &= (table.codes[nodes] != NO_DOMAIN) & (
                table.at(nodes) + own - floor <= spread.term.max_skew
            )
        return passes

    def lacks_company(self, pod: int, nodes: Indices) -> Mask:
        """Tell, for i64[n] nodes, where no eviction helps: required affinity, a missing key."""
        wants = self._find_wanted(pod)
        lacks = ~self._meets_affinity(wants, nodes)
        for t, _ in wants.spreads:
            lacks |= self._spreads[t].codes[nodes] == NO_DOMAIN
        return lacks

    def _meets_affinity(self, wants: _Wants, nodes: Indices) -> Mask:
        passes = np.ones(len(nodes), bool)
        if not wants.affinity:
            return passes
        nobody = not all(table.counts[:-1].any() for table in wants.affinity)
        for table in wants.affinity:
            passes &= table.codes[nodes] != NO_DOMAIN
            if not (nobody and wants.is_self_affine):
                passes &= table.at(nodes) > 0
        return passes


class ExclusiveDomains:
    """Which groups stand in the domains of exclusive topology keys."""

    def __init__(self, problem: Problem) -> None:
        self._snapshot = snapshot = problem.snapshot
        self._tables = problem.interactions
        self.is_trivial = not self._tables.exclusive
        self._owners: list[defaultdict[int, Counter[int]]] = [
            defaultdict(Counter) for _ in self._tables.exclusive
        ]
        """For each rule: domain -> pods of each group."""
        self._keyed: set[tuple[int, int]] = set()
        if self.is_trivial:
            return
        for g, group in enumerate(snapshot.groups):
            self._keyed |= {
                (r.rule, g) for r in self._tables.exclusive_rules(g, group) if r.is_keyed
            }
        pods = snapshot.pods
        for p in np.flatnonzero(pods.is_live & (pods.node >= 0)).tolist():
            self.shift(p, int(pods.node[p]), 1)

    def _climb(self, pod: int) -> list[int]:
        found = []
        g = int(self._snapshot.pods.group[pod])
        while g != NO_GROUP:
            found.append(g)
            g = self._snapshot.groups[g].parent
        return found

    def shift(self, pod: int, node: int, change: int) -> None:
        """Count a pod in (1) or out (-1) on a node."""
        for g in self._climb(pod):
            for rule in self._tables.exclusive_rules(g, self._snapshot.groups[g]):
                domain = int(self._tables.exclusive[rule.rule].codes[node])
                if domain != NO_DOMAIN:
                    self._owners[rule.rule][domain][g] += change

    def allows(self, pod: int, nodes: Indices) -> Mask:
        """Tell, for i64[n] nodes, whose exclusive domains the groups of a pod may enter."""
        passes = np.ones(len(nodes), bool)
        for g in self._climb(pod):
            for rule in self._tables.exclusive_rules(g, self._snapshot.groups[g]):
                codes = self._tables.exclusive[rule.rule].codes[nodes]
                if rule.is_keyed:
                    passes &= codes != NO_DOMAIN
                for domain, owners in self._owners[rule.rule].items():
                    others = [h for h, count in owners.items() if count and h != g]
                    if others and (
                        rule.is_keyed or any((rule.rule, h) in self._keyed for h in others)
                    ):
                        passes &= codes != domain
        return passes
