"""What groups of one shape met in a placement, remembered while its nodes stay as they are.

Fleets queue many gangs alike, and a gang placed in one rack changes nothing in the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from optimizer.replay.state import Seat, WorkingSnapshot

    Indices = NDArray[np.int64]

__all__ = ["Trial", "TriedPlacements"]


class Trial(NamedTuple):
    """One placement tried."""

    seats: tuple[Seat, ...] | None
    """(position of the pod in its group's order, node); None where the floor was missed."""
    fill: int = 0


class TriedPlacements:
    """Trials by shape and nodes; shared by all cycles of a queue."""

    def __init__(self, state: WorkingSnapshot) -> None:
        self._state = state
        self._found: dict[tuple[bytes, bytes], tuple[int, Trial]] = {}

    def find_shape(self, pods: Sequence[int], floor: int) -> bytes | None:
        """Return what decides where pods go, None where that is more than amounts on the nodes."""
        state = self._state
        if state.nominations or not all(map(state.is_plain, pods)):
            return None
        return state.snapshot.pods.spec[list(pods)].tobytes() + floor.to_bytes(8, "big")

    def recall(self, shape: bytes, nodes: Indices) -> Trial | None:
        """Return what was met in these nodes, None where something changed there since."""
        found = self._found.get((shape, nodes.tobytes()))
        return None if found is None or found[0] != self._count_changes(nodes) else found[1]

    def note(self, shape: bytes, nodes: Indices, trial: Trial) -> None:
        """Remember a trial whose pods were taken off the nodes again."""
        self._found[shape, nodes.tobytes()] = self._count_changes(nodes), trial

    def _count_changes(self, nodes: Indices) -> int:
        return int(self._state.changes[nodes].sum())
