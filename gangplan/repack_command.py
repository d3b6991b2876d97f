"""The command `repack`: options in, a migration plan out."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangplan.answers import open_streams, print_answer, read_input, tell_plan
from gangplan.exit_status import ANSWERED, FAILED, NOT_REACHED
from gangplan.options import (
    AllNamespaces,
    AssumeGangs,
    Effort,
    ExitStatus,
    Format,
    FormatName,
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
from topology.errors import RequestError

if TYPE_CHECKING:
    from pathlib import Path

    from gangplan.emit import EmitForm
    from gangplan.streams import Streams
    from topology.model import Snapshot
    from topology.plan import Plan

__all__ = ["repack"]

Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="REF",
        help="Make room for this pending group; may be repeated. Default: nothing waits.",
        show_default=False,
    ),
]
Free = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY[=VALUE]:N",
        help="Empty N domains of this node label, the cheapest or the one named; may be repeated.",
        show_default=False,
    ),
]
Drain = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NODE|SELECTOR",
        help="Empty this node, or all nodes with these labels; may be repeated.",
        show_default=False,
    ),
]
DrainUnit = Annotated[
    Literal["group", "pod"],
    typer.Option(
        help="What leaves a drained node where it cannot be moved: a whole `all` group, or a pod."
    ),
]
Moves = Annotated[
    Literal["live", "restart"],
    typer.Option(
        envvar="GANGPLAN_MOVES",
        help="live: one pod at a time to a node with room at that moment, all others running; "
        "restart: a unit stops as a whole, then starts elsewhere as a whole.",
    ),
]
Movable = Annotated[
    list[str] | None,
    typer.Option(
        metavar="POD",
        help="Move only this pod (and what --movable-groups names); may be repeated.",
        show_default=False,
    ),
]
MovableGroups = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REF",
        help="Move only pods of this group (and what --movable names); may be repeated.",
        show_default=False,
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="REF",
        help="Leave this pod or group where it is; may be repeated.",
        show_default=False,
    ),
]
MaxMoves = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="At most N steps.", show_default=False)
]
MaxDisturbed = Annotated[
    int | None,
    typer.Option(
        min=0,
        metavar="N",
        help="At most N pods moved, members of an `all` group of which one is moved included.",
        show_default=False,
    ),
]
MaxParallel = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="At most N units (pods, or groups that restart as a whole) on the way in one wave.",
        show_default=False,
    ),
]
PriorityCeiling = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Leave work of a priority above N where it is.", show_default=False
    ),
]
Resume = Annotated[
    str | None,
    typer.Option(
        metavar="PLAN",
        help="Go on with a plan of `repack` that was carried out in part: what is done is dropped, "
        "what no longer holds is planned anew. Goals and limits are those of the plan.",
        show_default=False,
    ),
]
Emit = Annotated[
    Literal["kubectl", "kueue", "lws", "patches"] | None,
    typer.Option(
        help="Print a script (kubectl, lws) or manifests (kueue, patches) to review instead of the "
        "answer. Nothing is carried out.",
        show_default=False,
    ),
]
Pdb = Annotated[
    Literal["hard"],
    typer.Option(help="Moves never break a disruption budget: always hard.", hidden=True),
]


def repack(
    context: typer.Context,
    snapshot: Snapshots,
    group: Groups = None,
    free: Free = None,
    drain: Drain = None,
    drain_unit: DrainUnit = "group",
    moves: Moves = "restart",
    movable: Movable = None,
    movable_groups: MovableGroups = None,
    keep: Keep = None,
    max_moves: MaxMoves = None,
    max_disturbed: MaxDisturbed = None,
    max_parallel: MaxParallel = None,
    priority_ceiling: PriorityCeiling = None,
    resume: Resume = None,
    emit: Emit = None,
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    selector: Selector = None,
    form: Format = None,
    output: Output = None,
    objective: Objective = None,
    pdb: Pdb = "hard",
    release: Release = "1.37",
    seed: Seed = 0,
    effort: Effort = "normal",
    assume_gangs: AssumeGangs = True,
    strict: Strict = False,
    exit_status: ExitStatus = False,
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Say which running work would move so that groups fit, domains come free, nodes drain."""
    streams = open_streams(context, quiet, no_color)
    from gangplan.move_questions import choose_drained, choose_movers, parse_free
    from gangplan.plan_files import load_plan
    from gangplan.questions import choose_groups, find_keys, parse_selector, split_objective
    from optimizer.repack.steps import REPACK_OBJECTIVE
    from topology.move_request import MoveRequest
    from topology.plan import Request

    if resume is not None and (group or free or drain):
        raise RequestError(
            "--resume: goals are those of the plan; leave out --group, --free and --drain"
        )
    earlier = None if resume is None else load_plan(resume)
    goals = tuple(parse_free(text) for text in free or ())
    criteria = REPACK_OBJECTIVE if objective is None else split_objective(objective)
    chosen = parse_selector(selector) if selector is not None else None
    cluster = read_input(snapshot, strict=strict, streams=streams, pod_labels=find_keys(chosen))
    scope = None if all_namespaces else namespace
    asked = [f"{scope}/{ref}" if scope and "/" not in ref else ref for ref in group or ()]
    request = Request(
        command="repack",
        groups=choose_groups(cluster, asked) or (),
        objective=criteria,
        seed=seed,
        effort=effort,
        release=release,
        assume_gangs=assume_gangs,
        pdb=pdb,
        move=MoveRequest(
            mode=moves,
            free=goals,
            drain=choose_drained(cluster, drain or ()),
            drain_unit=drain_unit,
            **choose_movers(
                cluster,
                movable=movable,
                movable_groups=movable_groups,
                keep=keep or (),
                namespace=scope,
                selector=chosen,
            ),
            max_moves=max_moves,
            max_disturbed=max_disturbed,
            max_parallel=max_parallel,
            priority_ceiling=priority_ceiling,
        ),
    )
    from ray_jobs.repacking import make_move_plan, resume_plan

    with streams.progress() as progress:
        plan = (
            make_move_plan(cluster, request, progress)
            if earlier is None
            else resume_plan(cluster, earlier, progress)
        )
    tell_plan(plan, cluster, streams)
    _tell_goals(plan, streams)
    _print(cluster, plan, form, output, emit, streams)
    if plan.verification is None or not plan.verification.is_valid:
        return FAILED
    is_reached = all(goal.reached >= goal.wanted for goal in plan.goals) and all(
        entry.outcome == "placed" for entry in plan.groups
    )
    return NOT_REACHED if exit_status and not is_reached else ANSWERED


def _print(
    cluster: "Snapshot",
    plan: "Plan",
    form: FormatName | None,
    output: "Path | None",
    emit: "EmitForm | None",
    streams: "Streams",
) -> None:
    from gangplan.emit import emit_plan
    from gangplan.move_views import name_moves, show_moves
    from gangplan.streams import write_answer

    if emit is not None:
        text = emit_plan(cluster, plan, emit)
        if not text and plan.moves:
            streams.warning(
                f"--emit {emit}: says nothing of these moves, whose pods are of no such API; "
                "give --emit kubectl"
            )
        write_answer(text.encode(), output)
        return
    if form is None and output is not None and output.suffix == ".parquet":
        write_answer(_write_parquet(plan), output)
        return
    print_answer(
        form,
        output,
        document=plan.to_dict,
        table=lambda wide: show_moves(cluster, plan, wide=wide),
        names=lambda: name_moves(plan),
    )


def _write_parquet(plan: "Plan") -> bytes:
    """Return the moves as a Parquet file, one row a move."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from gangplan.api import moves_table

    sink = pa.BufferOutputStream()
    pq.write_table(moves_table(plan), sink)
    return bytes(sink.getvalue())


def _tell_goals(plan: "Plan", streams: "Streams") -> None:
    for goal in plan.goals:
        if goal.reason is not None:
            streams.warning(
                f"--{goal.goal}: {goal.reached} of {goal.wanted} would be empty: {goal.reason}"
            )
