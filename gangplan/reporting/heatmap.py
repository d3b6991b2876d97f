"""The heat map: domains × nodes, deep where much is free, with the groups a plan touches.

Up to 160 nodes every GPU is a slot; up to 3,000 every node is a cell with the number of its free
GPUs; beyond, every domain is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from gangplan.reporting.layout import Block, Layout, short_key
from gangplan.reporting.markup import make
from gangplan.reporting.numbers import count
from gangplan.reporting.svg import CHARACTER_WIDTH, Drawing, box, tip, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gangplan.reporting.changes import Changes, Share, View
    from gangplan.reporting.fleet import Fleet
    from gangplan.reporting.markup import Element

__all__ = ["draw_heat_map", "grade", "legend_entries", "legend_owners"]

MOST_BADGES: Final = 40
"""Groups that a legend names."""
MOST_TICKS: Final = 16
_GAP: Final = 10
MOST_LARGE_CELLS: Final = 500
"""Beyond, cells of nodes in maps side by side are drawn smaller."""
_LABEL: Final = 12

_PATTERNS: Final = {"evicted": "hatch", "leaves": "dots"}
MARKS: Final = {
    "stays": "",
    "placed": "placed by this plan",
    "evicted": "would be evicted",
    "leaves": "would move away",
    "arrives": "would move here",
}


def grade(free: int, capacity: int) -> int:
    """Return 0 (nothing free) to 4 (all free), three steps between.

    Example:
      >>> [grade(free, 8) for free in (0, 1, 4, 7, 8)], grade(0, 0)
      ([0, 1, 2, 3, 4], 0)
    """
    if free <= 0 or capacity <= 0:
        return 0
    return 4 if free >= capacity else 1 + 3 * free // capacity


def draw_heat_map(
    title: str, fleet: Fleet, changes: Changes, view: View, layout: Layout, width: float
) -> Drawing:
    """Draw one moment of a fleet.

    Args:
      title: Says which moment.
      fleet: Nodes and what they offer.
      changes: Badges of groups and the nodes on which something changes.
      view: The moment.
      layout: Which nodes stand together.
      width: Pixels.
    """
    drawing = Drawing(title, width)
    painter = _Painter(drawing, fleet, changes, view)
    y = 4.0
    for section in layout.sections:
        if section.label:
            drawing.add(words(0, y + 11, section.label, "b", room=width))
            y += 18
        y = painter.flow(section.blocks, layout, y)
        y += 6
    drawing.height = y
    return drawing


class _Painter:
    def __init__(self, drawing: Drawing, fleet: Fleet, changes: Changes, view: View) -> None:
        self.drawing = drawing
        self.fleet = fleet
        self.changes = changes
        self.view = view
        self.capacity = fleet.capacity.tolist()
        self.used = view.used.tolist()
        self.free = view.free.tolist()
        # Both moments of a part of a fleet are drawn on the scale of the fuller one.
        busiest = max(changes.before.used.max(initial=0), changes.after.used.max(initial=0))
        most = int(busiest if fleet.is_partial else fleet.capacity.max(initial=0))
        self.slots = min(max(most, 1), MOST_TICKS)
        self.cell = 0.0
        self.prefix = _count_common(fleet.nodes)

    def flow(self, blocks: Sequence[Block], layout: Layout, y: float) -> float:
        """Draw blocks in lines from left to right; return where the last line ends."""
        longest = max(len(block.nodes) for section in layout.sections for block in section.blocks)
        draw_fn, cell_width, cell_height = self._cell(layout, longest)
        if layout.detail == "domains":
            per_line = max(int(self.drawing.width // (cell_width + 4)), 1)
            for i, block in enumerate(blocks):
                x = i % per_line * (cell_width + 4)
                self._draw_domain(block, layout, x, y + i // per_line * (cell_height + 4))
            return y + -(-len(blocks) // per_line) * (cell_height + 4)
        most = max(int((self.drawing.width + 2.1) / cell_width), 1)
        gap = 5 if cell_width == 17 else _GAP
        x, tallest = 0.0, 0.0
        for block in blocks:
            across = min(len(block.nodes), most)
            block_width = across * cell_width
            if x and x + block_width > self.drawing.width + 2.1:
                x, y, tallest = 0.0, y + tallest + _GAP - 2, 0.0
            top = y + (_LABEL if block.label else 0)
            if block.label:
                self.drawing.add(words(x, y + 9, block.label, "s m", room=block_width - 2))
            for i, node in enumerate(block.nodes.tolist()):
                draw_fn(node, x + i % across * cell_width, top + i // across * cell_height)
            down = -(-len(block.nodes) // across) * cell_height
            tallest = max(tallest, down + top - y)
            x += block_width + gap
        return y + tallest + _GAP - 2

    def _cell(
        self, layout: Layout, longest: int
    ) -> tuple[Callable[[int, float, float], None], float, float]:
        """Return how a node is drawn, and the size of its cell with the gap after it."""
        if layout.detail == "slots":
            # A pod of a part of a fleet is one slot, which has to hold its letter on hatching.
            slot = 18 if self.fleet.is_partial else 8
            widest, narrowest = max(self.slots * slot + 6, 44), self.slots * 6 + 6
            # A block of one line is easier to compare, if its slots stay legible.
            fitting = (self.drawing.width + 2) / longest
            self.cell = min(widest, fitting) if fitting >= narrowest else widest
            return self._draw_slots, self.cell, 34
        if layout.detail == "nodes":
            is_roomy = len(self.fleet.nodes) <= MOST_LARGE_CELLS or self.drawing.width > 1000
            self.cell = self._fit(24, longest) if is_roomy else 17
            return self._draw_node, self.cell, 26
        return self._draw_node, 88, 28

    def _fit(self, widest: float, longest: int) -> float:
        """Return a width of cells, a little narrower where one more block then fits a line."""
        line = int((self.drawing.width + _GAP) // (longest * widest + _GAP)) + 1
        fitting = (self.drawing.width - _GAP * (line - 1)) / (line * longest)
        return fitting if fitting >= widest * 0.85 else widest

    def _draw_slots(self, node: int, x: float, y: float) -> None:
        width, height = self.cell - 2, 32
        level = grade(self.free[node], self.capacity[node])
        self._frame(node, x, y, width, height, level)
        number = "" if self.fleet.is_partial else self._number(node)
        room = width - 6 - 7 * len(number)
        name = self._short_name(node, int(room / CHARACTER_WIDTH["s"]))
        self.drawing.add(words(x + 2, y + 11, name, f"s n{level}"))
        if number:
            self.drawing.add(words(x + width - 3, y + 11, number, f"b e n{level}"))
        self._strip(node, x + 2, y + 15, width - 4, 14, whole=True)
        self._outline(node, x, y, width, height)

    def _draw_node(self, node: int, x: float, y: float) -> None:
        width, height = self.cell - 2, 24
        level = grade(self.free[node], self.capacity[node])
        self._frame(node, x, y, width, height, level)
        size = "" if width > 16 else "s "
        self.drawing.add(words(x + width / 2, y + 11, self._number(node), f"{size}c n{level}"))
        self._strip(node, x + 1, y + 14, width - 2, 9, whole=False)
        self._outline(node, x, y, width, height)

    def _short_name(self, node: int, most: int) -> str:
        """Return a node's name where it fits, else its end without what all names begin with."""
        name = self.fleet.nodes[node]
        return name if len(name) <= most else name[self.prefix :][-most:] if most > 0 else ""

    def _frame(self, node: int, x: float, y: float, w: float, h: float, level: int) -> None:
        told = tip(self._tell(node))
        self.drawing.add(box(x, y, w, h, f"cell f{level}", told))
        if not self.fleet.is_open[node]:
            self.drawing.add(box(x, y, w, h, "closed", told))

    def _outline(self, node: int, x: float, y: float, w: float, h: float) -> None:
        if node in self.changes.touched:
            self.drawing.add(box(x + 0.8, y + 0.8, w - 1.6, h - 1.6, "mark"))

    def _number(self, node: int) -> str:
        if not self.fleet.is_open[node]:
            return "×"
        return str(self.free[node]) if self.capacity[node] else "–"

    def _strip(self, node: int, x: float, y: float, w: float, h: float, *, whole: bool) -> None:
        """Draw what pods hold of a node from left to right, badged groups first."""
        shares = self.view.shares.get(node, ())
        shown = sum(share.amount for share in shares)
        total = max(self.used[node], self.capacity[node], shown, 1)
        if self.fleet.is_partial:
            total = self.slots
        if whole and not self.fleet.is_partial:
            self.drawing.add(box(x, y, w, h, "empty"))
        letters: list[Element | None] = []
        at = 0
        for share in shares:
            left, size = x + w * at / total, w * share.amount / total
            letters += self._share(share, left, y, size, h)
            at += share.amount
        others = self.used[node] - shown
        if whole and others > 0:
            self.drawing.add(box(x + w * at / total, y, w * others / total, h, "busy"))
        if whole and 1 < total <= MOST_TICKS:
            path = "".join(f"M{x + w * i / total:.5g} {y:g}v{h:g}" for i in range(1, total))
            self.drawing.add(make("path", d=path, class_="tick"))
        self.drawing.add(*letters)

    def _share(self, share: Share, x: float, y: float, w: float, h: float) -> list[Element | None]:
        """Draw what a group holds; return the letter that goes on top."""
        if w <= 0:
            return []
        badge = self.changes.badges[share.owner]
        color = f"g{badge.color}"
        self.drawing.add(box(x, y, w, h, color))
        pattern = _PATTERNS.get(share.mark)
        if pattern:
            self.drawing.add(box(x, y, w, h, pattern))
        if w < max(6, 1 + 5 * len(badge.letter)):
            return []
        # A patch of plain colour keeps the letter legible on hatching and between slots; hatching
        # still shows around it.
        side, center = min(w, (8.0 if w > 16 else 4.0) + 5 * len(badge.letter)), x + w / 2
        is_large = h > 10 and w >= 9 and not pattern
        rim = 1 if h <= 10 or not pattern else 3
        text = f"{'' if is_large else 's '}b c i{badge.color}"
        return [
            box(center - side / 2, y + rim, side, h - 2 * rim, color),
            words(center, y + h / 2 + (3.6 if is_large else 2.9), badge.letter, text),
        ]

    def _tell(self, node: int) -> str:
        name, unit = self.fleet.nodes[node], self.fleet.unit
        if self.fleet.is_partial:
            text = name
        else:
            text = f"{name}: {self.free[node]} of {count(self.capacity[node], unit)} free"
        if not self.fleet.is_open[node]:
            text += ", takes no new pods"
        for share in self.view.shares.get(node, ()):
            what = f", {MARKS[share.mark]}" if MARKS[share.mark] else ""
            text += (
                f"; {self.changes.badges[share.owner].letter} {share.owner}: {share.amount}{what}"
            )
        return text

    def _draw_domain(self, block: Block, layout: Layout, x: float, y: float) -> None:
        nodes = block.nodes
        capacity = int(self.fleet.capacity[nodes].sum())
        free = int(self.view.free[nodes].sum())
        level = grade(free, capacity)
        changed = sum(node in self.changes.touched for node in nodes.tolist())
        key = f"{short_key(layout.key)} " if layout.key else ""
        told = f"{key}{block.label}: {free} of {count(capacity, self.fleet.unit)} free "
        told += f"on {count(len(nodes), 'node')}"
        if changed:
            told += f"; the plan touches {count(changed, 'node')}"
        whole = int((self.view.free[nodes] == self.fleet.capacity[nodes]).sum())
        told += f"; {count(whole, 'node')} wholly free"
        self.drawing.add(box(x, y, 88, 28, f"cell f{level}", tip(told)))
        self.drawing.add(words(x + 4, y + 11, block.label, f"s n{level}", room=80))
        self.drawing.add(words(x + 4, y + 23, f"{free}/{capacity}", f"b n{level}"))
        if changed:
            self.drawing.add(
                words(
                    x + 84, y + 23, f"{changed} node{'s' if changed > 1 else ''}", f"s e n{level}"
                ),
                box(x + 0.8, y + 0.8, 86.4, 26.4, "mark"),
            )


def legend_entries(fleet: Fleet, changes: Changes, layout: Layout) -> list[tuple[Element, str]]:
    """Return samples and words for a legend: shades, hatchings, outlines."""
    entries: list[tuple[Element, str]] = []
    if not fleet.is_partial:
        names = ("nothing free", "under a third", "under two thirds", "more", "all free")
        for level, text in enumerate(names):
            entries.append((box(0.5, 0.5, 17, 13, f"cell f{level}"), text))
        if layout.detail != "domains" and not bool(np.all(fleet.is_open)):
            entries.append((box(0.5, 0.5, 17, 13, "cell closed"), "× takes no new pods"))
    if layout.detail == "slots" and not fleet.is_partial:
        entries.append((box(0.5, 0.5, 17, 13, "busy"), "held by other pods"))
    marks = {
        s.mark
        for view in (changes.before, changes.after)
        for here in view.shares.values()
        for s in here
    }
    if layout.detail != "domains":
        for mark, pattern in _PATTERNS.items():
            if mark in marks:
                entries.append((_sample("busy", pattern), MARKS[mark]))
    if changes.touched:
        entries.append((box(1, 1, 16, 12, "mark"), "the plan changes something here"))
    return entries


def legend_owners(changes: Changes, layout: Layout) -> tuple[list[str], int]:
    """Return groups whose letters a legend explains, and how many more there are."""
    owners = [] if layout.detail == "domains" else list(changes.badges)
    return owners[:MOST_BADGES], max(len(owners) - MOST_BADGES, 0)


def _sample(*classes: str) -> Element:
    return make("g", [box(0.5, 0.5, 17, 13, class_) for class_ in classes])


def _count_common(names: Sequence[str]) -> int:
    """Return how many characters all names (sorted) begin with, up to their numbers."""
    if len(names) < 2:
        return 0
    pairs = zip(names[0], names[-1], strict=False)
    same = next((i for i, (a, b) in enumerate(pairs) if a != b), len(names[0]))
    return len(names[0][:same].rstrip("0123456789"))
