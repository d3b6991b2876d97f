"""Taking a solution of a piece into the plan, and giving a plan back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import replay
from optimizer.repack.fleet import stand_at_home
from optimizer.repack.order import seats_of

if TYPE_CHECKING:
    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.model import Piece, PieceResult

__all__ = ["adopt", "assign_pods", "move_pods", "reset"]


def reset(fleet: MovableFleet) -> None:
    """Forget every move and placement."""
    fleet.where = dict(fleet.home)
    fleet.placements.clear()
    fleet.touched.clear()
    fleet.state = stand_at_home(fleet)


def adopt(fleet: MovableFleet, piece: Piece, result: PieceResult) -> None:
    """Take the solution of a piece into the plan and its state."""
    state, units = fleet.state, fleet.problem.units
    for u in piece.pending:
        if u in fleet.placements:
            replay(state, units[u], fleet.placements.pop(u), lift=True)
    for u in result.restarts:
        replay(state, units[u], fleet.fills_at(u), lift=True)
    leaving = _choose_leaving(fleet, result)
    for k, pods in leaving.items():
        nodes, counts = np.unique([fleet.where[p] for p in pods], return_counts=True)
        state.lift(fleet.kinds[k].pod_class, nodes.astype(np.int64), counts.astype(np.int64))
    for u, placement in result.restarts.items():
        fleet.where.update(seats_of(fleet, u, placement))
        fleet.touched.add(u)
        replay(state, units[u], fleet.fills_at(u))
    for k, pods in leaving.items():
        move_pods(fleet, k, pods, result.arrivals.get(k, {}))
    for u, placement in result.placements.items():
        fleet.placements[u] = placement
        replay(state, units[u], placement)
    state.forget_journal()


def _choose_leaving(fleet: MovableFleet, result: PieceResult) -> dict[int, list[int]]:
    """Choose which pods of a kind leave a node: those moved before, then the youngest."""
    started = fleet.snapshot.pods.started
    found: dict[int, list[int]] = {}
    standing = fleet.standing() if result.leaves else {}
    for (k, n), count in sorted(result.leaves.items()):
        pods = sorted(standing[n][k], key=lambda p: (not fleet.is_moved(p), -int(started[p]), p))
        found.setdefault(k, []).extend(pods[:count])
    return found


def move_pods(fleet: MovableFleet, k: int, pods: list[int], arrivals: dict[int, int]) -> None:
    """Put lifted pods of a kind on the nodes that get some."""
    fleet.where.update(assign_pods(fleet, pods, arrivals))
    used = {n: count for n, count in sorted(arrivals.items()) if count}
    if used:
        fleet.state.take(
            fleet.kinds[k].pod_class,
            np.array(list(used), np.int64),
            np.array(list(used.values()), np.int64),
        )


def assign_pods(fleet: MovableFleet, pods: list[int], arrivals: dict[int, int]) -> dict[int, int]:
    """Give each pod of a kind its node; each goes home where it may."""
    free = dict(arrivals)
    seats: dict[int, int] = {}
    rest = []
    for p in sorted(pods):
        if free.get(fleet.home[p], 0):
            free[fleet.home[p]] -= 1
            seats[p] = fleet.home[p]
        else:
            rest.append(p)
    nodes = [n for n, count in sorted(free.items()) for _ in range(count)]
    seats.update(zip(rest, nodes, strict=True))
    return seats
