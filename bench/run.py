"""Run the benchmarks one after another; each prints its table and stores it in bench/results.

Run: python -m bench.run [--full]
Without --full about ten minutes on two cores; with it also 2,048, 8,192 and 110,000 nodes, all
seeds, and 320 small fleets against CP-SAT (about forty minutes more).
"""

from __future__ import annotations

import argparse
import subprocess
import sys

QUICK = (
    ("bench.kernels", "--quick"),
    ("bench.instances_quality", "--seeds", "0"),
    ("bench.instances_victims", "--seeds", "0"),
    ("bench.victims_quality",),
    ("bench.victim_kernels", "--quick"),
    ("bench.joint_preemption",),
    ("bench.replay", "--seeds", "8"),
    ("bench.repack", "--quick"),
    ("bench.whatif", "--scenarios", "90", "--nodes", "512", "--gangs", "80"),
    ("bench.scale",),
    ("bench.whole_command",),
    ("bench.real_input",),
)
FULL = (
    ("bench.kernels",),
    ("bench.instances_quality", "--large"),
    ("bench.instances_victims", "--large"),
    ("bench.victim_kernels",),
    ("bench.joint_preemption", "--full"),
    ("bench.replay", "--seeds", "80"),
    ("bench.repack",),
    ("bench.whatif",),
    ("bench.scale",),
    ("bench.whole_command",),
    ("bench.real_input",),
    ("bench.quality",),
    ("bench.victims_quality",),
    ("bench.large",),
)


def main() -> int:
    """Run every benchmark, and fail if one does."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    failed = 0
    for module, *options in FULL if args.full else QUICK:
        print(f"== python -m {module} {' '.join(options)}", file=sys.stderr, flush=True)
        failed |= subprocess.run([sys.executable, "-m", module, *options], check=False).returncode
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
