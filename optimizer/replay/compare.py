"""Two plans for one question, compared: which is better, and by how much.

Source: the objective of the request; criteria that the objective does not name are told, not used.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from optimizer.objective import Level, Placed, VictimLevel, build_levels, build_steps
from optimizer.victims import count_cost, find_victims
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optimizer.problem import Problem
    from optimizer.units import Unit
    from optimizer.victims import Victim
    from topology.model import Snapshot
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
_ANYBODY: Final = 2**31
"""Above every priority there is."""
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

    Where the objective puts priorities first, what the plan evicts that a priority may not comes
    before what is placed of that priority: nobody is to go on behalf of a lower priority, though a
    wasteful scheduler leaves room for it.

    Args:
      problem: What `build_problem` made of the snapshot and the request.
      request: Names the objective.
      plan: Any plan for this question.
    """
    most = [Placed(u.priority, len(u.tree), u.num_pods, u.gpus) for u in problem.units]
    steps = (build_steps if request.preempt else build_levels)(request.objective, most)
    refs = {pod.pod for group in plan.groups for pod in group.pods}
    placed = [_count_placed(problem, unit, refs) for unit in problem.units]
    gone = _find_gone(problem.snapshot, plan)
    score: list[int] = []
    for step in _guard(steps):
        if isinstance(step, Level):
            score.append(step.value(placed))
            continue
        cost: Mapping[str, int] = plan.criteria
        if step.least is not None:
            guarded = [victim for victim in gone if victim.priority >= step.least]
            cost = count_cost(guarded, problem.snapshot.budgets).to_criteria()
        score.append(-cost.get(step.criterion, _NOBODY))
    return tuple(score)


def _guard(steps: Sequence[Level | VictimLevel]) -> list[Level | VictimLevel]:
    """Return the steps with the costs that each priority but the first has to leave alone."""
    costs = [step for step in steps if isinstance(step, VictimLevel)]
    guarded: list[Level | VictimLevel] = []
    for i, step in enumerate(steps):
        leads = all(isinstance(s, Level) and s.priority is not None for s in steps[: i + 1])
        if i and leads and isinstance(step, Level):
            guarded += [replace(cost, least=step.priority) for cost in costs]
        guarded.append(step)
    return guarded


def _find_gone(snapshot: Snapshot, plan: Plan) -> list[Victim]:
    """Return the units that a plan evicts whole."""
    refs = {eviction.pod for eviction in plan.evictions if eviction.reason == "preemption"}
    if not refs:
        return []
    gone = {p for p, ref in enumerate(snapshot.pods.refs) if ref in refs}
    return [v for v in find_victims(snapshot, _ANYBODY) if gone.issuperset(v.pods)]


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
