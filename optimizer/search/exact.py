"""Units and bins -> the best choice among them, by mixed-integer programming.

One model serves three ends: a whole small fleet (with proof), a piece of a large one (destroy and
repair), and, relaxed, a bound. Units that are alike are counted, not listed, so that a fleet with
twenty kinds of gangs has twenty rows of choices, however many gangs wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import Fill
from optimizer.problem import BROKEN, FREE_CHOICE
from optimizer.search.bins import relax_rows
from optimizer.search.mip import MipModel
from optimizer.search.tree_rows import TreeRows
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.fleet_state import FleetState
    from optimizer.objective import Level
    from optimizer.problem import Problem, Unit
    from optimizer.search.bins import Bin

__all__ = ["BoundModel", "ExactResult", "FlatKind", "describe_flat", "solve_exact"]


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


@dataclass(slots=True)
class ExactResult:
    """Placements of the units that the solution places; the others stay out."""

    placements: dict[int, UnitPlacement]
    """Unit index -> fills. The state has taken them."""
    proven: int
    """Number of leading levels proven optimal for this choice of units and bins."""
    bounds: tuple[float, ...]


@dataclass(slots=True)
class _FlatEntry:
    kind: FlatKind
    units: list[int]
    domains: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Domain of each choice, -1 for units without a key."""
    gangs: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """Variables: gangs of this kind in each domain."""
    pods: list[tuple[int, int, int]] = field(default_factory=list)
    """(choice, bin, variable) pods in a bin; variable -1 where the bin is the whole domain."""


def solve_exact(
    state: FleetState,
    units: Sequence[int],
    bins: Sequence[Bin],
    levels: Sequence[Level],
    *,
    node_limit: int,
    covers: Sequence[Bin] = (),
) -> ExactResult | None:
    """Choose which units to place in which bins, best in the levels, and place them.

    Args:
      state: Current room; takes the placements. The units hold nothing in it.
      units: Unit indices to choose from.
      bins: Disjoint bins; a bin of several nodes takes plain gangs only.
      levels: Compared in order.
      node_limit: Branch-and-bound nodes for each solve.
      covers: Relaxations of cells, by `Bin.cell`: rows that are implied, and speed up proof.

    Returns:
      None when HiGHS found nothing within its limit.
    """
    model = _Model(state, units, bins, covers)
    model.build()
    objectives, spans = model.objectives(levels)
    result = model.mip.solve(objectives, spans, node_limit=node_limit)
    if result.values is None:
        return None
    placements = model.realise(result.values)
    return ExactResult(placements, result.proven, result.bounds)


class BoundModel:
    """What no placement of some units can exceed; built once, solved as a relaxation or closer."""

    def __init__(
        self,
        state: FleetState,
        units: Sequence[int],
        bins: Sequence[Bin],
        levels: Sequence[Level],
        *,
        whole_gangs: bool,
    ) -> None:
        """Build the model.

        Args:
          state: Room now; not changed.
          units: Units to choose from.
          bins: Relaxations of cells that no domain or slice of these units divides.
          levels: Compared in order.
          whole_gangs: With a node limit, plain gangs stay whole as well as units with structure;
            only pods are then split in fractions.
        """
        model = _Model(state, units, bins, integer_pods=False, integer_gangs=whole_gangs)
        model.build()
        self._mip = model.mip
        self._objectives, self._spans = model.objectives(levels)

    def bound(self, node_limit: int = 0) -> tuple[float, ...]:
        """Return a bound for each level; shorter or inf where nothing is known.

        Args:
          node_limit: 0 for the linear relaxation; else branch-and-bound nodes.
        """
        return self._mip.solve(
            self._objectives, self._spans, node_limit=node_limit, relaxed=node_limit == 0
        ).bounds


class _Model:
    def __init__(
        self,
        state: FleetState,
        units: Sequence[int],
        bins: Sequence[Bin],
        covers: Sequence[Bin] = (),
        *,
        integer_pods: bool = True,
        integer_gangs: bool = True,
    ) -> None:
        self.state = state
        self.problem = state.problem
        self.bins = bins
        self.mip = MipModel()
        self.integer_pods = integer_pods
        self.integer_gangs = integer_gangs
        self.flats: dict[FlatKind, _FlatEntry] = {}
        self.others: list[int] = []
        for u in units:
            kind = describe_flat(self.problem, self.problem.units[u])
            if kind is None:
                self.others.append(u)
            else:
                self.flats.setdefault(kind, _FlatEntry(kind, [])).units.append(u)
        # For each bin: (class, pods a unit of the variable puts there, variable).
        self.loads: list[list[tuple[int, int, int]]] = [[] for _ in bins]
        self.covers = covers
        self.cover_loads: list[list[tuple[int, int, int]]] = [[] for _ in covers]
        # (column, domain) -> (class, pods, variable) of gangs that lie in it whole.
        self.gang_loads: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self._domain_of_bin: dict[int, NDArray[np.int64]] = {}
        self.trees = TreeRows(
            state,
            bins,
            self.mip,
            self.loads,
            self.gang_loads,
            self.domain_of_bin,
            integer_pods=integer_pods,
            integer_gangs=integer_gangs,
        )

    def domain_of_bin(self, column: int) -> NDArray[np.int64]:
        """Return i64[bins]: the domain that holds each bin, NO_DOMAIN for none."""
        if column not in self._domain_of_bin:
            codes = self.problem.columns[column].codes
            first = [int(b.nodes[0]) if len(b.nodes) else -1 for b in self.bins]
            found = np.array([codes[n] if n >= 0 else NO_DOMAIN for n in first], np.int64)
            self._domain_of_bin[column] = found
        return self._domain_of_bin[column]

    def build(self) -> None:
        for _, entry in sorted(self.flats.items()):
            self._add_flat(entry)
        for u in self.others:
            self.trees.add(u)
        self.trees.finish()
        self._add_room()
        self._add_domain_room()

    def _add_flat(self, entry: _FlatEntry) -> None:
        kind, supply = entry.kind, len(entry.units)
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
        possible = np.minimum(room // kind.count, supply)
        keep = possible > 0
        entry.domains = choices[keep]
        renumber = np.cumsum(keep) - 1
        entry.gangs = self.mip.add_variables(possible[keep], integer=self.integer_gangs)
        if len(entry.gangs) == 0:
            return
        self.mip.add_row(entry.gangs, 1, up=supply)
        bins_in = np.bincount(choice_of_bin, minlength=len(choices))
        spread: dict[int, list[int]] = {}
        for b, choice in zip(usable.tolist(), choice_of_bin.tolist(), strict=True):
            if not keep[choice]:
                continue
            c = int(renumber[choice])
            if bins_in[choice] == 1:
                self.loads[b].append((kind.pod_class, kind.count, int(entry.gangs[c])))
                entry.pods.append((c, b, -1))
            else:
                spread.setdefault(c, []).append(b)
        for c, members in spread.items():
            cells = {self.bins[b].cell for b in members}
            if self.covers and len(cells) == 1 and -1 not in cells:
                load = (kind.pod_class, kind.count, int(entry.gangs[c]))
                self.cover_loads[cells.pop()].append(load)
            elif kind.column >= 0:
                key = (kind.column, int(entry.domains[c]))
                load = (kind.pod_class, kind.count, int(entry.gangs[c]))
                self.gang_loads.setdefault(key, []).append(load)
            limit = int(possible[keep][c]) * kind.count
            variables = self.mip.add_variables(
                np.minimum(fits[members], limit), integer=self.integer_pods
            )
            self.mip.add_row(
                np.r_[variables, entry.gangs[c]], np.r_[np.ones(len(members)), -kind.count], 0, 0
            )
            for b, x in zip(members, variables.tolist(), strict=True):
                self.loads[b].append((kind.pod_class, 1, x))
                entry.pods.append((c, b, x))

    def _add_room(self) -> None:
        for one, load in zip(
            (*self.bins, *self.covers), (*self.loads, *self.cover_loads), strict=True
        ):
            if not load:
                continue
            classes = np.array([s for s, _, _ in load])
            pods = np.array([k for _, k, _ in load])
            variables = np.array([x for _, _, x in load])
            for row in one.rows:
                weight = row.weight[classes] * pods
                used = weight > 0
                if not used.any():
                    continue
                # Whatever is placed here uses a multiple of the common step.
                step = int(np.gcd.reduce(weight[used]))
                self.mip.add_row(variables[used], weight[used] // step, up=row.up // step)

    def _add_domain_room(self) -> None:
        """Limit the gangs that lie whole in a domain of several bins by what the domain holds.

        Implied by the rows of its bins for whole numbers, but not for fractions: 31 free nodes
        take one gang of 16, not 1.9.
        """
        for (column, domain), load in self.gang_loads.items():
            inside = np.flatnonzero(self.domain_of_bin(column) == domain)
            nodes = np.concatenate([self.bins[b].nodes for b in inside.tolist()])
            cover = relax_rows(self.state, nodes, sorted({s for s, _, _ in load}))
            variables = np.array([x for _, _, x in load])
            for row in cover.rows:
                weight = np.array([row.weight[s] * k for s, k, _ in load])
                # One row for each size of gang: rounding down adds up (superadditivity).
                for size in np.unique(weight[weight > 0]).tolist():
                    large = weight >= size
                    self.mip.add_row(variables[large], weight[large] // size, up=row.up // size)

    def objectives(self, levels: Sequence[Level]) -> tuple[list[NDArray[np.float64]], list[int]]:
        """Return the objective of each level, and a limit of what it can differ by."""
        objectives, spans = [], []
        for level in levels:
            objective = np.zeros(self.mip.num_variables)
            span = 0
            for entry in self.flats.values():
                kind = entry.kind
                group, pod, gpu = level.weights(kind.priority)
                gpus = int(self.problem.class_gpus[kind.pod_class])
                worth = group + (pod + gpu * gpus) * kind.count
                objective[entry.gangs] = worth
                span += abs(worth) * len(entry.units)
            span += self.trees.add_objective(objective, level)
            objectives.append(objective)
            spans.append(span)
        return objectives, spans

    def realise(self, values: NDArray[np.float64]) -> dict[int, UnitPlacement]:
        """Turn variables into fills, put them on nodes and take them in the state."""
        placements: dict[int, UnitPlacement] = dict(self.trees.realise(values))
        slots: dict[int, list[tuple[int, int, int]]] = {}
        for entry in self.flats.values():
            waiting = iter(entry.units)
            in_bins: dict[int, list[tuple[int, int]]] = {}
            for c, b, x in entry.pods:
                in_bins.setdefault(c, []).append((b, x))
            for c, gangs in enumerate(np.round(values[entry.gangs]).astype(int).tolist()):
                room = [
                    [b, round(values[x]) if x >= 0 else gangs * entry.kind.count]
                    for b, x in in_bins.get(c, ())
                ]
                for _ in range(gangs):
                    self._hand_out(next(waiting), entry.kind, room, placements, slots)
        self._fill_slots(slots, placements)
        return placements

    def _hand_out(
        self,
        u: int,
        kind: FlatKind,
        room: list[list[int]],
        placements: dict[int, UnitPlacement],
        slots: dict[int, list[tuple[int, int, int]]],
    ) -> None:
        """Give one gang its pods out of what its kind got in the bins of a domain."""
        left = kind.count
        nodes: list[int] = []
        counts: list[int] = []
        placements.setdefault(u, ())
        for place in room:
            take = min(left, place[1])
            if take == 0:
                continue
            place[1] -= take
            left -= take
            if self.bins[place[0]].is_slots:
                slots.setdefault(place[0], []).append((u, kind.pod_class, take))
            else:
                nodes.append(int(self.bins[place[0]].nodes[0]))
                counts.append(take)
        if nodes:
            fill = Fill(0, np.array(nodes), np.array(counts))
            self.state.take(kind.pod_class, fill.nodes, fill.counts)
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
