"""Seeded synthetic fleets: running gangs, holes, and a queue that does not fit."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np

from data.generate.distributions import MIXES
from data.generate.jobs import JobCutter, PoolFill
from data.generate.machines import build_machines
from data.generate.pending import draw_pending, make_split_gang
from data.generate.presets import PRESETS
from data.generate.room import Room
from data.generate.shapes import find_pool_shapes
from data.generate.snapshot import build_snapshot
from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.generate.distributions import Mix
    from data.generate.jobs import Job
    from data.generate.machines import Machines
    from data.generate.presets import Preset
    from topology.model import Snapshot

T = TypeVar("T")

__all__ = ["DEFAULT_MIX", "DEFAULT_UTILIZATION", "FRAGMENTATIONS", "generate_fleet"]

DEFAULT_MIX: Final = "llm"
DEFAULT_UTILIZATION: Final = 0.92
_MOST_UTILIZATION: Final = 0.98
_FULL: Final = 0.985
"""Largest share of the GPUs that was ever in use."""


@dataclass(frozen=True, slots=True)
class _History:
    """How a fleet came to look as it does."""

    description: str
    is_random: bool
    """Jobs were placed at random, not by best fit."""
    ended: float
    """Share of the jobs that ended, by count, and made room for others."""
    ended_last: float
    """Share of the GPUs in use then whose jobs have ended since."""


FRAGMENTATIONS: Final = {
    "tidy": _History("best fit, nothing ever ended", False, 0.0, 0.0),
    "normal": _History(
        "best fit, 15 % of the jobs and then a tenth of the rest ended", False, 0.15, 0.1
    ),
    "bad": _History("random fit, 25 % of the jobs ended", True, 0.25, 0.0),
}
"""Fragmentation levels by name."""


def generate_fleet(
    preset: str,
    *,
    nodes: int | None = None,
    utilization: float | None = None,
    pending: float | None = None,
    mix: str | None = None,
    fragmentation: str | None = None,
    seed: int = 0,
) -> Snapshot:
    """Make a synthetic fleet; the same arguments give the same snapshot.

    GPUs in use follow the share of GPU time by job size of the mix's cluster, with no job larger
    than a quarter of its pool. Among the waiting gangs, one fits into the idle GPUs but into
    none of its domains.

    Args:
      preset: One of `PRESETS`.
      nodes: Number of nodes; None: the preset's.
      utilization: Share of the usable GPUs that run something, 0 to 0.98; None: 0.92.
      pending: GPUs asked for by waiting jobs as a share of the usable ones, 0 to 10; None: 0.2.
      mix: One of `MIXES`; None: "llm".
      fragmentation: One of `FRAGMENTATIONS`; None: "normal".
      seed: Decides everything that is drawn, 0 or more.

    Raises:
      RequestError: An argument is unknown or out of range.
    """
    chosen: Preset = _pick("preset", preset, PRESETS)
    chosen_mix: Mix = _pick("mix", mix or DEFAULT_MIX, MIXES)
    history: _History = _pick("fragmentation", fragmentation or "normal", FRAGMENTATIONS)
    num_nodes = chosen.nodes if nodes is None else nodes
    in_use = DEFAULT_UTILIZATION if utilization is None else utilization
    _check("utilization", in_use, _MOST_UTILIZATION)
    waiting = _check("pending", 0.2 if pending is None else pending, 10)
    _check("nodes", num_nodes, 1_000_000, least=1)
    _check("seed", seed, 2**63 - 1)

    machines = build_machines(chosen, num_nodes, np.random.default_rng(seed))
    rng = random.Random(seed)
    jobs: list[Job] = []
    # The gang that fits nowhere goes to the largest pool that has room for such a thing.
    sizes = np.bincount(machines.pool, weights=machines.gpus)
    has_split = False
    for pool in np.argsort(-sizes, kind="stable").tolist():
        filler = _PoolFiller(machines, chosen, pool, chosen_mix, rng)
        fill = filler.run(history, in_use)
        budget = int(waiting * fill.room.capacity)
        split = None if has_split or not budget else make_split_gang(machines, pool, fill)
        has_split = has_split or split is not None
        jobs += fill.jobs
        jobs += filler.draw_pending(fill, budget, [split] if split else [])
    return build_snapshot(machines, chosen, jobs, chosen_mix, rng)


class _PoolFiller:
    """Fills one pool and its queue."""

    def __init__(
        self, machines: Machines, preset: Preset, pool: int, mix: Mix, rng: random.Random
    ) -> None:
        members = machines.pool == pool
        inner_nodes = int(np.bincount(machines.inner[members]).max())
        outer_nodes = int(np.bincount(machines.outer[members]).max())
        self._machines = machines
        self._pool = pool
        self._mix = mix
        self._rng = rng
        self._cutter = JobCutter(pool, inner_nodes, outer_nodes, preset.tight, mix.constrained, rng)
        self._shapes = find_pool_shapes(preset, machines.pools[pool], int(members.sum()), mix)

    def run(self, history: _History, utilization: float) -> PoolFill:
        room = Room(self._machines, self._pool, self._rng, is_random=history.is_random)
        fill = PoolFill(room, self._shapes, self._cutter)
        target = int(utilization * room.capacity)
        peak = int(min(utilization / (1 - history.ended_last), _FULL) * room.capacity)
        fill.fill(peak)
        if history.ended:
            fill.end_some(history.ended, self._rng)
            fill.fill(peak)
        fill.trim(target, self._rng)
        return fill

    def draw_pending(self, fill: PoolFill, budget: int, first: list[Job]) -> list[Job]:
        left = budget - sum(job.total for job in first)
        rest = draw_pending(left, self._shapes, self._mix, fill.room, self._cutter)
        return [*first, *rest]


def _pick(what: str, name: str, known: Mapping[str, T]) -> T:
    if name not in known:
        raise RequestError(f"{what} {name!r} is unknown; choose one of {', '.join(sorted(known))}")
    return known[name]


def _check(what: str, value: float, most: float, least: float = 0) -> float:
    if not least <= value <= most:
        raise RequestError(f"{what} is {value}; choose {least} to {most}")
    return value
