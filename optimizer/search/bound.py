"""What no plan can exceed, by a linear relaxation over cells.

Each cell (a set of nodes no domain divides) states its slots, rounded down to what its gangs can
use together; gangs choose domains in fractions. The value of a level is a bound for every plan
that reaches the bounds of the levels before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.search.bins import cut_into_cells, relax_rows
from optimizer.search.exact import bound_levels, describe_flat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.fleet_state import FleetState
    from optimizer.objective import Level

__all__ = ["bound_placement"]

MAX_VARIABLES: Final = 60_000
"""Beyond this the cells are merged into one, which keeps the bound valid and the model small."""


def bound_placement(
    state: FleetState, units: Sequence[int], levels: Sequence[Level]
) -> tuple[int | None, ...]:
    """Bound every level of any placement of these units.

    Args:
      state: Room now; not changed.
      units: Units that may be placed.
      levels: Compared in order.

    Returns:
      An integer for each level, None where the relaxation gave nothing. Values of later levels
      assume that the bounds of the earlier ones are reached.
    """
    if not units:
        return (0,) * len(levels)
    problem = state.problem
    classes = sorted({t.pod_class for u in units for t in problem.units[u].tasks})
    columns = sorted(
        {r.column for u in units for node in problem.units[u].tree for r in node.required}
    )
    kinds = {describe_flat(problem, problem.units[u]) or u for u in units}
    cells = cut_into_cells(problem, columns)
    if len(kinds) * len(cells) > MAX_VARIABLES or any(state.is_coupled(s) for s in classes):
        return _bound_by_supply(state, units, levels)
    bins = [relax_rows(state, cell, classes) for cell in cells]
    bins = [b for b in bins if len(b.nodes)]
    values = bound_levels(state, units, bins, levels)
    found: list[int | None] = [int(np.floor(v + 1e-4)) for v in values]
    return tuple(found + [None] * (len(levels) - len(found)))


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
