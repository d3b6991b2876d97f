"""Kernels against their baselines on the same state, on one core.

Run: python -m bench.kernels [--quick] [--cores 1]
Rates are those of one core: the process keeps to it (where the system can), XLA and Numba too.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING

import numpy as np

from bench.baselines import place_greedily, search_orders
from bench.fleets import make_gang, make_nodes
from bench.instances import GPU, KEY, make_instance, make_spec, objective_of
from bench.kernel_inputs import draw_rollouts, kinds_of, make_problem
from bench.table import write_table
from optimizer.fleet_state import FleetState
from optimizer.kernels.gangs import GangTensors, roll_out_gangs
from optimizer.kernels.lattice import roll_out_lattice
from optimizer.kernels.runtime import TRACES, prepare_jax
from optimizer.problem import Problem, build_problem
from optimizer.search.orders import draw_orders
from optimizer.search.place import search_placement
from optimizer.search.rollouts import build_gang_tensors, build_lattice_tensors
from topology.assemble import assemble_snapshot
from topology.model import TopologyTerm
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Callable

KUBE_SCHEDULER = {"all": 27, "sampled": 140}
"""Gangs/s of kube-scheduler on 5,000 nodes and 50 racks: all racks scored, or 5 of them."""


def measure(run: Callable[[], object], seconds: float) -> float:
    """Return runs per second, the first (compilation) left out."""
    run()
    start, runs = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        run()
        runs += 1
    return runs / (time.perf_counter() - start)


def time_gangs(problem: Problem, candidates: int, length: int, seconds: float) -> float:
    """Return gang-steps per second of the node-level kernel."""
    import jax

    kinds, of_unit = kinds_of(problem)
    fleet = build_gang_tensors(FleetState(problem), kinds)
    assert isinstance(fleet, GangTensors)
    drawn = draw_rollouts(of_unit, fleet.domain_fits.shape[1], candidates, length)
    on_device = jax.device_put((fleet, *drawn))
    per_run = candidates * length
    return per_run * measure(lambda: roll_out_gangs(*on_device).block_until_ready(), seconds)


def compare_rollouts(seconds: float) -> list[list[object]]:
    """Compare whole-order rollouts at 2,048 nodes x 320 gangs with both baselines."""
    import jax

    problem = build_problem(make_instance("equal", 2048, 320), Request())
    state = FleetState(problem)
    kinds, of_unit = kinds_of(problem)
    fleet = build_lattice_tensors(state, kinds)
    assert fleet is not None
    candidates = 256
    rng = np.random.default_rng(0)
    rows = draw_orders(problem, range(len(problem.units)), candidates, rng)
    orders = of_unit[rows]
    num_domains = fleet.slots.shape[0]
    ranks = np.tile(np.arange(num_domains, dtype=np.int32), (candidates, 1))
    ones = np.ones(candidates, np.int32)
    on_device = jax.device_put((fleet, np.ascontiguousarray(orders.T), ones, ranks))
    jax_rate = candidates * measure(
        lambda: roll_out_lattice(*on_device)[0].block_until_ready(), seconds
    )
    slots, takes = np.asarray(fleet.slots), np.asarray(fleet.takes)
    worth = np.ones(len(takes), np.int64)
    chosen = np.asarray(roll_out_lattice(*on_device)[0])
    # Not only as fast: the same gangs placed, order by order.
    assert np.array_equal((chosen >= 0).sum(axis=0), search_orders(slots, takes, orders, worth))
    numba_rate = candidates * measure(lambda: search_orders(slots, takes, orders, worth), seconds)
    codes = problem.columns[kinds[0].column].codes.astype(np.int64)
    gpu = problem.resources.index(GPU)
    keep = [gpu, *[r for r in range(len(problem.resources)) if r != gpu]]
    classes = np.array([kinds[k].pod_class for k in of_unit])
    counts = np.array([kinds[k].count for k in of_unit])
    requests = problem.requests[:, keep].astype(np.int64)

    def greedy() -> None:
        order = rng.permutation(len(classes))
        place_greedily(
            problem.free[:, keep].astype(np.int64), requests, codes, classes[order], counts[order]
        )

    numpy_rate = measure(greedy, seconds)
    steps = len(of_unit)
    return [
        [
            "whole orders, 2,048 nodes x 320 gangs: JAX slots",
            f"{jax_rate:,.0f} orders/s",
            f"{jax_rate * steps:,.0f}",
            f"{jax_rate / numpy_rate:,.0f} x NumPy greedy",
        ],
        [
            "the same: Numba slots",
            f"{numba_rate:,.0f} orders/s",
            f"{numba_rate * steps:,.0f}",
            f"JAX is {jax_rate / numba_rate:.2f} x Numba",
        ],
        [
            "the same: NumPy greedy, node level",
            f"{numpy_rate:,.1f} orders/s",
            f"{numpy_rate * steps:,.0f}",
            "1",
        ],
    ]


def count_compilations() -> tuple[int, int]:
    """Return kernel traces of a first snapshot and of a second one of like size."""
    counts = []
    for seed, gangs in ((1, 80), (2, 78)):
        before = TRACES.total()
        request = Request(objective=objective_of("equal"), effort="quick")
        search_placement(build_problem(make_instance("equal", 512, gangs, seed), request), request)
        counts.append(TRACES.total() - before)
    return counts[0], counts[1]


def time_impossible(gpus: int, key: str | None = None) -> float:
    """Return milliseconds to prove with a reason that 10 pods cannot run on 500 nodes, warm.

    From the snapshot: tensors of the problem included. Nodes have 8 GPUs and racks 5 nodes.
    """
    from optimizer.explain import Explainer

    term = None if key is None else TopologyTerm((key,))
    groups, pods = make_gang("bench/huge", 10, make_spec(gpus, 1), term)
    snapshot = assemble_snapshot(make_nodes(500, 1, 100), pods, groups)

    def prove() -> None:
        problem = build_problem(snapshot, Request())
        explainer = Explainer(snapshot, Request(), problem, {}, ["bench/huge"])
        assert explainer.explain(problem.units[0]).name == "impossible"

    return 1000 / measure(prove, 1.0)


def time_tensors() -> float:
    """Return seconds from a stored snapshot of 5,000 nodes and 40,000 pods to the problem."""
    import tempfile
    from pathlib import Path

    from data.generate import generate_fleet
    from data.store import read_store, write_store

    fleet = generate_fleet(
        "dgx-h100",
        nodes=5000,
        utilization=0.9,
        pending=0.2,
        mix="llm",
        fragmentation="normal",
        seed=0,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet"
        write_store(fleet, path)
        read_store(path)
        start = time.perf_counter()
        build_problem(read_store(path), Request())
        return time.perf_counter() - start


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a second each")
    parser.add_argument("--cores", type=int, default=1, help="default: 1")
    args = parser.parse_args()
    seconds = 1.0 if args.quick else 3.0
    cores = keep_to_cores(args.cores)
    prepare_jax()
    rows = compare_rollouts(seconds)
    problem = make_problem(5000, 50, 64)
    for candidates in (1, 8):
        rate = time_gangs(problem, candidates, 256, seconds)
        rows.append(
            [
                f"4-pod gangs, 5,000 nodes, all 50 racks scored, {candidates} order(s) abreast",
                f"{rate:,.0f} gangs/s",
                f"{rate:,.0f}",
                f"{rate / KUBE_SCHEDULER['all']:,.0f} x kube-scheduler (all scored), "
                f"{rate / KUBE_SCHEDULER['sampled']:,.0f} x (5 sampled)",
            ]
        )
    growth = []
    for nodes in (1000, 2500, 5000, 10_000):
        rate = time_gangs(make_problem(nodes, nodes // 18, 64, 4), 16, 200, seconds)
        growth.append(rate)
        rows.append(
            [
                f"node-level gang-steps, {nodes:,} nodes",
                "",
                f"{rate:,.0f}",
                f"time a step {growth[0] / rate:.2f} x that at 1,000 nodes",
            ]
        )
    first, second = count_compilations()
    rows += [
        ["kernels compiled: first snapshot, second of like size", f"{first}, {second}", "", ""],
        [
            "proof with a reason that 10 pods fit no node of 500, warm",
            f"{time_impossible(16):.1f} ms",
            "",
            "KAI's published example: 249.5 s",
        ],
        [
            "the same, where pods fit nodes but no rack of 100 holds ten",
            f"{time_impossible(8, KEY):.1f} ms",
            "",
            "",
        ],
        ["stored snapshot (5,000 nodes) to problem tensors", f"{time_tensors():.2f} s", "", ""],
    ]
    heads = ["what", "rate", "gang-steps/s", "ratio"]
    write_table("kernels", f"Kernels on {cores} core(s)", heads, rows)


def keep_to_cores(count: int) -> int:
    """Keep this process to some cores; return how many it has, all where the system cannot."""
    if not hasattr(os, "sched_setaffinity"):
        return os.cpu_count() or 1
    own = sorted(os.sched_getaffinity(0))[:count]
    os.sched_setaffinity(0, own)
    return len(own)


if __name__ == "__main__":
    main()
