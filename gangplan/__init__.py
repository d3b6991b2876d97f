"""Batch placement of gangs on Kubernetes GPU fleets: which fit, where, and why not.

The same verbs as the command line:

    import gangplan

    snapshot = gangplan.read("cluster.json")
    plan = gangplan.place(snapshot, ["ml/llama"])
    print(plan.groups[0].outcome, gangplan.placements_table(plan))
"""

from gangplan.api import (
    anonymize,
    explain,
    generate,
    graph,
    inspect,
    moves_table,
    place,
    placements_table,
    preempt,
    read,
    read_plan,
    repack,
    report,
    to_pandas,
    verify,
    whatif,
    write_snapshot,
)
from topology.errors import GangplanError, RequestError, SnapshotError

__all__ = [
    "GangplanError",
    "RequestError",
    "SnapshotError",
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
