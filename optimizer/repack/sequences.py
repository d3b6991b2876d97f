"""An order of a few moves without any detour, by trying all orders."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["find_sequence"]


def find_sequence(
    count: int, step_fn: Callable[[int], bool], back_fn: Callable[[int], None]
) -> list[int] | None:
    """Find an order in which every move has room when its turn comes.

    What is free depends on which moves are done, not on their order, so each set is tried once.

    Args:
      count: Number of moves; the effort doubles with each.
      step_fn: Makes a move if it has room now, and tells whether it did.
      back_fn: Takes the last move back.

    Returns:
      The moves in order, or None when there is no such order.
    """
    dead: set[int] = set()
    order: list[int] = []

    def extend(done: int) -> bool:
        if len(order) == count:
            return True
        if done in dead:
            return False
        for move in range(count):
            if not done >> move & 1 and step_fn(move):
                order.append(move)
                if extend(done | 1 << move):
                    return True
                order.pop()
                back_fn(move)
        dead.add(done)
        return False

    return order if extend(0) else None
