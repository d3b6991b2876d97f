"""One call of every kernel on a fleet of a given size, with what it has to move at least.

Bytes are counted by hand, from shapes: what a candidate reads and writes if every step touches its
part of the state exactly once, whatever the compiler adds or keeps in caches. What all candidates
read alike (the fleet) is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bench.kernel_inputs import (
    PER_UNIT,
    draw_domain,
    draw_rollouts,
    kinds_of,
    make_problem,
    stack_subsets,
    stack_victims,
)
from optimizer.fleet_state import FleetState
from optimizer.kernels.fit import count_node_fits
from optimizer.kernels.gangs import GangTensors, roll_out_gangs
from optimizer.kernels.lattice import LatticeTensors, roll_out_lattice, roll_out_variants
from optimizer.kernels.victim_subsets import LANES, BestSubset, enumerate_subsets
from optimizer.kernels.victims import WORST, exchange, prefix_give_back
from optimizer.search.rollouts import build_gang_tensors, build_lattice_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["DOMAIN", "KernelCall", "enumerate_domains", "list_calls"]

RACK = 16
DOMAIN = 18
"""Nodes of a domain that is looked at for victims."""
RESOURCES = 3
UNITS = 16
ORDERS = 64
SWAPS = 64
DRAWN = 32
"""Domains that differ; more of them are copies."""

count_states_fits = jax.jit(jax.vmap(count_node_fits, in_axes=(0, None, None)))
"""The step that all kernels share, by itself: many states of one fleet."""


@dataclass(frozen=True, kw_only=True)
class KernelCall:
    """A jitted function with arguments on the host.

    `num_candidates` is how many orders, sets or states one call tries; for the enumeration, how
    many for each step that it reports.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    num_candidates: int
    candidate_bytes: int

    def count(self, found: Any) -> int:
        """Return how many candidates were tried."""
        steps = int(np.asarray(found.looks).sum()) if isinstance(found, BestSubset) else 1
        return steps * self.num_candidates


def list_calls(nodes: int, *, candidates: int = 256, gangs: int = 64) -> Iterator[KernelCall]:
    """Build the calls one after another: each may hold hundreds of megabytes.

    Args:
      nodes: In racks of 16, or domains of 18 for victims.
      candidates: Orders tried in one call, fewer where their state would be too large.
      gangs: Length of an order.
    """
    yield from _list_rollouts(nodes, candidates, gangs)
    yield from _list_victims(max(nodes // DOMAIN, 1))


def _afford(candidates: int, each: int, limit: int = 512 << 20) -> int:
    """Bound the state of all candidates, as the search does."""
    return max(min(candidates, limit // each), 1)


def _list_rollouts(nodes: int, candidates: int, gangs: int) -> Iterator[KernelCall]:
    problem = make_problem(nodes, max(nodes // RACK, 1), gangs, classes=4)
    kinds, of_unit = kinds_of(problem)
    state = FleetState(problem)
    fleet = build_gang_tensors(state, kinds)
    assert isinstance(fleet, GangTensors)
    (n, r), s, (d, m) = fleet.free.shape, len(fleet.requests), fleet.members.shape
    count = _afford(candidates, 4 * n * (r + s))
    free = np.random.default_rng(0).integers(0, 64, (count, n, r), np.int32)
    yield KernelCall(
        name="fit: pods of 8 classes on every node",
        function=count_states_fits,
        arguments=(free, fleet.requests, fleet.eligible),
        num_candidates=count,
        candidate_bytes=4 * n * (r + s),
    )
    length, levels = gangs, fleet.domains_of.shape[1]
    count = _afford(candidates, 4 * (n * (r + s) + s * d))
    a_domain = m * (4 + 8 * r + 8 * s + s + 4 * levels)  # its nodes: free, fits, eligible, codes
    yield KernelCall(
        name="orders, node by node",
        function=roll_out_gangs,
        arguments=(fleet, *draw_rollouts(of_unit, d, count, length)),
        num_candidates=count,
        # The state of the start is written once; a step reads room, ranks and what is allowed.
        candidate_bytes=4 * (n * (r + s) + s * d) + length * (9 * d + a_domain + 8),
    )
    slots = build_lattice_tensors(state, kinds)
    assert isinstance(slots, LatticeTensors)
    d, z = slots.slots.shape
    each = 4 * z * d + length * (4 * z * d + 5 * d + 8)
    lattice = KernelCall(
        name="orders, slots of domains",
        function=roll_out_lattice,
        arguments=(slots, *draw_rollouts(of_unit, d, candidates, length)),
        num_candidates=candidates,
        candidate_bytes=each,
    )
    yield lattice
    wide = _afford(16 * candidates, 4 * z * d, 128 << 20)
    yield replace(
        lattice,
        name="the same, more abreast",
        arguments=(slots, *draw_rollouts(of_unit, d, wide, length)),
        num_candidates=wide,
    )
    variants = min(16, candidates)
    few = candidates // variants
    orders, tightness, ranks = draw_rollouts(of_unit, d, few, length)
    yield KernelCall(
        name=f"orders on {variants} variants of the fleet",
        function=roll_out_variants,
        arguments=(
            jax.tree.map(lambda leaf: np.stack([leaf] * variants), slots),
            np.stack([orders] * variants),
            tightness,
            ranks,
        ),
        num_candidates=few * variants,
        candidate_bytes=each,
    )


def _list_victims(num_domains: int) -> Iterator[KernelCall]:
    drawn = [draw_domain(UNITS, DOMAIN, RESOURCES, seed) for seed in range(min(DRAWN, num_domains))]
    fleet = stack_victims([drawn[i % len(drawn)] for i in range(num_domains)])
    rng = np.random.default_rng(0)
    state = 4 * (DOMAIN + 1) * (RESOURCES + 1)
    # One unit goes or comes back: its nodes and amounts, what is free and fits there before, after.
    a_shift = PER_UNIT * (4 + 4 + 4 * RESOURCES + 8 * RESOURCES + 8)
    orders = np.tile(np.arange(UNITS, dtype=np.int32), (num_domains, ORDERS, 1))
    yield KernelCall(
        name=f"victims: {ORDERS} orders a domain, give-back",
        function=prefix_give_back,
        arguments=(fleet, rng.permuted(orders, axis=2)),
        num_candidates=num_domains * ORDERS,
        candidate_bytes=state + 2 * UNITS * a_shift + 9 * UNITS,
    )
    kept = ORDERS // 4
    yield KernelCall(
        name=f"victims: {kept} sets a domain, {SWAPS} exchanges each",
        function=exchange,
        arguments=(
            fleet,
            np.ones((num_domains, kept, UNITS), bool),
            rng.integers(0, 2**20, (num_domains, kept, SWAPS, 4), np.int32),
        ),
        num_candidates=num_domains * kept * SWAPS,
        candidate_bytes=(state + UNITS * a_shift) // SWAPS + 4 * a_shift + 16 + 2 * UNITS,
    )
    yield enumerate_domains(num_domains, 9, 3)


def enumerate_domains(num_domains: int, low: int, high: int) -> KernelCall:
    """Build a call that looks at all sets of `low + high` units in each of some domains."""
    units = low + high
    drawn = [draw_domain(units, DOMAIN, RESOURCES, seed) for seed in range(min(DRAWN, num_domains))]
    return KernelCall(
        name=f"victims: all sets of {units} in {num_domains:,} domains",
        function=enumerate_subsets,
        arguments=(
            stack_subsets([drawn[i % len(drawn)] for i in range(num_domains)], low),
            np.full(1, WORST, np.int32),
        ),
        num_candidates=min(LANES, 1 << low),
        candidate_bytes=4 * DOMAIN * RESOURCES + 8,
    )
