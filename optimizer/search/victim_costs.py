"""What sets of victims cost, as words of integers that compare in the order of the objective.

Sums over victims (pods, units, GPUs) add up; the highest priority is a rank; disruption budgets
count what goes beyond them. Each becomes a digit of a word as wide as its range, so that comparing
words compares criteria one after another.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.objective import VictimLevel

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from optimizer.objective import Level
    from optimizer.search.victim_model import EmptiedFleet
    from optimizer.victims import Victim

    Indices = NDArray[np.int64]

__all__ = ["VictimCosts", "describe_costs"]

MAX_WORD: Final = 2**30
"""What a word stays below, whoever goes."""
MAX_BUDGETS: Final = 32
_KNOWN: Final = (
    "victimPods",
    "victimUnits",
    "victimGpus",
    "weightedVictimGpus",
    "highestVictimPriority",
    "pdbViolations",
)


@dataclass(frozen=True, slots=True)
class VictimCosts:
    """Costs of all victims of a fleet; axes V victims, K words, P disruption budgets."""

    words: Indices
    """i64[V, K] sums, weighted."""
    rank: Indices
    """i64[V] place of its priority among those that cost anything; 0 costs nothing."""
    rank_price: Indices
    """i64[K]."""
    covered: Indices
    """i64[V, P] pods that count against each budget."""
    left: Indices
    """i64[P] evictions that each budget still allows."""
    excess_price: Indices
    """i64[K]."""
    is_hard: bool

    def price(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """Return the words of one set of victims."""
        only = np.array(chosen, np.int64)
        rank = int(self.rank[only].max(initial=0))
        excess = int(np.maximum(self.covered[only].sum(axis=0) - self.left, 0).sum())
        words = self.words[only].sum(axis=0)
        words += rank * self.rank_price + excess * self.excess_price
        return tuple(words.tolist())

    def price_alone(self) -> Indices:
        """Return i64[V, K]: each victim by itself."""
        excess = np.maximum(self.covered - self.left, 0).sum(axis=1)
        alone: Indices = (
            self.words + self.rank[:, None] * self.rank_price + excess[:, None] * self.excess_price
        )
        return alone


def describe_costs(fleet: EmptiedFleet, steps: Sequence[Level | VictimLevel]) -> VictimCosts | None:
    """Return the costs of the victim steps, None where words of int32 cannot state them.

    Args:
      fleet: Who may go, and who is gone already.
      steps: The objective; placing steps are left out.
    """
    victims = fleet.victims
    criteria = [step.criterion for step in steps if isinstance(step, VictimLevel)]
    if any(VictimLevel(c) not in steps or c not in _KNOWN for c in criteria):
        return None
    if "victimUnits" in criteria and len({victim.unit for victim in victims}) < len(victims):
        return None
    budgets = sorted({b for victim in victims for b, _ in victim.budgets})
    priced = fleet.is_hard or "pdbViolations" in criteria
    if not priced:
        budgets = []
    if len(budgets) > MAX_BUDGETS:
        return None
    covered = np.zeros((len(victims), len(budgets)), np.int64)
    if budgets:
        for v, victim in enumerate(victims):
            for b, pods in victim.budgets:
                covered[v, budgets.index(b)] = pods
    rank = _rank(victims, fleet.gone)
    sums = {name: _list_values(name, victims, fleet.gone) for name in criteria}
    top = {name: int(values.sum()) for name, values in sums.items()}
    top["highestVictimPriority"] = int(rank.max(initial=0))
    top["pdbViolations"] = int(covered.sum())
    digits: list[tuple[str, int, int]] = []
    word, scale = 0, 1
    for name in reversed(criteria):
        if scale * (top[name] + 1) >= MAX_WORD:
            word, scale = word + 1, 1
        if top[name] + 1 >= MAX_WORD:
            return None
        digits.append((name, word, scale))
        scale *= top[name] + 1
    num_words = word + 1
    words = np.zeros((len(victims), num_words), np.int64)
    prices = {name: np.zeros(num_words, np.int64) for name in ("rank", "excess")}
    for name, number, weight in digits:
        k = num_words - 1 - number
        if name == "highestVictimPriority":
            prices["rank"][k] = weight
        elif name == "pdbViolations":
            prices["excess"][k] = weight
        else:
            words[:, k] += sums[name] * weight
    return VictimCosts(
        words=words,
        rank=rank,
        rank_price=prices["rank"],
        covered=covered,
        left=_count_left(fleet, budgets),
        excess_price=prices["excess"],
        is_hard=fleet.is_hard,
    )


def _list_values(criterion: str, victims: Sequence[Victim], gone: Iterable[Victim]) -> Indices:
    """Return i64[V] of a criterion that adds up, in its common step; 0 of the others."""
    paid = {victim.unit for victim in gone}
    match criterion:
        case "victimPods":
            values = [len(victim.pods) for victim in victims]
        case "victimGpus":
            values = [victim.gpus for victim in victims]
        case "weightedVictimGpus":
            # Evicting must never look like a gain, so a negative priority costs nothing.
            values = [max(victim.priority, 0) * victim.gpus for victim in victims]
        case "victimUnits":
            values = [int(victim.unit not in paid) for victim in victims]
        case _:
            values = [0] * len(victims)
    amounts = np.array(values, np.int64).reshape(len(victims))
    return amounts // max(int(np.gcd.reduce(amounts)) if amounts.size else 1, 1)


def _rank(victims: Sequence[Victim], gone: Sequence[Victim]) -> Indices:
    """Return i64[V]: the priorities beyond the highest that is paid for, up to each one's own."""
    paid = max((victim.priority for victim in gone), default=None)
    levels = sorted({v.priority for v in victims if paid is None or v.priority > paid})
    priorities = np.array([victim.priority for victim in victims], np.int64)
    ranks: Indices = np.searchsorted(np.array(levels, np.int64), priorities, side="right")
    return ranks


def _count_left(fleet: EmptiedFleet, budgets: Sequence[int]) -> Indices:
    before = Counter[int]()
    for victim in fleet.gone:
        before.update(dict(victim.budgets))
    allowed = [max(fleet.problem.snapshot.budgets[b].allowed, 0) - before[b] for b in budgets]
    return np.maximum(np.array(allowed, np.int64), 0)
