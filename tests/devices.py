"""Device tables and claims that state only what matters to a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topology.devices import (
    AllocatedClaim,
    AllocatedDevice,
    DeviceFilter,
    DeviceKind,
    DevicePool,
    DeviceRequest,
    DeviceTable,
    RequestChoice,
    Reserver,
)
from topology.model import ClaimNeed

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["make_devices", "make_need"]


def make_devices(
    counts: Sequence[tuple[int, str, int, int]],
    *,
    reserved_for: str = "",
    is_held_apart: bool = False,
) -> DeviceTable:
    """Whole devices d0, d1 … of classes on nodes; the first of each are held.

    Args:
      counts: (index of the node, device class, devices, free ones).
      reserved_for: Pod that uses what is held, "" for nobody.
      is_held_apart: One claim for each held device instead of one for all.
    """
    classes = sorted({name for _, name, _, _ in counts})
    pools = [DevicePool(f"driver.{name}", f"pool-{n}") for n, name, _, _ in counts]
    order = sorted(range(len(pools)), key=lambda i: (pools[i].driver, pools[i].name))
    names: list[str] = []
    pool: list[int] = []
    kind: list[int] = []
    reach: list[int] = []
    nodes = sorted({n for n, _, _, _ in counts})
    held: list[int] = []
    for place, i in enumerate(order):
        n, name, total, free = counts[i]
        held += range(len(names), len(names) + total - free)
        names += [f"d{j}" for j in range(total)]
        pool += [place] * total
        kind += [classes.index(name)] * total
        reach += [nodes.index(n)] * total
    reservers = (Reserver("pods", reserved_for),) if reserved_for else ()
    parts = [[d] for d in held] if is_held_apart else [held] if held else []
    return DeviceTable(
        filters=tuple(DeviceFilter(name) for name in classes),
        pools=tuple(pools[i] for i in order),
        kinds=tuple(DeviceKind((i,)) for i in range(len(classes))),
        reaches=tuple((n,) for n in nodes),
        names=tuple(names),
        pool=tuple(pool),
        kind=tuple(kind),
        reach=tuple(reach),
        claims=tuple(
            AllocatedClaim(f"old/c{i}", tuple(AllocatedDevice(d) for d in part), reservers)
            for i, part in enumerate(parts)
        ),
    )


def make_need(count: int, *, filter_index: int = 0, name: str = "d", **fields: Any) -> ClaimNeed:
    """A claim still to be made that asks for whole devices of a filter."""
    request = DeviceRequest("r", filter_index, count)
    return ClaimNeed(name, requests=(RequestChoice("r", (request,)),), **fields)
