"""Plans of small random fleets against CP-SAT (`bench/quality.py` runs many more)."""

from __future__ import annotations

import pytest

pytest.importorskip("ortools")

from bench.quality import compare


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_plans_of_small_fleets_are_optimal(seed: int) -> None:
    result = compare(seed)
    assert result.violations == ()
    assert result.false_claim == ""
    assert result.found >= result.best
