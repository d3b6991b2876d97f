"""The sizes of kube-scheduler's own performance tests on 5,000 nodes: placed whole, and how fast.

Run: python -m bench.scale
Source of the sizes: test/integration/scheduler_perf/podgroup (gangscheduling, tas, cpg). Nodes are
empty, have 8 GPUs and 64 cores, and stand in 10 zones of 5 racks of 100. Pods ask for one GPU;
where that would be more than there are, for a core alone.
"""

from __future__ import annotations

import argparse
import time

from bench.fleets import ZONE, make_composites, make_gangs, make_nodes
from bench.instances import GPU, KEY
from bench.table import write_table
from ray_jobs.pipeline import make_plan
from topology.assemble import assemble_snapshot
from topology.model import PODS, PodSpec
from topology.plan import Request


def main() -> None:
    """Place every set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    nodes = make_nodes(5000, 10, 50)
    one_gpu = PodSpec((("cpu", 1000), (GPU, 1), (PODS, 1)))
    cpu_only = PodSpec((("cpu", 1000), ("memory", 1 << 30), (PODS, 1)))
    sets = [
        ("3,000 gangs of 3", make_gangs(3000, 3, one_gpu)),
        ("9 gangs of 1,000", make_gangs(9, 1000, one_gpu)),
        ("10 gangs of 5,000 (cpu only)", make_gangs(10, 5000, cpu_only)),
        ("TAS: 2,250 gangs of 4 in a rack", make_gangs(2250, 4, one_gpu, KEY)),
        ("TAS: 9 gangs of 1,000 in a zone", make_gangs(9, 1000, one_gpu, ZONE)),
        ("TAS: 9 gangs of 1,000 in a rack (cpu only)", make_gangs(9, 1000, cpu_only, KEY)),
        ("composite: 1,500 x 2 groups of 4", make_composites(1500, 2, 4, one_gpu)),
        ("composite: 3 x 2 groups of 500", make_composites(3, 2, 500, one_gpu)),
        ("composite: 3 x 2 groups of 1,500 (cpu only)", make_composites(3, 2, 1500, cpu_only)),
    ]
    # Imports belong to the first plan of a process, not to a size.
    few, theirs = make_gangs(20, 3, one_gpu)
    make_plan(assemble_snapshot(nodes[:100], theirs, few), Request())
    rows = []
    for name, (groups, pods) in sets:
        snapshot = assemble_snapshot(nodes, pods, groups)
        start = time.perf_counter()
        plan = make_plan(snapshot, Request())
        seconds = time.perf_counter() - start
        assert plan.verification is not None
        rows.append(
            [
                name,
                f"{plan.criteria['groupsPlaced']} of {len(plan.groups)}",
                f"{plan.criteria['podsPlaced']} of {len(pods)}",
                plan.bound.proof,
                "valid" if plan.verification.is_valid else "INVALID",
                f"{seconds:.2f}",
            ]
        )
    heads = [
        "pending on 5,000 nodes",
        "groups placed",
        "pods placed",
        "proof",
        "verified",
        "search, answer and verification s",
    ]
    write_table("scale", "Sizes of scheduler_perf", heads, rows)


if __name__ == "__main__":
    main()
