"""The command line: options in, one answer out, an exit status that means something."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NoReturn

import typer

from gangplan.options import (
    AllNamespaces,
    AssumeGangs,
    Effort,
    ExitStatus,
    Format,
    FormatName,
    Groups,
    Namespace,
    NoColor,
    Objective,
    Output,
    Quiet,
    Release,
    Seed,
    Selector,
    Snapshots,
    Strict,
)
from gangplan.streams import Streams, escape_line, write_answer
from gangplan.tables import count
from topology.errors import GangplanError, RequestError, SnapshotError

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan, Verification

__all__ = ["main", "run"]

ANSWERED: Final = 0
FAILED: Final = 1
UNUSABLE: Final = 2
NOT_REACHED: Final = 3

PRESETS: Final = "dgx-h100, nvl72, kueue-grid, clos, hetero-pools"

app = typer.Typer(
    name="gangplan",
    help="Which gangs fit a Kubernetes GPU fleet, where, and why not. Reads files, not clusters.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    sys.exit(run(sys.argv[1:]))


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit status.

    Raises nothing, unless GANGPLAN_DEBUG asks for the traceback of an internal failure.
    """
    streams = Streams()
    try:
        status = app(list(args), prog_name=_find_name(), standalone_mode=False, obj=streams)
        return status if isinstance(status, int) else ANSWERED
    except GangplanError as problem:
        streams.error(str(problem))
        return UNUSABLE
    except KeyboardInterrupt:
        return 130
    except Exception as problem:
        # Usage errors of Typer; it keeps their class to itself, but not their interface.
        if hasattr(problem, "format_message") and hasattr(problem, "exit_code"):
            _tell_usage(streams, problem)
            return UNUSABLE
        if os.environ.get("GANGPLAN_DEBUG"):
            raise
        what = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        streams.error(f"internal: {what} (set GANGPLAN_DEBUG=1 for the traceback)")
        return FAILED


def _find_name() -> str:
    return "kubectl gangplan" if Path(sys.argv[0]).name == "kubectl-gangplan" else "gangplan"


def _tell_usage(streams: Streams, problem: Any) -> None:
    message = problem.format_message().strip()
    if "\n" in message:  # no arguments at all: the message is the help
        print(message, file=sys.stderr)
        return
    context = getattr(problem, "ctx", None)
    command = context.command_path if context is not None else _find_name()
    streams.error(f"{message.rstrip('.')}; see `{command} --help`")


def _set_streams(context: typer.Context, quiet: bool, no_color: bool) -> Streams:
    streams: Streams = context.find_root().obj
    streams.quiet = quiet
    streams.color = not no_color
    return streams


def _show_version(value: bool) -> None:
    if value:
        from importlib.metadata import PackageNotFoundError, version

        try:
            number = version("gangplan")
        except PackageNotFoundError:
            number = "(not installed)"
        typer.echo(f"gangplan {number}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def _read(paths: Sequence[str], *, strict: bool, streams: Streams) -> "Snapshot":
    """Read what SNAPSHOT names and report what was wrong with it."""
    from data.reader import format_error, read_snapshot

    with streams.progress() as progress:
        snapshot = read_snapshot(paths, progress=progress)
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


def _answer(
    form: FormatName | None,
    output: Path | None,
    *,
    document: Callable[[], dict[str, Any]],
    table: Callable[[bool], str],
    names: Callable[[], Sequence[str]],
) -> None:
    """Print the answer in the form asked for; `table` takes whether it is to be wide."""
    if form is None:
        endings: dict[str, FormatName] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}
        form = endings.get(output.suffix, "table") if output is not None else "table"
    if form in ("json", "yaml"):
        from data.encode import to_json, to_yaml

        content = to_json(document()) if form == "json" else to_yaml(document())
    else:
        named = form == "name"
        text = "\n".join(map(escape_line, names())) if named else table(form == "wide")
        content = f"{text}\n".encode() if text else b""
    write_answer(content, output)


@app.command()
def inspect(
    context: typer.Context,
    snapshot: Snapshots,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="A row for every domain of this topology label, or for every node (`node`).",
            show_default=False,
        ),
    ] = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    form: Format = None,
    output: Output = None,
    release: Release = "1.37",
    strict: Strict = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Show nodes, domains, free GPUs, waiting groups."""
    streams = _set_streams(context, quiet, no_color)
    from gangplan.inspection import inspect_snapshot
    from gangplan.questions import parse_selector, select_pods
    from gangplan.views import name_inspection, show_domains, show_inspection

    if by is not None and form not in (None, "table", "wide"):
        raise RequestError(f"--by: is for tables, {form} always holds every node; leave one out")
    chosen = parse_selector(selector) if selector is not None else None
    cluster = _read(snapshot, strict=strict, streams=streams)
    shown = select_pods(cluster, None if all_namespaces else namespace, chosen)
    answer = inspect_snapshot(cluster, release=release, shown_pods=shown)
    for stranded in answer.stranded:
        streams.warning(stranded.message)
    _answer(
        form,
        output,
        document=answer.to_dict,
        table=lambda wide: (
            show_inspection(answer, wide=wide)
            if by is None
            else show_domains(answer, by, wide=wide)
        ),
        names=lambda: name_inspection(answer),
    )
    return ANSWERED


@app.command("place", help="Say where pending groups go.")
@app.command("explain", help="Say why pending groups cannot be placed now.")
def _plan(
    context: typer.Context,
    snapshot: Snapshots,
    group: Groups = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    form: Format = None,
    output: Output = None,
    objective: Objective = None,
    release: Release = "1.37",
    seed: Seed = 0,
    effort: Effort = "normal",
    assume_gangs: AssumeGangs = True,
    strict: Strict = False,
    exit_status: ExitStatus = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    command: Literal["explain", "place"] = "explain" if context.info_name == "explain" else "place"
    streams = _set_streams(context, quiet, no_color)
    from gangplan.questions import choose_groups, parse_selector, split_objective
    from topology.plan import Request

    criteria: dict[str, Any] = {}
    if objective is not None:
        criteria["objective"] = split_objective(objective)
    chosen = parse_selector(selector) if selector is not None else None
    cluster = _read(snapshot, strict=strict, streams=streams)
    request = Request(
        command=command,
        groups=choose_groups(
            cluster,
            group or [],
            namespace=None if all_namespaces else namespace,
            selector=chosen,
        ),
        seed=seed,
        effort=effort,
        release=release,
        assume_gangs=assume_gangs,
        **criteria,
    )
    from ray_jobs.pipeline import make_plan

    with streams.progress() as progress:
        plan = make_plan(cluster, request, progress)
    _tell_plan(plan, cluster, streams)
    from gangplan.views import name_plan, show_explanation, show_plan

    _answer(
        form,
        output,
        document=plan.to_dict,
        table=lambda wide: (
            show_explanation(plan, wide=wide)
            if command == "explain"
            else show_plan(cluster, plan, wide=wide)
        ),
        names=lambda: name_plan(plan),
    )
    if plan.verification is None or not plan.verification.is_valid:
        return FAILED
    if exit_status and any(g.outcome != "placed" for g in plan.groups):
        return NOT_REACHED
    return ANSWERED


def _tell_plan(plan: "Plan", snapshot: "Snapshot", streams: Streams) -> None:
    """Report what the plan adds to what was said about the snapshot."""
    for warning in plan.warnings:
        if warning not in snapshot.warnings:
            streams.warning(warning)
    for group, reason in plan.conditional:
        streams.warning(f"{group}: is placed on condition: {reason}")
    if plan.verification is not None:
        _tell_violations(plan.verification, streams)


def _tell_violations(verification: "Verification", streams: Streams) -> None:
    for violation in verification.violations:
        streams.error(
            f"{violation.object}: {violation.rule}: wanted {violation.wanted}, "
            f"found {violation.found}"
        )


@app.command()
def verify(
    context: typer.Context,
    snapshot: Snapshots,
    plan: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A plan in JSON, as `-o json` prints it.", show_default=False
        ),
    ],
    form: Format = None,
    output: Output = None,
    strict: Strict = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Replay a plan and list every rule it breaks."""
    streams = _set_streams(context, quiet, no_color)
    from data.digest import digest_snapshot
    from gangplan.plan_files import load_plan
    from gangplan.views import show_verification
    from optimizer.verify import verify_plan
    from topology.plan import API_VERSION

    claimed = load_plan(plan)
    cluster = _read(snapshot, strict=strict, streams=streams)
    digest = digest_snapshot(cluster)
    if claimed.snapshot.get("digest") != digest:
        streams.warning(f"{plan}: was made for another snapshot; it is replayed on this one")
    verdict = verify_plan(cluster, claimed)
    _tell_violations(verdict, streams)
    _answer(
        form,
        output,
        document=lambda: {
            "apiVersion": API_VERSION,
            "kind": "Verification",
            "snapshot": {"digest": digest},
            **verdict.to_dict(),
        },
        table=lambda wide: show_verification(verdict),
        names=lambda: sorted({violation.object for violation in verdict.violations}),
    )
    return ANSWERED if verdict.is_valid else FAILED


@app.command()
def snapshot(
    context: typer.Context,
    snapshot: Snapshots,
    output: Annotated[
        Path,
        typer.Option(
            "-O", "--output", metavar="DIR", help="The folder to write.", show_default=False
        ),
    ],
    anonymize: Annotated[
        bool,
        typer.Option("--anonymize", help="Replace every name, so that the snapshot can be shared."),
    ] = False,
    seed: Seed = 0,
    strict: Strict = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Read objects once and store them as tables."""
    streams = _set_streams(context, quiet, no_color)
    cluster = _read(snapshot, strict=strict, streams=streams)
    from gangplan import api

    if anonymize:
        cluster = api.anonymize(cluster, seed)
    api.write_snapshot(cluster, output)
    streams.note(f"wrote {_describe(cluster)} to {output}")
    return ANSWERED


@app.command()
def generate(
    context: typer.Context,
    preset: Annotated[
        str, typer.Argument(help=f"One of {PRESETS}.", metavar="PRESET", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-O",
            "--output",
            metavar="PATH",
            help="A folder for Parquet tables, or a file ending in .json, .yaml or .gz for "
            "Kubernetes objects.",
            show_default=False,
        ),
    ],
    nodes: Annotated[
        int | None, typer.Option(min=1, help="How many nodes.", show_default=False)
    ] = None,
    utilization: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Share of GPUs in use.", show_default=False),
    ] = None,
    pending: Annotated[
        float | None,
        typer.Option(min=0, help="GPUs waited for, as a share of all.", show_default=False),
    ] = None,
    mix: Annotated[
        str | None,
        typer.Option(help="Gang sizes: research, llm, frontier, legacy.", show_default=False),
    ] = None,
    fragmentation: Annotated[
        str | None, typer.Option(help="Scatter: tidy, normal, bad.", show_default=False)
    ] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Make a synthetic fleet from a seed."""
    streams = _set_streams(context, quiet, no_color)
    from data.generate import check_fleet, generate_fleet

    with streams.progress() as progress:
        progress("making the fleet")
        fleet = generate_fleet(
            preset,
            nodes=nodes,
            utilization=utilization,
            pending=pending,
            mix=mix,
            fragmentation=fragmentation,
            seed=seed,
        )
        for problem in check_fleet(fleet):
            streams.warning(problem)
        progress("writing it")
        _write_fleet(fleet, output)
    streams.note(f"wrote {_describe(fleet)} to {output}")
    return ANSWERED


def _write_fleet(fleet: "Snapshot", output: Path) -> None:
    endings = [ending for ending in output.suffixes if ending in (".json", ".yaml", ".yml")]
    if not endings:
        from data.store import write_store

        write_store(fleet, output)
        return
    import gzip

    from data.encode import to_json, to_yaml
    from data.generate.manifests import to_objects
    from gangplan.streams import write_file

    items = {"apiVersion": "v1", "kind": "List", "items": list(to_objects(fleet))}
    content = to_json(items) if endings[-1] == ".json" else to_yaml(items)
    if output.suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_file(output, content)


def _describe(snapshot: "Snapshot") -> str:
    groups = count(sum(group.kind == "group" for group in snapshot.groups), "group")
    return f"{count(len(snapshot.nodes), 'node')}, {count(len(snapshot.pods), 'pod')}, {groups}"
