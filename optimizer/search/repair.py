"""Destroy and repair: free a few cells, choose anew among what stood there and what waits.

Each step solves a small exact model (`optimizer.search.exact`) and is kept unless it is worse, so
the plan never loses. Steps are counted, not timed, and drawn from a seeded generator.

Source: large neighbourhood search (Shaw 1998); units that are alike are one variable, which is
what makes pieces of a few racks solve in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.decode import place_unit, replay
from optimizer.search.bins import (
    cut_into_cells,
    find_cut_columns,
    make_node_bins,
    make_slot_bin,
    relax_rows,
)
from optimizer.search.exact import solve_exact
from optimizer.search.kinds import FlatKind, describe_flat
from optimizer.search.score import count_placed, score_placements

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.fleet_state import FleetState
    from optimizer.objective import Level
    from optimizer.search.bins import Bin

    Indices = NDArray[np.int64]

__all__ = ["Repair", "RepairLimits", "make_bins"]

NODE_WORK: Final = 8
"""How much harder a node-level variable is for HiGHS than a slot-level one, as measured."""


@dataclass(frozen=True, slots=True)
class RepairLimits:
    """How hard to look; all counts."""

    work: int
    """Variables of all pieces together; those of node-level pieces count NODE_WORK times."""
    patience: int
    """Steps without gain after which the search ends."""
    node_limit: int = 60
    """Branch-and-bound nodes of one piece."""
    variables: int = 400
    """Rough size of a piece."""
    trees: int = 6
    """Waiting units with structure offered to a piece."""


def make_bins(
    state: FleetState, cells: Sequence[Indices], classes: Sequence[int], *, slots: bool
) -> tuple[list[Bin], list[Bin]]:
    """Make exact bins of some cells: one for the whole cell where slots decide, else by node.

    Returns:
      The bins, and for each cell its relaxation (the `covers` of `solve_exact`).
    """
    bins: list[Bin] = []
    covers: list[Bin] = []
    for c, cell in enumerate(cells):
        whole = make_slot_bin(state, cell, classes) if slots else None
        if whole is None:
            bins += make_node_bins(state, cell, classes, c)
        elif len(whole.nodes):
            bins.append(whole)
        covers.append(relax_rows(state, cell, classes))
    return bins, covers


@dataclass(slots=True)
class Repair:
    """One search over one problem; `placements` is the best plan so far and always feasible."""

    state: FleetState
    placements: dict[int, UnitPlacement]
    """Unit -> fills; the state holds them."""
    candidates: Sequence[int]
    """Units that may be placed at all."""
    levels: Sequence[Level]
    rng: np.random.Generator
    _cells: list[Indices] = field(default_factory=list)
    _cell_of: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    _wide_columns: set[int] = field(default_factory=set)
    """Columns whose domains hold several cells."""
    _roaming: list[int] = field(default_factory=list)
    """Units that one narrow domain does not hold: they may span more cells than a piece has."""
    _kinds: dict[int, FlatKind | None] = field(default_factory=dict)
    """Unit -> kind, None for units with structure."""
    _cost: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """i64[cells] variables of one kind in a cell: one where slots decide, else one a node."""
    _bounds: tuple[float, ...] = ()
    """Bounds of the last piece's levels, for itself."""
    _work: int = 0

    def __post_init__(self) -> None:
        problem = self.state.problem
        columns = find_cut_columns(problem, self.candidates)
        self._cells = cut_into_cells(problem, columns)
        if len(self._cells) == 1:
            # Without domains, pieces are short runs of neighbouring nodes.
            whole = self._cells[0]
            self._cells = [whole[i : i + 4] for i in range(0, len(whole), 4)]
        self._wide_columns = {
            c for c in columns if len(problem.columns[c].values) * 2 <= len(self._cells)
        }
        self._cell_of = np.zeros(len(problem.free), np.int64)
        for c, nodes in enumerate(self._cells):
            self._cell_of[nodes] = c
        classes = sorted({t.pod_class for u in self.candidates for t in problem.units[u].tasks})
        self._cost = np.array(
            [
                len(cell) if make_slot_bin(self.state, cell, classes) is None else 1
                for cell in self._cells
            ]
        )
        self._kinds = {u: describe_flat(problem, problem.units[u]) for u in self.candidates}
        narrow = set(columns) - self._wide_columns
        self._roaming = [
            u
            for u in self.candidates
            if not any(r.column in narrow for r in problem.units[u].root.required)
        ]

    def run(self, limits: RepairLimits, is_done: Callable[[], bool]) -> None:
        """Improve until the limits or `is_done` say stop."""
        idle = 0
        self._work = 0
        while self._work < limits.work and idle < limits.patience:
            if is_done():
                return
            idle = 0 if self._step(limits) else idle + 1

    def score(self) -> tuple[int, ...]:
        """Return the value of the plan so far."""
        return score_placements(self.state.problem, self.placements, self.levels)

    def adopt(self, other: Mapping[int, UnitPlacement]) -> None:
        """Take over another plan for the same units if it is better."""
        problem = self.state.problem
        better = score_placements(problem, other, self.levels), len(other)
        if better <= (self.score(), len(self.placements)):
            return
        for u, placement in self.placements.items():
            replay(self.state, problem.units[u], placement, lift=True)
        self.placements.clear()
        self.placements.update(other)
        for u, placement in other.items():
            replay(self.state, problem.units[u], placement)
        self.state.forget_journal()

    def top_up(self) -> None:
        """Leave nothing out that still fits: waiting units, then pods beyond the floor of others.

        In the scheduler's own order; a unit that is placed in part is lifted and placed anew, and
        that is kept where more of its pods find a node and no level loses.
        """
        problem = self.state.problem
        for u in self.candidates:
            unit = problem.units[u]
            before = self.placements.get(u, ())
            had = count_placed(problem, unit, before)
            if had.pods == unit.num_pods:
                continue
            mark = self.state.mark()
            replay(self.state, unit, before, lift=True)
            found = place_unit(self.state, unit)
            if found is not None:
                has = count_placed(problem, unit, found)
                gains = all(level.value([has]) >= level.value([had]) for level in self.levels)
                if gains and has.pods > had.pods:
                    self.placements[u] = found
                    self.state.forget_journal()
                    continue
            self.state.undo(mark)

    @property
    def num_cells(self) -> int:
        """Pieces the fleet is cut into."""
        return len(self._cells)

    def solve_whole(self, max_variables: int, node_limit: int) -> tuple[int | None, ...]:
        """Choose anew among all candidates on the whole fleet, where that is small enough.

        Returns:
          What no plan can exceed in each level; None where that is not known.
        """
        if self._count_kinds(self.candidates) * int(self._cost.sum()) > max_variables:
            return (None,) * len(self.levels)
        waiting = [u for u in self.candidates if u not in self.placements]
        self._redo(sorted(self.placements), waiting, self._cells, node_limit)
        found = [int(np.floor(b + 1e-4)) if np.isfinite(b) else None for b in self._bounds]
        return (*found, *[None] * (len(self.levels) - len(found)))

    def _count_kinds(self, units: Iterable[int]) -> int:
        """Count what a model lists: kinds of plain gangs, tasks of the others."""
        tasks = {u: len(self.state.problem.units[u].tasks) for u in units}
        flat = {self._kinds[u] for u in tasks if self._kinds[u] is not None}
        return len(flat) + sum(n for u, n in tasks.items() if self._kinds[u] is None)

    def _step(self, limits: RepairLimits) -> bool:
        """Redo one piece; tell whether the plan got better."""
        waiting = self._offer([u for u in self.candidates if u not in self.placements], limits)
        cells = self._choose_cells(waiting, limits)
        roaming = [u for u in self._roaming if u in self.placements]
        if roaming and self.rng.random() < 0.5:
            wider = self._widen(cells, int(self.rng.choice(roaming)))
            kinds = max(self._count_kinds(waiting), 1)
            if int(self._cost[wider].sum()) * kinds <= 4 * limits.variables:
                cells = wider
        lifted = self._find_inside(cells)
        size = int(self._cost[cells].sum()) * self._count_kinds([*lifted, *waiting])
        nodes_decide = any(self._cost[c] > 1 for c in cells)
        self._work += size * (NODE_WORK if nodes_decide else 1)
        if size > 4 * limits.variables:
            return False
        pieces = [self._cells[c] for c in cells]
        return self._redo(lifted, waiting, pieces, limits.node_limit)

    def _find_inside(self, cells: list[int]) -> list[int]:
        """Return the placed units that hold nothing outside these cells."""
        chosen = np.zeros(len(self._cells), bool)
        chosen[cells] = True
        return [
            u
            for u, placement in self.placements.items()
            if all(chosen[self._cell_of[fill.nodes]].all() for fill in placement)
        ]

    def _widen(self, cells: list[int], u: int) -> list[int]:
        """Add the cells of a placed unit, without which it could not be lifted."""
        own = [self._cell_of[fill.nodes] for fill in self.placements[u]]
        return sorted({*cells, *np.concatenate(own).tolist()})

    def _offer(self, waiting: list[int], limits: RepairLimits) -> list[int]:
        """Choose the waiting units that a piece may place: all alike ones or none of them."""
        kinds = sorted({k for u in waiting if (k := self._kinds[u]) is not None})
        most = max(limits.variables // max(int(np.median(self._cost)), 1), 1)
        if len(kinds) > most:
            drawn = self.rng.choice(len(kinds), most, replace=False)
            kinds = [kinds[i] for i in sorted(drawn.tolist())]
        chosen = set(kinds)
        structured = [u for u in waiting if self._kinds[u] is None]
        if len(structured) > limits.trees:
            picked = self.rng.choice(structured, limits.trees, replace=False)
            structured = sorted(picked.tolist())
        return sorted([u for u in waiting if self._kinds[u] in chosen] + structured)

    def _redo(
        self, lifted: list[int], offered: list[int], cells: list[Indices], node_limit: int
    ) -> bool:
        problem = self.state.problem
        units = sorted({*lifted, *offered})
        before = {u: self.placements[u] for u in lifted}
        old = score_placements(problem, before, self.levels)
        mark = self.state.mark()
        for u, placement in before.items():
            replay(self.state, problem.units[u], placement, lift=True)
        classes = sorted({t.pod_class for u in units for t in problem.units[u].tasks})
        only_flat = all(self._kinds[u] is not None for u in units)
        bins, covers = make_bins(self.state, cells, classes, slots=only_flat)
        result = solve_exact(
            self.state, units, bins, self.levels, node_limit=node_limit, covers=covers
        )
        self._bounds = () if result is None else result.bounds
        if result is not None:
            new = score_placements(problem, result.placements, self.levels)
            if new >= old:
                for u in lifted:
                    del self.placements[u]
                self.placements.update(result.placements)
                self.state.forget_journal()
                return new > old
        self.state.undo(mark)
        return False

    def _choose_cells(self, waiting: list[int], limits: RepairLimits) -> list[int]:
        """Pick a domain that a waiting unit asks for, or cells with room left, or any cells."""
        count = len(self._cells)
        room = np.zeros(count, np.int64)
        np.add.at(room, self._cell_of, np.maximum(self.state.node_gpus, 0))
        # Room below the common step of what waits is nobody's gain.
        steps = [self.state.problem.units[u].gpus for u in waiting if self._kinds[u] is not None]
        step = max(int(np.gcd.reduce(steps)) if steps else 1, 1)
        room = room // step * step
        in_domain = self._choose_domain(waiting, room)
        if in_domain is not None and self.rng.random() < 0.5:
            order, most = in_domain, len(in_domain)
        else:
            with_room = np.flatnonzero(room > 0)
            if with_room.size == 0:
                with_room = np.arange(count)
            first = int(self.rng.choice(with_room))
            if self.rng.random() < 0.5:
                others = self.rng.permutation(count)
            else:
                others = np.argsort(-(room + 8 * self.rng.random(count)), kind="stable")
            order = [first, *[int(c) for c in others if c != first]]
            most = 5 if all(self._kinds[u] is not None for u in waiting) else 4
        kinds = max(self._count_kinds(waiting), 1)
        picked: list[int] = []
        left = limits.variables
        for c in order[:most]:
            left -= int(self._cost[c]) * kinds
            if picked and left < 0:
                break
            picked.append(c)
        return sorted(picked)

    def _choose_domain(self, waiting: list[int], room: Indices) -> list[int] | None:
        """Return the cells of a roomy domain for one waiting unit, roomiest first.

        None when no waiting unit asks for a domain of several cells.
        """
        problem = self.state.problem
        wide = [
            (u, r.column)
            for u in waiting
            for node in problem.units[u].tree
            for r in node.required
            if r.column in self._wide_columns
        ]
        if not wide:
            return None
        _, column = wide[int(self.rng.integers(len(wide)))]
        codes = problem.columns[column].codes
        of_cell = np.array([codes[nodes[0]] for nodes in self._cells])
        inside = of_cell >= 0
        sums = np.bincount(of_cell[inside], room[inside], len(problem.columns[column].values))
        noise = self.rng.random(len(sums)) * max(float(sums.max(initial=1)) / 2, 1)
        domain = int(np.argmax(sums + noise))
        cells = np.flatnonzero(of_cell == domain)
        order = cells[np.argsort(-room[cells], kind="stable")]
        return [int(c) for c in order]
