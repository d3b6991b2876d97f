"""What a WhatIf document says: scenarios side by side, then the groups of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplan.reporting.changes import find_changes
from gangplan.reporting.fleet import fleet_of_plan
from gangplan.reporting.markup import make
from gangplan.reporting.parts import fold, name, section, show_table
from gangplan.reporting.plan_sections import show_not_placed, show_placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplan.reporting.markup import Element
    from gangplan.reporting.parts import Cell
    from gangplan.reporting.source import Scenario

__all__ = ["show_scenarios"]


def show_scenarios(scenarios: Sequence[Scenario]) -> list[Element | None]:
    """Return a table of all scenarios, then each one's groups, folded."""
    rows: list[list[Cell]] = []
    for scenario in scenarios:
        plan = scenario.plan
        placed = sum(g.outcome == "placed" for g in plan.groups)
        verdict = plan.verification
        rows.append(
            [
                name(scenario.name),
                f"{placed:,} of {len(plan.groups):,}",
                plan.criteria.get("gpusPlaced"),
                len(plan.evictions),
                len(plan.moves),
                plan.bound.proof,
                "not verified" if verdict is None else "valid" if verdict.is_valid else "NOT VALID",
            ]
        )
    heads = ["Scenario", "Groups placed", "GPUs placed", "Would evict", "Moves", "Proof"]
    table = show_table("Scenarios, in the order asked", [*heads, "Verified"], rows)
    folded = []
    for scenario in scenarios:
        plan = scenario.plan
        changes = find_changes(fleet_of_plan(plan), plan)
        parts = [show_not_placed(plan), show_placed(plan, changes)]
        for part in parts:
            # Anchors and headings of one plan would repeat here.
            if part is not None:
                part.attrib.pop("aria-labelledby", None)
                heading = part.find("h2")
                if heading is not None:
                    heading.attrib.pop("id", None)
                    heading.tag = "h3"
        folded.append(fold(scenario.name, [part for part in parts if part is not None]))
    return [
        section("scenarios", "Scenarios side by side", table),
        section("groups", "Groups of each scenario", make("div", folded)),
    ]
