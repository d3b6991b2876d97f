"""Victims for a single pod: on each node the least that makes room, then the best node.

Source: kube-scheduler DefaultPreemption; from 1.37 on its units are those of groups (KEP-5710). The
scheduler samples nodes, this looks at all of them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from optimizer.replay.importance import find_start, order_by_budgets
from optimizer.replay.preemption import Preemption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.replay.importance import Candidate
    from optimizer.replay.state import WorkingSnapshot
    from optimizer.victims import BudgetIndex

__all__ = ["preempt_for_pod"]


class _NodeChoice(NamedTuple):
    """The six criteria, smaller is better, then the victims."""

    violating: int
    highest: int
    priorities: int
    """Sum over victim pods of priority + 2^31."""
    pods: int
    latest_start: int
    """Earliest start among the victims of the highest priority, negated."""
    node: int
    victims: tuple[Candidate, ...]


def preempt_for_pod(
    state: WorkingSnapshot, pod: int, candidates: Sequence[Candidate], budgets: BudgetIndex
) -> Preemption | None:
    """Evict for one pod that no node takes, or leave the state as it was.

    Args:
      state: Without what earlier entries evicted, with what they placed.
      pod: A pending pod.
      candidates: Units of strictly lower priority, most important first.
      budgets: Which disruption budgets cover a pod.
    """
    on_node: defaultdict[int, list[Candidate]] = defaultdict(list)
    for candidate in candidates:
        for node in {int(state.snapshot.pods.node[p]) for p in candidate.victim.pods}:
            on_node[node].append(candidate)
    choices = [
        choice
        for node in state.resolvable(pod).tolist()
        if on_node[node] and (choice := _try_node(state, pod, node, on_node[node], budgets))
    ]
    if not choices:
        return None
    best = min(choices, key=lambda choice: choice[:-1])
    for candidate in best.victims:
        state.evict(candidate.victim.pods)
    state.assume(pod, best.node)
    return Preemption(((pod, best.node),), best.victims)


def _try_node(
    state: WorkingSnapshot, pod: int, node: int, units: Sequence[Candidate], budgets: BudgetIndex
) -> _NodeChoice | None:
    """Find the victims of one node; the state is left as it was."""
    for candidate in units:
        state.evict(candidate.victim.pods)
    victims: list[tuple[Candidate, int]] = []
    fits = state.passes(pod, node)
    for candidate, violating in order_by_budgets(state.snapshot, budgets, units):
        state.restore(candidate.victim.pods)
        if fits and not state.passes(pod, node):
            state.evict(candidate.victim.pods)
            victims.append((candidate, violating))
    for candidate, _ in victims:
        state.restore(candidate.victim.pods)
    if not victims:
        return None
    highest = max(candidate.priority for candidate, _ in victims)
    starts = [
        find_start(state.snapshot, p)
        for candidate, _ in victims
        if candidate.priority == highest
        for p in candidate.victim.pods
    ]
    pods = sum(len(candidate.victim.pods) for candidate, _ in victims)
    return _NodeChoice(
        violating=sum(count for _, count in victims),
        highest=highest,
        priorities=sum((c.priority + 2**31) * len(c.victim.pods) for c, _ in victims),
        pods=pods,
        latest_start=-min(starts),
        node=node,
        victims=tuple(candidate for candidate, _ in victims),
    )
