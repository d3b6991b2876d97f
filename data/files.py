"""Paths -> the bytes of each file of Kubernetes objects, unpacked, with a bound on their size."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zipfile
import zlib
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, NamedTuple

from topology.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["STDIN", "SourceFile", "find_sources", "read_source"]

STDIN: Final = "-"
MAX_BYTES: Final = 8 << 30
"""A file that unpacks to more is refused: a fleet of a million pods is smaller."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_ZIP_MAGIC: Final = b"PK\x03\x04"
_CHUNK: Final = 1 << 20
_SUFFIXES: Final = (".json", ".yaml", ".yml", ".json.gz", ".yaml.gz", ".yml.gz")
_KAI_MEMBER: Final = "snapshot.json"


class SourceFile(NamedTuple):
    """A file to read."""

    path: str
    """As messages name it."""
    is_named: bool
    """The user named this very file, so that it must hold Kubernetes objects."""


def find_sources(paths: Sequence[str]) -> Iterator[SourceFile]:
    """Yield the files behind paths: files and "-" themselves, folders searched in sorted order.

    Folders: JSON and YAML, plain or gzip; hidden files and folders are passed over.

    Raises:
      SnapshotError: A path does not exist, or a folder cannot be listed.
    """
    for path in paths:
        if path == STDIN:
            yield SourceFile(path, True)
        elif os.path.isdir(path):
            yield from _walk(path)
        elif os.path.exists(path):
            yield SourceFile(path, True)
        else:
            raise SnapshotError(f"{path}: no such file or folder; check the path")


def _walk(folder: str) -> Iterator[SourceFile]:
    def refuse(error: OSError) -> None:
        raise SnapshotError(f"{error.filename}: {error.strerror}; make the folder readable")

    found: list[Path] = []
    for root, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(root, name)
            for name in names
            if name.lower().endswith(_SUFFIXES) and not name.startswith(".")
        ]
    for file in sorted(found):
        yield SourceFile(str(file), False)


def read_source(source: SourceFile) -> bytes:
    """Return the content of a file: gunzipped, or `snapshot.json` of a KAI snapshot ZIP.

    Raises:
      SnapshotError: It cannot be read or unpacked, or is larger than MAX_BYTES.
    """
    try:
        if source.path == STDIN:
            return _unpack(sys.stdin.buffer.read(MAX_BYTES + 1), source.path)
        if not os.path.isfile(source.path) and not _is_stream(source.path):
            raise SnapshotError(f"{source.path}: is neither file nor folder; name a file")
        with open(source.path, "rb") as file:
            return _unpack(file.read(MAX_BYTES + 1), source.path)
    except OSError as error:
        raise SnapshotError(
            f"{source.path}: {error.strerror or error}; check that the file can be read"
        ) from None


def _is_stream(path: str) -> bool:
    """Tell whether a path is a pipe, as `<(kubectl get …)` of a shell gives."""
    return Path(path).is_fifo() or path.startswith(("/dev/fd/", "/proc/self/fd/"))


def _unpack(data: bytes, path: str) -> bytes:
    if len(data) > MAX_BYTES:
        raise _too_large(path)
    try:
        if data.startswith(_GZIP_MAGIC):
            with gzip.open(io.BytesIO(data)) as stream:
                return _unpack(_read_bounded(stream, path), path)
        if data.startswith(_ZIP_MAGIC):
            return _read_kai_zip(io.BytesIO(data), path)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SnapshotError(f"{path}: is damaged ({error}); write it again") from None
    return data


def _read_kai_zip(file: IO[bytes], path: str) -> bytes:
    try:
        with zipfile.ZipFile(file) as archive:
            members = sorted(n for n in archive.namelist() if Path(n).name == _KAI_MEMBER)
            if not members:
                raise SnapshotError(
                    f"{path}: holds no {_KAI_MEMBER}; only ZIP files of KAI's snapshot plugin are "
                    "read: unpack others first"
                )
            with archive.open(members[0]) as stream:
                return _read_bounded(stream, path)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
        raise SnapshotError(f"{path}: is damaged ({error}); write it again") from None


def _read_bounded(stream: IO[bytes] | gzip.GzipFile, path: str) -> bytes:
    """Read to the end, but no more than the limit: a small file may unpack to terabytes."""
    unpacked = bytearray()
    while chunk := stream.read(_CHUNK):
        unpacked += chunk
        if len(unpacked) > MAX_BYTES:
            raise _too_large(path)
    return bytes(unpacked)


def _too_large(path: str) -> SnapshotError:
    return SnapshotError(
        f"{path}: unpacks to more than {MAX_BYTES >> 30} GiB; split it, or dump fewer kinds"
    )
