"""HTML and SVG as trees of elements: what is text stays text, whatever names it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from xml.etree.ElementTree import Element, tostring

from gangplan.streams import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Child", "Element", "cut", "make", "to_html", "to_svg"]

Child = Element | str | None

NAME_LENGTH: Final = 340
"""Longest name that is written whole; a reference of Kubernetes has at most 317 characters."""


def make(tag: str, *children: Child | Iterable[Child], **attributes: str | float | None) -> Element:
    """Return an element.

    Args:
      tag: Its name.
      children: Elements and texts in order; None is left out.
      attributes: `class_` is `class`, other underscores are hyphens; numbers are written with at
        most one decimal; None is left out.

    Example:
      >>> to_html(make("p", "a < b ", make("b", "c"), class_="note", data_x=1.25))
      '<p class="note" data-x="1.2">a &lt; b <b>c</b></p>'
    """
    element = Element(tag)
    for name, value in attributes.items():
        if value is not None:
            key = "class" if name == "class_" else name.replace("_", "-")
            element.set(key, _write(value))
    for child in children:
        if child is None or isinstance(child, str | Element):
            _append(element, child)
        else:
            for item in child:
                _append(element, item)
    return element


def _append(parent: Element, child: Child) -> None:
    if child is None:
        return
    if isinstance(child, Element):
        parent.append(child)
        return
    # Control and format characters (line breaks, marks that turn the direction of writing) are
    # written out: a name must not look like another, and XML forbids some of them.
    text = child if parent.tag == "style" else escape_line(child)
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text


def _write(value: str | float) -> str:
    if isinstance(value, str):
        return escape_line(value)
    return str(value) if isinstance(value, int) else f"{round(value, 1):g}"


def cut(text: str, length: int = NAME_LENGTH) -> str:
    """Return text, its middle left out where it is longer than `length` characters.

    Example:
      >>> cut("team-000/train-000037", 12)
      'team-0…00037'
    """
    if len(text) <= length:
        return text
    tail = (length - 1) // 2
    return f"{text[: length - 1 - tail]}…{text[len(text) - tail :]}"


def to_html(element: Element) -> str:
    """Return an element as HTML."""
    return tostring(element, encoding="unicode", method="html")


def to_svg(element: Element) -> str:
    """Return an element as XML."""
    return tostring(element, encoding="unicode")
