"""Builders that state only what matters to a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import (
    HOSTNAME,
    PODS,
    Group,
    Node,
    Phase,
    PodSpec,
    Taint,
    TopologyTerm,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topology.model import Snapshot

GPU = "nvidia.com/gpu"
RACK = "topo.example.com/rack"


def make_node(
    name: str,
    *,
    gpus: int = 8,
    rack: str | None = None,
    cpu: int = 64_000,
    memory: int = 512 << 30,
    slots: int = 110,
    labels: dict[str, str] | None = None,
    taints: Iterable[Taint] = (),
    **fields: Any,
) -> Node:
    """A node with 8 GPUs and ample cpu, memory and pod slots unless stated."""
    own = {HOSTNAME: name, **({RACK: rack} if rack is not None else {}), **(labels or {})}
    allocatable = {"cpu": cpu, "memory": memory, PODS: slots, GPU: gpus}
    return Node(name, own, allocatable, tuple(taints), **fields)


def make_spec(*, gpus: int = 1, cpu: int = 0, memory: int = 0, **fields: Any) -> PodSpec:
    """A pod spec that asks for GPUs."""
    wanted = {GPU: gpus, "cpu": cpu, "memory": memory, PODS: 1}
    return PodSpec(tuple(sorted((k, v) for k, v in wanted.items() if v)), **fields)


def make_pods(
    name: str,
    count: int,
    *,
    group: str = "",
    spec: PodSpec | None = None,
    on: Iterable[str] | str = "",
    namespace: str = "ml",
    **fields: Any,
) -> list[PodRow]:
    """Pods `ml/name-0` … of one group; `on` puts them on nodes (one name, or one for each)."""
    spec = spec or make_spec()
    nodes = [on] * count if isinstance(on, str) else list(on)
    return [
        PodRow(
            f"{namespace}/{name}-{i}",
            spec,
            node=nodes[i],
            group=group,
            phase=Phase.RUNNING if nodes[i] else Phase.PENDING,
            rank=i,
            **fields,
        )
        for i in range(count)
    ]


def make_group(
    ref: str,
    min_count: int,
    *,
    size: int | None = None,
    key: str | None = None,
    parent: str = "",
    kind: str = "group",
    **fields: Any,
) -> GroupRow:
    """A gang; `key` is a required topology key."""
    topology = (TopologyTerm((key,)),) if key else ()
    group = Group(
        ref,
        kind,  # type: ignore[arg-type]
        fields.pop("api", "scheduling.k8s.io/v1beta1/PodGroup"),
        min_count=min_count,
        size=min_count if size is None else size,
        topology=fields.pop("topology", topology),
        **fields,
    )
    return GroupRow(group, parent)


def make_snapshot(
    nodes: Iterable[Node], *pods: Iterable[PodRow], groups: Iterable[GroupRow] = (), **fields: Any
) -> Snapshot:
    """Assemble rows."""
    return assemble_snapshot(nodes, [p for some in pods for p in some], groups, **fields)
