"""Contexts and objects for tests of the gang importers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from builders import GPU, make_node, make_spec

from data.importers.base import ImportContext, ImportedPod, RawObject
from topology.assemble import PodRow, assemble_snapshot
from topology.model import Phase, PodFlag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topology.model import Group, Node, PodSpec, Snapshot

LWS = "leaderworkerset.sigs.k8s.io/"


def build_spec(template: Mapping[str, Any], namespace: str) -> PodSpec:
    """Read whole GPUs, node selector and tolerations, which is all these tests need."""
    spec = template["spec"]
    requests = spec["containers"][0].get("resources", {}).get("requests", {})
    return make_spec(
        gpus=int(requests.get(GPU, 0)),
        node_selector=tuple(sorted(spec.get("nodeSelector", {}).items())),
        never_preempts=spec.get("preemptionPolicy") == "Never",
    )


def make_context(
    *objects: RawObject,
    pods: Iterable[ImportedPod] = (),
    nodes: Iterable[Node] = (),
    **fields: Any,
) -> ImportContext:
    """A context with objects in order of namespace and name; one node unless given."""
    by_kind: dict[tuple[str, str], list[RawObject]] = {}
    for obj in sorted(objects, key=lambda o: (o.namespace, o.name)):
        by_kind.setdefault((obj.api_group, obj.kind), []).append(obj)
    return ImportContext(
        {n.name: n for n in (list(nodes) or [make_node("n0", rack="r0")])},
        {p.row.ref: p for p in pods},
        by_kind,
        build_spec,
        **fields,
    )


def make_object(
    api: str,
    name: str,
    spec: Mapping[str, Any] | None = None,
    *,
    namespace: str = "ml",
    **body: Any,
) -> RawObject:
    """An object; `api` is apiVersion/kind, keyword arguments are metadata or other top fields."""
    version, _, kind = api.rpartition("/")
    metadata = {"name": name, "namespace": namespace}
    for key in ("labels", "annotations", "ownerReferences", "creationTimestamp"):
        if key in body:
            metadata[key] = body.pop(key)
    return RawObject(
        version, kind, namespace, name, {"metadata": metadata, "spec": dict(spec or {}), **body}
    )


def make_template(gpus: int = 1, **spec: Any) -> dict[str, Any]:
    """A pod template."""
    container = {"name": "main", "resources": {"requests": {GPU: str(gpus)}}}
    return {"spec": {"containers": [container], **spec}}


def make_pod(
    name: str,
    *,
    namespace: str = "ml",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    on: str = "",
    spec: PodSpec | None = None,
    flags: int = 0,
    phase: Phase | None = None,
    priority: int = 0,
    **fields: Any,
) -> ImportedPod:
    """A pod as read, pending unless it has a node."""
    row = PodRow(
        f"{namespace}/{name}",
        spec or make_spec(),
        labels or {},
        node=on,
        flags=flags | (PodFlag.GATED if fields.get("gates") else 0),
        phase=phase if phase is not None else Phase.RUNNING if on else Phase.PENDING,
        priority=priority,
    )
    return ImportedPod(row, annotations or {}, **fields)


def finish(context: ImportContext) -> Snapshot:
    """Assemble what was read."""
    return assemble_snapshot(
        context.nodes.values(),
        [pod.row for pod in context.pods.values()],
        context.groups.values(),
        errors=context.errors,
        warnings=context.warnings,
    )


def members_of(context: ImportContext) -> dict[str, list[str]]:
    """Names of the pods of each leaf, in order of rank."""
    found: dict[str, list[str]] = {}
    for pod in sorted(context.pods.values(), key=lambda p: (p.row.rank, p.row.ref)):
        if pod.row.group:
            found.setdefault(pod.row.group, []).append(pod.name)
    return found


def group_of(context: ImportContext, ref: str) -> Group:
    """The group of a reference."""
    return context.groups[ref].group


def lines_of(context: ImportContext) -> list[str]:
    """Errors as "object: field"."""
    return [f"{e.object}: {e.field}" for e in context.errors]
