"""Rules of a re-packing: what its request allows, whole units, floors in between, goals.

Part of the verifier: plain Python, nothing shared with the search.

Source: ours (the `move` object of a request); KEP-5710 for `all` groups, gang floors of KEP-4671.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from optimizer.verify_groups import check_places
from topology.model import NO_GROUP, NO_NODE, PodFlag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.verify_state import Replay
    from topology.move_request import FreeGoal, MoveRequest
    from topology.plan import Move, Plan

__all__ = ["check_after", "check_batch", "check_goals", "check_request", "count_freed"]

_STAYS = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.TERMINATING


def check_batch(replay: Replay, plan: Plan, moves: Sequence[Move], pods: Sequence[int]) -> None:
    """Check pods that are about to stop together, before any of them does."""
    if not moves or moves[0].mode != "restart":
        return
    batch = set(pods)
    for unit in sorted({replay.find_disruption_unit(p) for p in batch} - {NO_GROUP}):
        inside = [q for q in replay.members_below(unit) if replay.node[q] >= 0]
        staying = [q for q in inside if q not in batch]
        replay.log.require(
            not staying,
            "restart-unit",
            replay.snapshot.groups[unit].ref,
            f"all {len(inside)} running pods restarted together",
            f"{', '.join(replay.pod_ref(q) for q in staying[:3])} not restarted",
        )
    stopping = Counter(g for p in batch for g in replay.climb(replay.group[p]))
    for g, count in sorted(stopping.items()):
        group = replay.snapshot.groups[g]
        if group.is_inferred and not plan.request.assume_gangs:
            continue
        running = len(replay.members_below(g))
        left = running - count
        replay.log.require(
            left == 0 or left >= group.min_count,
            "restart-floor",
            group.ref,
            f"all {running} running pods restarted together, or {group.min_count} left running",
            f"{left} left running",
        )


def check_after(replay: Replay, pods: Sequence[int]) -> None:
    """Check the domains of moved pods' groups once they stand again: every prefix is valid."""
    touched = {g for p in pods for g in replay.climb(replay.group[p])}
    check_places(replay, touched)


def check_request(replay: Replay, plan: Plan) -> None:
    """Check the moves against what the request allows, and its limits."""
    move = plan.request.move
    if move is None or not plan.moves:
        return
    pods = {m.pod: replay.pod_index.get(m.pod, NO_NODE) for m in plan.moves}
    for ref, p in sorted(pods.items()):
        if p != NO_NODE:
            _check_allowed(replay, move, ref, p)
    drained = set(move.drain)
    for step in plan.moves:
        replay.log.require(
            step.target not in drained,
            "drain-target",
            step.pod,
            "a node that is not drained",
            step.target,
        )
        replay.log.require(step.mode == move.mode, "move-mode", step.pod, move.mode, step.mode)
    if move.max_moves is not None:
        _check_limit(replay, "max-moves", move.max_moves, len(plan.moves))
    if move.max_disturbed is not None:
        moved = {p for p in pods.values() if p != NO_NODE}
        disturbed = set(moved)
        for unit in {replay.find_disruption_unit(p) for p in moved} - {NO_GROUP}:
            disturbed.update(p for p in replay.members_below(unit) if p not in replay.placed)
        _check_limit(replay, "max-disturbed", move.max_disturbed, len(disturbed))
    if move.max_parallel is not None:
        waves: defaultdict[int, set[str]] = defaultdict(set)
        for step in plan.moves:
            waves[step.wave].add(step.pod)
        for wave, refs in sorted(waves.items()):
            _check_limit(
                replay,
                "max-parallel",
                move.max_parallel,
                _count_units(replay, {pods[ref] for ref in refs} - {NO_NODE}),
                f"wave {wave}",
            )


def _check_limit(replay: Replay, rule: str, most: int, found: int, name: str = "plan") -> None:
    replay.log.require(found <= most, rule, name, f"at most {most}", str(found))


def _count_units(replay: Replay, pods: set[int]) -> int:
    """Count what is on the way at once: groups of which all running pods are, and other pods."""
    whole: set[int] = set()
    units = 0
    for p in sorted(pods):
        root = list(replay.climb(replay.group[p]))[-1] if replay.group[p] != NO_GROUP else NO_GROUP
        if root in whole:
            continue
        if root != NO_GROUP and set(replay.members_below(root)) <= pods:
            whole.add(root)
        units += 1
    return units


def _check_allowed(replay: Replay, move: MoveRequest, ref: str, p: int) -> None:
    above = {group.ref for group in replay.groups_above(p)}
    kept = sorted(({ref} | above) & set(move.keep))
    replay.log.require(not kept, "keep", ref, "a pod that is not kept", ", ".join(kept))
    if move.movable is not None or move.movable_groups is not None:
        replay.log.require(
            ref in (move.movable or ()) or bool(above & set(move.movable_groups or ())),
            "movable-list",
            ref,
            "a pod named by --movable or --movable-groups",
            "named by neither",
        )
    if move.priority_ceiling is not None:
        replay.log.require(
            replay.priority(p) <= move.priority_ceiling,
            "priority-ceiling",
            ref,
            f"priority {move.priority_ceiling} or below",
            f"priority {replay.priority(p)}",
        )


def check_goals(replay: Replay, plan: Plan) -> None:
    """Compare what the plan says of its goals with where all pods are in the end."""
    move = plan.request.move
    if move is None:
        return
    drained = set(move.drain)
    for p in sorted(replay.placed):
        name = replay.place_name(replay.node[p])
        replay.log.require(
            name not in drained,
            "drain-target",
            replay.pod_ref(p),
            "a node that is not drained",
            name,
        )
    occupied = _find_occupied(replay, replay.node, replay.holds)
    reached = {
        f"free {goal.text}": min(_count_empty(replay, goal, occupied), goal.count)
        for goal in move.free
    }
    reached |= {f"drain {name}": int(name not in occupied) for name in move.drain}
    for outcome in plan.goals:
        replay.log.require(
            reached.get(outcome.goal) == outcome.reached,
            "goal",
            outcome.goal,
            str(reached.get(outcome.goal, "a goal of the request")),
            str(outcome.reached),
        )
    listed = {outcome.goal for outcome in plan.goals}
    for name in sorted(reached.keys() - listed):
        replay.log.report("goal", name, "an entry in goals", "none")


def count_freed(replay: Replay, move: MoveRequest) -> int:
    """Count the domains of all `--free` goals that were not empty and are in the end."""
    pods = replay.snapshot.pods
    before = _find_occupied(replay, pods.node.tolist(), pods.holds_room.tolist())
    after = _find_occupied(replay, replay.node, replay.holds)
    return sum(
        not before.isdisjoint(names) and after.isdisjoint(names)
        for goal in move.free
        for names in _find_domains(replay, goal)
    )


def _find_occupied(replay: Replay, places: Sequence[int], holds: Sequence[bool]) -> set[str]:
    """Return the nodes of work that counts; by pod: its node, and whether it holds room there."""
    return {
        replay.snapshot.nodes[n].name
        for p, n in enumerate(places)
        if n >= 0 and holds[p] and not replay.flags[p] & _STAYS
    }


def _count_empty(replay: Replay, goal: FreeGoal, occupied: set[str]) -> int:
    return sum(occupied.isdisjoint(names) for names in _find_domains(replay, goal))


def _find_domains(replay: Replay, goal: FreeGoal) -> list[list[str]]:
    """Return the nodes of each domain, by the path that groups name, else by the key alone."""
    paths = {path for group in replay.snapshot.groups for path in group.paths}
    path = {p[-1]: p for p in sorted(paths)}.get(goal.key, (goal.key,))
    domains: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in replay.snapshot.nodes:
        value = tuple(node.labels[key] for key in path if key in node.labels)
        if len(value) == len(path) and goal.value in (None, value[-1]):
            domains[value].append(node.name)
    return list(domains.values())
