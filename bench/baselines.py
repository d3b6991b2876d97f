"""Baselines for the kernels: a vectorised node-level NumPy greedy, and a Numba order search.

Both place gangs best fit on the same state as the kernels; neither is a straw man: the greedy
scores all domains of a gang in a few array operations, the order search is compiled.
"""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["place_greedily", "search_orders"]


def place_greedily(
    free: np.ndarray,
    requests: np.ndarray,
    codes: np.ndarray,
    classes: np.ndarray,
    counts: np.ndarray,
) -> int:
    """Place gangs one after another at node level; return how many are placed.

    Args:
      free: i64[N, R], changed.
      requests: i64[S, R].
      codes: i64[N] domain of each node.
      classes: i64[G] class of each gang.
      counts: i64[G] pods of each gang.
    """
    num_domains = int(codes.max()) + 1
    placed = 0
    for s, count in zip(classes.tolist(), counts.tolist(), strict=True):
        asked = requests[s] > 0
        fits = (free[:, asked] // requests[s][asked]).min(axis=1)
        room = np.bincount(codes, fits, num_domains)
        left = np.where(room >= count, room - count, np.inf)
        domain = int(np.argmin(left))
        if not np.isfinite(left[domain]):
            continue
        nodes = np.flatnonzero(codes == domain)
        order = nodes[np.argsort(free[nodes, 0], kind="stable")]
        take = np.clip(count - (np.cumsum(fits[order]) - fits[order]), 0, fits[order])
        free[order] -= take[:, None] * requests[s]
        placed += 1
    return placed


@njit(cache=True)
def search_orders(
    slots: np.ndarray, takes: np.ndarray, orders: np.ndarray, worth: np.ndarray
) -> np.ndarray:
    """Roll out orders on the slots of domains, best fit, in compiled scalar code.

    Args:
      slots: i32[D, Z], finest size last.
      takes: i32[K, Z].
      orders: i32[C, G] kinds.
      worth: i64[K].

    Returns:
      i64[C] worth of what each order places.
    """
    num_orders, num_gangs = orders.shape
    num_domains, num_sizes = slots.shape
    values = np.zeros(num_orders, np.int64)
    state = np.empty_like(slots)
    for c in range(num_orders):
        state[:] = slots
        for g in range(num_gangs):
            kind = orders[c, g]
            best, domain = 1 << 30, -1
            for d in range(num_domains):
                fits = True
                for z in range(num_sizes):
                    if state[d, z] < takes[kind, z]:
                        fits = False
                        break
                if fits and state[d, num_sizes - 1] < best:
                    best, domain = state[d, num_sizes - 1], d
            if domain >= 0:
                for z in range(num_sizes):
                    state[domain, z] -= takes[kind, z]
                values[c] += worth[kind]
    return values
