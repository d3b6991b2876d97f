"""Which devices the claims on one node get: exact, by depth-first search with undo.

Requests are served in order, alternatives of `firstAvailable` in order, devices by driver, pool and
name, so the first answer is the one that the scheduler's own allocator finds when claims come one
by one. Where that fails, other choices for earlier claims are tried. Devices of one kind in one
state stand for one another, and so do equal claims, so that neither is permuted in vain.

Source: k8s.io/dynamic-resource-allocation/structured (allocator).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from optimizer.devices.needs import Demand
from optimizer.devices.state import DeviceState, Grant
from topology.device_counts import count_together, list_loads
from topology.devices import ALL_DEVICES, RequestChoice
from topology.selectors import tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.devices import DeviceConstraint, DeviceKind, DeviceRequest

__all__ = ["allocate", "count_open", "find_consumed"]

MAX_STEPS: Final = 4_000
"""Devices tried for the claims of one node; beyond, they count as not fitting."""
MAX_JOINT: Final = 250
"""Devices asked for up to which earlier choices are reconsidered."""


def allocate(
    state: DeviceState, node: int, demands: Sequence[Demand]
) -> list[tuple[Grant, ...]] | None:
    """Allocate claims on one node, all or none; the state takes what is found.

    Args:
      state: Use of all devices.
      node: Where the pods are.
      demands: One entry a claim, in the order in which they are served.

    Returns:
      The grants of each demand, or None (and nothing taken) when they do not fit together.
    """
    found = _allocate_in_turn(state, node, demands)
    if found is not None or len(demands) < 2 or _count_least(demands) > MAX_JOINT:
        return found
    if not _may_fit(state, node, demands):
        return None
    order = _order_hardest(state, demands)
    together = _Search(state, node, [demands[i] for i in order]).run()
    if together is None:
        return None
    return [grants for _, grants in sorted(zip(order, together, strict=True))]


def _order_hardest(state: DeviceState, demands: Sequence[Demand]) -> list[int]:
    """Return the order in which demands leave one another most room: large takers, then alike."""
    first: dict[Demand, tuple[int, int]] = {}
    for i, demand in enumerate(demands):
        if demand not in first:
            first[demand] = (-_weigh(state, demand), i)
    return sorted(range(len(demands)), key=lambda i: (first[demands[i]], i))


def _weigh(state: DeviceState, demand: Demand) -> int:
    """Return the least that a demand takes of all counters together."""
    weight = 0
    for choice in demand.requests:
        least = [
            max(request.count, 1) * min(sum(c.amount for c in kind.counters) for kind in kinds)
            for request in choice.alternatives
            if (kinds := [k for k in state.table.kinds if request.filter in k.filters])
        ]
        weight += min(least, default=0)
    return weight


def _allocate_in_turn(
    state: DeviceState, node: int, demands: Sequence[Demand]
) -> list[tuple[Grant, ...]] | None:
    """Serve one claim after another, as the scheduler does pod by pod."""
    done: list[tuple[Grant, ...]] = []
    for demand in demands:
        request = _find_plain(demand)
        if request is not None:
            found = _take_first(state, node, request)
        else:
            found = _Search(state, node, [demand]).run()
        if found is None:
            for grants in done:
                state.give_back(grants)
            return None
        done += found
    return done


def _find_plain(demand: Demand) -> DeviceRequest | None:
    """Return the one request of a demand for which any of its devices will do."""
    if demand.constraints or demand.nodes or len(demand.requests) != 1:
        return None
    (request, *others) = demand.requests[0].alternatives
    if others or request.is_admin or request.capacity or request.count == ALL_DEVICES:
        return None
    return request


def _take_first(
    state: DeviceState, node: int, request: DeviceRequest
) -> list[tuple[Grant, ...]] | None:
    """Take the first free devices, as a search would where none has a reason to wait.

    Devices that share counters or capacity are left to the search.
    """
    table = state.table
    offers = _list_offers(state, request)
    grants: list[Grant] = []
    for d in state.list_reachable(node):
        k = table.kind[d]
        if offers[k] is None:
            continue
        if table.kinds[k].counters or table.kinds[k].is_shared:
            return _Search(state, node, [Demand((RequestChoice(request.name, (request,)),))]).run()
        if not state.users[d]:
            grants.append(Grant(d, request.name))
            if len(grants) == request.count:
                state.take(grants)
                return [tuple(grants)]
    return None


def _count_least(demands: Iterable[Demand]) -> int:
    return sum(
        min(max(request.count, 1) for request in choice.alternatives)
        for demand in demands
        for choice in demand.requests
    )


def _may_fit(state: DeviceState, node: int, demands: Sequence[Demand]) -> bool:
    """Tell whether there are enough devices in number; errs upwards only."""
    asked: dict[DeviceRequest, int] = {}
    for demand in demands:
        for choice in demand.requests:
            if len(choice.alternatives) == 1:
                request = choice.alternatives[0]
                asked[request] = asked.get(request, 0) + request.count
    return all(
        request.is_admin or count <= (found if found is not None else count)
        for request, count in asked.items()
        for found in (count_open(state, node, request),)
    )


def count_open(state: DeviceState, node: int, request: DeviceRequest) -> int | None:
    """Count the devices a request could get on a node at once, of whatever pools.

    Returns:
      The count, None where devices are shared, so that their number says nothing.
    """
    table = state.table
    by_pool: dict[int, list[int]] = {}
    offers = _list_offers(state, request)
    for d in state.list_reachable(node):
        if offers[table.kind[d]] is None:
            continue
        if table.kinds[table.kind[d]].is_shared:
            return None
        if state.is_open(d):
            by_pool.setdefault(table.pool[d], []).append(d)
    count = 0
    for p, devices in by_pool.items():
        count += count_together(list_loads(table, devices), state.room[p])
    return count


def _list_offers(
    state: DeviceState, request: DeviceRequest
) -> list[tuple[tuple[str, int], ...] | None]:
    """Return what a request would take of a device of each kind, None where it may not have it."""
    if request not in state.offers:
        state.offers[request] = [find_consumed(kind, request) for kind in state.table.kinds]
    return state.offers[request]


def find_consumed(kind: DeviceKind, request: DeviceRequest) -> tuple[tuple[str, int], ...] | None:
    """Return what a request takes of a shared device's capacity, None if it may not have it.

    A device that is not shared is taken whole, so nothing is consumed, but it must be large enough.

    Source: KEP-5075: requests are rounded up to what requestPolicy allows; without a request the
      policy's default is taken, without a policy all of it.
    """
    if request.filter not in kind.filters:
        return None
    if any(not any(tolerates(t, taint) for t in request.tolerations) for taint in kind.taints):
        # Admin access is not exempt: a tainted device needs its toleration all the same.
        return None
    asked = dict(request.capacity)
    if asked.keys() - {c.name for c in kind.capacity}:
        return None
    consumed = []
    for capacity in kind.capacity:
        amount = asked.get(capacity.name)
        if not kind.is_shared:
            if amount is not None and amount > capacity.amount:
                return None
            continue
        if amount is None:
            amount = capacity.amount if capacity.default is None else capacity.default
        if capacity.valid_values:
            amount = next((v for v in capacity.valid_values if v >= amount), None)
            if amount is None:
                return None
        elif capacity.step or capacity.minimum or capacity.maximum is not None:
            amount = max(amount, capacity.minimum)
            if capacity.step:
                steps = -(-(amount - capacity.minimum) // capacity.step)
                amount = capacity.minimum + steps * capacity.step
            if capacity.maximum is not None and amount > capacity.maximum:
                return None
        if amount > capacity.amount:
            return None
        consumed.append((capacity.name, amount))
    return tuple(consumed)


class _LimitError(Exception):
    """Too many devices were tried."""


class _Search:
    """One depth-first search; what it takes is given back unless it succeeds."""

    def __init__(self, state: DeviceState, node: int, demands: Sequence[Demand]) -> None:
        self._state = state
        self._node = node
        self._demands = demands
        self._devices = state.list_reachable(node)
        self._chosen: list[list[Grant]] = [[] for _ in demands]
        self._first = [(0, 0)] * len(demands)
        """(alternative, position) of the first device of each demand."""
        self._steps = 0

    def run(self) -> list[tuple[Grant, ...]] | None:
        """Return the grants of each demand, taken from the state, or None."""
        try:
            if self._serve(0, 0):
                return [tuple(grants) for grants in self._chosen]
        except _LimitError:
            for grants in self._chosen:
                self._state.give_back(grants)
        return None

    def _serve(self, i: int, j: int) -> bool:
        """Serve request j of demand i and all that follow."""
        if i == len(self._demands):
            return True
        demand = self._demands[i]
        if j == len(demand.requests):
            return self._serve(i + 1, 0)
        like_before = j == 0 and i > 0 and demand == self._demands[i - 1]
        least, start = self._first[i - 1] if like_before else (0, 0)
        for a, request in enumerate(demand.requests[j].alternatives):
            if a < least:
                continue
            if request.count == ALL_DEVICES:
                if self._take_all(i, j, request):
                    return True
            elif self._pick(i, j, request, request.count, (a, start if a == least else 0)):
                return True
        return False

    def _pick(self, i: int, j: int, request: DeviceRequest, left: int, at: tuple[int, int]) -> bool:
        """Choose the devices that a request still lacks, from a position on."""
        if left == 0:
            return self._serve(i, j + 1)
        alternative, start = at
        is_first = j == 0 and left == request.count
        failed: set[tuple[int, ...]] = set()
        for position in range(start, len(self._devices)):
            d = self._devices[position]
            grant = self._offer(i, request, d)
            if grant is None:
                continue
            alike = self._describe(d)
            if alike in failed:
                continue
            self._count_step()
            self._take(i, grant)
            if is_first:
                self._first[i] = (alternative, position)
            # One shared device may serve a request several times.
            after = position + (0 if self._is_shared(d) and not request.is_admin else 1)
            if self._pick(i, j, request, left - 1, (alternative, after)):
                return True
            self._give_back(i, grant)
            failed.add(alike)
        return False

    def _take_all(self, i: int, j: int, request: DeviceRequest) -> bool:
        """Take every device of the filter: all must be free, and there must be one."""
        if self._state.lacks_slices(self._node):
            return False
        table = self._state.table
        grants: list[Grant] = []
        for d in self._devices:
            if request.filter not in table.kinds[table.kind[d]].filters:
                continue
            grant = self._offer(i, request, d)
            if grant is None:
                grants.append(Grant(-1))
                break
            self._take(i, grant)
            grants.append(grant)
        is_whole = bool(grants) and grants[-1].device >= 0
        self._first[i] = (0, 0)
        if is_whole and self._serve(i, j + 1):
            return True
        for grant in reversed(grants):
            if grant.device >= 0:
                self._give_back(i, grant)
        return False

    def _offer(self, i: int, request: DeviceRequest, d: int) -> Grant | None:
        """Return what a request would take of a device, None where it cannot have it."""
        table, demand = self._state.table, self._demands[i]
        kind = table.kinds[table.kind[d]]
        consumed = _list_offers(self._state, request)[table.kind[d]]
        if consumed is None or not self._meets(i, demand.constraints, request.name, kind):
            return None
        if demand.nodes and not self._state.reaches(d, (self._node, *demand.nodes)):
            return None
        if request.is_admin:
            # A claim gets a device once, even for watching it.
            is_new = all(grant.device != d for grant in self._chosen[i])
            return Grant(d, request.name, True) if is_new else None
        if any(grant.is_admin and grant.device == d for grant in self._chosen[i]):
            return None
        if not self._state.is_open(d):
            return None
        if kind.is_shared and not self._state.has_capacity(d, consumed):
            return None
        return Grant(d, request.name, False, consumed)

    def _meets(
        self, i: int, constraints: Iterable[DeviceConstraint], name: str, kind: DeviceKind
    ) -> bool:
        table = self._state.table
        for constraint in constraints:
            if not constraint.covers(name):
                continue
            value = dict(kind.attributes).get(constraint.attribute)
            if value is None:
                return False
            others = [
                dict(table.kinds[table.kind[grant.device]].attributes).get(constraint.attribute)
                for grant in self._chosen[i]
                if constraint.covers(grant.request)
            ]
            if constraint.is_distinct and value in others:
                return False
            if not constraint.is_distinct and any(other != value for other in others):
                return False
        return True

    def _describe(self, d: int) -> tuple[int, ...]:
        """Return a key equal for devices that stand for one another."""
        table = self._state.table
        taken = self._state.consumed.get(d)
        used = tuple(taken[name] for name in sorted(taken)) if taken else ()
        return (table.kind[d], table.pool[d], table.reach[d], self._state.users[d], *used)

    def _is_shared(self, d: int) -> bool:
        table = self._state.table
        return table.kinds[table.kind[d]].is_shared

    def _take(self, i: int, grant: Grant) -> None:
        self._state.take((grant,))
        self._chosen[i].append(grant)

    def _give_back(self, i: int, grant: Grant) -> None:
        self._state.give_back((grant,))
        self._chosen[i].pop()

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _LimitError
