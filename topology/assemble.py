"""Parts -> Snapshot: sorts, interns and cuts labels down to what placement needs.

Importers, generators and scenarios hand over rows with names; indices exist only from here on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from topology.devices import NO_DEVICES, DeviceTable
from topology.levels import is_topology_label
from topology.model import (
    HOSTNAME,
    MISSING_NODE,
    NO_GROUP,
    NO_NODE,
    Phase,
    PodTable,
    Snapshot,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from topology.model import (
        Budget,
        Group,
        LabelSelector,
        Node,
        ObjectError,
        PodSpec,
    )

__all__ = ["GroupRow", "PodRow", "assemble_snapshot", "find_node_keys", "find_pod_keys"]


@dataclass(slots=True)
class PodRow:
    """A pod in names, before it becomes a row of the `PodTable`."""

    ref: str
    spec: PodSpec
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    group: str = ""
    """Ref of the leaf group, "" for none."""
    phase: Phase = Phase.PENDING
    flags: int = 0
    """Bits of `PodFlag`."""
    priority: int = 0
    nominated: str = ""
    rank: int = -1
    template: str = ""
    created: int = -1
    started: int = -1
    checkpoint: int = -1


@dataclass(slots=True)
class GroupRow:
    """A group and the ref of its parent ("" for a root)."""

    group: Group
    parent: str = ""


def _selector_keys(selectors: Iterable[LabelSelector | None]) -> set[str]:
    return {r.key for s in selectors if s is not None for r in s.requirements}


def find_pod_keys(specs: Iterable[PodSpec], budgets: Iterable[Budget]) -> set[str]:
    """Return the pod label keys that some selector mentions."""
    selectors: list[LabelSelector | None] = [b.selector for b in budgets]
    for spec in specs:
        selectors += [t.selector for t in spec.affinity]
        selectors += [t.selector for t in spec.anti_affinity]
        selectors += [t.selector for t in spec.spread]
    return _selector_keys(selectors)


def find_node_keys(specs: Iterable[PodSpec], groups: Iterable[Group]) -> set[str]:
    """Return the node label keys that some pod or group mentions."""
    keys = {HOSTNAME}
    for spec in specs:
        keys |= {key for key, _ in spec.node_selector}
        keys |= {t.key for t in spec.affinity + spec.anti_affinity}
        keys |= {t.key for t in spec.spread}
        for term in spec.node_terms or ():
            keys |= {r.key for r in term.expressions}
        for claim in spec.claims:
            for term in claim.allocated_nodes or ():
                keys |= {r.key for r in term.expressions}
    for group in groups:
        keys |= {key for path in group.paths for key in path}
    return keys


def assemble_snapshot(
    nodes: Iterable[Node],
    pods: Iterable[PodRow],
    groups: Iterable[GroupRow] = (),
    *,
    budgets: Iterable[Budget] = (),
    devices: DeviceTable = NO_DEVICES,
    errors: Iterable[ObjectError] = (),
    warnings: Iterable[str] = (),
    pod_keys: Collection[str] = (),
) -> Snapshot:
    """Build a snapshot from rows with names.

    Args:
      nodes: Machines, names unique.
      pods: Rows, refs unique; a `node` that is not among `nodes` becomes MISSING_NODE.
      groups: Rows, refs unique; every `parent` and every `PodRow.group` is among them.
      budgets: Disruption budgets.
      devices: Devices and claims; its indices are those of the nodes in order of name.
      errors: Objects set aside while reading.
      warnings: Lines for the user.
      pod_keys: Pod label keys to keep besides those that some selector mentions.

    Returns:
      The snapshot, sorted as `Snapshot` says.
    """
    sorted_nodes = sorted(nodes, key=lambda n: n.name)
    node_index = {n.name: i for i, n in enumerate(sorted_nodes)}
    rows = sorted(groups, key=lambda g: g.group.ref)
    group_index = {row.group.ref: i for i, row in enumerate(rows)}
    sorted_groups = tuple(
        replace(row.group, parent=group_index[row.parent] if row.parent else NO_GROUP)
        for row in rows
    )
    sorted_budgets = tuple(sorted(budgets, key=lambda b: b.ref))
    sorted_pods = sorted(pods, key=lambda p: p.ref)
    table = _build_table(sorted_pods, node_index, group_index, sorted_budgets, pod_keys)

    wanted = find_node_keys(table.specs, sorted_groups)
    carried = set().union(*(n.labels for n in sorted_nodes))
    wanted |= {key for key in carried if is_topology_label(key)}
    kept_nodes = tuple(
        replace(n, labels={k: v for k, v in n.labels.items() if k in wanted}) for n in sorted_nodes
    )
    return Snapshot(
        nodes=kept_nodes,
        pods=table,
        groups=sorted_groups,
        budgets=sorted_budgets,
        devices=devices,
        errors=tuple(errors),
        warnings=tuple(warnings),
    )


def _build_table(
    pods: Sequence[PodRow],
    node_index: Mapping[str, int],
    group_index: Mapping[str, int],
    budgets: Sequence[Budget],
    pod_keys: Collection[str],
) -> PodTable:
    specs: dict[PodSpec, int] = {}
    by_identity: dict[int, int] = {}
    for pod in pods:
        # Importers share spec objects, so hashing each object once is enough.
        if id(pod.spec) not in by_identity:
            by_identity[id(pod.spec)] = specs.setdefault(pod.spec, len(specs))
    keys = find_pod_keys(specs, budgets) | set(pod_keys)
    label_sets: dict[tuple[tuple[str, str], ...], int] = {}
    templates: dict[str, int] = {"": 0}
    labels = np.empty(len(pods), np.int32)
    for i, pod in enumerate(pods):
        kept = tuple(sorted((k, pod.labels[k]) for k in keys & pod.labels.keys())) if keys else ()
        labels[i] = label_sets.setdefault(kept, len(label_sets))
    return PodTable(
        refs=tuple(p.ref for p in pods),
        specs=tuple(specs),
        label_sets=tuple(dict(s) for s in label_sets),
        templates=_intern(templates, (p.template for p in pods)),
        spec=np.fromiter((by_identity[id(p.spec)] for p in pods), np.int32, len(pods)),
        labels=labels,
        template=np.fromiter((templates[p.template] for p in pods), np.int32, len(pods)),
        node=np.fromiter(
            (node_index.get(p.node, MISSING_NODE) if p.node else NO_NODE for p in pods),
            np.int32,
            len(pods),
        ),
        group=np.fromiter(
            (group_index[p.group] if p.group else NO_GROUP for p in pods), np.int32, len(pods)
        ),
        phase=np.fromiter((p.phase for p in pods), np.int8, len(pods)),
        flags=np.fromiter((p.flags for p in pods), np.int16, len(pods)),
        priority=np.fromiter((p.priority for p in pods), np.int32, len(pods)),
        nominated=np.fromiter(
            (node_index.get(p.nominated, NO_NODE) if p.nominated else NO_NODE for p in pods),
            np.int32,
            len(pods),
        ),
        rank=np.fromiter((p.rank for p in pods), np.int32, len(pods)),
        created=np.fromiter((p.created for p in pods), np.int64, len(pods)),
        started=np.fromiter((p.started for p in pods), np.int64, len(pods)),
        checkpoint=np.fromiter((p.checkpoint for p in pods), np.int64, len(pods)),
    )


def _intern(index: dict[str, int], names: Iterable[str]) -> tuple[str, ...]:
    for name in names:
        index.setdefault(name, len(index))
    return tuple(index)
