"""Rules for running pods that a plan moves.

Source: the eviction API for budgets, and what each API says about moving its pods.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optimizer.verify_budgets import check_move_budgets
from optimizer.verify_repack import check_after, check_batch
from topology.model import NO_NODE, PodFlag

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from optimizer.verify_room import Room
    from optimizer.verify_state import Replay
    from topology.plan import Move, Plan

__all__ = ["check_moves"]

_PINNED: Final = PodFlag.DAEMON | PodFlag.STATIC


def check_moves(replay: Replay, plan: Plan, room: Room) -> None:
    """Check and carry out the moves in order.

    A live move finds room while everything else runs. Restart moves that follow one another in one
    wave are one step: all of their pods stop, then all of them start. A budget that allows no
    disruption holds its pods where they are. Whoever stops after any of the steps leaves every
    group in the domains that it has to be in.
    """
    last_step, last_wave = 0, 0
    for batch in _cut_batches(plan.moves):
        arrivals: list[tuple[int, int]] = []
        for move in batch:
            replay.log.require(
                move.step > last_step and move.wave >= last_wave,
                "move-order",
                f"step {move.step}",
                f"a step after {last_step} in wave {last_wave} or later",
                f"step {move.step} in wave {move.wave}",
            )
            last_step, last_wave = move.step, move.wave
            found = _check_move(replay, move)
            if found is not None:
                arrivals.append(found)
        moved = [p for p, _ in arrivals]
        check_move_budgets(replay, moved, f"step {batch[0].step}")
        check_batch(replay, plan, batch, moved)
        for p in moved:
            replay.leave(p)
        room.settle(arrivals)
        replay.moved.update(moved)
        check_after(replay, moved)


def _cut_batches(moves: Iterable[Move]) -> Iterator[list[Move]]:
    batch: list[Move] = []
    for move in moves:
        joins = (
            bool(batch)
            and move.mode == batch[-1].mode == "restart"
            and move.wave == batch[-1].wave
            and all(move.pod != other.pod for other in batch)
        )
        if batch and not joins:
            yield batch
            batch = []
        batch.append(move)
    if batch:
        yield batch


def _check_move(replay: Replay, move: Move) -> tuple[int, int] | None:
    """Return (pod, target) of a move that can be carried out."""
    log = replay.log
    p = replay.pod_index.get(move.pod, NO_NODE)
    n = replay.node_index.get(move.target, NO_NODE)
    if not log.require(p != NO_NODE, "exists", move.pod, "a pod of the snapshot", "none"):
        return None
    if not log.require(n != NO_NODE, "exists", move.pod, "a node of the snapshot", move.target):
        return None
    owner = replay.owner_ref(p)
    log.require(move.group in (None, owner), "owner", move.pod, f"group {owner}", str(move.group))
    here = replay.place_name(replay.node[p])
    log.require(
        replay.holds[p] and move.source == here,
        "move-source",
        move.pod,
        f"from {here}" if replay.holds[p] else "a running pod",
        f"from {move.source}",
    )
    # In a restart, a pod may come back to its own node with the rest of its unit.
    is_elsewhere = n != replay.node[p] or move.mode == "restart"
    log.require(is_elsewhere, "move-target", move.pod, "another node", move.target)
    flags = replay.flags[p]
    keeper = next((g for g in replay.groups_above(p) if not g.movable), None)
    log.require(
        keeper is None and not flags & (_PINNED | PodFlag.NOT_MOVABLE | PodFlag.TERMINATING),
        "movable",
        move.pod,
        "a pod that may be moved",
        "may not be moved" if keeper is None else f"group {keeper.ref} may not be moved",
    )
    return (p, n) if replay.holds[p] else None
