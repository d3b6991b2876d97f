"""Sizes of jobs -> pods: how many, with how many GPUs, and which of them belong together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from data.generate.distributions import Mix, Steps
    from data.generate.presets import Pool, Preset

__all__ = ["JobShape", "WeightedShape", "find_pool_shapes", "find_shapes"]

_QUARTER_SHARE = 0.6
"""Share of the multi-node gangs of an NVLink fleet that take quarters of a rack. Ours."""


@dataclass(frozen=True, slots=True)
class JobShape:
    """Pods of one job, all alike."""

    pods: int
    gpus: int
    """GPUs a pod."""
    part: int = 0
    """Pods of each part that must share an inner domain; 0: the job is not cut by its size."""

    @property
    def total(self) -> int:
        """GPUs of the whole job."""
        return self.pods * self.gpus


WeightedShape = tuple[JobShape, float]
"""A shape and its share of the GPUs in use; shares add up to 1."""


def find_pool_shapes(
    preset: Preset, pool: Pool, num_nodes: int, mix: Mix
) -> tuple[WeightedShape, ...]:
    """Return the shapes of the jobs of a pool, none larger than a quarter of it."""
    limit = max(num_nodes * pool.gpus // 4, pool.gpus)
    rack = max(size for sizes in preset.domains for size in sizes)
    return find_shapes(mix.gpu_time, pool.gpus, limit, rack if preset.is_nvlink else None)


def find_shapes(
    gpu_time: Steps, node_gpus: int, limit: int, nvlink_nodes: int | None = None
) -> tuple[WeightedShape, ...]:
    """Turn a size distribution into shapes, largest first.

    Up to the GPUs of a node a job is one pod, above it one pod a node with all its GPUs, rounded
    up. Where racks are NVLink domains, 60 % of the multi-node gangs (by count) take a quarter to
    a whole of 16 nodes of one rack; of the rest, half take 16 nodes of each rack they need, half
    whole racks.

    Args:
      gpu_time: (GPUs a job, share of GPU time).
      node_gpus: GPUs of a node.
      limit: Largest job, GPUs; what is larger is left out and the shares rescaled.
      nvlink_nodes: Nodes of an NVLink domain, or None.
    """
    weights: dict[JobShape, float] = {}
    for size, share in gpu_time:
        if size <= node_gpus:
            shapes: Iterable[tuple[JobShape, float]] = [(JobShape(1, size), 1.0)]
        elif nvlink_nodes is None:
            shapes = [(JobShape(-(-size // node_gpus), node_gpus), 1.0)]
        else:
            shapes = _cut_to_racks(size, node_gpus, nvlink_nodes)
        for shape, by_count in shapes:
            # A share of jobs becomes a share of GPUs in proportion to what each job holds.
            if shape.total <= limit:
                weight = share / size * by_count * shape.total
                weights[shape] = weights.get(shape, 0.0) + weight
    whole = sum(weights.values())
    ordered = sorted(weights, key=lambda s: (-s.total, -s.gpus, s.part))
    return tuple((shape, weights[shape] / whole) for shape in ordered)


def _cut_to_racks(size: int, node_gpus: int, nodes: int) -> Iterable[tuple[JobShape, float]]:
    quarter = min(max(round(size / (4 * node_gpus)), 1), 4)
    yield JobShape(4 * quarter, node_gpus, 0), _QUARTER_SHARE
    racks = max(round(size / (nodes * node_gpus)), 1)
    for part in (nodes - 2, nodes):
        yield JobShape(racks * part, node_gpus, part), (1 - _QUARTER_SHARE) / 2
