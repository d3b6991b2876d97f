"""What the pictures draw: nodes, what they offer, what their pods hold, the domains they are in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from gangplan.inspection import is_schedulable
from optimizer.fragmentation import count_free_gpus
from topology.device_counts import count_by_class
from topology.errors import RequestError
from topology.graph import find_trees
from topology.levels import DomainColumn, build_column, find_keys_in_use
from topology.model import HOSTNAME, NO_GROUP, NO_NODE, Node, is_gpu
from topology.owners import find_owners
from topology.usage import count_usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from data.inspection_documents import InspectionDocument
    from topology.model import ClaimNeed, Snapshot
    from topology.plan import Plan

__all__ = [
    "Fleet",
    "Holding",
    "count_open",
    "fleet_of_inspection",
    "fleet_of_plan",
    "fleet_of_snapshot",
]


@dataclass(frozen=True, slots=True)
class Holding:
    """What a pod is to a picture."""

    owner: str
    """Its group, or itself where it is in none."""
    node: int
    """Index of the node it runs on, -1 where it waits."""
    amount: int
    """Of the fleet's unit."""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes in the order of their names; axis N.

    Amounts are in `unit`: "GPU" (of a node that offers none as a resource: devices of the class
    with the most), "device" where no node offers GPUs as a resource, "CPU" where there are neither,
    and "pod" where a plan alone is known, which names
    the nodes it touches and not what they offer.
    """

    nodes: tuple[str, ...]
    capacity: NDArray[np.int64]
    used: NDArray[np.int64]
    is_open: NDArray[np.bool_]
    """bool[N], takes new pods."""
    pods: Mapping[str, Holding]
    trees: tuple[tuple[DomainColumn, ...], ...] = ()
    """Levels that nest in one another, widest first."""
    unit: str = "GPU"
    is_partial: bool = False
    """Only what a plan touches."""
    index: Mapping[str, int] = field(default_factory=dict)
    """Position of every node by name."""

    @property
    def free(self) -> NDArray[np.int64]:
        """i64[N], free amounts of open nodes, 0 of others; never below zero."""
        return count_open(self, self.used)


def count_open(fleet: Fleet, used: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return what nodes that take new pods have free when `used` i64[N] is held."""
    free: NDArray[np.int64] = np.where(fleet.is_open, np.maximum(fleet.capacity - used, 0), 0)
    return free


def _index(names: Iterable[str]) -> dict[str, int]:
    return {name: n for n, name in enumerate(names)}


def _build_trees(
    nodes: Sequence[Node], keys: Iterable[str]
) -> tuple[tuple[DomainColumn, ...], ...]:
    columns = [build_column(nodes, (key,)) for key in keys if key != HOSTNAME]
    # A level with one domain for each node says no more than the node's name.
    telling = [c for c in columns if 0 < len(c.values) < max(int((c.codes >= 0).sum()), 2)]
    return tuple(tuple(tree) for tree in find_trees(telling))


def fleet_of_snapshot(snapshot: Snapshot) -> Fleet:
    """Return the fleet of a snapshot, its pods with what they hold."""
    nodes, pods = snapshot.nodes, snapshot.pods
    unit, capacity, used, spec_amounts = _count_amounts(snapshot)
    owners = find_owners(snapshot).tolist()
    holds = pods.holds_room.tolist()
    amounts = [spec_amounts[x] for x in pods.spec.tolist()]
    held = {
        ref: Holding(
            snapshot.groups[owner].ref if owner != NO_GROUP else ref,
            node if holds[p] else -1,
            amounts[p],
            snapshot.groups[owner].priority if owner != NO_GROUP else priority,
        )
        for p, (ref, owner, node, priority) in enumerate(
            zip(pods.refs, owners, pods.node.tolist(), pods.priority.tolist(), strict=True)
        )
    }
    names = tuple(node.name for node in nodes)
    trees = _build_trees(nodes, find_keys_in_use(snapshot))
    is_open = _find_open(snapshot)
    return Fleet(names, capacity, used, is_open, held, trees, unit, index=_index(names))


def _count_amounts(
    snapshot: Snapshot,
) -> tuple[str, NDArray[np.int64], NDArray[np.int64], list[int]]:
    """Return the unit, what nodes offer and hold of it (i64[N] each), and what specs ask for."""
    specs = snapshot.pods.specs
    usage = count_usage(snapshot)
    columns = [r for r, name in enumerate(usage.resources) if is_gpu(name)]
    gpus, held = (amounts[:, columns].sum(axis=1) for amounts in (usage.allocatable, usage.used))
    devices = count_by_class(snapshot.devices)
    main = _find_main(devices.values())
    counts = [devices.get(n, {}).get(main, (0, 0)) for n in range(len(snapshot.nodes))]
    total, free = np.array(counts, np.int64).reshape(-1, 2).T
    # Where a node offers both, they may be the same GPUs.
    capacity, used = np.where(gpus > 0, gpus, total), np.where(gpus > 0, held, total - free)
    if capacity.any() or "cpu" not in usage.resources:
        asked = [spec.gpus or _count_claimed(spec.claims) for spec in specs]
        return "GPU" if gpus.any() else "device", capacity, used, asked
    cpu = usage.column("cpu")
    capacity, used = usage.allocatable[:, cpu] // 1000, -(-usage.used[:, cpu] // 1000)
    return "CPU", capacity, used, [-(-spec.request("cpu") // 1000) for spec in specs]


def _find_open(snapshot: Snapshot) -> NDArray[np.bool_]:
    """Return bool[N]: nodes whose GPUs count as free once no pod holds them."""
    nowhere = np.full_like(snapshot.pods.node, NO_NODE)
    empty = replace(snapshot, pods=replace(snapshot.pods, node=nowhere))
    gpus = count_free_gpus(empty)
    takes = np.array([is_schedulable(node) for node in snapshot.nodes], np.bool_)
    is_open: NDArray[np.bool_] = np.where(gpus.allocatable > 0, gpus.free > 0, takes)
    return is_open


def _count_claimed(claims: Sequence[ClaimNeed]) -> int:
    # What All takes depends on the node: at least one.
    return sum(
        max(choice.alternatives[0].count, 1) for claim in claims for choice in claim.requests
    )


def _find_main(devices: Iterable[Mapping[str, tuple[int, int]]]) -> str:
    """Return the device class with the most devices, "" where there is none.

    Classes may describe the same devices, so they are not added up.
    """
    sums: dict[str, int] = {}
    for classes in devices:
        for name, (total, _) in classes.items():
            sums[name] = sums.get(name, 0) + total
    return max(sorted(sums), key=lambda name: sums[name], default="")


def fleet_of_inspection(document: InspectionDocument) -> Fleet:
    """Return the fleet of an Inspection document.

    Taints are not in the document, so a node counts as open when it is schedulable; nor are
    claims, so pods hold no devices of their own.

    Raises:
      RequestError: When an amount is no quantity.
    """
    entries = sorted(document.nodes, key=lambda entry: entry.node)
    nodes = [Node(entry.node, entry.domains) for entry in entries]
    names = tuple(node.name for node in nodes)
    index = _index(names)
    is_open = np.array([e.schedulable for e in entries], np.bool_)
    devices = [{c: (d.total, d.free) for c, d in e.devices.items()} for e in entries]
    main = _find_main(devices)
    offered = [(_count_gpus(e.allocatable, e.node), _count_gpus(e.free, e.node)) for e in entries]
    unit = "GPU" if any(total for total, _ in offered) else "device"
    offered = [
        gpus if gpus[0] else classes.get(main, (0, 0))
        for gpus, classes in zip(offered, devices, strict=True)
    ]
    if not any(total for total, _ in offered):
        unit = "CPU"
        offered = [
            (_count_cpus(e.allocatable, e.node), _count_cpus(e.free, e.node)) for e in entries
        ]
    count_fn = _count_cpus if unit == "CPU" else _count_gpus
    priorities = {g.group: g.priority for g in document.groups}
    held = {
        pod.pod: Holding(
            pod.group or pod.pod,
            index.get(pod.node or "", -1) if pod.state == "bound" else -1,
            count_fn(pod.requests, pod.pod),
            priorities.get(pod.group or "", 0),
        )
        for pod in document.pods
    }
    keys = sorted({key for node in nodes for key in node.labels})
    trees = _build_trees(nodes, keys)
    capacity, free = np.array(offered, np.int64).reshape(-1, 2).T
    return Fleet(names, capacity, capacity - free, is_open, held, trees, unit, index=index)


def _count_gpus(amounts: Mapping[str, str], of: str) -> int:
    return sum(_parse(amount, name, of) for name, amount in amounts.items() if is_gpu(name))


def _count_cpus(amounts: Mapping[str, str], of: str) -> int:
    return _parse(amounts.get("cpu", "0"), "cpu", of) // 1000


def _parse(amount: str, resource: str, of: str) -> int:
    from data.quantities import parse_quantity

    try:
        return parse_quantity(amount, resource)
    except ValueError as problem:
        raise RequestError(f"inspection: {of}: {problem}; print it anew") from None


def fleet_of_plan(plan: Plan) -> Fleet:
    """Return the nodes and pods that a plan names; every pod counts one."""
    running = {e.pod: (e.group or e.pod, e.node) for e in plan.evictions}
    for move in plan.moves:
        running.setdefault(move.pod, (move.group or move.pod, move.source))
    targets = {p.node for g in plan.groups for p in g.pods} | {m.target for m in plan.moves}
    names = tuple(sorted(targets | {node for _, node in running.values()} - {""}))
    index = _index(names)
    held = {pod: Holding(owner, index.get(node, -1), 1) for pod, (owner, node) in running.items()}
    for group in plan.groups:
        for pod in group.pods:
            held.setdefault(pod.pod, Holding(group.group, -1, 1, group.priority))
    used = np.zeros(len(names), np.int64)
    for holding in held.values():
        if holding.node >= 0:
            used[holding.node] += 1
    is_open = np.ones(len(names), np.bool_)
    return Fleet(names, used, used, is_open, held, unit="pod", is_partial=True, index=index)
