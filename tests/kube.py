"""Kubernetes objects as `kubectl get -o json` prints them, and reading them back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data.reader import read_snapshot

if TYPE_CHECKING:
    from topology.model import Group, Pod, Snapshot

Obj = dict[str, Any]
GPU = "nvidia.com/gpu"
GROUP_API = "scheduling.k8s.io/v1beta1"


def node(
    name: str = "n0", *, labels: Obj | None = None, spec: Obj | None = None, **status: Any
) -> Obj:
    """A Ready node with 8 GPUs; keyword arguments replace fields of its status."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec or {},
        "status": {
            "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
            **status,
        },
    }


def container(cpu: str | None = None, gpus: int = 0, **fields: Any) -> Obj:
    """A container named main."""
    requests = {**({"cpu": cpu} if cpu else {}), **({GPU: str(gpus)} if gpus else {})}
    return {"name": "main", "resources": {"requests": requests}, **fields}


def pod(
    name: str = "p",
    *containers: Obj,
    group: str = "",
    on: str = "",
    phase: str = "",
    metadata: Obj | None = None,
    status: Obj | None = None,
    **spec: Any,
) -> Obj:
    """A pod of namespace ml that asks for one GPU; keyword arguments are fields of its spec."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ml", **(metadata or {})},
        "spec": {
            "containers": list(containers) or [container(gpus=1)],
            **({"nodeName": on} if on else {}),
            **({"schedulingGroup": {"podGroupName": group}} if group else {}),
            **spec,
        },
        "status": {"phase": phase or ("Running" if on else "Pending"), **(status or {})},
    }


def gang(name: str = "g", min_count: int = 1, *, api: str = GROUP_API, **spec: Any) -> Obj:
    """A PodGroup with the gang policy unless another is given."""
    return {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": min_count}}, **spec},
    }


def composite(name: str, min_groups: int = 1, *, workload: str = "w", **spec: Any) -> Obj:
    """A CompositePodGroup with the gang policy unless another is given."""
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": min_groups}},
            "workloadRef": {"workloadName": workload, "templateName": "t"},
            **spec,
        },
    }


def thing(api: str, name: str, namespace: str = "", **body: Any) -> Obj:
    """Any other object; `api` is apiVersion/kind."""
    version, _, kind = api.rpartition("/")
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": metadata | body.pop("metadata", {}),
        **body,
    }


def read(*objects: Obj, strict: bool = False) -> Snapshot:
    """Read objects from one file, beside a node n0 when no node is among them."""
    some = list(objects)
    if not any(obj.get("kind") == "Node" for obj in some):
        some.append(node())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "objects.json")
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": some}))
        return read_snapshot([str(file)], strict=strict)


def find_pod(snapshot: Snapshot, ref: str = "ml/p") -> Pod:
    """The row of a pod."""
    return snapshot.pods.row(snapshot.pods.refs.index(ref))


def find_group(snapshot: Snapshot, ref: str = "ml/g") -> Group:
    """The group of a reference."""
    return next(group for group in snapshot.groups if group.ref == ref)


def complaints(snapshot: Snapshot) -> list[tuple[str, str]]:
    """(object, field) of every object set aside."""
    return [(error.object, error.field) for error in snapshot.errors]
