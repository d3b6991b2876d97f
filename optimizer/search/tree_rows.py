"""Rows for units with structure: floors, subgroups, slices, exclusive domains, interactions.

Each leaf task gets a number of pods in every bin; each node of the tree a yes/no (it succeeds), and
for every required key a yes/no for each domain. The rows say of them what `Group` says in words.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import Fill, replay
from optimizer.problem import BROKEN, FREE_CHOICE
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.fleet_state import FleetState
    from optimizer.interactions import ExclusiveRule
    from optimizer.objective import Level
    from optimizer.problem import TreeNode, Unit
    from optimizer.search.bins import Bin
    from optimizer.search.mip import MipModel

__all__ = ["TreeRows"]


@dataclass(slots=True)
class _TreeEntry:
    index: int
    unit: Unit
    success: list[int] = field(default_factory=list)
    """Variable of each tree node."""
    pods: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(default_factory=dict)
    """Task -> (bins, variables)."""
    counted: dict[int, int] = field(default_factory=dict)
    """Tree node that is a group of the answer -> variable: it got a new pod."""


class TreeRows:
    """Adds units with structure to a model, and reads them back."""

    def __init__(
        self,
        state: FleetState,
        bins: Sequence[Bin],
        mip: MipModel,
        loads: list[list[tuple[int, int, int]]],
        gang_loads: dict[tuple[int, int], list[tuple[int, int, int]]],
        domain_of_bin: Callable[[int], NDArray[np.int64]],
        *,
        integer_pods: bool = True,
        integer_gangs: bool = True,
    ) -> None:
        self.state = state
        self.problem = state.problem
        self.bins = bins
        self.mip = mip
        self.loads = loads
        self.gang_loads = gang_loads
        self.domain_of_bin = domain_of_bin
        self.integer_pods = integer_pods
        self.integer_gangs = integer_gangs
        self.entries: list[_TreeEntry] = []
        # (spread, domain) -> (variable, pods that no longer stand there where it is 1).
        self.leaving: dict[tuple[int, int], list[tuple[int, int]]] = {}
        # (rule, domain) -> (variable, keyed) of every group that may stand there.
        self._presence: dict[tuple[int, int], list[tuple[int, bool]]] = defaultdict(list)

    def add(
        self, u: int, unit: Unit | None = None, within: NDArray[np.bool_] | None = None
    ) -> None:
        """Add one unit.

        Args:
          u: Its index, under which its placement is read back.
          unit: The unit where it is not that of the problem.
          within: bool[N] nodes that it may use; None for all.
        """
        unit = unit or self.problem.units[u]
        entry = _TreeEntry(u, unit)
        entry.success = self.mip.add_variables(np.ones(len(unit.tree))).tolist()
        for t, task in enumerate(unit.tasks):
            fits = np.array([b.fits[task.pod_class] for b in self.bins], np.int64)
            if within is not None:
                fits *= np.array([within[b.nodes[0]] for b in self.bins], np.int64)
            usable = np.flatnonzero(fits > 0)
            variables = self.mip.add_variables(
                np.minimum(fits[usable], task.count), integer=self.integer_pods
            )
            entry.pods[t] = (usable, variables)
            success = entry.success[task.leaf]
            self.mip.add_row(
                np.r_[variables, success], np.r_[np.ones(len(usable)), -task.count], up=0
            )
            for b, x in zip(usable.tolist(), variables.tolist(), strict=True):
                self.loads[b].append((task.pod_class, 1, x))
        for at in range(len(unit.tree)):
            self._add_node(entry, at)
        everything = self._variables(entry, 0)
        self.mip.add_row(np.r_[everything, entry.success[0]], _minus_last(everything), low=0)
        self.entries.append(entry)

    def _variables(self, entry: _TreeEntry, at: int) -> NDArray[np.int64]:
        """Return the pod variables of a subtree."""
        inside = set(entry.unit.walk(at))
        found = [entry.pods[t][1] for t, task in enumerate(entry.unit.tasks) if task.leaf in inside]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _bins_of(self, entry: _TreeEntry, at: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return (bins, variables) of a subtree, one entry a variable."""
        inside = set(entry.unit.walk(at))
        found = [entry.pods[t] for t, task in enumerate(entry.unit.tasks) if task.leaf in inside]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])

    def _add_node(self, entry: _TreeEntry, at: int) -> None:
        node = entry.unit.tree[at]
        success = entry.success[at]
        bins, variables = self._bins_of(entry, at)
        if node.min_count > 0:
            # Running members count in so far as the groups below that own them succeed.
            below = entry.unit.walk(at)
            floor = np.array([entry.unit.count_own_running(b) for b in below], np.float64)
            floor[0] -= node.min_count
            self.mip.add_row(
                np.r_[variables, [entry.success[b] for b in below]],
                np.r_[np.ones(len(variables)), floor],
                low=0,
            )
        for child in node.children:
            self.mip.add_row([entry.success[child], success], [1, -1], up=0)
        if node.min_groups > 0:
            children = [entry.success[c] for c in node.children]
            self.mip.add_row([*children, success], [*([1] * len(children)), -node.min_groups], 0)
        if self._is_group(node):
            counted = int(self.mip.add_variables(1)[0])
            entry.counted[at] = counted
            self.mip.add_row([counted, success], [1, -1], up=0)
            self.mip.add_row(np.r_[variables, counted], _minus_last(variables), low=0)
        for required in node.required:
            self._add_required(entry, at, required.column, required.pinned, bins, variables)
        for level in range(len(node.slices)):
            self._add_slices(node, level, bins, variables)
        self._add_exclusive(node, bins, variables)

    def _is_group(self, node: TreeNode) -> bool:
        return node.group < 0 or self.problem.snapshot.groups[node.group].kind == "group"

    def _add_required(
        self,
        entry: _TreeEntry,
        at: int,
        column: int,
        pinned: int,
        bins: NDArray[np.int64],
        variables: NDArray[np.int64],
    ) -> None:
        domain = self.domain_of_bin(column)[bins]
        outside = domain == NO_DOMAIN
        if pinned != FREE_CHOICE:
            outside |= domain != pinned
        self._forbid(variables[outside])
        if pinned == BROKEN:
            self._forbid(variables)
            return
        if pinned != FREE_CHOICE:
            return
        domains = np.unique(domain[~outside])
        chosen = self.mip.add_variables(np.ones(len(domains)), integer=self.integer_gangs)
        self.mip.add_row(np.r_[chosen, entry.success[at]], _minus_last(chosen), up=0)
        node = entry.unit.tree[at]
        limit = entry.unit.count_pending(at)
        is_whole = not node.children and node.min_count - node.running >= limit
        for d, w in zip(domains.tolist(), chosen.tolist(), strict=True):
            inside = variables[domain == d]
            self.mip.add_row(np.r_[inside, w], np.r_[np.ones(len(inside)), -limit], up=0)
            if is_whole:
                self.mip.add_row(np.r_[inside, w], np.r_[np.ones(len(inside)), -limit], low=0)
                tasks = [entry.unit.tasks[t] for t in node.tasks]
                self.gang_loads.setdefault((column, d), []).extend(
                    (task.pod_class, task.count, w) for task in tasks
                )

    def _forbid(self, variables: NDArray[np.int64]) -> None:
        if len(variables):
            self.mip.add_row(variables, 1, up=0)

    def _add_slices(
        self,
        node: TreeNode,
        level: int,
        bins: NDArray[np.int64],
        variables: NDArray[np.int64],
    ) -> None:
        """Every domain holds a multiple of `size` of the leaf's pods, but for one remainder."""
        column, size = node.slices[level]
        standing = node.standing[level]
        domain = self.domain_of_bin(column)[bins]
        self._forbid(variables[domain == NO_DOMAIN])
        domains = sorted({*domain.tolist(), *standing} - {NO_DOMAIN})
        partial = self.mip.add_variables(np.ones(len(domains)))
        limit = self.mip.count_at_most(variables)
        grows = int(self.mip.add_variables(1)[0])
        self.mip.add_row(np.r_[variables, grows], np.r_[np.ones(len(variables)), -limit], up=0)
        # A leaf that gets nothing new is as it was found, however it stands.
        self.mip.add_row(
            np.r_[partial, grows], np.r_[np.ones(len(domains)), len(domains)], up=len(domains) + 1
        )
        for d, b in zip(domains, partial.tolist(), strict=True):
            inside = variables[domain == d]
            most = self.mip.count_at_most(inside) + standing.get(d, 0)
            whole = int(self.mip.add_variables(most // size)[0])
            rest = int(self.mip.add_variables(size - 1)[0])
            already = standing.get(d, 0)
            self.mip.add_row(
                np.r_[inside, whole, rest],
                np.r_[np.ones(len(inside)), -size, -1],
                -already,
                -already,
            )
            self.mip.add_row([rest, b], [1, -(size - 1)], up=0)

    def _add_exclusive(
        self, node: TreeNode, bins: NDArray[np.int64], variables: NDArray[np.int64]
    ) -> None:
        for rule in node.exclusive:
            codes = self.problem.interactions.exclusive[rule.rule].codes
            first = np.array([self.bins[b].nodes[0] for b in bins.tolist()], np.int64)
            domain = codes[first] if len(first) else np.zeros(0, np.int64)
            allowed = self.state.exclusive_mask([rule])
            if allowed is not None and len(first):
                self._forbid(variables[~allowed[first]])
            for d in np.unique(domain[domain != NO_DOMAIN]).tolist():
                inside = variables[domain == d]
                stands = int(self.mip.add_variables(1)[0])
                limit = self.mip.count_at_most(inside)
                self.mip.add_row(np.r_[inside, stands], np.r_[np.ones(len(inside)), -limit], up=0)
                self.mip.add_row(np.r_[inside, stands], _minus_last(inside), low=0)
                self._presence[rule.rule, d].append((stands, rule.is_keyed))

    def stand(self, rule: ExclusiveRule, domain: int, variable: int) -> None:
        """Let a group hold an exclusive domain where a variable is 1."""
        self._presence[rule.rule, domain].append((variable, rule.is_keyed))

    def finish(self) -> None:
        """Add the rows that couple units: exclusive domains, conflicts, spread."""
        for variables in self._presence.values():
            keyed = [x for x, is_keyed in variables if is_keyed]
            others = [x for x, is_keyed in variables if not is_keyed]
            if len(keyed) > 1:
                self.mip.add_row(keyed, 1, up=1)
            for other in others:
                if keyed:
                    # One keyed owner, or any number of others.
                    self.mip.add_row([*keyed, other], 1, up=1)
        if self.integer_pods:
            # Their domains may be finer than the cells of a bound, which does without them.
            self._add_conflicts()
            self._add_spreads()
            self._add_attractions()

    def each_pod_variable(
        self, codes: NDArray[np.int32], roles: Sequence[int]
    ) -> dict[int, dict[int, list[int]]]:
        """Return role -> domain -> variables, for classes whose role (of each class) is not 0."""
        found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for entry in self.entries:
            for t, task in enumerate(entry.unit.tasks):
                role = roles[task.pod_class]
                if not role:
                    continue
                bins, variables = entry.pods[t]
                for b, x in zip(bins.tolist(), variables.tolist(), strict=True):
                    domain = int(codes[self.bins[b].nodes[0]])
                    if domain != NO_DOMAIN:
                        found[role][domain].append(x)
        return found

    def _add_conflicts(self) -> None:
        for t, conflict in enumerate(self.problem.interactions.conflicts):
            of_class = [
                (s.holds >> t & 1) | (s.matched >> t & 1) << 1 for s in self.problem.signatures
            ]
            roles = self.each_pod_variable(conflict.codes, of_class)
            holds_only, matched_only, both = roles[1], roles[2], roles[3]
            for d in sorted({*holds_only, *matched_only, *both}):
                holders, matched = self.state.standing(t, d)
                repelled = [*matched_only[d], *both[d]]
                if matched:
                    self._forbid(np.array([*holds_only[d], *both[d]], np.int64))
                if holders:
                    self._forbid(np.array(repelled, np.int64))
                limit = self.mip.count_at_most([*holds_only[d], *repelled])
                if both[d]:
                    self.mip.add_row(both[d], 1, up=1)
                    if matched_only[d]:
                        self.mip.add_row(
                            [*matched_only[d], *both[d]],
                            [*([1] * len(matched_only[d])), *([limit] * len(both[d]))],
                            up=limit,
                        )
                if holds_only[d] and repelled:
                    held = int(self.mip.add_variables(1)[0])
                    ones = [1] * len(holds_only[d])
                    self.mip.add_row([*holds_only[d], held], [*ones, -limit], up=0)
                    ones = [1] * len(repelled)
                    self.mip.add_row([*repelled, held], [*ones, limit], up=limit)

    def _add_spreads(self) -> None:
        for t, spread in enumerate(self.problem.interactions.spreads):
            signatures = self.problem.signatures
            own = self.each_pod_variable(spread.codes, [s.spreads >> t & 1 for s in signatures])
            matched = self.each_pod_variable(
                spread.codes, [s.spread_matched >> t & 1 for s in signatures]
            )
            if not own[1]:
                continue
            counts = self.state.spread_counts(t)
            domains = np.flatnonzero(spread.is_domain).tolist()
            leaving = {d: self.leaving.get((t, d), []) for d in domains}
            standing = {d: int(counts[d]) + sum(n for _, n in leaving[d]) for d in domains}
            enough = len(domains) >= spread.term.min_domains
            top = self.mip.count_at_most([x for found in matched[1].values() for x in found])
            ceiling = top + max(standing.values(), default=0)
            floor = int(self.mip.add_variables(ceiling if enough else 0)[0])
            for d in domains:
                inside = matched[1][d]
                columns = [*inside, *(x for x, _ in leaving[d]), floor]
                ones = [*([1] * len(inside)), *(-n for _, n in leaving[d]), -1]
                if enough:
                    self.mip.add_row(columns, ones, low=-standing[d])
                if own[1][d]:
                    enters = int(self.mip.add_variables(1)[0])
                    entering = self.mip.count_at_most([*own[1][d], *inside])
                    limit = entering + standing[d]
                    entries = [1] * len(own[1][d])
                    self.mip.add_row([*own[1][d], enters], [*entries, -limit], up=0)
                    self.mip.add_row(
                        [*columns, enters],
                        [*ones, limit],
                        up=spread.term.max_skew - standing[d] + limit,
                    )

    def _add_attractions(self) -> None:
        """Put all carriers of a term in one domain: that of those who stand, if any do."""
        for t, attraction in enumerate(self.problem.interactions.attractions):
            of_class = [s.attracts >> t & 1 for s in self.problem.signatures]
            by_domain = self.each_pod_variable(attraction.codes, of_class)[1]
            standing = self.state.attracted(t)
            chosen = [int(self.mip.add_variables(1)[0]) for _ in by_domain]
            if chosen:
                self.mip.add_row(chosen, 1, up=1)
            for w, (d, inside) in zip(chosen, sorted(by_domain.items()), strict=True):
                limit = self.mip.count_at_most(inside)
                self.mip.add_row([*inside, w], [*([1] * len(inside)), -limit], up=0)
                if standing.any() and not standing[d]:
                    self._forbid(np.array(inside, np.int64))

    def add_objective(
        self,
        objective: NDArray[np.float64],
        level: Level,
        only: frozenset[int] | None = None,
    ) -> int:
        """Write one level's worth of every variable; return a limit of what it can add up to.

        Args:
          objective: f64[variables], written to.
          level: What counts.
          only: Indices of the units that count; None for all.
        """
        span = 0
        for entry in self.entries:
            if only is not None and entry.index not in only:
                continue
            group, pod, gpu = level.weights(entry.unit.priority)
            for x in entry.counted.values():
                objective[x] = group
                span += abs(group)
            for t, task in enumerate(entry.unit.tasks):
                worth = pod + gpu * int(self.problem.class_gpus[task.pod_class])
                objective[entry.pods[t][1]] = worth
                span += abs(worth) * task.count
        return span

    def realise(self, values: NDArray[np.float64]) -> dict[int, UnitPlacement]:
        """Read the fills of every unit, and take them in the state."""
        placements: dict[int, UnitPlacement] = {}
        for entry in self.entries:
            fills = []
            for t, task in enumerate(entry.unit.tasks):
                bins, variables = entry.pods[t]
                counts = np.round(values[variables]).astype(np.int64)
                used = counts > 0
                if used.any():
                    nodes = np.array([self.bins[b].nodes[0] for b in bins[used].tolist()])
                    fills.append(
                        self._order(entry.unit.tree[task.leaf], Fill(t, nodes, counts[used]))
                    )
            if fills:
                replay(self.state, entry.unit, tuple(fills))
                placements[entry.index] = tuple(fills)
        return placements

    def _order(self, leaf: TreeNode, fill: Fill) -> Fill:
        """Keep the pods of one slice domain together, so that ranks run through it."""
        if not leaf.slices:
            return fill
        keys: list[NDArray[np.integer]] = [fill.nodes]
        for column, _ in reversed(leaf.slices):
            keys.append(self.problem.columns[column].codes[fill.nodes])
        order = np.lexsort(keys)
        return Fill(fill.task, fill.nodes[order], fill.counts[order])


def _minus_last(columns: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
    """Coefficients of `sum of columns - one more`."""
    coefficients: NDArray[np.float64] = np.r_[np.ones(len(columns)), -1.0]
    return coefficients
