"""Victim sets of many domains at once: many orders with give-back, and local exchange.

A domain is its nodes, what is free there while everybody stays, and the victim units that stand
there. Pods of one class fit a set of victims if, added up over the nodes, the least of
floor(free / request) over the resources reaches the pods needed. Costs are words of int32 compared
in order: a sum over units, a price for the highest rank among them, and a price for each pod by
which a disruption budget is exceeded. All three only grow with the set.

Source: kube-scheduler's preemption (KEP-5710) evicts in one order until all fits, and then gives
back what was not needed; `prefix_give_back` does that in many orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from optimizer.kernels.fit import count_fitting
from optimizer.kernels.runtime import TRACES

Array = jax.Array | np.ndarray

__all__ = [
    "WORST",
    "FoundSets",
    "SetCosts",
    "VictimTensors",
    "count_pods",
    "exchange",
    "is_less",
    "prefix_give_back",
]

WORST = 2**30
"""A word of cost above all there are; no set may add up to as much."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class SetCosts:
    """What sets of victims cost; axes D domains, V units, K words, P disruption budgets.

    Every array has the axis of domains, so that domains of several preemptors can be mixed.
    """

    words: Array  # i32[D, V, K] of each unit by itself; 0 on padding
    rank: Array  # i32[D, V] 0 costs nothing
    rank_price: Array  # i32[D, K] for each rank up to the highest in the set
    covered: Array  # i32[D, V, P] pods that count against each budget
    left: Array  # i32[D, P] evictions that each budget still allows
    excess_price: Array  # i32[D, K] for each pod beyond
    is_hard: Array  # bool[D] no budget may be exceeded


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class VictimTensors:
    """Domains with their victim units.

    Axes: D domains, N nodes (the last a dummy), R resources that the class asks for, V units,
    M most nodes of a unit.
    """

    spare: Array  # i32[D, N, R] free while everybody stays; may be negative
    cap: Array  # i32[D, N] most pods of a node; 0 on padding
    request: Array  # i32[D, R], positive
    need: Array  # i32[D]
    node_of: Array  # i32[D, V, M] nodes of each unit; the dummy where there are fewer
    amount: Array  # i32[D, V, M, R] what it holds there
    is_unit: Array  # bool[D, V]; False on padding
    give_back: Array  # i32[D, V] the units, dearest first
    costs: SetCosts


class FoundSets(NamedTuple):
    """Sets of victims; axes D domains, O orders, V units, K words."""

    taken: jax.Array  # bool[D, O, V]
    fits: jax.Array  # bool[D, O] the pods needed fit without them
    words: jax.Array  # i32[D, O, K]; WORST where they do not


class _State(NamedTuple):
    free: jax.Array  # i32[N, R]
    fits: jax.Array  # i32[N]
    total: jax.Array  # i32[]
    taken: jax.Array  # bool[V]
    covered: jax.Array  # i32[P]


def count_pods(free: Array, request: Array, cap: Array) -> jax.Array:
    """Count pods on nodes, i32[...] for i32[..., R] free; at most `cap` on each."""
    return jnp.minimum(count_fitting(free, request), cap)


def _start(domain: VictimTensors) -> _State:
    fits = count_pods(domain.spare, domain.request, domain.cap)
    return _State(
        jnp.asarray(domain.spare),
        fits,
        fits.sum(),
        jnp.zeros(domain.is_unit.shape, bool),
        jnp.zeros(domain.costs.left.shape, np.int32),
    )


def _shift(domain: VictimTensors, state: _State, unit: Array, sign: Array) -> _State:
    """Evict (1), take back (-1) or leave alone (0) one unit."""
    nodes = domain.node_of[unit]  # i32[M]
    amount = domain.amount[unit] * sign
    fresh = count_pods(state.free[nodes] + amount, domain.request, domain.cap[nodes])
    change = fresh - state.fits[nodes]
    return _State(
        state.free.at[nodes].add(amount),
        state.fits.at[nodes].add(change),
        state.total + change.sum(),
        state.taken.at[unit].set(jnp.where(sign == 0, state.taken[unit], sign > 0)),
        state.covered + domain.costs.covered[unit] * sign,
    )


def _is_allowed(costs: SetCosts, covered: jax.Array) -> jax.Array:
    return ~jnp.asarray(costs.is_hard) | jnp.all(covered <= costs.left)


def _price(costs: SetCosts, state: _State, fits: jax.Array) -> jax.Array:
    """Return i32[K]: what a set costs, WORST where it does not do."""
    rank = jnp.max(jnp.where(state.taken, costs.rank, 0), initial=0)
    excess = jnp.maximum(state.covered - costs.left, 0).sum()
    words = jnp.where(state.taken[:, None], costs.words, 0).sum(axis=0)
    return jnp.where(fits, words + rank * costs.rank_price + excess * costs.excess_price, WORST)


def is_less(left: Array, right: Array) -> jax.Array:
    """Compare words in order along the last axis."""
    less = jnp.zeros(jnp.broadcast_shapes(left.shape, right.shape)[:-1], bool)
    equal = ~less
    for k in range(left.shape[-1]):
        less |= equal & (left[..., k] < right[..., k])
        equal &= left[..., k] == right[..., k]
    return less


def _each_order(function: Any, fleet: VictimTensors, *batched: Any) -> Any:
    """Map a function of one domain and one order over all of them."""
    of_domain = jax.vmap(function, in_axes=(None, *(0 for _ in batched)))
    return jax.vmap(of_domain)(fleet, *batched)


@jax.jit
def prefix_give_back(fleet: VictimTensors, orders: Array) -> FoundSets:
    """Evict in many orders until the pods fit, and give back the dearest that are not needed.

    Args:
      fleet: Domains.
      orders: i32[D, O, V] permutations of the units of each domain.

    Returns:
      The sets that are left; none of their units can be given back alone.
    """
    TRACES["victim_orders"] += 1

    def find(domain: VictimTensors, order: Array) -> FoundSets:
        def evict(state: _State, unit: Any) -> tuple[_State, None]:
            wanted = (state.total < domain.need) & domain.is_unit[unit]
            wanted &= _is_allowed(domain.costs, state.covered + domain.costs.covered[unit])
            return _shift(domain, state, unit, wanted.astype(np.int32)), None

        def give_back(state: _State, unit: Any) -> tuple[_State, None]:
            without = _shift(domain, state, unit, -state.taken[unit].astype(np.int32))
            keeps = without.total < domain.need
            return jax.tree.map(lambda a, b: jnp.where(keeps, a, b), state, without), None

        state, _ = jax.lax.scan(evict, _start(domain), order)
        state, _ = jax.lax.scan(give_back, state, domain.give_back)
        fits = state.total >= domain.need
        return FoundSets(state.taken, fits, _price(domain.costs, state, fits))

    found: FoundSets = _each_order(find, fleet, orders)
    return found


def _find_nth(mask: jax.Array, number: Array) -> jax.Array:
    """Return the index of one of the set bits, counted round and round; 0 where there is none."""
    nth = number % jnp.maximum(mask.sum(), 1)
    return jnp.argmax(jnp.cumsum(mask) * mask == nth + 1)


@jax.jit
def exchange(fleet: VictimTensors, taken: Array, draws: Array) -> FoundSets:
    """Improve sets of victims by small changes that keep the pods fitting.

    Args:
      fleet: Domains.
      taken: bool[D, O, V] sets to start from; one that does not fit stays as it is.
      draws: i32[D, O, T, 4] random, not negative: in each of T steps one unit comes back, one or
        two others go, and none or one more comes back.

    Returns:
      Sets that are never worse.
    """
    TRACES["victim_exchange"] += 1

    def improve(domain: VictimTensors, start: Array, steps: Array) -> FoundSets:
        def evict(state: _State, unit: Any) -> tuple[_State, None]:
            return _shift(domain, state, unit, start[unit].astype(np.int32)), None

        def price(state: _State) -> jax.Array:
            does = (state.total >= domain.need) & _is_allowed(domain.costs, state.covered)
            return _price(domain.costs, state, does)

        def take_back(state: _State, unit: jax.Array, does: jax.Array) -> _State:
            return _shift(domain, state, unit, -(state.taken[unit] & does).astype(np.int32))

        def step(carry: tuple[_State, jax.Array], draw: Any) -> tuple[Any, None]:
            state, words = carry
            half = draw // 2
            outside = jnp.asarray(domain.is_unit) & ~state.taken
            one_of = (
                _find_nth(state.taken, half[0]),
                _find_nth(outside, half[1]),
                _find_nth(outside, half[2]),
            )
            other = _shift(domain, state, one_of[0], -state.taken[one_of[0]].astype(np.int32))
            for unit, does in ((one_of[1], draw[1] >= 0), (one_of[2], draw[2] % 2 == 1)):
                goes = outside[unit] & does & ~other.taken[unit]
                other = _shift(domain, other, unit, goes.astype(np.int32))
            last = _find_nth(other.taken, half[3])
            back = other.taken[last] & (draw[3] % 2 == 1)
            other = _shift(domain, other, last, -back.astype(np.int32))
            theirs = price(other)
            # Equal cost is taken as well: it leads off plateaus.
            is_kept = (theirs[0] < WORST) & ~is_less(words, theirs)
            chosen = jax.tree.map(lambda a, b: jnp.where(is_kept, a, b), other, state)
            return (chosen, jnp.where(is_kept, theirs, words)), None

        state, _ = jax.lax.scan(evict, _start(domain), jnp.arange(start.shape[0]))
        (state, words), _ = jax.lax.scan(step, (state, price(state)), steps)
        return FoundSets(state.taken, words[0] < WORST, words)

    found: FoundSets = _each_order(improve, fleet, taken, draws)
    return found
