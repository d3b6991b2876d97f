"""A problem too large to be searched as one, cut into parts that are searched apart.

Nodes that share a domain of a key some group is bound to stay together, so a group that is dealt to
a part finds there each of its candidate domains whole or not at all. What a part cannot answer for
is kept out: groups bound to a wider key, groups that other pods attract or repel, claims,
nominations. Those, and what a part leaves over, are for the whole fleet.

Source: ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from optimizer.devices.cuts import find_unserved
from optimizer.fleet_state import FleetState, count_fits
from optimizer.interactions import Interactions, Signature
from optimizer.search.place import find_active, place_beside
from optimizer.spread_order import find_unspread
from optimizer.units import BROKEN, FREE_CHOICE
from topology.disruption import take_pods
from topology.levels import NO_DOMAIN, DomainColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem
    from optimizer.units import Task, TreeNode, Unit

    Indices = NDArray[np.int64]

__all__ = ["Cut", "Part", "cut_problem", "is_large", "strip_problem", "take_part"]

MAX_NODES: Final = 8_192
"""Nodes of a part, unless one domain has more."""
CUT_FROM: Final = 20_000_000
"""Nodes x waiting units from which a fleet of more than one part is cut."""
ANYWHERE: Final = -1
"""Stands for a column where a unit is bound to none."""


class Part(NamedTuple):
    """Nodes, and the units that are to be placed on them."""

    nodes: Indices
    """Ascending."""
    units: tuple[int, ...]
    """Ascending; those that are placed already among them."""
    placements: dict[int, UnitPlacement]
    """Unit -> fills on nodes of the part: the placement a search of it has to beat."""


class Cut(NamedTuple):
    """All nodes and units of a problem, dealt out."""

    parts: tuple[Part, ...]
    held: dict[int, UnitPlacement]
    """Unit -> fills of units that no part can answer for, on any nodes."""
    kept: tuple[int, ...]
    """Units bound to wider domains, to other pods or to devices, held or not."""
    roomless: tuple[int, ...]
    """Other units that fit into no part as it is without the plan."""
    keys: tuple[str, ...]
    """Topology keys whose domains the cut divides."""


def is_large(problem: Problem) -> bool:
    """Tell whether a problem is cut: by its size alone, so that the answer never depends on time.

    Example: 20,000 nodes and 1,000 groups are; 5,000 nodes never are.
    """
    nodes = len(problem.free)
    waiting = sum(bool(unit.tasks) for unit in problem.units)
    return nodes > MAX_NODES and nodes * waiting >= CUT_FROM


def cut_problem(problem: Problem) -> Cut:
    """Cut the nodes, and deal the units by placing one after another in the scheduler's own order.

    What comes to lie in one part is dealt to it with its placement, what lies across parts is held
    where it is. What finds no place is dealt to the part with the largest share of its GPUs not
    asked for that has the room without the plan, to be tried there again. So a plan that improves
    every part is never worse than placing greedily on the whole fleet.

    Args:
      problem: Of any size; not changed.

    Returns:
      Parts in order of their first node.
    """
    part_of, divided = _cut_nodes(problem, _find_bound_columns(problem))
    dealer = _Dealer(problem, part_of)
    standing: dict[int, UnitPlacement] = {}
    held: dict[int, UnitPlacement] = {}
    kept: list[int] = []
    roomless: list[int] = []
    for u in find_active(dealer.state):
        unit = problem.units[u]
        is_plain = _is_plain(problem, unit) and not divided & _columns_of(unit)
        placement = place_beside(dealer.state, u, standing)
        if placement is not None:
            standing[u] = placement
        if placement is not None and is_plain and dealer.keep(u, placement):
            continue
        if placement is not None:
            held[u] = placement
        if not is_plain:
            kept.append(u)
        elif placement is None and not dealer.deal(u):
            roomless.append(u)
    for u in {*find_unspread(problem, standing), *find_unserved(problem, standing)}:
        held.pop(u, None)
    bound = set().union(*map(_columns_of, problem.units))
    keys = sorted({problem.columns[c].key for c in divided & bound})
    return Cut(dealer.list_parts(), held, tuple(kept), tuple(roomless), tuple(keys))


def _columns_of(unit: Unit) -> set[int]:
    """Return the columns whose domains hold a unit, or parts of it, together."""
    return {r.column for node in unit.tree for r in node.required} | {
        column for node in unit.tree for column, _ in node.slices
    }


def _find_bound_columns(problem: Problem) -> list[int]:
    """Return the columns that units are bound to, then those they prefer; narrow ones first."""
    required = set().union(*map(_columns_of, problem.units))
    preferred = {c for unit in problem.units for node in unit.tree for c in node.preferred}

    def narrow_first(columns: set[int]) -> list[int]:
        return sorted(columns, key=lambda c: (-len(problem.columns[c].values), c))

    return [*narrow_first(required), *narrow_first(preferred - required)]


def _cut_nodes(problem: Problem, columns: Sequence[int]) -> tuple[NDArray[np.int64], set[int]]:
    """Cut the nodes into parts that divide no domain of as many columns as can be.

    Returns:
      i64[N] part of each node, and the columns whose domains some part divides.
    """
    nodes = len(problem.free)
    block = np.arange(nodes)
    divided: set[int] = set()
    for c in columns:
        merged = _join_domains(block, problem.columns[c])
        if np.bincount(merged).max() > MAX_NODES:
            divided.add(c)
        else:
            block = merged
    sizes = np.bincount(block)
    _, first = np.unique(block, return_index=True)
    part_of_block = np.empty(len(sizes), np.int64)
    # Blocks of like size in order of their nodes, which are sorted by name: neighbours mostly.
    part, filled = 0, 0
    room = -(-nodes // -(-nodes // MAX_NODES)) if nodes else 0
    for b in np.argsort(first, kind="stable").tolist():
        if filled and filled + sizes[b] > max(room, 1):
            part, filled = part + 1, 0
        part_of_block[b] = part
        filled += int(sizes[b])
    part_of = part_of_block[block]
    for c in sorted(divided):
        codes = problem.columns[c].codes.astype(np.int64)
        inside = codes != NO_DOMAIN
        pairs = np.unique(codes[inside] * (part + 1) + part_of[inside])
        if len(np.unique(pairs // (part + 1))) == len(pairs):
            divided.discard(c)
    return part_of, divided


def _join_domains(block: NDArray[np.int64], column: DomainColumn) -> NDArray[np.int64]:
    """Return the blocks of nodes that result when no domain of a column is divided either."""
    inside = column.codes != NO_DOMAIN
    blocks, domains = int(block.max(initial=-1)) + 1, len(column.values)
    ones = np.ones(int(inside.sum()), np.int8)
    pairs = (block[inside], column.codes[inside] + blocks)
    graph = coo_array((ones, pairs), shape=(blocks + domains, blocks + domains))
    _, labels = connected_components(graph, directed=False)
    return np.unique(labels[:blocks], return_inverse=True)[1][block].astype(np.int64)


def _is_plain(problem: Problem, unit: Unit) -> bool:
    """Tell whether nothing but free room and domains decides where a unit may go."""
    specs = problem.snapshot.pods.specs
    extended = [entry.resource for entry in problem.snapshot.devices.extended]
    for node in unit.tree:
        if node.exclusive or any(node.standing) or any(r.pinned == BROKEN for r in node.required):
            return False
    for task in unit.tasks:
        spec = specs[problem.class_specs[task.pod_class]]
        if problem.signatures[task.pod_class].is_coupled or spec.claims:
            return False
        if any(spec.request(resource) for resource in extended):
            return False
    nominated = {pod for pods in problem.reservations.values() for pod in pods}
    return not nominated or not any(p in nominated for task in unit.tasks for p in task.pods)


class _Dealer:
    """Knows what each part has free, and what was dealt to it."""

    def __init__(self, problem: Problem, part_of: NDArray[np.int64]) -> None:
        self.state = FleetState(problem)
        self.placements: dict[int, UnitPlacement] = {}
        self._problem, self._part_of = problem, part_of
        parts = int(part_of.max(initial=-1)) + 1
        self._parts = parts
        self._nodes = [np.flatnonzero(part_of == p) for p in range(parts)]
        self._is_open = np.ones(len(part_of), bool)
        self._is_open[list(problem.reservations)] = False
        self._gpus = np.maximum(np.bincount(part_of, problem.node_gpus, parts), 1)
        self._sizes = np.maximum(np.bincount(part_of, minlength=parts), 1)
        self._asked = np.zeros(parts)
        self._pods = np.zeros(parts)
        self._units: list[list[int]] = [[] for _ in range(parts)]
        self._rooms: dict[tuple[int, int, int], Indices] = {}

    def keep(self, u: int, placement: UnitPlacement) -> bool:
        """Give a placed unit to the part that all its nodes are in, if they are in one."""
        nodes = np.concatenate([fill.nodes for fill in placement])
        parts = np.unique(self._part_of[nodes])
        if len(parts) > 1 or not self._is_open[nodes].all():
            return False
        self.placements[u] = placement
        self._add(u, int(parts[0]))
        return True

    def deal(self, u: int) -> bool:
        """Give a unit that is not placed to a part that has room for it before the plan."""
        unit = self._problem.units[u]
        bound = [(r.column, r.pinned) for r in unit.root.required] or [(ANYWHERE, FREE_CHOICE)]
        fits = np.ones(self._parts, bool)
        for column, pinned in bound:
            rooms = [
                np.minimum(self._room(task.pod_class, column, pinned), task.count)
                for task in unit.tasks
            ]
            fits &= np.sum(rooms, axis=0) >= unit.count_needed()
        for node in unit.tree[1:]:
            for r in node.required:
                if r.pinned != FREE_CHOICE:
                    inside = self._problem.columns[r.column].codes == r.pinned
                    fits &= np.bincount(self._part_of[inside], minlength=self._parts) > 0
        if not fits.any():
            return False
        self._add(u, int(np.argmax(np.where(fits, self._find_left(unit), -np.inf))))
        return True

    def list_parts(self) -> tuple[Part, ...]:
        """Return the parts that have something to place."""
        return tuple(
            Part(
                nodes,
                tuple(sorted(units)),
                {u: self.placements[u] for u in sorted(units) if u in self.placements},
            )
            for nodes, units in zip(self._nodes, self._units, strict=True)
            if units
        )

    def _add(self, u: int, part: int) -> None:
        unit = self._problem.units[u]
        self._units[part].append(u)
        self._asked[part] += unit.gpus
        self._pods[part] += unit.num_pods

    def _find_left(self, unit: Unit) -> NDArray[np.float64]:
        """Return f64[parts]: the share of a part that nobody asked for yet."""
        asked, size = (self._asked, self._gpus) if unit.gpus else (self._pods, self._sizes)
        left: NDArray[np.float64] = 1 - asked / size
        return left

    def _room(self, pod_class: int, column: int, pinned: int) -> Indices:
        """Return i64[parts]: pods of a class in the roomiest domain (or the pinned one) of each."""
        key = (pod_class, column, pinned)
        if key in self._rooms:
            return self._rooms[key]
        problem = self._problem
        fits = count_fits(problem.free.astype(np.int64), problem.requests[pod_class])
        fits[~problem.eligible[pod_class] | ~self._is_open] = 0
        if column == ANYWHERE:
            room = np.bincount(self._part_of, fits, self._parts).astype(np.int64)
        else:
            codes = problem.columns[column].codes
            inside = codes != NO_DOMAIN if pinned == FREE_CHOICE else codes == pinned
            domains = len(problem.columns[column].values)
            sums = np.bincount(codes[inside], fits[inside], domains).astype(np.int64)
            room = np.zeros(self._parts, np.int64)
            np.maximum.at(room, self._part_of[inside], sums[codes[inside]])
        self._rooms[key] = room
        return room


def strip_problem(problem: Problem) -> Problem:
    """Return the problem without what searches of plain units never read, to be sent to workers."""
    snapshot = problem.snapshot
    bare = replace(
        snapshot,
        nodes=(),
        pods=take_pods(snapshot.pods, np.empty(0, np.int64)),
        budgets=(),
        errors=(),
        warnings=(),
    )
    return replace(
        problem, snapshot=bare, interactions=Interactions(), pod_classes={}, unit_of_pod={}
    )


def take_part(problem: Problem, part: Part) -> Problem:
    """Return the problem of one part: its nodes, its units, the classes and domains they have.

    Unit i of it is `part.units[i]`, node i is `part.nodes[i]`; pods and groups keep their indices.
    """
    nodes = part.nodes
    columns, lookups = [], []
    for column in problem.columns:
        narrowed, lookup = _narrow(column, nodes)
        columns.append(narrowed)
        lookups.append(lookup)
    chosen = [problem.units[u] for u in part.units]
    classes = sorted({task.pod_class for unit in chosen for task in unit.tasks})
    class_of = {s: i for i, s in enumerate(classes)}
    units = tuple(_rename(unit, class_of, lookups) for unit in chosen)
    eligible = problem.eligible[classes][:, nodes]
    if problem.reservations:
        eligible[:, np.isin(nodes, list(problem.reservations))] = False
    return replace(
        problem,
        units=units,
        free=problem.free[nodes],
        requests=problem.requests[classes],
        amounts=problem.amounts[classes],
        eligible=eligible,
        class_gpus=problem.class_gpus[classes],
        node_gpus=problem.node_gpus[nodes],
        columns=tuple(columns),
        interactions=Interactions(_num_nodes=len(nodes)),
        class_specs=tuple(problem.class_specs[s] for s in classes),
        signatures=(Signature(),) * len(classes),
        reservations={},
        pod_classes={p: t.pod_class for unit in units for t in unit.tasks for p in t.pods},
        unit_of_pod={p: u for u, unit in enumerate(units) for t in unit.tasks for p in t.pods},
        placed={},
    )


def _narrow(column: DomainColumn, nodes: Indices) -> tuple[DomainColumn, NDArray[np.int64]]:
    """Return a column over some nodes and the domains they are in, and old domain -> new one."""
    codes = column.codes[nodes]
    used = np.unique(codes[codes != NO_DOMAIN])
    lookup = np.full(len(column.values) + 1, NO_DOMAIN, np.int64)
    lookup[used] = np.arange(len(used))
    values = tuple(column.values[d] for d in used.tolist())
    return DomainColumn(column.path, lookup[codes].astype(np.int32), values), lookup


def _rename(unit: Unit, class_of: Mapping[int, int], lookups: Sequence[NDArray[np.int64]]) -> Unit:
    """Return a unit in the classes and domains of a part."""

    def rename_task(task: Task) -> Task:
        return replace(task, pod_class=class_of[task.pod_class])

    def rename_node(node: TreeNode) -> TreeNode:
        required = tuple(
            r if r.pinned < 0 else replace(r, pinned=int(lookups[r.column][r.pinned]))
            for r in node.required
        )
        return replace(node, required=required)

    return replace(
        unit,
        tree=tuple(map(rename_node, unit.tree)),
        tasks=tuple(map(rename_task, unit.tasks)),
    )
