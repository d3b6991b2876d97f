"""Both rollout kernels against a plain Python rollout of the same rule."""

from __future__ import annotations

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.fleet_state import FleetState
from optimizer.kernels.gangs import roll_out_gangs
from optimizer.kernels.lattice import roll_out_lattice
from optimizer.kernels.runtime import TRACES, bucket
from optimizer.problem import build_problem
from optimizer.search.kinds import describe_flat
from optimizer.search.rollouts import build_gang_tensors, build_lattice_tensors, find_orders
from topology.plan import Request


def make_state(seed: int, *, racks: int = 6, gangs: int = 12, cpu: bool = False) -> FleetState:
    rng = np.random.default_rng(seed)
    nodes = [make_node(f"n{i:03d}", rack=f"r{i // 4:02d}") for i in range(racks * 4)]
    fillers = [
        make_pods(f"filler-{i}", 1, spec=make_spec(gpus=int(g), cpu=int(g) * 4000), on=n.name)
        for i, (n, g) in enumerate(zip(nodes, rng.integers(0, 9, len(nodes)), strict=True))
        if g
    ]
    groups, pods = [], []
    for g in range(gangs):
        size, count = int(rng.choice([1, 2, 4, 8])), int(rng.integers(1, 5))
        own = make_spec(gpus=size, cpu=int(rng.integers(6, 9)) * 1000 * size if cpu else 0)
        groups.append(make_group(f"ml/g{g:02d}", count, key=RACK, priority=int(rng.integers(3))))
        pods.append(make_pods(f"g{g:02d}", count, group=f"ml/g{g:02d}", spec=own))
    snapshot = make_snapshot(nodes, *fillers, *pods, groups=groups)
    return FleetState(build_problem(snapshot, Request()))


def find_kinds(state: FleetState) -> tuple[list, list[int]]:
    kinds: dict = {}
    of_unit = []
    for unit in state.problem.units:
        kind = describe_flat(state.problem, unit)
        of_unit.append(kinds.setdefault(kind, len(kinds)))
    return list(kinds), of_unit


def roll_out_plainly(state: FleetState, kinds: list, order: list[int], ranks: list[int]) -> list:
    """Best fit by pods of the class a domain still holds; fullest nodes first."""
    chosen = []
    column = state.problem.columns[kinds[0].column]
    for k in order:
        kind = kinds[k]
        room = state.capacity(kind.pod_class, kind.column)
        fits = [
            (int(room[d]) - kind.count, ranks[d], d)
            for d in range(len(column.values))
            if room[d] >= kind.count
        ]
        if not fits:
            chosen.append(-1)
            continue
        d = min(fits)[2]
        chosen.append(d)
        nodes = state.members(kind.column)[d]
        order_of = np.lexsort((nodes, state.node_gpus[nodes]))
        free = state.fits(kind.pod_class)[nodes[order_of]]
        counts = np.clip(kind.count - (np.cumsum(free) - free), 0, free)
        used = counts > 0
        state.take(kind.pod_class, nodes[order_of][used], counts[used])
    return chosen


@pytest.mark.parametrize("seed", range(6))
def test_node_level_rollout_does_what_it_says(seed: int) -> None:
    state = make_state(seed, cpu=True)
    kinds, of_unit = find_kinds(state)
    fleet = build_gang_tensors(state, kinds)
    assert fleet is not None
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(of_unit) for _ in range(4)], axis=1).astype(np.int32)
    num_domains = fleet.domain_fits.shape[1]
    ranks = np.stack([rng.permutation(num_domains) for _ in range(4)]).astype(np.int32)
    chosen = np.asarray(roll_out_gangs(fleet, orders, np.ones(4, np.int32), ranks))
    for c in range(4):
        plain = FleetState(state.problem)
        want = roll_out_plainly(plain, kinds, orders[:, c].tolist(), ranks[c].tolist())
        assert chosen[:, c].tolist() == want


@pytest.mark.parametrize("seed", range(6))
def test_slots_never_admit_more_than_the_domains_hold(seed: int) -> None:
    state = make_state(seed)
    kinds, of_unit = find_kinds(state)
    fleet = build_lattice_tensors(state, kinds)
    assert fleet is not None
    rng = np.random.default_rng(seed)
    orders = np.stack([rng.permutation(of_unit) for _ in range(8)], axis=1).astype(np.int32)
    num_domains = fleet.slots.shape[0]
    ranks = np.tile(np.arange(num_domains, dtype=np.int32), (8, 1))
    chosen, left = roll_out_lattice(fleet, orders, np.ones(8, np.int32), ranks)
    chosen = np.asarray(chosen)
    assert np.asarray(left).min() >= 0
    for c in range(8):
        # Largest pods first, every placed gang finds its nodes: slots are exact.
        plain = FleetState(state.problem)
        placed = [(kinds[k], d) for k, d in zip(orders[:, c], chosen[:, c], strict=True) if d >= 0]
        for kind, d in sorted(placed, key=lambda p: -state.problem.class_gpus[p[0].pod_class]):
            nodes = plain.members(kind.column)[d]
            fits = plain.fits(kind.pod_class)[nodes]
            counts = np.clip(kind.count - (np.cumsum(fits) - fits), 0, fits)
            assert counts.sum() == kind.count
            plain.take(kind.pod_class, nodes[counts > 0], counts[counts > 0])


def test_a_fleet_of_like_size_compiles_nothing() -> None:
    first, second = make_state(1, gangs=12), make_state(2, gangs=11)
    rng = np.random.default_rng(0)
    levels = _levels(first)
    find_orders(first, range(len(first.problem.units)), levels, 32, rng)
    before = TRACES.total()
    assert find_orders(second, range(len(second.problem.units)), levels, 32, rng)
    assert TRACES.total() == before


def test_cpu_bound_fleets_of_like_size_compile_nothing() -> None:
    rng = np.random.default_rng(0)
    first, second = (make_state(s, gangs=g, cpu=True) for s, g in ((3, 12), (4, 11)))
    levels = _levels(first)
    find_orders(first, range(len(first.problem.units)), levels, 32, rng)
    before = TRACES.total()
    find_orders(second, range(len(second.problem.units)), levels, 32, rng)
    assert TRACES.total() == before


def _levels(state: FleetState) -> tuple:
    from optimizer.objective import Placed, build_levels

    units = [Placed(u.priority, 1, u.num_pods, u.gpus) for u in state.problem.units]
    return build_levels(("max:gpusPlaced",), units)


@pytest.mark.parametrize(("size", "want"), [(1, 8), (9, 10), (17, 20), (100, 112), (5000, 5120)])
def test_buckets_grow_by_at_most_a_quarter(size: int, want: int) -> None:
    assert bucket(size) == want
