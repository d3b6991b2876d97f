"""Fleets of two public reports where looking for victims was slow or went wrong, and tangled ones.

kueue#13148: 2,000 nodes and 700 running workloads that may be evicted; a cycle took 40 s.
kueue#10815: ten NVLink cliques of 18 nodes with 4 GPUs each; victims were taken from all cliques,
and the workload fitted in none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bench.fleets import API
from bench.instances import GPU, KEY
from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import HOSTNAME, PODS, Group, Node, Phase, PodSpec, TopologyTerm

if TYPE_CHECKING:
    from topology.model import Snapshot

__all__ = ["PREEMPTOR", "make_cliques", "make_tangled_fleet", "make_wide_fleet"]

PREEMPTOR = "bench/preemptor"
GIB = 1 << 30


def _make_spec(gpus: int, cpus: int, gib: int) -> PodSpec:
    wanted = {GPU: gpus, "cpu": cpus * 1000, "memory": gib * GIB, PODS: 1}
    return PodSpec(tuple(sorted((k, v) for k, v in wanted.items() if v)))


def _make_gang(
    ref: str,
    spec: PodSpec,
    on: list[str],
    *,
    priority: int,
    key: str | None = None,
    mode: str = "all",
    pending: int = 0,
) -> tuple[GroupRow, list[PodRow]]:
    count = pending or len(on)
    topology = () if key is None else (TopologyTerm((key,)),)
    group = Group(
        ref,
        "group",
        API,
        min_count=count,
        size=count,
        priority=priority,
        topology=topology,
        disruption=mode,  # type: ignore[arg-type]
    )
    rows = [
        PodRow(
            f"{ref}-{j:04d}",
            spec,
            node=on[j] if on else "",
            group=ref,
            phase=Phase.RUNNING if on else Phase.PENDING,
            priority=priority,
            rank=j,
        )
        for j in range(count)
    ]
    return GroupRow(group), rows


def _make_nodes(count: int, per_domain: int, gpus: int) -> list[Node]:
    offers = {"cpu": 128_000, "memory": 1024 * GIB, PODS: 110, GPU: gpus}
    return [
        Node(f"n{i:05d}", {HOSTNAME: f"n{i:05d}", KEY: f"d{i // per_domain:04d}"}, dict(offers))
        for i in range(count)
    ]


def make_wide_fleet(
    nodes: int, per_domain: int, *, is_one_domain: bool = False, seed: int = 0
) -> Snapshot:
    """Build a full fleet: about 7 gangs that go whole for 20 nodes, and pods that may not go.

    The preemptor takes 0.4 of a domain (or of 100 nodes, where the fleet is one domain); its pods
    ask for GPUs, cpu and memory, and each of the three binds on some nodes.
    """
    rng = np.random.default_rng(seed)
    machines = _make_nodes(nodes, per_domain, 8)
    left = np.tile(np.array([8, 120, 960]), (nodes, 1))
    groups, pods = [], []
    for v in range(nodes * 7 // 20):
        gpus = int(rng.choice([1, 2, 4, 8], p=[0.1, 0.2, 0.3, 0.4]))
        cpus = gpus * int(rng.choice([4, 8, 14]))
        gib = gpus * int(rng.choice([40, 80, 110]))
        count = int(rng.choice([1, 2, 4, 8], p=[0.35, 0.3, 0.22, 0.13])) * 8 // gpus
        spec = _make_spec(gpus, cpus, gib)
        amounts = np.array([gpus, cpus, gib])
        on: list[str] = []
        start = int(rng.integers(nodes)) // per_domain * per_domain
        for n in (start + np.arange(nodes)) % nodes:
            while len(on) < count and (left[n] >= amounts).all():
                left[n] -= amounts
                on.append(machines[n].name)
            if len(on) == count:
                break
        if on:
            priority = int(rng.choice([1, 2, 5]))
            row, members = _make_gang(f"bench/v{v:05d}", spec, on, priority=priority)
            groups.append(row)
            pods += members
    for n in np.flatnonzero(left[:, 0]).tolist():
        spec = _make_spec(int(left[n, 0]), 0, 0)
        ref, name = f"bench/kept-{n:05d}", machines[n].name
        pods.append(PodRow(ref, spec, node=name, phase=Phase.RUNNING, priority=1000))
    count = 40 if is_one_domain else per_domain * 2 // 5
    key = None if is_one_domain else KEY
    row, members = _make_gang(
        PREEMPTOR, _make_spec(8, 64, 512), [], priority=100, key=key, pending=count
    )
    return assemble_snapshot(machines, [*pods, *members], [*groups, row])


def make_cliques(seed: int = 0) -> Snapshot:
    """Build ten cliques of 18 nodes with 4 GPUs, filled by single pods of many small jobs.

    Jobs stand scattered over all cliques; the preemptor asks for 16 whole nodes of one clique.
    """
    rng = np.random.default_rng(seed)
    machines = _make_nodes(180, 18, 4)
    order = rng.permutation(np.repeat(np.arange(180), 2))
    groups, pods, at = [], [], 0
    while at < len(order) - 8:
        count = int(rng.choice([1, 2, 4, 8]))
        on = [machines[n].name for n in order[at : at + count]]
        at += count
        row, members = _make_gang(
            f"bench/v{at:05d}",
            _make_spec(2, 16, 100),
            on,
            priority=int(rng.choice([1, 2, 5])),
            mode="single" if rng.random() < 0.5 else "all",
        )
        groups.append(row)
        pods += members
    row, members = _make_gang(
        PREEMPTOR, _make_spec(4, 64, 512), [], priority=100, key=KEY, pending=16
    )
    return assemble_snapshot(machines, [*pods, *members], [*groups, row])


def make_tangled_fleet(domains: int, units: int, *, nodes: int = 18, seed: int = 0) -> Snapshot:
    """Build domains in which every node is shared by several gangs that go whole.

    GPUs, cpu and memory are cut in odd pieces, so that no order of gangs is a good guess; costs
    are spread widely. The preemptor takes 0.6 of the GPUs of a domain in pods of 2.
    """
    rng = np.random.default_rng(seed)
    machines = _make_nodes(domains * nodes, nodes, 8)
    groups, pods = [], []
    for d in range(domains):
        left = np.tile(np.array([8, 120, 960]), (nodes, 1))
        for v in range(units):
            gpus = int(rng.choice([1, 1, 2]))
            spec = (gpus, gpus * int(rng.integers(6, 18)), gpus * int(rng.integers(40, 150)))
            on: list[str] = []
            for n in rng.permutation(nodes):
                if len(on) < 5 and (left[n] >= spec).all():
                    left[n] -= spec
                    on.append(machines[d * nodes + int(n)].name)
            row, members = _make_gang(
                f"bench/d{d:03d}-v{v:02d}",
                _make_spec(*spec),
                on,
                priority=int(rng.integers(1, 60)),
            )
            groups.append(row)
            pods += members
    row, members = _make_gang(
        PREEMPTOR,
        _make_spec(2, 30, 240),
        [],
        priority=100,
        key=KEY,
        pending=int(nodes * 8 * 0.6 / 2),
    )
    return assemble_snapshot(machines, [*pods, *members], [*groups, row])
