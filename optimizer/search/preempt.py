"""Who has to go so that waiting units fit: victims and placement chosen together.

What fits without victims is placed first, as `place` does it. Then, from the highest priority down,
those that wait and may preempt are placed in a fleet without anybody they may evict
(`optimizer.search.victim_model`): all of one priority in one model, together with what was placed
above and beside them, while that is small; else one after another in the scheduler's order, beside
what is placed (`optimizer.search.victim_search`).

What waits at a lower priority may lose its place to a preemptor, and is placed anew afterwards, in
what is left or became free; a step is kept only if it makes the plan better in the objective. A
group that is placed in part evicts nobody for the rest, as in the scheduler's own cycle.

Proof: one model (or one for each domain) decided to its end, over all units of the problem, all of
one priority, or over those of the highest priority while all others are placed whole. All else is
stated without proof.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.answer import describe_bound
from optimizer.decode import seat_pods
from optimizer.devices.cuts import serves_all
from optimizer.objective import VICTIM_CRITERIA, Level, Placed, VictimLevel, build_steps
from optimizer.problem import build_problem
from optimizer.search.place import search_placement
from optimizer.search.score import count_placed
from optimizer.search.victim_model import empty_fleet
from optimizer.search.victim_search import VictimSearch, count_variables
from optimizer.victims import (
    count_cost,
    explain_no_preemption,
    find_victims,
    remove_pods,
    sees_groups,
)
from topology.model import NO_GROUP
from topology.plan import Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Problem, Unit, UnitKey
    from optimizer.search.place import PlaceResult
    from optimizer.search.victim_model import EmptiedFleet, VictimChoice
    from optimizer.victims import Victim, VictimCost
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["PreemptResult", "search_preemption"]

MAX_JOINT: Final = 4_000
"""Pod variables up to which units of one priority share a model with what is placed."""
NODE_LIMITS: Final = {"quick": 200, "normal": 5_000, "thorough": 100_000}
"""Branch-and-bound nodes of each solve, by effort."""
NOBODY: Final = -(2**40)
"""The highest priority among no victims: below every priority there is."""


@dataclass(frozen=True, slots=True)
class PreemptResult:
    """The best plan found."""

    after: Snapshot
    """The fleet without the victims."""
    placed: dict[int, int]
    """Pod -> node."""
    evictions: tuple[tuple[int, str], ...]
    """(pod, ref of the unit that it goes for), ascending."""
    cost: VictimCost
    bound: Bound


@dataclass(frozen=True, slots=True)
class _Seats:
    """A placed unit: what it is worth, and where its pods are."""

    unit: Unit
    worth: Placed
    nodes: dict[int, int]


@dataclass(frozen=True, slots=True)
class _Plan:
    """A plan on the way: units that keep their nodes, the others, and who is gone."""

    fixed: Mapping[UnitKey, _Seats] = field(default_factory=dict)
    rest: Mapping[UnitKey, _Seats] = field(default_factory=dict)
    gone: tuple[tuple[Victim, str], ...] = ()
    """(victim, ref of its preemptor)."""
    result: PlaceResult | None = None
    """What the joint search said of `rest`."""

    @property
    def seats(self) -> dict[UnitKey, _Seats]:
        return {**self.fixed, **self.rest}

    @property
    def victims(self) -> tuple[Victim, ...]:
        return tuple(victim for victim, _ in self.gone)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What one search for victims says."""

    units: frozenset[UnitKey]
    """Units it decided anew; those without seats stay out."""
    seats: dict[UnitKey, _Seats]
    gone: tuple[tuple[Victim, str], ...]
    proven: int
    """Leading steps proven; 0 where several models took turns."""
    bounds: tuple[float, ...] = ()


def search_preemption(
    snapshot: Snapshot,
    request: Request,
    problem: Problem,
    progress: Callable[[str], None] | None = None,
) -> PreemptResult:
    """Find the best placement of all units of a problem, with evictions where they help.

    Args:
      snapshot: The fleet.
      request: Objective, budgets, release, effort and seed.
      problem: What `build_problem` made of both.
      progress: Called with a line now and then.

    Returns:
      A plan whose victims are all needed; its bound says what is proven.

    Raises:
      RequestError: A victim criterion is to be maximised.
    """
    return _Search(snapshot, request, problem, progress or (lambda _: None)).run()


class _Search:
    def __init__(
        self, snapshot: Snapshot, request: Request, problem: Problem, say: Callable[[str], None]
    ) -> None:
        self.snapshot = snapshot
        self.request = request
        self.problem = problem
        self.say = say
        most = [Placed(u.priority, len(u.tree), u.num_pods, u.gpus) for u in problem.units]
        self.steps = build_steps(request.objective, most)
        self.search = VictimSearch(self.steps, NODE_LIMITS[request.effort])
        self.active = [u for u in problem.units if u.tasks and not u.blocked and u.has_quorum()]
        self.may_preempt = {
            unit.key
            for unit in self.active
            if explain_no_preemption(snapshot, unit, request.release) is None
        }
        self.tried: set[UnitKey] = set()
        self.first: _Trial | None = None
        """The first search for victims, with nobody of lower priority in the way."""
        pods = snapshot.pods
        specs = {int(pods.spec[task.pods[0]]) for unit in self.active for task in unit.tasks}
        self.attractive = [term for x in sorted(specs) for term in pods.specs[x].affinity]
        """What pods of the plan want beside them: kept without being weighed."""

    def run(self) -> PreemptResult:
        plan = self._complete(_Plan())
        while waiting := self._find_waiting(plan):
            better = self._improve(plan, waiting)
            self.tried |= {unit.key for unit in waiting}
            plan = better or plan
        evictions = [(p, ref) for victim, ref in plan.gone for p in victim.pods]
        return PreemptResult(
            after=self._without(plan.victims),
            placed=_join(plan.seats.values()),
            evictions=tuple(sorted(evictions)),
            cost=count_cost(plan.victims, self.snapshot.budgets),
            bound=self._find_bound(plan),
        )

    def _find_waiting(self, plan: _Plan) -> list[Unit]:
        """Return the units of the highest priority that may look for victims, in order."""
        done = plan.seats.keys() | self.tried
        waiting = [u for u in self.active if u.key in self.may_preempt and u.key not in done]
        return [unit for unit in waiting if unit.priority == waiting[0].priority]

    def _complete(self, plan: _Plan) -> _Plan:
        """Place what is not fixed, in the fleet as the plan leaves it, without further victims."""
        left = [unit for unit in self.problem.units if unit.key not in plan.fixed and unit.tasks]
        if not left:
            return replace(plan, rest={}, result=None)
        problem = self.problem
        if plan.fixed or plan.gone:
            problem = build_problem(
                self._without(plan.victims),
                self.request,
                placed=_join(plan.fixed.values()),
                only=[unit.ref for unit in left],
            )
        objective = tuple(
            item for item in self.request.objective if item.partition(":")[2] not in VICTIM_CRITERIA
        )
        request = replace(self.request, objective=objective or ("max:priority",))
        result = search_placement(problem, request, self.say)
        rest = {
            problem.units[u].key: _seat(problem, u, placement)
            for u, placement in result.placements.items()
            if problem.units[u].key not in plan.fixed
        }
        return replace(plan, rest=rest, result=result)

    def _without(self, victims: Iterable[Victim]) -> Snapshot:
        gone = [p for victim in victims for p in victim.pods]
        return remove_pods(self.snapshot, gone, self.request.dra_reclaim)

    def _improve(self, plan: _Plan, waiting: list[Unit]) -> _Plan | None:
        """Seek victims for the waiting units of one priority; None unless that is better."""
        priority = waiting[0].priority
        lower = {k: s for k, s in plan.rest.items() if s.unit.priority < priority}
        best: _Plan | None = None
        # First without regard to what is placed below, then beside it.
        for held in ({}, lower) if lower else ({},):
            trial = self._seek(plan, waiting, held)
            self.first = self.first or trial
            if not trial.seats:
                continue
            kept = {
                key: seats
                for key, seats in plan.rest.items()
                if seats.unit.priority >= priority and key not in trial.units
            }
            fixed = {**plan.fixed, **kept, **trial.seats}
            candidate = self._complete(_Plan(fixed, gone=(*plan.gone, *trial.gone)))
            if self._score(candidate) > self._score(best or plan) and self._serves(candidate):
                best = candidate
        return best

    def _serves(self, plan: _Plan) -> bool:
        """Tell whether the claims of all that is placed find devices."""
        seats = plan.seats
        order = [seats[unit.key].nodes for unit in self.problem.units if unit.key in seats]
        return serves_all(self._without(plan.victims), order)

    def _score(self, plan: _Plan) -> tuple[int, ...]:
        worth = [seats.worth for seats in plan.seats.values()]
        cost = count_cost(plan.victims, self.snapshot.budgets).to_criteria()
        return tuple(
            step.value(worth) if isinstance(step, Level) else -cost.get(step.criterion, NOBODY)
            for step in self.steps
        )

    def _seek(self, plan: _Plan, waiting: list[Unit], held: Mapping[UnitKey, _Seats]) -> _Trial:
        """Find nodes and victims for the waiting units beside what is held."""
        priority = waiting[0].priority
        beside = {k: s for k, s in plan.rest.items() if s.unit.priority >= priority}
        whole = [s.unit for s in beside.values() if len(s.nodes) == s.unit.num_pods]
        movers = [*waiting, *(unit for unit in whole if unit.key in self.may_preempt)]
        alike = len({sees_groups(unit, self.request.release) for unit in movers}) == 1
        if alike and not self.problem.reservations and len(movers) > 1:
            keys = frozenset(unit.key for unit in movers)
            stays = {k: s for k, s in beside.items() if k not in keys}
            fleet = self._empty(plan, movers, {**plan.fixed, **held, **stays})
            if count_variables(fleet) <= MAX_JOINT:
                self.say(f"looking for victims for {len(waiting)} groups together")
                units = [u for u, unit in enumerate(fleet.problem.units) if unit.key in keys]
                choice = self.search.solve(fleet, units, np.arange(len(fleet.free)))
                return self._read(fleet, keys, choice)
        trials: list[_Trial] = []
        for unit in waiting:
            self.say(f"looking for victims for {unit.ref}")
            gone = [entry for trial in trials for entry in trial.gone]
            seats = {key: s for trial in trials for key, s in trial.seats.items()}
            now = replace(plan, gone=(*plan.gone, *gone))
            fleet = self._empty(now, [unit], {**plan.fixed, **beside, **held, **seats})
            u = next(i for i, other in enumerate(fleet.problem.units) if other.key == unit.key)
            choice = self.search.solve_one(fleet, u)
            trials.append(self._read(fleet, frozenset([unit.key]), choice))
        if len(trials) == 1:
            return trials[0]
        return _Trial(
            frozenset(unit.key for unit in waiting),
            {key: s for trial in trials for key, s in trial.seats.items()},
            tuple(entry for trial in trials for entry in trial.gone),
            0,
        )

    def _empty(
        self, plan: _Plan, units: Sequence[Unit], stays: Mapping[UnitKey, _Seats]
    ) -> EmptiedFleet:
        """Return the fleet without anybody that the least of the units may evict."""
        snapshot = self._without(plan.victims)
        roots = {seats.unit.root.group for seats in stays.values()}
        victims = find_victims(
            snapshot,
            min(unit.priority for unit in units),
            with_groups=sees_groups(units[0], self.request.release),
            kept_roots=frozenset(roots - {NO_GROUP}),
            attractive=self.attractive,
        )
        return empty_fleet(
            snapshot,
            self.request,
            victims=victims,
            gone=plan.victims,
            placed=_join(stays.values()),
            only=[unit.ref for unit in units],
        )

    def _read(self, fleet: EmptiedFleet, keys: frozenset[UnitKey], choice: VictimChoice) -> _Trial:
        """Turn the indices of a model into units, and say for whom each victim goes."""
        seats = {
            fleet.problem.units[u].key: _seat(fleet.problem, u, placement)
            for u, placement in sorted(choice.placements.items())
        }
        by_node: dict[int, str] = {}
        for entry in seats.values():
            for node in entry.nodes.values():
                by_node.setdefault(node, entry.unit.ref)
        gone = []
        for v in choice.victims:
            victim = fleet.victims[v]
            nodes = self.snapshot.pods.node[list(victim.pods)].tolist()
            # A victim that frees no node that is used keeps somebody out of a domain.
            anybody = next(iter(by_node.values()))
            gone.append((victim, next((by_node[n] for n in nodes if n in by_node), anybody)))
        proven = choice.proven if fleet.is_exact else 0
        if VictimLevel("weightedVictimGpus") in self.steps and any(
            victim.priority < 0 for victim in fleet.victims
        ):
            # The model counts negative priorities as nothing.
            proven = min(proven, self.steps.index(VictimLevel("weightedVictimGpus")))
        return _Trial(keys, seats, tuple(gone), proven, choice.bounds)

    def _find_bound(self, plan: _Plan) -> Bound:
        """State the last criterion when all are proven, else the first that is not."""
        if self.first is None and plan.result is not None and not self._is_whole(plan):
            found = describe_bound(plan.result)
            # Groups placed in part could get more by evicting, which they do not.
            is_all = not (plan.seats.keys() & self.may_preempt - self._find_whole(plan))
            return found if is_all else Bound(found.criterion, None, None, "none")
        score = self._score(plan)
        proven, bounds = self._count_proven(plan)
        if proven < len(self.steps):
            return self._describe_gap(proven, score, bounds)
        named = {item.partition(":")[2] for item in self.request.objective}
        victims = [s for s in self.steps if isinstance(s, VictimLevel) and s.criterion in named]
        if plan.gone and victims:
            cost = count_cost(plan.victims, self.snapshot.budgets).to_criteria()
            return Bound(victims[-1].criterion, cost.get(victims[-1].criterion), 0.0, "optimal")
        last = [step for step in self.steps if isinstance(step, Level)][-1]
        worth = [seats.worth for seats in plan.seats.values()]
        value = sum(
            step.value(worth) * step.sign
            for step in self.steps
            if isinstance(step, Level) and step.criterion == last.criterion
        )
        return Bound(_name(last), value, 0.0, "optimal")

    def _describe_gap(self, at: int, score: tuple[int, ...], bounds: tuple[float, ...]) -> Bound:
        step = self.steps[at]
        bound = bounds[at] if at < len(bounds) else np.inf
        # Highest priorities are counted by rank inside a model, so its bound is none of theirs.
        if not np.isfinite(bound) or step == VictimLevel("highestVictimPriority"):
            return Bound(_name(step), None, None, "none")
        least = int(np.floor(bound + 1e-4))
        if least < score[at] or (isinstance(step, Level) and step.criterion == "priority"):
            return Bound(_name(step), None, None, "none")
        gap = round((least - score[at]) / max(abs(least), 1), 6)
        sign = step.sign if isinstance(step, Level) else -1
        return Bound(_name(step), least * sign, gap, "bound")

    def _is_whole(self, plan: _Plan) -> bool:
        """Tell whether every unit that could be placed has nodes for all its pods."""
        return {unit.key for unit in self.active} == self._find_whole(plan)

    def _find_whole(self, plan: _Plan) -> set[UnitKey]:
        """Return the units all of whose pods have nodes."""
        return {k for k, s in plan.seats.items() if len(s.nodes) == s.unit.num_pods}

    def _count_proven(self, plan: _Plan) -> tuple[int, tuple[float, ...]]:
        """Return the leading steps that no plan beats, and bounds for those after."""
        everything = len(self.steps)
        places_more = all(
            min(step.weights(unit.priority)) >= 0
            for step in self.steps
            if isinstance(step, Level)
            for unit in self.active
        )
        if self.first is None:
            return (everything if places_more else 0), ()
        # Those above could have made room by evicting what those below may not.
        highest = {u.key for u in self.active if u.priority == self.active[0].priority}
        if self.first.units != highest or self.attractive:
            return 0, ()
        if len(highest) == len(self.active):
            return self.first.proven, self.first.bounds
        kinds = [isinstance(step, VictimLevel) for step in self.steps]
        is_least = (
            places_more
            and kinds == sorted(kinds)
            and self.first.proven == everything
            and self._is_whole(plan)
            and set(plan.victims) == {victim for victim, _ in self.first.gone}
        )
        return (everything if is_least else 0), ()


def _name(step: Level | VictimLevel) -> str:
    return "gpusPlaced" if step.criterion == "priority" else step.criterion


def _join(seats: Iterable[_Seats]) -> dict[int, int]:
    return {pod: node for entry in seats for pod, node in entry.nodes.items()}


def _seat(problem: Problem, u: int, placement: UnitPlacement) -> _Seats:
    unit = problem.units[u]
    return _Seats(unit, count_placed(problem, unit, placement), seat_pods(unit, placement))
