"""Devices, claims and what pods ask of them -> the same under other names."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topology.devices import NO_DEVICE, DeviceTable, Reserver

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.renaming import Renaming
    from topology.devices import (
        AllocatedClaim,
        Counter,
        DeviceConstraint,
        DeviceKind,
        DevicePool,
        DeviceRequest,
        RequestChoice,
    )
    from topology.taints import Toleration

__all__ = ["rename_constraint", "rename_devices", "rename_request"]


def rename_devices(
    table: DeviceTable, names: Renaming, new_node: Mapping[int, int], refs: Mapping[str, str]
) -> DeviceTable:
    """Return a device table under new names.

    Args:
      table: Of the old snapshot.
      names: New names.
      new_node: Old index of a node -> new one.
      refs: Old ref of a pod -> new one.
    """
    pools = [_rename_pool(pool, names) for pool in table.pools]
    pool_order = sorted(range(len(pools)), key=lambda p: (pools[p].driver, pools[p].name))
    new_pool = {old: new for new, old in enumerate(pool_order)}
    devices = [names.device(name) for name in table.names]
    order = sorted(range(len(devices)), key=lambda d: (new_pool[table.pool[d]], devices[d]))
    new_device = {old: new for new, old in enumerate(order)} | {NO_DEVICE: NO_DEVICE}
    claims = [_rename_claim(claim, names, new_device, refs) for claim in table.claims]
    return DeviceTable(
        filters=tuple(
            replace(
                entry,
                device_class=names.device_class(entry.device_class),
                expressions=tuple(names.expression(e) for e in entry.expressions),
            )
            for entry in table.filters
        ),
        pools=tuple(pools[p] for p in pool_order),
        kinds=tuple(_rename_kind(kind, names) for kind in table.kinds),
        reaches=tuple(tuple(sorted(new_node[n] for n in reach)) for reach in table.reaches),
        names=tuple(devices[d] for d in order),
        pool=tuple(new_pool[table.pool[d]] for d in order),
        kind=tuple(table.kind[d] for d in order),
        reach=tuple(table.reach[d] for d in order),
        claims=tuple(sorted(claims, key=lambda claim: claim.ref)),
        extended=tuple(
            sorted(
                (
                    replace(
                        entry,
                        resource=names.resource(entry.resource),
                        nodes=tuple(sorted(new_node[n] for n in entry.nodes)),
                    )
                    for entry in table.extended
                ),
                key=lambda entry: entry.resource,
            )
        ),
    )


def _rename_pool(pool: DevicePool, names: Renaming) -> DevicePool:
    return replace(
        pool,
        driver=names.device_class(pool.driver),
        name=names.pool(pool.name),
        counters=tuple(_rename_counter(c, names) for c in pool.counters),
    )


def _rename_counter(counter: Counter, names: Renaming) -> Counter:
    return replace(
        counter,
        counter_set=names.counter_set(counter.counter_set),
        name=names.counter(counter.name),
    )


def _rename_kind(kind: DeviceKind, names: Renaming) -> DeviceKind:
    return replace(
        kind,
        counters=tuple(_rename_counter(c, names) for c in kind.counters),
        capacity=tuple(
            sorted(
                (replace(c, name=names.key(c.name)) for c in kind.capacity), key=lambda c: c.name
            )
        ),
        taints=tuple(
            replace(t, key=names.key(t.key), value=names.value(t.key, t.value)) for t in kind.taints
        ),
        attributes=tuple(
            sorted((names.key(name), names.value(name, value)) for name, value in kind.attributes)
        ),
    )


def _rename_claim(
    claim: AllocatedClaim,
    names: Renaming,
    new_device: Mapping[int, int],
    refs: Mapping[str, str],
) -> AllocatedClaim:
    return replace(
        claim,
        ref=names.claim_ref(claim.ref),
        devices=tuple(
            replace(
                entry,
                device=new_device[entry.device],
                request=names.request(entry.request),
                consumed=tuple(sorted((names.key(n), amount) for n, amount in entry.consumed)),
            )
            for entry in claim.devices
        ),
        reserved_for=tuple(_rename_reserver(r, names, refs) for r in claim.reserved_for),
    )


def _rename_reserver(reserver: Reserver, names: Renaming, refs: Mapping[str, str]) -> Reserver:
    if reserver.resource != "pods":
        return Reserver(reserver.resource, names.group_ref(reserver.ref))
    if reserver.ref in refs:
        return Reserver(reserver.resource, refs[reserver.ref])
    namespace, _, name = reserver.ref.partition("/")
    return Reserver(reserver.resource, f"{names.namespace(namespace)}/{names.gone(name)}")


def rename_request(choice: RequestChoice, names: Renaming) -> RequestChoice:
    """Return a request of a claim under new names."""

    def rename(request: DeviceRequest) -> DeviceRequest:
        return replace(
            request,
            name=names.request(request.name),
            tolerations=tuple(_rename_toleration(t, names) for t in request.tolerations),
            capacity=tuple(sorted((names.key(n), amount) for n, amount in request.capacity)),
        )

    return replace(
        choice,
        name=names.request(choice.name),
        alternatives=tuple(rename(r) for r in choice.alternatives),
    )


def _rename_toleration(toleration: Toleration, names: Renaming) -> Toleration:
    return replace(
        toleration,
        key=names.key(toleration.key),
        value=names.value(toleration.key, toleration.value),
    )


def rename_constraint(constraint: DeviceConstraint, names: Renaming) -> DeviceConstraint:
    """Return a constraint of a claim under new names."""
    return replace(
        constraint,
        attribute=names.key(constraint.attribute),
        requests=tuple(sorted(names.request(name) for name in constraint.requests)),
    )
