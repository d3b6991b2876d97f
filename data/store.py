"""A snapshot on disk: one folder of Parquet files and a manifest.

`manifest.json` says what the folder is, `<table>.parquet` hold the content (see `data.schemas`).
A folder appears whole or not at all: it is written beside its place, then renamed.
"""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from data.digest import DIGEST_VERSION, digest_snapshot
from data.schemas import DIGEST_KEY, SCHEMA_VERSION, SCHEMAS, with_identity
from data.tables import from_tables, to_tables
from topology.errors import SnapshotError

if TYPE_CHECKING:
    from topology.model import Snapshot

__all__ = ["is_store", "read_store", "write_store"]

_KIND: Final = "gangplan snapshot store"
_MANIFEST: Final = "manifest.json"
_AGAIN: Final = "write the snapshot again with `gangplan snapshot`"


class _Identity(msgspec.Struct, rename="camel"):
    """The part of a manifest that every version has."""

    kind: Literal["gangplan snapshot store"]
    schema_version: str
    gangplan_version: str


class _Manifest(_Identity, rename="camel"):
    digest: str
    digest_version: int
    counts: dict[str, int]
    templates: list[str]
    warnings: list[str]


def is_store(folder: Path | str) -> bool:
    """Tell whether a folder was written by `write_store`, whatever its version."""
    try:
        text = (Path(folder) / _MANIFEST).read_bytes()
        msgspec.json.decode(text, type=_Identity)
    except (OSError, msgspec.MsgspecError):
        return False
    return True


def write_store(snapshot: Snapshot, folder: Path | str) -> None:
    """Write a snapshot to a folder; an older store in its place is replaced.

    Args:
      snapshot: Anything; `read_store` gives back an equal one.
      folder: New, empty, or a store.

    Raises:
      SnapshotError: Something else is in the place, or it cannot be written.
    """
    target = Path(folder)
    _refuse_foreign(target)
    # Resolved, so that a link to a store stays a link; the same file system, so that rename works.
    target = target.resolve()
    fresh = target.with_name(f".{target.name}.{os.getpid()}.new")
    old = target.with_name(f".{target.name}.{os.getpid()}.old")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        _write_files(snapshot, fresh)
        if target.exists():
            target.rename(old)
        fresh.rename(target)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as problem:
        raise SnapshotError(
            f"{folder}: cannot be written ({problem.strerror or problem}); "
            "check the path, its permissions and the free space"
        ) from None
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if old.exists() and not target.exists():
            old.rename(target)


def read_store(folder: Path | str) -> Snapshot:
    """Read the snapshot that `write_store` wrote.

    Raises:
      SnapshotError: No store, a newer major version, or missing, mixed or damaged files.
    """
    root = Path(folder)
    manifest = _read_manifest(root)
    tables = {name: _read_table(root, name, manifest.digest) for name in SCHEMAS}
    try:
        snapshot = from_tables(tables, manifest.templates, manifest.warnings)
    except SnapshotError as problem:
        raise SnapshotError(f"{root}: {problem}; {_AGAIN}") from None
    except (pa.ArrowException, msgspec.MsgspecError, TypeError, ValueError) as problem:
        raise SnapshotError(f"{root}: content is damaged ({problem}); {_AGAIN}") from None
    if manifest.digest_version == DIGEST_VERSION:
        found = digest_snapshot(snapshot)
        if found != manifest.digest:
            raise SnapshotError(
                f"{root}: content has digest {found}, {_MANIFEST} says {manifest.digest}; {_AGAIN}"
            )
    return snapshot


def _refuse_foreign(target: Path) -> None:
    if target.is_dir():
        ours = {_MANIFEST, *(f"{name}.parquet" for name in SCHEMAS)}
        entries = sorted(entry.name for entry in target.iterdir())
        if entries and not is_store(target):
            raise SnapshotError(
                f"{target}: is a folder with other content; name a new or an empty folder"
            )
        foreign = [name for name in entries if name not in ours]
        if foreign:
            raise SnapshotError(
                f"{target}: holds {foreign[0]}, which is not part of a snapshot; "
                "move it away or name another folder"
            )
    elif target.exists():
        raise SnapshotError(f"{target}: is a file; name a folder")


def _write_files(snapshot: Snapshot, folder: Path) -> None:
    digest = digest_snapshot(snapshot)
    tables = to_tables(snapshot)
    for name, table in tables.items():
        names = [f.name for f in table.schema if pa.types.is_dictionary(f.type)]
        pq.write_table(
            table.cast(with_identity(name, digest)),
            folder / f"{name}.parquet",
            compression="zstd",
            use_dictionary=names or False,
        )
    manifest = _Manifest(
        kind=_KIND,
        schema_version=SCHEMA_VERSION,
        gangplan_version=_own_version(),
        digest=digest,
        digest_version=DIGEST_VERSION,
        counts={name: table.num_rows for name, table in tables.items()},
        templates=list(snapshot.pods.templates),
        warnings=list(snapshot.warnings),
    )
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (folder / _MANIFEST).write_bytes(text + b"\n")


def _own_version() -> str:
    try:
        return metadata.version("gangplan")
    except metadata.PackageNotFoundError:
        return "unknown"


def _read_manifest(root: Path) -> _Manifest:
    path = root / _MANIFEST
    try:
        text = path.read_bytes()
    except OSError as problem:
        raise SnapshotError(
            f"{path}: cannot be read ({problem.strerror}); "
            "name a folder that `gangplan snapshot` wrote"
        ) from None
    try:
        identity = msgspec.json.decode(text, type=_Identity)
        major = int(identity.schema_version.partition(".")[0])
        own = int(SCHEMA_VERSION.partition(".")[0])
        if major > own:
            raise SnapshotError(
                f"{path}: snapshot schema {identity.schema_version}, written by gangplan "
                f"{identity.gangplan_version}, is newer than {SCHEMA_VERSION}; upgrade gangplan"
            )
        if major < own:
            raise SnapshotError(
                f"{path}: snapshot schema {identity.schema_version} is older than "
                f"{SCHEMA_VERSION}; {_AGAIN}"
            )
        return msgspec.json.decode(text, type=_Manifest)
    except (msgspec.MsgspecError, ValueError) as problem:
        raise SnapshotError(f"{path}: is no manifest of a store ({problem}); {_AGAIN}") from None


def _read_table(root: Path, name: str, digest: str) -> Any:
    path = root / f"{name}.parquet"
    try:
        # Not pq.read_table: that one goes looking for partitions in the path.
        table = pq.ParquetFile(path).read()
    except FileNotFoundError:
        raise SnapshotError(f"{path}: is missing; {_AGAIN}") from None
    except (pa.ArrowException, OSError) as problem:
        line = str(problem).partition("\n")[0]
        raise SnapshotError(f"{path}: cannot be read ({line}); {_AGAIN}") from None
    found = (table.schema.metadata or {}).get(DIGEST_KEY, b"").decode()
    if found != digest:
        raise SnapshotError(
            f"{path}: belongs to another snapshot ({found or 'no digest'}); {_AGAIN}"
        )
    return table
