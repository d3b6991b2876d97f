"""Which moves serve the goals best: targets by exact models, then an order that has room.

Small fleets are one model. A solution whose moves need more steps than it counted (a circle broken
by a temporary node), or for which no order is found, is forbidden and the next one asked for, until
none can be better than the best that is ordered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.objective import Level, Placed
from optimizer.repack.apply import adopt, reset
from optimizer.repack.fleet import build_fleet
from optimizer.repack.large import improve_in_pieces
from optimizer.repack.model import PieceModel
from optimizer.repack.order import Blocked, order_moves
from optimizer.repack.pieces import make_whole_piece
from optimizer.repack.steps import MOVE_CRITERIA, MoveLevel, build_move_steps
from topology.plan import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.model import PieceResult
    from optimizer.repack.order import Step
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["RepackResult", "search_repack"]

WHOLE_VARIABLES: Final = {"quick": 1_500, "normal": 4_000, "thorough": 12_000}
"""Variables up to which the whole fleet is one model, by effort."""
NODE_LIMITS: Final = {"quick": 500, "normal": 5_000, "thorough": 50_000}
"""Branch-and-bound nodes of each solve, by effort."""
MAX_SOLUTIONS: Final = 16
"""Solutions of one model that are brought into an order before the best of them is taken."""
MAX_RETRIES: Final = 4
"""Times that pods without an order are held where they are and the search starts anew."""


@dataclass(frozen=True, slots=True)
class RepackResult:
    """The best plan found."""

    fleet: MovableFleet
    """`where` and `placements` say where everything ends."""
    steps: tuple[Step, ...]
    """Moves in order."""
    bound: Bound


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
    say = progress or (lambda _: None)
    held: set[int] = set()
    for _ in range(MAX_RETRIES):
        fleet = build_fleet(snapshot, request, fixed=held)
        steps = _find_steps(fleet)
        found = _solve_whole(fleet, steps, say)
        if found is not None:
            return found
        improve_in_pieces(fleet, steps, NODE_LIMITS[request.effort], say)
        say("bringing the moves into an order")
        ordered = order_moves(fleet)
        if not isinstance(ordered, Blocked):
            return RepackResult(fleet, ordered, _state_gap(fleet, steps, ordered, None))
        held |= set(ordered.pods)
        say(f"no order for {len(ordered.pods)} moves; looking for others")
    fleet = build_fleet(snapshot, request, fixed=held)
    return RepackResult(fleet, (), Bound(_name(_find_steps(fleet)[0]), None, None, "none"))


def _find_steps(fleet: MovableFleet) -> tuple[Level | MoveLevel, ...]:
    units = [fleet.problem.units[u] for u in fleet.pending]
    most = [Placed(u.priority, len(u.tree), u.num_pods, u.gpus) for u in units]
    return build_move_steps(fleet.request.objective, most, fleet.goals)


def _solve_whole(
    fleet: MovableFleet, steps: Sequence[Level | MoveLevel], say: Callable[[str], None]
) -> RepackResult | None:
    """Solve the fleet as one model where it is small; None where it is not, or nothing came."""
    effort = fleet.request.effort
    piece = make_whole_piece(fleet, WHOLE_VARIABLES[effort])
    if piece is None:
        return None
    model = PieceModel(fleet, piece, steps)
    best: tuple[tuple[int, ...], PieceResult, tuple[Step, ...]] | None = None
    ceiling: PieceResult | None = None
    is_final = False
    for _ in range(MAX_SOLUTIONS):
        result = model.solve(NODE_LIMITS[effort])
        if result is None:
            is_final = ceiling is not None
            break
        ceiling = ceiling or result
        is_final = result.proven == len(steps)
        if best is not None and result.score <= best[0]:
            break
        adopt(fleet, piece, result)
        ordered = order_moves(fleet)
        reset(fleet)
        is_final = False
        if isinstance(ordered, Blocked):
            say(f"no order for {len(ordered.pods)} moves; looking for others")
        else:
            score = _correct(fleet, steps, result.score, ordered)
            if _keeps_limits(fleet, ordered) and (best is None or score > best[0]):
                best = score, result, ordered
            if score == result.score:
                is_final = result.proven == len(steps)
                break
        model.forbid(result)
    if best is None or ceiling is None:
        return None
    adopt(fleet, piece, best[1])
    return RepackResult(
        fleet, best[2], _state_gap(fleet, steps, best[2], ceiling, best[0], is_final=is_final)
    )


def _correct(
    fleet: MovableFleet,
    steps: Sequence[Level | MoveLevel],
    score: tuple[int, ...],
    ordered: Sequence[Step],
) -> tuple[int, ...]:
    """Return a score with the steps that the order really takes."""
    gpus = {p: fleet.snapshot.pods.specs[fleet.snapshot.pods.spec[p]].gpus for p in fleet.home}
    taken = {"moves": len(ordered), "movedGpus": sum(gpus[s.pod] for s in ordered)}
    return tuple(
        -taken[step.criterion] if step.criterion in taken else value
        for step, value in zip(steps, score, strict=True)
    )


def _keeps_limits(fleet: MovableFleet, ordered: Sequence[Step]) -> bool:
    assert fleet.request.move is not None
    most = fleet.request.move.max_moves
    return most is None or len(ordered) <= most


def _name(step: Level | MoveLevel) -> str:
    return step.criterion if step.criterion != "drained" else "domainsFreed"


def _state_gap(
    fleet: MovableFleet,
    steps: Sequence[Level | MoveLevel],
    ordered: Sequence[Step],
    ceiling: PieceResult | None,
    score: tuple[int, ...] = (),
    *,
    is_final: bool = False,
) -> Bound:
    """State the last criterion where all are proven, else the first that is not."""
    shown = [s for s in steps if not (isinstance(s, MoveLevel) and s.criterion == "drained")]
    if ceiling is None or not score:
        return Bound(_name(shown[0]), None, None, "none")
    sign = {c: -1 for c in MOVE_CRITERIA}
    for level, step in enumerate(steps):
        value = score[level]
        if is_final or (level < ceiling.proven and value == ceiling.score[level]):
            continue
        factor = step.sign if isinstance(step, Level) else sign.get(step.criterion, 1)
        bound = ceiling.bounds[level] if level < len(ceiling.bounds) else np.inf
        if not np.isfinite(bound) or step.criterion == "fragmentation":
            return Bound(_name(step), None, None, "none")
        limit = int(np.floor(bound + 1e-4))
        gap = round((limit - value) / max(abs(limit), 1), 6)
        return Bound(_name(step), limit * factor, gap, "bound")
    last = steps[-1]
    factor = last.sign if isinstance(last, Level) else sign.get(last.criterion, 1)
    return Bound(_name(last), score[-1] * factor, 0.0, "optimal")
