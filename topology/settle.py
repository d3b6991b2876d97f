"""The fleet once a plan has been carried out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from topology.disruption import release_pods
from topology.model import Phase

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan

__all__ = ["settle_plan"]


def settle_plan(snapshot: Snapshot, plan: Plan) -> Snapshot:
    """Return the fleet with victims gone, drained and moved pods away, and new pods running.

    Args:
      snapshot: The one the plan was made for.
      plan: Verified; names that are not in the snapshot are left out.
    """
    index = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    nodes = {node.name: n for n, node in enumerate(snapshot.nodes)}
    drained = [e.pod for e in plan.evictions if e.reason == "drain" and e.pod in index]
    rows = np.array(sorted(index[ref] for ref in drained), np.int64)
    snapshot = release_pods(snapshot, rows)
    pods = snapshot.pods
    node, phase = pods.node.copy(), pods.phase.copy()
    for eviction in plan.evictions:
        if eviction.reason == "preemption" and eviction.pod in index:
            phase[index[eviction.pod]] = Phase.FAILED
    for move in plan.moves:
        if move.pod in index and move.target in nodes:
            node[index[move.pod]] = nodes[move.target]
    for group in plan.groups:
        for placed in group.pods:
            if placed.pod in index and placed.node in nodes:
                node[index[placed.pod]] = nodes[placed.node]
                phase[index[placed.pod]] = Phase.RUNNING
    return replace(snapshot, pods=replace(pods, node=node, phase=phase))
