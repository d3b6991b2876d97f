"""The whole command on a large dump: 5,000 nodes, 40,000 pods, 1,000 pending gangs as kubectl JSON.

Run: python -m bench.whole_command [--nodes 5000]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.table import write_table
from data.generate import generate_fleet
from data.generate.manifests import to_objects


def add_noise(obj: dict[str, Any], size: int) -> dict[str, Any]:
    """Pad an object with what kubectl prints and placement ignores: env, volumes, status."""
    if obj["kind"] != "Pod":
        return obj
    env = [{"name": f"SETTING_{i}", "value": "x" * 40} for i in range(size // 80)]
    spec = obj["spec"]
    for container in spec["containers"]:
        container |= {
            "image": "registry.example.com/team/app:2026.11",
            "env": env,
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets"}],
        }
    spec["volumes"] = [{"name": "token", "projected": {"defaultMode": 420}}]
    obj["metadata"]["managedFields"] = [
        {"manager": "kube-controller-manager", "fieldsV1": {f"f:field{i}": {} for i in range(60)}}
    ]
    return obj


def write_dump(path: Path, nodes: int) -> tuple[int, int]:
    """Write the List; return (pods, pending groups)."""
    fleet = generate_fleet(
        "dgx-h100",
        nodes=nodes,
        utilization=0.85,
        pending=0.35,
        mix="research",
        fragmentation="normal",
        seed=0,
    )
    with path.open("w") as file:
        file.write('{"apiVersion": "v1", "kind": "List", "items": [\n')
        for i, obj in enumerate(to_objects(fleet)):
            file.write((",\n" if i else "") + json.dumps(add_noise(obj, 4000)))
        file.write("\n]}\n")
    pending = fleet.pods.is_pending
    groups = {int(g) for g in fleet.pods.group[pending].tolist()}
    singles = int((pending & (fleet.pods.group < 0)).sum())
    return len(fleet.pods), len(groups - {-1}) + singles


def main() -> None:
    """Write the dump, run the command twice, show the second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dump = Path(folder) / "fleet.json"
        pods, pending = write_dump(dump, args.nodes)
        script = (
            "import sys, time; start = time.time()\n"
            "from gangplan.api import read\n"
            "say = lambda line: print(f'{time.time() - start:.1f} s {line}', file=sys.stderr)\n"
            "snapshot = read(sys.argv[1]); say('read')\n"
            "from ray_jobs.pipeline import make_plan; from topology.plan import Request\n"
            "make_plan(snapshot, Request(), say); say('done')\n"
        )
        command = [sys.executable, "-m", "gangplan", "place", str(dump), "-o", "json", "--quiet"]
        for _ in range(2):
            start = time.perf_counter()
            answer = subprocess.run(command, check=True, capture_output=True)
            seconds = time.perf_counter() - start
        plan = json.loads(answer.stdout)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        where = subprocess.run(
            [sys.executable, "-c", script, str(dump)], check=True, capture_output=True, text=True
        ).stderr.strip()
        rows = [
            ["file", f"{dump.stat().st_size / 2**20:,.0f} MiB"],
            ["nodes, pods, pending groups", f"{args.nodes:,}, {pods:,}, {pending:,}"],
            ["wall time, warm cache", f"{seconds:.1f} s"],
            ["peak memory", f"{peak:.2f} GiB"],
            ["groups placed", plan["criteria"]["groupsPlaced"]],
            ["bound", json.dumps(plan["bound"])],
            ["verified", plan["verification"]["valid"]],
            *[["where the time goes", line] for line in where.splitlines()],
        ]
    write_table("whole_command", "gangplan place on a kubectl dump", ["what", "value"], rows)


if __name__ == "__main__":
    main()
