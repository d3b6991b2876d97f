"""Bins: pieces of the fleet whose room a model states by a few rows.

A node is a bin with one row a resource. Where only GPUs bind and pod sizes divide one another
(1, 2, 4, 8), a whole domain is one bin: its pods fit if and only if, for every size s, the pods'
slots of s (size // s each) are at most the nodes' slots of s (free // s each). The same rows are
a valid relaxation of any set of nodes.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topology.model import is_gpu

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.problem import Problem

    Indices = NDArray[np.int64]

__all__ = [
    "Bin",
    "Row",
    "cut_into_cells",
    "find_cut_columns",
    "make_node_bins",
    "make_slot_bin",
    "relax_rows",
]


@dataclass(frozen=True, slots=True)
class Row:
    """`sum over classes of weight[s] * pods of s <= up`."""

    weight: NDArray[np.int64]
    """i64[S]."""
    up: int


@dataclass(frozen=True, slots=True)
class Bin:
    """Nodes, what fits of each class alone, and rows over mixtures."""

    nodes: Indices
    fits: Indices
    """i64[S] pods of each class alone."""
    rows: tuple[Row, ...]
    cell: int = -1
    """The cell it is a part of; pods of a cell's bins also meet the cell's own rows."""
    is_slots: bool = False
    """The rows stand for several nodes; pods are put on nodes afterwards, largest first."""


def find_cut_columns(problem: Problem, units: Iterable[int]) -> list[int]:
    """Return the columns whose domains matter to these units: required, slices, exclusive."""
    found: set[int] = set()
    by_codes = {id(column.codes): c for c, column in enumerate(problem.columns)}
    for u in units:
        for node in problem.units[u].tree:
            found |= {r.column for r in node.required}
            found |= {column for column, _ in node.slices}
            for rule in node.exclusive:
                found.add(by_codes[id(problem.interactions.exclusive[rule.rule].codes)])
    return sorted(found)


def cut_into_cells(problem: Problem, columns: Sequence[int]) -> list[Indices]:
    """Cut the fleet into sets of nodes that no domain of these columns divides.

    Returns:
      Node sets, in order of their first domain codes; nodes in no domain are cells too.
    """
    num_nodes = len(problem.free)
    if not columns or num_nodes == 0:
        return [np.arange(num_nodes)] if num_nodes else []
    codes = np.stack([problem.columns[c].codes for c in columns])
    _, cell = np.unique(codes, axis=1, return_inverse=True)
    order = np.argsort(cell.ravel(), kind="stable")
    cuts = np.flatnonzero(np.diff(cell.ravel()[order])) + 1
    return [np.sort(part) for part in np.split(order, cuts)]


def make_node_bins(
    state: FleetState, nodes: Indices, classes: Sequence[int], cell: int = -1
) -> list[Bin]:
    """Make one exact bin for each node that takes a pod of these classes."""
    problem = state.problem
    num_classes = len(problem.requests)
    fits = np.zeros((num_classes, len(nodes)), np.int64)
    for s in classes:
        fits[s] = state.fits(s)[nodes]
    used = list(classes)
    requests = problem.requests[used].astype(np.int64)
    bins = []
    for i in np.flatnonzero(fits.any(axis=0)).tolist():
        free = state.free[nodes[i]]
        rows = []
        for r in np.flatnonzero(requests.any(axis=0)).tolist():
            weight = np.zeros(num_classes, np.int64)
            weight[used] = requests[:, r]
            weight[fits[:, i] == 0] = 0
            if weight.any():
                rows.append(Row(weight, max(int(free[r]), 0)))
        bins.append(Bin(nodes[i : i + 1], fits[:, i].copy(), tuple(rows), cell))
    return bins


def make_slot_bin(state: FleetState, nodes: Indices, classes: Sequence[int]) -> Bin | None:
    """Make one exact bin of several nodes, or None where slots alone do not decide."""
    problem = state.problem
    resource = _gpu_resource(problem, classes)
    if resource is None or any(state.is_coupled(s) for s in classes):
        return None
    sizes = sorted({int(problem.requests[s, resource]) for s in classes})
    if any(large % small for small, large in itertools.pairwise(sizes)):
        return None
    usable = nodes[state.free[nodes, resource] > 0]
    free = state.free[usable]
    gpus = free[:, resource]
    present = [s for s in classes if problem.eligible[s][usable].any()]
    for s in present:
        if not problem.eligible[s][usable].all():
            return None
    for r in range(free.shape[1]):
        if r == resource:
            continue
        # The hungriest class for this resource, per GPU: does it ever bind before GPUs do?
        for s in present:
            size = int(problem.requests[s, resource])
            if np.any(gpus * int(problem.requests[s, r]) > free[:, r] * size):
                return None
    return Bin(
        usable, _fits(state, usable, classes), _slot_rows(state, usable, classes), is_slots=True
    )


def relax_rows(state: FleetState, nodes: Indices, classes: Sequence[int]) -> Bin:
    """Make a bin that never refuses what the nodes can hold: a relaxation of any node set."""
    problem = state.problem
    usable = (
        nodes[np.any([state.fits(s)[nodes] > 0 for s in classes], axis=0)] if classes else nodes
    )
    rows = list(_slot_rows(state, usable, classes))
    gpu = _gpu_resource(problem, [s for s in classes if problem.class_gpus[s]])
    for r in range(problem.free.shape[1]):
        if r == gpu:
            continue
        weight = np.zeros(len(problem.requests), np.int64)
        weight[list(classes)] = problem.requests[list(classes), r]
        if weight.any():
            rows.append(Row(weight, int(np.maximum(state.free[usable, r], 0).sum())))
    return Bin(usable, _fits(state, usable, classes), tuple(rows), is_slots=True)


def _fits(state: FleetState, nodes: Indices, classes: Sequence[int]) -> Indices:
    fits = np.zeros(len(state.problem.requests), np.int64)
    for s in classes:
        fits[s] = int(state.fits(s)[nodes].sum())
    return fits


def _gpu_resource(problem: Problem, classes: Sequence[int]) -> int | None:
    """Return the one GPU resource that all classes ask for, or None."""
    if not classes or not all(problem.class_gpus[s] for s in classes):
        return None
    asked = [
        r
        for r, name in enumerate(problem.resources)
        if is_gpu(name) and problem.requests[list(classes), r].any()
    ]
    if len(asked) != 1 or not problem.requests[list(classes), asked[0]].all():
        return None
    return asked[0]


def _slot_rows(state: FleetState, nodes: Indices, classes: Sequence[int]) -> tuple[Row, ...]:
    """State the slots of every pod size; valid for any sizes (floor is superadditive)."""
    problem = state.problem
    with_gpus = [s for s in classes if problem.class_gpus[s]]
    resource = _gpu_resource(problem, with_gpus)
    if resource is None:
        return ()
    rows = []
    for size in sorted({int(problem.requests[s, resource]) for s in with_gpus}):
        weight = np.zeros(len(problem.requests), np.int64)
        weight[with_gpus] = problem.requests[with_gpus, resource] // size
        slots = np.maximum(state.free[nodes, resource], 0) // size
        rows.append(Row(weight, int(slots.sum())))
    return tuple(rows)
