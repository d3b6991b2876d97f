"""Node filters for all nodes at once: selectors, affinity, taints, cordons, readiness.

Answers for whole fleets what `topology.selectors` answers for one node.

Source: kube-scheduler NodeAffinity, TaintToleration, NodeUnschedulable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topology.model import Taint
from topology.selectors import tolerates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.model import Node, PodSpec, Requirement, SelectorTerm

    BoolArray = NDArray[np.bool_]

__all__ = ["FilterMasks", "NodeFilters"]

_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_INT64_MAX = 2**63 - 1


class FilterMasks(NamedTuple):
    """bool[N] each: which nodes pass one group of filters."""

    affinity: BoolArray
    """nodeSelector, required node affinity, and the nodes of allocated claims."""
    taints: BoolArray
    """Taints tolerated, cordon included."""
    ready: BoolArray


class _LabelColumn(NamedTuple):
    codes: NDArray[np.int32]  # i32[N], -1 absent
    by_value: dict[str, int]


def _parse_int64(text: str) -> int | None:
    try:
        number = int(text, 10)
    except ValueError:
        return None
    plain = text.lstrip("+-").isdigit() and text.isascii()
    return number if plain and -_INT64_MAX - 1 <= number <= _INT64_MAX else None


class NodeFilters:
    """Evaluates the node filters of pod specs; each distinct filter is computed once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = nodes
        self._num_nodes = len(nodes)
        self._columns: dict[str, _LabelColumn] = {}
        self._affinity: dict[object, BoolArray] = {}
        self._taints: dict[object, BoolArray] = {}
        self._names: dict[str, int] | None = None
        profiles: dict[tuple[tuple[Taint, ...], bool], int] = {}
        self._profile = np.fromiter(
            (profiles.setdefault((n.taints, n.unschedulable), len(profiles)) for n in nodes),
            np.int32,
            len(nodes),
        )
        self._profiles = list(profiles)
        self.ready: BoolArray = np.fromiter((n.ready for n in nodes), bool, len(nodes))

    def evaluate(self, spec: PodSpec) -> FilterMasks:
        """Return the masks of one spec."""
        claims = tuple(c.allocated_nodes for c in spec.claims if c.allocated_nodes)
        key = (spec.node_selector, spec.node_terms, claims)
        if key not in self._affinity:
            mask = np.ones(self._num_nodes, bool)
            for label, value in spec.node_selector:
                column = self._column(label)
                mask &= column.codes == column.by_value.get(value, -2)
            if spec.node_terms is not None:
                mask &= self._match_terms(spec.node_terms)
            for terms in claims:
                mask &= self._match_terms(terms)
            self._affinity[key] = mask
        if spec.tolerations not in self._taints:
            passes = np.fromiter(
                (self._tolerates_profile(spec, p) for p in range(len(self._profiles))),
                bool,
                len(self._profiles),
            )
            self._taints[spec.tolerations] = passes[self._profile]
        return FilterMasks(self._affinity[key], self._taints[spec.tolerations], self.ready)

    def _tolerates_profile(self, spec: PodSpec, profile: int) -> bool:
        taints, unschedulable = self._profiles[profile]
        if unschedulable:
            taints = (*taints, Taint(_UNSCHEDULABLE))
        return all(
            taint.effect not in ("NoSchedule", "NoExecute")
            or any(tolerates(t, taint) for t in spec.tolerations)
            for taint in taints
        )

    def _column(self, key: str) -> _LabelColumn:
        if key not in self._columns:
            index: dict[str, int] = {}
            codes = np.fromiter(
                (
                    index.setdefault(n.labels[key], len(index)) if key in n.labels else -1
                    for n in self._nodes
                ),
                np.int32,
                self._num_nodes,
            )
            self._columns[key] = _LabelColumn(codes, index)
        return self._columns[key]

    def _match_terms(self, terms: Sequence[SelectorTerm]) -> BoolArray:
        result = np.zeros(self._num_nodes, bool)
        for term in terms:
            if not (term.expressions or term.fields):
                continue
            mask = np.ones(self._num_nodes, bool)
            for requirement in term.expressions:
                mask &= self._match(requirement)
            for requirement in term.fields:
                mask &= self._match_name(requirement)
            result |= mask
        return result

    def _match(self, requirement: Requirement) -> BoolArray:
        column = self._column(requirement.key)
        codes = column.codes
        match requirement.operator:
            case "Exists":
                result = codes >= 0
            case "DoesNotExist":
                result = codes < 0
            case "In":
                wanted = [column.by_value[v] for v in requirement.values if v in column.by_value]
                result = np.isin(codes, wanted)
            case "NotIn":
                refused = [column.by_value[v] for v in requirement.values if v in column.by_value]
                result = ~np.isin(codes, refused)
            case "Gt" | "Lt" if len(requirement.values) == 1:
                bound = _parse_int64(requirement.values[0])
                wanted = []
                for value, code in column.by_value.items():
                    have = _parse_int64(value)
                    if have is None or bound is None:
                        continue
                    if have > bound if requirement.operator == "Gt" else have < bound:
                        wanted.append(code)
                result = np.isin(codes, wanted)
            case _:
                result = np.zeros(self._num_nodes, bool)
        return result

    def _match_name(self, requirement: Requirement) -> BoolArray:
        if requirement.key != "metadata.name" or requirement.operator not in ("In", "NotIn"):
            return np.zeros(self._num_nodes, bool)
        if self._names is None:
            self._names = {n.name: i for i, n in enumerate(self._nodes)}
        listed = np.zeros(self._num_nodes, bool)
        listed[[self._names[v] for v in requirement.values if v in self._names]] = True
        return listed if requirement.operator == "In" else ~listed
