"""Migration plans asked for in tests; each is verified, and so is every prefix of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gangplan
from optimizer.verify import verify_plan

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan


def ask_moves(snapshot: Snapshot, *groups: str, **options: Any) -> Plan:
    """Plan moves; the plan passes the verifier wherever it is interrupted."""
    plan = gangplan.repack(snapshot, groups, **options)
    assert plan.verification is not None
    assert plan.verification.violations == ()
    assert find_bad_prefixes(snapshot, plan) == []
    return plan


def find_bad_prefixes(snapshot: Snapshot, plan: Plan) -> list[int]:
    """Lengths at which an interrupted plan would leave a fleet that breaks a rule.

    A restart is interrupted between waves: within one, units are down by design.
    """
    assert plan.request.move is not None
    is_live = plan.request.move.mode == "live"
    ends = [
        i
        for i in range(len(plan.moves) + 1)
        if is_live or i in (0, len(plan.moves)) or plan.moves[i].wave != plan.moves[i - 1].wave
    ]
    # What is placed and reached comes after the last move.
    request = replace(plan.request, move=replace(plan.request.move, free=(), drain=()))
    whole = replace(plan, request=request, groups=(), goals=(), criteria={}, evictions=())
    return [
        end
        for end in ends
        if not verify_plan(snapshot, replace(whole, moves=plan.moves[:end])).is_valid
    ]


def list_moves(plan: Plan) -> list[tuple[int, str, str, str]]:
    """(wave, pod without its namespace, from, to) of every step."""
    return [(m.wave, m.pod.partition("/")[2], m.source, m.target) for m in plan.moves]


def list_goals(plan: Plan) -> list[tuple[str, int, int]]:
    """(goal, reached, wanted)."""
    return [(goal.goal, goal.reached, goal.wanted) for goal in plan.goals]
