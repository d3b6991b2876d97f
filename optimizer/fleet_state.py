"""What is free while a plan is being built: takes and gives back, with undo.

Counts that a step needs (how many pods of a class fit on a node, in a domain) are kept and updated
by difference, so that the cost of a step follows the nodes it touches, not the fleet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.interactions import MANY_OWNERS, NO_OWNER
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.interactions import ExclusiveRule
    from optimizer.problem import Problem

    Indices = NDArray[np.int64]

__all__ = ["FleetState", "count_fits"]

PLENTY = 2**24
"""Pods of a class that asks for nothing which a node could run out of."""


def count_fits(free: Indices, request: NDArray[np.int32]) -> Indices:
    """Count the pods of one class that fit on each node by resources alone.

    Args:
      free: i64[N, R]; negative where a node is overcommitted (fits nothing that asks for it).
      request: i32[R], not negative.

    Returns:
      i64[N].

    Source: NodeResourcesFit; equality fits.
    """
    asked = np.flatnonzero(request)
    if asked.size == 0:
        return np.full(free.shape[0], PLENTY, np.int64)
    fits: Indices = np.maximum((free[:, asked] // request[asked]).min(axis=1), 0)
    return fits


def count_fits_of_all(free: Indices, requests: NDArray[np.int32]) -> Indices:
    """Count the pods of several classes that fit on each node: i64[S, N] for i32[S, R]."""
    per_resource = free[None, :, :] // np.maximum(requests, 1)[:, None, :]
    per_resource[np.broadcast_to((requests == 0)[:, None, :], per_resource.shape)] = PLENTY
    fits: Indices = np.maximum(per_resource.min(axis=2), 0)
    return fits


class _Taken(NamedTuple):
    pod_class: int
    nodes: Indices
    counts: Indices


class _Owned(NamedTuple):
    rules: tuple[ExclusiveRule, ...]
    nodes: Indices
    change: int


class FleetState:
    """Free amounts and interaction tables of one problem, mutable."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.free = problem.free.astype(np.int64)
        self.node_gpus = problem.node_gpus.copy()
        # Rows are filled when a class is first asked about, and kept up to date from then on.
        self._fits = np.empty(problem.eligible.shape, np.int64)
        self._known: list[int] = []
        self._caps: dict[int, Indices] = {}
        self._known_caps: dict[int, list[int]] = {}
        self._members: dict[int, list[Indices]] = {}
        tables = problem.interactions
        self._holders = [c.holders.copy() for c in tables.conflicts]
        self._matched = [c.matched.copy() for c in tables.conflicts]
        self._spread = [s.counts.copy() for s in tables.spreads]
        self._attracted = [np.zeros(a.size, np.int32) for a in tables.attractions]
        self._owner = [e.owner.copy() for e in tables.exclusive]
        self._keyed = [e.is_keyed.copy() for e in tables.exclusive]
        # (rule, domain) -> owner -> fills that stand there; what stood before counts as one.
        self._standing: dict[tuple[int, int], dict[int, int]] = {}
        self._keyed_owners = {
            (rule.rule, rule.owner)
            for unit in problem.units
            for node in unit.tree
            for rule in node.exclusive
            if rule.is_keyed
        }
        self._journal: list[_Taken | _Owned] = []

    def fits(self, pod_class: int) -> Indices:
        """Return i64[N]: pods of a class that fit each node by resources and node filters."""
        if pod_class not in self._known:
            fits = count_fits(self.free, self.problem.requests[pod_class])
            fits[~self.problem.eligible[pod_class]] = 0
            self._fits[pod_class] = fits
            self._known.append(pod_class)
        row: Indices = self._fits[pod_class]
        return row

    def capacity(self, pod_class: int, column: int) -> Indices:
        """Return i64[D]: pods of a class that fit each domain of a column."""
        if column not in self._caps:
            shape = (len(self.problem.requests), len(self.problem.columns[column].values))
            self._caps[column] = np.empty(shape, np.int64)
            self._known_caps[column] = []
        if pod_class not in self._known_caps[column]:
            self._caps[column][pod_class] = self.sum_domains(column, self.fits(pod_class))
            self._known_caps[column].append(pod_class)
        row: Indices = self._caps[column][pod_class]
        return row

    def sum_domains(self, column: int, amounts: Indices) -> Indices:
        """Add up i64[N] amounts over each domain of a column: i64[D]."""
        table = self.problem.columns[column]
        inside = table.codes != NO_DOMAIN
        sums = np.bincount(table.codes[inside], amounts[inside], len(table.values))
        return sums.astype(np.int64)

    def members(self, column: int) -> list[Indices]:
        """Return the node indices of each domain of a column."""
        if column not in self._members:
            table = self.problem.columns[column]
            order = np.argsort(table.codes, kind="stable")
            bounds = np.searchsorted(table.codes[order], np.arange(len(table.values) + 1))
            self._members[column] = [
                order[bounds[d] : bounds[d + 1]] for d in range(len(table.values))
            ]
        return self._members[column]

    def mark(self) -> int:
        """Return a mark to which `undo` can go back."""
        return len(self._journal)

    def take(self, pod_class: int, nodes: Indices, counts: Indices) -> None:
        """Put `counts[i]` pods of a class on `nodes[i]` (nodes distinct)."""
        self._shift(pod_class, nodes, counts)
        self._journal.append(_Taken(pod_class, nodes, counts))

    def forget_journal(self) -> None:
        """Make everything taken so far permanent."""
        self._journal.clear()

    def lift(self, pod_class: int, nodes: Indices, counts: Indices) -> None:
        """Give back what `take` took."""
        self.take(pod_class, nodes, -counts)

    def own(self, rules: tuple[ExclusiveRule, ...], nodes: Indices, change: int = 1) -> None:
        """Record that a group now stands in (-1: leaves) the exclusive domains of these nodes."""
        self._shift_owner(rules, nodes, change)
        self._journal.append(_Owned(rules, nodes, change))

    def _shift_owner(self, rules: tuple[ExclusiveRule, ...], nodes: Indices, change: int) -> None:
        for rule in rules:
            table = self.problem.interactions.exclusive[rule.rule]
            codes = table.codes[nodes]
            for domain in np.unique(codes[codes != NO_DOMAIN]).tolist():
                standing = self._standing.setdefault((rule.rule, domain), {})
                before = int(table.owner[domain])
                if not standing and before != NO_OWNER:
                    standing[before] = 1
                standing[rule.owner] = standing.get(rule.owner, 0) + change
                if standing[rule.owner] == 0:
                    del standing[rule.owner]
                owners = list(standing)
                alone = owners[0] if len(owners) == 1 else MANY_OWNERS
                self._owner[rule.rule][domain] = alone if owners else NO_OWNER
                keyed = bool(table.is_keyed[domain]) if before in standing else False
                self._keyed[rule.rule][domain] = keyed or any(
                    (rule.rule, owner) in self._keyed_owners for owner in owners
                )

    def undo(self, mark: int) -> None:
        """Give back everything taken since `mark`."""
        while len(self._journal) > mark:
            entry = self._journal.pop()
            if isinstance(entry, _Taken):
                self._shift(entry.pod_class, entry.nodes, -entry.counts)
            else:
                self._shift_owner(entry.rules, entry.nodes, -entry.change)

    def _shift(self, pod_class: int, nodes: Indices, counts: Indices) -> None:
        problem = self.problem
        self.free[nodes] -= counts[:, None] * problem.requests[pod_class]
        self.node_gpus[nodes] -= counts * problem.class_gpus[pod_class]
        if self._known:
            known = np.array(self._known)
            fresh = count_fits_of_all(self.free[nodes], problem.requests[known])
            fresh *= problem.eligible[np.ix_(known, nodes)]
            position = np.full(len(problem.requests), -1)
            position[known] = np.arange(len(known))
            for column, caps in self._caps.items():
                classes = np.array(self._known_caps[column])
                codes = problem.columns[column].codes[nodes]
                inside = codes != NO_DOMAIN
                change = fresh[position[classes]] - self._fits[np.ix_(classes, nodes)]
                np.add.at(caps, (classes[:, None], codes[inside]), change[:, inside])
            self._fits[np.ix_(known, nodes)] = fresh
        signature = problem.signatures[pod_class]
        for t, conflict in enumerate(problem.interactions.conflicts):
            if (signature.holds | signature.matched) >> t & 1:
                codes = conflict.codes[nodes]
                inside = codes != NO_DOMAIN
                if signature.holds >> t & 1:
                    np.add.at(self._holders[t], codes[inside], counts[inside].astype(np.int32))
                if signature.matched >> t & 1:
                    np.add.at(self._matched[t], codes[inside], counts[inside].astype(np.int32))
        for t, spread in enumerate(problem.interactions.spreads):
            if signature.spread_matched >> t & 1:
                codes = spread.codes[nodes]
                inside = codes != NO_DOMAIN
                np.add.at(self._spread[t], codes[inside], counts[inside].astype(np.int32))
        for t, attraction in enumerate(problem.interactions.attractions):
            if signature.attracts >> t & 1:
                codes = attraction.codes[nodes]
                np.add.at(self._attracted[t], codes, counts.astype(np.int32))

    def standing(self, conflict: int, domain: int) -> tuple[int, int]:
        """Return how many holders and matched pods of a conflict stand in a domain."""
        return int(self._holders[conflict][domain]), int(self._matched[conflict][domain])

    def spread_counts(self, spread: int) -> NDArray[np.int32]:
        """Return i32[D]: matching pods of a spread constraint in each domain."""
        return self._spread[spread]

    def attracted(self, attraction: int) -> NDArray[np.int32]:
        """Return i32[D]: new carriers of an attraction in each domain."""
        return self._attracted[attraction]

    def is_coupled(self, pod_class: int) -> bool:
        """Tell whether other new pods decide where pods of a class may go, or the reverse."""
        return self.problem.signatures[pod_class].is_coupled

    def has_spread(self, pod_class: int) -> bool:
        """Tell whether a class has a hard spread constraint of its own."""
        return bool(self.problem.signatures[pod_class].spreads)

    def coupled_fits(self, pod_class: int, nodes: Indices) -> Indices:
        """Return how many pods fit each of `nodes` given the other pods placed so far.

        A class that repels its own kind gets one pod in each domain, on the fullest node of it;
        a class with hard spread gets the nodes where the very next pod may go, one pod each.
        """
        fits = self.fits(pod_class)[nodes].copy()
        signature = self.problem.signatures[pod_class]
        for t, conflict in enumerate(self.problem.interactions.conflicts):
            holds, matched = signature.holds >> t & 1, signature.matched >> t & 1
            if not (holds or matched):
                continue
            codes = conflict.codes[nodes]
            inside = codes != NO_DOMAIN
            if holds:
                fits[inside & (self._matched[t][codes] > 0)] = 0
            if matched:
                fits[inside & (self._holders[t][codes] > 0)] = 0
            if holds and matched:
                order = np.lexsort((nodes, self.node_gpus[nodes], fits == 0))
                _, first = np.unique(codes[order], return_index=True)
                keep = ~inside
                keep[order[first]] = True
                fits[~keep] = 0
                fits[inside] = np.minimum(fits[inside], 1)
        for t, attraction in enumerate(self.problem.interactions.attractions):
            if signature.attracts >> t & 1 and self._attracted[t].any():
                fits[self._attracted[t][attraction.codes[nodes]] == 0] = 0
        for t, spread in enumerate(self.problem.interactions.spreads):
            if signature.spreads >> t & 1:
                codes = spread.codes[nodes]
                counts = self._spread[t]
                floor = spread.find_floor(counts)
                self_match = signature.spread_matched >> t & 1
                allowed = counts[codes] + self_match - floor <= spread.term.max_skew
                fits[~(allowed & (codes != NO_DOMAIN))] = 0
                fits = np.minimum(fits, 1)
        return fits

    def exclusive_mask(self, rules: Sequence[ExclusiveRule]) -> NDArray[np.bool_] | None:
        """Return bool[N]: nodes whose exclusive domains a group may enter; None for all."""
        if not rules:
            return None
        mask = np.ones(len(self.free), bool)
        for rule in rules:
            codes = self.problem.interactions.exclusive[rule.rule].codes
            owner, keyed = self._owner[rule.rule][codes], self._keyed[rule.rule][codes]
            mine = owner == rule.owner
            open_domain = (owner == NO_OWNER) if rule.is_keyed else ~keyed
            inside = codes != NO_DOMAIN
            # A keyed group needs the label: its affinity terms cannot be met without it.
            mask &= np.where(inside, mine | open_domain, not rule.is_keyed)
        return mask
