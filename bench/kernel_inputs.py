"""What kernels are given, at any size: fleets as the search builds them, victims drawn.

Without Numba, so that a machine with nothing but JAX, NumPy, SciPy and networkx can run it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bench.fleets import join, make_gang, make_nodes
from bench.instances import KEY, make_spec
from optimizer.kernels.victim_subsets import SubsetTensors
from optimizer.kernels.victims import SetCosts, VictimTensors
from optimizer.problem import Problem, build_problem
from optimizer.search.kinds import FlatKind, describe_flat
from topology.assemble import assemble_snapshot
from topology.model import TopologyTerm
from topology.plan import Request

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "draw_domain",
    "draw_rollouts",
    "kinds_of",
    "make_problem",
    "stack_subsets",
    "stack_victims",
]

PER_UNIT = 3
"""Nodes that a drawn unit stands on."""


def make_problem(nodes: int, racks: int, gangs: int, classes: int = 1) -> Problem:
    """Build an empty fleet of 8-GPU nodes and 4-pod gangs that each want one rack."""
    specs = [make_spec(1 << c, 4 << c) for c in range(classes)]
    term = TopologyTerm((KEY,))
    groups, pods = join(
        make_gang(f"bench/gang-{g:05d}", 4, specs[g % classes], term) for g in range(gangs)
    )
    return build_problem(assemble_snapshot(make_nodes(nodes, 1, racks), pods, groups), Request())


def kinds_of(problem: Problem) -> tuple[list[FlatKind], NDArray[np.int32]]:
    """Return the kinds of gangs, and the kind of every unit."""
    kinds: dict[FlatKind, int] = {}
    of_unit = []
    for unit in problem.units:
        kind = describe_flat(problem, unit)
        assert kind is not None
        of_unit.append(kinds.setdefault(kind, len(kinds)))
    return list(kinds), np.array(of_unit, np.int32)


def draw_rollouts(
    of_unit: NDArray[np.int32], num_domains: int, candidates: int, length: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """Draw orders i32[G, C] of kinds of gangs, with tightness i32[C] and ranks i32[C, D]."""
    rng = np.random.default_rng(0)
    orders = rng.choice(of_unit, (length, candidates)).astype(np.int32)
    ranks = np.tile(np.arange(num_domains, dtype=np.int32), (candidates, 1))
    return orders, np.ones(candidates, np.int32), ranks


def draw_domain(units: int, nodes: int, resources: int, seed: int = 0) -> dict[str, Any]:
    """Draw a domain of which half of all pods that could fit are needed: i32 arrays."""
    rng = np.random.default_rng(units * 100 + nodes + seed * 10_000)
    held = np.zeros((units, nodes, resources), np.int32)
    where = np.zeros((units, PER_UNIT), np.int32)
    for v in range(units):
        where[v] = rng.choice(nodes, PER_UNIT, replace=False)
        held[v, where[v]] = rng.integers(1, 4, (PER_UNIT, resources))
    cap = (held.sum(axis=0) // 4).min(axis=1).astype(np.int32)
    return {
        "held": held,
        "where": where,
        "spare": np.zeros((nodes, resources), np.int32),
        "cap": cap,
        "request": np.full(resources, 4, np.int32),
        "need": int(cap.sum() * 0.5),
        "cost": np.sort(rng.integers(1, 100, units)).astype(np.int32),
    }


def stack_subsets(domains: list[dict[str, Any]], low: int) -> SubsetTensors:
    """Return domains as tensors of all their subsets, the `low` cheapest units in the low half."""
    held = np.stack([domain["held"] for domain in domains])
    return SubsetTensors(
        spare=np.stack([domain["spare"] for domain in domains]),
        cap=np.stack([domain["cap"] for domain in domains]),
        request=np.stack([domain["request"] for domain in domains]),
        need=np.array([domain["need"] for domain in domains], np.int32),
        low=held[:, :low],
        high=held[:, low:],
        costs=_stack_costs(domains),
    )


def stack_victims(domains: list[dict[str, Any]]) -> VictimTensors:
    """Return domains as tensors of their units, with one dummy node each."""
    held = np.stack([domain["held"] for domain in domains])
    where = np.stack([domain["where"] for domain in domains])
    size, num_units = held.shape[:2]
    return VictimTensors(
        spare=np.stack([np.pad(domain["spare"], ((0, 1), (0, 0))) for domain in domains]),
        cap=np.stack([np.pad(domain["cap"], (0, 1)) for domain in domains]),
        request=np.stack([domain["request"] for domain in domains]),
        need=np.array([domain["need"] for domain in domains], np.int32),
        node_of=where,
        amount=np.take_along_axis(held, where[..., None], axis=2),
        is_unit=np.ones((size, num_units), bool),
        # The dearest first; units are drawn cheapest first.
        give_back=np.tile(np.arange(num_units, dtype=np.int32)[::-1], (size, 1)),
        costs=_stack_costs(domains),
    )


def _stack_costs(domains: list[dict[str, Any]]) -> SetCosts:
    """Return costs of one word, without ranks and budgets."""
    cost = np.stack([domain["cost"] for domain in domains])
    size = len(cost)
    return SetCosts(
        words=cost[:, :, None],
        rank=np.zeros_like(cost),
        rank_price=np.zeros((size, 1), np.int32),
        covered=np.zeros((*cost.shape, 0), np.int32),
        left=np.zeros((size, 0), np.int32),
        excess_price=np.zeros((size, 1), np.int32),
        is_hard=np.zeros(size, bool),
    )
