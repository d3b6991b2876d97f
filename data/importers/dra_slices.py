"""ResourceSlices -> the devices of the newest generation of every pool.

Source: k8s.io/api resource/v1 (and v1beta1, whose devices keep all but the name under `basic`);
KEP-4815 for counters, KEP-5075 for capacity that several requests share.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from data.importers.base import ReadProblem
from data.importers.claim_requests import read_amount
from data.importers.constraints import read_node_terms
from data.importers.device_selector import DeviceFacts
from data.importers.dra_filters import API_GROUP
from data.importers.fields import read_int, read_list, read_map, read_text
from data.wire import NodeSelectorTerm
from topology.devices import Capacity, Counter, DeviceKind, DevicePool
from topology.selectors import matches_terms
from topology.taints import Taint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, RawObject
    from data.importers.dra_filters import FilterIndex

__all__ = ["DeviceId", "Inventory", "find_one_node", "read_slices"]

_BLOCKING: Final = ("NoSchedule", "NoExecute")

DeviceId = tuple[str, str, str]
"""(driver, pool, device)."""


@dataclass(slots=True)
class Inventory:
    """What the slices list, by name."""

    pools: dict[tuple[str, str], DevicePool] = field(default_factory=dict)
    devices: dict[DeviceId, tuple[DeviceKind, tuple[int, ...]]] = field(default_factory=dict)
    """Kind and the nodes that reach it: indices of nodes in order of name."""


def read_slices(context: ImportContext, filters: FilterIndex) -> Inventory:
    """Read the pools of all drivers; of an incomplete pool nothing is allocated."""
    pools: dict[tuple[str, str], list[tuple[int, int, RawObject]]] = defaultdict(list)

    def sort(obj: RawObject) -> None:
        pool = read_map(obj.spec, "pool", at="spec")
        key = (read_text(obj.spec, "driver", at="spec"), read_text(pool, "name", at="spec.pool"))
        if not all(key):
            raise ReadProblem("spec.pool.name", "driver or pool is missing; set both")
        generation = read_int(pool, "generation", 0, at="spec.pool")
        wanted = read_int(pool, "resourceSliceCount", 1, minimum=1, at="spec.pool")
        pools[key].append((generation, wanted, obj))

    for obj in context.all_of(API_GROUP, "ResourceSlice"):
        context.guard(obj, sort)
    inventory = Inventory()
    reader = _SliceReader(context, filters, inventory)
    for key, slices in sorted(pools.items(), key=lambda entry: entry[0]):
        newest = max(generation for generation, _, _ in slices)
        current = [(wanted, obj) for generation, wanted, obj in slices if generation == newest]
        reader.read_pool(key, [obj for _, obj in current], max(wanted for wanted, _ in current))
    incomplete = [f"{d}/{p}" for (d, p), pool in inventory.pools.items() if not pool.is_complete]
    if incomplete:
        context.warn(
            f"{len(incomplete)} device pools lack slices (first: {incomplete[0]}); their devices "
            "are not counted"
        )
    return inventory


class _SliceReader:
    def __init__(self, context: ImportContext, filters: FilterIndex, inventory: Inventory) -> None:
        self._context = context
        self._filters = filters
        self._inventory = inventory
        self._order = {name: n for n, name in enumerate(sorted(context.nodes))}
        self._everywhere = tuple(range(len(self._order)))
        self._reached: dict[bytes, tuple[int, ...]] = {}
        self._kinds: dict[tuple[str, bytes], DeviceKind] = {}
        # Most attributes (uuid, serial) tell devices apart that nobody asks to tell apart.
        self._asked = [(name, name.partition("/")) for name in filters.list_attributes()]
        self._shared: dict[DeviceKind, DeviceKind] = {}

    def read_pool(self, key: tuple[str, str], slices: list[RawObject], wanted: int) -> None:
        """Read one pool; counters may be declared in another slice than the devices."""
        counters: dict[tuple[str, str], int] = {}
        readable: list[RawObject] = []

        def read_counters(obj: RawObject) -> None:
            own = {
                (counter.counter_set, counter.name): counter.amount
                for i, entry in enumerate(read_list(obj.spec, "sharedCounters", at="spec"))
                for counter in _read_counters(
                    entry, read_text(entry, "name"), f"spec.sharedCounters[{i}]", is_offer=True
                )
            }
            counters.update(own)
            readable.append(obj)

        for obj in slices:
            self._context.guard(obj, read_counters)
        num_read = 0

        def read_devices(obj: RawObject) -> None:
            nonlocal num_read
            found = dict(self._read_devices(obj, key, counters))
            twice = found.keys() & self._inventory.devices.keys()
            if twice:
                raise ReadProblem(
                    "spec.devices", f"lists {min(twice)[2]}, as another slice does; remove one"
                )
            self._inventory.devices.update(found)
            num_read += 1

        for obj in readable:
            self._context.guard(obj, read_devices)
        offered = tuple(Counter(s, c, amount) for (s, c), amount in sorted(counters.items()))
        self._inventory.pools[key] = DevicePool(*key, num_read >= wanted, offered)

    def _read_devices(
        self, obj: RawObject, key: tuple[str, str], counters: Mapping[tuple[str, str], int]
    ) -> list[tuple[DeviceId, tuple[DeviceKind, tuple[int, ...]]]]:
        is_each = obj.spec.get("perDeviceNodeSelection") is True
        reach = () if is_each else self._find_reach(obj.spec)
        found = []
        for i, outer in enumerate(read_list(obj.spec, "devices", at="spec")):
            at = f"spec.devices[{i}]"
            device = read_map(outer, "basic", at=at) if "basic" in outer else outer
            name = read_text(outer, "name", at=at)
            if not name:
                raise ReadProblem(f"{at}.name", "is missing; set it")
            kind = self._read_kind(device, key[0], at)
            for counter in kind.counters:
                if (counter.counter_set, counter.name) not in counters:
                    raise ReadProblem(
                        f"{at}.consumesCounters",
                        f"names counter {counter.name} of set {counter.counter_set!r}, which the "
                        "pool does not share; add it to sharedCounters",
                    )
            found.append(((*key, name), (kind, self._find_reach(device) if is_each else reach)))
        return found

    def _read_kind(self, device: Mapping[str, Any], driver: str, at: str) -> DeviceKind:
        """Return the kind of a device; devices that say the same where it counts are read once."""
        attributes = read_map(device, "attributes", at=at)
        asked = {}
        for name, (domain, _, last) in self._asked:
            value = attributes.get(name)
            if value is None and domain == driver:
                value = attributes.get(last)
            if isinstance(value, dict) and value:
                asked[name] = next(iter(value.items()))
        said = [(n, v) for n, v in device.items() if n not in ("name", "attributes", "nodeName")]
        key = (driver, msgspec.msgpack.encode((asked, said)))
        if key not in self._kinds:
            kind = self._build_kind(device, driver, asked, at)
            self._kinds[key] = self._shared.setdefault(kind, kind)
        return self._kinds[key]

    def _build_kind(
        self, device: Mapping[str, Any], driver: str, plain: Mapping[str, Any], at: str
    ) -> DeviceKind:
        capacity = read_map(device, "capacity", at=at)
        amounts = {
            _qualify(name, driver): value.get("value") if isinstance(value, dict) else value
            for name, value in capacity.items()
        }
        facts = DeviceFacts(driver, {name: value for name, (_, value) in plain.items()}, amounts)
        counters = [
            counter
            for j, taken in enumerate(read_list(device, "consumesCounters", at=at))
            for counter in _read_counters(
                taken,
                read_text(taken, "counterSet"),
                f"{at}.consumesCounters[{j}]",
                is_offer=False,
            )
        ]
        return DeviceKind(
            filters=self._filters.select(facts),
            counters=tuple(sorted(counters, key=lambda c: (c.counter_set, c.name))),
            capacity=tuple(
                _read_capacity(_qualify(name, driver), value, f"{at}.capacity.{name}")
                for name, value in sorted(capacity.items(), key=lambda c: _qualify(c[0], driver))
            ),
            is_shared=device.get("allowMultipleAllocations") is True,
            taints=tuple(
                Taint(
                    read_text(taint, "key", at=at),
                    read_text(taint, "value", at=at),
                    read_text(taint, "effect", at=at),
                )
                for taint in read_list(device, "taints", at=at)
                if taint.get("effect") in _BLOCKING
            ),
            attributes=tuple(
                (name, f"{kind}:{value}")
                for name, (kind, value) in sorted(plain.items())
                # Lists of values (alpha) are compared in another way; they match nothing here.
                if name in self._filters.attributes and not isinstance(value, list | dict)
            ),
            binds_to_node=device.get("bindsToNode") is True,
        )

    def _find_reach(self, holder: Mapping[str, Any]) -> tuple[int, ...]:
        name = read_text(holder, "nodeName", at="spec")
        if name:
            return (self._order[name],) if name in self._order else ()
        if holder.get("allNodes") is True:
            return self._everywhere
        selector = holder.get("nodeSelector")
        if selector is None:
            return ()
        key = msgspec.json.encode(selector)
        if key not in self._reached:
            self._reached[key] = _select_nodes(selector, self._context, self._order)
        return self._reached[key]


def _select_nodes(
    selector: Mapping[str, Any], context: ImportContext, order: Mapping[str, int]
) -> tuple[int, ...]:
    terms = read_list(selector, "nodeSelectorTerms", at="spec.nodeSelector")
    try:
        wires = msgspec.convert(terms, list[NodeSelectorTerm])
    except msgspec.ValidationError as error:
        raise ReadProblem("spec.nodeSelector", f"{error}; correct it") from None
    wanted = read_node_terms(wires, set())
    return tuple(order[n] for n in sorted(order) if matches_terms(wanted, context.nodes[n]))


def find_one_node(selector: Mapping[str, Any] | None, context: ImportContext) -> bool:
    """Tell whether a node selector selects exactly one node of the snapshot."""
    if selector is None:
        return False
    order = {name: n for n, name in enumerate(sorted(context.nodes))}
    return len(_select_nodes(selector, context, order)) == 1


def _read_counters(
    entry: Mapping[str, Any], counter_set: str, at: str, *, is_offer: bool
) -> list[Counter]:
    found = []
    for name, counter in sorted(read_map(entry, "counters", at=at).items()):
        value = counter.get("value") if isinstance(counter, dict) else None
        amount = read_amount(value, f"{at}.counters.{name}", is_offer=is_offer)
        found.append(Counter(counter_set, name, amount))
    return found


def _read_capacity(name: str, entry: Any, at: str) -> Capacity:
    if not isinstance(entry, dict):
        return Capacity(name, read_amount(entry, at, is_offer=True))
    amount = read_amount(entry.get("value"), f"{at}.value", is_offer=True)
    policy = read_map(entry, "requestPolicy", at=at)
    where = f"{at}.requestPolicy"

    def read(value: object, part: str) -> int:
        return read_amount(value, f"{where}.{part}", is_offer=False)

    values = policy.get("validValues") or []
    if not isinstance(values, list):
        raise ReadProblem(f"{where}.validValues", "is not a list; make it one")
    limits = read_map(policy, "validRange", at=where)
    default, most, step = policy.get("default"), limits.get("max"), limits.get("step")
    return Capacity(
        name,
        amount,
        None if default is None else read(default, "default"),
        tuple(sorted(read(value, "validValues") for value in values)),
        read(limits["min"], "validRange.min") if limits.get("min") is not None else 0,
        None if most is None else read(most, "validRange.max"),
        0 if step is None else read(step, "validRange.step"),
    )


def _qualify(name: str, driver: str) -> str:
    return name if "/" in name else f"{driver}/{name}"
