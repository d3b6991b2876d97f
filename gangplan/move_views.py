"""A migration plan as tables: goals, what is placed, waves of moves, what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplan.tables import count, format_table, shorten
from gangplan.views import show_plan

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Move, Plan

__all__ = ["name_moves", "show_moves"]


def name_moves(plan: Plan) -> list[str]:
    """Return the pods that would move, each once, in the order of the plan."""
    return list(dict.fromkeys(move.pod for move in plan.moves))


def show_moves(snapshot: Snapshot, plan: Plan, *, wide: bool) -> str:
    """Return the waves, one row for each unit, or for each pod where wide, then goals and cost."""
    blocks = [_show_waves(snapshot, plan, wide=wide)]
    if plan.goals:
        rows = [(goal.goal, f"{goal.reached} of {goal.wanted}", goal.reason) for goal in plan.goals]
        blocks.append(format_table(("GOAL", "EMPTY", "REASON"), rows))
    return "\n\n".join([*blocks, show_plan(snapshot, plan, wide=wide)])


def _show_waves(snapshot: Snapshot, plan: Plan, *, wide: bool) -> str:
    gpus = {
        ref: snapshot.pods.specs[x].gpus
        for ref, x in zip(snapshot.pods.refs, snapshot.pods.spec.tolist(), strict=True)
    }
    waves = plan.moves[-1].wave if plan.moves else 0
    total = (
        count(waves, "wave"),
        "*",
        count(len(plan.moves), "move"),
        sum(gpus[m.pod] for m in plan.moves),
        count(len({m.source for m in plan.moves}), "node"),
        count(len({m.target for m in plan.moves}), "node"),
        plan.moves[0].mode if plan.moves else None,
    )
    rows: list[tuple[object, ...]] = [total]
    units: dict[tuple[int, str], list[Move]] = {}
    for move in plan.moves:
        name = move.pod if wide or move.group is None else move.group
        units.setdefault((move.wave, name), []).append(move)
    most = 99 if wide else 3
    for (wave, name), moves in units.items():
        rows.append(
            (
                wave,
                name,
                count(len(moves), "move"),
                sum(gpus[m.pod] for m in moves),
                shorten(sorted({m.source for m in moves}), most),
                shorten(sorted({m.target for m in moves}), most),
                moves[0].mode,
            )
        )
    return format_table(("WAVE", "WOULD MOVE", "MOVES", "GPUS", "FROM", "TO", "HOW"), rows)
