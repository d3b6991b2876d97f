"""The nodes of a synthetic fleet: names, labels, capacity, and which of them are out."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING, Final

import numpy as np

from data.generate.presets import POOL_LABEL
from topology.model import HOSTNAME, PODS, Node, Taint

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from data.generate.presets import Pool, Preset

__all__ = ["GPU", "Machines", "build_machines"]

GPU: Final = "nvidia.com/gpu"
_POD_SLOTS: Final = 110
_OUT_NODES: Final = 0.015
_OUT_RACKS: Final = 0.01
"""Shares of nodes and of racks that are out. Ours: no source measures them."""


@dataclass(frozen=True, slots=True)
class Machines:
    """Nodes in order of name and where they stand; axis N."""

    nodes: tuple[Node, ...]
    pools: tuple[Pool, ...]
    pool: NDArray[np.int32]
    """i32[N] index into `pools`."""
    inner: NDArray[np.int32]
    """i32[N] innermost domain, numbered over the whole fleet."""
    outer: NDArray[np.int32]
    """i32[N] domain around it."""
    is_usable: NDArray[np.bool_]
    """bool[N], neither cordoned, tainted nor down."""

    @property
    def gpus(self) -> NDArray[np.int32]:
        """i32[N] GPUs of each node."""
        return np.array([p.gpus for p in self.pools], np.int32)[self.pool]


def _share_out(num_nodes: int, pools: tuple[Pool, ...]) -> list[int]:
    """Return the nodes of each pool, by largest remainder."""
    whole = sum(p.share for p in pools)
    exact = [num_nodes * p.share / whole for p in pools]
    counts = [int(x) for x in exact]
    by_remainder = sorted(range(len(pools)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: num_nodes - sum(counts)]:
        counts[i] += 1
    return counts


def _walk_domains(preset: Preset) -> Iterator[tuple[int, bool]]:
    """Yield the size of each inner domain and whether it opens an outer one, for ever."""
    for sizes in cycle(preset.domains):
        for i, size in enumerate(sizes):
            yield size, i == 0


def _number_domains(preset: Preset, counts: list[int]) -> tuple[list[int], list[int]]:
    inner: list[int] = []
    outer: list[int] = []
    num_inner = num_outer = 0
    for count in counts:
        left = count
        walk = _walk_domains(preset)
        while left:
            size, opens = next(walk)
            num_outer += opens
            num_inner += 1
            inner += [num_inner - 1] * min(size, left)
            outer += [num_outer - 1] * min(size, left)
            left -= min(size, left)
    return inner, outer


def build_machines(preset: Preset, num_nodes: int, rng: np.random.Generator) -> Machines:
    """Build the nodes of a fleet; 1.5 % of them and one rack in a hundred are out.

    Pools that get no node are left out, the last domain of a pool may be short.
    """
    counts = _share_out(num_nodes, preset.pools)
    pools = tuple(p for p, count in zip(preset.pools, counts, strict=True) if count)
    counts = [count for count in counts if count]
    inner, outer = _number_domains(preset, counts)

    order = rng.permutation(num_nodes)
    num_out = round(_OUT_NODES * num_nodes)
    cordoned = set(order[: num_out // 2].tolist())
    tainted = set(order[num_out // 2 : num_out].tolist())
    num_inner = inner[-1] + 1
    racks = rng.permutation(num_inner)[: round(_OUT_RACKS * num_inner)]
    down = set(racks.tolist())

    width = max(len(str(num_nodes)), 3)
    inner_name = f"{preset.inner_key.rpartition('/')[2].removeprefix('gpu.')}-%0{width}d"
    outer_name = f"{preset.outer_key.rpartition('/')[2]}-%0{width}d"
    nodes = []
    pool_index = np.repeat(np.arange(len(pools), dtype=np.int32), counts)
    for i, p in enumerate(pool_index.tolist()):
        pool = pools[p]
        name = f"{pool.name}-{i:0{width}d}"
        labels = {
            HOSTNAME: name,
            preset.outer_key: outer_name % outer[i],
            preset.inner_key: inner_name % inner[i],
        }
        if len(preset.pools) > 1:
            labels[POOL_LABEL] = pool.name
        allocatable = {
            "cpu": pool.cpu_milli,
            "memory": pool.memory,
            GPU: pool.gpus,
            PODS: _POD_SLOTS,
        }
        taints: tuple[Taint, ...] = ()
        if inner[i] in down:
            taints = (Taint("node.kubernetes.io/not-ready"),)
        elif i in tainted:
            taints = (Taint("example.com/maintenance", "true"),)
        nodes.append(Node(name, labels, allocatable, taints, i in cordoned))
    usable = [not (n.taints or n.unschedulable) for n in nodes]
    return Machines(
        tuple(nodes),
        pools,
        pool_index,
        np.array(inner, np.int32),
        np.array(outer, np.int32),
        np.array(usable, np.bool_),
    )
