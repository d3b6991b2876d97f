"""The scheduler's working snapshot: what is free and who stands where, changed pod by pod.

Filters answer for many nodes at once in exact integers; nothing here scores or chooses.

Source: kube-scheduler filters NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts,
NodeResourcesFit, PodTopologySpread, InterPodAffinity, DynamicResources, and its rule for nominated
pods (a node must pass with and without those of equal or higher priority).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.devices.columns import is_device_resource
from optimizer.replay.claims import ClaimedDevices
from optimizer.replay.neighbours import ExclusiveDomains, Neighbours
from optimizer.replay.scores import NodeLoad
from topology.levels import build_column
from topology.masks import NodeFilters
from topology.usage import count_usage, request_matrix

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from optimizer.problem import Problem
    from topology.levels import DomainColumn

    Indices = NDArray[np.int64]
    Mask = NDArray[np.bool_]

__all__ = ["Seat", "WorkingSnapshot"]

Seat = tuple[int, int]
"""(pod, node)."""


class WorkingSnapshot:
    """One fleet, mutable; axes N nodes, R resources, X pod specs."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.snapshot = snapshot = problem.snapshot
        self.everywhere: Indices = np.arange(len(snapshot.nodes))
        resources = tuple(r for r in problem.resources if not is_device_resource(r))
        usage = count_usage(snapshot, resources)
        self.allocatable = usage.allocatable
        self.free: Indices = usage.free
        self.requests = request_matrix(snapshot, resources)
        """i64[X, R]."""
        self.load = NodeLoad(snapshot)
        self.neighbours = Neighbours(problem)
        self.exclusive = ExclusiveDomains(problem)
        self.devices = ClaimedDevices(snapshot)
        self._filters = NodeFilters(snapshot.nodes)
        self._masks: dict[int, Mask] = {}
        self._columns: dict[tuple[str, ...], DomainColumn] = {c.path: c for c in problem.columns}
        self.gone: set[int] = set()
        """Running pods that were evicted."""
        self.seats: dict[int, int] = {}
        """Pending pod -> node it is assumed on."""
        self.changes = np.zeros(len(snapshot.nodes), np.int64)
        """i64[N] how often the pods of a node changed; grows only."""
        self.nominations = {n: list(pods) for n, pods in problem.reservations.items()}

    def column(self, path: tuple[str, ...]) -> DomainColumn:
        """Return the domains of a path of label keys."""
        if path not in self._columns:
            self._columns[path] = build_column(self.snapshot.nodes, path)
        return self._columns[path]

    def assume(self, pod: int, node: int) -> None:
        """Let a pending pod hold its room on a node."""
        self.seats[pod] = node
        self.devices.shift(pod, node, 1)
        self._shift(pod, node, 1)

    def forget(self, seats: Iterable[Seat]) -> None:
        """Take pending pods off their nodes again."""
        for pod, node in seats:
            del self.seats[pod]
            self.devices.shift(pod, node, -1)
            self._shift(pod, node, -1)

    def evict(self, pods: Iterable[int]) -> None:
        """Take running pods off their nodes; what their claims hold stays held."""
        for pod in pods:
            self.gone.add(pod)
            self._shift(pod, int(self.snapshot.pods.node[pod]), -1)

    def restore(self, pods: Iterable[int]) -> None:
        """Put evicted pods back where they ran."""
        for pod in pods:
            self.gone.remove(pod)
            self._shift(pod, int(self.snapshot.pods.node[pod]), 1)

    def _shift(self, pod: int, node: int, change: int) -> None:
        spec = self.snapshot.pods.spec[pod]
        self.free[node] -= change * self.requests[spec]
        self.changes[node] += 1
        self.load.shift(spec, node, change)
        if not self.neighbours.is_trivial:
            self.neighbours.shift(pod, node, change)
        if not self.exclusive.is_trivial:
            self.exclusive.shift(pod, node, change)

    def is_plain(self, pod: int) -> bool:
        """Tell whether a pod meets others by amounts alone: no terms, claims or exclusive keys."""
        spec = self.snapshot.pods.specs[self.snapshot.pods.spec[pod]]
        if spec.claims or not self.exclusive.is_trivial:
            return False
        return self.neighbours.is_trivial or not (
            spec.affinity
            or spec.anti_affinity
            or spec.spread
            or spec.host_ports
            or self.neighbours.is_counted(pod)
        )

    def filter(self, pod: int, nodes: Indices) -> Indices:
        """Return those of i64[n] nodes, in order, that a pending pod passes all filters on."""
        passes = self._admits(pod)[nodes] & self._has_room(pod, nodes)
        if self.snapshot.devices:
            passes &= self.devices.allows(pod, nodes)
        if not self.neighbours.is_trivial:
            passes &= self.neighbours.allows(pod, nodes)
        if not self.exclusive.is_trivial:
            passes &= self.exclusive.allows(pod, nodes)
        found = nodes[passes]
        if self.nominations:
            kept = [self._leaves_nominated(pod, n) for n in found.tolist()]
            found = found[np.array(kept, bool)]
        return found

    def passes(self, pod: int, node: int) -> bool:
        """Tell whether a pending pod passes all filters on one node."""
        return bool(self.filter(pod, np.array([node])).size)

    def resolvable(self, pod: int) -> Indices:
        """Return the nodes, ascending, that evictions may open for a pending pod.

        Not so: node filters, devices, required affinity, a missing key, more than all of a node.
        """
        asked = self.requests[self.snapshot.pods.spec[pod]]
        opens = self._admits(pod) & ((asked == 0) | (asked <= self.allocatable)).all(axis=1)
        if self.snapshot.devices:
            opens &= self.devices.allows(pod, self.everywhere)
        if not self.neighbours.is_trivial:
            opens &= ~self.neighbours.lacks_company(pod, self.everywhere)
        return np.flatnonzero(opens)

    def _admits(self, pod: int) -> Mask:
        """Return bool[N]: nodes whose own filters a pod passes, whoever stands there."""
        spec = int(self.snapshot.pods.spec[pod])
        if spec not in self._masks:
            masks = self._filters.evaluate(self.snapshot.pods.specs[spec])
            self._masks[spec] = masks.affinity & masks.taints & masks.ready
        return self._masks[spec]

    def _has_room(self, pod: int, nodes: Indices) -> Mask:
        asked = self.requests[self.snapshot.pods.spec[pod]]
        room = np.ones(len(nodes), bool)
        for r in np.flatnonzero(asked).tolist():  # a request of zero fits an overcommitted node
            room &= self.free[nodes, r] >= asked[r]
        return room

    def _leaves_nominated(self, pod: int, node: int) -> bool:
        """Tell whether a pod passes on a node with the pods nominated there in place too."""
        priority = self.snapshot.pods.priority
        waiting = [
            q
            for q in self.nominations.get(node, ())
            if q != pod and q not in self.seats and priority[q] >= priority[pod]
        ]
        if not waiting:
            return True
        nominations, self.nominations = self.nominations, {}
        for q in waiting:
            self.assume(q, node)
        passes = self.passes(pod, node)
        self.forget((q, node) for q in reversed(waiting))
        self.nominations = nominations
        return passes
