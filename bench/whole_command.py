"""The whole command on a large dump: 5,000 nodes, 40,000 running pods, 1,000 pending gangs.

Run: python -m bench.whole_command [--nodes 5000] [--gangs 1000]
     python -m bench.whole_command --trace FILE [--profile]
Times `gangplan place FILE -o json` as a user would start it, the second time (the first fills the
compile cache), with the memory of that process alone; then once more for the time of each step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.table import write_table


def run_timed(command: list[str], out: Path) -> tuple[float, float]:
    """Run a command; return its wall seconds and its peak memory in GiB.

    Raises:
      CalledProcessError: It failed.
    """
    with out.open("wb") as file:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=file)
        # Not getrusage(RUSAGE_CHILDREN), which is the largest of all children there ever were.
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return seconds, usage.ru_maxrss / 2**20


def trace(dump: Path, profile: bool) -> None:
    """Read and plan in this process, and print "SECONDS<tab>LINE" for each line of progress."""
    start = time.perf_counter()

    def say(line: str) -> None:
        text = line.replace(str(dump), "the dump")
        print(f"{time.perf_counter() - start:.2f}\t{text}", flush=True)

    from gangplan.api import read
    from ray_jobs.pipeline import make_plan
    from topology.plan import Request

    say("imported")
    snapshot = read(str(dump), progress=say)
    say("read")
    if profile:
        import cProfile

        cProfile.runctx("make_plan(snapshot, Request(), say)", globals(), locals(), sort="cumtime")
    else:
        make_plan(snapshot, Request(), say)
    say("done")


def trace_steps(dump: Path) -> list[list[object]]:
    """Return a row for each line of progress: when it came, and how long after the one before."""
    command = [sys.executable, "-m", "bench.whole_command", "--trace", str(dump)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows: list[list[object]] = []
    last = 0.0
    for line in text.splitlines():
        at, step = line.split("\t")
        rows.append([f"at {at} s (+{float(at) - last:.2f})", step])
        last = float(at)
    return rows


def main() -> None:
    """Write the dump, run the command twice, show the second."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=5000, help="default: 5000")
    parser.add_argument("--gangs", type=int, default=1000, help="default: 1000")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="only time the steps on FILE")
    parser.add_argument("--profile", action="store_true", help="with --trace: by function")
    args = parser.parse_args()
    if args.trace:
        trace(args.trace, args.profile)
        return
    with tempfile.TemporaryDirectory() as folder:
        dump, answer = Path(folder) / "fleet.json", Path(folder) / "plan.json"
        # In a process of its own: a child's peak memory begins with its parent's.
        sizes = ["--nodes", str(args.nodes), "--gangs", str(args.gangs)]
        writer = [sys.executable, "-m", "bench.kubectl_dump", str(dump), *sizes]
        subprocess.run(writer, check=True)
        command = [sys.executable, "-m", "gangplan", "place", str(dump), "-o", "json", "--quiet"]
        cold, _ = run_timed(command, answer)
        warm, peak = run_timed(command, answer)
        plan = json.loads(answer.read_bytes())
        told = plan["snapshot"]
        rows: list[list[object]] = [
            ["file", f"{dump.stat().st_size / 2**20:,.0f} MiB"],
            ["nodes, pods, groups", f"{told['nodes']:,}, {told['pods']:,}, {told['groups']:,}"],
            ["pending groups and single pods", f"{len(plan['groups']):,}"],
            ["of these placed", f"{plan['criteria']['groupsPlaced']:,}"],
            ["bound", json.dumps(plan["bound"])],
            ["verified", plan["verification"]["valid"]],
            ["wall time, first run", f"{cold:.1f} s"],
            ["wall time, second run", f"{warm:.1f} s"],
            ["peak memory", f"{peak:.2f} GiB"],
            *trace_steps(dump),
        ]
    write_table("whole_command", "gangplan place on a kubectl dump", ["what", "value"], rows)


if __name__ == "__main__":
    main()
