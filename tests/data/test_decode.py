from __future__ import annotations

import json
from typing import Any

import pytest

from data.decode import read_items
from data.problems import decode_body
from topology.errors import SnapshotError

A = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}
B = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "note": "}\n{"}}
BARE = {"metadata": {"name": "c"}}


def listing(*items: object, kind: str = "List") -> dict[str, Any]:
    return {"kind": kind, "apiVersion": "v1", "items": list(items)}


def found(data: bytes, file: str = "f.json") -> list[tuple[str, str, str]]:
    result = []
    for item in read_items(data, file):
        metadata = decode_body(item).get("metadata") if item.body is not None else None
        result.append((item.api_version, item.kind, (metadata or {}).get("name", "")))
    return result


def dump(*documents: object, between: str = "\n", indent: int | None = 2) -> bytes:
    return between.join(json.dumps(d, indent=indent) for d in documents).encode()


ALL = [("v1", "Node", "a"), ("v1", "Pod", "b")]


@pytest.mark.parametrize(
    ("data", "want"),
    [
        pytest.param(dump(A), ALL[:1], id="one object"),
        pytest.param(b"\xef\xbb\xbf" + dump(A), ALL[:1], id="byte order mark"),
        pytest.param(dump(listing(A, B)), ALL, id="List"),
        pytest.param(dump(listing(listing(A), B)), ALL, id="List in a List"),
        pytest.param(dump([A, B]), ALL, id="array, as jq .items prints"),
        pytest.param(dump(A, B), ALL, id="two documents, printed wide"),
        pytest.param(dump(A, B, indent=None), ALL, id="one a line"),
        pytest.param(dump(A, B, between="", indent=None), ALL, id="no line break between"),
        pytest.param(dump(listing(A), listing(B)), ALL, id="two Lists"),
        pytest.param(
            dump(listing(BARE, kind="NodeList")), [("v1", "Node", "c")], id="typed list, bare items"
        ),
        pytest.param(
            dump(A, listing(BARE, kind="PodList"), between="", indent=None),
            [ALL[0], ("v1", "Pod", "c")],
            id="typed list after another document",
        ),
        pytest.param(
            dump({"kind": "List", "apiVersion": "v1", "items": None}), [], id="null items"
        ),
        pytest.param(dump(BARE), [("", "", "c")], id="says no kind"),
        pytest.param(
            dump({"kind": 1, "apiVersion": "v1"}), [("v1", "", "")], id="kind of the wrong type"
        ),
        pytest.param(dump(listing(5, A)), [("", "", ""), ALL[0]], id="item that is no object"),
        pytest.param(
            dump(
                {"config": {}, "rawObjects": {"pods": [BARE], "queues": [BARE], "csiDrivers": [1]}}
            ),
            [("v1", "Pod", "c"), ("scheduling.run.ai/v2", "Queue", "c")],
            id="content of a KAI snapshot",
        ),
        pytest.param(dump({"rawObjects": {"pods": None}}), [], id="KAI snapshot without pods"),
    ],
)
def test_json(data: bytes, want: list[tuple[str, str, str]]) -> None:
    assert found(data) == want


YAML_A = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\n"
YAML_B = "apiVersion: v1\nkind: Pod\nmetadata: {name: b}\n"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(YAML_A, ALL[:1], id="one object"),
        pytest.param(f"---\n{YAML_A}---\n---\n{YAML_B}...\n", ALL, id="several documents"),
        pytest.param("{apiVersion: v1, kind: Node, metadata: {name: a}}", ALL[:1], id="flow style"),
        pytest.param(
            "apiVersion: v1\nkind: NodeList\nitems:\n- metadata: {name: c}\n",
            [("v1", "Node", "c")],
            id="typed list",
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems: 5\n", [("v1", "List", "")], id="items not a list"
        ),
        pytest.param("- 1\n", [("", "", "")], id="a list of numbers"),
        pytest.param("", [], id="empty"),
        pytest.param("# nothing\n", [], id="a comment"),
    ],
)
def test_yaml(text: str, want: list[tuple[str, str, str]]) -> None:
    assert found(text.encode(), "f.yaml") == want


@pytest.mark.parametrize(
    ("data", "want_message"),
    [
        pytest.param(dump(listing(A, B))[:-20], "truncated", id="cut short"),
        pytest.param(
            dump(A) + b"\n" + dump(B)[:-9], "document 2: .*truncated", id="second cut short"
        ),
        pytest.param(b"{" + b'"a":{' * 100_000, "nested too deeply", id="deep objects"),
        pytest.param(b"[" * 100_000, "nested too deeply", id="deep arrays"),
        pytest.param(b'{"a":NaN}', "not valid JSON", id="NaN"),
        pytest.param(dump(A) + b"\0", "not valid JSON", id="NUL after the end"),
        pytest.param(b'{"kind":"\xff\xfe"}', "not valid JSON", id="not UTF-8"),
        pytest.param(b'{"kind":"List","items":5}', "not valid JSON", id="items not a list"),
    ],
)
def test_refuses(data: bytes, want_message: str) -> None:
    with pytest.raises(SnapshotError, match=want_message) as caught:
        found(data)
    assert str(caught.value).startswith("f.json: ")
    assert "\n" not in str(caught.value)
