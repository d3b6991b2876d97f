"""Inspection documents, read back."""

from __future__ import annotations

from typing import Any

import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot

import gangplan
from data.inspection_documents import inspection_from_dict
from topology.errors import RequestError


def make_document() -> dict[str, Any]:
    snapshot = make_snapshot(
        [make_node("n0", rack="a")],
        make_pods("p", 2, group="ml/p"),
        groups=[make_group("ml/p", 2, key=RACK)],
    )
    return gangplan.inspect(snapshot).to_dict()


def test_read() -> None:
    found = inspection_from_dict({**make_document(), "added": "later"})
    assert found.nodes[0].allocatable[GPU] == "8"
    assert found.nodes[0].domains == {RACK: "a"}
    assert [(p.pod, p.node, p.state) for p in found.pods] == [
        ("ml/p-0", None, "pending"),
        ("ml/p-1", None, "pending"),
    ]
    assert (found.groups[0].pending, found.groups[0].topology[0].key) == (2, RACK)
    assert found.fragmentation.levels["node"].whole_free_gpus == 8


@pytest.mark.parametrize(
    ("key", "value", "want_message"),
    [
        pytest.param("nodes", {}, r"Expected `array`, got `object` - at `\$.nodes`", id="type"),
        pytest.param("pods", [{}], r"missing required field `pod` - at `\$.pods", id="missing"),
        pytest.param("warnings", [1], r"at `\$.warnings", id="inside a list"),
    ],
)
def test_refusals(key: str, value: object, want_message: str) -> None:
    with pytest.raises(RequestError, match=want_message):
        inspection_from_dict({**make_document(), key: value})
