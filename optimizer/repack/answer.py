"""Moves in indices -> a plan in names, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.decode import seat_pods
from optimizer.fragmentation import measure_fragmentation
from optimizer.repack.evaluate import count_cost, count_lost_work
from optimizer.repack.goals import describe_goals, find_occupied
from topology.model import NO_NODE
from topology.owners import group_ref
from topology.plan import Move

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from optimizer.repack.search import RepackResult
    from topology.move_request import GoalOutcome

__all__ = ["count_moves", "describe_moves", "describe_outcomes", "find_placed"]


def find_placed(result: RepackResult) -> dict[int, int]:
    """Return pod -> node of what waits and is placed once everything has moved."""
    placed: dict[int, int] = {}
    for u, placement in sorted(result.fleet.placements.items()):
        placed |= seat_pods(result.fleet.problem.units[u], placement)
    return placed


def describe_moves(result: RepackResult) -> tuple[Move, ...]:
    """Write the entry of every step, in order."""
    fleet = result.fleet
    snapshot = fleet.snapshot
    assert fleet.request.move is not None
    return tuple(
        Move(
            step=number,
            wave=step.wave,
            pod=snapshot.pods.refs[step.pod],
            source=snapshot.nodes[step.source].name,
            target=snapshot.nodes[step.target].name,
            mode=fleet.request.move.mode,
            group=group_ref(snapshot, step.pod),
        )
        for number, step in enumerate(result.steps, 1)
    )


def count_moves(
    result: RepackResult, placed: Mapping[int, int], evicted: Collection[int] = ()
) -> dict[str, int]:
    """Count the criteria of moves.

    `gpuSecondsLost` is of all pods that stop: those that move and those that a drain evicts.

    `domainsFreed` counts domains of `--free` that were not empty and are in the end; without such a
    goal, nodes and domains of every topology key whose GPUs come to be all free by the moves.
    """
    return {
        **count_cost(result.fleet, result.steps),
        "gpuSecondsLost": count_lost_work(
            result.fleet.snapshot, [*(step.pod for step in result.steps), *evicted]
        ),
        "domainsFreed": _count_freed(result, placed, evicted),
    }


def _count_freed(result: RepackResult, placed: Mapping[int, int], evicted: Collection[int]) -> int:
    fleet = result.fleet
    if fleet.goals.frees:
        before = find_occupied(fleet.snapshot)
        after = find_occupied(
            fleet.snapshot, {**fleet.where, **dict.fromkeys(evicted, NO_NODE), **placed}
        )
        return sum(
            int(before[nodes].any() and not after[nodes].any())
            for goal in fleet.goals.frees
            for nodes in goal.domains
        )
    levels = measure_fragmentation(fleet.snapshot)["levels"]
    later = measure_fragmentation(fleet.moved_snapshot())["levels"]
    gained: int = sum(later[k]["wholeFreeDomains"] - levels[k]["wholeFreeDomains"] for k in levels)
    return max(gained, 0)


def describe_outcomes(
    result: RepackResult, placed: Mapping[int, int], evicted: Collection[int] = ()
) -> tuple[GoalOutcome, ...]:
    """Say what became of every goal, and why where it is not reached."""
    fleet = result.fleet
    move = fleet.request.move
    assert move is not None
    limits = [
        f"{option} {value}"
        for option, value in (
            ("--max-moves", move.max_moves),
            ("--max-disturbed", move.max_disturbed),
            ("--max-parallel", move.max_parallel),
        )
        if value is not None
    ]
    gone = dict.fromkeys(evicted, NO_NODE)
    occupied = find_occupied(fleet.snapshot, {**fleet.where, **gone, **placed})
    return describe_goals(fleet.snapshot, fleet.goals, fleet.movers, occupied, limits)
