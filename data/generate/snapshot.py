"""Jobs on machines -> Snapshot, in columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from data.generate.machines import GPU
from data.generate.presets import POOL_LABEL
from data.generate.traits import DAY_S, NOW, draw_traits
from topology.assemble import find_node_keys
from topology.levels import is_topology_label
from topology.model import (
    NO_GROUP,
    NO_NODE,
    PODS,
    Group,
    Phase,
    PodFlag,
    PodSpec,
    PodTable,
    Snapshot,
    Toleration,
    TopologyTerm,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from data.generate.distributions import Mix
    from data.generate.jobs import Job
    from data.generate.machines import Machines
    from data.generate.presets import Preset
    from data.generate.traits import Traits

__all__ = ["COMPOSITE_API", "GROUP_API", "build_snapshot"]

GROUP_API: Final = "scheduling.k8s.io/v1beta1/PodGroup"
COMPOSITE_API: Final = "scheduling.k8s.io/v1alpha3/CompositePodGroup"

_CPU_PER_GPU: Final = 16_000
_MEMORY_PER_GPU: Final = 160 << 30
_MIB: Final = 1 << 20
_DAEMONS: Final = (
    ("cilium", 200, 512 * _MIB),
    ("csi-node", 50, 128 * _MIB),
    ("dcgm-exporter", 100, 256 * _MIB),
    ("fluent-bit", 200, 512 * _MIB),
    ("gpu-feature-discovery", 50, 64 * _MIB),
    ("kube-proxy", 100, 128 * _MIB),
    ("node-exporter", 100, 128 * _MIB),
    ("nvidia-device-plugin", 50, 128 * _MIB),
)
"""(name, milli-cores, bytes) of the DaemonSets on every GPU node. Amounts are ours."""
_DAEMON_NAMESPACE: Final = "kube-system"
_DAEMON_PRIORITY: Final = 2_000_001_000


def build_snapshot(
    machines: Machines, preset: Preset, jobs: Sequence[Job], mix: Mix, rng: random.Random
) -> Snapshot:
    """Turn jobs into pods and in-tree groups, and add the DaemonSets of every node.

    A job of one pod is a plain pod; more make a PodGroup, parts make one each below a
    CompositePodGroup.

    Args:
      machines: Where the jobs run.
      preset: Names the keys of the domains.
      jobs: Running and waiting ones; the order decides nothing but names.
      mix: Gives the durations.
      rng: Decides names, priorities, ages.
    """
    traits = draw_traits(jobs, mix, int(machines.gpus.sum()), rng)
    keys = {"inner": preset.inner_key, "outer": preset.outer_key}
    groups: list[tuple[Group, str]] = []
    leaves: list[tuple[str, str, int]] = []  # ref in front of pod names, group, job
    counts: list[int] = []
    for j, (job, trait) in enumerate(zip(jobs, traits, strict=True)):
        made = _make_groups(job, trait, keys)
        groups += made
        if not made:
            leaves.append((trait.ref, "", j))
        leaves += [(g.ref, g.ref, j) for g, _ in made if g.kind == "group"]
        counts += job.parts
    groups.sort(key=lambda row: row[0].ref)
    group_index = {group.ref: i for i, (group, _) in enumerate(groups)}
    parents = [group_index[parent] if parent else NO_GROUP for _, parent in groups]
    table = _build_table(machines, preset, jobs, traits, leaves, counts, group_index)
    sorted_groups = tuple(
        replace(group, parent=p) for (group, _), p in zip(groups, parents, strict=True)
    )
    wanted = find_node_keys(table.specs, sorted_groups)
    nodes = tuple(
        replace(
            node,
            labels={k: v for k, v in node.labels.items() if k in wanted or is_topology_label(k)},
        )
        for node in machines.nodes
    )
    return Snapshot(nodes, table, sorted_groups)


def _make_groups(job: Job, trait: Traits, keys: dict[str, str]) -> list[tuple[Group, str]]:
    """Return the groups of a job with the refs of their parents, the root first."""
    if job.pods == 1:
        return []
    topology = (TopologyTerm((keys[job.level],)),) if job.level else ()
    leaf = Group(
        trait.ref,
        "group",
        GROUP_API,
        min_count=3 * job.pods // 4 if trait.has_spare else job.pods,
        size=job.pods,
        priority=trait.priority,
        topology=topology,
        disruption=trait.disruption,
        created=trait.created,
    )
    if len(job.parts) == 1:
        return [(leaf, "")]
    root = replace(
        leaf,
        kind="composite",
        api=COMPOSITE_API,
        min_count=0,
        min_groups=len(job.parts),
        topology=(TopologyTerm((keys["outer"],)),) if job.shares_outer else (),
    )
    children = [
        (replace(leaf, ref=f"{trait.ref}-{i}", min_count=pods, size=pods), trait.ref)
        for i, pods in enumerate(job.parts)
    ]
    return [(root, ""), *children]


def _make_specs(machines: Machines, preset: Preset) -> tuple[list[PodSpec], dict[int, int]]:
    """Return the specs and where those of each pool begin (one for each number of GPUs)."""
    specs = [
        PodSpec(
            (("cpu", cpu), ("memory", memory), (PODS, 1)),
            tolerations=(Toleration(operator="Exists"),),
        )
        for _, cpu, memory in _DAEMONS
    ]
    start = {}
    for p, pool in enumerate(machines.pools):
        start[p] = len(specs)
        # A tenth of the node stays free for DaemonSets, so that GPUs are what runs out.
        cpu = min(pool.cpu_milli * 9 // (10 * pool.gpus), _CPU_PER_GPU)
        memory = min(pool.memory * 9 // (10 * pool.gpus), _MEMORY_PER_GPU) // _MIB * _MIB
        selector = ((POOL_LABEL, pool.name),) if len(preset.pools) > 1 else ()
        for gpus in range(1, pool.gpus + 1):
            requests = (("cpu", cpu * gpus), ("memory", memory * gpus), (GPU, gpus), (PODS, 1))
            specs.append(PodSpec(requests, selector))
    return specs, start


def _build_table(
    machines: Machines,
    preset: Preset,
    jobs: Sequence[Job],
    traits: Sequence[Traits],
    leaves: Sequence[tuple[str, str, int]],
    counts: Sequence[int],
    group_index: dict[str, int],
) -> PodTable:
    specs, start = _make_specs(machines, preset)
    refs = [f"{ref}-{i}" for (ref, _, _), n in zip(leaves, counts, strict=True) for i in range(n)]
    num_members, num_nodes = len(refs), len(machines.nodes)
    refs += [
        f"{_DAEMON_NAMESPACE}/{name}-{node.name}"
        for name, *_ in _DAEMONS
        for node in machines.nodes
    ]
    num_daemons = len(_DAEMONS) * num_nodes
    order = np.array(sorted(range(len(refs)), key=refs.__getitem__), np.int64)

    job_of = np.repeat(np.array([j for _, _, j in leaves], np.int64), counts)
    leaf_first = np.cumsum([0, *counts])[:-1]
    in_group = np.repeat(np.array([bool(group) for _, group, _ in leaves], np.bool_), counts)
    index = np.arange(num_members) - np.repeat(leaf_first, counts).astype(np.int64)

    def gather(of_jobs: Sequence[int], daemons: object, dtype: type[np.generic]) -> np.ndarray:
        members = np.array(of_jobs, dtype)[job_of]
        rest = np.broadcast_to(np.array(daemons, dtype), num_daemons)
        return np.concatenate([members, rest])[order]

    nodes = [n for job in jobs for n in job.nodes or [NO_NODE] * job.pods]
    all_nodes = np.array(nodes, np.int32), np.tile(np.arange(num_nodes, dtype=np.int32), 8)
    node = np.concatenate(all_nodes)[order]
    leaf_group = [group_index.get(group, NO_GROUP) for _, group, _ in leaves]
    none = np.full(num_daemons, -1, np.int32)
    num_pods = len(refs)
    spec = [start[job.pool] + job.gpus - 1 for job in jobs]
    return PodTable(
        refs=tuple(refs[i] for i in order),
        specs=tuple(specs),
        label_sets=({},),
        templates=("",),
        spec=gather(spec, np.repeat(np.arange(len(_DAEMONS)), num_nodes), np.int32),
        labels=np.zeros(num_pods, np.int32),
        template=np.zeros(num_pods, np.int32),
        node=node,
        group=np.concatenate([np.repeat(np.array(leaf_group, np.int32), counts), none])[order],
        phase=np.where(node == NO_NODE, Phase.PENDING, Phase.RUNNING).astype(np.int8),
        flags=gather([0] * len(jobs), PodFlag.DAEMON, np.int16),
        priority=gather([t.priority for t in traits], _DAEMON_PRIORITY, np.int32),
        nominated=np.full(num_pods, NO_NODE, np.int32),
        rank=np.concatenate([np.where(in_group, index, -1).astype(np.int32), none])[order],
        created=gather([t.created for t in traits], NOW - 30 * DAY_S, np.int64),
        started=gather([t.started for t in traits], NOW - 30 * DAY_S, np.int64),
        checkpoint=gather([t.checkpoint for t in traits], -1, np.int64),
    )
