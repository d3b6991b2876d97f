"""Nodes and pods of the cluster that most edge cases are about, as Kubernetes objects."""

from __future__ import annotations

from typing import Any

from builders import RACK
from kube import GPU, node, pod

Obj = dict[str, Any]
APP = {"matchLabels": {"app": "x"}}
"""Selects the pods of `labelled`."""


def machine(name: str, gpus: int = 8, rack: str = "", **spec: Any) -> Obj:
    """A node with so many GPUs."""
    return node(
        name,
        labels={RACK: rack} if rack else {},
        spec=spec,
        allocatable={"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)},
    )


def members(
    count: int, *containers: Obj, start: int = 0, group: str = "g", **spec: Any
) -> list[Obj]:
    """Pods <group><start> … of a group."""
    return [
        pod(f"{group}{i}", *containers, group=group, **spec) for i in range(start, start + count)
    ]


def labelled(name: str, *containers: Obj, **spec: Any) -> Obj:
    """A pod with the label that selectors of these tests select."""
    metadata = {"name": name, "namespace": "ml", "labels": {"app": "x"}}
    return pod(name, *containers, metadata=metadata, **spec)


def apart(key: str) -> Obj:
    term = {"topologyKey": key, "labelSelector": APP}
    return {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    }
