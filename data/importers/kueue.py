"""Kueue Workloads, and pods that carry Kueue's topology annotations without one.

Source: kubernetes-sigs/kueue, apis/kueue/v1beta2/workload_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.fields import (
    has_condition,
    read_created,
    read_int,
    read_list,
    read_map,
    read_text,
)
from data.importers.kueue_annotated import import_annotated
from data.importers.kueue_flavors import API_GROUP, Flavors
from data.importers.kueue_members import (
    Owner,
    PodIndex,
    assign_pod_sets,
    name_planned,
    read_owner,
)
from data.importers.kueue_request import read_annotations, read_request
from data.importers.kueue_tree import PodSet, join_pod_sets, release
from data.importers.templates import read_template
from data.importers.trees import (
    Member,
    add_tree,
    check_planned,
    find_rank,
    is_finished,
    is_member,
    make_planned,
    root_of,
)
from topology.assemble import GroupRow
from topology.model import Group

if TYPE_CHECKING:
    from data.importers.base import ImportContext, ImportedPod, RawObject

__all__ = ["import_kueue"]

_DEFAULT_POD_SET: Final = "main"


def import_kueue(context: ImportContext) -> None:
    """Add a gang for each Workload that is still wanted, with the pods still to be created.

    A Workload whose pods another API owns gives that group its queue and is no group itself.
    """
    flavors = Flavors.read(context)
    workloads = context.all_of(API_GROUP, "Workload")
    if workloads:
        reader = _Reader(context, flavors, PodIndex.build(context))
        for obj in workloads:
            context.guard(obj, reader.read)
    import_annotated(context, flavors)


@dataclass(slots=True)
class _Reader:
    context: ImportContext
    flavors: Flavors
    pods: PodIndex

    def read(self, obj: RawObject) -> None:
        if has_condition(obj, "Finished") or obj.spec.get("active") is False:
            return
        owner = read_owner(obj)
        named = [pod for pod in self.pods.find(obj, owner) if not is_finished(pod)]
        free = [pod for pod in named if not pod.row.group]
        queue = read_text(obj.body, "spec.queueName")
        if named and not free:
            self._give_queue(named, queue)
            return
        pod_sets = self._read_pod_sets(obj)
        self._find_members(obj, named, pod_sets)
        self._plan(obj, owner, pod_sets)
        topology, parts, blocked = join_pod_sets(pod_sets)
        reasons = dict.fromkeys(r for p in pod_sets for r in p.choice.reasons)
        group = Group(
            obj.ref,
            "group",
            obj.api,
            min_count=sum(p.min_count for p in pod_sets),
            min_groups=sum(bool(part.name) and not part.parent for part in parts),
            priority=self._priority(obj, pod_sets),
            topology=topology,
            slices=() if parts[0].name else parts[0].slices,
            disruption="all",
            created=read_created(obj),
            queue=queue,
            blocked=blocked,
            unmodelled=tuple(reasons),
        )
        add_tree(self.context, group, parts)
        for pod_set in pod_sets:
            release(self.flavors, pod_set)

    def _give_queue(self, pods: list[ImportedPod], queue: str) -> None:
        for ref in sorted({root_of(self.context, pod.row.group) for pod in pods}):
            row = self.context.groups.get(ref)
            if row and not row.group.queue:
                self.context.groups[ref] = GroupRow(replace(row.group, queue=queue), row.parent)

    def _read_pod_sets(self, obj: RawObject) -> list[PodSet]:
        admitted = {
            read_text(a, "name", _DEFAULT_POD_SET, at="status.admission"): a
            for a in read_list(obj.body, "status.admission.podSetAssignments")
        }
        gone = {
            read_text(r, "name", at="status.reclaimablePods"): read_int(
                r, "count", 0, at="status.reclaimablePods"
            )
            for r in read_list(obj.body, "status.reclaimablePods")
        }
        found: dict[str, PodSet] = {}
        for i, body in enumerate(read_list(obj.body, "spec.podSets")):
            at = f"spec.podSets[{i}]"
            name = read_text(body, "name", _DEFAULT_POD_SET, at=at)
            if name in found:
                raise ReadProblem(f"{at}.name", f"is {name} again; pod set names are unique")
            found[name] = self._read_pod_set(obj, body, name, admitted.get(name, {}), at)
            found[name].reduce(gone.get(name, 0))
        if not found:
            raise ReadProblem("spec.podSets", "is empty; a Workload has at least one pod set")
        check_planned(sum(p.count for p in found.values()), "spec.podSets")
        return list(found.values())

    def _read_pod_set(
        self, obj: RawObject, body: dict[str, Any], name: str, assignment: dict[str, Any], at: str
    ) -> PodSet:
        template = read_template(self.context, body, "template", obj.namespace, at=at)
        request = read_request(body, at) or read_annotations(
            template.annotations, f"{at}.template.metadata.annotations"
        )
        count = read_int(body, "count", 1, at=at)
        count = read_int(assignment, "count", count, at="status.admission.podSetAssignments")
        if assignment.get("topologyAssignment"):
            self.context.warn(
                f"Workload {obj.ref}: its topology assignment is not followed; "
                "pods without a node are planned anew"
            )
        flavors = read_map(assignment, "flavors", at="status.admission.podSetAssignments")
        choice = self.flavors.choose(
            obj.namespace,
            read_text(obj.body, "spec.queueName"),
            template.spec,
            request,
            [str(flavors[resource]) for resource in sorted(flavors)],
        )
        floor = min(read_int(body, "minCount", count, at=at), count)
        return PodSet(name, count, floor, template, request, choice)

    def _find_members(
        self, obj: RawObject, pods: list[ImportedPod], pod_sets: list[PodSet]
    ) -> None:
        found, lost = assign_pod_sets(
            pods,
            {p.name: p.count for p in pod_sets},
            {p.name: p.template.spec for p in pod_sets},
        )
        if lost:
            self.context.warn(
                f"Workload {obj.ref}: nothing tells the pod set of {lost[0].row.ref}"
                + (f" and {len(lost) - 1} more pods" if len(lost) > 1 else "")
                + "; they are planned by themselves"
            )
        for pod_set in pod_sets:
            pods = found[pod_set.name]
            # Pods that another API owns are wanted there, not here.
            pod_set.reduce(sum(is_member(pod) for pod in pods if pod.row.group))
            for pod in (pod for pod in pods if not pod.row.group):
                keys = [pod_set.request.index_label] if pod_set.request.index_label else []
                rank = pod_set.request.rank_of(pod.row.labels, pod_set.count, find_rank(pod, *keys))
                pod_set.members.append(Member(pod, rank, pod_set.name))

    def _plan(self, obj: RawObject, owner: Owner, pod_sets: list[PodSet]) -> None:
        size = sum(p.count for p in pod_sets)
        for pod_set in pod_sets:
            missing = pod_set.count - sum(is_member(m.pod) for m in pod_set.members)
            template, index = pod_set.template, 0
            while missing > 0:
                name, labels = name_planned(obj, owner, pod_set.name, index, size)
                ref = f"{obj.namespace}/{name}"
                if ref not in self.context.pods:
                    pod = make_planned(
                        ref,
                        template.spec,
                        {**template.labels, **labels},
                        annotations=template.annotations,
                        priority=template.priority,
                    )
                    pod_set.members.append(Member(pod, find_rank(pod), pod_set.name))
                    missing -= 1
                index += 1

    def _priority(self, obj: RawObject, pod_sets: list[PodSet]) -> int:
        own = obj.spec.get("priority")
        if own is not None:
            return read_int(obj.body, "spec.priority", minimum=-(2**31))
        name = read_text(obj.body, "spec.priorityClassRef.name") or read_text(
            obj.body, "spec.priorityClassName"
        )
        for workload_class in self.context.all_of(API_GROUP, "WorkloadPriorityClass"):
            if name and workload_class.name == name:
                return read_int(workload_class.body, "value", minimum=-(2**31))
        if name in self.context.priority_classes:
            return self.context.priority_classes[name]
        return max(p.template.priority for p in pod_sets)
