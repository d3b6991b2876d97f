"""Rollouts of whole orders at node level, with cached capacities.

For fleets where cpu, memory or selectors bind as well as GPUs. Kept for every candidate: what is
free on each node, and how many pods of each class each domain holds. A placement touches the nodes
of one domain only: gather them, fill them, scatter them back, update the sums by difference. The
cost of a step follows the size of a domain, not of the fleet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optimizer.kernels.fit import count_node_fits
from optimizer.kernels.runtime import TRACES

Array = jax.Array | np.ndarray

__all__ = ["GangTensors", "roll_out_gangs"]

NO_DOMAIN = -1
MAX_SCORE = 2**20
NUM_RANKS = 16
"""Nodes are filled in this many steps of free GPUs, fullest first."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class GangTensors:
    """A fleet at node level and the kinds of gangs to place on it.

    Axes: N nodes (one more than there are, the last a dummy), R resources, S classes, D domains
    of all levels together, M most nodes in a domain, L levels, K kinds.
    """

    free: Array  # i32[N, R]; 0 on the dummy and on padding
    eligible: Array  # bool[N, S]; False on the dummy
    requests: Array  # i32[S, R]
    node_fits: Array  # i32[N, S] pods of each class that fit each node at the start
    domain_fits: Array  # i32[S, D] their sums
    members: Array  # i32[D, M] nodes of each domain, the dummy N-1 where there are fewer
    domains_of: Array  # i32[N, L] domain of each node at each level, D where it has none
    gpu_resource: Array  # i32[] column of `free` by which nodes are filled, fullest first
    kind_class: Array  # i32[K]
    kind_count: Array  # i32[K]; 2**20 on padding kinds, which nothing holds
    kind_allowed: Array  # bool[K, D] domains of the kind's level (or the one it is pinned to)
    tie_steps: int = field(metadata={"static": True})  # a power of two >= D


class _State(NamedTuple):
    free: jax.Array  # i32[N, R]
    node_fits: jax.Array  # i32[N, S]
    domain_fits: jax.Array  # i32[S, D]


def _take_fullest_first(fits: jax.Array, rank: jax.Array, count: Array) -> jax.Array:
    """Spread `count` pods over nodes by rank, then by position; i32[M] pods on each."""
    levels = jnp.arange(NUM_RANKS, dtype=np.int32)
    in_rank = jnp.where(rank[None, :] == levels[:, None], fits[None, :], 0)  # i32[16, M]
    totals = in_rank.sum(axis=1)
    below = jnp.cumsum(totals) - totals
    before = (jnp.cumsum(in_rank, axis=1) - in_rank + below[:, None]) * (in_rank > 0)
    return jnp.clip(count - before.sum(axis=0), 0, fits)


def _place(
    fleet: GangTensors, state: _State, kind: Array, tightness: Array, ranks: Array
) -> tuple[_State, jax.Array]:
    pod_class, count = fleet.kind_class[kind], fleet.kind_count[kind]
    room = state.domain_fits[pod_class]  # i32[D]
    fits = fleet.kind_allowed[kind] & (room >= count)
    score = jnp.minimum((room - count) * tightness, MAX_SCORE // fleet.tie_steps)
    key = jnp.where(fits, score * fleet.tie_steps + ranks, MAX_SCORE * 2)
    domain = jnp.argmin(key).astype(np.int32)
    found = key[domain] < MAX_SCORE * 2

    nodes = fleet.members[domain]  # i32[M]
    node_fits = state.node_fits[nodes]  # i32[M, S]
    own = jnp.where(found, node_fits[:, pod_class], 0)
    free = state.free[nodes]  # i32[M, R]
    rank = jnp.clip(free[:, fleet.gpu_resource], 0, NUM_RANKS - 1)
    pods = _take_fullest_first(own, rank, count)
    free = free - pods[:, None] * fleet.requests[pod_class]
    fresh = count_node_fits(free, fleet.requests, fleet.eligible[nodes] & found)
    change = jnp.where(found, fresh - node_fits, 0)  # i32[M, S]
    levels = fleet.domains_of[nodes]  # i32[M, L]
    sums = state.domain_fits
    for level in range(levels.shape[1]):
        sums = sums.at[:, levels[:, level]].add(change.T, mode="drop")
    return (
        _State(
            state.free.at[nodes].add(-pods[:, None] * fleet.requests[pod_class]),
            state.node_fits.at[nodes].add(change),
            sums,
        ),
        jnp.where(found, domain, NO_DOMAIN),
    )


@jax.jit
def roll_out_gangs(fleet: GangTensors, orders: Array, tightness: Array, ranks: Array) -> jax.Array:
    """Place gangs in many orders at once.

    Args:
      fleet: The same for all candidates.
      orders: i32[G, C] kind of the g-th gang of each candidate; a padding kind is never placed.
      tightness: i32[C] weight of the room left in a domain: 1 is best fit, 0 ignores it.
      ranks: i32[C, D] a permutation below `tie_steps`: which of equal domains comes first.

    Returns:
      i32[G, C] chosen domain, NO_DOMAIN where the gang found none.
    """
    TRACES["gangs"] += 1
    num_candidates = orders.shape[1]
    start = _State(
        *(
            jnp.broadcast_to(x, (num_candidates, *x.shape))
            for x in (fleet.free, fleet.node_fits, fleet.domain_fits)
        )
    )
    place = jax.vmap(_place, in_axes=(None, 0, 0, 0, 0))

    def step(state: _State, kinds: Any) -> tuple[_State, jax.Array]:
        return place(fleet, state, kinds, tightness, ranks)

    _, chosen = jax.lax.scan(step, start, orders)
    return chosen
