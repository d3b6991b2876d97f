"""The pictures of an answer, for its page and as files."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gangplan.reporting.heatmap import draw_heat_map, legend_entries, legend_owners
from gangplan.reporting.layout import arrange
from gangplan.reporting.markup import cut, make, to_svg
from gangplan.reporting.svg import CHARACTER_WIDTH, Drawing, box, stand_alone, words
from gangplan.reporting.tree import draw_tree
from gangplan.reporting.victims import draw_victims
from gangplan.reporting.waves import draw_waves
from topology.errors import RequestError

if TYPE_CHECKING:
    from gangplan.report_command import PictureName
    from gangplan.reporting.layout import Layout
    from gangplan.reporting.source import Source

__all__ = ["draw_heat_maps", "draw_picture", "lay_out", "turn_into_png"]

WIDE: Final = 1180.0
HALF: Final = 580.0
"""Pixels of a picture that fills the page, and of one of two side by side."""
LEGEND_COLUMNS: Final = 4


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
    legend = _draw_legend(source, len(drawings)) if picture == "heatmap" else None
    return to_svg(stand_alone(drawings, legend, _name_picture(source)))


def _draw_legend(source: Source, num_maps: int) -> Drawing:
    """Draw what shades, marks and letters mean, below heat maps."""
    changes = source.changes
    drawing = Drawing("", WIDE if num_maps == 1 else 2 * HALF)
    samples = legend_entries(source.fleet, changes, lay_out(source))
    x, y = 0.0, 0.0
    for sample, text in samples:
        wide = 30 + len(text) * CHARACTER_WIDTH[""]
        if x and x + wide > drawing.width:
            x, y = 0.0, y + 20
        drawing.add(make("g", sample, transform=f"translate({x:g},{y:g})"))
        drawing.add(words(x + 23, y + 10, text))
        x += wide + 8
    y += 26
    wide = drawing.width / LEGEND_COLUMNS
    owners, left = legend_owners(changes, lay_out(source))
    for i, owner in enumerate(owners):
        badge = changes.badges[owner]
        x, top = i % LEGEND_COLUMNS * wide, y + i // LEGEND_COLUMNS * 20
        text = f"{cut(owner, 30)} {', '.join(changes.roles[owner])}"
        drawing.add(
            box(x, top, 18, 14, f"g{badge.color}"),
            words(x + 9, top + 11, badge.letter, f"b c i{badge.color}"),
            words(x + 23, top + 11, text, room=wide - 30),
        )
    y += -(-len(owners) // LEGEND_COLUMNS) * 20
    if left:
        drawing.add(words(0, y + 11, f"and {left:,} more", "m"))
        y += 20
    drawing.height = y
    return drawing


def _name_picture(source: Source) -> str:
    digest = str(source.summary.get("digest", "not known"))[:19]
    command = source.plan.request.command if source.plan else "inspect"
    return f"gangplan {command} · {source.summary.get('nodes', 0)} nodes · snapshot {digest}"


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
