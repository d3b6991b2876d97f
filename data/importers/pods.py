"""Pods: rows of the table, and what gang APIs recognise their members by.

Source: k8s.io/api core/v1 (1.35 to 1.37).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from data.importers.base import ImportedPod, ReadProblem
from data.importers.requests import is_deferred
from data.wire import PodStatus
from topology.assemble import PodRow
from topology.model import Phase, PodFlag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext
    from data.importers.pod_spec import SpecBuilder
    from data.wire import ObjectMeta, OwnerReference, PodSpecWire, PodWire

__all__ = ["parse_time", "read_pod"]

_PHASES: Final = {
    None: Phase.PENDING,
    "": Phase.PENDING,
    "Pending": Phase.PENDING,
    "Running": Phase.RUNNING,
    "Succeeded": Phase.SUCCEEDED,
    "Failed": Phase.FAILED,
    "Unknown": Phase.UNKNOWN,
}
_MIRROR: Final = "kubernetes.io/config.mirror"
_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_NO_STATUS: Final = PodStatus()


def parse_time(text: str | None, field: str) -> int:
    """Return a time of the API in seconds since 1970, -1 for none.

    Raises:
      ReadProblem: It is not RFC 3339.
    """
    if not text:
        return -1
    try:
        time = datetime.fromisoformat(text)
        return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError):
        raise ReadProblem(
            field, f"is {text!r:.60}; write a time such as 2026-11-30T10:00:00Z"
        ) from None


def read_pod(
    wire: PodWire, namespace: str, name: str, context: ImportContext, builder: SpecBuilder
) -> ImportedPod:
    """Return a pod that no group has claimed yet.

    Of a bound DaemonSet pod the node affinity is left out: it names one node, so that no two such
    pods would share a spec, and it says nothing about anything still to be decided.

    Raises:
      ReadProblem: A field cannot be read.
    """
    meta, spec, status = wire.metadata, wire.spec, wire.status or _NO_STATUS
    owner = _find_controller(meta)
    annotations = meta.annotations or {}
    annotations.pop(_APPLIED, None)
    node = spec.node_name or ""
    gates = tuple(gate.name for gate in spec.scheduling_gates or ())
    flags = _find_flags(meta, annotations, owner, gates)
    if is_deferred(status):
        flags |= PodFlag.RESIZE_DEFERRED
    if flags & PodFlag.DAEMON and node and spec.affinity is not None:
        spec.affinity.node_affinity = None
    phase = _PHASES.get(status.phase)
    if phase is None:
        raise ReadProblem("status.phase", f"is {status.phase!r:.40}, which is no phase; correct it")
    group = spec.scheduling_group
    reference = spec.workload_ref
    has_priority = spec.priority is not None or bool(spec.priority_class_name)
    priority = _find_priority(spec, context)
    labels = meta.labels or {}
    row = PodRow(
        f"{namespace}/{name}",
        builder.build(spec, namespace, labels, status),
        labels,
        node=node,
        phase=phase,
        flags=flags,
        priority=priority,
        nominated=status.nominated_node_name or "",
        created=parse_time(meta.creation_timestamp, "metadata.creationTimestamp"),
        started=parse_time(status.start_time, "status.startTime"),
    )
    return ImportedPod(
        row,
        annotations,
        owner.kind if owner else "",
        owner.name if owner else "",
        pod_group=(group.pod_group_name or "") if group else "",
        workload_ref=(
            (reference.name, reference.pod_group, reference.pod_group_replica_key or "")
            if reference
            else None
        ),
        gates=gates,
        has_priority=has_priority,
    )


def _find_controller(meta: ObjectMeta) -> OwnerReference | None:
    owners = meta.owner_references or ()
    return next((o for o in owners if o.controller), owners[0] if owners else None)


def _find_flags(
    meta: ObjectMeta,
    annotations: Mapping[str, str],
    owner: OwnerReference | None,
    gates: tuple[str, ...],
) -> int:
    flags = 0
    if meta.deletion_timestamp:
        flags |= PodFlag.TERMINATING
    if gates:
        flags |= PodFlag.GATED
    if owner is not None and owner.kind == "DaemonSet":
        flags |= PodFlag.DAEMON
    if _MIRROR in annotations or (owner is not None and owner.kind == "Node"):
        flags |= PodFlag.STATIC
    return int(flags)


def _find_priority(spec: PodSpecWire, context: ImportContext) -> int:
    if spec.priority is not None:
        return spec.priority
    name = spec.priority_class_name
    if not name:
        return 0
    if name not in context.priority_classes:
        context.warn(f"PriorityClass {name} is not in the snapshot; its pods count as priority 0")
    return context.priority_classes.get(name, 0)
