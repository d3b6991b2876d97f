"""The graph of domains: networkx for nesting, ancestors and drawing; checks that labels make sense.

Vertices are ("key", value...) tuples for domains, ("node", name) for machines and ("fleet",) for
the root; edges point from the wider to the narrower.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.levels import NO_DOMAIN, build_column, find_keys_in_use, find_paths, nests_in
from topology.model import HOSTNAME

if TYPE_CHECKING:
    import networkx as nx

    from topology.levels import DomainColumn
    from topology.model import Snapshot

__all__ = ["ROOT", "build_graph", "check_topology", "find_trees"]

ROOT = ("fleet",)


def find_trees(columns: list[DomainColumn]) -> list[list[DomainColumn]]:
    """Sort levels into trees: in each, every level nests in the one before it.

    Keys that do not nest (NVLink cliques across racks) start a tree of their own. Widest first;
    levels with the same number of domains stay in order of their keys.
    """
    trees: list[list[DomainColumn]] = []
    for column in sorted(columns, key=lambda c: (len(c.values), c.path)):
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
    for i, node in enumerate(snapshot.nodes):
        graph.add_node(("node", node.name), index=i)
    for tree in trees:
        above = [ROOT] * len(snapshot.nodes)
        for column in tree:
            sizes = np.bincount(column.codes[column.codes != NO_DOMAIN])
            for i, code in enumerate(column.codes.tolist()):
                if code == NO_DOMAIN:
                    continue
                vertex = (column.key, *column.values[code])
                if vertex not in graph:
                    graph.add_node(
                        vertex,
                        key=column.key,
                        value=column.values[code][-1],
                        num_nodes=int(sizes[code]),
                    )
                graph.add_edge(above[i], vertex)
                above[i] = vertex
        for i, node in enumerate(snapshot.nodes):
            graph.add_edge(above[i], ("node", node.name))
    return graph


def check_topology(snapshot: Snapshot) -> tuple[str, ...]:
    """Report what about the topology labels may surprise a user, one line each.

    Same value under two parents (merged into one domain by a flat constraint), keys that no node
    carries, nodes that lack a key that groups require.

    Source: kube-scheduler compares the value of one label alone.
    """
    lines: list[str] = []
    required = {path for path in find_paths(snapshot.groups)}
    for path in sorted(required):
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
    keys = sorted({path[-1] for path in required if len(path) == 1})
    in_use = [k for k in find_keys_in_use(snapshot) if k != HOSTNAME]
    for key in keys:
        lines += _find_shared_values(snapshot, key, in_use)
    return tuple(lines)


def _find_shared_values(snapshot: Snapshot, key: str, in_use: list[str]) -> list[str]:
    """Report values of `key` that stand under several domains of a plainly wider key."""
    column = build_column(snapshot.nodes, (key,))
    lines = []
    for other in in_use:
        wider = build_column(snapshot.nodes, (other,))
        both = (column.codes != NO_DOMAIN) & (wider.codes != NO_DOMAIN)
        if other == key or not both.any() or len(wider.values) >= len(column.values):
            continue
        pairs = np.unique(np.stack([column.codes[both], wider.codes[both]]), axis=1)
        counts = np.bincount(pairs[0], minlength=len(column.values))
        shared = np.flatnonzero(counts > 1)
        # A key most of whose values cross is a second tree, not a mistake in labelling.
        if shared.size and shared.size * 2 <= (counts > 0).sum():
            names = ", ".join(column.names[d] for d in shared[:3].tolist())
            lines.append(
                f"{shared.size} values of {key} stand under several values of {other} ({names}): a "
                f"group that requires {key} sees each as one domain; make the labels unique"
            )
    return lines
