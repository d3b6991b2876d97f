"""Label selectors, node selectors and tolerations, one object at a time, exactly.

Used where objects are few (importers, verifier, messages). `topology.masks` answers the same
questions for all nodes at once and shares no code with this file, so that each checks the other.

Source: k8s.io/apimachinery labels.Requirement, component-helpers nodeaffinity and tolerations.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topology.model import (
        LabelSelector,
        Node,
        PodSpec,
        Requirement,
        SelectorTerm,
        Taint,
        Toleration,
    )

__all__ = [
    "find_untolerated",
    "matches_node_affinity",
    "matches_requirement",
    "matches_selector",
    "matches_terms",
    "tolerates",
]

_INT64 = re.compile(r"([+-]?)0*([0-9]{1,19})\Z")


def _parse_int64(text: str) -> int | None:
    """Return the number as Go's ParseInt(text, 10, 64) reads it, None where it fails."""
    found = _INT64.match(text)
    if found is None:
        return None
    number = int(found[1] + found[2])
    return number if -(2**63) <= number < 2**63 else None


def matches_requirement(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """Tell whether labels meet one requirement (NotIn holds where the key is absent)."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            if value is None or len(requirement.values) != 1:
                return False
            have, want = _parse_int64(value), _parse_int64(requirement.values[0])
            if have is None or want is None:
                return False
            return have > want if requirement.operator == "Gt" else have < want
        case _:
            return False


def matches_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether a label selector selects these labels; None selects nothing."""
    if selector is None:
        return False
    return all(matches_requirement(r, labels) for r in selector.requirements)


def matches_terms(terms: Iterable[SelectorTerm], node: Node) -> bool:
    """Tell whether a node meets one of several node selector terms."""
    name = {"metadata.name": node.name}
    return any(
        bool(term.expressions or term.fields)
        and all(matches_requirement(r, node.labels) for r in term.expressions)
        and all(
            r.key in name and r.operator in ("In", "NotIn") and matches_requirement(r, name)
            for r in term.fields
        )
        for term in terms
    )


def matches_node_affinity(spec: PodSpec, node: Node) -> bool:
    """Tell whether a node passes the pod's nodeSelector and required node affinity."""
    if any(node.labels.get(key) != value for key, value in spec.node_selector):
        return False
    return spec.node_terms is None or matches_terms(spec.node_terms, node)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Tell whether one toleration tolerates one taint (Lt, Gt: taint value against its own)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if not toleration.key:
        return toleration.operator == "Exists"
    if toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case "Lt" | "Gt":
            have, want = _parse_int64(taint.value), _parse_int64(toleration.value)
            if have is None or want is None:
                return False
            return have < want if toleration.operator == "Lt" else have > want
        case _:
            return False


def find_untolerated(spec: PodSpec, node: Node) -> Taint | None:
    """Return the first taint that keeps the pod away, cordon included, or None.

    A cordoned node counts as tainted `node.kubernetes.io/unschedulable:NoSchedule`.
    """
    from topology.model import Taint

    taints = list(node.taints)
    if node.unschedulable:
        taints.append(Taint("node.kubernetes.io/unschedulable"))
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            tolerates(t, taint) for t in spec.tolerations
        ):
            return taint
    return None
