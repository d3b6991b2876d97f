"""Rules of disruption budgets: what evictions and moves may take from each.

Source: `PodDisruptionBudget.status.disruptionsAllowed` and `disruptedPods` as preemption and the
eviction API read them. A pod counts in every budget that selects it; one that is listed in
`disruptedPods` has been counted before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.model import Phase
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from optimizer.verify_state import Replay
    from topology.model import Budget
    from topology.plan import Plan

__all__ = ["check_budgets", "check_move_budgets", "count_budget_excess"]


def check_budgets(replay: Replay, plan: Plan) -> None:
    """Check the budgets that a plan may not exceed.

    Preemption keeps to them where the request says so (`--pdb hard`). A drain that is part of a
    re-packing always does, as `kubectl drain` would be refused; a what-if of a drain only asks what
    would follow.
    """
    drained = {p for p in replay.drained if replay.phase[p] != Phase.PENDING}
    if plan.request.pdb == "hard":
        _check_excess(replay, "pdb-hard", replay.evicted - replay.drained)
    if plan.request.command == "repack":
        _check_excess(replay, "drain-budget", drained)


def _check_excess(replay: Replay, rule: str, gone: Collection[int]) -> None:
    for budget, count in _count_covered(replay, gone):
        allowed = max(budget.allowed, 0)
        replay.log.require(
            count <= allowed,
            rule,
            budget.ref,
            f"at most {allowed} of its pods evicted",
            f"{count} pods",
        )


def check_move_budgets(replay: Replay, stopped: Collection[int], step: str) -> None:
    """Check the pods that stop in one step of the moves; those that never ran need no budget."""
    running = [p for p in stopped if replay.phase[p] != Phase.PENDING]
    for budget, count in _count_covered(replay, running):
        replay.log.require(
            count <= budget.allowed,
            "move-budget",
            step,
            f"at most {budget.allowed} pods of budget {budget.ref} at once",
            f"{count} pods",
        )


def count_budget_excess(replay: Replay) -> int:
    """Count the evicted pods beyond what each budget allows, summed over the budgets."""
    return sum(
        max(0, count - max(budget.allowed, 0))
        for budget, count in _count_covered(replay, replay.evicted)
    )


def _count_covered(replay: Replay, gone: Collection[int]) -> Iterator[tuple[Budget, int]]:
    """Yield the budgets that cover some of the pods, and how many."""
    for budget in replay.snapshot.budgets:
        count = sum(_is_covered(replay, budget, p) for p in gone)
        if count:
            yield budget, count


def _is_covered(replay: Replay, budget: Budget, p: int) -> bool:
    namespace, _, name = replay.pod_ref(p).partition("/")
    return (
        namespace == budget.ref.partition("/")[0]
        and name not in budget.disrupted
        and matches_selector(budget.selector, replay.snapshot.pods.label_sets[replay.labels[p]])
    )
