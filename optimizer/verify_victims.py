"""Rules for running pods that a plan evicts: by preemption, or because their node is drained.

Source: kube-scheduler's preemption (KEP-5710): who is a victim, who goes together, whose priority
counts, and which preemptors evict nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optimizer.verify_budgets import check_budgets
from optimizer.verify_resize import find_resized
from topology.model import MISSING_NODE, NO_GROUP, NO_NODE, Phase, PodFlag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.verify_listing import Entry
    from optimizer.verify_state import Replay
    from topology.plan import Eviction, Plan, Request

__all__ = ["check_evictions"]

_SINCE_1_37: Final = "1.37"
"""First release in which a single pod's preemption respects groups, and in which groups with a
topology constraint preempt."""
_IN_TREE: Final = "scheduling.k8s.io/"


@dataclass(frozen=True, slots=True)
class _Preemptor:
    """For whom a victim goes: a group, or a pod of its own."""

    ref: str
    group: int
    """Its entry's group, or NO_GROUP."""
    root: int
    """The root above it, which preempts for the whole tree; NO_GROUP for pods on their own and
    those that are resized where they run."""
    single: int
    """The plain pod, or NO_NODE."""
    priority: int
    sees_groups: bool
    """Victims count by their group's priority, and `all` groups go whole."""


def check_evictions(replay: Replay, plan: Plan, entries: Sequence[Entry]) -> None:
    """Check and carry out the evictions.

    A victim of preemption is gone; a pod that a drain takes away waits for a node again.
    """
    listed: list[tuple[Eviction, int]] = []
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
        _check_victim(replay, plan, eviction, p)
        replay.evicted.add(p)
        if eviction.reason == "drain":
            replay.drained.add(p)
        listed.append((eviction, p))
    _check_preemptions(replay, plan, entries, [e for e in listed if e[0].reason == "preemption"])
    _check_drained_units(replay, plan)
    check_budgets(replay, plan)
    for _, p in listed:
        replay.leave(p)
        if p in replay.drained:
            replay.is_pending[p] = True


def _describe(replay: Replay, p: int) -> str:
    if replay.phase[p] in (Phase.SUCCEEDED, Phase.FAILED):
        return "finished"
    return f"on {replay.place_name(replay.node[p])}"


def _check_victim(replay: Replay, plan: Plan, eviction: Eviction, p: int) -> None:
    """Check what holds for every evicted pod, whatever the reason."""
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
    is_replayed = eviction.reason == "preemption" and _spares_nobody(plan.request)
    log.require(
        is_replayed or not flags & (PodFlag.DAEMON | PodFlag.STATIC),
        "evict-pinned",
        eviction.pod,
        "no DaemonSet or static pod",
        "DaemonSet pod" if flags & PodFlag.DAEMON else "static pod",
    )


def _spares_nobody(request: Request) -> bool:
    """Tell whether a plan is what kube-scheduler would do, which knows no protected pods."""
    return request.policy == "replay"


def _check_preemptions(
    replay: Replay, plan: Plan, entries: Sequence[Entry], listed: Sequence[tuple[Eviction, int]]
) -> None:
    preemptors: dict[str | None, _Preemptor | None] = {}
    units: set[int] = set()
    for eviction, p in listed:
        ref = eviction.preemptor
        if ref not in preemptors:
            found = _find_grown(replay, plan, ref) or _find_preemptor(
                replay, plan.request, ref, entries
            )
            preemptors[ref] = found
            if found is not None:
                _check_preemptor(replay, plan, found)
        unit = _check_preemption(replay, plan, eviction, p, preemptors[ref])
        if unit != NO_GROUP:
            units.add(unit)
    for unit in sorted(units):
        inside = replay.members_below(unit)
        # Nobody evicts from a node that nobody knows.
        staying = [q for q in inside if q not in replay.evicted and replay.node[q] != MISSING_NODE]
        _require_whole(replay, "evict-unit", unit, len(inside), staying)


def _find_grown(replay: Replay, plan: Plan, ref: str | None) -> _Preemptor | None:
    """Return the running pod that victims make room for where it is to be resized."""
    found = find_resized(replay, plan, ref)
    if found is None:
        return None
    g, single = found
    priority = replay.own_priority[single] if g == NO_GROUP else replay.snapshot.groups[g].priority
    sees_groups = g != NO_GROUP or plan.request.release >= _SINCE_1_37
    return _Preemptor(ref or "", g, NO_GROUP, single, priority, sees_groups)


def _find_preemptor(
    replay: Replay, request: Request, ref: str | None, entries: Sequence[Entry]
) -> _Preemptor | None:
    """Return a preemptor that the plan places: an entry, or a group above entries."""
    above = replay.group_index.get(ref or "", NO_GROUP)
    for entry, g, p in entries:
        if entry.outcome == "placed" and (
            entry.group == ref or (g != NO_GROUP and above in replay.climb(g))
        ):
            if p != NO_NODE:
                sees_groups = request.release >= _SINCE_1_37
                return _Preemptor(
                    ref or "", NO_GROUP, NO_GROUP, p, replay.own_priority[p], sees_groups
                )
            priority = replay.snapshot.groups[g].priority
            return _Preemptor(ref or "", g, [*replay.climb(g)][-1], NO_NODE, priority, True)
    return None


def _check_preemptor(replay: Replay, plan: Plan, preemptor: _Preemptor) -> None:
    """Check that a preemptor is one that evicts at all."""
    log, groups = replay.log, replay.snapshot.groups
    tree = sorted(
        replay.climb(preemptor.group)
        if preemptor.root == NO_GROUP
        else replay.subtree(preemptor.root)
    )
    if preemptor.single != NO_NODE:
        never = replay.spec_of(preemptor.single).never_preempts
    else:
        never = any(groups[g].never_preempts for g in tree)
    log.require(not never, "never-preempts", preemptor.ref, "no victims", "some")
    bound = next(
        (groups[g].ref for g in tree if groups[g].topology and groups[g].api.startswith(_IN_TREE)),
        None,
    )
    log.require(
        bound is None or plan.request.release >= _SINCE_1_37,
        "evict-topology",
        preemptor.ref,
        "no victims for groups with a topology constraint before 1.37",
        f"release {plan.request.release}, and {bound} has one",
    )
    waiting = _find_terminating(replay, preemptor)
    log.require(
        not waiting,
        "evict-waiting",
        preemptor.ref,
        "no further victims while room is on its way to the nodes it is nominated to",
        f"{', '.join(replay.pod_ref(q) for q in waiting[:3])} terminating there",
    )


def _find_terminating(replay: Replay, preemptor: _Preemptor) -> list[int]:
    """Return the pods of lower priority that are going where the preemptor is nominated to."""
    below = [] if preemptor.root == NO_GROUP else replay.pods_below(preemptor.root)
    own = [preemptor.single] if preemptor.single != NO_NODE else below
    nominated = {
        replay.nominated[p] for p in own if replay.is_pending[p] and replay.nominated[p] >= 0
    }
    if not nominated:
        return []
    return [
        q
        for q, n in enumerate(replay.node)
        if n in nominated
        and replay.holds[q]
        and replay.flags[q] & PodFlag.TERMINATING
        and replay.priority(q) < preemptor.priority
    ]


def _check_preemption(
    replay: Replay, plan: Plan, eviction: Eviction, p: int, preemptor: _Preemptor | None
) -> int:
    """Check one victim; return the `all` unit that has to go with it, or NO_GROUP."""
    log = replay.log
    log.require(
        plan.request.preempt, "preempt-asked", eviction.pod, "a request with preempt", "without"
    )
    keeper = next((g for g in replay.groups_above(p) if not g.evictable), None)
    log.require(
        _spares_nobody(plan.request)
        or (keeper is None and not replay.flags[p] & PodFlag.NOT_PREEMPTIBLE),
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
    victim_priority = replay.priority(p) if preemptor.sees_groups else replay.own_priority[p]
    log.require(
        victim_priority < preemptor.priority,
        "evict-priority",
        eviction.pod,
        f"priority below {preemptor.priority}",
        f"priority {victim_priority}",
    )
    return replay.find_disruption_unit(p) if preemptor.sees_groups else NO_GROUP


def _check_drained_units(replay: Replay, plan: Plan) -> None:
    """Check that a drain takes `all` groups away whole, where the request says so.

    Members that the plan moves elsewhere are away too.
    """
    request = plan.request
    if request.move is not None and request.move.drain_unit != "group":
        return
    moved = {replay.pod_index.get(move.pod, NO_NODE) for move in plan.moves}
    units = {replay.find_disruption_unit(p) for p in replay.drained} - {NO_GROUP}
    for unit in sorted(units):
        inside = replay.members_below(unit)
        staying = [
            q
            for q in inside
            if q not in replay.evicted and q not in moved and replay.node[q] != MISSING_NODE
        ]
        _require_whole(replay, "drain-unit", unit, len(inside), staying)


def _require_whole(replay: Replay, rule: str, unit: int, size: int, staying: Sequence[int]) -> None:
    replay.log.require(
        not staying,
        rule,
        replay.snapshot.groups[unit].ref,
        f"all {size} running pods evicted together",
        f"{', '.join(replay.pod_ref(q) for q in staying[:3])} not evicted",
    )
