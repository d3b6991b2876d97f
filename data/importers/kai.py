"""KAI PodGroups: trees of subgroups with floors and topology at every node.

Source: kai-scheduler/KAI-Scheduler, pkg/apis/scheduling/v2alpha2 and docs/topology.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.fields import (
    find_field,
    parse_index,
    read_created,
    read_int,
    read_list,
    read_map,
    read_text,
)
from data.importers.topologies import NO_LEVELS, Levels, make_path, make_terms, read_topologies
from data.importers.trees import Member, Part, add_tree, find_rank, is_bound, mark_waiting
from topology.model import Group, PodFlag, SliceTerm, TopologyTerm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, ImportedPod, RawObject

__all__ = ["import_kai"]

API_GROUP: Final = "scheduling.run.ai"
_POD_GROUP: Final = "pod-group-name"
_SUBGROUP: Final = "kai.scheduler/subgroup-name"
_SAFE: Final = "kai.scheduler/safe-to-consolidate"
_TOPOLOGY: Final = "kai.scheduler/topology"
_SEGMENT_SIZE: Final = "kai.scheduler/segment-size"
_SEGMENT_REQUIRED: Final = "kai.scheduler/segment-topology-required-placement"
_SEGMENT_PREFERRED: Final = "kai.scheduler/segment-topology-preferred-placement"
_REST: Final = "rest"
_PREEMPTIBLE_BELOW: Final = 100
"""Without `preemptibility` a priority below this may be preempted."""


def import_kai(context: ImportContext) -> None:
    """Add the PodGroups and claim the pods annotated with their name."""
    topologies = read_topologies(context, "kai.scheduler")
    members: dict[str, list[ImportedPod]] = {}
    for ref in sorted(context.pods):
        pod = context.pods[ref]
        if pod.annotations.get(_POD_GROUP):
            key = f"{pod.namespace}/{pod.annotations[_POD_GROUP]}"
            members.setdefault(key, []).append(pod)

    def read(obj: RawObject) -> None:
        named = members.get(obj.ref, [])
        pods = [pod for pod in named if not pod.row.group]
        if pods or not named:  # Else another API owns every member.
            _Reader(context, topologies, obj).read(pods)
        members.pop(obj.ref, None)

    for obj in context.all_of(API_GROUP, "PodGroup"):
        context.guard(obj, read)
    for ref, pods in members.items():
        mark_waiting(context, pods, "KAI PodGroup", ref)


class _Reader:
    """Reads one PodGroup."""

    def __init__(
        self, context: ImportContext, topologies: Mapping[str, Levels], obj: RawObject
    ) -> None:
        self.context = context
        self.topologies = topologies
        self.obj = obj
        self.blocked = ""

    def read(self, pods: list[ImportedPod]) -> None:
        body = self.obj.body
        parts = self._read_parts(pods)
        topology = self._read_terms(read_map(body, "spec"), "spec")
        below = [p for p in parts if p.name not in ("", _REST) and not p.parent]
        min_count, min_groups = self._read_floors(read_map(body, "spec"), "spec", below)
        if any(part.name == _REST for part in parts):
            min_groups += 1  # It always succeeds, so it must not stand for a subgroup.
        name = read_text(body, "spec.priorityClassName")
        priority = self.context.priority_of(name, None)
        if not name and pods:
            priority = max(pod.row.priority for pod in pods)
        evictable = self._is_preemptible(priority)
        movable = self._is_movable(pods)
        group = Group(
            self.obj.ref,
            "group",
            self.obj.api,
            min_count=min_count,
            min_groups=min_groups,
            priority=priority,
            topology=topology,
            slices=parts[0].slices if not parts[0].name else (),
            disruption="single",
            evictable=evictable,
            movable=movable,
            created=read_created(self.obj),
            queue=read_text(body, "spec.queue"),
            blocked=self.blocked,
        )
        add_tree(self.context, group, parts)
        for pod in pods:
            if not evictable:
                pod.row.flags |= PodFlag.NOT_PREEMPTIBLE
            if not movable or pod.annotations.get(_SAFE) == "false":
                pod.row.flags |= PodFlag.NOT_MOVABLE

    def _read_parts(self, pods: list[ImportedPod]) -> list[Part]:
        declared = read_list(self.obj.body, "spec.subGroups")
        if not declared:
            part = Part("", members=[Member(pod, find_rank(pod)) for pod in pods])
            part.slices = self._read_segments(pods)
            return [part]
        parts: dict[str, Part] = {}
        for i, body in enumerate(declared):
            at = f"spec.subGroups[{i}]"
            name = read_text(body, "name", at=at)
            if not name or name in parts:
                raise ReadProblem(f"{at}.name", f"is {name!r:.40}; give each subgroup its own name")
            parts[name] = Part(
                name, parent=read_text(body, "parent", at=at), topology=self._read_terms(body, at)
            )
        inner = {part.parent for part in parts.values()}
        for pod in pods:
            name = pod.row.labels.get(_SUBGROUP, "")
            # Only leaves own pods; KAI leaves others outside its subgroups.
            leaf = name if name in parts and name not in inner else _REST
            parts.setdefault(leaf, Part(leaf)).members.append(Member(pod, find_rank(pod), name))
        self._set_floors(parts, declared)
        for part in parts.values():
            part.slices = self._read_segments([m.pod for m in part.members])
        return list(parts.values())

    def _set_floors(self, parts: dict[str, Part], declared: list[dict[str, Any]]) -> None:
        """Set the floors of the subgroups, children before parents."""
        bodies = {body["name"]: (i, body) for i, body in enumerate(declared)}
        children: dict[str, list[str]] = {}
        for name in bodies:
            children.setdefault(parts[name].parent, []).append(name)
        order = list(children.get("", []))
        for name in order:
            order += children.get(name, [])
            if len(order) > len(bodies):
                break  # A cycle, which adding the tree reports.
        for name in reversed(order):
            i, body = bodies[name]
            below = [parts[child] for child in children.get(name, [])]
            floors = self._read_floors(body, f"spec.subGroups[{i}]", below)
            parts[name].min_count, parts[name].min_groups = floors

    def _read_floors(self, body: Mapping[str, Any], at: str, below: list[Part]) -> tuple[int, int]:
        """Return `min_count` and `min_groups` of a node of the tree.

        Without `minSubGroup` every subgroup below must succeed; the pods that takes are the floor.
        """
        has_pods = find_field(body, "minMember", at=at) is not None
        has_groups = find_field(body, "minSubGroup", at=at) is not None
        if has_pods and has_groups:
            raise ReadProblem(f"{at}.minSubGroup", "excludes minMember; remove one of them")
        if not below:
            return read_int(body, "minMember", 1, at=at), 0
        min_groups = read_int(body, "minSubGroup", len(below), at=at)
        cheapest = sum(sorted(part.min_count for part in below)[:min_groups])
        return max(read_int(body, "minMember", 0, at=at), cheapest), min_groups

    def _levels(self, name: str) -> Levels:
        if name and name not in self.topologies:
            self.context.warn(
                f"PodGroup {self.obj.ref}: Topology {name} is not in the snapshot; its labels are "
                "taken for global ones: add it"
            )
        if not name and len(self.topologies) == 1:
            return next(iter(self.topologies.values()))
        return self.topologies.get(name, NO_LEVELS)

    def _read_terms(self, body: Mapping[str, Any], at: str) -> tuple[TopologyTerm, ...]:
        rule = read_map(body, "topologyConstraint", at=at)
        if not rule:
            return ()
        at = f"{at}.topologyConstraint"
        terms, refused = make_terms(
            self._levels(read_text(rule, "topology", at=at)),
            read_text(rule, "requiredTopologyLevel", at=at),
            read_text(rule, "preferredTopologyLevel", at=at),
        )
        self.blocked = self.blocked or refused
        return terms

    def _read_segments(self, pods: list[ImportedPod]) -> tuple[SliceTerm, ...]:
        """Read the segment annotations, which every pod of a template carries."""
        first = next((pod for pod in pods if _SEGMENT_SIZE in pod.annotations), None)
        if first is None:
            return ()
        size = parse_index(first.annotations[_SEGMENT_SIZE])
        if size < 1:
            raise ReadProblem(
                f"metadata.annotations.{_SEGMENT_SIZE}",
                f"of pod {first.name} is {first.annotations[_SEGMENT_SIZE]!r:.40}; "
                "set it to 1 or more",
            )
        levels = self._levels(
            first.annotations.get(_TOPOLOGY)
            or read_text(self.obj.body, "spec.topologyConstraint.topology")
        )
        terms: list[SliceTerm] = []
        for annotation, required in ((_SEGMENT_REQUIRED, True), (_SEGMENT_PREFERRED, False)):
            key = first.annotations.get(annotation, "")
            path = make_path(levels, key) if key else ()
            if path is None:
                self.blocked = self.blocked or (
                    f'no requested topology level: "{key}" is not in Topology {levels.name}'
                )
            elif path and path not in {term.path for term in terms}:
                terms.append(SliceTerm(path, size, required))
        return tuple(terms)

    def _is_preemptible(self, priority: int) -> bool:
        match read_text(self.obj.body, "spec.preemptibility"):
            case "":
                return priority < _PREEMPTIBLE_BELOW
            case "preemptible":
                return True
            case "non-preemptible":
                return False
            case "semi-preemptible":
                self.context.warn(
                    f"PodGroup {self.obj.ref}: semi-preemptible is taken for non-preemptible; "
                    "its pods above the floor are kept too"
                )
                return False
            case other:
                raise ReadProblem(
                    "spec.preemptibility",
                    f"is {other!r:.40}; it must be preemptible or non-preemptible",
                )

    def _is_movable(self, pods: list[ImportedPod]) -> bool:
        own = find_field(self.obj.body, "spec.safeToConsolidate")
        if own is None:
            own = self.obj.annotations.get(_SAFE)
        bound = [pod for pod in pods if is_bound(pod)]
        annotated = bound and all(pod.annotations.get(_SAFE) == "false" for pod in bound)
        return own not in (False, "false") and not annotated
