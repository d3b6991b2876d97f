"""What a set of placements is worth, as a tuple of integers compared in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.objective import Placed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from optimizer.decode import UnitPlacement
    from optimizer.objective import Level
    from optimizer.problem import Problem, Unit

__all__ = ["count_placed", "score_placements"]


def count_placed(problem: Problem, unit: Unit, placement: UnitPlacement) -> Placed:
    """Count groups, pods and GPUs that one unit places."""
    pods = [0] * len(unit.tasks)
    for fill in placement:
        pods[fill.task] += int(fill.counts.sum())
    gpus = sum(
        count * int(problem.class_gpus[task.pod_class])
        for count, task in zip(pods, unit.tasks, strict=True)
    )
    with_pods = {unit.tasks[t].leaf for t, count in enumerate(pods) if count}
    groups = sum(
        node.group < 0 or problem.snapshot.groups[node.group].kind == "group"
        for at, node in enumerate(unit.tree)
        if with_pods & set(unit.walk(at))
    )
    return Placed(unit.priority, groups, sum(pods), gpus)


def score_placements(
    problem: Problem,
    placements: Mapping[int, UnitPlacement],
    levels: Sequence[Level],
    units: Iterable[int] | None = None,
) -> tuple[int, ...]:
    """Return the value of every level, for some units or all."""
    chosen = placements if units is None else [u for u in units if u in placements]
    placed = [count_placed(problem, problem.units[u], placements[u]) for u in chosen]
    return tuple(level.value(placed) for level in levels)
