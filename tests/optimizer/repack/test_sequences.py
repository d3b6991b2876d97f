"""Orders of a few moves, each of which needs others to be done before it, or not yet done."""

from __future__ import annotations

import pytest

from optimizer.repack.sequences import find_sequence


@pytest.mark.parametrize(
    ("needs", "bars", "want"),
    [
        pytest.param({}, {}, [0, 1, 2], id="any order"),
        pytest.param({0: {1}, 1: {2}}, {}, [2, 1, 0], id="a chain"),
        pytest.param({0: {1}, 1: {0}}, {}, None, id="a circle"),
        # Move 0 would take the room that 1 needs, and 2 waits for 1.
        pytest.param({2: {1}}, {1: {0}}, [1, 0, 2], id="the first that can go must not"),
    ],
)
def test_sequence(
    needs: dict[int, set[int]], bars: dict[int, set[int]], want: list[int] | None
) -> None:
    done: set[int] = set()

    def step(move: int) -> bool:
        if not needs.get(move, set()) <= done or bars.get(move, set()) & done:
            return False
        done.add(move)
        return True

    assert find_sequence(3, step, done.remove) == want
