"""The objects of all files, sorted by kind: decoded where they are few, each object once.

Nodes and other few objects are decoded at once; pods of JSON files stay raw until everything they
refer to is known.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from data.importers.base import RawObject, ReadProblem
from data.importers.core import read_node
from data.problems import decode_as, decode_body, find_name
from data.wire import NodeWire, PodWire
from topology.model import ObjectError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from data.decode import Item
    from data.wire import ObjectMeta
    from topology.model import Node

__all__ = ["Collection", "collect", "decode_pod", "find_ref"]

_CLUSTER_SCOPED: Final = frozenset(
    {
        ("", "Node"),
        ("", "Namespace"),
        ("scheduling.k8s.io", "PriorityClass"),
        ("resource.k8s.io", "ResourceSlice"),
        ("resource.k8s.io", "DeviceClass"),
        ("topology.volcano.sh", "HyperNode"),
        ("scheduling.volcano.sh", "Queue"),
        ("kueue.x-k8s.io", "Topology"),
        ("kueue.x-k8s.io", "ResourceFlavor"),
        ("kueue.x-k8s.io", "ClusterQueue"),
        ("kueue.x-k8s.io", "WorkloadPriorityClass"),
        ("scheduling.run.ai", "Queue"),
        ("kai.scheduler", "Topology"),
    }
)
_NAMESPACED: Final = frozenset(
    {
        ("", "Pod"),
        ("policy", "PodDisruptionBudget"),
        ("resource.k8s.io", "ResourceClaim"),
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("scheduling.k8s.io", "Workload"),
        ("scheduling.k8s.io", "PodGroup"),
        ("scheduling.k8s.io", "CompositePodGroup"),
        ("scheduling.volcano.sh", "PodGroup"),
        ("batch.volcano.sh", "Job"),
        ("scheduling.run.ai", "PodGroup"),
        ("scheduling.x-k8s.io", "PodGroup"),
        ("scheduling.sigs.k8s.io", "PodGroup"),
        ("kueue.x-k8s.io", "Workload"),
        ("kueue.x-k8s.io", "LocalQueue"),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"),
        ("jobset.x-k8s.io", "JobSet"),
        ("batch", "Job"),
        ("ray.io", "RayCluster"),
        ("ray.io", "RayJob"),
        ("ray.io", "RayService"),
        ("gangplan", "RayPlacementGroup"),
    }
)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,252}\Z")
_VERSION: Final = re.compile(r"v(\d{1,4})(?:(alpha|beta)(\d{1,4}))?\Z")
_VOLATILE: Final = ("resourceVersion", "managedFields")


@dataclass(slots=True)
class Collection:
    """What was found, before pods and groups are read."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: list[tuple[Item, PodWire | None]] = field(default_factory=list)
    """Items of kind Pod; already decoded where that saves memory (YAML)."""
    objects: dict[tuple[str, str], dict[str, RawObject]] = field(default_factory=dict)
    """(API group, kind) -> ref -> object."""
    errors: list[ObjectError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    num_foreign: int = 0
    """Documents that are no Kubernetes objects."""

    def report(self, item: Item, problem: ReadProblem, name: str = "") -> None:
        """Record that an object was set aside."""
        self.errors.append(
            ObjectError(
                name or find_name(item), item.kind, problem.field, problem.message, item.file
            )
        )


def collect(items: Iterable[Item], found: Collection, *, expects_objects: bool) -> int:
    """Add the objects of one file.

    Args:
      items: Of the file.
      found: Receives them.
      expects_objects: The user named the file: what says no kind is an error, not chance.

    Returns:
      How many Kubernetes objects there were, those not read included.
    """
    count = 0
    for item in items:
        if not item.kind or not item.api_version:
            if expects_objects or item.position.rpartition(" ")[2].startswith("items["):
                missing = "apiVersion" if item.kind else "kind"
                found.report(item, ReadProblem(missing, "is missing or no string; state it"))
            else:
                found.num_foreign += 1
            continue
        count += 1
        key = (item.api_version.rpartition("/")[0], item.kind)
        if key not in _CLUSTER_SCOPED and key not in _NAMESPACED:
            found.ignored[item.kind] += 1
            continue
        try:
            if key == ("", "Pod"):
                is_raw = isinstance(item.body, msgspec.Raw)
                wire = None if is_raw else decode_as(PodWire, item)
                found.pods.append((item if is_raw else item._replace(body={}), wire))
            elif key == ("", "Node"):
                _add_node(item, found)
            else:
                _add_object(item, key, found)
        except ReadProblem as problem:
            found.report(item, problem)
    return count


def decode_pod(item: Item, wire: PodWire | None) -> PodWire:
    """Return a collected pod as its wire type; raises ReadProblem."""
    return decode_as(PodWire, item) if wire is None else wire


def find_ref(meta: ObjectMeta) -> tuple[str, str]:
    """Return (namespace, name) of a namespaced object; no namespace means "default".

    Raises:
      ReadProblem: The name is missing or could not be one.
    """
    return _check("namespace", meta.namespace or "default"), _check("name", meta.name)


def _check(what: str, name: object) -> str:
    if not isinstance(name, str) or not name:
        raise ReadProblem(f"metadata.{what}", "is missing; set it")
    if not _NAME.match(name):
        raise ReadProblem(
            f"metadata.{what}", f"is {name!r:.60}, which no object can have; correct it"
        )
    return name


def _add_node(item: Item, found: Collection) -> None:
    wire = decode_as(NodeWire, item)
    name = _check("name", wire.metadata.name)
    node = read_node(wire, name)
    first = found.nodes.setdefault(name, node)
    if first != node:
        raise _different("a node")


def _add_object(item: Item, key: tuple[str, str], found: Collection) -> None:
    body = decode_body(item)
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        raise ReadProblem("metadata", "is missing or no object; set it")
    namespace = ""
    if key in _NAMESPACED:
        namespace = _check("namespace", metadata.get("namespace") or "default")
    obj = RawObject(
        item.api_version,
        item.kind,
        namespace,
        _check("name", metadata.get("name")),
        body,
        item.file,
    )
    for field_name in ("labels", "annotations"):
        _check_strings(metadata.get(field_name), f"metadata.{field_name}")
    _forget_volatile(metadata)
    known = found.objects.setdefault(key, {})
    first = known.setdefault(obj.ref, obj)
    if first is obj:
        return
    if first.api_version != obj.api_version:
        later, earlier = sorted((first, obj), key=lambda o: _version_rank(o.api_version))[::-1]
        known[obj.ref] = later
        found.warnings.append(
            f"{obj.kind} {obj.ref} appears as {earlier.api_version} and {later.api_version}; "
            f"the latter is used"
        )
    elif first.body != obj.body:
        raise _different("an object")


def _different(what: str) -> ReadProblem:
    return ReadProblem(
        "metadata.name",
        f"is that of {what} read before, which differs; the first is kept: remove one",
    )


def _check_strings(values: Any, where: str) -> None:
    if values is None:
        return
    if not isinstance(values, dict):
        raise ReadProblem(where, f"is {type(values).__name__}; make it an object")
    for name, value in values.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise ReadProblem(f"{where}[{name}]", f"is {value!r:.60}: not a string; quote it")


def _forget_volatile(metadata: dict[str, Any]) -> None:
    """Drop what differs between two readings of an object that did not change."""
    for name in _VOLATILE:
        metadata.pop(name, None)


def _version_rank(api_version: str) -> tuple[int, int, int]:
    """Order versions as Kubernetes does: v1 after v1beta1 after v1alpha3."""
    match = _VERSION.match(api_version.rpartition("/")[2])
    if match is None:
        return (-1, 0, 0)
    stage = {None: 2, "beta": 1, "alpha": 0}[match[2]]
    return (stage, int(match[1]), int(match[3] or 0))
