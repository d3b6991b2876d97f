"""Shapes of the pictures: text that fits, tooltips, patterns, and whole drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangplan.reporting.markup import Element, cut, make
from gangplan.reporting.style import picture_style

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CHARACTER_WIDTH",
    "Drawing",
    "box",
    "line",
    "make_patterns",
    "show_in_page",
    "stand_alone",
    "tip",
    "words",
]

CHARACTER_WIDTH: Final = {"": 5.7, "s": 4.7, "l": 7.0, "h": 8.2}
"""Pixels that a character of each size takes at most on average."""


class Drawing:
    """Shapes on a sheet of `width` pixels; `height` grows with what is drawn."""

    def __init__(self, title: str, width: float) -> None:
        self.title = title
        self.width = width
        self.height: float = 0
        self.shapes: list[Element] = []

    def add(self, *shapes: Element | None) -> None:
        """Put shapes on top of what is there."""
        self.shapes += [shape for shape in shapes if shape is not None]


def box(
    x: float, y: float, width: float, height: float, class_: str, *inside: Element | None
) -> Element:
    """Return a rectangle."""
    return make("rect", *inside, x=x, y=y, width=width, height=height, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Element:
    """Return a straight line."""
    return make("path", d=f"M{x1:g} {y1:g}L{x2:g} {y2:g}", class_=class_)


def tip(text: str) -> Element:
    """Return what a pointer or a screen reader is told about the shape it is inside."""
    return make("title", cut(text))


def words(
    x: float, y: float, text: str, class_: str = "", *, room: float | None = None
) -> Element | None:
    """Return text whose baseline starts at (x, y), cut to `room` pixels; None where none fits."""
    if room is not None:
        size = next((name for name in class_.split() if name in CHARACTER_WIDTH), "")
        most = int(room / CHARACTER_WIDTH[size])
        if most < 1 or (most < 4 and len(text) > most):
            return None
        text = cut(text, most)
    return make("text", text, x=x, y=y, class_=f"t {class_}".strip())


def make_patterns() -> Element:
    """Return the hatchings: what would go, what comes, nodes that take nothing."""
    return make(
        "defs",
        make(
            "pattern",
            make("path", d="M-1 1L1 -1M0 6L6 0M5 7L7 5", class_="pattern-ink"),
            id="gangplan-hatch",
            width=6,
            height=6,
            patternUnits="userSpaceOnUse",
        ),
        make(
            "pattern",
            make("circle", cx=2, cy=2, r=1, class_="pattern-dot"),
            id="gangplan-dots",
            width=4,
            height=4,
            patternUnits="userSpaceOnUse",
        ),
        make(
            "pattern",
            make("path", d="M0 0L5 5M0 5L5 0", class_="pattern-line"),
            id="gangplan-closed",
            width=5,
            height=5,
            patternUnits="userSpaceOnUse",
        ),
    )


def show_in_page(drawing: Drawing) -> Element:
    """Return a drawing for a page that has the style and the patterns already."""
    svg = make(
        "svg",
        drawing.shapes,
        viewBox=f"0 0 {drawing.width:g} {drawing.height:g}",
        role="img",
        aria_label=drawing.title,
    )
    return make(
        "div",
        svg,
        class_="scroll",
        tabindex=0,
        role="group",
        aria_label=f"{drawing.title}, picture",
    )


def stand_alone(drawings: Sequence[Drawing], legend: Drawing | None, heading: str) -> Element:
    """Return drawings side by side under a heading, a legend below, as one SVG document."""
    margin, top = 20, 70
    x: float = margin
    parts: list[Element] = []
    for drawing in drawings:
        title = words(0, -8, drawing.title, "l")
        parts.append(make("g", title, drawing.shapes, transform=f"translate({x:g},{top})"))
        x += drawing.width + margin
    height = top + max((d.height for d in drawings), default=0)
    if legend is not None:
        move = f"translate({margin},{height + 14:g})"
        parts.append(make("g", legend.shapes, transform=move))
        height += legend.height + 14
    height += margin
    return make(
        "svg",
        make("title", heading),
        make("style", picture_style()),
        make_patterns(),
        box(0, 0, x, height, "paper"),
        words(margin, 30, heading, "h", room=x - 2 * margin),
        parts,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {x:g} {height:g}",
        width=x,
        height=height,
        role="img",
    )
