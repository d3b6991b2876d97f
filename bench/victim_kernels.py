"""Victim sets: rates of the kernels against NumPy and a scalar loop, and whole searches.

Run: python -m bench.victim_kernels [--quick] [--cores 1]
The process keeps to one core, and seconds are those it worked (not those it waited for others).
Times of a search leave reading and verifying out; medians.
"""

from __future__ import annotations

import argparse
import itertools
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from bench.kernel_inputs import draw_domain, stack_subsets
from bench.kernels import keep_to_cores
from bench.table import write_table
from bench.victim_shapes import PREEMPTOR, make_cliques, make_tangled_fleet, make_wide_fleet
from optimizer.kernels.runtime import prepare_jax
from optimizer.kernels.victim_subsets import LANES, enumerate_subsets
from optimizer.kernels.victims import WORST
from optimizer.objective import PREEMPT_OBJECTIVE, Placed, build_steps
from optimizer.problem import build_problem
from optimizer.search import victim_tensors
from optimizer.search.preempt import search_preemption
from optimizer.search.victim_model import empty_fleet
from optimizer.search.victim_plain import solve_plain
from optimizer.search.victim_sets import VictimSets, build_victim_sets
from optimizer.search.victim_tensors import find_sets, list_all_sets
from optimizer.victims import find_victims
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import Snapshot

WEIGHTED = ("max:priority", "min:weightedVictimGpus")
LOW = 13


@numba.njit(cache=True)  # type: ignore[misc]
def scan_gray_code(
    held: Any, node_of: Any, spare: Any, cap: Any, request: Any, need: int, cost: Any
) -> tuple[int, int]:
    """Walk through all subsets, one unit changed at a time; return the least cost and the set."""
    units = held.shape[0]
    free, total, price, best, chosen, bits = spare.copy(), 0, 0, 1 << 30, -1, 0
    fits = np.zeros(spare.shape[0], np.int64)
    for step in range(1, 1 << units):
        v = 0
        while (step >> v) & 1 == 0:
            v += 1
        bits ^= 1 << v
        sign = 1 if bits >> v & 1 else -1
        price += sign * cost[v]
        for n in node_of[v]:
            least = cap[n]
            for r in range(request.shape[0]):
                free[n, r] += sign * held[v, n, r]
                least = min(least, free[n, r] // request[r])
            total += least - fits[n]
            fits[n] = least
        if total >= need and price < best:
            best, chosen = price, bits
    return best, chosen


def scan_numpy(domain: dict[str, Any], chunk: int = 1 << 14) -> int:
    """Return the least cost over all subsets, by whole arrays."""
    units, best = len(domain["held"]), 1 << 30
    for start in range(0, 1 << units, chunk):
        bits = np.arange(start, min(start + chunk, 1 << units))[:, None] >> np.arange(units) & 1
        free = np.tensordot(bits, domain["held"], axes=1) + domain["spare"]
        fits = np.minimum((free // domain["request"]).min(axis=2), domain["cap"]).sum(axis=1)
        price = (bits @ domain["cost"])[fits >= domain["need"]]
        best = min(best, int(price.min(initial=1 << 30)))
    return best


def measure(run: Callable[[], object], seconds: float) -> float:
    """Return runs per second worked, the first (compilation) left out."""
    run()
    start, runs = time.process_time(), 0
    while time.process_time() - start < seconds:
        run()
        runs += 1
    return runs / (time.process_time() - start)


def compare_rates(seconds: float) -> list[list[object]]:
    """Compare subsets a second: XLA, NumPy, and a scalar loop that Numba compiles."""
    import jax

    rows = []
    for units, nodes, resources in ((14, 16, 3), (20, 16, 3), (26, 16, 3), (26, 18, 4)):
        domain = draw_domain(units, nodes, resources)
        tensors = jax.device_put(stack_subsets([domain], min(LOW, units // 2)))
        limit = np.full(1, WORST, np.int32)

        def run(tensors: Any = tensors, limit: Any = limit) -> Any:
            return jax.block_until_ready(enumerate_subsets(tensors, limit))

        found = run()
        rate = measure(run, seconds)
        lanes = min(LANES, 1 << min(LOW, units // 2))
        looked = int(found.looks.sum()) * lanes
        small = draw_domain(min(units, 22), nodes, resources)
        scalar = (
            small["held"].astype(np.int64),
            small["where"],
            small["spare"].astype(np.int64),
            small["cap"].astype(np.int64),
            small["request"].astype(np.int64),
            small["need"],
            small["cost"].astype(np.int64),
        )
        numba_rate = measure(lambda s=scalar: scan_gray_code(*s), seconds) * (1 << min(units, 22))
        tiny = draw_domain(14, nodes, resources)
        numpy_rate = measure(lambda d=tiny: scan_numpy(d), seconds) * (1 << 14)
        if units <= 20:
            assert int(found.words[0]) == scan_gray_code(*scalar)[0]
        if units == 14:
            assert int(found.words[0]) == scan_numpy(domain)
        rows.append(
            [
                f"{units} units, {nodes} nodes, {resources} resources",
                f"{1000 / rate:.1f} ms",
                f"{looked / 2**units:.1%}",
                f"{looked * rate:,.0f}",
                f"{2**units * rate:,.0f}",
                f"{numba_rate:,.0f}",
                f"{numpy_rate:,.0f}",
            ]
        )
    return rows


def build_sets(snapshot: Snapshot, objective: tuple[str, ...]) -> VictimSets:
    """Return the domains of the preemptor."""
    asked = Request(command="preempt", groups=(PREEMPTOR,), preempt=True, objective=objective)
    victims = find_victims(snapshot, 100)
    fleet = empty_fleet(snapshot, asked, victims=victims, gone=(), placed={}, only=[PREEMPTOR])
    unit = fleet.problem.units[0]
    steps = build_steps(objective, [Placed(unit.priority, 1, unit.num_pods, unit.gpus)])
    usable = fleet.state.fits(unit.tasks[0].pod_class) > 0
    sets = build_victim_sets(fleet, 0, unit.root.required[0].column, usable, steps)
    assert sets is not None
    return sets


def compare_orders(num_fleets: int) -> list[list[object]]:
    """Compare sets found by some orders with the best of all, domain by domain."""
    kinds = list(itertools.product((0, victim_tensors.SWAPS), (16, 128, 1024)))
    gaps: dict[tuple[int, int], list[float]] = {kind: [] for kind in kinds}
    seconds = dict.fromkeys(kinds, 0.0)
    for seed in range(num_fleets):
        sets = build_sets(make_tangled_fleet(10, 16, seed=seed), WEIGHTED)
        narrowed = sets.narrow(None)
        domains = list(range(sets.num_domains))
        best = {}
        for d in domains:
            found = list_all_sets(sets, narrowed, [d], None)
            assert found is not None
            best[d] = sets.costs.price(found[1])
        for swaps, orders in kinds:
            victim_tensors.SWAPS = swaps
            if not seed:
                find_sets(sets, narrowed, domains, orders)
            start = time.process_time()
            answers = find_sets(sets, narrowed, domains, orders)
            seconds[swaps, orders] += time.process_time() - start
            for d, victims in answers:
                cost = sets.costs.price(victims)
                gaps[swaps, orders].append(cost[0] / best[d][0] - 1)
    rows = []
    for (swaps, orders), gap in gaps.items():
        rate = orders * len(gap) / seconds[swaps, orders]
        hit = sum(g <= 0 for g in gap) / len(gap)
        rows.append([orders, swaps, len(gap), f"{hit:.0%}", f"{np.mean(gap):.2%}", f"{rate:,.0f}"])
    return rows


def time_steps(snapshot: Snapshot, objective: tuple[str, ...], runs: int) -> list[object]:
    """Return seconds of the problem, of the victims and of the search, and what it found."""
    asked = Request(command="preempt", groups=(PREEMPTOR,), preempt=True, objective=objective)
    times: list[list[float]] = [[], [], []]
    for _ in range(runs):
        times[0].append(_clock(lambda: build_problem(snapshot, asked)))
        times[1].append(_clock(lambda: find_victims(snapshot, 100)))
        problem = build_problem(snapshot, asked)
        times[2].append(_clock(lambda p=problem: search_preemption(snapshot, asked, p)))
    result = search_preemption(snapshot, asked, build_problem(snapshot, asked))
    cost = result.cost
    return [
        *(f"{median(each):.3f}" for each in times),
        len(result.placed),
        f"{cost.units} units, {cost.pods} pods, {cost.weighted_gpus} weighted GPUs",
        result.bound.proof,
    ]


def _clock(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def time_proof(domains: int) -> list[object]:
    """Prove the best of domains with 26 tangled units each, all by kernels, and as the search."""
    sets = build_sets(make_tangled_fleet(domains, 26), WEIGHTED)
    narrowed = sets.narrow(None)
    order = np.argsort(narrowed.bound, kind="stable").tolist()

    def by_kernels() -> tuple[int, ...]:
        first = sets.to_choice(*find_sets(sets, narrowed, order, 64)[0])
        limit = sets.costs.price(first.victims)
        found = list_all_sets(sets, sets.narrow(limit), order, limit)
        return limit if found is None else sets.costs.price(found[1])

    found = by_kernels()
    kernel_seconds = _clock(by_kernels)
    choice = solve_plain(sets, 5_000)
    assert choice is not None
    assert sets.costs.price(choice.victims) == found
    seconds = _clock(lambda: solve_plain(sets, 5_000))
    chosen = [sets.fleet.victims[v] for v in choice.victims]
    weighted = sum(victim.priority * victim.gpus for victim in chosen)
    return [
        f"26 units x {domains} domains of 18 nodes, {len(sets.request)} resources",
        f"{kernel_seconds:.2f}",
        f"{seconds:.2f}",
        weighted,
        "optimal" if choice.proven == len(sets.steps) else "none",
    ]


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--cores", type=int, default=1, help="default: 1")
    args = parser.parse_args()
    cores = keep_to_cores(args.cores)
    prepare_jax()
    runs = 3 if args.quick else 7
    heads = ["domain", "time", "looked at", "looked at/s", "decided/s", "scalar loop/s", "NumPy/s"]
    rates = compare_rates(0.5 if args.quick else 2.0)
    write_table("victim_subsets", f"All sets of victims, {cores} core(s)", heads, rates)
    heads = ["orders", "exchanges on the best 16", "domains", "best found", "mean gap", "orders/s"]
    orders = compare_orders(4 if args.quick else 10)
    write_table("victim_orders", f"Orders against the best of all, {cores} core(s)", heads, orders)
    heads = ["what", "kernels alone s", "search s", "weightedVictimGpus", "proof"]
    proofs = [time_proof(domains) for domains in (10, 30)]
    write_table("victim_proofs", f"Tangled domains, {cores} core(s)", heads, proofs)
    shapes = [
        ("kueue#13148: 2,000 nodes, 700 gangs, blocks of 100", make_wide_fleet(2000, 100)),
        ("the same, the fleet one domain", make_wide_fleet(2000, 100, is_one_domain=True)),
        ("kueue#10815: 10 cliques of 18 nodes", make_cliques()),
        *(
            (f"{nodes:,} nodes, domains of 18", make_wide_fleet(nodes, 18))
            for nodes in (500, 2000, 10_000)
        ),
    ]
    heads = ["shape", "objective", "problem s", "victims s", "search s", "placed", "cost", "proof"]
    rows = [
        [
            name,
            "default" if objective is PREEMPT_OBJECTIVE else "weightedVictimGpus",
            *time_steps(snapshot, objective, runs),
        ]
        for (name, snapshot), objective in itertools.product(shapes, (PREEMPT_OBJECTIVE, WEIGHTED))
    ]
    write_table("victim_kernels", f"Victims of one gang, {cores} core(s)", heads, rows)


if __name__ == "__main__":
    main()
