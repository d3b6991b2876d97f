"""How many pods of every class fit on every node, and in every domain, in one pass."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from optimizer.kernels.runtime import TRACES

Array = jax.Array | np.ndarray

__all__ = ["count_domain_fits", "count_node_fits", "divide_exactly"]

INT32_MAX = np.iinfo(np.int32).max


def divide_exactly(free: Array, request: Array) -> jax.Array:
    """Return floor(free / request) exactly, for 0 <= free <= 2**24 and 0 < request <= 2**24.

    float32 division alone is wrong near multiples; the quotient is off by at most one, which one
    multiplication finds. Several times faster than integer division on CPUs and GPUs.
    """
    ratio = jnp.asarray(free, np.float32) / jnp.asarray(request, np.float32)
    quotient = ratio.astype(np.int32)
    quotient = quotient - (quotient * request > free)
    return quotient + ((quotient + 1) * request <= free)


def count_fitting(free: Array, request: Array) -> jax.Array:
    """Count pods of one class on some nodes.

    Args:
      free: i32[..., R], clipped at 0 by the caller where a node is overcommitted.
      request: i32[R], 0 = not asked for.

    Returns:
      i32[...]; INT32_MAX if nothing is asked for.

    Source: NodeResourcesFit.
    """
    per_resource = divide_exactly(jnp.maximum(free, 0), jnp.maximum(request, 1))
    return jnp.min(jnp.where(request > 0, per_resource, INT32_MAX), axis=-1)


@jax.jit
def count_node_fits(free: Array, requests: Array, eligible: Array) -> jax.Array:
    """Count pods of every class on every node.

    Args:
      free: i32[N, R].
      requests: i32[S, R].
      eligible: bool[S, N]; False on padding.

    Returns:
      i32[S, N].
    """
    TRACES["fit"] += 1
    fits = jax.vmap(lambda request: count_fitting(free, request))(requests)
    return jnp.where(eligible, fits, 0)


@jax.jit
def count_domain_fits(fits: Array, codes: Array, domains: Array) -> jax.Array:
    """Add up node fits over domains.

    Args:
      fits: i32[S, N].
      codes: i32[N] domain of each node; the number of domains or more for nodes in none.
      domains: [D] anything with one entry a domain (its shape is what counts).

    Returns:
      i32[S, D].
    """
    TRACES["domain_fit"] += 1
    size = domains.shape[0] + 1
    return jax.vmap(lambda row: jax.ops.segment_sum(row, codes, size))(fits)[:, :-1]
