"""Victims for a pod group: the cluster emptied, one assignment, then each unit spared that can be.

Source: kubernetes pkg/scheduler/framework/preemption/podgrouppreemption.go (KEP-5710). From 1.37 on
the assignment is frozen while units are spared; 1.36 runs the placement algorithm anew for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optimizer.replay.importance import order_by_budgets

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from optimizer.replay.cycle import Cycle, Outcome
    from optimizer.replay.importance import Candidate
    from optimizer.replay.state import Seat, WorkingSnapshot
    from optimizer.victims import BudgetIndex

__all__ = ["Preemption", "preempt_for_group"]


@dataclass(frozen=True, slots=True)
class Preemption:
    """Nodes of a preemptor and the units that go for it; both are carried out in the state."""

    seats: tuple[Seat, ...]
    victims: tuple[Candidate, ...]


def preempt_for_group(
    state: WorkingSnapshot, cycle: Cycle, candidates: Sequence[Candidate], budgets: BudgetIndex
) -> Preemption | None:
    """Evict for a group that found no nodes, or leave the state as it was.

    Args:
      state: Without what earlier entries evicted, with what they placed.
      cycle: Of the group; its last run was unschedulable.
      candidates: Every unit of the cluster of strictly lower priority, most important first.
      budgets: Which disruption budgets cover a pod.

    Returns:
      The assignment and those not spared; None where the group would not fit an emptied cluster.
    """
    if not candidates:
        return None
    for candidate in candidates:
        state.evict(candidate.victim.pods)
    outcome = cycle.run()
    if not outcome.is_success:
        for candidate in candidates:
            state.restore(candidate.victim.pods)
        return None
    order = [candidate for candidate, _ in order_by_budgets(state.snapshot, budgets, candidates)]
    if cycle.release < "1.37":
        return _spare_by_rerun(state, cycle, order, outcome)
    victims = _spare_in_place(state, order, outcome.seats)
    return Preemption(outcome.seats, tuple(victims))


def _spare_in_place(
    state: WorkingSnapshot, order: Sequence[Candidate], seats: Sequence[Seat]
) -> list[Candidate]:
    """Put back, most important first, whom the frozen assignment leaves room to."""
    asked: dict[int, NDArray[np.bool_]] = {}
    for pod, node in seats:
        row = state.requests[state.snapshot.pods.spec[pod]] > 0
        asked[node] = asked.get(node, row) | row
    by_amounts = all(state.is_plain(p) for p, _ in seats) and not state.nominations.keys() & asked
    victims = []
    for candidate in order:
        pods = candidate.victim.pods
        state.restore(pods)
        if by_amounts and all(state.is_plain(p) for p in pods):
            # Order does not matter: the last to ask of a node finds what is left when all are in.
            here = {int(state.snapshot.pods.node[p]) for p in pods} & asked.keys()
            fits = all((state.free[n][asked[n]] >= 0).all() for n in here)
        else:
            fits = _still_passes(state, seats)
        if not fits:
            state.evict(pods)
            victims.append(candidate)
    return victims


def _still_passes(state: WorkingSnapshot, seats: Sequence[Seat]) -> bool:
    """Tell whether each pod, in order, passes all filters on its node; all stay assumed there."""
    state.forget(reversed(seats))
    passes = True
    for pod, node in seats:
        passes = passes and state.passes(pod, node)
        state.assume(pod, node)
    return passes


def _spare_by_rerun(
    state: WorkingSnapshot, cycle: Cycle, order: Sequence[Candidate], outcome: Outcome
) -> Preemption:
    """Put back whom the algorithm, run anew, leaves room to without placing fewer pods."""
    seats = outcome.seats
    state.forget(reversed(seats))
    victims = []
    for candidate in order:
        state.restore(candidate.victim.pods)
        again = cycle.run()
        state.forget(reversed(again.seats))
        if again.is_success and len(again.seats) >= len(seats):
            seats = again.seats
        else:
            state.evict(candidate.victim.pods)
            victims.append(candidate)
    for pod, node in seats:
        state.assume(pod, node)
    return Preemption(seats, tuple(victims))
