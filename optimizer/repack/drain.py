"""What still stands on drained nodes once everything that can move has: evicted, then placed anew.

Source: `kubectl drain` through the eviction API, which asks disruption budgets and spares DaemonSet
and static pods. In 1.36 and 1.37 it takes pods one at a time (KEP-5710 leaves whole groups to
later): `--drain-unit pod`. A gang of mode `all` comes back only as a whole: `--drain-unit group`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import seat_pods
from optimizer.problem import build_problem
from optimizer.repack.movers import BudgetIndex
from optimizer.search.place import search_placement
from topology.disruption import complete_units
from topology.model import NO_GROUP, PodFlag
from topology.owners import group_ref
from topology.plan import Eviction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from optimizer.repack.search import RepackResult
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["close_nodes", "describe_drain", "find_leftovers", "find_refs", "place_again"]

_SPARED = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.TERMINATING


def find_leftovers(result: RepackResult) -> tuple[int, ...]:
    """Return the pods that a drain would evict, ascending; none where nodes come empty by moves.

    Pods that the request keeps stay, and so do those that a disruption budget protects.
    """
    fleet = result.fleet
    snapshot, move = fleet.snapshot, fleet.request.move
    assert move is not None
    pods = snapshot.pods
    drained = np.zeros(len(snapshot.nodes) + 1, bool)
    drained[fleet.goals.drained] = True
    where = pods.node.copy()
    for p, n in fleet.where.items():
        where[p] = n
    standing = np.flatnonzero(
        pods.is_running_member & (where >= 0) & drained[where] & ((pods.flags & _SPARED) == 0)
    )
    budgets = BudgetIndex(snapshot)
    gone: set[int] = set()
    for p in standing.tolist():
        if p in gone:
            continue
        unit = [p]
        if move.drain_unit == "group":
            unit = complete_units(snapshot, np.array(unit)).tolist()
            unit = [q for q in unit if pods.node[q] >= 0]
        if any(_is_kept(result, q) for q in unit):
            continue
        if budgets.exceeded([*gone, *unit]) is None:
            gone |= set(unit)
    return tuple(sorted(gone))


def _is_kept(result: RepackResult, p: int) -> bool:
    """Tell whether the request itself, not the pod's API or the room, lets a pod stay."""
    why = result.fleet.movers.staying.get(p, "")
    return bool(result.fleet.snapshot.pods.flags[p] & _SPARED) or why.startswith(
        ("--keep", "not among --movable", "its priority")
    )


def close_nodes(snapshot: Snapshot, names: Iterable[str]) -> Snapshot:
    """Return the snapshot with some nodes cordoned."""
    closed = set(names)
    nodes = tuple(
        replace(node, unschedulable=True) if node.name in closed else node
        for node in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes)


def find_refs(snapshot: Snapshot, pods: Iterable[int]) -> tuple[str, ...]:
    """Return the references under which pods are planned: root groups, or pods in none."""
    refs = set()
    for p in pods:
        g = int(snapshot.pods.group[p])
        ref = snapshot.pods.refs[p]
        while g != NO_GROUP:
            ref, g = snapshot.groups[g].ref, snapshot.groups[g].parent
        refs.add(ref)
    return tuple(sorted(refs))


def place_again(
    snapshot: Snapshot,
    request: Request,
    placed: Mapping[int, int],
    refs: Sequence[str],
    say: Callable[[str], None],
) -> dict[int, int]:
    """Place what a drain evicted, beside what is placed already; pod -> node.

    Args:
      snapshot: The fleet once everything has moved, drained nodes cordoned.
      request: Of the re-packing.
      placed: What waited before and has its place.
      refs: Groups and pods to place.
      say: Told now and then.
    """
    problem = build_problem(snapshot, request, placed=dict(placed), only=refs)
    found = search_placement(problem, replace(request, objective=("max:priority",)), say)
    again: dict[int, int] = {}
    for u, placement in found.placements.items():
        again |= seat_pods(problem.units[u], placement)
    return again


def describe_drain(snapshot: Snapshot, pods: Iterable[int]) -> tuple[Eviction, ...]:
    """Write the entry of every pod that a drain would evict, sorted by pod."""
    found = []
    for p in pods:
        node = snapshot.nodes[snapshot.pods.node[p]].name
        found.append(Eviction(snapshot.pods.refs[p], node, group_ref(snapshot, p), "drain"))
    return tuple(found)
