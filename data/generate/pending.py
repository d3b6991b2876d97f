"""Jobs that wait for room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from data.generate.jobs import Job
from data.generate.shapes import find_shapes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from data.generate.distributions import Mix
    from data.generate.jobs import JobCutter, PoolFill
    from data.generate.machines import Machines
    from data.generate.room import Level, Room
    from data.generate.shapes import WeightedShape

__all__ = ["draw_pending", "make_split_gang"]

_SMALL_SHARE: Final = 0.15
"""Share of the waiting GPUs that single pods ask for. Ours."""


def draw_pending(
    budget: int, shapes: tuple[WeightedShape, ...], mix: Mix, room: Room, cutter: JobCutter
) -> Iterator[Job]:
    """Yield waiting jobs worth about `budget` GPUs, in the shares of the mix.

    No gang asks for more than half the budget; the rest are single pods by their share of jobs.
    """
    gangs = [(s, w) for s, w in shapes if s.pods > 1 and 2 * s.total <= budget]
    by_count = tuple((size, share * size) for size, share in mix.jobs)
    singles = find_shapes(by_count, room.node_gpus, room.node_gpus)
    left = float(budget)
    for some, share in ((gangs, 1 - _SMALL_SHARE), (singles, 1.0)):
        part = left * share
        whole = sum(weight for _, weight in some)
        open_gpus = 0.0
        for shape, weight in some:
            open_gpus += part * weight / whole
            while open_gpus >= shape.total / 2 and shape.total <= left:
                yield cutter.make_job(shape)
                open_gpus -= shape.total
                left -= shape.total


def make_split_gang(machines: Machines, pool: int, fill: PoolFill) -> Job | None:
    """Return a gang that fits into the idle GPUs of a pool but into none of its domains.

    Where there is no such gang, a pod with one GPU is put into every empty domain, and a job is
    moved so that two domains have idle GPUs.

    Returns:
      None when that does not help either, as in a pool with a single domain.
    """
    levels: tuple[tuple[Level, NDArray[np.int32]], ...] = (
        ("outer", machines.outer),
        ("inner", machines.inner),
    )
    members = (machines.pool == pool) & machines.is_usable
    for level, domains in levels:
        for attempt in range(3):
            if attempt == 1:
                fill.open_domains(domains)
            elif attempt == 2:
                fill.split_idle(domains, level)
            free = fill.room.free_by_node(len(machines.nodes))[members]
            found = _find_split(free, domains[members], fill.room.node_gpus)
            if found is not None:
                pods, gpus = found
                return Job(pool, gpus, (pods,), level)
    return None


def _find_split(
    free: NDArray[np.int64], domains: NDArray[np.int32], node_gpus: int
) -> tuple[int, int] | None:
    """Return (pods, GPUs a pod), with pods as large as they may be."""
    num_nodes = int(np.bincount(domains).max(initial=0))
    gpus = node_gpus
    while gpus:
        slots = np.bincount(domains, weights=free // gpus)
        pods = int(slots.max(initial=0)) + 1
        is_possible = pods <= num_nodes * (node_gpus // gpus)
        if is_possible and pods > 1 and pods * gpus <= int(free.sum()):
            return pods, gpus
        gpus //= 2
    return None
