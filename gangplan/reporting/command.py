"""The steps of `gangplan report`: read the answer and its fleet, write a page or a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gangplan.answers import read_input
from gangplan.plan_files import load_document
from gangplan.reporting.source import read_source
from gangplan.streams import write_answer
from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gangplan.options import PictureName
    from gangplan.streams import Streams

__all__ = ["write_report"]


def write_report(
    answer: str,
    output: Path,
    snapshots: Sequence[str],
    picture: PictureName | None,
    *,
    strict: bool,
    streams: Streams,
) -> None:
    """Write an answer as a page, or one picture of it.

    Args:
      answer: Path of a Plan, Inspection or WhatIf document.
      output: Where to; its ending says what: .html, .svg or .png.
      snapshots: What the answer was made from; none: draw what it names itself.
      picture: Which picture; None for a page, or for the heat map.
      strict: Any invalid object of the snapshot is fatal.
      streams: Takes progress and warnings.

    Raises:
      RequestError: When the document or an option cannot be used, or the file not be written.
    """
    ending = output.suffix.lower()
    if ending not in (".html", ".htm", ".svg", ".png"):
        raise RequestError(
            f"-O {output}: must end in .html (the page), or .svg or .png (a picture)"
        )
    if picture is not None and ending in (".html", ".htm"):
        raise RequestError("--picture: a page holds all pictures; write one to .svg or .png")
    if answer == "-" and "-" in snapshots:
        raise RequestError(
            "--snapshot -: standard input holds the plan; give one of them as a file"
        )
    document = load_document(answer)
    fleet = None
    notes = []
    if snapshots:
        from data.digest import digest_snapshot

        fleet = read_input(snapshots, strict=strict, streams=streams)
        summary = document.get("snapshot")
        digest = digest_snapshot(fleet)
        if not isinstance(summary, dict) or summary.get("digest") != digest:
            note = "was made for another snapshot; it is drawn on the one given"
            streams.warning(f"{answer}: {note}")
            notes.append(f"The answer {note}, {digest}.")
    try:
        source = read_source(document, fleet)
    except RequestError as problem:
        raise RequestError(f"{answer}: {problem}") from None
    if source.changes.unknown_nodes:
        note = (
            f"{source.changes.unknown_nodes} entries are on nodes that the snapshot does not hold"
        )
        streams.warning(f"{answer}: {note}")
        notes.append(f"Not drawn: {note}.")
    with streams.progress() as progress:
        progress("drawing")
        if ending in (".html", ".htm"):
            from gangplan.reporting.page import build_page

            content = build_page(source, notes).encode()
        else:
            from gangplan.reporting.pictures import draw_picture, turn_into_png

            svg = draw_picture(source, picture or "heatmap")
            content = turn_into_png(svg) if ending == ".png" else svg.encode()
    write_answer(content, output)
