"""How broken up the free GPUs are, and the largest gang that still fits.

Fragmentation counts free GPUs that are not part of a wholly free node, and, for each topology
level, of a wholly free domain: whole numbers, added up over nodes and levels. A GPU is free when
its node is ready, not cordoned, and has no taint but those that some pod of the snapshot that asks
for GPUs tolerates: fleets that taint every GPU node keep others away, not their own work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from topology.levels import NO_DOMAIN, build_column, find_keys_in_use
from topology.masks import NodeFilters
from topology.model import HOSTNAME, PODS, PodSpec, is_gpu
from topology.usage import count_usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from topology.model import Snapshot

__all__ = ["FreeGpus", "count_free_gpus", "find_largest_gangs", "measure_fragmentation"]


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """Free and allocatable GPUs of every node, in pieces."""

    free: NDArray[np.int64]
    """i64[N], 0 on nodes that take no new pods and never below 0."""
    allocatable: NDArray[np.int64]
    """i64[N]."""


def count_free_gpus(snapshot: Snapshot, placed: Mapping[int, int] | None = None) -> FreeGpus:
    """Count free GPUs, planned placements (pod -> node) taken off."""
    names = {name for node in snapshot.nodes for name in node.allocatable if is_gpu(name)}
    names |= {name for spec in snapshot.pods.specs for name, _ in spec.requests if is_gpu(name)}
    usage = count_usage(snapshot, sorted(names))
    free = usage.free.sum(axis=1)
    gpus = np.array([spec.gpus for spec in snapshot.pods.specs], np.int64)
    if placed:
        pods = np.fromiter(placed.keys(), np.int64, len(placed))
        nodes = np.fromiter(placed.values(), np.int64, len(placed))
        np.subtract.at(free, nodes, gpus[snapshot.pods.spec[pods]])
    usable = _find_usable(snapshot)
    return FreeGpus(np.where(usable, np.maximum(free, 0), 0), usage.allocatable.sum(axis=1))


def _find_usable(snapshot: Snapshot) -> NDArray[np.bool_]:
    """Return bool[N]: nodes that take new GPU pods of some kind that the snapshot knows."""
    filters = NodeFilters(snapshot.nodes)
    tolerations = {spec.tolerations for spec in snapshot.pods.specs if spec.gpus}
    usable = np.zeros(len(snapshot.nodes), bool)
    for tolerated in sorted(tolerations, key=repr) or [()]:
        usable |= filters.evaluate(PodSpec(tolerations=tolerated)).taints
    cordoned = np.fromiter((n.unschedulable for n in snapshot.nodes), bool, len(usable))
    open_nodes: NDArray[np.bool_] = usable & filters.ready & ~cordoned
    return open_nodes


def _whole(gpus: FreeGpus, codes: NDArray[np.int32], size: int) -> tuple[int, int]:
    """Return (free GPUs in wholly free domains, wholly free domains)."""
    inside = codes != NO_DOMAIN
    free = np.bincount(codes[inside], gpus.free[inside], size).astype(np.int64)
    total = np.bincount(codes[inside], gpus.allocatable[inside], size).astype(np.int64)
    whole = (free == total) & (total > 0)
    return int(free[whole].sum()), int(whole.sum())


def measure_fragmentation(
    snapshot: Snapshot, placed: Mapping[int, int] | None = None
) -> dict[str, Any]:
    """Measure nodes and every topology level.

    Returns:
      `freeGpus`, `fragmentation` (the criterion), and `levels`: for "node" and each key the free
      GPUs in wholly free domains, their share in per mille, and the number of such domains.
    """
    gpus = count_free_gpus(snapshot, placed)
    free = int(gpus.free.sum())
    levels: dict[str, dict[str, int]] = {}
    columns = {"node": (np.arange(len(snapshot.nodes), dtype=np.int32), len(snapshot.nodes))}
    for key in find_keys_in_use(snapshot):
        if key != HOSTNAME:
            column = build_column(snapshot.nodes, (key,))
            columns[key] = (column.codes, len(column.values))
    for key, (codes, size) in columns.items():
        whole, domains = _whole(gpus, codes, size)
        levels[key] = {
            "wholeFreeGpus": whole,
            "wholeFreePerMille": whole * 1000 // free if free else 0,
            "wholeFreeDomains": domains,
        }
    broken = sum(free - level["wholeFreeGpus"] for level in levels.values())
    return {"freeGpus": free, "fragmentation": broken, "levels": levels}


def find_largest_gangs(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Find the largest gang of 1-, 2-, 4- and 8-GPU pods that one domain of each level takes.

    GPUs, pod slots and nothing else are counted: what cpu and memory leave is asked with a real
    pod spec. Levels are the whole fleet and every topology key.

    Returns:
      For each level and pod size: `key` (None for the fleet), `gpusPerPod`, `pods`, `domain`.
    """
    gpus = count_free_gpus(snapshot)
    slots = np.maximum(count_usage(snapshot, (PODS,)).free[:, 0], 0)
    found: list[dict[str, Any]] = []
    levels: list[tuple[str | None, NDArray[np.int32], tuple[str, ...]]] = [
        (None, np.zeros(len(snapshot.nodes), np.int32), ("",))
    ]
    for key in find_keys_in_use(snapshot):
        if key != HOSTNAME:
            column = build_column(snapshot.nodes, (key,))
            levels.append((key, column.codes, column.names))
    for level, codes, names in levels:
        inside = codes != NO_DOMAIN
        if not inside.any():
            continue
        for size in (1, 2, 4, 8):
            fits = np.minimum(gpus.free // size, slots)
            room = np.bincount(codes[inside], fits[inside], len(names)).astype(np.int64)
            best = int(np.argmax(room))
            found.append(
                {
                    "key": level,
                    "gpusPerPod": size,
                    "pods": int(room[best]),
                    "domain": names[best] or None,
                }
            )
    return found
