"""Goals of a re-packing in indices: domains to empty, nodes to drain, and what is in their way."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topology.errors import RequestError
from topology.levels import NO_DOMAIN, build_column, find_paths
from topology.model import PodFlag
from topology.move_request import GoalOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.repack.movers import Movers
    from topology.model import Snapshot
    from topology.move_request import FreeGoal
    from topology.plan import Request

    Indices = NDArray[np.int64]

__all__ = ["DomainGoal", "Goals", "count_empty", "describe_goals", "find_goals", "find_occupied"]

_STAYS = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.TERMINATING


@dataclass(frozen=True, slots=True)
class DomainGoal:
    """One `--free`: which domains would do, and how many are wanted."""

    goal: FreeGoal
    domains: tuple[Indices, ...]
    """Nodes of every domain of the key that the goal may mean, sorted by their values."""
    names: tuple[str, ...]
    empty: tuple[bool, ...]
    """Which of them are empty as things stand."""
    held_by: tuple[str | None, ...]
    """Why one cannot be emptied at all; None where it can."""

    @property
    def wanted(self) -> int:
        """Domains still to be emptied."""
        return self.goal.count - len(self.kept_empty)

    @property
    def kept_empty(self) -> list[int]:
        """Domains that are empty already and count."""
        return [d for d, empty in enumerate(self.empty) if empty][: self.goal.count]

    @property
    def candidates(self) -> list[int]:
        """Domains that may be emptied."""
        return [
            d
            for d, (empty, held) in enumerate(zip(self.empty, self.held_by, strict=True))
            if not empty and held is None
        ]


@dataclass(frozen=True, slots=True)
class Goals:
    """All goals of a request."""

    frees: tuple[DomainGoal, ...]
    drained: Indices
    """Nodes to drain, ascending."""

    @property
    def is_none(self) -> bool:
        """True when nothing is to be emptied."""
        return not self.frees and not len(self.drained)


def find_occupied(snapshot: Snapshot, where: Mapping[int, int] | None = None) -> NDArray[np.bool_]:
    """Return bool[N]: nodes with a pod that is no DaemonSet, static or terminating one.

    Args:
      snapshot: The fleet.
      where: Pod -> node of pods that are elsewhere, or new.
    """
    pods = snapshot.pods
    node = pods.node.copy()
    stands = pods.holds_room & ((pods.flags & _STAYS) == 0)
    for p, n in (where or {}).items():
        node[p], stands[p] = n, True
    occupied = np.zeros(len(snapshot.nodes), bool)
    occupied[node[stands & (node >= 0)]] = True
    return occupied


def find_goals(snapshot: Snapshot, request: Request, movers: Movers) -> Goals:
    """Look up what `--free` and `--drain` mean in a snapshot.

    Raises:
      RequestError: A key, value or node does not exist, or more domains are wanted than there are.
    """
    assert request.move is not None
    index = {node.name: n for n, node in enumerate(snapshot.nodes)}
    missing = [name for name in request.move.drain if name not in index]
    if missing:
        raise RequestError(f"--drain {missing[0]}: no node of that name was read")
    drained = np.array(sorted({index[name] for name in request.move.drain}), np.int64)
    held: dict[int, str] = {}
    for p, reason in sorted(movers.staying.items()):
        n = int(snapshot.pods.node[p])
        if n >= 0:
            held.setdefault(n, f"{snapshot.pods.refs[p]} on {snapshot.nodes[n].name}: {reason}")
    occupied = find_occupied(snapshot)
    frees = [_find_free(snapshot, goal, occupied, held) for goal in request.move.free]
    return Goals(tuple(frees), drained)


def _find_free(
    snapshot: Snapshot, goal: FreeGoal, occupied: NDArray[np.bool_], held: Mapping[int, str]
) -> DomainGoal:
    path = {p[-1]: p for p in find_paths(snapshot.groups)}.get(goal.key, (goal.key,))
    column = build_column(snapshot.nodes, path)
    if not column.values:
        raise RequestError(
            f"--free {goal.text}: no node that was read has the label {goal.key!r}; of a node, "
            "labels are kept that describe topology or that a pod or group names"
        )
    chosen = [d for d, name in enumerate(column.names) if goal.value in (None, name)]
    if not chosen:
        raise RequestError(f"--free {goal.text}: no node has {goal.key}={goal.value}")
    if goal.count > len(chosen):
        raise RequestError(
            f"--free {goal.text}: there are only {len(chosen)} such domains; ask for fewer"
        )
    members: dict[int, list[int]] = defaultdict(list)
    for n, d in enumerate(column.codes.tolist()):
        if d != NO_DOMAIN:
            members[d].append(n)
    domains = tuple(np.array(members[d], np.int64) for d in chosen)
    return DomainGoal(
        goal=goal,
        domains=domains,
        names=tuple("/".join(column.values[d]) for d in chosen),
        empty=tuple(not occupied[nodes].any() for nodes in domains),
        held_by=tuple(
            next((held[n] for n in nodes.tolist() if n in held), None) for nodes in domains
        ),
    )


def count_empty(goal: DomainGoal, occupied: NDArray[np.bool_]) -> int:
    """Count the domains of a goal that are empty."""
    return sum(not occupied[nodes].any() for nodes in goal.domains)


def describe_goals(
    snapshot: Snapshot,
    goals: Goals,
    movers: Movers,
    occupied: NDArray[np.bool_],
    limits: Sequence[str],
) -> tuple[GoalOutcome, ...]:
    """Say what became of every goal, and why where it is not reached.

    Args:
      snapshot: The fleet as it is.
      goals: What was asked.
      movers: Who may be moved.
      occupied: bool[N] at the end of the plan.
      limits: Options that bound the plan, for the reason of last resort.
    """
    outcomes = []
    for free in goals.frees:
        reached = count_empty(free, occupied)
        reason = None
        if reached < free.goal.count:
            open_domains = len(free.candidates) + sum(free.empty)
            held = [text for text in free.held_by if text is not None]
            if open_domains < free.goal.count and held:
                more = f" (and {len(held) - 1} more domains)" if len(held) > 1 else ""
                reason = f"only {open_domains} can be emptied; {held[0]}{more}"
            else:
                reason = _say_no_room(limits)
        outcomes.append(
            GoalOutcome(
                f"free {free.goal.text}",
                free.goal.count,
                min(reached, free.goal.count),
                reason,
            )
        )
    for n in goals.drained.tolist():
        reason = None
        if occupied[n]:
            staying = [p for p in movers.staying if snapshot.pods.node[p] == n]
            reason = (
                f"{snapshot.pods.refs[staying[0]]}: {movers.staying[staying[0]]}"
                if staying
                else _say_no_room(limits)
            )
        outcomes.append(
            GoalOutcome(f"drain {snapshot.nodes[n].name}", 1, int(not occupied[n]), reason)
        )
    return tuple(outcomes)


def _say_no_room(limits: Sequence[str]) -> str:
    within = f" within {', '.join(limits)}" if limits else ""
    return f"no room was found elsewhere for all that stands there{within}"
