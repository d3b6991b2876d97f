"""Ray clusters on Kubernetes: one inferred gang of head and worker groups each.

One replica of a worker group is `numOfHosts` pods that come and go together. Without autoscaling
every desired pod is needed; with it the group is elastic, and the least replicas are.

Source: ray.io/v1 RayCluster, RayJob, RayService (ray-project/kuberay); the floor is that of its
batch scheduler plugins, 1 + desired (autoscaling on: least) workers.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from data.importers.base import ReadProblem
from data.importers.fields import (
    parse_index,
    read_created,
    read_int,
    read_list,
    read_map,
    read_text,
)
from data.importers.kueue_members import read_owner
from data.importers.kueue_request import find_ignored
from data.importers.templates import Template, read_template
from data.importers.trees import (
    Member,
    Part,
    add_tree,
    check_planned,
    is_finished,
    is_member,
    make_planned,
)
from topology.model import Group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, ImportedPod, RawObject

__all__ = ["import_kuberay"]

API_GROUP: Final = "ray.io"
CLUSTER: Final = "ray.io/cluster"
NODE_TYPE: Final = "ray.io/node-type"
GROUP: Final = "ray.io/group"
REPLICA: Final = "ray.io/worker-group-replica-name"
HOST_INDEX: Final = "ray.io/replica-host-index"
HEAD: Final = "head"
_WHERE: Final = {"RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}
"""Where an object that makes a cluster describes it."""


@dataclass(slots=True)
class _Workers:
    """A worker group."""

    name: str
    replicas: int
    least: int
    """Replicas without which the cluster does not start."""
    hosts: int
    template: Template
    found: list[list[ImportedPod]] = field(default_factory=list)
    """Pods of each replica that exists."""


def import_kuberay(context: ImportContext) -> None:
    """Add one inferred gang for each Ray cluster, with the pods that are still to be created.

    A cluster whose pods another API owns is no group; nor is one that a Kueue Workload stands for.
    A RayJob or RayService stands for its cluster until that exists.
    """
    pods: dict[str, list[ImportedPod]] = defaultdict(list)
    for ref in sorted(context.pods):
        pod = context.pods[ref]
        if CLUSTER in pod.row.labels and not is_finished(pod):
            pods[f"{pod.namespace}/{pod.row.labels[CLUSTER]}"].append(pod)
    by_kueue = {
        (owner.kind, f"{workload.namespace}/{owner.name}")
        for workload in context.all_of("kueue.x-k8s.io", "Workload")
        if (owner := read_owner(workload)).kind
    }
    made: set[tuple[str, str]] = set()

    def read(obj: RawObject) -> None:
        owner = read_owner(obj)
        made.add((owner.kind, f"{obj.namespace}/{owner.name}"))
        if ("RayCluster", obj.ref) in by_kueue:
            return
        if (owner.kind, f"{obj.namespace}/{owner.name}") not in by_kueue:
            _add_cluster(context, obj, "spec", pods.get(obj.ref, []))

    for obj in context.all_of(API_GROUP, "RayCluster"):
        context.guard(obj, read)

    def read_maker(obj: RawObject) -> None:
        is_over = read_text(obj.status, "jobDeploymentStatus", at="status") in _OVER
        if (obj.kind, obj.ref) not in made | by_kueue and not is_over:
            _add_cluster(context, obj, _WHERE[obj.kind], [])

    for kind in sorted(_WHERE):
        for obj in context.all_of(API_GROUP, kind):
            context.guard(obj, read_maker)


_OVER: Final = ("Complete", "Failed", "Suspended")


def _add_cluster(context: ImportContext, obj: RawObject, at: str, pods: list[ImportedPod]) -> None:
    if any(pod.row.group for pod in pods):
        return
    if obj.spec.get("suspend") is True and not pods:
        return
    body = read_map(obj.body, at)
    head = read_template(context, body, "headGroupSpec.template", obj.namespace, at=at)
    elastic = body.get("enableInTreeAutoscaling") is True
    groups = [
        _read_workers(context, obj, entry, f"{at}.workerGroupSpecs[{i}]", elastic)
        for i, entry in enumerate(read_list(body, "workerGroupSpecs", at=at))
        if entry.get("suspend") is not True
    ]
    check_planned(sum(g.replicas * g.hosts for g in groups), f"{at}.workerGroupSpecs")
    names = [group.name for group in groups]
    twice = next((name for name in names if names.count(name) > 1 or name == HEAD), None)
    if twice is not None:
        raise ReadProblem(f"{at}.workerGroupSpecs", f"two groups are named {twice}; rename one")
    parts = [_make_head(obj, head, pods)]
    for group in groups:
        _find_replicas(group, pods)
        parts += _make_parts(obj, group)
    members = [m.pod for part in parts for m in part.members]
    workers = sum(group.least * group.hosts for group in groups)
    add_tree(
        context,
        Group(
            obj.ref,
            "group",
            obj.api,
            min_count=1 + workers,
            min_groups=1 + len(groups),
            priority=max(pod.row.priority for pod in members),
            created=read_created(obj),
            is_inferred=True,
            unmodelled=find_ignored(members),
        ),
        parts,
    )
    for group in groups:
        if group.hosts > 1:
            _bind_replicas(context, obj.ref, group)


def _read_workers(
    context: ImportContext, obj: RawObject, entry: Mapping[str, object], at: str, elastic: bool
) -> _Workers:
    name = read_text(entry, "groupName", at=at)
    if not name:
        raise ReadProblem(f"{at}.groupName", "is missing; name the group")
    least = read_int(entry, "minReplicas", 0, at=at)
    replicas = max(read_int(entry, "replicas", least, at=at), least)
    return _Workers(
        name,
        replicas,
        least if elastic else replicas,
        read_int(entry, "numOfHosts", 1, minimum=1, at=at),
        read_template(context, entry, "template", obj.namespace, at=at),
    )


def _make_head(obj: RawObject, template: Template, pods: list[ImportedPod]) -> Part:
    heads = [pod for pod in pods if pod.row.labels.get(NODE_TYPE) == HEAD]
    if not any(is_member(pod) for pod in heads):
        heads.append(_plan(obj, template, HEAD, 0))
    return Part(HEAD, 1, members=[Member(pod, i, HEAD) for i, pod in enumerate(heads)])


def _plan(obj: RawObject, template: Template, name: str, index: int) -> ImportedPod:
    kind = HEAD if name == HEAD else "worker"
    labels = {CLUSTER: obj.name, NODE_TYPE: kind, GROUP: name}
    return make_planned(
        f"{obj.namespace}/{obj.name}-{name}-{index}",
        template.spec,
        {**template.labels, **labels},
        annotations=template.annotations,
        priority=template.priority,
    )


def _find_replicas(group: _Workers, pods: list[ImportedPod]) -> None:
    """Sort the pods of a worker group into its replicas: by label, else by name."""
    own = [
        pod
        for pod in pods
        if pod.row.labels.get(GROUP) == group.name
        and pod.row.labels.get(NODE_TYPE) != HEAD
        and is_member(pod)
    ]
    named: dict[str, list[ImportedPod]] = defaultdict(list)
    loose: list[ImportedPod] = []
    for pod in own:
        replica = pod.row.labels.get(REPLICA, "")
        (named[replica] if replica else loose).append(pod)
    group.found = [named[name] for name in sorted(named)]
    group.found += [loose[at : at + group.hosts] for at in range(0, len(loose), group.hosts)]


def _make_parts(obj: RawObject, group: _Workers) -> list[Part]:
    """Return the leaf of a worker group, or its replicas below it."""
    taken = sum(map(len, group.found))
    replicas = [list(pods) for pods in group.found]
    replicas += [[] for _ in range(group.replicas - len(replicas))]
    index = taken
    members: list[list[Member]] = []
    for pods in replicas:
        while len(pods) < group.hosts:
            pods.append(_plan(obj, group.template, group.name, index))
            index += 1
        ordered = sorted(pods, key=lambda pod: parse_index(pod.row.labels.get(HOST_INDEX)))
        members.append([Member(pod, rank, group.name) for rank, pod in enumerate(ordered)])
    if group.hosts == 1:
        flat = [replace(m, rank=rank) for rank, m in enumerate(m for some in members for m in some)]
        return [Part(group.name, group.least, len(flat), members=flat)]
    parts = [Part(group.name, group.least * group.hosts, min_groups=group.least)]
    parts += [
        Part(f"{group.name}-{r}", group.hosts, parent=group.name, members=own)
        for r, own in enumerate(members)
    ]
    return parts


def _bind_replicas(context: ImportContext, ref: str, group: _Workers) -> None:
    """Make each replica of several hosts a unit of disruption: it is deleted as a whole."""
    for r in range(max(group.replicas, len(group.found))):
        row = context.groups[f"{ref}#{group.name}-{r}"]
        row.group = replace(row.group, disruption="all")
