"""Gangs that block one another: each runs below its minimum and holds GPUs that the others need.

Two gangs of eight with seven pods running each, and two GPUs short in all, wait for ever: nobody
gives up, and no scheduler takes from equals. Any one of them could run if the others gave up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from optimizer.explain import find_nodes
from optimizer.fleet_state import FleetState
from optimizer.problem import FREE_CHOICE, build_problem
from optimizer.shortfall import count_needed
from optimizer.victims import remove_pods
from topology.model import NO_GROUP
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optimizer.problem import Problem, Unit
    from topology.model import Snapshot

__all__ = ["MAX_GANGS", "Deadlock", "DeadlockedGang", "find_deadlocks"]

MAX_GANGS: Final = 20
"""Stuck gangs that are looked at: those that hold most GPUs."""
MAX_SPARED: Final = 12
"""Others in the way of one gang up to which it is found out who exactly would have to give up;
beyond, all of them that hold what it could use count."""


@dataclass(frozen=True, slots=True)
class DeadlockedGang:
    """A gang that holds something and lacks something."""

    group: str
    running: int
    min_count: int
    gpus: int
    """GPUs that its running pods hold."""
    missing: int
    """GPUs that it still needs for its minimum."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `deadlocks[].groups`."""
        return {
            "group": self.group,
            "running": self.running,
            "minCount": self.min_count,
            "gpus": self.gpus,
            "missingGpus": self.missing,
        }


@dataclass(frozen=True, slots=True)
class Deadlock:
    """Gangs none of which can run unless others give up, while any one could if all others did."""

    gangs: tuple[DeadlockedGang, ...]
    """By ref."""

    @property
    def message(self) -> str:
        """A line for the user."""
        parts = [
            f"{g.group} runs {g.running} of {g.min_count} pods, holds {g.gpus} and lacks "
            f"{g.missing} GPUs"
            for g in self.gangs
        ]
        return (
            f"{len(self.gangs)} gangs block one another: {'; '.join(parts)}; "
            "delete the running pods of one so that another can start"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `deadlocks`."""
        return {"groups": [gang.to_dict() for gang in self.gangs]}


def find_deadlocks(snapshot: Snapshot, release: str = "1.37") -> tuple[Deadlock, ...]:
    """Return the sets of gangs that block one another, by their first ref.

    A gang is stuck when it runs below its minimum, has pods for the rest, and they do not fit now.
    One is in the way of another when that one fits if all other stuck gangs give up, and no longer
    does if this one alone keeps what it holds. Gangs that reach one another in this way, and any
    one of which fits once the others of the set give up, are one deadlock.
    """
    request = Request(release=release)
    problem = build_problem(snapshot, request)
    state = FleetState(problem)
    holding = _find_holding(snapshot)
    stuck = [
        (u, unit)
        for u, unit in enumerate(problem.units)
        if _is_short(unit) and unit.root.group in holding and find_nodes(state, u) is None
    ]
    gpus = {
        unit.root.group: sum(
            snapshot.pods.specs[snapshot.pods.spec[p]].gpus for p in holding[unit.root.group]
        )
        for _, unit in stuck
    }
    units = sorted(
        (unit for _, unit in stuck if gpus[unit.root.group]),
        key=lambda unit: (-gpus[unit.root.group], unit.ref),
    )[:MAX_GANGS]
    units.sort(key=lambda unit: unit.ref)
    if len(units) < 2:
        return ()
    search = _Search(snapshot, request, units, holding)
    return tuple(
        Deadlock(tuple(_describe(problem, units[i], gpus[units[i].root.group]) for i in members))
        for members in search.find_cycles()
    )


def _find_holding(snapshot: Snapshot) -> dict[int, list[int]]:
    """Return root group -> its running members on nodes of the snapshot."""
    roots = []
    for g in range(len(snapshot.groups)):
        while snapshot.groups[g].parent != NO_GROUP:
            g = snapshot.groups[g].parent
        roots.append(g)
    pods = snapshot.pods
    running = pods.is_running_member & (pods.group != NO_GROUP) & (pods.node >= 0)
    found: dict[int, list[int]] = {}
    for p in np.flatnonzero(running).tolist():
        found.setdefault(roots[pods.group[p]], []).append(p)
    return found


def _is_short(unit: Unit) -> bool:
    """Tell whether a unit runs below its floors and could reach them by pods that wait."""
    if unit.root.group == NO_GROUP or unit.blocked or not unit.tasks or not unit.has_quorum():
        return False
    root = unit.root
    children = sorted(unit.count_needed(c) for c in root.children)
    return root.min_count > root.running or sum(children[: root.min_groups]) > 0


def _describe(problem: Problem, unit: Unit, gpus: int) -> DeadlockedGang:
    needed = count_needed(problem, unit)
    return DeadlockedGang(
        unit.ref,
        unit.root.running,
        unit.root.running + needed.total(),
        gpus,
        sum(int(problem.class_gpus[s]) * count for s, count in needed.items()),
    )


@dataclass(frozen=True, slots=True)
class _Search:
    snapshot: Snapshot
    request: Request
    units: Sequence[Unit]
    holding: dict[int, list[int]]

    def find_cycles(self) -> list[list[int]]:
        """Return sets of indices into `units`, ascending."""
        edges = [(i, j) for i in range(len(self.units)) for j in self._find_in_the_way(i)]
        if not edges:
            return []
        size = len(self.units)
        rows, columns = zip(*edges, strict=True)
        graph = coo_array((np.ones(len(edges)), (rows, columns)), shape=(size, size))
        _, labels = connected_components(graph, connection="strong")
        found = []
        for label in dict.fromkeys(labels.tolist()):
            members = np.flatnonzero(labels == label).tolist()
            able = [i for i in members if self._fits(i, [j for j in members if j != i])]
            is_closed = able == members or all(
                self._fits(i, [j for j in able if j != i]) for i in able
            )
            if len(able) > 1 and is_closed:
                found.append(able)
        return found

    def _find_in_the_way(self, i: int) -> set[int]:
        """Return who would have to give up for one gang, by either order of sparing the others."""
        others = [j for j in range(len(self.units)) if j != i]
        state, u = self._without(i, others)
        if find_nodes(state, u) is None:
            return set()
        usable = _find_usable(state, u)
        near = [j for j in others if usable & set(self._nodes(j))]
        if len(near) > MAX_SPARED:
            return set(near)
        return self._spare(i, near) | self._spare(i, near[::-1])

    def _spare(self, i: int, others: Sequence[int]) -> set[int]:
        gone = set(others)
        for j in others:
            if self._fits(i, gone - {j}):
                gone.remove(j)
        return gone

    def _nodes(self, j: int) -> list[int]:
        nodes: list[int] = self.snapshot.pods.node[self.holding[self.units[j].root.group]].tolist()
        return nodes

    def _fits(self, i: int, gone: Iterable[int]) -> bool:
        return find_nodes(*self._without(i, gone)) is not None

    def _without(self, i: int, gone: Iterable[int]) -> tuple[FleetState, int]:
        """Return one gang in the fleet after others gave up what they hold."""
        pods = [p for j in gone for p in self.holding[self.units[j].root.group]]
        unit = self.units[i]
        problem = build_problem(remove_pods(self.snapshot, pods), self.request, only=[unit.ref])
        keys = [other.key for other in problem.units]
        return FleetState(problem), keys.index(unit.key)


def _find_usable(state: FleetState, u: int) -> set[int]:
    """Return the nodes that take a pod of a unit, inside the domains its running pods pin."""
    problem = state.problem
    unit = problem.units[u]
    usable = np.zeros(len(problem.free), bool)
    for task in unit.tasks:
        usable |= state.fits(task.pod_class) > 0
    for required in unit.root.required:
        if required.pinned > FREE_CHOICE:
            usable &= problem.columns[required.column].codes == required.pinned
    return set(np.flatnonzero(usable).tolist())
