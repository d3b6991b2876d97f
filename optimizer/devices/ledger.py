"""Devices given to the pods of a plan, group by group.

A claim that pods share is allocated once, with the first of them; later ones have to be on nodes
that reach its devices. When a newcomer finds too little on a node, the claims of the plan that are
allocated there are allocated anew, together with its own.

Source: kube-scheduler plugin dynamicresources; KEP-5729 (the first member of a PodGroup allocates
its claims, the others follow their node selector).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from optimizer.devices.allocator import allocate
from optimizer.devices.needs import Demand, Needs, SharedKey, find_needs, find_shared_key
from optimizer.devices.state import DeviceState, Grant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topology.model import Snapshot

__all__ = ["DeviceLedger"]


@dataclass(slots=True)
class _Entry:
    """A claim of the plan, and what it gets."""

    pod: int
    claim: str
    demand: Demand
    grants: tuple[Grant, ...] = ()


@dataclass(slots=True)
class _Shared:
    node: int
    """Where it is allocated."""
    entry: _Entry


class DeviceLedger:
    """Who gets which devices, mutable."""

    def __init__(
        self, snapshot: Snapshot, *, held_is_free: bool = False, is_fixed: bool = False
    ) -> None:
        """Begin with what claims hold.

        Args:
          snapshot: The fleet.
          held_is_free: What claims hold counts as free.
          is_fixed: Nothing that was given is exchanged for the sake of a newcomer.
        """
        self._is_fixed = is_fixed
        self._snapshot = snapshot
        self.state = DeviceState(snapshot.devices, held_is_free=held_is_free)
        self._entries: defaultdict[int, list[_Entry]] = defaultdict(list)
        self._shared: dict[SharedKey, _Shared] = {}
        self._needs: dict[tuple[int, int], Needs] = {}
        self._extended = {n for entry in snapshot.devices.extended for n in entry.nodes}

    def add(self, seats: Mapping[int, int]) -> int | None:
        """Allocate the claims of new pods, all or none.

        Args:
          seats: Pod -> node.

        Returns:
          None when all find devices; else a node where they do not, and nothing is changed.
        """
        fresh: defaultdict[int, list[_Entry]] = defaultdict(list)
        shared: dict[SharedKey, _Shared] = {}
        for pod in sorted(seats):
            node = seats[pod]
            needs = self._find_needs(pod, node)
            for claim, demand in needs.own:
                fresh[node].append(_Entry(pod, claim, demand))
            for need, demand in needs.shared:
                key = find_shared_key(self._snapshot, pod, need)
                known = self._shared.get(key)
                if known is not None:
                    if not self._follows(known, node):
                        return node
                elif key not in shared:
                    shared[key] = _Shared(node, _Entry(pod, need.name, demand))
                    fresh[node].append(shared[key].entry)
                else:
                    entry = shared[key].entry
                    nodes = tuple(sorted({*entry.demand.nodes, node} - {shared[key].node}))
                    entry.demand = replace(entry.demand, nodes=nodes)
        before = {node: list(map(replace, self._entries.get(node, ()))) for node in fresh}
        for node in sorted(fresh):
            if not self._allocate(node, fresh[node]):
                self._restore(before)
                return node
        self._shared |= shared
        return None

    def remove(self, seats: Mapping[int, int]) -> None:
        """Take back what `add` gave to pods.

        Args:
          seats: Pod -> node, as they were added.
        """
        for node in sorted(set(seats.values())):
            for entry in self._entries[node]:
                if entry.pod in seats:
                    self.state.give_back(entry.grants)
            self._entries[node] = [e for e in self._entries[node] if e.pod not in seats]
        self._shared = {k: s for k, s in self._shared.items() if s.entry.pod not in seats}

    def list_grants(self) -> dict[int, list[tuple[str, Grant]]]:
        """Return pod -> (claim, device) of all that was added, claims by name."""
        found: defaultdict[int, list[tuple[str, Grant]]] = defaultdict(list)
        for node in sorted(self._entries):
            for entry in self._entries[node]:
                found[entry.pod] += [(entry.claim, grant) for grant in entry.grants]
        return {pod: sorted(grants) for pod, grants in sorted(found.items())}

    def _find_needs(self, pod: int, node: int) -> Needs:
        x = int(self._snapshot.pods.spec[pod])
        # Needs differ between nodes only through extended resources.
        key = (x, node if node in self._extended else -1)
        if key not in self._needs:
            self._needs[key] = find_needs(self._snapshot, self._snapshot.pods.specs[x], node)
        return self._needs[key]

    def _follows(self, known: _Shared, node: int) -> bool:
        return all(
            self.state.reaches(grant.device, (known.node, node)) for grant in known.entry.grants
        )

    def _allocate(self, node: int, fresh: list[_Entry]) -> bool:
        """Serve new claims on a node, moving those of the plan to other devices if need be."""
        found = allocate(self.state, node, [entry.demand for entry in fresh])
        if found is None:
            old = self._entries.get(node, [])
            fixed = {id(known.entry) for known in self._shared.values()}
            movable = [entry for entry in old if id(entry) not in fixed]
            if self._is_fixed or not movable:
                return False
            for entry in movable:
                self.state.give_back(entry.grants)
            together = [*movable, *fresh]
            found = allocate(self.state, node, [entry.demand for entry in together])
            if found is None:
                for entry in movable:
                    self.state.take(entry.grants)
                return False
        else:
            together = fresh
        for entry, grants in zip(together, found, strict=True):
            entry.grants = grants
        self._entries[node] += fresh
        return True

    def _restore(self, before: Mapping[int, list[_Entry]]) -> None:
        for node, entries in before.items():
            now = self._entries.get(node, [])
            for entry in now:
                self.state.give_back(entry.grants)
            for entry, old in zip(now, entries, strict=False):
                entry.grants = old.grants
                self.state.take(entry.grants)
            del now[len(entries) :]
