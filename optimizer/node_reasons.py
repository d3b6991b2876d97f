"""Why single nodes take no pod of a spec, counted in the scheduler's own words.

Users search for these lines, so wording and order follow kube-scheduler's FailedScheduling event:
`0/5 nodes are available: 1 node(s) were unschedulable, 4 Insufficient nvidia.com/gpu.`
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from topology.selectors import find_untolerated, matches_node_affinity, matches_terms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topology.model import Node, PodSpec

__all__ = ["count_reasons", "format_event"]

_CORDON = "node.kubernetes.io/unschedulable"


def _find_reasons(spec: PodSpec, node: Node, free: Mapping[str, int]) -> list[str]:
    """Return the reasons of the first filter that fails, in the scheduler's filter order."""
    taint = find_untolerated(spec, node)
    if taint is not None and taint.key == _CORDON:
        return ["node(s) were unschedulable"]
    if taint is not None:
        return [f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"]
    if not node.ready:
        return ["node(s) were not ready"]
    if not matches_node_affinity(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    for claim in spec.claims:
        if claim.allocated_nodes and not matches_terms(claim.allocated_nodes, node):
            return ["cannot allocate all claims"]
    reasons = []
    for resource, amount in spec.requests:
        if amount > free.get(resource, 0):
            reasons.append("Too many pods" if resource == "pods" else f"Insufficient {resource}")
    return reasons


def count_reasons(
    spec: PodSpec, nodes: Sequence[Node], free: Sequence[Mapping[str, int]]
) -> tuple[dict[str, int], int]:
    """Count the nodes that drop out by reason.

    Args:
      spec: What one pod asks for.
      nodes: All nodes.
      free: Exact free amounts of each node.

    Returns:
      Reason -> nodes (a node short of two resources counts for both), and the nodes that pass.
    """
    counts: Counter[str] = Counter()
    passing = 0
    for node, amounts in zip(nodes, free, strict=True):
        reasons = _find_reasons(spec, node, amounts)
        passing += not reasons
        counts.update(reasons)
    return dict(sorted(counts.items())), passing


def format_event(reasons: Mapping[str, int], num_nodes: int, passing: int) -> str:
    """Write the line of the scheduler's event.

    Example:
      >>> format_event({"Insufficient nvidia.com/gpu": 4}, 5, 1)
      '1/5 nodes are available: 4 Insufficient nvidia.com/gpu.'
    """
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    return f"{passing}/{num_nodes} nodes are available{': ' + listed if listed else ''}."
