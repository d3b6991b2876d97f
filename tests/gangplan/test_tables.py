"""Columns and lines."""

from __future__ import annotations

import time

import pytest

from gangplan.streams import escape_line
from gangplan.tables import format_share, format_table


def test_columns() -> None:
    rows = [["a", 1, None], ["longer-name", "", 0]]
    want = "NAME          N        Z\na             1        <none>\nlonger-name   <none>   0"
    assert format_table(["NAME", "N", "Z"], rows) == want


def test_no_rows() -> None:
    assert format_table(["NAME", "N"], []) == "NAME   N"


def test_many_rows() -> None:
    start = time.perf_counter()
    format_table(["A", "B", "C", "D"], [[f"node-{i}", i, i, None] for i in range(20_000)])
    assert time.perf_counter() - start < 2


@pytest.mark.parametrize(
    ("part", "whole", "want"),
    [(0, 0, "0"), (0, 8, "0 (0%)"), (1, 3, "1 (33%)"), (5, 8, "5 (63%)"), (8, 8, "8 (100%)")],
)
def test_share(part: int, whole: int, want: str) -> None:
    assert format_share(part, whole) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("näme-1 „x“", "näme-1 „x“", id="printable"),
        pytest.param("a\nerror: b", "a\\nerror: b", id="line break"),
        pytest.param("\x1b[31mred", "\\x1b[31mred", id="escape sequence"),
        pytest.param("a\u2028b\u202ec", "a\\u2028b\\u202ec", id="separators and overrides"),
    ],
)
def test_escape_line(text: str, want: str) -> None:
    assert escape_line(text) == want
