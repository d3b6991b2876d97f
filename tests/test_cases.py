"""Small clusters with known answers, asked through the Python API."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from expectations import Answer

import gangplan

if TYPE_CHECKING:
    from topology.model import Snapshot

CASES = Path(__file__).parent / "cases"


def load(folder: Path) -> dict[str, Any]:
    case: dict[str, Any] = yaml.safe_load((folder / "case.yaml").read_text())
    return case


@pytest.mark.parametrize("name", sorted(folder.parent.name for folder in CASES.glob("*/case.yaml")))
def test_case(name: str) -> None:
    case = load(CASES / name)
    snapshot = gangplan.read(CASES / name / "snapshot.yaml")
    inspection = gangplan.inspect(snapshot).to_dict()
    if case["kind"] == "import":
        answered = {"": Answer(inspection, {})}
    elif case["kind"] == "whatif":
        answered = ask_scenarios(snapshot, case["ask"], inspection)
    else:
        answered = {"": Answer(inspection, ask_plan(snapshot, case["kind"], case["ask"]))}
    for entry in case["expect"]:
        answered[entry.get("scenario", "")].check(
            {form: want for form, want in entry.items() if form != "scenario"}
        )


def options_of(ask: dict[str, Any]) -> dict[str, Any]:
    chosen = {key: ask[key] for key in ("preempt", "pdb", "release") if key in ask}
    return {**chosen, "objective": tuple(ask["objective"])}


def ask_plan(snapshot: Snapshot, verb: str, ask: dict[str, Any]) -> dict[str, Any]:
    options = options_of(ask)
    if ask.get("move"):
        del options["preempt"]
        options |= {"mode": "live", "movable": tuple(ask["move"]["movable"])}
    plan = getattr(gangplan, verb)(snapshot, ask["groups"], **options)
    assert gangplan.verify(snapshot, plan).violations == ()
    found: dict[str, Any] = plan.to_dict()
    return found


def ask_scenarios(
    snapshot: Snapshot, ask: dict[str, Any], inspection: dict[str, Any]
) -> dict[str, Answer]:
    found = gangplan.whatif(snapshot, ask["scenarios"], ask["groups"], **options_of(ask))
    assert found.is_valid
    nodes = {node["node"]: node for node in inspection["nodes"]}
    answers = {}
    for scenario, answer in zip(ask["scenarios"], found.answers, strict=True):
        added = scenario.get("add")
        more = []
        if added:
            domains = {**nodes[added["like"]]["domains"], **added["labels"]}
            more = [
                {"node": f"{added['name']}-{i}", "domains": domains} for i in range(added["nodes"])
            ]
        assert answer.plan is not None
        there = {**inspection, "nodes": [*inspection["nodes"], *more]}
        answers[answer.name] = Answer(there, answer.plan.to_dict())
    return answers
