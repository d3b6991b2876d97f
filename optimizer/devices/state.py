"""Which devices are taken while a plan is being built: take and give back.

Source: KEP-4381 (a device has one user), KEP-4815 (devices of a pool share counters), KEP-5075
(capacity of one device is shared by several allocations).
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from topology.devices import NO_DEVICE

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from topology.devices import AllocatedClaim, DeviceRequest, DeviceTable

__all__ = ["DeviceState", "Grant", "list_held"]


class Grant(NamedTuple):
    """A device that a request gets."""

    device: int
    request: str = ""
    """Name of the request, or "request/subrequest"."""
    is_admin: bool = False
    """Keeps the device from nobody."""
    consumed: tuple[tuple[str, int], ...] = ()
    """What it takes of the capacity of a shared device, in thousandths."""


def list_held(claim: AllocatedClaim) -> list[Grant]:
    """Return what an allocated claim holds of the devices that the slices list."""
    return [
        Grant(entry.device, entry.request, entry.is_admin, entry.consumed)
        for entry in claim.devices
        if entry.device != NO_DEVICE
    ]


class DeviceState:
    """Use of every device of a table, mutable; axis D devices, N nodes."""

    def __init__(self, table: DeviceTable, *, held_is_free: bool = False) -> None:
        """Take what claims hold, unless that is to count as free."""
        self.table = table
        self.users = [0] * len(table)
        """(D,) allocations of each device, admin access left out."""
        self.consumed: defaultdict[int, defaultdict[str, int]] = defaultdict(
            lambda: defaultdict(int)
        )
        """Shared device -> capacity -> amount taken."""
        self.room = [
            {(c.counter_set, c.name): c.amount for c in pool.counters} for pool in table.pools
        ]
        """Pool -> counter -> what is left; negative where claims hold too much."""
        self.offers: dict[DeviceRequest, list[tuple[tuple[str, int], ...] | None]] = {}
        """Request -> what it would take of each kind (`find_consumed`), kept for the allocator."""
        self._nodes = [frozenset(reach) for reach in table.reaches]
        self._local: defaultdict[int, list[int]] = defaultdict(list)
        self._remote: defaultdict[int, list[int]] = defaultdict(list)
        self._incomplete: list[frozenset[int]] = []
        for d, (p, r) in enumerate(zip(table.pool, table.reach, strict=True)):
            if not table.pools[p].is_complete:
                self._incomplete.append(self._nodes[r])
            elif len(table.reaches[r]) == 1:
                self._local[table.reaches[r][0]].append(d)
            else:
                self._remote[r].append(d)
        self._incomplete = sorted(set(self._incomplete), key=sorted)
        if not held_is_free:
            for claim in table.claims:
                self.take(list_held(claim))

    def list_reachable(self, node: int) -> list[int]:
        """Return the devices of complete pools that a node reaches, ascending."""
        local = self._local.get(node, [])
        remote = [d for r, found in self._remote.items() if node in self._nodes[r] for d in found]
        return sorted([*local, *remote]) if remote else local

    def lacks_slices(self, node: int) -> bool:
        """Tell whether the node reaches a pool of which slices are missing."""
        return any(node in nodes for nodes in self._incomplete)

    def reaches(self, device: int, nodes: Iterable[int]) -> bool:
        """Tell whether all the nodes reach a device once it is allocated for them."""
        wanted = set(nodes)
        if self.table.kinds[self.table.kind[device]].binds_to_node and len(wanted) > 1:
            return False
        return wanted <= self._nodes[self.table.reach[device]]

    def is_remote(self, device: int) -> bool:
        """Tell whether several nodes reach a device."""
        return len(self.table.reaches[self.table.reach[device]]) != 1

    def is_open(self, device: int) -> bool:
        """Tell whether nobody has a device and its pool has what it would take of its counters."""
        kind = self.table.kinds[self.table.kind[device]]
        if self.users[device]:
            return kind.is_shared
        room = self.room[self.table.pool[device]]
        return all(c.amount <= room[c.counter_set, c.name] for c in kind.counters)

    def has_capacity(self, device: int, consumed: Iterable[tuple[str, int]]) -> bool:
        """Tell whether a shared device has these amounts left."""
        taken = self.consumed.get(device)
        if taken is None:
            return True  # The first user was measured against the whole.
        offered = {c.name: c.amount for c in self.table.kinds[self.table.kind[device]].capacity}
        return all(taken[name] + amount <= offered.get(name, 0) for name, amount in consumed)

    def take(self, grants: Iterable[Grant]) -> None:
        """Let grants hold their devices."""
        self._shift(grants, 1)

    def give_back(self, grants: Iterable[Grant]) -> None:
        """Undo `take`."""
        self._shift(grants, -1)

    def _shift(self, grants: Iterable[Grant], sign: int) -> None:
        for grant in grants:
            if grant.is_admin:
                continue
            d = grant.device
            kind = self.table.kinds[self.table.kind[d]]
            before = self.users[d]
            self.users[d] += sign
            for name, amount in grant.consumed:
                self.consumed[d][name] += sign * amount
            # Counters are taken once, by the first of several users.
            if kind.counters and not (before and self.users[d]):
                room = self.room[self.table.pool[d]]
                for counter in kind.counters:
                    room[counter.counter_set, counter.name] -= sign * counter.amount

    def describe(self, node: int) -> Hashable:
        """Return a key that is equal for nodes whose devices take the same claims.

        Devices that several nodes reach are named, so that only nodes that reach the same compare.
        """
        table = self.table
        pools: dict[int, int] = {}
        devices = []
        for d in self.list_reachable(node):
            ordinal = pools.setdefault(table.pool[d], len(pools))
            taken = tuple(sorted(self.consumed[d].items())) if d in self.consumed else ()
            name = d if self.is_remote(d) else -1
            devices.append((table.kind[d], ordinal, self.users[d], taken, name))
        rooms = tuple(tuple(self.room[p].items()) for p in pools)
        return tuple(devices), rooms, self.lacks_slices(node)
