"""Which pods belong to a Kueue Workload, and what its missing pods will be called.

Kueue leaves several traces: annotations and labels on pods it manages, and the owner of the
Workload, which also owns the pods or marks them with labels of its own.

Source: kubernetes-sigs/kueue, pkg/controller/constants and pkg/controller/jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from data.importers.fields import parse_index
from data.importers.jobset_labels import NAME as JOBSET_NAME
from data.importers.jobset_labels import ROLE as JOBSET_ROLE
from data.importers.lws_labels import GROUP_INDEX, NAME, WORKER_INDEX, Shape, make_labels, pod_name

if TYPE_CHECKING:
    from data.importers.base import ImportContext, ImportedPod, RawObject
    from topology.model import PodSpec

__all__ = [
    "PODSET",
    "POD_GROUP",
    "Owner",
    "PodIndex",
    "assign_pod_sets",
    "name_planned",
    "read_owner",
]

PODSET: Final = "kueue.x-k8s.io/podset"
POD_GROUP: Final = "kueue.x-k8s.io/pod-group-name"
_WORKLOAD: Final = "kueue.x-k8s.io/workload"
_ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
_RAY_CLUSTER: Final = "ray.io/cluster"
_RAY_GROUP: Final = "ray.io/group"


class Owner(NamedTuple):
    """The object a Workload was made for."""

    kind: str = ""
    name: str = ""
    group_index: str = ""
    """Replica, when the owner is a LeaderWorkerSet."""


def read_owner(workload: RawObject) -> Owner:
    """Return the controlling (else the first) owner of a Workload."""
    metadata = workload.body.get("metadata")
    references = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    listed = references if isinstance(references, list) else []
    known = [r for r in listed if isinstance(r, dict)]
    known.sort(key=lambda r: r.get("controller") is not True)
    if not known:
        return Owner()
    kind, name = str(known[0].get("kind", "")), str(known[0].get("name", ""))
    if kind != "LeaderWorkerSet":
        return Owner(kind, name)
    # Kueue names the Workload of a replica leaderworkerset-<lws>-<index>-<hash>.
    tail = workload.name.removeprefix(f"leaderworkerset-{name}-")
    index = tail.partition("-")[0] if tail != workload.name else ""
    return Owner(kind, name, index if parse_index(index) >= 0 else "")


@dataclass(slots=True)
class PodIndex:
    """Pods by the traces that lead to their Workload."""

    _by_trace: dict[tuple[str, ...], list[ImportedPod]] = field(default_factory=dict)

    @classmethod
    def build(cls, context: ImportContext) -> PodIndex:
        """Index all pods, in order of ref."""
        made = cls()
        for ref in sorted(context.pods):
            pod = context.pods[ref]
            for trace in _traces(pod):
                made._by_trace.setdefault(trace, []).append(pod)
        return made

    def find(self, workload: RawObject, owner: Owner) -> list[ImportedPod]:
        """Return the pods of a Workload, those other APIs own too."""
        space = workload.namespace
        traces: list[tuple[str, ...]] = [
            ("workload", space, workload.name),
            ("pod-group", space, workload.name),
        ]
        match owner.kind:
            case "":
                pass
            case "LeaderWorkerSet" if owner.group_index:
                traces.append(("LeaderWorkerSet", space, owner.name, owner.group_index))
            case _:
                traces.append((owner.kind, space, owner.name))
        found = {pod.row.ref: pod for trace in traces for pod in self._by_trace.get(trace, ())}
        return [found[ref] for ref in sorted(found)]


def _traces(pod: ImportedPod) -> list[tuple[str, ...]]:
    space, labels = pod.namespace, pod.row.labels
    traces: list[tuple[str, ...]] = [("Pod", space, pod.name)]
    for kind, values, key in (
        ("workload", pod.annotations, _WORKLOAD),
        ("pod-group", labels, POD_GROUP),
        ("JobSet", labels, JOBSET_NAME),
        ("RayCluster", labels, _RAY_CLUSTER),
    ):
        if key in values:
            traces.append((kind, space, values[key]))
    if NAME in labels and GROUP_INDEX in labels:
        traces.append(("LeaderWorkerSet", space, labels[NAME], labels[GROUP_INDEX]))
    if pod.owner_kind:
        traces.append((pod.owner_kind, space, pod.owner_name))
    return traces


def assign_pod_sets(
    pods: list[ImportedPod], sizes: dict[str, int], specs: dict[str, PodSpec]
) -> tuple[dict[str, list[ImportedPod]], list[ImportedPod]]:
    """Give each pod its pod set.

    Args:
      pods: Members, in order of ref.
      sizes: Pods wanted by pod set.
      specs: Spec of each pod set's template.

    Returns:
      Pods by pod set, and those for which nothing says which pod set they are of.
    """
    found: dict[str, list[ImportedPod]] = {name: [] for name in sizes}
    unclear: list[ImportedPod] = []
    for pod in pods:
        name = _named_pod_set(pod, sizes)
        (found[name] if name else unclear).append(pod)
    lost: list[ImportedPod] = []
    for pod in unclear:
        alike = [
            name
            for name, spec in specs.items()
            if spec.requests == pod.row.spec.requests and len(found[name]) < sizes[name]
        ]
        (found[alike[0]] if alike else lost).append(pod)
    return found, lost


def _named_pod_set(pod: ImportedPod, sizes: dict[str, int]) -> str:
    if len(sizes) == 1:
        return next(iter(sizes))
    labels = pod.row.labels
    names = [labels.get(PODSET), labels.get(JOBSET_ROLE), pod.annotations.get(_ROLE_HASH)]
    if NAME in labels and WORKER_INDEX in labels:
        names.append("leader" if labels[WORKER_INDEX] == "0" else "worker")
    if _RAY_GROUP in labels:
        names.append("head" if labels[_RAY_GROUP] == "headgroup" else labels[_RAY_GROUP])
    return next((name for name in names if name in sizes), "")


def name_planned(
    workload: RawObject, owner: Owner, pod_set: str, index: int, size: int
) -> tuple[str, dict[str, str]]:
    """Return name and controller's labels of a pod that does not exist yet.

    Args:
      workload: Describes the pod.
      owner: Of the workload.
      pod_set: Name of its pod set.
      index: Its place among the pods of the pod set.
      size: Pods of the whole workload.
    """
    if owner.kind != "LeaderWorkerSet" or not owner.group_index:
        return f"{workload.name}-{pod_set}-{index}", {}
    # Without a leader template there is one pod set, and its first pod is the leader.
    worker = index + 1 if pod_set == "worker" else index
    leader = f"{owner.name}-{owner.group_index}"
    labels = make_labels(
        Shape(size), workload.namespace, owner.name, leader, worker, owner.group_index
    )
    return pod_name(leader, worker), labels
