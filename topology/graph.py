"""The graph of domains: networkx for nesting, ancestors and drawing; checks that labels make sense.

Vertices are ("key", value...) tuples for domains, ("node", name) for machines and ("fleet",) for
the root; edges point from the wider to the narrower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.levels import (
    NO_DOMAIN,
    build_column,
    count_parents,
    find_keys_in_use,
    find_paths,
    nests_in,
)
from topology.model import HOSTNAME

if TYPE_CHECKING:
    import networkx as nx

    from topology.levels import DomainColumn
    from topology.model import Snapshot

__all__ = ["ROOT", "build_graph", "check_topology", "find_trees"]

ROOT = ("fleet",)


def find_trees(columns: list[DomainColumn]) -> list[list[DomainColumn]]:
    """Sort levels into trees: in each, every level nests in the one before it.

    Keys that do not nest (NVLink cliques across racks) start a tree of their own. Widest first; of
    levels with the same number of domains the one that more nodes carry, then in order of keys. A
    level without any domain is in no tree.
    """
    trees: list[list[DomainColumn]] = []
    carried = {c.path: int((c.codes != NO_DOMAIN).sum()) for c in columns}
    used = [c for c in columns if c.values]
    for column in sorted(used, key=lambda c: (len(c.values), -carried[c.path], c.path)):
        home = next((tree for tree in trees if nests_in(column, tree[-1])), None)
        if home is None:
            trees.append([column])
        else:
            home.append(column)
    return trees


def build_graph(snapshot: Snapshot) -> nx.DiGraph[tuple[str, ...]]:
    """Build the graph of all topology keys in use.

    Returns:
      A directed acyclic graph from ROOT over domains to nodes. Node vertices carry `index`;
      domain vertices `key`, `value` and `num_nodes`. With several trees a machine has one parent
      in each.
    """
    import networkx as nx

    graph: nx.DiGraph[tuple[str, ...]] = nx.DiGraph()
    graph.add_node(ROOT)
    keys = [k for k in find_keys_in_use(snapshot) if k != HOSTNAME]
    trees = find_trees([build_column(snapshot.nodes, (k,)) for k in keys])
    machines = [("node", node.name) for node in snapshot.nodes]
    graph.add_nodes_from((vertex, {"index": i}) for i, vertex in enumerate(machines))
    for tree in trees or [[]]:
        vertices: list[tuple[str, ...]] = [ROOT]
        above = np.zeros(len(machines), np.int64)  # index into `vertices`
        for column in tree:
            inside = np.flatnonzero(column.codes != NO_DOMAIN)
            # Levels of a tree nest, so any one node of a domain tells what is above it.
            _, first = np.unique(column.codes[inside], return_index=True)
            sizes = np.bincount(column.codes[inside]).tolist()
            parents = above[inside[first]].tolist()
            above[inside] = len(vertices) + column.codes[inside]
            for value, parent, size in zip(column.values, parents, sizes, strict=True):
                vertex = (column.key, *value)
                graph.add_node(vertex, key=column.key, value=value[-1], num_nodes=size)
                graph.add_edge(vertices[parent], vertex)
                vertices.append(vertex)
        graph.add_edges_from(
            (vertices[a], machine) for a, machine in zip(above.tolist(), machines, strict=True)
        )
    return graph


def check_topology(snapshot: Snapshot) -> tuple[str, ...]:
    """Report what about the topology labels may surprise a user, one line each.

    Same value under two parents (merged into one domain by a flat constraint), keys that no node
    carries, nodes that lack a key that groups require.

    Source: kube-scheduler compares the value of one label alone.
    """
    lines: list[str] = []
    required = find_paths(snapshot.groups)
    for path in required:
        column = build_column(snapshot.nodes, path)
        lacking = int((column.codes == NO_DOMAIN).sum())
        if not column.values:
            lines.append(
                f"no node carries the label {column.key}, which groups require: they cannot be "
                "placed; label the nodes"
            )
        elif lacking:
            lines.append(
                f"{lacking} of {len(snapshot.nodes)} nodes lack the label {column.key} and are in "
                "no such domain"
            )
    flat = [path[-1] for path in required if len(path) == 1]
    if flat:
        in_use = [k for k in find_keys_in_use(snapshot) if k != HOSTNAME]
        columns = {k: build_column(snapshot.nodes, (k,)) for k in {*in_use, *flat}}
        for key in flat:
            lines += _find_shared_values(columns[key], [columns[k] for k in in_use])
    return tuple(lines)


def _find_shared_values(column: DomainColumn, in_use: list[DomainColumn]) -> list[str]:
    """Report values of a key that stand under several domains of a plainly wider key."""
    lines = []
    for wider in in_use:
        if len(wider.values) >= len(column.values):
            continue
        counts = count_parents(column, wider)
        shared = np.flatnonzero(counts > 1)
        # A key most of whose values cross is a second tree, not a mistake in labelling.
        if shared.size and shared.size * 2 <= (counts > 0).sum():
            names = ", ".join(column.names[d] for d in shared[:3].tolist())
            lines.append(
                f"{shared.size} values of {column.key} stand under several values of {wider.key} "
                f"({names}): a group that requires {column.key} sees each as one domain; make the "
                "labels unique"
            )
    return lines
