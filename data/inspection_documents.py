"""An Inspection document of the contract -> typed records, or one line that says what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "InspectedGroup",
    "InspectedNode",
    "InspectedPod",
    "InspectionDocument",
    "inspection_from_dict",
]


class InspectedDevices(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `nodes[].devices`: devices of one class."""

    total: int
    free: int


class InspectedNode(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `nodes`; amounts are Kubernetes quantities."""

    node: str
    allocatable: dict[str, str]
    free: dict[str, str]
    domains: dict[str, str]
    schedulable: bool
    devices: dict[str, InspectedDevices] = {}


class InspectedPod(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `pods`."""

    pod: str
    node: str | None
    group: str | None
    state: str
    requests: dict[str, str]


class InspectedTopology(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `groups[].topology`."""

    key: str
    mode: str


class InspectedGroup(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `groups`."""

    group: str
    policy: str
    min_count: int
    size: int
    priority: int
    kind: str = "group"
    running: int = 0
    pending: int = 0
    topology: list[InspectedTopology] = []


class Level(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `fragmentation.levels`."""

    whole_free_gpus: int
    whole_free_per_mille: int
    whole_free_domains: int


class Fragmentation(msgspec.Struct, frozen=True, rename="camel"):
    """The `fragmentation` of the fleet."""

    free_gpus: int
    fragmentation: int
    levels: dict[str, Level] = {}


class LargestGang(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `largestGangs`; key None: the whole fleet."""

    key: str | None
    gpus_per_pod: int
    pods: int
    domain: str | None


class StrandedGang(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `stranded`."""

    group: str
    running: int
    min_count: int
    gpus: int


class SetAside(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of `errors`."""

    object: str
    kind: str
    field: str
    message: str


class InspectionDocument(msgspec.Struct, frozen=True, rename="camel"):
    """The document; unknown keys are let pass, since the contract may grow."""

    snapshot: dict[str, Any]
    nodes: list[InspectedNode]
    pods: list[InspectedPod]
    groups: list[InspectedGroup]
    fragmentation: Fragmentation
    largest_gangs: list[LargestGang] = []
    stranded: list[StrandedGang] = []
    warnings: list[str] = []
    errors: list[SetAside] = []


def inspection_from_dict(document: Mapping[str, Any]) -> InspectionDocument:
    """Read an Inspection document as `Inspection.to_dict` writes it.

    Raises:
      RequestError: A field is missing or has a wrong type; one line, with its path.
    """
    try:
        return msgspec.convert(document, InspectionDocument)
    except msgspec.ValidationError as problem:
        raise RequestError(
            f"inspection: {problem}; print it anew by `gangplan inspect ... -o json`"
        ) from None
