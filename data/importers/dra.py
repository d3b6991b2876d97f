"""Dynamic Resource Allocation: devices, what claims hold of them, and what stands for resources.

Source: k8s.io/api resource/v1; kube-scheduler plugin dynamicresources. An allocation counts until
the claim controller clears it, whoever still uses the claim.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from data.importers.claim_requests import read_amount
from data.importers.dra_filters import API_GROUP
from data.importers.dra_slices import find_one_node, read_slices
from data.importers.fields import read_list, read_map, read_text
from data.importers.trees import is_finished
from topology.device_counts import count_of_filter
from topology.devices import (
    NO_DEVICE,
    AllocatedClaim,
    AllocatedDevice,
    DeviceTable,
    ExtendedResource,
    Reserver,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, RawObject
    from data.importers.dra_filters import FilterIndex
    from data.importers.dra_slices import DeviceId, Inventory

__all__ = ["read_devices"]

_IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"


def read_devices(context: ImportContext, filters: FilterIndex) -> None:
    """Add the device table, and the extended resources that nodes offer through devices."""
    inventory = read_slices(context, filters)
    table = _build_table(inventory, filters)
    rows = {device: d for d, device in enumerate(sorted(inventory.devices))}
    table = replace(table, claims=_read_allocations(context, table, rows))
    _warn_of_overlaps(context, table)
    context.devices = _offer_extended(context, table, filters)


def _build_table(inventory: Inventory, filters: FilterIndex) -> DeviceTable:
    pools = {key: i for i, key in enumerate(sorted(inventory.pools))}
    devices = sorted(inventory.devices.items(), key=lambda entry: entry[0])
    kinds: dict[Any, int] = {}
    reaches: dict[tuple[int, ...], int] = {}
    kind = tuple(kinds.setdefault(k, len(kinds)) for _, (k, _) in devices)
    reach = tuple(reaches.setdefault(r, len(reaches)) for _, (_, r) in devices)
    return DeviceTable(
        filters=tuple(filters.filters),
        pools=tuple(inventory.pools[key] for key in pools),
        kinds=tuple(kinds),
        reaches=tuple(reaches),
        names=tuple(name for (_, _, name), _ in devices),
        pool=tuple(pools[driver, pool] for (driver, pool, _), _ in devices),
        kind=kind,
        reach=reach,
    )


def _read_allocations(
    context: ImportContext, table: DeviceTable, rows: Mapping[DeviceId, int]
) -> tuple[AllocatedClaim, ...]:
    found: list[AllocatedClaim] = []
    unknown: list[str] = []

    def read(obj: RawObject) -> None:
        if obj.status.get("allocation") is None:
            return
        entries = []
        for i, result in enumerate(
            read_list(obj.status, "allocation.devices.results", at="status")
        ):
            at = f"status.allocation.devices.results[{i}]"
            key = (
                read_text(result, "driver", at=at),
                read_text(result, "pool", at=at),
                read_text(result, "device", at=at),
            )
            device = rows.get(key, NO_DEVICE)
            if device == NO_DEVICE and rows:
                unknown.append("/".join(key))
            consumed = read_map(result, "consumedCapacity", at=at)
            entries.append(
                AllocatedDevice(
                    device,
                    read_text(result, "request", at=at),
                    result.get("adminAccess") is True,
                    tuple(
                        sorted(
                            (
                                name if "/" in name else f"{key[0]}/{name}",
                                read_amount(value, f"{at}.consumedCapacity.{name}", is_offer=False),
                            )
                            for name, value in consumed.items()
                        )
                    ),
                )
            )
        reservers = tuple(
            Reserver(
                read_text(entry, "resource", at="status.reservedFor"),
                f"{obj.namespace}/{read_text(entry, 'name', at='status.reservedFor')}",
            )
            for entry in read_list(obj.status, "reservedFor", at="status")
        )
        is_local = all(
            e.device != NO_DEVICE and len(table.reaches[table.reach[e.device]]) == 1
            for e in entries
        )
        if not is_local:
            selector = read_map(obj.status, "allocation", at="status").get("nodeSelector")
            is_local = find_one_node(selector, context)
        found.append(AllocatedClaim(obj.ref, tuple(entries), reservers, is_local))

    for obj in context.all_of(API_GROUP, "ResourceClaim"):
        context.guard(obj, read)
    if unknown:
        context.warn(
            f"{len(unknown)} allocated devices are in no ResourceSlice of the newest generation "
            f"(first: {min(unknown)}); they are left out: add kubectl get resourceslices"
        )
    return tuple(sorted(found, key=lambda claim: claim.ref))


def _warn_of_overlaps(context: ImportContext, table: DeviceTable) -> None:
    """Say which classes count the same devices, since their counts cannot be added up."""
    alone = {f for f, entry in enumerate(table.filters) if not entry.expressions}
    pairs = set()
    for kind in table.kinds:
        names = sorted(table.filters[f].device_class for f in kind.filters if f in alone)
        pairs |= {(names[0], other) for other in names[1:]}
    for first, second in sorted(pairs):
        context.warn(
            f"device classes {first} and {second} select the same devices; each counts them as its "
            "own"
        )


def _offer_extended(
    context: ImportContext, table: DeviceTable, filters: FilterIndex
) -> DeviceTable:
    """Let nodes offer the extended resources that a device class stands for.

    Where a device plugin offers the resource its counter is used. Elsewhere the node gets what is
    free of the class, plus what its pods already took from it, since their requests are charged;
    which devices those are is decided when a pod is placed.
    """
    winners: dict[str, str] = {}
    # Of several classes the newest stands for the resource, then the first by name.
    for name in sorted(filters.classes, key=lambda n: (-filters.classes[n].created, n)):
        winners.setdefault(f"{_IMPLICIT}{name}", name)
        if filters.classes[name].resource:
            winners.setdefault(filters.classes[name].resource, name)
    asked: dict[str, Counter[str]] = {}
    for pod in context.pods.values():
        for resource, amount in pod.row.spec.requests:
            if resource in winners:
                taken = asked.setdefault(resource, Counter())
                if pod.row.node and not is_finished(pod):
                    taken[pod.row.node] += amount
    names = sorted(context.nodes)
    backed = []
    for resource, taken in sorted(asked.items()):
        chosen = filters.add(winners[resource])
        if chosen is None:
            continue
        offered = count_of_filter(table, chosen)
        lacking = [
            n for n in sorted(offered) if resource not in context.nodes[names[n]].allocatable
        ]
        for n in lacking:
            node = context.nodes[names[n]]
            amount = offered[n][1] + taken[names[n]]
            context.nodes[names[n]] = replace(
                node, allocatable={**node.allocatable, resource: amount}
            )
        if lacking:
            backed.append(ExtendedResource(resource, chosen, tuple(lacking)))
            context.warn(
                f"{len(lacking)} nodes offer {resource} through device class {winners[resource]}; "
                "kube-scheduler does not get such devices back by preemption"
            )
    return replace(table, extended=tuple(backed))
