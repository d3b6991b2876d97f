from __future__ import annotations

import gzip
import io
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from data import files
from data.files import SourceFile, find_sources, read_source
from topology.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path


def test_folders_are_searched_in_sorted_order(tmp_path: Path) -> None:
    for name in ("b/2.yaml", "b/1.json.gz", "a.yml", "c.txt", ".git/x.json", "z/.hidden.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = [s.path.removeprefix(f"{tmp_path}/") for s in find_sources([str(tmp_path)])]
    assert found == ["a.yml", "b/1.json.gz", "b/2.yaml"]


def test_files_keep_the_order_given(tmp_path: Path) -> None:
    for name in ("b.txt", "a.json"):
        (tmp_path / name).touch()
    paths = [str(tmp_path / "b.txt"), "-", str(tmp_path / "a.json")]
    assert list(find_sources(paths)) == [SourceFile(p, True) for p in paths]


@pytest.mark.parametrize(
    "pack",
    [
        pytest.param(lambda data: data, id="plain"),
        pytest.param(gzip.compress, id="gzip"),
        pytest.param(lambda data: gzip.compress(gzip.compress(data)), id="gzip twice"),
    ],
)
def test_unpacks_by_content_not_by_name(tmp_path: Path, pack: object) -> None:
    file = tmp_path / "nodes"
    file.write_bytes(pack(b"{}"))  # type: ignore[operator]
    assert read_source(SourceFile(str(file), True)) == b"{}"


def zipped(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return buffer.getvalue()


def test_reads_the_snapshot_in_a_kai_zip(tmp_path: Path) -> None:
    file = tmp_path / "kai.zip"
    file.write_bytes(zipped("snapshot.json", b'{"rawObjects":{}}'))
    assert read_source(SourceFile(str(file), True)) == b'{"rawObjects":{}}'


def test_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"a: 1"))))
    assert read_source(SourceFile("-", True)) == b"a: 1"


@pytest.mark.parametrize(
    ("data", "want_message"),
    [
        pytest.param(gzip.compress(b"x" * 10_000)[:-20], "damaged", id="gzip cut short"),
        pytest.param(b"\x1f\x8b" + b"\0" * 40, "damaged", id="no gzip after the magic"),
        pytest.param(gzip.compress(b"x" * 100)[:-8] + b"12345678", "damaged", id="bad checksum"),
        pytest.param(zipped("other.json", b"{}"), "holds no snapshot.json", id="another zip"),
        pytest.param(zipped("snapshot.json", b"{}" * 99)[:60], "damaged", id="zip cut short"),
        pytest.param(gzip.compress(b"\0" * 3_000_000), "more than", id="gzip bomb"),
        pytest.param(zipped("snapshot.json", b"\0" * 3_000_000), "more than", id="zip bomb"),
        pytest.param(b"x" * 2_000_001, "more than", id="large file"),
    ],
)
def test_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, want_message: str
) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", 2_000_000)
    file = tmp_path / "objects.json"
    file.write_bytes(data)
    with pytest.raises(SnapshotError, match=want_message) as caught:
        read_source(SourceFile(str(file), True))
    assert str(caught.value).startswith(str(file))


def test_a_missing_path_is_named() -> None:
    with pytest.raises(SnapshotError, match="/no/such: no such file"):
        list(find_sources(["/no/such"]))
