"""Where to look for victims: the whole fleet in one model, domain by domain, or its cheapest nodes.

Plain gangs go another way (`optimizer.search.victim_plain`), and come here where that does not do.
A fleet falls apart where one preemptor needs one domain: each domain is a small model of its own,
with victims that span domains charged whole, and the best of them is the best of all. A domain that
cannot reach the best so far is mostly refused by the linear relaxation, before any branching.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.nominations import find_nominated, hold_nominated
from optimizer.objective import Level, VictimLevel
from optimizer.problem import BROKEN, FREE_CHOICE
from optimizer.search.score import count_placed
from optimizer.search.victim_model import UndecidedError, VictimChoice, choose_victims
from optimizer.search.victim_plain import solve_plain
from optimizer.search.victim_sets import build_victim_sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.search.victim_model import EmptiedFleet

    Indices = NDArray[np.int64]

__all__ = ["VictimSearch", "count_variables"]

MAX_SINGLE: Final = 20_000
"""Pod variables of one preemptor; beyond, only the nodes that are cheapest to clear are offered."""


def count_variables(fleet: EmptiedFleet) -> int:
    """Count the pod variables that a model of the whole fleet has."""
    classes = [t.pod_class for unit in fleet.problem.units for t in unit.tasks]
    return sum(int((fleet.state.fits(s) > 0).sum()) for s in classes)


@dataclass(frozen=True, slots=True)
class VictimSearch:
    """A way to solve for one objective at one effort."""

    steps: tuple[Level | VictimLevel, ...]
    node_limit: int
    """Branch-and-bound nodes of each solve."""

    def solve(self, fleet: EmptiedFleet, units: Sequence[int], nodes: Indices) -> VictimChoice:
        """Place units on some nodes; nothing placed and nothing proven where HiGHS gave up."""
        try:
            choice = choose_victims(fleet, units, nodes, self.steps, node_limit=self.node_limit)
        except UndecidedError:
            return self._nothing(0)
        # Placing nothing is feasible, so without a floor there is always a choice.
        return choice or self._nothing(len(self.steps))

    def solve_one(self, fleet: EmptiedFleet, u: int) -> VictimChoice:
        """Place one unit on the fleet, domain by domain where it needs one."""
        problem, state = fleet.problem, fleet.state
        unit = problem.units[u]
        if hold_nominated(state, u):
            free = fleet.free.copy()
            for pod_class, node in find_nominated(problem, u):
                free[node] -= fleet.requests[pod_class]
            fleet = replace(fleet, free=free)
        usable = np.any([state.fits(t.pod_class) > 0 for t in unit.tasks], axis=0)
        for required in unit.root.required:
            codes = problem.columns[required.column].codes
            if required.pinned == BROKEN:
                return self._nothing(len(self.steps))
            if required.pinned != FREE_CHOICE:
                usable &= codes == required.pinned
        free_choice = [r.column for r in unit.root.required if r.pinned == FREE_CHOICE]
        sets = build_victim_sets(
            fleet, u, free_choice[0] if free_choice else -1, usable, self.steps
        )
        found = None if sets is None else solve_plain(sets, self.node_limit)
        if found is not None:
            return found
        if free_choice:
            return self._solve_domains(fleet, u, free_choice[0], usable)
        nodes = np.flatnonzero(usable)
        most = MAX_SINGLE // max(len(unit.tasks), 1)
        if len(nodes) <= most:
            return self.solve(fleet, [u], nodes)
        found = self.solve(fleet, [u], self._find_cheapest(fleet, u, nodes, most))
        return replace(found, proven=0, bounds=())

    def _nothing(self, proven: int) -> VictimChoice:
        return VictimChoice({}, (), (0,) * len(self.steps), proven, ())

    def _solve_domains(
        self, fleet: EmptiedFleet, u: int, column: int, usable: NDArray[np.bool_]
    ) -> VictimChoice:
        """Solve each domain by itself, most room first, and keep the best."""
        members = fleet.state.members(column)
        proven = len(self.steps)
        best: VictimChoice | None = None
        for d in self._rank_domains(fleet, u, column, usable):
            nodes = members[d][usable[members[d]]]
            try:
                choice = choose_victims(
                    fleet,
                    [u],
                    nodes,
                    self.steps,
                    node_limit=self.node_limit,
                    floor=() if best is None else self._find_floor(fleet, u, best),
                )
            except UndecidedError:
                proven = 0
                continue
            if choice is None:
                continue
            proven = min(proven, choice.proven)
            if choice.placements and (best is None or choice.score > best.score):
                best = choice
        if best is None:
            return self._nothing(proven)
        return replace(best, proven=proven, bounds=())

    def _rank_domains(
        self, fleet: EmptiedFleet, u: int, column: int, usable: NDArray[np.bool_]
    ) -> list[int]:
        """Return the domains with room for the floor once emptied, those with most room now first.

        Few victims are needed where much is free: a good first answer shortens what follows.
        """
        problem, state = fleet.problem, fleet.state
        unit = problem.units[u]
        room: Indices = np.zeros(len(problem.columns[column].values), np.int64)
        for s in sorted({t.pod_class for t in unit.tasks}):
            count = sum(t.count for t in unit.tasks if t.pod_class == s)
            inside = state.sum_domains(column, np.where(usable, state.fits(s), 0))
            room += np.minimum(inside, count)
        spare = state.sum_domains(column, np.where(usable, _count_free_gpus(fleet), 0))
        enough = np.flatnonzero(room >= max(unit.count_needed(), 1))
        order: list[int] = enough[np.lexsort((enough, -spare[enough], -room[enough]))].tolist()
        return order

    def _find_floor(self, fleet: EmptiedFleet, u: int, best: VictimChoice) -> tuple[int, ...]:
        """Return the leading values that a better choice must reach.

        Beyond the first step a value binds only choices that are no better before it; where the
        best places everything, no choice is better in what is placed.
        """
        unit = fleet.problem.units[u]
        leading = next(i for i, step in enumerate(self.steps) if isinstance(step, VictimLevel))
        gains = all(
            min(step.weights(unit.priority)) >= 0
            for step in self.steps[:leading]
            if isinstance(step, Level)
        )
        worth = count_placed(fleet.problem, unit, best.placements[u])
        is_whole = gains and worth.pods == unit.num_pods
        return best.score[: leading + 1] if is_whole else best.score[:1]

    def _find_cheapest(self, fleet: EmptiedFleet, u: int, nodes: Indices, most: int) -> Indices:
        """Return the nodes with the fewest GPUs to clear for each pod they take, ascending."""
        unit = fleet.problem.units[u]
        room = np.sum([fleet.state.fits(t.pod_class)[nodes] for t in unit.tasks], axis=0)
        taken = fleet.problem.node_gpus[nodes] - _count_free_gpus(fleet)[nodes]
        order = np.lexsort((nodes, taken / np.maximum(room, 1)))
        cheapest: Indices = np.sort(nodes[order[:most]])
        return cheapest


def _count_free_gpus(fleet: EmptiedFleet) -> Indices:
    """Return i64[N]: GPUs that are free while every victim stays."""
    now = fleet.problem.node_gpus.copy()
    pods = fleet.problem.snapshot.pods
    for victim in fleet.victims:
        for p in victim.pods:
            now[pods.node[p]] -= pods.specs[pods.spec[p]].gpus
    return np.maximum(now, 0)
