"""Which domains to empty: the cheapest set whose contents could find room elsewhere.

A unit that spans several domains is charged once, whichever of them are emptied. The relaxation is
a bound: no plan empties more domains, or as many at less cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optimizer.repack.steps import MOVE_CRITERIA
from optimizer.search.mip import MipModel
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.relocate import Residents

    Indices = NDArray[np.int64]

__all__ = ["Selection", "select_domains"]


@dataclass(frozen=True, slots=True)
class Selection:
    """Domains to empty, of one goal."""

    domains: tuple[int, ...]
    """Positions in what was offered."""
    cost: dict[str, int]
    """Criterion of moves -> what emptying these costs at least."""
    is_optimal: bool
    """No other choice is better in (number, disturbed pods, moved GPUs, moves), as far as the
    relaxation goes."""


def select_domains(
    fleet: MovableFleet,
    residents: Residents,
    offered: Sequence[Indices],
    wanted: int,
    *,
    with_slots: bool,
    node_limit: int,
    criteria: Sequence[str] = MOVE_CRITERIA,
) -> Selection | None:
    """Choose domains to empty, as many as wanted if there is room, at the least cost.

    Args:
      fleet: The plan so far.
      residents: Who stands where.
      offered: Nodes of every domain that may be emptied; they do not overlap.
      wanted: Most domains to empty.
      with_slots: Ask for room for each size of pod, not only for as many GPUs: closer to what can
        be carried out, but no bound.
      node_limit: Branch-and-bound nodes of each solve.
      criteria: Of moves, most important first.

    Returns:
      None when nothing was found within the limit.
    """
    mip = MipModel()
    chosen = mip.add_variables(np.ones(len(offered)))
    costs: dict[str, dict[int, int]] = {c: {} for c in criteria}
    units: dict[tuple[str, int], int] = {}
    gpus = fleet.problem.class_gpus
    sizes = sorted({int(g) for g in gpus if g}) if with_slots else [1]
    content = np.zeros((len(offered), len(sizes)), np.int64)
    for d, nodes in enumerate(offered):
        x = int(chosen[d])
        inside = set(nodes.tolist())
        for p in residents.alone(nodes):
            kind = fleet.kinds[fleet.kind_of[p]]
            content[d] += [kind.gpus // size for size in sizes]
            if fleet.is_moved(p):
                continue
            _charge(costs, x, {"movedGpus": kind.gpus, "moves": 1})
            if kind.unit == NO_GROUP:
                _charge(costs, x, {"disturbedPods": 1})
                continue
            touched = _touch(mip, units, ("all", kind.unit), x)
            if "disturbedPods" in costs:
                costs["disturbedPods"][touched] = fleet.movers.members[kind.unit]
        for u in residents.wholes(nodes):
            unit = fleet.problem.units[u]
            for task in unit.tasks:
                here = sum(fleet.where[p] in inside for p in task.pods)
                content[d] += [here * (int(gpus[task.pod_class]) // size) for size in sizes]
            if u in fleet.touched:
                continue
            touched = _touch(mip, units, ("whole", u), x)
            own = {"movedGpus": unit.gpus, "moves": unit.num_pods, "disturbedPods": unit.num_pods}
            for criterion, of in costs.items():
                of[touched] = own[criterion]
    slots = np.array(
        [np.maximum(fleet.state.node_gpus, 0) // size for size in sizes]
    )  # i64[sizes, N]
    slots[:, fleet.goals.drained] = 0
    for i in range(len(sizes)):
        lost = np.array([int(slots[i][nodes].sum()) for nodes in offered], np.int64)
        mip.add_row(chosen, content[:, i] + lost, up=int(slots[i].sum()))
    mip.add_row(chosen, 1, up=wanted)
    number = np.zeros(mip.num_variables)
    number[chosen] = 1
    objectives, spans = [number], [len(offered)]
    for criterion in criteria:
        objective = np.zeros(mip.num_variables)
        for x, amount in costs[criterion].items():
            objective[x] = -amount
        objectives.append(objective)
        spans.append(int(-objective.sum()))
    result = mip.solve(objectives, spans, node_limit=node_limit)
    if result.values is None:
        return None
    values = result.values
    picked = tuple(np.flatnonzero(np.round(values[chosen]) == 1).tolist())
    cost = {
        criterion: round(float(-objective @ values))
        for criterion, objective in zip(criteria, objectives[1:], strict=True)
    }
    return Selection(picked, cost, result.proven == len(objectives))


def _charge(costs: dict[str, dict[int, int]], x: int, amounts: dict[str, int]) -> None:
    for criterion, amount in amounts.items():
        if criterion in costs:
            costs[criterion][x] = costs[criterion].get(x, 0) + amount


def _touch(
    mip: MipModel, units: dict[tuple[str, int], int], key: tuple[str, int], chosen: int
) -> int:
    """Return the yes/no of a unit that is disturbed when a chosen domain is emptied."""
    if key not in units:
        units[key] = int(mip.add_variables(1)[0])
    mip.add_row([units[key], chosen], [1, -1], low=0)
    return units[key]
