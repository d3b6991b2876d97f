"""Arrow schemas of a stored snapshot, with a version.

A column marked derived repeats what another says, for queries by DuckDB or pandas; reading a
store ignores it. Quantities are integers in canonical units: cpu in milli-cores, memory in bytes,
everything else in pieces.

Versions: a reader takes every minor version of its own major version. A minor step only adds
columns or files that older readers may ignore.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

__all__ = [
    "ADDED",
    "DIGEST_KEY",
    "SCHEMAS",
    "SCHEMA_VERSION",
    "VERSION_KEY",
    "is_derived",
    "with_identity",
]

SCHEMA_VERSION: Final = "2.0"
VERSION_KEY: Final = b"gangplan.schema"
"""Schema metadata of every file: the version it was written with."""
DIGEST_KEY: Final = b"gangplan.digest"
"""Schema metadata of every file: the digest of the snapshot it is a part of."""

_TEXT: Final = pa.string()
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
_AMOUNTS: Final = pa.map_(pa.string(), pa.int64())
_LABELS: Final = pa.map_(pa.string(), pa.string())
_PATH: Final = pa.list_(pa.string())
_TAINT: Final = pa.struct([("key", _TEXT), ("value", _TEXT), ("effect", _TEXT)])
_TOPOLOGY: Final = pa.struct([("path", _PATH), ("required", pa.bool_())])
_SLICE: Final = pa.struct([("path", _PATH), ("size", pa.int64()), ("required", pa.bool_())])
_EXCLUSIVE: Final = pa.struct([("peers", _TEXT), ("key", _TEXT)])


def _derived(name: str) -> Any:
    return pa.field(name, pa.int64(), metadata={b"gangplan": b"derived"})


_SUMS: Final = [_derived("cpu_milli"), _derived("memory_bytes"), _derived("gpus")]

SCHEMAS: Final[dict[str, Any]] = {
    # One row a node, in order of name.
    "nodes": pa.schema(
        [
            ("name", _TEXT),
            ("unschedulable", pa.bool_()),
            ("ready", pa.bool_()),
            ("allows_resize_preemption", pa.bool_()),  # since 1.1
            *_SUMS,
            ("allocatable", _AMOUNTS),
            ("labels", _LABELS),
            ("taints", pa.list_(_TAINT)),
        ]
    ),
    # One row a pod, in order of ref; amounts are its effective requests.
    "pods": pa.schema(
        [
            ("ref", _TEXT),
            ("node", _NAME),  # null: has no node, or a missing one
            ("node_missing", pa.bool_()),  # bound to a node that is not in the snapshot
            ("group", _NAME),  # ref of the leaf group, null: in none
            ("template", _NAME),
            ("phase", _NAME),
            ("flags", pa.int16()),  # bits of PodFlag
            ("priority", pa.int32()),
            ("nominated", _NAME),
            ("rank", pa.int32()),
            ("created", pa.int64()),  # seconds since 1970, -1 where unknown
            ("started", pa.int64()),
            ("checkpoint", pa.int64()),  # since 1.1
            ("spec", pa.int32()),  # row of specs
            ("labels", pa.int32()),  # row of label_sets
            *_SUMS,
        ]
    ),
    # One row a distinct pod spec; `spec` holds all of it as JSON.
    "specs": pa.schema(
        [
            *_SUMS,
            pa.field("requests", _AMOUNTS, metadata={b"gangplan": b"derived"}),
            ("spec", _TEXT),
        ]
    ),
    # One row a distinct label map of pods, cut down to the keys that selectors mention.
    "label_sets": pa.schema([("labels", _LABELS)]),
    # One row a group, subgroup or composite, in order of ref.
    "groups": pa.schema(
        [
            ("ref", _TEXT),
            ("kind", _NAME),
            ("api", _NAME),
            ("parent", _TEXT),  # ref, null for a root
            ("name", _TEXT),
            ("policy", _NAME),
            ("min_count", pa.int64()),
            ("min_groups", pa.int64()),
            ("size", pa.int64()),
            ("priority", pa.int64()),
            ("topology", pa.list_(_TOPOLOGY)),
            ("slices", pa.list_(_SLICE)),
            ("exclusive", pa.list_(_EXCLUSIVE)),
            ("disruption", _NAME),
            ("never_preempts", pa.bool_()),
            ("evictable", pa.bool_()),
            ("movable", pa.bool_()),
            ("created", pa.int64()),
            ("queue", _NAME),
            ("is_inferred", pa.bool_()),
            ("is_leader", pa.bool_()),
            ("blocked", _NAME),
            ("unmodelled", pa.list_(_TEXT)),
        ]
    ),
    "budgets": pa.schema(
        [
            ("ref", _TEXT),
            ("selector", _TEXT),  # JSON, null: selects nothing
            ("allowed", pa.int64()),
            ("disrupted", pa.list_(_TEXT)),  # sorted
        ]
    ),
    # One row a DRA device, in order of driver, pool and name; numbers are rows of device_parts.
    "devices": pa.schema(
        [
            ("pool", pa.int32()),
            ("names", _NAME),
            ("kind", pa.int32()),
            ("reach", pa.int32()),
        ]
    ),
    # One row an entry of a part (filters, pools, kinds, reaches, claims, extended) as JSON, in
    # order; rows are counted by part.
    "device_parts": pa.schema([("part", _NAME), ("content", _TEXT)]),
    "errors": pa.schema(
        [("object", _TEXT), ("kind", _NAME), ("field", _TEXT), ("message", _TEXT), ("file", _NAME)]
    ),
}
"""Schema by table; the file of a table is "<table>.parquet"."""

ADDED: Final[dict[tuple[str, str], object]] = {
    ("pods", "checkpoint"): -1,
    ("nodes", "allows_resize_preemption"): True,
}
"""(table, column) of later minor versions -> what it holds where an older store lacks it."""


def is_derived(field: Any) -> bool:
    """Tell whether a column repeats what another says."""
    return (field.metadata or {}).get(b"gangplan") == b"derived"


def with_identity(table: str, digest: str) -> Any:
    """Return the schema of a table with version and digest in its metadata."""
    metadata = {VERSION_KEY: SCHEMA_VERSION.encode(), DIGEST_KEY: digest.encode()}
    return SCHEMAS[table].with_metadata(metadata)
