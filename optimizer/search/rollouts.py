"""Which candidate orders are worth decoding: thousands rolled out by the kernels, the best kept.

Plain gangs only; units with structure go before the plain gangs of their priority. Two kernels,
chosen by what decides in this fleet: slots of domains (`kernels.lattice`) or nodes with all their
resources (`kernels.gangs`). What they return is an order; the host decodes it exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from optimizer.search.bins import make_slot_bin
from optimizer.search.kinds import FlatKind, describe_flat
from optimizer.search.orders import draw_orders, weigh_units
from topology.levels import NO_DOMAIN
from topology.model import is_gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.kernels.gangs import GangTensors
    from optimizer.kernels.lattice import LatticeTensors
    from optimizer.objective import Level

__all__ = ["build_gang_tensors", "build_lattice_tensors", "find_orders"]

KEPT: Final = 3
"""Orders handed to the decoder."""
MEMORY_LIMIT: Final = 512 << 20
"""Bytes of candidate state at once; candidates beyond it go in further chunks."""
MAX_MEMBERS: Final = 2048
"""Nodes in a domain beyond which node-level rollouts cost more than they bring."""
NEVER_FITS: Final = 2**20
WORK_LIMIT: Final = 4e9
"""Array elements that rollouts may touch in all: some seconds on one core."""
MIN_CANDIDATES: Final = 8


class _Kinds(NamedTuple):
    kinds: list[FlatKind]
    of_unit: NDArray[np.int32]


def find_orders(
    state: FleetState,
    units: Sequence[int],
    levels: Sequence[Level],
    candidates: int,
    rng: np.random.Generator,
) -> list[list[int]]:
    """Roll out many orders and return the best few.

    Args:
      state: Room now; not changed.
      units: Units to order.
      levels: Compared in order, in exact integers on the host.
      candidates: Orders to try.
      rng: Seeded.

    Returns:
      Orders of all units, best first; none where the kernels do not apply.
    """
    problem = state.problem
    kinds: dict[FlatKind, int] = {}
    flat: list[int] = []
    structured: list[int] = []
    of_unit: list[int] = []
    for u in units:
        kind = describe_flat(problem, problem.units[u])
        if kind is None:
            structured.append(u)
        else:
            flat.append(u)
            of_unit.append(kinds.setdefault(kind, len(kinds)))
    if len(flat) < 2:
        return []
    known = _Kinds(list(kinds), np.array(of_unit, np.int32))
    fleet = build_lattice_tensors(state, known.kinds) or build_gang_tensors(state, known.kinds)
    if fleet is None:
        return []
    affordable = int(WORK_LIMIT // (len(flat) * _step_cost(fleet)))
    if affordable < MIN_CANDIDATES:
        return []
    orders = draw_orders(problem, flat, min(candidates, affordable), rng)
    placed = _roll_out(fleet, known, orders, rng)
    values = placed.astype(np.int64) @ weigh_units(problem, flat, levels)
    ranking = np.lexsort([*(-values[:, j] for j in reversed(range(values.shape[1])))])
    found: list[list[int]] = []
    for c in ranking[:KEPT].tolist():
        # What the rollout left out goes last, so that it takes nothing from what it placed.
        row = orders[c]
        kept = [flat[i] for i in row.tolist() if placed[c, i]]
        rest = [flat[i] for i in row.tolist() if not placed[c, i]]
        top = problem.units[kept[0]].priority if kept else None
        goes_first = [top is None or problem.units[u].priority >= top for u in structured]
        first = [u for u, early in zip(structured, goes_first, strict=True) if early]
        later = [u for u, early in zip(structured, goes_first, strict=True) if not early]
        found.append([*first, *kept, *later, *rest])
    return found


def _step_cost(fleet: LatticeTensors | GangTensors) -> int:
    """Return the array elements that one step of one candidate touches."""
    from optimizer.kernels.lattice import LatticeTensors

    if isinstance(fleet, LatticeTensors):
        return int(fleet.slots.size)
    members = fleet.members.shape[1]
    return int(members * (fleet.requests.size + 16) + fleet.domain_fits.shape[1])


def _roll_out(
    fleet: LatticeTensors | GangTensors,
    known: _Kinds,
    orders: NDArray[np.int64],
    rng: np.random.Generator,
) -> NDArray[np.bool_]:
    """Return bool[C, U]: which units each order places."""
    import jax

    from optimizer.kernels.gangs import GangTensors, roll_out_gangs
    from optimizer.kernels.lattice import roll_out_lattice
    from optimizer.kernels.runtime import bucket, prepare_jax

    prepare_jax()
    num_candidates, num_units = orders.shape
    if isinstance(fleet, GangTensors):
        num_domains, padding = fleet.domain_fits.shape[1], len(fleet.kind_count) - 1
        each = 4 * (fleet.free.size + fleet.node_fits.size + fleet.domain_fits.size)
    else:
        num_domains, padding = fleet.slots.shape[0], len(fleet.takes) - 1
        each = 4 * fleet.slots.size
    chunk = min(num_candidates, 256, max(int(MEMORY_LIMIT // max(each, 1)), 1))
    tightness = np.where(np.arange(num_candidates) % 4 == 3, 0, 1).astype(np.int32)
    ranks = np.tile(np.arange(num_domains, dtype=np.int32), (num_candidates, 1))
    ranks[1:] = rng.permuted(ranks[1:], axis=1)
    device = jax.device_put(fleet)
    placed = np.zeros((num_candidates, num_units), bool)
    for start in range(0, num_candidates, chunk):
        part = slice(start, min(start + chunk, num_candidates))
        rows = orders[part]
        sequence = np.full((bucket(num_units), chunk), padding, np.int32)
        sequence[:num_units, : len(rows)] = known.of_unit[rows].T
        lanes = np.arange(start, start + chunk) % num_candidates
        if isinstance(device, GangTensors):
            chosen = np.asarray(roll_out_gangs(device, sequence, tightness[lanes], ranks[lanes]))
        else:
            chosen = np.asarray(
                roll_out_lattice(device, sequence, tightness[lanes], ranks[lanes])[0]
            )
        hits = chosen[:num_units, : len(rows)].T != NO_DOMAIN
        np.put_along_axis(placed[part], rows, hits, axis=1)
    return placed


def _kind_bucket(num_kinds: int) -> int:
    """Kinds are a small table, padded generously: at least one padding kind, powers of two."""
    return max(32, 1 << num_kinds.bit_length())


def build_lattice_tensors(state: FleetState, kinds: Sequence[FlatKind]) -> LatticeTensors | None:
    """Build padded tensors of domains as slots, or None where slots do not decide."""
    from optimizer.kernels.lattice import LatticeTensors
    from optimizer.kernels.runtime import bucket, pad

    columns = {k.column for k in kinds}
    if len(columns) != 1 or -1 in columns:
        return None
    column = columns.pop()
    classes = sorted({k.pod_class for k in kinds})
    bins = [make_slot_bin(state, nodes, classes) for nodes in state.members(column)]
    if not bins or any(b is None for b in bins):
        return None
    whole = [b for b in bins if b is not None]
    num_rows = len(whole[0].rows)
    slots = np.array([[r.up for r in b.rows] for b in whole], np.int64)
    weight = np.stack([r.weight for r in whole[0].rows])  # [Z, S]
    takes = np.array([weight[:, k.pod_class] * k.count for k in kinds], np.int64)
    if num_rows == 0 or slots.max(initial=0) >= NEVER_FITS:
        return None
    allowed = np.ones((len(kinds), len(whole)), bool)
    for i, kind in enumerate(kinds):
        allowed[i] = np.array([b.fits[kind.pod_class] > 0 for b in whole])
        if kind.pinned >= 0:
            allowed[i] &= np.arange(len(whole)) == kind.pinned
    # Finest size last: it is the one whose left-over decides; one padding kind at least.
    num_domains, num_kinds = bucket(len(whole)), _kind_bucket(len(kinds))
    num_sizes = 4 if num_rows <= 4 else bucket(num_rows)
    order = np.r_[np.arange(num_rows)[::-1], np.zeros(num_sizes - num_rows, int)]
    order = np.sort(order)[::-1]
    return LatticeTensors(
        slots=pad(slots[:, order].astype(np.int32), (num_domains, num_sizes)),
        takes=pad(
            np.minimum(takes[:, order], NEVER_FITS).astype(np.int32),
            (num_kinds, num_sizes),
            NEVER_FITS,
        ),
        allowed=pad(allowed.astype(np.int32), (num_kinds, num_domains)).astype(bool),
        tie_steps=1 << (num_domains - 1).bit_length(),
    )


def build_gang_tensors(state: FleetState, kinds: Sequence[FlatKind]) -> GangTensors | None:
    """Build padded tensors at node level, or None where a domain is too large for it."""
    from optimizer.kernels.gangs import GangTensors
    from optimizer.kernels.runtime import bucket, pad

    problem = state.problem
    num_nodes = len(problem.free)
    columns = sorted({k.column for k in kinds})
    members: list[NDArray[np.int64]] = []
    first: dict[int, int] = {}
    codes_of: list[NDArray[np.int64]] = []
    for column in columns:
        first[column] = len(members)
        if column < 0:
            members.append(np.arange(num_nodes))
            codes_of.append(np.full(num_nodes, first[column], np.int64))
        else:
            codes = problem.columns[column].codes.astype(np.int64)
            codes_of.append(np.where(codes == NO_DOMAIN, -1, codes + first[column]))
            members += state.members(column)
    widest = max((len(m) for m in members), default=0)
    if widest == 0 or widest > MAX_MEMBERS:
        return None
    classes = sorted({k.pod_class for k in kinds})
    n, s, d = bucket(num_nodes + 1), bucket(len(classes)), bucket(len(members))
    r, m = bucket(problem.free.shape[1]), bucket(widest)
    fits = np.zeros((n, s), np.int32)
    eligible = np.zeros((n, s), np.int32)
    requests = np.zeros((s, r), np.int32)
    for i, c in enumerate(classes):
        fits[:num_nodes, i] = np.minimum(state.fits(c), NEVER_FITS // max(num_nodes, 1))
        eligible[:num_nodes, i] = problem.eligible[c]
        requests[i, : problem.requests.shape[1]] = problem.requests[c]
    member_table = np.full((d, m), n - 1, np.int32)
    domain_fits = np.zeros((s, d), np.int32)
    for i, nodes in enumerate(members):
        member_table[i, : len(nodes)] = nodes
        domain_fits[:, i] = fits[nodes].sum(axis=0)
    domains_of = np.full((n, len(columns)), d, np.int32)
    for level, codes in enumerate(codes_of):
        domains_of[:num_nodes, level] = np.where(codes < 0, d, codes)
    num_kinds = _kind_bucket(len(kinds))
    allowed = np.zeros((num_kinds, d), np.int32)
    for i, kind in enumerate(kinds):
        start = first[kind.column]
        size = 1 if kind.column < 0 else len(problem.columns[kind.column].values)
        allowed[i, start : start + size] = 1
        if kind.pinned >= 0:
            allowed[i] = 0
            allowed[i, start + kind.pinned] = 1
    class_index = {c: i for i, c in enumerate(classes)}
    kind_class = np.array([class_index[k.pod_class] for k in kinds], np.int32)
    kind_count = np.array([k.count for k in kinds], np.int32)
    free = np.clip(state.free, 0, None).astype(np.int32)
    gpus = [i for i, name in enumerate(problem.resources) if is_gpu(name)]
    return GangTensors(
        free=pad(free, (n, r)),
        eligible=eligible.astype(bool),
        requests=requests,
        node_fits=fits,
        domain_fits=domain_fits,
        members=member_table,
        domains_of=domains_of,
        gpu_resource=np.int32(gpus[0] if gpus else 0),  # type: ignore[arg-type]
        kind_class=pad(kind_class, (num_kinds,)),
        kind_count=pad(kind_count, (num_kinds,), NEVER_FITS),
        kind_allowed=allowed.astype(bool),
        tie_steps=1 << (d - 1).bit_length(),
    )
