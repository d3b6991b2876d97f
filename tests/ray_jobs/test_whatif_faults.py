"""When a run of scenarios breaks, nothing is lost and nothing is half-written."""

from __future__ import annotations

import errno
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
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from data.scenarios.read import expand_scenarios
from data.scenarios.results import ResultFolder
from ray_jobs.whatif import answer_scenarios
from topology.errors import RequestError
from topology.plan import Request

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "tests" / "cases" / "whatif-rack-and-drain" / "snapshot.yaml"
WHOLE = make_spec(gpus=8)
SNAPSHOT = make_snapshot(
    [make_node(f"n{i}", rack=f"r{i // 2}") for i in range(4)],
    make_pods("run", 2, group="ml/run", spec=WHOLE, on=["n0", "n1"]),
    make_pods("a", 2, group="ml/a", spec=WHOLE),
    groups=[make_group("ml/run", 2, key=RACK, disruption="all"), make_group("ml/a", 2, key=RACK)],
)
ENTRIES = [{"name": f"s{i}", "fail": [f"n{i % 4}"]} for i in range(40)]


def start(scenarios: Path, folder: Path, *more: str) -> subprocess.Popen[bytes]:
    args = ["whatif", str(FLEET), "--scenarios", str(scenarios), "-O", str(folder), *more]
    return subprocess.Popen(
        [sys.executable, "-m", "gangplan", *args],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_killed_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    scenarios = tmp_path / "s.yaml"
    entries = [{"name": f"s{i}", "fail": [f"n{i % 3 + 11}"]} for i in range(320)]
    scenarios.write_text(yaml.safe_dump(entries))
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    first = start(scenarios, killed)
    while first.poll() is None and len(list(killed.glob("part-*"))) < 2:
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    left = {path.name: path.stat().st_mtime_ns for path in killed.glob("part-*")}
    again, other = start(scenarios, killed), start(scenarios, whole)
    found, want = again.communicate()[0], other.communicate()[0]
    assert (again.returncode, found) == (0, want)
    now = {path.name: path.stat().st_mtime_ns for path in killed.glob("part-*")}
    assert len(now) == 32
    assert {name: now[name] for name in left} == left


def test_a_full_disk_leaves_whole_files_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenarios = expand_scenarios(ENTRIES, SNAPSHOT)
    put = ResultFolder._put
    written: list[str] = []

    def fill(self: ResultFolder, name: str, content: Any) -> None:
        if len(written) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(name)
        put(self, name, content)

    monkeypatch.setattr(ResultFolder, "_put", fill)
    with pytest.raises(RequestError, match="cannot be used for results: No space left on device"):
        answer_scenarios(SNAPSHOT, scenarios, Request(), results=str(tmp_path / "out"))
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["_manifest.json", "part-00000.parquet", "part-00001.parquet"]
    monkeypatch.undo()
    found = answer_scenarios(SNAPSHOT, scenarios, Request(), results=str(tmp_path / "out"))
    assert found == answer_scenarios(SNAPSHOT, scenarios, Request())


@pytest.mark.ray
def test_any_number_of_workers_gives_the_same_bytes(ray_session: None) -> None:
    scenarios = expand_scenarios(ENTRIES, SNAPSHOT)

    def answer(workers: int | None) -> list[str]:
        found = answer_scenarios(SNAPSHOT, scenarios, Request(), workers=workers)
        return [json.dumps([a.row, a.plan and a.plan.to_dict()]) for a in found.answers]

    alone = answer(None)
    assert [answer(workers) for workers in (1, 2, 4)] == [alone] * 3
