"""Snapshot -> the Kubernetes objects it could have been read from.

For demonstrations and tests: nodes, pods and in-tree groups, as `kubectl get -o json` prints them.
What else a snapshot may hold is refused rather than left out.
"""

from __future__ import annotations

import gzip
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, cast

from data.encode import to_json, to_yaml
from data.importers.checkpoints import CHECKPOINT_ANNOTATION
from data.quantities import format_quantity
from topology.errors import SnapshotError
from topology.model import NO_GROUP, PODS, Group, Phase, PodFlag, PodSpec, Snapshot

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topology.model import Node, Pod

__all__ = ["to_objects", "write_manifests"]

_FORMATS: Final = (".json", ".yaml", ".yml", ".json.gz", ".yaml.gz", ".yml.gz")
_GROUP_VERSIONS: Final = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3")
_UNREADY: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_FLAGS: Final = PodFlag.TERMINATING | PodFlag.GATED | PodFlag.DAEMON | PodFlag.STATIC
_PLAIN_GROUP: Final = (
    *("ref", "kind", "api", "parent", "policy", "min_count", "min_groups", "size", "priority"),
    *("topology", "disruption", "never_preempts", "created", "blocked"),
)
"""Fields of a group that its object states, or that follow from its pods."""
_PLAIN_SPEC: Final = ("requests", "node_selector", "tolerations", "scheduler", "never_preempts")


def write_manifests(snapshot: Snapshot, file: Path | str) -> None:
    """Write the objects of a snapshot as one List.

    Args:
      snapshot: As for `to_objects`.
      file: Ends in .json, .yaml or .yml, with .gz for gzip; replaced if it exists.

    Raises:
      SnapshotError: Another ending, a snapshot that has no such form, or the file cannot be
        written; what was there before is kept.
    """
    target = Path(file)
    if not target.name.endswith(_FORMATS):
        raise SnapshotError(f"{file}: has no known format; end the name in {', '.join(_FORMATS)}")
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with fresh.open("wb") as raw:
            if target.suffix == ".gz":
                # No name and time inside, so that the same fleet gives the same bytes.
                with gzip.GzipFile("", "wb", 6, raw, 0) as packed:
                    _write_list(snapshot, cast("IO[bytes]", packed), target.name)
            else:
                _write_list(snapshot, raw, target.name)
        fresh.replace(target)
    except OSError as problem:
        raise SnapshotError(
            f"{file}: cannot be written ({problem.strerror or problem}); "
            "check the path, its permissions and the free space"
        ) from None
    finally:
        fresh.unlink(missing_ok=True)


def _write_list(snapshot: Snapshot, file: IO[bytes], name: str) -> None:
    """Write one object after the other: a large fleet does not fit into memory as dicts."""
    if ".json" in name[-8:]:
        file.write(b'{"apiVersion": "v1", "kind": "List", "items": [')
        for i, item in enumerate(to_objects(snapshot)):
            file.write((b",\n" if i else b"\n") + to_json(item, indent=0).rstrip())
        file.write(b"\n]}\n")
    else:
        file.write(b"apiVersion: v1\nkind: List\nitems:\n")
        count = 0
        for item in to_objects(snapshot):
            file.write(to_yaml([item]))
            count += 1
        if not count:
            file.write(b"[]\n")


def to_objects(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield nodes, groups and pods as Kubernetes objects of 1.37.

    A CompositePodGroup comes with the Workload it has to name.

    Raises:
      SnapshotError: Something has no such form: groups of other APIs, claims, affinity, budgets,
        pods on missing nodes.
    """
    if snapshot.budgets or snapshot.devices:
        raise SnapshotError("budgets and devices cannot be written as manifests; store a snapshot")
    for node in snapshot.nodes:
        yield _make_node(node)
    children: dict[int, list[int]] = {}
    for i, group in enumerate(snapshot.groups):
        children.setdefault(group.parent, []).append(i)
    workloads: dict[int, str] = {}
    for root in children.get(NO_GROUP, ()):
        if snapshot.groups[root].kind == "composite":
            yield _make_workload(snapshot, root, children)
        tree = [root]
        for i in tree:
            workloads[i] = snapshot.groups[root].ref.partition("/")[2]
            tree += children.get(i, ())
    for i, group in enumerate(snapshot.groups):
        yield _make_group(snapshot, group, workloads[i])
    specs = [_make_spec(spec) for spec in snapshot.pods.specs]
    for p in range(len(snapshot.pods)):
        yield _make_pod(snapshot, snapshot.pods.row(p), specs[snapshot.pods.spec[p]])


def _metadata(ref: str, created: int = -1, **fields: object) -> dict[str, Any]:
    namespace, _, name = ref.rpartition("/")
    metadata: dict[str, Any] = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    if created >= 0:
        metadata["creationTimestamp"] = _time(created)
    return metadata | {key: value for key, value in fields.items() if value}


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_quantity(amount, name) for name, amount in amounts.items()}


def _make_node(node: Node) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if node.unschedulable:
        spec["unschedulable"] = True
    if node.taints:
        spec["taints"] = [
            {"key": t.key, **({"value": t.value} if t.value else {}), "effect": t.effect}
            for t in node.taints
        ]
    is_ready = node.ready and not any(t.key in _UNREADY for t in node.taints)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": spec,
        "status": {
            "allocatable": _quantities(node.allocatable),
            "conditions": [{"type": "Ready", "status": str(is_ready)}],
        },
    }


def _make_terms(group: Group) -> dict[str, Any]:
    """Return what a group and a template of one have in common."""
    floor = "minGroupCount" if group.kind == "composite" else "minCount"
    count = group.min_groups if group.kind == "composite" else group.min_count
    gang = {"gang": {floor: count}}
    terms: dict[str, Any] = {
        "schedulingPolicy": gang if group.policy == "gang" else {"basic": {}},
        "disruptionMode": {group.disruption: {}},
        "priority": group.priority,
    }
    if group.topology:
        terms["schedulingConstraints"] = {"topology": [{"key": t.key} for t in group.topology]}
    if group.never_preempts:
        terms["preemptionPolicy"] = "Never"
    return terms


def _template_name(depth: int) -> str:
    return f"level-{depth}"


def _make_workload(
    snapshot: Snapshot, root: int, children: Mapping[int, list[int]]
) -> dict[str, Any]:
    def make_template(g: int, depth: int) -> dict[str, Any]:
        template = {"name": _template_name(depth), **_make_terms(snapshot.groups[g])}
        # Siblings come from one template; a Workload may not have more than eight.
        for child in children.get(g, ())[:1]:
            kind = snapshot.groups[child].kind
            field = "compositePodGroupTemplates" if kind == "composite" else "podGroupTemplates"
            template[field] = [make_template(child, depth + 1)]
        return template

    group = snapshot.groups[root]
    return {
        "apiVersion": _GROUP_VERSIONS[0],
        "kind": "Workload",
        "metadata": _metadata(group.ref, group.created),
        "spec": {"compositePodGroupTemplates": [make_template(root, 0)]},
    }


def _make_group(snapshot: Snapshot, group: Group, workload: str) -> dict[str, Any]:
    version, _, kind = group.api.rpartition("/")
    wanted_kind = {"group": "PodGroup", "composite": "CompositePodGroup"}.get(group.kind)
    plain = Group(**{name: getattr(group, name) for name in _PLAIN_GROUP})
    is_plain = group == plain and all(t.required and len(t.path) == 1 for t in group.topology)
    if version not in _GROUP_VERSIONS or kind != wanted_kind or not is_plain:
        raise SnapshotError(
            f"group {group.ref} ({group.api}) cannot be written as an in-tree PodGroup; "
            "store a snapshot"
        )
    spec = _make_terms(group)
    depth, above = 0, group.parent
    while above != NO_GROUP:
        depth, above = depth + 1, snapshot.groups[above].parent
    if depth:
        parent = snapshot.groups[group.parent].ref.partition("/")[2]
        spec["parentCompositePodGroupName"] = parent
    if depth or group.kind == "composite":
        spec["workloadRef"] = {"workloadName": workload, "templateName": _template_name(depth)}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": _metadata(group.ref, group.created),
        "spec": spec,
    }


def _make_spec(spec: PodSpec) -> dict[str, Any]:
    """Return the part of a pod's spec that it shares with others."""
    plain = PodSpec(**{name: getattr(spec, name) for name in _PLAIN_SPEC})
    if spec != plain:
        odd = next(f for f in PodSpec.__slots__ if getattr(spec, f) != getattr(plain, f))
        raise SnapshotError(f"pods with {odd} cannot be written as manifests; store a snapshot")
    requests = {name: amount for name, amount in spec.requests if name != PODS}
    extended = {name: amount for name, amount in requests.items() if "/" in name}
    resources: dict[str, Any] = {"requests": _quantities(requests)}
    if extended:
        resources["limits"] = _quantities(extended)
    body: dict[str, Any] = {
        "containers": [
            {"name": "main", "image": "registry.example.com/app:1", "resources": resources}
        ]
    }
    if spec.node_selector:
        body["nodeSelector"] = dict(spec.node_selector)
    if spec.tolerations:
        names = ("key", "operator", "value", "effect")
        body["tolerations"] = [
            {name: getattr(t, name) for name in names if getattr(t, name)} for t in spec.tolerations
        ]
    if spec.scheduler != "default-scheduler":
        body["schedulerName"] = spec.scheduler
    if spec.never_preempts:
        body["preemptionPolicy"] = "Never"
    return body


def _make_pod(snapshot: Snapshot, pod: Pod, shared: dict[str, Any]) -> dict[str, Any]:
    if pod.node < -1 or pod.flags & ~_FLAGS or pod.template:
        raise SnapshotError(
            f"pod {pod.ref} cannot be written as a manifest (missing node, template or flags "
            f"{pod.flags!r}); store a snapshot"
        )
    fields: dict[str, Any] = {"labels": dict(pod.labels)}
    if pod.flags & PodFlag.DAEMON:
        fields["ownerReferences"] = [_make_owner(pod, snapshot)]
    annotations = {}
    if pod.flags & PodFlag.STATIC:
        annotations["kubernetes.io/config.mirror"] = "mirror"
    if pod.checkpoint >= 0:
        annotations[CHECKPOINT_ANNOTATION] = _time(pod.checkpoint)
    if annotations:
        fields["annotations"] = annotations
    if pod.flags & PodFlag.TERMINATING:
        fields["deletionTimestamp"] = _time(max(pod.started, 0))
    spec = {**shared, "priority": pod.priority}
    if pod.flags & PodFlag.GATED:
        spec["schedulingGates"] = [{"name": "example.com/gate"}]
    if pod.node >= 0:
        spec["nodeName"] = snapshot.nodes[pod.node].name
    if pod.group >= 0:
        group = snapshot.groups[pod.group].ref.partition("/")[2]
        spec["schedulingGroup"] = {"podGroupName": group}
    status = {"phase": Phase(pod.phase).name.capitalize()}
    if pod.started >= 0:
        status["startTime"] = _time(pod.started)
    if pod.nominated >= 0:
        status["nominatedNodeName"] = snapshot.nodes[pod.nominated].name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(pod.ref, pod.created, **fields),
        "spec": spec,
        "status": status,
    }


def _make_owner(pod: Pod, snapshot: Snapshot) -> dict[str, Any]:
    name = pod.ref.partition("/")[2]
    if pod.node >= 0:
        name = name.removesuffix(f"-{snapshot.nodes[pod.node].name}")
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "name": name,
        "uid": name,
        "controller": True,
    }
