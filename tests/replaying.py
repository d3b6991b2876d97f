"""Fleets whose pods ask for cpu beside GPUs, so that kube-scheduler's scores tell nodes apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asking import ask
from builders import RACK
from kube import GPU, container, gang, node, pod

from optimizer.objective import PREEMPT_OBJECTIVE

if TYPE_CHECKING:
    from topology.plan import Plan

Obj = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
ALL: Obj = {"disruptionMode": {"all": {}}}
BASIC: Obj = {"schedulingPolicy": {"basic": {}}}
ONE_RACK: Obj = {"schedulingConstraints": {"topology": [{"key": RACK}]}}


def room(gpus: int, name: str = "n0", **labels: str) -> Obj:
    """A node with so many GPUs."""
    offers = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)}
    return node(name, labels={RACK: labels["rack"]} if labels else {}, allocatable=offers)


def wait(
    count: int, *, gpus: int = 1, group: str = "g", start: int = 0, **fields: Any
) -> list[Obj]:
    """Pending pods g<start> … of a gang; 4 cores a GPU, so that LeastAllocated spreads them."""
    cpu = fields.pop("cpu", str(4 * gpus))
    return [
        pod(f"{group}{i}", container(cpu=cpu, gpus=gpus), group=group, **fields)
        for i in range(start, start + count)
    ]


def run(name: str, on: str, *, gpus: int = 1, second: int = 0, **fields: Any) -> Obj:
    """A running pod that started so many seconds after midnight."""
    status = {"startTime": f"2026-11-30T00:00:{second:02}Z"}
    return pod(name, container(cpu=str(4 * gpus), gpus=gpus), on=on, status=status, **fields)


def crowd(name: str, count: int, on: str, **fields: Any) -> list[Obj]:
    """Running pods, each started a second after the one before."""
    return [run(f"{name}{i}", on, second=i, **fields) for i in range(count)]


def child(name: str, min_count: int, **fields: Any) -> Obj:
    """A leaf of the composite top."""
    ref = {"workloadName": "w", "templateName": name}
    return gang(name, min_count, parentCompositePodGroupName="top", workloadRef=ref, **fields)


def replay(*objects: Obj, **request: Any) -> Plan:
    """What kube-scheduler would do, with preemption where `preempt` is given."""
    if request.get("preempt"):
        request = {"objective": PREEMPT_OBJECTIVE, **request}
    return ask(*objects, **{"policy": "replay", **request})


def victims(plan: Plan) -> list[str]:
    """The evicted pods, the namespace left out."""
    return [eviction.pod.partition("/")[2] for eviction in plan.evictions]
