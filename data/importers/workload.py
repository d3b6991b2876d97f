"""In-tree groups: Workload, PodGroup and CompositePodGroup of `scheduling.k8s.io`.

The PodGroup is authoritative: nothing is filled in from its Workload. Only `v1alpha1` (1.35) keeps
the groups inside the Workload.

Source: k8s.io/api scheduling/v1alpha1 (1.35), v1alpha2 (1.36), v1alpha3 and v1beta1 (1.37).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from data.importers.base import ReadProblem
from data.importers.fields import read_created, read_int, read_list, read_map, read_text
from data.importers.group_tree import Vertex, settle_trees
from data.importers.trees import find_rank, is_member, mark_waiting
from topology.model import Group, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportContext, ImportedPod, RawObject

__all__ = ["import_workload"]

_API_GROUP: Final = "scheduling.k8s.io"
_OLD_MODES: Final = {"Pod": "single", "PodGroup": "all"}
_MODES: Final = ("single", "all")
_ALPHA1: Final = "v1alpha1"

Mode = Literal["single", "all"]


def import_workload(context: ImportContext) -> None:
    """Add the in-tree groups and claim the pods that name them."""
    _import_workload_groups(context)
    _import_pod_groups(context)


# 1.35: groups inside the Workload


def _import_workload_groups(context: ImportContext) -> None:
    named: dict[tuple[str, str], dict[str, list[ImportedPod]]] = {}
    for ref in sorted(context.pods):
        pod = context.pods[ref]
        if pod.workload_ref is not None and not pod.pod_group:
            workload, group, replica = pod.workload_ref
            replicas = named.setdefault((f"{pod.namespace}/{workload}", group), {})
            replicas.setdefault(replica, []).append(pod)

    def read(obj: RawObject) -> None:
        for i, entry in enumerate(read_list(obj.spec, "podGroups", at="spec")):
            at = f"spec.podGroups[{i}]"
            name = read_text(entry, "name", at=at)
            if not name:
                raise ReadProblem(f"{at}.name", "is missing; set it")
            policy, floor = _read_policy(
                read_map(entry, "policy", at=at), f"{at}.policy", "minCount"
            )
            # Every replica key is a gang of its own; without pods there is none to tell apart.
            for replica, pods in named.pop((obj.ref, name), {"": []}).items():
                group = Group(
                    "/".join(part for part in (obj.ref, name, replica) if part),
                    "group",
                    obj.api,
                    policy=policy,
                    min_count=floor if policy == "gang" else 0,
                    size=sum(map(is_member, pods)),
                    priority=max((p.row.priority for p in pods), default=0),
                    never_preempts=_any_never(pods),
                    created=read_created(obj),
                )
                context.add_group(group)
                _claim(context, pods, group.ref)

    for obj in context.all_of(_API_GROUP, "Workload"):
        if obj.api_version.endswith(f"/{_ALPHA1}"):
            context.guard(obj, read)
    for (workload, group), replicas in sorted(named.items()):
        for pods in replicas.values():
            mark_waiting(context, pods, "Workload group", f"{workload}/{group}")


# 1.36 and later: PodGroup and CompositePodGroup objects


def _import_pod_groups(context: ImportContext) -> None:
    named: dict[str, list[ImportedPod]] = {}
    for ref in sorted(context.pods):
        pod = context.pods[ref]
        if pod.pod_group:
            named.setdefault(f"{pod.namespace}/{pod.pod_group}", []).append(pod)
    vertices: dict[str, Vertex] = {}

    def read_leaf(obj: RawObject) -> None:
        pods = named.get(obj.ref, [])
        vertices[obj.ref] = _read_vertex(obj, context, pods)
        named.pop(obj.ref, None)

    def read_composite(obj: RawObject) -> None:
        if obj.ref in vertices:
            raise ReadProblem(
                "metadata.name",
                f"a PodGroup {obj.ref} exists, and one reference cannot name both: rename one",
            )
        vertices[obj.ref] = _read_vertex(obj, context, None)

    for obj in context.all_of(_API_GROUP, "PodGroup"):
        context.guard(obj, read_leaf)
    for obj in context.all_of(_API_GROUP, "CompositePodGroup"):
        context.guard(obj, read_composite)
    for vertex in settle_trees(vertices):
        context.add_group(vertex.group, vertex.parent)
        _claim(context, vertex.pods, vertex.group.ref)
    for ref, pods in sorted(named.items()):
        mark_waiting(context, pods, "PodGroup", ref)


def _read_vertex(obj: RawObject, context: ImportContext, pods: list[ImportedPod] | None) -> Vertex:
    """Read a PodGroup with its pods, or (None) a CompositePodGroup."""
    spec = obj.spec
    is_leaf = pods is not None
    floor_name = "minCount" if is_leaf else "minGroupCount"
    policy, floor = _read_policy(
        read_map(spec, "schedulingPolicy", at="spec"), "spec.schedulingPolicy", floor_name
    )
    preemption = read_text(spec, "preemptionPolicy", at="spec")
    claims = read_list(spec, "resourceClaims", at="spec")
    parent = read_text(spec, "parentCompositePodGroupName", at="spec")
    group = Group(
        obj.ref,
        "group" if is_leaf else "composite",
        obj.api,
        policy=policy,
        min_count=floor if is_leaf and policy == "gang" else 0,
        min_groups=0 if is_leaf else floor,
        size=sum(map(is_member, pods or ())),
        priority=_read_priority(obj, context),
        topology=_read_topology(spec),
        disruption=_read_disruption(spec),
        created=read_created(obj),
        unmodelled=("resource claims of the group are not modelled",) if claims else (),
    )
    return Vertex(
        group,
        f"{obj.namespace}/{parent}" if parent else "",
        _read_workload(spec),
        list(pods or ()),
        preemption,
    )


def _read_policy(
    policy: dict[str, Any], at: str, floor_name: str
) -> tuple[Literal["gang", "basic"], int]:
    """Return the policy and its floor (basic: 1)."""
    chosen = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if len(chosen) != 1:
        stated = "both basic and gang" if chosen else "neither basic nor gang"
        raise ReadProblem(at, f"states {stated}; state exactly one")
    if chosen[0] == "basic":
        read_map(policy, "basic", at=at)
        return "basic", 1
    return "gang", read_int(policy, f"gang.{floor_name}", minimum=1, at=at)


def _read_disruption(spec: dict[str, Any]) -> Mode:
    """Read the string of 1.36 or the object of 1.37, whatever the version says."""
    at = "spec.disruptionMode"
    mode = spec.get("disruptionMode")
    if mode is None:
        return "single"
    if isinstance(mode, str):
        if mode not in _OLD_MODES:
            raise ReadProblem(at, f"is {mode!r:.40}; make it Pod or PodGroup")
        return "all" if _OLD_MODES[mode] == "all" else "single"
    chosen = [m for m in _MODES if isinstance(mode, dict) and mode.get(m) is not None]
    if len(chosen) != 1:
        raise ReadProblem(at, "must state exactly one of single and all; state one as {}")
    return "all" if chosen[0] == "all" else "single"


def _read_topology(spec: dict[str, Any]) -> tuple[TopologyTerm, ...]:
    at = "spec.schedulingConstraints"
    constraints = read_list(read_map(spec, "schedulingConstraints", at="spec"), "topology", at=at)
    if len(constraints) > 1:
        raise ReadProblem(f"{at}.topology", f"has {len(constraints)} entries; at most 1 is allowed")
    terms = []
    for constraint in constraints:
        key = read_text(constraint, "key", at=f"{at}.topology[0]")
        if not key:
            raise ReadProblem(f"{at}.topology[0].key", "is missing; name a node label")
        terms.append(TopologyTerm((key,)))
    return tuple(terms)


def _read_priority(obj: RawObject, context: ImportContext) -> int:
    """Return the priority; none stated counts as 0, whatever the default class says."""
    own = obj.spec.get("priority")
    if own is not None:
        return read_int(obj.body, "spec.priority", minimum=-(2**31))
    name = read_text(obj.spec, "priorityClassName", at="spec")
    if name and name not in context.priority_classes:
        context.warn(
            f"PriorityClass {name} is not in the snapshot; {obj.kind} {obj.ref} counts as "
            "priority 0"
        )
    return context.priority_classes.get(name, 0) if name else 0


def _read_workload(spec: dict[str, Any]) -> str:
    """Return the name of the Workload: 1.37 spells the reference differently from 1.36."""
    return read_text(spec, "workloadRef.workloadName", at="spec") or read_text(
        spec, "podGroupTemplateRef.workload.workloadName", at="spec"
    )


def _any_never(pods: list[ImportedPod]) -> bool:
    return any(p.row.spec.never_preempts for p in pods if is_member(p) and not p.row.node)


def _claim(context: ImportContext, pods: list[ImportedPod], ref: str) -> None:
    """Make pods members, ranked by their index if all have one, else by age and name."""
    ranks = [find_rank(pod) for pod in pods]
    if len(set(ranks)) < len(ranks) or -1 in ranks:
        order = sorted(range(len(pods)), key=lambda i: (pods[i].row.created, pods[i].name))
        for place, i in enumerate(order):
            ranks[i] = place
    for pod, rank in zip(pods, ranks, strict=True):
        context.claim(pod, ref, rank=rank)
