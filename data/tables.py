"""Snapshot <-> Arrow tables, exactly and without a loop over pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from data.device_tables import read_device_table, write_device_columns, write_device_parts
from data.schemas import ADDED, SCHEMAS, is_derived
from topology.errors import SnapshotError
from topology.model import (
    MISSING_NODE,
    NO_GROUP,
    NO_NODE,
    Budget,
    Exclusive,
    Group,
    LabelSelector,
    Node,
    ObjectError,
    Phase,
    PodSpec,
    PodTable,
    SliceTerm,
    Snapshot,
    Taint,
    TopologyTerm,
    is_gpu,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["from_tables", "to_tables"]

_PHASES = [phase.name.capitalize() for phase in Phase]
_SUMS = ("cpu_milli", "memory_bytes", "gpus")
_TIMES = ("created", "started", "checkpoint")


def to_tables(snapshot: Snapshot) -> dict[str, Any]:
    """Return the Arrow table of every part of a snapshot, by the names of `SCHEMAS`.

    Raises:
      SnapshotError: Two nodes or groups share a name, or a number is beyond 64 bits.
    """
    node_names = _unique("node", [n.name for n in snapshot.nodes])
    group_refs = _unique("group", [g.ref for g in snapshot.groups])
    columns = {
        "nodes": _node_columns(snapshot.nodes),
        "pods": _pod_columns(snapshot.pods, node_names, group_refs),
        "specs": _spec_columns(snapshot.pods.specs),
        "label_sets": {"labels": [list(s.items()) for s in snapshot.pods.label_sets]},
        "groups": _group_columns(snapshot.groups, group_refs),
        "budgets": _budget_columns(snapshot.budgets),
        "devices": write_device_columns(snapshot.devices),
        "device_parts": write_device_parts(snapshot.devices),
        "errors": _attributes(snapshot.errors, SCHEMAS["errors"].names),
    }
    try:
        return {name: _build(SCHEMAS[name], columns[name]) for name in SCHEMAS}
    except (OverflowError, pa.ArrowInvalid) as problem:
        raise SnapshotError(
            f"the snapshot cannot be stored: {problem}; quantities must fit 64 bits"
        ) from None


def from_tables(
    tables: Mapping[str, Any], templates: Sequence[str], warnings: Sequence[str]
) -> Snapshot:
    """Rebuild a snapshot from its tables.

    Args:
      tables: One Arrow table for each name of `SCHEMAS`; derived columns may be absent.
      templates: `PodTable.templates`, in order.
      warnings: `Snapshot.warnings`.

    Raises:
      SnapshotError: A column or a name that another table refers to is missing.
    """
    tables = {name: _add_columns(name, table) for name, table in tables.items()}
    rows = {name: _read(name, table) for name, table in tables.items() if name != "pods"}
    nodes = tuple(_read_nodes(rows["nodes"]))
    groups = tuple(_read_groups(rows["groups"]))
    node_names = pa.array([n.name for n in nodes], pa.string())
    group_refs = pa.array([g.ref for g in groups], pa.string())
    pods = PodTable(
        specs=tuple(msgspec.json.decode(s, type=PodSpec) for s in rows["specs"]["spec"]),
        label_sets=tuple(dict(s) for s in rows["label_sets"]["labels"]),
        templates=tuple(templates),
        **_read_pods(tables["pods"], node_names, group_refs, pa.array(templates, pa.string())),
    )
    _check_codes("spec", pods.spec, len(pods.specs))
    _check_codes("labels", pods.labels, len(pods.label_sets))
    return Snapshot(
        nodes=nodes,
        pods=pods,
        groups=groups,
        budgets=tuple(_read_budgets(rows["budgets"])),
        devices=read_device_table(rows["devices"], rows["device_parts"], len(nodes)),
        errors=tuple(ObjectError(**row) for row in _rows(rows["errors"])),
        warnings=tuple(warnings),
    )


# --- writing ---------------------------------------------------------------------------------


def _unique(what: str, names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        twice = next(b for a, b in zip(sorted(names), sorted(names)[1:], strict=False) if a == b)
        raise SnapshotError(f"two {what}s are called {twice}; a snapshot needs unique names")
    return names


def _attributes(items: Sequence[object], names: Iterable[str]) -> dict[str, list[Any]]:
    return {name: [getattr(item, name) for item in items] for name in names}


def _build(schema: Any, columns: Mapping[str, Any]) -> Any:
    arrays = []
    for field in schema:
        column = columns[field.name]
        if not isinstance(column, pa.Array):
            if pa.types.is_dictionary(field.type):
                column = pa.array(column, pa.string()).dictionary_encode()
            column = pa.array(column, field.type) if isinstance(column, list) else column
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=schema)


def _sum_amounts(amounts: Iterable[Iterable[tuple[str, int]]]) -> dict[str, list[int]]:
    sums: dict[str, list[int]] = {name: [] for name in _SUMS}
    for items in amounts:
        have = dict(items)
        sums["cpu_milli"].append(have.get("cpu", 0))
        sums["memory_bytes"].append(have.get("memory", 0))
        sums["gpus"].append(sum(amount for name, amount in have.items() if is_gpu(name)))
    return sums


def _node_columns(nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        **_attributes(nodes, ("name", "unschedulable", "ready", "allows_resize_preemption")),
        **_sum_amounts(n.allocatable.items() for n in nodes),
        "allocatable": [list(n.allocatable.items()) for n in nodes],
        "labels": [list(n.labels.items()) for n in nodes],
        "taints": [
            [{"key": t.key, "value": t.value, "effect": t.effect} for t in n.taints] for n in nodes
        ],
    }


def _spec_columns(specs: Sequence[PodSpec]) -> dict[str, Any]:
    return {
        **_sum_amounts(s.requests for s in specs),
        "requests": [list(s.requests) for s in specs],
        "spec": [msgspec.json.encode(s).decode() for s in specs],
    }


def _pod_columns(
    pods: PodTable, node_names: Sequence[str], group_refs: Sequence[str]
) -> dict[str, Any]:
    sums = _sum_amounts(s.requests for s in pods.specs)
    numbers = ("flags", "priority", "rank", *_TIMES, "spec", "labels")
    return {
        "ref": pa.array(pods.refs, pa.string()),
        "node": _name_column(pods.node, node_names),
        "node_missing": pa.array(pods.node == MISSING_NODE),
        "group": _name_column(pods.group, group_refs),
        "template": _name_column(pods.template, pods.templates),
        "phase": _name_column(pods.phase.astype(np.int32), _PHASES),
        "nominated": _name_column(pods.nominated, node_names),
        **{name: pa.array(getattr(pods, name)) for name in numbers},
        **{name: pa.array(np.array(sums[name], np.int64)[pods.spec]) for name in _SUMS},
    }


def _name_column(codes: NDArray[np.int32], names: Sequence[str]) -> Any:
    """Return names by code; a negative code is null."""
    indices = pa.array(codes, pa.int32(), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(names, pa.string()))


_PLAIN_GROUP_FIELDS = (
    "ref",
    "kind",
    "api",
    "name",
    "policy",
    "min_count",
    "min_groups",
    "size",
    "priority",
    "disruption",
    "never_preempts",
    "evictable",
    "movable",
    "created",
    "queue",
    "is_inferred",
    "is_leader",
    "blocked",
)


def _group_columns(groups: Sequence[Group], refs: Sequence[str]) -> dict[str, Any]:
    return {
        **_attributes(groups, _PLAIN_GROUP_FIELDS),
        "parent": [None if g.parent == NO_GROUP else refs[g.parent] for g in groups],
        "topology": [
            [{"path": list(t.path), "required": t.required} for t in g.topology] for g in groups
        ],
        "slices": [
            [{"path": list(s.path), "size": s.size, "required": s.required} for s in g.slices]
            for g in groups
        ],
        "exclusive": [[{"peers": e.peers, "key": e.key} for e in g.exclusive] for g in groups],
        "unmodelled": [list(g.unmodelled) for g in groups],
    }


def _budget_columns(budgets: Sequence[Budget]) -> dict[str, Any]:
    return {
        **_attributes(budgets, ("ref", "allowed")),
        "selector": [
            None if b.selector is None else msgspec.json.encode(b.selector).decode()
            for b in budgets
        ],
        "disrupted": [sorted(b.disrupted) for b in budgets],
    }


# --- reading ---------------------------------------------------------------------------------


def _check_columns(name: str, table: Any) -> None:
    for field in SCHEMAS[name]:
        if is_derived(field):
            continue
        if field.name not in table.column_names:
            raise SnapshotError(f"{name}.parquet: column {field.name} is missing")
        found = table.schema.field(field.name).type
        plain = found.value_type if pa.types.is_dictionary(found) else found
        wanted = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if plain != wanted:
            raise SnapshotError(
                f"{name}.parquet: column {field.name} holds {plain}, expected {wanted}"
            )


def _add_columns(name: str, table: Any) -> Any:
    """Return a table of an older minor version with the columns that were added since."""
    for (owner, column), value in ADDED.items():
        if owner == name and column not in table.column_names:
            field = SCHEMAS[name].field(column)
            table = table.append_column(field, pa.array([value] * table.num_rows, field.type))
    return table


def _read(name: str, table: Any) -> dict[str, list[Any]]:
    """Return the columns of a small table as Python lists."""
    _check_columns(name, table)
    wanted = [field.name for field in SCHEMAS[name] if not is_derived(field)]
    return {column: _decode(table[column]).to_pylist() for column in wanted}


def _decode(column: Any) -> Any:
    """Return a column of names as plain strings (Arrow lists those ten times faster)."""
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _rows(columns: Mapping[str, list[Any]]) -> Iterable[dict[str, Any]]:
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(columns, values, strict=True))


def _read_nodes(columns: Mapping[str, list[Any]]) -> Iterable[Node]:
    for row in _rows(columns):
        yield Node(
            row["name"],
            dict(row["labels"]),
            dict(row["allocatable"]),
            tuple(Taint(**t) for t in row["taints"]),
            row["unschedulable"],
            row["ready"],
            row["allows_resize_preemption"],
        )


def _read_groups(columns: Mapping[str, list[Any]]) -> Iterable[Group]:
    index = {ref: i for i, ref in enumerate(columns["ref"])}
    for row in _rows(columns):
        parent = row["parent"]
        if parent is not None and parent not in index:
            raise SnapshotError(f"groups.parquet: {row['ref']}: parent {parent} is missing")
        yield Group(
            **{name: row[name] for name in _PLAIN_GROUP_FIELDS},
            parent=NO_GROUP if parent is None else index[parent],
            topology=tuple(TopologyTerm(tuple(t["path"]), t["required"]) for t in row["topology"]),
            slices=tuple(
                SliceTerm(tuple(s["path"]), s["size"], s["required"]) for s in row["slices"]
            ),
            exclusive=tuple(Exclusive(e["peers"], e["key"]) for e in row["exclusive"]),
            unmodelled=tuple(row["unmodelled"]),
        )


def _read_budgets(columns: Mapping[str, list[Any]]) -> Iterable[Budget]:
    for row in _rows(columns):
        text = row["selector"]
        selector = None if text is None else msgspec.json.decode(text, type=LabelSelector)
        yield Budget(row["ref"], selector, row["allowed"], frozenset(row["disrupted"]))


def _read_pods(table: Any, node_names: Any, group_refs: Any, templates: Any) -> dict[str, Any]:
    _check_columns("pods", table)
    node = _read_codes(table, "node", node_names, NO_NODE)
    node[_read_numbers(table, "node_missing", np.bool_)] = MISSING_NODE
    integers = {
        "flags": np.int16,
        "priority": np.int32,
        "rank": np.int32,
        **dict.fromkeys(_TIMES, np.int64),
        "spec": np.int32,
        "labels": np.int32,
    }
    return {
        "refs": tuple(table["ref"].to_pylist()),
        "node": node,
        "group": _read_codes(table, "group", group_refs, NO_GROUP),
        "template": _read_codes(table, "template", templates, -1),
        "phase": _read_codes(table, "phase", pa.array(_PHASES), -1).astype(np.int8),
        "nominated": _read_codes(table, "nominated", node_names, NO_NODE),
        **{name: _read_numbers(table, name, dtype) for name, dtype in integers.items()},
    }


def _read_codes(table: Any, column: str, names: Any, absent: int) -> NDArray[np.int32]:
    """Return where each name of a column stands in `names`; null gives `absent`."""
    found = _decode(table[column])
    codes = pc.index_in(found, value_set=names)
    if codes.null_count != found.null_count:
        unknown = found.filter(pc.and_(codes.is_null(), found.is_valid()))[0]
        raise SnapshotError(f"pods.parquet: column {column} names {unknown}, which is missing")
    # A copy: Arrow's memory is read-only.
    return np.array(codes.fill_null(absent).to_numpy(), np.int32)


def _read_numbers(table: Any, column: str, dtype: Any) -> NDArray[Any]:
    if table[column].null_count:
        raise SnapshotError(f"pods.parquet: column {column} has empty cells")
    return np.array(table[column].to_numpy(), dtype)


def _check_codes(column: str, codes: NDArray[np.int32], length: int) -> None:
    if np.any((codes < 0) | (codes >= length)):
        raise SnapshotError(f"pods.parquet: column {column} points outside its table")
