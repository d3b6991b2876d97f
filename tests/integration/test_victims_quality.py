"""Plans with evictions against CP-SAT (`bench/victims_quality.py` runs many more)."""

from __future__ import annotations

import pytest

pytest.importorskip("ortools")

from bench.victims_quality import compare


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_plans_with_evictions_are_sound(seed: int) -> None:
    result = compare(seed)
    assert result.violations == ()
    assert result.false_claim == ""
    assert result.found <= result.best
    if result.proof == "optimal":
        assert result.found == result.best
