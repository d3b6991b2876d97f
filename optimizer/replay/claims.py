"""Devices that the claims of newcomers take, node by node.

A claim that pods share takes its devices once on a node, however many of them are there; what
victims hold stays held, because allocations outlive their pods.

Source: `resource.k8s.io/v1` claims, KEP-5729 (claims of a PodGroup); DynamicResources keeps its own
state, which preemption does not change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from topology.model import Snapshot

__all__ = ["ClaimedDevices"]

Holder = tuple[str, str]
"""(claim, group or pod that it belongs to; name of the need)."""


class ClaimedDevices:
    """Free devices of every known class, mutable; axis N nodes."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._free: dict[str, NDArray[np.int64]] = {}
        for count in snapshot.devices:
            free = self._free.setdefault(
                count.device_class, np.zeros(len(snapshot.nodes), np.int64)
            )
            free[count.node] = count.free
        self._uses: dict[tuple[Holder, int], int] = {}
        """(holder, node) -> pods that use the claim there."""

    def allows(self, pod: int, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tell, for i64[n] nodes, where the claims of a pending pod find free devices: bool[n]."""
        wanted: dict[str, NDArray[np.int64]] = {}
        for holder, device_class, count in self._needs(pod):
            here = wanted.setdefault(device_class, np.zeros(len(nodes), np.int64))
            held = [(holder, n) in self._uses for n in nodes.tolist()]
            here += np.where(held, 0, count)
        passes = np.ones(len(nodes), bool)
        for device_class, counts in wanted.items():
            passes &= (counts == 0) | (self._free[device_class][nodes] >= counts)
        return passes

    def shift(self, pod: int, node: int, change: int) -> None:
        """Let a pending pod take (1) or give back (-1) its devices on a node."""
        for holder, device_class, count in self._needs(pod):
            before = self._uses.get((holder, node), 0)
            after = before + change
            if after:
                self._uses[holder, node] = after
            else:
                del self._uses[holder, node]
            if not (before and after):
                self._free[device_class][node] -= change * count

    def _needs(self, pod: int) -> Iterator[tuple[Holder, str, int]]:
        pods = self._snapshot.pods
        for need in pods.specs[pods.spec[pod]].claims:
            if need.allocated_nodes is not None:
                continue
            owner = self._owner(pod) if need.shared_by_group else ""
            holder = need.claim or owner or pods.refs[pod]
            for device_class, count in need.devices:
                if device_class in self._free:
                    yield (holder, f"{need.name}/{device_class}"), device_class, count

    def _owner(self, pod: int) -> str:
        groups = self._snapshot.groups
        g = int(self._snapshot.pods.group[pod])
        while g != NO_GROUP and groups[g].kind == "subgroup":
            g = groups[g].parent
        return "" if g == NO_GROUP else groups[g].ref
