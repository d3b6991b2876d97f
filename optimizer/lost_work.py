"""What is lost with a running pod: the GPU seconds since its work was last saved.

A pod that is stopped computes again what it did since its last checkpoint, or since its start where
it has none. Only whole accelerators are counted; a MIG slice or shared GPU weighs nothing.

Source: start is `status.startTime`, missing counts as now (as kube-scheduler reads it
in preemption); checkpoints are an annotation (`data.importers.checkpoints`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topology.model import Snapshot

__all__ = ["count_lost_gpu_seconds", "describe_unstarted", "find_now"]


def find_now(snapshot: Snapshot) -> int:
    """Return the latest time that pods mention, in seconds since 1970; -1 where they mention none.

    No clock is read, so that the same snapshot gives the same answer next year too.
    """
    pods = snapshot.pods
    times = (pods.created, pods.started, pods.checkpoint)
    return max((int(column.max()) for column in times if len(column)), default=-1)


def count_lost_gpu_seconds(snapshot: Snapshot) -> NDArray[np.int64]:
    """Count what stopping each pod would lose.

    Returns:
      i64[P], GPUs of the pod times the seconds from the later of its start and its last checkpoint
      to `find_now`; 0 for pods that have not started or hold no room.
    """
    pods = snapshot.pods
    gpus = np.array([spec.gpus for spec in pods.specs] or [0], np.int64)[pods.spec]
    since = np.maximum(pods.started, pods.checkpoint)
    seconds = np.maximum(find_now(snapshot) - since, 0)
    lost: NDArray[np.int64] = np.where(pods.holds_room & (pods.started >= 0), gpus * seconds, 0)
    return lost


def describe_unstarted(snapshot: Snapshot) -> str | None:
    """Return a line about running pods with GPUs and no start time, None where all have one."""
    pods = snapshot.pods
    gpus = np.array([spec.gpus for spec in pods.specs] or [0], np.int64)[pods.spec]
    unstarted = np.flatnonzero(pods.is_running_member & (gpus > 0) & (pods.started < 0))
    if not len(unstarted):
        return None
    return (
        f"{len(unstarted)} running pods with GPUs have no status.startTime (first: "
        f"{pods.refs[unstarted[0]]}); evicting them counts as losing no work"
    )
