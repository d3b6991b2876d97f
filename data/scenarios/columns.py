"""Columns of pods taken, changed and joined; every function returns a new snapshot."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from topology.devices import move_nodes
from topology.disruption import release_pods, take_pods
from topology.model import NO_GROUP, NO_NODE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topology.model import Node, PodTable, Snapshot

__all__ = ["copy_tree", "join_pods", "keep_groups", "replace_nodes"]


def replace_nodes(snapshot: Snapshot, nodes: Sequence[Node]) -> Snapshot:
    """Return the snapshot with other nodes; pods follow the names of theirs.

    A pod on a node that is gone waits for one again: its controller makes it anew.
    """
    kept = tuple(sorted(nodes, key=lambda node: node.name))
    index = {node.name: n for n, node in enumerate(kept)}
    moved = np.array([index.get(node.name, -1) for node in snapshot.nodes] or [-1], np.int32)
    pods = snapshot.pods
    on_node = pods.node >= 0
    lost = np.flatnonzero(on_node & (moved[np.where(on_node, pods.node, 0)] < 0))
    snapshot = release_pods(snapshot, lost)
    pods = snapshot.pods
    columns: dict[str, Any] = {
        name: np.where(column >= 0, moved[np.maximum(column, 0)], column).astype(np.int32)
        for name, column in (("node", pods.node), ("nominated", pods.nominated))
    }
    columns["nominated"][columns["nominated"] < 0] = NO_NODE
    devices = move_nodes(snapshot.devices, moved[: len(snapshot.nodes)].tolist(), len(kept))
    return replace(snapshot, nodes=kept, pods=replace(pods, **columns), devices=devices)


def copy_tree(
    snapshot: Snapshot, tree: Sequence[int], suffix: str
) -> tuple[list[Any], list[int], list[str], NDArray[np.int64]]:
    """Return copies of a tree of groups and the rows of its pods, with names that end in suffix.

    Returns:
      Groups (their `parent` an index into the list, NO_GROUP for the root), the old indices, the
      refs of the pods, and the rows the pods are copies of.
    """
    index = {g: i for i, g in enumerate(tree)}
    groups = []
    for g in tree:
        group = snapshot.groups[g]
        head, mark, tail = group.ref.partition("#")
        parent = index.get(group.parent, NO_GROUP)
        groups.append(replace(group, ref=f"{head}{suffix}{mark}{tail}", parent=parent))
    pods = snapshot.pods
    rows = np.flatnonzero(np.isin(pods.group, np.array(tree, np.int32)) & pods.is_live)
    refs = [f"{pods.refs[p]}{suffix}" for p in rows.tolist()]
    return groups, list(tree), refs, rows


def join_pods(
    snapshot: Snapshot,
    groups: Sequence[Any],
    parents: Sequence[int],
    table: PodTable,
    group_of_pod: NDArray[np.int64],
) -> Snapshot:
    """Return the snapshot with more groups and pods that wait.

    Args:
      snapshot: The fleet.
      groups: New groups.
      parents: For each, the index of its parent in `groups`, or NO_GROUP.
      table: New pods, in any order; their group column is not read.
      group_of_pod: i64[P'], index into `groups`, or NO_GROUP.
    """
    offset = len(snapshot.groups)
    together = [
        *snapshot.groups,
        *(
            replace(group, parent=NO_GROUP if parent == NO_GROUP else offset + parent)
            for group, parent in zip(groups, parents, strict=True)
        ),
    ]
    order = sorted(range(len(together)), key=lambda g: together[g].ref)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    sorted_groups = tuple(
        replace(
            together[g],
            parent=NO_GROUP if together[g].parent == NO_GROUP else int(place[together[g].parent]),
        )
        for g in order
    )
    old = snapshot.pods
    specs, spec_of = _merge(old.specs, table.specs)
    labels, labels_of = _merge(
        [tuple(sorted(s.items())) for s in old.label_sets],
        [tuple(sorted(s.items())) for s in table.label_sets],
    )
    templates, template_of = _merge(old.templates, table.templates)
    refs = [*old.refs, *table.refs]
    rows = np.array(sorted(range(len(refs)), key=refs.__getitem__), np.int64)
    own_group = np.concatenate([old.group, np.where(group_of_pod < 0, -1, group_of_pod + offset)])
    columns: dict[str, Any] = {}
    for f in fields(old):
        column = getattr(old, f.name)
        if isinstance(column, np.ndarray):
            columns[f.name] = np.concatenate([column, getattr(table, f.name)])[rows].astype(
                column.dtype
            )
    columns["spec"] = np.concatenate([old.spec, spec_of[table.spec]])[rows].astype(np.int32)
    columns["labels"] = np.concatenate([old.labels, labels_of[table.labels]])[rows].astype(np.int32)
    columns["template"] = np.concatenate([old.template, template_of[table.template]])[rows].astype(
        np.int32
    )
    columns["group"] = np.where(own_group < 0, NO_GROUP, place[np.maximum(own_group, 0)])[
        rows
    ].astype(np.int32)
    pods = replace(
        old,
        refs=tuple(refs[p] for p in rows.tolist()),
        specs=tuple(specs),
        label_sets=tuple(dict(s) for s in labels),
        templates=tuple(templates),
        **columns,
    )
    return replace(snapshot, groups=sorted_groups, pods=pods)


def _merge(old: Sequence[Any], new: Sequence[Any]) -> tuple[list[Any], NDArray[np.int64]]:
    """Return the old entries with the new ones behind, and where each new one is."""
    entries = list(old)
    index = {entry: i for i, entry in enumerate(entries)}
    at = []
    for entry in new:
        if index.setdefault(entry, len(entries)) == len(entries):
            entries.append(entry)
        at.append(index[entry])
    return entries, np.array(at or [0], np.int64)


def keep_groups(snapshot: Snapshot, kept: Sequence[int]) -> Snapshot:
    """Return the snapshot with some groups alone; pods of the others are gone."""
    place: Mapping[int, int] = {g: i for i, g in enumerate(kept)}
    groups = tuple(
        replace(snapshot.groups[g], parent=place.get(snapshot.groups[g].parent, NO_GROUP))
        for g in kept
    )
    pods = snapshot.pods
    moved = np.array([place.get(g, -2) for g in range(len(snapshot.groups))] or [-2], np.int32)
    group = np.where(pods.group >= 0, moved[np.maximum(pods.group, 0)], NO_GROUP).astype(np.int32)
    rows = np.flatnonzero(group != -2)
    return replace(snapshot, groups=groups, pods=take_pods(replace(pods, group=group), rows))
