"""What a WhatIf document says: scenarios side by side, then the groups of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangplan.reporting.changes import find_changes
from gangplan.reporting.fleet import fleet_of_plan
from gangplan.reporting.markup import cut, make
from gangplan.reporting.parts import fold, name, section, show_table
from gangplan.reporting.plan_sections import show_not_placed, show_placed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplan.reporting.markup import Element
    from gangplan.reporting.parts import Cell
    from gangplan.reporting.source import Scenario

__all__ = ["show_scenarios"]

FIGURES: Final = {
    "groupsPlaced": "Groups placed",
    "gpusPlaced": "GPUs placed",
    "groupsLost": "Lost",
    "groupsRecovered": "Recovered",
    "victimPods": "Would evict",
    "moves": "Moves",
    "fragmentation": "Fragmentation",
    "largestGang": "Largest gang",
}
"""Figures of a row by name, with what the table calls them."""
MOST_FOLDED: Final = 50
"""Scenarios whose groups are listed."""


def show_scenarios(scenarios: Sequence[Scenario]) -> list[Element | None]:
    """Return a table of all scenarios, then each one's groups, folded."""
    rows: list[list[Cell]] = []
    for scenario in scenarios:
        figures = [_say(scenario, name_of_figure) for name_of_figure in FIGURES]
        rows.append([name(scenario.name), *figures, _judge(scenario)])
    table = show_table(
        "Scenarios in the order asked; in brackets what is other than as it is",
        ["Scenario", *FIGURES.values(), "Result"],
        rows,
    )
    folded = []
    for scenario in [s for s in scenarios if s.plan is not None][:MOST_FOLDED]:
        plan = scenario.plan
        assert plan is not None
        changes = find_changes(fleet_of_plan(plan), plan)
        parts = [part for part in (show_not_placed(plan), show_placed(plan, changes)) if part]
        for part in parts:
            # Anchors would repeat with every scenario.
            part.attrib.pop("aria-labelledby", None)
            heading = part.find("h2")
            if heading is not None:
                heading.attrib.pop("id", None)
                heading.tag = "h3"
        folded.append(fold(cut(scenario.name), parts))
    return [
        section("scenarios", "Scenarios side by side", table),
        section("groups", "Groups of each scenario", make("div", folded)) if folded else None,
    ]


def _say(scenario: Scenario, figure: str) -> Cell:
    """Return a figure with its change where one is known; None where there is no such figure."""
    value, change = scenario.row.get(figure), scenario.change.get(figure)
    return f"{value:,} ({change:+,})" if value is not None and change else value


def _judge(scenario: Scenario) -> str:
    if scenario.error:
        return f"not answered: {scenario.error}"
    verdict = scenario.plan.verification if scenario.plan else None
    if verdict is not None and not verdict.is_valid:
        return "NOT VALID"
    left = scenario.row.get("groupsNotPlaced")
    if left is None and scenario.plan is not None:
        left = sum(g.outcome == "notPlaced" for g in scenario.plan.groups)
    return "" if left is None else f"{left:,} not placed" if left else "all placed"
