"""Trees of in-tree groups: what holds for a tree as a whole, and why it would be refused.

Source: kube-scheduler 1.36 and 1.37, entry checks of the group cycle; KEP-6012.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from data.importers.trees import is_member
from topology.model import PodFlag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from data.importers.base import ImportedPod
    from topology.model import Group

__all__ = ["Vertex", "settle_trees"]

_MAX_DEPTH: Final = 4
_SINCE_37: Final = "1.37: "
"""Begins the text of a refusal that no earlier release knows."""


@dataclass(slots=True)
class Vertex:
    """A PodGroup or CompositePodGroup while its tree is put together."""

    group: Group
    parent: str = ""
    """Ref of the parent, "" for a root."""
    workload: str = ""
    """Name of the Workload it was made from, "" if it does not say."""
    pods: list[ImportedPod] = field(default_factory=list)
    preemption: str = ""
    """`preemptionPolicy`, "" when absent."""


def settle_trees(vertices: Mapping[str, Vertex]) -> list[Vertex]:
    """Return the vertices with what follows from their trees filled in.

    Sizes of composites; priority, preemption and refusals of the whole tree. A parent that is
    missing or part of a cycle is cut off, so that the result is a forest.

    Args:
      vertices: By ref; `Group.size` of leaves is final.
    """
    refusals = _cut(vertices)
    children: dict[str, list[str]] = {}
    for ref in sorted(vertices):
        children.setdefault(vertices[ref].parent, []).append(ref)
    settled: list[Vertex] = []
    for root in children.get("", []):
        tree = _list_tree(root, children)
        _settle(vertices, tree, next((refusals[r] for r, _ in tree if r in refusals), ""))
        settled += [vertices[ref] for ref, _ in tree]
    return settled


def _cut(vertices: Mapping[str, Vertex]) -> dict[str, str]:
    """Cut parents that lead nowhere; return the refusal of each vertex that lost its parent."""
    refusals: dict[str, str] = {}
    for ref in sorted(vertices):
        parent = vertices[ref].parent
        if not parent:
            continue
        if parent not in vertices or vertices[parent].group.kind != "composite":
            refusals[ref] = f"waits for CompositePodGroup {parent}, which is not in the snapshot"
            vertices[ref].parent = ""
            continue
        walked = [ref]
        while parent and parent not in walked:
            walked.append(parent)
            parent = vertices[parent].parent if parent in vertices else ""
        if parent == ref:
            refusals[ref] = "SchedulerError: its parents form a cycle: " + " -> ".join(
                [*walked, ref]
            )
            vertices[ref].parent = ""
    return refusals


def _list_tree(root: str, children: Mapping[str, list[str]]) -> list[tuple[str, int]]:
    """Return (ref, depth) of a tree, parents before children."""
    tree = [(root, 1)]
    for ref, depth in tree:
        tree += [(child, depth + 1) for child in children.get(ref, [])]
    return tree


def _settle(vertices: Mapping[str, Vertex], tree: list[tuple[str, int]], refusal: str) -> None:
    root = vertices[tree[0][0]]
    members = [p for ref, _ in tree for p in vertices[ref].pods if _takes_part(p)]
    workloads = sorted({vertices[ref].workload for ref, _ in tree} - {""})
    depth = max(depth for _, depth in tree)
    if not refusal and depth > _MAX_DEPTH:
        refusal = f"SchedulerError: its tree is {depth} levels deep; at most {_MAX_DEPTH} may be"
    if not refusal and len(workloads) > 1:
        refusal = f"SchedulerError: its tree mixes Workloads {workloads[0]} and {workloads[1]}"
    refusal = refusal or _find_mismatch(members, root.group.priority)
    waiting = (p for p in members if not p.row.node)
    never = root.preemption == "Never" or (
        not root.preemption and any(p.row.spec.never_preempts for p in waiting)
    )
    sizes: dict[str, int] = {}
    for ref, _ in reversed(tree):
        vertex = vertices[ref]
        size = vertex.group.size + sizes.get(ref, 0)
        sizes[vertex.parent] = sizes.get(vertex.parent, 0) + size
        vertex.group = replace(
            vertex.group,
            size=size,
            priority=root.group.priority,
            never_preempts=never,
            blocked=refusal,
        )


def _takes_part(pod: ImportedPod) -> bool:
    """Tell whether the group cycle looks at a pod: placed, or pending and not gated."""
    return is_member(pod) and (bool(pod.row.node) or not pod.row.flags & PodFlag.GATED)


def _find_mismatch(members: list[ImportedPod], priority: int) -> str:
    """Return why a group cycle would fail all members, "" if it would not."""

    def differ(what: str, value: Callable[[ImportedPod], object]) -> str:
        first = members[0]
        for pod in members[1:]:
            if value(pod) != value(first):
                return (
                    f"SchedulerError: members differ in {what}: {first.row.ref} has "
                    f"{value(first)}, {pod.row.ref} has {value(pod)}"
                )
        return ""

    if not members:
        return ""
    if refusal := differ("schedulerName", lambda p: p.row.spec.scheduler):
        return refusal
    if pod := _find_other_priority(members, priority):
        return (
            f"{_SINCE_37}SchedulerError: pod {pod.row.ref} has priority {pod.row.priority}, its "
            f"group {priority}"
        )
    refusal = differ(
        "preemptionPolicy",
        lambda p: "Never" if p.row.spec.never_preempts else "PreemptLowerPriority",
    )
    return f"{_SINCE_37}{refusal}" if refusal else ""


def _find_other_priority(members: Iterable[ImportedPod], priority: int) -> ImportedPod | None:
    """Return a pod that states another priority than its group."""
    return next((p for p in members if p.has_priority and p.row.priority != priority), None)
