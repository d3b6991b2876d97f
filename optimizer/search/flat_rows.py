"""Rows for units that are counted instead of listed: how many of a kind lie in each domain.

Gangs that are alike share one integer for each domain, so that twenty kinds of gangs are twenty
rows of choices, however many gangs wait. Where kinds share (`FlatRows(shared=True)`), pods of one
class under one key are counted on nodes once for all of them, and whose they are is decided
afterwards; kinds that differ in priority alone choose their domains together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.decode import Fill
from optimizer.problem import FREE_CHOICE
from optimizer.search.kinds import describe_counted, describe_flat
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.fleet_state import FleetState
    from optimizer.objective import Level
    from optimizer.search.bins import Bin
    from optimizer.search.kinds import CountedKind
    from optimizer.search.mip import MipModel

    Indices = NDArray[np.int64]
    Loads = list[list[tuple[int, int, int]]]

__all__ = ["FlatRows"]


@dataclass(slots=True)
class _Entry:
    kind: CountedKind
    units: list[int]
    placed: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Variables whose sum is the number of units placed."""
    pods: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Variables whose sum is the number of pods placed, where that is not settled by units."""


@dataclass(slots=True)
class _Size:
    """Units with the same pods and key: wherever one can lie, so can any other."""

    kind: CountedKind
    """The first of its kinds."""
    entries: list[_Entry] = field(default_factory=list)
    domains: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Domain of each choice, 0 for units without a key."""
    gangs: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Variables: units of this size in each domain."""
    pods: Indices = field(default_factory=lambda: np.zeros(0, np.int64))
    """Variables: pods of them there, where units do not settle it."""


class _SlotPods(NamedTuple):
    """Pods of one task of a unit."""

    unit: int
    task: int
    pods: int


class _Load(NamedTuple):
    """What a variable puts in a domain."""

    pods: int
    variable: int
    limit: int
    """Pods at the most."""


@dataclass(slots=True)
class _Pool:
    """Pods of one class that share their places: whose they are is decided afterwards."""

    pod_class: int
    column: int
    pinned: int
    loads: dict[int, list[_Load]] = field(default_factory=dict)
    """By domain."""
    places: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    """Domain -> (bin, variable); variable -1 where the bin is the whole domain."""


class FlatRows:
    """Adds units that are counted to a model, and reads them back."""

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
        shared: bool = False,
    ) -> None:
        """Take the parts of a model.

        Args:
          state: Room.
          bins: Where pods may go.
          mip: Gets variables and rows.
          loads: For each bin: (class, pods, variable).
          gang_loads: (column, domain) -> the same for gangs that lie in it whole.
          domain_of_bin: Column -> domain of each bin.
          cover_loads: For each cell: the same for gangs that lie in it whole.
          integer_pods: Pods are whole.
          integer_gangs: Units are whole.
          shared: More is counted than plain gangs: several classes, pods beyond a floor; kinds
            share pods of one class and key, and those that differ in priority alone their domains.
        """
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
        self.shared = shared
        self.entries: dict[CountedKind, _Entry] = {}
        self.batches: list[tuple[list[_Size], dict[tuple[int, int, int], _Pool]]] = []

    def collect(self, u: int) -> bool:
        """Count a unit in if its kind can be counted; the model is as it was until `add_pools`."""
        unit = self.problem.units[u]
        kind = None
        if self.shared or describe_flat(self.problem, unit) is not None:
            kind = describe_counted(self.problem, unit)
        if kind is None:
            return False
        self.entries.setdefault(kind, _Entry(kind, [])).units.append(u)
        return True

    def add_pools(self) -> None:
        """Add all that was collected."""
        sizes: dict[tuple[object, ...], _Size] = {}
        for kind, entry in sorted(self.entries.items()):
            is_alike = self.shared and kind.is_whole
            own = () if is_alike else (kind.priority, kind.groups)
            key = (kind.tasks, kind.floor, kind.column, kind.pinned, *own)
            sizes.setdefault(key, _Size(kind)).entries.append(entry)
        together = list(sizes.values())
        for batch in [together] if self.shared else [[size] for size in together]:
            pools: dict[tuple[int, int, int], _Pool] = {}
            for size in batch:
                self._add_size(size, pools)
            for pool in pools.values():
                self._add_pool(pool)
            self.batches.append((batch, pools))

    def _find_domains(self, column: int, pinned: int) -> Indices:
        """Return i64[bins]: the domain of each bin, NO_DOMAIN where units may not go."""
        if column < 0:
            return np.zeros(len(self.bins), np.int64)
        domain = self.domain_of_bin(column)
        return domain if pinned == FREE_CHOICE else np.where(domain == pinned, domain, NO_DOMAIN)

    def _fits(self, pod_class: int) -> Indices:
        return np.array([b.fits[pod_class] for b in self.bins], np.int64)

    def _add_size(self, size: _Size, pools: dict[tuple[int, int, int], _Pool]) -> None:
        """Say how many units of a size lie in each domain, and what they put there."""
        kind = size.kind
        domain = self._find_domains(kind.column, kind.pinned)
        inside = domain != NO_DOMAIN
        domains, choice = np.unique(domain[inside], return_inverse=True)
        supply = sum(len(entry.units) for entry in size.entries)
        possible = np.full(len(domains), supply)
        pods: dict[int, int] = {}
        for pod_class, count in kind.tasks:
            pods[pod_class] = pods.get(pod_class, 0) + count
        room = np.zeros(len(domains), np.int64)
        for pod_class, count in pods.items():
            room = np.bincount(choice, self._fits(pod_class)[inside], len(domains)).astype(np.int64)
            possible = np.minimum(possible, room // min(count, kind.floor))
        keep = np.flatnonzero(possible > 0)
        size.domains = domains[keep]
        size.gangs = self.mip.add_variables(possible[keep], integer=self.integer_gangs)
        if not len(keep):
            return
        self._share_out(size, supply)
        if not kind.is_whole:
            ((_, count),) = kind.tasks
            most = np.minimum(room[keep], possible[keep] * count)
            size.pods = self.mip.add_variables(most, integer=self.integer_pods)
            size.entries[0].pods = size.pods
            for gang, x in zip(size.gangs.tolist(), size.pods.tolist(), strict=True):
                self.mip.add_row([x, gang], [1, -kind.floor], low=0)
                self.mip.add_row([x, gang], [1, -count], up=0)
        variables = size.gangs if kind.is_whole else size.pods
        for pod_class, count in pods.items():
            key = (pod_class, kind.column, kind.pinned)
            pool = pools.setdefault(key, _Pool(*key))
            each = count if kind.is_whole else 1
            for c, x in zip(keep.tolist(), variables.tolist(), strict=True):
                load = _Load(each, x, int(possible[c]) * count)
                pool.loads.setdefault(int(domains[c]), []).append(load)

    def _share_out(self, size: _Size, supply: int) -> None:
        """Say how many units of each kind are among those that are placed."""
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

    def _add_pool(self, pool: _Pool) -> None:
        """Say that the pods in the bins of a domain are those of the units in it."""
        fits = self._fits(pool.pod_class)
        domain = self._find_domains(pool.column, pool.pinned)
        usable = np.flatnonzero((fits > 0) & (domain != NO_DOMAIN))
        order = usable[np.argsort(domain[usable], kind="stable")]
        found, starts = np.unique(domain[order], return_index=True)
        members_of = dict(zip(found.tolist(), np.split(order, starts[1:]), strict=False))
        for d in sorted(pool.loads):
            self._add_domain(pool, d, members_of[d], fits)

    def _add_domain(self, pool: _Pool, domain: int, members: Indices, fits: Indices) -> None:
        loads = pool.loads[domain]
        named = [(pool.pod_class, load.pods, load.variable) for load in loads]
        if len(members) == 1:
            b = int(members[0])
            self.loads[b] += named
            pool.places[domain] = [(b, -1)]
            return
        cells = {self.bins[b].cell for b in members.tolist()}
        if self.cover_loads and len(cells) == 1 and -1 not in cells:
            self.cover_loads[cells.pop()] += named
        elif pool.column >= 0:
            self.gang_loads.setdefault((pool.column, domain), []).extend(named)
        limit = sum(load.limit for load in loads)
        variables = self.mip.add_variables(
            np.minimum(fits[members], limit), integer=self.integer_pods
        )
        self.mip.add_row(
            np.r_[variables, [load.variable for load in loads]],
            np.r_[np.ones(len(members)), [-load.pods for load in loads]],
            0,
            0,
        )
        for b, x in zip(members.tolist(), variables.tolist(), strict=True):
            self.loads[b].append((pool.pod_class, 1, x))
        pool.places[domain] = list(zip(members.tolist(), variables.tolist(), strict=True))

    def add_objective(self, objective: NDArray[np.float64], level: Level) -> int:
        """Write one level's worth of every variable; return a limit of what it can add up to."""
        span = 0
        gpus = self.problem.class_gpus
        for entry in self.entries.values():
            kind = entry.kind
            group, pod, gpu = level.weights(kind.priority)
            worth = [(pod + gpu * int(gpus[s])) * count for s, count in kind.tasks]
            of_group = group * kind.groups
            if kind.is_whole:
                objective[entry.placed] = of_group + sum(worth)
            else:
                objective[entry.placed] = of_group
                objective[entry.pods] = worth[0] // kind.tasks[0][1]
            span += (abs(of_group) + sum(map(abs, worth))) * len(entry.units)
        return span

    def realise(self, values: NDArray[np.float64]) -> dict[int, UnitPlacement]:
        """Turn variables into fills, put them on nodes and take them in the state."""
        placements: dict[int, UnitPlacement] = {}
        slots: dict[int, list[_SlotPods]] = {}
        for sizes, pools in self.batches:
            room = {
                key: {
                    d: [[b, round(values[x]) if x >= 0 else -1] for b, x in places]
                    for d, places in pool.places.items()
                }
                for key, pool in pools.items()
            }
            for size in sizes:
                kind = size.kind
                for u, domain, pods in self._seat_units(size, values):
                    placements[u] = ()
                    for t, task in enumerate(self.problem.units[u].tasks):
                        places = room[task.pod_class, kind.column, kind.pinned][domain]
                        count = task.count if kind.is_whole else pods
                        fill = self._hand_out(_SlotPods(u, t, count), places, slots)
                        if fill is not None:
                            placements[u] = (*placements[u], fill)
        self._fill_slots(slots, placements)
        return placements

    def _seat_units(
        self, size: _Size, values: NDArray[np.float64]
    ) -> Iterator[tuple[int, int, int]]:
        """Yield (unit, domain, pods) of every unit placed."""
        waiting = iter(
            u
            for entry in size.entries
            for u in entry.units[: round(float(values[entry.placed].sum()))]
        )
        most = sum(count for _, count in size.kind.tasks)
        for i, gangs in enumerate(np.round(values[size.gangs]).astype(int).tolist()):
            total = most * gangs if size.kind.is_whole else round(values[size.pods[i]])
            left = total - size.kind.floor * gangs
            for _ in range(gangs):
                more = min(left, most - size.kind.floor)
                left -= more
                yield next(waiting), int(size.domains[i]), size.kind.floor + more

    def _hand_out(
        self, wanted: _SlotPods, room: list[list[int]], slots: dict[int, list[_SlotPods]]
    ) -> Fill | None:
        """Give one task its pods out of what its pool got in the bins of a domain."""
        pod_class = self.problem.units[wanted.unit].tasks[wanted.task].pod_class
        left = wanted.pods
        nodes: list[int] = []
        counts: list[int] = []
        for place in room:
            # A bin that is the whole domain holds whatever units are in it.
            take = left if place[1] < 0 else min(left, place[1])
            if take == 0:
                continue
            if place[1] > 0:
                place[1] -= take
            left -= take
            if self.bins[place[0]].is_slots:
                slots.setdefault(place[0], []).append(wanted._replace(pods=take))
            else:
                nodes.append(int(self.bins[place[0]].nodes[0]))
                counts.append(take)
        if not nodes:
            return None
        fill = Fill(wanted.task, np.array(nodes), np.array(counts))
        self.state.take(pod_class, fill.nodes, fill.counts)
        return fill

    def _fill_slots(
        self,
        slots: Mapping[int, Sequence[_SlotPods]],
        placements: dict[int, UnitPlacement],
    ) -> None:
        """Put the pods of slot bins on nodes, largest first: the order that never fails."""
        units, gpus = self.problem.units, self.problem.class_gpus
        for b, wanted in slots.items():
            nodes = self.bins[b].nodes
            for u, t, count in sorted(
                wanted, key=lambda w: (-int(gpus[units[w.unit].tasks[w.task].pod_class]), w.unit)
            ):
                pod_class = units[u].tasks[t].pod_class
                fits = self.state.fits(pod_class)[nodes]
                order = np.lexsort((nodes, self.state.node_gpus[nodes]))
                room = fits[order]
                counts = np.clip(count - (np.cumsum(room) - room), 0, room)
                used = counts > 0
                if int(counts.sum()) != count:
                    raise AssertionError("slot rows admitted pods that no node holds")
                fill = Fill(t, nodes[order][used], counts[used])
                self.state.take(pod_class, fill.nodes, fill.counts)
                placements[u] = (*placements[u], fill)
