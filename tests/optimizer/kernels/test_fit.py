"""Exact division and fit counts, against integers of unlimited size."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.fleet_state import count_fits
from optimizer.kernels.fit import count_node_fits, divide_exactly, settle_quotient

LIMIT = 2**24


@given(st.lists(st.tuples(st.integers(0, LIMIT), st.integers(1, LIMIT)), min_size=1, max_size=64))
def test_division_is_exact(pairs: list[tuple[int, int]]) -> None:
    free = np.array([a for a, _ in pairs], np.int32)
    request = np.array([b for _, b in pairs], np.int32)
    want = [a // b for a, b in pairs]
    assert np.asarray(divide_exactly(free, request)).tolist() == want


def test_division_is_exact_around_every_multiple() -> None:
    request = np.repeat(np.arange(1, 3000, 7, dtype=np.int32), 3)
    quotient = np.int32(LIMIT) // request
    free = request * quotient + np.tile(np.array([-1, 0, 1], np.int32), len(request) // 3)
    free = np.clip(free, 0, LIMIT)
    assert np.array_equal(np.asarray(divide_exactly(free, request)), free // request)


@pytest.mark.parametrize("units", [-2, -1, 1, 2])
def test_a_ratio_two_units_in_the_last_place_off_is_settled(units: int) -> None:
    # As close as XLA divides on CUDA.
    request = np.repeat(np.arange(2, 3000, 7, dtype=np.int32), 3)
    quotient = np.int32(LIMIT) // request
    free = request * quotient + np.tile(np.array([-1, 0, 1], np.int32), len(request) // 3)
    free = np.clip(free, 0, LIMIT)
    ratio = free.astype(np.float32) / request.astype(np.float32)
    for _ in range(abs(units)):
        ratio = np.nextafter(ratio, np.float32(np.inf) * np.sign(units))
    settled = settle_quotient(ratio.astype(np.float32), free, request)
    assert np.array_equal(np.asarray(settled), free // request)


@pytest.mark.parametrize(
    ("free", "request_", "want"),
    [
        pytest.param([8, 64], [8, 4], 1, id="GPUs bind, equality fits"),
        pytest.param([7, 64], [8, 4], 0, id="one GPU too few"),
        pytest.param([8, 3], [1, 4], 0, id="cpu binds"),
        pytest.param([-2, 64], [0, 4], 16, id="overcommitted in what is not asked for"),
        pytest.param([-2, 64], [1, 4], 0, id="overcommitted in what is asked for"),
    ],
)
def test_fit_of_one_node(free: list[int], request_: list[int], want: int) -> None:
    fits = count_node_fits(
        np.array([free], np.int32), np.array([request_], np.int32), np.ones((1, 1), bool)
    )
    assert int(fits[0, 0]) == want


def test_kernel_and_host_count_alike() -> None:
    rng = np.random.default_rng(7)
    free = rng.integers(-5, 200, (60, 3)).astype(np.int32)
    requests = rng.integers(0, 9, (5, 3)).astype(np.int32)
    requests[:, 2] = 1
    eligible = rng.random((60, 5)) < 0.8
    fits = np.asarray(count_node_fits(free, requests, eligible))
    want = np.stack([count_fits(free, requests[s]) for s in range(5)], axis=1) * eligible
    assert np.array_equal(fits, want)
