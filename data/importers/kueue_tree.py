"""Pod sets of one Kueue workload and the subgroups they become."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from data.importers.trees import Member, Part, is_bound
from topology.model import PodFlag

if TYPE_CHECKING:
    from data.importers.kueue_flavors import Flavors, NodeChoice
    from data.importers.kueue_request import TopologyRequest
    from data.importers.templates import Template
    from topology.model import TopologyTerm

__all__ = ["PodSet", "join_pod_sets", "release", "release_pod"]

_GATES: Final = "kueue.x-k8s.io/"


@dataclass(slots=True)
class PodSet:
    """A pod set with its members."""

    name: str
    count: int
    min_count: int
    template: Template
    request: TopologyRequest
    choice: NodeChoice
    members: list[Member] = field(default_factory=list)

    def reduce(self, gone: int) -> None:
        """Take away pods that are not wanted here (`status.reclaimablePods` and the like)."""
        self.count = max(self.count - gone, 0)
        self.min_count = min(self.min_count, self.count)


def join_pod_sets(pod_sets: list[PodSet]) -> tuple[tuple[TopologyTerm, ...], list[Part], str]:
    """Build the subgroups of a workload.

    Pod sets of one podSetGroupName share a domain: when they are the whole workload its group
    carries the terms, else a subgroup above them does. A single pod set is the group itself.

    Returns:
      Terms of the group, its parts, and why Kueue would refuse it, or "".
    """
    topology: tuple[TopologyTerm, ...] = ()
    parts: list[Part] = []
    blocked = ""
    names = {p.request.group_name for p in pod_sets}
    is_one_group = len(pod_sets) == 1 or (len(names) == 1 and "" not in names)
    for pod_set in pod_sets:
        terms, refused = pod_set.request.make_terms(pod_set.choice.levels)
        slices, slices_refused = pod_set.request.make_slices(pod_set.choice.levels)
        why = pod_set.choice.blocked or refused or slices_refused
        if why and not blocked:
            blocked = f"pod set {pod_set.name}: {why}"
        part = Part(
            pod_set.name if len(pod_sets) > 1 else "",
            min_count=pod_set.min_count,
            size=pod_set.count,
            members=pod_set.members,
            slices=slices,
        )
        if is_one_group:
            topology = _union(topology, terms)
        elif pod_set.request.group_name:
            above = _group_part(parts, pod_set.request.group_name)
            above.min_count += pod_set.min_count
            above.min_groups += 1
            above.topology = _union(above.topology, terms)
            part.parent = above.name
        else:
            part.topology = terms
        parts.append(part)
    return topology, parts, blocked


def _group_part(parts: list[Part], group_name: str) -> Part:
    name = f"group:{group_name}"  # No pod set name holds a colon.
    found = next((part for part in parts if part.name == name), None)
    if found is None:
        found = Part(name)
        parts.append(found)
    return found


def _union(
    one: tuple[TopologyTerm, ...], other: tuple[TopologyTerm, ...]
) -> tuple[TopologyTerm, ...]:
    return (*one, *(term for term in other if term not in one))


def release(flavors: Flavors, pod_set: PodSet) -> None:
    """Make the unbound pods of a pod set what Kueue makes of them when it admits them."""
    for member in pod_set.members:
        release_pod(flavors, member, pod_set.choice)


def release_pod(flavors: Flavors, member: Member, choice: NodeChoice) -> None:
    """Open Kueue's gates of one pod and put the selectors of its flavors on it."""
    pod = member.pod
    if is_bound(pod):
        return
    pod.row.spec = flavors.apply(pod.row.spec, choice)
    if pod.gates and all(gate.startswith(_GATES) for gate in pod.gates):
        pod.row.flags &= ~PodFlag.GATED
