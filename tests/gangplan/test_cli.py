"""Exit statuses, streams and forms of answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplan.cli import run

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests/cases"
USAGE = str(CASES / "import-usage-accounting/snapshot.yaml")
RACKS = str(CASES / "place-fragmented-racks/snapshot.yaml")
VICTIMS = str(CASES / "preempt-pdb-two-domains/snapshot.yaml")
QUORUM = str(CASES / "explain-quorum-impossible/snapshot.yaml")

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: '8', pods: '10', nvidia.com/gpu: '8'}}
"""
BAD_POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: bad, namespace: ml}
spec:
  containers:
  - {name: main, resources: {requests: {cpu: many}}}
"""
BAD_LINE = "Pod ml/bad: spec."


@pytest.fixture
def flawed(tmp_path: Path) -> str:
    """A node, and a pod that cannot be read."""
    file = tmp_path / "flawed.yaml"
    file.write_text(NODE + BAD_POD)
    return str(file)


@pytest.mark.parametrize(
    ("args", "want_status"),
    [
        pytest.param(["--version"], 0, id="version"),
        pytest.param(["--help"], 0, id="help"),
        pytest.param(["place", "-h"], 0, id="help of a command"),
        pytest.param(["inspect", USAGE], 0, id="inspect"),
        pytest.param(["place", RACKS], 0, id="place"),
        pytest.param(["explain", QUORUM], 0, id="not placed is an answer"),
        pytest.param(["preempt", VICTIMS, "--group", "work/wide"], 0, id="preempt"),
        pytest.param(["place", VICTIMS, "--preempt", "--pdb", "hard"], 0, id="place --preempt"),
        pytest.param(
            ["place", VICTIMS, "--preempt", "--dra-reclaim", "node-local"], 0, id="--dra-reclaim"
        ),
        pytest.param(["explain", VICTIMS, "--preempt"], 0, id="explain --preempt"),
        pytest.param(["place", RACKS, "--policy", "replay"], 0, id="replay"),
        pytest.param(
            ["preempt", VICTIMS, "--group", "work/wide", "--policy", "compare"], 0, id="compare"
        ),
        pytest.param(["explain", QUORUM, "--policy", "replay"], 0, id="explain the scheduler"),
        pytest.param(["place", QUORUM, "--exit-status"], 3, id="not placed, asked for"),
        pytest.param(["place", QUORUM, "--exit-status", "--group", "work/ok"], 0, id="placed"),
        pytest.param([], 2, id="no command"),
        pytest.param(["fly"], 2, id="unknown command"),
        pytest.param(["inspect"], 2, id="no snapshot"),
        pytest.param(["inspect", USAGE, "-o", "xml"], 2, id="unknown form"),
        pytest.param(["inspect", USAGE, "--frobnicate"], 2, id="unknown option"),
        pytest.param(["inspect", "nowhere.yaml"], 2, id="no such file"),
        pytest.param(["inspect", USAGE, "--by", "rack"], 2, id="no such level"),
        pytest.param(["inspect", USAGE, "--by", "node", "-o", "json"], 2, id="rows of JSON"),
        pytest.param(["inspect", USAGE, "-n", "nowhere"], 2, id="no such namespace"),
        pytest.param(["place", RACKS, "--group", "work/nobody"], 2, id="no such group"),
        pytest.param(["place", RACKS, "--objective", "max:speed"], 2, id="no such criterion"),
        pytest.param(["place", RACKS, "--release", "1.20"], 2, id="no such release"),
        pytest.param(["place", RACKS, "--seed", "-1"], 2, id="seed out of range"),
        pytest.param(["place", RACKS, "-l", "a=b=c"], 2, id="selector that is none"),
        pytest.param(["preempt", VICTIMS], 2, id="preempt for nobody"),
        pytest.param(["place", VICTIMS, "--pdb", "soft"], 2, id="budgets without evictions"),
        pytest.param(["place", VICTIMS, "--dra-reclaim", "all"], 2, id="claims without evictions"),
        pytest.param(
            ["place", VICTIMS, "--preempt", "--workers", "2"], 2, id="workers and evictions"
        ),
        pytest.param(
            ["place", VICTIMS, "--policy", "replay", "--workers", "2"], 2, id="workers for a replay"
        ),
        pytest.param(["place", VICTIMS, "--workers", "-1"], 2, id="fewer than no workers"),
        pytest.param(
            ["place", VICTIMS, "--preempt", "--objective", "max:victimPods"],
            2,
            id="as many victims as can be",
        ),
        pytest.param(["explain", RACKS, "--policy", "compare"], 2, id="explain compares nothing"),
        pytest.param(["place", RACKS, "--policy", "guess"], 2, id="no such policy"),
        pytest.param(
            ["place", VICTIMS, "--preempt", "--pdb", "hard", "--policy", "replay"],
            2,
            id="kube-scheduler holds no budget hard",
        ),
        pytest.param(["verify", RACKS], 2, id="no plan"),
        pytest.param(["verify", RACKS, "--plan", "nowhere.json"], 2, id="no such plan"),
        pytest.param(["verify", RACKS, "--plan", RACKS], 2, id="plan that is none"),
        pytest.param(["inspect", USAGE, "-O", "/nowhere/x.json"], 2, id="no such folder"),
        pytest.param(["generate", "moonbase", "-O", "/nowhere"], 2, id="no such preset"),
        pytest.param(
            ["generate", "clos", "--utilization", "0.99", "-O", "/nowhere"], 2, id="too full"
        ),
    ],
)
def test_status(args: list[str], want_status: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(args) == want_status
    out, err = capfd.readouterr()
    lines = err.splitlines()
    if want_status == 2 and args:
        assert out == ""
        assert [line for line in lines if line.startswith("error: ")]
    assert [line for line in lines if not line.startswith(("error: ", "warning: "))] == [] or (
        not args
    )


def test_invalid_object_is_set_aside(flawed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", flawed, "-o", "json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"error: {flawed}: {BAD_LINE}")
    assert err.count("\n") == 1
    (error,) = json.loads(out)["errors"]
    assert (error["object"], error["kind"]) == ("ml/bad", "Pod")


def test_strict(flawed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", flawed, "--strict"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, last = err.splitlines()
    assert first.startswith(f"error: {flawed}: {BAD_LINE}")
    assert last.startswith("error: --strict: 1 invalid object; ")


def test_nothing_usable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(BAD_POD)
    assert run(["inspect", str(file)]) == 2
    assert capsys.readouterr().out == ""


def test_warnings_and_quiet(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "some.yaml"
    file.write_text(f"{NODE}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d}}\n")
    assert run(["inspect", str(file)]) == 0
    assert "Deployment" in capsys.readouterr().err
    assert run(["inspect", str(file), "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def ask(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(list(args)) == 0
    return capsys.readouterr().out


def test_forms_agree(capsys: pytest.CaptureFixture[str]) -> None:
    as_json = json.loads(ask(capsys, "place", RACKS, "-o", "json"))
    as_yaml = yaml.safe_load(ask(capsys, "place", RACKS, "-o", "yaml"))
    assert as_json == as_yaml
    assert as_json["kind"] == "Plan"
    names = ask(capsys, "place", RACKS, "-o", "name").splitlines()
    want_names = sorted(f"pod/{p['pod']}" for g in as_json["groups"] for p in g["pods"])
    assert names == want_names
    table = ask(capsys, "place", RACKS).splitlines()
    wide = ask(capsys, "place", RACKS, "-o", "wide").splitlines()
    assert wide[0].split()[: len(table[0].split())] == table[0].split()


def test_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("place", RACKS, "-o", "json")
    assert ask(capsys, *args) == ask(capsys, *args)


def test_output_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, load in (("plan.json", json.loads), ("plan.yaml", yaml.safe_load)):
        assert ask(capsys, "place", RACKS, "-O", str(tmp_path / name)) == ""
        assert load((tmp_path / name).read_text())["kind"] == "Plan"
    ask(capsys, "inspect", USAGE, "-O", str(tmp_path / "table.txt"))
    assert (tmp_path / "table.txt").read_text().startswith("LEVEL ")
    assert sorted(os.listdir(tmp_path)) == ["plan.json", "plan.yaml", "table.txt"]


def test_variables(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GANGPLAN_FORMAT", "json")
    monkeypatch.setenv("GANGPLAN_RELEASE", "1.36")
    document = json.loads(ask(capsys, "inspect", USAGE))
    assert document["snapshot"]["release"] == "1.36"
    assert (
        json.loads(ask(capsys, "inspect", USAGE, "--release", "1.35"))["snapshot"]["release"]
        == "1.35"
    )


def test_namespace_narrows(capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(ask(capsys, "inspect", USAGE, "-n", "other", "-o", "json"))
    assert {p["pod"].partition("/")[0] for p in document["pods"]} == {"other"}
    assert len(document["nodes"]) == 2


def test_standard_input() -> None:
    ran = gangplan("inspect", "-", "-o", "name", stdin=NODE)
    assert (ran.returncode, ran.stdout) == (0, "node/n1\n")


def gangplan(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gangplan", *args],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )


def save_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    file = tmp_path / "plan.json"
    ask(capsys, "place", RACKS, "-O", str(file))
    return file, json.loads(file.read_text())


def test_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, _ = save_plan(capsys, tmp_path)
    assert ask(capsys, "verify", RACKS, "--plan", str(file)).startswith("verified: ")
    document = json.loads(ask(capsys, "verify", RACKS, "--plan", str(file), "-o", "json"))
    assert document["kind"] == "Verification"
    assert document["valid"] is True


def test_verify_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, plan = save_plan(capsys, tmp_path)
    group = next(g for g in plan["groups"] if g["pods"])
    for pod in group["pods"]:
        pod["node"] = group["pods"][0]["node"]
    file.write_text(json.dumps(plan))
    assert run(["verify", RACKS, "--plan", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("NOT VALID: ")
    assert "error: " in err
    assert run(["verify", USAGE, "--plan", str(file), "--quiet"]) == 1


@pytest.mark.parametrize(
    ("change", "want_rule"),
    [
        pytest.param({"for": "work/nobody"}, "preemptor", id="for nobody"),
        pytest.param({"node": "elsewhere"}, "evict-node", id="on another node"),
        pytest.param({"pod": "work/nobody"}, "exists", id="who is not there"),
    ],
)
def test_verify_refuses_victims(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, change: dict[str, str], want_rule: str
) -> None:
    file = tmp_path / "plan.json"
    ask(capsys, "preempt", VICTIMS, "--group", "work/wide", "-O", str(file))
    plan = json.loads(file.read_text())
    plan["evictions"][0] |= change
    file.write_text(json.dumps(plan))
    assert run(["verify", VICTIMS, "--plan", str(file), "-o", "json", "--quiet"]) == 1
    violations = json.loads(capsys.readouterr().out)["violations"]
    assert want_rule in {violation["rule"] for violation in violations}


def test_verify_of_another_snapshot_warns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, plan = save_plan(capsys, tmp_path)
    plan["snapshot"]["digest"] = "sha256:0"
    file.write_text(json.dumps(plan))
    assert run(["verify", RACKS, "--plan", str(file)]) == 0
    assert "was made for another snapshot" in capsys.readouterr().err


def test_snapshot_reads_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = str(tmp_path / "stored")
    assert run(["snapshot", RACKS, "-O", folder]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("wrote ")
    asked = ("place", "-o", "json", "--quiet")
    assert ask(capsys, *asked, folder) == ask(capsys, *asked, RACKS)
    assert run(["snapshot", RACKS, "-O", str(tmp_path / "anonymous"), "--anonymize"]) == 0


TEAMS = """
---
apiVersion: v1
kind: Pod
metadata: {name: ours, namespace: ml, labels: {team: red, tier: best}}
spec: {containers: [{name: main}]}
---
apiVersion: v1
kind: Pod
metadata: {name: theirs, namespace: ml, labels: {team: blue}}
spec: {containers: [{name: main}]}
"""


@pytest.fixture
def teams(tmp_path: Path) -> str:
    """A node and two pods of two teams, whose labels no selector mentions."""
    file = tmp_path / "teams.yaml"
    file.write_text(NODE + TEAMS)
    return str(file)


@pytest.mark.parametrize(
    ("selector", "want_pods"),
    [
        pytest.param("team=red", ["pod/ml/ours"], id="equal"),
        pytest.param("team!=red", ["pod/ml/theirs"], id="not equal"),
        pytest.param("!tier", ["pod/ml/theirs"], id="absent"),
        pytest.param("team in (red,blue)", ["pod/ml/ours", "pod/ml/theirs"], id="either"),
        pytest.param("team=red,tier=worst", [], id="nothing left"),
    ],
)
def test_selector_reads_any_label_of_a_pod(
    capsys: pytest.CaptureFixture[str], teams: str, selector: str, want_pods: list[str]
) -> None:
    assert ask(capsys, "place", teams, "-l", selector, "-o", "name").splitlines() == want_pods


def test_a_selector_does_not_make_another_snapshot(
    capsys: pytest.CaptureFixture[str], teams: str, tmp_path: Path
) -> None:
    plan = str(tmp_path / "plan.json")
    ask(capsys, "place", teams, "-l", "team=red", "-O", plan)
    assert run(["verify", teams, "--plan", plan]) == 0
    assert "another snapshot" not in capsys.readouterr().err


def test_stored_snapshot_keeps_labels_asked_for(
    capsys: pytest.CaptureFixture[str], teams: str, tmp_path: Path
) -> None:
    folder = str(tmp_path / "stored")
    kept = ("--keep-label", "team", "--keep-label", "tire")
    assert run(["snapshot", teams, *kept, "-O", folder]) == 0
    want_warning = "warning: --keep-label tire: no pod that was read has it"
    assert want_warning in capsys.readouterr().err.splitlines()
    assert ask(capsys, "place", folder, "-l", "team=red", "-o", "name") == "pod/ml/ours\n"
    assert run(["place", folder, "-l", "tier=best"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: -l: no pod that was read has a label 'tier'; ")
    assert "--keep-label" in err


@pytest.mark.parametrize("name", ["fleet", "fleet.json", "fleet.yaml", "fleet.json.gz"])
def test_generate(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    assert run(["generate", "dgx-h100", "--nodes", "16", "--seed", "3", "-O", path]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert [line for line in err.splitlines() if line.startswith("GPUs in use: ")]
    assert os.listdir(tmp_path) == [name]
    document = json.loads(ask(capsys, "inspect", path, "-o", "json"))
    assert document["snapshot"]["nodes"] == 16
    assert document["errors"] == []


def test_generate_warns_of_what_a_small_fleet_cannot_hold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    args = ["generate", "dgx-h100", "--nodes", "3", "--mix", "frontier", "-O", str(tmp_path / "f")]
    assert run(args) == 0
    assert "warning: no waiting gang fits " in capsys.readouterr().err
    assert run([*args, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_generate_keeps_what_it_cannot_replace(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "fleet.json"
    target.mkdir()
    assert run(["generate", "dgx-h100", "--nodes", "8", "-O", str(target)]) == 2
    assert f"error: {target}: cannot be written" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["fleet.json"]


def test_help_names_every_preset() -> None:
    from data.generate import PRESETS
    from gangplan.cli import PRESETS as NAMED

    assert ", ".join(PRESETS) == NAMED


def test_internal_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **named: object) -> None:
        raise ZeroDivisionError("by\nnought")

    monkeypatch.setattr("data.reader.read_snapshot", fail)
    assert run(["inspect", USAGE]) == 1
    want = (
        "error: internal: ZeroDivisionError: by\\nnought (set GANGPLAN_DEBUG=1 for the traceback)\n"
    )
    assert capsys.readouterr().err == want
    monkeypatch.setenv("GANGPLAN_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        run(["inspect", USAGE])


def test_interrupt(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("data.reader.read_snapshot", interrupt)
    assert run(["inspect", USAGE]) == 130
    assert capsys.readouterr() == ("", "")


def test_interrupt_of_the_process(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "gangplan", "inspect", str(pipe)]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Opening the pipe for writing returns once the command reads it.
    with subprocess.Popen(command, cwd=ROOT, **piped) as process, pipe.open("w"):
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


def test_closed_pipe(tmp_path: Path) -> None:
    nodes = "".join(f"---{NODE}".replace("n1", f"n{i}") for i in range(3000))
    file = tmp_path / "many.yaml"
    file.write_text(nodes)
    ran = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -m gangplan inspect {file} -o json | head -n 1; echo $PIPESTATUS",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (ran.stdout, ran.stderr) == ("{\n0\n", "")
