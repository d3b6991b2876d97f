"""Who has to go so that waiting units fit: victims and placement chosen together.

What fits without victims is placed first, as `place` does it. If somebody still waits who may
preempt, all units are decided in one model of the fleet without anybody they may evict
(`optimizer.search.preempt_together`), or, where that is too large, all that wait beside what is
placed. What no such model settles takes turns, from the highest priority down: all of one priority
in one model while that is small, else one after another in the scheduler's order
(`optimizer.search.victim_search`). What waits at a lower priority may then lose its place, and is
placed anew; a turn is kept only if it makes the plan better in the objective.

A group that is placed in part waits for the rest: the scheduler preempts for it in its next cycle.

Proof: the one model over all units, decided to its end; or one turn over all units of the problem,
or over those of the highest priority while all others are placed whole without further victims. All
else is stated without proof, or with the gap of the one model.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.answer import describe_bound
from optimizer.devices.cuts import serves_all
from optimizer.objective import VICTIM_CRITERIA, Placed, build_steps
from optimizer.problem import build_problem
from optimizer.search.kinds import count_pod_variables, describe_counted
from optimizer.search.place import search_placement
from optimizer.search.preempt_bound import PlanProof, score_plan
from optimizer.search.preempt_plan import EvictionPlan, Trial, join_nodes, read_choice, seat_unit
from optimizer.search.preempt_together import choose_together, offer_nodes
from optimizer.search.victim_model import empty_fleet
from optimizer.search.victim_search import VictimSearch
from optimizer.victims import (
    count_cost,
    explain_no_preemption,
    find_victims,
    remove_pods,
    sees_groups,
)
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from optimizer.problem import Problem, Unit, UnitKey
    from optimizer.search.preempt_plan import Seats
    from optimizer.search.preempt_together import JointTrial
    from optimizer.search.victim_model import EmptiedFleet, VictimChoice
    from optimizer.victims import Victim, VictimCost
    from topology.model import Snapshot
    from topology.plan import Bound, Request

__all__ = ["PreemptResult", "search_preemption"]

MAX_JOINT: Final = 4_000
"""Pod variables up to which units of one priority share a model with what is placed."""
NODE_LIMITS: Final = {"quick": 200, "normal": 5_000, "thorough": 100_000}
"""Branch-and-bound nodes of each solve, by effort."""


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
        self.proof = PlanProof(snapshot, request, self.steps, self.active)
        self.tried: set[UnitKey] = set()
        self.joint: JointTrial | None = None
        self.joint_plan: EvictionPlan | None = None
        """What came of it, with those placed beside whom it did not ask."""
        self.first: Trial | None = None
        """The first search for victims, with nobody of lower priority in the way."""
        pods = snapshot.pods
        specs = {int(pods.spec[task.pods[0]]) for unit in self.active for task in unit.tasks}
        self.attractive = [term for x in sorted(specs) for term in pods.specs[x].affinity]
        """What pods of the plan want beside them: kept without being weighed."""

    def run(self) -> PreemptResult:
        plan = self._complete(EvictionPlan())
        if self._find_waiting(plan):
            plan = self._improve_together(plan)
        while waiting := self._find_waiting(plan):
            better = self._improve(plan, waiting)
            self.tried |= {unit.key for unit in waiting}
            plan = better or plan
        if self.joint_plan is not None and self._score(self.joint_plan) > self._score(plan):
            plan = self.joint_plan
        evictions = [(p, ref) for victim, ref in plan.gone for p in victim.pods]
        return PreemptResult(
            after=self._without(plan.victims),
            placed=join_nodes(plan.seats.values()),
            evictions=tuple(sorted(evictions)),
            cost=count_cost(plan.victims, self.snapshot.budgets),
            bound=self._find_bound(plan),
        )

    def _find_waiting(self, plan: EvictionPlan) -> list[Unit]:
        """Return the units of the highest priority that may look for victims, in order.

        Those that are placed in part wait for the rest.
        """
        done = plan.find_whole() | self.tried
        waiting = [u for u in self.active if u.key in self.may_preempt and u.key not in done]
        return [unit for unit in waiting if unit.priority == waiting[0].priority]

    def _improve_together(self, plan: EvictionPlan) -> EvictionPlan:
        """Decide about all in one model, or about all that wait; where that fails, turns are left.

        Units that evict nobody keep their places, but for those of low priority.
        """
        if self.problem.reservations:
            return plan
        done = plan.find_whole()
        waiting = [u for u in self.active if u.key in self.may_preempt and u.key not in done]
        movers = [unit for unit in self.active if unit.key in self.may_preempt]
        if len(movers) == 1:
            # Alone, a unit is decided domain by domain, which is faster.
            return plan
        least = min(unit.priority for unit in waiting)
        # Units with structure make a model of all that wait too hard for a large fleet.
        is_plain = all(describe_counted(self.problem, unit) is not None for unit in waiting)
        for units in (movers, waiting) if is_plain else (movers,):
            keys = {unit.key for unit in units}
            stays = [s for k, s in plan.rest.items() if k not in keys]
            if units is movers:
                stays = [seats for seats in stays if seats.unit.priority >= least]
            self.say(f"looking for victims for {len(units)} groups in one model")
            joint = choose_together(
                self.problem,
                self.request,
                self.steps,
                units,
                stays=stays,
                attractive=self.attractive,
                cheapest=units is waiting,
            )
            if joint is not None:
                return self._adopt(plan, joint, stays)
            self.say("one model cannot say it, or is too large")
        return plan

    def _adopt(self, plan: EvictionPlan, joint: JointTrial, stays: Sequence[Seats]) -> EvictionPlan:
        """Return what turns go on from: what one model says, if it decided all it was asked."""
        trial = joint.trial
        candidate = EvictionPlan(trial.seats, gone=trial.gone)
        if trial.proven < len(joint.steps) or len(trial.units) < len(self.active):
            kept = {seats.unit.key: seats for seats in stays}
            candidate = self._complete(replace(candidate, fixed={**kept, **trial.seats}))
        if not self._serves(candidate):
            return plan
        self.joint, self.joint_plan = joint, candidate
        self.say(f"one model places {len(trial.seats)}, {len(trial.gone)} units would go")
        if trial.proven < len(joint.steps) or joint.is_common:
            return plan
        # On all nodes there may still be room for those whom the cheapest do not hold.
        self.tried |= candidate.find_whole() if joint.is_restricted else trial.units
        return max(plan, candidate, key=self._score)

    def _complete(self, plan: EvictionPlan) -> EvictionPlan:
        """Place what is not fixed, in the fleet as the plan leaves it, without further victims."""
        left = [unit for unit in self.problem.units if unit.key not in plan.fixed and unit.tasks]
        if not left:
            return replace(plan, rest={}, result=None)
        problem = self.problem
        if plan.fixed or plan.gone:
            problem = build_problem(
                self._without(plan.victims),
                self.request,
                placed=join_nodes(plan.fixed.values()),
                only=[unit.ref for unit in left],
            )
        objective = tuple(
            item for item in self.request.objective if item.partition(":")[2] not in VICTIM_CRITERIA
        )
        request = replace(self.request, objective=objective or ("max:priority",))
        result = search_placement(problem, request, self.say)
        rest = {
            problem.units[u].key: seat_unit(problem, u, placement)
            for u, placement in result.placements.items()
            if problem.units[u].key not in plan.fixed
        }
        return replace(plan, rest=rest, result=result)

    def _without(self, victims: Iterable[Victim]) -> Snapshot:
        gone = [p for victim in victims for p in victim.pods]
        return remove_pods(self.snapshot, gone, self.request.dra_reclaim)

    def _improve(self, plan: EvictionPlan, waiting: list[Unit]) -> EvictionPlan | None:
        """Seek victims for the waiting units of one priority; None unless that is better."""
        priority, before = waiting[0].priority, plan
        loose = {u.key: plan.fixed[u.key] for u in waiting if u.key in plan.fixed}
        fixed_before = {k: s for k, s in plan.fixed.items() if k not in loose}
        plan = replace(plan, fixed=fixed_before, rest={**plan.rest, **loose})
        lower = {k: s for k, s in plan.rest.items() if s.unit.priority < priority}
        best: EvictionPlan | None = None
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
            candidate = self._complete(EvictionPlan(fixed, gone=(*plan.gone, *trial.gone)))
            if self._score(candidate) > self._score(best or before) and self._serves(candidate):
                best = candidate
        return best

    def _serves(self, plan: EvictionPlan) -> bool:
        """Tell whether the claims of all that is placed find devices."""
        seats = plan.seats
        order = [seats[unit.key].nodes for unit in self.problem.units if unit.key in seats]
        return serves_all(self._without(plan.victims), order)

    def _score(self, plan: EvictionPlan) -> tuple[int, ...]:
        return score_plan(plan, self.steps, self.snapshot)

    def _seek(
        self, plan: EvictionPlan, waiting: list[Unit], held: Mapping[UnitKey, Seats]
    ) -> Trial:
        """Find nodes and victims for the waiting units beside what is held."""
        priority = waiting[0].priority
        beside = {k: s for k, s in plan.rest.items() if s.unit.priority >= priority}
        for unit in waiting:
            beside.pop(unit.key, None)
        whole = [s.unit for s in beside.values() if s.is_whole]
        movers = [*waiting, *(unit for unit in whole if unit.key in self.may_preempt)]
        alike = len({sees_groups(unit, self.request.release) for unit in movers}) == 1
        if alike and not self.problem.reservations and len(movers) > 1:
            keys = frozenset(unit.key for unit in movers)
            stays = {k: s for k, s in beside.items() if k not in keys}
            fleet = self._empty(plan, movers, {**plan.fixed, **held, **stays})
            if count_pod_variables(fleet.state) <= MAX_JOINT:
                self.say(f"looking for victims for {len(waiting)} groups together")
                units = [u for u, unit in enumerate(fleet.problem.units) if unit.key in keys]
                choice = self.search.solve(fleet, units, np.arange(len(fleet.free)))
                return self._read(fleet, keys, choice)
        counted = [u for u in waiting if describe_counted(self.problem, u) is not None]
        others = [unit for unit in waiting if unit not in counted]
        turns = [counted, *([unit] for unit in others)] if alike else [[unit] for unit in waiting]
        trials: list[Trial] = []
        for turn in turns:
            if turn:
                trials += self._take_turn(plan, turn, {**plan.fixed, **beside, **held}, trials)
        if len(trials) == 1:
            return trials[0]
        return Trial(
            frozenset(unit.key for unit in waiting),
            {key: s for trial in trials for key, s in trial.seats.items()},
            tuple(entry for trial in trials for entry in trial.gone),
            0,
        )

    def _take_turn(
        self,
        plan: EvictionPlan,
        turn: Sequence[Unit],
        stays: Mapping[UnitKey, Seats],
        before: Sequence[Trial],
    ) -> list[Trial]:
        """Seek victims for units beside what stays and what came of the turns before."""
        gone = [entry for trial in before for entry in trial.gone]
        seats = {key: s for trial in before for key, s in trial.seats.items()}
        fleet = self._empty(replace(plan, gone=(*plan.gone, *gone)), turn, {**stays, **seats})
        keys = frozenset(unit.key for unit in turn)
        units = [u for u, unit in enumerate(fleet.problem.units) if unit.key in keys]
        if len(turn) == 1:
            self.say(f"looking for victims for {turn[0].ref}")
            return [self._read(fleet, keys, self.search.solve_one(fleet, units[0]))]
        nodes = None if self.problem.reservations else offer_nodes(fleet, units, cheapest=True)
        if nodes is None:
            left, found = list(turn), []
        else:
            self.say(f"looking for victims for {len(turn)} groups together")
            found = [self._read(fleet, keys, self.search.solve(fleet, units, nodes))]
            left = [unit for unit in turn if unit.key not in found[0].seats]
        for unit in left:
            found += self._take_turn(plan, [unit], stays, [*before, *found])
        return found

    def _empty(
        self, plan: EvictionPlan, units: Sequence[Unit], stays: Mapping[UnitKey, Seats]
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
            placed=join_nodes(stays.values()),
            only=[unit.ref for unit in units],
        )

    def _read(self, fleet: EmptiedFleet, keys: frozenset[UnitKey], choice: VictimChoice) -> Trial:
        return read_choice(self.snapshot, fleet, choice, self.steps, keys, self.may_preempt)

    def _find_bound(self, plan: EvictionPlan) -> Bound:
        if self.first is None and self.joint is None:
            if plan.result is not None and not self.proof.is_whole(plan):
                return describe_bound(plan.result)
            return self.proof.describe(plan, len(self.steps) if self.proof.places_more else 0, ())
        proven = 0
        bounds: tuple[float, ...] = ()
        if self.joint is not None and self.joint_plan is not None and self._is_exact():
            trial, reached = self.joint.trial, self._score(self.joint_plan)
            proven = self.proof.count_proven(plan, trial, self.joint.steps, reached)
            same = self._score(plan)[:proven] == reached[:proven]
            if same and self.joint.steps == self.steps:
                bounds = trial.bounds
        elif self.first is not None and self.joint is None:
            proven, bounds = self._prove_turns(plan, self.first)
        obvious = self.proof.count_obvious(plan)
        return self.proof.describe(plan, max(proven, obvious), bounds)

    def _is_exact(self) -> bool:
        """Tell whether the one model left out nothing that could have helped."""
        is_complete = self.joint is not None and self.joint.is_complete
        return is_complete and len(self.may_preempt) == len(self.active)

    def _prove_turns(self, plan: EvictionPlan, first: Trial) -> tuple[int, tuple[float, ...]]:
        """Return the leading steps that the first turn proves, and bounds for those after."""
        # Those above could have made room by evicting what those below may not.
        highest = {u.key for u in self.active if u.priority == self.active[0].priority}
        if first.units != highest or self.attractive:
            return 0, ()
        if len(highest) == len(self.active):
            return first.proven, first.bounds
        everything = self.proof.count_proven(plan, first, self.steps, ()) == len(self.steps)
        return (len(self.steps) if everything else 0), ()
