"""Device classes, and the filters that classes and requests choose devices by.

A filter is a class with the selectors of one request; equal ones are one. Expressions outside the
understood part of CEL select nothing, and whoever uses them is told.

Source: k8s.io/api resource/v1 DeviceClass, DeviceSelector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from data.importers.device_selector import parse_selector
from data.importers.fields import read_created, read_list, read_text
from topology.devices import DeviceFilter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext, RawObject
    from data.importers.device_selector import DeviceFacts, Selector

__all__ = ["API_GROUP", "DeviceClass", "FilterIndex", "read_classes"]

API_GROUP: Final = "resource.k8s.io"


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass object."""

    selectors: tuple[Selector, ...] = ()
    resource: str = ""
    """`spec.extendedResourceName`."""
    created: int = -1


@dataclass(slots=True)
class FilterIndex:
    """All filters in use, and the attributes that constraints compare."""

    classes: dict[str, DeviceClass] = field(default_factory=dict)
    has_slices: bool = False
    """Without slices nothing says which node has which devices."""
    filters: list[DeviceFilter] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    """Qualified names."""
    _index: dict[DeviceFilter, int] = field(default_factory=dict)
    _selectors: list[tuple[Selector, ...]] = field(default_factory=list)

    def add(self, device_class: str, expressions: tuple[str, ...] = ()) -> int | None:
        """Return the index of a filter, None where its class or all slices are missing."""
        if not self.has_slices or device_class not in self.classes:
            return None
        key = DeviceFilter(device_class, expressions)
        if key not in self._index:
            self._index[key] = len(self.filters)
            self.filters.append(key)
            own = tuple(parse_selector(e) for e in expressions)
            self._selectors.append((*self.classes[device_class].selectors, *own))
        return self._index[key]

    def is_understood(self, index: int) -> bool:
        """Tell whether every expression of a filter can be evaluated."""
        return all(selector.is_understood for selector in self._selectors[index])

    def list_attributes(self) -> list[str]:
        """Return the qualified names of all attributes that selectors and constraints ask about."""
        asked = {name for some in self._selectors for s in some for name in s.attributes}
        return sorted(asked | self.attributes)

    def select(self, facts: DeviceFacts) -> tuple[int, ...]:
        """Return the filters that surely select a device, ascending."""
        return tuple(
            index
            for index, selectors in enumerate(self._selectors)
            if all(selector.selects(facts) for selector in selectors)
        )


def read_classes(context: ImportContext) -> FilterIndex:
    """Read all DeviceClasses; the filter of each class alone comes first, by name."""
    index = FilterIndex(has_slices=bool(context.all_of(API_GROUP, "ResourceSlice")))

    def read(obj: RawObject) -> None:
        selectors = tuple(parse_selector(e) for e in read_expressions(obj.spec, "spec"))
        if not all(s.is_understood for s in selectors):
            context.warn(
                f"DeviceClass {obj.name} has a selector that is not understood; devices it alone "
                "decides on are not chosen"
            )
        resource = read_text(obj.spec, "extendedResourceName", at="spec")
        index.classes[obj.name] = DeviceClass(selectors, resource, read_created(obj))

    for obj in context.all_of(API_GROUP, "DeviceClass"):
        context.guard(obj, read)
    for name in sorted(index.classes):
        index.add(name)
    return index


def read_expressions(holder: Mapping[str, Any], at: str) -> tuple[str, ...]:
    """Return the expressions of `selectors[]`, in order."""
    return tuple(
        read_text(entry, "cel.expression", at=f"{at}.selectors[{i}]")
        for i, entry in enumerate(read_list(holder, "selectors", at=at))
    )
