"""JobSets: one inferred gang with a subgroup for each child Job.

Source: kubernetes-sigs/jobset, api/jobset/v1alpha2 and pkg/webhooks/pod_webhook.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.fields import (
    has_condition,
    parse_index,
    read_created,
    read_int,
    read_list,
    read_strings,
    read_text,
)
from data.importers.jobset_labels import JOB_INDEX, NAME, ROLE
from data.importers.kueue_members import read_owner
from data.importers.kueue_request import find_ignored
from data.importers.templates import Template, read_template
from data.importers.trees import (
    Member,
    Part,
    add_tree,
    check_planned,
    find_rank,
    is_finished,
    is_member,
    make_planned,
    root_of,
)
from topology.assemble import GroupRow
from topology.model import Exclusive, Group, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportContext, ImportedPod, RawObject

__all__ = ["import_jobset"]

API_GROUP: Final = "jobset.x-k8s.io"
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTOR: Final = "alpha.jobset.sigs.k8s.io/node-selector"


@dataclass(slots=True)
class _Role:
    """A replicatedJob."""

    name: str
    replicas: int
    count: int
    """Pods of one Job that run at a time."""
    template: Template
    exclusive: str
    waits_for: tuple[str, ...] = ()
    """Roles that must be complete before its Jobs are created."""


@dataclass(slots=True)
class _JobPods:
    role: str
    index: str
    pods: list[ImportedPod] = field(default_factory=list)


def import_jobset(context: ImportContext) -> None:
    """Add one inferred gang for each JobSet that runs or is to run.

    A JobSet whose pods another API owns is no group; nor is one that a Kueue Workload stands for.
    """
    found: dict[str, dict[tuple[str, str], _JobPods]] = {}
    for ref in sorted(context.pods):
        pod = context.pods[ref]
        labels = pod.row.labels
        if NAME in labels and not is_finished(pod):
            role, index = labels.get(ROLE, ""), labels.get(JOB_INDEX, "0")
            jobs = found.setdefault(f"{pod.namespace}/{labels[NAME]}", {})
            jobs.setdefault((role, index), _JobPods(role, index)).pods.append(pod)
    by_kueue = _find_kueue_owned(context)

    def read(obj: RawObject) -> None:
        jobs = {
            key: replace(job, pods=list(job.pods)) for key, job in found.get(obj.ref, {}).items()
        }
        _read_jobset(context, obj, jobs, obj.ref in by_kueue)
        found.pop(obj.ref, None)

    for obj in context.all_of(API_GROUP, "JobSet"):
        context.guard(obj, read)
    for ref, jobs in found.items():
        pods = [pod for job in jobs.values() for pod in job.pods]
        if any(pod.row.group for pod in pods):
            continue
        try:
            _add_group(context, ref, f"{API_GROUP}/v1alpha2/JobSet", -1, jobs, {})
        except ReadProblem as problem:
            context.report(pods[0], problem.field, problem.message)


def _find_kueue_owned(context: ImportContext) -> set[str]:
    owned: set[str] = set()
    for workload in context.all_of("kueue.x-k8s.io", "Workload"):
        owner = read_owner(workload)
        if owner.kind == "JobSet":
            owned.add(f"{workload.namespace}/{owner.name}")
    return owned


def _read_jobset(
    context: ImportContext,
    obj: RawObject,
    jobs: dict[tuple[str, str], _JobPods],
    is_kueue_owned: bool,
) -> None:
    roles = _read_roles(context, obj)
    owners = {pod.row.group for job in jobs.values() for pod in job.pods if pod.row.group}
    if owners or is_kueue_owned:
        if any(role.exclusive for role in roles.values()):
            _mark_exclusive(context, owners)
        return
    is_over = has_condition(obj, "Completed") or has_condition(obj, "Failed")
    if not is_over and not obj.status.get("terminalState") and obj.spec.get("suspend") is not True:
        _plan(obj, roles, jobs)
    if jobs:
        _add_group(context, obj.ref, obj.api, read_created(obj), jobs, roles)


def _mark_exclusive(context: ImportContext, leaves: set[str]) -> None:
    reason = "exclusive topology of its JobSet is not modelled"
    for ref in sorted({root_of(context, leaf) for leaf in leaves}):
        row = context.groups[ref]
        if reason not in row.group.unmodelled:
            group = replace(row.group, unmodelled=(*row.group.unmodelled, reason))
            context.groups[ref] = GroupRow(group, row.parent)


def _read_roles(context: ImportContext, obj: RawObject) -> dict[str, _Role]:
    roles: dict[str, _Role] = {}
    for i, body in enumerate(read_list(obj.body, "spec.replicatedJobs")):
        at = f"spec.replicatedJobs[{i}]"
        name = read_text(body, "name", at=at)
        parallelism = read_int(body, "template.spec.parallelism", 1, at=at)
        completions = read_int(body, "template.spec.completions", parallelism, at=at)
        waits_for = tuple(
            read_text(d, "name", at=f"{at}.dependsOn")
            for d in read_list(body, "dependsOn", at=at)
            if d.get("status") == "Complete"
        )
        roles[name] = _Role(
            name,
            read_int(body, "replicas", 1, at=at),
            min(parallelism, completions),
            read_template(context, body, "template.spec.template", obj.namespace, at=at),
            _read_exclusive(obj, body, at),
            waits_for,
        )
    check_planned(sum(r.replicas * r.count for r in roles.values()), "spec.replicatedJobs")
    return roles


def _read_exclusive(obj: RawObject, body: dict[str, Any], at: str) -> str:
    own = read_strings(obj.body, "metadata.annotations")
    for values in (read_strings(body, "template.metadata.annotations", at=at), own):
        if _NODE_SELECTOR in values:
            return ""  # An admin labels nodes by hand and no terms are injected.
        if values.get(_EXCLUSIVE):
            return values[_EXCLUSIVE]
    return ""


def _plan(obj: RawObject, roles: dict[str, _Role], jobs: dict[tuple[str, str], _JobPods]) -> None:
    """Add the pods still to be created: `<jobset>-<role>-<job>-<completion index>`."""
    complete = {
        str(status.get("name"))
        for status in read_list(obj.body, "status.replicatedJobsStatus")
        if (role := roles.get(str(status.get("name"))))
        and read_int(status, "succeeded", 0, at="status.replicatedJobsStatus") >= role.replicas
    }
    for role in roles.values():
        if role.name in complete or not complete.issuperset(role.waits_for):
            continue
        for job in range(role.replicas):
            pods = jobs.setdefault((role.name, str(job)), _JobPods(role.name, str(job))).pods
            here = {find_rank(pod) for pod in pods}
            missing = role.count - sum(is_member(pod) for pod in pods)
            free = (index for index in range(role.count + len(pods)) if index not in here)
            for index in [next(free) for _ in range(missing)]:
                labels = {
                    NAME: obj.name,
                    ROLE: role.name,
                    JOB_INDEX: str(job),
                    "batch.kubernetes.io/job-completion-index": str(index),
                }
                pods.append(
                    make_planned(
                        f"{obj.namespace}/{obj.name}-{role.name}-{job}-{index}",
                        role.template.spec,
                        {**role.template.labels, **labels},
                        annotations=role.template.annotations,
                        priority=role.template.priority,
                    )
                )


def _add_group(
    context: ImportContext,
    ref: str,
    api: str,
    created: int,
    jobs: dict[tuple[str, str], _JobPods],
    roles: dict[str, _Role],
) -> None:
    pods = [pod for job in jobs.values() for pod in job.pods]
    priority = max(pod.row.priority for pod in pods)
    parts: list[Part] = []
    for job in sorted(jobs.values(), key=lambda j: (j.role, parse_index(j.index), j.index)):
        role = roles.get(job.role)
        key = role.exclusive if role else _annotated_key(job.pods)
        part = Part(
            f"{job.role}-{job.index}",
            members=[Member(pod, find_rank(pod), job.role) for pod in job.pods],
            topology=(TopologyTerm((key,)),) if key else (),
            exclusive=(Exclusive(f"jobset-job:{priority}", key or None),),
        )
        part.min_count = role.count if role else part.count_members()
        parts.append(part)
    group = Group(
        ref,
        "group",
        api,
        min_count=sum(part.min_count for part in parts),
        min_groups=len(parts),
        priority=priority,
        created=created,
        is_inferred=True,
        unmodelled=find_ignored(pods),
    )
    add_tree(context, group, parts)


def _annotated_key(pods: list[ImportedPod]) -> str:
    return next((p.annotations[_EXCLUSIVE] for p in pods if p.annotations.get(_EXCLUSIVE)), "")
