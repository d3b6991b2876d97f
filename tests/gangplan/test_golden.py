"""Whole answers to small questions; `--update-golden` writes them anew, and the diff is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangplan.cli import run

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "golden"


@pytest.mark.parametrize(
    ("file", "command", "case"),
    [
        pytest.param("inspect-lws.json", "inspect", "place-lws-subgroups", id="inspect, JSON"),
        pytest.param("inspect-kueue.txt", "inspect", "place-hetero-leader-kueue", id="inspect"),
        pytest.param("explain.json", "explain", "explain-quorum-impossible", id="explain, JSON"),
        pytest.param("explain.txt", "explain", "explain-quorum-impossible", id="explain"),
        pytest.param("place-lws.json", "place", "place-lws-subgroups", id="place, JSON"),
        pytest.param("place-racks.yaml", "place", "place-fragmented-racks", id="place, YAML"),
        pytest.param("place-partial.txt", "place", "place-partial-gangs", id="place"),
        pytest.param(
            "place-preempt.json", "place --preempt", "preempt-dra-held", id="place --preempt, JSON"
        ),
        pytest.param(
            "preempt-pdb.txt",
            "preempt --group work/wide",
            "preempt-pdb-two-domains",
            id="preempt",
        ),
        pytest.param(
            "repack-swap.txt",
            "repack --group work/duo --moves live --movable other/a --movable other/b",
            "repack-swap-temporary",
            id="repack",
        ),
        pytest.param(
            "repack-free.json",
            "repack --free fabric.example.com/nvlink-domain:1 --max-parallel 1",
            "repack-nvlink-two-moves",
            id="repack --free, JSON",
        ),
        pytest.param(
            "preempt-compare.txt",
            "preempt --group work/wide --policy compare",
            "preempt-pdb-two-domains",
            id="preempt --policy compare",
        ),
        pytest.param(
            "place-replay.json",
            "place --policy replay",
            "place-fragmented-racks",
            id="place --policy replay, JSON",
        ),
    ],
)
def test_answer(file: str, command: str, case: str, tmp_path: Path, update_golden: bool) -> None:
    snapshot = str(ROOT / "cases" / case / "snapshot.yaml")
    # The ending of the file says the form.
    found = tmp_path / file
    assert run([*command.split(), snapshot, "--quiet", "-O", str(found)]) == 0
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / file).write_bytes(found.read_bytes())
        pytest.skip(f"{file} was written anew")
    assert found.read_text() == (GOLDEN / file).read_text()


def test_report(tmp_path: Path, update_golden: bool) -> None:
    snapshot = str(ROOT / "cases/preempt-pdb-two-domains/snapshot.yaml")
    plan, page = tmp_path / "plan.json", tmp_path / "report.html"
    assert run(["preempt", "--group", "work/wide", snapshot, "--quiet", "-O", str(plan)]) == 0
    assert run(["report", str(plan), "--snapshot", snapshot, "-O", str(page)]) == 0
    golden = GOLDEN / "report.html"
    if update_golden:
        golden.write_bytes(page.read_bytes())
        pytest.skip("report.html was written anew")
    assert page.read_text() == golden.read_text()
