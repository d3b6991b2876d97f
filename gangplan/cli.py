"""The command line: options in, one answer out, an exit status that means something."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn

import typer

from gangplan.answers import (
    describe_size,
    open_streams,
    print_answer,
    read_input,
    tell_plan,
    tell_violations,
    write_fleet,
)
from gangplan.exit_status import ANSWERED, FAILED, NOT_REACHED, UNUSABLE
from gangplan.options import (
    AllNamespaces,
    AssumeGangs,
    CheckpointAnnotation,
    Cost,
    DraReclaim,
    Effort,
    ExitStatus,
    Format,
    Groups,
    Namespace,
    NoColor,
    Objective,
    Output,
    Pdb,
    Policy,
    Preempt,
    Quiet,
    Release,
    Requests,
    Resize,
    Seed,
    Selector,
    Snapshots,
    Strict,
    Workers,
)
from gangplan.repack_command import repack
from gangplan.report_command import report
from gangplan.streams import Streams
from gangplan.submit_command import submit
from gangplan.whatif_command import whatif
from topology.errors import GangplanError, RequestError

__all__ = ["main", "run"]

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
    streams = open_streams(context, quiet, no_color)
    from gangplan.inspection import inspect_snapshot
    from gangplan.questions import find_keys, parse_selector, select_pods
    from gangplan.views import name_inspection, show_domains, show_inspection

    if by is not None and form not in (None, "table", "wide"):
        raise RequestError(f"--by: is for tables, {form} always holds every node; leave one out")
    chosen = parse_selector(selector) if selector is not None else None
    cluster = read_input(snapshot, strict=strict, streams=streams, pod_labels=find_keys(chosen))
    shown = select_pods(cluster, None if all_namespaces else namespace, chosen)
    answer = inspect_snapshot(cluster, release=release, shown_pods=shown)
    for line in answer.findings:
        streams.warning(line)
    print_answer(
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
@app.command("preempt", help="Say who would have to go so that these groups fit, at least cost.")
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
    preempt: Preempt = False,
    pdb: Pdb = None,
    dra_reclaim: DraReclaim = None,
    cost: Cost = None,
    resize: Resize = None,
    requests: Requests = None,
    checkpoint_annotation: CheckpointAnnotation = None,
    policy: Policy = "optimize",
    release: Release = "1.37",
    seed: Seed = 0,
    effort: Effort = "normal",
    assume_gangs: AssumeGangs = True,
    workers: Workers = None,
    strict: Strict = False,
    exit_status: ExitStatus = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    command = _find_command(context.info_name)
    streams = open_streams(context, quiet, no_color)
    from gangplan.questions import (
        ask_evictions,
        ask_resize,
        check_policy,
        check_workers,
        choose_groups,
        find_keys,
        parse_selector,
        split_objective,
    )
    from topology.plan import Request

    growing = ask_resize(
        command,
        resize,
        requests or [],
        groups=group or [],
        namespace=None if all_namespaces else namespace,
        selector=selector,
        policy=policy,
    )
    named = [*(group or []), *([resize] if resize else [])]
    options = ask_evictions(
        command, groups=named, preempt=preempt, pdb=pdb, cost=cost, dra_reclaim=dra_reclaim
    )
    check_policy(command, policy=policy, pdb=pdb)
    check_workers(workers, policy=policy, evicts=preempt or command == "preempt")
    if objective is not None:
        if cost is not None:
            raise RequestError("--cost: --objective says already what counts; leave one out")
        options["objective"] = split_objective(objective)
    chosen = parse_selector(selector) if selector is not None else None
    cluster = read_input(
        snapshot,
        strict=strict,
        streams=streams,
        pod_labels=find_keys(chosen),
        checkpoint_annotation=checkpoint_annotation,
    )
    request = Request(
        command=command,
        groups=None
        if growing is not None
        else choose_groups(
            cluster,
            group or [],
            namespace=None if all_namespaces else namespace,
            selector=chosen,
        ),
        seed=seed,
        effort=effort,
        release=release,
        assume_gangs=assume_gangs,
        resize=growing,
        policy=policy,
        **options,
    )
    from ray_jobs.pipeline import make_plan

    with streams.progress() as progress:
        plan = make_plan(cluster, request, progress, workers=workers)
    tell_plan(plan, cluster, streams)
    from gangplan.views import name_plan, show_explanation, show_plan

    print_answer(
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
    stays = plan.resize is not None and plan.resize.outcome != "resized"
    if exit_status and (stays or any(g.outcome != "placed" for g in plan.groups)):
        return NOT_REACHED
    return ANSWERED


def _find_command(name: str | None) -> Literal["explain", "place", "preempt"]:
    return "explain" if name == "explain" else "preempt" if name == "preempt" else "place"


app.command("repack")(repack)


app.command("whatif")(whatif)
app.command("submit", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    submit
)


@app.command()
def verify(
    context: typer.Context,
    snapshot: Snapshots,
    plan: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A plan as `-o json` or `-o yaml` printed it.", show_default=False
        ),
    ],
    checkpoint_annotation: CheckpointAnnotation = None,
    form: Format = None,
    output: Output = None,
    strict: Strict = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Replay a plan and list every rule it breaks."""
    streams = open_streams(context, quiet, no_color)
    from data.digest import digest_snapshot
    from gangplan.plan_files import load_plan
    from gangplan.views import show_verification
    from optimizer.verify import verify_plan
    from topology.plan import API_VERSION

    claimed = load_plan(plan)
    cluster = read_input(
        snapshot, strict=strict, streams=streams, checkpoint_annotation=checkpoint_annotation
    )
    digest = digest_snapshot(cluster)
    if claimed.snapshot.get("digest") != digest:
        streams.warning(f"{plan}: was made for another snapshot; it is replayed on this one")
    verdict = verify_plan(cluster, claimed)
    tell_violations(verdict, streams)
    print_answer(
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


app.command("report")(report)


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
    keep_label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY",
            help="Keep this label of pods for -l, beside those that selectors name; may be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    checkpoint_annotation: CheckpointAnnotation = None,
    seed: Seed = 0,
    strict: Strict = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Read objects once and store them as tables."""
    streams = open_streams(context, quiet, no_color)
    cluster = read_input(
        snapshot,
        strict=strict,
        streams=streams,
        pod_labels=keep_label or (),
        checkpoint_annotation=checkpoint_annotation,
    )
    kept = {key for labels in cluster.pods.label_sets for key in labels}
    for key in sorted(set(keep_label or ()) - kept):
        streams.warning(f"--keep-label {key}: no pod that was read has it")
    from gangplan import api

    if anonymize:
        cluster = api.anonymize(cluster, seed)
    api.write_snapshot(cluster, output)
    streams.note(f"wrote {describe_size(cluster)} to {output}")
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
        typer.Option(min=0, max=0.98, help="Share of GPUs in use.", show_default=False),
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
    streams = open_streams(context, quiet, no_color)
    from data.generate import (
        DEFAULT_MIX,
        DEFAULT_UTILIZATION,
        check_fleet,
        describe_fleet,
        generate_fleet,
    )

    mix = DEFAULT_MIX if mix is None else mix
    utilization = DEFAULT_UTILIZATION if utilization is None else utilization
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
        progress("writing it")
        write_fleet(fleet, output)
    for problem in check_fleet(fleet, preset=preset, mix=mix, utilization=utilization):
        streams.warning(problem)
    for line in describe_fleet(fleet, preset=preset):
        streams.note(line)
    streams.note(f"wrote {describe_size(fleet)} to {output}")
    return ANSWERED
