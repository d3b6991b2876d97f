"""Which moves serve the goals best: targets by exact models, then an order that has room.

Small fleets are one model. A solution whose moves need more steps than it counted (a circle broken
by a temporary node), or for which no order is found, is forbidden and the next one asked for, until
none can be better than the best that is ordered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.devices.cuts import find_unserved
from optimizer.objective import Level, Placed
from optimizer.repack.apply import adopt, reset
from optimizer.repack.evaluate import evaluate_plan
from optimizer.repack.fleet import build_fleet
from optimizer.repack.large import Pieces
from optimizer.repack.model import PieceModel
from optimizer.repack.order import Blocked, Ordered, order_moves
from optimizer.repack.pieces import count_variables, make_piece
from optimizer.repack.steps import MOVE_CRITERIA, MoveLevel, build_move_steps
from optimizer.search.score import count_placed
from optimizer.spread_order import find_unspread
from topology.plan import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.model import PieceResult
    from optimizer.repack.order import Step
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["RepackResult", "search_repack"]

WHOLE_VARIABLES: Final = {"quick": 400, "normal": 1_000, "thorough": 6_000}
"""Variables up to which the whole fleet is one model, by effort."""
NODE_LIMITS: Final = {"quick": 10, "normal": 40, "thorough": 5_000}
"""Branch-and-bound nodes of each solve, by effort."""
SMALL_VARIABLES: Final = 400
"""Below this, a model may take SMALL_NODES whatever the effort: it is proven all the same."""
SMALL_NODES: Final = 5_000
MAX_SOLUTIONS: Final = 16
"""Solutions of one model that are brought into an order before the best of them is taken."""
MAX_RETRIES: Final = 6
"""Times that pods without an order are held where they are and the search starts anew."""


@dataclass(frozen=True, slots=True)
class RepackResult:
    """The best plan found."""

    fleet: MovableFleet
    """`where` and `placements` say where everything ends."""
    steps: tuple[Step, ...]
    """Moves in order."""
    bound: Bound

    def without(self, pods: Collection[int]) -> RepackResult:
        """Return the plan with some pods not moved, because they are evicted instead."""
        gone = set(pods)
        return replace(self, steps=tuple(step for step in self.steps if step.pod not in gone))


@dataclass(frozen=True, slots=True)
class _Found:
    """A plan with an order."""

    score: tuple[int, ...]
    fleet: MovableFleet
    steps: tuple[Step, ...]
    is_final: bool
    """Proven best."""
    bounds: tuple[float, ...] = ()
    """What no plan exceeds in each level, given the values of those before it."""


def search_repack(
    snapshot: Snapshot, request: Request, progress: Callable[[str], None] | None = None
) -> RepackResult:
    """Find moves that serve the goals of a request, and an order in which each has room.

    Args:
      snapshot: The fleet.
      request: With `move`.
      progress: Called with a line now and then.

    Raises:
      RequestError: A goal names what is not there, or the objective cannot be minimised.
    """
    result = _search(snapshot, request, progress or (lambda _: None))
    # What neither model nor decoder counts: devices one by one, spread in the order of arrival.
    fleet, bound = result.fleet, result.bound
    for find_failing in (find_unserved, find_unspread):
        for u in find_failing(fleet.problem, fleet.placements):
            del fleet.placements[u]
            bound = Bound(bound.criterion, None, None, "none")
    return replace(result, bound=bound)


def _search(snapshot: Snapshot, request: Request, say: Callable[[str], None]) -> RepackResult:
    fleet = build_fleet(snapshot, request)
    steps = _find_steps(fleet)
    idle = _Found(evaluate_plan(fleet, steps, ()), fleet, (), is_final=False)
    whole = pieces = None
    if count_variables(fleet) > SMALL_VARIABLES:
        pieces = _solve_pieces(snapshot, request, steps, say)
        if pieces is not None and _state_gap(pieces, steps).proof == "optimal":
            return RepackResult(pieces.fleet, pieces.steps, _state_gap(pieces, steps))
    whole = _solve_whole(fleet, steps, say)
    if whole is not None and whole.is_final:
        return RepackResult(whole.fleet, whole.steps, _state_gap(whole, steps))
    pieces = pieces or _solve_pieces(snapshot, request, steps, say)
    greedy = None
    if fleet.goals.frees and count_variables(fleet) > SMALL_VARIABLES:
        greedy = _solve_pieces(snapshot, request, steps, say, emptiest_first=True)
    found = [f for f in (whole, pieces, greedy, idle) if f is not None]
    best = max(found, key=lambda f: f.score)
    bounds = tuple(
        min((f.bounds[level] for f in found if level < len(f.bounds)), default=np.inf)
        for level in range(len(steps))
    )
    if best is idle:
        best = replace(best, fleet=build_fleet(snapshot, request))
    return RepackResult(best.fleet, best.steps, _state_gap(replace(best, bounds=bounds), steps))


def _solve_pieces(
    snapshot: Snapshot,
    request: Request,
    steps: Sequence[Level | MoveLevel],
    say: Callable[[str], None],
    *,
    emptiest_first: bool = False,
) -> _Found | None:
    """Serve the goals in pieces; pods for which no order is found are held where they are."""
    held: set[int] = set()
    for _ in range(MAX_RETRIES):
        fleet = build_fleet(snapshot, request, fixed=held)
        pieces = Pieces(fleet, steps, say, emptiest_first=emptiest_first)
        pieces.run()
        say("bringing the moves into an order")
        ordered = order_moves(fleet)
        if isinstance(ordered, Blocked) and not fleet.pending and fleet.goals.is_none:
            # Less fragmentation is worth having in part.
            _stop_at(fleet, ordered.steps)
            ordered = Ordered(ordered.steps, is_least=False)
        if not isinstance(ordered, Blocked) and _keeps_limits(fleet, ordered.steps):
            score = evaluate_plan(fleet, steps, ordered.steps)
            bounds = _find_bounds(steps, score, pieces.least) or _find_reached(fleet, steps, score)
            return _Found(score, fleet, ordered.steps, False, bounds)
        blocked = ordered.pods if isinstance(ordered, Blocked) else (ordered.steps[-1].pod,)
        held |= set(blocked)
        say(f"no order for {len(blocked)} moves; looking for others")
    return None


def _stop_at(fleet: MovableFleet, steps: Sequence[Step]) -> None:
    """Let a plan end where some of its moves have brought the fleet."""
    fleet.where = dict(fleet.home) | {step.pod: step.target for step in steps}
    moved = {step.pod for step in steps}
    fleet.touched = {u for u in fleet.touched if moved.issuperset(fleet.wholes[u].pods)}


def _find_bounds(
    steps: Sequence[Level | MoveLevel], score: tuple[int, ...], least: dict[str, int] | None
) -> tuple[float, ...]:
    """Return what a relaxation says of each step, where the goal is one `--free` alone."""
    if least is None or steps[0].criterion != "domainsFreed":
        return ()
    bounds: list[float] = []
    for step, value in zip(steps, score, strict=True):
        limit = least[step.criterion] * (1 if step.criterion == "domainsFreed" else -1)
        bounds.append(limit)
        if value != limit:
            break
    return tuple(bounds)


def _find_reached(
    fleet: MovableFleet, steps: Sequence[Level | MoveLevel], score: tuple[int, ...]
) -> tuple[float, ...]:
    """Return the leading steps that nothing can exceed: all is drained, placed, freed."""
    units = fleet.problem.units
    is_whole = all(
        u in fleet.placements
        and count_placed(fleet.problem, units[u], fleet.placements[u]).pods == units[u].num_pods
        for u in fleet.pending
    )
    most = {
        "drained": len(fleet.goals.drained),
        "domainsFreed": sum(goal.goal.count for goal in fleet.goals.frees),
    }
    bounds: list[float] = []
    for step, value in zip(steps, score, strict=True):
        is_full = isinstance(step, Level) and is_whole and step.sign > 0
        if not is_full and most.get(step.criterion) != value:
            break
        bounds.append(value)
    return tuple(bounds)


def _find_steps(fleet: MovableFleet) -> tuple[Level | MoveLevel, ...]:
    units = [fleet.problem.units[u] for u in fleet.pending]
    most = [Placed(u.priority, len(u.tree), u.num_pods, u.gpus) for u in units]
    return build_move_steps(fleet.request.objective, most, fleet.goals)


def _solve_whole(
    fleet: MovableFleet, steps: Sequence[Level | MoveLevel], say: Callable[[str], None]
) -> _Found | None:
    """Solve the fleet as one model where it is small; None where it is not, or nothing came."""
    effort = fleet.request.effort
    size = count_variables(fleet)
    if size > WHOLE_VARIABLES[effort]:
        return None
    limit = SMALL_NODES if size <= SMALL_VARIABLES else NODE_LIMITS[effort]
    piece = make_piece(fleet, np.arange(len(fleet.problem.free)), fleet.pending)
    model = PieceModel(fleet, piece, steps)
    best: _Found | None = None
    taken: PieceResult | None = None
    first: PieceResult | None = None
    ceiling: tuple[int, ...] | None = None
    is_final = False
    is_least = True
    """Every order so far is as short as can be."""
    for _ in range(MAX_SOLUTIONS):
        result = model.solve(limit)
        if result is None:
            is_final = model.is_infeasible and best is not None
            break
        is_proven = result.proven == len(steps)
        first = first or result
        adopt(fleet, piece, result)
        ordered = order_moves(fleet)
        exact = evaluate_plan(fleet, steps, ())
        now = () if isinstance(ordered, Blocked) else evaluate_plan(fleet, steps, ordered.steps)
        is_least = is_least and not isinstance(ordered, Blocked) and ordered.is_least
        reset(fleet)
        # What the model says of this solution, had every pod to move once only.
        ceiling = _without_detours(steps, exact, result)
        if best is not None and ceiling <= best.score:
            is_final = is_proven
            break
        if isinstance(ordered, Blocked):
            say(f"no order for {len(ordered.pods)} moves; looking for others")
        elif _keeps_limits(fleet, ordered.steps) and (best is None or now > best.score):
            best, taken = _Found(now, fleet, ordered.steps, False), result
            if now == ceiling:
                is_least = True
                is_final = is_proven
                break
        if not is_proven:
            break
        model.forbid(result)
    if best is None or taken is None or first is None:
        return None
    adopt(fleet, piece, taken)
    bounds = _read_bounds(steps, first, best.score)
    return replace(best, is_final=is_final and is_least, bounds=bounds)


def _without_detours(
    steps: Sequence[Level | MoveLevel], exact: tuple[int, ...], result: PieceResult
) -> tuple[int, ...]:
    """Return the score of a solution by the model's own count of moves."""
    return tuple(
        of_model if step.criterion in MOVE_CRITERIA else value
        for step, value, of_model in zip(steps, exact, result.score, strict=True)
    )


def _read_bounds(
    steps: Sequence[Level | MoveLevel], first: PieceResult, score: tuple[int, ...]
) -> tuple[float, ...]:
    """Return the bounds of a model, as far as they are about the same values before."""
    bounds: list[float] = []
    for level, step in enumerate(steps):
        if level >= len(first.bounds) or step.criterion == "fragmentation":
            break
        bounds.append(float(np.floor(first.bounds[level] + 1e-4)))
        if score[level] != bounds[-1]:
            break
    return tuple(bounds)


def _keeps_limits(fleet: MovableFleet, ordered: Sequence[Step]) -> bool:
    assert fleet.request.move is not None
    most = fleet.request.move.max_moves
    return most is None or len(ordered) <= most


def _state_gap(found: _Found, steps: Sequence[Level | MoveLevel]) -> Bound:
    """State the last criterion where all are proven, else the first that is not."""
    empty = sum(len(goal.kept_empty) for goal in found.fleet.goals.frees)
    named = [item.partition(":")[2] for item in found.fleet.request.objective]
    last = max((i for i, s in enumerate(steps) if s.criterion in named), default=len(steps) - 1)
    for level, step in enumerate(steps):
        # Domains that were empty before count for a goal, but not as freed.
        base = empty if step.criterion == "domainsFreed" else 0
        sign = (
            step.sign if isinstance(step, Level) else -1 if step.criterion in MOVE_CRITERIA else 1
        )
        bound = found.bounds[level] if level < len(found.bounds) else np.inf
        value = found.score[level]
        is_reached = found.is_final or value == bound
        if is_reached and level < last:
            continue
        name = "domainsFreed" if step.criterion == "drained" else step.criterion
        if is_reached:
            if step.criterion == "fragmentation":
                return Bound(name, -value, 0.0, "optimal")
            return Bound(name, (value - base) * sign, 0.0, "optimal")
        if step.criterion == "drained" or not np.isfinite(bound):
            return Bound(name, None, None, "none")
        gap = round((bound - value) / max(abs(bound - base), 1), 6)
        return Bound(name, (int(bound) - base) * sign, gap, "bound")
    return Bound(steps[0].criterion, None, None, "none")
