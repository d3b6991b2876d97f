"""What a report is made from: a document that an earlier command printed, and its fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gangplan.reporting.changes import Changes, find_changes, show_running
from gangplan.reporting.fleet import Fleet, fleet_of_inspection, fleet_of_plan, fleet_of_snapshot
from topology.errors import RequestError
from topology.plan_json import plan_from_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.inspection_documents import InspectionDocument
    from topology.model import Snapshot
    from topology.plan import Plan

__all__ = ["Scenario", "Source", "read_source"]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One entry of a WhatIf document."""

    name: str
    plan: Plan


@dataclass(frozen=True, slots=True)
class Source:
    """One answer and the fleet that it is about; exactly one of the first three is there."""

    summary: Mapping[str, Any]
    """`digest`, `release`, `nodes`, `pods`, `groups`, as in a Plan."""
    fleet: Fleet
    changes: Changes
    plan: Plan | None = None
    inspection: InspectionDocument | None = None
    scenarios: tuple[Scenario, ...] = ()
    replay: Plan | None = None
    """What kube-scheduler's own steps would do, where the plan was compared with them."""
    saved: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether the whole fleet is known, not only what a plan names."""
        return not self.fleet.is_partial


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
    return Source(plan.snapshot, fleet, changes, plan=plan, replay=replay, saved=saved)


def _read_comparison(document: Mapping[str, Any]) -> tuple[Plan | None, Mapping[str, int]]:
    comparison = document.get("comparison")
    if not isinstance(comparison, dict) or not isinstance(comparison.get("replay"), dict):
        return None, {}
    saved = comparison.get("saved")
    numbers = saved.items() if isinstance(saved, dict) else ()
    return plan_from_dict(comparison["replay"]), {k: v for k, v in numbers if isinstance(v, int)}


def _read_scenarios(document: Mapping[str, Any], snapshot: Snapshot | None) -> Source:
    entries = document.get("scenarios")
    if not isinstance(entries, list) or not entries:
        raise RequestError("scenarios: must be a list of scenarios; print the document anew")
    scenarios = []
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("plan"), dict):
            raise RequestError(f"scenarios[{i}].plan: is missing; print the document anew")
        scenarios.append(Scenario(str(entry.get("name", i)), plan_from_dict(entry["plan"])))
    first = scenarios[0].plan
    fleet = fleet_of_plan(first) if snapshot is None else fleet_of_snapshot(snapshot)
    summary = document.get("snapshot")
    return Source(
        summary if isinstance(summary, dict) else first.snapshot,
        fleet,
        show_running(fleet),
        scenarios=tuple(scenarios),
    )
