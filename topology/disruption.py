"""Units of disruption: pods that stop together when one of them has to, and what is left then.

Source: `disruptionMode: all` of PodGroup and CompositePodGroup (KEP-5710), the restart policy of
LeaderWorkerSet; the highest `all` group above a pod decides.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from topology.model import NO_GROUP, NO_NODE, Phase, PodFlag

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.model import PodTable, Snapshot

__all__ = ["complete_units", "find_whole_groups", "release_pods", "take_pods"]


def find_whole_groups(snapshot: Snapshot) -> NDArray[np.int32]:
    """Return i32[G]: the highest `all` group above each group, itself included, or NO_GROUP."""
    groups = snapshot.groups
    found = np.full(len(groups), NO_GROUP, np.int32)
    for g in range(len(groups)):
        at = g
        while at != NO_GROUP:
            if groups[at].disruption == "all":
                found[g] = at
            at = groups[at].parent
    return found


def complete_units(snapshot: Snapshot, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return running pods and everything that has to stop with them, ascending."""
    pods = snapshot.pods
    whole = find_whole_groups(snapshot)
    if not len(whole):
        return np.unique(rows)
    of_pod = np.where(pods.group == NO_GROUP, NO_GROUP, whole[np.maximum(pods.group, 0)])
    hit = np.unique(of_pod[rows])
    with_them = np.isin(of_pod, hit[hit != NO_GROUP]) & pods.is_running_member
    return np.union1d(rows, np.flatnonzero(with_them))


def take_pods(pods: PodTable, rows: NDArray[np.int64]) -> PodTable:
    """Return some rows of a table, in the order given (which has to sort their refs)."""
    columns: dict[str, Any] = {
        f.name: getattr(pods, f.name)[rows]
        for f in fields(pods)
        if isinstance(getattr(pods, f.name), np.ndarray)
    }
    return replace(pods, refs=tuple(pods.refs[p] for p in rows.tolist()), **columns)


def release_pods(snapshot: Snapshot, rows: NDArray[np.int64]) -> Snapshot:
    """Return the snapshot with some pods waiting for a node again, under their old names.

    Pods that would not come back (DaemonSet, static, terminating, finished ones) are gone, so rows
    keep their meaning only where there are none of those.
    """
    pods = snapshot.pods
    stays = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.TERMINATING
    comes_back = rows[((pods.flags[rows] & stays) == 0) & pods.is_live[rows]]
    node, phase, started = pods.node.copy(), pods.phase.copy(), pods.started.copy()
    node[rows], started[rows] = NO_NODE, -1
    phase[comes_back] = Phase.PENDING
    gone = np.setdiff1d(rows, comes_back)
    changed = replace(pods, node=node, phase=phase, started=started)
    if len(gone):
        changed = take_pods(changed, np.setdiff1d(np.arange(len(pods)), gone))
    return replace(snapshot, pods=changed)
