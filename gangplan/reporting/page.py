"""One self-contained page about one answer: no script, nothing fetched, printable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangplan.reporting.domain_list import list_domains
from gangplan.reporting.heatmap import legend_entries, legend_owners
from gangplan.reporting.inspection_sections import (
    show_fleet_figures,
    show_levels,
    show_stranded,
    show_waiting,
)
from gangplan.reporting.markup import make, to_html
from gangplan.reporting.numbers import count
from gangplan.reporting.parts import badge, fold, name, section, show_table
from gangplan.reporting.pictures import WIDE, draw_heat_maps, lay_out
from gangplan.reporting.plan_figures import show_figures
from gangplan.reporting.plan_sections import (
    show_comparison,
    show_criteria,
    show_evictions,
    show_goals,
    show_moves,
    show_not_placed,
    show_placed,
    show_violations,
)
from gangplan.reporting.scenario_sections import show_scenarios
from gangplan.reporting.style import PAGE_STYLE
from gangplan.reporting.svg import make_patterns, show_in_page
from gangplan.reporting.tree import draw_tree
from gangplan.reporting.victims import draw_victims
from gangplan.reporting.waves import draw_waves

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangplan.reporting.markup import Element
    from gangplan.reporting.parts import Cell
    from gangplan.reporting.source import Source

__all__ = ["build_page"]

_TITLES: Final = {
    "place": ("Placement plan", "Where pending groups would go."),
    "preempt": ("Preemption plan", "Who would have to go so that pending groups fit."),
    "explain": ("Why groups wait", "What each pending group lacks now."),
    "repack": ("Re-packing plan", "Which running work would move, and in which order."),
}


def build_page(source: Source, notes: Sequence[str] = ()) -> str:
    """Return the page as HTML.

    Args:
      source: The answer and its fleet.
      notes: Lines about how the page was made.
    """
    if source.plan is not None:
        title, lead = _TITLES[source.plan.request.command]
        if source.is_replay:
            lead = "What kube-scheduler's own steps would do."
        parts = _plan_parts(source)
    elif source.inspection is not None:
        title, lead = "Fleet", "What was read: nodes, free GPUs, groups that wait."
        parts = _inspection_parts(source)
    else:
        title, lead = "Scenarios", "One plan for each scenario."
        parts = show_scenarios(source.scenarios)
        if not source.fleet.is_partial:
            parts += [_show_maps(source), _show_tree(source)]
    shown = [part for part in parts if part is not None]
    page = make(
        "html",
        make(
            "head",
            make("meta", charset="utf-8"),
            make("meta", name="viewport", content="width=device-width, initial-scale=1"),
            make(
                "meta",
                http_equiv="Content-Security-Policy",
                content="default-src 'none'; style-src 'unsafe-inline'",
            ),
            make("title", f"{title} · gangplan"),
            make("style", PAGE_STYLE),
        ),
        make(
            "body",
            make(
                "svg",
                make_patterns(),
                width=0,
                height=0,
                style="position:absolute",
                aria_hidden="true",
            ),
            _show_header(source, title, lead, shown),
            make("main", shown),
            _show_footer(source, notes),
        ),
        lang="en",
    )
    return f"<!DOCTYPE html>\n{to_html(page)}\n"


def _show_header(source: Source, title: str, lead: str, parts: Sequence[Element]) -> Element:
    summary = source.summary
    counts = [
        count(int(summary[noun]), noun[:-1])
        for noun in ("nodes", "pods", "groups")
        if isinstance(summary.get(noun), int)
    ]
    links = []
    for part in parts:
        anchor = part.get("aria-labelledby")
        heading = part.find("h2")
        if anchor is not None and heading is not None:
            links.append(make("li", make("a", heading.text or "", href=f"#{anchor}")))
    is_plan = source.inspection is None
    return make(
        "header",
        make("h1", title),
        make("p", lead, class_="lead"),
        make(
            "p",
            f"Snapshot of {', '.join(counts)}, ",
            make("code", f"{str(summary.get('digest', 'not known'))[:19]}…"),
            f", rules of Kubernetes {summary.get('release', 'not known')}.",
            " Nothing has been placed, evicted or moved: this is a plan." if is_plan else "",
            class_="note",
        ),
        make("nav", make("ul", links), aria_label="Parts of this page"),
    )


def _show_footer(source: Source, notes: Sequence[str]) -> Element:
    return make(
        "footer",
        make("p", "Snapshot ", make("code", str(source.summary.get("digest", "not known")))),
        [make("p", note) for note in notes],
        make(
            "p", "Made by gangplan report. The page holds everything it shows and fetches nothing."
        ),
    )


def _plan_parts(source: Source) -> list[Element | None]:
    plan, fleet, changes = source.plan, source.fleet, source.changes
    assert plan is not None
    victims = show_in_page(draw_victims(fleet, plan, changes, WIDE)) if plan.evictions else None
    waves = show_in_page(draw_waves(plan, changes, WIDE)) if plan.moves else None
    errors = [(e.kind, e.object, e.field, e.message) for e in plan.errors]
    return [
        show_figures(source, plan),
        show_violations(plan),
        _show_notices(plan.conditional, plan.warnings, errors),
        show_goals(source.goals),
        _show_maps(source),
        show_not_placed(plan),
        show_evictions(plan, fleet, changes, victims) if victims is not None else None,
        show_moves(plan, changes, waves) if waves is not None else None,
        show_placed(plan, changes),
        show_comparison(plan, source.replay, source.saved) if source.replay else None,
        _show_tree(source),
        show_criteria(plan),
    ]


def _inspection_parts(source: Source) -> list[Element | None]:
    document = source.inspection
    assert document is not None
    errors = [(e.kind, e.object, e.field, e.message) for e in document.errors]
    return [
        show_fleet_figures(document, source.fleet),
        _show_notices((), document.warnings, errors),
        _show_maps(source),
        show_stranded(document),
        show_waiting(document),
        show_levels(document),
        _show_tree(source),
    ]


def _show_maps(source: Source) -> Element | None:
    fleet, layout = source.fleet, lay_out(source)
    if not fleet.nodes:
        return section(
            "fleet",
            "The fleet",
            make(
                "p", "This plan touches no node. Give --snapshot to draw the fleet.", class_="note"
            ),
        )
    drawings = draw_heat_maps(source)
    figures = [
        make("figure", make("figcaption", drawing.title), show_in_page(drawing))
        for drawing in drawings
    ]
    if fleet.is_partial:
        text = (
            "Only nodes and pods that the plan names are drawn, a slot for each pod: it does not "
            "say what nodes offer. Give --snapshot to draw the whole fleet."
        )
    else:
        unit = fleet.unit
        where = f" They are grouped by {layout.key}." if layout.key else ""
        grain = {
            "slots": f"Each cell is a node, its free {unit}s and a slot for each {unit}.{where}",
            "nodes": f"Each cell is a node with the number of its free {unit}s.{where}",
            "domains": f"Each cell is a domain of {layout.key or 'nodes next to one another'} with "
            f"its free and all {unit}s; there are too many nodes to draw each.",
        }[layout.detail]
        text = f"{grain} The deeper the shade, the more is free."
    return section(
        "fleet",
        "The fleet, before and after" if len(drawings) > 1 else "The fleet",
        make("p", text),
        make("div", figures, class_="maps"),
        _show_legend(source),
    )


def _show_legend(source: Source) -> Element:
    changes = source.changes
    samples = [
        make("li", make("svg", sample, width=18, height=14, aria_hidden="true"), text)
        for sample, text in legend_entries(source.fleet, changes, lay_out(source))
    ]
    named, left = legend_owners(changes, lay_out(source))
    owners = [
        make("li", badge(changes.badges, owner), name(owner), f" {', '.join(changes.roles[owner])}")
        for owner in named
    ]
    if left:
        owners.append(make("li", f"and {left:,} more, in the tables below"))
    return make(
        "div",
        make("ul", samples, class_="legend", aria_label="Shades and marks"),
        make("ul", owners, class_="legend", aria_label="Groups") if owners else None,
    )


def _show_tree(source: Source) -> Element | None:
    if source.fleet.is_partial or not source.fleet.trees:
        return None
    changes = source.changes
    drawing = draw_tree(source.fleet, changes, changes.after, WIDE)
    return section(
        "topology",
        "Topology",
        fold(
            "Domains from wide to narrow, each as wide as it has nodes",
            show_in_page(drawing),
            fold("The same as a list", list_domains(source.fleet, changes)),
        ),
    )


def _show_notices(
    conditional: Sequence[tuple[str, str]],
    warnings: Sequence[str],
    errors: Sequence[tuple[str, str, str, str]],
) -> Element | None:
    if not (conditional or warnings or errors):
        return None
    tables = []
    if errors:
        rows: list[list[Cell]] = [[k, name(o), name(f), m] for k, o, f, m in errors]
        tables.append(
            show_table("Set aside, not planned with", ["Kind", "Object", "Field", "Problem"], rows)
        )
    if conditional:
        rows = [[name(group), reason] for group, reason in conditional]
        tables.append(
            show_table("Rely on what is not modelled", ["Group", "Reason"], rows, wide=[1])
        )
    if warnings:
        rows = [[text] for text in warnings]
        tables.append(show_table("Warnings", ["What to know"], rows, wide=[0]))
    summary = ", ".join(
        count(number, noun)
        for number, noun in (
            (len(errors), "invalid object"),
            (len(conditional), "conditional group"),
            (len(warnings), "warning"),
        )
        if number
    )
    return section("notices", "To know first", fold(summary[0].upper() + summary[1:], tables))
