"""Volcano PodGroups, with HyperNode tiers as topology.

Source: scheduling.volcano.sh/v1beta1; volcano docs/design, Network Topology Aware Scheduling.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.fields import read_created, read_int, read_list, read_map, read_text
from data.importers.hypernode import Tiers, import_hypernodes, read_selector, tier_label
from data.importers.trees import Member, Part, add_tree, find_rank, mark_waiting
from topology.model import Group, PodFlag, TopologyTerm
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, ImportedPod, RawObject

__all__ = ["import_volcano"]

API_GROUP: Final = "scheduling.volcano.sh"
_NAMES: Final = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_TASK: Final = "volcano.sh/task-spec"
_PREEMPTABLE: Final = "volcano.sh/preemptable"
_REST: Final = "rest"


def import_volcano(context: ImportContext) -> None:
    """Label nodes by HyperNode, add the PodGroups and claim the pods annotated with their name."""
    tiers = import_hypernodes(context)
    members: dict[str, list[ImportedPod]] = {}
    for ref in sorted(context.pods):
        pod = context.pods[ref]
        name = next((pod.annotations[key] for key in _NAMES if key in pod.annotations), "")
        if name:
            members.setdefault(f"{pod.namespace}/{name}", []).append(pod)

    def read(obj: RawObject) -> None:
        named = members.get(obj.ref, [])
        pods = [pod for pod in named if not pod.row.group]
        if pods or not named:  # Else another API owns every member.
            _add_group(context, tiers, obj, pods)
        members.pop(obj.ref, None)

    for obj in context.all_of(API_GROUP, "PodGroup"):
        context.guard(obj, read)
    for ref, pods in members.items():
        mark_waiting(context, pods, "Volcano PodGroup", ref)


def _add_group(
    context: ImportContext, tiers: Tiers, obj: RawObject, pods: list[ImportedPod]
) -> None:
    policies = read_list(obj.body, "spec.subGroupPolicy")
    floors = read_map(obj.body, "spec.minTaskMember")
    name = read_text(obj.body, "spec.priorityClassName")
    priority = context.priority_of(name, None)
    if not name and pods:
        priority = max(pod.row.priority for pod in pods)
    group = Group(
        obj.ref,
        "group",
        obj.api,
        min_count=read_int(obj.body, "spec.minMember", 1),
        priority=priority,
        topology=_read_topology(context, tiers, obj, read_map(obj.body, "spec"), "spec"),
        created=read_created(obj),
        queue=read_text(obj.body, "spec.queue", "default"),
    )
    if policies:
        group, parts = _cut_by_policy(context, tiers, obj, group, pods, policies)
    elif floors:
        parts = _cut_by_task(floors, pods)
        group = replace(group, min_groups=len(parts))
    else:
        parts = [Part("", members=[_member(pod) for pod in pods])]
    add_tree(context, group, parts)
    for pod in pods:
        own = pod.annotations.get(_PREEMPTABLE, pod.row.labels.get(_PREEMPTABLE))
        if own == "false":
            pod.row.flags |= PodFlag.NOT_PREEMPTIBLE


def _member(pod: ImportedPod) -> Member:
    return Member(pod, find_rank(pod), pod.annotations.get(_TASK, ""))


def _cut_by_task(floors: Mapping[str, Any], pods: list[ImportedPod]) -> list[Part]:
    """Return a part for each task: those with a floor, then those of other pods."""
    at = "spec.minTaskMember"
    parts = {task: Part(task, read_int({"n": floors[task]}, "n", at=at)) for task in sorted(floors)}
    for pod in pods:
        task = pod.annotations.get(_TASK) or _REST
        parts.setdefault(task, Part(task)).members.append(_member(pod))
    return list(parts.values())


def _cut_by_policy(
    context: ImportContext,
    tiers: Tiers,
    obj: RawObject,
    group: Group,
    pods: list[ImportedPod],
    policies: list[dict[str, Any]],
) -> tuple[Group, list[Part]]:
    """Return the group and its subgroups: pods that match a policy, split by label values.

    A pod goes to the first policy it matches. With several policies each has a subgroup of its
    own above its splits, which carries `minSubGroups`.
    """
    parts: dict[str, Part] = {}
    left = list(pods)
    for i, policy in enumerate(policies):
        at = f"spec.subGroupPolicy[{i}]"
        name = read_text(policy, "name", at=at) or f"policy-{i}"
        selector = read_selector(read_map(policy, "labelSelector", at=at), f"{at}.labelSelector")
        keys = policy.get("matchLabelKeys") or []
        if not isinstance(keys, list):
            raise ReadProblem(f"{at}.matchLabelKeys", "is not a list; make it one")
        floor = read_int(policy, "subGroupSize", 0, at=at)
        min_groups = read_int(policy, "minSubGroups", 0, at=at)
        topology = _read_topology(context, tiers, obj, policy, at)
        above = ""
        if len(policies) > 1:
            above = name
            parts[name] = Part(name, floor * min_groups, min_groups=min_groups)
            group = replace(group, min_groups=group.min_groups + 1)
        else:
            group = replace(group, min_groups=min_groups)
        matching = [pod for pod in left if matches_selector(selector, pod.row.labels)]
        left = [pod for pod in left if pod not in matching]
        for pod in matching:
            split = ".".join([name, *(pod.row.labels.get(str(key), "") for key in keys)])
            leaf = split if split != above else f"{split}.all"
            part = parts.setdefault(leaf, Part(leaf, floor, parent=above, topology=topology))
            part.members.append(_member(pod))
    if left:
        parts[_REST] = Part(_REST, members=[_member(pod) for pod in left])
        # Without a floor it always succeeds, so it must not stand for a subgroup.
        group = replace(group, min_groups=group.min_groups + (group.min_groups > 0))
    return group, list(parts.values())


def _read_topology(
    context: ImportContext, tiers: Tiers, obj: RawObject, body: Mapping[str, Any], at: str
) -> tuple[TopologyTerm, ...]:
    """Read `networkTopology`: one HyperNode of at most some tier, the closest if possible."""
    rule = read_map(body, "networkTopology", at=at)
    if not rule:
        return ()
    at = f"{at}.networkTopology"
    mode = read_text(rule, "mode", "hard", at=at)
    if mode not in ("hard", "soft"):
        raise ReadProblem(f"{at}.mode", f"is {mode!r:.40}; it must be hard or soft")
    name = read_text(rule, "highestTierName", at=at)
    if name and name not in tiers.names:
        context.warn(
            f"PodGroup {obj.ref}: no HyperNode has tier name {name}; Volcano applies no constraint"
        )
        return ()
    widest = tiers.numbers[-1] if tiers.numbers else 1
    highest = tiers.names[name] if name else read_int(rule, "highestTierAllowed", widest, at=at)
    allowed = [t for t in tiers.numbers if t <= highest]
    # A tier between two that exist allows what the next closer one does.
    limit = allowed[-1] if allowed else highest
    if not allowed:
        context.warn(f"PodGroup {obj.ref}: no node is in a HyperNode of tier {highest} or closer")
    elif limit in tiers.uncovered:
        context.warn(
            f"PodGroup {obj.ref}: {tiers.uncovered[limit]} nodes are in no HyperNode of tier "
            f"{limit}, so they are outside its network topology"
        )
    closer = tuple(TopologyTerm((tier_label(t),), required=False) for t in allowed if t < limit)
    if mode == "hard":
        return (TopologyTerm((tier_label(limit),)), *closer)
    return (*closer, TopologyTerm((tier_label(limit),), required=False))
