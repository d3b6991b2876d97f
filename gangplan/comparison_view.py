"""A plan beside what kube-scheduler itself would do, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplan.tables import count, format_table, shorten

if TYPE_CHECKING:
    from topology.plan import Comparison, GroupPlan, Plan

__all__ = ["show_comparison"]

_PLACED = ("groupsPlaced", "podsPlaced", "gpusPlaced", "weightedGpus")
_EVICTED = (
    "victimPods",
    "victimUnits",
    "victimGpus",
    "weightedVictimGpus",
    "highestVictimPriority",
    "pdbViolations",
)


def show_comparison(plan: Plan, comparison: Comparison, *, wide: bool) -> str:
    """Return criteria of both plans, then the groups and the victims that differ between them.

    SAVED is what the search gains: placed more, or evicted less.
    """
    replay = comparison.replay
    rows: list[tuple[object, ...]] = [
        (
            name,
            plan.criteria.get(name),
            replay.criteria.get(name),
            comparison.saved.get(name),
        )
        for name in (_PLACED if not (plan.evictions or replay.evictions) else _PLACED + _EVICTED)
        if name in plan.criteria or name in replay.criteria
    ]
    title = f"KUBE-SCHEDULER {replay.request.release}"
    blocks = [format_table(("CRITERION", "OPTIMIZE", title, "SAVED"), rows)]
    differing = _list_groups(plan, replay)
    if differing:
        heads = ("DIFFERS", "PRIORITY", "OPTIMIZE", title, "WHY NOT")
        blocks.append(format_table(heads, differing))
    victims = _list_victims(plan, replay, wide=wide)
    if victims:
        blocks.append(format_table(("WOULD EVICT", "OPTIMIZE", title, "NODES"), victims))
    if replay.verification is not None and not replay.verification.is_valid:
        broken = [f"{v.object}: {v.rule}" for v in replay.verification.violations]
        blocks.append(f"kube-scheduler's plan would break: {', '.join(shorten(broken, 3) or '')}")
    return "\n\n".join(blocks)


def _list_groups(plan: Plan, replay: Plan) -> list[tuple[object, ...]]:
    """Return a row for each group that gets another number of pods."""
    theirs = {(entry.group, entry.api): entry for entry in replay.groups}
    rows: list[tuple[object, ...]] = []
    for mine in sorted(plan.groups, key=lambda g: (-g.priority, g.group)):
        other = theirs.get((mine.group, mine.api))
        if other is None or len(other.pods) == len(mine.pods):
            continue
        cause = other.cause or mine.cause
        why = None if cause is None else cause.details.get("cycle", cause.message)
        rows.append((mine.group, mine.priority, _say_pods(mine), _say_pods(other), why))
    return rows


def _say_pods(entry: GroupPlan) -> str:
    return f"{len(entry.pods)} of {count(len(entry.pods) + len(entry.pending_pods), 'pod')}"


def _list_victims(plan: Plan, replay: Plan, *, wide: bool) -> list[tuple[object, ...]]:
    """Return a row for each victim group or single pod of either plan, or each pod where wide."""
    found: dict[str, list[int]] = {}
    nodes: dict[str, set[str]] = {}
    for side, evictions in enumerate((plan.evictions, replay.evictions)):
        for eviction in evictions:
            name = eviction.pod if wide or eviction.group is None else eviction.group
            found.setdefault(name, [0, 0])[side] += 1
            nodes.setdefault(name, set()).add(eviction.node)
    return [
        (
            name,
            *(count(number, "pod") if number else None for number in found[name]),
            shorten(sorted(nodes[name]), 99 if wide else 3),
        )
        for name in sorted(found)
    ]
