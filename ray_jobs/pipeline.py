"""The pipeline of one job: problem, search, answer, verification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from optimizer.answer import (
    assign_pods,
    count_criteria,
    describe_bound,
    describe_evictions,
    describe_groups,
    find_conditions,
    find_idle,
)
from optimizer.broken_gangs import describe_broken_gangs
from optimizer.devices.naming import name_devices
from optimizer.drain import drain_nodes
from optimizer.lost_work import describe_unstarted
from optimizer.problem import build_problem
from optimizer.replay.compare import count_savings, score_plan
from optimizer.replay.queue import replay_queue
from optimizer.resize import plan_resize
from optimizer.search.parts import is_large
from optimizer.search.place import search_placement
from optimizer.search.preempt import search_preemption
from optimizer.verify import verify_plan
from optimizer.victims import count_budgets
from ray_jobs.parts import place_in_parts
from topology.errors import RequestError
from topology.graph import check_topology
from topology.model import PodFlag
from topology.owners import planned_ref
from topology.plan import Bound, Comparison, Eviction, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from optimizer.drain import Drained
    from optimizer.problem import Problem, UnitKey
    from optimizer.search.place import PlaceResult
    from topology.model import Snapshot
    from topology.move_request import GoalOutcome
    from topology.plan import Move, Request

__all__ = [
    "Found",
    "check_groups",
    "count_drained",
    "describe_snapshot",
    "finish_plan",
    "join_groups",
    "make_plan",
    "prove_nothing",
]

MAX_REPLAYED: Final = 20_000_000
"""Nodes times waiting pods up to which kube-scheduler's plan is tried beside an unproven one: some
seconds of replay at most."""


def make_plan(
    snapshot: Snapshot,
    request: Request,
    progress: Callable[[str], None] | None = None,
    *,
    ran: Collection[str] = (),
    workers: str | int | None = None,
) -> Plan:
    """Answer `place`, `preempt` or `explain` for a snapshot.

    Args:
      snapshot: Read whole; never changed.
      request: What to plan, by which objective, how hard.
      progress: Called with a line now and then.
      ran: Pods that wait because something was taken from under them; they go first.
      workers: Who searches the parts of a large fleet, as for `ray_jobs.fan_out.map_ordered`; the
        answer is the same for any.

    Returns:
      A plan with the verdict of the independent verifier in `verification`.

    Raises:
      RequestError: The request names a group that does not exist or a criterion that is unknown,
        or the workers cannot be had.
    """
    say = progress or (lambda _: None)
    if request.resize is not None:
        return _plan_resize(snapshot, request, say)
    check_groups(snapshot, request)
    if (request.move is not None and request.move.drain) or ran:
        found = _search_again(snapshot, request, ran, say)
    else:
        found = _search(snapshot, request, say, workers=workers)
    plan = finish_plan(snapshot, request, found, say)
    if request.policy == "compare" or _may_lose(snapshot, request, plan):
        return _compare(snapshot, request, plan, say)
    return plan


def finish_plan(
    snapshot: Snapshot,
    request: Request,
    found: Found,
    say: Callable[[str], None],
    *,
    for_sums: bool = False,
) -> Plan:
    """Put what a search found into names, and verify it.

    Args:
      snapshot: The one that was asked.
      request: What was asked.
      found: Placements, victims and their problem.
      say: Called with a line now and then.
      for_sums: Leave out what takes long and is only read: causes and the digest.
    """
    notes: list[str] = []
    groups = describe_groups(
        found.after,
        request,
        found.problem,
        found.placed,
        say,
        found.cycles,
        notes,
        causes=not for_sums,
    )
    groups = name_devices(found.after, found.problem, found.placed, groups)
    plan = Plan(
        request=request,
        snapshot=describe_snapshot(snapshot, request, with_digest=not for_sums),
        groups=groups,
        evictions=found.evictions,
        moves=found.moves,
        goals=found.goals,
        criteria={**count_criteria(found.after, groups, found.placed), **found.cost},
        bound=found.bound,
        conditional=find_conditions(snapshot, found.problem),
        warnings=(
            *snapshot.warnings,
            *check_topology(snapshot),
            *find_idle(found.problem),
            *_warn_of_reclaim(request),
            *found.warnings,
            *notes,
            *_warn_of_broken_gangs(snapshot, found.after, found.placed, found.evictions),
            *_warn_about_costs(snapshot, request),
        ),
        errors=snapshot.errors,
    )
    say("verifying the plan")
    return plan.with_verification(verify_plan(snapshot, plan))


def _plan_resize(snapshot: Snapshot, request: Request, say: Callable[[str], None]) -> Plan:
    found = plan_resize(snapshot, request, say)
    plan = Plan(
        request=request,
        snapshot=describe_snapshot(snapshot, request),
        evictions=found.evictions,
        criteria={**count_criteria(found.after, (), {}), **found.cost},
        bound=found.bound,
        warnings=(
            *snapshot.warnings,
            *found.warnings,
            *_warn_of_broken_gangs(snapshot, found.after, {}, found.evictions),
            *_warn_about_costs(snapshot, request),
        ),
        errors=snapshot.errors,
        resize=found.plan,
    )
    say("verifying the plan")
    return plan.with_verification(verify_plan(snapshot, plan))


def describe_snapshot(
    snapshot: Snapshot, request: Request, *, with_digest: bool = True
) -> dict[str, Any]:
    """Return what a plan says of the snapshot that was asked."""
    from data.digest import digest_snapshot

    return {
        "digest": digest_snapshot(snapshot) if with_digest else "",
        "release": request.release,
        "nodes": len(snapshot.nodes),
        "pods": len(snapshot.pods),
        "groups": sum(g.kind == "group" for g in snapshot.groups),
    }


class Found(NamedTuple):
    """What a search says, in indices."""

    after: Snapshot
    """The fleet without what would be evicted."""
    problem: Problem
    """Of that fleet."""
    placed: Mapping[int, int]
    bound: Bound
    evictions: tuple[Eviction, ...] = ()
    cost: Mapping[str, int] = {}
    warnings: tuple[str, ...] = ()
    cycles: Mapping[UnitKey, str] = {}
    """What kube-scheduler's own cycles said of units that they left out."""
    moves: tuple[Move, ...] = ()
    goals: tuple[GoalOutcome, ...] = ()


def _search(
    snapshot: Snapshot,
    request: Request,
    say: Callable[[str], None],
    placed: Mapping[int, int] | None = None,
    *,
    workers: str | int | None = None,
) -> Found:
    """Search for the request; pods of `placed` have their nodes already and are part of it."""
    problem = build_problem(snapshot, request)
    if placed:
        left = build_problem(snapshot, request, placed=placed)
        more = search_placement(left, request, say)
        return Found(snapshot, problem, {**placed, **assign_pods(left, more)}, prove_nothing(more))
    if request.policy == "replay":
        return _replay(snapshot, request, problem, say)
    if not request.preempt and is_large(problem):
        parts = place_in_parts(snapshot, request, problem, say, workers=workers)
        return Found(snapshot, problem, parts.placed, parts.bound, warnings=parts.warnings)
    if not request.preempt:
        placing = search_placement(problem, request, say)
        return Found(snapshot, problem, assign_pods(problem, placing), describe_bound(placing))
    result = search_preemption(snapshot, request, problem, say)
    if result.evictions:
        problem = build_problem(result.after, request)
    evictions = describe_evictions(snapshot, result.evictions)
    return Found(
        result.after, problem, result.placed, result.bound, evictions, result.cost.to_criteria()
    )


def _warn_of_reclaim(request: Request) -> list[str]:
    if request.dra_reclaim == "none":
        return []
    return [
        f"--dra-reclaim {request.dra_reclaim}: claims of what would be evicted count as released; "
        "kube-scheduler 1.37 does not do this, so it would not preempt for their devices"
    ]


def _warn_of_broken_gangs(
    snapshot: Snapshot,
    after: Snapshot,
    placed: Mapping[int, int],
    evictions: Sequence[Eviction],
) -> list[str]:
    if not evictions:
        return []
    line = describe_broken_gangs(snapshot, after, placed)
    return [] if line is None else [line]


def _warn_about_costs(snapshot: Snapshot, request: Request) -> list[str]:
    if not any(item.endswith(":gpuSecondsLost") for item in request.objective):
        return []
    line = describe_unstarted(snapshot)
    return [] if line is None else [line]


def prove_nothing(result: PlaceResult) -> Bound:
    """Of a plan made in turns nothing is proven."""
    return Bound(describe_bound(result).criterion, None, None, "none")


def _search_again(
    snapshot: Snapshot, request: Request, ran: Collection[str], say: Callable[[str], None]
) -> Found:
    """Place what a drain takes away, and what ran before, along with what is asked for.

    All are placed together; where that leaves some of what ran without a node, it is placed alone
    first.
    """
    drained = drain_nodes(snapshot, request)
    request = join_groups(request, drained.groups)
    found = _search(drained.after, request, say)
    pods = drained.after.pods
    names = {*ran, *(eviction.pod for eviction in drained.evictions)}
    back = {p for p in np.flatnonzero(pods.is_pending).tolist() if pods.refs[p] in names}
    if not back <= found.placed.keys():
        say("placing what ran before first")
        alone = sorted({planned_ref(drained.after, p) for p in back})
        problem = build_problem(drained.after, request, only=alone)
        first = assign_pods(problem, search_placement(problem, request, say))
        if back & first.keys() > back & found.placed.keys():
            found = _search(drained.after, request, say, first)
    return found._replace(
        evictions=(*drained.evictions, *found.evictions),
        cost={**found.cost, **count_drained(snapshot, drained, found.evictions)},
        warnings=(*drained.warnings, *found.warnings),
        goals=drained.goals,
    )


def join_groups(request: Request, more: Sequence[str]) -> Request:
    """Return the request with more groups to place, where it names any."""
    if request.groups is None:
        return request
    return replace(request, groups=tuple(sorted({*request.groups, *more})))


def count_drained(
    snapshot: Snapshot, drained: Drained, others: Sequence[Eviction] = ()
) -> dict[str, int]:
    """Count what a drain and other evictions together take from disruption budgets."""
    evictions = (*drained.evictions, *others)
    index = {ref: p for p, ref in enumerate(snapshot.pods.refs)} if evictions else {}
    counts = count_budgets(snapshot, [index[e.pod] for e in evictions]) if evictions else ()
    return {
        "pdbViolations": sum(
            max(0, count - max(snapshot.budgets[b].allowed, 0)) for b, count in counts
        )
    }


def _replay(
    snapshot: Snapshot, request: Request, problem: Problem, say: Callable[[str], None]
) -> Found:
    result = replay_queue(snapshot, request, problem, say)
    if result.evictions:
        problem = build_problem(result.after, request)
    return Found(
        result.after,
        problem,
        result.placed,
        Bound("gpusPlaced", None, None, "none"),
        describe_evictions(snapshot, result.evictions),
        result.cost.to_criteria() if request.preempt else {},
        cycles=result.messages,
    )


def _may_lose(snapshot: Snapshot, request: Request, plan: Plan) -> bool:
    """Tell whether kube-scheduler's own plan may be better, and is worth trying.

    Where preemptors take turns, one may free what lower groups cannot evict for themselves.
    """
    size = len(snapshot.nodes) * int(snapshot.pods.is_pending.sum())
    return (
        request.preempt
        and request.policy == "optimize"
        and request.command != "explain"
        and request.move is None
        and plan.bound.proof != "optimal"
        and size <= MAX_REPLAYED
    )


def _compare(snapshot: Snapshot, request: Request, plan: Plan, say: Callable[[str], None]) -> Plan:
    """Hold what kube-scheduler itself would do against a plan; the better one is the answer.

    With policy compare both are in it.
    """
    asked = replace(request, policy="replay")
    problem = build_problem(snapshot, request)
    say("replaying kube-scheduler")
    found = _replay(snapshot, asked, problem, say)
    replayed = finish_plan(snapshot, asked, found, say)
    if score_plan(problem, request, replayed) > score_plan(problem, request, plan):
        # The scheduler may evict what the search spares; only a plan of the search's rules will do.
        adopted = replace(replayed, request=request)
        verdict = verify_plan(snapshot, adopted)
        if verdict.is_valid:
            said = "the search found nothing as good as kube-scheduler's own plan, which is kept"
            plan = replace(adopted, verification=verdict, warnings=(*plan.warnings, said))
    if request.policy != "compare":
        return plan
    return replace(plan, comparison=Comparison(replayed, count_savings(plan, replayed)))


def check_groups(snapshot: Snapshot, request: Request) -> None:
    """Refuse a request for a group that is not there.

    Raises:
      RequestError: Its reference.
    """
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
