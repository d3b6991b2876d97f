"""The verbs as functions."""

from __future__ import annotations

from pathlib import Path

import pytest

import gangplan
from topology.plan import Request

CASES = Path(__file__).parents[1] / "cases"
RACKS = CASES / "place-fragmented-racks/snapshot.yaml"


def test_every_verb(tmp_path: Path) -> None:
    snapshot = gangplan.read(RACKS)
    plan = gangplan.place(snapshot, ["work/train-b"], seed=3, objective=("max:groupsPlaced",))
    assert plan.request == Request(
        groups=("work/train-b",), seed=3, objective=("max:groupsPlaced",)
    )
    assert gangplan.verify(snapshot, plan).is_valid
    table = gangplan.placements_table(plan)
    assert set(table.column("group").to_pylist()) == {"work/train-b"}
    assert gangplan.explain(snapshot).request.command == "explain"

    gangplan.write_snapshot(snapshot, tmp_path / "stored")
    assert gangplan.read(tmp_path / "stored").pods.refs == snapshot.pods.refs
    assert "work" not in gangplan.anonymize(snapshot).pods.refs[0]


def test_steps_are_told() -> None:
    steps: list[str] = []
    gangplan.place(gangplan.read(RACKS, progress=steps.append), progress=steps.append)
    assert f"reading {RACKS}" in steps


@pytest.mark.parametrize(
    ("groups", "options", "want_message"),
    [
        pytest.param(["work/train-c"], {}, "did you mean work/train-", id="unknown group"),
        pytest.param(None, {"objective": ("max:speed",)}, "speed", id="unknown criterion"),
    ],
)
def test_refusals(groups: list[str] | None, options: dict[str, object], want_message: str) -> None:
    with pytest.raises(gangplan.RequestError, match=want_message):
        gangplan.place(gangplan.read(RACKS), groups, **options)


def test_unreadable() -> None:
    with pytest.raises(gangplan.SnapshotError, match=r"nowhere\.yaml"):
        gangplan.read("nowhere.yaml")
