"""Rows for plain gangs, counted instead of listed: how many of a kind lie in each domain.

Gangs that are alike share one integer for each domain, so that twenty kinds of gangs are twenty
rows of choices, however many gangs wait. Kinds of one pool (same pods, same required key) share
their pods on nodes too: which gang a pod belongs to is decided afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import Fill
from optimizer.problem import BROKEN, FREE_CHOICE
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.fleet_state import FleetState
    from optimizer.objective import Level
    from optimizer.problem import Problem, Unit
    from optimizer.search.bins import Bin
    from optimizer.search.mip import MipModel

    Indices = NDArray[np.int64]
    Loads = list[list[tuple[int, int, int]]]

__all__ = ["FlatKind", "FlatRows", "count_pod_variables", "describe_flat"]


@dataclass(frozen=True, slots=True, order=True)
class FlatKind:
    """What makes plain gangs interchangeable: one class, one count, at most one required key."""

    priority: int
    pod_class: int
    count: int
    column: int
    """-1 without a required key."""
    pinned: int


def describe_flat(problem: Problem, unit: Unit) -> FlatKind | None:
    """Return the kind of a plain gang (all its pods or none, one class), None for other units."""
    root = unit.root
    if len(unit.tree) != 1 or len(unit.tasks) != 1 or root.slices or root.exclusive or unit.blocked:
        return None
    task = unit.tasks[0]
    if len(root.required) > 1 or root.min_count - root.running < task.count:
        return None
    if problem.signatures[task.pod_class].is_coupled:
        return None
    required = root.required[0] if root.required else None
    if required is not None and required.pinned == BROKEN:
        return None
    column = -1 if required is None else required.column
    pinned = FREE_CHOICE if required is None else required.pinned
    return FlatKind(unit.priority, task.pod_class, task.count, column, pinned)


def count_pod_variables(state: FleetState) -> int:
    """Count the pod variables of a model of all units and nodes, kinds sharing theirs."""
    problem = state.problem
    classes: dict[tuple[object, ...], int] = {}
    for u, unit in enumerate(problem.units):
        kind = describe_flat(problem, unit)
        for t, task in enumerate(unit.tasks):
            pool = (u, t) if kind is None else (None, kind.pod_class, kind.column, kind.pinned)
            classes[pool] = task.pod_class
    room = {s: int((state.fits(s) > 0).sum()) for s in sorted(set(classes.values()))}
    return sum(room[s] for s in classes.values())


@dataclass(slots=True)
class _Entry:
    kind: FlatKind
    units: list[int]
    placed: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Variables whose sum is the number of gangs placed."""


@dataclass(slots=True)
class _Size:
    """Gangs of one size: wherever one can lie, so can any other."""

    count: int
    entries: list[_Entry] = field(default_factory=list)
    domains: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Domain of each choice, 0 for units without a key."""
    gangs: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Variables: gangs of this size in each domain."""


@dataclass(slots=True)
class _Pool:
    kind: FlatKind
    """The first of its kinds; all have its class and its key."""
    sizes: dict[int, _Size] = field(default_factory=dict)
    """By pods a gang."""
    pods: list[tuple[int, int, int]] = field(default_factory=list)
    """(domain, bin, variable) pods in a bin; variable -1 where the bin is the whole domain."""


class FlatRows:
    """Adds plain gangs to a model, and reads them back."""

    def __init__(
        self,
        state: FleetState,
        bins: Sequence[Bin],
        mip: MipModel,
        loads: Loads,
        gang_loads: dict[tuple[int, int], list[tuple[int, int, int]]],
        domain_of_bin: Callable[[int], Indices],
        *,
        cover_loads: Loads | None = None,
        integer_pods: bool = True,
        integer_gangs: bool = True,
    ) -> None:
        self.state = state
        self.problem = state.problem
        self.bins = bins
        self.mip = mip
        self.loads = loads
        self.gang_loads = gang_loads
        self.domain_of_bin = domain_of_bin
        self.cover_loads = cover_loads
        self.integer_pods = integer_pods
        self.integer_gangs = integer_gangs
        self.entries: dict[FlatKind, _Entry] = {}
        self.pools: list[_Pool] = []

    def collect(self, u: int) -> bool:
        """Count a unit in if it is a plain gang; the model is as it was until `add_pools`."""
        kind = describe_flat(self.problem, self.problem.units[u])
        if kind is None:
            return False
        self.entries.setdefault(kind, _Entry(kind, [])).units.append(u)
        return True

    def add_pools(self, *, shared: bool = False) -> None:
        """Add all that was collected.

        Args:
          shared: Kinds that differ in count alone share their pods, and those that differ in
            priority alone their gangs.
        """
        pools: dict[tuple[int, ...], _Pool] = {}
        for kind, entry in sorted(self.entries.items()):
            own = () if shared else (kind.priority, kind.count)
            key = (kind.pod_class, kind.column, kind.pinned, *own)
            pool = pools.setdefault(key, _Pool(kind))
            pool.sizes.setdefault(kind.count, _Size(kind.count)).entries.append(entry)
        for pool in pools.values():
            self._add_pool(pool)
            self.pools.append(pool)

    def _add_pool(self, pool: _Pool) -> None:
        kind = pool.kind
        fits = np.array([b.fits[kind.pod_class] for b in self.bins], np.int64)
        if kind.column < 0:
            domain = np.zeros(len(self.bins), np.int64)
        else:
            domain = self.domain_of_bin(kind.column)
            if kind.pinned != FREE_CHOICE:
                domain = np.where(domain == kind.pinned, domain, NO_DOMAIN)
        usable = np.flatnonzero((fits > 0) & (domain != NO_DOMAIN))
        choices, choice_of_bin = np.unique(domain[usable], return_inverse=True)
        room = np.bincount(choice_of_bin, fits[usable], len(choices)).astype(np.int64)
        limits = np.zeros(len(choices), np.int64)
        # (pods, variable) of every kind, by choice.
        gangs: list[list[tuple[int, int]]] = [[] for _ in choices]
        for count, size in pool.sizes.items():
            supply = sum(len(entry.units) for entry in size.entries)
            possible = np.minimum(room // count, supply)
            keep = np.flatnonzero(possible > 0)
            size.domains = choices[keep]
            size.gangs = self.mip.add_variables(possible[keep], integer=self.integer_gangs)
            for c, x in zip(keep.tolist(), size.gangs.tolist(), strict=True):
                gangs[c].append((count, x))
                limits[c] += int(possible[c]) * count
            if len(keep):
                self._share_out(size, supply)
        order = np.argsort(choice_of_bin, kind="stable")
        ends = np.cumsum(np.bincount(choice_of_bin, minlength=len(choices)))
        for c, members in enumerate(np.split(usable[order], ends[:-1]) if len(choices) else ()):
            if gangs[c]:
                self._add_choice(pool, int(choices[c]), members, gangs[c], int(limits[c]), fits)

    def _share_out(self, size: _Size, supply: int) -> None:
        """Say how many gangs of each kind are among those that are placed."""
        if len(size.entries) == 1:
            size.entries[0].placed = size.gangs
            self.mip.add_row(size.gangs, 1, up=supply)
            return
        counts = [len(entry.units) for entry in size.entries]
        placed = self.mip.add_variables(counts, integer=self.integer_gangs)
        ones = np.r_[np.ones(len(size.gangs)), -np.ones(len(placed))]
        self.mip.add_row(np.r_[size.gangs, placed], ones, 0, 0)
        for entry, x in zip(size.entries, placed, strict=True):
            entry.placed = np.array([x])

    def _add_choice(
        self,
        pool: _Pool,
        domain: int,
        members: Indices,
        gangs: Sequence[tuple[int, int]],
        limit: int,
        fits: Indices,
    ) -> None:
        """Say that the pods in the bins of a domain are those of the gangs in it."""
        kind = pool.kind
        loads = [(kind.pod_class, count, x) for count, x in gangs]
        if len(members) == 1:
            b = int(members[0])
            self.loads[b] += loads
            pool.pods.append((domain, b, -1))
            return
        cells = {self.bins[b].cell for b in members.tolist()}
        if self.cover_loads and len(cells) == 1 and -1 not in cells:
            self.cover_loads[cells.pop()] += loads
        elif kind.column >= 0:
            self.gang_loads.setdefault((kind.column, domain), []).extend(loads)
        variables = self.mip.add_variables(
            np.minimum(fits[members], limit), integer=self.integer_pods
        )
        counts = np.array([count for count, _ in gangs])
        self.mip.add_row(
            np.r_[variables, [x for _, x in gangs]], np.r_[np.ones(len(members)), -counts], 0, 0
        )
        for b, x in zip(members.tolist(), variables.tolist(), strict=True):
            self.loads[b].append((kind.pod_class, 1, x))
            pool.pods.append((domain, b, x))

    def add_objective(self, objective: NDArray[np.float64], level: Level) -> int:
        """Write one level's worth of every variable; return a limit of what it can add up to."""
        span = 0
        for entry in self.entries.values():
            kind = entry.kind
            group, pod, gpu = level.weights(kind.priority)
            gpus = int(self.problem.class_gpus[kind.pod_class])
            worth = group + (pod + gpu * gpus) * kind.count
            objective[entry.placed] = worth
            span += abs(worth) * len(entry.units)
        return span

    def realise(self, values: NDArray[np.float64]) -> dict[int, UnitPlacement]:
        """Turn variables into fills, put them on nodes and take them in the state."""
        placements: dict[int, UnitPlacement] = {}
        slots: dict[int, list[tuple[int, int, int]]] = {}
        for pool in self.pools:
            room: dict[int, list[list[int]]] = {}
            for domain, b, x in pool.pods:
                pods = round(values[x]) if x >= 0 else -1
                room.setdefault(domain, []).append([b, pods])
            for size in pool.sizes.values():
                waiting = iter(
                    u
                    for entry in size.entries
                    for u in entry.units[: round(float(values[entry.placed].sum()))]
                )
                counts = np.round(values[size.gangs]).astype(int).tolist()
                for domain, gangs in zip(size.domains.tolist(), counts, strict=True):
                    for _ in range(gangs):
                        u = next(waiting)
                        self._hand_out(
                            u, pool.kind.pod_class, size.count, room[domain], placements, slots
                        )
        self._fill_slots(slots, placements)
        return placements

    def _hand_out(
        self,
        u: int,
        pod_class: int,
        count: int,
        room: list[list[int]],
        placements: dict[int, UnitPlacement],
        slots: dict[int, list[tuple[int, int, int]]],
    ) -> None:
        """Give one gang its pods out of what its pool got in the bins of a domain."""
        left = count
        nodes: list[int] = []
        counts: list[int] = []
        placements.setdefault(u, ())
        for place in room:
            # A bin that is the whole domain holds whatever gangs are in it.
            take = left if place[1] < 0 else min(left, place[1])
            if take == 0:
                continue
            if place[1] > 0:
                place[1] -= take
            left -= take
            if self.bins[place[0]].is_slots:
                slots.setdefault(place[0], []).append((u, pod_class, take))
            else:
                nodes.append(int(self.bins[place[0]].nodes[0]))
                counts.append(take)
        if nodes:
            fill = Fill(0, np.array(nodes), np.array(counts))
            self.state.take(pod_class, fill.nodes, fill.counts)
            placements[u] = (*placements[u], fill)

    def _fill_slots(
        self,
        slots: Mapping[int, Sequence[tuple[int, int, int]]],
        placements: dict[int, UnitPlacement],
    ) -> None:
        """Put the pods of slot bins on nodes, largest first: the order that never fails."""
        gpus = self.problem.class_gpus
        for b, wanted in slots.items():
            nodes = self.bins[b].nodes
            for u, s, count in sorted(wanted, key=lambda w: (-int(gpus[w[1]]), w[0])):
                fits = self.state.fits(s)[nodes]
                order = np.lexsort((nodes, self.state.node_gpus[nodes]))
                room = fits[order]
                counts = np.clip(count - (np.cumsum(room) - room), 0, room)
                used = counts > 0
                if int(counts.sum()) != count:
                    raise AssertionError("slot rows admitted pods that no node holds")
                fill = Fill(0, nodes[order][used], counts[used])
                self.state.take(s, fill.nodes, fill.counts)
                placements[u] = (*placements[u], fill)
