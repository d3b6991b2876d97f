"""Groups with their subgroups and members, added to a context in one step."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from data.importers.base import ImportedPod, ReadProblem
from data.importers.fields import parse_index
from topology.assemble import PodRow
from topology.model import Phase, PodFlag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from data.importers.base import ImportContext
    from topology.model import Exclusive, Group, PodSpec, SliceTerm, TopologyTerm

__all__ = [
    "MAX_PLANNED",
    "Member",
    "Part",
    "add_members",
    "add_tree",
    "check_planned",
    "check_planned_names",
    "find_rank",
    "is_bound",
    "is_finished",
    "is_member",
    "make_planned",
    "mark_waiting",
    "root_of",
]

MAX_PLANNED: Final = 200_000
"""Pods one object may describe without their existing; more is taken for a mistake."""

_MAX_DEPTH: Final = 32
_INDEX_LABELS: Final = (
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-index",
    "apps.kubernetes.io/pod-index",
)
_TRAILING_INDEX: Final = re.compile(r"-([0-9]{1,9})\Z")


@dataclass(slots=True)
class Member:
    """A pod of a part, its rank there and the name of its template."""

    pod: ImportedPod
    rank: int = -1
    template: str = ""


@dataclass(slots=True)
class Part:
    """A subgroup to be: an inner one when other parts name it as their parent, else a leaf.

    The part named "" stands for the group itself, which then owns its pods directly.
    """

    name: str
    min_count: int = 0
    size: int | None = None
    """Pods wanted; None: the members that are neither finished nor terminating, or the parts."""
    parent: str = ""
    min_groups: int = 0
    members: list[Member] = field(default_factory=list)
    topology: tuple[TopologyTerm, ...] = ()
    slices: tuple[SliceTerm, ...] = ()
    exclusive: tuple[Exclusive, ...] = ()
    is_leader: bool = False

    def count_members(self) -> int:
        """Return the members that are neither finished nor terminating."""
        return sum(is_member(m.pod) for m in self.members)


def is_finished(pod: ImportedPod) -> bool:
    """Tell whether the pod is Succeeded or Failed."""
    return pod.row.phase in (Phase.SUCCEEDED, Phase.FAILED)


def is_member(pod: ImportedPod) -> bool:
    """Tell whether the pod counts as a member: neither finished nor terminating."""
    return not is_finished(pod) and not pod.row.flags & PodFlag.TERMINATING


def is_bound(pod: ImportedPod) -> bool:
    """Tell whether the pod has a node."""
    return bool(pod.row.node)


def find_rank(pod: ImportedPod, *keys: str) -> int:
    """Return the place of a pod in its group, -1 when nothing says.

    Args:
      pod: Labels are asked first, then annotations, then the trailing integer of the name.
      *keys: Labels to prefer over the well-known index labels.
    """
    for key in (*keys, *_INDEX_LABELS):
        for values in (pod.row.labels, pod.annotations):
            if (index := parse_index(values.get(key))) >= 0:
                return index
    trailing = _TRAILING_INDEX.search(pod.name)
    return int(trailing[1]) if trailing else -1


def check_planned(count: int, field: str) -> int:
    """Return the number of pods an object describes; raises ReadProblem when it is absurd."""
    if count > MAX_PLANNED:
        raise ReadProblem(
            field, f"describes {count} pods; at most {MAX_PLANNED} of one object are read: lower it"
        )
    return count


def make_planned(
    ref: str,
    spec: PodSpec,
    labels: Mapping[str, str],
    *,
    annotations: Mapping[str, str] | None = None,
    priority: int = 0,
) -> ImportedPod:
    """Make a pod that a template describes but nobody has created yet.

    It enters the context together with its group (`add_tree`, `add_members`).
    """
    row = PodRow(ref, spec, labels, flags=int(PodFlag.PLANNED), priority=priority)
    return ImportedPod(row, annotations or {})


def add_members(context: ImportContext, leaf: str, members: Iterable[Member]) -> None:
    """Make members of a leaf those pods that are free; planned ones enter the context."""
    for member in members:
        pod = member.pod
        context.pods.setdefault(pod.row.ref, pod)
        if not pod.row.group:
            context.claim(pod, leaf, rank=member.rank, template=member.template)


def check_planned_names(context: ImportContext, members: Iterable[Member]) -> None:
    """Raise ReadProblem where a planned pod has the name of a pod that exists."""
    for member in members:
        ref = member.pod.row.ref
        if context.pods.get(ref, member.pod) is not member.pod:
            raise ReadProblem(
                "metadata.name",
                f"describes pod {ref}, which exists but is no member of it; "
                "correct the labels of the pod or rename one of them",
            )


def root_of(context: ImportContext, ref: str) -> str:
    """Return the topmost group above a group that is already in the context."""
    seen = {ref}
    while (row := context.groups.get(ref)) and row.parent and row.parent not in seen:
        ref = row.parent
        seen.add(ref)
    return ref


def mark_waiting(context: ImportContext, pods: Iterable[ImportedPod], api: str, ref: str) -> None:
    """Hold back the free, unbound pods that name a group which is not in the snapshot."""
    held = [p for p in pods if not p.row.group and is_member(p) and not is_bound(p)]
    for pod in held:
        pod.row.flags |= PodFlag.WAITING
    if held:
        context.warn(
            f"{api} {ref} is missing or unusable; {len(held)} pods that name it wait for it: "
            "add it to the snapshot, or remove its name from the pods"
        )


def add_tree(context: ImportContext, root: Group, parts: Sequence[Part], parent: str = "") -> None:
    """Add a group, its subgroups and their members.

    Sizes and `never_preempts` follow from the members; priority, disruption and the like of the
    subgroups are the root's.

    Args:
      context: Receives groups and planned pods; members of another group stay where they are.
      root: Reference, floors, constraints of the whole; its size may be left 0.
      parts: Subgroups in any order; a single part named "" makes the root a leaf.
      parent: Reference of the group above the root, "" for none.

    Raises:
      ReadProblem: The reference or the name of a planned pod is taken, or the parts do not form
        a tree; nothing was added then.
    """
    names = {part.name for part in parts}
    if len(names) < len(parts):
        raise ReadProblem("spec", "two subgroups have the same name; rename one")
    children: dict[str, list[Part]] = {}
    for part in parts:
        if part.parent and part.parent not in names:
            raise ReadProblem("spec", f"subgroup {part.name} names unknown parent {part.parent}")
        if part.name:
            children.setdefault(part.parent, []).append(part)
    sizes: dict[str, int] = {}

    def count(part: Part, above: frozenset[str]) -> int:
        if len(above) > _MAX_DEPTH:
            raise ReadProblem("spec", f"subgroups nest deeper than {_MAX_DEPTH}; flatten them")
        below = children.get(part.name, []) if part.name else []
        total = sum(count(child, above | {part.name}) for child in below) + part.count_members()
        sizes[part.name] = total if part.size is None else max(total, part.size)
        return sizes[part.name]

    reached = sum(count(part, frozenset()) for part in parts if not part.parent)
    if len(sizes) < len(parts):
        lost = min(names - sizes.keys())
        raise ReadProblem("spec", f"subgroup {lost} is its own ancestor; break the cycle")

    check_planned_names(context, (m for part in parts for m in part.members))
    waiting = [m.pod for part in parts for m in part.members if not is_bound(m.pod)]
    root = replace(
        root,
        size=max(root.size, reached),
        never_preempts=root.never_preempts or any(p.row.spec.never_preempts for p in waiting),
    )
    context.add_group(root, parent)
    for part in parts:
        leaf = root.ref
        if part.name:
            leaf = f"{root.ref}#{part.name}"
            above = f"{root.ref}#{part.parent}" if part.parent else root.ref
            context.add_group(_make_subgroup(root, part, leaf, sizes[part.name]), above)
        add_members(context, leaf, part.members)


def _make_subgroup(root: Group, part: Part, ref: str, size: int) -> Group:
    return replace(
        root,
        ref=ref,
        kind="subgroup",
        name=part.name,
        min_count=part.min_count,
        min_groups=part.min_groups,
        size=size,
        topology=part.topology,
        slices=part.slices,
        exclusive=part.exclusive,
        is_leader=part.is_leader,
        blocked="",
        unmodelled=(),
    )
