"""Which group a pod counts for: its leaf, or the group above it that is no subgroup."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.model import Group, Snapshot

__all__ = ["find_owner", "find_owners", "group_ref", "planned_ref"]


def find_owner(groups: Sequence[Group], leaf: int) -> int:
    """Return the index of the group of kind "group" at or above a leaf."""
    while leaf != NO_GROUP and groups[leaf].kind == "subgroup":
        leaf = groups[leaf].parent
    return leaf


def find_owners(snapshot: Snapshot) -> NDArray[np.int32]:
    """Return the group of kind "group" that every pod belongs to, i32[P], NO_GROUP for none."""
    groups = snapshot.groups
    # NO_GROUP is -1, so one more row at the end answers for pods in no group.
    owners = [find_owner(groups, g) for g in range(len(groups))]
    return np.array([*owners, NO_GROUP], np.int32)[snapshot.pods.group]


def group_ref(snapshot: Snapshot, pod: int) -> str | None:
    """Return the reference of the group a pod belongs to, None for a pod of its own."""
    g = find_owner(snapshot.groups, int(snapshot.pods.group[pod]))
    return None if g == NO_GROUP else snapshot.groups[g].ref


def planned_ref(snapshot: Snapshot, pod: int) -> str:
    """Return the reference a pod is planned under: its group's, or its own."""
    return group_ref(snapshot, pod) or snapshot.pods.refs[pod]
