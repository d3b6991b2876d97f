from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import make_node
from importer_builders import lines_of, make_context, make_object

from data.importers.hypernode import Tiers, import_hypernodes

if TYPE_CHECKING:
    from data.importers.base import RawObject

NODES = [make_node(n, labels={"su": n[0]}) for n in ("a0", "a1", "b0", "b1", "c0")]


def make_hypernode(name: str, tier: int, *members: dict[str, Any], **spec: Any) -> RawObject:
    return make_object(
        "topology.volcano.sh/v1alpha1/HyperNode",
        name,
        {"tier": tier, "members": list(members), **spec},
        namespace="",
    )


def exact(name: str, kind: str = "Node") -> dict[str, Any]:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def regex(pattern: str, kind: str = "Node") -> dict[str, Any]:
    return {"type": kind, "selector": {"regexMatch": {"pattern": pattern}}}


def labelled(**labels: str) -> dict[str, Any]:
    return {"type": "Node", "selector": {"labelMatch": {"matchLabels": labels}}}


def read(*objects: RawObject) -> tuple[dict[str, dict[str, str]], list[str], Tiers]:
    """Labels without their prefix by node, errors, tiers."""
    context = make_context(*objects, nodes=NODES)
    tiers = import_hypernodes(context)
    labels = {
        name: {
            key.removeprefix("hypernode/tier-"): value
            for key, value in node.labels.items()
            if key.startswith("hypernode/")
        }
        for name, node in context.nodes.items()
    }
    return labels, lines_of(context), tiers


def test_tree() -> None:
    labels, errors, tiers = read(
        make_hypernode("sa", 1, exact("a0"), exact("a1"), tierName="rack"),
        make_hypernode("sb", 1, labelled(su="b"), tierName="rack"),
        make_hypernode("sc", 1, regex("^c"), tierName="rack"),
        make_hypernode(
            "top", 2, exact("sa", "HyperNode"), regex("^s[b]$", "HyperNode"), tierName="spine"
        ),
    )
    assert labels == {
        "a0": {"1": "sa", "2": "top"},
        "a1": {"1": "sa", "2": "top"},
        "b0": {"1": "sb", "2": "top"},
        "b1": {"1": "sb", "2": "top"},
        "c0": {"1": "sc"},
    }
    assert errors == []
    assert tiers == Tiers({"rack": 1, "spine": 2}, (1, 2), {2: 1})


def test_nodes_beside_hypernodes() -> None:
    """A wide HyperNode may hold nodes itself; they are in no closer tier."""
    labels, errors, tiers = read(
        make_hypernode("sa", 1, labelled(su="a")),
        make_hypernode("top", 3, exact("sa", "HyperNode"), labelled(su="b")),
    )
    assert (labels["a0"], labels["b0"], labels["c0"]) == ({"1": "sa", "3": "top"}, {"3": "top"}, {})
    assert errors == []
    assert (tiers.numbers, tiers.uncovered) == ((1, 3), {1: 3, 3: 1})


@pytest.mark.parametrize(
    ("objects", "want_errors", "want_a0"),
    [
        pytest.param(
            [make_hypernode("x", 1, exact("a0")), make_hypernode("y", 1, exact("a0"))],
            ["y: spec.members"],
            {"1": "x"},
            id="a node in two of one tier",
        ),
        pytest.param(
            [
                make_hypernode("s", 1, exact("a0")),
                make_hypernode("x", 2, exact("s", "HyperNode")),
                make_hypernode("y", 2, exact("s", "HyperNode")),
            ],
            ["y: spec.members[0].selector"],
            {"1": "s", "2": "x"},
            id="two parents",
        ),
        pytest.param(
            [
                make_hypernode("s", 2, exact("a0"), exact("x", "HyperNode")),
                make_hypernode("x", 2, exact("s", "HyperNode")),
            ],
            ["s: spec.members[1].selector", "x: spec.members[0].selector"],
            {"2": "s"},
            id="a cycle of one tier",
        ),
        pytest.param(
            [make_hypernode("s", 1, exact("a0"), exact("s", "HyperNode"))],
            [],
            {"1": "s"},
            id="itself",
        ),
        pytest.param(
            [make_hypernode("s", 1, regex("("))],
            ["s: spec.members[0].selector.regexMatch.pattern"],
            {},
            id="broken expression",
        ),
        pytest.param(
            [make_hypernode("s", 1, regex("(a|a)*b"))],
            ["s: spec.members[0].selector.regexMatch.pattern"],
            {},
            id="expression that could run for ever",
        ),
        pytest.param(
            [make_hypernode("s", 1, {"type": "Rack", "selector": {}})],
            ["s: spec.members[0].type"],
            {},
            id="unknown type",
        ),
        pytest.param(
            [make_hypernode("s", 1, {"type": "Node", "selector": {}})],
            ["s: spec.members[0].selector"],
            {},
            id="no selector",
        ),
        pytest.param([make_hypernode("s", 0)], ["s: spec.tier"], {}, id="tier 0"),
        pytest.param([make_hypernode("s", 1, exact("zz"))], [], {}, id="unknown node"),
    ],
)
def test_what_is_no_tree(
    objects: list[RawObject], want_errors: list[str], want_a0: dict[str, str]
) -> None:
    labels, errors, _ = read(*objects)
    assert (errors, labels["a0"]) == (want_errors, want_a0)
