"""The verbs of gangplan as functions; what the command line calls too.

Heavy modules are imported inside the verb that needs them, so `import gangplan` costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import networkx as nx
    import pyarrow as pa

    from gangplan.inspection import Inspection
    from ray_jobs.whatif import WhatIf
    from topology.model import Snapshot
    from topology.plan import Plan, Request, Verification

__all__ = [
    "anonymize",
    "explain",
    "generate",
    "graph",
    "inspect",
    "moves_table",
    "place",
    "placements_table",
    "preempt",
    "read",
    "read_plan",
    "repack",
    "report",
    "to_pandas",
    "verify",
    "whatif",
    "write_snapshot",
]


def read(
    *paths: str | PathLike[str],
    strict: bool = False,
    pod_labels: Iterable[str] = (),
    checkpoint_annotation: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Snapshot:
    """Read files, folders or stored snapshots as one snapshot.

    Args:
      paths: What SNAPSHOT stands for on the command line.
      strict: Any invalid object is fatal instead of being set aside in `errors`.
      pod_labels: Label keys of pods to keep besides those that some selector mentions.
      checkpoint_annotation: Key of the pod annotation that says when work was last saved; None:
        `gangplan.io/last-checkpoint`.
      progress: Called with the name of each step.

    Raises:
      SnapshotError: When a file cannot be read or nothing usable is left.
    """
    from data.reader import read_snapshot

    names = [str(path) for path in paths]
    return read_snapshot(
        names,
        strict=strict,
        pod_labels=pod_labels,
        checkpoint_annotation=checkpoint_annotation,
        progress=progress,
    )


def inspect(snapshot: Snapshot, *, release: str = "1.37") -> Inspection:
    """Say what a snapshot holds: nodes, free amounts, groups, fragmentation, stranded gangs."""
    from gangplan.inspection import inspect_snapshot

    return inspect_snapshot(snapshot, release=release)


def graph(snapshot: Snapshot) -> nx.DiGraph[tuple[str, ...]]:
    """Return the domains of every topology key in use as a graph, for drawing and questions.

    Vertices are ("fleet",), (key, value) and ("node", name); edges point to the narrower.
    """
    from topology.graph import build_graph

    return build_graph(snapshot)


def place(
    snapshot: Snapshot,
    groups: Sequence[str] | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Plan:
    """Say where pending groups go.

    Args:
      snapshot: Read whole; never changed.
      groups: References to plan for; None: everything pending.
      progress: Called with the name of each step.
      options: Fields of `topology.plan.Request`: `objective`, `seed`, `effort`, `release`,
        `assume_gangs`, `preempt`, `pdb`, `dra_reclaim`, `policy`.

    Returns:
      A verified plan; `plan.verification` says so.

    Raises:
      RequestError: When a reference or a criterion is unknown.
    """
    from ray_jobs.pipeline import make_plan

    return make_plan(snapshot, _build_request(snapshot, "place", groups, options), progress)


def preempt(
    snapshot: Snapshot,
    groups: Sequence[str] | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Plan:
    """Say who would have to go so that these groups fit, at the least cost.

    Args:
      snapshot: Read whole; never changed.
      groups: References to plan for; none with `resize`, a `topology.plan.ResizeRequest`.
      progress: Called with the name of each step.
      options: As for `place`; `objective` is by default `optimizer.objective.PREEMPT_OBJECTIVE`.

    Returns:
      A verified plan; `plan.evictions` lists the victims. Nothing is evicted, only planned.

    Raises:
      RequestError: When a reference or a criterion is unknown.
    """
    from ray_jobs.pipeline import make_plan

    options = {"preempt": True, **options}
    return make_plan(snapshot, _build_request(snapshot, "preempt", groups, options), progress)


def repack(
    snapshot: Snapshot,
    groups: Sequence[str] = (),
    *,
    free: Sequence[str] = (),
    drain: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Plan:
    """Say which running work would move so that groups fit, domains come free and nodes drain.

    Args:
      snapshot: Read whole; never changed.
      groups: References of pending groups to make room for.
      free: Goals as the command line takes them, KEY[=VALUE]:N.
      drain: Names of nodes, or selectors of their labels.
      progress: Called with the name of each step.
      options: Fields of `topology.move_request.MoveRequest` (`mode`, `movable`, `max_moves` …) and
        of `topology.plan.Request` (`objective`, `seed`, `effort`, `release`).

    Returns:
      A verified plan; `plan.moves` lists the steps in order, `plan.goals` what became of the goals.
      Nothing is moved, only planned.

    Raises:
      RequestError: When a reference, a goal or a criterion is unknown.
    """
    from dataclasses import fields

    from gangplan.move_questions import choose_drained, parse_free
    from gangplan.questions import choose_groups
    from optimizer.repack.steps import REPACK_OBJECTIVE
    from ray_jobs.repacking import make_move_plan
    from topology.move_request import MoveRequest
    from topology.plan import Request

    names = {field.name for field in fields(MoveRequest)}
    move = MoveRequest(
        free=tuple(parse_free(text) for text in free),
        drain=choose_drained(snapshot, drain),
        **{name: value for name, value in options.items() if name in names},
    )
    request = Request(
        command="repack",
        groups=choose_groups(snapshot, groups) or (),
        move=move,
        **{
            "objective": REPACK_OBJECTIVE,
            "pdb": "hard",
            **{name: value for name, value in options.items() if name not in names},
        },
    )
    return make_move_plan(snapshot, request, progress)


def explain(
    snapshot: Snapshot,
    groups: Sequence[str] | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> Plan:
    """Say why pending groups cannot be placed now; arguments and errors as for `place`."""
    from ray_jobs.pipeline import make_plan

    return make_plan(snapshot, _build_request(snapshot, "explain", groups, options), progress)


def whatif(
    snapshot: Snapshot,
    scenarios: str | PathLike[str] | Sequence[Mapping[str, Any]],
    groups: Sequence[str] | None = None,
    *,
    workers: str | int | None = None,
    progress: Callable[[str], None] | None = None,
    **options: Any,
) -> WhatIf:
    """Answer one question for many variants of a fleet.

    Args:
      snapshot: Read whole; never changed.
      scenarios: A scenarios file, or its scenarios as dictionaries (docs/whatif.md).
      groups: References to plan for; None: everything pending.
      workers: None: in this process; a number of local Ray workers, "auto", or an address.
      progress: Called with a line now and then.
      options: As for `place`.

    Returns:
      `base`, the answer for the snapshot as it is, and `answers`, one for each scenario, with a
      `row` of sums and a verified `plan`; one that cannot be carried out has an `error` instead.

    Raises:
      RequestError: When the file or the request is of no use.
    """
    from data.scenarios.read import expand_scenarios, read_scenarios
    from ray_jobs.whatif import answer_scenarios

    if isinstance(scenarios, str | PathLike):
        asked = read_scenarios(str(scenarios), snapshot)
    else:
        asked = expand_scenarios([dict(entry) for entry in scenarios], snapshot)
    request = _build_request(snapshot, "place", groups, options)
    return answer_scenarios(snapshot, asked, request, workers=workers, progress=progress)


def _build_request(
    snapshot: Snapshot,
    command: Literal["explain", "place", "preempt"],
    groups: Sequence[str] | None,
    options: dict[str, Any],
) -> Request:
    from gangplan.questions import choose_groups
    from optimizer.objective import PREEMPT_OBJECTIVE
    from topology.plan import Request

    if options.get("preempt"):
        options = {"objective": PREEMPT_OBJECTIVE, **options}
    return Request(
        command=command,
        groups=None if groups is None else choose_groups(snapshot, groups),
        **options,
    )


def verify(snapshot: Snapshot, plan: Plan) -> Verification:
    """Replay a plan with exact amounts and list every hard rule it breaks."""
    from optimizer.verify import verify_plan

    return verify_plan(snapshot, plan)


def read_plan(path: str | PathLike[str]) -> Plan:
    """Read a plan that was printed with `-o json`.

    Raises:
      RequestError: When the file is no Plan document.
    """
    from gangplan.plan_files import load_plan

    return load_plan(str(path))


def report(answer: Plan | Inspection | Mapping[str, Any], snapshot: Snapshot | None = None) -> str:
    """Show an answer as one self-contained HTML page with pictures.

    Args:
      answer: A plan, an inspection, or the document of either as `-o json` prints it.
      snapshot: What a plan was made from; without it only the nodes that the plan names are drawn.

    Raises:
      RequestError: When a document is incomplete.

    Example:
      `pathlib.Path("plan.html").write_text(gangplan.report(plan, snapshot), encoding="utf-8")`
    """
    from gangplan.reporting.page import build_page
    from gangplan.reporting.source import read_source

    document = answer if isinstance(answer, Mapping) else answer.to_dict()
    return build_page(read_source(document, snapshot))


def write_snapshot(snapshot: Snapshot, folder: str | PathLike[str]) -> None:
    """Store a snapshot as Parquet tables; `read` reads it back exactly.

    Raises:
      SnapshotError: When the folder holds something else or cannot be written.
    """
    from data.store import write_store

    write_store(snapshot, str(folder))


def anonymize(snapshot: Snapshot, seed: int = 0) -> Snapshot:
    """Replace every name consistently, so that the snapshot can be shared."""
    from data.anonymize import anonymize_snapshot

    return anonymize_snapshot(snapshot, seed)


def generate(preset: str, *, seed: int = 0, **options: Any) -> Snapshot:
    """Make a synthetic fleet.

    Args:
      preset: A name of `data.generate.PRESETS`.
      seed: The same seed gives the same fleet.
      options: `nodes`, `utilization`, `pending`, `mix`, `fragmentation`.

    Raises:
      RequestError: When the preset or an option is unknown or out of range.
    """
    from data.generate import generate_fleet

    return generate_fleet(preset, seed=seed, **options)


def placements_table(plan: Plan) -> pa.Table:
    """Return one row for every pod of the plan that is placed or stays pending.

    Columns: group, pod, node (null: stays pending), subgroup, template, priority i32.
    """
    import pyarrow as pa

    rows: list[tuple[Any, ...]] = [
        (group.group, pod.pod, pod.node, pod.subgroup, pod.template, group.priority)
        for group in plan.groups
        for pod in group.pods
    ]
    rows += [
        (group.group, ref, None, None, None, group.priority)
        for group in plan.groups
        for ref in group.pending_pods
    ]
    names = ("group", "pod", "node", "subgroup", "template")
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    arrays = [pa.array(column, pa.string()) for column in columns[:5]]
    return pa.table([*arrays, pa.array(columns[5], pa.int32())], [*names, "priority"])


def moves_table(plan: Plan) -> pa.Table:
    """Return one row for every move of a re-packing, in order.

    Columns: step i32, wave i32, pod, source, target, mode (live or restart), group (null: none).
    """
    import pyarrow as pa

    numbers = pa.int32()
    schema = pa.schema(
        [("step", numbers), ("wave", numbers)]
        + [(name, pa.string()) for name in ("pod", "source", "target", "mode", "group")]
    )
    rows = [{name: getattr(move, name) for name in schema.names} for move in plan.moves]
    return pa.Table.from_pylist(rows, schema)


def to_pandas(plan: Plan) -> Any:
    """Return `placements_table` as a pandas DataFrame; needs pandas."""
    return placements_table(plan).to_pandas()
