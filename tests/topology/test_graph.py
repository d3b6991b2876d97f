from __future__ import annotations

import networkx as nx
import pytest
from builders import RACK, make_group, make_node, make_snapshot

from topology.graph import ROOT, build_graph, check_topology, find_trees
from topology.levels import build_column
from topology.model import Node, Snapshot, TopologyTerm

BLOCK = "topo.example.com/block"
CLIQUE = "nvidia.com/gpu.clique"
CELL = "example.com/cell"


def place(name: str, **labels: str) -> Node:
    keys = {"block": BLOCK, "rack": RACK, "clique": CLIQUE, "cell": CELL}
    return make_node(name, labels={keys[key]: value for key, value in labels.items()})


def ask(nodes: list[Node], *required: str | tuple[str, ...]) -> Snapshot:
    """A snapshot whose groups require these keys or paths."""
    paths = [(key,) if isinstance(key, str) else key for key in required]
    groups = [
        make_group(f"ml/g{i}", 1, topology=(TopologyTerm(path),)) for i, path in enumerate(paths)
    ]
    return make_snapshot(nodes, groups=groups)


NESTED = [
    place("n1", block="b1", rack="r1"),
    place("n2", block="b1", rack="r1"),
    place("n3", block="b1", rack="r2"),
    place("n4", block="b2", rack="r3"),
]
# Cliques of two nodes that do not care where a rack ends.
CROSSING = [
    place("n1", rack="r1", clique="c1"),
    place("n2", rack="r1", clique="c2"),
    place("n3", rack="r2", clique="c2"),
    place("n4", rack="r2", clique="c3"),
]


@pytest.mark.parametrize(
    ("nodes", "want_trees"),
    [
        pytest.param(NESTED, [[BLOCK, RACK]], id="racks nest in blocks"),
        pytest.param(CROSSING, [[RACK], [CLIQUE]], id="cliques across racks: a second tree"),
        pytest.param(
            [
                place("n1", block="b1", rack="r1", clique="c1"),
                place("n2", block="b1", rack="r1", clique="c2"),
                place("n3", block="b1", rack="r2", clique="c2"),
                place("n4", block="b2", rack="r3", clique="c4"),
                place("n5", block="b2", rack="r3", clique="c5"),
            ],
            [[BLOCK, RACK], [CLIQUE]],
            id="cliques that nest in blocks but not in racks",
        ),
        pytest.param(
            [place("n1", block="b1", rack="r1"), place("n2", block="b2", rack="r1")],
            [[RACK, BLOCK]],
            id="one rack name in two blocks: the rack is the wider",
        ),
        pytest.param(
            [
                place("n1", block="b1", rack="r1"),
                place("n2", block="b2", rack="r1"),
                place("n3", block="b2", rack="r2"),
                place("n4", block="b2", rack="r3"),
            ],
            [[BLOCK], [RACK]],
            id="one rack name in two blocks of several",
        ),
        pytest.param(
            [place("n1", block="b1", rack="r1"), place("n2", rack="r2")],
            [[BLOCK], [RACK]],
            id="a rack in no block",
        ),
        pytest.param(
            [place("n1", block="b1", rack="r1"), place("n2", rack="r1")],
            [[RACK, BLOCK]],
            id="as many domains: the label that more nodes carry is the wider",
        ),
        pytest.param([place("n1", rack="r1")], [[RACK]], id="a label no node has is no level"),
        pytest.param([], [], id="no nodes"),
    ],
)
def test_find_trees(nodes: list[Node], want_trees: list[list[str]]) -> None:
    columns = [build_column(nodes, (key,)) for key in (CLIQUE, RACK, BLOCK)]
    found = [[column.key for column in tree] for tree in find_trees(columns)]
    assert found == want_trees


def edges(graph: nx.DiGraph) -> list[str]:
    return sorted(f"{a[-1]}>{b[-1]}" for a, b in graph.edges)


@pytest.mark.parametrize(
    ("nodes", "want_edges"),
    [
        pytest.param(
            NESTED,
            "fleet>b1 fleet>b2 b1>r1 b1>r2 b2>r3 r1>n1 r1>n2 r2>n3 r3>n4",
            id="one tree",
        ),
        pytest.param(
            CROSSING,
            "fleet>r1 fleet>r2 r1>n1 r1>n2 r2>n3 r2>n4 "
            "fleet>c1 fleet>c2 fleet>c3 c1>n1 c2>n2 c2>n3 c3>n4",
            id="two trees: a parent in each",
        ),
        pytest.param(
            [place("n1", block="b1", rack="r1"), place("n2", block="b1"), place("n3")],
            "fleet>b1 b1>r1 r1>n1 b1>n2 fleet>n3",
            id="missing labels: below what is known",
        ),
        pytest.param([place("n1"), place("n2")], "fleet>n1 fleet>n2", id="no labels"),
        pytest.param([], "", id="no nodes"),
    ],
)
def test_build_graph(nodes: list[Node], want_edges: str) -> None:
    graph = build_graph(make_snapshot(nodes))
    assert edges(graph) == sorted(want_edges.split())
    assert nx.is_directed_acyclic_graph(graph)
    assert ROOT in graph


def test_vertices_say_what_they_are() -> None:
    graph = build_graph(make_snapshot(NESTED))
    assert graph.nodes[BLOCK, "b1"] == {"key": BLOCK, "value": "b1", "num_nodes": 3}
    assert graph.nodes[RACK, "r1"] == {"key": RACK, "value": "r1", "num_nodes": 2}
    assert graph.nodes["node", "n4"] == {"index": 3}
    assert nx.ancestors(graph, ("node", "n3")) == {ROOT, (BLOCK, "b1"), (RACK, "r2")}
    # Uneven domains: three nodes below b1, one below b2.
    below = nx.descendants(graph, (BLOCK, "b1"))
    assert {v[1] for v in below if v[0] == "node"} == {"n1", "n2", "n3"}


def test_a_key_that_only_groups_know_adds_no_edge() -> None:
    assert edges(build_graph(ask(NESTED, CELL))) == edges(build_graph(make_snapshot(NESTED)))


@pytest.mark.parametrize(
    ("nodes", "required", "want_lines"),
    [
        pytest.param(NESTED, [RACK, BLOCK], [], id="nothing to say"),
        pytest.param(
            NESTED,
            [CELL],
            [
                f"no node carries the label {CELL}, which groups require: they cannot be placed; "
                "label the nodes"
            ],
            id="a key that no node carries",
        ),
        pytest.param(
            [*NESTED, place("n5", block="b2"), place("n6")],
            [RACK],
            [f"2 of 6 nodes lack the label {RACK} and are in no such domain"],
            id="nodes without the label",
        ),
        pytest.param([*NESTED, place("n5")], [], [], id="nobody requires it"),
        pytest.param(
            [*NESTED, place("n5", block="b2", rack="r1")],
            [RACK],
            [
                f"1 values of {RACK} stand under several values of {BLOCK} (r1): a group that "
                f"requires {RACK} sees each as one domain; make the labels unique"
            ],
            id="the same rack name in two blocks",
        ),
        pytest.param(
            [*NESTED, place("n5", block="b2", rack="r1")],
            [(BLOCK, RACK)],
            [],
            id="a path tells the two apart",
        ),
        pytest.param(
            [
                place("n1", rack="r1", clique="c1"),
                place("n2", rack="r2", clique="c1"),
                place("n3", rack="r1", clique="c2"),
                place("n4", rack="r2", clique="c2"),
                place("n5", rack="r2", clique="c3"),
            ],
            [CLIQUE],
            [],
            id="cliques that mostly cross racks are a second tree",
        ),
        pytest.param([], [RACK], [f"no node carries the label {RACK}, "], id="no nodes"),
    ],
)
def test_check_topology(
    nodes: list[Node], required: list[str | tuple[str, ...]], want_lines: list[str]
) -> None:
    found = check_topology(ask(nodes, *required))
    assert len(found) == len(want_lines)
    for line, want in zip(found, want_lines, strict=True):
        assert line.startswith(want)
