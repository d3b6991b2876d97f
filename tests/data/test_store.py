from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot
from rich_snapshot import assert_same, make_rich_snapshot

from data.store import is_store, read_store, write_store
from topology.errors import SnapshotError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(make_rich_snapshot(), id="every field"),
        pytest.param(make_snapshot([]), id="nothing at all"),
        pytest.param(make_snapshot([make_node("n0")]), id="nodes only"),
        pytest.param(
            replace(make_snapshot([make_node("n0", memory=2**63 - 1)]), warnings=("a", "b")),
            id="the largest amount",
        ),
    ],
)
def test_reads_back_what_was_written(snapshot, tmp_path):
    write_store(snapshot, tmp_path / "s")
    assert_same(read_store(tmp_path / "s"), snapshot)


def test_unused_table_entries_and_their_order_survive(tmp_path):
    snapshot = make_rich_snapshot()
    pods = replace(snapshot.pods, templates=("", "zebra-leader", "unused", "another"))
    snapshot = replace(snapshot, pods=pods)
    write_store(snapshot, tmp_path / "s")
    assert_same(read_store(tmp_path / "s"), snapshot)


def test_files_answer_questions_on_their_own(tmp_path):
    nodes = [make_node("n0", rack="r0", cpu=1500), make_node("n1", rack="r0")]
    pods = [make_pods("a", 2, group="ml/a", on=["n0", "n1"]), make_pods("b", 1)]
    write_store(make_snapshot(nodes, *pods, groups=[make_group("ml/a", 2, key=RACK)]), tmp_path)

    rows = pq.read_table(tmp_path / "pods.parquet").to_pylist()
    columns = ("ref", "node", "group", "phase", "gpus")
    assert [tuple(row[c] for c in columns) for row in rows] == [
        ("ml/a-0", "n0", "ml/a", "Running", 1),
        ("ml/a-1", "n1", "ml/a", "Running", 1),
        ("ml/b-0", None, None, "Pending", 1),
    ]
    first = pq.read_table(tmp_path / "nodes.parquet").to_pylist()[0]
    assert (first["cpu_milli"], first["memory_bytes"], first["gpus"]) == (1500, 512 << 30, 8)
    assert dict(first["allocatable"])["nvidia.com/gpu"] == 8
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "budgets.parquet",
        "device_parts.parquet",
        "devices.parquet",
        "errors.parquet",
        "groups.parquet",
        "label_sets.parquet",
        "manifest.json",
        "nodes.parquet",
        "pods.parquet",
        "specs.parquet",
    ]


def test_reads_a_store_of_before_checkpoints(tmp_path):
    snapshot = make_snapshot([make_node("n0")], make_pods("a", 2, on="n0", started=5))
    write_store(snapshot, tmp_path)
    for name, column in (("pods", "checkpoint"), ("nodes", "allows_resize_preemption")):
        table = pq.read_table(tmp_path / f"{name}.parquet")
        pq.write_table(table.drop_columns([column]), tmp_path / f"{name}.parquet")
    assert_same(read_store(tmp_path), snapshot)


def test_a_store_is_replaced_and_nothing_is_left_beside_it(tmp_path):
    write_store(make_rich_snapshot(), tmp_path / "s")
    small = make_snapshot([make_node("n0")])
    write_store(small, tmp_path / "s")
    assert_same(read_store(tmp_path / "s"), small)
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_a_store_behind_a_link_is_replaced_and_the_link_stays(tmp_path):
    write_store(make_rich_snapshot(), tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    small = make_snapshot([make_node("n0")])
    write_store(small, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert_same(read_store(tmp_path / "real"), small)


def test_a_failed_write_leaves_the_old_store(tmp_path, monkeypatch):
    old = make_snapshot([make_node("n0")])
    write_store(old, tmp_path / "s")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", fail)
    with pytest.raises(SnapshotError, match="No space left on device"):
        write_store(make_rich_snapshot(), tmp_path / "s")
    assert [p.name for p in tmp_path.iterdir()] == ["s"]
    assert_same(read_store(tmp_path / "s"), old)


def _put_file(folder: Path) -> None:
    folder.rmdir()
    folder.write_text("x")


def _put_notes(folder: Path) -> None:
    write_store(make_snapshot([]), folder)
    (folder / "notes.txt").write_text("x")


@pytest.mark.parametrize(
    ("prepare", "want"),
    [
        pytest.param(
            lambda f: (f / "photo.jpg").write_text("x"), "other content", id="another folder"
        ),
        pytest.param(
            lambda f: (f / "manifest.json").write_text("{}"), "other content", id="another manifest"
        ),
        pytest.param(_put_notes, "holds notes.txt", id="a store with something in it"),
        pytest.param(_put_file, "is a file", id="a file"),
    ],
)
def test_refuses_to_overwrite(prepare, want, tmp_path):
    folder = tmp_path / "s"
    folder.mkdir()
    prepare(folder)
    before = sorted(str(p) for p in tmp_path.rglob("*"))
    with pytest.raises(SnapshotError, match=want):
        write_store(make_snapshot([make_node("n0")]), folder)
    assert sorted(str(p) for p in tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("nodes", "groups", "want"),
    [
        pytest.param(
            [make_node("n0"), make_node("n0")], [], "two nodes are called n0", id="node twice"
        ),
        pytest.param([make_node("n0", cpu=2**63)], [], "64 bits", id="beyond 64 bits"),
    ],
)
def test_refuses_what_cannot_be_stored(nodes, groups, want, tmp_path):
    with pytest.raises(SnapshotError, match=want):
        write_store(make_snapshot(nodes, groups=groups), tmp_path / "s")
    assert list(tmp_path.iterdir()) == []


def _edit_manifest(**changes: object):
    def edit(folder: Path) -> None:
        manifest = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(manifest | changes))

    return edit


def _edit_table(name: str, change):
    def edit(folder: Path) -> None:
        table = pq.ParquetFile(folder / f"{name}.parquet").read()
        pq.write_table(change(table), folder / f"{name}.parquet")

    return edit


def _mix(folder: Path) -> None:
    other = folder.parent / "other"
    write_store(make_snapshot([make_node("n9")]), other)
    shutil.copy(other / "nodes.parquet", folder / "nodes.parquet")


@pytest.mark.parametrize(
    ("damage", "want"),
    [
        pytest.param(
            _edit_manifest(schemaVersion="3.1", gangplanVersion="9.9"),
            r"schema 3\.1, written by gangplan 9\.9, is newer than 2\.0; upgrade gangplan",
            id="newer major version",
        ),
        pytest.param(_edit_manifest(schemaVersion="x"), "no manifest", id="no version"),
        pytest.param(_edit_manifest(counts=3), "no manifest", id="manifest of other types"),
        pytest.param(
            lambda f: (f / "manifest.json").unlink(), "manifest.json: cannot be read", id="no store"
        ),
        pytest.param(
            lambda f: (f / "pods.parquet").unlink(), "pods.parquet: is missing", id="missing file"
        ),
        pytest.param(
            lambda f: (f / "pods.parquet").write_bytes(b"PAR1"),
            "pods.parquet: cannot be read",
            id="damaged file",
        ),
        pytest.param(
            lambda f: (f / "pods.parquet").write_bytes((f / "pods.parquet").read_bytes()[:-300]),
            "pods.parquet: cannot be read",
            id="cut file",
        ),
        pytest.param(_mix, "nodes.parquet: belongs to another snapshot", id="mixed files"),
        pytest.param(
            _edit_table("pods", lambda t: t.drop_columns(["rank"])),
            "pods.parquet: column rank is missing",
            id="missing column",
        ),
        pytest.param(
            _edit_table("nodes", lambda t: t.slice(1)),
            "names zebra-n0, which is missing",
            id="missing node",
        ),
        pytest.param(
            _edit_table("specs", lambda t: t.slice(1)), "points outside", id="missing spec"
        ),
        pytest.param(_edit_manifest(templates=[""]), "zebra-leader", id="missing template"),
        pytest.param(
            _edit_table("budgets", lambda t: t.slice(1)), "content has digest", id="missing rows"
        ),
    ],
)
def test_names_what_is_wrong(damage, want, tmp_path):
    folder = tmp_path / "s"
    write_store(make_rich_snapshot(), folder)
    damage(folder)
    with pytest.raises(SnapshotError, match=want) as caught:
        read_store(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_edit_manifest(schemaVersion="2.7", more=[1]), id="newer minor version"),
        pytest.param(_edit_manifest(digestVersion=99), id="digests of another version"),
        pytest.param(
            _edit_table("pods", lambda t: t.append_column("new", t["rank"])), id="new column"
        ),
        pytest.param(
            _edit_table("pods", lambda t: t.drop_columns(["gpus"])), id="no derived column"
        ),
    ],
)
def test_reads_what_a_newer_minor_version_wrote(change, tmp_path):
    write_store(make_rich_snapshot(), tmp_path / "s")
    change(tmp_path / "s")
    assert_same(read_store(tmp_path / "s"), make_rich_snapshot())


def test_recognises_a_store(tmp_path):
    write_store(make_snapshot([]), tmp_path / "s")
    (tmp_path / "empty").mkdir()
    assert is_store(tmp_path / "s")
    assert not is_store(tmp_path / "empty")
    assert not is_store(tmp_path / "nowhere")
