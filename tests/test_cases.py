"""Small clusters with known answers, asked through the Python API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from expectations import Answer

import gangplan

CASES = Path(__file__).parent / "cases"


def load(folder: Path) -> dict[str, Any]:
    case: dict[str, Any] = yaml.safe_load((folder / "case.yaml").read_text())
    return case


@pytest.mark.parametrize("name", sorted(folder.parent.name for folder in CASES.glob("*/case.yaml")))
def test_case(name: str) -> None:
    case = load(CASES / name)
    snapshot = gangplan.read(CASES / name / "snapshot.yaml")
    plan: dict[str, Any] = {}
    if case["kind"] != "import":
        ask = case["ask"]
        verb = getattr(gangplan, case["kind"])
        options = {key: ask[key] for key in ("preempt", "pdb", "release") if key in ask}
        if ask.get("move"):
            options = {"mode": "live", "movable": tuple(ask["move"]["movable"]), **options}
            del options["preempt"]
        answer = verb(snapshot, ask["groups"], objective=tuple(ask["objective"]), **options)
        assert gangplan.verify(snapshot, answer).violations == ()
        plan = answer.to_dict()
    answered = Answer(gangplan.inspect(snapshot).to_dict(), plan)
    for entry in case["expect"]:
        answered.check(entry)
