"""Whom the scheduler would spare first: potential victims in their order, parted by budgets.

Source: kube-scheduler preemption (KEP-5710): units and their priorities, the order of importance,
and the split by disruption budgets, which is made once over all potential victims.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optimizer.victims import BudgetIndex, find_root, find_victims
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optimizer.victims import Victim
    from topology.model import Snapshot

__all__ = ["Candidate", "Candidates", "count_violating", "find_start", "order_by_budgets"]

_LATEST: Final = 2**62
"""Start of a pod that has not told one: now, later than all others."""
_ANY: Final = 2**62
"""Above every priority."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A unit that some preemptor may evict."""

    victim: Victim
    priority: int
    """As the preemptor sees it."""
    root: int
    """Root group, or NO_GROUP."""
    importance: tuple[int, ...]
    """Smaller is more important: spared earlier."""


def find_start(snapshot: Snapshot, pod: int) -> int:
    """Return when a pod started, in seconds since 1970; one that has not told starts now."""
    started = int(snapshot.pods.started[pod])
    return started if started >= 0 else _LATEST


class Candidates:
    """All running units, most important first, for each way to see them."""

    def __init__(self, snapshot: Snapshot, release: str) -> None:
        self._snapshot = snapshot
        self._release = release
        self._all: dict[bool, list[Candidate]] = {}

    def below(self, priority: int, gone: set[int], *, with_groups: bool) -> list[Candidate]:
        """Return the units of strictly lower priority none of whose pods is gone, in order."""
        if with_groups not in self._all:
            self._all[with_groups] = self._build(with_groups)
        return [
            c
            for c in self._all[with_groups]
            if c.priority < priority and gone.isdisjoint(c.victim.pods)
        ]

    def _build(self, with_groups: bool) -> list[Candidate]:
        snapshot = self._snapshot
        found = []
        for victim in find_victims(snapshot, _ANY, with_groups=with_groups, spares_kept=False):
            own = int(snapshot.pods.priority[victim.pods[0]])
            priority = victim.priority if with_groups else own
            importance = (
                -priority,
                self._rank(victim) if with_groups else 2,
                -len(victim.pods),
                min(find_start(snapshot, p) for p in victim.pods),
                victim.pods[0],
            )
            root = find_root(snapshot, victim.pods[0])
            found.append(Candidate(victim, priority, root, importance))
        return sorted(found, key=lambda c: c.importance)

    def _rank(self, victim: Victim) -> int:
        """Composites before groups before pods; since 1.37 a group's lone pod is a group of one."""
        top = victim.unit[0]
        if top != NO_GROUP:
            return 0 if self._snapshot.groups[top].kind == "composite" else 1
        in_group = self._snapshot.pods.group[victim.pods[0]] != NO_GROUP
        return 1 if in_group and self._release >= "1.37" else 2


def count_violating(
    snapshot: Snapshot, budgets: BudgetIndex, candidates: Iterable[Candidate]
) -> list[int]:
    """Return, for each unit in order, how many of its pods no budget has room for.

    Later units find less room: the least important pods of a budget are the violating ones.
    """
    allowed = [budget.allowed for budget in snapshot.budgets]
    counts = []
    for candidate in candidates:
        violating = 0
        for pod in candidate.victim.pods:
            for b in budgets.covering(pod):
                allowed[b] -= 1
                if allowed[b] < 0:
                    violating += 1
                    break
        counts.append(violating)
    return counts


def order_by_budgets(
    snapshot: Snapshot, budgets: BudgetIndex, candidates: Iterable[Candidate]
) -> list[tuple[Candidate, int]]:
    """Return (unit, violating pods) in the order of sparing: violating units first."""
    units = list(candidates)
    pairs = list(zip(units, count_violating(snapshot, budgets, units), strict=True))
    return sorted(pairs, key=lambda pair: pair[1] == 0)
