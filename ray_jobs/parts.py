"""A large fleet placed in parts: each searched apart, what is left over tried on the whole.

The cut depends on the snapshot alone, and parts are joined in their order: the answer is the same
in one process and on any number of workers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.answer import assign_pods, describe_bound
from optimizer.decode import Fill, seat_pods
from optimizer.fleet_state import FleetState
from optimizer.objective import Placed, build_levels
from optimizer.problem import build_problem
from optimizer.search.bound import PlacementBound
from optimizer.search.parts import cut_problem, is_large, strip_problem, take_part
from optimizer.search.place import PlaceResult, find_active, place_greedily, search_placement
from optimizer.search.score import score_placements
from ray_jobs.fan_out import map_ordered

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem, Unit
    from optimizer.search.parts import Cut, Part
    from topology.model import Snapshot
    from topology.plan import Bound, Request

__all__ = ["PartsResult", "place_in_parts"]


class PartsResult(NamedTuple):
    """What the parts and the rest of the fleet gave."""

    placed: dict[int, int]
    """Pod -> node."""
    bound: Bound
    warnings: tuple[str, ...]
    """How the fleet was cut, and what that can cost."""


def place_in_parts(
    snapshot: Snapshot,
    request: Request,
    problem: Problem,
    progress: Callable[[str], None] | None = None,
    *,
    workers: str | int | None = None,
) -> PartsResult:
    """Place all units of a large problem.

    What is placed across parts stays; each part is searched for something better than what it was
    dealt; what is left over is tried on the whole fleet.

    Args:
      snapshot: The fleet; never changed.
      request: Objective, effort and seed.
      problem: Of that fleet; see `optimizer.search.parts.is_large`.
      progress: Called with a line now and then.
      workers: As for `ray_jobs.fan_out.map_ordered`; parts are its items.

    Raises:
      RequestError: The workers cannot be had.
    """
    say = progress or (lambda _: None)
    cut = cut_problem(problem)
    dealt = sum(len(part.placements) for part in cut.parts)
    say(f"cut {len(problem.free)} nodes into {len(cut.parts)} parts; {dealt} groups fit one each")
    placed: dict[int, int] = {}
    for u, placement in cut.held.items():
        placed |= seat_pods(problem.units[u], placement)
    shared = _Shared(strip_problem(_take(problem, placed)), request)
    answers = map_ordered(_place_part, shared, cut.parts, workers=workers, progress=say)
    for number, (part, placements) in enumerate(zip(cut.parts, answers, strict=True), 1):
        for u, placement in placements.items():
            placed |= seat_pods(problem.units[u], placement)
        say(
            f"part {number} of {len(cut.parts)}: "
            f"placed {len(placements)} of {len(part.units)} groups"
        )
    is_left = any(p not in placed for u in problem.units for t in u.tasks for p in t.pods)
    if is_left:
        placed = _place_on_whole(snapshot, request, placed, say)
    return PartsResult(placed, _bound_whole(problem, request, placed), _describe_cut(problem, cut))


class _Shared(NamedTuple):
    """What every part reads."""

    problem: Problem
    request: Request


def _place_part(shared: _Shared, part: Part) -> dict[int, UnitPlacement]:
    """Search one part; the answer speaks of units and nodes of the whole."""
    problem = take_part(shared.problem, part)
    found = search_placement(problem, shared.request)
    names = {u: i for i, u in enumerate(part.units)}
    given = {names[u]: placement for u, placement in part.placements.items()}
    if score_placements(problem, given, found.levels) > found.score:
        return dict(part.placements)
    return {
        part.units[u]: tuple(fill._replace(nodes=part.nodes[fill.nodes]) for fill in placement)
        for u, placement in found.placements.items()
    }


def _take(problem: Problem, placed: Mapping[int, int]) -> Problem:
    """Return the problem with less free: without what some of its pods take."""
    if not placed:
        return problem
    pods = sorted(placed)
    nodes = [placed[p] for p in pods]
    classes = [problem.pod_classes[p] for p in pods]
    free, node_gpus = problem.free.copy(), problem.node_gpus.copy()
    np.subtract.at(free, nodes, problem.requests[classes])
    np.subtract.at(node_gpus, nodes, problem.class_gpus[classes])
    return replace(problem, free=free, node_gpus=np.maximum(node_gpus, 0))


def _place_on_whole(
    snapshot: Snapshot,
    request: Request,
    placed: Mapping[int, int],
    say: Callable[[str], None],
) -> dict[int, int]:
    """Place what is left on the whole fleet beside what is placed already.

    Searched like a fleet of its own where it is small enough, else one after another.
    """
    left = build_problem(snapshot, request, placed=placed)
    waiting = [unit for unit in left.units if unit.tasks]
    say(f"trying {len(waiting)} groups on the whole fleet")
    find = place_greedily if is_large(left) else search_placement
    return {**placed, **assign_pods(left, find(left, request, say))}


def _bound_whole(problem: Problem, request: Request, placed: Mapping[int, int]) -> Bound:
    """Compare with what no plan of the whole fleet can exceed: bounds of parts do not add up."""
    state = FleetState(problem)
    active = find_active(state)
    units = problem.units
    levels = build_levels(
        request.objective,
        [
            Placed(units[u].priority, len(units[u].tree), units[u].num_pods, units[u].gpus)
            for u in active
        ],
    )
    placements = {u: fills for u in active if (fills := _gather(units[u], placed))}
    score = score_placements(problem, placements, levels)
    bounds = PlacementBound(state, active, levels).relax()
    return describe_bound(PlaceResult(placements, levels, score, bounds))


def _gather(unit: Unit, placed: Mapping[int, int]) -> UnitPlacement:
    fills = []
    for t, task in enumerate(unit.tasks):
        nodes = np.array([placed[p] for p in task.pods if p in placed], np.int64)
        if len(nodes):
            fills.append(Fill(t, nodes, np.ones(len(nodes), np.int64)))
    return tuple(fills)


def _describe_cut(problem: Problem, cut: Cut) -> tuple[str, ...]:
    """Say how the fleet was cut and what that can cost."""
    largest = max((len(part.nodes) for part in cut.parts), default=0)
    dealt = sum(len(part.units) for part in cut.parts)
    lines = [
        f"{len(problem.free)} nodes were searched in {len(cut.parts)} parts of up to {largest} "
        f"nodes: {dealt} waiting groups were dealt to one part each, {len(cut.held)} were placed "
        "across parts, what was left over was tried on the whole fleet; a search of the whole "
        "might place more"
    ]
    wider = f"wider domains ({', '.join(cut.keys)}), " if cut.keys else ""
    kept = sum(bool(problem.units[u].tasks) for u in cut.kept)
    if kept:
        lines.append(
            f"{kept} waiting groups were in no part, being bound to {wider}other pods, devices or "
            "nominated nodes; they were placed greedily on the whole fleet"
        )
    if cut.roomless:
        lines.append(
            f"{len(cut.roomless)} waiting groups fit into no one part; they were tried on the "
            "whole fleet"
        )
    return tuple(lines)
