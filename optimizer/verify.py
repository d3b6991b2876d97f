"""Independent check of a plan against the snapshot it was made for.

Names and exact Python integers, no arrays, nothing shared with kernels or searches, so that neither
can hide a fault of the other.

Rules, by the name a violation carries:
  lists: exists, listed-once, facts, owner, subgroup, template, outcome, pending, placed-once,
    pending-pods, drain-listed
  a pod on a node: capacity, taint (cordon included), ready, node-affinity, claim, host-port,
    anti-affinity, affinity, spread, nominated
  devices of its claims: device, device-constraint, device-capacity, device-counter
  groups: floor, blocked, topology, slice, exclusive, domain
  evictions: evict-running, evicted-once, evict-node, evict-pinned, preempt-asked, evictable,
    preemptor, never-preempts, evict-topology, evict-waiting, evict-priority, evict-unit,
    drain-unit, pdb-hard, drain-budget
  a resize in place: resize-asked, resize-node, resize-from, resize-resource, resize-victims,
    resize-preemption, capacity, preemptor
  moves: move-order, move-source, move-target, movable, move-budget, restart-unit, restart-floor
  what a re-packing was allowed: move-mode, keep, movable-list, priority-ceiling, max-moves,
    max-disturbed, max-parallel, drain-target, goal
  numbers: criterion
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from optimizer.verify_changes import check_moves
from optimizer.verify_criteria import check_criteria
from optimizer.verify_devices import check_devices
from optimizer.verify_groups import check_groups
from optimizer.verify_listing import check_listing, find_entries
from optimizer.verify_repack import check_goals, check_request
from optimizer.verify_resize import check_resize
from optimizer.verify_room import Room, check_nominated
from optimizer.verify_spread import check_spread
from optimizer.verify_state import Replay
from optimizer.verify_victims import check_evictions
from topology.plan import Verification

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan

__all__ = ["verify_plan"]


def verify_plan(snapshot: Snapshot, plan: Plan) -> Verification:
    """Replay evictions, moves and placements in this order and check every hard rule.

    Room, filters and neighbours are checked at every step; floors, domains, spread and nominated
    pods once all pods are where they end. Rules are those of release `plan.request.release`. Pods
    that a drain evicts wait for a node again, under their old names.

    Args:
      snapshot: The snapshot the plan is for, with the drained pods still on their nodes.
      plan: Names only; its own `verification` is not read.

    Returns:
      The number of checks made and one violation for each rule broken; a step that cannot be
      carried out (unknown name, pod not there) is left out of the rest of the replay.

    Source: NodeResourcesFit and the other filters of kube-scheduler, its group scheduling and
      preemption (KEP-4671, KEP-5710, KEP-5732), and `topology.model.Group`.
    """
    replay = Replay(snapshot)
    room = Room(replay)
    entries = find_entries(replay, plan)
    check_evictions(replay, plan, entries)
    check_resize(replay, plan)
    check_moves(replay, plan, room)
    check_request(replay, plan)
    arrivals = check_listing(replay, entries)
    replay.placed.update(arrivals)
    room.settle(arrivals)
    check_devices(replay, plan)
    check_nominated(replay)
    check_spread(replay)
    check_groups(replay, plan, entries)
    check_goals(replay, plan)
    check_criteria(replay, plan)
    return Verification(replay.log.checks, tuple(replay.log.violations))
