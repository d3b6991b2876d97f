"""Pods with Kueue's topology annotations and no Workload in the snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from data.importers.base import ReadProblem
from data.importers.jobset_labels import NAME as JOBSET_NAME
from data.importers.kueue_members import POD_GROUP
from data.importers.kueue_request import asks_for_topology, read_annotations
from data.importers.kueue_tree import release_pod
from data.importers.lws_labels import NAME as LWS_NAME
from data.importers.trees import Member, Part, add_tree, find_rank, is_member
from topology.model import Group

if TYPE_CHECKING:
    from data.importers.base import ImportContext, ImportedPod
    from data.importers.kueue_flavors import Flavors

__all__ = ["import_annotated"]

_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_APIS: Final = {"": "v1/Pod", "Job": "batch/v1/Job", "StatefulSet": "apps/v1/StatefulSet"}


def import_annotated(context: ImportContext, flavors: Flavors) -> None:
    """Group free pods that ask for a topology by pod group, else by owner; the gang is inferred.

    Pods of a LeaderWorkerSet or JobSet are left to their own importers, which know their groups.
    """
    found: dict[tuple[str, str], list[ImportedPod]] = {}
    for pod in context.free_pods():
        has_importer = any(key in pod.row.labels for key in (LWS_NAME, JOBSET_NAME))
        if asks_for_topology(pod.annotations) and is_member(pod) and not has_importer:
            name = pod.row.labels.get(POD_GROUP) or pod.owner_name or pod.name
            kind = "" if POD_GROUP in pod.row.labels else pod.owner_kind
            found.setdefault((f"{pod.namespace}/{name}", kind), []).append(pod)
    for (ref, kind), pods in found.items():
        try:
            _add_group(context, flavors, ref, _APIS.get(kind, kind), pods)
        except ReadProblem as problem:
            context.report(pods[0], problem.field, problem.message)


def _add_group(
    context: ImportContext, flavors: Flavors, ref: str, api: str, pods: list[ImportedPod]
) -> None:
    first = pods[0]
    request = read_annotations(first.annotations, "metadata.annotations")
    queue = first.row.labels.get(_QUEUE, "")
    choice = flavors.choose(first.namespace, queue, first.row.spec, request)
    terms, refused = request.make_terms(choice.levels)
    slices, slices_refused = request.make_slices(choice.levels)
    members = [Member(pod, find_rank(pod)) for pod in pods]
    group = Group(
        ref,
        "group",
        api,
        min_count=len(pods),
        priority=max(pod.row.priority for pod in pods),
        topology=terms,
        slices=slices,
        disruption="all",
        created=min(pod.row.created for pod in pods),
        queue=queue,
        blocked=choice.blocked or refused or slices_refused,
        unmodelled=choice.reasons,
        is_inferred=True,
    )
    add_tree(context, group, [Part("", members=members)])
    for member in members:
        release_pod(flavors, member, choice)
