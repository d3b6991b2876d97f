"""Plans for variants of a fleet, made from the plan of the fleet itself.

What the base plan placed stays on its nodes where a variant still has the room; what lost its place
and what waited is placed anew. Orders of those are rolled out for all variants in one call of the
kernel, then decoded exactly, variant by variant. A variant's plan depends on nothing but the
variant: alone or in a batch it is the same.

Nothing is proven of such a plan.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from optimizer.decode import Fill, place_unit, replay
from optimizer.devices.cuts import find_unserved
from optimizer.fleet_state import FleetState
from optimizer.nominations import keeps_nominations
from optimizer.objective import Placed, build_levels
from optimizer.search.kinds import describe_flat
from optimizer.search.orders import draw_orders, weigh_units
from optimizer.search.place import PlaceResult
from optimizer.search.rollouts import build_lattice_tensors
from optimizer.search.score import score_placements
from optimizer.spread_order import find_unspread
from optimizer.units import FREE_CHOICE
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.kernels.lattice import LatticeTensors
    from optimizer.objective import Level
    from optimizer.problem import Problem, Unit
    from topology.plan import Request

__all__ = ["MENDED_FROM", "Variant", "mend_placements"]

MENDED_FROM: Final = 20_000
"""Units times nodes from which a variant is mended; below, a search of its own is quick enough."""
CANDIDATES: Final = {"quick": 8, "normal": 32, "thorough": 128}
"""Orders rolled out for each variant, by effort."""
MAX_BATCH: Final = 64
"""Variants in one call of the kernel, which bounds its memory."""


class Variant(NamedTuple):
    """A problem, and the pods that have to get a node before any other."""

    problem: Problem
    first: Collection[int] = ()
    """Pods that ran: their units are placed first."""


class _Open(NamedTuple):
    """A variant with what stays placed, and the units that are to be placed anew."""

    variant: Variant
    state: FleetState
    placements: dict[int, UnitPlacement]
    first: list[int]
    waiting: list[int]
    levels: tuple[Level, ...]


class _Rollout(NamedTuple):
    """The waiting plain gangs of a variant, ready for the kernel."""

    fleet: LatticeTensors
    flat: list[int]
    of_unit: NDArray[np.int32]
    orders: NDArray[np.int64]


def mend_placements(
    variants: Sequence[Variant], base: Mapping[str, str], request: Request
) -> list[PlaceResult]:
    """Place the units of every variant, keeping what the base plan says where it still holds.

    Args:
      variants: Problems of one objective.
      base: Pod -> node of the base plan, by name.
      request: Objective, effort and seed.

    Returns:
      One result a variant: feasible, with bounds None.
    """
    opened = [_start(variant, base, request) for variant in variants]
    orders = _find_orders(opened, request)
    found = []
    for entry, order in zip(opened, orders, strict=True):
        _place(entry, order)
        found.append(_close(entry))
    return found


def _start(variant: Variant, base: Mapping[str, str], request: Request) -> _Open:
    """Seat what the base plan placed, and what ran before; that first where both do not fit."""
    entry = _open(variant, base, request)
    _place(entry, entry.first)
    if any(u not in entry.placements for u in entry.first):
        entry = _open(variant, base, request, first_first=True)
    return entry


def _open(
    variant: Variant, base: Mapping[str, str], request: Request, *, first_first: bool = False
) -> _Open:
    problem = variant.problem
    pods = problem.snapshot.pods
    index = {node.name: n for n, node in enumerate(problem.snapshot.nodes)}
    state = FleetState(problem)
    placements: dict[int, UnitPlacement] = {}
    first: list[int] = []
    waiting: list[int] = []
    active = [
        u
        for u, unit in enumerate(problem.units)
        if unit.tasks and not unit.blocked and unit.has_quorum()
    ]
    most = [
        Placed(unit.priority, len(unit.tree), unit.num_pods, unit.gpus)
        for unit in (problem.units[u] for u in active)
    ]
    for u in active:
        members = [p for task in problem.units[u].tasks for p in task.pods]
        if any(p in variant.first for p in members):
            first.append(u)
    if first_first:
        for u in first:
            found = place_unit(state, problem.units[u])
            if found is not None:
                placements[u] = found
    for u in active:
        if u in placements or (first_first and u in first):
            continue
        unit = problem.units[u]
        members = [p for task in unit.tasks for p in task.pods]
        names = [base.get(pods.refs[p], "") for p in members]
        again = _seat_again(state, unit, [index.get(name, -1) for name in names])
        if again is not None:
            placements[u] = again
            continue
        if u not in first:
            waiting.append(u)
    state.forget_journal()
    levels = build_levels(request.objective, most)
    return _Open(variant, state, placements, first, waiting, levels)


def _seat_again(state: FleetState, unit: Unit, nodes: Sequence[int]) -> UnitPlacement | None:
    """Put a unit where the base plan has it, pod by pod; None where something is in the way.

    Args:
      state: Updated when the unit is placed.
      unit: Its pods, task after task, are to go to `nodes`.
      nodes: -1 for a pod that the base plan does not place, or whose node is gone.
    """
    seated = [n for n in nodes if n >= 0]
    if not seated:
        return None
    is_plain = (
        len(seated) == len(nodes)
        and all(not (node.slices or node.exclusive) for node in unit.tree)
        and not any(state.is_coupled(task.pod_class) for task in unit.tasks)
        and _keeps_domains(state, unit, nodes)
    )
    if not is_plain:
        # Floors, slices and neighbours are the decoder's business.
        return place_unit(state, unit, np.array(sorted(set(seated)), np.int64))
    mark = state.mark()
    fills: list[Fill] = []
    done = 0
    for t, task in enumerate(unit.tasks):
        own = np.array(nodes[done : done + task.count], np.int64)
        done += task.count
        chosen, counts = np.unique(own, return_counts=True)
        if (state.fits(task.pod_class)[chosen] < counts).any():
            state.undo(mark)
            return None
        state.take(task.pod_class, chosen, counts)
        fills.append(Fill(t, chosen, counts))
    return tuple(fills)


def _keeps_domains(state: FleetState, unit: Unit, nodes: Sequence[int]) -> bool:
    """Tell whether the required domains of a unit hold with its pods on these nodes."""
    of_leaf: dict[int, list[int]] = defaultdict(list)
    done = 0
    for task in unit.tasks:
        of_leaf[task.leaf] += nodes[done : done + task.count]
        done += task.count
    for at, node in enumerate(unit.tree):
        if not node.required:
            continue
        inside = [n for leaf in unit.walk(at) for n in of_leaf[leaf]]
        for required in node.required:
            codes = set(state.problem.columns[required.column].codes[inside].tolist())
            wanted = codes if required.pinned == FREE_CHOICE else {required.pinned}
            if len(codes) > 1 or NO_DOMAIN in codes or codes != wanted:
                return False
    return True


def _place(entry: _Open, order: Sequence[int]) -> None:
    for u in order:
        found = place_unit(entry.state, entry.variant.problem.units[u])
        if found is not None:
            entry.placements[u] = found


def _find_orders(opened: Sequence[_Open], request: Request) -> list[list[int]]:
    """Return the best order of the waiting units of each variant; as they are where none is."""
    best = [list(entry.waiting) for entry in opened]
    ready: dict[tuple[int, ...], list[tuple[int, _Rollout]]] = defaultdict(list)
    for i, entry in enumerate(opened):
        rollout = _prepare(entry, request)
        if rollout is not None:
            shape = (*rollout.fleet.slots.shape, len(rollout.fleet.takes), _bucket(rollout))
            ready[shape].append((i, rollout))
    for _, batch in sorted(ready.items()):
        for start in range(0, len(batch), MAX_BATCH):
            part = batch[start : start + MAX_BATCH]
            hits = _roll_out([rollout for _, rollout in part])
            for (i, rollout), placed in zip(part, hits, strict=True):
                best[i] = _choose(opened[i], rollout, placed)
    return best


def _prepare(entry: _Open, request: Request) -> _Rollout | None:
    problem = entry.variant.problem
    kinds = {u: describe_flat(problem, problem.units[u]) for u in entry.waiting}
    flat = [u for u in entry.waiting if kinds[u] is not None]
    known = {kind: i for i, kind in enumerate(dict.fromkeys(k for k in kinds.values() if k))}
    if len(flat) < 2:
        return None
    fleet = build_lattice_tensors(entry.state, list(known))
    if fleet is None:
        return None
    rng = np.random.default_rng(request.seed)
    orders = draw_orders(problem, flat, CANDIDATES[request.effort], rng)
    of_unit = np.array([known[kind] for u in flat if (kind := kinds[u])], np.int32)
    return _Rollout(fleet, flat, of_unit, orders)


def _bucket(rollout: _Rollout) -> int:
    from optimizer.kernels.runtime import bucket

    return bucket(len(rollout.flat))


def _roll_out(batch: Sequence[_Rollout]) -> list[NDArray[np.bool_]]:
    """Return bool[C, U] for each variant: which units each order places."""
    import jax

    from optimizer.kernels.lattice import roll_out_variants
    from optimizer.kernels.runtime import prepare_jax

    prepare_jax()
    size = 1 << (len(batch) - 1).bit_length()
    padded = [*batch, *[batch[-1]] * (size - len(batch))]
    fleets = jax.tree.map(lambda *leaves: np.stack(leaves), *(r.fleet for r in padded))
    num_candidates = batch[0].orders.shape[0]
    num_domains = batch[0].fleet.slots.shape[0]
    steps = _bucket(batch[0])
    sequences = np.empty((size, steps, num_candidates), np.int32)
    for i, rollout in enumerate(padded):
        sequences[i] = len(rollout.fleet.takes) - 1
        sequences[i, : len(rollout.flat)] = rollout.of_unit[rollout.orders].T
    tightness = np.where(np.arange(num_candidates) % 4 == 3, 0, 1).astype(np.int32)
    rng = np.random.default_rng(0)
    ranks = np.tile(np.arange(num_domains, dtype=np.int32), (num_candidates, 1))
    ranks[1:] = rng.permuted(ranks[1:], axis=1)
    chosen = np.asarray(roll_out_variants(fleets, sequences, tightness, ranks))
    found = []
    for i, rollout in enumerate(batch):
        hits = chosen[i, : len(rollout.flat)].T != NO_DOMAIN
        placed = np.zeros((num_candidates, len(rollout.flat)), bool)
        np.put_along_axis(placed, rollout.orders, hits, axis=1)
        found.append(placed)
    return found


def _choose(entry: _Open, rollout: _Rollout, placed: NDArray[np.bool_]) -> list[int]:
    """Return the best order: what it placed, then the rest."""
    problem, flat = entry.variant.problem, rollout.flat
    values = placed.astype(np.int64) @ weigh_units(problem, flat, entry.levels)
    c = int(np.lexsort([*(-values[:, j] for j in reversed(range(values.shape[1])))])[0])
    row = rollout.orders[c].tolist()
    kept = [flat[i] for i in row if placed[c, i]]
    rest = [flat[i] for i in row if not placed[c, i]]
    structured = [u for u in entry.waiting if u not in set(flat)]
    return [*structured, *kept, *rest]


def _close(entry: _Open) -> PlaceResult:
    problem, placements = entry.variant.problem, entry.placements
    if not keeps_nominations(problem, placements):
        for u in sorted(placements):
            replay(entry.state, problem.units[u], placements[u], lift=True)
        placements = {}
        for u in range(len(problem.units)):
            found = place_unit(entry.state, problem.units[u])
            if found is not None:
                placements[u] = found
    for find_failing in (find_unserved, find_unspread):
        for u in find_failing(problem, placements):
            del placements[u]
    score = score_placements(problem, placements, entry.levels)
    return PlaceResult(placements, entry.levels, score, (None,) * len(entry.levels))
