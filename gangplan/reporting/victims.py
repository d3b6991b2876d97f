"""Who would be evicted: a bar for each group or single pod, dearest first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gangplan.reporting.numbers import count
from gangplan.reporting.svg import Drawing, box, line, tip, words

if TYPE_CHECKING:
    from gangplan.reporting.changes import Changes
    from gangplan.reporting.fleet import Fleet
    from topology.plan import Plan

__all__ = ["VictimUnit", "draw_victims", "find_victims"]

MOST_BARS: Final = 40
_ROW: Final = 24


@dataclass(frozen=True, slots=True)
class VictimUnit:
    """Evicted pods of one group, or one pod in no group."""

    name: str
    priority: int | None
    """None where the fleet is not known."""
    pods: tuple[str, ...]
    nodes: tuple[str, ...]
    amount: int
    """Of the fleet's unit."""
    reasons: tuple[str, ...]
    preemptors: tuple[str, ...]


def find_victims(fleet: Fleet, plan: Plan) -> list[VictimUnit]:
    """Return the units that would go, highest priority first, then the largest."""
    gone: dict[str, list[int]] = {}
    for i, eviction in enumerate(plan.evictions):
        gone.setdefault(eviction.group or eviction.pod, []).append(i)
    units = []
    for name, rows in gone.items():
        entries = [plan.evictions[i] for i in rows]
        holdings = [fleet.pods[e.pod] for e in entries if e.pod in fleet.pods]
        known = holdings and not fleet.is_partial
        units.append(
            VictimUnit(
                name,
                max(h.priority for h in holdings) if known else None,
                tuple(sorted(e.pod for e in entries)),
                tuple(sorted({e.node for e in entries})),
                sum(h.amount for h in holdings),
                tuple(sorted({e.reason for e in entries})),
                tuple(sorted({e.preemptor for e in entries if e.preemptor})),
            )
        )
    return sorted(units, key=lambda u: (-(u.priority or 0), -u.amount, u.name))


def draw_victims(fleet: Fleet, plan: Plan, changes: Changes, width: float) -> Drawing:
    """Draw the units that would go; a bar is as long as what they hold."""
    units = find_victims(fleet, plan)
    drawing = Drawing("Would be evicted, by group", width)
    names, numbers = width * 0.34, 64.0
    start = names + numbers
    scale = (width - start - 150) / max(1, *(u.amount for u in units))
    drawing.add(
        words(26, 12, "GROUP OR POD", "s m"),
        words(start - 14, 12, "PRIORITY", "s m e"),
        words(
            start, 12, f"{fleet.unit}s" if fleet.is_partial else f"{fleet.unit}s it holds", "s m"
        ),
    )
    y = 20.0
    for unit in units[:MOST_BARS]:
        badge = changes.badges[unit.name]
        pods = count(len(unit.pods), "pod")
        amount = pods if fleet.is_partial else f"{count(unit.amount, fleet.unit)} in {pods}"
        reason = "" if unit.reasons == ("preemption",) else f" ({', '.join(unit.reasons)})"
        told = f"{unit.name}: {amount} on {', '.join(unit.nodes)}{reason}"
        if unit.priority is not None:
            told += f", priority {unit.priority}"
        if unit.preemptors:
            told += f", for {', '.join(unit.preemptors)}"
        length = max(unit.amount * scale, 2)
        priority = "not known" if unit.priority is None else str(unit.priority)
        drawing.add(
            box(0, y + 3, 20, 16, f"g{badge.color}", tip(told)),
            words(10, y + 15, badge.letter, f"b c i{badge.color}"),
            words(26, y + 15, unit.name, room=names - 30),
            words(start - 14, y + 15, priority, "e b"),
            box(start, y + 3, length, 16, f"g{badge.color}", tip(told)),
            box(start, y + 3, length, 16, "hatch", tip(told)),
            words(start + length + 6, y + 15, f"{amount}{reason}"),
            line(0, y + _ROW - 1, width, y + _ROW - 1, "rule"),
        )
        y += _ROW
    if len(units) > MOST_BARS:
        more = f"and {len(units) - MOST_BARS} more, in the table"
        drawing.add(words(26, y + 15, more, "m"))
        y += _ROW
    drawing.height = y + 4
    return drawing
