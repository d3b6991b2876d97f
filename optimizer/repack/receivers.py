"""Which nodes a piece needs: where room could be made, and who could take what leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.decode import place_unit, replay
from optimizer.units import FREE_CHOICE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.relocate import Residents

    Indices = NDArray[np.int64]

__all__ = ["add_receivers", "count_movable", "find_whole_nodes", "rank_domains"]

SPARE: Final = 2
"""How many times the room that is needed a piece offers."""
MOST_NODES: Final = 96
"""Nodes of one piece."""


def rank_domains(
    fleet: MovableFleet, u: int, open_nodes: NDArray[np.bool_], most: int
) -> list[Indices]:
    """Return node sets in which room could be made for a waiting unit, the easiest first.

    A set is a domain that the unit asks for, cut down to the nodes where room is made with the
    fewest GPUs moved; without a domain, the easiest nodes of the fleet.
    """
    unit = fleet.problem.units[u]
    nodes = np.flatnonzero(open_nodes)
    groups = [nodes]
    for required in unit.root.required[:1]:
        codes = fleet.problem.columns[required.column].codes
        if required.pinned != FREE_CHOICE:
            groups = [nodes[codes[nodes] == required.pinned]]
        else:
            inside = nodes[codes[nodes] >= 0]
            order = inside[np.argsort(codes[inside], kind="stable")]
            groups = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    lifted = count_movable(fleet)
    sizes = fleet.problem.class_gpus
    hardest = max(unit.tasks, key=lambda t: (int(sizes[t.pod_class]), t.count)).pod_class
    step = max(int(sizes[hardest]), 1)
    count = max(sum(t.count for t in unit.tasks if sizes[t.pod_class] * 2 > step), 1)
    free = np.maximum(fleet.state.node_gpus, 0)
    eligible = fleet.problem.eligible[hardest]
    ranked: list[tuple[int, int, Indices]] = []
    for position, found in enumerate(groups):
        usable = found[eligible[found]]
        now = free[usable] // step
        reach = (free[usable] + lifted[usable]) // step
        if int(reach.sum()) < count and sizes[hardest]:
            continue
        # The first further slot of a node costs what it lacks; the others cost whole pods.
        lack = np.where(reach > now, step - free[usable] % step, 2**30)
        order = np.lexsort((usable, lack, -now))
        missing = max(count - int(now.sum()), 0)
        cost = int(np.sort(lack)[:missing].sum())
        slots = np.cumsum(np.maximum(reach[order], 0))
        enough = int(np.searchsorted(slots, SPARE * count)) + 1
        chosen = usable[order[: min(max(enough, 2), MOST_NODES)]]
        ranked.append((cost, position, np.sort(chosen)))
    ranked.sort(key=lambda entry: entry[:2])
    return [found for _, _, found in ranked[:most]]


def find_whole_nodes(fleet: MovableFleet, u: int) -> int | None:
    """Return how many nodes a unit needs whole, None where its pods share nodes."""
    unit, sizes = fleet.problem.units[u], fleet.problem.class_gpus
    largest = int(fleet.state.node_gpus.max(initial=0))
    largest = max(largest, int((np.maximum(fleet.state.node_gpus, 0) + count_movable(fleet)).max()))
    if len(unit.tree) > 1 or any(int(sizes[t.pod_class]) * 2 <= largest for t in unit.tasks):
        return None
    return unit.num_pods


def count_movable(fleet: MovableFleet) -> Indices:
    """Return i64[N]: GPUs of movers on each node, as the plan so far has it."""
    gpus = np.zeros(len(fleet.problem.free), np.int64)
    specs = fleet.snapshot.pods.spec
    of_spec = np.array([spec.gpus for spec in fleet.snapshot.pods.specs], np.int64)
    pods = np.fromiter(fleet.where, np.int64, len(fleet.where))
    nodes = np.fromiter(fleet.where.values(), np.int64, len(fleet.where))
    np.add.at(gpus, nodes, of_spec[specs[pods]])
    return gpus


def add_receivers(
    fleet: MovableFleet,
    residents: Residents,
    nodes: Indices,
    max_variables: int,
    open_nodes: NDArray[np.bool_] | None = None,
) -> Indices:
    """Return nodes with those that could take what stands on them, as far as a model allows.

    Units that also stand elsewhere bring those nodes along, so that they may be moved at all.
    """
    state, problem = fleet.state, fleet.problem
    outside = np.ones(len(problem.free), bool) if open_nodes is None else open_nodes.copy()
    outside[nodes] = False
    outside[fleet.goals.drained] = False
    found: dict[int, None] = dict.fromkeys(nodes.tolist())
    units = residents.wholes(nodes)
    by_kind: dict[int, int] = {}
    for p in residents.alone(nodes):
        by_kind[fleet.kind_of[p]] = by_kind.get(fleet.kind_of[p], 0) + 1
    rows = max(len(units) + len(by_kind), 1) + 1
    most = max(min(max_variables // rows, MOST_NODES * 2), len(nodes) + 4)
    for u in units:
        if len(found) >= most:
            break
        mark = state.mark()
        replay(state, problem.units[u], fleet.fills_at(u), lift=True)
        placement = place_unit(state, problem.units[u], within=np.flatnonzero(outside))
        state.undo(mark)
        if placement is not None:
            found |= dict.fromkeys(n for f in placement for n in f.nodes.tolist())
            found |= dict.fromkeys(n for f in fleet.fills_at(u) for n in f.nodes.tolist())
    for k, count in sorted(by_kind.items(), key=lambda e: (-fleet.kinds[e[0]].gpus, e[0])):
        kind = fleet.kinds[k]
        fits = state.fits(kind.pod_class) * (kind.mask & outside)
        usable = np.flatnonzero(fits)
        order = usable[np.lexsort((usable, state.node_gpus[usable]))]
        enough = int(np.searchsorted(np.cumsum(fits[order]), SPARE * count)) + 1
        for n in order[:enough].tolist():
            if len(found) >= most:
                break
            found[n] = None
    # Nodes that are used least could be emptied in turn, for what fits only there.
    partial = np.flatnonzero(outside & (state.node_gpus > 0))
    for n in partial[np.lexsort((partial, -state.node_gpus[partial]))].tolist():
        if len(found) >= min(most, len(nodes) + 40):
            break
        found[n] = None
    return np.array(sorted(found), np.int64)
