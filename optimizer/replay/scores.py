"""Scores by which the scheduler chooses: nodes for a pod, placements (domains) for a group.

Nodes: NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation over cpu and memory
with weight 1 each, TaintToleration (PreferNoSchedule) with weight 3. Placements: PodGroupPodsCount,
and NodeResourcesFit as MostAllocated over the whole domain. All from 0 to 100; GPUs do not count.

Source: default plugins of KubeSchedulerConfiguration; a pod without a cpu or memory request counts
100m and 200Mi in NodeResourcesFit, though not in its filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topology.selectors import tolerates
from topology.usage import count_usage, request_matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.model import Snapshot

    Indices = NDArray[np.int64]

__all__ = ["MAX_SCORE", "NodeLoad", "score_counts"]

MAX_SCORE: Final = 100
SCORED: Final = ("cpu", "memory")
ASSUMED: Final = (100, 200 << 20)
"""Milli-cores and bytes that a pod without a request counts when nodes are scored."""
TAINT_WEIGHT: Final = 3


class NodeLoad:
    """cpu and memory asked for on every node; axes N nodes, 2 resources, X specs."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        usage = count_usage(snapshot, SCORED)
        self.allocatable = usage.allocatable
        self._asked = request_matrix(snapshot, SCORED)
        self._assumed = np.where(self._asked == 0, np.array(ASSUMED), self._asked)
        self.used: Indices = usage.used
        """i64[N, 2] exact requests."""
        self.counted: Indices = usage.used.copy()
        """i64[N, 2] with what is assumed of pods without a request."""
        pods = snapshot.pods
        holding = np.flatnonzero(pods.holds_room & (pods.node >= 0))
        extra = self._assumed - self._asked
        np.add.at(self.counted, pods.node[holding], extra[pods.spec[holding]])
        self._avoided: dict[int, Indices | None] = {}

    def shift(self, spec: int, node: int, change: int) -> None:
        """Count a pod of a spec in (1) or out (-1) on a node."""
        self.used[node] += change * self._asked[spec]
        self.counted[node] += change * self._assumed[spec]

    def score(self, spec: int, nodes: Indices) -> Indices:
        """Return i64[n]: the weighted score of each of i64[n] nodes for a pod of a spec."""
        total = self._score_least_allocated(spec, nodes)
        if self._asked[spec].any():  # the plugin skips pods that ask for neither
            total += self._score_balance(spec, nodes)
        avoided = self._count_avoided(spec)
        if avoided is not None:
            here = avoided[nodes]
            most = int(here.max(initial=0))
            total += TAINT_WEIGHT * (MAX_SCORE - (here * MAX_SCORE // most if most else 0))
        return total

    def _score_least_allocated(self, spec: int, nodes: Indices) -> Indices:
        offered = self.allocatable[nodes]
        left = offered - self.counted[nodes] - self._assumed[spec]
        scores = np.maximum(left, 0) * MAX_SCORE // np.maximum(offered, 1)
        weights = (offered > 0).sum(axis=1)
        found: Indices = scores.sum(axis=1) // np.maximum(weights, 1)
        return found

    def _score_balance(self, spec: int, nodes: Indices) -> Indices:
        # In float64, as the plugin itself does: one division, one difference, the same everywhere.
        offered = self.allocatable[nodes]
        used = self.used[nodes] + self._asked[spec]
        shares = np.minimum(used / np.maximum(offered, 1), 1.0)
        spread = np.where((offered > 0).all(axis=1), np.abs(shares[:, 0] - shares[:, 1]) / 2, 0.0)
        found: Indices = ((1 - spread) * MAX_SCORE).astype(np.int64)
        return found

    def _count_avoided(self, spec: int) -> Indices | None:
        """Return i64[N]: PreferNoSchedule taints that a pod does not tolerate; None without any."""
        if spec not in self._avoided:
            tolerations = [
                t
                for t in self._snapshot.pods.specs[spec].tolerations
                if t.effect in ("", "PreferNoSchedule")
            ]
            counts = [
                sum(
                    taint.effect == "PreferNoSchedule"
                    and not any(tolerates(t, taint) for t in tolerations)
                    for taint in node.taints
                )
                for node in self._snapshot.nodes
            ]
            self._avoided[spec] = np.array(counts, np.int64) if any(counts) else None
        return self._avoided[spec]

    def score_fill(self, nodes: Indices) -> int:
        """Return how full a set of nodes is, as MostAllocated sees it: 0 to 100."""
        offered = self.allocatable[nodes].sum(axis=0)
        counted = self.counted[nodes].sum(axis=0)
        shares = [
            min(int(c) * MAX_SCORE // int(o), MAX_SCORE)
            for c, o in zip(counted, offered, strict=True)
            if o > 0
        ]
        return sum(shares) // len(shares) if shares else 0


def score_counts(counts: Sequence[int]) -> list[int]:
    """Return the PodGroupPodsCount score of each placement from its pods, placed ones included.

    Example:
      >>> score_counts([8, 7])
      [100, 87]
    """
    most = max(counts, default=0)
    return [count * MAX_SCORE // most if most else 0 for count in counts]
