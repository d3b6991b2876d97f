from __future__ import annotations

import time
from typing import Any

import pytest

from data.yaml_documents import YamlProblem, load_documents


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("no", False, id="no is a boolean"),
        pytest.param("'no'", "no", id="quoted no"),
        pytest.param("012", 10, id="octal"),
        pytest.param("0o12", 10, id="octal of YAML 1.2"),
        pytest.param("08", "08", id="not octal"),
        pytest.param("0x1F", 31, id="hexadecimal"),
        pytest.param("12:30", "12:30", id="no base 60"),
        pytest.param("2026-11-30T10:00:00Z", "2026-11-30T10:00:00Z", id="a time stays text"),
        pytest.param("1e3", "1e3", id="an exponent without a point is a quantity"),
        pytest.param("1.5", 1.5, id="fraction"),
        pytest.param("1_000", 1000, id="underscore"),
        pytest.param("-7", -7, id="negative"),
        pytest.param("~", None, id="null"),
        pytest.param("100m", "100m", id="quantity"),
    ],
)
def test_scalars(text: str, want: object) -> None:
    assert list(load_documents(f"a: {text}".encode())) == [{"a": want}]


def test_documents_and_honest_aliases() -> None:
    text = b"a: &x [1, 2]\nb: *x\n---\n---\nc: {<<: &y {d: 1}, e: 2}\n"
    want: list[Any] = [{"a": [1, 2], "b": [1, 2]}, None, {"c": {"d": 1, "e": 2}}]
    assert list(load_documents(text)) == want


def bomb(first: str, rest: str, levels: int) -> bytes:
    lines = [f"l0: &l0 {first}"]
    for i in range(1, levels):
        lines.append(f"l{i}: &l{i} " + rest.replace("REF", f"*l{i - 1}"))
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("data", "want_message"),
    [
        pytest.param(bomb("[x]", "[" + ", ".join(["REF"] * 9) + "]", 12), "aliases", id="laughs"),
        pytest.param(
            bomb("{k: 1}", "{<<: [" + ", ".join(["REF"] * 9) + "]}", 12), "aliases", id="merges"
        ),
        pytest.param(bomb("[x]", "[REF, REF]", 5000), "aliases", id="long chain"),
        pytest.param(b"a: &a [*a]", "contains itself", id="list in itself"),
        pytest.param(b"a: &a {b: {c: *a}}", "contains itself", id="map in itself"),
        pytest.param(b"[" * 1_000_000, "nesting", id="deep lists"),
        pytest.param(b"- " * 1_000_000, "nesting", id="deep blocks"),
        pytest.param(b"a: " + b"9" * 1_000_000, "digits", id="giant integer"),
        pytest.param(b"a: 0x" + b"f" * 1_000_000, "digits", id="giant hexadecimal"),
        pytest.param(b"a: .nan", "not a number", id="nan"),
        pytest.param(b"a: !!python/object:os.system x", "constructor", id="python object"),
        pytest.param(b"a: !!binary aGk=", "constructor", id="binary"),
        pytest.param(b"a: \x00", "control characters", id="NUL"),
        pytest.param(b"a: \xff\xfe\xfd", "UTF-8|utf-8|utf8|invalid", id="not UTF-8"),
        pytest.param(b"{? [a]: b}", "unhashable", id="list as key"),
        pytest.param(b"a: b: c", "line 1, column 5", id="names the place"),
    ],
)
def test_refuses_quickly(data: bytes, want_message: str) -> None:
    start = time.perf_counter()
    with pytest.raises(YamlProblem, match=want_message) as caught:
        list(load_documents(data))
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - start < 2
