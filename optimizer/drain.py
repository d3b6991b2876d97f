"""What a drain takes away: the pods of the drained nodes, and those that stop with them.

Source: `kubectl drain` leaves DaemonSet and static pods. The eviction API of 1.36 and 1.37 takes
single pods (unit `pod`); unit `group` takes an `all` group away as a whole, so that it comes back
as a unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.victims import count_budgets
from topology.disruption import complete_units, release_pods
from topology.errors import RequestError
from topology.model import NO_GROUP, PodFlag
from topology.move_request import GoalOutcome, MoveRequest
from topology.owners import planned_ref
from topology.plan import Eviction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["Drained", "drain_nodes"]


class Drained(NamedTuple):
    """The fleet once its drained nodes are empty."""

    after: Snapshot
    """What was on them waits for a node; rows of pods keep their meaning."""
    evictions: tuple[Eviction, ...]
    groups: tuple[str, ...]
    """References of the groups and single pods that lost some."""
    warnings: tuple[str, ...]
    goals: tuple[GoalOutcome, ...] = ()
    """Each node would be empty but for what a drain leaves."""


def drain_nodes(snapshot: Snapshot, request: Request) -> Drained:
    """Take away what runs on the nodes of `request.move.drain`.

    Args:
      snapshot: The fleet; the nodes are cordoned in it.
      request: Names the nodes and the drain unit.

    Raises:
      RequestError: A node that is not in the snapshot.
    """
    index = {node.name: n for n, node in enumerate(snapshot.nodes)}
    move = request.move or MoveRequest()
    unknown = next((name for name in move.drain if name not in index), None)
    if unknown is not None:
        raise RequestError(f"--drain {unknown}: no such node in the snapshot")
    pods = snapshot.pods
    stays = (pods.flags & (PodFlag.DAEMON | PodFlag.STATIC)) != 0
    nodes = np.array([index[name] for name in move.drain], np.int32)
    rows = np.flatnonzero(pods.is_running_member & ~stays & np.isin(pods.node, nodes))
    if move.drain_unit == "group":
        rows = complete_units(snapshot, rows)
        rows = rows[~stays[rows] & (pods.node[rows] >= 0)]
    owners = {p: planned_ref(snapshot, p) for p in rows.tolist()}
    return Drained(
        release_pods(snapshot, rows),
        tuple(
            Eviction(
                pods.refs[p],
                snapshot.nodes[pods.node[p]].name,
                None if pods.group[p] == NO_GROUP else owner,
                "drain",
            )
            for p, owner in owners.items()
        ),
        tuple(sorted(set(owners.values()))),
        _warn_about_budgets(snapshot, rows),
        tuple(GoalOutcome(f"drain {name}", 1, 1) for name in move.drain),
    )


def _warn_about_budgets(snapshot: Snapshot, rows: NDArray[np.int64]) -> tuple[str, ...]:
    """Say which budgets allow nothing at all; others only slow a drain down."""
    covered: Sequence[tuple[int, int]] = count_budgets(snapshot, rows.tolist())
    return tuple(
        f"budget {snapshot.budgets[b].ref} allows no disruption now, but the drain would take "
        f"{count} of its pods; it waits until the budget allows some"
        for b, count in covered
        if snapshot.budgets[b].allowed <= 0
    )
