"""LeaderWorkerSet objects, checked as their webhook checks them.

Source: leaderworkerset.x-k8s.io/v1, api/leaderworkerset/v1/leaderworkerset_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from data.importers.base import ReadProblem
from data.importers.fields import (
    find_field,
    read_created,
    read_int,
    read_map,
    read_strings,
    read_text,
)
from data.importers.lws_labels import EXCLUSIVE, SUBGROUP_EXCLUSIVE, Shape
from data.importers.templates import Template, read_template
from data.importers.trees import check_planned

if TYPE_CHECKING:
    from data.importers.base import ImportContext, RawObject

__all__ = ["API_GROUP", "LwsSet", "read_sets"]

API_GROUP: Final = "leaderworkerset.x-k8s.io"
_TEMPLATE: Final = "spec.leaderWorkerTemplate"
_AFTER_START: Final = "leaderworkerset.sigs.k8s.io/experimental-recreate-group-after-start"
_PROPOSED: Final = (
    "spec.scheduling",
    f"{_TEMPLATE}.placementPolicy",
    f"{_TEMPLATE}.subGroupPolicy.placementPolicy",
    f"{_TEMPLATE}.subGroupPolicy.subGroupPlacement",
)

Recreate = Literal["always", "after start", "never"]


@dataclass(frozen=True, slots=True)
class LwsSet:
    """What an LWS object says of its groups."""

    obj: RawObject
    replicas: int
    shape: Shape
    leader: Template
    worker: Template
    recreate: Recreate
    """When the loss of one pod recreates the whole group."""
    has_hash_identity: bool
    exclusive: str
    """Node label key of the group-level annotation, "" without it."""
    subgroup_exclusive: str
    created: int


def read_sets(context: ImportContext) -> dict[str, LwsSet]:
    """Return the LWS objects by "namespace/name"; invalid ones are reported and left out."""
    found: dict[str, LwsSet] = {}

    def read(obj: RawObject) -> None:
        found[obj.ref] = _read_set(context, obj)

    for obj in context.all_of(API_GROUP, "LeaderWorkerSet"):
        context.guard(obj, read)
    return found


def _read_set(context: ImportContext, obj: RawObject) -> LwsSet:
    body = obj.body
    annotations = read_strings(body, "metadata.annotations")
    replicas = read_int(body, "spec.replicas", 1)
    shape = _read_shape(obj)
    check_planned(replicas * shape.size, "spec.replicas")
    worker = read_template(context, body, f"{_TEMPLATE}.workerTemplate", obj.namespace)
    has_leader = find_field(body, f"{_TEMPLATE}.leaderTemplate") is not None
    leader = (
        read_template(context, body, f"{_TEMPLATE}.leaderTemplate", obj.namespace)
        if has_leader
        else worker
    )
    for field in _PROPOSED:
        if find_field(body, field) is not None:
            context.warn(
                f"LeaderWorkerSet {obj.ref}: {field} is a proposal of LWS and is not followed"
            )
    return LwsSet(
        obj,
        replicas,
        shape,
        leader,
        worker,
        _read_recreate(obj),
        read_text(body, "spec.groupIdentity") == "Hash",
        annotations.get(EXCLUSIVE, ""),
        annotations.get(SUBGROUP_EXCLUSIVE, ""),
        read_created(obj),
    )


def _read_shape(obj: RawObject) -> Shape:
    size = read_int(obj.body, f"{_TEMPLATE}.size", 1, minimum=1)
    policy = f"{_TEMPLATE}.subGroupPolicy"
    if find_field(obj.body, policy) is None:
        if obj.annotations.get(SUBGROUP_EXCLUSIVE):
            raise ReadProblem(
                f"metadata.annotations.{SUBGROUP_EXCLUSIVE}",
                "needs a subGroupPolicy; add one or remove the annotation",
            )
        return Shape(size)
    kind = read_text(read_map(obj.body, policy), "subGroupPolicyType", "LeaderWorker", at=policy)
    if kind not in ("LeaderWorker", "LeaderExcluded"):
        raise ReadProblem(
            f"{policy}.subGroupPolicyType",
            f"is {kind!r:.40}; it must be LeaderWorker or LeaderExcluded",
        )
    # A missing subgroup size is 0 here, which the check refuses as the webhook does.
    shape = Shape(size, read_int(obj.body, f"{policy}.subGroupSize", 0), kind == "LeaderExcluded")
    shape.check(f"{policy}.subGroupSize")
    return shape


def _read_recreate(obj: RawObject) -> Recreate:
    policy = read_text(obj.body, f"{_TEMPLATE}.restartPolicy", "RecreateGroupOnPodRestart")
    match policy:
        case "None" | "Default":
            return "never"
        case "RecreateGroupAfterStart":
            return "after start"
        case "RecreateGroupOnPodRestart":
            return "after start" if _AFTER_START in obj.annotations else "always"
        case _:
            raise ReadProblem(
                f"{_TEMPLATE}.restartPolicy",
                f"is {policy!r:.40}; it must be RecreateGroupOnPodRestart, "
                "RecreateGroupAfterStart or None",
            )
