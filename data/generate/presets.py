"""Machines and topologies of the fleets that can be generated.

Sources: NVIDIA DGX SuperPOD reference architectures (H100; GB200 NVL72); the performance test
`tas` of kubernetes-sigs/kueue; host tree of the Lingjun 2023 data set (alibaba/alibaba-lingjun-
dataset-2023, Apache-2.0; Cao et al., "Crux", SIGCOMM 2024); node list of the spot-GPU 2026 trace
(alibaba/clusterdata; "GFS", ASPLOS 2026). Memory of the last two is not in the data; it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["FLEET_SIZES", "POOL_LABEL", "PRESETS", "Pool", "Preset", "describe_presets"]

POOL_LABEL: Final = "node.kubernetes.io/instance-type"
"""Node label that tells the pools of a fleet with several models apart."""

FLEET_SIZES: Final = {"S": 128, "M": 1_024, "L": 5_000, "R": 2_304}
"""Customary node counts: 4, 32 and 157 scalable units of DGX, 128 racks of NVL72."""


@dataclass(frozen=True, slots=True)
class Pool:
    """Machines of one model."""

    name: str
    """In front of node names; value of `POOL_LABEL`."""
    gpus: int
    """Whole GPUs a node."""
    cpu_milli: int
    memory: int
    """Bytes."""
    share: int = 1
    """Nodes in proportion to the other pools."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A fleet's shape: its pools, each cut into outer domains of inner domains of nodes."""

    description: str
    nodes: int
    """Default number of nodes."""
    pools: tuple[Pool, ...]
    """In order of name."""
    outer_key: str
    inner_key: str
    domains: tuple[tuple[int, ...], ...]
    """Nodes in each inner domain of an outer domain; repeated until all nodes have a place."""
    tight: float
    """Share of the constrained gangs that ask for one inner domain if they fit in one. Ours."""
    is_nvlink: bool = False
    """Inner domains are NVLink domains: gangs are cut to them (see `data.generate.shapes`)."""


_GIB: Final = 1 << 30
_RACK: Final = "topology.kubernetes.io/rack"
_BLOCK: Final = "topology.kubernetes.io/block"

PRESETS: Final = {
    "dgx-h100": Preset(
        "DGX H100 SuperPOD: 8 GPUs a node, 4 nodes a rack, 8 racks a scalable unit",
        128,
        (Pool("dgx", 8, 224_000, 2_000 * _GIB),),
        "topology.example.com/su",
        "topology.example.com/rack",
        ((4,) * 8,),
        0.2,
    ),
    "nvl72": Preset(
        "GB200 NVL72: 4 GPUs a node, 18 nodes a rack and NVLink domain, 8 racks a scalable unit",
        144,
        (Pool("gb200", 4, 144_000, 960 * _GIB),),
        "topology.example.com/su",
        "nvidia.com/gpu.clique",
        ((18,) * 8,),
        1.0,
        is_nvlink=True,
    ),
    "kueue-grid": Preset(
        "grid of Kueue's performance test: 8 GPUs a node, 64 nodes a rack, 10 racks a block",
        640,
        (Pool("grid", 8, 96_000, 1_024 * _GIB),),
        _BLOCK,
        _RACK,
        ((64,) * 10,),
        0.5,
    ),
    "clos": Preset(
        "Lingjun 2023: uneven Clos of 3 aggregations and 119 leaves of 2 to 8 nodes, 8 GPUs each",
        847,
        (Pool("host", 8, 128_000, 1_024 * _GIB),),
        "network.topology.nvidia.com/spine",
        "network.topology.nvidia.com/leaf",
        (
            (8,) * 35 + (7,) * 8 + (6,) * 3 + (5, 3),
            (8,) * 28 + (7,) * 7 + (6,) * 4 + (5, 2, 2),
            (8,) * 5 + (7,) * 8 + (6,) * 8 + (5,) * 5 + (4, 4, 2),
        ),
        0.5,
    ),
    "hetero-pools": Preset(
        "spot fleet of 2026: six models with 1, 4 or 8 GPUs a node, racks of 4, blocks of 32",
        428,
        (
            Pool("a10", 1, 128_000, 256 * _GIB, 2_494),
            Pool("a100", 8, 128_000, 1_024 * _GIB, 432),
            Pool("a800", 8, 128_000, 1_024 * _GIB, 22),
            Pool("h800", 8, 192_000, 1_024 * _GIB, 219),
            Pool("series1-1x", 1, 192_000, 256 * _GIB, 902),
            Pool("series1-4x", 4, 192_000, 512 * _GIB, 10),
            Pool("series1-8x", 8, 192_000, 1_024 * _GIB, 77),
            Pool("series2", 8, 192_000, 1_024 * _GIB, 122),
        ),
        _BLOCK,
        _RACK,
        ((4,) * 8,),
        0.2,
    ),
}
"""Presets by name."""


def describe_presets() -> dict[str, str]:
    """Return a line about each preset, by name."""
    return {name: f"{p.description} ({p.nodes} nodes)" for name, p in PRESETS.items()}
