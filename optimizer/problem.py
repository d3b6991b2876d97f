"""Snapshot and request -> what the searches work on: pod classes, units, free amounts.

Pods of a class are interchangeable: same requests, same nodes, same interactions.

Nothing here knows an API's name, and nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.devices.columns import DeviceColumns, is_device_resource
from optimizer.devices.ledger import DeviceLedger
from optimizer.interactions import Interactions, Signature, build_interactions
from optimizer.unit_builder import ColumnIndex, GroupForest, UnitBuilder
from optimizer.units import BROKEN, FREE_CHOICE, Required, Task, TreeNode, Unit, UnitKey
from topology.masks import NodeFilters
from topology.model import NO_GROUP, PODS, PodFlag, is_gpu
from topology.units import scale_amounts
from topology.usage import count_usage, request_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topology.levels import DomainColumn
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = [
    "BROKEN",
    "FREE_CHOICE",
    "Problem",
    "Relax",
    "Required",
    "Task",
    "TreeNode",
    "Unit",
    "UnitKey",
    "build_problem",
    "count_free",
]

NO_UNIT: Final = -1
"""`Problem.unit_of_pod` of a pod that belongs to no unit of the problem."""


@dataclass(frozen=True, slots=True)
class Relax:
    """Which facts of the snapshot to leave out, to find out what is in a group's way."""

    empty: bool = False
    """Every running pod but DaemonSet and static ones is gone."""
    filters: bool = False
    """Taints, cordons and readiness are ignored."""
    pins: bool = False
    """Running members do not pin a domain."""
    devices: bool = False
    """Devices held by claims are free."""
    evictable_below: int | None = None
    """Running pods of a lower priority that may be evicted are gone."""
    plan: bool = False
    """What the plan gives to other units is not there."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A fleet and the units to place; axes N nodes, R resources, S pod classes."""

    snapshot: Snapshot
    units: tuple[Unit, ...]
    """By priority (highest first), creation time, ref: the scheduler's own order."""
    resources: tuple[str, ...]
    free: NDArray[np.int32]
    """i32[N, R] tensor units."""
    requests: NDArray[np.int32]
    """i32[S, R] tensor units."""
    amounts: NDArray[np.int64]
    """i64[S, R] the same in canonical units."""
    eligible: NDArray[np.bool_]
    """bool[S, N] nodes that pass every filter that does not depend on other pending pods."""
    class_gpus: NDArray[np.int64]
    """i64[S] GPUs of one pod."""
    node_gpus: NDArray[np.int64]
    """i64[N] free GPUs in pieces, never below zero: the order in which nodes are filled."""
    columns: tuple[DomainColumn, ...]
    interactions: Interactions
    class_specs: tuple[int, ...]
    """(S,) index into `PodTable.specs`."""
    signatures: tuple[Signature, ...]
    """(S,) interactions of each class."""
    reservations: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Node -> pending pods nominated to it."""
    pod_classes: Mapping[int, int] = field(default_factory=dict)
    """Pending pod -> class; of the units, and of all that are nominated to a node."""
    unit_of_pod: Mapping[int, int] = field(default_factory=dict)
    """Pending pod -> unit, NO_UNIT for a nominated pod that is not to be placed."""
    placed: Mapping[int, int] = field(default_factory=dict)
    """Pod -> node of pending pods that count as running there."""


def build_problem(
    snapshot: Snapshot,
    request: Request,
    *,
    relax: Relax | None = None,
    placed: Mapping[int, int] | None = None,
    only: Sequence[str] | None = None,
) -> Problem:
    """Compile the units that a request is about.

    Args:
      snapshot: The fleet.
      request: Names the groups; None means everything pending.
      relax: Facts to leave out.
      placed: Pod -> node of pods that count as running there (a plan so far).
      only: Refs of units to compile, instead of those of the request.

    Returns:
      The problem; units without any pending pod are part of it, with no tasks.
    """
    relax = relax or Relax()
    placed = placed or {}
    pods = snapshot.pods
    pending = np.flatnonzero(pods.is_pending)
    if placed:
        pending = pending[~np.isin(pending, np.fromiter(placed, np.int64, len(placed)))]
    forest = GroupForest(snapshot, pending)
    roots = forest.select(request, only)
    asked_for = {p for root in roots for p in forest.pending_of(root)}
    # Pods that others must leave room for need a class too, though they are not placed here.
    nominated = set(pending[pods.nominated[pending] >= 0].tolist())
    wanted = np.array(sorted(asked_for | nominated), np.int64)

    columns = ColumnIndex(snapshot)
    nodes_of = pods.node.copy()
    for pod, node in placed.items():
        nodes_of[pod] = node
    interactions = build_interactions(snapshot, wanted, nodes_of, columns, relax_empty=relax.empty)

    resources = _find_resources(snapshot, wanted)
    free = count_free(snapshot, resources, relax, placed)
    class_index: dict[tuple[int, ...], int] = {}
    pod_classes: dict[int, int] = {}
    for pod in wanted.tolist():
        kind = (int(pods.spec[pod]), *interactions.signature(pod))
        pod_classes[pod] = class_index.setdefault(kind, len(class_index))
    class_specs = tuple(key[0] for key in class_index)
    all_requests = _request_rows(snapshot, resources)
    asked = all_requests[list(class_specs)].reshape(len(class_specs), len(resources))
    scaled = scale_amounts(free, asked)
    filters = NodeFilters(snapshot.nodes)
    eligible = np.zeros((len(class_specs), len(snapshot.nodes)), bool)
    for s, key in enumerate(class_index):
        masks = filters.evaluate(pods.specs[key[0]])
        mask = masks.affinity.copy()
        if not relax.filters:
            mask &= masks.taints & masks.ready
        eligible[s] = mask & interactions.allowed_nodes(key[1:])
    gpu_columns = [r for r, name in enumerate(resources) if is_gpu(name)]
    builder = UnitBuilder(
        snapshot,
        request,
        columns,
        interactions,
        forest,
        pod_classes,
        is_pinned=not (relax.pins or relax.empty),
    )
    units = sorted(
        (builder.build(root) for root in roots), key=lambda u: (-u.priority, u.created, u.ref)
    )
    return Problem(
        snapshot=snapshot,
        units=tuple(units),
        resources=resources,
        free=scaled.free,
        requests=scaled.requests,
        amounts=asked,
        eligible=eligible,
        class_gpus=asked[:, gpu_columns].sum(axis=1),
        node_gpus=np.maximum(free[:, gpu_columns], 0).sum(axis=1),
        columns=tuple(columns.columns),
        interactions=interactions,
        class_specs=class_specs,
        signatures=tuple(Signature(*key[1:]) for key in class_index),
        reservations={} if relax.empty else _find_reservations(snapshot, pending),
        pod_classes=pod_classes,
        placed=placed,
        unit_of_pod=dict.fromkeys(nominated, NO_UNIT)
        | {p: u for u, unit in enumerate(units) for t in unit.tasks for p in t.pods},
    )


def _find_resources(snapshot: Snapshot, wanted: NDArray[np.int64]) -> tuple[str, ...]:
    specs = {int(x) for x in np.unique(snapshot.pods.spec[wanted])}
    names = {name for x in specs for name, _ in snapshot.pods.specs[x].requests} | {PODS}
    return tuple(sorted(names | DeviceColumns(snapshot).find_names(sorted(specs))))


def _request_rows(snapshot: Snapshot, resources: tuple[str, ...]) -> NDArray[np.int64]:
    rows = request_matrix(snapshot, resources)
    columns = DeviceColumns(snapshot)
    for r, name in enumerate(resources):
        if is_device_resource(name):
            rows[:, r] = columns.list_requests(name)
    return rows


def count_free(
    snapshot: Snapshot,
    resources: tuple[str, ...],
    relax: Relax,
    placed: Mapping[int, int],
) -> NDArray[np.int64]:
    """Return i64[N, R]: what a changed fleet has free, in canonical units, negative where short."""
    usage = count_usage(snapshot, resources)
    pods = snapshot.pods
    free = usage.free
    rows = _request_rows(snapshot, resources)
    if relax.empty:
        stays = (pods.flags & (PodFlag.DAEMON | PodFlag.STATIC)) != 0
        holding = np.flatnonzero(pods.holds_room & (pods.node >= 0) & ~stays)
        np.add.at(free, pods.node[holding], request_matrix(snapshot, resources)[pods.spec[holding]])
    elif relax.evictable_below is not None:
        gone = np.flatnonzero(_find_evictable(snapshot, relax.evictable_below))
        np.add.at(free, pods.node[gone], request_matrix(snapshot, resources)[pods.spec[gone]])
    for pod, node in placed.items():
        free[node] -= rows[pods.spec[pod]]
    devices = [r for r, name in enumerate(resources) if is_device_resource(name)]
    if devices:
        ledger = DeviceLedger(snapshot, held_is_free=relax.empty or relax.devices)
        for pod in sorted(placed):
            ledger.add({pod: placed[pod]})
        columns = DeviceColumns(snapshot)
        for r in devices:
            free[:, r] = columns.count_free(resources[r], ledger.state)
    return free


def _find_evictable(snapshot: Snapshot, priority: int) -> NDArray[np.bool_]:
    """Return bool[P]: running pods whose own or root group's priority is strictly lower."""
    pods = snapshot.pods
    own = pods.priority.astype(np.int64)
    if snapshot.groups:
        of_group = np.array([group.priority for group in snapshot.groups], np.int64)
        evictable = np.array([group.evictable for group in snapshot.groups])
        inside = pods.group != NO_GROUP
        own = np.where(inside, of_group[pods.group], own)
        lower = (own < priority) & (~inside | evictable[pods.group])
    else:
        lower = own < priority
    held = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.NOT_PREEMPTIBLE | PodFlag.TERMINATING
    result: NDArray[np.bool_] = (
        lower & pods.holds_room & (pods.node >= 0) & ((pods.flags & held) == 0)
    )
    return result


def _find_reservations(
    snapshot: Snapshot, pending: NDArray[np.int64]
) -> dict[int, tuple[int, ...]]:
    reserved: dict[int, list[int]] = {}
    for pod in pending[snapshot.pods.nominated[pending] >= 0].tolist():
        reserved.setdefault(int(snapshot.pods.nominated[pod]), []).append(pod)
    return {node: tuple(found) for node, found in reserved.items()}
