"""Fleets beyond one model."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optimizer.objective import Level
    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.steps import MoveLevel

__all__ = ["improve_in_pieces"]


def improve_in_pieces(
    fleet: MovableFleet,
    steps: Sequence[Level | MoveLevel],
    node_limit: int,
    say: Callable[[str], None],
) -> None:
    """Improve."""
