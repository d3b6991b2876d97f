"""What a plan is worth, step by step of the objective, counted from where everything ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.fragmentation import measure_fragmentation
from optimizer.lost_work import count_lost_gpu_seconds
from optimizer.objective import PLACE_CRITERIA, Level
from optimizer.repack.goals import find_occupied
from optimizer.search.score import score_placements
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.order import Step
    from optimizer.repack.steps import MoveLevel
    from topology.model import Snapshot

__all__ = ["count_cost", "count_lost_work", "evaluate_plan"]


def evaluate_plan(
    fleet: MovableFleet, steps: Sequence[Level | MoveLevel], ordered: Sequence[Step]
) -> tuple[int, ...]:
    """Return the value of every step of the objective; more is better.

    `domainsFreed` is what its goals count: domains that are empty in the end, kept or made so.
    """
    cost = count_cost(fleet, ordered)
    placed = {
        n for fills in fleet.placements.values() for fill in fills for n in fill.nodes.tolist()
    }
    occupied = find_occupied(fleet.snapshot, fleet.where)
    occupied[sorted(placed)] = True
    values: list[int] = []
    for step in steps:
        if isinstance(step, Level) and step.criterion in PLACE_CRITERIA:
            values.append(score_placements(fleet.problem, fleet.placements, [step])[0])
        elif step.criterion == "drained":
            values.append(int((~occupied[fleet.goals.drained]).sum()))
        elif step.criterion == "domainsFreed":
            values.append(
                sum(
                    min(sum(not occupied[d].any() for d in goal.domains), goal.goal.count)
                    for goal in fleet.goals.frees
                )
            )
        elif step.criterion == "fragmentation":
            values.append(-int(measure_fragmentation(fleet.moved_snapshot())["fragmentation"]))
        else:
            values.append(-cost[step.criterion])
    return tuple(values)


def count_cost(fleet: MovableFleet, ordered: Sequence[Step]) -> dict[str, int]:
    """Count the criteria of moves that plans are compared by."""
    unit = fleet.movers.unit
    moved = [step.pod for step in ordered]
    alone = {p for p in moved if unit[p] == NO_GROUP}
    pods = fleet.snapshot.pods
    return {
        "moves": len(moved),
        "movedGpus": sum(pods.specs[pods.spec[p]].gpus for p in moved),
        "disturbedPods": len(alone)
        + sum(fleet.movers.members[g] for g in {unit[p] for p in moved} - {NO_GROUP}),
    }


def count_lost_work(snapshot: Snapshot, pods: Iterable[int]) -> int:
    """Count the GPU seconds that stopping these pods would lose, each counted once."""
    return int(count_lost_gpu_seconds(snapshot)[sorted(set(pods))].sum())
