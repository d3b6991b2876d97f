"""Input named by a URI: copied here first, then read like any other.

Source: `pyarrow.fs`, which knows file, s3, gs, hdfs and, with fsspec installed, others.
"""

from __future__ import annotations

import re
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from topology.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["fetch_all", "is_remote"]

_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_remote(path: str) -> bool:
    """Tell whether a path is a URI."""
    return _URI.match(path) is not None


@contextmanager
def fetch_all(paths: Sequence[str]) -> Iterator[list[str]]:
    """Copy what URIs name into a folder that lasts as long as the block.

    Args:
      paths: URIs and local paths.

    Yields:
      Local paths in the same order.

    Raises:
      SnapshotError: One cannot be reached or read.
    """
    with tempfile.TemporaryDirectory(prefix="gangplan-") as folder:
        yield [
            _fetch(path, Path(folder, str(i))) if is_remote(path) else path
            for i, path in enumerate(paths)
        ]


def _fetch(uri: str, folder: Path) -> str:
    from pyarrow import fs

    folder.mkdir()
    try:
        files, root = fs.FileSystem.from_uri(uri)
        info = files.get_file_info(root)
        if info.type == fs.FileType.NotFound:
            raise SnapshotError(f"{uri}: does not exist; check the address")
        target = folder / (info.base_name or "input")
        if info.type == fs.FileType.Directory:
            target.mkdir()
        fs.copy_files(root, str(target), source_filesystem=files)
    except (OSError, ValueError, ImportError) as problem:
        reason = " ".join(str(problem).split())
        raise SnapshotError(f"{uri}: cannot be read: {reason}") from None
    return str(target)
