"""Plans with evictions against CP-SAT (`bench/victims_quality.py` runs many more)."""

from __future__ import annotations

import pytest

pytest.importorskip("ortools")

from bench.victims_quality import compare


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(80))
def test_plans_with_evictions_are_sound(seed: int) -> None:
    result = compare(seed)
    assert result.violations == ()
    assert result.false_claim == ""
    assert result.found <= result.best


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(107, id="two priorities, GPUs counted alike: a dearer victim than needed"),
        pytest.param(139, id="three priorities, GPUs counted alike: fewer pods than fit"),
        pytest.param(151, id="two priorities, pods counted alike: a budget exceeded for nothing"),
        pytest.param(215, id="two priorities, pods counted alike: GPUs that need not go"),
        pytest.param(307, id="two priorities, GPUs counted alike: dearer victims than needed"),
    ],
)
@pytest.mark.xfail(
    reason="several priorities take turns where the objective does not put higher ones first",
    strict=False,
)
def test_plans_with_evictions_are_optimal(seed: int) -> None:
    result = compare(seed)
    assert result.found == result.best
