"""`gangplan whatif` and `submit` as people type them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangplan.cli import run

CASE = Path(__file__).parents[1] / "cases" / "whatif-rack-and-drain"
FLEET = str(CASE / "snapshot.yaml")
ASK = yaml.safe_load((CASE / "case.yaml").read_text())["ask"]


@pytest.fixture
def scenarios(tmp_path: Path) -> str:
    file = tmp_path / "scenarios.yaml"
    file.write_text(yaml.safe_dump({"scenarios": ASK["scenarios"]}))
    return str(file)


def ask(*args: str) -> list[str]:
    return ["whatif", FLEET, "--group", "work/four", "--objective", "max:groupsPlaced", *args]


WANT_TABLE = """\
SCENARIO    GROUPS   GPUS       LOST   RECOVERED   VICTIMS   MOVES   FRAGMENTED   LARGEST   RESULT
*           0        0          0      0           0         0       24           2         1 not placed
base        0        0          0      0           0         0       24           2         1 not placed
rack-of-3   0        0          0      0           0         0       24           3 (+1)    1 not placed
rack-of-4   1 (+1)   32 (+32)   0      0           0         0       24           2         all placed
drain-n11   1 (+1)   16 (+16)   0      1           0         0       16 (-8)      2         1 not placed

4 scenarios
"""  # noqa: E501


def test_a_row_for_each_scenario(scenarios: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(ask("--scenarios", scenarios, "--quiet")) == 0
    assert capfd.readouterr().out == WANT_TABLE


def test_json_holds_the_plans(scenarios: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(ask("--scenarios", scenarios, "-o", "json", "--rank", "max:gpusPlaced")) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["kind"] == "WhatIf"
    assert [entry["name"] for entry in found["scenarios"]] == [s["name"] for s in ASK["scenarios"]]
    assert all(entry["plan"]["verification"]["valid"] for entry in found["scenarios"])
    assert found["ranking"] == ["rack-of-4", "drain-n11", "base", "rack-of-3"]
    assert found["scenarios"][3]["change"]["groupsRecovered"] == 1


def test_a_drain_takes_the_unit_and_lists_it(
    scenarios: str, capfd: pytest.CaptureFixture[str]
) -> None:
    run(ask("--scenarios", scenarios, "-o", "json"))
    plan = json.loads(capfd.readouterr().out)["scenarios"][3]["plan"]
    assert plan["evictions"] == [
        {
            "pod": f"work/steady-{i}",
            "group": "work/steady",
            "node": node,
            "reason": "drain",
            "for": None,
        }
        for i, node in ((0, "n11"), (1, "n12"))
    ]


def test_the_least_number_of_nodes(capfd: pytest.CaptureFixture[str]) -> None:
    wanted = "like=n11,label=topo.example.com/rack=r9,name=spare"
    assert run(ask("--min-add", wanted, "--until", "placed", "--quiet", "--exit-status")) == 0
    assert capfd.readouterr().out.endswith("4 more would be enough, 3 not\n")


def test_whole_racks_that_never_help(capfd: pytest.CaptureFixture[str]) -> None:
    wanted = "like=topo.example.com/rack=r1"
    assert run(ask("--min-add", wanted, "--quiet", "--exit-status")) == 3
    assert "not enough: with 1024 more" in capfd.readouterr().out


def test_results_in_a_folder(
    scenarios: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert run(ask("--scenarios", scenarios, "-O", str(folder), "--quiet")) == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "_manifest.json",
        *(f"part-0000{i}.parquet" for i in range(4)),
    ]
    assert capfd.readouterr().out == WANT_TABLE


def test_an_answer_in_a_file(scenarios: str, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    assert run(ask("--scenarios", scenarios, "-O", str(file), "--quiet")) == 0
    assert json.loads(file.read_text())["kind"] == "WhatIf"


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param([], "give --scenarios FILE, or --min-add", id="nothing asked"),
        pytest.param(["--scenarios", "nowhere.yaml"], "cannot be read", id="no file"),
        pytest.param(["--min-add", "n11"], "--min-add: cannot read 'n11'", id="not like="),
        pytest.param(
            ["--min-add", "label=a=b"], "--min-add: says nothing to add", id="only labels"
        ),
        pytest.param(["--min-add", "like=n99"], "--min-add: like: no node n99", id="no such node"),
        pytest.param(["--scenarios", "x", "--rank", "best"], "--rank: write max: or", id="rank"),
        pytest.param(
            ["--scenarios", FLEET, "--workers", "nobody"], "holds 16 documents", id="no scenarios"
        ),
    ],
)
def test_what_cannot_be_asked(
    args: list[str], want: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(ask(*args, "--quiet")) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert want in err


def test_one_bad_scenario_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("- {name: good}\n- {name: bad, cordon: [n0]}\n")
    assert run(ask("--scenarios", str(file))) == 0
    out, err = capfd.readouterr()
    assert "error: scenario bad: cordon: no node n0 in the snapshot" in err
    assert out.endswith("2 scenarios, 1 of them cannot be answered\n")


def emit(capfd: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert run(["submit", *args, "--emit", "rayjob"]) == 0
    manifest: dict[str, Any] = yaml.safe_load(capfd.readouterr().out)
    return manifest


def test_a_manifest_for_kuberay(capfd: pytest.CaptureFixture[str]) -> None:
    found = emit(capfd, "whatif", "s3://b/f", "--scenarios", "s3://b/s.yaml", "-O", "s3://b/out")
    assert (found["apiVersion"], found["kind"]) == ("ray.io/v1", "RayJob")
    spec = found["spec"]
    assert spec["entrypoint"] == (
        "python -m gangplan whatif s3://b/f --scenarios s3://b/s.yaml -O s3://b/out --workers auto"
    )
    assert spec["shutdownAfterJobFinishes"] is True
    groups = [spec["rayClusterSpec"]["headGroupSpec"], *spec["rayClusterSpec"]["workerGroupSpecs"]]
    for group in groups:
        assert group["template"]["spec"]["containers"][0]["image"]
        assert isinstance(group["rayStartParams"], dict)


@pytest.mark.parametrize(
    ("args", "want"),
    [
        pytest.param(["inspect", FLEET], "submit: inspect is not run as a job", id="not a job"),
        pytest.param(["place", FLEET], "to which cluster? give --address", id="no address"),
        pytest.param(
            ["place", "-", "--address", "http://127.0.0.1:1"], "no standard input", id="stdin"
        ),
    ],
)
def test_what_cannot_be_submitted(
    args: list[str],
    want: str,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    assert run(["submit", *args]) == 2
    assert want in capfd.readouterr().err
