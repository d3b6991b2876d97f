from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from builders import make_node, make_pods, make_snapshot, make_spec
from rich_snapshot import make_rich_snapshot

from data.digest import digest_snapshot
from topology.model import Budget, Group, LabelSelector, ObjectError, PodFlag, Requirement, Snapshot

SMALL = [make_node("n0"), make_node("n1")]


def test_is_a_known_value():
    """Changes only together with DIGEST_VERSION: stored digests and plans rely on it."""
    want_digest = "sha256:cfa5d919bd4118587cc4bd6aa9ade89234c58a79b5dbb18cc59fa19b3249033d"
    assert digest_snapshot(make_rich_snapshot()) == want_digest


def _intern_backwards(snapshot: Snapshot) -> Snapshot:
    """The same pods with every table reversed, an unused and a doubled entry in it."""
    pods = snapshot.pods

    def turn(table: tuple, codes: np.ndarray, extra: object) -> tuple[tuple, np.ndarray]:
        doubled = (*reversed(table), extra, table[0])
        turned = (len(table) - 1 - codes).astype(np.int32)
        turned[::2] = np.where(codes[::2] == 0, len(doubled) - 1, turned[::2])
        return doubled, turned

    specs, spec = turn(pods.specs, pods.spec, make_spec(gpus=99))
    label_sets, labels = turn(pods.label_sets, pods.labels, {"a": "b"})
    templates, template = turn(pods.templates, pods.template, "unused")
    return replace(
        snapshot,
        pods=replace(
            pods,
            specs=specs,
            spec=spec,
            label_sets=label_sets,
            labels=labels,
            templates=templates,
            template=template,
        ),
    )


def _keep_more_labels(snapshot: Snapshot) -> Snapshot:
    """The same pods with a label that no selector of the snapshot mentions."""
    pods = snapshot.pods
    more = tuple({**labels, "example.com/team": "x"} for labels in pods.label_sets)
    return replace(snapshot, pods=replace(pods, label_sets=more))


def _reorder_labels(snapshot: Snapshot) -> Snapshot:
    nodes = (replace(n, labels=dict(reversed(n.labels.items()))) for n in snapshot.nodes)
    return replace(snapshot, nodes=tuple(nodes))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_intern_backwards, id="interning order"),
        pytest.param(_reorder_labels, id="label order"),
        pytest.param(_keep_more_labels, id="a label that no selector mentions"),
        pytest.param(
            lambda s: replace(s, errors=(ObjectError("a", "Pod", "b", "c", "d"),), warnings=("w",)),
            id="errors and warnings",
        ),
    ],
)
def test_does_not_depend_on(change):
    snapshot = make_rich_snapshot()
    assert digest_snapshot(change(snapshot)) == digest_snapshot(snapshot)


def _change_pods(**columns: object):
    def change(snapshot: Snapshot) -> Snapshot:
        return replace(snapshot, pods=replace(snapshot.pods, **columns))

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda s: replace(s, nodes=s.nodes[:1]), id="node gone"),
        pytest.param(
            lambda s: replace(s, nodes=(replace(s.nodes[0], ready=False), *s.nodes[1:])),
            id="node not ready",
        ),
        pytest.param(lambda s: replace(s, groups=(Group("ml/x", "group", "api"),)), id="group"),
        pytest.param(lambda s: replace(s, budgets=(Budget("ml/b", None, 1),)), id="budget"),
        pytest.param(_change_pods(refs=("ml/a-0", "ml/a-2")), id="pod name"),
        pytest.param(_change_pods(specs=(make_spec(gpus=3),)), id="request"),
        pytest.param(_change_pods(label_sets=({"a": "b"},)), id="pod label"),
        pytest.param(_change_pods(templates=("x",)), id="template"),
        pytest.param(_change_pods(node=np.array([0, 0], np.int32)), id="pod elsewhere"),
        pytest.param(
            _change_pods(flags=np.array([0, PodFlag.GATED], np.int16)), id="flag of a pod"
        ),
        pytest.param(_change_pods(started=np.array([0, 1], np.int64)), id="start of a pod"),
        pytest.param(_change_pods(checkpoint=np.array([0, 1], np.int64)), id="checkpoint of a pod"),
    ],
)
def test_depends_on(change):
    budget = Budget("ml/own", LabelSelector((Requirement("a", "Exists"),)), 1)
    snapshot = make_snapshot(SMALL, make_pods("a", 2, on=["n0", "n1"]), budgets=[budget])
    assert digest_snapshot(change(snapshot)) != digest_snapshot(snapshot)


@pytest.mark.parametrize("seed", ["1", "2"])
def test_is_the_same_in_every_process(seed):
    code = (
        "from rich_snapshot import make_rich_snapshot; from data.digest import digest_snapshot;"
        "print(digest_snapshot(make_rich_snapshot()))"
    )
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "tests")])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == digest_snapshot(make_rich_snapshot())
