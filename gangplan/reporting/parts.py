"""Small pieces of the page: names, badges, tables, folded lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangplan.reporting.markup import Child, Element, cut, make

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gangplan.reporting.changes import Badge

__all__ = [
    "MOST_CHARACTERS",
    "MOST_PODS",
    "MOST_ROWS",
    "Cell",
    "badge",
    "fold",
    "list_names",
    "name",
    "section",
    "show_table",
    "tile",
]

MOST_ROWS: Final = 500
"""Rows of a table of groups; the plan has them all."""
MOST_PODS: Final = 2000
"""Rows of a folded table of pods."""

MOST_CHARACTERS: Final = 2000
"""Longest text of a cell."""
SHORT_NAME: Final = 48
"""Characters up to which a name is kept on one line."""

Cell = Child | int | list[Child]


def name(text: str) -> Element:
    """Return a name from the cluster; its direction of writing stays its own."""
    return make("bdi", cut(text), class_="name" if len(text) > SHORT_NAME else "name short")


def badge(badges: Mapping[str, Badge], owner: str) -> Element | None:
    """Return the letter and colour that pictures mark a group with, if any."""
    if owner not in badges:
        return None
    letter, color = badges[owner]
    return make("span", letter, class_=f"badge g{color}")


def section(anchor: str, heading: str, *children: Child | Iterable[Child]) -> Element:
    """Return a part of the page that the list at its top leads to."""
    return make("section", make("h2", heading, id=anchor), *children, aria_labelledby=anchor)


def tile(term: str, value: str, *notes: str | None, state: str | None = None) -> Element:
    """Return one headline figure."""
    classes = " ".join(filter(None, [state, "long" if len(value) > 9 else None]))
    rest = [make("dd", note) for note in notes if note]
    shown = make("dd", value, class_=classes or None)
    return make("div", make("dt", term), shown, rest, class_="tile")


def fold(summary: str, *children: Child | Iterable[Child]) -> Element:
    """Return something that is shown when asked for."""
    return make("details", make("summary", summary), *children)


def list_names(names: Sequence[str], most: int = 4) -> list[Child]:
    """Return names in a row, folded where there are many."""
    if len(names) <= most:
        return _join(names)
    shown = _join(names[:MOST_ROWS])
    if len(names) > MOST_ROWS:
        shown.append(f" and {len(names) - MOST_ROWS:,} more")
    return [make("details", make("summary", f"{len(names):,}, from ", name(names[0])), shown)]


def _join(names: Sequence[str]) -> list[Child]:
    parts: list[Child] = []
    for i, text in enumerate(names):
        parts += [", ", name(text)] if i else [name(text)]
    return parts


def show_table(
    caption: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    most: int = MOST_ROWS,
    wide: Sequence[int] = (),
) -> Element:
    """Return a table; whole numbers are set to the right, None is an empty cell.

    Args:
      caption: What the rows are.
      headings: One for each column.
      rows: Cells are texts, numbers, elements or lists of them.
      most: Rows that are shown; a line says how many more there are.
      wide: Columns that hold sentences.
    """
    numeric = [
        bool(rows) and all(isinstance(row[i], int | None) for row in rows)
        for i in range(len(headings))
    ]
    head = [
        make("th", text, scope="col", class_="num" if number else None if text else "mark")
        for text, number in zip(headings, numeric, strict=True)
    ]
    body = []
    for row in rows[:most]:
        cells = []
        for i, cell in enumerate(row):
            is_long = i in wide or (isinstance(cell, str) and len(cell) > SHORT_NAME)
            kind = "num" if isinstance(cell, int) else "wide" if is_long else None
            content: Child | list[Child]
            if isinstance(cell, int):
                content = f"{cell:,}"
            else:
                content = cut(cell, MOST_CHARACTERS) if isinstance(cell, str) else cell
            cells.append(make("td", content, class_=kind))
        body.append(make("tr", cells))
    left = len(rows) - most
    note = None
    if left > 0:
        note = make("p", f"And {left:,} more; the plan's own file lists them all.", class_="note")
    table = make(
        "table",
        make("caption", caption),
        make("thead", make("tr", head)),
        make("tbody", body),
    )
    scroll = make(
        "div", table, class_="scroll", tabindex=0, role="group", aria_label=f"{caption}, table"
    )
    return make("div", scroll, note)
