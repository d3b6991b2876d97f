"""Many scenarios of one fleet: rows, plans, batches and results on disk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

import ray_jobs.whatif as whatif
from data.scenarios.read import expand_scenarios
from ray_jobs.whatif import WhatIf, answer_scenarios
from topology.errors import RequestError
from topology.plan import Request

if TYPE_CHECKING:
    from pathlib import Path

    from topology.model import Snapshot


def make_fleet(racks: int = 3) -> Snapshot:
    """Racks of two nodes; one gang runs across rack 0, two more wait for a rack each."""
    whole = make_spec(gpus=8)
    return make_snapshot(
        [make_node(f"n{i}", rack=f"r{i // 2}") for i in range(2 * racks)],
        make_pods("run", 2, group="ml/run", spec=whole, on=["n0", "n1"]),
        make_pods("a", 2, group="ml/a", spec=whole),
        make_pods("b", 2, group="ml/b", spec=whole),
        groups=[
            make_group("ml/run", 2, key=RACK, disruption="all"),
            make_group("ml/a", 2, key=RACK),
            make_group("ml/b", 2, key=RACK),
        ],
    )


SCENARIOS: list[dict[str, Any]] = [
    {"name": "as-is"},
    {"name": "lost-rack", "fail": {RACK: "r1"}},
    {"name": "lost-node", "fail": ["n0"]},
    {"name": "drained", "drain": ["n1"]},
    {"name": "third", "groups": {"add": {"like": "ml/a"}}},
    {"name": "rack", "add": {"domains": 1, "name": "x", "like": {"key": RACK, "value": "r0"}}},
]


def answer(
    entries: list[dict[str, Any]] = SCENARIOS, fleet: Snapshot | None = None, **options: Any
) -> WhatIf:
    fleet = fleet or make_fleet()
    request = Request(objective=("max:groupsPlaced",), **options.pop("request", {}))
    return answer_scenarios(fleet, expand_scenarios(entries, fleet), request, **options)


def columns(found: WhatIf, *names: str) -> dict[str, tuple[int, ...]]:
    return {a.name: tuple(a.row[name] for name in names) for a in found.answers}


def test_rows_say_what_is_lost_and_what_comes_back() -> None:
    found = answer()
    assert columns(found, "groupsPlaced", "groupsNotPlaced", "groupsLost", "groupsRecovered") == {
        "as-is": (2, 0, 0, 0),
        "lost-rack": (1, 1, 0, 0),
        "lost-node": (2, 1, 0, 1),
        "drained": (2, 1, 0, 1),
        "third": (2, 1, 0, 0),
        "rack": (2, 0, 0, 0),
    }
    assert found.base.row == found.answers[0].row
    assert found.is_valid


def test_work_that_ran_goes_before_work_that_waits() -> None:
    plan = answer([{"name": "x", "drain": ["n0"]}], make_fleet(racks=2)).answers[0].plan
    assert plan is not None
    assert {g.group: g.outcome for g in plan.groups} == {
        "ml/a": "notPlaced",
        "ml/b": "notPlaced",
        "ml/run": "placed",
    }


def test_largest_gang_is_counted_after_the_plan() -> None:
    assert columns(answer(), "largestGang") == {
        "as-is": (0,),
        "lost-rack": (0,),
        "lost-node": (1,),
        "drained": (1,),
        "third": (0,),
        "rack": (2,),
    }


def test_a_bad_scenario_leaves_the_others_alone() -> None:
    entries = [{"name": "bad", "drain": ["n99"]}, {"name": "good"}]
    bad, good = answer(entries).answers
    assert bad.error == "scenario bad: drain: no node n99 in the snapshot"
    assert (bad.row, bad.plan) == ({}, None)
    assert good.row["groupsPlaced"] == 2


def test_a_scenario_may_ask_something_else() -> None:
    run = {"command": "explain", "groups": ["ml/a"]}
    plan = answer([{"name": "x", "run": run, "fail": {RACK: "r1"}}]).answers[0].plan
    assert plan is not None
    assert plan.request.command == "explain"
    assert [g.group for g in plan.groups] == ["ml/a"]


def test_a_group_that_the_scenario_lacks_is_its_own_error() -> None:
    entries = [{"name": "x", "groups": {"remove": "ml/a"}}]
    found = answer(entries, request={"groups": ("ml/a",)}).answers[0]
    assert found.error == "scenario x: --group ml/a: no such group in the snapshot"


@pytest.fixture
def always_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whatif, "MENDED_FROM", 0)


@pytest.mark.usefixtures("always_mended")
class TestMended:
    def test_rows_are_those_of_a_search_where_the_fleet_decides(self) -> None:
        found = answer()
        assert columns(found, "groupsPlaced", "groupsLost", "groupsRecovered") == {
            "as-is": (2, 0, 0),
            "lost-rack": (1, 0, 0),
            "lost-node": (2, 0, 1),
            "drained": (2, 0, 1),
            "third": (2, 0, 0),
            "rack": (2, 0, 0),
        }
        assert found.is_valid

    def test_alone_and_in_a_batch_are_the_same(self) -> None:
        together = [a.plan.to_dict() for a in answer().answers if a.plan]
        alone = [a.plan.to_dict() for e in SCENARIOS for a in answer([e]).answers if a.plan]
        assert together == alone

    def test_chunks_of_any_size_are_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entries = [{**e, "name": f"{e['name']}-{i}"} for i in range(12) for e in SCENARIOS]
        monkeypatch.setattr(whatif, "_CHUNKS", 2)
        large = answer(entries).answers
        monkeypatch.setattr(whatif, "_CHUNKS", 32)
        assert answer(entries).answers == large

    def test_what_is_placed_stays_where_it_is(self) -> None:
        found = answer([{"name": "rack", **SCENARIOS[-1]}])
        plans = [found.base.plan, found.answers[0].plan]
        seats = [{p.pod: p.node for g in plan.groups for p in g.pods} for plan in plans if plan]
        assert seats[0] == seats[1]

    def test_nothing_is_claimed_to_be_proven(self) -> None:
        plan = answer([SCENARIOS[1]]).answers[0].plan
        assert plan is not None
        assert plan.bound.proof == "none"


class TestResults:
    def test_a_run_is_taken_up_again(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = tmp_path / "out"
        whole = answer(results=str(folder))
        (folder / "part-00003.parquet").unlink()
        calls = []
        chunk = whatif._answer_chunk

        def count(shared: Any, scenarios: Any) -> Any:
            calls.append([s.name for s in scenarios])
            return chunk(shared, scenarios)

        monkeypatch.setattr(whatif, "_answer_chunk", count)
        assert answer(results=str(folder)) == whole
        assert calls == [["drained"]]

    def test_rows_can_be_read_by_others(self, tmp_path: Path) -> None:
        answer(results=str(tmp_path / "out"), plans=False)
        table = pq.read_table(tmp_path / "out")
        assert table.column("name").to_pylist() == [e["name"] for e in SCENARIOS]
        assert table.column("groupsPlaced").to_pylist() == [2, 1, 2, 2, 2, 2]
        assert table.column("plan").null_count == len(SCENARIOS)

    def test_answers_to_another_question_are_not_mixed(self, tmp_path: Path) -> None:
        folder = str(tmp_path / "out")
        answer(results=folder)
        with pytest.raises(RequestError, match="holds answers to another question"):
            answer(SCENARIOS[:2], results=folder)

    def test_other_files_are_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / "letter.txt").write_text("dear")
        with pytest.raises(RequestError, match="holds other files"):
            answer(results=str(tmp_path))

    def test_a_part_that_is_broken_is_named(self, tmp_path: Path) -> None:
        answer(results=str(tmp_path / "out"))
        (tmp_path / "out" / "part-00000.parquet").write_bytes(b"PAR1 no")
        with pytest.raises(RequestError, match=r"part-00000\.parquet: .*remove the file"):
            answer(results=str(tmp_path / "out"))

    def test_a_newer_folder_is_refused_by_name(self, tmp_path: Path) -> None:
        answer(results=str(tmp_path / "out"))
        manifest = tmp_path / "out" / "_manifest.json"
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "schemaVersion": 99}))
        with pytest.raises(RequestError, match="newer gangplan"):
            answer(results=str(tmp_path / "out"))


def test_a_scenario_may_be_repacked() -> None:
    run = {"command": "repack"}
    found = answer([{"name": "x", "drain": ["n0"], "run": run}], make_fleet()).answers[0]
    assert found.plan is not None
    assert found.is_valid
    assert [goal.to_dict() for goal in found.plan.goals] == [
        {"goal": "drain n0", "wanted": 1, "reached": 1, "reason": None}
    ]
    assert found.row["moves"] == 2
