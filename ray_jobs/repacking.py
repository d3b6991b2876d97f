"""The pipeline of `repack`: moves, an order for them, what a drain evicts, answer, verification."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

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
)
from optimizer.repack.resume import compare_plan, keep_rest, renew_request
from optimizer.repack.search import search_repack
from optimizer.verify import verify_plan
from ray_jobs.pipeline import Found, check_groups, describe_snapshot, finish_plan
from topology.disruption import release_pods
from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import Snapshot
    from topology.plan import Plan, Request

__all__ = ["make_move_plan", "resume_plan"]


def make_move_plan(
    snapshot: Snapshot, request: Request, progress: Callable[[str], None] | None = None
) -> Plan:
    """Answer `repack` for a snapshot.

    Args:
      snapshot: Read whole; never changed.
      request: With `move`; groups None or () means that nothing that waits is planned for.
      progress: Called with a line now and then.

    Returns:
      A plan with the verdict of the independent verifier in `verification`.

    Raises:
      RequestError: A group or a goal names what is not there, or the objective makes no sense.
    """
    say = progress or (lambda _: None)
    check_groups(snapshot, request)
    assert request.move is not None
    result = search_repack(snapshot, request, say)
    placed = find_placed(result)
    evicted = find_leftovers(result) if request.move.drain else ()
    result = result.without(evicted)
    after = close_nodes(result.fleet.moved_snapshot(), request.move.drain)
    refs = (*(request.groups or ()), *find_refs(snapshot, evicted))
    if evicted:
        say(f"placing {len(evicted)} evicted pods anew")
        after = release_pods(after, np.array(evicted))
        placed |= place_again(after, request, placed, refs, say)
    found = Found(
        after,
        build_problem(after, request, only=refs),
        placed,
        result.bound,
        describe_drain(snapshot, evicted),
        cost=count_moves(result, placed, evicted),
        moves=describe_moves(result),
        goals=describe_outcomes(result, placed, evicted),
    )
    return finish_plan(snapshot, request, found, say)


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
        rest = keep_rest(snapshot, plan, found, describe_snapshot(snapshot, request))
        verdict = verify_plan(snapshot, rest)
        if verdict.is_valid:
            said = f"{count}; the other {len(found.left)} still hold and are kept"
            return replace(rest, warnings=(said, *rest.warnings)).with_verification(verdict)
        first = verdict.violations[0]
        changes = (f"{first.object}: {first.rule}: wanted {first.wanted}, found {first.found}",)
    anew = make_move_plan(snapshot, request, progress)
    said = f"{count}; the rest is planned anew, because {'; '.join(changes)}"
    return replace(anew, warnings=(said, *anew.warnings))
