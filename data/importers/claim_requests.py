"""`spec.devices` of a ResourceClaim -> what it asks for, selectors turned into filters.

Source: k8s.io/api resource/v1 DeviceClaim; v1beta1, whose requests have no `exactly`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.dra_filters import read_expressions
from data.importers.fields import read_int, read_list, read_map, read_text
from data.quantities import parse_nanos
from topology.devices import ALL_DEVICES, DeviceConstraint, DeviceRequest, RequestChoice
from topology.taints import Toleration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.dra_filters import FilterIndex

__all__ = ["UNCOUNTED", "read_amount", "read_constraints", "read_requests"]

UNCOUNTED: Final = "cannot be counted"
"""Part of every reason that says that DeviceClass or ResourceSlice objects are missing."""
_NANOS_OF_AMOUNT: Final = 10**6


def read_requests(
    spec: Mapping[str, Any], at: str, filters: FilterIndex, unmodelled: set[str]
) -> tuple[RequestChoice, ...]:
    """Return the requests of a claim; those for unknown classes are left out, with a reason.

    Args:
      spec: `spec` of the claim.
      at: Its path.
      filters: Known classes; takes the filters of the requests.
      unmodelled: Takes reasons.

    Raises:
      ReadProblem: A request cannot be read.
    """
    choices = []
    for i, request in enumerate(read_list(spec, "devices.requests", at=at)):
        where = f"{at}.devices.requests[{i}]"
        name = read_text(request, "name", at=where) or str(i)
        options = read_list(request, "firstAvailable", at=where)
        if options:
            found = [
                _read_one(
                    f"{name}/{read_text(option, 'name', at=where) or j}",
                    option,
                    f"{where}.firstAvailable[{j}]",
                    filters,
                    unmodelled,
                )
                for j, option in enumerate(options)
            ]
        elif "exactly" in request:
            exactly = read_map(request, "exactly", at=where)
            found = [_read_one(name, exactly, f"{where}.exactly", filters, unmodelled)]
        else:
            found = [_read_one(name, request, where, filters, unmodelled)]
        known = tuple(option for option in found if option is not None)
        # With an alternative of an unknown class it is open whether any other is needed.
        if len(known) == len(found):
            choices.append(RequestChoice(name, known))
    return tuple(choices)


def _read_one(
    name: str,
    request: Mapping[str, Any],
    at: str,
    filters: FilterIndex,
    unmodelled: set[str],
) -> DeviceRequest | None:
    device_class = read_text(request, "deviceClassName", at=at)
    if not device_class:
        raise ReadProblem(f"{at}.deviceClassName", "is missing; name a DeviceClass")
    mode = read_text(request, "allocationMode", "ExactCount", at=at)
    if mode not in ("ExactCount", "All"):
        raise ReadProblem(f"{at}.allocationMode", f"is {mode}; write ExactCount or All")
    count = ALL_DEVICES if mode == "All" else read_int(request, "count", 1, minimum=1, at=at)
    expressions = read_expressions(request, at)
    capacity = read_map(request, "capacity.requests", at=at)
    tolerations = tuple(
        Toleration(
            read_text(entry, "key", at=at),
            read_text(entry, "operator", "Equal", at=at),
            read_text(entry, "value", at=at),
            read_text(entry, "effect", at=at),
        )
        for entry in read_list(request, "tolerations", at=at)
    )
    asked = tuple(
        sorted(
            (key, read_amount(value, f"{at}.capacity.requests.{key}", is_offer=False))
            for key, value in capacity.items()
        )
    )
    index = filters.add(device_class, expressions)
    if index is None:
        unmodelled.add(f"devices of class {device_class} {UNCOUNTED} in this snapshot")
        return None
    if not filters.is_understood(index):
        unmodelled.add(
            "a resource claim selects devices by an expression that is not understood; devices it "
            "alone decides on are not chosen"
        )
    is_admin = request.get("adminAccess") is True
    return DeviceRequest(name, index, count, is_admin, tolerations, asked)


def read_constraints(
    spec: Mapping[str, Any], at: str, filters: FilterIndex
) -> tuple[DeviceConstraint, ...]:
    """Return the constraints of a claim; the attributes they compare are noted in `filters`.

    Raises:
      ReadProblem: A constraint names no attribute, or two.
    """
    found = []
    for i, entry in enumerate(read_list(spec, "devices.constraints", at=at)):
        where = f"{at}.devices.constraints[{i}]"
        match = read_text(entry, "matchAttribute", at=where)
        distinct = read_text(entry, "distinctAttribute", at=where)
        if bool(match) == bool(distinct):
            raise ReadProblem(
                f"{where}.matchAttribute", "name one attribute, to match or to be distinct"
            )
        names = entry.get("requests") or []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ReadProblem(f"{where}.requests", "is not a list of names; make it one")
        filters.attributes.add(match or distinct)
        found.append(DeviceConstraint(match or distinct, tuple(sorted(names)), bool(distinct)))
    return tuple(found)


def read_amount(value: Any, at: str, *, is_offer: bool) -> int:
    """Return a quantity in thousandths, offers rounded down and requests up.

    Raises:
      ReadProblem: It is no quantity.
    """
    try:
        nanos = parse_nanos(value)
    except (ValueError, TypeError) as error:
        raise ReadProblem(at, f"{error}; correct it") from None
    return nanos // _NANOS_OF_AMOUNT if is_offer else -(-nanos // _NANOS_OF_AMOUNT)
