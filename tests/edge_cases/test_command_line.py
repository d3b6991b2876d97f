"""The command line given what nobody prepared: one clear line, the right status, no traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kube import container, gang, node, pod

from gangplan.cli import run

if TYPE_CHECKING:
    from pathlib import Path

Obj = dict[str, Any]
NOTHING = "give the output of kubectl get nodes,pods -A -o json"


@pytest.fixture
def fleet(tmp_path: Path) -> str:
    """A node, a gang that fits, one that runs, one that waits for a pod, and a single pod."""
    objects = [
        node("a"),
        gang("fits", 2),
        *(pod(f"f{i}", group="fits") for i in range(2)),
        gang("runs", 1),
        pod("r", group="runs", on="a"),
        gang("short", 3),
        pod("s", group="short"),
        pod("lone"),
    ]
    file = tmp_path / "fleet.yaml"
    file.write_text(yaml.safe_dump_all(objects))
    return str(file)


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param(b"", "is empty; write it again", id="empty"),
        pytest.param(b"\n", "is empty; write it again", id="blank"),
        pytest.param(b"[]", f"nothing usable was read: no objects at all; {NOTHING}", id="list"),
        pytest.param(b"null", f"nothing usable was read: no objects at all; {NOTHING}", id="null"),
        pytest.param(b"hello world", "kind: is missing or no string; state it", id="prose"),
        pytest.param(b"{}", "kind: is missing or no string; state it", id="empty object"),
        pytest.param(b'{"a": 1', "is not valid JSON (Input data was truncated)", id="cut off"),
        pytest.param(b"a: [1,\n", "line 2, column 1: is not valid YAML", id="broken YAML"),
        pytest.param(bytes(range(256)), "is not valid YAML", id="binary"),
        pytest.param(b"[" * 100_000, "is nested too deeply; write the file again", id="deep"),
    ],
)
@pytest.mark.parametrize("command", ["inspect", "explain"])
def test_files_that_hold_no_cluster(
    command: str, content: bytes, want: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "input"
    file.write_bytes(content)
    assert run([command, str(file)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert want in err


@pytest.mark.parametrize(
    ("objects", "want_warning"),
    [
        pytest.param([pod("p")], "warning: no Node objects were read", id="only pods"),
        pytest.param([node("a")], "no pod waits for a node", id="only a node"),
        pytest.param([gang("g", 4), node("a")], "no pod waits for a node", id="group without pods"),
        pytest.param(
            [node("a", allocatable={}), pod("p")], "no status.allocatable", id="an empty node"
        ),
        pytest.param(
            [node("a"), pod("p", group="lost")], "PodGroup ml/lost is missing", id="no such group"
        ),
    ],
)
@pytest.mark.parametrize("command", ["place", "explain"])
def test_clusters_that_lack_something(
    command: str,
    objects: list[Obj],
    want_warning: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    assert run([command, str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("GROUP")
    assert want_warning in err


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param(
            ["--group", "ml/fit"], "no such group was read (did you mean ml/fits?)", id="misspelt"
        ),
        pytest.param(["--group", "fits"], "did you mean ml/fits?", id="no namespace"),
        pytest.param(["--group", "ml/f0"], "is a pod of group ml/fits; ask for that", id="a pod"),
        pytest.param(["--group", ""], "no such group was read", id="nothing"),
        pytest.param(["-n", "prod"], "no pod is in that namespace", id="namespace"),
        pytest.param(["-l", ",,"], "--selector: cannot read ',,'", id="selector"),
        pytest.param(["--objective", "speed"], "write max:CRITERION or min:CRITERION", id="words"),
        pytest.param(["--objective", "max:speed"], "unknown criterion 'speed'", id="criterion"),
        pytest.param(
            ["--objective", "max:priority,max:priority"],
            "priority is named twice; name it once",
            id="criterion twice",
        ),
        pytest.param(["--seed", "-1"], "-1 is not in the range", id="seed"),
        pytest.param(["--release", "1.34"], "'1.34' is not one of '1.35'", id="release"),
        pytest.param(["-O", "no/such/folder.json"], "cannot be written: No such file", id="folder"),
        pytest.param(["-O", "."], "cannot be written: Is a directory", id="a folder"),
        pytest.param(["-O", "/dev/full"], "cannot be written: No space left", id="disk full"),
    ],
)
def test_bad_options(
    args: list[str], want: str, fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["place", fleet, *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert want in err


def test_a_group_that_runs_already_is_left_out(
    fleet: str, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["place", fleet, "--group", "ml/runs", "--group", "ml/fits", "--exit-status"]
    assert run([*args, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    assert [g["group"] for g in json.loads(out)["groups"]] == ["ml/fits"]
    assert err == "warning: group ml/runs has no pod that waits for a node; it is left out\n"


def test_a_dash_as_output_is_standard_output(
    fleet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["place", fleet, "-o", "name", "-O", "-"]) == 0
    assert capfdbinary.readouterr().out == b"pod/ml/f0\npod/ml/f1\npod/ml/lone\n"
    assert not (tmp_path / "-").exists()


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_plan_is_verified_in_the_form_it_was_saved(
    form: str, fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan"
    assert run(["place", fleet, "-o", form, "-O", str(plan)]) == 0
    assert run(["verify", fleet, "--plan", str(plan)]) == 0
    assert capsys.readouterr().out.endswith("0 violations\n")
    plan.write_text(plan.read_text().replace("ml/f0", "ml/f9"))
    assert run(["verify", fleet, "--plan", str(plan)]) == 1
    assert "error: ml/f9: exists: wanted a pod of the snapshot" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "want"),
    [
        pytest.param("{}", "plan: apiVersion: is missing", id="empty object"),
        pytest.param("[]", "holds no object", id="list"),
        pytest.param("text", "holds no object", id="prose"),
        pytest.param("a: [", "is not valid YAML", id="broken"),
        pytest.param("[" * 100_000, "is nested too deeply", id="deep"),
    ],
)
def test_plans_that_are_none(
    content: str, want: str, fleet: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tmp_path / "plan"
    plan.write_text(content)
    assert run(["verify", fleet, "--plan", str(plan)]) == 2
    err = capsys.readouterr().err
    assert want in err
    assert err.count("\n") == 1


def call(command: str, fleet: str) -> subprocess.CompletedProcess[str]:
    script = f'set -o pipefail; gangplan() {{ "{sys.executable}" -m gangplan "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", script, "bash", fleet], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("command", "want_status", "want_out", "want_err"),
    [
        pytest.param('gangplan inspect "$1" -o name | head -1', 0, "node/a\n", "", id="head"),
        pytest.param(
            'cat "$1" | gangplan explain - -o name', 0, "group/ml/short\n", "", id="standard input"
        ),
        pytest.param(
            'gangplan place "$1" > /dev/full',
            2,
            "",
            "error: standard output: cannot be written: No space left on device\n",
            id="disk full",
        ),
        pytest.param("gangplan place - < /dev/null", 2, "", "error: -: is empty", id="no input"),
    ],
)
def test_pipes(command: str, want_status: int, want_out: str, want_err: str, fleet: str) -> None:
    ran = call(command, fleet)
    assert (ran.returncode, ran.stdout) == (want_status, want_out)
    assert ran.stderr.startswith(want_err)


def test_names_cannot_forge_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    forged = gang("x\nerror: \x1b[31mall is lost", 1)
    file = tmp_path / "cluster.json"
    items = [node("a"), forged, pod("p", container(gpus=1), group="[bold]g")]
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    assert run(["place", str(file)]) == 0
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert not any(line.startswith("error: \\x1b") for line in err.splitlines())
    assert "PodGroup ml/[bold]g is missing or unusable" in err
