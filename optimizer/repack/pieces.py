"""Which nodes, units and goals one model looks at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.fragmentation import count_free_gpus
from optimizer.repack.model import Piece
from optimizer.victims import remove_pods
from topology.levels import NO_DOMAIN, build_column, find_keys_in_use
from topology.model import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from optimizer.repack.fleet import MovableFleet

    Indices = NDArray[np.int64]

__all__ = ["count_left", "count_variables", "find_prizes", "find_unmovable", "make_piece"]


def count_variables(fleet: MovableFleet) -> int:
    """Count, roughly, the variables of a model of the whole fleet."""
    units = fleet.problem.units
    tasks = sum(len(units[u].tasks) for u in (*fleet.pending, *fleet.wholes))
    return (tasks + len(fleet.kinds)) * len(fleet.problem.free)


def make_piece(
    fleet: MovableFleet,
    nodes: Indices,
    pending: Iterable[int],
    *,
    prizes: tuple[tuple[int, Indices], ...] | None = None,
    wholes: Iterable[int] | None = None,
) -> Piece:
    """Return a piece with all that stands inside some nodes, and the goals that lie inside.

    Args:
      fleet: The plan so far.
      nodes: Ascending.
      pending: Units to place; those placed so far must lie inside or be among them.
      prizes: Domains that fragmentation counts; None: all, where nothing else is asked for.
      wholes: Units that may restart; None: all that lie inside.
    """
    inside = np.zeros(len(fleet.problem.free), bool)
    inside[nodes] = True
    found = [
        u
        for u in (fleet.wholes if wholes is None else wholes)
        if all(inside[f.nodes].all() for f in fleet.fills_at(u))
    ]
    here = {k for p, k in fleet.kind_of.items() if inside[fleet.where[p]]}
    blocked = find_unmovable(fleet)
    held = {fleet.where[p] for u in fleet.wholes if u not in found for p in fleet.wholes[u].pods}
    asked = tuple(pending)
    held |= {
        n
        for u, placement in fleet.placements.items()
        if u not in asked
        for fill in placement
        for n in fill.nodes.tolist()
    }
    targets: list[tuple[int, Indices]] = []
    quotas: list[tuple[int, int]] = []
    for g, goal in enumerate(fleet.goals.frees):
        # Those that are empty already are to stay so, and count.
        for d, domain in enumerate(goal.domains):
            is_open = goal.held_by[d] is None and held.isdisjoint(domain.tolist())
            if is_open and inside[domain].all():
                targets.append((g, domain))
        quotas.append((g, goal.goal.count))
    for n in fleet.goals.drained.tolist():
        if inside[n] and n not in held and n not in blocked:
            targets.append((-1, np.array([n])))
    if prizes is None:
        asks = bool(fleet.pending) or not fleet.goals.is_none
        prizes = () if asks else tuple(find_prizes(fleet, inside))
    moves, disturbed = count_left(fleet)
    return Piece(
        nodes=nodes,
        pending=asked,
        wholes=tuple(found),
        kinds=tuple(sorted(here)),
        targets=tuple(targets),
        quotas=tuple(quotas),
        prizes=prizes,
        moves_left=None if moves is None else max(moves, 0),
        disturbed_left=None if disturbed is None else max(disturbed, 0),
    )


def count_left(fleet: MovableFleet) -> tuple[int | None, int | None]:
    """Return how many moves, and disturbed pods, the limits still allow beyond the plan so far."""
    move = fleet.request.move
    assert move is not None
    if move.max_moves is None and move.max_disturbed is None:
        return None, None
    moved = sum(fleet.is_moved(p) for p in fleet.kind_of)
    units = {fleet.movers.unit[p] for p in fleet.kind_of if fleet.is_moved(p)}
    whole = sum(fleet.problem.units[u].num_pods for u in fleet.touched)
    alone = sum(fleet.is_moved(p) and fleet.movers.unit[p] < 0 for p in fleet.kind_of)
    disturbed = alone + whole + sum(fleet.movers.members.get(g, 0) for g in units)
    return (
        None if move.max_moves is None else move.max_moves - moved - whole,
        None if move.max_disturbed is None else move.max_disturbed - disturbed,
    )


def find_unmovable(fleet: MovableFleet) -> set[int]:
    """Return the nodes with a pod that may not be moved and is no DaemonSet or static one."""
    return {int(fleet.snapshot.pods.node[p]) for p in fleet.movers.staying}


def find_prizes(fleet: MovableFleet, inside: NDArray[np.bool_]) -> list[tuple[int, Indices]]:
    """Return (GPUs, nodes) of the nodes and domains that may be wholly free, all inside."""
    snapshot = fleet.snapshot
    gpus = count_free_gpus(remove_pods(snapshot, fleet.home))
    whole = (gpus.free == gpus.allocatable) & (gpus.allocatable > 0)
    prizes = [
        (int(gpus.allocatable[n]), np.array([n])) for n in np.flatnonzero(whole & inside).tolist()
    ]
    for key in find_keys_in_use(snapshot):
        if key == HOSTNAME:
            continue
        codes = build_column(snapshot.nodes, (key,)).codes
        for d in np.unique(codes[codes != NO_DOMAIN]).tolist():
            nodes = np.flatnonzero(codes == d)
            total = gpus.allocatable[nodes]
            if inside[nodes].all() and (whole[nodes] | (total == 0)).all() and total.sum():
                prizes.append((int(total.sum()), nodes))
    return prizes
