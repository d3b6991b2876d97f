"""`--cost`, `--resize` and `--requests` on the command line: answers, tables, refusals."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kube import container, gang, node, pod

from gangplan.cli import run

if TYPE_CHECKING:
    from pathlib import Path

Obj = dict[str, Any]


def write(folder: Path, *objects: Obj) -> str:
    file = folder / "objects.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    return str(file)


@pytest.fixture
def full(tmp_path: Path) -> str:
    """A node of 16 cores, all in use, and a pod on it that may evict the others."""
    allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110"}
    return write(
        tmp_path,
        node("n1", allocatable=allocatable),
        pod("a", container(cpu="4"), on="n1", priority=10),
        pod("b", container(cpu="12"), on="n1"),
    )


def test_a_resize_as_a_table(full, capsys):
    assert run(["preempt", full, "--resize", "ml/a", "--requests", "cpu=8,memory=1Gi"]) == 0
    assert capsys.readouterr().out == (
        "RESIZE   NODE   REQUESTS                      OUTCOME            CAUSE\n"
        "ml/a     n1     cpu 4 to 8, memory 0 to 1Gi   would be resized   <none>\n"
        "\n"
        "WOULD EVICT   PODS    GPUS   NODES    FOR\n"
        "*             1 pod   0      1 node   <none>\n"
        "ml/b          1 pod   0      n1       ml/a\n"
        "\n"
        "CRITERION               VALUE   BOUND    PROOF\n"
        "pdbViolations           0       <none>   <none>\n"
        "highestVictimPriority   0       <none>   <none>\n"
        "victimUnits             1       <none>   <none>\n"
        "victimPods              1       1        optimal\n"
        "\n"
        "verified: 40 checks, 0 violations\n"
    )


def test_a_resize_as_json_is_a_plan_that_verifies(full, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    asked = ["preempt", full, "-n", "ml", "--resize", "a", "--requests", "cpu=8", "--quiet"]
    assert run([*asked, "-O", str(plan)]) == 0
    document = json.loads(plan.read_text())
    assert document["request"]["resize"] == {"pod": "ml/a", "requests": {"cpu": "8"}}
    assert document["groups"] == []
    assert document["resize"] == {
        "pod": "ml/a",
        "node": "n1",
        "outcome": "resized",
        "cause": None,
        "from": {"cpu": "4"},
        "to": {"cpu": "8"},
    }
    assert [(e["pod"], e["for"]) for e in document["evictions"]] == [("ml/b", "ml/a")]
    assert run(["verify", full, "--plan", str(plan)]) == 0


def test_a_resize_that_is_too_large(full, capsys):
    asked = ["preempt", full, "--resize", "ml/a", "--requests", "cpu=17", "--exit-status"]
    assert run(asked) == 3
    assert "node n1 is too small: 17 cpu is more than its 16" in capsys.readouterr().out


RESIZE = ["--resize", "ml/a"]


@pytest.mark.parametrize(
    ("command", "options", "want_words"),
    [
        pytest.param("place", RESIZE, "--resize: is a question to", id="place resizes nothing"),
        pytest.param("preempt", RESIZE, "to what? say it by --requests", id="to what"),
        pytest.param(
            "preempt", ["--requests", "cpu=1"], "--requests: of which pod?", id="of which pod"
        ),
        pytest.param(
            "preempt",
            [*RESIZE, "--group", "ml/g", "--requests", "cpu=1"],
            "leave out --group",
            id="a group too",
        ),
        pytest.param(
            "preempt", [*RESIZE, "--requests", "cpu"], "write RESOURCE=QUANTITY", id="no amount"
        ),
        pytest.param(
            "preempt", [*RESIZE, "--requests", "cpu=x"], "'x', which is no quantity", id="no number"
        ),
        pytest.param(
            "preempt",
            [*RESIZE, "--requests", "cpu=1", "--requests", "cpu=2"],
            "cpu is named twice",
            id="twice",
        ),
        pytest.param(
            "preempt",
            [*RESIZE, "--requests", "cpu=8", "--policy", "replay"],
            "--policy: a resize is planned by the search alone",
            id="a replay",
        ),
        pytest.param("place", ["--cost", "scheduler"], "add --preempt", id="cost of nothing"),
        pytest.param(
            "place",
            ["--preempt", "--cost", "gpu-seconds-lost", "--objective", "max:priority"],
            "--objective says already what counts",
            id="two objectives",
        ),
    ],
)
def test_refuses(command, options, want_words, full, capsys):
    assert run([command, full, *options]) == 2
    said = capsys.readouterr().err
    assert want_words in said
    assert said.count("\n") == 1


def test_cost_and_another_annotation(tmp_path, capsys):
    """By the scheduler's order a goes (lower priority), by lost work b (it has just saved)."""

    def running(name: str, on: str, priority: int, saved: str) -> Obj:
        metadata = {"name": name, "namespace": "ml", "annotations": {"example.com/saved": saved}}
        status = {"startTime": "2026-11-30T10:00:00Z"}
        return pod(
            name, container(gpus=8), on=on, priority=priority, metadata=metadata, status=status
        )

    file = write(
        tmp_path,
        node("n1"),
        node("n2"),
        running("a", "n1", 0, "2026-11-30T10:10:00Z"),
        running("b", "n2", 5, "2026-11-30T10:50:00Z"),
        gang("g", priority=10),
        pod("g0", container(gpus=8), group="g", priority=10),
    )
    asked = ["preempt", file, "--group", "ml/g", "-o", "json", "--quiet"]
    mine = ["--checkpoint-annotation", "example.com/saved"]

    def ask(*options: str) -> tuple[list[str], int]:
        assert run([*asked, *options]) == 0
        plan = json.loads(capsys.readouterr().out)
        return [e["pod"] for e in plan["evictions"]], plan["criteria"]["gpuSecondsLost"]

    assert ask(*mine) == (["ml/a"], 8 * 2400)
    assert ask(*mine, "--cost", "gpu-seconds-lost") == (["ml/b"], 0)
