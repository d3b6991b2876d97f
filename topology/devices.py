"""Devices of Dynamic Resource Allocation (DRA): what there is, what claims ask for, what is held.

Selectors are not here: an importer evaluates class and request selectors into *filters*, and every
kind of device lists the filters that surely select it. Amounts of counters and capacities are
integers in thousandths of their own unit, offers rounded down and requests up.

Source: k8s.io/api resource/v1 (ResourceSlice, DeviceClass, ResourceClaim); KEP-4381 (structured
parameters), KEP-4815 (partitionable devices), KEP-5075 (consumable capacity), KEP-5055 (device
taints), KEP-4816 (prioritized list), KEP-5004 (extended resources).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topology.taints import Taint, Toleration  # noqa: TC001 (msgspec reads the annotations)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "ALL_DEVICES",
    "NO_DEVICE",
    "NO_DEVICES",
    "AllocatedClaim",
    "AllocatedDevice",
    "Capacity",
    "Counter",
    "DeviceConstraint",
    "DeviceFilter",
    "DeviceKind",
    "DevicePool",
    "DeviceRequest",
    "DeviceTable",
    "ExtendedResource",
    "RequestChoice",
    "Reserver",
    "move_nodes",
]

ALL_DEVICES: Final = 0
"""`DeviceRequest.count` of allocationMode All."""
NO_DEVICE: Final = -1
"""`AllocatedDevice.device` of a device that no usable slice lists."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """`requests[].exactly`, or one entry of `requests[].firstAvailable`."""

    name: str
    """Of the request; "request/subrequest" for an alternative."""
    filter: int
    """Index into `DeviceTable.filters`: the class together with the request's own selectors."""
    count: int = 1
    """ALL_DEVICES takes every device of the filter that the node reaches."""
    is_admin: bool = False
    """adminAccess: takes devices whoever holds them, and keeps them from nobody."""
    tolerations: tuple[Toleration, ...] = ()
    capacity: tuple[tuple[str, int], ...] = ()
    """`capacity.requests` by qualified name, sorted."""


@dataclass(frozen=True, slots=True)
class RequestChoice:
    """`requests[]`: the first alternative that can be satisfied is taken."""

    name: str
    alternatives: tuple[DeviceRequest, ...]


@dataclass(frozen=True, slots=True)
class DeviceConstraint:
    """`constraints[]`: the devices of some requests agree in an attribute, or all differ."""

    attribute: str
    """Qualified name."""
    requests: tuple[str, ...] = ()
    """Names of requests or "request/subrequest"; empty: all of the claim."""
    is_distinct: bool = False
    """distinctAttribute instead of matchAttribute."""

    def covers(self, request: str) -> bool:
        """Tell whether the devices of a request (or subrequest) are constrained."""
        return (
            not self.requests
            or request in self.requests
            or request.partition("/")[0] in self.requests
        )


@dataclass(frozen=True, slots=True)
class DeviceFilter:
    """A device class and the selectors of a request, which choose devices together."""

    device_class: str
    expressions: tuple[str, ...] = ()
    """CEL of the request, for people to read; nothing evaluates it any more."""


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter of a set: what a device takes of it, or what a pool has of it."""

    counter_set: str
    name: str
    amount: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """`capacity[name]` of a device with its requestPolicy."""

    name: str
    amount: int
    default: int | None = None
    """Taken where a request names no amount; None: all of it."""
    valid_values: tuple[int, ...] = ()
    """Amounts that may be taken, ascending; requests are rounded up to one."""
    minimum: int = 0
    maximum: int | None = None
    step: int = 0
    """Of validRange, counted from its minimum; 0: any amount."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """What devices have in common; two free ones of a pool with one kind are interchangeable."""

    filters: tuple[int, ...] = ()
    """Indices into `DeviceTable.filters` that surely select it, ascending."""
    counters: tuple[Counter, ...] = ()
    """Taken from its pool's counters while the device is in use."""
    capacity: tuple[Capacity, ...] = ()
    """Sorted by name."""
    is_shared: bool = False
    """allowMultipleAllocations: requests take capacity of it, not the whole device."""
    taints: tuple[Taint, ...] = ()
    """Those that keep requests away (NoSchedule, NoExecute)."""
    attributes: tuple[tuple[str, str], ...] = ()
    """(qualified name, type and value) of attributes that some constraint names."""
    binds_to_node: bool = False
    """Once allocated it is usable only on the node it was allocated for."""


@dataclass(frozen=True, slots=True)
class DevicePool:
    """A pool of one driver in its newest generation."""

    driver: str
    name: str
    is_complete: bool = True
    """Some slices are missing otherwise: nothing is allocated from it, and All fails beside it."""
    counters: tuple[Counter, ...] = ()
    """`sharedCounters`."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """`status.allocation.devices.results[]`."""

    device: int
    """Row of the device, or NO_DEVICE."""
    request: str = ""
    is_admin: bool = False
    consumed: tuple[tuple[str, int], ...] = ()
    """`consumedCapacity` of a shared device."""


@dataclass(frozen=True, slots=True)
class Reserver:
    """`status.reservedFor[]`: who uses a claim."""

    resource: str
    """"pods" or "podgroups"."""
    ref: str
    """namespace/name."""


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A ResourceClaim with an allocation, whoever still uses it."""

    ref: str
    devices: tuple[AllocatedDevice, ...] = ()
    reserved_for: tuple[Reserver, ...] = ()
    is_node_local: bool = True
    """Every device is of one node, or the allocation's node selector selects one."""


@dataclass(frozen=True, slots=True)
class ExtendedResource:
    """A resource that pods request and that stands for devices where no device plugin offers it."""

    resource: str
    filter: int
    nodes: tuple[int, ...]
    """Nodes where a request becomes that many devices, ascending."""


@dataclass(frozen=True, slots=True)
class DeviceTable:
    """All devices of the newest slices, one column an attribute.

    Axis D, sorted by driver, pool and name.
    """

    filters: tuple[DeviceFilter, ...] = ()
    pools: tuple[DevicePool, ...] = ()
    kinds: tuple[DeviceKind, ...] = ()
    reaches: tuple[tuple[int, ...], ...] = ()
    """Distinct sets of nodes from which devices can be used: indices, ascending."""
    names: tuple[str, ...] = ()
    """(D,) unique in a pool."""
    pool: tuple[int, ...] = ()
    """(D,) index into `pools`."""
    kind: tuple[int, ...] = ()
    """(D,) index into `kinds`."""
    reach: tuple[int, ...] = ()
    """(D,) index into `reaches`."""
    claims: tuple[AllocatedClaim, ...] = ()
    """By ref."""
    extended: tuple[ExtendedResource, ...] = ()
    """By resource."""

    def __len__(self) -> int:
        return len(self.names)

    def __bool__(self) -> bool:
        """Tell whether anything is known of devices; without slices all is unknown."""
        return bool(self.names or self.filters or self.claims)

    def held(self) -> Iterator[AllocatedDevice]:
        """Yield what claims hold of the devices listed here, admin access left out."""
        for claim in self.claims:
            for entry in claim.devices:
                if entry.device != NO_DEVICE and not entry.is_admin:
                    yield entry


def move_nodes(table: DeviceTable, moved: Sequence[int], num_nodes: int) -> DeviceTable:
    """Return the table for other nodes; devices of nodes that are gone are reached by none.

    Args:
      table: Its indices are those of the old nodes.
      moved: Old index -> new one, negative for nodes that are gone.
      num_nodes: New ones, those that were added among them: they have no devices of their own, but
        reach what every node reaches.
    """
    everywhere = tuple(range(len(moved)))

    def follow(nodes: tuple[int, ...]) -> tuple[int, ...]:
        if len(nodes) > 1 and nodes == everywhere:
            return tuple(range(num_nodes))
        return tuple(sorted(moved[n] for n in nodes if moved[n] >= 0))

    return replace(
        table,
        reaches=tuple(follow(reach) for reach in table.reaches),
        extended=tuple(
            replace(entry, nodes=tuple(sorted(moved[n] for n in entry.nodes if moved[n] >= 0)))
            for entry in table.extended
        ),
    )


NO_DEVICES: Final = DeviceTable()
"""Of a snapshot without DRA objects."""
