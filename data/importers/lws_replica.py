"""One group of a LeaderWorkerSet: its shape, its members and the pods still to be created."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from data.importers.fields import parse_index
from data.importers.lws_labels import (
    EXCLUSIVE,
    LEADER_NAME,
    POLICY_TYPE,
    SIZE,
    SUBGROUP_EXCLUSIVE,
    SUBGROUP_INDEX,
    SUBGROUP_SIZE,
    Shape,
    make_annotations,
    make_labels,
    pod_name,
)
from data.importers.trees import MAX_PLANNED, Member, Part, is_member, make_planned
from topology.model import Phase

if TYPE_CHECKING:
    from data.importers.base import ImportedPod
    from data.importers.lws_set import LwsSet
    from topology.model import PodSpec

__all__ = ["Replica"]

LEADER_PART = "leader"


@dataclass
class Replica:
    """A replica as pods and object describe it together."""

    namespace: str
    lws: str
    index: str
    """Value of the group-index label: a number, or a hash (`groupIdentity: Hash`)."""
    lws_set: LwsSet | None
    """None when only its pods are in the snapshot."""
    pods: list[tuple[int, ImportedPod]] = field(default_factory=list)
    """(worker index, pod), sorted; every pod that exists, terminating and finished ones too."""

    @property
    def ref(self) -> str:
        """Reference of the group."""
        return f"{self.namespace}/{self.lws}/{self.index}"

    @cached_property
    def leader(self) -> ImportedPod | None:
        """The leader pod, if it exists."""
        return next((pod for worker, pod in self.pods if worker == 0), None)

    def annotation(self, key: str) -> str:
        """Return an annotation as the leader, else the first worker that has it, carries it."""
        return next((p.annotations[key] for _, p in self.pods if key in p.annotations), "")

    @cached_property
    def is_size_known(self) -> bool:
        """Whether pods or object tell the size; else it is the number of pods."""
        return self._own_size > 0 or self.lws_set is not None

    @property
    def _own_size(self) -> int:
        size = parse_index(self.annotation(SIZE))
        return size if 0 < size <= MAX_PLANNED else 0

    @cached_property
    def shape(self) -> Shape:
        """Size and subgroups of this replica's revision."""
        base = self.lws_set.shape if self.lws_set else Shape(len({w for w, _ in self.pods}))
        subgroup_size = max(parse_index(self.annotation(SUBGROUP_SIZE)), 0) or base.subgroup_size
        labels = {w: parse_index(pod.row.labels.get(SUBGROUP_INDEX)) for w, pod in self.pods}
        policy = self.annotation(POLICY_TYPE)
        if self.leader is not None and subgroup_size:
            excluded = SUBGROUP_INDEX not in self.leader.row.labels
        elif policy:
            excluded = policy == "LeaderExcluded"
        else:
            excluded = base.leader_excluded
        is_old = subgroup_size == 1 and any(w and labels[w] == w - 1 for w in labels)
        return Shape(self._own_size or base.size, subgroup_size, excluded, is_old)

    @property
    def exclusive(self) -> str:
        """Node label key of group-level exclusivity, "" without."""
        own = self.annotation(EXCLUSIVE)
        return own or (self.lws_set.exclusive if self.lws_set else "")

    @property
    def subgroup_exclusive(self) -> str:
        """Node label key of subgroup-level exclusivity, "" without."""
        own = self.annotation(SUBGROUP_EXCLUSIVE)
        return own or (self.lws_set.subgroup_exclusive if self.lws_set else "")

    @property
    def priority(self) -> int:
        """Priority of the leader, or of the first pod, or of the leader template."""
        if self.pods:
            return self.pods[0][1].row.priority
        return self.lws_set.leader.priority if self.lws_set else 0

    @property
    def created(self) -> int:
        """Creation of the leader or first pod, else of the object."""
        if self.pods:
            return self.pods[0][1].row.created
        return self.lws_set.created if self.lws_set else -1

    @property
    def disruption(self) -> Literal["single", "all"]:
        """What the loss of one pod takes away; without the object the API's default counts."""
        match self.lws_set.recreate if self.lws_set else "always":
            case "never":
                return "single"
            case "after start":
                started = sum(pod.row.phase != Phase.PENDING for _, pod in self.pods)
                return "all" if started >= self.shape.size else "single"
            case _:
                return "all"

    def subgroup_of(self, worker: int, pod: ImportedPod | None) -> int | None:
        """Return the subgroup index: by the label of a pod that exists, else by the formula."""
        if pod is None:
            return self.shape.subgroup_of(worker)
        index = parse_index(pod.row.labels.get(SUBGROUP_INDEX))
        if index >= 0:
            return index
        return self.shape.subgroup_of(worker) if worker else None

    def make_missing(self) -> list[tuple[int, ImportedPod]]:
        """Return the pods still to be created, as the controller would create them."""
        if self.lws_set is None or (self.pods and not any(is_member(p) for _, p in self.pods)):
            return []  # No template, or a group on its way out.
        here = {worker for worker, _ in self.pods}
        return [(w, self._plan(w)) for w in range(self.shape.size) if w not in here]

    def make_parts(self) -> list[Part]:
        """Return the subgroups with their members, or one part named "" without subgroups."""
        members = [(w, pod, self.subgroup_of(w, pod)) for w, pod in self.pods]
        members += [(w, pod, self.subgroup_of(w, None)) for w, pod in self.make_missing()]
        members.sort(key=lambda item: item[0])
        subgroup = {w: index for w, _, index in members}
        if not self.shape.subgroup_size and set(subgroup.values()) <= {None}:
            part = Part("", self.shape.size, self.shape.size)
            part.members = [self._member(w, pod) for w, pod, _ in members]
            return [part]
        parts: dict[str, Part] = {}
        wanted = range(self.shape.size) if self.is_size_known else sorted(subgroup)
        for worker in wanted:
            index = subgroup[worker] if worker in subgroup else self.shape.subgroup_of(worker)
            part = parts.setdefault(_part_name(index), Part(_part_name(index), size=0))
            part.min_count += 1
        for worker, pod, index in members:
            part = parts.setdefault(_part_name(index), Part(_part_name(index), size=0))
            part.members.append(self._member(worker, pod))
        for part in parts.values():
            part.is_leader = part.name == LEADER_PART
            part.size = part.min_count
        return sorted(parts.values(), key=lambda p: (not p.is_leader, len(p.name), p.name))

    def _member(self, worker: int, pod: ImportedPod) -> Member:
        return Member(pod, worker, "worker" if worker else "leader")

    def _leader_name(self) -> str:
        if self.leader is not None:
            return self.leader.name
        return self.annotation(LEADER_NAME) or f"{self.lws}-{self.index}"

    def _plan(self, worker: int) -> ImportedPod:
        assert self.lws_set is not None
        template = self.lws_set.worker if worker else self.lws_set.leader
        leader = self._leader_name()
        labels = make_labels(self.shape, self.namespace, self.lws, leader, worker, self.index)
        return make_planned(
            f"{self.namespace}/{pod_name(leader, worker)}",
            self._sibling_spec(worker) or template.spec,
            {**template.labels, **labels},
            annotations={**template.annotations, **make_annotations(self.shape)},
            priority=template.priority,
        )

    def _sibling_spec(self, worker: int) -> PodSpec | None:
        """Return the spec of a worker beside it, which is of the right revision, if there is one.

        Specs with claims name the claims of their own pod and cannot be shared.
        """
        subgroup = self.subgroup_of(worker, None)
        siblings = (
            pod.row.spec
            for other, pod in self.pods
            if other and is_member(pod) and self.subgroup_of(other, pod) == subgroup
        )
        return next((spec for spec in siblings if worker and not spec.claims), None)


def _part_name(index: int | None) -> str:
    return LEADER_PART if index is None else str(index)
