"""Rollouts of whole orders where slots decide: a domain is a handful of integers.

Where GPUs bind and pod sizes divide one another, the state of a domain is its slots of each size
(`optimizer.search.bins`), and a gang is the slots it takes. A candidate is an order of gangs and a
rule; the scan places gang after gang in the tightest domain that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optimizer.kernels.runtime import TRACES

Array = jax.Array | np.ndarray

__all__ = ["LatticeTensors", "roll_out_lattice", "roll_out_variants"]

NO_DOMAIN = -1
MAX_SCORE = 2**20


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LatticeTensors:
    """Slots of every domain and of every kind of gang.

    Axes: D domains, K kinds, Z slot sizes (largest first).
    """

    slots: Array  # i32[D, Z]; 0 on padding rows
    takes: Array  # i32[K, Z]; 2**20 on padding kinds, which nothing holds
    allowed: Array  # bool[K, D]
    tie_steps: int = field(metadata={"static": True})  # a power of two >= D


class _Step(NamedTuple):
    slots: tuple[jax.Array, ...]  # Z times i32[C, D]


def _roll_out(
    fleet: LatticeTensors, orders: Array, tightness: Array, ranks: Array
) -> tuple[jax.Array, jax.Array]:
    num_sizes = fleet.slots.shape[1]
    num_candidates = orders.shape[1]
    shape = (num_candidates, fleet.slots.shape[0])
    start = tuple(jnp.broadcast_to(fleet.slots[:, z], shape) for z in range(num_sizes))
    lanes = jnp.arange(num_candidates)
    steps = fleet.tie_steps

    def step(state: _Step, kinds: Any) -> tuple[_Step, jax.Array]:
        takes = fleet.takes[kinds]  # i32[C, Z]
        fits = fleet.allowed[kinds]
        for z in range(num_sizes):
            fits = fits & (state.slots[z] >= takes[:, z, None])
        left = state.slots[-1] - takes[:, -1, None]
        # Score and domain rank in one integer: one plain minimum instead of an argmin.
        score = jnp.minimum(left * tightness[:, None], MAX_SCORE // steps)
        key = jnp.where(fits, score * steps + ranks, MAX_SCORE * 2)
        best = jnp.min(key, axis=1)
        found = best < MAX_SCORE * 2
        domain = jnp.argmax(key == best[:, None], axis=1).astype(np.int32)
        taken = jnp.where(found[:, None], takes, 0)
        slots = tuple(s.at[lanes, domain].add(-taken[:, z]) for z, s in enumerate(state.slots))
        return _Step(slots), jnp.where(found, domain, NO_DOMAIN)

    end, chosen = jax.lax.scan(step, _Step(start), orders)
    return chosen, end.slots[-1]


@jax.jit
def roll_out_lattice(
    fleet: LatticeTensors, orders: Array, tightness: Array, ranks: Array
) -> tuple[jax.Array, jax.Array]:
    """Place gangs in many orders at once.

    Args:
      fleet: The same for all candidates.
      orders: i32[G, C] kind of the g-th gang of each candidate; a padding kind is never placed.
      tightness: i32[C] weight of the room left in a domain: 1 is best fit, 0 ignores it.
      ranks: i32[C, D] a permutation below `tie_steps`: which of equal domains comes first.

    Returns:
      i32[G, C] chosen domain or NO_DOMAIN, and i32[C, D] slots of the finest size left.
    """
    TRACES["lattice"] += 1
    return _roll_out(fleet, orders, tightness, ranks)


@jax.jit
def roll_out_variants(
    fleets: LatticeTensors, orders: Array, tightness: Array, ranks: Array
) -> jax.Array:
    """Place gangs in many orders on many variants of a fleet at once.

    Args:
      fleets: Of like shapes, stacked on a leading axis V.
      orders: i32[V, G, C].
      tightness: i32[C], the same for all variants.
      ranks: i32[C, D], the same for all variants.

    Returns:
      i32[V, G, C] chosen domain or NO_DOMAIN.
    """
    TRACES["variants"] += 1
    chosen, _ = jax.vmap(_roll_out, in_axes=(0, 0, None, None))(fleets, orders, tightness, ranks)
    return chosen
