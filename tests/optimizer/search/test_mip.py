"""Levels solved one after another."""

from __future__ import annotations

import numpy as np
import pytest

from optimizer.search.mip import MipModel


@pytest.mark.parametrize(
    ("relaxed", "want_bounds"),
    [
        pytest.param(False, (1.0, 5.0), id="whole numbers"),
        # 1.5 cannot be reached: later levels are bounded for plans that reach 1.
        pytest.param(True, (1.5, 5.0), id="fractions ask no more of later levels than 1"),
    ],
)
def test_later_levels_hold_what_whole_numbers_reach(
    relaxed: bool, want_bounds: tuple[float, ...]
) -> None:
    model = MipModel()
    a, b = model.add_variables([2, 1]).tolist()
    model.add_row([a], 2, up=3)
    model.add_row([a, b], [1, 1], up=2)
    first = np.array([1.0, 0.0])
    second = np.array([0.0, 5.0])
    result = model.solve([first, second], [10**7, 10**7], node_limit=10, relaxed=relaxed)
    assert result.bounds == pytest.approx(want_bounds, abs=1e-2)


def test_fractions_beside_whole_numbers_are_not_folded_into_later_levels() -> None:
    """Pods in fractions: level one allows 1.5, whole plans 1, and then 4 in level two, not 2."""
    model = MipModel()
    pods = model.add_variables([2], integer=False)
    gangs = model.add_variables([4])
    model.add_row([*pods, *gangs], [4, 1], up=8)
    model.add_row(pods, 2, up=3)
    result = model.solve([np.array([1.0, 0]), np.array([0, 1.0])], [3, 5], node_limit=10)
    assert result.bounds == pytest.approx((1.5, 4.0))
