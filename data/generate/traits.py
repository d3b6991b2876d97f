"""Names, priorities, disruption modes and ages of synthetic jobs."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from data.generate.distributions import Mix
    from data.generate.jobs import Job

__all__ = ["DAY_S", "NOW", "Traits", "draw_traits"]

NOW: Final = 1_790_000_000
"""The moment of every synthetic snapshot, seconds since 1970: no clock decides anything here."""
DAY_S: Final = 86_400
_LARGE: Final = 64
"""GPUs from which a job counts as pre-training: days to weeks long, high priority, one unit."""
_GANG: Final = 8
_FLOOR_BELOW_SIZE: Final = 0.1
"""Share of the gangs of 8 to 63 GPUs that run with fewer pods and lose them singly. Ours."""
_SAVES: Final = 0.7
"""Share of the running jobs that save their work, at most every hour. Ours."""
_SAVED_EVERY_S: Final = 3_600
_PRIORITIES: Final = ((50, 100, 200), (0.7, 0.2, 0.1))
"""Mix of Kueue's own performance test: 70 % small, 20 % medium, 10 % large."""
_LARGE_PRIORITIES: Final = ((100, 200), (0.2, 0.8))


@dataclass(slots=True)
class Traits:
    """What one job is called and how it may be treated."""

    ref: str
    priority: int
    disruption: Literal["single", "all"]
    has_spare: bool
    """Runs with fewer pods than it wants."""
    created: int
    started: int
    checkpoint: int


def draw_traits(jobs: Sequence[Job], mix: Mix, num_gpus: int, rng: random.Random) -> list[Traits]:
    """Draw the traits of each job.

    Args:
      jobs: Running and waiting ones.
      mix: Gives the durations of all but the large jobs.
      num_gpus: GPUs of the fleet, which decide the number of tenants.
      rng: Decides everything else.
    """
    # As many tenants as one of Helios' clusters has for its GPUs, 8 to 256 GPUs each.
    num_tenants = min(max(num_gpus // 64, 1), 200)
    shares = [math.exp(rng.uniform(math.log(8), math.log(256))) for _ in range(num_tenants)]
    tenants = rng.choices(range(num_tenants), shares, k=len(jobs))
    numbers = rng.sample(range(len(jobs)), len(jobs))
    most_s = [seconds for seconds, _ in mix.durations]
    lengths = rng.choices(most_s, [share for _, share in mix.durations], k=len(jobs))
    traits = []
    for job, tenant, number, length in zip(jobs, tenants, numbers, lengths, strict=True):
        kind = "train" if job.total >= _LARGE else "tune" if job.pods > 1 else "eval"
        values, weights = _LARGE_PRIORITIES if job.total >= _LARGE else _PRIORITIES
        is_medium = job.pods > 1 and _GANG <= job.total < _LARGE and len(job.parts) == 1
        has_spare = is_medium and rng.random() < _FLOOR_BELOW_SIZE
        if job.total >= _LARGE:
            length = int(math.exp(rng.uniform(math.log(DAY_S), math.log(14 * DAY_S))))
        age, waited = int(rng.random() * length), int(rng.expovariate(1 / 600))
        if job.nodes:
            created, started = NOW - age - waited, NOW - age
        else:
            created, started = NOW - int(math.exp(rng.uniform(0, math.log(DAY_S)))), -1
        traits.append(
            Traits(
                f"team-{tenant:03d}/{kind}-{number:06d}",
                rng.choices(values, weights)[0],
                "single" if job.pods == 1 or has_spare else "all",
                has_spare,
                created,
                started,
                _draw_checkpoint(number, started),
            )
        )
    return traits


def _draw_checkpoint(number: int, started: int) -> int:
    """Return when a job last saved its work, -1 where it never did.

    From a stream of its own: fleets of a seed keep all else they had before there were checkpoints.
    """
    if started < 0:
        return -1
    rng = random.Random(f"checkpoint {number} {started}")
    saved = NOW - rng.randrange(_SAVED_EVERY_S)
    return saved if rng.random() < _SAVES and saved > started else -1
