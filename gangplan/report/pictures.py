"""The pictures of an answer, for its page and as files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gangplan.report.heatmap import draw_heat_map
from gangplan.report.layout import arrange
from gangplan.report.markup import to_svg
from gangplan.report.svg import stand_alone
from gangplan.report.tree import draw_tree
from gangplan.report.victims import draw_victims
from gangplan.report.waves import draw_waves
from topology.errors import RequestError

if TYPE_CHECKING:
    from gangplan.options import PictureName
    from gangplan.report.layout import Layout
    from gangplan.report.source import Source
    from gangplan.report.svg import Drawing

__all__ = ["draw_heat_maps", "draw_picture", "lay_out", "turn_into_png"]

WIDE = 1180.0
HALF = 580.0
"""Pixels of a picture that fills the page, and of one of two side by side."""


def lay_out(source: Source) -> Layout:
    """Return how the heat maps of an answer are laid out: by the keys that its groups are in."""
    plans = [source.plan] if source.plan else []
    keys = Counter(d.key for plan in plans for group in plan.groups for d in group.domains)
    return arrange(source.fleet, keys)


def draw_heat_maps(source: Source) -> list[Drawing]:
    """Draw the fleet before and after, or as it is where the answer changes nothing."""
    fleet, changes, layout = source.fleet, source.changes, lay_out(source)
    if not changes.touched:
        return [draw_heat_map("The fleet now", fleet, changes, changes.before, layout, WIDE)]
    is_plan = source.plan is None or source.plan.request.command != "explain"
    after = "After this plan" if is_plan else "If what fits were placed"
    return [
        draw_heat_map("Before", fleet, changes, changes.before, layout, HALF),
        draw_heat_map(after, fleet, changes, changes.after, layout, HALF),
    ]


def draw_picture(source: Source, picture: PictureName) -> str:
    """Return one picture as an SVG document of its own.

    Raises:
      RequestError: When the answer has nothing of that kind to show.
    """
    fleet, changes, plan = source.fleet, source.changes, source.plan
    if picture == "heatmap":
        if not fleet.nodes:
            raise RequestError("--picture heatmap: no node to draw; give --snapshot")
        drawings = draw_heat_maps(source)
    elif picture == "tree":
        if fleet.is_partial:
            raise RequestError("--picture tree: a plan names no topology; give --snapshot")
        drawings = [draw_tree(fleet, changes, changes.after, WIDE)]
    elif picture == "waves":
        if plan is None or not plan.moves:
            raise RequestError("--picture waves: this answer moves nothing")
        drawings = [draw_waves(plan, changes, WIDE)]
    else:
        if plan is None or not plan.evictions:
            raise RequestError("--picture victims: this answer plans no eviction")
        drawings = [draw_victims(fleet, plan, changes, WIDE)]
    notes = [
        f"{badge.letter}  {owner}: {', '.join(changes.roles[owner])}"
        for owner, badge in list(changes.badges.items())[:40]
    ]
    if picture not in ("heatmap",):
        notes = []
    return to_svg(stand_alone(drawings, _name_picture(source), notes))


def _name_picture(source: Source) -> str:
    digest = str(source.summary.get("digest", ""))[:19]
    command = source.plan.request.command if source.plan else "inspect"
    return f"gangplan {command} · {digest} · {source.summary.get('nodes', 0)} nodes"


def turn_into_png(svg: str) -> bytes:
    """Turn an SVG document into a PNG, twice its size in pixels.

    Raises:
      RequestError: When the library for it is not installed.
    """
    try:
        import resvg_py
    except ImportError:
        raise RequestError(
            "-O: PNG needs resvg-py; run `pip install 'gangplan[plot]'`, or write .svg"
        ) from None
    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=2))
