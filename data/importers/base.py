"""What importers share: the objects read, the pods they may claim, and where errors go.

An importer is a function `import_<family>(context: ImportContext) -> None`. `data.reader` calls
them in order of precedence, so a pod that already has a group is not claimed again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from topology.assemble import GroupRow, PodRow
from topology.devices import DeviceTable
from topology.model import Group, Node, ObjectError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topology.model import Budget, PodSpec

__all__ = ["ImportContext", "ImportedPod", "RawObject", "ReadProblem"]


class ReadProblem(Exception):
    """A field of one object that cannot be read; the object is set aside.

    Raised anywhere below `ImportContext.guard`, which turns it into an `ObjectError`.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


@dataclass(slots=True)
class RawObject:
    """One decoded object that is not a Pod; `body` is plain dicts, lists and scalars."""

    api_version: str
    kind: str
    namespace: str
    name: str
    body: dict[str, Any]
    file: str = ""

    @property
    def api_group(self) -> str:
        """The part of apiVersion before the slash; "" for core."""
        return self.api_version.rpartition("/")[0]

    @property
    def api(self) -> str:
        """The apiVersion and kind, as `Group.api` wants them."""
        return f"{self.api_version}/{self.kind}"

    @property
    def ref(self) -> str:
        """The "namespace/name" (or the bare name of a cluster-scoped object)."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def labels(self) -> Mapping[str, str]:
        """`metadata.labels`, never null."""
        return (self.body.get("metadata") or {}).get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """`metadata.annotations`, never null."""
        return (self.body.get("metadata") or {}).get("annotations") or {}

    @property
    def spec(self) -> dict[str, Any]:
        """`spec`, never null."""
        spec = self.body.get("spec") or {}
        if not isinstance(spec, dict):
            raise ReadProblem("spec", f"is {type(spec).__name__}; make it an object")
        return spec

    @property
    def status(self) -> dict[str, Any]:
        """`status`, never null."""
        status = self.body.get("status") or {}
        return status if isinstance(status, dict) else {}


@dataclass(slots=True)
class ImportedPod:
    """A pod row with the facts by which gang APIs recognise their members."""

    row: PodRow
    """`row.group` is "" until an importer claims the pod; `row.labels` are all its labels."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner_kind: str = ""
    """Controlling owner reference: kind and name, "" without one."""
    owner_name: str = ""
    pod_group: str = ""
    """`spec.schedulingGroup.podGroupName` (1.36 and later)."""
    workload_ref: tuple[str, str, str] | None = None
    """`spec.workloadRef` of 1.35: (name, podGroup, podGroupReplicaKey)."""
    gates: tuple[str, ...] = ()
    """Names of `spec.schedulingGates[]`; any of them sets flag GATED."""
    has_priority: bool = False
    """Whether the pod states a priority or a class, rather than counting as 0 for want of one."""
    file: str = ""

    @property
    def namespace(self) -> str:
        """Namespace of the pod."""
        return self.row.ref.partition("/")[0]

    @property
    def name(self) -> str:
        """Name of the pod without its namespace."""
        return self.row.ref.partition("/")[2]


@dataclass(slots=True)
class ImportContext:
    """Everything read so far; importers add groups, planned pods, labels and errors."""

    nodes: dict[str, Node]
    """By name. An importer may replace a node by one with more labels (Volcano HyperNodes)."""
    pods: dict[str, ImportedPod]
    """By ref. Importers add the pods their templates describe (flag PLANNED)."""
    objects: dict[tuple[str, str], list[RawObject]]
    """By (API group, kind), in order of namespace and name."""
    build_spec: Callable[[Mapping[str, Any], str], PodSpec]
    """(pod template: dict with `spec` and `metadata`, namespace) -> PodSpec. Fills requests from
    limits as the API server would. Raises ReadProblem with a field below `template`."""
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of each Namespace object."""
    priority_classes: dict[str, int] = field(default_factory=dict)
    default_priority: int = 0
    groups: dict[str, GroupRow] = field(default_factory=dict)
    budgets: list[Budget] = field(default_factory=list)
    devices: DeviceTable = field(default_factory=DeviceTable)
    """Indices of nodes in order of name."""
    errors: list[ObjectError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def all_of(self, api_group: str, kind: str) -> list[RawObject]:
        """Return the objects of one kind."""
        return self.objects.get((api_group, kind), [])

    def add_group(self, group: Group, parent: str = "") -> None:
        """Add a group; its ref must be new and its parent known or added later."""
        if group.ref in self.groups:
            raise ReadProblem(
                "metadata.name",
                f"a group {group.ref} was already read from {self.groups[group.ref].group.api}; "
                "two APIs cannot own one reference: remove one",
            )
        self.groups[group.ref] = GroupRow(group, parent)

    def claim(self, pod: ImportedPod, leaf: str, *, rank: int = -1, template: str = "") -> None:
        """Make a pod a member of a leaf group."""
        pod.row.group = leaf
        pod.row.rank = rank
        pod.row.template = template

    def free_pods(self) -> list[ImportedPod]:
        """Return the pods that no group has claimed yet, in order of ref."""
        return [self.pods[ref] for ref in sorted(self.pods) if not self.pods[ref].row.group]

    def report(self, obj: RawObject | ImportedPod, field: str, message: str) -> None:
        """Record that an object was set aside; `message` says what is wrong and what to do."""
        if isinstance(obj, RawObject):
            error = ObjectError(obj.ref, obj.kind, field, message, obj.file)
        else:
            error = ObjectError(obj.row.ref, "Pod", field, message, obj.file)
        self.errors.append(error)

    def guard(self, obj: RawObject, read: Callable[[RawObject], None]) -> None:
        """Run `read(obj)`; an object that cannot be read is reported and set aside."""
        try:
            read(obj)
        except ReadProblem as problem:
            self.report(obj, problem.field, problem.message)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as problem:
            self.report(obj, "spec", f"has an unexpected shape ({problem}); check it by its schema")

    def warn(self, message: str) -> None:
        """Record a line for the user."""
        if message not in self.warnings:
            self.warnings.append(message)

    def priority_of(self, name: str | None, own: int | None) -> int:
        """Resolve a priority: the number when given, else the class, else the default class."""
        if own is not None:
            return own
        if name:
            return self.priority_classes.get(name, 0)
        return self.default_priority
