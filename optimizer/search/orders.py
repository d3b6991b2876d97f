"""Candidate orders of units: the scheduler's own, disturbed in ways that have paid off.

A candidate weighs how large a unit is, how large its pods are and what it is worth, and adds
noise; half of the candidates keep strictly to priorities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.objective import Level
    from optimizer.problem import Problem

__all__ = ["draw_orders", "weigh_units"]


def weigh_units(
    problem: Problem, units: Sequence[int], levels: Sequence[Level]
) -> NDArray[np.int64]:
    """Return what each unit adds to each level when it is placed whole, i64[U, L]."""
    weights = np.zeros((len(units), len(levels)), np.int64)
    for i, u in enumerate(units):
        unit = problem.units[u]
        for j, level in enumerate(levels):
            group, pod, gpu = level.weights(unit.priority)
            weights[i, j] = group + pod * unit.num_pods + gpu * unit.gpus
    return weights


def draw_orders(
    problem: Problem, units: Sequence[int], count: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Draw orders of units.

    Args:
      problem: The units' sizes and priorities.
      units: Unit indices, U of them.
      count: Orders wanted, C.
      rng: Seeded by the request.

    Returns:
      i64[C, U], each row a permutation of positions in `units`. Row 0 takes priorities strictly,
      then the largest pods, then the largest units.
    """
    num_units = len(units)
    size = np.array([problem.units[u].gpus + problem.units[u].num_pods for u in units], np.float64)
    pod = np.array(
        [
            max((int(problem.class_gpus[t.pod_class]) for t in problem.units[u].tasks), default=0)
            for u in units
        ],
        np.float64,
    )
    priority = np.array([problem.units[u].priority for u in units], np.float64)
    size, pod = size / max(size.max(initial=1), 1), pod / max(pod.max(initial=1), 1)
    _, rank = np.unique(priority, return_inverse=True)
    level = rank / max(rank.max(initial=1), 1)
    orders = np.empty((count, num_units), np.int64)
    for c in range(count):
        if c == 0:
            orders[c] = np.lexsort((-size, -pod, -rank))
            continue
        is_strict = c % 2 == 0
        pull = 0.0 if is_strict else rng.uniform(0, 4)
        noise = rng.uniform(0.05, 1.0) * rng.random(num_units)
        key = level * pull + pod * rng.uniform(0, 2) + size * rng.uniform(-0.5, 2) + noise
        orders[c] = np.lexsort((-key, -rank)) if is_strict else np.argsort(-key, kind="stable")
    return orders
