"""Claims that the pods of a group share, which the search does not count.

Such a claim takes its devices once on a node, however many pods of the group are there, so no
request of a single pod states it. Plans are checked afterwards, unit by unit.

Source: KEP-5729, ResourceClaims of a PodGroup.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from optimizer.decode import seat_pods
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem

__all__ = ["find_unserved"]

_Uses = dict[tuple[int, str], dict[tuple[str, str], int]]
"""(node, device class) -> (holder, claim) -> devices."""


def find_unserved(problem: Problem, placements: Mapping[int, UnitPlacement]) -> list[int]:
    """Return the placed units whose claims find too few devices, others of them placed first.

    Args:
      problem: Units in the scheduler's own order, which decides who goes without.
      placements: Unit -> fills.
    """
    snapshot = problem.snapshot
    specs = {snapshot.pods.specs[x] for x in problem.class_specs}
    if not any(need.shared_by_group for spec in specs for need in spec.claims):
        return []
    free = {(d.node, d.device_class): d.free for d in snapshot.devices}
    known = {device_class for _, device_class in free}
    taken: _Uses = defaultdict(dict)
    unserved = []
    for u in sorted(placements):
        wanted: _Uses = defaultdict(dict)
        for pod, node in seat_pods(problem.units[u], placements[u]).items():
            for need in snapshot.pods.row(pod).spec.claims:
                if need.allocated_nodes is not None:
                    continue
                shared = _find_owner(problem, pod) if need.shared_by_group else ""
                holder = need.claim or shared or snapshot.pods.refs[pod]
                for device_class, count in need.devices:
                    if device_class in known:
                        wanted[node, device_class][holder, need.name] = count
        both = {key: {**taken.get(key, {}), **uses} for key, uses in wanted.items()}
        if any(sum(uses.values()) > free.get(key, 0) for key, uses in both.items()):
            unserved.append(u)
        else:
            taken.update(both)
    return unserved


def _find_owner(problem: Problem, pod: int) -> str:
    """Return the group that lists the pod: its nearest ancestor that is no subgroup."""
    groups = problem.snapshot.groups
    g = int(problem.snapshot.pods.group[pod])
    while g != NO_GROUP and groups[g].kind == "subgroup":
        g = groups[g].parent
    return "" if g == NO_GROUP else groups[g].ref
