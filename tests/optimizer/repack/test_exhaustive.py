"""Plans of tiny fleets against every plan there is."""

from __future__ import annotations

import pytest
from repacking import ask_moves

from bench.repack_exact import draw_fleet, find_best, score


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_no_plan_is_better(first: int) -> None:
    for seed in range(first, first + 10):
        fleet = draw_fleet(seed)
        plan = ask_moves(fleet.snapshot, *fleet.groups, free=fleet.free, mode=fleet.mode)
        found = score(plan.criteria, sum(goal.reached for goal in plan.goals))
        assert found == find_best(fleet), f"seed {seed}"


@pytest.mark.slow
def test_no_plan_is_better_of_many() -> None:
    for seed in range(60, 460):
        fleet = draw_fleet(seed)
        plan = ask_moves(fleet.snapshot, *fleet.groups, free=fleet.free, mode=fleet.mode)
        found = score(plan.criteria, sum(goal.reached for goal in plan.goals))
        assert found == find_best(fleet), f"seed {seed}"
