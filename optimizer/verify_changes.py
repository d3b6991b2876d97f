"""Rules for running pods that a plan touches: evictions and moves.

Source: kubernetes preemption (units, strictly lower priority), the eviction API for budgets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optimizer.verify_repack import check_after, check_batch
from optimizer.verify_resize import find_resized
from topology.model import MISSING_NODE, NO_GROUP, NO_NODE, Phase, PodFlag
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from optimizer.verify_listing import Entry
    from optimizer.verify_room import Room
    from optimizer.verify_state import Replay
    from topology.model import Budget
    from topology.plan import Eviction, Move, Plan

__all__ = ["check_evictions", "check_moves", "count_budget_excess"]

_PINNED: Final = PodFlag.DAEMON | PodFlag.STATIC
_GROUPS_SINCE: Final = "1.37"
"""First release in which a single pod's preemption respects group units and priorities."""


def check_evictions(replay: Replay, plan: Plan, entries: Sequence[Entry]) -> None:
    """Check and carry out the evictions.

    A victim of preemption is gone; a pod that a drain takes away waits for a node again.
    """
    for eviction in plan.evictions:
        p = replay.pod_index.get(eviction.pod, NO_NODE)
        if not replay.log.require(
            p != NO_NODE, "exists", eviction.pod, "a pod of the snapshot", "none"
        ):
            continue
        if not replay.log.require(
            p not in replay.evicted, "evicted-once", eviction.pod, "one eviction", "two"
        ):
            continue
        if not replay.log.require(
            replay.holds[p], "evict-running", eviction.pod, "a running pod", _describe(replay, p)
        ):
            continue
        _check_victim(replay, eviction, p, spares_kept=_spares_kept(plan))
        replay.evicted.add(p)
    preemptors: dict[str | None, tuple[int, int] | None] = {}
    units: set[int] = set()
    for eviction in plan.evictions:
        p = replay.pod_index.get(eviction.pod, NO_NODE)
        if p in replay.evicted and eviction.reason == "preemption":
            if eviction.preemptor not in preemptors:
                found = find_resized(replay, plan, eviction.preemptor) or _find_preemptor(
                    replay, eviction.preemptor, entries
                )
                preemptors[eviction.preemptor] = found
            unit = _check_preemption(replay, plan, eviction, p, preemptors[eviction.preemptor])
            if unit != NO_GROUP:
                units.add(unit)
    for unit in sorted(units):
        _check_unit(replay, unit)
    for eviction in plan.evictions:
        p = replay.pod_index.get(eviction.pod, NO_NODE)
        if p in replay.evicted and replay.holds[p]:
            replay.leave(p)
            if eviction.reason == "drain":
                replay.drained.add(p)
                replay.is_pending[p] = True


def _describe(replay: Replay, p: int) -> str:
    if replay.phase[p] in (Phase.SUCCEEDED, Phase.FAILED):
        return "finished"
    return f"on {replay.place_name(replay.node[p])}"


def _spares_kept(plan: Plan) -> bool:
    """Tell whether a plan leaves DaemonSet, static and protected pods alone.

    kube-scheduler does not, and a replay of it is no worse a replay for that.
    """
    return plan.request.policy != "replay"


def _check_victim(replay: Replay, eviction: Eviction, p: int, *, spares_kept: bool) -> None:
    log, flags = replay.log, replay.flags[p]
    name = replay.place_name(replay.node[p])
    log.require(eviction.node == name, "evict-node", eviction.pod, name, eviction.node)
    owner = replay.owner_ref(p)
    log.require(
        eviction.group in (None, owner),
        "owner",
        eviction.pod,
        f"group {owner}",
        str(eviction.group),
    )
    log.require(
        not flags & PodFlag.TERMINATING,
        "evict-running",
        eviction.pod,
        "a pod that is not going already",
        "terminating",
    )
    log.require(
        not (spares_kept and flags & _PINNED),
        "evict-pinned",
        eviction.pod,
        "no DaemonSet or static pod",
        "DaemonSet pod" if flags & PodFlag.DAEMON else "static pod",
    )


def _check_preemption(
    replay: Replay, plan: Plan, eviction: Eviction, p: int, preemptor: tuple[int, int] | None
) -> int:
    """Check one victim; return the `all` unit that has to go with it, or NO_GROUP.

    `preemptor` is its (group, NO_NODE) or (NO_GROUP, plain pod), None if it is not placed.
    """
    log = replay.log
    log.require(
        plan.request.preempt, "preempt-asked", eviction.pod, "a request with preempt", "without"
    )
    keeper = next((g for g in replay.groups_above(p) if not g.evictable), None)
    is_kept = keeper is not None or bool(replay.flags[p] & PodFlag.NOT_PREEMPTIBLE)
    log.require(
        not (is_kept and _spares_kept(plan)),
        "evictable",
        eviction.pod,
        "a pod that may be a victim",
        "not preemptible" if keeper is None else f"group {keeper.ref} is not preemptible",
    )
    log.require(
        preemptor is not None,
        "preemptor",
        eviction.pod,
        "a preemptor that is placed",
        f"{eviction.preemptor} is not",
    )
    if preemptor is None:
        return NO_GROUP
    g, single = preemptor
    if single != NO_NODE:
        never, priority = replay.spec_of(single).never_preempts, replay.own_priority[single]
    else:
        never = any(replay.snapshot.groups[a].never_preempts for a in replay.climb(g))
        priority = replay.snapshot.groups[g].priority
    log.require(
        not never, "never-preempts", str(eviction.preemptor), "no victims", f"evicts {eviction.pod}"
    )
    sees_groups = single == NO_NODE or plan.request.release >= _GROUPS_SINCE
    victim_priority = replay.priority(p) if sees_groups else replay.own_priority[p]
    log.require(
        victim_priority < priority,
        "evict-priority",
        eviction.pod,
        f"priority below {priority}",
        f"priority {victim_priority}",
    )
    return replay.find_disruption_unit(p) if sees_groups else NO_GROUP


def _find_preemptor(
    replay: Replay, ref: str | None, entries: Sequence[Entry]
) -> tuple[int, int] | None:
    """Return (group, NO_NODE) or (NO_GROUP, plain pod) of a preemptor that the plan places."""
    above = replay.group_index.get(ref or "", NO_GROUP)
    for entry, g, p in entries:
        if entry.outcome == "placed" and (
            entry.group == ref or (g != NO_GROUP and above in replay.climb(g))
        ):
            return g, p
    return None


def _check_unit(replay: Replay, unit: int) -> None:
    """Check that all pods of an `all` unit go, those on nodes nobody knows left out."""
    inside = replay.members_below(unit)
    staying = [q for q in inside if q not in replay.evicted and replay.node[q] != MISSING_NODE]
    replay.log.require(
        not staying,
        "evict-unit",
        replay.snapshot.groups[unit].ref,
        f"all {len(inside)} running pods evicted together",
        f"{', '.join(replay.pod_ref(q) for q in staying[:3])} not evicted",
    )


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
        _check_budgets(replay, moved, f"step {batch[0].step}")
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


def _check_budgets(replay: Replay, stopped: Sequence[int], step: str) -> None:
    # Evicting a pod that never ran needs no budget.
    running = [p for p in stopped if replay.phase[p] != Phase.PENDING]
    for budget in replay.snapshot.budgets:
        count = sum(_is_covered(replay, budget, p) for p in running)
        if count:
            replay.log.require(
                count <= budget.allowed,
                "move-budget",
                step,
                f"at most {budget.allowed} pods of budget {budget.ref} at once",
                f"{count} pods",
            )


def _is_covered(replay: Replay, budget: Budget, p: int) -> bool:
    namespace, _, name = replay.pod_ref(p).partition("/")
    return (
        namespace == budget.ref.partition("/")[0]
        and name not in budget.disrupted
        and matches_selector(budget.selector, replay.snapshot.pods.label_sets[replay.labels[p]])
    )


def count_budget_excess(replay: Replay) -> int:
    """Count the evicted pods beyond what each budget allows, summed over the budgets."""
    return sum(
        max(0, sum(_is_covered(replay, budget, p) for p in replay.evicted) - max(budget.allowed, 0))
        for budget in replay.snapshot.budgets
    )
