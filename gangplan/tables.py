"""Padded columns, as kubectl prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplan.streams import escape_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["count", "format_share", "format_table", "shorten"]

_GAP = "   "
NONE = "<none>"


def format_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return headings and rows as left-aligned columns; empty cells read `<none>`.

    Example:
      >>> print(format_table(["NODE", "FREE"], [["n1", 8], ["node-2", None]]))
      NODE     FREE
      n1       8
      node-2   <none>
    """
    table = [tuple(headings)]
    for row in rows:
        cells = (NONE if cell is None or cell == "" else str(cell) for cell in row)
        table.append(tuple(escape_line(cell) for cell in cells))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    line = _GAP.join(f"{{:<{width}}}" for width in widths)
    return "\n".join(line.format(*row).rstrip() for row in table)


def count(number: int, noun: str) -> str:
    """Return a number with its noun.

    Example:
      >>> count(1, "node"), count(2, "node")
      ('1 node', '2 nodes')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_share(part: int, whole: int) -> str:
    """Return a value with its share of the whole.

    Example:
      >>> format_share(56, 64), format_share(0, 0)
      ('56 (88%)', '0')
    """
    return f"{part} ({(100 * part + whole // 2) // whole}%)" if whole else str(part)


def shorten(names: Sequence[str], limit: int = 3) -> str:
    """Return the first names and how many more there are.

    Example:
      >>> shorten(["a", "b", "c", "d", "e"])
      'a, b, c and 2 more'
    """
    shown = ", ".join(names[:limit])
    return f"{shown} and {len(names) - limit} more" if len(names) > limit else shown
