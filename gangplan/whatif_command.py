"""The command `whatif`: scenarios in, one row or plan each out."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from gangplan.answers import find_form, open_streams, print_answer, read_input
from gangplan.exit_status import ANSWERED, FAILED, NOT_REACHED
from gangplan.options import (
    AllNamespaces,
    AssumeGangs,
    Effort,
    ExitStatus,
    Format,
    Groups,
    Namespace,
    NoColor,
    Objective,
    Pdb,
    Preempt,
    Quiet,
    Release,
    Seed,
    Selector,
    Snapshots,
    Strict,
    Workers,
)
from topology.errors import RequestError

__all__ = ["whatif"]


def whatif(
    context: typer.Context,
    snapshot: Snapshots,
    scenarios: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What is other in each scenario, in YAML.", show_default=False
        ),
    ] = None,
    min_add: Annotated[
        str | None,
        typer.Option(
            metavar="like=NODE,...",
            help="Find the least number of nodes (like=NODE) or whole domains (like=KEY=VALUE) "
            "to add, with label=KEY=VALUE on top, until all asked groups are placed.",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        Literal["placed"], typer.Option(help="What --min-add is to reach: every group placed.")
    ] = "placed",
    group: Groups = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    form: Format = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-O",
            "--output",
            metavar="PATH",
            help="Write the answer to a file ending in .json, .yaml or .txt; or keep the answers "
            "as Parquet in a folder (a path, or a URI such as s3://...), which a later run of the "
            "same command goes on with.",
            show_default=False,
        ),
    ] = None,
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Sort scenarios: max: or min: and a column, such as min:groupsLost.",
            show_default=False,
        ),
    ] = None,
    plans: Annotated[
        bool,
        typer.Option("--plans", help="Keep the whole plans in a folder of answers; JSON has them."),
    ] = False,
    objective: Objective = None,
    preempt: Preempt = False,
    pdb: Pdb = None,
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
    """Answer one question for many variants of the fleet."""
    streams = open_streams(context, quiet, no_color)
    from data.scenarios.read import read_scenarios
    from gangplan.questions import (
        ask_evictions,
        choose_groups,
        find_keys,
        parse_selector,
        split_objective,
    )
    from gangplan.whatif_views import parse_rank, show_whatif, to_document
    from topology.plan import Request

    ranking = parse_rank(rank)
    options = ask_evictions("place", groups=group or [], preempt=preempt, pdb=pdb)
    if objective is not None:
        options["objective"] = split_objective(objective)
    chosen = parse_selector(selector) if selector is not None else None
    cluster = read_input(snapshot, strict=strict, streams=streams, pod_labels=find_keys(chosen))
    asked = [] if scenarios is None else read_scenarios(scenarios, cluster)
    request = Request(
        command="place",
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
        **options,
    )
    if (scenarios is None) == (min_add is None):
        raise RequestError(
            "whatif: give --scenarios FILE, or --min-add like=NODE to search for a number of nodes"
        )
    file = None if output is None else Path(output)
    if file is not None and file.suffix not in (".json", ".yaml", ".yml", ".txt"):
        file = None
    least = None
    with streams.progress() as progress:
        if min_add is not None:
            from ray_jobs.least import find_least, parse_addition

            least = find_least(cluster, parse_addition(min_add), request, progress=progress)
            found = least.tried
        else:
            from ray_jobs.whatif import answer_scenarios

            found = answer_scenarios(
                cluster,
                asked,
                request,
                workers=workers,
                results=output if file is None else None,
                plans=plans or find_form(form, file) in ("json", "yaml"),
                progress=progress,
            )
    for answer in found.answers:
        if answer.error:
            streams.error(answer.error)
        elif not answer.is_valid:
            streams.error(f"scenario {answer.name}: its plan failed verification")
    print_answer(
        form,
        file,
        document=lambda: to_document(found, cluster, request, ranking, least),
        table=lambda wide: show_whatif(found, ranking, least, wide=wide),
        names=lambda: [answer.name for answer in found.answers],
    )
    if not found.is_valid:
        return FAILED
    missed = any(a.error or a.row["groupsNotPlaced"] for a in found.answers)
    if least is not None:
        missed = least.number is None
    return NOT_REACHED if exit_status and missed else ANSWERED
