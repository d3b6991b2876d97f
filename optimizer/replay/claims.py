"""Devices that the claims of newcomers take, node by node, as kube-scheduler allocates them.

Pods come one by one, and what an earlier one got is not reconsidered. A claim that pods share is
allocated once; what victims hold stays held, because allocations outlive their pods.

Source: `resource.k8s.io/v1` claims, KEP-5729 (claims of a PodGroup); DynamicResources keeps its own
state, which preemption does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.devices.ledger import DeviceLedger
from optimizer.devices.needs import find_needs, has_needs

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from topology.model import Snapshot

__all__ = ["ClaimedDevices"]


class ClaimedDevices:
    """Who got which devices, mutable; axis N nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._ledger = DeviceLedger(snapshot, is_fixed=True)
        self._served: dict[Hashable, bool] = {}
        """(spec, entries, state of a node's devices) -> whether they serve one pod more."""

    def allows(self, pod: int, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell, for i64[n] nodes, where the claims of a pending pod find free devices: bool[n]."""
        pods = self._snapshot.pods
        if not has_needs(self._snapshot, pods.specs[pods.spec[pod]]):
            return np.ones(len(nodes), bool)
        return np.array([self._serves(pod, n) for n in nodes.tolist()], bool)

    def shift(self, pod: int, node: int, change: int) -> None:
        """Let a pending pod take (1) or give back (-1) its devices on a node."""
        if change > 0:
            self._ledger.add({pod: node})
        else:
            self._ledger.remove({pod: node})

    def _serves(self, pod: int, node: int) -> bool:
        pods = self._snapshot.pods
        x = int(pods.spec[pod])
        own, shared = find_needs(self._snapshot, pods.specs[x], node)
        if shared:
            return self._try(pod, node)
        key = (x, tuple(name for name, _ in own), self._ledger.state.describe(node))
        if key not in self._served:
            self._served[key] = self._try(pod, node)
        return self._served[key]

    def _try(self, pod: int, node: int) -> bool:
        if self._ledger.add({pod: node}) is not None:
            return False
        self._ledger.remove({pod: node})
        return True
