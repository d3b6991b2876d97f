"""What an inspection says in words and tables: levels, waiting groups, gangs that do no work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplan.reporting.markup import make
from gangplan.reporting.numbers import count
from gangplan.reporting.parts import name, section, show_table, tile

if TYPE_CHECKING:
    from data.inspection_documents import InspectionDocument
    from gangplan.reporting.fleet import Fleet
    from gangplan.reporting.markup import Element
    from gangplan.reporting.parts import Cell

__all__ = ["show_fleet_figures", "show_levels", "show_stranded", "show_waiting"]


def show_fleet_figures(document: InspectionDocument, fleet: Fleet) -> Element:
    """Return the headline figures."""
    total = int(fleet.capacity.sum())
    free = document.fragmentation.free_gpus
    nodes = document.fragmentation.levels.get("node")
    waiting = [g for g in document.groups if g.pending and g.kind == "group"]
    single = sum(p.state == "pending" and p.group is None for p in document.pods)
    pods = sum(g.pending for g in waiting) + single
    tiles = [
        tile("Nodes", f"{len(document.nodes):,}", count(len(document.pods), "pod")),
        tile("GPUs", f"{total:,}", f"{int(fleet.used.sum()):,} held by pods"),
        tile(
            "Free GPUs",
            f"{free:,}",
            f"{100 * free / total:.0f} %" if total else None,
            f"{nodes.whole_free_gpus:,} on wholly free nodes" if nodes else None,
        ),
        tile("Waiting", count(len(waiting), "group"), count(pods, "pod")),
    ]
    if document.stranded:
        held = sum(s.gpus for s in document.stranded)
        tiles.append(
            tile(
                "Below their minimum",
                count(len(document.stranded), "gang"),
                f"{count(held, 'GPU')} held for nothing",
                state="bad",
            )
        )
    return make("dl", tiles, class_="tiles")


def show_levels(document: InspectionDocument) -> Element:
    """Return what one domain of each level still takes."""
    sizes = sorted({gang.gpus_per_pod for gang in document.largest_gangs})
    keys = list(dict.fromkeys(gang.key for gang in document.largest_gangs))
    found = {(gang.key, gang.gpus_per_pod): gang for gang in document.largest_gangs}
    levels = document.fragmentation.levels
    rows: list[list[Cell]] = []
    for key in keys:
        level = levels.get(key or "")
        row: list[Cell] = [name(key) if key else "whole fleet"]
        row += [level.whole_free_domains if level else None]
        row += [level.whole_free_gpus if level else None]
        for size in sizes:
            gang = found.get((key, size))
            row.append(gang.pods if gang else None)
        rows.append(row)
    headings = ["Level", "Wholly free domains", "Free GPUs in them"]
    headings += [f"{size}-GPU pods" for size in sizes]
    return section(
        "levels",
        "What still fits",
        show_table(
            "The largest gang that one domain of each level takes, by size of its pods",
            headings,
            rows,
        ),
    )


def show_waiting(document: InspectionDocument) -> Element | None:
    """Return the groups that wait, highest priority first."""
    groups = [g for g in document.groups if g.pending and g.kind == "group"]
    if not groups:
        return None
    rows: list[list[Cell]] = [
        [
            name(g.group),
            g.priority,
            g.min_count,
            g.size,
            g.running,
            g.pending,
            ", ".join(t.key if t.mode == "required" else f"{t.key} ({t.mode})" for t in g.topology),
        ]
        for g in sorted(groups, key=lambda g: (-g.priority, g.group))
    ]
    return section(
        "waiting",
        "Groups that wait",
        show_table(
            "Groups with pending pods, highest priority first",
            ["Group", "Priority", "Minimum", "Size", "Running", "Pending", "Topology"],
            rows,
        ),
    )


def show_stranded(document: InspectionDocument) -> Element | None:
    """Return gangs that run below their minimum and hold GPUs."""
    if not document.stranded:
        return None
    rows: list[list[Cell]] = [
        [name(s.group), s.running, s.min_count, s.gpus] for s in document.stranded
    ]
    return section(
        "stranded",
        "Gangs below their minimum",
        show_table(
            "What they hold does no work: complete them or delete them",
            ["Group", "Running", "Minimum", "GPUs"],
            rows,
        ),
    )
