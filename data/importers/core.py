"""Nodes, namespaces, priority classes, disruption budgets.

Source: k8s.io/api core/v1, scheduling/v1, policy/v1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from data.importers.base import ReadProblem
from data.importers.constraints import read_label_selector
from data.importers.fields import read_int, read_map
from data.quantities import parse_quantity
from data.wire import LabelSelectorWire, NodeSpec, NodeStatus
from topology.model import Budget, Node, Taint

if TYPE_CHECKING:
    from data.importers.base import ImportContext, RawObject
    from data.wire import NodeWire

__all__ = [
    "read_budgets",
    "read_namespaces",
    "read_node",
    "read_priority_classes",
    "warn_about_nodes",
]

_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
_READINESS_TAINTS: Final = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)


def read_node(wire: NodeWire, name: str) -> Node:
    """Return a node.

    `ready` is False only where condition Ready says so and no taint does: such a node was caught
    between the two.

    Raises:
      ReadProblem: An amount of `status.allocatable` cannot be read.
    """
    spec, status = wire.spec or NodeSpec(), wire.status or NodeStatus()
    allocatable = {}
    for resource, text in (status.allocatable or {}).items():
        try:
            allocatable[resource] = parse_quantity(text, resource)
        except ValueError as error:
            raise ReadProblem(f"status.allocatable[{resource}]", str(error)) from None
    taints = tuple(Taint(t.key, t.value or "", t.effect) for t in spec.taints or ())
    policy = spec.pod_preemption_policy
    ready = next((c.status for c in status.conditions or () if c.type == "Ready"), "True")
    return Node(
        name,
        wire.metadata.labels or {},
        allocatable,
        taints,
        unschedulable=bool(spec.unschedulable),
        ready=ready == "True" or any(t.key in _READINESS_TAINTS for t in taints),
        allows_resize_preemption=policy is None or not policy.disable_resize_preemption,
    )


def warn_about_nodes(context: ImportContext) -> None:
    """Say what is odd about the nodes as a whole."""
    nodes = context.nodes.values()
    if unready := sorted(n.name for n in nodes if not n.ready):
        context.warn(
            f"{len(unready)} nodes are not Ready but carry no taint that says so (first: "
            f"{unready[0]}); they are treated as unusable"
        )
    if empty := sorted(n.name for n in nodes if not n.allocatable):
        context.warn(
            f"{len(empty)} nodes have no status.allocatable (first: {empty[0]}); nothing fits there"
        )


def read_namespaces(context: ImportContext) -> None:
    """Keep the labels of every Namespace, its name among them."""

    def read(obj: RawObject) -> None:
        labels = read_map(obj.body, "metadata.labels")
        for key, value in labels.items():
            if not isinstance(value, str):
                raise ReadProblem(
                    f"metadata.labels[{key}]", f"is {value!r:.60}: not a string; quote it"
                )
        context.namespaces[obj.name] = {"kubernetes.io/metadata.name": obj.name, **labels}

    for obj in context.all_of("", "Namespace"):
        context.guard(obj, read)


def read_priority_classes(context: ImportContext) -> frozenset[str]:
    """Fill in the priority classes and the default priority.

    Of several global defaults the smallest counts.

    Returns:
      The classes with `preemptionPolicy: Never`.
    """
    context.priority_classes.update(_SYSTEM_CLASSES)
    defaults: list[int] = []
    never: set[str] = set()

    def read(obj: RawObject) -> None:
        value = read_int(obj.body, "value", minimum=-(2**31))
        context.priority_classes[obj.name] = value
        if obj.body.get("globalDefault") is True:
            defaults.append(value)
        if obj.body.get("preemptionPolicy") == "Never":
            never.add(obj.name)

    for obj in context.all_of("scheduling.k8s.io", "PriorityClass"):
        context.guard(obj, read)
    context.default_priority = min(defaults, default=0)
    return frozenset(never)


def read_budgets(context: ImportContext) -> None:
    """Add the PodDisruptionBudgets.

    A status older than the spec, or none, allows no disruption.
    """

    def read(obj: RawObject) -> None:
        try:
            wire = msgspec.convert(obj.spec.get("selector"), LabelSelectorWire | None)
        except msgspec.ValidationError as error:
            raise ReadProblem("spec.selector", f"{error}; correct it") from None
        unmodelled: set[str] = set()
        selector = read_label_selector(wire, unmodelled)
        for reason in sorted(unmodelled):
            context.warn(f"PodDisruptionBudget {obj.ref}: {reason}; it matches no pod")
        allowed = read_int(obj.status, "disruptionsAllowed", 0, at="status")
        generation = read_int(obj.body, "metadata.generation", 0)
        if not obj.status:
            context.warn(
                f"PodDisruptionBudget {obj.ref} has no status; it counts as allowing no disruption"
            )
        elif read_int(obj.status, "observedGeneration", generation, at="status") < generation:
            allowed = 0
        disrupted = frozenset(read_map(obj.status, "disruptedPods", at="status"))
        context.budgets.append(Budget(obj.ref, selector, allowed, disrupted))

    for obj in context.all_of("policy", "PodDisruptionBudget"):
        context.guard(obj, read)
