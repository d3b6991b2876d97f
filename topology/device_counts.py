"""How many devices there are and how many are free, by node and by device class.

Devices of which only some can be used together (partitions that share counters) count as many as
fit together. Devices that several nodes reach, or that share their capacity, are not counted: how
many there are for one node depends on the others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topology.devices import DeviceTable

__all__ = ["count_by_class", "count_of_filter", "count_together", "find_used", "list_loads"]

Load = tuple[tuple[tuple[str, str], int], ...]
"""What one device takes: ((counter set, counter), amount), sorted."""
Room = dict[tuple[str, str], int]
"""What a pool has left of its counters."""


def find_used(table: DeviceTable) -> tuple[set[int], dict[int, Room]]:
    """Return the devices that claims hold, and what is left of the counters of each pool."""
    room = {
        p: {(c.counter_set, c.name): c.amount for c in pool.counters}
        for p, pool in enumerate(table.pools)
    }
    used = {entry.device for entry in table.held()}
    for d in used:
        for counter in table.kinds[table.kind[d]].counters:
            room[table.pool[d]][counter.counter_set, counter.name] -= counter.amount
    return used, room


def count_by_class(table: DeviceTable) -> dict[int, dict[str, tuple[int, int]]]:
    """Return node -> device class -> (devices in all, free ones)."""
    found: dict[int, dict[str, tuple[int, int]]] = defaultdict(dict)
    for f, entry in enumerate(table.filters):
        if not entry.expressions:
            for n, counts in count_of_filter(table, f).items():
                found[n][entry.device_class] = counts
    return {n: dict(sorted(found[n].items())) for n in sorted(found)}


def count_of_filter(table: DeviceTable, chosen: int) -> dict[int, tuple[int, int]]:
    """Return node -> (devices of a filter in all, free ones) for the nodes that have any."""
    used, room = find_used(table)
    whole = {
        p: {(c.counter_set, c.name): c.amount for c in pool.counters}
        for p, pool in enumerate(table.pools)
    }
    selected = [chosen in kind.filters and not kind.is_shared for kind in table.kinds]
    of_node: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for d, (p, k, r) in enumerate(zip(table.pool, table.kind, table.reach, strict=True)):
        if selected[k] and len(table.reaches[r]) == 1 and table.pools[p].is_complete:
            of_node[table.reaches[r][0]][p].append(d)
    counts = {}
    for n in sorted(of_node):
        total = free = 0
        for p, devices in of_node[n].items():
            total += count_together(list_loads(table, devices), whole[p])
            left = [d for d in devices if d not in used and not table.kinds[table.kind[d]].taints]
            free += count_together(list_loads(table, left), room[p])
        counts[n] = (total, free)
    return counts


def list_loads(table: DeviceTable, devices: Iterable[int]) -> list[Load]:
    """Return what each of some devices takes of the counters of its pool."""
    return [
        tuple(((c.counter_set, c.name), c.amount) for c in table.kinds[table.kind[d]].counters)
        for d in devices
    ]


def count_together(loads: Sequence[Load], room: Mapping[tuple[str, str], int]) -> int:
    """Return how many devices of one pool can be in use at once.

    Args:
      loads: What each takes of the counters.
      room: What is left of them.
    """
    limited = [load for load in loads if load]
    count = len(loads) - len(limited)
    for part in _split(limited):
        keys = sorted({key for load in part for key, _ in load})
        best = _Packing([room.get(key, 0) for key in keys], keys)
        count += best.solve(part)
    return count


def _split(loads: Iterable[Load]) -> list[list[Load]]:
    """Split loads into parts that have no counter in common."""
    parts: list[tuple[set[tuple[str, str]], list[Load]]] = []
    for load in loads:
        keys = {key for key, _ in load}
        members = [load]
        rest = []
        for part in parts:
            if part[0] & keys:
                keys |= part[0]
                members = part[1] + members
            else:
                rest.append(part)
        parts = [*rest, (keys, members)]
    return [members for _, members in parts]


class _Packing:
    """The largest number of loads that fit together, by branch and bound."""

    MAX_STEPS = 20_000
    """Beyond, the best so far stands; it is reached with hundreds of unlike partitions only."""

    def __init__(self, room: list[int], keys: list[tuple[str, str]]) -> None:
        self._room = room
        self._keys = keys
        self._best = 0
        self._steps = 0

    def solve(self, loads: Iterable[Load]) -> int:
        rows = []
        for load in loads:
            amounts = dict(load)
            rows.append(tuple(amounts.get(key, 0) for key in self._keys))
        rows.sort(key=lambda row: (sum(row), row))
        self._search(rows, 0, self._room, 0)
        return self._best

    def _search(self, rows: list[tuple[int, ...]], at: int, room: list[int], count: int) -> None:
        self._best = max(self._best, count)
        self._steps += 1
        if self._steps > self.MAX_STEPS:
            return
        fitting = [row for row in rows[at:] if all(a <= r for a, r in zip(row, room, strict=True))]
        if count + self._limit(fitting, room) <= self._best:
            return
        for i, row in enumerate(fitting):
            if count + len(fitting) - i <= self._best:
                return
            if i and row == fitting[i - 1]:
                continue  # Leaving out one of two equal loads and taking the other gains nothing.
            left = [r - a for r, a in zip(room, row, strict=True)]
            self._search(fitting, i + 1, left, count + 1)

    def _limit(self, rows: list[tuple[int, ...]], room: list[int]) -> int:
        """Return what no choice exceeds: for each counter, the least takers first."""
        limit = len(rows)
        for c, left in enumerate(room):
            taken = fit = 0
            for amount in sorted(row[c] for row in rows):
                taken += amount
                if taken > left:
                    break
                fit += 1
            limit = min(limit, fit)
        return limit
