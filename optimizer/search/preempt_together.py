"""All waiting units in one model, whatever their priorities: victims and placement at once.

Alike gangs are counted (`optimizer.search.flat_rows`), so that the model grows with nodes and
kinds, not with gangs. What would fit without victims is in it too, and moves where that helps.

Several priorities. A unit may only evict what is strictly lower, and a higher one must not evict on
its behalf: what units above a priority need at least, without regard to those below, is all that
may go of the victims that those below may not evict. So between one priority of `max:priority` and
the next the victim criteria are minimised and held, over victims of that next priority or higher.
Units without GPUs count after all priorities; where somebody they may not evict is at stake they
are left out, and take their turn afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.objective import Level, VictimLevel
from optimizer.search.cheap_nodes import find_cheap_nodes
from optimizer.search.kinds import count_pod_variables, describe_counted
from optimizer.search.preempt_plan import join_nodes, read_choice
from optimizer.search.victim_model import UndecidedError, choose_victims, empty_fleet
from optimizer.victims import find_victims, sees_groups
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.problem import Problem, Unit
    from optimizer.search.preempt_plan import Seats, Trial
    from optimizer.search.victim_model import EmptiedFleet
    from optimizer.victims import Victim
    from topology.model import AffinityTerm
    from topology.plan import Request

    Step = Level | VictimLevel

__all__ = ["JointTrial", "choose_together", "offer_nodes"]

MAX_TOGETHER: Final = 30_000
"""Pod variables up to which everything that waits is one model."""
MAX_VARIETY: Final = 100_000
"""Pod variables times kinds of units: HiGHS may spend minutes on one relaxation of larger ones, and
no count of branch-and-bound nodes ends that."""
PLENTY: Final = (6, 3, 2)
"""Times the room that is needed for which the cheapest nodes are offered, the first that is not
too large."""
NODE_WORK: Final = {"quick": 500_000, "normal": 2_000_000, "thorough": 40_000_000}
"""Variables times branch-and-bound nodes of each solve, by effort."""
MIN_NODES: Final = 50


@dataclass(frozen=True, slots=True)
class JointTrial:
    """What the one model says."""

    trial: Trial
    steps: tuple[Step, ...]
    """Steps of the objective that `trial.proven` and `trial.bounds` are about."""
    is_complete: bool
    """Nobody who might have been evicted was left out, nobody who might have moved stays, and no
    placement is conditional."""
    is_restricted: bool
    """Only the nodes that are cheapest to clear were offered."""
    is_common: bool
    """Only victims whom every unit may evict were offered; turns may find others."""


def choose_together(
    problem: Problem,
    request: Request,
    steps: Sequence[Step],
    units: Sequence[Unit],
    *,
    stays: Sequence[Seats],
    attractive: Sequence[AffinityTerm],
    cheapest: bool = False,
) -> JointTrial | None:
    """Place units and choose victims for all of them at once.

    Args:
      problem: Of the fleet as it is, all units.
      request: Objective, budgets, release and effort.
      steps: What decides.
      units: Units of it that may preempt.
      stays: Placed units that may not, and keep their nodes.
      attractive: As for `find_victims`.
      cheapest: Where the fleet is too large, offer the nodes that are cheapest to clear.

    Returns:
      None where one model cannot say it: too large or undecided. Under an objective that does not
      put higher priorities first, only victims whom all units may evict are weighed.
    """
    snapshot = problem.snapshot
    if not units or len({sees_groups(unit, request.release) for unit in units}) > 1:
        return None
    with_groups = sees_groups(units[0], request.release)
    top = max(unit.priority for unit in units)
    victims = find_victims(snapshot, top, with_groups=with_groups)
    asked, guarded = _guard(steps, units, victims)
    if not with_groups and len({unit.priority for unit in units}) > 1:
        return None
    is_common = guarded is None
    if guarded is None:
        top = min(unit.priority for unit in units)
        asked, guarded = list(units), list(steps)
    if (len(asked) < len(units) or stays) and any(s.is_coupled for s in problem.signatures):
        # Pods outside the model might break what it keeps (hard spread).
        return None
    roots = {u.root.group for u in units if u.root.running}
    roots |= {seats.unit.root.group for seats in stays}
    offered = find_victims(
        snapshot,
        top,
        with_groups=with_groups,
        kept_roots=frozenset(roots - {NO_GROUP}),
        attractive=attractive,
    )
    fleet = empty_fleet(
        snapshot,
        request,
        victims=offered,
        gone=(),
        placed=join_nodes(stays),
        only=[unit.ref for unit in asked],
    )
    keys = frozenset(unit.key for unit in asked)
    chosen = [u for u, unit in enumerate(fleet.problem.units) if unit.key in keys]
    nodes = offer_nodes(fleet, chosen, cheapest=cheapest)
    if nodes is None:
        return None
    size = count_pod_variables(fleet.state, nodes)
    is_restricted = len(nodes) < len(fleet.free)
    limit = max(NODE_WORK[request.effort] // max(size + len(offered), 1), MIN_NODES)
    try:
        choice = choose_victims(fleet, chosen, nodes, guarded, node_limit=limit)
    except UndecidedError:
        return None
    if choice is None:
        return None
    trial = read_choice(snapshot, fleet, choice, guarded, keys, keys)
    is_complete = len(offered) == len(victims) and not fleet.problem.interactions.conditional_specs
    trial, own = _strip(trial, guarded)
    is_complete = is_complete and not stays and not is_restricted and not is_common
    return JointTrial(trial, own, is_complete, is_restricted, is_common)


def offer_nodes(
    fleet: EmptiedFleet, units: Sequence[int], *, cheapest: bool
) -> NDArray[np.int64] | None:
    """Return the nodes to offer: all of them, or the cheapest to clear; None where too many."""
    described = [describe_counted(fleet.problem, fleet.problem.units[u]) for u in units]
    kinds = len({kind for kind in described if kind is not None}) + described.count(None)
    most = min(MAX_TOGETHER, MAX_VARIETY // max(kinds, 1))
    if count_pod_variables(fleet.state) <= most:
        return np.arange(len(fleet.free))
    for plenty in PLENTY if cheapest else ():
        nodes = find_cheap_nodes(fleet, units, plenty)
        if count_pod_variables(fleet.state, nodes) <= most:
            return nodes
    return None


def _guard(
    steps: Sequence[Step], units: Sequence[Unit], victims: Sequence[Victim]
) -> tuple[list[Unit], list[Step] | None]:
    """Return the units that share the model, and its steps; None where steps cannot say it."""
    least = min(unit.priority for unit in units)
    protected = [victim.priority for victim in victims if victim.priority >= least]
    if not protected:
        return list(units), list(steps)
    asked = [unit for unit in units if unit.gpus]
    priorities = sorted({unit.priority for unit in asked}, reverse=True)
    ranks: list[Step] = [Level("priority", 1, priority) for priority in priorities]
    # Levels in which none of them counts leave them as they are.
    own = [
        step
        for step in steps
        if isinstance(step, VictimLevel) or any(any(step.weights(u.priority)) for u in asked)
    ]
    rest = [step for step in own[len(ranks) :] if step != Level("podsPlaced")]
    if not asked or own[: len(ranks)] != ranks or any(isinstance(step, Level) for step in rest):
        return [], None
    costs = [step for step in rest if isinstance(step, VictimLevel)]
    guarded: list[Step] = []
    for rank, priority in zip(ranks, priorities, strict=True):
        if guarded and max(protected) >= priority:
            guarded += [replace(cost, least=priority) for cost in costs]
        guarded.append(rank)
    return asked, [*guarded, *costs]


def _strip(trial: Trial, guarded: Sequence[Step]) -> tuple[Trial, tuple[Step, ...]]:
    """Leave out the steps that the objective does not name."""
    own = [
        i for i, s in enumerate(guarded) if not (isinstance(s, VictimLevel) and s.least is not None)
    ]
    proven = sum(i < trial.proven for i in own)
    bounds = tuple(trial.bounds[i] for i in own if i < len(trial.bounds))
    return replace(trial, proven=proven, bounds=bounds), tuple(guarded[i] for i in own)
