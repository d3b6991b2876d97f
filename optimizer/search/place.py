"""All pending units jointly: a first plan, then improvement, then proof.

The order of business is fixed and counted, so the same question gives the same plan: bound,
candidate orders (batched rollouts), the whole fleet exactly where it is small, destroy and repair
where it is not, and a last pass that leaves nothing out that still fits. What the allocator of
devices refuses in the end is cut off, and all is searched again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.decode import place_unit
from optimizer.devices.cuts import cut_devices, find_unserved
from optimizer.fleet_state import FleetState
from optimizer.nominations import hold_nominated, keeps_nominations
from optimizer.objective import Placed, build_levels
from optimizer.search.bound import PlacementBound
from optimizer.search.repair import Repair, RepairLimits
from optimizer.search.rollouts import find_orders
from optimizer.search.score import count_placed, score_placements
from optimizer.spread_order import find_unspread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optimizer.decode import UnitPlacement
    from optimizer.objective import Level
    from optimizer.problem import Problem
    from topology.plan import Request

__all__ = [
    "EFFORTS",
    "Effort",
    "PlaceResult",
    "find_active",
    "place_beside",
    "place_greedily",
    "search_placement",
    "tighten_bounds",
]


MAX_CUTS: Final = 8
"""Searches after the first for plans that the allocator of devices accepts."""
PATIENCE: Final = 80
"""Pieces without gain, beyond two for each cell, after which destroy and repair ends."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Counts that bound the search."""

    candidates: int
    """Orders rolled out in parallel."""
    work_per_cell: int
    """Variables of destroy and repair for each cell of the fleet (`RepairLimits.work`)."""
    max_work: int
    min_work: int
    exact_variables: int
    """Whole fleets up to about this many pod variables are solved exactly."""
    exact_nodes: int
    """Branch-and-bound nodes of that."""


EFFORTS: Final = {
    "quick": Effort(32, 100, 12_000, 4_000, 400, 50),
    "normal": Effort(256, 700, 90_000, 40_000, 1500, 400),
    "thorough": Effort(1024, 6_000, 800_000, 300_000, 4000, 5000),
}


@dataclass(frozen=True, slots=True)
class PlaceResult:
    """The best placements found, and what is proven of them."""

    placements: dict[int, UnitPlacement]
    """Unit -> fills, for the units that are placed."""
    levels: tuple[Level, ...]
    score: tuple[int, ...]
    bounds: tuple[int | None, ...]
    """What no plan can exceed in each level, given the values of the levels before it; None where
    nothing was proven."""


def search_placement(
    problem: Problem,
    request: Request,
    progress: Callable[[str], None] | None = None,
) -> PlaceResult:
    """Find the best placement of all units of a problem.

    Args:
      problem: Units to place.
      request: Objective, effort and seed.
      progress: Called with a line now and then.

    Returns:
      Placements that are feasible together, with the bound of each level.
    """
    say = progress or (lambda _: None)
    found = _search(problem, request, say)
    cut, rounds = cut_devices(problem, found.placements), 0
    if cut is None:
        return found
    best = _drop_unserved(problem, found)
    while cut is not None and rounds < MAX_CUTS:
        say("searching again without what finds no devices")
        found = _search(cut, request, say)
        served = _drop_unserved(problem, found)
        if served.score > best.score:
            # What bounds a plan was found without the cuts, which are no law.
            best = replace(served, bounds=best.bounds)
        cut, rounds = cut_devices(cut, found.placements), rounds + 1
    return best


def place_greedily(
    problem: Problem,
    request: Request,
    progress: Callable[[str], None] | None = None,
) -> PlaceResult:
    """Place one unit after another in the scheduler's own order, for fleets too large to search.

    Args:
      problem: Units to place.
      request: Its objective says which levels are counted.
      progress: Called with a line now and then.

    Returns:
      Placements that are feasible together, of which nothing is proven.
    """
    say = progress or (lambda _: None)
    state = FleetState(problem)
    placements = _place_in_order(state, find_active(state))
    for u in find_unspread(problem, placements):
        del placements[u]
    for u in find_unserved(problem, placements):
        del placements[u]
    say(f"placed {len(placements)} one after another")
    levels = build_levels(request.objective, ())
    score = score_placements(problem, placements, levels)
    return PlaceResult(placements, levels, score, (None,) * len(levels))


def find_active(state: FleetState) -> list[int]:
    """Return the units that may be placed at all, each on its own."""
    return [
        u
        for u, unit in enumerate(state.problem.units)
        if unit.tasks and not unit.blocked and unit.has_quorum() and _may_fit(state, u)
    ]


def _drop_unserved(problem: Problem, found: PlaceResult) -> PlaceResult:
    """Leave out the units that find no devices."""
    unserved = set(find_unserved(problem, found.placements))
    if not unserved:
        return found
    placements = {u: p for u, p in found.placements.items() if u not in unserved}
    score = score_placements(problem, placements, found.levels)
    return replace(found, placements=placements, score=score)


def _search(problem: Problem, request: Request, say: Callable[[str], None]) -> PlaceResult:
    """Search once, by what the problem says of devices."""
    effort = EFFORTS[request.effort]
    rng = np.random.default_rng(request.seed)
    units = problem.units
    state = FleetState(problem)
    active = find_active(state)
    most = [
        Placed(units[u].priority, len(units[u].tree), units[u].num_pods, units[u].gpus)
        for u in active
    ]
    levels = build_levels(request.objective, most)
    say(f"{len(active)} of {len(units)} pending groups have room on their own")
    placements: dict[int, UnitPlacement] = {}
    search = Repair(state, placements, active, levels, rng)
    search.adopt(_decode(problem, active))
    say(f"first plan places {len(placements)}")
    bounds: tuple[int | None, ...] = (None,) * len(levels)

    more_is_better = all(
        weight >= 0
        for level in levels
        for u in active
        for weight in level.weights(units[u].priority)
    )

    def is_optimal() -> bool:
        if more_is_better and _is_complete(problem, active, placements):
            return True
        pairs = zip(search.score(), bounds, strict=True)
        return all(bound is not None and value >= bound for value, bound in pairs)

    if not is_optimal():
        bound = PlacementBound(FleetState(problem), active, levels)
        bounds = bound.relax()
        say("bounded what any plan can reach")
        if not is_optimal():
            bounds = tighten_bounds(bounds, bound.keep_whole(node_limit=1))
            say("bounded it with gangs kept whole")
    if not is_optimal():
        proven = search.solve_whole(effort.exact_variables, effort.exact_nodes)
        bounds = tighten_bounds(bounds, proven)
    if not is_optimal():
        for order in find_orders(state, active, levels, effort.candidates, rng):
            search.adopt(_decode(problem, order))
        say(f"best of {effort.candidates} orders places {len(placements)}")
        wanted = effort.work_per_cell * search.num_cells
        work = min(max(wanted, effort.min_work), effort.max_work)
        search.run(RepairLimits(work, PATIENCE + 2 * search.num_cells), is_optimal)
        say(f"improved plan places {len(placements)}")
    search.top_up()
    if more_is_better and _is_complete(problem, active, placements):
        bounds = search.score()
    if not keeps_nominations(problem, placements):
        placements = _place_in_order(FleetState(problem), active)
    for u in find_unspread(problem, placements):
        del placements[u]
    score = score_placements(problem, placements, levels)
    return PlaceResult(placements, levels, score, bounds)


def tighten_bounds(
    bounds: tuple[int | None, ...], others: tuple[int | None, ...]
) -> tuple[int | None, ...]:
    """Return the smaller of two bounds in the first level where they differ, and what follows it.

    What a bound says of a level holds for plans that reach its own values before it, no others.
    """
    found: list[int | None] = []
    left = [bounds, others]
    for level in range(len(bounds)):
        values = [value for b in left if (value := b[level]) is not None]
        least = min(values, default=None)
        found.append(least)
        left = [b for b in left if least is not None and b[level] == least]
    return tuple(found)


def _may_fit(state: FleetState, u: int) -> bool:
    """Tell whether there is room for the floors in sum; cheap, errs upwards only."""
    unit = state.problem.units[u]
    room = sum(min(int(state.fits(t.pod_class).sum()), t.count) for t in unit.tasks)
    return room >= unit.count_needed()


def _is_complete(
    problem: Problem, active: Sequence[int], placements: dict[int, UnitPlacement]
) -> bool:
    """Tell whether every pending pod of every active unit has a node."""
    return all(
        u in placements
        and count_placed(problem, problem.units[u], placements[u]).pods == problem.units[u].num_pods
        for u in active
    )


def _decode(problem: Problem, order: Sequence[int]) -> dict[int, UnitPlacement]:
    """Place units one after another, greedily, on the fleet as it was before any plan."""
    empty = FleetState(problem)
    placements = {}
    for u in order:
        placement = place_unit(empty, problem.units[u])
        if placement is not None:
            placements[u] = placement
    return placements


def _place_in_order(state: FleetState, active: Sequence[int]) -> dict[int, UnitPlacement]:
    """Place in the scheduler's order, keeping the room that nominated pods hold.

    For plans that the joint search, which knows nothing of nominations, got wrong: they hold
    against equal and lower priorities only, so what is free depends on who asks.

    Source: kube-scheduler, nominated pods are assumed on their node while others are filtered.
    """
    placements: dict[int, UnitPlacement] = {}
    for u in active:
        placement = place_beside(state, u, placements)
        if placement is not None:
            placements[u] = placement
    return placements


def place_beside(
    state: FleetState, u: int, placements: dict[int, UnitPlacement]
) -> UnitPlacement | None:
    """Place one more unit, leaving room to nominated pods; None where that is not possible."""
    problem = state.problem
    holds = hold_nominated(state, u, placements)
    mark = state.mark()
    placement = place_unit(state, problem.units[u])
    # Reservations first: the plan so far is copied, which takes long where it is large.
    if (
        placement is not None
        and problem.reservations
        and not keeps_nominations(problem, {**placements, u: placement})
    ):
        state.undo(mark)
        placement = None
    for hold in holds:
        state.lift(*hold)
    return placement
