"""Devices as resources of the search: how many are free, and how many pods of a spec they serve.

Three kinds of pseudo resources stand for devices. One for each *family* of filters that choose
among the same devices counts devices, so that pods of several specs compete. One for each sort of
counter adds up what partitions take at least. One for each spec whose claims are more than a count
holds how many of its pods the devices of a node serve, found by the allocator. All are limits that
every allocation keeps; where a node mixes specs, they may let pass what the allocator then refuses
(`optimizer.devices.ledger`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.devices.allocator import allocate, count_open
from optimizer.devices.needs import find_needs, has_needs
from topology.device_counts import count_together, list_loads
from topology.devices import ALL_DEVICES

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from optimizer.devices.needs import Demand
    from optimizer.devices.state import DeviceState
    from topology.devices import DeviceRequest, DeviceTable, RequestChoice
    from topology.model import ClaimNeed, PodSpec, Snapshot

__all__ = ["CLAIMS_PREFIX", "DEVICE_PREFIX", "DeviceColumns", "is_device_resource"]

# Ends in a colon, not a slash: a class may be called "gpu", and ".../gpu" is a GPU (`is_gpu`).
DEVICE_PREFIX: Final = "deviceclass:"
"""Pseudo resource that counts the devices of a family, named by its first class."""
CLAIMS_PREFIX: Final = "claims:"
"""Pseudo resource that counts pods of a spec whose claims find devices, named by its index."""
COUNTER_PREFIX: Final = "counters:"
"""Pseudo resource that adds up counters that differ by a number alone, over all sets of a node."""
MOST_PODS: Final = 512
"""Where devices set no limit, this one stands: more than a node has pod slots."""


def is_device_resource(name: str) -> bool:
    """Tell whether a resource of a problem stands for devices."""
    return name.startswith((DEVICE_PREFIX, CLAIMS_PREFIX, COUNTER_PREFIX))


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    filters: frozenset[int]
    is_counted: bool
    """Its devices are used by one claim at a time, so that their number says something."""
    is_plain: bool
    """Any of its devices serves any of its filters."""


@dataclass(slots=True)
class DeviceColumns:
    """The pseudo resources of one snapshot; axes N nodes, X pod specs, K pseudo resources."""

    snapshot: Snapshot
    _families: list[_Family] = field(init=False)
    _num_users: dict[str, int] = field(init=False)
    """Claim -> pending pods that name it."""
    _stems: list[str] = field(init=False)
    """Names of counters without the numbers at their ends."""
    _seen: dict[tuple[str, Hashable], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._families = _find_families(self.snapshot.devices)
        self._num_users = _count_users(self.snapshot)
        pools = self.snapshot.devices.pools
        self._stems = sorted({_find_stem(c.name) for pool in pools for c in pool.counters})

    def find_names(self, specs: Iterable[int]) -> set[str]:
        """Return the pseudo resources that pods of some specs need."""
        names = set()
        for x in specs:
            spec = self.snapshot.pods.specs[x]
            if not has_needs(self.snapshot, spec):
                continue
            row = {f.name: self._count(spec, f) for f in self._families if f.is_counted}
            names |= {DEVICE_PREFIX + name for name, count in row.items() if count}
            names |= {
                COUNTER_PREFIX + stem for stem in self._stems if self._count_least(spec, stem)
            }
            if not self._is_plain(spec):
                names.add(f"{CLAIMS_PREFIX}{x}")
        return names

    def list_requests(self, name: str) -> NDArray[np.int64]:
        """Return i64[X]: what one pod of each spec takes of a pseudo resource."""
        specs = self.snapshot.pods.specs
        rows = np.zeros(len(specs), np.int64)
        if name.startswith(CLAIMS_PREFIX):
            rows[int(name.removeprefix(CLAIMS_PREFIX))] = 1
            return rows
        for x, spec in enumerate(specs):
            if spec.claims and name.startswith(COUNTER_PREFIX):
                rows[x] = self._count_least(spec, name.removeprefix(COUNTER_PREFIX))
            elif spec.claims:
                rows[x] = self._count(spec, self._find_family(name))
        return rows

    def count_free(self, name: str, state: DeviceState) -> NDArray[np.int64]:
        """Return i64[N]: what every node has of a pseudo resource in a state of the devices."""
        self._seen.clear()
        nodes = range(len(self.snapshot.nodes))
        free = np.fromiter((self.count_on(name, state, n) for n in nodes), np.int64)
        self._seen.clear()
        return free

    def count_on(self, name: str, state: DeviceState, node: int) -> int:
        """Return what one node has of a pseudo resource; like nodes share the work."""
        if name.startswith(CLAIMS_PREFIX):
            spec = self.snapshot.pods.specs[int(name.removeprefix(CLAIMS_PREFIX))]
            own, shared = find_needs(self.snapshot, spec, node)
            key = (f"{name} {[entry for entry, _ in own]}", state.describe(node))
            if key not in self._seen:
                demands = [demand for _, demand in own]
                self._seen[key] = _count_pods(state, node, demands, [d for _, d in shared])
            return self._seen[key]
        key = (name, state.describe(node))
        if key not in self._seen and name.startswith(COUNTER_PREFIX):
            self._seen[key] = _count_counters(state, node, name.removeprefix(COUNTER_PREFIX))
        if key not in self._seen:
            family = self._find_family(name)
            self._seen[key] = _count_devices(state, node, family)
        return self._seen[key]

    def _find_family(self, name: str) -> _Family:
        wanted = name.removeprefix(DEVICE_PREFIX)
        return next(family for family in self._families if family.name == wanted)

    def _count(self, spec: PodSpec, family: _Family) -> int:
        """Return the least number of devices of a family that a pod takes for itself alone."""
        return sum(
            _count_least(choice, family)
            for claim in spec.claims
            if claim.allocated_nodes is None and not self._is_shared(claim)
            for choice in claim.requests
        )

    def _count_least(self, spec: PodSpec, stem: str) -> int:
        """Return the least that a pod takes for itself alone of all counters of a stem."""
        return sum(
            min(self._weigh(request, stem) for request in choice.alternatives)
            for claim in spec.claims
            if claim.allocated_nodes is None and not self._is_shared(claim)
            for choice in claim.requests
        )

    def _weigh(self, request: DeviceRequest, stem: str) -> int:
        amounts = [
            0
            if kind.is_shared or request.is_admin
            else sum(c.amount for c in kind.counters if _find_stem(c.name) == stem)
            for kind in self.snapshot.devices.kinds
            if request.filter in kind.filters
        ]
        return max(request.count, 1) * min(amounts, default=0)

    def _is_shared(self, claim: ClaimNeed) -> bool:
        """Tell whether several pods may use one claim; its devices are not charged to each."""
        return claim.shared_by_group or self._num_users.get(claim.claim, 0) > 1

    def _is_plain(self, spec: PodSpec) -> bool:
        """Tell whether counting devices says all about the claims of a spec."""
        if any(spec.request(entry.resource) for entry in self.snapshot.devices.extended):
            return False
        plain = {f for family in self._families if family.is_plain for f in family.filters}
        return all(
            not (self._is_shared(claim) or claim.constraints)
            and all(_is_plain_request(choice, plain) for choice in claim.requests)
            for claim in spec.claims
            if claim.allocated_nodes is None
        )


def _count_users(snapshot: Snapshot) -> dict[str, int]:
    pods = snapshot.pods
    counts: dict[str, int] = {}
    for x in pods.spec[pods.is_pending].tolist():
        for claim in pods.specs[x].claims:
            if claim.claim:
                counts[claim.claim] = counts.get(claim.claim, 0) + 1
    return counts


def _is_plain_request(choice: RequestChoice, plain: set[int]) -> bool:
    request = choice.alternatives[0]
    return (
        len(choice.alternatives) == 1
        and request.filter in plain
        and request.count != ALL_DEVICES
        and not (request.is_admin or request.capacity)
    )


def _count_least(choice: RequestChoice, family: _Family) -> int:
    """Return how many devices of a family a request takes whichever alternative is chosen."""
    return min(
        0 if request.is_admin or request.filter not in family.filters else max(request.count, 1)
        for request in choice.alternatives
    )


def _find_families(table: DeviceTable) -> list[_Family]:
    """Join filters that have a device (or their class) in common."""
    parts: list[set[int]] = []
    links = [set(kind.filters) for kind in table.kinds]
    by_class: dict[str, set[int]] = {}
    for f, entry in enumerate(table.filters):
        by_class.setdefault(entry.device_class, set()).add(f)
    for link in [*by_class.values(), *links]:
        if link:
            touching = [part for part in parts if part & link]
            joined = set().union(link, *touching)
            parts = [*(part for part in parts if not part & link), joined]
    families = []
    for part in parts:
        kinds = [kind for kind in table.kinds if part & set(kind.filters)]
        is_counted = not any(kind.is_shared for kind in kinds)
        alike = all(part <= set(kind.filters) and not kind.taints for kind in kinds)
        name = min(table.filters[f].device_class for f in part)
        families.append(_Family(name, frozenset(part), is_counted, is_counted and alike))
    return sorted(families, key=lambda family: family.name)


def _count_devices(state: DeviceState, node: int, family: _Family) -> int:
    """Count the devices of a family that can be taken on a node at once."""
    table = state.table
    found = 0
    # A device is open to the family if it is to one of its filters, whatever its taints.
    chosen: dict[int, list[int]] = {}
    for d in state.list_reachable(node):
        kind = table.kinds[table.kind[d]]
        if family.filters & set(kind.filters) and state.is_open(d):
            chosen.setdefault(table.pool[d], []).append(d)
    for p, devices in chosen.items():
        found += count_together(list_loads(table, devices), state.room[p])
    return found


def _find_stem(counter: str) -> str:
    return counter.rstrip("0123456789")


def _count_counters(state: DeviceState, node: int, stem: str) -> int:
    """Add up what is left of the counters of a stem in the pools that a node reaches."""
    pools = {state.table.pool[d] for d in state.list_reachable(node)}
    return sum(
        max(left, 0)
        for p in sorted(pools)
        for (_, name), left in state.room[p].items()
        if _find_stem(name) == stem
    )


def _count_pods(
    state: DeviceState, node: int, own: Sequence[Demand], shared: Sequence[Demand]
) -> int:
    """Count the pods with these demands that a node serves; shared ones are met once."""
    taken = []
    base = allocate(state, node, shared)
    if base is None:
        return 0
    taken += base
    count = MOST_PODS
    single = _find_single(own)
    found = None if single is None else count_open(state, node, single)
    if single is not None and found is not None:
        count = found // single.count
    elif own and any(_takes(demand) for demand in own):
        count = 0
        grown: list[Demand] = []
        while count < MOST_PODS:
            grown += own
            grants = allocate(state, node, grown)
            if grants is None:
                break
            for entry in grants:
                state.give_back(entry)
            count += 1
    elif own:
        grants = allocate(state, node, own)
        count = 0 if grants is None else MOST_PODS
        for entry in grants or ():
            state.give_back(entry)
    for entry in taken:
        state.give_back(entry)
    return count


def _find_single(own: Sequence[Demand]) -> DeviceRequest | None:
    """Return the request that is all a pod asks for, if it is a mere count."""
    if len(own) != 1 or own[0].constraints or len(own[0].requests) != 1:
        return None
    (request, *others) = own[0].requests[0].alternatives
    if others or request.is_admin or request.count == ALL_DEVICES:
        return None
    return request


def _takes(demand: Demand) -> bool:
    """Tell whether a demand keeps devices from others (admin access does not)."""
    return any(
        not request.is_admin for choice in demand.requests for request in choice.alternatives
    )
