"""Victims for one plain gang: the domains that a bound does not refuse, by HiGHS or by kernels.

HiGHS decides most domains at the root of its tree. Where it does not in several, victims are
tangled: units of several sizes share nodes, and several resources bind. Kernels then look for sets
in all domains that are left, and at all sets of those with few victims; HiGHS goes on with others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.objective import VictimLevel
from optimizer.search.victim_model import UndecidedError, choose_victims
from optimizer.search.victim_sets import NO_ROOM, is_refused
from optimizer.search.victim_tensors import find_listable, find_sets, list_all_sets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optimizer.search.victim_model import VictimChoice
    from optimizer.search.victim_sets import Narrowed, VictimSets

    Indices = NDArray[np.int64]

__all__ = ["solve_plain"]

FEW_NODES: Final = 20
"""Branch-and-bound nodes after which a domain counts as hard."""
MANY_HARD: Final = 2
"""Hard domains from which on kernels are asked: loading JAX takes as long as one or two of them."""
MAX_NODES: Final = 20_000
"""Nodes of one model; beyond, only those that are cheapest to clear are offered."""
NUM_ORDERS: Final = 64
"""Orders of victims tried in each domain: a start, not the answer."""


def solve_plain(sets: VictimSets, node_limit: int) -> VictimChoice | None:
    """Find the cheapest victims for one plain gang.

    Args:
      sets: Its domains.
      node_limit: Branch-and-bound nodes of each solve.

    Returns:
      None where no domain takes as many pods as room allows: budgets are hard.
    """
    search = _Search(sets, sets.narrow(None))
    few = min(FEW_NODES, node_limit)
    first = search.left[0]
    core = sets.find_core(first, search.narrowed)
    is_core_decided = search.solve(core, (), few)
    hard: list[int] = []
    while search.left and len(hard) < MANY_HARD:
        domain = search.left.pop(0)
        nodes = sets.list_nodes(domain, search.narrowed.goes)
        was_solved = domain == first and bool(np.isin(nodes, core).all())
        is_decided = is_core_decided if was_solved else search.solve_domain(domain, few)
        if not is_decided:
            hard.append(domain)
    is_tangled = len(hard) == MANY_HARD
    search.left = [*hard, *search.left]
    search.drop_refused()
    if is_tangled and search.left:
        search.ask_kernels()
    is_proven = True
    while search.left:
        is_proven &= search.solve_domain(search.left.pop(0), node_limit)
    if search.best is None:
        return None
    return replace(search.best, proven=len(sets.steps) if is_proven else 0, bounds=())


@dataclass(slots=True)
class _Search:
    sets: VictimSets
    narrowed: Narrowed
    left: list[int] = field(init=False)
    """Domains that may hold something better, the lowest bound first."""
    best: VictimChoice | None = None
    limit: tuple[int, ...] | None = None
    """What the best costs."""

    def __post_init__(self) -> None:
        open_ones = np.flatnonzero(self.narrowed.bound < NO_ROOM)
        self.left = open_ones[np.argsort(self.narrowed.bound[open_ones], kind="stable")].tolist()

    def offer(self, choice: VictimChoice) -> None:
        """Take a choice if it is better than the best, and drop what cannot beat it."""
        if self.best is not None and choice.score <= self.best.score:
            return
        self.best = choice
        self.limit = self.sets.costs.price(choice.victims)
        self.narrowed = self.sets.narrow(self.limit)
        self.drop_refused()

    def drop_refused(self) -> None:
        """Leave out the domains that cannot beat the best."""
        if self.limit is not None:
            refused = is_refused(self.narrowed.bound, self.limit)
            self.left = [d for d in self.left if not refused[d]]
            self.left.sort(key=lambda d: (int(self.narrowed.bound[d]), d))

    def solve_domain(self, domain: int, node_limit: int) -> bool:
        """Solve one domain by HiGHS, and tell whether it is decided."""
        nodes = self.sets.list_nodes(domain, self.narrowed.goes)
        if len(nodes) > MAX_NODES:
            core = self.sets.find_core(domain, self.narrowed)
            self.solve(core, self.find_floor(domain), node_limit)
            return False
        return self.solve(nodes, self.find_floor(domain), node_limit)

    def solve(self, nodes: Indices, floor: tuple[int, ...], node_limit: int) -> bool:
        """Solve some nodes by HiGHS, and tell whether they are decided."""
        sets = self.sets
        try:
            choice = choose_victims(
                sets.fleet, [sets.unit], nodes, sets.steps, node_limit=node_limit, floor=floor
            )
        except UndecidedError:
            return False
        if choice is None:
            return True
        fills = choice.placements.get(sets.unit, ())
        if sum(int(fill.counts.sum()) for fill in fills) == sets.need:
            # A model may count ranks among its own victims only.
            self.offer(replace(choice, score=sets.score(fills, choice.victims)))
        return choice.proven == len(sets.steps)

    def find_floor(self, domain: int) -> tuple[int, ...]:
        """Return the leading values that a better choice must reach in a domain.

        A value binds where all before it are as good as they can get.
        """
        if self.best is None:
            return ()
        rank = int(self.narrowed.rank[domain])
        ideal = {"pdbViolations": 0, "highestVictimPriority": -rank}
        count = 0
        for step, value in zip(self.sets.steps, self.best.score, strict=True):
            count += 1
            if isinstance(step, VictimLevel) and value != ideal.get(step.criterion):
                break
        return self.best.score[:count]

    def ask_kernels(self) -> None:
        """Find sets in all domains that are left, and decide those with few victims."""
        for domain, victims in find_sets(self.sets, self.narrowed, self.left, NUM_ORDERS)[:1]:
            self.offer(self.sets.to_choice(domain, victims))
        is_listable = find_listable(self.sets, self.narrowed)
        listed = [d for d in self.left if is_listable[d]]
        self.left = [d for d in self.left if not is_listable[d]]
        found = list_all_sets(self.sets, self.narrowed, listed, self.limit) if listed else None
        if found is not None:
            self.offer(self.sets.to_choice(*found))
