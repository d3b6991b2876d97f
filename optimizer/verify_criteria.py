"""The criteria that a plan states, counted again from its lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.verify_budgets import count_budget_excess
from optimizer.verify_repack import count_freed
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from optimizer.verify_state import Replay
    from topology.plan import Plan

__all__ = ["check_criteria"]


def check_criteria(replay: Replay, plan: Plan) -> None:
    """Compare each stated criterion that follows from the lists alone.

    `priority` and `fragmentation` are not counted again, nor is `domainsFreed` without a `--free`.
    Victims are the pods that preemption evicts; the highest priority of none is not compared. A
    re-packing loses the work of all that stops, whether it moves or is evicted.
    """
    counted = {
        "groupsPlaced": sum(entry.outcome == "placed" for entry in plan.groups),
        "podsPlaced": len(replay.placed),
        "gpusPlaced": sum(replay.spec_of(p).gpus for p in replay.placed),
        "weightedGpus": sum(replay.priority(p) * replay.spec_of(p).gpus for p in replay.placed),
        "pdbViolations": count_budget_excess(replay),
        **_count_victims(replay, plan),
        **_count_moves(replay, plan),
    }
    if plan.request.command == "repack":
        stopped = {m.pod for m in plan.moves} | {e.pod for e in plan.evictions}
        counted["gpuSecondsLost"] = sum(
            replay.spec_of(p).gpus * _count_lost_seconds(replay, p)
            for p in (replay.pod_index[ref] for ref in stopped & replay.pod_index.keys())
        )
        if plan.request.move is not None and plan.request.move.free:
            counted["domainsFreed"] = count_freed(replay, plan.request.move)
    for name, wanted in sorted(counted.items()):
        if name in plan.criteria:
            replay.log.require(
                plan.criteria[name] == wanted,
                "criterion",
                name,
                str(wanted),
                str(plan.criteria[name]),
            )


def _count_victims(replay: Replay, plan: Plan) -> dict[str, int]:
    victims = sorted(
        {
            replay.pod_index[e.pod]
            for e in plan.evictions
            if e.reason == "preemption" and e.pod in replay.pod_index
        }
        & replay.evicted
    )
    units = {(replay.find_disruption_unit(p), p) for p in victims}
    gpus = {p: replay.spec_of(p).gpus for p in victims}
    counts = {
        "victimPods": len(victims),
        "victimUnits": len({(g, p if g == NO_GROUP else 0) for g, p in units}),
        "victimGpus": sum(gpus.values()),
        "weightedVictimGpus": sum(replay.priority(p) * gpus[p] for p in victims),
        "gpuSecondsLost": sum(gpus[p] * _count_lost_seconds(replay, p) for p in victims),
    }
    if victims:
        counts["highestVictimPriority"] = max(replay.priority(p) for p in victims)
    return counts


def _count_lost_seconds(replay: Replay, p: int) -> int:
    """Count the seconds of work a pod loses: since its start, or since it was last saved."""
    pods = replay.snapshot.pods
    if pods.started[p] < 0:
        return 0
    now = max(int(times.max()) for times in (pods.created, pods.started, pods.checkpoint))
    return max(now - max(int(pods.started[p]), int(pods.checkpoint[p])), 0)


def _count_moves(replay: Replay, plan: Plan) -> dict[str, int]:
    moved = [replay.pod_index[m.pod] for m in plan.moves if m.pod in replay.pod_index]
    disturbed = set(moved)
    for unit in {replay.find_disruption_unit(p) for p in moved} - {NO_GROUP}:
        disturbed.update(p for p in replay.members_below(unit) if p not in replay.placed)
    return {
        "moves": len(plan.moves),
        "movedGpus": sum(replay.spec_of(p).gpus for p in moved),
        "disturbedPods": len(disturbed),
    }
