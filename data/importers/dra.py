"""Devices of Dynamic Resource Allocation: how many of each class a node has, and how many are free.

Only devices of one node are counted. Devices of which only some can be used together (partitions
that share counters) count as many as fit together, smallest first.

Source: k8s.io/api resource/v1; kube-scheduler plugin dynamicresources.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from data.importers.base import ReadProblem
from data.importers.claims import API_GROUP
from data.importers.constraints import read_node_terms
from data.importers.device_selector import DeviceFacts, parse_selector
from data.importers.fields import read_created, read_int, read_list, read_map, read_text
from data.importers.trees import is_finished
from data.quantities import parse_nanos
from data.wire import NodeSelectorTerm
from topology.selectors import matches_terms

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from data.importers.base import ImportContext, RawObject
    from data.importers.device_selector import Selector

__all__ = ["count_devices"]

_IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
_BLOCKING: Final = ("NoSchedule", "NoExecute")

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""
CounterId = tuple[str, str, str, str]
"""(driver, pool, counter set, counter)."""


@dataclass(slots=True)
class _Device:
    node: str
    """"" when it is not of one node."""
    facts: DeviceFacts
    counters: dict[CounterId, int]
    """Nanos of each counter it takes."""
    is_tainted: bool = False
    is_shared: bool = False


@dataclass(slots=True)
class _Class:
    selectors: list[Selector] = field(default_factory=list)
    resource: str = ""
    created: int = -1


@dataclass(slots=True)
class _Inventory:
    devices: dict[DeviceId, _Device] = field(default_factory=dict)
    counters: dict[CounterId, int] = field(default_factory=dict)


def count_devices(context: ImportContext) -> None:
    """Add the device counts of every DeviceClass and node."""
    classes = _read_classes(context)
    inventory = _read_inventory(context)
    used = _find_used(context)
    room = Counter(inventory.counters)
    for key in used & inventory.devices.keys():
        room.subtract(inventory.devices[key].counters)
    owners: dict[DeviceId, str] = {}
    overlaps: set[tuple[str, str]] = set()
    for name, device_class in sorted(classes.items()):
        by_node: dict[str, list[DeviceId]] = {}
        for key, device in inventory.devices.items():
            if device.node and all(s.selects(device.facts) for s in device_class.selectors):
                by_node.setdefault(device.node, []).append(key)
                if owners.setdefault(key, name) != name:
                    overlaps.add((owners[key], name))
        for node, keys in sorted(by_node.items()):
            chosen = [inventory.devices[key] for key in sorted(keys)]
            open_ones = [
                inventory.devices[key]
                for key in sorted(keys)
                if key not in used and not inventory.devices[key].is_tainted
            ]
            context.devices.append(
                (
                    node,
                    name,
                    _count_together(chosen, inventory.counters),
                    _count_together(open_ones, room),
                )
            )
    for first, second in sorted(overlaps):
        context.warn(
            f"device classes {first} and {second} select the same devices; each counts them as its "
            "own"
        )
    _offer_extended(context, classes)


def _count_together(devices: Iterable[_Device], counters: Mapping[CounterId, int]) -> int:
    """Return how many devices can be in use at once, those that take least first."""
    room: dict[CounterId, int] = {}
    count = 0
    for device in sorted(devices, key=lambda d: sum(d.counters.values())):
        left = {
            key: room.get(key, counters.get(key, 0)) - amount
            for key, amount in device.counters.items()
        }
        if all(amount >= 0 for amount in left.values()):
            room |= left
            count += 1
    return count


def _read_classes(context: ImportContext) -> dict[str, _Class]:
    classes: dict[str, _Class] = {}

    def read(obj: RawObject) -> None:
        selectors = []
        for i, entry in enumerate(read_list(obj.spec, "selectors", at="spec")):
            expression = read_text(entry, "cel.expression", at=f"spec.selectors[{i}]")
            selectors.append(parse_selector(expression))
        if not all(s.is_understood for s in selectors):
            context.warn(
                f"DeviceClass {obj.name} has a selector that is not understood; devices it alone "
                "decides on are not counted"
            )
        resource = read_text(obj.spec, "extendedResourceName", at="spec")
        classes[obj.name] = _Class(selectors, resource, read_created(obj))

    for obj in context.all_of(API_GROUP, "DeviceClass"):
        context.guard(obj, read)
    return classes


def _read_inventory(context: ImportContext) -> _Inventory:
    """Read the pools whose newest generation is complete."""
    pools: dict[tuple[str, str], list[tuple[int, int, RawObject]]] = {}

    def sort(obj: RawObject) -> None:
        pool = read_map(obj.spec, "pool", at="spec")
        key = (read_text(obj.spec, "driver", at="spec"), read_text(pool, "name", at="spec.pool"))
        if not all(key):
            raise ReadProblem("spec.pool.name", "driver or pool is missing; set both")
        generation = read_int(pool, "generation", 0, at="spec.pool")
        wanted = read_int(pool, "resourceSliceCount", 1, minimum=1, at="spec.pool")
        pools.setdefault(key, []).append((generation, wanted, obj))

    for obj in context.all_of(API_GROUP, "ResourceSlice"):
        context.guard(obj, sort)
    inventory = _Inventory()
    incomplete: list[str] = []
    selected: dict[bytes, str] = {}
    for (driver, pool), slices in sorted(pools.items()):
        newest = max(generation for generation, _, _ in slices)
        current = [(wanted, obj) for generation, wanted, obj in slices if generation == newest]
        if len(current) < max(wanted for wanted, _ in current):
            incomplete.append(f"{driver}/{pool}")
            continue
        read_slice = partial(
            _read_slice, pool=pool, inventory=inventory, context=context, selected=selected
        )
        for _, obj in current:
            context.guard(obj, read_slice)
    if incomplete:
        context.warn(
            f"{len(incomplete)} device pools lack slices (first: {incomplete[0]}); their devices "
            "are not counted"
        )
    if remote := sum(not device.node for device in inventory.devices.values()):
        context.warn(f"{remote} devices are not of one node; they are not counted")
    if shared := sum(device.is_shared for device in inventory.devices.values()):
        context.warn(
            f"{shared} devices allow several allocations; one that is allocated counts as used up"
        )
    return inventory


def _read_slice(
    obj: RawObject,
    pool: str,
    inventory: _Inventory,
    context: ImportContext,
    selected: dict[bytes, str],
) -> None:
    driver = read_text(obj.spec, "driver", at="spec")
    for entry in read_list(obj.spec, "sharedCounters", at="spec"):
        name = read_text(entry, "name")
        for counter, amount in _read_counters(entry).items():
            inventory.counters[driver, pool, name, counter] = amount
    is_each = obj.spec.get("perDeviceNodeSelection") is True
    node = "" if is_each else _find_node(obj.spec, context, selected)
    for i, outer in enumerate(read_list(obj.spec, "devices", at="spec")):
        at = f"spec.devices[{i}]"
        # v1beta1 keeps everything but the name under `basic`.
        device = read_map(outer, "basic", at=at) if "basic" in outer else outer
        name = read_text(outer, "name", at=at)
        if not name:
            raise ReadProblem(f"{at}.name", "is missing; set it")
        counters = {
            (driver, pool, read_text(taken, "counterSet"), counter): amount
            for taken in read_list(device, "consumesCounters", at=at)
            for counter, amount in _read_counters(taken).items()
        }
        inventory.devices[driver, pool, name] = _Device(
            _find_node(device, context, selected) if is_each else node,
            DeviceFacts(
                driver,
                _read_attributes(read_map(device, "attributes", at=at), driver),
                {
                    _qualify(key, driver): value.get("value") if isinstance(value, dict) else value
                    for key, value in read_map(device, "capacity", at=at).items()
                },
            ),
            counters,
            is_tainted=any(
                taint.get("effect") in _BLOCKING for taint in read_list(device, "taints", at=at)
            ),
            is_shared=device.get("allowMultipleAllocations") is True,
        )


def _read_counters(entry: Mapping[str, Any]) -> dict[str, int]:
    amounts = {}
    for name, counter in read_map(entry, "counters").items():
        try:
            amounts[name] = parse_nanos(counter["value"])
        except (ValueError, TypeError, KeyError) as error:
            raise ReadProblem(f"spec.counters.{name}", f"{error}; correct it") from None
    return amounts


def _qualify(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def _read_attributes(attributes: Mapping[str, Any], driver: str) -> dict[str, Any]:
    return {
        _qualify(name, driver): next(iter(value.values()), None)
        for name, value in attributes.items()
        if isinstance(value, dict)
    }


def _find_node(
    holder: Mapping[str, Any], context: ImportContext, selected: dict[bytes, str]
) -> str:
    """Return the one node that reaches a slice or device, "" when there is not exactly one."""
    name = read_text(holder, "nodeName", at="spec")
    if name:
        return name
    selector = holder.get("nodeSelector")
    if selector is None:
        return ""
    key = msgspec.json.encode(selector)
    if key not in selected:
        wires = msgspec.convert(
            read_list(selector, "nodeSelectorTerms", at="spec.nodeSelector"),
            list[NodeSelectorTerm],
        )
        terms = read_node_terms(wires, set())
        reached = [n.name for n in context.nodes.values() if matches_terms(terms, n)]
        selected[key] = reached[0] if len(reached) == 1 else ""
    return selected[key]


def _find_used(context: ImportContext) -> set[DeviceId]:
    """Return the devices of every allocation, whether or not a pod still uses it."""
    used: set[DeviceId] = set()

    def read(obj: RawObject) -> None:
        for result in read_list(obj.status, "allocation.devices.results", at="status"):
            if result.get("adminAccess") is not True:
                driver, pool = read_text(result, "driver"), read_text(result, "pool")
                used.add((driver, pool, read_text(result, "device")))

    for obj in context.all_of(API_GROUP, "ResourceClaim"):
        context.guard(obj, read)
    return used


def _offer_extended(context: ImportContext, classes: Mapping[str, _Class]) -> None:
    """Let nodes offer the extended resources that a device class stands for.

    Where a device plugin offers the resource its counter is used. Elsewhere the node gets what is
    free of the class, plus what its pods already took from it, since their requests are charged.
    """
    winners: dict[str, str] = {}
    # Of several classes the newest stands for the resource, then the first by name.
    for name in sorted(classes, key=lambda n: (-classes[n].created, n)):
        winners.setdefault(f"{_IMPLICIT}{name}", name)
        if classes[name].resource:
            winners.setdefault(classes[name].resource, name)
    asked: dict[str, Counter[str]] = {}
    for pod in context.pods.values():
        for resource, amount in pod.row.spec.requests:
            if resource in winners:
                taken = asked.setdefault(resource, Counter())
                if pod.row.node and not is_finished(pod):
                    taken[pod.row.node] += amount
    for resource, taken in sorted(asked.items()):
        offered = {
            node: free for node, name, _, free in context.devices if name == winners[resource]
        }
        lacking = [n for n in offered if n in context.nodes]
        lacking = [n for n in lacking if resource not in context.nodes[n].allocatable]
        for name in lacking:
            node = context.nodes[name]
            amount = offered[name] + taken[name]
            context.nodes[name] = replace(node, allocatable={**node.allocatable, resource: amount})
        if lacking:
            context.warn(
                f"{len(lacking)} nodes offer {resource} through device class {winners[resource]}; "
                "kube-scheduler does not get such devices back by preemption"
            )
