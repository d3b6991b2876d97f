"""Questions about evictions: objects that run, a gang that wants room, who would go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asking import ask
from builders import RACK
from kube import container, node, pod

if TYPE_CHECKING:
    from topology.plan import Plan

Obj = dict[str, Any]
DEFAULT = (
    "max:priority",
    "min:pdbViolations",
    "min:highestVictimPriority",
    "min:victimUnits",
    "min:victimPods",
)


def preempt(*objects: Obj, **request: Any) -> Plan:
    """Plan with evictions; nobody is a victim who is not needed, as `ask` has verified."""
    return ask(*objects, **({"preempt": True, "objective": DEFAULT} | request))


def victims(plan: Plan) -> list[str]:
    """The evicted pods, the namespace left out."""
    return [eviction.pod.partition("/")[2] for eviction in plan.evictions]


def rack(name: str, where: str) -> Obj:
    return node(name, labels={RACK: where})


def running(name: str, on: str, priority: int = 0, *, gpus: int = 1, **fields: Any) -> Obj:
    return pod(name, container(gpus=gpus), on=on, priority=priority, **fields)


def crowd(name: str, count: int, on: str, priority: int = 0, **fields: Any) -> list[Obj]:
    return [running(f"{name}{i}", on, priority, **fields) for i in range(count)]


def wanted(count: int = 1, *, gpus: int = 8, priority: int = 10, **fields: Any) -> list[Obj]:
    """Pending pods of gang g."""
    return [
        pod(f"g{i}", container(gpus=gpus), group="g", priority=priority, **fields)
        for i in range(count)
    ]
