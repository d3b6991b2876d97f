"""The nodes that are cheapest to clear, for fleets too large for one model of victims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from optimizer.problem import FREE_CHOICE
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.problem import Unit
    from optimizer.search.victim_model import EmptiedFleet

    Indices = NDArray[np.int64]

__all__ = ["find_cheap_nodes"]


def find_cheap_nodes(fleet: EmptiedFleet, units: Sequence[int], plenty: int) -> Indices:
    """Return nodes with room for the units several times over, those with the least to evict.

    Args:
      fleet: Every possible victim gone.
      units: Units to place.
      plenty: Times the pods that wait for which there is room on the nodes offered.

    Returns:
      Node indices, ascending: for units without a required key the cheapest nodes, else the nodes
      of the domains in which the largest of them is cheapest to place.
    """
    pods = fleet.problem.snapshot.pods
    taken = np.zeros(len(fleet.free), np.int64)
    for victim in fleet.victims:
        for p in victim.pods:
            taken[pods.node[p]] += pods.specs[pods.spec[p]].gpus
    # (class, column, pinned) -> (pods that wait, most pods of one unit).
    wanted: dict[tuple[int, int, int], tuple[int, int]] = {}
    for u in units:
        unit = fleet.problem.units[u]
        for task in unit.tasks:
            key = (task.pod_class, *_find_key(unit))
            total, most = wanted.get(key, (0, 0))
            wanted[key] = (total + task.count, max(most, task.count))
    chosen = np.zeros(len(fleet.free), bool)
    for (pod_class, column, pinned), (total, most) in sorted(wanted.items()):
        fits = fleet.state.fits(pod_class)
        nodes = np.flatnonzero(fits > 0)
        price = taken[nodes] / fits[nodes]
        nodes = nodes[np.lexsort((nodes, price))]
        if column < 0:
            chosen[_take(nodes, fits, plenty * total)] = True
            continue
        codes = fleet.problem.columns[column].codes[nodes]
        domains = np.unique(codes[codes != NO_DOMAIN])
        if pinned != FREE_CHOICE:
            domains = domains[domains == pinned]
        offers = []
        for d in domains.tolist():
            inside = nodes[codes == d]
            for_one = _take(inside, fits, most)
            short = int(fits[for_one].sum()) < most
            offers.append((short, int(taken[for_one].sum()), d, _take(inside, fits, 2 * most)))
        left = plenty * total
        for short, _, _, offered in sorted(offers, key=lambda offer: offer[:3]):
            if left <= 0 or short:
                break
            chosen[offered] = True
            left -= most
    return np.flatnonzero(chosen)


def _find_key(unit: Unit) -> tuple[int, int]:
    """Return (column, pinned) of the first required key, (-1, FREE_CHOICE) without."""
    if not unit.root.required:
        return -1, FREE_CHOICE
    return unit.root.required[0].column, unit.root.required[0].pinned


def _take(nodes: Indices, fits: Indices, pods: int) -> Indices:
    """Return the leading nodes that hold a number of pods together."""
    enough = int(np.searchsorted(np.cumsum(fits[nodes]), pods)) + 1
    return nodes[:enough]
