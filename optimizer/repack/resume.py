"""What has become of a plan that was carried out in part: done, left to do, or no longer true."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optimizer.repack.evaluate import count_lost_work
from optimizer.repack.movers import find_movers
from topology.model import NO_GROUP
from topology.plan import Bound

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Move, Plan, Request

__all__ = ["Progress", "compare_plan", "keep_rest", "renew_request"]


@dataclass(frozen=True, slots=True)
class Progress:
    """A plan against a newer snapshot."""

    done: int
    """Leading or later steps that have been carried out."""
    left: tuple[Move, ...]
    """Steps still to be carried out, in order."""
    changes: tuple[str, ...]
    """What is no longer as the plan has it; none: the rest of the plan may still hold."""


def compare_plan(snapshot: Snapshot, plan: Plan) -> Progress:
    """Find out which steps of a plan are done.

    A pod on the last node that the plan gives it is done; one that stands at the source of one of
    its steps has that step and those after it left. A restart in place cannot be seen: it is done
    where a pod of its wave and group is.
    """
    pods = snapshot.pods
    index = {ref: p for p, ref in enumerate(pods.refs)}
    nodes = {node.name for node in snapshot.nodes}
    running = pods.is_running_member
    of_pod: dict[str, list[Move]] = {}
    for move in plan.moves:
        of_pod.setdefault(move.pod, []).append(move)
    left: list[Move] = []
    changes: list[str] = []
    finished: set[tuple[int, str | None]] = set()
    in_place: list[Move] = []
    for ref, moves in of_pod.items():
        p = index.get(ref)
        if p is None or not running[p]:
            changes.append(f"{ref} no longer runs")
            continue
        n = int(pods.node[p])
        here = snapshot.nodes[n].name if n >= 0 else "a node that was not read"
        if all(move.source == move.target for move in moves):
            in_place += moves
            continue
        if here == moves[-1].target:
            finished |= {(move.wave, move.group) for move in moves}
            continue
        start = next((i for i, move in enumerate(moves) if move.source == here), None)
        if start is None:
            changes.append(f"{ref} is on {here}, where the plan never has it")
            continue
        left += moves[start:]
    left += [m for m in in_place if m.group is None or (m.wave, m.group) not in finished]
    left.sort(key=lambda move: move.step)
    for name in sorted({move.target for move in left} - nodes):
        changes.append(f"node {name} is gone")
    changes += _compare_groups(snapshot, plan, index)
    return Progress(len(plan.moves) - len(left), tuple(left), tuple(changes))


def _compare_groups(snapshot: Snapshot, plan: Plan, index: dict[str, int]) -> list[str]:
    pending = snapshot.pods.is_pending
    found = []
    for entry in plan.groups:
        pods = [pod.pod for pod in entry.pods] + list(entry.pending_pods)
        gone = [ref for ref in pods if ref not in index or not pending[index[ref]]]
        if gone:
            found.append(f"{gone[0]} of group {entry.group} no longer waits for a node")
    return found


def keep_rest(
    snapshot: Snapshot, plan: Plan, progress: Progress, summary: dict[str, object]
) -> Plan:
    """Return the steps that are left as a plan for the newer snapshot, not yet verified."""
    waves = {wave: i for i, wave in enumerate(sorted({m.wave for m in progress.left}), 1)}
    moves = tuple(
        replace(move, step=step, wave=waves[move.wave])
        for step, move in enumerate(progress.left, 1)
    )
    pods = snapshot.pods
    index = {ref: p for p, ref in enumerate(pods.refs)}
    movers = find_movers(snapshot, plan.request)
    moved = [index[move.pod] for move in moves]
    units = {movers.unit.get(p, NO_GROUP) for p in moved} - {NO_GROUP}
    alone = {p for p in moved if movers.unit.get(p, NO_GROUP) == NO_GROUP}
    criteria = {
        **plan.criteria,
        "moves": len(moves),
        "movedGpus": sum(pods.specs[pods.spec[p]].gpus for p in moved),
        "disturbedPods": len(alone) + sum(movers.members[g] for g in units),
        "gpuSecondsLost": count_lost_work(
            snapshot, [*moved, *(index[e.pod] for e in plan.evictions if e.pod in index)]
        ),
    }
    return replace(
        plan,
        snapshot=summary,
        moves=moves,
        criteria=criteria,
        bound=Bound(plan.bound.criterion, None, None, "none"),
        warnings=snapshot.warnings,
        errors=snapshot.errors,
        verification=None,
    )


def renew_request(snapshot: Snapshot, request: Request) -> tuple[Request, tuple[str, ...]]:
    """Return a plan's request for a newer snapshot, and what of it is dropped, in words."""
    assert request.move is not None
    pods, groups = snapshot.pods, snapshot.groups
    waiting: Counter[str] = Counter()
    for p, is_pending in enumerate(pods.is_pending.tolist()):
        if not is_pending:
            continue
        g = int(pods.group[p])
        waiting[pods.refs[p]] += 1
        while g != NO_GROUP:
            waiting[groups[g].ref] += 1
            g = groups[g].parent
    asked = request.groups or ()
    dropped = [f"group {ref} no longer waits" for ref in asked if not waiting[ref]]
    nodes = {node.name for node in snapshot.nodes}
    dropped += [f"node {name} is gone" for name in request.move.drain if name not in nodes]
    move = replace(request.move, drain=tuple(name for name in request.move.drain if name in nodes))
    kept = tuple(ref for ref in asked if waiting[ref])
    return replace(request, groups=kept, move=move), tuple(dropped)
