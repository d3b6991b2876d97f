"""All victim sets of small domains, looked at in an order that leaves most of them out with proof.

The units of a domain are cut in two halves. Both list their subsets with what each frees on every
node and what it costs, cheapest first. A step takes one subset of the high half and a chunk of the
low half: adds, divides, takes minima and compares, lane by lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optimizer.kernels.runtime import TRACES
from optimizer.kernels.victims import WORST, SetCosts, count_pods, is_less

Array = jax.Array | np.ndarray

__all__ = ["LANES", "BestSubset", "SubsetTensors", "enumerate_subsets"]

LANES = 512
"""Subsets looked at in one step: their state stays in the cache."""
MARGIN = 1e-4
"""Far more than a sum of float32 over the nodes of a domain can be off by."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class SubsetTensors:
    """Small domains, their units cut in two halves; amounts below 2**24.

    Axes: D domains, N nodes, R resources, L units of the low half, H of the high one.
    In `costs` the units of the low half come first: V = L + H.
    """

    spare: Array  # i32[D, N, R] free while everybody stays
    cap: Array  # i32[D, N] most pods of a node; 0 on padding
    request: Array  # i32[D, R], positive
    need: Array  # i32[D]
    low: Array  # i32[D, L, N, R] what each unit holds; 0 on padding
    high: Array  # i32[D, H, N, R]
    costs: SetCosts


class BestSubset(NamedTuple):
    """The cheapest set over all domains, and how many were looked at."""

    words: jax.Array  # i32[K] the limit itself where nothing is cheaper
    domain: jax.Array  # i32[]; -1 where nothing is cheaper than the limit
    low: jax.Array  # i32[] bits of the units of the low half
    high: jax.Array  # i32[]
    looks: jax.Array  # i32[D] times LANES subsets were looked at in each domain


class _Half(NamedTuple):
    """All subsets of one half, cheapest first; axis S subsets."""

    bits: jax.Array  # i32[S]
    words: jax.Array  # i32[S, K] with the prices of rank and budgets
    plain: jax.Array  # i32[S, K] sums over units alone
    rank: jax.Array  # i32[S]
    covered: jax.Array  # i32[S, P]
    freed: jax.Array  # i32[S, N, R]


def _list_half(held: Array, costs: SetCosts, units: slice) -> _Half:
    num_units = held.shape[0]
    words, rank = jnp.asarray(costs.words)[units], jnp.asarray(costs.rank)[units]
    subsets = jnp.arange(1 << num_units, dtype=np.int32)
    bits = subsets[:, None] >> jnp.arange(num_units, dtype=np.int32) & 1  # i32[S, units]
    plain = bits @ words
    covered = bits @ jnp.asarray(costs.covered)[units]
    ranks = jnp.max(bits * rank, axis=1)
    excess = jnp.maximum(covered - costs.left, 0).sum(axis=1)
    words = plain + ranks[:, None] * costs.rank_price + excess[:, None] * costs.excess_price
    words = jnp.where((costs.is_hard & (excess > 0))[:, None], WORST, words)
    order = jnp.lexsort([words[:, k] for k in reversed(range(words.shape[1]))])
    freed = bits[order] @ held.reshape(num_units, -1)  # i32[S, N * R]
    return _Half(
        order.astype(np.int32),
        words[order],
        plain[order],
        ranks[order],
        covered[order],
        freed.reshape(-1, *held.shape[1:]),
    )


class _Search(NamedTuple):
    at: jax.Array  # i32[] in the list of steps
    words: jax.Array  # i32[K]
    low: jax.Array
    high: jax.Array
    looks: jax.Array


def _search_domain(domain: SubsetTensors, limit: jax.Array) -> _Search:
    costs, request = domain.costs, jnp.asarray(domain.request)
    num_low = domain.low.shape[0]
    low = _list_half(domain.low, costs, slice(0, num_low))
    high = _list_half(domain.high, costs, slice(num_low, None))
    base = domain.spare + high.freed  # i32[S, N, R]
    # A choice of the high half that does not fit even without the low half: none of its sets does.
    most = count_pods(base + jnp.asarray(domain.low).sum(axis=0), request, domain.cap).sum(axis=1)
    is_open_at = most >= domain.need
    num_lanes = min(LANES, 1 << num_low)
    num_chunks = (1 << num_low) // num_lanes

    def cut(rows: jax.Array) -> jax.Array:
        """Return one part a chunk, lanes last."""
        return jnp.moveaxis(rows.reshape(num_chunks, num_lanes, *rows.shape[1:]), 1, -1)

    firsts = low.words[::num_lanes]  # i32[chunks, K]
    low_plain, low_rank = cut(low.plain), cut(low.rank)
    low_covered, low_bits = cut(low.covered), cut(low.bits)
    is_barred = cut(low.words[:, 0] >= WORST)
    freed = cut(low.freed).astype(np.float32)  # f32[chunks, N, R, lanes]
    # What all pods ask for is free on all nodes together, or they do not fit. Sums of float32
    # may be off by far less than the margin.
    lacks = domain.need * request - jnp.maximum(base, 0).astype(np.float32).sum(axis=1)
    enough = freed.sum(axis=1).max(axis=-1) * np.float32(1 + MARGIN) + 1  # f32[chunks, R]
    is_step = jnp.all(enough >= lacks[:, None] * np.float32(1 - MARGIN), axis=-1)
    is_step &= is_open_at[:, None] & is_less(firsts + high.plain[:, None], limit)
    is_step &= is_less(high.words, limit)[:, None]
    num_steps = is_step.sum()
    steps = jnp.flatnonzero(is_step, size=is_step.size, fill_value=0).astype(np.int32)
    # float32 holds the amounts exactly, and is several times as fast as integers here.
    divisor = request.astype(np.float32)
    inverse = np.float32(1) / divisor
    cap = jnp.asarray(domain.cap).astype(np.float32)[:, None]
    base = base.astype(np.float32)

    def count(h: jax.Array, c: jax.Array) -> jax.Array:
        free = base[h][:, :, None] + freed[c]  # f32[N, R, lanes]
        each = divisor[:, None]
        # Off by one at most near multiples of the request; one multiplication finds it. On CUDA
        # that holds for quotients below 2**21, far more pods than `cap` ever lets through.
        quotient = jnp.floor(free * inverse[:, None])
        quotient -= (quotient * each > free).astype(np.float32)
        quotient += ((quotient + 1) * each <= free).astype(np.float32)
        fits = jnp.clip(jnp.min(quotient, axis=1), 0, cap)
        pods: jax.Array = fits.sum(axis=0).astype(np.int32)
        return pods

    def look(state: _Search, h: jax.Array, c: jax.Array) -> _Search:
        rank = jnp.maximum(low_rank[c], high.rank[h])
        covered = low_covered[c] + high.covered[h][:, None]
        excess = jnp.maximum(covered - costs.left[:, None], 0).sum(axis=0)
        fits = (count(h, c) >= domain.need) & ~is_barred[c]
        fits &= ~(jnp.asarray(costs.is_hard) & (excess > 0))
        words = low_plain[c] + high.plain[h][:, None]
        words += rank * costs.rank_price[:, None] + excess * costs.excess_price[:, None]
        least = []
        for word in words:
            best = jnp.min(jnp.where(fits, word, WORST))
            fits &= word == best
            least.append(best)
        found = jnp.stack(least)
        lane = jnp.argmax(fits)
        better = is_less(found, state.words)
        return _Search(
            state.at,
            jnp.where(better, found, state.words),
            jnp.where(better, low_bits[c, lane], state.low),
            jnp.where(better, high.bits[h], state.high),
            state.looks + 1,
        )

    def is_open(state: _Search) -> jax.Array:
        h = steps[jnp.minimum(state.at, is_step.size - 1)] // num_chunks
        return (state.at < num_steps) & is_less(high.words[h], state.words)

    def go_on(state: _Search) -> _Search:
        h, c = steps[state.at] // num_chunks, steps[state.at] % num_chunks
        # What the chunk costs at least beside this choice of the high half.
        is_cheaper = is_less(firsts[c] + high.plain[h], state.words)
        after = jax.lax.cond(is_cheaper, look, lambda state, _, __: state, state, h, c)
        moved: _Search = after._replace(at=state.at + 1)
        return moved

    zero, none = jnp.int32(0), jnp.int32(-1)
    found: _Search = jax.lax.while_loop(is_open, go_on, _Search(zero, limit, none, none, zero))
    return found


@jax.jit
def enumerate_subsets(fleet: SubsetTensors, limit: Array) -> BestSubset:
    """Look at every subset of the units of every domain that could be the cheapest.

    Subsets of the high half are taken cheapest first, and beside each the chunks of the low half
    likewise. A subset that is left out either costs no less than the best found, or does not fit:
    not even with the whole low half, or not even with all free amounts on one heap.

    Args:
      fleet: Domains; the best found so far is the limit of the next.
      limit: i32[K] only what is cheaper counts.

    Returns:
      The cheapest set there is below the limit: a proof, with or without a set.
    """
    TRACES["victim_subsets"] += 1

    def step(best: BestSubset, inputs: Any) -> tuple[BestSubset, jax.Array]:
        number, domain = inputs
        found = _search_domain(domain, best.words)
        better = found.low >= 0
        return BestSubset(
            found.words,
            jnp.where(better, number, best.domain),
            jnp.where(better, found.low, best.low),
            jnp.where(better, found.high, best.high),
            best.looks,
        ), found.looks

    none = jnp.int32(-1)
    start = BestSubset(jnp.asarray(limit), none, none, none, jnp.int32(0))
    numbers = jnp.arange(fleet.need.shape[0], dtype=np.int32)
    best, looks = jax.lax.scan(step, start, (numbers, fleet))
    return best._replace(looks=looks)
