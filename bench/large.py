"""The whole command on 110,000 nodes and a million pods, read from Parquet, placed in parts.

Run: python -m bench.large [--nodes 110000] [--workers 0,2]
Times `gangplan place FOLDER` as a user would start it, with the memory of that process (workers
have their own), and holds the answers of all numbers of workers against one another.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.table import write_table
from bench.whole_command import run_timed

PRESETS = ("clos", "nvl72")
GANGPLAN = (sys.executable, "-m", "gangplan")
FULL = ("--utilization", "0.9", "--pending", "0.15", "--quiet")


def main() -> int:
    """Generate, place, compare; fail if a plan is invalid or the answers differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=110_000)
    parser.add_argument("--workers", default="0,2")
    args = parser.parse_args()
    rows: list[list[object]] = []
    is_sound = True
    with tempfile.TemporaryDirectory() as folder:
        for preset in PRESETS:
            fleet = Path(folder, preset)
            subprocess.run(
                [
                    *GANGPLAN,
                    "generate",
                    preset,
                    "-O",
                    str(fleet),
                    "--nodes",
                    str(args.nodes),
                    *FULL,
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            answers = []
            for workers in args.workers.split(","):
                out = Path(folder, "plan.json")
                seconds, memory = run_timed(
                    [*GANGPLAN, "place", str(fleet), "-o", "json", "--workers", workers, "--quiet"],
                    out,
                )
                answers.append(out.read_bytes())
                plan = json.loads(answers[-1])
                is_sound &= plan["verification"]["valid"]
                rows.append(_describe(preset, workers, plan, seconds, memory))
            is_sound &= len(set(answers)) == 1
    write_table(
        "large",
        f"{args.nodes:,} nodes in parts",
        ("fleet", "pods", "workers", "groups placed", "GPUs placed", "proof", "s", "GiB"),
        rows,
        notes=(
            "Answers of one fleet are "
            + ("the same bytes for every number of workers." if is_sound else "NOT SOUND."),
        ),
    )
    return int(not is_sound)


def _describe(
    preset: str, workers: str, plan: dict[str, object], seconds: float, memory: float
) -> list[object]:
    snapshot, groups = plan["snapshot"], plan["groups"]
    criteria, bound = plan["criteria"], plan["bound"]
    assert isinstance(snapshot, dict)
    assert isinstance(criteria, dict)
    assert isinstance(bound, dict)
    assert isinstance(groups, list)
    gap = "" if bound["gap"] is None else f" of {bound['criterion']}, gap {bound['gap']:.1%}"
    return [
        preset,
        f"{snapshot['pods']:,}",
        workers,
        f"{criteria['groupsPlaced']:,} of {len(groups):,}",
        f"{criteria['gpusPlaced']:,}",
        f"{bound['proof']}{gap}",
        f"{seconds:.0f}",
        f"{memory:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
