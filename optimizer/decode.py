"""Place one unit exactly in the current state: domains, slices, floors, exclusivity, all or none.

The decoder is greedy and total: what it places is feasible, what it cannot place may still be
possible for units with several classes or levels (`optimizer.search.exact` decides those).

Source: kube-scheduler's pod group cycle (floors, pinned domains); Kueue TAS best fit (fullest
domain that still holds the unit, so that large holes stay whole).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optimizer.fills import Fill, fill_fullest, order_classes, split_by_domain
from optimizer.slices import fill_slices
from optimizer.units import BROKEN, FREE_CHOICE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.units import TreeNode, Unit

    Indices = NDArray[np.int64]

__all__ = ["Fill", "UnitPlacement", "order_classes", "place_unit", "replay", "seat_pods"]

MAX_TRIES = 48
"""Domains tried for a node of the tree whose capacity is not exact (several classes, levels)."""

UnitPlacement = tuple[Fill, ...]
"""Where the pods of a unit go; tasks may be missing or short where floors allow it."""


def replay(state: FleetState, unit: Unit, placement: UnitPlacement, *, lift: bool = False) -> None:
    """Take what a placement takes (or give it back), without checking it."""
    owners: dict[int, list[Indices]] = {}
    parents = {c: at for at, node in enumerate(unit.tree) for c in node.children}
    for fill in placement:
        shift = state.lift if lift else state.take
        shift(unit.tasks[fill.task].pod_class, fill.nodes, fill.counts)
        at: int | None = unit.tasks[fill.task].leaf
        while at is not None:
            if unit.tree[at].exclusive:
                owners.setdefault(at, []).append(fill.nodes)
            at = parents.get(at)
    for at, nodes in owners.items():
        state.own(unit.tree[at].exclusive, np.concatenate(nodes), -1 if lift else 1)


def seat_pods(unit: Unit, placement: UnitPlacement) -> dict[int, int]:
    """Give every placed pod its node: the pods of a task in order, along its fills."""
    seats: dict[int, int] = {}
    done = [0] * len(unit.tasks)
    for fill in placement:
        pods = unit.tasks[fill.task].pods
        for node, count in zip(fill.nodes.tolist(), fill.counts.tolist(), strict=True):
            for pod in pods[done[fill.task] : done[fill.task] + count]:
                seats[pod] = node
            done[fill.task] += count
    return seats


def place_unit(
    state: FleetState, unit: Unit, within: Indices | None = None
) -> UnitPlacement | None:
    """Place a unit whole (to its floors), or leave the state as it was.

    Args:
      state: Updated when the unit is placed.
      unit: Any tree.
      within: Node indices to use, sorted; None for all.

    Returns:
      The fills, or None when nothing new could be placed or a floor was missed.
    """
    if unit.blocked or not unit.tasks:
        return None
    mark = state.mark()
    nodes = np.arange(len(state.free)) if within is None else within
    fills = _Placer(state, unit).place(0, nodes)
    if fills is None or not any(f.counts.sum() for f in fills):
        state.undo(mark)
        return None
    return tuple(f for f in fills if f.counts.sum())


@dataclass(slots=True)
class _Placer:
    state: FleetState
    unit: Unit

    def place(self, at: int, scope: Indices) -> list[Fill] | None:
        """Place a subtree inside `scope`; None (and nothing taken) when it misses its floor."""
        node = self.unit.tree[at]
        if any(r.pinned == BROKEN for r in node.required):
            return self._without_new_pods(at)
        best: list[Fill] | None = None
        best_pods = -1
        wanted = self.unit.count_pending(at)
        tries = 0
        start = self.state.mark()
        for domain in self._domains(at, scope):
            fills = self._place_inside(at, domain)
            if fills is None:
                tries += 1
                if tries >= MAX_TRIES:
                    break
                continue
            pods = sum(int(f.counts.sum()) for f in fills)
            if pods >= wanted:
                return fills
            if pods > best_pods:
                best, best_pods = fills, pods
            self.state.undo(start)
            tries += 1
            if tries >= MAX_TRIES or self._is_exact(node):
                break
        if best is not None:
            for fill in best:
                self.state.take(self.unit.tasks[fill.task].pod_class, fill.nodes, fill.counts)
            self._own_all(at, best)
            return best
        return self._without_new_pods(at)

    def _without_new_pods(self, at: int) -> list[Fill] | None:
        """Return an empty placement when the running members alone keep the floor."""
        return [] if self._running_suffices(at) else None

    def _running_suffices(self, at: int) -> bool:
        return self._count_kept(at) is not None

    def _count_kept(self, at: int) -> int | None:
        """Count the running members of a subtree that keeps its floor without new pods."""
        node = self.unit.tree[at]
        kept = [n for c in node.children if (n := self._count_kept(c)) is not None]
        running = self.unit.count_own_running(at) + sum(kept)
        keeps = running >= node.min_count and len(kept) >= node.min_groups
        return running if keeps else None

    def _is_exact(self, node: TreeNode) -> bool:
        """Tell whether the first domain tried is already the best one."""
        if node.children or len(node.tasks) != 1 or node.slices:
            return False
        return not self.state.is_coupled(self.unit.tasks[node.tasks[0]].pod_class)

    def _domains(self, at: int, scope: Indices) -> Iterator[Indices]:
        """Yield node sets to try, best first: most pods, preferred domain, tightest fit."""
        node = self.unit.tree[at]
        mask = self.state.exclusive_mask(node.exclusive)
        if mask is not None:
            scope = scope[mask[scope]]
        groups = [scope]
        first = node.required[0] if node.required else None
        whole_fleet = len(scope) == len(self.state.free)
        if first and len(node.required) == 1 and first.pinned == FREE_CHOICE and whole_fleet:
            members = self.state.members(first.column)
            for d in self._rank_column(at, first.column).tolist():
                yield from self._prefer(at, node, members[d])
            return
        for required in node.required:
            groups = [
                part
                for nodes in groups
                for part in split_by_domain(self.state, nodes, required.column, required.pinned)
            ]
        if node.required:
            groups = self._rank(at, groups)
        for nodes in groups:
            yield from self._prefer(at, node, nodes)

    def _needs(self, at: int) -> dict[int, int]:
        """Return the pending pods of a subtree by class."""
        needs: dict[int, int] = {}
        for leaf in self.unit.walk(at):
            for t in self.unit.tree[leaf].tasks:
                task = self.unit.tasks[t]
                needs[task.pod_class] = needs.get(task.pod_class, 0) + task.count
        return needs

    def _rank_column(self, at: int, column: int) -> Indices:
        """Do what `_rank` does for all domains of a column at once."""
        caps = {s: self.state.capacity(s, column) for s in self._needs(at)}
        placeable = sum(
            (np.minimum(caps[s], count) for s, count in self._needs(at).items()),
            np.zeros(len(self.state.problem.columns[column].values), np.int64),
        )
        spare = self.state.sum_domains(column, self.state.node_gpus)
        usable = np.flatnonzero(placeable >= max(self.unit.count_needed(at), 1))
        order: Indices = usable[np.lexsort((usable, spare[usable], -placeable[usable]))]
        return order

    def _rank(self, at: int, groups: list[Indices]) -> list[Indices]:
        """Drop domains that cannot hold the floor; order the rest."""
        needs = self._needs(at)
        floor = max(self.unit.count_needed(at), 1)
        ranked = []
        for position, nodes in enumerate(groups):
            placeable = spare = 0
            for s, count in needs.items():
                room = int(self.state.fits(s)[nodes].sum())
                placeable += min(room, count)
            if placeable < floor:
                continue
            spare = int(self.state.node_gpus[nodes].sum())
            ranked.append((-placeable, spare, len(nodes), position))
        return [groups[r[-1]] for r in sorted(ranked)]

    def _prefer(self, at: int, node: TreeNode, nodes: Indices) -> Iterator[Indices]:
        """Yield the preferred sub-domains that could hold everything, then the whole set."""
        wanted = self.unit.count_pending(at)
        for column in node.preferred:
            parts = self._rank(at, split_by_domain(self.state, nodes, column))
            for part in parts:
                if self._could_hold(at, part, wanted):
                    yield part
        yield nodes

    def _could_hold(self, at: int, nodes: Indices, wanted: int) -> bool:
        room = (
            min(int(self.state.fits(s)[nodes].sum()), count) for s, count in self._needs(at).items()
        )
        return sum(room) >= wanted

    def _place_inside(self, at: int, nodes: Indices) -> list[Fill] | None:
        node = self.unit.tree[at]
        mark = self.state.mark()
        fills: list[Fill] = []
        succeeded = 0
        pods = self.unit.count_own_running(at)
        for child in self._order_children(node):
            placed = self.place(child, nodes)
            if placed is None:
                continue
            succeeded += 1
            pods += self._count_running_with(child, placed)
            fills += placed
        if node.slices:
            fills += fill_slices(self.state, self.unit, at, nodes)
        else:
            for t in order_classes(self.state, self.unit, node.tasks):
                fills += self._fill_task(t, nodes)
        pods += sum(int(f.counts.sum()) for f in fills)
        if pods < node.min_count or succeeded < node.min_groups:
            self.state.undo(mark)
            return None
        self._own(at, fills)
        return fills

    def _count_running_with(self, at: int, fills: list[Fill]) -> int:
        """Count the running members of a placed subtree, those of children that fail left out."""
        node = self.unit.tree[at]
        count = self.unit.count_own_running(at)
        for child in node.children:
            inside = set(self.unit.walk(child))
            if any(self.unit.tasks[f.task].leaf in inside for f in fills):
                count += self._count_running_with(child, fills)
            else:
                count += self._count_kept(child) or 0
        return count

    def _order_children(self, node: TreeNode) -> list[int]:
        """Largest pods first, then the child with the most of them."""
        problem = self.state.problem

        def hardness(child: int) -> tuple[int, int, int]:
            tasks = [t for c in self.unit.walk(child) for t in self.unit.tree[c].tasks]
            gpus = max(
                (int(problem.class_gpus[self.unit.tasks[t].pod_class]) for t in tasks), default=0
            )
            return (-gpus, -self.unit.count_pending(child), child)

        return sorted(node.children, key=hardness)

    def _own(self, at: int, fills: list[Fill]) -> None:
        rules = self.unit.tree[at].exclusive
        if rules and fills:
            self.state.own(rules, np.concatenate([f.nodes for f in fills]))

    def _own_all(self, at: int, fills: list[Fill]) -> None:
        for below in self.unit.walk(at):
            inside = set(self.unit.walk(below))
            self._own(below, [f for f in fills if self.unit.tasks[f.task].leaf in inside])

    def _fill_task(self, t: int, nodes: Indices) -> list[Fill]:
        task = self.unit.tasks[t]
        if self.state.has_spread(task.pod_class):
            return self._fill_one_by_one(t, nodes)
        fill = fill_fullest(self.state, self.unit, t, task.count, nodes)
        return [] if fill is None else [fill]

    def _fill_one_by_one(self, t: int, nodes: Indices) -> list[Fill]:
        fills = []
        for _ in range(self.unit.tasks[t].count):
            fill = fill_fullest(self.state, self.unit, t, 1, nodes)
            if fill is None:
                break
            fills.append(fill)
        return fills
