"""Small random fleets to re-pack, and the best plan by trying everything."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import HOSTNAME, PODS, Group, Node, Phase, PodSpec, TopologyTerm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topology.model import Snapshot

__all__ = ["RACK", "SmallFleet", "draw_fleet", "find_best"]

GPU = "nvidia.com/gpu"
RACK = "topo.example.com/rack"
Positions = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SmallFleet:
    """A fleet with at most six running pods and one gang that waits, and what is asked of it."""

    snapshot: Snapshot
    mode: Literal["live", "restart"]
    groups: tuple[str, ...]
    free: tuple[str, ...]


def _spec(gpus: int) -> PodSpec:
    return PodSpec(tuple(sorted({GPU: gpus, PODS: 1}.items())))


def draw_fleet(seed: int) -> SmallFleet:
    """Draw a fleet of three or four nodes in two racks, full enough that moves are needed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 5))
    sizes = [int(rng.choice([2, 4, 4])) for _ in range(count)]
    nodes = [
        Node(
            f"n{i}",
            {HOSTNAME: f"n{i}", RACK: "ab"[i * 2 // count]},
            {GPU: size, PODS: 110},
        )
        for i, size in enumerate(sizes)
    ]
    free = list(sizes)
    pods: list[PodRow] = []
    groups: list[GroupRow] = []
    for number in range(int(rng.integers(3, 6))):
        gpus = int(rng.choice([1, 1, 2, 3]))
        members = int(rng.choice([1, 1, 1, 2]))
        is_racked = bool(rng.random() < 0.4)
        homes = []
        for _ in range(members):
            fits = [
                n
                for n in range(count)
                if free[n] >= gpus
                and (not (is_racked and homes) or n * 2 // count == homes[0] * 2 // count)
            ]
            if fits:
                homes.append(int(rng.choice(fits)))
                free[homes[-1]] -= gpus
        if not homes:
            continue
        ref = f"run/g{number}"
        if members > 1 or is_racked:
            topology = (TopologyTerm((RACK,)),) if is_racked else ()
            group = Group(
                ref,
                "group",
                "scheduling.k8s.io/v1beta1/PodGroup",
                min_count=len(homes),
                size=len(homes),
                topology=topology,
                disruption="all" if rng.random() < 0.5 else "single",
            )
            groups.append(GroupRow(group, ""))
        for i, n in enumerate(homes):
            pods.append(
                PodRow(
                    f"run/p{number}-{i}",
                    _spec(gpus),
                    node=f"n{n}",
                    group=ref if members > 1 or is_racked else "",
                    phase=Phase.RUNNING,
                    rank=i,
                )
            )
    mode: Literal["live", "restart"] = "live" if rng.random() < 0.5 else "restart"
    wants_group, wants_free = bool(rng.random() < 0.7), False
    if not wants_group or rng.random() < 0.2:
        wants_free = True
    if wants_group:
        members, gpus = int(rng.integers(1, 4)), int(rng.choice([1, 2, 2, 4]))
        topology = (TopologyTerm((RACK,)),) if rng.random() < 0.6 else ()
        gang = Group(
            "ask/gang",
            "group",
            "scheduling.k8s.io/v1beta1/PodGroup",
            min_count=members,
            size=members,
            topology=topology,
        )
        groups.append(GroupRow(gang, ""))
        pods += [
            PodRow(f"ask/gang-{i}", _spec(gpus), group="ask/gang", phase=Phase.PENDING, rank=i)
            for i in range(members)
        ]
    key = RACK if rng.random() < 0.5 else HOSTNAME
    return SmallFleet(
        assemble_snapshot(nodes, pods, groups),
        mode,
        ("ask/gang",) if wants_group else (),
        (f"{key}:1",) if wants_free else (),
    )


class _Exhaustive:
    def __init__(self, fleet: SmallFleet) -> None:
        snapshot = fleet.snapshot
        pods = snapshot.pods
        self.fleet = fleet
        self.snapshot = snapshot
        self.running = [p for p in range(len(pods)) if pods.is_running_member[p]]
        self.pending = [p for p in range(len(pods)) if pods.is_pending[p]]
        self.gpus = {p: pods.specs[pods.spec[p]].gpus for p in range(len(pods))}
        self.room = [node.allocatable[GPU] for node in snapshot.nodes]
        self.rack = [node.labels[RACK] for node in snapshot.nodes]
        self.home: Positions = tuple(int(pods.node[p]) for p in self.running)
        self.members: dict[int, list[int]] = {}
        for i, p in enumerate(self.running):
            g = int(pods.group[p])
            if g >= 0:
                self.members.setdefault(g, []).append(i)

    def free(self, at: Positions) -> list[int]:
        free = list(self.room)
        for i, n in enumerate(at):
            free[n] -= self.gpus[self.running[i]]
        return free

    def is_valid(self, at: Positions) -> bool:
        """Tell whether everything fits and every group is where its topology wants it."""
        if min(self.free(at)) < 0:
            return False
        for g, members in self.members.items():
            if self.snapshot.groups[g].topology and len({self.rack[at[i]] for i in members}) > 1:
                return False
        return True

    def gains(self, at: Positions) -> tuple[int, int]:
        """Return (groups placed, domains empty for the goal) of one state, at best."""
        best = (-1, -1)
        for placed, nodes in self._placements(at):
            used = set(at) | nodes
            empty = 0
            for text in self.fleet.free:
                key = text.rpartition(":")[0]
                values = {node.labels[key] for node in self.snapshot.nodes}
                empty += min(
                    sum(
                        all(
                            n not in used
                            for n, node in enumerate(self.snapshot.nodes)
                            if node.labels[key] == value
                        )
                        for value in values
                    ),
                    1,
                )
            best = max(best, (placed, empty))
        return best

    def _placements(self, at: Positions) -> Iterator[tuple[int, set[int]]]:
        yield 0, set()
        if not self.pending:
            return
        gang = self.snapshot.groups[int(self.snapshot.pods.group[self.pending[0]])]
        nodes = range(len(self.room))
        for chosen in itertools.combinations_with_replacement(nodes, len(self.pending)):
            free = self.free(at)
            for n in chosen:
                free[n] -= self.gpus[self.pending[0]]
            if min(free) >= 0 and not (gang.topology and len({self.rack[n] for n in chosen}) > 1):
                yield 1, set(chosen)

    def disturbed(self, moved: frozenset[int]) -> int:
        found = set(moved)
        for g, members in self.members.items():
            if self.snapshot.groups[g].disruption == "all" and moved & set(members):
                found |= set(members)
        return len(found)

    def live(self) -> tuple[int, ...]:
        """Try every sequence of single moves, the cheapest first."""
        start = (self.home, frozenset[int]())
        cost = {start: (0, 0)}
        heap: list[tuple[int, int, Positions, tuple[int, ...]]] = [(0, 0, self.home, ())]
        best: tuple[int, ...] = (-1,)
        gains: dict[Positions, tuple[int, int]] = {}
        while heap:
            gpus, steps, at, moved_list = heapq.heappop(heap)
            moved = frozenset(moved_list)
            if cost[at, moved] < (gpus, steps):
                continue
            if at not in gains:
                gains[at] = self.gains(at)
            best = max(best, (*gains[at], -self.disturbed(moved), -gpus, -steps))
            for i in range(len(at)):
                for n in range(len(self.room)):
                    after = (*at[:i], n, *at[i + 1 :])
                    if n == at[i] or not self.is_valid(after):
                        continue
                    state = (after, moved | {i})
                    new = (gpus + self.gpus[self.running[i]], steps + 1)
                    if new < cost.get(state, (2**30, 0)):
                        cost[state] = new
                        heapq.heappush(heap, (*new, after, tuple(sorted(state[1]))))
        return best

    def restart(self) -> tuple[int, ...]:
        """Try every set of units that stop together, and everywhere they may start."""
        of_unit: dict[tuple[int, int], list[int]] = {}
        for i, p in enumerate(self.running):
            g = int(self.snapshot.pods.group[p])
            of_unit.setdefault((g, -1 if g >= 0 else i), []).append(i)
        units = list(of_unit.values())
        best: tuple[int, ...] = (-1,)
        for touched in itertools.product((False, True), repeat=len(units)):
            movers = [i for unit, is_on in zip(units, touched, strict=True) if is_on for i in unit]
            gpus = sum(self.gpus[self.running[i]] for i in movers)
            for nodes in itertools.product(range(len(self.room)), repeat=len(movers)):
                at = list(self.home)
                for i, n in zip(movers, nodes, strict=True):
                    at[i] = n
                where = tuple(at)
                if self.is_valid(where):
                    count = len(movers)
                    best = max(best, (*self.gains(where), -count, -gpus, -count))
        return best


def find_best(fleet: SmallFleet) -> tuple[int, ...]:
    """Return the best (groups placed, goals reached, -disturbed pods, -moved GPUs, -moves)."""
    search = _Exhaustive(fleet)
    return search.live() if fleet.mode == "live" else search.restart()


def score(criteria: Mapping[str, int], reached: int) -> tuple[int, ...]:
    """Return the same of a plan."""
    return (
        criteria["groupsPlaced"],
        reached,
        -criteria["disturbedPods"],
        -criteria["movedGpus"],
        -criteria["moves"],
    )
