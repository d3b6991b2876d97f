"""What every node offers and what its pods hold, in exact integers.

Source: NodeResourcesFit accounting: `status.allocatable` less the effective requests of every
bound pod that is neither Succeeded nor Failed (terminating, DaemonSet and static ones included).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from topology.model import Snapshot

__all__ = ["Usage", "count_usage", "request_matrix"]


@dataclass(frozen=True, slots=True)
class Usage:
    """Allocatable and used amounts; axes N nodes, R resources, canonical units."""

    resources: tuple[str, ...]
    allocatable: NDArray[np.int64]
    """i64[N, R], 0 where the node does not offer the resource."""
    used: NDArray[np.int64]
    """i64[N, R]."""

    @property
    def free(self) -> NDArray[np.int64]:
        """i64[N, R], negative where a node is overcommitted."""
        free: NDArray[np.int64] = self.allocatable - self.used
        return free

    def column(self, resource: str) -> int:
        """Return the index of a resource on axis R."""
        return self.resources.index(resource)


def request_matrix(snapshot: Snapshot, resources: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the effective requests of every distinct spec, i64[X, R]."""
    column = {name: r for r, name in enumerate(resources)}
    matrix = np.zeros((len(snapshot.pods.specs), len(resources)), np.int64)
    for x, spec in enumerate(snapshot.pods.specs):
        for name, amount in spec.requests:
            if name in column:
                matrix[x, column[name]] = amount
    return matrix


def count_usage(snapshot: Snapshot, resources: Iterable[str] | None = None) -> Usage:
    """Count what is allocatable and used on every node.

    Args:
      snapshot: Read whole.
      resources: Resources to count; None: all that a node offers or a pod asks for, sorted.

    Returns:
      Exact amounts.
    """
    if resources is None:
        names = {name for node in snapshot.nodes for name in node.allocatable}
        names |= {name for spec in snapshot.pods.specs for name, _ in spec.requests}
        resources = sorted(names)
    chosen = tuple(resources)
    allocatable = np.array(
        [[node.allocatable.get(name, 0) for name in chosen] for node in snapshot.nodes], np.int64
    ).reshape(len(snapshot.nodes), len(chosen))
    used = np.zeros_like(allocatable)
    pods = snapshot.pods
    holding = np.flatnonzero(pods.holds_room & (pods.node >= 0))
    # One row for each (node, spec) pair in use; sums stay exact in int64.
    width = max(len(pods.specs), 1)
    pairs, counts = np.unique(
        pods.node[holding].astype(np.int64) * width + pods.spec[holding], return_counts=True
    )
    amounts = request_matrix(snapshot, chosen)[pairs % width] * counts[:, None]
    np.add.at(used, pairs // width, amounts)
    return Usage(chosen, allocatable, used)
