"""Free GPUs of one pool while a synthetic fleet is filled.

A stand-in for the history of a fleet, not a planner: it places single pods and whole-node gangs
one after the other, by best fit or at random.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from data.generate.machines import Machines

__all__ = ["Level", "Room"]

Level = Literal["", "inner", "outer"]
"""What a gang must share: nothing, an innermost domain, the domain around it."""

_RANDOM_TRIES = 16


class Room:
    """Usable nodes of one pool; domains are numbered within it."""

    def __init__(
        self, machines: Machines, pool: int, rng: random.Random, *, is_random: bool
    ) -> None:
        members = np.flatnonzero((machines.pool == pool) & machines.is_usable)
        self.node_gpus = machines.pools[pool].gpus
        self.capacity = len(members) * self.node_gpus
        self._rng = rng
        self._is_random = is_random
        self._members: list[int] = members.tolist()
        self._free = dict.fromkeys(self._members, self.node_gpus)
        # Nodes by free GPUs; an entry is stale once the node has another number of them.
        self._partial: list[list[int]] = [[] for _ in range(self.node_gpus)]
        inners, first, codes = np.unique(
            machines.inner[members], return_index=True, return_inverse=True
        )
        self._inner_of = dict(zip(self._members, codes.tolist(), strict=True))
        _, self._outer_of = np.unique(machines.outer[members][first], return_inverse=True)
        self._idle: list[list[int]] = [[] for _ in inners]
        for node in self._members:
            self._idle[self._inner_of[node]].append(node)
        self._num_idle = np.array([len(nodes) for nodes in self._idle], np.int64)
        num_outer = int(self._outer_of.max()) + 1 if len(members) else 0
        self._num_idle_outer = np.bincount(
            self._outer_of, weights=self._num_idle, minlength=num_outer
        ).astype(np.int64)

    def place_pod(self, gpus: int) -> int | None:
        """Put one pod on a node and return the node, None when it fits nowhere."""
        node = self._find_random(gpus) if self._is_random else None
        if node is None:
            node = self._find_best(gpus)
        if node is not None:
            self._take(node, gpus)
        return node

    def place_gang(self, pods: int, level: Level) -> list[int] | None:
        """Put a gang on `pods` idle nodes and return them, None when it fits nowhere."""
        match level:
            case "inner":
                domain = self._choose(self._num_idle, pods)
                inners: Iterable[int] = () if domain is None else (domain,)
            case "outer":
                domain = self._choose(self._num_idle_outer, pods)
                inners = () if domain is None else self._list_inners(domain)
            case _:
                domain = self._choose(self._num_idle_outer, pods)
                if domain is None and int(self._num_idle.sum()) < pods:
                    return None
                # Spread over several domains only where none has room.
                outers = self._rank(self._num_idle_outer) if domain is None else [domain]
                inners = chain.from_iterable(map(self._list_inners, outers))
        nodes: list[int] = []
        for inner in inners:
            nodes += self._take_idle(inner, pods - len(nodes))
            if len(nodes) == pods:
                return nodes
        return None

    def place_parts(self, parts: tuple[int, ...], *, share_outer: bool) -> list[int] | None:
        """Put each part of a gang in an inner domain of its own.

        Args:
          parts: Pods of each part, all alike.
          share_outer: All of them in one outer domain.

        Returns:
          Nodes part after part, or None when it fits nowhere.
        """
        fits = self._num_idle >= parts[0]
        domains = np.flatnonzero(fits)
        if share_outer:
            per_outer = np.bincount(self._outer_of[domains], minlength=len(self._num_idle_outer))
            outer = self._choose(per_outer, len(parts))
            if outer is None:
                return None
            domains = domains[self._outer_of[domains] == outer]
        elif len(domains) < len(parts):
            return None
        chosen = domains.tolist()
        if self._is_random:
            self._rng.shuffle(chosen)
        nodes: list[int] = []
        for inner, count in zip(chosen, parts, strict=False):
            nodes += self._take_idle(inner, count)
        return nodes

    def release(self, nodes: list[int], gpus: int) -> None:
        """Take a pod with that many GPUs off each node."""
        for node in nodes:
            self._free[node] += gpus
            if self._free[node] == self.node_gpus:
                inner = self._inner_of[node]
                self._idle[inner].append(node)
                self._count_idle(inner, 1)
            else:
                self._partial[self._free[node]].append(node)

    def place_on(self, node: int, gpus: int) -> None:
        """Put one pod on a node that has room for it."""
        self._take(node, gpus)

    def free_by_node(self, num_nodes: int) -> NDArray[np.int64]:
        """Return the free GPUs of each node of the fleet, 0 on nodes of other pools, i64[N]."""
        free = np.zeros(num_nodes, np.int64)
        free[self._members] = [self._free[n] for n in self._members]
        return free

    def _find_random(self, gpus: int) -> int | None:
        for _ in range(_RANDOM_TRIES):
            node = self._rng.choice(self._members)
            if self._free[node] >= gpus:
                return node
        return None

    def _find_best(self, gpus: int) -> int | None:
        for left in range(gpus, self.node_gpus):
            stack = self._partial[left]
            while stack:
                if self._free[stack[-1]] == left:
                    return stack[-1]
                stack.pop()
        inner = self._choose(self._num_idle, 1)
        return None if inner is None else self._idle[inner][-1]

    def _choose(self, counts: NDArray[np.int64], wanted: int) -> int | None:
        """Return a domain with at least that many: the tightest, or any."""
        fits = np.flatnonzero(counts >= wanted)
        if not len(fits):
            return None
        if self._is_random:
            return int(fits[self._rng.randrange(len(fits))])
        return int(fits[np.argmin(counts[fits])])

    def _rank(self, counts: NDArray[np.int64]) -> list[int]:
        domains: list[int] = np.argsort(-counts, kind="stable").tolist()
        if self._is_random:
            self._rng.shuffle(domains)
        return domains

    def _list_inners(self, outer: int) -> list[int]:
        inners = np.flatnonzero(self._outer_of == outer)
        return [int(inners[i]) for i in self._rank(self._num_idle[inners])]

    def _take_idle(self, inner: int, most: int) -> list[int]:
        idle = self._idle[inner]
        count = min(most, len(idle))
        chosen = self._rng.sample(idle, count) if self._is_random else idle[len(idle) - count :]
        for node in chosen:
            self._take(node, self.node_gpus)
        return chosen

    def _count_idle(self, inner: int, change: int) -> None:
        self._num_idle[inner] += change
        self._num_idle_outer[self._outer_of[inner]] += change

    def _take(self, node: int, gpus: int) -> None:
        if self._free[node] == self.node_gpus:
            inner = self._inner_of[node]
            self._idle[inner].remove(node)
            self._count_idle(inner, -1)
        self._free[node] -= gpus
        if self._free[node]:
            self._partial[self._free[node]].append(node)
