"""The fleet in which everything that may be moved waits for a node, and where it stands now.

Pods that move alone and are alike (same class, same nodes open to them) are one *kind*: a model
counts how many of them leave and come to a node, not which.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from optimizer.decode import replay
from optimizer.fills import Fill
from optimizer.fleet_state import FleetState
from optimizer.problem import build_problem
from optimizer.repack.goals import Goals, find_goals
from optimizer.repack.movers import find_movers
from optimizer.units import Task, TreeNode, Unit
from topology.levels import NO_DOMAIN, build_column
from topology.model import NO_GROUP, NO_NODE, Phase, PodFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem
    from optimizer.repack.movers import Mover, Movers
    from topology.model import Snapshot
    from topology.plan import Request

    Codes = NDArray[np.int32]
    Indices = NDArray[np.int64]

__all__ = [
    "Kind",
    "MovableFleet",
    "build_fleet",
    "fills_of",
    "make_kind_unit",
    "stand_at_home",
]


@dataclass(frozen=True, slots=True)
class Kind:
    """Pods that move alone and are interchangeable."""

    pod_class: int
    mask: NDArray[np.bool_]
    """bool[N] nodes open to them."""
    unit: int
    """The `all` group that is disturbed with them, or NO_GROUP."""
    gpus: int
    pods: tuple[int, ...]
    """Ascending."""


@dataclass(slots=True)
class MovableFleet:
    """A problem in which the movers wait, and the state with each of them where it stands."""

    snapshot: Snapshot
    request: Request
    goals: Goals
    movers: Movers
    problem: Problem
    """Of the fleet without the movers; its units hold them and what is to be placed."""
    state: FleetState
    kinds: tuple[Kind, ...]
    kind_of: dict[int, int]
    """Pod that moves alone -> kind."""
    wholes: dict[int, Mover]
    """Unit of the problem -> the mover that it stands for."""
    pending: tuple[int, ...]
    """Units that wait for a node and are asked for."""
    home: dict[int, int]
    """Pod of a mover -> the node where it runs."""
    where: dict[int, int]
    """Pod of a mover -> the node where the plan so far puts it."""
    placements: dict[int, UnitPlacement] = field(default_factory=dict)
    """Pending unit -> where the plan so far puts it."""
    touched: set[int] = field(default_factory=set)
    """Units of whole movers that restart."""

    def moved_snapshot(self) -> Snapshot:
        """Return the fleet with everything where the plan so far puts it."""
        node = self.snapshot.pods.node.copy()
        for pod, n in self.where.items():
            node[pod] = n
        return replace(self.snapshot, pods=replace(self.snapshot.pods, node=node))

    def fills_at(self, u: int) -> UnitPlacement:
        """Return where the pods of a whole mover are, as the plan so far has it."""
        return fills_of(self.problem.units[u], self.where)

    def standing(self) -> dict[int, dict[int, list[int]]]:
        """Return node -> kind -> pods there, as the plan so far has it."""
        found: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for p, k in self.kind_of.items():
            found[self.where[p]][k].append(p)
        return found

    def is_moved(self, pod: int) -> bool:
        """Tell whether a pod that moves alone is no longer where it runs."""
        return self.where[pod] != self.home[pod]


def fills_of(unit: Unit, nodes: Mapping[int, int]) -> UnitPlacement:
    """Return the fills of a unit whose pods are on these nodes."""
    fills = []
    for t, task in enumerate(unit.tasks):
        found, counts = np.unique([nodes[p] for p in task.pods], return_counts=True)
        fills.append(Fill(t, found.astype(np.int64), counts.astype(np.int64)))
    return tuple(fills)


def build_fleet(snapshot: Snapshot, request: Request, *, fixed: Iterable[int] = ()) -> MovableFleet:
    """Compile a fleet for a request with `move`.

    Args:
      snapshot: The fleet.
      request: Goals, groups to place, and what may be moved.
      fixed: Pods that stay whatever the request says (an order of moves was not found for them).

    Raises:
      RequestError: A goal names what is not there, or goals contradict one another.
    """
    assert request.move is not None
    found = find_movers(snapshot, request)
    held = set(fixed)
    movers = [m for m in found.movers if not held.intersection(m.pods)]
    for m in found.movers:
        if held.intersection(m.pods):
            text = "no order of moves was found that gives it room"
            found.staying.update(dict.fromkeys(m.pods, text))
    home = {p: int(snapshot.pods.node[p]) for m in movers for p in m.pods}
    lifted, reserved = _lift(snapshot, request, home)
    refs = {
        snapshot.pods.refs[m.pods[0]] if m.root == NO_GROUP else snapshot.groups[m.root].ref
        for m in movers
    } | set(request.groups or ())
    problem = build_problem(lifted, request, placed=reserved, only=sorted(refs))
    by_root = {
        unit.root.group if unit.root.group != NO_GROUP else ~unit.tasks[0].pods[0]: u
        for u, unit in enumerate(problem.units)
        if unit.tasks
    }
    wholes = {by_root[m.root]: m for m in movers if m.is_whole}
    asked = {
        u
        for u, unit in enumerate(problem.units)
        if unit.tasks and unit.tasks[0].pods[0] not in home
    }
    fleet = MovableFleet(
        snapshot=snapshot,
        request=request,
        goals=find_goals(snapshot, request, found),
        movers=found,
        problem=problem,
        state=FleetState(problem),
        kinds=(),
        kind_of={},
        wholes=wholes,
        pending=tuple(sorted(asked)),
        home=home,
        where=dict(home),
    )
    fleet.kinds = _find_kinds(fleet, [m for m in movers if not m.is_whole])
    fleet.kind_of = {p: k for k, kind in enumerate(fleet.kinds) for p in kind.pods}
    fleet.state = stand_at_home(fleet)
    return fleet


def stand_at_home(fleet: MovableFleet) -> FleetState:
    """Return a new state with every mover where it runs."""
    problem = fleet.problem
    state = FleetState(problem)
    for kind in fleet.kinds:
        nodes, counts = np.unique([fleet.home[p] for p in kind.pods], return_counts=True)
        state.take(kind.pod_class, nodes.astype(np.int64), counts.astype(np.int64))
    for u in fleet.wholes:
        replay(state, problem.units[u], fills_of(problem.units[u], fleet.home))
    _own_standing(fleet, state)
    state.forget_journal()
    return state


def _lift(
    snapshot: Snapshot, request: Request, home: Mapping[int, int]
) -> tuple[Snapshot, dict[int, int]]:
    """Return the fleet in which the movers wait, and the nodes that nominations reserve.

    What waits and is not asked for is left out: but for its nominations, nobody makes room for it.
    """
    pods, groups = snapshot.pods, snapshot.groups
    asked = set(request.groups or ())
    phase, node, nominated = pods.phase.copy(), pods.node.copy(), pods.nominated.copy()
    lifted = np.fromiter(home, np.int64, len(home))
    phase[lifted], node[lifted], nominated[lifted] = Phase.PENDING, NO_NODE, NO_NODE
    reserved: dict[int, int] = {}
    for p in np.flatnonzero(pods.is_pending).tolist():
        g = int(pods.group[p])
        refs = {pods.refs[p]} if g == NO_GROUP else set()
        while g != NO_GROUP:
            refs.add(groups[g].ref)
            g = groups[g].parent
        if refs & asked:
            continue
        phase[p] = Phase.FAILED
        if pods.nominated[p] >= 0:
            reserved[p] = int(pods.nominated[p])
    flags = pods.flags.copy()
    flags[lifted] &= ~np.int16(PodFlag.GATED | PodFlag.WAITING)
    table = replace(pods, phase=phase, node=node, nominated=nominated, flags=flags)
    return replace(snapshot, pods=table), reserved


def _find_kinds(fleet: MovableFleet, movers: Iterable[Mover]) -> tuple[Kind, ...]:
    problem, snapshot = fleet.problem, fleet.snapshot
    codes: dict[tuple[str, ...], NDArray[np.int32]] = {c.path: c.codes for c in problem.columns}

    def codes_of(path: tuple[str, ...]) -> NDArray[np.int32]:
        if path not in codes:
            codes[path] = build_column(snapshot.nodes, path).codes
        return codes[path]

    masks: dict[tuple[int, tuple[tuple[tuple[str, ...], int], ...]], NDArray[np.bool_]] = {}
    found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    of_mask: list[NDArray[np.bool_]] = []
    index: dict[bytes, int] = {}
    by_key: dict[tuple[int, tuple[tuple[tuple[str, ...], int], ...]], int] = {}
    is_alone = _count_roots(fleet)
    for mover in movers:
        p = mover.pods[0]
        pod_class = problem.pod_classes[p]
        key = pod_class, _find_pins(fleet, p, is_alone.get(mover.root, 1) > 1, codes_of)
        if key not in masks:
            mask = problem.eligible[pod_class].copy()
            for path, domain in key[1]:
                of_path = codes_of(path)
                mask &= (of_path != NO_DOMAIN) if domain < 0 else (of_path == domain)
            mask[fleet.goals.drained] = False
            masks[key] = mask
            by_key[key] = index.setdefault(mask.tobytes(), len(of_mask))
            if by_key[key] == len(of_mask):
                of_mask.append(mask)
        found[pod_class, by_key[key], fleet.movers.unit[p]].append(p)
    return tuple(
        Kind(s, of_mask[m], unit, int(problem.class_gpus[s]), tuple(sorted(members)))
        for (s, m, unit), members in sorted(found.items())
    )


def _count_roots(fleet: MovableFleet) -> dict[int, int]:
    """Return root group -> running pods."""
    pods, groups = fleet.snapshot.pods, fleet.snapshot.groups
    counts: dict[int, int] = defaultdict(int)
    for g in pods.group[pods.is_running_member & (pods.group != NO_GROUP)].tolist():
        root = g
        while groups[root].parent != NO_GROUP:
            root = groups[root].parent
        counts[root] += 1
    return counts


def _find_pins(
    fleet: MovableFleet, p: int, has_peers: bool, codes_of: Callable[[tuple[str, ...]], Codes]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return the domains that a pod which moves alone may not leave, NO_DOMAIN for any domain.

    While its group runs on, a pod that left the group's domain would split it; so every prefix of
    a plan keeps required topology, runs of slices, exclusive domains and wanted company.
    """
    snapshot = fleet.snapshot
    node, g = fleet.home[p], int(snapshot.pods.group[p])
    pins: set[tuple[tuple[str, ...], int]] = set()

    def pin(path: tuple[str, ...], is_held: bool) -> None:
        domain = int(codes_of(path)[node]) if is_held else NO_DOMAIN
        pins.add((path, domain))

    while g != NO_GROUP:
        group = snapshot.groups[g]
        for term in group.topology:
            if term.required:
                pin(term.path, has_peers)
        for cut in group.slices:
            if cut.required:
                pin(cut.path, has_peers)
        for exclusive in group.exclusive:
            if exclusive.key is not None:
                pin((exclusive.key,), True)
        g = group.parent
    for affinity in snapshot.pods.specs[snapshot.pods.spec[p]].affinity:
        pin((affinity.key,), True)
    return tuple(sorted(pins))


def _own_standing(fleet: MovableFleet, state: FleetState) -> None:
    """Keep the exclusive domains of groups whose pods move alone: they never leave them."""
    tables, groups = fleet.problem.interactions, fleet.snapshot.groups
    for p in sorted(fleet.kind_of):
        g = int(fleet.snapshot.pods.group[p])
        while g != NO_GROUP:
            if groups[g].exclusive:
                rules = tables.exclusive_rules(g, groups[g])
                state.own(rules, np.array([fleet.home[p]], np.int64))
            g = groups[g].parent


def make_kind_unit(kind: Kind, pods: tuple[int, ...]) -> Unit:
    """Return pods of a kind as a unit without any floor, for the rows of a model."""
    tree = (TreeNode(NO_GROUP, tasks=(0,)),)
    return Unit("", tree, (Task(0, kind.pod_class, pods),), 0, 0, kind.gpus * len(pods))
