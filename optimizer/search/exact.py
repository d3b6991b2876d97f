"""Units and bins -> the best choice among them, by mixed-integer programming.

One model serves three ends: a whole small fleet (with proof), a piece of a large one (destroy and
repair), and, relaxed, a bound. Units that are alike are counted, not listed, so that a fleet with
twenty kinds of gangs has twenty rows of choices, however many gangs wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optimizer.search.bins import relax_rows
from optimizer.search.flat_rows import FlatRows
from optimizer.search.mip import MipModel
from optimizer.search.tree_rows import TreeRows
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.fleet_state import FleetState
    from optimizer.objective import Level
    from optimizer.search.bins import Bin

__all__ = ["BoundModel", "ExactResult", "solve_exact"]


@dataclass(slots=True)
class ExactResult:
    """Placements of the units that the solution places; the others stay out."""

    placements: dict[int, UnitPlacement]
    """Unit index -> fills. The state has taken them."""
    proven: int
    """Number of leading levels proven optimal for this choice of units and bins."""
    bounds: tuple[float, ...]


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
        # For each bin: (class, pods a unit of the variable puts there, variable).
        self.loads: list[list[tuple[int, int, int]]] = [[] for _ in bins]
        self.covers = covers
        self.cover_loads: list[list[tuple[int, int, int]]] = [[] for _ in covers]
        # (column, domain) -> (class, pods, variable) of gangs that lie in it whole.
        self.gang_loads: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
        self._domain_of_bin: dict[int, NDArray[np.int64]] = {}
        self.flats = FlatRows(
            state,
            bins,
            self.mip,
            self.loads,
            self.gang_loads,
            self.domain_of_bin,
            cover_loads=self.cover_loads,
            integer_pods=integer_pods,
            integer_gangs=integer_gangs,
        )
        self.others = [u for u in units if not self.flats.collect(u)]
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
        self.flats.add_pools()
        for u in self.others:
            self.trees.add(u)
        self.trees.finish()
        self._add_room()
        self._add_domain_room()

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
            span = self.flats.add_objective(objective, level)
            span += self.trees.add_objective(objective, level)
            objectives.append(objective)
            spans.append(span)
        return objectives, spans

    def realise(self, values: NDArray[np.float64]) -> dict[int, UnitPlacement]:
        """Turn variables into fills, put them on nodes and take them in the state."""
        return {**self.trees.realise(values), **self.flats.realise(values)}
