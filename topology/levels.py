"""Topology label keys: which labels describe topology, and how their domains nest.

Source of the label list: node labels of Kubernetes, GKE, EKS, OKE, CoreWeave, Topograph and the
NVIDIA GPU operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from topology.model import Group, Node, Snapshot

__all__ = [
    "NO_DOMAIN",
    "DomainColumn",
    "build_column",
    "count_parents",
    "find_keys_in_use",
    "find_paths",
    "is_topology_label",
    "nests_in",
]

NO_DOMAIN: Final = -1
"""`DomainColumn.codes` of a node that lacks a label of the path: it is in no domain."""

_KNOWN: Final = frozenset(
    {
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/block",
        "topology.kubernetes.io/rack",
        "cloud.google.com/gce-topology-block",
        "cloud.google.com/gce-topology-subblock",
        "cloud.google.com/gce-topology-host",
        "oci.oraclecloud.com/rdma.hpc_island_id",
        "oci.oraclecloud.com/rdma.network_block_id",
        "oci.oraclecloud.com/rdma.local_block_id",
        "ib.coreweave.cloud/fabric",
        "ib.coreweave.cloud/superpod",
        "ib.coreweave.cloud/leafgroup",
        "node.coreweave.cloud/rack",
        "ds.coreweave.com/nvlink.domain",
        "nvidia.com/gpu.clique",
    }
)
_PREFIXES: Final = (
    "topology.k8s.aws/network-node-layer-",
    "fabric.topograph.run/",
    "accelerator.topograph.run/",
    "network.topology.nvidia.com/",
    "network.topology.kubernetes.io/",
    "hypernode/",
)
_LAST_WORDS: Final = frozenset(
    {"rack", "block", "zone", "region", "spine", "leaf", "superpod", "su", "nvlink-domain", "pod"}
)
_DOMAIN_WORDS: Final = ("topology", "topo.", "fabric")


def is_topology_label(key: str) -> bool:
    """Tell whether a node label is known, or plainly looks like, a topology level.

    Example:
      >>> is_topology_label("nvidia.com/gpu.clique"), is_topology_label("topo.example.com/rack")
      (True, True)
      >>> is_topology_label("example.com/pool")
      False
    """
    if key in _KNOWN or key.startswith(_PREFIXES):
        return True
    domain, _, last = key.rpartition("/")
    return last in _LAST_WORDS and any(word in domain for word in _DOMAIN_WORDS)


@dataclass(frozen=True, slots=True)
class DomainColumn:
    """One partition of (some) nodes into domains; D domains, sorted by their values."""

    path: tuple[str, ...]
    codes: NDArray[np.int32]
    """i32[N] domain of each node, NO_DOMAIN where a label of the path is absent."""
    values: tuple[tuple[str, ...], ...]
    """(D,) label values along the path."""

    @property
    def key(self) -> str:
        """The last key of the path."""
        return self.path[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """(D,) value of the last key; not unique when the path is longer than one."""
        return tuple(v[-1] for v in self.values)


def build_column(nodes: Sequence[Node], path: tuple[str, ...]) -> DomainColumn:
    """Cut the nodes into the domains of a path of label keys (at least one)."""
    found = list(zip(*([n.labels.get(key) for n in nodes] for key in path), strict=True))
    index: dict[tuple[str | None, ...], int] = dict.fromkeys(found, NO_DOMAIN)
    whole = (value for value in index if None not in value)
    values = sorted(tuple(str(part) for part in value) for value in whole)
    index.update((value, i) for i, value in enumerate(values))
    codes = np.fromiter(map(index.__getitem__, found), np.int32, len(found))
    return DomainColumn(path, codes, tuple(values))


def find_paths(groups: Iterable[Group]) -> tuple[tuple[str, ...], ...]:
    """Return every path that some group refers to, sorted."""
    return tuple(sorted({path for group in groups for path in group.paths}))


def nests_in(inner: DomainColumn, outer: DomainColumn) -> bool:
    """Tell whether every domain of `inner` lies inside one domain of `outer`."""
    if np.any((inner.codes != NO_DOMAIN) & (outer.codes == NO_DOMAIN)):
        return False
    return bool(np.all(count_parents(inner, outer) <= 1))


def count_parents(inner: DomainColumn, outer: DomainColumn) -> NDArray[np.int64]:
    """Count the domains of `outer` that each domain of `inner` reaches into.

    Returns:
      i64[D] over the domains of `inner`; nodes that lack a label of either do not count.
    """
    both = (inner.codes != NO_DOMAIN) & (outer.codes != NO_DOMAIN)
    width = max(len(outer.values), 1)
    pairs = np.unique(inner.codes[both].astype(np.int64) * width + outer.codes[both])
    return np.bincount(pairs // width, minlength=len(inner.values))


def find_keys_in_use(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the topology label keys that nodes carry or groups refer to, sorted."""
    keys = {k for path in find_paths(snapshot.groups) for k in path}
    carried = set().union(*(node.labels for node in snapshot.nodes))
    return tuple(sorted(keys | {key for key in carried if is_topology_label(key)}))
