"""Moves as a table, and what stopping the moved work loses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from builders import RACK, make_node, make_pods, make_snapshot
from repacking import ask_moves

import gangplan
from gangplan.cli import run
from topology.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from topology.model import Snapshot


def make_fleet() -> Snapshot:
    """Two racks of one node; a GPU runs on a0 since second 100, two on b0 since second 60."""
    return make_snapshot(
        [make_node("a0", rack="a"), make_node("b0", rack="b")],
        make_pods("one", 1, on="a0", started=100),
        make_pods("two", 2, on="b0", started=60),
    )


def test_a_move_is_a_row() -> None:
    plan = ask_moves(make_fleet(), free=(f"{RACK}=b:1",))
    want_rows = [
        ("ml/two-0", "b0", "a0", "restart", None),
        ("ml/two-1", "b0", "a0", "restart", None),
    ]
    rows = gangplan.moves_table(plan).to_pylist()
    names = ("pod", "source", "target", "mode", "group")
    assert [tuple(row[name] for name in names) for row in rows] == want_rows
    assert [row["step"] for row in rows] == [1, 2]
    assert plan.criteria["gpuSecondsLost"] == 2 * (100 - 60)
    assert plan.criteria["domainsFreed"] == 1


def test_no_moves_is_an_empty_table() -> None:
    table = gangplan.moves_table(ask_moves(make_fleet(), free=(f"{RACK}:0",)))
    assert (table.num_rows, table.column_names[:3]) == (0, ["step", "wave", "pod"])


def test_moves_are_not_chosen_by_lost_work() -> None:
    with pytest.raises(RequestError, match="write min:movedGpus"):
        ask_moves(make_fleet(), objective=("min:gpuSecondsLost",))


def test_a_parquet_file_holds_the_moves(tmp_path: Path) -> None:
    gangplan.write_snapshot(make_fleet(), tmp_path / "fleet")
    path = tmp_path / "moves.parquet"
    arguments = ["repack", str(tmp_path / "fleet"), "--free", f"{RACK}=b:1", "-O", str(path)]
    assert run(arguments) == 0
    assert pq.read_table(path).column("target").to_pylist() == ["a0", "a0"]


def test_a_form_that_says_nothing_of_the_moves_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gangplan.write_snapshot(make_fleet(), tmp_path / "fleet")
    assert run(["repack", str(tmp_path / "fleet"), "--free", f"{RACK}=b:1", "--emit", "kueue"]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "give --emit kubectl" in printed.err
