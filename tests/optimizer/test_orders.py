from __future__ import annotations

import numpy as np
import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.objective import Level
from optimizer.problem import Problem, build_problem
from optimizer.search.orders import draw_orders, weigh_units
from topology.plan import Request


def compile_gangs(*gangs: tuple[int, int, int]) -> Problem:
    """Gangs of (priority, pods, GPUs a pod), named in this order."""
    rows, groups = [], []
    for i, (priority, count, gpus) in enumerate(gangs):
        rows += make_pods(f"p{i:03}", count, group=f"ml/g{i:03}", spec=make_spec(gpus=gpus))
        groups.append(make_group(f"ml/g{i:03}", count, priority=priority))
    return build_problem(make_snapshot([make_node("n1")], rows, groups=groups), Request())


def name_order(problem: Problem, order: np.ndarray) -> list[int]:
    """Numbers of the gangs in an order of units."""
    return [int(problem.units[u].ref.removeprefix("ml/g")) for u in order.tolist()]


@pytest.mark.parametrize(
    ("gangs", "want_order"),
    [
        pytest.param([(1, 4, 8), (9, 1, 1)], [1, 0], id="priority before size"),
        pytest.param([(5, 8, 1), (5, 1, 8)], [1, 0], id="then the largest pods"),
        pytest.param([(5, 2, 8), (5, 4, 8)], [1, 0], id="then the most of them"),
        pytest.param([(5, 2, 8), (5, 2, 8)], [0, 1], id="then the scheduler's own order"),
        pytest.param([(-1, 8, 8), (0, 1, 0), (1, 1, 0)], [2, 1, 0], id="negative priorities"),
        pytest.param([], [], id="no units"),
    ],
)
def test_the_first_order(gangs: list[tuple[int, int, int]], want_order: list[int]) -> None:
    problem = compile_gangs(*gangs)
    units = range(len(problem.units))
    orders = draw_orders(problem, units, 1, np.random.default_rng(0))
    assert name_order(problem, orders[0]) == want_order


def test_even_rows_keep_to_priorities_however_many_there_are() -> None:
    # Large units of low priority are what tempts an order away from the priorities.
    problem = compile_gangs(*[(p, 1 + p % 3, 8 if p < 20 else 1) for p in range(40)])
    orders = draw_orders(problem, range(40), 9, np.random.default_rng(1))
    priorities = np.array([unit.priority for unit in problem.units])
    for row in orders[::2]:
        assert np.all(np.diff(priorities[row]) <= 0)
    assert any(np.any(np.diff(priorities[row]) > 0) for row in orders[1::2])


def test_rows_are_permutations_that_follow_the_seed() -> None:
    problem = compile_gangs(*[(5, 1 + i % 4, 2 ** (i % 4)) for i in range(12)])
    units = [3, 5, 7, 11]
    orders = draw_orders(problem, units, 32, np.random.default_rng(7))
    assert orders.shape == (32, 4)
    assert np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(4), (32, 1)))
    assert len(np.unique(orders, axis=0)) > 4
    assert np.array_equal(orders, draw_orders(problem, units, 32, np.random.default_rng(7)))
    # More candidates begin with the same ones.
    more = draw_orders(problem, units, 40, np.random.default_rng(7))
    assert np.array_equal(more[:32], orders)


@pytest.mark.parametrize(
    ("level", "want_weights"),
    [
        pytest.param(Level("groupsPlaced"), [1, 1], id="groups"),
        pytest.param(Level("podsPlaced"), [2, 4], id="pods"),
        pytest.param(Level("gpusPlaced"), [16, 4], id="GPUs"),
        pytest.param(Level("weightedGpus"), [144, 20], id="priority times GPUs"),
        pytest.param(Level("priority", 1, 5), [0, 4], id="GPUs of priority 5"),
        pytest.param(Level("podsPlaced", -1), [-2, -4], id="as few pods as can be"),
    ],
)
def test_weigh_units(level: Level, want_weights: list[int]) -> None:
    problem = compile_gangs((5, 4, 1), (9, 2, 8))  # the second comes first, by priority
    assert weigh_units(problem, [0, 1], [level])[:, 0].tolist() == want_weights
    both = weigh_units(problem, [1], [level, level])
    assert both.tolist() == [[want_weights[1]] * 2]
