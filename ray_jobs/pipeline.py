"""The pipeline of one job: problem, search, answer, verification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

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
from optimizer.drain import drain_nodes
from optimizer.problem import build_problem
from optimizer.search.place import search_placement
from optimizer.search.preempt import search_preemption
from optimizer.verify import verify_plan
from optimizer.victims import count_budgets
from topology.errors import RequestError
from topology.graph import check_topology
from topology.model import PodFlag
from topology.plan import Bound, Eviction, Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from optimizer.problem import Problem
    from optimizer.search.place import PlaceResult
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
    from data.digest import digest_snapshot

    say = progress or (lambda _: None)
    _check_groups(snapshot, request)
    found = _search_drained(snapshot, request, say) if request.drain else None
    found = found or _search(snapshot, request, say)
    groups = describe_groups(found.after, request, found.problem, found.placed, say)
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
        warnings=(
            *snapshot.warnings,
            *check_topology(snapshot),
            *find_idle(found.problem),
            *found.warnings,
        ),
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
    warnings: tuple[str, ...] = ()


def _search(
    snapshot: Snapshot,
    request: Request,
    say: Callable[[str], None],
    placed: Mapping[int, int] | None = None,
) -> _Found:
    """Search for the request; pods of `placed` have their nodes already and are part of it."""
    problem = build_problem(snapshot, request)
    if placed:
        left = build_problem(snapshot, request, placed=placed)
        more = search_placement(left, request, say)
        return _Found(
            snapshot, problem, {**placed, **assign_pods(left, more)}, _prove_nothing(more)
        )
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


def _prove_nothing(result: PlaceResult) -> Bound:
    """Of a plan made in turns nothing is proven."""
    return Bound(describe_bound(result).criterion, None, None, "none")


def _search_drained(snapshot: Snapshot, request: Request, say: Callable[[str], None]) -> _Found:
    """Place what a drain takes away along with what is asked for, and before it.

    All are placed together; where that leaves some of the drained work without a node, it is placed
    alone first.
    """
    drained = drain_nodes(snapshot, request)
    if request.groups is not None:
        request = replace(request, groups=tuple(sorted({*request.groups, *drained.groups})))
    found = _search(drained.after, request, say)
    waiting = np.flatnonzero(drained.after.pods.is_pending)
    back = {p for p in waiting.tolist() if snapshot.pods.node[p] >= 0}
    if not back <= found.placed.keys():
        say("placing what the drain takes away first")
        problem = build_problem(drained.after, request, only=drained.groups)
        first = assign_pods(problem, search_placement(problem, request, say))
        if back & first.keys() > back & found.placed.keys():
            found = _search(drained.after, request, say, first)
    gone = [snapshot.pods.refs.index(e.pod) for e in (*drained.evictions, *found.evictions)]
    excess = sum(
        max(0, count - max(snapshot.budgets[b].allowed, 0))
        for b, count in count_budgets(snapshot, gone)
    )
    return found._replace(
        evictions=(*drained.evictions, *found.evictions),
        cost={**found.cost, "pdbViolations": excess},
        warnings=drained.warnings,
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
