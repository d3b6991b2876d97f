"""The sizes of kube-scheduler's own performance tests, placed whole on 5,000 nodes.

Run: python -m bench.scale
Source: kubernetes test/integration/scheduler_perf/podgroup (gangscheduling, tas, cpg).
"""

from __future__ import annotations

import time

from bench.instances import GPU, KEY
from bench.table import write_table
from ray_jobs.pipeline import make_plan
from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import HOSTNAME, PODS, Group, Node, PodSpec, TopologyTerm
from topology.plan import Request

ZONE = "topology.kubernetes.io/zone"
API = "scheduling.k8s.io/v1beta1/PodGroup"


def make_nodes(count: int, zones: int, racks: int) -> list[Node]:
    """Return empty 8-GPU nodes in zones and racks of equal size."""
    return [
        Node(
            f"n{i:05d}",
            {
                HOSTNAME: f"n{i:05d}",
                ZONE: f"z{i * zones // count:02d}",
                KEY: f"r{i * racks // count:04d}",
            },
            {"cpu": 64_000, "memory": 512 << 30, PODS: 110, GPU: 8},
        )
        for i in range(count)
    ]


def make_gangs(count: int, size: int, spec: PodSpec, key: str | None = None):
    """Return groups and pods of `count` gangs of `size`."""
    groups, pods = [], []
    for g in range(count):
        ref = f"bench/gang-{g:05d}"
        topology = (TopologyTerm((key,)),) if key else ()
        groups.append(
            GroupRow(Group(ref, "group", API, min_count=size, size=size, topology=topology))
        )
        pods += [PodRow(f"{ref}-{i:04d}", spec, group=ref, rank=i) for i in range(size)]
    return groups, pods


def make_composites(count: int, children: int, size: int, spec: PodSpec):
    """Return composites with the zone on the parent and the rack on each child."""
    groups, pods = [], []
    for c in range(count):
        top = f"bench/parent-{c:05d}"
        groups.append(
            GroupRow(
                Group(
                    top,
                    "composite",
                    "scheduling.k8s.io/v1alpha3/CompositePodGroup",
                    min_groups=children,
                    size=children * size,
                    topology=(TopologyTerm((ZONE,)),),
                )
            )
        )
        for k in range(children):
            ref = f"{top}-{k}"
            groups.append(
                GroupRow(
                    Group(
                        ref,
                        "group",
                        API,
                        min_count=size,
                        size=size,
                        topology=(TopologyTerm((KEY,)),),
                    ),
                    top,
                )
            )
            pods += [PodRow(f"{ref}-{i:04d}", spec, group=ref, rank=i) for i in range(size)]
    return groups, pods


def main() -> None:
    """Place every set."""
    nodes = make_nodes(5000, 10, 50)
    one_gpu = PodSpec((("cpu", 1000), (GPU, 1), (PODS, 1)))
    cpu_only = PodSpec((("cpu", 1000), ("memory", 1 << 30), (PODS, 1)))
    sets = [
        ("3,000 gangs of 3", make_gangs(3000, 3, one_gpu)),
        ("9 gangs of 1,000", make_gangs(9, 1000, one_gpu)),
        ("10 gangs of 5,000 (cpu only)", make_gangs(10, 5000, cpu_only)),
        ("TAS: 2,250 gangs of 4 in a rack", make_gangs(2250, 4, one_gpu, KEY)),
        ("TAS: 9 gangs of 1,000 in a zone", make_gangs(9, 1000, one_gpu, ZONE)),
        ("composite: 1,500 x 2 groups of 4", make_composites(1500, 2, 4, one_gpu)),
        ("composite: 3 x 2 groups of 500", make_composites(3, 2, 500, one_gpu)),
    ]
    rows = []
    for name, (groups, pods) in sets:
        snapshot = assemble_snapshot(nodes, pods, groups)
        start = time.perf_counter()
        plan = make_plan(snapshot, Request())
        seconds = time.perf_counter() - start
        assert plan.verification is not None
        rows.append(
            [
                name,
                f"{plan.criteria['groupsPlaced']} of {len(plan.groups)}",
                plan.criteria["podsPlaced"],
                plan.bound.proof,
                "valid" if plan.verification.is_valid else "INVALID",
                f"{seconds:.2f}",
            ]
        )
    heads = [
        "pending on 5,000 nodes",
        "groups placed",
        "pods placed",
        "proof",
        "verified",
        "search, answer and verification s",
    ]
    write_table("scale", "Sizes of scheduler_perf", heads, rows)


if __name__ == "__main__":
    main()
