"""What pods ask of the devices of their node: own claims, shared claims, extended resources.

Source: k8s.io/api core/v1 `pod.spec.resourceClaims`; KEP-5729 (claims of a PodGroup); KEP-5004
(extended resources backed by devices).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from topology.devices import DeviceRequest, RequestChoice
from topology.owners import planned_ref

if TYPE_CHECKING:
    from topology.devices import DeviceConstraint
    from topology.model import ClaimNeed, PodSpec, Snapshot

__all__ = [
    "Demand",
    "Needs",
    "SharedKey",
    "find_needs",
    "find_shared_key",
    "has_needs",
    "is_held_to_one_node",
]

SharedKey = tuple[str, str]
"""(claim, "") of a claim that exists; (group, entry) of one still to be made for a group."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Devices that are allocated together: those of one claim."""

    requests: tuple[RequestChoice, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    nodes: tuple[int, ...] = ()
    """Further nodes that have to reach the devices: those of the pods that share the claim."""


class Needs(NamedTuple):
    """The demands of one pod on one node, by the name of its entry."""

    own: tuple[tuple[str, Demand], ...]
    """Claims of the pod alone, and the extended resources that stand for devices."""
    shared: tuple[tuple[ClaimNeed, Demand], ...]
    """Claims allocated once for all pods that name them."""


def find_needs(snapshot: Snapshot, spec: PodSpec, node: int) -> Needs:
    """Return what a pod of a spec needs of a node; claims that have an allocation need nothing."""
    own, shared = [], []
    for need in spec.claims:
        if need.allocated_nodes is not None or not need.requests:
            continue
        demand = Demand(need.requests, need.constraints)
        if need.claim or need.shared_by_group:
            shared.append((need, demand))
        else:
            own.append((need.name, demand))
    for entry in snapshot.devices.extended:
        amount = spec.request(entry.resource)
        if amount and node in entry.nodes:
            request = DeviceRequest(entry.resource, entry.filter, amount)
            own.append((entry.resource, Demand((RequestChoice(entry.resource, (request,)),))))
    return Needs(tuple(own), tuple(shared))


def find_shared_key(snapshot: Snapshot, pod: int, need: ClaimNeed) -> SharedKey:
    """Return what identifies a claim among all pods: its name, or the group it is made for."""
    if need.claim:
        return (need.claim, "")
    return (planned_ref(snapshot, pod), need.name)


def has_needs(snapshot: Snapshot, spec: PodSpec) -> bool:
    """Tell whether pods of a spec need devices on some node."""
    return any(c.allocated_nodes is None and c.requests for c in spec.claims) or any(
        spec.request(entry.resource) for entry in snapshot.devices.extended
    )


def is_held_to_one_node(snapshot: Snapshot, need: ClaimNeed) -> bool:
    """Tell whether all pods that share a claim end up on one node, because its devices do.

    A claim that is allocated already pins its pods by itself.
    """
    is_shared = bool(need.claim) or need.shared_by_group
    if need.allocated_nodes is not None or not is_shared:
        return False
    table = snapshot.devices
    roaming = {
        f
        for k, r in set(zip(table.kind, table.reach, strict=True))
        if len(table.reaches[r]) > 1 and not table.kinds[k].binds_to_node
        for f in table.kinds[k].filters
    }
    return any(
        all(r.filter not in roaming and not r.is_admin for r in choice.alternatives)
        for choice in need.requests
    )
