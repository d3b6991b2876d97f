"""Gangs that evictions would leave running below their minimum, so that the rest does no work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.shortfall import list_some
from topology.model import NO_GROUP
from topology.owners import find_owners

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from topology.model import Snapshot

__all__ = ["describe_broken_gangs"]


def describe_broken_gangs(
    snapshot: Snapshot, after: Snapshot, placed: Mapping[int, int]
) -> str | None:
    """Name the gangs that reach their minimum now and would not with a plan carried out.

    Pods of a gang go one by one unless it is disrupted as a whole (KEP-5710 `disruptionMode`;
    kube-scheduler 1.36 takes single pods even then).

    Args:
      snapshot: The fleet as it is.
      after: The same rows of pods without what would be evicted.
      placed: Pod -> node of what the plan places.

    Returns:
      One line for the user; None where no gang is left with some pods, but too few.
    """
    before = _count_running(snapshot)
    then = _count_running(after, placed)
    broken = [
        f"{group.ref} (would run {then[g]} of {group.min_count} pods)"
        for g, group in enumerate(snapshot.groups)
        if group.kind == "group" and 0 < then[g] < group.min_count <= before[g]
    ]
    if not broken:
        return None
    return (
        f"evictions would leave {len(broken)} gang{'s' if len(broken) > 1 else ''} below the "
        f"minimum: {list_some(sorted(broken))}; what still runs of a gang then holds its room for "
        "nothing"
    )


def _count_running(snapshot: Snapshot, placed: Iterable[int] = ()) -> NDArray[np.int64]:
    """Return i64[G]: pods on nodes of every group that is no subgroup."""
    runs = snapshot.pods.is_running_member.copy()
    runs[list(placed)] = True
    owners = find_owners(snapshot)[runs]
    return np.bincount(owners[owners != NO_GROUP], minlength=len(snapshot.groups))
