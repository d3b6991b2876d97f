"""Hard spread that later pods would break: pods without the constraint that its selector counts.

The scheduler checks spread when a pod is placed and never again, so the order of binding decides.
A plan must hold in any order: units that tip a constraint over are taken out again, last first.

Source: kube-scheduler PodTopologySpread (`DoNotSchedule`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem

__all__ = ["find_unspread"]


def find_unspread(problem: Problem, placements: Mapping[int, UnitPlacement]) -> list[int]:
    """Return the placed units to leave out so that every spread constraint holds at the end.

    Args:
      problem: Units in the scheduler's own order, which decides who goes without.
      placements: Unit -> fills.
    """
    left = dict(placements)
    out: list[int] = []
    while (u := _find_tipping(problem, left)) is not None:
        del left[u]
        out.append(u)
    return out


def _find_tipping(problem: Problem, placements: Mapping[int, UnitPlacement]) -> int | None:
    """Return the last unit that counts in some overfull domain, None if there is no such domain."""
    for t, spread in enumerate(problem.interactions.spreads):
        counts = spread.counts.copy()
        has_own = np.zeros(len(counts), bool)
        stands: list[tuple[int, NDArray[np.int32]]] = []
        for u, placement in placements.items():
            for fill in placement:
                signature = problem.signatures[problem.units[u].tasks[fill.task].pod_class]
                codes = spread.codes[fill.nodes]
                inside = codes != NO_DOMAIN
                is_own, is_counted = signature.spreads >> t & 1, signature.spread_matched >> t & 1
                has_own[codes[inside]] |= bool(is_own)
                if is_counted:
                    np.add.at(counts, codes[inside], fill.counts[inside].astype(np.int32))
                if is_own or is_counted:
                    stands.append((u, codes[inside]))
        overfull = has_own & (counts - spread.find_floor(counts) > spread.term.max_skew)
        tipping = [u for u, codes in stands if overfull[codes].any()]
        if tipping:
            return max(tipping)
    return None
