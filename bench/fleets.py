"""Regular fleets and gangs that the speed benchmarks share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.instances import GPU, KEY
from topology.assemble import GroupRow, PodRow
from topology.model import HOSTNAME, PODS, Group, Node, PodSpec, TopologyTerm

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ZONE", "join", "make_composites", "make_gang", "make_gangs", "make_nodes"]

ZONE = "topology.kubernetes.io/zone"
API = "scheduling.k8s.io/v1beta1/PodGroup"

Rows = tuple[list[GroupRow], list[PodRow]]


def make_nodes(count: int, zones: int, racks: int) -> list[Node]:
    """Return empty nodes of 8 GPUs and 64 cores in zones and racks of equal size."""
    return [
        Node(
            f"n{i:06d}",
            {
                HOSTNAME: f"n{i:06d}",
                ZONE: f"z{i * zones // count:02d}",
                KEY: f"r{i * racks // count:04d}",
            },
            {"cpu": 64_000, "memory": 512 << 30, PODS: 110, GPU: 8},
        )
        for i in range(count)
    ]


def make_gang(
    ref: str, size: int, spec: PodSpec, term: TopologyTerm | None = None, parent: str = ""
) -> Rows:
    """Return the group of one gang and its `size` pods, all of them needed."""
    topology = () if term is None else (term,)
    group = Group(ref, "group", API, min_count=size, size=size, topology=topology)
    pods = [PodRow(f"{ref}-{i:04d}", spec, group=ref, rank=i) for i in range(size)]
    return [GroupRow(group, parent)], pods


def make_gangs(count: int, size: int, spec: PodSpec, key: str | None = None) -> Rows:
    """Return `count` gangs of `size`, each in one domain of `key` if that is given."""
    term = None if key is None else TopologyTerm((key,))
    return join(make_gang(f"bench/gang-{g:05d}", size, spec, term) for g in range(count))


def make_composites(count: int, children: int, size: int, spec: PodSpec) -> Rows:
    """Return composites with the zone on the parent and the rack on each child gang."""
    groups: list[GroupRow] = []
    pods: list[PodRow] = []
    for c in range(count):
        top = f"bench/parent-{c:05d}"
        composite = Group(
            top,
            "composite",
            "scheduling.k8s.io/v1alpha3/CompositePodGroup",
            min_groups=children,
            size=children * size,
            topology=(TopologyTerm((ZONE,)),),
        )
        inner = join(
            make_gang(f"{top}-{k}", size, spec, TopologyTerm((KEY,)), top) for k in range(children)
        )
        groups += [GroupRow(composite), *inner[0]]
        pods += inner[1]
    return groups, pods


def join(parts: Iterable[Rows]) -> Rows:
    """Return the groups and the pods of several parts as one."""
    groups: list[GroupRow] = []
    pods: list[PodRow] = []
    for some_groups, some_pods in parts:
        groups += some_groups
        pods += some_pods
    return groups, pods
