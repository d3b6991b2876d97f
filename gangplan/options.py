"""Options that commands share; each may also be set by its GANGPLAN_* variable."""

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "AllNamespaces",
    "AssumeGangs",
    "CheckpointAnnotation",
    "Cost",
    "CostName",
    "DraReclaim",
    "Effort",
    "EffortName",
    "ExitStatus",
    "Format",
    "FormatName",
    "Groups",
    "Namespace",
    "NoColor",
    "Objective",
    "Output",
    "Pdb",
    "PdbMode",
    "Policy",
    "PolicyName",
    "Preempt",
    "Quiet",
    "ReclaimMode",
    "Release",
    "ReleaseName",
    "Requests",
    "Resize",
    "Seed",
    "Selector",
    "Snapshots",
    "Strict",
    "Workers",
]

FormatName = Literal["table", "wide", "json", "yaml", "name"]
ReleaseName = Literal["1.35", "1.36", "1.37"]
PdbMode = Literal["soft", "hard"]
ReclaimMode = Literal["none", "node-local", "all"]
CostName = Literal["scheduler", "gpu-seconds-lost"]
PolicyName = Literal["optimize", "replay", "compare"]
EffortName = Literal["quick", "normal", "thorough"]

Snapshots = Annotated[
    list[str],
    typer.Argument(
        metavar="SNAPSHOT...",
        help="Files or folders of Kubernetes objects (JSON, YAML, gzip), a KAI snapshot ZIP, "
        "a folder written by `gangplan snapshot`, or - for standard input; read as one.",
        show_default=False,
    ),
]
Groups = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="REF",
        help="Plan for this group; may be repeated. Default: everything pending.",
        show_default=False,
    ),
]
Namespace = Annotated[
    str | None,
    typer.Option(
        "-n", "--namespace", envvar="GANGPLAN_NAMESPACE", help="Only pods of this namespace."
    ),
]
AllNamespaces = Annotated[
    bool,
    typer.Option("-A", "--all-namespaces", help="Pods of all namespaces, the default; undoes -n."),
]
Selector = Annotated[
    str | None,
    typer.Option(
        "-l", "--selector", envvar="GANGPLAN_SELECTOR", help="Only pods with these labels."
    ),
]
Format = Annotated[
    FormatName | None,
    typer.Option(
        "-o",
        "--format",
        envvar="GANGPLAN_FORMAT",
        help="How to print the answer. Default: table, or what the ending of --output says.",
        show_default=False,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-O", "--output", metavar="PATH", help="Write the answer to a file.", show_default=False
    ),
]
Objective = Annotated[
    str | None,
    typer.Option(
        envvar="GANGPLAN_OBJECTIVE",
        metavar="C1,C2,...",
        help="Criteria, most important first, each max:NAME or min:NAME. "
        "The default is that of the command.",
        show_default=False,
    ),
]
Release = Annotated[
    ReleaseName,
    typer.Option(envvar="GANGPLAN_RELEASE", help="Kubernetes release whose rules hold."),
]
Seed = Annotated[
    int, typer.Option(envvar="GANGPLAN_SEED", min=0, max=2**31 - 1, help="Same seed, same answer.")
]
Effort = Annotated[
    EffortName,
    typer.Option(envvar="GANGPLAN_EFFORT", help="How many candidates to try."),
]
AssumeGangs = Annotated[
    bool,
    typer.Option(
        envvar="GANGPLAN_ASSUME_GANGS",
        help="Hold groups to all-or-nothing where their API does not promise it.",
    ),
]
Preempt = Annotated[
    bool,
    typer.Option(
        "--preempt",
        envvar="GANGPLAN_PREEMPT",
        help="Plan evictions of lower priority for what does not fit; `preempt` always does.",
    ),
]
Pdb = Annotated[
    PdbMode | None,
    typer.Option(
        envvar="GANGPLAN_PDB",
        help="Disruption budgets: soft, broken only if nothing else helps, or hard, never broken. "
        "Default: soft.",
        show_default=False,
    ),
]
DraReclaim = Annotated[
    ReclaimMode | None,
    typer.Option(
        envvar="GANGPLAN_DRA_RECLAIM",
        help="Which resource claims of victims count as released: none, as in Kubernetes 1.37, "
        "node-local, those of pods alone with devices of one node, or all. Default: none.",
        show_default=False,
    ),
]
Cost = Annotated[
    CostName | None,
    typer.Option(
        envvar="GANGPLAN_COST",
        help="What makes a victim dear: scheduler, its priority and number, or gpu-seconds-lost, "
        "the work since its last checkpoint. Default: scheduler.",
        show_default=False,
    ),
]
Resize = Annotated[
    str | None,
    typer.Option(
        metavar="NAMESPACE/POD",
        help="`preempt`: let this running pod grow on its own node; who would have to go?",
        show_default=False,
    ),
]
Requests = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RESOURCE=QUANTITY,...",
        help="What the pod of --resize is to ask for in all, such as cpu=8,memory=64Gi; may be "
        "repeated. Default: what its spec asks already, if its resize is Deferred.",
        show_default=False,
    ),
]
CheckpointAnnotation = Annotated[
    str | None,
    typer.Option(
        envvar="GANGPLAN_CHECKPOINT_ANNOTATION",
        metavar="KEY",
        help="Pod annotation that says when work was last saved. "
        "Default: gangplan.io/last-checkpoint.",
        show_default=False,
    ),
]
Policy = Annotated[
    PolicyName,
    typer.Option(
        envvar="GANGPLAN_POLICY",
        help="Who decides: optimize, the search; replay, kube-scheduler of --release step by step; "
        "compare, both side by side.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", envvar="GANGPLAN_STRICT", help="Any invalid object is fatal."),
]
ExitStatus = Annotated[
    bool,
    typer.Option(
        "--exit-status",
        envvar="GANGPLAN_EXIT_STATUS",
        help="Exit with 3 when some asked group is not placed.",
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", envvar="GANGPLAN_QUIET", help="No progress and no warnings."),
]
NoColor = Annotated[
    bool, typer.Option("--no-color", envvar="GANGPLAN_NO_COLOR", help="No colours.")
]
Workers = Annotated[
    str | None,
    typer.Option(
        envvar="GANGPLAN_WORKERS",
        metavar="N|auto|ADDRESS",
        help="Fan out on Ray: so many local processes, all of the cluster this runs in (auto), or "
        "a cluster's address. Default: this process alone, without Ray.",
        show_default=False,
    ),
]
