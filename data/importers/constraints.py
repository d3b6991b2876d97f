"""Selectors, tolerations, node affinity, spread and pod affinity: wire types -> model.

An operator nobody knows yet matches nothing and makes the pod's placement conditional; it does not
cost the object.

Source: k8s.io/api core/v1; matchLabelKeys as the API server merges them into selectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topology.model import (
    AffinityTerm,
    HostPort,
    LabelSelector,
    Requirement,
    SelectorTerm,
    SpreadTerm,
    Toleration,
)
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from data.wire import (
        LabelSelectorWire,
        NodeSelectorTerm,
        PodAffinityTerm,
        PodSpecWire,
        RequirementWire,
        TolerationWire,
        TopologySpreadConstraint,
    )

__all__ = [
    "NAMESPACE_NAME",
    "read_affinity_terms",
    "read_host_ports",
    "read_label_selector",
    "read_node_terms",
    "read_spread_terms",
    "read_tolerations",
]

NAMESPACE_NAME: Final = "kubernetes.io/metadata.name"
"""The label every Namespace carries with its own name."""

_LABEL_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_NODE_OPERATORS: Final = _LABEL_OPERATORS | {"Gt", "Lt"}


def _read_requirements(
    wires: Iterable[RequirementWire] | None, known: frozenset[str], unmodelled: set[str]
) -> list[Requirement]:
    found = []
    for wire in wires or ():
        if wire.operator not in known:
            unmodelled.add(f"selector operator {wire.operator!r:.40} is not known")
        found.append(Requirement(wire.key, wire.operator, tuple(sorted(set(wire.values or ())))))
    return found


def _sorted(requirements: Iterable[Requirement]) -> tuple[Requirement, ...]:
    return tuple(sorted(set(requirements), key=lambda r: (r.key, r.operator, r.values)))


def read_label_selector(
    wire: LabelSelectorWire | None, unmodelled: set[str], extra: Iterable[Requirement] = ()
) -> LabelSelector | None:
    """Return a label selector, None (selects nothing) for a null one.

    Args:
      wire: The selector; `matchLabels` become In requirements.
      unmodelled: Receives a reason for every operator that is not known.
      extra: Requirements to add to a selector that is not null.
    """
    if wire is None:
        return None
    found = _read_requirements(wire.match_expressions, _LABEL_OPERATORS, unmodelled)
    found += [Requirement(k, "In", (v,)) for k, v in (wire.match_labels or {}).items()]
    return LabelSelector(_sorted([*found, *extra]))


def read_node_terms(
    wires: Iterable[NodeSelectorTerm] | None, unmodelled: set[str]
) -> tuple[SelectorTerm, ...]:
    """Return `nodeSelectorTerms`; an empty list and a null one match no node."""
    terms = []
    for wire in wires or ():
        fields = _read_requirements(wire.match_fields, frozenset({"In", "NotIn"}), unmodelled)
        for field in fields:
            if field.key != "metadata.name":
                unmodelled.add(f"node field {field.key!r:.60} is not known")
        terms.append(
            SelectorTerm(
                _sorted(_read_requirements(wire.match_expressions, _NODE_OPERATORS, unmodelled)),
                _sorted(fields),
            )
        )
    return tuple(terms)


def read_tolerations(
    wires: Iterable[TolerationWire] | None, unmodelled: set[str]
) -> tuple[Toleration, ...]:
    """Return tolerations; those by comparison only count behind an alpha gate."""
    found = []
    for wire in wires or ():
        operator = wire.operator or "Equal"
        if operator in ("Lt", "Gt"):
            unmodelled.add(
                f"toleration operator {operator} needs feature gate "
                "TaintTolerationComparisonOperators, which is off by default"
            )
        elif operator not in ("Equal", "Exists"):
            unmodelled.add(f"toleration operator {operator!r:.40} is not known")
        found.append(Toleration(wire.key or "", operator, wire.value or "", wire.effect or ""))
    return tuple(dict.fromkeys(found))


def read_host_ports(spec: PodSpecWire) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars, sorted.

    On the host's network every port of a container is one of the host.
    """
    sidecars = [c for c in spec.init_containers or () if c.restart_policy == "Always"]
    found = set()
    for container in [*(spec.containers or ()), *sidecars]:
        for port in container.ports or ():
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number > 0:
                found.add(HostPort(number, port.protocol or "TCP", port.host_ip or "0.0.0.0"))
    return tuple(sorted(found, key=lambda p: (p.port, p.protocol, p.ip)))


def _own_values(
    keys: Iterable[str] | None, operator: str, labels: Mapping[str, str]
) -> list[Requirement]:
    """Return requirements by the pod's own values; keys it does not carry are ignored."""
    return [Requirement(k, operator, (labels[k],)) for k in keys or () if k in labels]


def read_spread_terms(
    wires: Iterable[TopologySpreadConstraint] | None,
    labels: Mapping[str, str],
    unmodelled: set[str],
) -> tuple[SpreadTerm, ...]:
    """Return the `DoNotSchedule` constraints of a pod with these labels."""
    return tuple(
        SpreadTerm(
            wire.topology_key,
            wire.max_skew,
            read_label_selector(
                wire.label_selector, unmodelled, _own_values(wire.match_label_keys, "In", labels)
            ),
            min_domains=wire.min_domains or 1,
            honor_affinity=wire.node_affinity_policy != "Ignore",
            honor_taints=wire.node_taints_policy == "Honor",
        )
        for wire in wires or ()
        if wire.when_unsatisfiable == "DoNotSchedule"
    )


def read_affinity_terms(
    wires: Sequence[PodAffinityTerm] | None,
    namespace: str,
    labels: Mapping[str, str],
    namespaces: Mapping[str, Mapping[str, str]],
    unmodelled: set[str],
) -> tuple[AffinityTerm, ...]:
    """Return required terms with their namespaces resolved.

    Args:
      wires: Terms of pod affinity or anti-affinity.
      namespace: Namespace of the pod that carries them.
      labels: Its labels.
      namespaces: Labels of every Namespace object of the snapshot.
      unmodelled: Receives reasons, among them a namespace selector nothing can resolve.
    """
    terms = []
    for wire in wires or ():
        extra = _own_values(wire.match_label_keys, "In", labels)
        extra += _own_values(wire.mismatch_label_keys, "NotIn", labels)
        selected = set(wire.namespaces or ())
        is_everywhere = False
        if wire.namespace_selector is None:
            selected |= set() if selected else {namespace}
        else:
            chosen = read_label_selector(wire.namespace_selector, unmodelled)
            is_everywhere = chosen is not None and not chosen.requirements
            if not is_everywhere and chosen is not None:
                keys = {r.key for r in chosen.requirements}
                if not namespaces and keys != {NAMESPACE_NAME}:
                    unmodelled.add(
                        "a namespaceSelector of its pod affinity needs Namespace objects, which "
                        "the snapshot lacks"
                    )
                selected |= _find_namespaces(chosen, namespaces)
        terms.append(
            AffinityTerm(
                wire.topology_key,
                read_label_selector(wire.label_selector, unmodelled, extra),
                () if is_everywhere else tuple(sorted(selected)),
                is_everywhere,
            )
        )
    return tuple(terms)


def _find_namespaces(
    selector: LabelSelector, namespaces: Mapping[str, Mapping[str, str]]
) -> set[str]:
    found = {name for name, labels in namespaces.items() if matches_selector(selector, labels)}
    # Names need no objects: every namespace is labelled with its own.
    for requirement in selector.requirements:
        if requirement.key == NAMESPACE_NAME and requirement.operator == "In":
            found |= {
                name
                for name in requirement.values
                if name not in namespaces and matches_selector(selector, {NAMESPACE_NAME: name})
            }
    return found
