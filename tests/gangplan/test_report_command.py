"""`gangplan report`: endings, options, streams."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gangplan.cli import run

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests/cases"
VICTIMS = str(CASES / "preempt-pdb-two-domains/snapshot.yaml")
RACKS = str(CASES / "place-fragmented-racks/snapshot.yaml")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A plan with evictions."""
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    assert run(["preempt", VICTIMS, "--group", "work/wide", "--quiet", "-O", str(file)]) == 0
    return str(file)


@pytest.mark.parametrize(
    ("file", "options", "want_start"),
    [
        pytest.param("a.html", [], b"<!DOCTYPE html>", id="page"),
        pytest.param("a.html", ["--snapshot", VICTIMS], b"<!DOCTYPE html>", id="page with fleet"),
        pytest.param("a.HTM", [], b"<!DOCTYPE html>", id="other ending"),
        pytest.param("a.svg", [], b"<svg ", id="heat map"),
        pytest.param("a.svg", ["--picture", "victims"], b"<svg ", id="victims"),
        pytest.param("a.svg", ["--picture", "tree", "--snapshot", VICTIMS], b"<svg ", id="tree"),
    ],
)
def test_report(
    plan: str, tmp_path: Path, file: str, options: list[str], want_start: bytes,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert run(["report", plan, "-O", str(tmp_path / file), *options]) == 0
    assert (tmp_path / file).read_bytes().startswith(want_start)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("options", "want_message"),
    [
        pytest.param(["-O", "a.pdf"], "must end in .html", id="ending"),
        pytest.param(["-O", "a"], "must end in .html", id="no ending"),
        pytest.param(
            ["-O", "a.html", "--picture", "tree"],
            "a page holds all pictures",
            id="picture of a page",
        ),
        pytest.param(["-O", "a.svg", "--picture", "tree"], "give --snapshot", id="no topology"),
        pytest.param(["-O", "a.svg", "--picture", "waves"], "moves nothing", id="no moves"),
        pytest.param(["-O", "a.svg", "--picture", "pie"], "--picture", id="unknown picture"),
        pytest.param(["-O", "nowhere/a.html"], "cannot be written", id="no such folder"),
        pytest.param(["-O", "a.html", "--snapshot", "no.yaml"], "no.yaml", id="no such snapshot"),
        pytest.param([], "--output", id="no file"),
    ],
)
def test_refusals(
    plan: str, options: list[str], want_message: str, capsys: pytest.CaptureFixture[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["report", plan, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert len(err.splitlines()) == 1
    assert want_message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "want_message"),
    [
        pytest.param("[]", "holds no object", id="list"),
        pytest.param("{}", "kind: must be Plan, Inspection or WhatIf, not None", id="no kind"),
        pytest.param('{"kind": "Plan"}', "plan: apiVersion: is missing", id="half a plan"),
        pytest.param('{"kind": "Inspection"}', "missing required field", id="half an inspection"),
    ],
)
def test_other_documents(
    content: str, want_message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "in.json"
    file.write_text(content)
    assert run(["report", str(file), "-O", str(tmp_path / "a.html")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {file}: ")
    assert want_message in err


def test_another_snapshot_is_told(
    plan: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "a.html"
    assert run(["report", plan, "--snapshot", RACKS, "-O", str(page)]) == 0
    err = capsys.readouterr().err.splitlines()
    assert err[0] == (
        f"warning: {plan}: was made for another snapshot; it is drawn on the one given"
    )
    assert "The answer was made for another snapshot" in page.read_text()


def test_standard_input(
    plan: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Input:
        buffer = io.BytesIO(Path(plan).read_bytes())

    monkeypatch.setattr(sys, "stdin", Input)
    page = tmp_path / "a.html"
    assert run(["report", "-", "-O", str(page)]) == 0
    assert run(["report", "-", "--snapshot", "-", "-O", str(page)]) == 2
    assert "give one of them as a file" in capsys.readouterr().err


def test_inspection_and_explanation(tmp_path: Path) -> None:
    for command, want_title in (("inspect", "<h1>Fleet</h1>"), ("explain", "<h1>Why groups wait")):
        answer, page = tmp_path / f"{command}.yaml", tmp_path / f"{command}.html"
        assert run([command, RACKS, "-O", str(answer), "--quiet"]) == 0
        assert run(["report", str(answer), "-O", str(page)]) == 0
        assert want_title in page.read_text()


def test_loads_nothing_heavy(plan: str, tmp_path: Path) -> None:
    args = ["report", plan, "--snapshot", VICTIMS, "-O", str(tmp_path / "a.html")]
    code = (
        f"import sys; from gangplan.cli import run; assert run({args!r}) == 0; print(*sys.modules)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert {"jax", "scipy", "ray", "networkx", "rich"} & set(ran.stdout.split()) == set()


def test_a_lone_half_of_a_surrogate_in_a_plan(plan: str, tmp_path: Path) -> None:
    document = json.loads(Path(plan).read_text())
    document["warnings"] = ["\ud800"]
    answer, page = tmp_path / "in.json", tmp_path / "a.html"
    answer.write_text(json.dumps(document))
    assert run(["report", str(answer), "-O", str(page)]) == 0
    assert r"\ud800" in page.read_text()
