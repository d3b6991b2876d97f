"""ResourceClaims and their templates: what pods that use them need.

A claim generated for one pod alone is not named in what the pod needs, so that pods of one template
stay alike. Claims that pods share are: by name, or as the claim of their group.

Source: k8s.io/api resource/v1; KEP-5729 (claims of a PodGroup).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from data.importers.base import ReadProblem
from data.importers.claim_requests import UNCOUNTED, read_constraints, read_requests
from data.importers.constraints import read_node_terms
from data.importers.dra_filters import API_GROUP
from data.importers.fields import read_list, read_map, read_text
from data.importers.trees import is_finished
from topology.model import ClaimNeed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, RawObject
    from data.importers.dra_filters import FilterIndex
    from topology.devices import DeviceConstraint, RequestChoice
    from topology.model import PodSpec, SelectorTerm

__all__ = [
    "Claim",
    "ClaimIndex",
    "read_claims",
    "share_group_claims",
    "warn_about_claims",
]


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim, or the one a template would give."""

    requests: tuple[RequestChoice, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    allocated_nodes: tuple[SelectorTerm, ...] | None = None
    unmodelled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimIndex:
    """Claims and templates by "namespace/name"."""

    claims: Mapping[str, Claim]
    templates: Mapping[str, Claim]

    def find_need(self, name: str, claim: str, template: str) -> tuple[ClaimNeed, tuple[str, ...]]:
        """Return the need of a pod and the reasons why its placement is conditional.

        Args:
          name: Name of the entry in the pod.
          claim: Claim as "namespace/name", "" while it is still to be made.
          template: Template as "namespace/name", "" without one.
        """
        found = self.claims.get(claim)
        reasons: tuple[str, ...] = ()
        if found is None and template in self.templates:
            found = self.templates[template]
            if claim:
                reasons = (f"the claim made from {template} is not in the snapshot",)
        if found is None:
            missing = f"resource claim {claim}" if claim else f"resource claim template {template}"
            reason = f"{missing} is not in the snapshot"
            return ClaimNeed(name, claim, template), (reason,)
        need = ClaimNeed(
            name,
            # Of use only where the claim is shared, and for saying what is missing.
            "" if template in self.templates else claim,
            template,
            allocated_nodes=found.allocated_nodes,
            requests=found.requests,
            constraints=found.constraints,
        )
        # What is allocated needs no more devices, so how they were chosen is past.
        return need, (*reasons, *(() if found.allocated_nodes is not None else found.unmodelled))


def read_claims(context: ImportContext, filters: FilterIndex) -> ClaimIndex:
    """Read all ResourceClaims and ResourceClaimTemplates; bad ones are reported.

    Args:
      context: Holds the objects.
      filters: Takes the filters of their requests.
    """
    claims: dict[str, Claim] = {}
    templates: dict[str, Claim] = {}

    def read_claim(obj: RawObject) -> None:
        claims[obj.ref] = _read_claim(obj.spec, "spec", filters, obj.status)

    def read_template(obj: RawObject) -> None:
        spec = read_map(obj.spec, "spec", at="spec")
        templates[obj.ref] = _read_claim(spec, "spec.spec", filters, {})

    for obj in context.all_of(API_GROUP, "ResourceClaim"):
        context.guard(obj, read_claim)
    for obj in context.all_of(API_GROUP, "ResourceClaimTemplate"):
        context.guard(obj, read_template)
    return ClaimIndex(claims, templates)


def warn_about_claims(context: ImportContext, index: ClaimIndex) -> None:
    """Say which claims pods name that nobody has, and which devices cannot be counted."""
    missing: set[str] = set()
    users: set[str] = set()
    for pod in context.pods.values():
        if is_finished(pod):
            continue
        for need in pod.row.spec.claims:
            ref, known = (
                (need.claim, index.claims) if need.claim else (need.template, index.templates)
            )
            if ref not in known:
                missing.add(ref)
                users.add(pod.row.ref)
    if missing:
        context.warn(
            f"{len(users)} pods use resource claims or templates that are not in the snapshot "
            f"(first: {min(missing)}); what they need is unknown: add kubectl get "
            "resourceclaims,resourceclaimtemplates -A"
        )
    uncounted = sum(
        any(UNCOUNTED in reason for reason in claim.unmodelled)
        for claim in (*index.claims.values(), *index.templates.values())
        if claim.allocated_nodes is None
    )
    if uncounted:
        context.warn(
            f"{uncounted} resource claims ask for device classes of which the snapshot has no "
            "DeviceClass or ResourceSlice; add kubectl get deviceclasses,resourceslices"
        )


def share_group_claims(context: ImportContext, index: ClaimIndex) -> None:
    """Point the members of in-tree groups at the claims of their group.

    A pod uses the group's claim when its own entry has the same name and the same source.
    """
    shared: dict[tuple[str, PodSpec], PodSpec] = {}
    sources: dict[str, dict[str, tuple[str, str, str]]] = {}

    def read(obj: RawObject) -> None:
        entries = read_list(obj.spec, "resourceClaims", at="spec")
        generated = {
            read_text(s, "name"): read_text(s, "resourceClaimName")
            for s in read_list(obj.status, "resourceClaimStatuses", at="status")
        }
        if entries:
            sources[obj.ref] = {
                read_text(e, "name"): (
                    read_text(e, "resourceClaimName"),
                    read_text(e, "resourceClaimTemplateName"),
                    generated.get(read_text(e, "name"), ""),
                )
                for e in entries
            }

    for obj in context.all_of("scheduling.k8s.io", "PodGroup"):
        if obj.ref in context.groups:
            context.guard(obj, read)
    for pod in context.pods.values():
        if pod.row.group in sources and pod.row.spec.claims:
            key = (pod.row.group, pod.row.spec)
            if key not in shared:
                shared[key] = _share(pod.row.spec, pod.namespace, sources[pod.row.group], index)
            pod.row.spec = shared[key]


def _share(
    spec: PodSpec, namespace: str, sources: Mapping[str, tuple[str, str, str]], index: ClaimIndex
) -> PodSpec:
    needs = []
    reasons = set(spec.unmodelled)
    for need in spec.claims:
        claim, template, generated = sources.get(need.name, ("", "", ""))
        if template and need.template == f"{namespace}/{template}":
            if generated:
                need, why = index.find_need(need.name, f"{namespace}/{generated}", need.template)
                reasons |= set(why)
                need = replace(need, claim=f"{namespace}/{generated}")
            need = replace(need, shared_by_group=True)
        elif claim and need.claim == f"{namespace}/{claim}":
            need = replace(need, shared_by_group=True)
        needs.append(need)
    return replace(spec, claims=tuple(needs), unmodelled=tuple(sorted(reasons)))


def _read_claim(
    spec: Mapping[str, Any], at: str, filters: FilterIndex, status: Mapping[str, Any]
) -> Claim:
    unmodelled: set[str] = set()
    requests = read_requests(spec, at, filters, unmodelled)
    constraints = read_constraints(spec, at, filters)
    return Claim(requests, constraints, _read_allocated_nodes(status), tuple(sorted(unmodelled)))


def _read_allocated_nodes(status: Mapping[str, Any]) -> tuple[SelectorTerm, ...] | None:
    """Return where an allocation can be used: None without one, empty for anywhere.

    Raises:
      ReadProblem: The node selector cannot be read.
    """
    allocation = status.get("allocation")
    if allocation is None:
        return None
    import msgspec

    from data.wire import NodeSelectorTerm

    terms = read_list(allocation, "nodeSelector.nodeSelectorTerms", at="status.allocation")
    try:
        wires = msgspec.convert(terms, list[NodeSelectorTerm])
    except msgspec.ValidationError as error:
        raise ReadProblem("status.allocation.nodeSelector", f"{error}; correct it") from None
    return read_node_terms(wires, set())
