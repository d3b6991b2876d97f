from __future__ import annotations

import gzip
import json
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Any

import pytest
from kube import find_pod, node, pod, thing

from data.reader import format_error, read_snapshot
from topology.errors import SnapshotError
from topology.model import ObjectError

if TYPE_CHECKING:
    from pathlib import Path


def write(path: Path, *objects: dict[str, Any]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    path.write_text(json.dumps(items))
    return str(path)


def test_several_files_are_one_snapshot(tmp_path: Path) -> None:
    nodes = write(tmp_path / "nodes.json", node("n0"), node("n1"))
    pods = tmp_path / "pods.yaml"
    pods.write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: ml}\n"
        "spec: {nodeName: n1, containers: [{name: main, resources: {requests: {cpu: 2}}}]}\n"
        "status: {phase: Running}\n"
    )
    snapshot = read_snapshot([nodes, str(pods)])
    row = find_pod(snapshot)
    assert snapshot.nodes[row.node].name == "n1"
    assert row.spec.requests == (("cpu", 2000), ("pods", 1))


def test_keeps_the_labels_of_pods_that_are_asked_for(tmp_path: Path) -> None:
    labelled = pod("p")
    labelled["metadata"]["labels"] = {"team": "red", "tier": "best"}
    file = write(tmp_path / "all.json", node("n0"), labelled)
    assert read_snapshot([file]).pods.row(0).labels == {}
    assert read_snapshot([file], pod_labels=["team"]).pods.row(0).labels == {"team": "red"}


def test_a_cluster_info_dump(tmp_path: Path) -> None:
    bare_node = node("n0")
    del bare_node["kind"], bare_node["apiVersion"]
    bare_pod = pod("p", on="n0")
    del bare_pod["kind"], bare_pod["apiVersion"]
    for name, kind, item in (
        ("nodes.json", "NodeList", bare_node),
        ("ml/pods.json", "PodList", bare_pod),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(
            json.dumps({"kind": kind, "apiVersion": "v1", "items": [item]})
        )
    (tmp_path / "ml" / "p").mkdir()
    (tmp_path / "ml" / "p" / "logs.txt").write_text("==== START logs\n")
    snapshot = read_snapshot([str(tmp_path)])
    assert (len(snapshot.nodes), snapshot.pods.refs, snapshot.warnings) == (1, ("ml/p",), ())


def test_a_must_gather_tree_holds_pods_twice(tmp_path: Path) -> None:
    write(tmp_path / "cluster-scoped-resources/core/nodes/n0.yaml", node("n0"))
    write(tmp_path / "namespaces/ml/core/pods.yaml", pod("p"))
    write(tmp_path / "namespaces/ml/pods/p/p.yaml", pod("p"))
    (tmp_path / "namespaces/ml/values.yaml").write_text("replicas: 3\n")
    snapshot = read_snapshot([str(tmp_path)])
    assert (snapshot.pods.refs, snapshot.errors) == (("ml/p",), ())
    assert any("skipped 1 files" in w for w in snapshot.warnings)


def test_a_kai_snapshot(tmp_path: Path) -> None:
    objects = {"pods": [pod("p")], "nodes": [node("n0")], "storageClasses": [{}]}
    for some in objects.values():
        for obj in some:
            obj.pop("kind", None)
            obj.pop("apiVersion", None)
    with zipfile.ZipFile(tmp_path / "s.zip", "w") as archive:
        archive.writestr("snapshot.json", json.dumps({"config": {}, "rawObjects": objects}))
    snapshot = read_snapshot([str(tmp_path / "s.zip")])
    assert (len(snapshot.nodes), snapshot.pods.refs) == (1, ("ml/p",))


def test_standard_input(tmp_path: Path) -> None:
    file = write(tmp_path / "all.json", node("n0"), pod("p"))
    script = "from data.reader import read_snapshot as r; print(r(['-']).pods.refs)"
    with open(file, "rb") as stdin:
        done = subprocess.run(
            [sys.executable, "-c", script], stdin=stdin, capture_output=True, check=True
        )
    assert done.stdout == b"('ml/p',)\n"


def test_a_stored_snapshot(tmp_path: Path) -> None:
    from data.store import write_store

    file = write(tmp_path / "all.json", node("n0"), pod("p"))
    write_store(read_snapshot([file]), tmp_path / "stored")
    assert read_snapshot([str(tmp_path / "stored")]).pods.refs == ("ml/p",)
    with pytest.raises(SnapshotError, match="stored: is a stored snapshot"):
        read_snapshot([file, str(tmp_path / "stored")])


def test_ignored_kinds_take_one_line(tmp_path: Path) -> None:
    others = [
        thing(f"v1/{kind}", f"x{i}", "ml")
        for kind, count in {"Secret": 3, "ConfigMap": 2, "A": 1, "B": 1, "C": 1, "D": 1}.items()
        for i in range(count)
    ]
    file = write(tmp_path / "all.json", node("n0"), *others)
    assert read_snapshot([file]).warnings == (
        "ignored 9 objects of 6 kinds gangplan does not read: "
        "Secret (3), ConfigMap (2), A (1), B (1), C (1), …",
    )


@pytest.mark.parametrize(
    ("content", "want_message"),
    [
        pytest.param(b"", "is empty", id="empty file"),
        pytest.param(
            b"hello: world\n", "nothing usable was read: .*kind: is missing", id="not ours"
        ),
        pytest.param(
            b"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n",
            r"nothing usable was read: ignored 1 objects of 1 kinds .*Deployment \(1\)",
            id="other kinds",
        ),
        pytest.param(b"just text\n", "nothing usable", id="text"),
        pytest.param(
            b'{"kind":"List","apiVersion":"v1","items":[]}', "nothing usable", id="no item"
        ),
        pytest.param(b'{"kind":"List","items":[', "truncated", id="cut short"),
        pytest.param(gzip.compress(b'{"kind":"List"}' * 99)[:-9], "damaged", id="gzip cut short"),
        pytest.param(b"\x80\x81", "not valid YAML", id="binary"),
    ],
)
def test_refuses_a_file(tmp_path: Path, content: bytes, want_message: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(content)
    with pytest.raises(SnapshotError, match=want_message) as caught:
        read_snapshot([str(file)])
    assert "\n" not in str(caught.value)


def test_refuses_a_damaged_file_of_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "nodes.json", node("n0"))
    (tmp_path / "pods.json").write_text('{"apiVersion": "v1", "kind": "PodList", "items": [')
    with pytest.raises(SnapshotError, match=r"pods\.json: .*truncated"):
        read_snapshot([str(tmp_path)])


def test_strict_refuses_any_invalid_object(tmp_path: Path) -> None:
    file = write(tmp_path / "all.json", node("n0"), pod("p", phase="Lost"))
    assert len(read_snapshot([file]).errors) == 1
    with pytest.raises(SnapshotError, match=r"Pod ml/p: status\.phase: .*1 invalid objects"):
        read_snapshot([file], strict=True)


def test_progress_names_the_files(tmp_path: Path) -> None:
    lines: list[str] = []
    file = write(tmp_path / "all.json", node("n0"))
    read_snapshot([file], progress=lines.append)
    assert lines[0] == f"reading {file}"


@pytest.mark.parametrize(
    ("error", "want"),
    [
        pytest.param(
            ObjectError("ml/p", "Pod", "spec.x", "is bad; mend it", "f.json"),
            "f.json: Pod ml/p: spec.x: is bad; mend it",
            id="all parts",
        ),
        pytest.param(
            ObjectError("items[3]", "", "", "is not an object;\nremove it"),
            "object items[3]: is not an object; remove it",
            id="one line whatever the message",
        ),
    ],
)
def test_formats_errors(error: ObjectError, want: str) -> None:
    assert format_error(error) == want


def test_without_nodes_says_what_it_costs(tmp_path: Path) -> None:
    snapshot = read_snapshot([write(tmp_path / "pods.json", pod("p"))])
    assert snapshot.warnings == (
        "no Node objects were read, so nothing can be placed; add kubectl get nodes",
    )
