"""Steps of the decoder: pods of one task onto the fullest nodes, node sets cut into domains."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.units import FREE_CHOICE
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.units import Unit

    Indices = NDArray[np.int64]

__all__ = ["Fill", "fill_fullest", "order_classes", "split_by_domain"]


class Fill(NamedTuple):
    """Pods of one task: `counts[i]` of them on `nodes[i]`, in the order of the task's pods."""

    task: int
    nodes: Indices
    counts: Indices


def order_classes(state: FleetState, unit: Unit, tasks: tuple[int, ...]) -> list[int]:
    """Order the tasks of a leaf, hardest first: GPUs, then the share of nodes they may use."""
    problem = state.problem

    def hardness(t: int) -> tuple[int, int, int, int]:
        s = unit.tasks[t].pod_class
        return (
            -int(problem.class_gpus[s]),
            int(problem.eligible[s].sum()),
            -int(problem.requests[s].sum()),
            t,
        )

    return sorted(tasks, key=hardness)


def split_by_domain(
    state: FleetState, nodes: Indices, column: int, pinned: int = FREE_CHOICE
) -> list[Indices]:
    """Cut a node set into the domains of a column (or keep the pinned one alone)."""
    codes = state.problem.columns[column].codes
    if pinned != FREE_CHOICE:
        return [nodes[codes[nodes] == pinned]]
    if len(nodes) == len(codes):
        return [m for m in state.members(column) if len(m)]
    inside = nodes[codes[nodes] != NO_DOMAIN]
    order = inside[np.argsort(codes[inside], kind="stable")]
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    return [part for part in np.split(order, cuts) if len(part)]


def fill_fullest(state: FleetState, unit: Unit, t: int, count: int, nodes: Indices) -> Fill | None:
    """Put up to `count` pods of a task on the fullest nodes that take them."""
    s = unit.tasks[t].pod_class
    coupled = state.is_coupled(s)
    fits = state.coupled_fits(s, nodes) if coupled else state.fits(s)[nodes]
    usable = np.flatnonzero(fits)
    if usable.size == 0 or count == 0:
        return None
    chosen, room = nodes[usable], fits[usable]
    order = np.lexsort((chosen, room, state.node_gpus[chosen]))
    chosen, room = chosen[order], room[order]
    before = np.cumsum(room) - room
    counts = np.clip(count - before, 0, room)
    used = counts > 0
    fill = Fill(t, chosen[used], counts[used])
    state.take(s, fill.nodes, fill.counts)
    return fill
