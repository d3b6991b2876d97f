"""Units of a plan whose claims find no devices, and what the next search must not do again.

The search counts devices (`optimizer.devices.columns`), which is exact for claims of one kind on a
node. Where kinds meet, the allocator has the last word: what it refuses is cut off, and searched
again.

Source: ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from optimizer.decode import seat_pods
from optimizer.devices.columns import CLAIMS_PREFIX
from optimizer.devices.ledger import DeviceLedger
from optimizer.devices.needs import has_needs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem
    from topology.model import Snapshot

__all__ = ["cut_devices", "find_unserved", "needs_devices", "serves_all"]


def needs_devices(problem: Problem) -> bool:
    """Tell whether any class of pods needs devices."""
    snapshot = problem.snapshot
    return any(has_needs(snapshot, snapshot.pods.specs[x]) for x in problem.class_specs)


def find_unserved(problem: Problem, placements: Mapping[int, UnitPlacement]) -> list[int]:
    """Return the placed units whose claims find too few devices, others of them placed first.

    Args:
      problem: Units in the scheduler's own order, which decides who goes without.
      placements: Unit -> fills.
    """
    if not needs_devices(problem):
        return []
    ledger = _open_ledger(problem)
    return [
        u
        for u in sorted(placements)
        if ledger.add(seat_pods(problem.units[u], placements[u])) is not None
    ]


def cut_devices(problem: Problem, placements: Mapping[int, UnitPlacement]) -> Problem | None:
    """Return the problem without what the allocator refuses, None where it refuses nothing.

    On a node where a unit finds too few devices, its classes get no more pods than are served there
    beside the units before it.
    """
    if not needs_devices(problem):
        return None
    ledger = _open_ledger(problem)
    eligible, free = problem.eligible.copy(), problem.free.copy()
    standing: dict[tuple[int, int], int] = {}
    is_cut = False
    for u in sorted(placements):
        unit = problem.units[u]
        seats = seat_pods(unit, placements[u])
        failing = ledger.add(seats)
        if failing is None:
            for pod, node in seats.items():
                key = (problem.pod_classes[pod], node)
                standing[key] = standing.get(key, 0) + 1
            continue
        is_cut = True
        here = sorted(pod for pod, node in seats.items() if node == failing)
        served: dict[int, int] = {problem.pod_classes[pod]: 0 for pod in here}
        taken = {pod: failing for pod in here if ledger.add({pod: failing}) is None}
        for pod in taken:
            served[problem.pod_classes[pod]] += 1
        ledger.remove(taken)
        for pod_class, count in served.items():
            name = f"{CLAIMS_PREFIX}{problem.class_specs[pod_class]}"
            most = standing.get((pod_class, failing), 0) + count
            if most and name in problem.resources:
                r = problem.resources.index(name)
                free[failing, r] = min(free[failing, r], most)
            elif most == 0 or count == 0:
                eligible[pod_class, failing] = False
        if len(taken) == len(here):
            # Its pods there are not to blame but those of other nodes, with whom they share.
            eligible[problem.pod_classes[here[-1]], failing] = False
    return replace(problem, eligible=eligible, free=free) if is_cut else None


def serves_all(snapshot: Snapshot, seats: Iterable[Mapping[int, int]]) -> bool:
    """Tell whether the claims of all these pods find devices.

    Args:
      snapshot: The fleet without what is evicted.
      seats: Pod -> node of one unit after another.
    """
    found = list(seats)
    pods = snapshot.pods
    specs = {int(pods.spec[p]) for unit in found for p in unit}
    if not any(has_needs(snapshot, pods.specs[x]) for x in specs):
        return True
    ledger = DeviceLedger(snapshot)
    return all(ledger.add(unit) is None for unit in found)


def _open_ledger(problem: Problem) -> DeviceLedger:
    ledger = DeviceLedger(problem.snapshot)
    for pod in sorted(problem.placed):
        ledger.add({pod: problem.placed[pod]})
    return ledger
