"""PodGroups of scheduler-plugins: `scheduling.x-k8s.io/v1alpha1` and its older group.

Source: kubernetes-sigs/scheduler-plugins, apis/scheduling and pkg/coscheduling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from data.importers.fields import read_created, read_int
from data.importers.trees import Member, Part, add_tree, find_rank, mark_waiting
from topology.model import Group

if TYPE_CHECKING:
    from data.importers.base import ImportContext, ImportedPod, RawObject

__all__ = ["import_coscheduling"]

_API_GROUPS: Final = ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
_LABELS: Final = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name")


def import_coscheduling(context: ImportContext) -> None:
    """Add the PodGroups and claim the pods whose label names them.

    Their priority is that of their pods (which should agree: the highest counts); a pod that
    names an absent PodGroup is held back at Permit.
    """
    members: dict[str, list[ImportedPod]] = {}
    for pod in context.pods.values():
        name = next((pod.row.labels[key] for key in _LABELS if key in pod.row.labels), "")
        if name:
            members.setdefault(f"{pod.namespace}/{name}", []).append(pod)

    def read(obj: RawObject) -> None:
        named = members.get(obj.ref, [])
        pods = [pod for pod in named if not pod.row.group]
        if named and not pods:
            return  # Another API owns every member.
        priorities = sorted({pod.row.priority for pod in pods})
        if len(priorities) > 1:
            context.warn(
                f"PodGroup {obj.ref}: its pods have priorities {priorities[0]} to {priorities[-1]};"
                " the highest is used"
            )
        group = Group(
            obj.ref,
            "group",
            obj.api,
            min_count=read_int(obj.body, "spec.minMember", 1),
            priority=priorities[-1] if priorities else context.default_priority,
            created=read_created(obj),
        )
        add_tree(context, group, [Part("", members=[Member(p, find_rank(p)) for p in pods])])
        members.pop(obj.ref, None)

    for api_group in _API_GROUPS:
        for obj in context.all_of(api_group, "PodGroup"):
            context.guard(obj, read)
    for ref, pods in members.items():
        mark_waiting(context, pods, "coscheduling PodGroup", ref)
