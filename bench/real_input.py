"""Public traces as snapshots: openb's whole-GPU pods, and real gang sizes on a real Clos.

Run: python -m bench.real_input --data FOLDER (or GANGPLAN_BENCH_DATA=FOLDER)
FOLDER holds `openb`, `alibaba_lingjun2023` and `gang_distributions` as published; nothing of them
is part of this repository, and what is absent is skipped.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.fleets import join, make_gang
from bench.instances import GPU, make_spec
from bench.table import write_table
from ray_jobs.pipeline import make_plan
from topology.assemble import PodRow, assemble_snapshot
from topology.model import HOSTNAME, PODS, Node, PodSpec, TopologyTerm
from topology.plan import Request

if TYPE_CHECKING:
    from bench.fleets import Rows
    from topology.model import Snapshot

AGGREGATION = "network.topology.example.com/psw"
LEAF = "network.topology.example.com/asw"
MODEL = "example.com/gpu-model"


def read_openb(folder: Path, pod_list: str = "openb_pod_list_default.csv.gz") -> Snapshot:
    """Read the openb nodes, and the pods that ask for whole GPUs or none, as pending pods."""
    nodes = []
    with (folder / "openb_node_list_all_node.csv").open() as file:
        for row in csv.DictReader(file):
            offers = {
                "cpu": int(row["cpu_milli"]),
                "memory": int(row["memory_mib"]) << 20,
                PODS: 110,
                GPU: int(row["gpu"]),
            }
            labels = {HOSTNAME: row["sn"], **({MODEL: row["model"]} if row["model"] else {})}
            nodes.append(Node(row["sn"], labels, offers))
    specs: dict[PodSpec, PodSpec] = {}
    pods = []
    with gzip.open(folder / pod_list, "rt") as file:
        for row in csv.DictReader(file):
            gpus = int(row["num_gpu"])
            if gpus and int(row["gpu_milli"]) != 1000:
                continue  # a share of a GPU, which Kubernetes has no counter for
            wanted = {
                "cpu": int(row["cpu_milli"]),
                "memory": int(row["memory_mib"]) << 20,
                GPU: gpus,
                PODS: 1,
            }
            spec = PodSpec(tuple(sorted((k, v) for k, v in wanted.items() if v)))
            pods.append(
                PodRow(
                    f"openb/{row['name']}",
                    specs.setdefault(spec, spec),
                    created=int(row.get("creation_time") or -1),
                )
            )
    return assemble_snapshot(nodes, pods)


def read_clos(
    folder: Path, cluster: str, measure: str, seed: int = 0, load: float = 1.15
) -> Snapshot:
    """Draw gangs from a cluster's size distribution on the hosts of a three-layer Clos.

    A gang of more than 8 GPUs has one pod a host. Those that fit the largest leaf ask for one leaf
    (a pair of aggregation and leaf switch, as leaf names repeat), larger ones for one aggregation
    where they fit it. Gangs are drawn until they ask for `load` times the GPUs of the fleet; none
    asks for more than a quarter of it.

    Args:
      folder: Holds `alibaba_lingjun2023` and `gang_distributions`.
      cluster: Whose sizes.
      measure: "jobs" draws sizes by their share of jobs, "gpu_time" by their share of GPU time.
      seed: Of the draw.
      load: GPUs asked for, as a share of all.
    """
    with (folder / "alibaba_lingjun2023" / "topo.csv").open() as file:
        hosts = list(csv.DictReader(file))
    nodes = [
        Node(
            f"host-{i:04d}",
            {HOSTNAME: f"host-{i:04d}", AGGREGATION: row["PSW"], LEAF: row["ASW"]},
            {"cpu": 128_000, "memory": 1 << 40, PODS: 110, GPU: 8},
        )
        for i, row in enumerate(sorted(hosts, key=lambda r: r["ip"]))
    ]
    with (folder / "gang_distributions" / "gang_size_cdf.csv").open() as file:
        steps = [
            (int(row["gpus_le"]), float(row["cum_pct"]))
            for row in csv.DictReader(file)
            if row["cluster"] == cluster and row["measure"] == measure
        ]
    leaf = max(Counter((row["PSW"], row["ASW"]) for row in hosts).values())
    aggregation = max(Counter(row["PSW"] for row in hosts).values())
    sizes = np.array([s for s, _ in steps])
    shares = np.diff(np.array([0.0, *[c for _, c in steps]]))
    rng = np.random.default_rng(seed)
    parts: list[Rows] = []
    asked = 0
    while asked < load * 8 * len(nodes):
        gpus = int(rng.choice(sizes, p=shares / shares.sum()))
        count, each = (-(-gpus // 8), 8) if gpus > 8 else (1, gpus)
        if count > len(nodes) // 4:
            continue
        path = (AGGREGATION, LEAF) if count <= leaf else (AGGREGATION,)
        term = TopologyTerm(path) if 1 < count <= aggregation else None
        spec = make_spec(each, 8 * each)
        parts.append(make_gang(f"jobs/job-{len(parts):05d}", count, spec, term))
        asked += each * count
    groups, pods = join(parts)
    return assemble_snapshot(nodes, pods, groups)


def describe(name: str, snapshot: Snapshot) -> list[object]:
    """Plan one snapshot and return its row."""
    start = time.perf_counter()
    plan = make_plan(snapshot, Request(objective=("max:gpusPlaced",)))
    seconds = time.perf_counter() - start
    assert plan.verification is not None
    free = sum(n.allocatable.get(GPU, 0) for n in snapshot.nodes)
    gap = "" if plan.bound.gap is None else f"{plan.bound.gap:.2%}"
    return [
        name,
        len(snapshot.nodes),
        f"{plan.criteria['groupsPlaced']} of {len(plan.groups)}",
        f"{plan.criteria['gpusPlaced']} of {free}",
        plan.bound.value,
        f"{plan.bound.proof} {gap}".strip(),
        "valid" if plan.verification.is_valid else "INVALID",
        f"{seconds:.1f}",
    ]


def main() -> int:
    """Plan what is there."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=os.environ.get("GANGPLAN_BENCH_DATA"))
    folder = parser.parse_args().data
    rows = []
    if folder and (folder / "openb").is_dir():
        rows.append(describe("openb, whole-GPU and cpu pods", read_openb(folder / "openb")))
        multi = "openb_pod_list_multigpu50.csv.gz"
        rows.append(describe("openb multigpu50", read_openb(folder / "openb", multi)))
    if folder and all(
        (folder / name).is_dir() for name in ("alibaba_lingjun2023", "gang_distributions")
    ):
        for measure, words in (("jobs", "by jobs"), ("gpu_time", "by GPU time")):
            for cluster in ("Seren", "Kalos", "Helios"):
                name = f"{cluster} gangs ({words}) on lingjun's Clos"
                rows.append(describe(name, read_clos(folder, cluster, measure)))
    if not rows:
        print("skipped: no traces; name their folder by --data", file=sys.stderr)
        return 0
    heads = ["input", "nodes", "groups placed", "GPUs placed", "bound", "proof", "verified", "s"]
    write_table("real_input", "Real input", heads, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
