"""Kernels on the accelerator of this machine against the CPU of the same machine.

Run: bash bench/gpu.sh [--quick], or python -m bench.gpu [--quick]
Every call gets the same inputs on both, and has to find the same, bit for bit: all that kernels
return is integers. A share of the memory bandwidth is what a call has to move at least
(`bench.kernel_calls`), over the rate of a plain copy on the same device; beyond 100 % the state
stays in a cache. Where JAX finds no accelerator, only the CPU is measured, and nothing stored.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from bench.kernel_calls import DOMAIN, KernelCall, enumerate_domains, list_calls
from bench.table import write_table
from optimizer.kernels.fit import divide_exactly
from optimizer.kernels.victim_subsets import BestSubset

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = (1_000, 10_000, 100_000)
MOST_RUNS = 20
LARGEST = 2**24
"""The largest amount that kernels are given."""


@dataclass(frozen=True)
class Timing:
    """Medians of one call on one device."""

    found: Any
    compile_seconds: float
    seconds: float


def time_call(
    function: Callable[..., Any], arguments: tuple[Any, ...], device: jax.Device, seconds: float
) -> Timing:
    """Run a call on a device until some seconds are over, once at least after the first.

    Transfers are left out. What the first run takes longer than the others is compilation.
    """
    there = jax.block_until_ready(jax.device_put(arguments, device))
    begin = time.perf_counter()
    found = jax.block_until_ready(function(*there))
    first = time.perf_counter() - begin
    times: list[float] = []
    while not times or (sum(times) < seconds and len(times) < MOST_RUNS):
        begin = time.perf_counter()
        jax.block_until_ready(function(*there))
        times.append(time.perf_counter() - begin)
    return Timing(jax.device_get(found), max(first - median(times), 0.0), median(times))


def measure_bandwidth(device: jax.Device) -> float:
    """Return bytes a second of reading and writing an array far larger than a cache."""
    array = np.zeros((256 if device.platform == "cpu" else 1024) << 18, np.int32)
    passes = 8  # Within one call, so that a fresh result is not what is measured.
    copy = jax.jit(lambda x: jax.lax.fori_loop(0, passes, lambda i, y: y ^ i, x))
    return 2 * passes * array.nbytes / time_call(copy, (array,), device, 0.5).seconds


def count_wrong_quotients(device: jax.Device) -> int:
    """Count quotients that are not exact, next to multiples of requests of all sizes."""
    request = np.unique(np.r_[1:4097, np.geomspace(1, LARGEST, 4096).astype(np.int64)])
    most = LARGEST // request
    largest = np.maximum(most - np.arange(8)[:, None], 0)
    spread = (most * np.linspace(0, 1, 64)[:, None]).astype(np.int64)
    multiple = np.concatenate([largest, spread]) * request
    free = np.clip(multiple + np.arange(-1, 2)[:, None, None], 0, LARGEST)
    request = np.broadcast_to(request, free.shape)
    there = jax.device_put((free.astype(np.int32), request.astype(np.int32)), device)
    return int((np.asarray(jax.jit(divide_exactly)(*there)) != free // request).sum())


def is_same(left: Any, right: Any) -> bool:
    """Compare all that two devices found.

    Of an enumeration not how many steps it took: which it leaves out hangs on sums of float32,
    which add up in another order; none that is left out could hold the pods.
    """
    if isinstance(left, BestSubset):
        left, right = left._replace(looks=0), right._replace(looks=0)
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


class Report:
    """Rows of the table, within a limit of time."""

    def __init__(self, devices: list[jax.Device], seconds: float, limit: float) -> None:
        self.devices = devices
        self.seconds = seconds
        self.end = time.monotonic() + limit
        self.bandwidths = [measure_bandwidth(device) for device in devices]
        self.rows: list[list[object]] = []
        self.num_wrong = 0

    def add(self, nodes: int, call: KernelCall) -> None:
        """Measure one call on every device, or note that there was no time for it."""
        if time.monotonic() > self.end:
            no_time = [f"{nodes:,}", call.name, "no time left"]
            self.rows.append([*no_time, *[""] * (len(self.list_heads()) - len(no_time))])
            return
        timings = [
            time_call(call.function, call.arguments, device, self.seconds)
            for device in self.devices
        ]
        # What each device itself tried, as the enumeration may skip a step more on one of them.
        counts = [call.count(timing.found) for timing in timings]
        rates = [count / t.seconds for count, t in zip(counts, timings, strict=True)]
        row = [f"{nodes:,}", call.name, f"{counts[0]:,}", f"{call.candidate_bytes:,}"]
        for rate, timing, bandwidth in zip(rates, timings, self.bandwidths, strict=True):
            share = rate * call.candidate_bytes / bandwidth
            row += [f"{rate:,.0f}", f"{share:.1%}", f"{timing.compile_seconds:.1f}"]
        if len(timings) > 1:
            same = is_same(timings[0].found, timings[1].found)
            self.num_wrong += not same
            row += [f"{timings[0].seconds / timings[1].seconds:.1f} x", "yes" if same else "NO"]
        self.rows.append(row)
        print(" | ".join(row), file=sys.stderr, flush=True)

    def list_heads(self) -> list[str]:
        """Return the columns."""
        heads = ["nodes", "kernel", "candidates", "bytes each"]
        for device in self.devices:
            name = device.platform.upper()
            heads += [f"{name} candidates/s", f"{name} of bandwidth", f"{name} compile s"]
        return heads + (["faster", "same answers"] if len(self.devices) > 1 else [])

    def write(self) -> None:
        """Print the table, and store it where there was an accelerator."""
        divisions = [count_wrong_quotients(device) for device in self.devices]
        self.num_wrong += sum(divisions)
        notes = [
            f"{device.platform.upper()} ({device.device_kind}): copies {rate / 1e9:,.0f} GB/s; "
            f"{wrong} of the quotients next to multiples wrong."
            for device, rate, wrong in zip(self.devices, self.bandwidths, divisions, strict=True)
        ]
        if len(self.devices) == 1:
            notes.append("JAX found no accelerator: the CPU alone.")
        title = "Kernels on the accelerator and on the CPU"
        stored = len(self.devices) > 1
        write_table("gpu", title, self.list_heads(), self.rows, notes=notes, is_stored=stored)


def find_devices() -> list[jax.Device]:
    """Return the CPU, and the accelerator if there is one."""
    try:
        cpu, default = jax.devices("cpu")[0], jax.devices()[0]
    except (RuntimeError, AssertionError) as error:  # JAX asserts where it finds none at all.
        why = str(error) or "JAX finds none of them"
        sys.exit(f"bench.gpu needs the CPU beside the platforms of JAX_PLATFORMS: {why}")
    return [cpu] if default.platform == "cpu" else [cpu, default]


def main() -> int:
    """Measure, print, and fail where two devices differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small fleets, within a minute")
    args = parser.parse_args()
    seconds, limit = (0.2, 35.0) if args.quick else (1.0, 210.0)
    report = Report(find_devices(), seconds, limit)
    # As many domains as the search hands over at once, with as many units as it enumerates.
    report.add(8 * DOMAIN, enumerate_domains(8, 13, 13))
    for nodes in SIZES[:2] if args.quick else SIZES:
        for call in list_calls(nodes):
            report.add(nodes, call)
    report.write()
    return int(report.num_wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
