"""Placement instances: racks of 16 nodes of 8 GPUs, partly filled, gangs that want one rack each.

Kinds: `whole` (8-GPU pods), `pow2` (1, 2, 4 or 8), `vec` (cpu binds too), `tight` and `equal`
(gangs of 16 to 56 GPUs, more than fit; all alike in priority for `equal`). Widely spread
priorities make plain greedy optimal, so the kind is always named with a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import HOSTNAME, PODS, Group, Node, Phase, PodSpec, TopologyTerm

if TYPE_CHECKING:
    from topology.model import Snapshot

__all__ = ["GPU", "KEY", "KINDS", "make_instance", "make_spec", "objective_of"]

GPU = "nvidia.com/gpu"
KEY = "topology.example.com/rack"
KINDS = ("whole", "pow2", "vec", "tight", "equal")
GPUS, CPUS, RACK = 8, 96, 16


def objective_of(kind: str) -> tuple[str, ...]:
    """Return the criterion by which a kind is judged."""
    return ("max:gpusPlaced",) if kind == "equal" else ("max:weightedGpus",)


def make_spec(gpus: int, cpus: int) -> PodSpec:
    """Return a pod that asks for GPUs and whole cores."""
    wanted = {GPU: gpus, "cpu": cpus * 1000, PODS: 1}
    return PodSpec(tuple(sorted((k, v) for k, v in wanted.items() if v)))


def make_instance(kind: str, nodes: int, gangs: int, seed: int = 0) -> Snapshot:
    """Build one instance as a snapshot; the same numbers for the same arguments, always."""
    rng = np.random.default_rng(seed * 1000003 + nodes * 101 + gangs)
    u = rng.random(nodes)
    free = np.where(u < 0.35, 8, np.where(u < 0.60, 0, rng.integers(1, 8, nodes))).astype(int)
    free_cpu = np.clip(12 * free + rng.integers(-18, 19, nodes), 0, CPUS).astype(int)
    free_cpu[free == 8] = CPUS - rng.integers(0, 9, (free == 8).sum())
    size = rng.choice([1, 2, 3, 4, 6, 8], size=gangs, p=[0.25, 0.25, 0.15, 0.15, 0.12, 0.08])
    weight = rng.choice([1, 2, 3, 5, 8], size=gangs, p=[0.3, 0.25, 0.2, 0.15, 0.1])
    if kind in ("tight", "equal"):
        size = rng.choice([2, 3, 4, 5, 6, 7], size=gangs)
        weight = rng.choice([1, 2, 3], size=gangs) if kind == "tight" else np.ones(gangs, int)
    per_pod = (
        np.full(gangs, 8)
        if kind == "whole"
        else rng.choice([1, 2, 4, 8], size=gangs, p=[0.15, 0.2, 0.25, 0.4])
    )
    count = 8 * size // per_pod
    cpus = np.minimum(per_pod * rng.integers(8, 15, gangs), CPUS - 8)
    specs: dict[tuple[int, int], PodSpec] = {}

    def spec(gpu: int, cpu: int) -> PodSpec:
        return specs.setdefault((gpu, cpu), make_spec(gpu, cpu))

    machines = []
    pods = []
    for i in range(nodes):
        name = f"n{i:05d}"
        offers = {"cpu": CPUS * 1000, "memory": 1 << 40, PODS: 110, GPU: GPUS}
        machines.append(Node(name, {HOSTNAME: name, KEY: f"r{i // RACK:04d}"}, offers))
        if free[i] < GPUS or kind == "vec":
            held = spec(GPUS - int(free[i]), CPUS - int(free_cpu[i]) if kind == "vec" else 0)
            row = PodRow(f"bench/filler-{i}", held, node=name, phase=Phase.RUNNING, priority=1000)
            pods.append(row)
    groups = []
    for g in range(gangs):
        ref = f"bench/g{g:04d}"
        group = Group(
            ref,
            "group",
            "scheduling.k8s.io/v1beta1/PodGroup",
            min_count=int(count[g]),
            size=int(count[g]),
            priority=int(weight[g]),
            topology=(TopologyTerm((KEY,)),),
            disruption="all",
        )
        groups.append(GroupRow(group))
        own = spec(int(per_pod[g]), int(cpus[g]) if kind == "vec" else 0)
        pods += [
            PodRow(f"{ref}-{j}", own, group=ref, priority=int(weight[g]))
            for j in range(int(count[g]))
        ]
    return assemble_snapshot(machines, pods, groups)
