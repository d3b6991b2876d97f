"""A plan with evictions on the way: who has nodes, who is gone and for whom, what is proven."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optimizer.decode import seat_pods
from optimizer.objective import Placed, VictimLevel
from optimizer.search.score import count_placed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from optimizer.decode import UnitPlacement
    from optimizer.objective import Level
    from optimizer.problem import Problem, Unit, UnitKey
    from optimizer.search.place import PlaceResult
    from optimizer.search.victim_model import EmptiedFleet, VictimChoice
    from optimizer.victims import Victim
    from topology.model import Snapshot

__all__ = ["EvictionPlan", "Seats", "Trial", "join_nodes", "read_choice", "seat_unit"]


@dataclass(frozen=True, slots=True)
class Seats:
    """A placed unit: what it is worth, and where its pods are."""

    unit: Unit
    worth: Placed
    nodes: dict[int, int]
    """Pod -> node."""

    @property
    def is_whole(self) -> bool:
        """Every pending pod has a node."""
        return len(self.nodes) == self.unit.num_pods


@dataclass(frozen=True, slots=True)
class EvictionPlan:
    """Units that keep their nodes, the others, and who is gone."""

    fixed: Mapping[UnitKey, Seats] = field(default_factory=dict)
    rest: Mapping[UnitKey, Seats] = field(default_factory=dict)
    gone: tuple[tuple[Victim, str], ...] = ()
    """(victim, ref of its preemptor)."""
    result: PlaceResult | None = None
    """What the joint search said of `rest`."""

    @property
    def seats(self) -> dict[UnitKey, Seats]:
        """All that is placed."""
        return {**self.fixed, **self.rest}

    @property
    def victims(self) -> tuple[Victim, ...]:
        """All that are gone."""
        return tuple(victim for victim, _ in self.gone)

    def find_whole(self) -> set[UnitKey]:
        """Return the units all of whose pods have nodes."""
        return {key for key, seats in self.seats.items() if seats.is_whole}


@dataclass(frozen=True, slots=True)
class Trial:
    """What one search for victims says."""

    units: frozenset[UnitKey]
    """Units it decided anew; those without seats stay out."""
    seats: dict[UnitKey, Seats]
    gone: tuple[tuple[Victim, str], ...]
    proven: int
    """Leading steps proven; 0 where several models took turns."""
    bounds: tuple[float, ...] = ()


def join_nodes(seats: Iterable[Seats]) -> dict[int, int]:
    """Return pod -> node of several units."""
    return {pod: node for entry in seats for pod, node in entry.nodes.items()}


def seat_unit(problem: Problem, u: int, placement: UnitPlacement) -> Seats:
    """Give the pods of a unit their nodes."""
    unit = problem.units[u]
    return Seats(unit, count_placed(problem, unit, placement), seat_pods(unit, placement))


def read_choice(
    snapshot: Snapshot,
    fleet: EmptiedFleet,
    choice: VictimChoice,
    steps: Sequence[Level | VictimLevel],
    keys: frozenset[UnitKey],
    preemptors: Collection[UnitKey],
) -> Trial:
    """Turn the indices of a model into units, and say for whom each victim goes.

    Args:
      snapshot: The fleet with everybody in it.
      fleet: What the model was made of.
      choice: Its solution.
      steps: What it was solved for.
      keys: Units it decided about.
      preemptors: Those of them that may evict.
    """
    seats = {
        fleet.problem.units[u].key: seat_unit(fleet.problem, u, placement)
        for u, placement in sorted(choice.placements.items())
    }
    # The highest on any of its nodes: it may evict whomever another one there may.
    order = sorted(
        (s for s in seats.values() if s.unit.key in preemptors), key=lambda s: -s.unit.priority
    )
    rank: dict[int, int] = {}
    for at, entry in enumerate(order):
        for node in entry.nodes.values():
            rank.setdefault(node, at)
    gone = []
    for v in choice.victims:
        victim = fleet.victims[v]
        nodes = snapshot.pods.node[list(victim.pods)].tolist()
        # A victim that frees no node that is used keeps somebody out of a domain.
        first = min((rank[n] for n in nodes if n in rank), default=0)
        gone.append((victim, order[first].unit.ref))
    proven = choice.proven if fleet.is_exact else 0
    if any(victim.priority < 0 for victim in fleet.victims):
        # The model counts negative priorities as nothing.
        weighted = (
            i
            for i, step in enumerate(steps)
            if isinstance(step, VictimLevel) and step.criterion == "weightedVictimGpus"
        )
        proven = min(proven, next(weighted, proven))
    return Trial(keys, seats, tuple(gone), proven, choice.bounds)
