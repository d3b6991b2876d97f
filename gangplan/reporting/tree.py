"""The topology tree: levels from wide to narrow, each domain as wide as it has nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gangplan.reporting.heatmap import grade
from gangplan.reporting.layout import name_domain, short_key
from gangplan.reporting.numbers import count
from gangplan.reporting.svg import Drawing, box, tip, words
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gangplan.reporting.changes import Changes, View
    from gangplan.reporting.fleet import Fleet
    from topology.levels import DomainColumn

__all__ = ["draw_tree", "find_ranges", "order_nodes"]

_ROW: Final = 36
_NARROWEST: Final = 3.0
"""Pixels; a level with narrower domains is not drawn."""


def draw_tree(fleet: Fleet, changes: Changes, view: View, width: float) -> Drawing:
    """Draw every tree of levels, the whole fleet on top, domains shaded by what is free."""
    drawing = Drawing(f"Topology: domains by free {fleet.unit}s", width)
    y = 4.0
    for tree in fleet.trees or ((),):
        y = _draw_levels(drawing, fleet, changes, view, tree, y) + 14
    drawing.height = y
    return drawing


def _draw_levels(
    drawing: Drawing,
    fleet: Fleet,
    changes: Changes,
    view: View,
    tree: Sequence[DomainColumn],
    y: float,
) -> float:
    num_nodes = max(len(fleet.nodes), 1)
    order = order_nodes(fleet, tree)
    scale = drawing.width / num_nodes
    touched = np.zeros(len(fleet.nodes), np.bool_)
    touched[list(changes.touched)] = True
    levels: list[tuple[str, list[tuple[str, NDArray[np.int64]]]]] = [
        ("", [("all nodes", order)] if len(order) else [])
    ]
    levels += [(column.key, find_ranges(column, order)) for column in tree]
    for key, ranges in levels:
        if len(ranges) * _NARROWEST > drawing.width:
            text = f"{len(ranges):,} domains of {key}: too many to draw"
            drawing.add(words(0, y + 16, text, "m", room=drawing.width))
            y += 24
            continue
        at = 0
        for name, nodes in ranges:
            x, w = at * scale, len(nodes) * scale
            at += len(nodes)
            capacity = int(fleet.capacity[nodes].sum())
            free = int(view.free[nodes].sum())
            grades = grade(free, capacity)
            told = f"{f'{key} ' if key else ''}{name}: {count(len(nodes), 'node')}, "
            told += f"{free} of {count(capacity, fleet.unit)} free"
            changed = int(touched[nodes].sum())
            if changed:
                told += f"; the plan touches {count(changed, 'node')}"
            inside = max(w - 1.0, 0.6)
            drawing.add(
                box(x, y, inside, _ROW - 4, f"cell f{grades}", tip(told)),
                words(
                    x + 4, y + 13, name_domain(key, name) if key else name, f"n{grades}", room=w - 8
                ),
                words(x + 4, y + 26, f"{free} of {capacity} free", f"s n{grades}", room=w - 8),
            )
            if changed and w >= 8:
                drawing.add(box(x + 0.8, y + 0.8, inside - 1.6, _ROW - 5.6, "mark", tip(told)))
        y += _ROW
    return y


def order_nodes(fleet: Fleet, tree: Sequence[DomainColumn]) -> NDArray[np.int64]:
    """Return the nodes so that every domain of a tree is one run; nodes in no domain last."""
    keys = [np.where(c.codes == NO_DOMAIN, len(c.values), c.codes) for c in reversed(tree)]
    order: NDArray[np.int64] = np.lexsort([np.arange(len(fleet.nodes)), *keys])
    return order


def find_ranges(
    column: DomainColumn, order: NDArray[np.int64]
) -> list[tuple[str, NDArray[np.int64]]]:
    """Return the domains of a level with their nodes, along an order that keeps each together."""
    codes = column.codes[order]
    parts = np.split(order, np.flatnonzero(np.diff(codes)) + 1) if len(order) else []
    ranges = []
    for part in parts:
        code = int(column.codes[part[0]])
        name = f"no {short_key(column.key)}" if code == NO_DOMAIN else "/".join(column.values[code])
        ranges.append((name, part))
    return ranges
