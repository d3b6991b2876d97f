from __future__ import annotations

import pytest

from data.importers.base import ReadProblem
from data.importers.lws_labels import Shape, make_labels

LWS = "leaderworkerset.sigs.k8s.io/"


@pytest.mark.parametrize(
    ("shape", "want_indices"),
    [
        pytest.param(Shape(16, 8), [0] * 8 + [1] * 8, id="16/8 LeaderWorker"),
        pytest.param(Shape(9, 8), [0] * 9, id="9/8 LeaderWorker: the leader is the extra one"),
        pytest.param(Shape(9, 8, True), [None] + [0] * 8, id="9/8 LeaderExcluded"),
        pytest.param(Shape(9, 4), [0] * 5 + [1] * 4, id="9/4 LeaderWorker: sizes 5 and 4"),
        pytest.param(Shape(9, 4, True), [None] + [0] * 4 + [1] * 4, id="9/4 LeaderExcluded"),
        pytest.param(Shape(17, 4), [0] * 5 + [1] * 4 + [2] * 4 + [3] * 4, id="17/4 LeaderWorker"),
        pytest.param(Shape(5, 2), [0, 0, 0, 1, 1], id="5/2 LeaderWorker"),
        pytest.param(Shape(5, 2, True), [None, 0, 0, 1, 1], id="5/2 LeaderExcluded"),
        pytest.param(Shape(4, 2), [0, 0, 1, 1], id="4/2 LeaderWorker"),
        pytest.param(Shape(4, 3), [0, 0, 0, 0], id="4/3 LeaderWorker"),
        pytest.param(Shape(4, 3, True), [None, 0, 0, 0], id="4/3 LeaderExcluded"),
        pytest.param(Shape(6, 6), [0] * 6, id="6/6 LeaderWorker"),
        pytest.param(Shape(4, 1), [0, 1, 2, 3], id="4/1 LeaderWorker"),
        pytest.param(
            Shape(4, 1, is_before_v0_10=True), [0, 0, 1, 2], id="4/1 LeaderWorker up to 0.9"
        ),
        pytest.param(Shape(4, 1, True), [None, 1, 2, 3], id="4/1 LeaderExcluded"),
        pytest.param(
            Shape(4, 1, True, is_before_v0_10=True),
            [None, 0, 1, 2],
            id="4/1 LeaderExcluded up to 0.9",
        ),
        pytest.param(Shape(1, 1), [0], id="1/1 LeaderWorker"),
        pytest.param(Shape(1, 1, True), [None], id="1/1 LeaderExcluded"),
        pytest.param(Shape(3), [None, None, None], id="no subgroups"),
    ],
)
def test_membership(shape: Shape, want_indices: list[int | None]) -> None:
    if shape.subgroup_size:
        shape.check("size")
    assert [shape.subgroup_of(w) for w in range(shape.size)] == want_indices


@pytest.mark.parametrize(
    ("shape", "want_message"),
    [
        pytest.param(Shape(6, 4), "divides neither size 6 nor size - 1", id="6/4"),
        pytest.param(Shape(2, 2, True), "does not divide size - 1 = 1", id="2/2 LeaderExcluded"),
        pytest.param(Shape(4, 5), "above the group size 4", id="too large"),
        pytest.param(Shape(4, 0), "at least 1", id="none"),
    ],
)
def test_refused(shape: Shape, want_message: str) -> None:
    with pytest.raises(ReadProblem, match=want_message):
        shape.check("size")


def test_labels_are_the_controllers() -> None:
    labels = make_labels(Shape(5, 2), "serve", "even", "even-0", 3, "0")
    assert labels == {
        LWS + "name": "even",
        LWS + "group-index": "0",
        LWS + "worker-index": "3",
        LWS + "group-key": "bc2cdf7eb001a56a5816a3d76447eea29d23845e",  # sha1 serve/even-0
        LWS + "subgroup-index": "1",
        LWS + "subgroup-key": "ff29db326198d7536709f56ef5842aac6d9beb0c",  # sha1 even-0/1
    }
