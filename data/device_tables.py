"""`DeviceTable` <-> rows of Arrow tables: devices by column, all that is interned as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from topology.devices import (
    AllocatedClaim,
    DeviceFilter,
    DeviceKind,
    DevicePool,
    DeviceTable,
    ExtendedResource,
)
from topology.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_device_table", "write_device_columns", "write_device_parts"]

_PARTS: Final[dict[str, Any]] = {
    "filters": DeviceFilter,
    "pools": DevicePool,
    "kinds": DeviceKind,
    "reaches": tuple[int, ...],
    "claims": AllocatedClaim,
    "extended": ExtendedResource,
}
"""Field of `DeviceTable` -> type of its entries."""


def write_device_columns(table: DeviceTable) -> dict[str, list[Any]]:
    """Return the columns of `devices.parquet`."""
    return {name: list(getattr(table, name)) for name in ("pool", "names", "kind", "reach")}


def write_device_parts(table: DeviceTable) -> dict[str, list[Any]]:
    """Return the columns of `device_parts.parquet`."""
    entries = [(part, entry) for part in _PARTS for entry in getattr(table, part)]
    return {
        "part": [part for part, _ in entries],
        "content": [msgspec.json.encode(entry).decode() for _, entry in entries],
    }


def read_device_table(
    columns: Mapping[str, list[Any]], parts: Mapping[str, list[Any]], num_nodes: int
) -> DeviceTable:
    """Return the table that both were written from.

    Raises:
      SnapshotError: A number points outside its table.
    """
    found: dict[str, list[Any]] = {part: [] for part in _PARTS}
    for part, content in zip(parts["part"], parts["content"], strict=True):
        if part in _PARTS:
            found[part].append(msgspec.json.decode(content, type=_PARTS[part]))
    table = DeviceTable(
        **{part: tuple(entries) for part, entries in found.items()},
        **{name: tuple(columns[name]) for name in ("pool", "names", "kind", "reach")},
    )
    limits = {
        "pool": len(table.pools),
        "kind": len(table.kinds),
        "reach": len(table.reaches),
    }
    for name, limit in limits.items():
        if any(not 0 <= code < limit for code in getattr(table, name)):
            raise SnapshotError(f"devices.parquet: column {name} points outside its table")
    if any(not 0 <= n < num_nodes for reach in table.reaches for n in reach):
        raise SnapshotError("device_parts.parquet: a reach names a node that is missing")
    if any(not -1 <= e.device < len(table) for claim in table.claims for e in claim.devices):
        raise SnapshotError("device_parts.parquet: a claim holds a device that is missing")
    return table
