"""What a pod asks for in effect: containers, sidecars, overhead, pod level, resize in place.

Source: k8s.io/component-helpers/resource PodRequests, as kube-scheduler calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from data.importers.base import ReadProblem
from data.quantities import parse_nanos, round_nanos
from topology.model import PODS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from data.wire import Container, ContainerStatus, PodSpecWire, PodStatus, Quantities

__all__ = ["drop_idle_statuses", "effective_requests", "is_deferred"]

Amounts = dict[str, int]
"""Resource -> nanos of its unit."""

_POD_LEVEL: Final = ("cpu", "memory")


def effective_requests(spec: PodSpecWire, status: PodStatus | None) -> tuple[tuple[str, int], ...]:
    """Return the effective requests of a pod, as `PodSpec.requests` wants them.

    A container's missing request is its limit, as the API server would fill it in.

    Args:
      spec: Containers and what the pod level adds.
      status: Statuses with resources of a pod that was or is being resized, else None.

    Raises:
      ReadProblem: A quantity cannot be read.
    """
    sets = [_aggregate(spec, desired := _Desired(spec))]
    pod_level = [_pod_level_requests(spec)]
    if status is not None:
        actual = _Reported(status, desired, "resources")
        allocated = _Reported(status, desired, "allocatedResources")
        sets += [_aggregate(spec, allocated), _aggregate(spec, actual)]
        if status.resources is not None:
            pod_level.append(_read(status.resources.requests, "status.resources.requests"))
        pod_level.append(_read(status.allocated_resources, "status.allocatedResources"))
        if _is_infeasible(status):
            del sets[0]
            if any(pod_level[1:]):
                del pod_level[0]
    total = _maximum(sets)
    at_pod_level = _maximum(pod_level)
    limits = _read(spec.resources.limits, "spec.resources.limits") if spec.resources else {}
    # A limit of the pod is its request where neither it nor a container states one.
    at_pod_level |= {
        name: amount
        for name, amount in limits.items()
        if name not in total and name not in at_pod_level
    }
    total |= {name: amount for name, amount in at_pod_level.items() if _is_pod_level(name)}
    for name, amount in _read(spec.overhead, "spec.overhead").items():
        total[name] = total.get(name, 0) + amount
    total.pop(PODS, None)
    requests = [(PODS, 1)]
    for name, amount in total.items():
        try:
            requests.append((name, round_nanos(amount, name)))
        except ValueError as error:
            raise ReadProblem(
                f"spec.containers[*].resources.requests[{name}]", str(error)
            ) from None
    return tuple(sorted((name, amount) for name, amount in requests if amount))


def drop_idle_statuses(spec: PodSpecWire, status: PodStatus) -> PodStatus | None:
    """Return the status if it may change the requests, None while it only repeats the spec.

    Almost every running pod repeats its spec, and pods must share their `PodSpec`.
    """
    if status.resources is not None or status.allocated_resources is not None:
        return status
    wanted = {c.name: c for some in (spec.containers, spec.init_containers) for c in some or ()}
    for some in (status.container_statuses, status.init_container_statuses):
        for reported in some or ():
            container = wanted.get(reported.name)
            if container is None or (
                reported.allocated_resources is None and reported.resources is None
            ):
                continue
            own = container.resources.requests if container.resources else None
            if reported.allocated_resources is not None and reported.allocated_resources != own:
                return status
            if reported.resources is not None and (reported.resources.requests or None) != own:
                return status
    return None


def _is_pod_level(resource: str) -> bool:
    return resource in _POD_LEVEL or resource.startswith("hugepages-")


def is_deferred(status: PodStatus) -> bool:
    """Tell whether a resize in place waits for room on the node (`PodResizePending`)."""
    return _resize_waits(status, "Deferred")


def _is_infeasible(status: PodStatus) -> bool:
    return _resize_waits(status, "Infeasible")


def _resize_waits(status: PodStatus, reason: str) -> bool:
    return any(
        c.type == "PodResizePending" and c.status == "True" and c.reason == reason
        for c in status.conditions or ()
    )


def _read(quantities: Quantities, field: str) -> Amounts:
    amounts = {}
    for name, text in (quantities or {}).items():
        try:
            amounts[name] = parse_nanos(text)
        except ValueError as error:
            raise ReadProblem(f"{field}[{name}]", str(error)) from None
    return amounts


def _pod_level_requests(spec: PodSpecWire) -> Amounts:
    return _read(spec.resources.requests, "spec.resources.requests") if spec.resources else {}


def _maximum(amounts: Sequence[Amounts]) -> Amounts:
    result: Amounts = {}
    for some in amounts:
        for name, amount in some.items():
            if amount > result.get(name, -1):
                result[name] = amount
    return result


def _add(left: Amounts, right: Amounts) -> Amounts:
    return {name: left.get(name, 0) + right.get(name, 0) for name in left.keys() | right.keys()}


class _Desired:
    """What the containers of the spec ask for."""

    def __init__(self, spec: PodSpecWire) -> None:
        self._amounts: dict[tuple[str, int], Amounts] = {}
        for kind, some in (
            ("containers", spec.containers),
            ("initContainers", spec.init_containers),
        ):
            for i, container in enumerate(some or ()):
                field = f"spec.{kind}[{i}].resources"
                resources = container.resources
                amounts: Amounts = {}
                if resources is not None:
                    amounts = _read(resources.limits, f"{field}.limits")
                    amounts |= _read(resources.requests, f"{field}.requests")
                self._amounts[kind, i] = amounts

    def __call__(self, kind: str, index: int, container: Container) -> Amounts:
        return self._amounts[kind, index]


class _Reported:
    """What statuses say the containers hold: actual falls back on allocated, that on desired.

    Of a pod whose resize is infeasible the desired amount counts only for containers of which no
    status speaks: they hold nothing else.
    """

    def __init__(self, status: PodStatus, desired: _Desired, field: str) -> None:
        self._desired = desired
        self._field = field
        self._is_infeasible = _is_infeasible(status)
        self._statuses: dict[str, tuple[str, ContainerStatus]] = {
            s.name: (f"status.{kind}[{i}]", s)
            for kind, some in (
                ("containerStatuses", status.container_statuses),
                ("initContainerStatuses", status.init_container_statuses),
            )
            for i, s in enumerate(some or ())
        }

    def __call__(self, kind: str, index: int, container: Container) -> Amounts:
        at, status = self._statuses.get(container.name, ("", None))
        if status is None or (status.allocated_resources is None and status.resources is None):
            return self._desired(kind, index, container)
        actual = status.resources.requests if status.resources is not None else None
        if self._field == "resources" and actual is not None:
            return _read(actual, f"{at}.resources.requests")
        if status.allocated_resources is not None:
            return _read(status.allocated_resources, f"{at}.allocatedResources")
        return {} if self._is_infeasible else self._desired(kind, index, container)


def _aggregate(spec: PodSpecWire, request_of: Callable[[str, int, Container], Amounts]) -> Amounts:
    """Return what the containers need together at the worst moment of the pod's life."""
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for i, container in enumerate(spec.init_containers or ()):
        request = request_of("initContainers", i, container)
        if container.restart_policy == "Always":
            sidecars = _add(sidecars, request)
            peaks.append(sidecars)
        else:
            peaks.append(_add(sidecars, request))
    running = sidecars
    for i, container in enumerate(spec.containers or ()):
        running = _add(running, request_of("containers", i, container))
    return _maximum([running, *peaks])
