"""The pipeline of one job: problem, search, answer, verification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.answer import (
    assign_pods,
    count_criteria,
    describe_bound,
    describe_groups,
    find_conditions,
    find_idle,
)
from optimizer.problem import build_problem
from optimizer.search.place import search_placement
from optimizer.verify import verify_plan
from topology.errors import RequestError
from topology.graph import check_topology
from topology.model import PodFlag
from topology.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["make_plan"]


def make_plan(
    snapshot: Snapshot, request: Request, progress: Callable[[str], None] | None = None
) -> Plan:
    """Answer `place` or `explain` for a snapshot.

    Args:
      snapshot: Read whole; never changed.
      request: What to plan, by which objective, how hard.
      progress: Called with a line now and then.

    Returns:
      A plan with the verdict of the independent verifier in `verification`.

    Raises:
      RequestError: The request names a group that does not exist or a criterion that is unknown.
    """
    from data.digest import digest_snapshot

    say = progress or (lambda _: None)
    _check_groups(snapshot, request)
    problem = build_problem(snapshot, request)
    result = search_placement(problem, request, say)
    placed = assign_pods(problem, result)
    groups = describe_groups(snapshot, request, problem, placed, say)
    counted = [g for g in snapshot.groups if g.kind == "group"]
    plan = Plan(
        request=request,
        snapshot={
            "digest": digest_snapshot(snapshot),
            "release": request.release,
            "nodes": len(snapshot.nodes),
            "pods": len(snapshot.pods),
            "groups": len(counted),
        },
        groups=groups,
        criteria=count_criteria(snapshot, groups, placed),
        bound=describe_bound(result),
        conditional=find_conditions(snapshot, problem),
        warnings=(*snapshot.warnings, *check_topology(snapshot), *find_idle(problem)),
        errors=snapshot.errors,
    )
    say("verifying the plan")
    return plan.with_verification(verify_plan(snapshot, plan))


def _check_groups(snapshot: Snapshot, request: Request) -> None:
    if request.groups is None:
        return
    known = {g.ref for g in snapshot.groups}
    missing = sorted(set(request.groups) - known)
    if missing:
        own = {
            ref
            for ref, flags in zip(snapshot.pods.refs, snapshot.pods.flags, strict=True)
            if not flags & PodFlag.WAITING
        }
        missing = [ref for ref in missing if ref not in own]
    if missing:
        raise RequestError(f"--group {missing[0]}: no such group in the snapshot")
