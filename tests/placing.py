"""Single units placed by the decoder, and what a test wants to know of the state they leave."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from optimizer.decode import place_unit
from optimizer.fleet_state import FleetState
from optimizer.problem import build_problem
from topology.plan import Request

if TYPE_CHECKING:
    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem, Unit
    from topology.model import Snapshot


def compile_fleet(snapshot: Snapshot, **request: Any) -> FleetState:
    """The fleet as it stands, for the units of a request (all pending ones unless stated)."""
    return FleetState(build_problem(snapshot, Request(**request)))


def unit_of(problem: Problem, ref: str) -> Unit:
    """The unit of a reference."""
    return next(unit for unit in problem.units if unit.ref == ref)


def place_on(state: FleetState, ref: str = "ml/g", **options: Any) -> dict[str, int] | None:
    """Place a unit; node -> new pods, None when it is refused."""
    placement = place_unit(state, unit_of(state.problem, ref), **options)
    return None if placement is None else count_nodes(state.problem, placement)


def count_nodes(problem: Problem, placement: UnitPlacement) -> dict[str, int]:
    """Node -> pods of a placement."""
    counts: Counter[str] = Counter()
    for fill in placement:
        for node, count in zip(fill.nodes.tolist(), fill.counts.tolist(), strict=True):
            counts[problem.snapshot.nodes[node].name] += count
    return dict(sorted(counts.items()))


def describe_state(state: FleetState) -> dict[str, list[Any]]:
    """All that can be asked of a state, for comparing two."""
    problem = state.problem
    everywhere = np.arange(len(problem.free))
    classes = range(len(problem.class_specs))
    rules = [node.exclusive for unit in problem.units for node in unit.tree]
    masks = [state.exclusive_mask(found) for found in rules]
    return {
        "free": state.free.tolist(),
        "gpus": state.node_gpus.tolist(),
        "fits": [state.fits(s).tolist() for s in classes],
        "capacity": [
            state.capacity(s, c).tolist() for s in classes for c in range(len(problem.columns))
        ],
        "coupled": [state.coupled_fits(s, everywhere).tolist() for s in classes],
        "exclusive": [None if mask is None else mask.tolist() for mask in masks],
        "spread": [
            state.spread_counts(t).tolist() for t in range(len(problem.interactions.spreads))
        ],
        "attracted": [
            state.attracted(t).tolist() for t in range(len(problem.interactions.attractions))
        ],
    }
