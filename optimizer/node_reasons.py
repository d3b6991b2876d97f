"""Why single nodes take no pod of a class, counted in the scheduler's own words.

Users search for these lines, so wording and order follow kube-scheduler's FailedScheduling event:
`0/5 nodes are available: 1 node(s) were unschedulable, 4 Insufficient nvidia.com/gpu.`
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.devices.columns import is_device_resource
from optimizer.interactions import (
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    NO_AFFINITY,
    NO_FREE_PORTS,
    NO_SPREAD,
    NO_SPREAD_LABEL,
)
from topology.selectors import find_untolerated, matches_node_affinity, matches_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from optimizer.problem import Problem
    from topology.model import Node, PodSpec

__all__ = ["CORDONED", "NOT_READY", "NO_MATCH", "count_reasons", "find_filter", "format_event"]

CORDONED: Final = "node(s) were unschedulable"
NOT_READY: Final = "node(s) were not ready"
NO_MATCH: Final = "node(s) didn't match Pod's node affinity/selector"
NO_CLAIMS: Final = "cannot allocate all claims"
_CORDON: Final = "node.kubernetes.io/unschedulable"
_SHORT: Final = {"pods": "Too many pods"}
_BEFORE_RESOURCES: Final = (NO_FREE_PORTS,)
_AFTER_RESOURCES: Final = (
    NO_SPREAD_LABEL,
    NO_SPREAD,
    NO_AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
)


def find_filter(spec: PodSpec, node: Node, *, labels_only: bool = False) -> str | None:
    """Return the reason of the first filter that looks at the node alone, None if all pass.

    Args:
      spec: What one pod asks for.
      node: The node.
      labels_only: Leave out taints, cordon and readiness.
    """
    if not labels_only:
        taint = find_untolerated(spec, node)
        if taint is not None and taint.key == _CORDON:
            return CORDONED
        if taint is not None:
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        if not node.ready:
            return NOT_READY
    return None if matches_node_affinity(spec, node) else NO_MATCH


def count_reasons(
    problem: Problem, pod_class: int, free: NDArray[np.int64]
) -> tuple[dict[str, int], int]:
    """Count the nodes that take no pod of a class by reason.

    Args:
      problem: Names the class, and the pods that stand on the nodes.
      pod_class: What one pod asks for.
      free: i64[N, R] exact amounts.

    Returns:
      Reason -> nodes (a node short of two resources counts for both), and the nodes that pass.
    """
    nodes = problem.snapshot.nodes
    spec = problem.snapshot.pods.specs[problem.class_specs[pod_class]]
    signature = problem.signatures[pod_class]
    by_pods = [*problem.interactions.refusals(signature)]
    by_pods.append((NO_SPREAD, problem.interactions.skewed(signature)))
    short: list[tuple[str, NDArray[np.bool_]]] = []
    unallocated = np.zeros(len(nodes), bool)
    for r, resource in enumerate(problem.resources):
        lacking = problem.amounts[pod_class, r] > np.maximum(free[:, r], 0)
        if is_device_resource(resource):
            unallocated |= lacking
        elif lacking.any():
            short.append((_SHORT.get(resource, f"Insufficient {resource}"), lacking))
    held = [c.allocated_nodes for c in spec.claims if c.allocated_nodes]

    def first(n: int, order: Iterable[str]) -> list[str]:
        return [words for words in order if any(w == words and m[n] for w, m in by_pods)][:1]

    counts: Counter[str] = Counter()
    passing = 0
    for n, node in enumerate(nodes):
        filtered = find_filter(spec, node)
        reasons = (
            ([filtered] if filtered else [])
            or first(n, _BEFORE_RESOURCES)
            or [words for words, lacking in short if lacking[n]]
            or first(n, _AFTER_RESOURCES)
        )
        if not reasons and (unallocated[n] or not all(matches_terms(t, node) for t in held)):
            reasons = [NO_CLAIMS]
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
