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
from optimizer.repack.answer import (
    count_moves,
    describe_moves,
    describe_outcomes,
    find_placed,
)
from optimizer.repack.drain import (
    close_nodes,
    describe_drain,
    find_leftovers,
    find_refs,
    place_again,
    release,
)
from optimizer.repack.resume import compare_plan, keep_rest, renew_request
from optimizer.repack.search import search_repack
from optimizer.search.place import search_placement
from optimizer.search.preempt import search_preemption
from optimizer.verify import verify_plan
from topology.errors import RequestError
from topology.graph import check_topology
from topology.model import PodFlag
from topology.plan import Eviction, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optimizer.problem import Problem
    from topology.model import Snapshot
    from topology.move_request import GoalOutcome
    from topology.plan import Bound, Move, Request

__all__ = ["make_plan", "resume_plan"]


def make_plan(
    snapshot: Snapshot, request: Request, progress: Callable[[str], None] | None = None
) -> Plan:
    """Answer `place`, `preempt`, `explain` or `repack` for a snapshot.

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
    found = _search(snapshot, request, say)
    groups = describe_groups(found.after, request, found.problem, found.placed, say)
    plan = Plan(
        request=request,
        snapshot=_summarise(snapshot, request),
        groups=groups,
        evictions=found.evictions,
        moves=found.moves,
        goals=found.goals,
        criteria={**count_criteria(found.after, groups, found.placed), **found.cost},
        bound=found.bound,
        conditional=find_conditions(snapshot, found.problem),
        warnings=(*snapshot.warnings, *check_topology(snapshot), *find_idle(found.problem)),
        errors=snapshot.errors,
    )
    say("verifying the plan")
    return plan.with_verification(verify_plan(snapshot, plan))


def _summarise(snapshot: Snapshot, request: Request) -> dict[str, object]:
    from data.digest import digest_snapshot

    return {
        "digest": digest_snapshot(snapshot),
        "release": request.release,
        "nodes": len(snapshot.nodes),
        "pods": len(snapshot.pods),
        "groups": sum(g.kind == "group" for g in snapshot.groups),
    }


def resume_plan(
    snapshot: Snapshot, plan: Plan, progress: Callable[[str], None] | None = None
) -> Plan:
    """Plan the rest of a re-packing that was carried out in part.

    Steps that are done are dropped. What is left is kept where it still holds from the first to the
    last step; else the same question is asked of the newer snapshot. The first warning says which.

    Args:
      snapshot: The fleet as it is now.
      plan: Of `repack`, for an older snapshot.
      progress: Called with a line now and then.

    Raises:
      RequestError: The plan moves nothing because it is of another command.
    """
    if plan.request.move is None:
        raise RequestError(f"--resume: is a plan of {plan.request.command}; give one of repack")
    found = compare_plan(snapshot, plan)
    request, dropped = renew_request(snapshot, plan.request)
    count = f"{found.done} of {len(plan.moves)} steps are done"
    changes = (*found.changes, *dropped)
    if not changes:
        rest = keep_rest(snapshot, plan, found, _summarise(snapshot, request))
        verdict = verify_plan(snapshot, rest)
        if verdict.is_valid:
            said = f"{count}; the other {len(found.left)} still hold and are kept"
            return replace(rest, warnings=(said, *rest.warnings)).with_verification(verdict)
        first = verdict.violations[0]
        changes = (f"{first.object}: {first.rule}: wanted {first.wanted}, found {first.found}",)
    anew = make_plan(snapshot, request, progress)
    said = f"{count}; the rest is planned anew, because {'; '.join(changes)}"
    return replace(anew, warnings=(said, *anew.warnings))


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
    moves: tuple[Move, ...] = ()
    goals: tuple[GoalOutcome, ...] = ()


def _search(snapshot: Snapshot, request: Request, say: Callable[[str], None]) -> _Found:
    if request.move is not None:
        return _search_moves(snapshot, request, say)
    problem = build_problem(snapshot, request)
    if not request.preempt:
        placing = search_placement(problem, request, say)
        return _Found(snapshot, problem, assign_pods(problem, placing), describe_bound(placing))
    result = search_preemption(snapshot, request, problem, say)
    if result.evictions:
        problem = build_problem(result.after, request)
    evictions = describe_evictions(snapshot, result)
    return _Found(
        result.after, problem, result.placed, result.bound, evictions, result.cost.to_criteria()
    )


def _search_moves(snapshot: Snapshot, request: Request, say: Callable[[str], None]) -> _Found:
    assert request.move is not None
    result = search_repack(snapshot, request, say)
    placed = find_placed(result)
    evicted = find_leftovers(result) if request.move.drain else ()
    result = result.without(evicted)
    after = close_nodes(result.fleet.moved_snapshot(), request.move.drain)
    refs = (*(request.groups or ()), *find_refs(snapshot, evicted))
    if evicted:
        say(f"placing {len(evicted)} evicted pods anew")
        after = release(after, evicted)
        placed |= place_again(after, request, placed, refs, say)
    return _Found(
        after,
        build_problem(after, request, only=refs),
        placed,
        result.bound,
        describe_drain(snapshot, evicted),
        cost=count_moves(result, placed),
        moves=describe_moves(result),
        goals=describe_outcomes(result, placed, evicted),
    )


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
