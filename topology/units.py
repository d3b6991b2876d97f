"""Exact quantities -> int32 in one unit a resource, so that feasible stays feasible.

The unit is the greatest common divisor of all amounts where the range allows; else a power of two
above it, with requests rounded up and what is free rounded down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["MAX_UNITS", "ScaledAmounts", "scale_amounts"]

MAX_UNITS: Final = 2**24
"""Largest amount in a tensor. Below 2**24 every int32 is exact as float32 too, and sums over
10**5 nodes are taken in wider integers on the host."""


class ScaledAmounts(NamedTuple):
    """Amounts in tensor units."""

    free: NDArray[np.int32]
    """i32[N, R], rounded down; negative where a node is overcommitted."""
    requests: NDArray[np.int32]
    """i32[S, R], rounded up."""
    units: tuple[int, ...]
    """(R,) canonical units in one tensor unit."""
    is_exact: tuple[bool, ...]
    """(R,) False where rounding may cost a placement."""


def scale_amounts(free: NDArray[np.int64], requests: NDArray[np.int64]) -> ScaledAmounts:
    """Choose a unit for every resource and scale.

    Args:
      free: i64[N, R] canonical units; may be negative.
      requests: i64[S, R] canonical units, not negative.

    Returns:
      int32 arrays such that a request that fits in them fits exactly. A free amount beyond what
      all int32 requests could use is cut to MAX_UNITS, and a request beyond every node to
      MAX_UNITS + 1, which never fits.
    """
    num_resources = free.shape[1]
    out_free = np.empty(free.shape, np.int32)
    out_requests = np.empty(requests.shape, np.int32)
    units: list[int] = []
    exact: list[bool] = []
    for r in range(num_resources):
        asked = requests[:, r]
        # Only what is asked for decides the unit: free amounts round down to whole requests.
        positive = asked[asked > 0]
        unit = int(np.gcd.reduce(positive)) if positive.size else 1
        top = max(int(free[:, r].max(initial=0)), 1)
        is_exact = True
        while top // unit > MAX_UNITS:
            unit *= 2
            is_exact = False
        units.append(unit)
        exact.append(is_exact or not positive.size)
        out_free[:, r] = np.clip(free[:, r] // unit, -MAX_UNITS, MAX_UNITS)
        out_requests[:, r] = np.minimum(-(-asked // unit), MAX_UNITS + 1)
    return ScaledAmounts(out_free, out_requests, tuple(units), tuple(exact))
