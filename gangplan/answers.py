"""What commands share: reading input with its reports, and printing one answer."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from gangplan.streams import Streams, escape_line, write_answer
from gangplan.tables import count
from topology.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import typer

    from gangplan.options import FormatName
    from topology.model import Snapshot
    from topology.plan import Plan, Verification

__all__ = [
    "describe_size",
    "find_form",
    "open_streams",
    "print_answer",
    "read_input",
    "tell_plan",
    "tell_violations",
    "write_fleet",
]


def open_streams(context: typer.Context, quiet: bool, no_color: bool) -> Streams:
    """Return the streams of this run, set as the command's options say."""
    streams: Streams = context.find_root().obj
    streams.quiet = quiet
    streams.color = not no_color
    return streams


def read_input(
    paths: Sequence[str],
    *,
    strict: bool,
    streams: Streams,
    pod_labels: Iterable[str] = (),
    checkpoint_annotation: str | None = None,
) -> Snapshot:
    """Read what SNAPSHOT names, keep these labels of pods, and report what was wrong with it."""
    from data.reader import format_error, read_snapshot

    with streams.progress() as progress:
        snapshot = read_snapshot(
            paths,
            pod_labels=pod_labels,
            checkpoint_annotation=checkpoint_annotation,
            progress=progress,
        )
    for error in snapshot.errors:
        streams.error(format_error(error))
    for warning in snapshot.warnings:
        streams.warning(warning)
    if strict and snapshot.errors:
        raise SnapshotError(
            f"--strict: {count(len(snapshot.errors), 'invalid object')}; "
            "mend what is reported above or leave out --strict"
        )
    return snapshot


def find_form(form: FormatName | None, output: Path | None) -> FormatName:
    """Return the form asked for, else what the ending of a file says, else table."""
    if form is not None:
        return form
    endings: dict[str, FormatName] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}
    return endings.get(output.suffix, "table") if output is not None else "table"


def print_answer(
    form: FormatName | None,
    output: Path | None,
    *,
    document: Callable[[], dict[str, Any]],
    table: Callable[[bool], str],
    names: Callable[[], Sequence[str]],
) -> None:
    """Print the answer in the form asked for; `table` takes whether it is to be wide."""
    form = find_form(form, output)
    if form in ("json", "yaml"):
        from data.encode import to_json, to_yaml

        content = to_json(document()) if form == "json" else to_yaml(document())
    else:
        named = form == "name"
        text = "\n".join(map(escape_line, names())) if named else table(form == "wide")
        content = f"{text}\n".encode() if text else b""
    write_answer(content, output)


def tell_plan(plan: Plan, snapshot: Snapshot, streams: Streams) -> None:
    """Report what the plan adds to what was said about the snapshot."""
    for warning in plan.warnings:
        if warning not in snapshot.warnings:
            streams.warning(warning)
    if not plan.groups and plan.resize is None and plan.request.move is None:
        streams.note("no pod waits for a node")
    for group, reason in plan.conditional:
        streams.warning(f"{group}: relies on what is not modelled: {reason}")
    if plan.verification is not None:
        tell_violations(plan.verification, streams)


def tell_violations(verification: Verification, streams: Streams) -> None:
    """Report every rule that is broken."""
    for violation in verification.violations:
        streams.error(
            f"{violation.object}: {violation.rule}: wanted {violation.wanted}, "
            f"found {violation.found}"
        )


def write_fleet(fleet: Snapshot, output: Path) -> None:
    """Write a fleet as objects where the name of the file says so, else as a folder of tables."""
    form = PurePath(output.name.removesuffix(".gz")).suffix
    if form not in (".json", ".yaml", ".yml"):
        from data.store import write_store

        write_store(fleet, output)
        return
    from data.generate.manifests import write_manifests

    write_manifests(fleet, output)


def describe_size(snapshot: Snapshot) -> str:
    """Return how much there is, in words."""
    groups = count(sum(group.kind == "group" for group in snapshot.groups), "group")
    return f"{count(len(snapshot.nodes), 'node')}, {count(len(snapshot.pods), 'pod')}, {groups}"
