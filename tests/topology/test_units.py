from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topology.units import MAX_UNITS, scale_amounts

GIB = 1 << 30


def column(*amounts: int) -> np.ndarray:
    return np.array(amounts, np.int64)[:, None]


@pytest.mark.parametrize(
    ("free", "requests", "want_unit", "want_free", "want_requests"),
    [
        pytest.param([8, 3], [1, 2, 4], 1, [8, 3], [1, 2, 4], id="GPUs by the piece"),
        pytest.param([8, 7], [8], 8, [1, 0], [1], id="whole nodes: 7 free GPUs are none"),
        pytest.param(
            [2048 * GIB, 512 * GIB + 5],
            [64 * GIB, 96 * GIB],
            32 * GIB,
            [64, 16],
            [2, 3],
            id="memory in steps of 32 GiB",
        ),
        pytest.param([64_000, 1_500], [250, 1_000], 250, [256, 6], [1, 4], id="milli-cores"),
        pytest.param([8], [0, 4], 4, [2], [0, 1], id="a pod that asks for none of it"),
        pytest.param([8], [0], 1, [8], [0], id="nobody asks for it"),
        pytest.param([2**53], [0], 2**29, [2**24], [0], id="a lot that nobody asks for"),
        pytest.param([-3, -4], [2], 2, [-2, -2], [1], id="overcommitted: rounded down"),
        pytest.param([4], [1, 2**40], 1, [4], [1, 2**24 + 1], id="larger than every node"),
        pytest.param([2**24], [1], 1, [2**24], [1], id="2**24 is the last exact amount"),
        pytest.param([3 * 2**24], [3], 3, [2**24], [1], id="2**24 units of 3"),
    ],
)
def test_exact(
    free: list[int],
    requests: list[int],
    want_unit: int,
    want_free: list[int],
    want_requests: list[int],
) -> None:
    scaled = scale_amounts(column(*free), column(*requests))
    assert scaled.units == (want_unit,)
    assert scaled.is_exact == (True,)
    assert scaled.free[:, 0].tolist() == want_free
    assert scaled.requests[:, 0].tolist() == want_requests


@pytest.mark.parametrize(
    ("free", "requests", "want_unit", "want_free", "want_requests"),
    [
        pytest.param([2**24 + 1], [1], 2, [2**23], [1], id="one beyond 2**24"),
        pytest.param([2**25 + 3], [1, 3], 4, [2**23], [1, 1], id="3 takes as much as 4"),
        pytest.param(
            [2**53 + 1],
            [3, 2**53 - 1],
            2**29,
            [2**24],
            [1, 2**24],
            id="bytes beyond what a float64 tells apart",
        ),
        pytest.param(
            [2**53 - 1, 2**53],
            [2**53 - 1, 2**53],
            2**29,
            [2**24 - 1, 2**24],
            [2**24, 2**24],
            id="a byte below 2**53 loses its place",
        ),
    ],
)
def test_rounded(
    free: list[int],
    requests: list[int],
    want_unit: int,
    want_free: list[int],
    want_requests: list[int],
) -> None:
    scaled = scale_amounts(column(*free), column(*requests))
    assert scaled.units == (want_unit,)
    assert scaled.is_exact == (False,)
    assert scaled.free[:, 0].tolist() == want_free
    assert scaled.requests[:, 0].tolist() == want_requests


def test_each_resource_has_its_own_unit() -> None:
    free = np.array([[8, 512 * GIB + 1], [4, 2**50 + 1]], np.int64)
    requests = np.array([[2, 1], [4, 2]], np.int64)
    scaled = scale_amounts(free, requests)
    assert scaled.units == (2, 2**26)
    assert scaled.is_exact == (True, False)
    assert scaled.free.dtype == scaled.requests.dtype == np.int32


@pytest.mark.parametrize(
    ("num_nodes", "num_requests"),
    [pytest.param(0, 2, id="no nodes"), pytest.param(2, 0, id="no pods")],
)
def test_empty(num_nodes: int, num_requests: int) -> None:
    scaled = scale_amounts(np.ones((num_nodes, 1), np.int64), np.ones((num_requests, 1), np.int64))
    assert scaled.free.shape == (num_nodes, 1)
    assert scaled.requests.shape == (num_requests, 1)


AMOUNTS = st.one_of(
    st.integers(0, 40), st.integers(2**24 - 2, 2**24 + 2), st.integers(2**53 - 2, 2**53 + 2)
)


@given(
    free=st.lists(st.one_of(AMOUNTS, st.integers(-40, -1)), min_size=1, max_size=4),
    pods=st.lists(st.tuples(AMOUNTS, st.integers(0, 4)), min_size=1, max_size=4),
)
def test_never_admits_what_exact_integers_refuse(
    free: list[int], pods: list[tuple[int, int]]
) -> None:
    scaled = scale_amounts(column(*free), column(*(amount for amount, _ in pods)))
    assert scaled.free.max() <= MAX_UNITS
    used = sum(amount * count for amount, count in pods)
    scaled_used = sum(
        request * count
        for request, (_, count) in zip(scaled.requests[:, 0].tolist(), pods, strict=True)
    )
    for have, scaled_have in zip(free, scaled.free[:, 0].tolist(), strict=True):
        if used and scaled_used <= scaled_have:
            assert used <= have
        if scaled.is_exact[0] and used and used <= have:
            assert scaled_used <= scaled_have
