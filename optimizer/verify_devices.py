"""Rules for the DRA devices that a plan names: they exist, suit the request, and nobody has them.

Part of the verifier: written from the API's rules alone, and shares no code with the allocator.
Which alternative of `firstAvailable` a plan takes is its own choice; that an earlier one could not
be served is not checked.

Source: k8s.io/api resource/v1; KEP-4381, KEP-4815 (counters), KEP-5075 (capacity), KEP-5055
(taints), KEP-5729 (claims of a PodGroup).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from topology.devices import ALL_DEVICES, DeviceRequest, RequestChoice
from topology.selectors import tolerates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.verify_state import Replay
    from topology.devices import (
        AllocatedClaim,
        Capacity,
        DeviceConstraint,
        DeviceKind,
        DeviceTable,
        Reserver,
    )
    from topology.plan import PlacedDevice, Plan

__all__ = ["check_devices"]


class _User(NamedTuple):
    pod: int
    node: int
    claim: str
    """Name of the pod's entry."""


@dataclass(slots=True)
class _Claim:
    """A claim that new pods need devices for, and everybody who uses it."""

    requests: tuple[RequestChoice, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    users: list[_User] = field(default_factory=list)

    @property
    def nodes(self) -> list[int]:
        return sorted({user.node for user in self.users})


@dataclass(slots=True)
class _Use:
    """What is in use once the plan is carried out."""

    users: defaultdict[int, int] = field(default_factory=lambda: defaultdict(int))
    consumed: defaultdict[tuple[int, str], int] = field(default_factory=lambda: defaultdict(int))
    touched: set[int] = field(default_factory=set)
    """Devices that the plan gives away."""


def check_devices(replay: Replay, plan: Plan) -> None:
    """Check every claim of a new pod against the devices that the plan gives it."""
    table = replay.snapshot.devices
    rows = {
        (table.pools[p].driver, table.pools[p].name, name): d
        for d, (p, name) in enumerate(zip(table.pool, table.names, strict=True))
    }
    given: defaultdict[tuple[int, str], list[PlacedDevice]] = defaultdict(list)
    for entry in plan.groups:
        for placed in entry.pods:
            p = replay.pod_index.get(placed.pod, -1)
            for device in placed.devices:
                given[p, device.claim].append(device)
    use = _count_held(replay, table, plan.request.dra_reclaim)
    for claim in _find_claims(replay, table):
        lists = [given.pop((user.pod, user.claim), []) for user in claim.users]
        filled = [found for found in lists if found]
        _Check(replay, table, rows, use, claim).run(filled[0] if filled else [], len(filled))
    for p, name in sorted(given):
        ref = replay.pod_ref(p) if p >= 0 else "a pod that does not exist"
        replay.log.require(False, "device", ref, "no devices", f"some for {name}")
    _check_use(replay, table, use)


def _find_claims(replay: Replay, table: DeviceTable) -> list[_Claim]:
    """Return the claims that new pods need devices for, in the order of their first users."""
    found: dict[tuple[str, str], _Claim] = {}
    for p, n in sorted(replay.placed.items()):
        spec = replay.spec_of(p)
        for need in spec.claims:
            if need.allocated_nodes is not None or not need.requests:
                continue
            holder = (replay.pod_ref(p), need.name)
            if need.claim:
                holder = (need.claim, "")
            elif need.shared_by_group:
                holder = (replay.owner_ref(p) or replay.pod_ref(p), need.name)
            claim = found.setdefault(holder, _Claim(need.requests, need.constraints))
            claim.users.append(_User(p, n, need.name))
        for entry in table.extended:
            amount = spec.request(entry.resource)
            if amount and n in entry.nodes:
                request = DeviceRequest(entry.resource, entry.filter, amount)
                choice = RequestChoice(entry.resource, (request,))
                holder = (replay.pod_ref(p), f"resource {entry.resource}")
                found[holder] = _Claim((choice,), (), [_User(p, n, entry.resource)])
    return list(found.values())


def _count_held(replay: Replay, table: DeviceTable, reclaim: str) -> _Use:
    """Count what claims hold that evictions do not release."""
    use = _Use()
    for claim in table.claims:
        if _is_released(replay, claim, reclaim):
            continue
        for entry in claim.devices:
            if entry.device >= 0 and not entry.is_admin:
                use.users[entry.device] += 1
                for name, amount in entry.consumed:
                    use.consumed[entry.device, name] += amount
    return use


def _is_released(replay: Replay, claim: AllocatedClaim, reclaim: str) -> bool:
    if reclaim == "none" or not claim.reserved_for:
        return False
    if reclaim == "node-local" and not (
        claim.is_node_local and all(r.resource == "pods" for r in claim.reserved_for)
    ):
        return False
    return all(_is_gone(replay, reserver) for reserver in claim.reserved_for)


def _is_gone(replay: Replay, reserver: Reserver) -> bool:
    """Tell whether the plan evicts whoever reserved a claim, all pods of it."""
    if reserver.resource == "pods":
        return replay.pod_index.get(reserver.ref, -1) in replay.evicted
    if reserver.resource != "podgroups" or reserver.ref not in replay.group_index:
        return False
    members = replay.pods_below(replay.group_index[reserver.ref])
    started = replay.snapshot.pods.holds_room
    running = [p for p in members if started[p]]
    return bool(running) and all(p in replay.evicted for p in running)


class _Check:
    """One claim and the devices it is given."""

    def __init__(
        self,
        replay: Replay,
        table: DeviceTable,
        rows: dict[tuple[str, str, str], int],
        use: _Use,
        claim: _Claim,
    ) -> None:
        self._log = replay.log
        self._table = table
        self._rows = rows
        self._use = use
        self._claim = claim
        first = claim.users[0]
        self._name = f"claim {first.claim} of {replay.pod_ref(first.pod)}"

    def run(self, devices: Sequence[PlacedDevice], num_lists: int) -> None:
        self._require(num_lists <= 1, "devices of a shared claim listed once", "more than once")
        by_request: defaultdict[str, list[int]] = defaultdict(list)
        for device in devices:
            d = self._rows.get((device.driver, device.pool, device.device), -1)
            named = f"{device.driver}/{device.pool}/{device.device}"
            if self._require(d >= 0, "a device of some ResourceSlice", named):
                by_request[device.request].append(d)
                self._check_reach(d, named)
        for choice in self._claim.requests:
            self._check_choice(choice, by_request)
        known = {r.name for choice in self._claim.requests for r in choice.alternatives}
        for name in sorted(by_request.keys() - known):
            self._require(False, "a request of the claim", f"devices for {name}")
        self._check_twice(by_request)
        for constraint in self._claim.constraints:
            self._check_constraint(constraint, by_request)

    def _check_twice(self, by_request: dict[str, list[int]]) -> None:
        """Check that a device with admin access is in the claim once."""
        watching = {
            r.name for choice in self._claim.requests for r in choice.alternatives if r.is_admin
        }
        listed = Counter(d for devices in by_request.values() for d in devices)
        watched = {d for name in watching & by_request.keys() for d in by_request[name]}
        for d in sorted(watched):
            name = self._table.names[d]
            self._require(listed[d] == 1, f"device {name} once in the claim", f"{listed[d]} times")

    def _require(self, holds: bool, wanted: str, found: str, rule: str = "device") -> bool:
        return self._log.require(holds, rule, self._name, wanted, found)

    def _kind(self, d: int) -> DeviceKind:
        return self._table.kinds[self._table.kind[d]]

    def _check_reach(self, d: int, named: str) -> None:
        pool = self._table.pools[self._table.pool[d]]
        self._require(pool.is_complete, "a pool with all its slices", named)
        nodes = self._claim.nodes
        reach = self._table.reaches[self._table.reach[d]]
        self._require(
            all(n in reach for n in nodes) and not (self._kind(d).binds_to_node and len(nodes) > 1),
            "a device that every node of its pods reaches",
            named,
        )

    def _check_choice(self, choice: RequestChoice, by_request: dict[str, list[int]]) -> None:
        taken = [r for r in choice.alternatives if by_request.get(r.name)]
        if not self._require(
            len(taken) == 1,
            f"devices for one alternative of request {choice.name}",
            f"for {len(taken)}",
        ):
            return
        request, devices = taken[0], by_request[taken[0].name]
        if request.count == ALL_DEVICES:
            self._check_all(request, devices)
        else:
            self._require(
                len(devices) == request.count,
                f"{request.count} devices for request {request.name}",
                str(len(devices)),
            )
        for d in devices:
            self._check_device(request, d)

    def _check_all(self, request: DeviceRequest, devices: list[int]) -> None:
        table = self._table
        for n in self._claim.nodes:
            near = [d for d, reach in enumerate(table.reach) if n in table.reaches[reach]]
            matching = {d for d in near if request.filter in self._kind(d).filters}
            self._require(
                set(devices) == matching and len(devices) == len(matching),
                f"all {len(matching)} devices that request {request.name} selects",
                f"{len(devices)} of them",
            )
            self._require(
                all(table.pools[table.pool[d]].is_complete for d in near),
                "all pools of the node with all their slices, to take all devices",
                "some slices missing",
            )

    def _check_device(self, request: DeviceRequest, d: int) -> None:
        kind, name = self._kind(d), self._table.names[d]
        self._require(
            request.filter in kind.filters,
            f"a device that request {request.name} selects",
            name,
        )
        for taint in kind.taints:
            self._require(
                any(tolerates(t, taint) for t in request.tolerations),
                f"taint {taint.key}:{taint.effect} of {name} tolerated",
                "not tolerated",
            )
        asked = dict(request.capacity)
        offered = {capacity.name: capacity for capacity in kind.capacity}
        for part in sorted(asked):
            self._require(
                part in offered and asked[part] <= offered[part].amount,
                f"capacity {part} of {asked[part]} thousandths",
                f"{name}: {offered[part].amount if part in offered else 'no such capacity'}",
                "device-capacity",
            )
        if request.is_admin:
            return
        self._use.touched.add(d)
        self._use.users[d] += 1
        if kind.is_shared:
            for capacity in kind.capacity:
                amount = _round_up(capacity, asked.get(capacity.name))
                if self._require(
                    amount is not None,
                    f"an amount of {capacity.name} that its policy allows",
                    f"{asked.get(capacity.name)} thousandths",
                    "device-capacity",
                ):
                    self._use.consumed[d, capacity.name] += amount or 0

    def _check_constraint(
        self, constraint: DeviceConstraint, by_request: dict[str, list[int]]
    ) -> None:
        values = []
        for name, devices in sorted(by_request.items()):
            request, _, _ = name.partition("/")
            if constraint.requests and not {name, request} & set(constraint.requests):
                continue
            values += [dict(self._kind(d).attributes).get(constraint.attribute) for d in devices]
        distinct = len(set(values))
        holds = distinct == len(values) if constraint.is_distinct else distinct <= 1
        self._require(
            holds and None not in values,
            f"{'different' if constraint.is_distinct else 'equal'} {constraint.attribute}",
            ", ".join(str(value) for value in values),
            "device-constraint",
        )


def _round_up(capacity: Capacity, asked: int | None) -> int | None:
    """Return what a request takes of a shared capacity, None where its policy allows nothing."""
    if asked is None:
        asked = capacity.amount if capacity.default is None else capacity.default
    if capacity.valid_values:
        larger = [value for value in capacity.valid_values if value >= asked]
        return min(larger) if larger else None
    asked = max(asked, capacity.minimum)
    if capacity.step and (asked - capacity.minimum) % capacity.step:
        asked += capacity.step - (asked - capacity.minimum) % capacity.step
    return None if capacity.maximum is not None and asked > capacity.maximum else asked


def _check_use(replay: Replay, table: DeviceTable, use: _Use) -> None:
    """Check that what the plan gives away is not in use elsewhere, in part or in whole."""
    for d in sorted(use.touched):
        kind, pool = table.kinds[table.kind[d]], table.pools[table.pool[d]]
        name = f"{pool.driver}/{pool.name}/{table.names[d]}"
        if not kind.is_shared:
            replay.log.require(
                use.users[d] == 1, "device", name, "one claim that uses it", f"{use.users[d]}"
            )
            continue
        for capacity in kind.capacity:
            taken = use.consumed[d, capacity.name]
            replay.log.require(
                taken <= capacity.amount,
                "device-capacity",
                name,
                f"at most {capacity.amount} thousandths of {capacity.name} taken",
                f"{taken}",
            )
    counted: defaultdict[tuple[int, str, str], int] = defaultdict(int)
    for d, users in use.users.items():
        if users:
            for counter in table.kinds[table.kind[d]].counters:
                counted[table.pool[d], counter.counter_set, counter.name] += counter.amount
    for p in sorted({table.pool[d] for d in use.touched}):
        pool = table.pools[p]
        for counter in pool.counters:
            taken = counted[p, counter.counter_set, counter.name]
            replay.log.require(
                taken <= counter.amount,
                "device-counter",
                f"{pool.driver}/{pool.name}",
                f"at most {counter.amount} thousandths of {counter.counter_set}/{counter.name}",
                f"{taken}",
            )
