"""Re-packing: against every plan there is, against draining the emptiest, and how long it takes.

Run: python -m bench.repack [--quick] [--data FOLDER]
FOLDER (or GANGPLAN_BENCH_DATA) holds `openb` as published; without it those rows are left out.
Times are of one run after a small one that loads everything.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import gangplan
from bench.instances import GPU, make_spec
from bench.repack_exact import draw_fleet, find_best, score
from bench.table import write_table
from optimizer.fragmentation import measure_fragmentation
from optimizer.repack.fleet import build_fleet
from optimizer.repack.relocate import Residents, empty_nodes
from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import HOSTNAME, PODS, Group, Node, Phase
from topology.move_request import FreeGoal, MoveRequest
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topology.model import Snapshot
    from topology.plan import Plan

HEADS = ("question", "fleet", "moves", "answer", "beside it", "valid", "proof", "seconds", "goal")
FLEETS = (
    ("S", "dgx-h100", 128, "topology.example.com/rack"),
    ("M", "dgx-h100", 1024, "topology.example.com/rack"),
    ("R", "nvl72", 2304, "nvidia.com/gpu.clique"),
)
PER_GPU = ("max:domainsFreed", "min:movedGpus", "min:disturbedPods", "min:moves")
Row = tuple[object, ...]


def compare_exhaustive(num_seeds: int) -> Iterator[Row]:
    """Small random fleets against every sequence of moves, and every set of restarts."""
    for mode in ("live", "restart"):
        fleets = [f for f in map(draw_fleet, range(num_seeds)) if f.mode == mode]
        best = valid = moving = 0
        seconds = []
        for fleet in fleets:
            start = time.perf_counter()
            plan = gangplan.repack(fleet.snapshot, fleet.groups, free=fleet.free, mode=mode)
            seconds.append(time.perf_counter() - start)
            found = score(plan.criteria, sum(goal.reached for goal in plan.goals))
            best += found == find_best(fleet)
            moving += bool(plan.moves)
            valid += plan.verification is not None and plan.verification.is_valid
        count = len(fleets)
        yield (
            "best of all plans",
            f"{count} of 3-4 nodes, {moving} need moves",
            mode,
            f"{best} of {count} optimal",
            "-",
            f"{valid} of {count}",
            "-",
            f"{median(seconds):.3f}",
            "met" if best >= 0.95 * count and valid == count else "missed",
        )


def drain_emptiest(snapshot: Snapshot, key: str, count: int, mode: Any) -> tuple[int, int]:
    """Empty the domains with the fewest GPUs in use, one after another, by best fit.

    Returns:
      (domains freed, GPUs moved); what may move and where is as for the plan beside it.
    """
    request = Request(
        command="repack",
        groups=(),
        move=MoveRequest(mode=mode, free=(FreeGoal(key, None, count),)),
    )
    fleet = build_fleet(snapshot, request)
    goal = fleet.goals.frees[0]
    residents = Residents(fleet)
    allowed = np.ones(len(snapshot.nodes), bool)
    for d in goal.kept_empty:
        allowed[goal.domains[d]] = False
    gpus = np.array([spec.gpus for spec in snapshot.pods.specs])[snapshot.pods.spec]
    used = np.zeros(len(snapshot.nodes), np.int64)
    for p, n in fleet.home.items():
        used[n] += gpus[p]
    freed = 0
    for d in sorted(goal.candidates, key=lambda d: (int(used[goal.domains[d]].sum()), d)):
        if freed == goal.wanted:
            break
        if empty_nodes(fleet, residents, goal.domains[d], allowed):
            freed += 1
            allowed[goal.domains[d]] = False
    moved = {p for p, n in fleet.where.items() if n != fleet.home[p]}
    moved |= {p for u in fleet.touched for p in fleet.wholes[u].pods}
    return freed, int(sum(gpus[p] for p in moved))


def compare_greedy(
    levels: Sequence[str], fleets: Sequence[tuple[str, str, int, str]]
) -> Iterator[Row]:
    """Racks or NVLink domains freed for each GPU moved, beside draining the emptiest."""
    for name, preset, nodes, key in fleets:
        for level in levels:
            snapshot = gangplan.generate(
                preset, nodes=nodes, utilization=0.85, pending=0.1, fragmentation=level, seed=1
            )
            domains = len({node.labels[key] for node in snapshot.nodes if key in node.labels})
            for mode in ("live", "restart"):
                start_empty = _count_empty(snapshot, key)
                count = min(start_empty + max(domains // 20, 2), domains)
                start = time.perf_counter()
                plan = gangplan.repack(
                    snapshot, free=[f"{key}:{count}"], mode=mode, objective=PER_GPU
                )
                seconds = time.perf_counter() - start
                freed, moved = drain_emptiest(snapshot, key, count, mode)
                mine = plan.criteria["domainsFreed"], plan.criteria["movedGpus"]
                yield (
                    f"{count - start_empty} more {key.rpartition('/')[2]}s empty",
                    f"{name}, {nodes} nodes, {level}",
                    mode,
                    _say_freed(*mine),
                    _say_freed(freed, moved),
                    _is_valid(plan),
                    plan.bound.proof,
                    f"{seconds:.2f}",
                    "met"
                    if _is_twice(mine, (freed, moved))
                    else "equal or better"
                    if _is_no_worse(mine, (freed, moved))
                    else "missed",
                )


def _count_empty(snapshot: Snapshot, key: str) -> int:
    request = Request(command="repack", groups=(), move=MoveRequest(free=(FreeGoal(key, None, 1),)))
    return sum(build_fleet(snapshot, request).goals.frees[0].empty)


def _say_freed(freed: int, moved: int) -> str:
    rate = f"{100 * freed / moved:.1f} a 100 GPUs" if moved else "-"
    return f"{freed} freed, {moved} GPUs moved ({rate})"


def _is_twice(mine: tuple[int, int], other: tuple[int, int]) -> bool:
    is_twice = mine[0] * max(other[1], 1) >= 2 * other[0] * max(mine[1], 1)
    return mine[0] > 0 and mine[0] >= other[0] and is_twice


def _is_no_worse(mine: tuple[int, int], other: tuple[int, int]) -> bool:
    return (mine[0], -mine[1]) >= (other[0], -other[1])


def _is_valid(plan: Plan) -> str:
    return "yes" if plan.verification is not None and plan.verification.is_valid else "NO"


def make_consolidation(num_gangs: int = 41, nodes: int = 500) -> Snapshot:
    """KAI's case in size: gangs of 10 whole-node pods, one 1-GPU pod on each node of the fleet."""
    fleet = [
        Node(f"n{i:04}", {HOSTNAME: f"n{i:04}"}, {"cpu": 64_000, PODS: 110, GPU: 8})
        for i in range(nodes)
    ]
    pods = [
        PodRow(f"run/p{i:04}", make_spec(1, 4), node=f"n{i:04}", phase=Phase.RUNNING)
        for i in range(nodes)
    ]
    groups = []
    for g in range(num_gangs):
        ref = f"wait/g{g:02}"
        api = "scheduling.k8s.io/v1beta1/PodGroup"
        groups.append(GroupRow(Group(ref, "group", api, min_count=10, size=10), ""))
        pods += [PodRow(f"{ref}-{i}", make_spec(8, 32), group=ref, rank=i) for i in range(10)]
    return assemble_snapshot(fleet, pods, groups)


def measure_speed(sizes: Sequence[int]) -> Iterator[Row]:
    """Warm times of large fleets, and of KAI's consolidation case in size."""
    snapshot = make_consolidation()
    refs = [group.ref for group in snapshot.groups]
    gangplan.repack(snapshot, refs[:1], mode="live")
    start = time.perf_counter()
    plan = gangplan.repack(snapshot, refs, mode="live")
    seconds = time.perf_counter() - start
    yield (
        "consolidation: room for 41 gangs of 10",
        "500 nodes, 500 pods of 1 GPU",
        "live",
        f"{plan.criteria['groupsPlaced']} placed, {plan.criteria['moves']} moves",
        "KAI, published example run: 456 s",
        _is_valid(plan),
        plan.bound.proof,
        f"{seconds:.2f}",
        "met" if seconds < 1 and plan.criteria["groupsPlaced"] == len(refs) else "missed",
    )
    key = "topology.example.com/rack"
    for nodes in sizes:
        fleet = gangplan.generate(
            "dgx-h100", nodes=nodes, utilization=0.85, pending=0.2, fragmentation="bad", seed=1
        )
        pods = fleet.pods
        waiting = sorted(
            {fleet.groups[g].ref for g in pods.group[pods.is_pending].tolist() if g >= 0}
        )[:20]
        count = _count_empty(fleet, key) + nodes // 80
        questions: tuple[tuple[str, list[str], dict[str, Any]], ...] = (
            (f"{nodes // 80} more racks empty", [], {"free": [f"{key}:{count}"]}),
            ("less fragmentation", [], {}),
            (f"room for {len(waiting)} gangs", waiting, {}),
        )
        limit = 10 if nodes <= 2048 else 60
        for question, groups, options in questions:
            before = measure_fragmentation(fleet)["fragmentation"]
            start = time.perf_counter()
            plan = gangplan.repack(fleet, groups, mode="restart", **options)
            seconds = time.perf_counter() - start
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            found = plan.criteria
            yield (
                question,
                f"{nodes} nodes, {len(pods)} pods",
                "restart",
                f"{found['domainsFreed']} domains freed, {found['groupsPlaced']} placed, "
                f"{found['moves']} moves; fragmentation {before} -> {found['fragmentation']}",
                f"{memory:.2f} GiB",
                _is_valid(plan),
                plan.bound.proof,
                f"{seconds:.1f}",
                "met" if seconds < limit else "missed",
            )


def fill_openb(folder: Path, share: float, how: str, seed: int = 0) -> Snapshot:
    """Run openb's pods, in their order and again, until a share of the GPUs is in use."""
    from bench.real_input import read_openb

    snapshot = read_openb(folder)
    nodes, pods = snapshot.nodes, snapshot.pods
    rng = np.random.default_rng(seed)
    names = ("cpu", "memory", GPU, PODS)
    free = np.array([[node.allocatable.get(r, 0) for r in names] for node in nodes], np.int64)
    total = int(free[:, 2].sum())
    used, rows = 0, []
    order = np.argsort(pods.created, kind="stable").tolist()
    # The list's pods of whole GPUs are fewer than the fleet holds: they arrive up to three times.
    for again, p in itertools.product(range(3), order):
        if used >= share * total:
            break
        spec = pods.specs[pods.spec[p]]
        asked = np.array([spec.request(r) for r in names], np.int64)
        fits = np.flatnonzero((free >= asked).all(axis=1))
        if not spec.gpus or not fits.size:
            continue
        left = free[fits, 2] - asked[2]
        n = int(rng.choice(fits)) if how == "random" else int(fits[np.argmin(left)])
        free[n] -= asked
        used += spec.gpus
        rows.append(
            PodRow(f"{pods.refs[p]}-{again}", spec, node=nodes[n].name, phase=Phase.RUNNING)
        )
    return assemble_snapshot(nodes, rows)


def repack_openb(folder: Path) -> Iterator[Row]:
    """GPUs in wholly free nodes of openb before and after."""
    for how in ("best fit", "random"):
        for share in (0.90, 0.95):
            snapshot = fill_openb(folder, share, how)
            start = time.perf_counter()
            plan = gangplan.repack(snapshot, mode="live")
            seconds = time.perf_counter() - start
            where = {p: i for i, p in enumerate(snapshot.pods.refs)}
            names = {node.name: n for n, node in enumerate(snapshot.nodes)}
            from dataclasses import replace

            node = snapshot.pods.node.copy()
            for move in plan.moves:
                node[where[move.pod]] = names[move.target]
            after = replace(snapshot, pods=replace(snapshot.pods, node=node))
            whole = [
                measure_fragmentation(s)["levels"]["node"]["wholeFreeGpus"]
                for s in (snapshot, after)
            ]
            yield (
                "openb: least fragmentation",
                f"{len(snapshot.nodes)} nodes, {share:.0%} by {how}",
                "live",
                f"GPUs in wholly free nodes {whole[0]} -> {whole[1]}",
                f"{plan.criteria['moves']} moves, {plan.criteria['movedGpus']} GPUs",
                _is_valid(plan),
                plan.bound.proof,
                f"{seconds:.1f}",
                "-",
            )


def main() -> int:
    """Run all of it, or a part with --quick."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", type=Path, default=os.environ.get("GANGPLAN_BENCH_DATA"))
    args = parser.parse_args()
    rows: list[Row] = []
    levels = ("bad",) if args.quick else ("tidy", "normal", "bad")
    parts: list[Iterator[Row]] = [
        compare_exhaustive(100 if args.quick else 500),
        compare_greedy(levels, FLEETS[:2] if args.quick else FLEETS),
        measure_speed((512, 2048) if args.quick else (512, 1024, 2048, 5000, 10_000)),
    ]
    if args.data is not None and (Path(args.data) / "openb").is_dir():
        parts.append(repack_openb(Path(args.data) / "openb"))
    for part in parts:
        for row in part:
            rows.append(row)
            print(*row, sep=" | ", file=sys.stderr, flush=True)
    write_table("repack", "Re-packing", HEADS, rows)
    return int(any("NO" in str(row[5]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
