"""Lift what stands on some nodes and place it elsewhere, or change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import place_unit, replay
from optimizer.repack.apply import assign_pods
from optimizer.repack.order import seats_of
from optimizer.repack.pieces import count_left

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from optimizer.repack.fleet import MovableFleet

    Indices = NDArray[np.int64]

__all__ = ["Residents", "empty_nodes"]


class Residents:
    """Which movers stand on which node, as the plan so far has it."""

    def __init__(self, fleet: MovableFleet) -> None:
        self._fleet = fleet
        self._alone: dict[int, set[int]] = {}
        self._wholes: dict[int, set[int]] = {}
        for p in fleet.kind_of:
            self._alone.setdefault(fleet.where[p], set()).add(p)
        for u, mover in fleet.wholes.items():
            for p in mover.pods:
                self._wholes.setdefault(fleet.where[p], set()).add(u)

    def alone(self, nodes: Indices) -> list[int]:
        """Return the pods that move alone and stand on some nodes, ascending."""
        return sorted(p for n in nodes.tolist() for p in self._alone.get(n, ()))

    def wholes(self, nodes: Indices) -> list[int]:
        """Return the units that move as a whole and have a pod on some nodes, ascending."""
        return sorted({u for n in nodes.tolist() for u in self._wholes.get(n, ())})

    def count(self, nodes: Indices) -> int:
        """Return how many movers stand on some nodes."""
        return len(self.alone(nodes)) + len(self.wholes(nodes))

    def count_each(self, nodes: Indices) -> Indices:
        """Return how many movers stand on each of some nodes."""
        return np.array(
            [len(self._alone.get(n, ())) + len(self._wholes.get(n, ())) for n in nodes.tolist()],
            np.int64,
        )

    def shift(self, before: dict[int, int], pods: list[int], units: list[int]) -> None:
        """Note that pods and whole units moved from where `before` had them."""
        fleet = self._fleet
        for u in units:
            for p in fleet.wholes[u].pods:
                self._wholes.get(before[p], set()).discard(u)
        for u in units:
            for p in fleet.wholes[u].pods:
                self._wholes.setdefault(fleet.where[p], set()).add(u)
        for p in pods:
            self._alone.get(before[p], set()).discard(p)
            self._alone.setdefault(fleet.where[p], set()).add(p)


def empty_nodes(
    fleet: MovableFleet,
    residents: Residents,
    nodes: Indices,
    allowed: NDArray[np.bool_],
    is_gain: Callable[[], bool] | None = None,
) -> bool:
    """Move everything that stands on some nodes to others, the largest pods first.

    Args:
      fleet: The plan so far; changed only where everything finds a place within the limits.
      residents: Who stands where; kept up to date.
      nodes: To be emptied.
      allowed: bool[N] nodes that may take what leaves; `nodes` are left out of them.
      is_gain: Asked once all has its place; False undoes everything.

    Returns:
      Whether they are empty now.
    """
    state, problem = fleet.state, fleet.problem
    units, pods = residents.wholes(nodes), residents.alone(nodes)
    open_nodes = allowed.copy()
    open_nodes[nodes] = False
    open_nodes[fleet.goals.drained] = False
    mark = state.mark()
    for u in units:
        replay(state, problem.units[u], fleet.fills_at(u), lift=True)
    by_kind: dict[int, list[int]] = {}
    for p in pods:
        by_kind.setdefault(fleet.kind_of[p], []).append(p)
        state.lift(
            fleet.kinds[fleet.kind_of[p]].pod_class, np.array([fleet.where[p]]), np.array([1])
        )
    where: dict[int, int] = {}
    within = np.flatnonzero(open_nodes)
    # A unit may come back to those of its own nodes that are not to be emptied.
    for u in sorted(units, key=lambda u: (-problem.units[u].gpus, u)):
        unit = problem.units[u]
        own = np.unique([fleet.where[p] for p in fleet.wholes[u].pods])
        scope = np.union1d(within, np.setdiff1d(own, [*nodes.tolist(), *fleet.goals.drained]))
        placement = place_unit(state, unit, within=scope)
        if placement is None or sum(int(f.counts.sum()) for f in placement) < unit.num_pods:
            state.undo(mark)
            return False
        where |= seats_of(fleet, u, placement)
    for k in sorted(by_kind, key=lambda k: (-fleet.kinds[k].gpus, k)):
        arrivals = _fill(fleet, k, len(by_kind[k]), within)
        if arrivals is None:
            state.undo(mark)
            return False
        where |= assign_pods(fleet, by_kind[k], arrivals)
    before = {p: fleet.where[p] for p in where}
    touched = set(units) - fleet.touched
    fleet.where.update(where)
    fleet.touched |= touched
    is_over = any(left is not None and left < 0 for left in count_left(fleet))
    if is_over or (is_gain is not None and not is_gain()):
        fleet.where.update(before)
        fleet.touched -= touched
        state.undo(mark)
        return False
    state.forget_journal()
    residents.shift(before, pods, units)
    return True


def _fill(fleet: MovableFleet, k: int, count: int, within: Indices) -> dict[int, int] | None:
    """Put lifted pods of a kind on the fullest nodes that take them; None if some find none."""
    kind, state = fleet.kinds[k], fleet.state
    arrivals: dict[int, int] = {}
    nodes = within[kind.mask[within]]
    while count:
        if state.is_coupled(kind.pod_class):
            fits = state.coupled_fits(kind.pod_class, nodes)
        else:
            fits = state.fits(kind.pod_class)[nodes]
        usable = np.flatnonzero(fits)
        if usable.size == 0:
            return None
        order = usable[np.lexsort((nodes[usable], state.node_gpus[nodes[usable]]))]
        before = np.cumsum(fits[order]) - fits[order]
        counts = np.clip(count - before, 0, fits[order])
        used = counts > 0
        chosen, counts = nodes[order[used]], counts[used]
        state.take(kind.pod_class, chosen, counts)
        for n, c in zip(chosen.tolist(), counts.tolist(), strict=True):
            arrivals[n] = arrivals.get(n, 0) + c
        count -= int(counts.sum())
    return arrivals
