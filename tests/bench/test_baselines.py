"""The baselines place what a person would: they are compared with, so they must be right."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("numba", reason="the compiled baseline needs numba (the dev extra)")

from bench.baselines import place_greedily, search_orders

FREE = [[8, 64], [8, 64], [4, 64], [8, 8]]
"""GPUs and cores of four nodes; two racks of two nodes."""
REQUESTS = [[8, 8], [4, 16], [2, 4]]


@pytest.mark.parametrize(
    ("classes", "counts", "want_placed", "want_free"),
    [
        pytest.param([0], [2], 1, [0, 0, 4, 8], id="only the first rack has two whole nodes"),
        pytest.param([1], [1], 1, [8, 8, 0, 8], id="the fuller rack, and in it the fuller node"),
        pytest.param([1], [2], 1, [0, 8, 4, 8], id="cores bind on the last node"),
        pytest.param([0, 2], [2, 9], 1, [0, 0, 4, 8], id="a gang that fits nowhere is left out"),
    ],
)
def test_place_greedily(
    classes: list[int], counts: list[int], want_placed: int, want_free: list[int]
) -> None:
    free = np.array(FREE)
    placed = place_greedily(
        free, np.array(REQUESTS), np.array([0, 0, 1, 1]), np.array(classes), np.array(counts)
    )
    assert placed == want_placed
    assert free[:, 0].tolist() == want_free


def test_search_orders() -> None:
    slots = np.array([[2, 4], [1, 2]], np.int32)  # whole nodes and halves of two racks
    takes = np.array([[1, 2], [2, 4]], np.int32)  # one whole node, two
    orders = np.array([[0, 1], [1, 0]], np.int32)
    got = search_orders(slots, takes, orders, np.array([1, 3]))
    assert got.tolist() == [4, 4]  # best fit leaves the large rack to the large gang
