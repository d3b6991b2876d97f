"""Colours and type of the page and of each picture, light and dark.

Written once with CSS variables. A picture as a file gets them filled in, since programs that turn
SVG into PNG know no variables and pass over @media.

Source: group colours are Okabe and Ito's, told apart with any colour vision; free amounts are one
hue from pale to deep. Letters, numbers and hatching say the same without colour.
"""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Final

__all__ = ["PAGE_STYLE", "picture_style"]

_LIGHT: Final = {
    "paper": "#ffffff",
    "panel": "#f5f7f9",
    "ink": "#1a1f26",
    "muted": "#566270",
    "line": "#ced5dd",
    "busy": "#a9b2bc",
    "empty": "#ffffff",
    "good": "#0a6b46",
    "bad": "#b3261e",
    "link": "#0b5cad",
    "f0": "#eceff2",
    "f1": "#d3e6f3",
    "f2": "#a6cfe8",
    "f3": "#6cb1dc",
    "f4": "#2a86c0",
    "f0-ink": "#566270",
    "f1-ink": "#0d2b40",
    "f2-ink": "#0d2b40",
    "f3-ink": "#06202f",
    "f4-ink": "#ffffff",
}
_DARK: Final = {
    "paper": "#13171c",
    "panel": "#1b2128",
    "ink": "#e7eaee",
    "muted": "#a0abb7",
    "line": "#38424d",
    "busy": "#66717d",
    "empty": "#0c0f13",
    "good": "#5fd6a0",
    "bad": "#ff8a80",
    "link": "#7cbcff",
    "f0": "#252c34",
    "f1": "#17374d",
    "f2": "#1d5475",
    "f3": "#2d7cab",
    "f4": "#6cc0ef",
    "f0-ink": "#a0abb7",
    "f1-ink": "#d7ecfa",
    "f2-ink": "#e8f4fc",
    "f3-ink": "#ffffff",
    "f4-ink": "#06202f",
}
# Colours of groups serve both themes: letters on them are dark or light, whichever is legible.
_GROUPS: Final = (
    ("#e69f00", "#000"),
    ("#56b4e9", "#000"),
    ("#009e73", "#000"),
    ("#f0e442", "#000"),
    ("#0072b2", "#fff"),
    ("#d55e00", "#000"),
    ("#cc79a7", "#000"),
    ("#8c6bb1", "#fff"),
)


def _read(file: str) -> str:
    return files("gangplan.reporting").joinpath(file).read_text(encoding="utf-8").strip()


_PICTURE: Final = _read("picture.css") + "".join(
    [f"\n.f{i}{{fill:var(--f{i})}}.n{i}{{fill:var(--f{i}-ink)}}" for i in range(5)]
    + [f"\n.g{i}{{fill:{fill}}}.i{i}{{fill:{ink}}}" for i, (fill, ink) in enumerate(_GROUPS)]
)


def _variables(palette: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in palette.items())


PAGE_STYLE: Final = (
    f":root{{{_variables(_LIGHT)}}}\n"
    # Paper is white, whatever the screen was.
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_variables(_DARK)}}}}}\n"
    f"{_PICTURE}\n"
    + "".join(
        f".badge.g{i}{{background:{fill};color:{ink}}}\n" for i, (fill, ink) in enumerate(_GROUPS)
    )
    + _read("page.css")
)


def picture_style() -> str:
    """Return the style of a picture that stands alone: light, and dark where a browser says so."""
    light, dark = (
        re.sub(r"var\(--([a-z0-9-]+)\)", lambda m, p=palette: p[m[1]], _PICTURE)  # type: ignore[misc]
        for palette in (_LIGHT, _DARK)
    )
    return f"{light}\n@media (prefers-color-scheme:dark){{\n{dark}\n}}"
