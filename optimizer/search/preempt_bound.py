"""What is proven of a plan with evictions: the criterion, what no plan beats, and the gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.objective import Level, VictimLevel
from optimizer.victims import count_cost
from topology.plan import Bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.problem import Unit
    from optimizer.search.preempt_plan import EvictionPlan, Trial
    from topology.model import Snapshot
    from topology.plan import Request

    Step = Level | VictimLevel

__all__ = ["PlanProof", "score_plan"]

NOBODY: Final = -(2**40)
"""The highest priority among no victims: below every priority there is."""


def score_plan(plan: EvictionPlan, steps: Sequence[Step], snapshot: Snapshot) -> tuple[int, ...]:
    """Return the value of a plan in every step, more is better."""
    worth = [seats.worth for seats in plan.seats.values()]
    cost = count_cost(plan.victims, snapshot.budgets).to_criteria()
    return tuple(
        step.value(worth) if isinstance(step, Level) else -cost.get(step.criterion, NOBODY)
        for step in steps
    )


class PlanProof:
    """States what is proven of a plan."""

    def __init__(
        self, snapshot: Snapshot, request: Request, steps: Sequence[Step], units: Sequence[Unit]
    ) -> None:
        """Name the question.

        Args:
          snapshot: The fleet.
          request: Its objective decides which criterion is named.
          steps: What decides.
          units: Units that could be placed, highest priority first.
        """
        self._snapshot, self._request = snapshot, request
        self._steps, self._units = tuple(steps), tuple(units)

    @property
    def places_more(self) -> bool:
        """Placing more never makes a step worse."""
        return all(
            min(step.weights(unit.priority)) >= 0
            for step in self._steps
            if isinstance(step, Level)
            for unit in self._units
        )

    def is_whole(self, plan: EvictionPlan) -> bool:
        """Tell whether every unit that could be placed has nodes for all its pods."""
        return {unit.key for unit in self._units} == plan.find_whole()

    def count_proven(
        self, plan: EvictionPlan, trial: Trial, steps: Sequence[Step], reached: tuple[int, ...]
    ) -> int:
        """Count the leading steps that no plan beats, given a trial over some of the units.

        Args:
          plan: What is answered.
          trial: One model over its units, whom nobody else could help by evicting.
          steps: The steps that the trial decided.
          reached: Score of the plan that came of it.
        """
        score = score_plan(plan, self._steps, self._snapshot)
        if len(trial.units) == len(self._units) and tuple(steps) == self._steps:
            return trial.proven if score[: trial.proven] == reached[: trial.proven] else 0
        kinds = [isinstance(step, VictimLevel) for step in self._steps]
        same = set(plan.victims) == {victim for victim, _ in trial.gone}
        if (
            same
            and trial.proven == len(steps)
            and kinds == sorted(kinds)
            and self.places_more
            and self.is_whole(plan)
        ):
            return len(self._steps)
        # Steps in which the others do not count stand as they are.
        others = [unit for unit in self._units if unit.key not in trial.units]
        alone = next(
            i
            for i, step in enumerate((*self._steps, None))
            if not isinstance(step, Level) or any(any(step.weights(u.priority)) for u in others)
        )
        alone = min(alone, trial.proven)
        if any(unit.gpus for unit in others) or score[:alone] != reached[:alone]:
            return 0
        return alone

    def count_obvious(self, plan: EvictionPlan) -> int:
        """Count the leading steps that cannot be better: all is placed, or it costs nothing."""
        is_most = self.places_more and self.is_whole(plan)
        score = score_plan(plan, self._steps, self._snapshot)
        # Priorities may be negative, so nothing is not the least there is of them.
        signed = ("highestVictimPriority", "weightedVictimGpus")
        for i, step in enumerate(self._steps):
            if isinstance(step, Level):
                is_best = is_most
            else:
                is_best = not plan.gone or (score[i] == 0 and step.criterion not in signed)
            if not is_best:
                return i
        return len(self._steps)

    def describe(self, plan: EvictionPlan, proven: int, bounds: tuple[float, ...]) -> Bound:
        """State the last criterion when all are proven, else the first that is not."""
        score = score_plan(plan, self._steps, self._snapshot)
        if proven < len(self._steps):
            return self._describe_gap(proven, score, bounds)
        named = {item.partition(":")[2] for item in self._request.objective}
        victims = [s for s in self._steps if isinstance(s, VictimLevel) and s.criterion in named]
        if plan.gone and victims:
            cost = count_cost(plan.victims, self._snapshot.budgets).to_criteria()
            return Bound(victims[-1].criterion, cost.get(victims[-1].criterion), 0.0, "optimal")
        last = [step for step in self._steps if isinstance(step, Level)][-1]
        worth = [seats.worth for seats in plan.seats.values()]
        value = sum(
            step.value(worth) * step.sign
            for step in self._steps
            if isinstance(step, Level) and step.criterion == last.criterion
        )
        return Bound(_name(last), value, 0.0, "optimal")

    def _describe_gap(self, at: int, score: tuple[int, ...], bounds: tuple[float, ...]) -> Bound:
        step = self._steps[at]
        bound = bounds[at] if at < len(bounds) else np.inf
        # Highest priorities are counted by rank inside a model, so its bound is none of theirs.
        if not np.isfinite(bound) or step == VictimLevel("highestVictimPriority"):
            return Bound(_name(step), None, None, "none")
        most, value = int(np.floor(bound + 1e-4)), score[at]
        if most < value:
            return Bound(_name(step), None, None, "none")
        if isinstance(step, Level) and step.criterion == "priority":
            # GPUs of all priorities together: those above as they are, those below at the most.
            ranks = [
                i
                for i, s in enumerate(self._steps)
                if isinstance(s, Level) and s.criterion == "priority"
            ]
            asked = {
                i: sum(unit.gpus for unit in self._units if unit.priority == self._rank(i))
                for i in ranks
            }
            most += sum(score[i] if i < at else asked[i] for i in ranks if i != at)
            value = sum(score[i] for i in ranks)
        gap = round((most - value) / max(abs(most), 1), 6)
        sign = step.sign if isinstance(step, Level) else -1
        return Bound(_name(step), most * sign, gap, "bound")

    def _rank(self, i: int) -> int | None:
        step = self._steps[i]
        return step.priority if isinstance(step, Level) else None


def _name(step: Step) -> str:
    return "gpusPlaced" if step.criterion == "priority" else step.criterion
