"""What a report is made from: a document that an earlier command printed, and its fleet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplan.reporting.changes import Changes, find_changes, show_running
from gangplan.reporting.fleet import Fleet, fleet_of_inspection, fleet_of_plan, fleet_of_snapshot
from topology.errors import RequestError
from topology.plan import Plan, Request
from topology.plan_json import plan_from_dict

if TYPE_CHECKING:
    from data.inspection_documents import InspectionDocument
    from topology.model import Snapshot
    from topology.move_request import GoalOutcome

__all__ = ["Scenario", "Source", "read_source"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One entry of a WhatIf document; the first is the snapshot as it is."""

    name: str
    plan: Plan | None
    row: Mapping[str, int]
    """Its figures by name."""
    change: Mapping[str, int] = field(default_factory=dict)
    """What is other than in the snapshot as it is."""
    error: str | None = None
    """Why it could not be answered."""


@dataclass(frozen=True, slots=True)
class Source:
    """One answer and the fleet that it is about: a plan, an inspection, or scenarios."""

    summary: Mapping[str, Any]
    """`digest`, `release`, `nodes`, `pods`, `groups`, as in a Plan."""
    fleet: Fleet
    changes: Changes
    plan: Plan | None = None
    inspection: InspectionDocument | None = None
    scenarios: tuple[Scenario, ...] = ()
    goals: tuple[GoalOutcome, ...] = ()
    is_replay: bool = False
    """Whether the plan itself replays kube-scheduler."""
    replay: Plan | None = None
    """What kube-scheduler's own steps would do, where the plan was compared with them."""
    saved: Mapping[str, int] = field(default_factory=dict)


def read_source(document: Mapping[str, Any], snapshot: Snapshot | None = None) -> Source:
    """Read a Plan, Inspection or WhatIf document.

    Args:
      document: As `-o json` printed it.
      snapshot: The fleet that it is about; an Inspection has its own.

    Raises:
      RequestError: When it is none of these or a field of it is wrong.
    """
    kind = document.get("kind")
    if kind == "Inspection":
        from data.inspection_documents import inspection_from_dict

        inspection = inspection_from_dict(document)
        fleet = fleet_of_inspection(inspection)
        if snapshot is not None:
            fleet = fleet_of_snapshot(snapshot)
        return Source(inspection.snapshot, fleet, show_running(fleet), inspection=inspection)
    if kind == "WhatIf":
        return _read_scenarios(document, snapshot)
    if kind != "Plan":
        raise RequestError(
            f"kind: must be Plan, Inspection or WhatIf, not {kind!r}; save an answer by "
            "`gangplan place ... -o json`"
        )
    plan = plan_from_dict(document)
    fleet = fleet_of_plan(plan) if snapshot is None else fleet_of_snapshot(snapshot)
    changes = find_changes(fleet, plan)
    replay, saved = _read_comparison(document)
    return Source(
        plan.snapshot,
        fleet,
        changes,
        plan=plan,
        goals=plan.goals,
        is_replay=document["request"].get("policy") == "replay",
        replay=replay,
        saved=saved,
    )


def _read_comparison(document: Mapping[str, Any]) -> tuple[Plan | None, Mapping[str, int]]:
    comparison = document.get("comparison")
    if not isinstance(comparison, dict) or not isinstance(comparison.get("replay"), dict):
        return None, {}
    saved = comparison.get("saved")
    return plan_from_dict(comparison["replay"]), _read_numbers(saved or {})


def _read_scenarios(document: Mapping[str, Any], snapshot: Snapshot | None) -> Source:
    entries = document.get("scenarios")
    if not isinstance(entries, list) or not entries:
        raise RequestError("scenarios: must be a list of scenarios; print the document anew")
    base = document.get("base")
    scenarios = [Scenario("as it is", None, _read_numbers(base))] if base else []
    for i, entry in enumerate(entries):
        at = f"scenarios[{i}]"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise RequestError(f"{at}.name: is missing; print the document anew")
        error, document_of_plan = entry.get("error"), entry.get("plan")
        try:
            plan = plan_from_dict(document_of_plan) if document_of_plan else None
        except RequestError as problem:
            raise RequestError(f"{at}: {problem}") from None
        row = _read_numbers(entry.get("row") or (plan.criteria if plan else {}))
        change = _read_numbers(entry.get("change") or {})
        scenarios.append(Scenario(entry["name"], plan, row, change, error and str(error)))
    nothing = Plan(Request(), {})
    fleet = fleet_of_plan(nothing) if snapshot is None else fleet_of_snapshot(snapshot)
    summary = document.get("snapshot")
    return Source(
        summary if isinstance(summary, dict) else {},
        fleet,
        show_running(fleet),
        scenarios=tuple(scenarios),
    )


def _read_numbers(value: object) -> dict[str, int]:
    if not isinstance(value, Mapping):
        raise RequestError("row, change and base: must be objects; print the document anew")
    return {str(name): n for name, n in value.items() if isinstance(n, int)}
