"""Two plans for one question, compared: which is better, and by how much.

Source: the objective of the request; criteria that the objective does not name are told, not used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optimizer.objective import Level, Placed, build_levels, build_steps
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optimizer.problem import Problem
    from optimizer.units import Unit
    from topology.plan import Plan, Request

__all__ = ["count_savings", "score_plan"]

_MORE_IS_BETTER: Final = ("groupsPlaced", "podsPlaced", "gpusPlaced", "weightedGpus")
_LESS_IS_BETTER: Final = (
    "victimPods",
    "victimUnits",
    "victimGpus",
    "weightedVictimGpus",
    "pdbViolations",
    "highestVictimPriority",
)
"""The last is told only where both plans evict somebody."""
_NOBODY: Final = -(2**40)
"""The highest priority among no victims: below every priority there is."""


def count_savings(optimized: Plan, replayed: Plan) -> dict[str, int]:
    """Return what the optimized plan places more, and evicts less, by criterion."""
    mine, theirs = optimized.criteria, replayed.criteria
    more = {name: mine[name] - theirs[name] for name in _MORE_IS_BETTER}
    less = {
        name: theirs[name] - mine[name]
        for name in _LESS_IS_BETTER
        if name in mine and name in theirs
    }
    return more | less


def score_plan(problem: Problem, request: Request, plan: Plan) -> tuple[int, ...]:
    """Return the levels of the objective that a plan reaches; greater is better.

    Args:
      problem: What `build_problem` made of the snapshot and the request.
      request: Names the objective.
      plan: Any plan for this question.
    """
    most = [Placed(u.priority, len(u.tree), u.num_pods, u.gpus) for u in problem.units]
    steps = (build_steps if request.preempt else build_levels)(request.objective, most)
    refs = {pod.pod for group in plan.groups for pod in group.pods}
    placed = [_count_placed(problem, unit, refs) for unit in problem.units]
    cost: Mapping[str, int] = plan.criteria
    return tuple(
        step.value(placed) if isinstance(step, Level) else -cost.get(step.criterion, _NOBODY)
        for step in steps
    )


def _count_placed(problem: Problem, unit: Unit, refs: set[str]) -> Placed:
    snapshot = problem.snapshot
    counts = [sum(snapshot.pods.refs[p] in refs for p in task.pods) for task in unit.tasks]
    gpus = sum(
        count * int(problem.class_gpus[task.pod_class])
        for count, task in zip(counts, unit.tasks, strict=True)
    )
    with_pods = {task.leaf for task, count in zip(unit.tasks, counts, strict=True) if count}
    groups = sum(
        node.group == NO_GROUP or snapshot.groups[node.group].kind == "group"
        for at, node in enumerate(unit.tree)
        if with_pods.intersection(unit.walk(at))
    )
    return Placed(unit.priority, groups, sum(counts), gpus)
