"""Fleets in which many gangs at once need others to go: shapes that tell searches apart.

Nodes of 8 GPUs in racks of 16. Running gangs of one to eight pods fill nine nodes of ten, each of
their pods on a node of its own and often with others beside it; some are not to be evicted by
anybody who waits. Those that wait ask for whole nodes, halves and quarters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from bench.instances import GPU, KEY, make_spec
from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import HOSTNAME, PODS, Group, Node, Phase, TopologyTerm

if TYPE_CHECKING:
    from topology.model import Disruption, PodSpec, Snapshot

__all__ = ["SHAPES", "Shape", "count_victims", "make_joint"]

GPUS, CPUS, RACK = 8, 96, 16
STAYS: Final = 1_000
"""Priority of those whom nobody may evict."""
API: Final = "scheduling.k8s.io/v1beta1/PodGroup"


class Shape(NamedTuple):
    """What the gangs that wait, and those that run, are like."""

    kinds: tuple[tuple[int, int], ...] = ((4, 8),)
    """(pods, GPUs a pod) of the gangs that wait, in turn."""
    priorities: tuple[int, ...] = (100,)
    in_rack: bool = False
    """Every gang that waits needs one rack."""
    disruption: Disruption = "all"
    cpus_bind: bool = False
    has_leader: bool = False
    """One pod more in each gang, with one GPU."""
    is_elastic: bool = False
    """Half of its pods are enough for a gang."""


SHAPES: Final = {
    "alike": Shape(),
    "rack": Shape(in_rack=True),
    "kinds": Shape(((4, 8), (3, 4), (6, 2))),
    "levels": Shape(priorities=tuple(range(10, 110, 10))),
    "single": Shape(((4, 8), (3, 4), (6, 2)), disruption="single"),
    "cpu": Shape(((4, 8), (3, 4), (6, 2)), cpus_bind=True),
    "levels among victims": Shape(((4, 8), (3, 4)), (2, 4, 6, 9)),
    "leaders": Shape(has_leader=True),
    "elastic": Shape(is_elastic=True),
    "levels in racks": Shape(((4, 8), (3, 4)), tuple(range(10, 110, 10)), in_rack=True),
}


def make_joint(
    shape: Shape, nodes: int = 2_000, victims: int = 700, preemptors: int = 100, seed: int = 0
) -> Snapshot:
    """Build one instance; the same numbers for the same arguments, always."""
    rng = np.random.default_rng(seed * 7919 + nodes * 31 + victims * 7 + preemptors)
    specs: dict[tuple[int, int], PodSpec] = {}

    def spec(gpus: int) -> PodSpec:
        cpus = gpus * int(rng.integers(8, 15)) if shape.cpus_bind else 0
        return specs.setdefault((gpus, cpus), make_spec(gpus, min(cpus, CPUS)))

    machines = []
    for i in range(nodes):
        name = f"n{i:05d}"
        offers = {"cpu": CPUS * 1000, "memory": 1 << 40, PODS: 110, GPU: GPUS}
        machines.append(Node(name, {HOSTNAME: name, KEY: f"r{i // RACK:04d}"}, offers))
    groups: list[GroupRow] = []
    pods: list[PodRow] = []
    free, cpus_free = np.full(nodes, GPUS), np.full(nodes, CPUS * 1000)
    evictable = 0
    for v in range(8 * nodes):
        if free.sum() <= nodes * GPUS // 20 or (evictable >= victims and free.sum() < nodes * 2):
            break
        count = int(rng.choice([1, 2, 4, 8], p=[0.3, 0.3, 0.25, 0.15]))
        gpus = int(rng.choice([2, 4, 8], p=[0.2, 0.3, 0.5]))
        own = spec(gpus)
        asks = dict(own.requests).get("cpu", 0)
        room = np.flatnonzero((free >= gpus) & (cpus_free >= asks))
        if len(room) < count:
            continue
        start = int(rng.integers(len(room)))
        where = np.roll(room, -start)[:count]
        free[where] -= gpus
        cpus_free[where] -= asks
        may_go = evictable < victims and bool(rng.random() < 0.7)
        evictable += may_go
        priority = int(rng.choice([1, 2, 3, 5, 8])) if may_go else STAYS
        ref = f"bench/v{v:05d}"
        groups.append(
            GroupRow(
                Group(
                    ref,
                    "group",
                    API,
                    min_count=count,
                    size=count,
                    priority=priority,
                    disruption=shape.disruption,
                )
            )
        )
        pods += [
            PodRow(
                f"{ref}-{j}",
                own,
                node=f"n{n:05d}",
                group=ref,
                phase=Phase.RUNNING,
                priority=priority,
            )
            for j, n in enumerate(where.tolist())
        ]
    topology = (TopologyTerm((KEY,)),) if shape.in_rack else ()
    for g in range(preemptors):
        count, gpus = shape.kinds[g % len(shape.kinds)]
        priority = shape.priorities[g % len(shape.priorities)]
        ref = f"bench/g{g:04d}"
        own = make_spec(gpus, gpus * 11 if shape.cpus_bind else 0)
        members = [own] * count + [make_spec(1, 0)] * shape.has_leader
        group = Group(
            ref,
            "group",
            API,
            min_count=len(members) // 2 if shape.is_elastic else len(members),
            size=len(members),
            priority=priority,
            topology=topology,
            disruption="all",
        )
        groups.append(GroupRow(group))
        pods += [
            PodRow(f"{ref}-{j}", pod, group=ref, priority=priority) for j, pod in enumerate(members)
        ]
    return assemble_snapshot(machines, pods, groups)


def count_victims(snapshot: Snapshot) -> int:
    """Count the running gangs that somebody may evict."""
    return sum(g.ref.startswith("bench/v") and g.priority < STAYS for g in snapshot.groups)
