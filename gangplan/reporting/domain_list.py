"""The topology tree as nested, folded lists: every number of the picture, for reading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangplan.reporting.layout import short_key
from gangplan.reporting.markup import make
from gangplan.reporting.numbers import count
from gangplan.reporting.parts import name
from gangplan.reporting.tree import find_ranges, order_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gangplan.reporting.changes import Changes
    from gangplan.reporting.fleet import Fleet
    from gangplan.reporting.markup import Child, Element
    from topology.levels import DomainColumn

__all__ = ["list_domains"]

MOST_ENTRIES: Final = 1500
"""Domains and nodes of one tree; narrower levels are left out beyond."""


def list_domains(fleet: Fleet, changes: Changes) -> list[Element]:
    """Return each tree of levels as a list of lists, with what is free before and after."""
    lists = []
    for tree in fleet.trees or ((),):
        entries, levels = 0, []
        for column in tree:
            entries += len(column.values)
            if entries <= MOST_ENTRIES:
                levels.append(column)
        has_nodes = len(levels) == len(tree) and entries + len(fleet.nodes) <= MOST_ENTRIES
        order = order_nodes(fleet, levels)
        inside = _list_level(fleet, changes, levels, order, has_nodes)
        lists.append(make("div", inside, class_="tree"))
    return lists


def _list_level(
    fleet: Fleet,
    changes: Changes,
    levels: Sequence[DomainColumn],
    nodes: NDArray[np.int64],
    has_nodes: bool,
) -> Element | None:
    if not levels:
        if not has_nodes:
            return None
        items = [
            make("li", name(fleet.nodes[n]), f": {_say_free(fleet, changes, nodes[i : i + 1])}")
            for i, n in enumerate(nodes.tolist())
        ]
        return make("ul", items)
    column = levels[0]
    items = []
    for value, part in find_ranges(column, nodes):
        text = f": {count(len(part), 'node')}, {_say_free(fleet, changes, part)}"
        below = _list_level(fleet, changes, levels[1:], part, has_nodes)
        head: list[Child] = [short_key(column.key), " ", name(value), text]
        if below is None:
            items.append(make("li", head))
        else:
            items.append(make("li", make("details", make("summary", head), below)))
    return make("ul", items)


def _say_free(fleet: Fleet, changes: Changes, nodes: NDArray[np.int64]) -> str:
    before, after = (int(v.free[nodes].sum()) for v in (changes.before, changes.after))
    change = f"{before:,} → {after:,}" if before != after else f"{before:,}"
    return f"{change} of {int(fleet.capacity[nodes].sum()):,} {fleet.unit}s free"
