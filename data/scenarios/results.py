"""Answers of a what-if run on disk: one Parquet file a chunk, so that a run can be taken up again.

A file has its final name only once it is whole. Any folder that `pyarrow.fs` reaches will do.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec

from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

__all__ = ["ResultFolder"]

SCHEMA_VERSION: Final = 1
_MANIFEST: Final = "_manifest.json"
"""The underscore keeps readers of Parquet folders from taking it for a table."""


class _Manifest(msgspec.Struct, rename="camel"):
    schema_version: int
    kind: str
    question: str
    """Digest of snapshot, scenarios and request."""
    chunks: int


class ResultFolder:
    """The results of one run, chunk by chunk."""

    def __init__(self, folder: str, question: str, chunks: int, columns: Sequence[str]) -> None:
        """Open or make a folder.

        Args:
          folder: A path, or a URI that `pyarrow.fs` knows (`s3://…`, `gs://…`, `file://…`).
          question: Digest of everything the answers depend on.
          chunks: Number of files of a whole run.
          columns: Names of the whole-number columns.

        Raises:
          RequestError: The folder cannot be had, or holds something else.
        """
        self.folder = folder
        self.columns = tuple(columns)
        self.chunks = chunks
        self.files: Any
        self.root: str
        from pyarrow import fs

        try:
            self.files, self.root = (
                fs.FileSystem.from_uri(folder)
                if "://" in folder
                else (fs.LocalFileSystem(), folder)
            )
            self.files.create_dir(self.root, recursive=True)
            self._claim(question)
        except (OSError, ValueError) as problem:
            raise self._fail(problem) from None

    def _claim(self, question: str) -> None:
        """Write the manifest, or check that the one there is of the same question."""
        from pyarrow import fs

        own = _Manifest(SCHEMA_VERSION, "WhatIfResults", question, self.chunks)
        path = f"{self.root}/{_MANIFEST}"
        if self.files.get_file_info(path).type == fs.FileType.NotFound:
            present = self.files.get_file_info(fs.FileSelector(self.root))
            if any(not info.base_name.startswith(".") for info in present):
                raise RequestError(
                    f"{self.folder}: holds other files; name a new folder, or an earlier run's"
                )
            self._put(_MANIFEST, msgspec.json.format(msgspec.json.encode(own), indent=2))
            return
        with self.files.open_input_stream(path) as stream:
            content = stream.read()
        try:
            there = msgspec.json.decode(content, type=_Manifest)
        except msgspec.DecodeError as error:
            raise RequestError(
                f"{self.folder}: {_MANIFEST}: {error}; remove the folder to start anew"
            ) from None
        if there.schema_version > SCHEMA_VERSION:
            raise RequestError(
                f"{self.folder}: was written by a newer gangplan (schema {there.schema_version}); "
                "update gangplan or name another folder"
            )
        if (there.question, there.chunks) != (question, self.chunks):
            raise RequestError(
                f"{self.folder}: holds answers to another question (snapshot, scenarios or options "
                "differ); name another folder"
            )

    def read(self) -> dict[int, list[dict[str, Any]]]:
        """Return the rows of every chunk that is whole, by chunk."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyarrow import fs

        found = {}
        try:
            present = {
                info.base_name for info in self.files.get_file_info(fs.FileSelector(self.root))
            }
            for chunk in range(self.chunks):
                name = self._name(chunk)
                if name in present:
                    table = pq.read_table(f"{self.root}/{name}", filesystem=self.files)
                    found[chunk] = table.to_pylist()
        except pa.ArrowInvalid as problem:
            raise RequestError(
                f"{self.folder}/{name}: {problem}; remove the file to have it answered again"
            ) from None
        except OSError as problem:
            raise self._fail(problem) from None
        return found

    def write(self, chunk: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the rows of a chunk.

        Args:
          chunk: Its number.
          rows: `name`, `command`, `error`, `isValid`, the columns, and `plan` (JSON or None).

        Raises:
          RequestError: It cannot be written; nothing half-written is left under its name.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts = ("name", "command", "error", "plan")
        schema = pa.schema(
            [
                *(pa.field(name, pa.string()) for name in texts[:3]),
                pa.field("isValid", pa.bool_()),
                *(pa.field(name, pa.int64()) for name in self.columns),
                pa.field("plan", pa.string()),
            ],
            metadata={"gangplan.schema": str(SCHEMA_VERSION)},
        )
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(list(rows), schema), sink, compression="zstd")
        try:
            self._put(self._name(chunk), sink.getvalue())
        except OSError as problem:
            raise self._fail(problem) from None

    def _put(self, name: str, content: bytes | pa.Buffer) -> None:
        partial = f"{self.root}/.{name}.partial"
        try:
            with self.files.open_output_stream(partial) as stream:
                stream.write(content)
            self.files.move(partial, f"{self.root}/{name}")
        except OSError:
            self._forget(partial)
            raise

    def _forget(self, path: str) -> None:
        with contextlib.suppress(OSError):  # it was never made
            self.files.delete_file(path)

    def _name(self, chunk: int) -> str:
        return f"part-{chunk:05}.parquet"

    def _fail(self, problem: Exception) -> RequestError:
        reason = getattr(problem, "strerror", None) or " ".join(str(problem).split())
        return RequestError(f"{self.folder}: cannot be used for results: {reason}")
