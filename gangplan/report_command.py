"""The command `report`: an answer that an earlier command printed in, a page or a picture out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from gangplan.answers import open_streams, read_input
from gangplan.options import NoColor, Quiet, Strict
from gangplan.streams import Streams, write_answer
from topology.errors import RequestError

__all__ = ["PictureName", "report"]

PictureName = Literal["heatmap", "tree", "waves", "victims"]

Answer = Annotated[
    str,
    typer.Argument(
        metavar="PLAN",
        help="A plan or an inspection as `-o json` or `-o yaml` printed it; - for standard input.",
        show_default=False,
    ),
]
Page = Annotated[
    Path,
    typer.Option(
        "-O",
        "--output",
        metavar="FILE",
        help="The page (.html), or one picture (.svg, .png).",
        show_default=False,
    ),
]
Fleet = Annotated[
    list[str] | None,
    typer.Option(
        "--snapshot",
        metavar="SNAPSHOT",
        help="What the plan was made from, to draw the whole fleet; may be repeated.",
        show_default=False,
    ),
]
Picture = Annotated[
    PictureName | None,
    typer.Option(
        "--picture",
        help="Which picture a .svg or .png holds. Default: heatmap.",
        show_default=False,
    ),
]


def report(
    context: typer.Context,
    answer: Answer,
    output: Page,
    snapshot: Fleet = None,
    picture: Picture = None,
    strict: Strict = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Show an answer as one page with pictures."""
    streams = open_streams(context, quiet, no_color)
    _write_report(answer, output, snapshot or [], picture, strict=strict, streams=streams)
    return 0


def _write_report(
    answer: str,
    output: Path,
    snapshots: Sequence[str],
    picture: PictureName | None,
    *,
    strict: bool,
    streams: Streams,
) -> None:
    from gangplan.plan_files import load_document
    from gangplan.reporting.source import read_source

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
