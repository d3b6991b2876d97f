"""The wave chart: which moves may run together, and what each wave waits for.

Evictions come first, then the waves in order, then the placements that they make room for. Steps
have an order and no duration, so a column is a wave, not a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gangplan.reporting.numbers import count
from gangplan.reporting.svg import Drawing, box, line, tip, words
from gangplan.tables import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplan.reporting.changes import Changes
    from topology.plan import Move, Plan

__all__ = ["draw_waves"]

MOST_ROWS: Final = 60
MOST_WAVES: Final = 40
_ROW: Final = 24


@dataclass(frozen=True, slots=True)
class _Column:
    """Consecutive waves; several only where there are too many to draw each."""

    first: int
    last: int

    @property
    def label(self) -> str:
        return f"wave {self.first}" if self.first == self.last else f"{self.first}–{self.last}"


@dataclass(frozen=True, slots=True)
class _Row:
    """Moves drawn in one line: of one pod, or of one group where there are many."""

    name: str
    owner: str
    moves: tuple[Move, ...]


def draw_waves(plan: Plan, changes: Changes, width: float) -> Drawing:
    """Draw the moves of a plan, a row for each pod, or for each group where there are many."""
    drawing = Drawing("Planned moves by wave", width)
    columns = _find_columns(plan)
    rows = _find_rows(plan)
    names = width * 0.26
    has_evictions, has_placements = bool(plan.evictions), any(g.pods for g in plan.groups)
    sides = has_evictions + has_placements
    wide = (width - names) / max(len(columns) + sides, 1)
    first = names + (wide if has_evictions else 0)
    heads = ["would evict"] if has_evictions else []
    heads += [column.label for column in columns]
    heads += ["then placed"] if has_placements else []
    shown = rows[:MOST_ROWS]
    placed = [g for g in plan.groups if g.pods][: 20 if has_placements else 0]
    units = sorted({e.group or e.pod for e in plan.evictions})[:20]
    height = 22 + _ROW * (len(units) + len(shown) + len(placed))
    for i, head in enumerate(heads):
        x = names + i * wide
        drawing.add(
            line(x, 16, x, height, "rule"),
            words(x + 4, 12, head, "m", room=wide - 6),
        )
    y = 22.0
    for name in units:
        pods = [e for e in plan.evictions if (e.group or e.pod) == name]
        told = f"{name}: {count(len(pods), 'pod')} would be evicted"
        _draw_row(drawing, changes, name, name, y, names)
        _bar(drawing, changes, name, names, y, wide, count(len(pods), "pod"), "hatch", told)
        y += _ROW
    for row in shown:
        _draw_row(drawing, changes, row.name, row.owner, y, names)
        for i, column in enumerate(columns):
            here = [m for m in row.moves if column.first <= m.wave <= column.last]
            if here:
                pattern = "dots" if here[0].mode == "restart" else ""
                x = first + i * wide
                text, told = _say_moves(here, wide)
                _bar(drawing, changes, row.owner, x, y, wide, text, pattern, f"{row.name}: {told}")
        y += _ROW
    for group in placed:
        told = f"{group.group}: {count(len(group.pods), 'pod')} placed"
        x = first + len(columns) * wide
        _draw_row(drawing, changes, group.group, group.group, y, names)
        text = f"{count(len(group.pods), 'pod')}"
        _bar(drawing, changes, group.group, x, y, wide, text, "", told)
        y += _ROW
    if len(rows) > len(shown):
        drawing.add(words(26, y + 14, f"and {len(rows) - len(shown)} more, in the table", "m"))
        y += _ROW
    if any(move.mode == "restart" for move in plan.moves):
        drawing.add(
            box(0, y + 8, 20, 12, "busy"),
            box(0, y + 8, 20, 12, "dots"),
            words(26, y + 18, "restart: the whole unit stops, then starts elsewhere", "m"),
        )
        y += _ROW
    drawing.height = y + 4
    return drawing


def _find_columns(plan: Plan) -> list[_Column]:
    waves = sorted({move.wave for move in plan.moves})
    size = -(-len(waves) // MOST_WAVES) or 1
    parts = [waves[i : i + size] for i in range(0, len(waves), size)]
    return [_Column(part[0], part[-1]) for part in parts]


def _find_rows(plan: Plan) -> list[_Row]:
    moves = sorted(plan.moves, key=lambda m: (m.wave, m.step, m.pod))
    by_pod = len({m.pod for m in moves}) <= MOST_ROWS
    rows: dict[str, list[Move]] = {}
    for move in moves:
        rows.setdefault(move.pod if by_pod else move.group or move.pod, []).append(move)
    return [_Row(name, own[0].group or own[0].pod, tuple(own)) for name, own in rows.items()]


def _say_moves(moves: Sequence[Move], wide: float) -> tuple[str, str]:
    """Return what a bar says inside, and to the pointer."""
    steps = [f"step {m.step}: {m.source} to {m.target}, {m.mode}" for m in moves]
    if len(moves) == 1:
        move = moves[0]
        text = f"{move.step}. {move.source} → {move.target}"
        if move.source == move.target:
            text = f"{move.step}. {move.source}, in place"
        return (text if len(text) * 5.7 < wide - 12 else f"{move.step}."), steps[0]
    return count(len(moves), "move"), shorten(steps, 5)


def _draw_row(
    drawing: Drawing, changes: Changes, name: str, owner: str, y: float, names: float
) -> None:
    badge = changes.badges.get(owner)
    if badge is not None:
        drawing.add(
            box(0, y + 3, 20, 16, f"g{badge.color}"),
            words(10, y + 15, badge.letter, f"b c i{badge.color}"),
        )
    drawing.add(
        words(26, y + 15, name, room=names - 32),
        line(0, y + _ROW - 1, drawing.width, y + _ROW - 1, "rule"),
    )


def _bar(
    drawing: Drawing,
    changes: Changes,
    owner: str,
    x: float,
    y: float,
    wide: float,
    text: str,
    pattern: str,
    told: str,
) -> None:
    badge = changes.badges.get(owner)
    fill, ink = (f"g{badge.color}", f"i{badge.color}") if badge else ("busy", "")
    drawing.add(box(x + 2, y + 3, wide - 4, 16, fill, tip(told)))
    if pattern:
        drawing.add(box(x + 2, y + 3, wide - 4, 16, pattern, tip(told)))
        patch = min(len(text) * 5.9 + 6, wide - 6)
        drawing.add(box(x + 4, y + 4, patch, 14, fill, tip(told)))
    drawing.add(words(x + 7, y + 15, text, ink, room=wide - 12))
