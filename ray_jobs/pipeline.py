"""The pipeline of one job: problem, search, answer, verification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from optimizer.answer import (
    assign_pods,
    count_criteria,
    describe_bound,
    describe_evictions,
    describe_groups,
    find_conditions,
    find_idle,
)
from optimizer.problem import build_problem
from optimizer.replay.compare import count_savings, score_plan
from optimizer.replay.queue import replay_queue
from optimizer.search.place import search_placement
from optimizer.search.preempt import search_preemption
from optimizer.verify import verify_plan
from topology.errors import RequestError
from topology.graph import check_topology
from topology.model import PodFlag
from topology.plan import Bound, Comparison, Eviction, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optimizer.problem import Problem, UnitKey
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["make_plan"]


def make_plan(
    snapshot: Snapshot, request: Request, progress: Callable[[str], None] | None = None
) -> Plan:
    """Answer `place`, `preempt` or `explain` for a snapshot.

    Args:
      snapshot: Read whole; never changed.
      request: What to plan, by which objective, how hard.
      progress: Called with a line now and then.

    Returns:
      A plan with the verdict of the independent verifier in `verification`.

    Raises:
      RequestError: The request names a group that does not exist or a criterion that is unknown.
    """
    say = progress or (lambda _: None)
    _check_groups(snapshot, request)
    plan = _answer(snapshot, request, _search(snapshot, request, say), say)
    return _compare(snapshot, request, plan, say) if request.policy == "compare" else plan


def _answer(
    snapshot: Snapshot, request: Request, found: _Found, say: Callable[[str], None]
) -> Plan:
    """Put what a search found into names, and verify it."""
    from data.digest import digest_snapshot

    groups = describe_groups(
        found.after, request, found.problem, found.placed, say, cycles=found.cycles
    )
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
        evictions=found.evictions,
        criteria={**count_criteria(found.after, groups, found.placed), **found.cost},
        bound=found.bound,
        conditional=find_conditions(snapshot, found.problem),
        warnings=(*snapshot.warnings, *check_topology(snapshot), *find_idle(found.problem)),
        errors=snapshot.errors,
    )
    say("verifying the plan")
    return plan.with_verification(verify_plan(snapshot, plan))


class _Found(NamedTuple):
    """What a search says, in indices."""

    after: Snapshot
    """The fleet without what would be evicted."""
    problem: Problem
    """Of that fleet."""
    placed: Mapping[int, int]
    bound: Bound
    evictions: tuple[Eviction, ...] = ()
    cost: Mapping[str, int] = {}
    cycles: Mapping[UnitKey, str] = {}
    """What kube-scheduler's own cycles said of units that they left out."""


def _search(snapshot: Snapshot, request: Request, say: Callable[[str], None]) -> _Found:
    problem = build_problem(snapshot, request)
    if request.policy == "replay":
        return _replay(snapshot, request, problem, say)
    if not request.preempt:
        placing = search_placement(problem, request, say)
        return _Found(snapshot, problem, assign_pods(problem, placing), describe_bound(placing))
    result = search_preemption(snapshot, request, problem, say)
    if result.evictions:
        problem = build_problem(result.after, request)
    evictions = describe_evictions(snapshot, result.evictions)
    return _Found(
        result.after, problem, result.placed, result.bound, evictions, result.cost.to_criteria()
    )


def _replay(
    snapshot: Snapshot, request: Request, problem: Problem, say: Callable[[str], None]
) -> _Found:
    result = replay_queue(snapshot, request, problem, say)
    if result.evictions:
        problem = build_problem(result.after, request)
    return _Found(
        result.after,
        problem,
        result.placed,
        Bound("gpusPlaced", None, None, "none"),
        describe_evictions(snapshot, result.evictions),
        result.cost.to_criteria() if request.preempt else {},
        result.messages,
    )


def _compare(snapshot: Snapshot, request: Request, plan: Plan, say: Callable[[str], None]) -> Plan:
    """Set what kube-scheduler itself would do beside a plan; the plan is never the worse one."""
    asked = replace(request, policy="replay")
    problem = build_problem(snapshot, request)
    found = _replay(snapshot, asked, problem, say)
    replayed = _answer(snapshot, asked, found, say)
    if score_plan(problem, request, replayed) > score_plan(problem, request, plan):
        # The scheduler may evict what the search spares; only a plan of the search's rules will do.
        adopted = replace(replayed, request=request)
        verdict = verify_plan(snapshot, adopted)
        if verdict.is_valid:
            said = "the search found nothing as good as kube-scheduler's own plan, which is kept"
            plan = replace(adopted, verification=verdict, warnings=(*plan.warnings, said))
    return replace(plan, comparison=Comparison(replayed, count_savings(plan, replayed)))


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
