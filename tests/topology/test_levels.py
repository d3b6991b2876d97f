from __future__ import annotations

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_snapshot

from topology.levels import (
    DomainColumn,
    build_column,
    count_parents,
    find_keys_in_use,
    find_paths,
    is_topology_label,
    nests_in,
)
from topology.model import Exclusive, Node, SliceTerm, TopologyTerm

BLOCK = "topo.example.com/block"


@pytest.mark.parametrize(
    ("key", "want"),
    [
        pytest.param("topology.kubernetes.io/zone", True, id="zone"),
        pytest.param("nvidia.com/gpu.clique", True, id="NVLink clique"),
        pytest.param("topology.k8s.aws/network-node-layer-3", True, id="EKS layer"),
        pytest.param("cloud.google.com/gce-topology-host", True, id="GKE host"),
        pytest.param("network.topology.nvidia.com/spine", True, id="Topograph"),
        pytest.param("hypernode/tier-1", True, id="Volcano tier"),
        pytest.param("topology.example.com/su", True, id="scalable unit of one's own"),
        pytest.param("fabric.example.com/leaf", True, id="leaf of one's own"),
        pytest.param("example.com/rack", False, id="rack that says nothing of topology"),
        pytest.param("topology.example.com/owner", False, id="no level word"),
        pytest.param("kubernetes.io/hostname", False, id="hostname"),
        pytest.param("nvidia.com/gpu.product", False, id="product"),
        pytest.param("rack", False, id="bare word"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_is_topology_label(key: str, want: bool) -> None:
    assert is_topology_label(key) is want


def place(block: str | None, rack: str | None) -> Node:
    labels = {BLOCK: block, RACK: rack}
    return Node("n", {k: v for k, v in labels.items() if v is not None})


# Both blocks have a rack r1; one node has no rack, one no block, one neither.
FLEET = [
    place("b1", "r1"),
    place("b1", "r2"),
    place("b2", "r1"),
    place("b2", None),
    place(None, "r2"),
    place(None, None),
]


@pytest.mark.parametrize(
    ("path", "want_codes", "want_values"),
    [
        pytest.param(
            (RACK,), [0, 1, 0, -1, 1, -1], (("r1",), ("r2",)), id="one label: r1 is one domain"
        ),
        pytest.param(
            (BLOCK, RACK),
            [0, 1, 2, -1, -1, -1],
            (("b1", "r1"), ("b1", "r2"), ("b2", "r1")),
            id="a path: r1 of b1 is not r1 of b2",
        ),
        pytest.param((RACK, RACK), [0, 1, 0, -1, 1, -1], (("r1",) * 2, ("r2",) * 2), id="twice"),
        pytest.param(("gone",), [-1] * 6, (), id="a label that no node has"),
        pytest.param((BLOCK, "gone"), [-1] * 6, (), id="a path that no node has"),
    ],
)
def test_build_column(
    path: tuple[str, ...], want_codes: list[int], want_values: tuple[tuple[str, ...], ...]
) -> None:
    column = build_column(FLEET, path)
    assert column.codes.tolist() == want_codes
    assert column.codes.dtype == np.int32
    assert column.values == want_values
    assert column.key == path[-1]
    assert column.names == tuple(value[-1] for value in want_values)


def test_build_column_of_an_empty_fleet() -> None:
    column = build_column([], (BLOCK, RACK))
    assert (column.codes.tolist(), column.values) == ([], ())


def test_empty_label_value_is_a_domain() -> None:
    column = build_column([place(None, ""), place(None, "r1")], (RACK,))
    assert column.values == (("",), ("r1",))


def test_domains_sort_as_text() -> None:
    column = build_column([place(None, f"r{i}") for i in (10, 9, 1)], (RACK,))
    assert column.names == ("r1", "r10", "r9")


def level(codes: list[int]) -> DomainColumn:
    names = tuple((f"d{i}",) for i in range(max(codes, default=-1) + 1))
    return DomainColumn(("key",), np.array(codes, np.int32), names)


@pytest.mark.parametrize(
    ("inner", "outer", "want_parents", "want_nests"),
    [
        pytest.param([0, 0, 1, 2], [0, 0, 0, 1], [1, 1, 1], True, id="racks in blocks"),
        pytest.param([0, 0, 1, 1], [0, 0, 1, 1], [1, 1], True, id="the same partition"),
        pytest.param([0, 1, 1, 2], [0, 0, 1, 1], [1, 2, 1], False, id="clique across two racks"),
        pytest.param([0, 0, 1, 1], [0, 0, 0, 0], [1, 1], True, id="one wide domain"),
        pytest.param([0, 0, 1, 1], [0, -1, 1, 1], [1, 1], False, id="a node outside every block"),
        pytest.param([0, 0, 1, 1], [0, 0, -1, -1], [1, 0], False, id="a rack outside every block"),
        pytest.param([0, 0, -1, -1], [0, 0, 1, 1], [1], True, id="nodes without a rack"),
        pytest.param([-1, -1], [0, 0], [], True, id="no racks at all"),
        pytest.param([], [], [], True, id="no nodes"),
        pytest.param([0], [-1], [0], False, id="no blocks at all"),
    ],
)
def test_nesting(
    inner: list[int], outer: list[int], want_parents: list[int], want_nests: bool
) -> None:
    assert count_parents(level(inner), level(outer)).tolist() == want_parents
    assert nests_in(level(inner), level(outer)) is want_nests


def test_keys_and_paths_of_a_snapshot() -> None:
    snapshot = make_snapshot(
        [
            make_node("n1", rack="r1", labels={"example.com/pool": "x"}),
            make_node("n2", labels={BLOCK: "b1"}),
        ],
        groups=[
            make_group("ml/flat", 1, key="example.com/cell"),
            make_group("ml/nested", 1, topology=(TopologyTerm((BLOCK, "example.com/hall")),)),
            make_group("ml/cut", 1, slices=(SliceTerm((RACK,), 2),)),
            make_group("ml/alone", 1, exclusive=(Exclusive("ml", "example.com/row"),)),
            make_group("ml/again", 1, key="example.com/cell"),
        ],
    )
    assert find_paths(snapshot.groups) == (
        ("example.com/cell",),
        ("example.com/row",),
        (BLOCK, "example.com/hall"),
        (RACK,),
    )
    assert find_keys_in_use(snapshot) == (
        "example.com/cell",
        "example.com/hall",
        "example.com/row",
        BLOCK,
        RACK,
    )


def test_an_empty_fleet_uses_no_keys() -> None:
    assert find_keys_in_use(make_snapshot([])) == ()
