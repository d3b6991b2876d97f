"""Pods and pod templates -> `PodSpec`, one object for equal ones.

A fleet has far fewer templates than pods: a spec is built once for each distinct encoding of the
fields that matter, which costs a pod microseconds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from data.importers.constraints import (
    read_affinity_terms,
    read_host_ports,
    read_node_terms,
    read_spread_terms,
    read_tolerations,
)
from data.importers.requests import drop_idle_statuses, effective_requests
from data.wire import ObjectMeta, PodSpecWire, PodStatus, PodTemplate
from topology.model import PodSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from data.importers.claims import ClaimIndex
    from data.wire import PodAffinityTerm, PodResourceClaim
    from topology.model import SelectorTerm

__all__ = ["SpecBuilder"]

DEFAULT_SCHEDULER: Final = "default-scheduler"
_ENCODER: Final = msgspec.msgpack.Encoder()
_NO_LABELS: Final[Mapping[str, str]] = {}
_VOLUME_CLAIMS: Final = "volume claims are not modelled"


class SpecBuilder:
    """Builds specs; holds what they depend on outside the pod."""

    def __init__(
        self,
        claims: ClaimIndex,
        namespaces: Mapping[str, Mapping[str, str]],
        never_preempting: frozenset[str] = frozenset(),
    ) -> None:
        """Keep the look-ups.

        Args:
          claims: ResourceClaims and templates.
          namespaces: Labels of every Namespace object.
          never_preempting: PriorityClasses with `preemptionPolicy: Never`.
        """
        self._claims = claims
        self._namespaces = namespaces
        self._never_preempting = never_preempting
        self._by_key: dict[object, PodSpec] = {}
        self._specs: dict[PodSpec, PodSpec] = {}

    def build_template(self, template: Mapping[str, Any], namespace: str) -> PodSpec:
        """Return the spec of the pods a template makes (`ImportContext.build_spec`).

        Args:
          template: Dict with `spec` and `metadata`.
          namespace: Where the pods will be.

        Raises:
          ReadProblem: A field below the template cannot be read.
        """
        from data.decode import Item
        from data.problems import decode_as

        wire = decode_as(PodTemplate, Item("v1", "PodTemplate", dict(template), "", ""))
        labels = (wire.metadata or ObjectMeta()).labels
        return self.build(wire.spec, namespace, labels or _NO_LABELS)

    def build(
        self,
        spec: PodSpecWire,
        namespace: str,
        labels: Mapping[str, str],
        status: PodStatus | None = None,
    ) -> PodSpec:
        """Return the spec of one pod.

        Args:
          spec: Of the pod; fields that differ between pods of one template are cleared.
          namespace: Of the pod.
          labels: Of the pod.
          status: Of a pod that exists.

        Raises:
          ReadProblem: A quantity cannot be read.
        """
        never = spec.preemption_policy == "Never" or (
            spec.preemption_policy is None and spec.priority_class_name in self._never_preempting
        )
        has_volumes = any(
            v.persistent_volume_claim is not None or v.ephemeral is not None
            for v in spec.volumes or ()
        )
        entries = spec.resource_claims
        resize = drop_idle_statuses(spec, status) if status is not None else None
        spec.node_name = spec.priority = spec.priority_class_name = spec.preemption_policy = None
        spec.scheduling_gates = spec.scheduling_group = spec.workload_ref = None
        spec.volumes = spec.resource_claims = None
        key: tuple[object, ...] = (_ENCODER.encode(spec), never, has_volumes)
        if resize is not None:
            key += (_ENCODER.encode(_only_resources(resize)),)
        if spec.affinity is not None or spec.topology_spread_constraints is not None:
            key += (namespace, *((k, labels.get(k)) for k in sorted(_label_keys(spec))))
        found = self._by_key.get(key)
        if found is None:
            found = self._build(spec, namespace, labels, resize)
            unmodelled = (*found.unmodelled, _VOLUME_CLAIMS) if has_volumes else found.unmodelled
            found = replace(found, never_preempts=never, unmodelled=unmodelled)
            found = self._by_key[key] = self.share(found)
        return self._add_claims(found, entries, namespace, status) if entries else found

    def share(self, spec: PodSpec) -> PodSpec:
        """Return the one object that stands for all specs equal to this one."""
        return self._specs.setdefault(spec, spec)

    def _build(
        self,
        spec: PodSpecWire,
        namespace: str,
        labels: Mapping[str, str],
        resize: PodStatus | None,
    ) -> PodSpec:
        unmodelled: set[str] = set()
        affinity = spec.affinity
        node_terms: tuple[SelectorTerm, ...] | None = None
        required: dict[str, list[PodAffinityTerm] | None] = {}
        if affinity is not None:
            if affinity.node_affinity is not None:
                selector = (
                    affinity.node_affinity.required_during_scheduling_ignored_during_execution
                )
                if selector is not None:
                    node_terms = read_node_terms(selector.node_selector_terms, unmodelled)
            for name, terms in (
                ("affinity", affinity.pod_affinity),
                ("anti", affinity.pod_anti_affinity),
            ):
                if terms is not None:
                    required[name] = terms.required_during_scheduling_ignored_during_execution
        return PodSpec(
            requests=effective_requests(spec, resize),
            node_selector=tuple(sorted((spec.node_selector or {}).items())),
            node_terms=node_terms,
            tolerations=read_tolerations(spec.tolerations, unmodelled),
            host_ports=read_host_ports(spec),
            affinity=read_affinity_terms(
                required.get("affinity"), namespace, labels, self._namespaces, unmodelled
            ),
            anti_affinity=read_affinity_terms(
                required.get("anti"), namespace, labels, self._namespaces, unmodelled
            ),
            spread=read_spread_terms(spec.topology_spread_constraints, labels, unmodelled),
            scheduler=spec.scheduler_name or DEFAULT_SCHEDULER,
            unmodelled=tuple(sorted(unmodelled)),
        )

    def _add_claims(
        self,
        base: PodSpec,
        entries: Iterable[PodResourceClaim],
        namespace: str,
        status: PodStatus | None,
    ) -> PodSpec:
        generated = {
            s.name: s.resource_claim_name
            for s in (status.resource_claim_statuses if status is not None else None) or ()
        }
        needs = []
        reasons = set(base.unmodelled)
        for entry in entries:
            claim = template = ""
            if entry.resource_claim_name:
                claim = f"{namespace}/{entry.resource_claim_name}"
            elif entry.resource_claim_template_name:
                template = f"{namespace}/{entry.resource_claim_template_name}"
                if entry.name in generated:
                    if not generated[entry.name]:
                        continue  # The controller found that no claim is needed.
                    claim = f"{namespace}/{generated[entry.name]}"
            need, why = self._claims.find_need(entry.name, claim, template)
            needs.append(need)
            reasons |= set(why)
        needs.sort(key=lambda n: n.name)
        return self.share(replace(base, claims=tuple(needs), unmodelled=tuple(sorted(reasons))))


def _only_resources(status: PodStatus) -> PodStatus:
    """Return the part of a status that bears on requests, for use as a key."""
    return PodStatus(
        conditions=[c for c in status.conditions or () if c.type == "PodResizePending"],
        container_statuses=status.container_statuses,
        init_container_statuses=status.init_container_statuses,
        resources=status.resources,
        allocated_resources=status.allocated_resources,
    )


def _label_keys(spec: PodSpecWire) -> set[str]:
    """Return the keys whose values on the pod become part of its selectors."""
    keys: set[str] = set()
    for spread in spec.topology_spread_constraints or ():
        keys.update(spread.match_label_keys or ())
    affinity = spec.affinity
    if affinity is not None:
        for terms in (affinity.pod_affinity, affinity.pod_anti_affinity):
            if terms is None:
                continue
            for term in terms.required_during_scheduling_ignored_during_execution or ():
                keys.update(term.match_label_keys or ())
                keys.update(term.mismatch_label_keys or ())
    return keys
