"""Room that pending pods hold on the node they are nominated to.

Source: kube-scheduler counts nominated pods of equal or higher priority as running on their node
while it filters another pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import seat_pods

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.fleet_state import FleetState
    from optimizer.problem import Problem

    Indices = NDArray[np.int64]

__all__ = ["Hold", "find_nominated", "hold_nominated", "keeps_nominations"]

Hold = tuple[int, "Indices", "Indices"]
"""Arguments of `FleetState.lift`."""


def find_nominated(
    problem: Problem, u: int, placed: Container[int] = ()
) -> Iterator[tuple[int, int]]:
    """Yield (class, node) of the pods that a unit must leave room to.

    Args:
      problem: Names the units.
      u: The unit that is about to be placed; its own nominations do not bind it.
      placed: Units whose pods have nodes, and wait no more.
    """
    pods = problem.snapshot.pods
    for node, nominated in sorted(problem.reservations.items()):
        for pod in nominated:
            owner = problem.unit_of_pod[pod]
            if owner == u or owner in placed or pods.priority[pod] < problem.units[u].priority:
                continue
            yield problem.pod_classes[pod], node


def hold_nominated(state: FleetState, u: int, placed: Container[int] = ()) -> list[Hold]:
    """Take the room of `find_nominated`, and return what was taken, to be lifted again."""
    holds: list[Hold] = []
    for pod_class, node in find_nominated(state.problem, u, placed):
        hold = (pod_class, np.array([node]), np.array([1]))
        state.take(*hold)
        holds.append(hold)
    return holds


def keeps_nominations(problem: Problem, placements: Mapping[int, UnitPlacement]) -> bool:
    """Tell whether newcomers leave room to the nominated pods that still wait.

    A newcomer on a node must leave there what it asks for itself to each waiting pod of its own or
    a higher priority.
    """
    if not problem.reservations:
        return True
    priority = problem.snapshot.pods.priority
    seats: dict[int, int] = {}
    for u, placement in placements.items():
        seats |= seat_pods(problem.units[u], placement)
    arrivals: dict[int, list[int]] = {}
    for pod, node in seats.items():
        arrivals.setdefault(node, []).append(pod)
    for node, nominated in problem.reservations.items():
        waiting = [pod for pod in nominated if pod not in seats]
        here = arrivals.get(node, [])
        if not waiting or not here:
            continue
        amounts = {pod: problem.requests[problem.pod_classes[pod]] for pod in (*waiting, *here)}
        free = problem.free[node].astype(np.int64) - sum(amounts[pod] for pod in here)
        for pod in here:
            kept = sum(amounts[q] for q in waiting if priority[q] >= priority[pod])
            if np.any((kept > free) & (amounts[pod] > 0) & (np.asarray(kept) > 0)):
                return False
    return True
