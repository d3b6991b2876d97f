"""Names, labels and subgroup membership of LeaderWorkerSet pods.

Source: kubernetes-sigs/lws 0.10, pkg/webhooks/pod_webhook.go and
pkg/webhooks/leaderworkerset_webhook.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha1
from typing import Final

from data.importers.base import ReadProblem

__all__ = [
    "EXCLUSIVE",
    "GROUP_INDEX",
    "GROUP_KEY",
    "LEADER_NAME",
    "NAME",
    "POLICY_TYPE",
    "SIZE",
    "SUBGROUP_EXCLUSIVE",
    "SUBGROUP_INDEX",
    "SUBGROUP_KEY",
    "SUBGROUP_SIZE",
    "WORKER_INDEX",
    "Shape",
    "make_annotations",
    "make_labels",
    "pod_name",
]

_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
NAME: Final = _PREFIX + "name"
GROUP_INDEX: Final = _PREFIX + "group-index"
WORKER_INDEX: Final = _PREFIX + "worker-index"
GROUP_KEY: Final = _PREFIX + "group-key"
SUBGROUP_INDEX: Final = _PREFIX + "subgroup-index"
SUBGROUP_KEY: Final = _PREFIX + "subgroup-key"
SIZE: Final = _PREFIX + "size"
LEADER_NAME: Final = _PREFIX + "leader-name"
EXCLUSIVE: Final = _PREFIX + "exclusive-topology"
SUBGROUP_EXCLUSIVE: Final = _PREFIX + "subgroup-exclusive-topology"
SUBGROUP_SIZE: Final = _PREFIX + "subgroup-size"
POLICY_TYPE: Final = _PREFIX + "subgroup-policy-type"


@dataclass(frozen=True, slots=True)
class Shape:
    """Size of a group and how it is cut into subgroups."""

    size: int
    """Pods of the group, leader included; at least 1."""
    subgroup_size: int = 0
    """0: no subgroups."""
    leader_excluded: bool = False
    is_before_v0_10: bool = False
    """Up to 0.9 subgroups of one also counted an extra pod, which shifts their indices by one."""

    def check(self, field: str) -> None:
        """Raise ReadProblem where the LWS webhook would refuse the subgroup size.

        Args:
          field: Path of the subgroup size, for the message.
        """
        n, s = self.size, self.subgroup_size
        if s < 1:
            raise ReadProblem(field, f"is {s}; it must be at least 1")
        if s > n:
            raise ReadProblem(field, f"is {s}, above the group size {n}; lower it")
        if self.leader_excluded and (n - 1) % s:
            raise ReadProblem(
                field, f"is {s}, which does not divide size - 1 = {n - 1} as LeaderExcluded needs"
            )
        if n % s and (n - 1) % s:
            raise ReadProblem(field, f"is {s}, which divides neither size {n} nor size - 1")

    def subgroup_of(self, worker: int) -> int | None:
        """Return the subgroup index of a worker index (0: the leader), None for no subgroup.

        The worker branch never looks at the policy: LeaderExcluded works because its validation
        forces the case of the extra pod (but for subgroups of one, where index 0 stays unused).
        """
        n, s = self.size, self.subgroup_size
        if not s:
            return None
        if worker == 0:
            return None if self.leader_excluded else 0
        has_extra = (n - 1) % s == 0 and (n % s != 0 or self.is_before_v0_10)
        return (worker - 1) // s if has_extra else worker // s


def pod_name(leader: str, worker: int) -> str:
    """Return the name of a pod of the group whose leader pod has this name."""
    return f"{leader}-{worker}" if worker else leader


def make_labels(
    shape: Shape, namespace: str, lws: str, leader: str, worker: int, index: str
) -> dict[str, str]:
    """Return the labels the controller and webhook set on a pod.

    Args:
      shape: Of the pod's group.
      namespace: Of the pod.
      lws: Name of the LeaderWorkerSet.
      leader: Name of the group's leader pod.
      worker: Worker index, 0 for the leader.
      index: Value of the group-index label.
    """
    labels = {
        NAME: lws,
        GROUP_INDEX: index,
        WORKER_INDEX: str(worker),
        GROUP_KEY: _sha1(f"{namespace}/{leader}"),
    }
    subgroup = shape.subgroup_of(worker)
    if subgroup is not None:
        labels[SUBGROUP_INDEX] = str(subgroup)
        labels[SUBGROUP_KEY] = _sha1(f"{leader}/{subgroup}")
    return labels


def make_annotations(shape: Shape) -> dict[str, str]:
    """Return the annotations that carry the shape of a pod's own revision."""
    annotations = {SIZE: str(shape.size)}
    if shape.subgroup_size:
        annotations[SUBGROUP_SIZE] = str(shape.subgroup_size)
        annotations[POLICY_TYPE] = "LeaderExcluded" if shape.leader_excluded else "LeaderWorker"
    return annotations


def _sha1(text: str) -> str:
    return sha1(text.encode(), usedforsecurity=False).hexdigest()
