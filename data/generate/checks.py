"""What a synthetic fleet is like, and whether it is what was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from data.generate.distributions import MIXES
from data.generate.presets import POOL_LABEL, PRESETS
from data.generate.shapes import find_pool_shapes
from topology.levels import build_column
from topology.model import NO_GROUP, PodFlag, is_gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from data.generate.presets import Preset
    from topology.model import Snapshot

__all__ = ["check_fleet", "describe_fleet"]

_LARGE: Final = 64
_SHARE_TOLERANCE: Final = 0.05
_UTILIZATION_TOLERANCE: Final = 0.01
_NODE: Final = 8


@dataclass(frozen=True, slots=True)
class _Counts:
    """GPUs of a fleet; axes N nodes, P pods, G groups."""

    usable: NDArray[np.int64]
    """i64[N] GPUs of each node, 0 where it is cordoned, tainted or down."""
    idle: NDArray[np.int64]
    """i64[N] of them, those that no pod holds."""
    pod_gpus: NDArray[np.int64]
    """i64[P]."""
    is_waiting: NDArray[np.bool_]
    """bool[P], pods of jobs without a node."""
    running: NDArray[np.int64]
    """GPUs of each job that runs."""
    waiting: NDArray[np.int64]
    """GPUs of each job that waits."""


def _count(snapshot: Snapshot) -> _Counts:
    pods = snapshot.pods
    gpus = np.array([spec.gpus for spec in pods.specs], np.int64)[pods.spec]
    on_node = pods.node >= 0
    owned = np.array(
        [sum(v for k, v in n.allocatable.items() if is_gpu(k)) for n in snapshot.nodes], np.int64
    )
    usable = np.array([not (n.taints or n.unschedulable) and n.ready for n in snapshot.nodes])
    used = np.bincount(pods.node[on_node], weights=gpus[on_node], minlength=len(owned))
    roots = _find_roots(snapshot)
    is_job = (pods.flags & PodFlag.DAEMON) == 0
    # A pod without a group is a job of its own.
    alone = len(roots) + np.arange(len(pods))
    job = np.where(pods.group == NO_GROUP, alone, roots[pods.group] if len(roots) else alone)

    def sum_jobs(chosen: NDArray[np.bool_]) -> NDArray[np.int64]:
        _, codes = np.unique(job[chosen], return_inverse=True)
        return np.bincount(codes, weights=gpus[chosen]).astype(np.int64)

    return _Counts(
        np.where(usable, owned, 0),
        np.where(usable, owned - used.astype(np.int64), 0),
        gpus,
        is_job & ~on_node,
        sum_jobs(is_job & on_node),
        sum_jobs(is_job & ~on_node),
    )


def _find_roots(snapshot: Snapshot) -> NDArray[np.int64]:
    """Return the root of each group, i64[G]."""
    roots = np.arange(len(snapshot.groups))
    parents = np.array([g.parent for g in snapshot.groups], np.int64)
    while np.any(above := (parents[roots] != NO_GROUP)) if len(roots) else False:
        roots[above] = parents[roots[above]]
    return roots


def describe_fleet(snapshot: Snapshot, *, preset: str) -> list[str]:
    """Return a few lines of figures about a fleet.

    The fragment is that of openb for whole GPUs: for a pod drawn from the jobs of the snapshot,
    the idle GPUs on nodes where it cannot run, as a share of all idle ones.

    Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
    """
    counts = _count(snapshot)
    usable, idle = int(counts.usable.sum()), int(counts.idle.sum())
    large = int(counts.running[counts.running > _LARGE].sum())
    keys = (PRESETS[preset].inner_key, PRESETS[preset].outer_key)
    shares = [
        f"{_share(_idle_on_idle(snapshot, counts, key), idle)} on idle {name}"
        for key, name in ((None, "nodes"), *((k, k) for k in keys))
    ]
    return [
        f"GPUs in use: {usable - idle} of {usable} usable ({_share(usable - idle, usable)})",
        f"running: {len(counts.running)} jobs, {_mean(counts.running)} GPUs on average, "
        f"{_share(large, int(counts.running.sum()))} of the GPUs in jobs above {_LARGE}",
        f"waiting: {len(counts.waiting)} jobs for {counts.waiting.sum()} GPUs "
        f"({_share(int(counts.waiting.sum()), usable)} of the usable)",
        f"idle GPUs: {', '.join(shares)}",
        f"fragment: {_share(_measure_fragment(snapshot, counts), idle)} of the idle GPUs",
    ]


def check_fleet(
    snapshot: Snapshot,
    *,
    preset: str | None = None,
    mix: str | None = None,
    utilization: float | None = None,
) -> list[str]:
    """Return what is wrong with a synthetic fleet, a line each; nothing when all is well.

    Args:
      snapshot: As `generate_fleet` made it.
      preset: Checks the sizes of the domains.
      mix: With `preset`, checks the share of GPUs in jobs above 64 GPUs (5 points,
        or the largest gang).
      utilization: Checks the share of usable GPUs in use (1 point, or 8 GPUs).
    """
    counts = _count(snapshot)
    problems = []
    if utilization is not None:
        usable = int(counts.usable.sum())
        used = usable - int(counts.idle.sum())
        if abs(used - utilization * usable) > max(_UTILIZATION_TOLERANCE * usable, _NODE):
            problems.append(
                f"{_share(used, usable)} of the usable GPUs are in use, {utilization:.1%} wanted"
            )
    if preset is not None:
        problems += _check_domains(snapshot, PRESETS[preset])
        if mix is not None:
            problems += _check_large_jobs(snapshot, counts, PRESETS[preset], mix)
    if not _has_split_gang(snapshot, counts):
        problems.append(
            "no waiting gang fits into the idle GPUs but into none of its domains; "
            "take more nodes, more pending or less utilization"
        )
    return problems


def _check_domains(snapshot: Snapshot, preset: Preset) -> list[str]:
    wanted = [size for sizes in preset.domains for size in sizes]
    problems = []
    for name, codes in _split_pools(snapshot, preset):
        _, sizes = np.unique(codes, return_counts=True)
        # The last domain of a pool may be short.
        odd = [i for i, s in enumerate(sizes[:-1].tolist()) if s != wanted[i % len(wanted)]]
        if odd:
            i = odd[0]
            problems.append(
                f"pool {name}: domain {i} of {preset.inner_key} has {sizes[i]} nodes, "
                f"{wanted[i % len(wanted)]} wanted"
            )
    return problems


def _split_pools(snapshot: Snapshot, preset: Preset) -> list[tuple[str, NDArray[np.int32]]]:
    """Return the domain of each node, by pool."""
    column = build_column(snapshot.nodes, (preset.inner_key,)).codes
    if len(preset.pools) == 1:
        return [(preset.pools[0].name, column)]
    names = np.array([n.labels.get(POOL_LABEL, "") for n in snapshot.nodes])
    return [(str(name), column[names == name]) for name in np.unique(names)]


def _check_large_jobs(snapshot: Snapshot, counts: _Counts, preset: Preset, mix: str) -> list[str]:
    pools = {p.name: p for p in preset.pools}
    expected = gpus = 0.0
    largest = 0
    for name, codes in _split_pools(snapshot, preset):
        shapes = find_pool_shapes(preset, pools[name], len(codes), MIXES[mix])
        large = [(shape.total, weight) for shape, weight in shapes if shape.total > _LARGE]
        expected += len(codes) * pools[name].gpus * sum(weight for _, weight in large)
        gpus += len(codes) * pools[name].gpus
        largest = max(largest, shapes[0][0].total)
    busy = max(int(counts.running.sum()), 1)
    found = int(counts.running[counts.running > _LARGE].sum()) / busy
    if abs(found - expected / gpus) > max(_SHARE_TOLERANCE, largest / busy):
        return [
            f"jobs above {_LARGE} GPUs hold {found:.1%} of the GPUs in use, "
            f"{expected / gpus:.1%} wanted"
        ]
    return []


def _has_split_gang(snapshot: Snapshot, counts: _Counts) -> bool:
    pods = snapshot.pods
    largest = int(counts.idle.sum())
    slots: dict[tuple[str, int], int] = {}
    for g in np.unique(pods.group[counts.is_waiting & (pods.group >= 0)]).tolist():
        group = snapshot.groups[g]
        members = np.flatnonzero(pods.group == g) if group.topology else np.empty(0, np.int64)
        if not len(members) or not np.all(counts.is_waiting[members]):
            continue
        spec = pods.specs[pods.spec[members[0]]]
        key = (group.topology[0].key, int(pods.spec[members[0]]))
        if key not in slots:
            admitted = _find_admitted(snapshot, spec.node_selector)
            column = build_column(snapshot.nodes, (key[0],)).codes
            each = np.where(admitted & (column >= 0), counts.idle // spec.gpus, 0)
            slots[key] = int(np.bincount(np.maximum(column, 0), weights=each).max(initial=0))
        if len(members) > slots[key] and len(members) * spec.gpus <= largest:
            return True
    return False


def _find_admitted(snapshot: Snapshot, selector: Sequence[tuple[str, str]]) -> NDArray[np.bool_]:
    """Return which nodes have the labels, bool[N]."""
    return np.array(
        [all(n.labels.get(k) == v for k, v in selector) for n in snapshot.nodes], np.bool_
    )


def _idle_on_idle(snapshot: Snapshot, counts: _Counts, key: str | None) -> int:
    """Return the idle GPUs on nodes, or in domains of a key, that hold no pod with GPUs."""
    if key is None:
        return int(counts.idle[counts.idle == counts.usable].sum())
    codes = build_column(snapshot.nodes, (key,)).codes
    idle = np.bincount(codes[codes >= 0], weights=counts.idle[codes >= 0])
    usable = np.bincount(codes[codes >= 0], weights=counts.usable[codes >= 0])
    return int(idle[idle == usable].sum())


def _measure_fragment(snapshot: Snapshot, counts: _Counts) -> float:
    pods = snapshot.pods
    specs, frequency = np.unique(pods.spec[counts.pod_gpus > 0], return_counts=True)
    lost = 0.0
    for x, count in zip(specs.tolist(), frequency.tolist(), strict=True):
        spec = pods.specs[x]
        runs = _find_admitted(snapshot, spec.node_selector) & (counts.idle >= spec.gpus)
        lost += count * int(counts.idle[~runs].sum())
    return lost / max(int(frequency.sum()), 1)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def _mean(values: NDArray[Any]) -> str:
    return f"{values.mean():.1f}" if len(values) else "no"
