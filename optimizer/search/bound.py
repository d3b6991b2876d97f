"""What no plan can exceed, by a linear relaxation over cells.

Each cell (a set of nodes no domain divides) states its slots, rounded down to what its gangs can
use together; gangs choose domains in fractions. The value of a level is a bound for every plan
that reaches the bounds of the levels before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.search.bins import cut_into_cells, find_cut_columns, relax_rows
from optimizer.search.exact import BoundModel
from optimizer.search.kinds import describe_flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.fleet_state import FleetState
    from optimizer.objective import Level
    from optimizer.search.bins import Bin

__all__ = ["PlacementBound"]

MAX_VARIABLES: Final = 60_000
"""Choices beyond which only supply and demand are compared."""
MAX_WHOLE_GANGS: Final = 4_000
"""Choices up to which plain gangs are kept whole too, which is slower and closer."""


class PlacementBound:
    """Bounds of every level of any placement of some units on one fleet."""

    def __init__(self, state: FleetState, units: Sequence[int], levels: Sequence[Level]) -> None:
        """Cut the fleet into cells and state what each can hold.

        Args:
          state: Room before anything is placed; not changed.
          units: Units that may be placed.
          levels: Compared in order.
        """
        self._state, self._units, self._levels = state, units, levels
        self._nothing: tuple[int | None, ...] = (None,) * len(levels)
        self._model: BoundModel | None = None
        problem = state.problem
        classes = sorted({t.pod_class for u in units for t in problem.units[u].tasks})
        cells = cut_into_cells(problem, find_cut_columns(problem, units))
        bins = [b for b in (relax_rows(state, cell, classes) for cell in cells) if len(b.nodes)]
        size = _count_choices(state, units, bins)
        whole = size <= MAX_WHOLE_GANGS
        self._has_whole = whole or any(
            describe_flat(problem, problem.units[u]) is None for u in units
        )
        if units and size <= MAX_VARIABLES:
            self._model = BoundModel(state, units, bins, levels, whole_gangs=whole)

    def relax(self) -> tuple[int | None, ...]:
        """Bound by the linear relaxation, or by supply and demand where that is too large.

        Returns:
          An integer for each level, None where the relaxation gave nothing. Values of later
          levels assume that the bounds of the earlier ones are reached.
        """
        if not self._units:
            return (0,) * len(self._levels)
        if self._model is None:
            return _bound_by_supply(self._state, self._units, self._levels)
        return self._round(self._model.bound())

    def keep_whole(self, node_limit: int) -> tuple[int | None, ...]:
        """Bound more closely: units with structure whole, plain gangs too in small models."""
        if self._model is None or not self._has_whole:
            return self._nothing
        return self._round(self._model.bound(node_limit))

    def _round(self, values: tuple[float, ...]) -> tuple[int | None, ...]:
        found = [int(np.floor(v + 1e-4)) if np.isfinite(v) else None for v in values]
        return (*found, *self._nothing[len(found) :])


def _count_choices(state: FleetState, units: Sequence[int], bins: Sequence[Bin]) -> int:
    """Count the (kind or task, bin) pairs with room for a pod."""
    problem = state.problem
    lists: dict[object, int] = {}
    for u in units:
        kind = describe_flat(problem, problem.units[u])
        for t, task in enumerate(problem.units[u].tasks):
            lists[kind or (u, t)] = task.pod_class
    in_bins: dict[int, int] = {
        s: sum(b.fits[s] > 0 for b in bins) for s in sorted(set(lists.values()))
    }
    return sum(in_bins[s] for s in lists.values())


def _bound_by_supply(
    state: FleetState, units: Sequence[int], levels: Sequence[Level]
) -> tuple[int | None, ...]:
    """Bound by what is asked for and by the GPUs that are free, whatever the arrangement."""
    problem = state.problem
    free = int(np.maximum(state.node_gpus, 0).sum())
    found: list[int | None] = []
    for level in levels:
        total = 0
        left = free
        worth = sorted(
            ((level.weights(problem.units[u].priority), problem.units[u]) for u in units),
            key=lambda w: -w[0][2],
        )
        for (group, pod, gpu), unit in worth:
            gpus = min(unit.gpus, left) if gpu > 0 else unit.gpus
            left -= gpus if gpu > 0 else 0
            total += max(group, 0) * len(unit.tree) + max(pod, 0) * unit.num_pods
            total += max(gpu, 0) * gpus
        found.append(total)
    return tuple(found)
