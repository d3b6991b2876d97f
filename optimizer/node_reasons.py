"""Why single nodes take no pod of a class, counted in the scheduler's own words.

Users search for these lines, so wording and order follow kube-scheduler's FailedScheduling event:
`0/5 nodes are available: 1 node(s) were unschedulable, 4 Insufficient nvidia.com/gpu.`
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from optimizer.interactions import (
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    NO_AFFINITY,
    NO_FREE_PORTS,
    NO_SPREAD,
    NO_SPREAD_LABEL,
)
from optimizer.problem import DEVICE_PREFIX
from topology.selectors import find_untolerated, matches_node_affinity, matches_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from optimizer.problem import Problem
    from topology.model import Node, PodSpec

__all__ = ["CORDONED", "NO_CLAIMS", "NO_MATCH", "count_reasons", "format_event", "is_tainted"]

CORDONED: Final = "node(s) were unschedulable"
NOT_READY: Final = "node(s) were not ready"
NO_MATCH: Final = "node(s) didn't match Pod's node affinity/selector"
NO_CLAIMS: Final = "cannot allocate all claims"
_CORDON: Final = "node.kubernetes.io/unschedulable"
_TAINTED: Final = "node(s) had untolerated taint"
_BEFORE_RESOURCES: Final = (NO_FREE_PORTS,)
_AFTER_RESOURCES: Final = (
    NO_SPREAD_LABEL,
    NO_SPREAD,
    NO_AFFINITY,
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
)


def is_tainted(reason: str) -> bool:
    """Tell whether a reason is a taint the pod does not tolerate."""
    return reason.startswith(_TAINTED)


def find_filter(spec: PodSpec, node: Node) -> str | None:
    """Return the reason of the first filter that looks at the node alone, None if all pass."""
    taint = find_untolerated(spec, node)
    if taint is not None and taint.key == _CORDON:
        return CORDONED
    if taint is not None:
        return f"{_TAINTED} {{{taint.key}: {taint.value}}}"
    if not node.ready:
        return NOT_READY
    if not matches_node_affinity(spec, node):
        return NO_MATCH
    return None


def _find_shortages(spec: PodSpec, free: Mapping[str, int]) -> list[str]:
    return [
        "Too many pods" if resource == "pods" else f"Insufficient {resource}"
        for resource, amount in spec.requests
        if amount > free.get(resource, 0)
    ]


def _lacks_devices(spec: PodSpec, node: Node, free: Mapping[str, int]) -> bool:
    wanted: Counter[str] = Counter()
    for claim in spec.claims:
        if claim.allocated_nodes is not None:
            if claim.allocated_nodes and not matches_terms(claim.allocated_nodes, node):
                return True
        elif not claim.shared_by_group:
            for device_class, count in claim.devices:
                wanted[DEVICE_PREFIX + device_class] += count
    return any(count > free[name] for name, count in wanted.items() if name in free)


def count_reasons(
    problem: Problem, pod_class: int, free: Sequence[Mapping[str, int]]
) -> tuple[dict[str, int], int]:
    """Count the nodes that take no pod of a class by reason.

    Args:
      problem: Names the class, and the pods that stand on the nodes.
      pod_class: What one pod asks for.
      free: Exact free amounts of each node.

    Returns:
      Reason -> nodes (a node short of two resources counts for both), and the nodes that pass.
    """
    spec = problem.snapshot.pods.specs[problem.class_specs[pod_class]]
    signature = problem.signatures[pod_class]
    refused: dict[str, NDArray[np.bool_]] = {NO_SPREAD: problem.interactions.skewed(signature)}
    for words, mask in problem.interactions.refusals(signature):
        refused[words] = refused[words] | mask if words in refused else mask

    def first(n: int, order: Iterable[str]) -> list[str]:
        return [words for words in order if words in refused and refused[words][n]][:1]

    counts: Counter[str] = Counter()
    passing = 0
    for n, (node, amounts) in enumerate(zip(problem.snapshot.nodes, free, strict=True)):
        filtered = find_filter(spec, node)
        reasons = (
            ([filtered] if filtered else [])
            or first(n, _BEFORE_RESOURCES)
            or _find_shortages(spec, amounts)
            or first(n, _AFTER_RESOURCES)
            or ([NO_CLAIMS] if _lacks_devices(spec, node, amounts) else [])
        )
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
