"""Gang sizes and durations of four real GPU clusters, and the mixes named after them.

Each table is a cumulative distribution, "value:percent" at its vertices; sizes are GPUs a job,
durations seconds. Vertices that add nothing are left out.

Source: read from figures `cdf_job_gpunum.pdf` and `cdf_job_jobtime.pdf` of InternLM/AcmeTrace
(commit 6d6ac9cd), Creative Commons Attribution 4.0 (CC BY 4.0); Hu et al., "Characterization of
Large Language Model Development in the Datacenter", NSDI 2024. Seren and Kalos: Shanghai AI
Laboratory, 2023; Helios: SenseTime, 2020; Philly: Microsoft, 2017. Exact to about 0.05 points;
sizes above 1,024 GPUs are counted at 1,024, and left out of Helios and Philly, whose curves say no
more of their last 0.05 % than that it is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MIXES", "Mix", "Steps"]

Steps = tuple[tuple[int, float], ...]
"""(value, share) of a distribution; shares add up to 1."""


@dataclass(frozen=True, slots=True)
class Mix:
    """What runs on a fleet."""

    description: str
    jobs: Steps
    """(GPUs, share of jobs)."""
    gpu_time: Steps
    """(GPUs, share of GPU time), that is of the GPUs busy at a moment."""
    durations: Steps
    """(seconds at most, share of jobs)."""
    constrained: float
    """Share of multi-node gangs that require one topology domain. Ours: no source measures it."""


def _parse(text: str) -> Steps:
    steps = []
    below = 0.0
    for vertex in text.split():
        value, percent = vertex.split(":")
        steps.append((int(value), float(percent) - below))
        below = float(percent)
    return tuple((value, share / below) for value, share in steps)


def _parse_sizes(text: str) -> Steps:
    """Return the steps of a size table at sizes that jobs have.

    Curves lose vertices when drawn: a step at 513 is one at 512, one at 15 lies in 9 to 15. So
    sizes above 8 go down to a multiple of 8. A first vertex above 1 says nothing about the sizes
    below it, of which single GPUs are by far the most frequent.
    """
    sizes: dict[int, float] = {}
    for i, (value, share) in enumerate(_parse(text)):
        size = 1 if i == 0 and value < 8 else value if value <= 8 else value - value % 8
        sizes[size] = sizes.get(size, 0.0) + share
    return tuple(sizes.items())


_SEREN_JOBS: Final = _parse_sizes(
    """
    1:54.04 2:65.43 3:65.55 4:67.95 7:67.99 8:96.75 16:97.86 31:97.91 32:98.82 47:98.84 49:98.89
    63:98.9 64:99.32 127:99.36 128:99.55 255:99.58 256:99.73 511:99.78 513:99.86 767:99.88
    770:99.94 1023:99.96 1024:100.0
    """
)
_SEREN_GPU_TIME: Final = _parse_sizes(
    """
    1:1.35 2:1.79 3:1.8 4:2.37 7:2.39 8:11.92 16:13.15 24:13.21 32:19.12 48:19.24 63:19.29
    64:27.59 72:28.31 80:28.45 96:28.68 127:28.69 128:41.69 192:43.61 255:43.62 256:56.3 280:56.48
    321:57.57 353:59.31 385:60.66 401:61.5 449:64.14 511:64.15 513:69.69 642:69.86 767:69.87
    770:85.5 927:85.51 931:85.57 963:87.39 1023:87.4 1024:100.0
    """
)
_SEREN_DURATIONS: Final = _parse(
    """
    1:2.18 2:2.78 4:5.62 8:11.76 16:23.38 32:31.71 64:37.12 128:48.91 256:65.63 512:79.21
    1024:88.03 2048:92.94 4096:95.99 8192:97.53 16384:98.44 32768:99.19 65536:99.64 131072:99.83
    262144:99.93 524288:99.98 1048576:100.0
    """
)
_KALOS_JOBS: Final = _parse_sizes(
    """
    1:86.28 2:88.36 8:93.92 16:94.26 32:94.65 64:95.3 127:95.34 128:95.68 256:96.9 495:96.92
    497:97.02 505:97.2 513:98.94 1023:98.96 1024:100.0
    """
)
_KALOS_GPU_TIME: Final = _parse_sizes(
    """
    7:0.16 8:0.62 31:0.64 32:1.96 64:3.26 96:3.52 128:3.75 256:24.88 319:24.89 321:24.98 497:26.79
    505:36.72 513:64.14 1019:64.25 1024:100.0
    """
)
_KALOS_DURATIONS: Final = _parse(
    """
    1:0.0 8:0.01 16:1.48 32:18.72 64:38.19 128:50.47 256:69.1 512:79.45 1024:85.94 2048:92.77
    4096:97.06 8192:98.68 16384:99.11 32768:99.45 65536:99.66 131072:99.83 262144:99.95
    524288:99.98 1048576:100.0
    """
)
_HELIOS_JOBS: Final = _parse_sizes(
    """
    1:72.19 2:74.75 3:74.84 4:80.47 5:80.5 7:80.68 8:94.69 15:94.7 16:97.72 24:98.08 32:99.35
    40:99.45 48:99.55 56:99.61 64:99.73 79:99.76 81:99.81 119:99.86 122:99.88 151:99.93 156:99.95
    """
)
_HELIOS_GPU_TIME: Final = _parse_sizes(
    """
    1:5.44 2:7.16 3:7.28 4:12.14 5:12.17 7:12.53 8:41.34 15:41.47 16:61.5 23:61.54 24:63.36
    31:63.37 32:86.63 40:87.85 48:89.78 56:90.45 64:94.38 72:94.64 80:95.35 88:95.81 96:96.13
    104:96.2 112:96.37 120:96.69 128:97.48 143:97.49 144:97.56 153:97.62 160:98.6 168:99.5
    191:99.53 192:99.79 200:99.93
    """
)
_HELIOS_DURATIONS: Final = _parse(
    """
    1:4.0 2:4.93 4:6.35 8:7.7 16:10.72 32:16.15 64:24.88 128:37.81 256:56.57 512:67.58 1024:75.25
    2048:84.1 4096:87.53 8192:90.75 16384:94.36 32768:96.26 65536:97.77 131072:98.9 262144:99.55
    524288:99.86 1048576:99.96 2097152:100.0
    """
)
_PHILLY_JOBS: Final = _parse_sizes(
    """
    1:82.42 2:84.48 4:92.05 8:98.91 15:98.92 16:99.81 31:99.83 32:99.98
    """
)
_PHILLY_GPU_TIME: Final = _parse_sizes(
    """
    1:16.43 2:19.4 4:38.17 8:88.03 16:97.2 24:97.47 32:100.0
    """
)
_PHILLY_DURATIONS: Final = _parse(
    """
    1:0.03 2:0.08 4:0.17 8:0.82 16:3.62 32:8.42 64:18.88 128:26.99 256:31.5 512:36.28 1024:54.91
    2048:67.47 4096:79.28 8192:84.6 16384:90.29 32768:92.71 65536:94.86 131072:96.95 262144:98.39
    524288:99.32 1048576:99.8 2097152:99.95
    """
)

MIXES: Final = {
    "research": Mix(
        "Helios: many small jobs, 95 % of them on at most 8 GPUs",
        _HELIOS_JOBS,
        _HELIOS_GPU_TIME,
        _HELIOS_DURATIONS,
        0.6,
    ),
    "llm": Mix(
        "Seren: half the jobs on one GPU, gangs above 8 GPUs hold 88 % of GPU time",
        _SEREN_JOBS,
        _SEREN_GPU_TIME,
        _SEREN_DURATIONS,
        0.95,
    ),
    "frontier": Mix(
        "Kalos: gangs of 256 to 1,024 GPUs hold 96 % of GPU time",
        _KALOS_JOBS,
        _KALOS_GPU_TIME,
        _KALOS_DURATIONS,
        1.0,
    ),
    "legacy": Mix(
        "Philly: nearly all jobs within one node",
        _PHILLY_JOBS,
        _PHILLY_GPU_TIME,
        _PHILLY_DURATIONS,
        0.3,
    ),
}
"""Mixes by name."""
