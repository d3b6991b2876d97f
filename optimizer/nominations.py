"""Room that pending pods hold on the node they are nominated to.

Source: kube-scheduler counts nominated pods of equal or higher priority as running on their node
while it filters another pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Container

    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState

    Indices = NDArray[np.int64]

__all__ = ["Hold", "hold_nominated"]

Hold = tuple[int, "Indices", "Indices"]
"""Arguments of `FleetState.lift`."""


def hold_nominated(state: FleetState, u: int, placed: Container[int] = ()) -> list[Hold]:
    """Take the room that a unit must leave to pods of its own or a higher priority.

    Args:
      state: Takes the room.
      u: The unit that is about to be placed; its own nominations do not bind it.
      placed: Units whose pods have nodes, and wait no more.

    Returns:
      What was taken, to be lifted again.
    """
    problem = state.problem
    pods = problem.snapshot.pods
    holds: list[Hold] = []
    for node, nominated in sorted(problem.reservations.items()):
        for pod in nominated:
            owner = problem.unit_of_pod[pod]
            if owner == u or owner in placed or pods.priority[pod] < problem.units[u].priority:
                continue
            hold = (problem.pod_classes[pod], np.array([node]), np.array([1]))
            state.take(*hold)
            holds.append(hold)
    return holds
