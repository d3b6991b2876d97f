"""What the search gains over kube-scheduler itself: random fleets, both answers, one row a class.

Run: python -m bench.replay [--seeds 20] [--release 1.37]

Each fleet is asked once with policy compare. "kept" counts fleets where the search alone was worse,
so that the answer is kube-scheduler's own plan. What is saved: more GPUs placed, fewer pods and
GPUs evicted; less than nothing is no loss where an earlier criterion of the objective is better.
Replay seconds are the median of the replay alone, on a machine that others use too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.instances_victims import make_victims
from bench.small_fleets import make_small_fleet
from bench.table import write_table
from data.generate import generate_fleet
from optimizer.objective import PREEMPT_OBJECTIVE
from optimizer.problem import build_problem
from optimizer.replay.compare import score_plan
from optimizer.replay.queue import replay_queue
from ray_jobs.pipeline import make_plan
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import Snapshot
    from topology.plan import Plan

PLACE: Final = Request(effort="quick", policy="compare")
PREEMPT: Final = replace(PLACE, preempt=True, objective=PREEMPT_OBJECTIVE)
CHEAPEST: Final = replace(PREEMPT, objective=("max:priority", "min:weightedVictimGpus"))

Class = tuple[str, "Callable[[int], Snapshot]", Request, int]
"""(name, seed -> fleet, question, one seed in so many is run)."""


def list_classes() -> tuple[Class, ...]:
    """Return every class of fleets."""

    def busy(seed: int) -> Snapshot:
        return generate_fleet("dgx-h100", nodes=64, utilization=0.9, pending=0.3, seed=seed)

    def gangs(groups: int, per_domain: int) -> Callable[[int], Snapshot]:
        return lambda seed: make_victims(groups, per_domain, seed)

    return (
        ("small fleets, place", make_small_fleet, PLACE, 1),
        ("64 DGX nodes, place", busy, PLACE, 4),
        ("64 DGX nodes, place --preempt", busy, PREEMPT, 4),
        ("20 gangs, racks of 16: one gang preempts", gangs(20, 16), CHEAPEST, 2),
        ("100 gangs, racks of 16: one gang preempts", gangs(100, 16), CHEAPEST, 2),
        ("100 gangs, racks of 64: one gang preempts", gangs(100, 64), CHEAPEST, 4),
    )


def run_class(one: Class, seeds: int, release: str) -> list[object]:
    """Return one row of the table."""
    name, make, request, step = one
    request = replace(request, release=release)
    saved: list[dict[str, int]] = []
    seconds: list[float] = []
    kept = worse = 0
    for seed in range(0, seeds, step):
        snapshot = make(seed)
        problem = build_problem(snapshot, request)
        plan = make_plan(snapshot, request)
        assert plan.comparison is not None
        theirs = plan.comparison.replay
        mine = score_plan(problem, request, plan)
        worse += mine < score_plan(problem, request, theirs)
        kept += _is_kept(plan)
        saved.append(dict(plan.comparison.saved))
        start = time.perf_counter()
        replay_queue(snapshot, replace(request, policy="replay"), problem)
        seconds.append(time.perf_counter() - start)
    row: list[object] = [name, len(saved), worse, kept]
    for criterion in ("groupsPlaced", "gpusPlaced", "victimPods", "weightedVictimGpus"):
        values = [entry[criterion] for entry in saved]
        row.append(f"{statistics.mean(values):.1f} ({min(values)} to {max(values)})")
    return [*row, f"{statistics.median(seconds):.3f}"]


def _is_kept(plan: Plan) -> bool:
    return any(line.startswith("the search found nothing as good") for line in plan.warnings)


def main() -> None:
    """Compare on every class."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--release", default="1.37")
    args = parser.parse_args()
    rows = [run_class(one, args.seeds, args.release) for one in list_classes()]
    heads = ["fleets", "number", "answer worse", "kept"]
    heads += [f"{what} saved: mean (range)" for what in ("groups", "GPUs", "victim pods")]
    heads += ["priority x victim GPUs saved", "replay s"]
    title = f"The search beside kube-scheduler {args.release}, effort quick"
    write_table("replay", title, heads, rows)


if __name__ == "__main__":
    main()
