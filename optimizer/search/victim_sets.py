"""Victim sets of one plain preemptor, domain by domain, without a model.

For a gang of one pod class whose pods need nothing but room, a set of victims does if the pods that
fit, added up over the nodes of a domain, reach the pods needed. So every domain is a small table:
what its nodes have, what each victim holds there, what each costs. Domains that cannot beat the
best so far are refused by a bound; where many are left, kernels find sets and look at all subsets
of those with few victims; the others are for HiGHS (`optimizer.search.victim_search`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from optimizer.fills import Fill
from optimizer.objective import Level, VictimLevel
from optimizer.search.score import count_placed
from optimizer.search.victim_costs import VictimCosts, describe_costs
from optimizer.search.victim_model import VictimChoice
from optimizer.units import FREE_CHOICE
from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Unit
    from optimizer.search.victim_model import EmptiedFleet

    Indices = NDArray[np.int64]

__all__ = ["NO_ROOM", "Narrowed", "VictimSets", "build_victim_sets", "is_refused"]

MAX_AMOUNT = 2**24
"""Amounts stay below this, so that float32 holds them exactly."""
NO_ROOM = 2**62
"""Bound of a domain in which the pods do not fit whoever goes."""
SLACK = 1e-9
"""Far more than a sum of the gains of a domain can be off by."""
TINY = 1e-12
"""Keeps quotients finite where nothing is gained."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What is left of a problem when only choices below some cost count."""

    goes: NDArray[np.bool_]
    """bool[E] pairs whose victim may go in its domain."""
    ratio: NDArray[np.float64]
    """f64[E] cost of a pair's victim over the worth of its gain; below one it pays."""
    bound: Indices
    """i64[D] what the first word costs at least; NO_ROOM where the pods do not fit."""
    rank: Indices
    """i64[D] rank that has to go at least."""


def is_refused(bound: Indices, limit: tuple[int, ...]) -> NDArray[np.bool_]:
    """Tell which domains hold nothing that costs less than a limit."""
    refused: NDArray[np.bool_] = bound >= limit[0] if len(limit) == 1 else bound > limit[0]
    return refused


@dataclass(frozen=True, slots=True)
class VictimSets:
    """Domains as tables; axes N nodes, R resources asked for, E (node, victim) pairs, D domains."""

    fleet: EmptiedFleet
    unit: int
    steps: tuple[Level | VictimLevel, ...]
    costs: VictimCosts
    need: int
    """Pods to place: as many as any domain can take."""
    request: Indices
    """i64[R]."""
    codes: Indices
    """i64[N] domain of each node, NO_DOMAIN for nodes of no use."""
    num_domains: int
    spare: Indices
    """i64[N, R] free while everybody stays; negative where short."""
    now: Indices
    """i64[N] pods that fit while everybody stays."""
    cap: Indices
    """i64[N] pods that fit with everybody gone, `need` at most."""
    node: Indices
    """i64[E]."""
    victim: Indices
    """i64[E]."""
    amount: Indices
    """i64[E, R]."""

    def add_up(self, amounts: NDArray[np.float64] | Indices) -> Indices:
        """Add up [N] over the nodes of each domain: i64[D]."""
        inside = self.codes != NO_DOMAIN
        sums = np.bincount(self.codes[inside], amounts[inside], self.num_domains)
        return sums.astype(np.int64)

    def free_without(self, goes: NDArray[np.bool_]) -> Indices:
        """Return i64[N, R]: what is free once some pairs (bool[E]) are gone."""
        free = self.spare.copy()
        np.add.at(free, self.node[goes], self.amount[goes])
        return free

    def count_pods(self, free: Indices) -> Indices:
        """Return i64[N]: pods that fit each node."""
        return np.minimum(_count_fits(free, self.request), self.cap)

    def narrow(self, limit: tuple[int, ...] | None) -> Narrowed:
        """Find what a choice that costs less than a limit can look like.

        Args:
          limit: Words of a cost; None where nothing is known yet.
        """
        goes = self._is_cheaper(limit)[self.victim]
        while True:
            found = self._relax(goes, limit)
            if np.array_equal(found.goes, goes):
                return found
            goes = found.goes

    def _is_cheaper(self, limit: tuple[int, ...] | None) -> NDArray[np.bool_]:
        """Return bool[V]: victims that by themselves cost less than a limit."""
        alone = self.costs.price_alone()
        less = np.full(len(alone), limit is None)
        equal = ~less
        for k, most in enumerate(limit or ()):
            less |= equal & (alone[:, k] < most)
            equal &= alone[:, k] == most
        return less

    def _relax(self, goes: NDArray[np.bool_], limit: tuple[int, ...] | None) -> Narrowed:
        """Bound the first word of each domain, and drop pairs that exceed the limit with it.

        A node takes more pods only if the victims that block it go. Its gain is shared among
        them, in any shares; so the gains of the victims that go add up to those of their nodes at
        least, and the cheapest way to reach what is missing, in fractions, costs no more.
        """
        free = self.free_without(goes)
        room = self.count_pods(free)
        domain, victim, gains, pair = self._share_gains(goes, free, room - self.now)
        cost = self.costs.words[victim, 0].astype(np.float64)
        order = np.lexsort((cost / np.maximum(gains, TINY), domain))
        sorted_gains, sorted_domain = gains[order], domain[order]
        # A little less than what is missing, so that rounding never asks for a pod too many.
        missing = np.maximum(self.need - self.add_up(self.now) - SLACK, 0)
        before = _sum_before(sorted_gains, sorted_domain)
        used = np.empty(len(order))
        used[order] = np.clip(
            (missing[sorted_domain] - before) / np.maximum(sorted_gains, TINY), 0, 1
        )
        used[gains == 0] = 0
        sums = np.bincount(domain, used * cost, self.num_domains).astype(np.float64)
        # The price of a pod at which the relaxation stops: what a victim costs beyond the worth of
        # its gain is added where it goes all the same.
        critical = np.zeros(self.num_domains)
        np.maximum.at(critical, domain[used > 0], (cost / np.maximum(gains, TINY))[used > 0])
        rank = self._find_rank(goes)
        first = self.costs.rank_price[0]
        bound = _round_up(sums) + rank * first
        bound[self.add_up(room) < self.need] = NO_ROOM
        kept = bound[domain] < NO_ROOM
        if limit is not None:
            with_it = sums[domain] + np.maximum(cost - critical[domain] * gains, 0)
            least = _round_up(with_it) + np.maximum(rank[domain], self.costs.rank[victim]) * first
            kept &= least < limit[0] if len(limit) == 1 else least <= limit[0]
            kept &= ~is_refused(bound, limit)[domain]
        still = np.zeros(len(goes), bool)
        still[goes] = kept[pair]
        ratio = np.full(len(goes), np.inf)
        ratio[goes] = ((cost + TINY) / np.maximum(gains * critical[domain], TINY))[pair]
        return Narrowed(still, ratio, bound, rank)

    def _share_gains(
        self, goes: NDArray[np.bool_], free: Indices, gain: Indices
    ) -> tuple[Indices, Indices, NDArray[np.float64], Indices]:
        """Return domain, victim and gain of each (domain, victim), and its index for each pair."""
        node, victim = self.node[goes], self.victim[goes]
        # A victim blocks a node where its staying leaves room for no more pods than now.
        beside = _count_fits(free[node] - self.amount[goes], self.request)
        blocks = np.minimum(beside, self.cap[node]) <= self.now[node]
        is_blocked = np.zeros(len(self.codes), bool)
        is_blocked[node[blocks]] = True
        spread = np.bincount(victim, minlength=len(self.costs.words))
        share = (self.costs.words[victim, 0] + 1.0) / spread[victim]
        share[~blocks] = 0
        total = np.bincount(node, share, len(self.codes))
        part = np.where(is_blocked[node], share / np.maximum(total[node], TINY), 1.0)
        width = max(len(self.costs.words), 1)
        keys, pair = np.unique(self.codes[node] * width + victim, return_inverse=True)
        gains = np.bincount(pair, part * gain[node], len(keys)).astype(np.float64)
        return keys // width, keys % width, gains, pair

    def _find_rank(self, goes: NDArray[np.bool_]) -> Indices:
        """Return i64[D]: the rank without which there is no room."""
        found = np.zeros(self.num_domains, np.int64)
        if not self.costs.rank_price.any():
            return found
        rank = self.costs.rank[self.victim]
        for least in np.unique(rank[goes]).tolist():
            room = self.count_pods(self.free_without(goes & (rank < least)))
            found[self.add_up(room) < self.need] = least
        return found

    def list_nodes(self, domain: int, goes: NDArray[np.bool_]) -> Indices:
        """Return the nodes of a domain that take a pod once some pairs are gone, ascending."""
        room = self.count_pods(self.free_without(goes))
        return np.flatnonzero((self.codes == domain) & (room > 0))

    def find_core(self, domain: int, narrowed: Narrowed) -> Indices:
        """Return the nodes of a domain where a good choice is likely: those cheapest to clear."""
        for most in (1.25, 2.0, 4.0):
            goes = narrowed.goes & (narrowed.ratio <= most)
            nodes = self.list_nodes(domain, goes)
            room = self.count_pods(self.free_without(goes))
            if room[nodes].sum() >= self.need:
                return nodes
        return self.list_nodes(domain, narrowed.goes)

    def to_choice(self, domain: int, chosen: Sequence[int]) -> VictimChoice:
        """Return a set of victims with a placement on the fullest nodes, and its score."""
        gone = np.isin(self.victim, np.array(chosen, np.int64))
        fits = self.count_pods(self.free_without(gone))
        nodes = np.flatnonzero((self.codes == domain) & (fits > 0))
        nodes = nodes[np.lexsort((nodes, fits[nodes]))]
        room = fits[nodes]
        counts = np.clip(self.need - (np.cumsum(room) - room), 0, room)
        placement = (Fill(0, nodes[counts > 0], counts[counts > 0]),)
        return VictimChoice(
            {self.unit: placement}, tuple(chosen), self.score(placement, chosen), 0, ()
        )

    def score(self, placement: UnitPlacement, chosen: Sequence[int]) -> tuple[int, ...]:
        """Return the value of every step, more is better; the same count for every domain."""
        problem = self.fleet.problem
        placed = count_placed(problem, problem.units[self.unit], placement)
        return tuple(
            step.value([placed]) if isinstance(step, Level) else -cost
            for step, cost in zip(self.steps, self._count(chosen), strict=True)
        )

    def _count(self, chosen: Sequence[int]) -> list[int]:
        """Return the value of every victim step as the models count it, 0 for other steps."""
        only = list(chosen)
        victims = [self.fleet.victims[v] for v in only]
        paid = {victim.unit for victim in self.fleet.gone}
        found = []
        for step in self.steps:
            match step.criterion if isinstance(step, VictimLevel) else "":
                case "victimPods":
                    cost = sum(len(victim.pods) for victim in victims)
                case "victimGpus":
                    cost = sum(victim.gpus for victim in victims)
                case "weightedVictimGpus":
                    cost = sum(max(victim.priority, 0) * victim.gpus for victim in victims)
                case "victimUnits":
                    cost = len({victim.unit for victim in victims} - paid)
                case "highestVictimPriority":
                    cost = int(self.costs.rank[only].max(initial=0))
                case "pdbViolations":
                    covered = self.costs.covered[only].sum(axis=0)
                    cost = int(np.maximum(covered - self.costs.left, 0).sum())
                case _:
                    cost = 0
            found.append(cost)
        return found


def build_victim_sets(
    fleet: EmptiedFleet,
    u: int,
    column: int,
    usable: NDArray[np.bool_],
    steps: tuple[Level | VictimLevel, ...],
) -> VictimSets | None:
    """Describe the domains of one preemptor, or return None where room alone does not decide.

    Args:
      fleet: Every possible victim gone.
      u: The preemptor, an index into its problem.
      column: Domains to choose from, -1 for all nodes together.
      usable: bool[N] nodes that it may use.
      steps: The objective.
    """
    problem = fleet.problem
    unit = problem.units[u]
    if not _is_plain(fleet, unit) or not _places_first(fleet, unit, steps):
        return None
    costs = describe_costs(fleet, steps)
    if costs is None:
        return None
    pod_class = unit.tasks[0].pod_class
    asked = np.flatnonzero(fleet.requests[pod_class])
    request = fleet.requests[pod_class][asked]
    fits = np.where(usable, fleet.state.fits(pod_class), 0)
    codes = np.zeros(len(fits), np.int64)
    if column >= 0:
        codes = problem.columns[column].codes.astype(np.int64)
    codes = np.where(fits > 0, codes, NO_DOMAIN)
    pairs = [(n, v) for n, held in fleet.held.items() for v in held]
    held = [amount for on_node in fleet.held.values() for amount in on_node.values()]
    amount = np.array(held, np.int64).reshape(len(pairs), fleet.free.shape[1])[:, asked]
    node, victim = np.array(pairs, np.int64).reshape(len(pairs), 2).T
    counts = amount.any(axis=1) & (codes[node] != NO_DOMAIN)
    node, victim, amount = node[counts], victim[counts], amount[counts]
    free = fleet.free[:, asked]
    spare = free.copy()
    np.subtract.at(spare, node, amount)
    if np.abs(spare).max(initial=0) >= MAX_AMOUNT or free.max(initial=0) >= MAX_AMOUNT:
        return None
    num_domains = 1 if column < 0 else len(problem.columns[column].values)
    room = np.minimum(_count_fits(free, request), fits)
    inside = codes != NO_DOMAIN
    of_domain = np.bincount(codes[inside], room[inside], num_domains).astype(np.int64)
    need = min(int(of_domain.max(initial=0)), unit.num_pods)
    if need < max(unit.count_needed(), 1):
        return None
    cap = np.where(inside, np.minimum(room, need), 0)
    return VictimSets(
        fleet=fleet,
        unit=u,
        steps=steps,
        costs=costs,
        need=need,
        request=request,
        codes=codes,
        num_domains=num_domains,
        spare=spare,
        now=np.minimum(_count_fits(spare, request), cap),
        cap=cap,
        node=node,
        victim=victim,
        amount=amount,
    )


def _is_plain(fleet: EmptiedFleet, unit: Unit) -> bool:
    """Tell whether nothing but room decides where the pods of a unit go."""
    if fleet.joint or not fleet.is_exact:
        return False  # Claims that victims share, and devices that do not add up, need a model.
    problem = fleet.problem
    root = unit.root
    if len(unit.tree) != 1 or len(unit.tasks) != 1 or root.slices or root.exclusive:
        return False
    if sum(required.pinned == FREE_CHOICE for required in root.required) > 1:
        return False
    if problem.interactions.spreads or problem.signatures[unit.tasks[0].pod_class].is_coupled:
        return False
    pods = problem.snapshot.pods
    mine = {int(pods.spec[p]) for p in unit.tasks[0].pods}
    theirs = {int(x) for x in pods.spec[[p for v in fleet.victims for p in v.pods]]}
    return not any(pods.specs[x].anti_affinity for x in mine | theirs) and not any(
        pods.specs[x].host_ports or pods.specs[x].claims for x in mine
    )


def _places_first(fleet: EmptiedFleet, unit: Unit, steps: Sequence[Level | VictimLevel]) -> bool:
    """Tell whether placing more pods comes before all that victims cost."""
    kinds = [isinstance(step, VictimLevel) for step in steps]
    gpus = int(fleet.problem.class_gpus[unit.tasks[0].pod_class])
    worths = [step.weights(unit.priority) for step in steps if isinstance(step, Level)]
    return (
        kinds == sorted(kinds)
        and all(min(worth) >= 0 for worth in worths)
        and any(pod + gpu * gpus > 0 for _, pod, gpu in worths)
    )


def _count_fits(free: Indices, request: Indices) -> Indices:
    """Return i64[N]: pods that fit by room alone."""
    fits: Indices = np.maximum((free // request).min(axis=1), 0)
    return fits


def _round_up(costs: NDArray[np.float64]) -> Indices:
    """Return the least whole costs, less than rounding in float64 can ever add."""
    whole: Indices = np.ceil(costs - 1e-6 - costs * 1e-11).astype(np.int64)
    return whole


def _sum_before(amounts: NDArray[np.float64], keys: Indices) -> NDArray[np.float64]:
    """Return the sum of the amounts before each entry among those of its key (keys ascending)."""
    before = np.cumsum(amounts) - amounts
    starts = np.flatnonzero(np.r_[True, keys[1:] != keys[:-1]]) if len(keys) else keys
    lengths = np.diff(np.r_[starts, len(keys)])
    found: NDArray[np.float64] = before - np.repeat(before[starts], lengths)
    return found
