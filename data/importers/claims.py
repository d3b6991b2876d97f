"""ResourceClaims and their templates: what pods that use them need.

Source: k8s.io/api resource/v1 (and v1beta1, whose requests have no `exactly`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from data.importers.base import ReadProblem
from data.importers.constraints import read_node_terms
from data.importers.fields import read_int, read_list, read_map, read_text
from data.importers.trees import is_finished
from topology.model import ClaimNeed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, RawObject
    from topology.model import PodSpec, SelectorTerm

__all__ = [
    "API_GROUP",
    "Claim",
    "ClaimIndex",
    "read_claims",
    "share_group_claims",
    "warn_about_claims",
]

API_GROUP = "resource.k8s.io"


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim, or the one a template would give."""

    devices: tuple[tuple[str, int], ...] = ()
    """(device class, count)."""
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
        found = self.claims.get(claim) if claim else self.templates.get(template)
        if found is None:
            missing = f"resource claim {claim}" if claim else f"resource claim template {template}"
            reason = f"{missing} is not in the snapshot"
            return ClaimNeed(name, claim, template), (reason,)
        need = ClaimNeed(
            name,
            claim,
            template,
            allocated_nodes=found.allocated_nodes,
            devices=found.devices,
        )
        # What is allocated needs no more devices, so how they were chosen is past.
        return need, () if found.allocated_nodes is not None else found.unmodelled


def read_claims(context: ImportContext) -> ClaimIndex:
    """Read all ResourceClaims and ResourceClaimTemplates; bad ones are reported."""
    claims: dict[str, Claim] = {}
    templates: dict[str, Claim] = {}
    # Without slices nothing says which node has which devices, so none can be counted.
    has_slices = bool(context.all_of(API_GROUP, "ResourceSlice"))
    classes = {o.name for o in context.all_of(API_GROUP, "DeviceClass")} if has_slices else set()

    def read_claim(obj: RawObject) -> None:
        claims[obj.ref] = _read_claim(obj.ref, obj.spec, "spec", classes, obj.status)

    def read_template(obj: RawObject) -> None:
        spec = read_map(obj.spec, "spec", at="spec")
        templates[obj.ref] = _read_claim(obj.ref, spec, "spec.spec", classes, {})

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
        any("cannot be counted" in reason for reason in claim.unmodelled)
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
            need = replace(need, shared_by_group=True)
        elif claim and need.claim == f"{namespace}/{claim}":
            need = replace(need, shared_by_group=True)
        needs.append(need)
    return replace(spec, claims=tuple(needs), unmodelled=tuple(sorted(reasons)))


def _read_claim(
    ref: str,
    spec: Mapping[str, Any],
    at: str,
    classes: set[str],
    status: Mapping[str, Any],
) -> Claim:
    devices: dict[str, int] = {}
    unmodelled: set[str] = set()
    for i, request in enumerate(read_list(spec, "devices.requests", at=at)):
        where = f"{at}.devices.requests[{i}]"
        if request.get("firstAvailable"):
            unmodelled.add(f"claim {ref} takes the first available of several requests")
            continue
        if "exactly" in request:
            exactly, where = read_map(request, "exactly", at=where), f"{where}.exactly"
        else:
            exactly = request
        name = read_text(exactly, "deviceClassName", at=where)
        if not name:
            raise ReadProblem(f"{where}.deviceClassName", "is missing; name a DeviceClass")
        if exactly.get("adminAccess") is True:
            continue  # Takes devices whoever holds them, and keeps none from anybody.
        if read_text(exactly, "allocationMode", "ExactCount", at=where) == "All":
            unmodelled.add(f"claim {ref} takes all devices of a node")
            continue
        count = read_int(exactly, "count", 1, minimum=1, at=where)
        if name in classes:
            devices[name] = devices.get(name, 0) + count
        else:
            unmodelled.add(f"devices of class {name} cannot be counted in this snapshot")
        if exactly.get("selectors"):
            unmodelled.add(f"claim {ref} selects devices by expression")
        if exactly.get("capacity"):
            unmodelled.add(f"claim {ref} takes part of the capacity of a device")
    if read_list(spec, "devices.constraints", at=at):
        unmodelled.add(f"claim {ref} constrains which devices go together")
    return Claim(
        tuple(sorted(devices.items())), _read_allocation(status), tuple(sorted(unmodelled))
    )


def _read_allocation(status: Mapping[str, Any]) -> tuple[SelectorTerm, ...] | None:
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
