from __future__ import annotations

import numpy as np
import pytest
from builders import make_node, make_spec
from hypothesis import given
from hypothesis import strategies as st

from topology.masks import NodeFilters
from topology.model import (
    ClaimNeed,
    Node,
    PodSpec,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
)
from topology.selectors import find_untolerated, matches_node_affinity, matches_terms

FLEET = [
    make_node("n0", labels={"pool": "a", "size": "8"}),
    make_node("n1", labels={"pool": "b", "size": "80"}, taints=[Taint("gpu", "yes")]),
    make_node("n2", labels={"pool": "b"}, unschedulable=True),
    make_node("n3", ready=False),
]


def term(key: str, operator: str, *values: str) -> tuple[SelectorTerm, ...]:
    return (SelectorTerm((Requirement(key, operator, values),)),)


@pytest.mark.parametrize(
    ("spec", "want_affinity", "want_taints"),
    [
        pytest.param(make_spec(), "1111", "1001", id="plain pod"),
        pytest.param(make_spec(node_selector=(("pool", "b"),)), "0110", "1001", id="pool b"),
        pytest.param(make_spec(node_selector=(("pool", "z"),)), "0000", "1001", id="no such pool"),
        pytest.param(make_spec(node_terms=()), "0000", "1001", id="no terms"),
        pytest.param(make_spec(node_terms=term("pool", "NotIn", "b")), "1001", "1001", id="not b"),
        pytest.param(make_spec(node_terms=term("size", "Gt", "9")), "0100", "1001", id="above 9"),
        pytest.param(
            make_spec(tolerations=(Toleration("gpu", "Exists"),)), "1111", "1101", id="tolerates"
        ),
        pytest.param(
            make_spec(tolerations=(Toleration("", "Exists"),)), "1111", "1111", id="tolerates all"
        ),
        pytest.param(
            make_spec(claims=(ClaimNeed("c", allocated_nodes=term("pool", "In", "a")),)),
            "1000",
            "1001",
            id="nodes of an allocated claim",
        ),
        pytest.param(
            make_spec(claims=(ClaimNeed("c", allocated_nodes=()), ClaimNeed("d"))),
            "1111",
            "1001",
            id="claims that bind to no node",
        ),
        pytest.param(
            make_spec(
                node_terms=term("pool", "Exists"),
                claims=(ClaimNeed("c", allocated_nodes=term("pool", "In", "b")),),
            ),
            "0110",
            "1001",
            id="affinity and claim",
        ),
    ],
)
def test_masks(spec: PodSpec, want_affinity: str, want_taints: str) -> None:
    masks = NodeFilters(FLEET).evaluate(spec)
    assert "".join(str(int(x)) for x in masks.affinity) == want_affinity
    assert "".join(str(int(x)) for x in masks.taints) == want_taints
    assert masks.ready.tolist() == [True, True, True, False]


def test_specs_that_differ_do_not_share_a_mask() -> None:
    filters = NodeFilters(FLEET)
    wide = filters.evaluate(make_spec(node_terms=term("pool", "Exists")))
    narrow = filters.evaluate(
        make_spec(
            node_terms=term("pool", "Exists"),
            claims=(ClaimNeed("c", allocated_nodes=term("pool", "In", "a")),),
        )
    )
    again = filters.evaluate(make_spec(gpus=8, node_terms=term("pool", "Exists")))
    assert np.array_equal(wide.affinity, again.affinity)
    assert not np.array_equal(wide.affinity, narrow.affinity)


def test_empty_fleet() -> None:
    masks = NodeFilters([]).evaluate(make_spec(node_terms=term("pool", "In", "a")))
    assert [len(mask) for mask in masks] == [0, 0, 0]


KEYS = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(
    ["", "x", "y", "5", "-3", "+7", "007", f"{5:025}", "1_0", " 5", str(2**63)]
)
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Like"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
EXPRESSIONS = st.builds(Requirement, KEYS, OPERATORS, st.lists(VALUES, max_size=2).map(tuple))
FIELDS = st.builds(
    Requirement,
    st.sampled_from(["metadata.name", "metadata.uid"]),
    st.sampled_from(["In", "NotIn", "Exists"]),
    st.lists(st.sampled_from(["n0", "n1", "gone"]), max_size=2).map(tuple),
)
TERMS = st.lists(
    st.builds(
        SelectorTerm,
        st.lists(EXPRESSIONS, max_size=2).map(tuple),
        st.lists(FIELDS, max_size=1).map(tuple),
    ),
    max_size=2,
).map(tuple)
TAINTS = st.builds(Taint, KEYS, VALUES, EFFECTS)
TOLERATIONS = st.builds(
    Toleration,
    st.sampled_from(["", "a", "b", "node.kubernetes.io/unschedulable"]),
    st.sampled_from(["", "Equal", "Exists", "Lt", "Gt", "Like"]),
    VALUES,
    st.sampled_from(["", "NoSchedule", "NoExecute"]),
)
NODES = st.lists(
    st.builds(
        make_node,
        st.just("n"),
        labels=st.dictionaries(KEYS, VALUES),
        taints=st.lists(TAINTS, max_size=2),
        unschedulable=st.booleans(),
        ready=st.booleans(),
    ),
    max_size=4,
)
SPECS = st.builds(
    PodSpec,
    node_selector=st.lists(st.tuples(KEYS, VALUES), max_size=1).map(tuple),
    node_terms=st.none() | TERMS,
    tolerations=st.lists(TOLERATIONS, max_size=2).map(tuple),
    claims=st.lists(
        st.builds(ClaimNeed, st.just("c"), allocated_nodes=st.none() | TERMS), max_size=2
    ).map(tuple),
)


@given(NODES, st.lists(SPECS, min_size=1, max_size=3))
def test_whole_fleets_and_single_nodes_agree(nodes: list[Node], specs: list[PodSpec]) -> None:
    fleet = [
        Node(f"n{i}", n.labels, n.allocatable, n.taints, n.unschedulable, n.ready)
        for i, n in enumerate(nodes)
    ]
    filters = NodeFilters(fleet)
    for spec in specs:
        masks = filters.evaluate(spec)
        bound = [claim.allocated_nodes for claim in spec.claims if claim.allocated_nodes]
        want_affinity = [
            matches_node_affinity(spec, n) and all(matches_terms(t, n) for t in bound)
            for n in fleet
        ]
        assert masks.affinity.tolist() == want_affinity
        assert masks.taints.tolist() == [find_untolerated(spec, n) is None for n in fleet]
        assert masks.ready.tolist() == [n.ready for n in fleet]
