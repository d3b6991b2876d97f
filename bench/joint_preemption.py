"""Many gangs at once that need others to go: how long, how many victims, and what is proven.

Run: python -m bench.joint_preemption [--full]
2,000 nodes, 700 gangs that may go, 100 that wait, in shapes that tell searches apart
(`bench.instances_joint`); then growth with what waits and with the fleet. The first plan of the
process, which pays for imports, is not counted. Seconds of the CPU are those of one idle core.
"""

from __future__ import annotations

import argparse
import statistics
import time

from bench.instances_joint import SHAPES, Shape, count_victims, make_joint
from bench.table import write_table
from optimizer.objective import PREEMPT_OBJECTIVE
from ray_jobs.pipeline import make_plan
from topology.plan import Request

NODES, VICTIMS, PREEMPTORS = 2_000, 700, 100
HEADS = [
    "shape",
    "nodes",
    "may go",
    "wait",
    "placed",
    "victim units",
    "victim pods",
    "proof",
    "gap",
    "verified",
    "command s",
    "of the CPU",
]


def run_one(name: str, shape: Shape, nodes: int, preemptors: int, repeats: int) -> list[object]:
    """Return one row of the table; seconds are the median of the repeats."""
    snapshot = make_joint(shape, nodes, VICTIMS * nodes // NODES, preemptors)
    request = Request(command="place", preempt=True, objective=PREEMPT_OBJECTIVE)
    seconds, busy = [], []
    for _ in range(repeats):
        start, worked = time.perf_counter(), time.process_time()
        plan = make_plan(snapshot, request)
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - worked)
    assert plan.verification is not None
    return [
        name,
        nodes,
        count_victims(snapshot),
        preemptors,
        plan.criteria["groupsPlaced"],
        plan.criteria["victimUnits"],
        plan.criteria["victimPods"],
        plan.bound.proof,
        "" if plan.bound.gap is None else plan.bound.gap,
        "valid" if plan.verification.is_valid else "INVALID",
        f"{statistics.median(seconds):.1f}",
        f"{statistics.median(busy):.1f}",
    ]


def main() -> None:
    """Run the shapes, then what grows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true", help="growth too")
    parser.add_argument("--repeats", type=int, default=1, help="seconds are the median of these")
    args = parser.parse_args()
    repeats = args.repeats
    run_one("warm up", SHAPES["alike"], 100, 3, 1)
    rows = [run_one(name, shape, NODES, PREEMPTORS, repeats) for name, shape in SHAPES.items()]
    if args.full:
        for name in ("kinds", "levels in racks"):
            rows += [run_one(name, SHAPES[name], NODES, k, repeats) for k in (10, 30, 300)]
            rows += [run_one(name, SHAPES[name], n, PREEMPTORS, repeats) for n in (500, 5_000)]
    write_table("joint_preemption", "Many preemptors at once, effort normal", HEADS, rows)


if __name__ == "__main__":
    main()
