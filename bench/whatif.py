"""A thousand scenarios of one fleet: mended in batches, searched one by one, on Ray, by NumPy.

Run: python -m bench.whatif [--scenarios 1000] [--nodes 2048] [--gangs 320]

A third of the scenarios take a node away, a third a rack, a third add a gang; every plan is
verified. Baselines of the same run, on a sample as they take long: the same scenarios each searched
from nothing, and a vectorised NumPy greedy that starts from nothing too (placement alone, neither
reading, nor sums, nor verification).
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.baselines import place_greedily
from bench.instances import KEY, make_instance, objective_of
from bench.table import write_table
from data.scenarios.apply import apply_scenario
from data.scenarios.read import expand_scenarios
from optimizer.problem import build_problem
from optimizer.search.kinds import describe_flat
from ray_jobs.pipeline import make_plan
from ray_jobs.whatif import answer_scenarios
from topology.plan import Request

if TYPE_CHECKING:
    from data.scenarios.wire import Scenario
    from ray_jobs.whatif import WhatIf
    from topology.model import Snapshot

SAMPLE = 6


def make_scenarios(count: int, nodes: int, gangs: int) -> list[dict[str, Any]]:
    """Write down scenarios of the three kinds in turn."""
    racks = nodes // 16
    found: list[dict[str, Any]] = []
    for i in range(count):
        if i % 3 == 0:
            found.append({"name": f"node-{i}", "remove": [f"n{i * 2 % nodes:05d}"]})
        elif i % 3 == 1:
            found.append({"name": f"rack-{i}", "remove": {KEY: f"r{i % racks:04d}"}})
        else:
            like = {"like": f"bench/g{i % gangs:04d}"}
            found.append({"name": f"gang-{i}", "groups": {"add": like}})
    return found


def answer(
    fleet: Snapshot, scenarios: list[Scenario], request: Request, workers: int | None
) -> tuple[float, WhatIf]:
    """Return seconds for all answers, the base plan left out, and the answers."""
    base = answer_scenarios(fleet, [], request).base
    start = time.perf_counter()
    found = answer_scenarios(fleet, scenarios, request, workers=workers, plans=False, base=base)
    return time.perf_counter() - start, found


def search_alone(fleet: Snapshot, scenarios: list[Scenario], request: Request) -> tuple[float, int]:
    """Return seconds a scenario when each is searched from nothing, and GPUs placed in all."""
    times, gpus = [], 0
    for scenario in scenarios:
        start = time.perf_counter()
        plan = make_plan(apply_scenario(fleet, scenario).snapshot, request)
        times.append(time.perf_counter() - start)
        gpus += plan.criteria["gpusPlaced"]
    return statistics.median(times), gpus


def place_by_numpy(
    fleet: Snapshot, scenarios: list[Scenario], request: Request
) -> tuple[float, int]:
    """Return seconds a scenario for a NumPy greedy, and GPUs placed in all."""
    times, gpus = [], 0
    for scenario in scenarios:
        problem = build_problem(apply_scenario(fleet, scenario).snapshot, request)
        kinds = [k for unit in problem.units if (k := describe_flat(problem, unit)) is not None]
        classes = np.array([k.pod_class for k in kinds])
        counts = np.array([k.count for k in kinds])
        worth = problem.class_gpus[classes] * counts
        order = np.argsort(-worth, kind="stable")
        codes = problem.columns[kinds[0].column].codes.astype(np.int64)
        free = problem.free.astype(np.int64)
        before = free.sum(axis=0)
        start = time.perf_counter()
        place_greedily(
            free, problem.requests.astype(np.int64), codes, classes[order], counts[order]
        )
        times.append(time.perf_counter() - start)
        column = next(r for r, name in enumerate(problem.resources) if name.endswith("/gpu"))
        step = int(problem.amounts[classes[0], column] // problem.requests[classes[0], column])
        gpus += int((before - free.sum(axis=0))[column]) * step
    return statistics.median(times), gpus


def main() -> None:
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenarios", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=2048)
    parser.add_argument("--gangs", type=int, default=320)
    args = parser.parse_args()
    fleet = make_instance("equal", args.nodes, args.gangs)
    scenarios = expand_scenarios(make_scenarios(args.scenarios, args.nodes, args.gangs), fleet)
    request = Request(objective=objective_of("equal"))
    # Compiles what is to be compiled.
    answer(fleet, scenarios[:3], request, None)
    here, found = answer(fleet, scenarios, request, None)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    sample = scenarios[:: max(len(scenarios) // SAMPLE, 1)][:SAMPLE]
    names = {scenario.name for scenario in sample}
    mended = sum(a.row["gpusPlaced"] for a in found.answers if a.name in names)
    alone, alone_gpus = search_alone(fleet, sample, request)
    numpy, numpy_gpus = place_by_numpy(fleet, sample, request)
    each = here / len(scenarios)
    rows = [
        ("mended, this process", f"{here:.1f}", f"{each * 1000:.0f}", "1", mended),
        (
            f"searched one by one ({len(sample)} of them)",
            "",
            f"{alone * 1000:.0f}",
            f"{alone / each:.0f} x",
            alone_gpus,
        ),
        (
            f"NumPy greedy, placement alone ({len(sample)})",
            "",
            f"{numpy * 1000:.0f}",
            f"{numpy / each:.2f} x",
            numpy_gpus,
        ),
    ]
    for workers in (1, 2):
        seconds, again = answer(fleet, scenarios, request, workers)
        same = "same answers" if again.answers == found.answers else "OTHER ANSWERS"
        rows.append(
            (
                f"mended, {workers} Ray workers (start included), {same}",
                f"{seconds:.1f}",
                f"{seconds / len(scenarios) * 1000:.0f}",
                f"{seconds / here:.2f} x",
                mended,
            )
        )
    write_table(
        "whatif",
        f"{len(scenarios)} scenarios of equal {args.nodes} x {args.gangs}, all verified, "
        f"{memory:.2f} GiB",
        ("how", "s in all", "ms a scenario", "time against mended", "GPUs placed in the sample"),
        rows,
    )


if __name__ == "__main__":
    main()
