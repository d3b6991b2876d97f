"""Units, nodes and victims -> the best placement together with who has to go for it, by HiGHS.

A binary for each victim unit gives back what its pods hold on every node they stand on; it is
charged once, however many nodes or preemptors use it. The placement is chosen in the same model, so
it moves with the victims.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.devices.held import find_held_claims
from optimizer.fleet_state import FleetState
from optimizer.objective import VictimLevel
from optimizer.problem import Relax, build_problem, count_free
from optimizer.search.bins import make_node_bins
from optimizer.search.blockers import find_blockers, find_leaving
from optimizer.search.flat_rows import FlatRows
from optimizer.search.mip import MipModel
from optimizer.search.tree_rows import TreeRows
from optimizer.victims import remove_pods
from topology.levels import NO_DOMAIN
from topology.units import scale_amounts
from topology.usage import request_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.objective import Level
    from optimizer.problem import Problem
    from optimizer.search.bins import Bin
    from optimizer.victims import Victim
    from topology.model import Snapshot
    from topology.plan import Request

    Indices = NDArray[np.int64]

__all__ = ["EmptiedFleet", "UndecidedError", "VictimChoice", "choose_victims", "empty_fleet"]

MAX_FOLDED: Final = 500
"""Variables up to which costs of victims may share a solve with what comes before or after."""


@dataclass(frozen=True, slots=True)
class EmptiedFleet:
    """A fleet with every possible victim gone, and what each would take up if it stayed."""

    problem: Problem
    state: FleetState
    victims: tuple[Victim, ...]
    gone: tuple[Victim, ...]
    """Evicted already; what they cost is paid."""
    free: Indices
    """i64[N, R] without any victim; units common to preemptors and victims, rounded down."""
    requests: Indices
    """i64[S, R] of the pod classes, in those units, rounded up."""
    held: Mapping[int, Mapping[int, Indices]]
    """Node -> victim -> i64[R] that it holds there, in those units, rounded up. Victims from
    `len(victims)` on stand for claims that several victims share."""
    is_hard: bool
    """No disruption budget may be exceeded any further."""
    joint: tuple[frozenset[int], ...] = ()
    """For each claim that victims share: those who all have to go before it is released."""
    is_exact: bool = True
    """What victims hold of devices adds up; else a choice is feasible, but proves nothing."""


@dataclass(frozen=True, slots=True)
class VictimChoice:
    """A solution of one model."""

    placements: dict[int, UnitPlacement]
    victims: tuple[int, ...]
    """Indices into `EmptiedFleet.victims`."""
    score: tuple[int, ...]
    """Value of every step, more is better; comparable between models of one fleet."""
    proven: int
    """Leading steps proven best for these units and nodes."""
    bounds: tuple[float, ...]
    """What no choice exceeds in each step, given those before it."""


class UndecidedError(Exception):
    """HiGHS found nothing within its limit."""


def empty_fleet(
    snapshot: Snapshot,
    request: Request,
    *,
    victims: tuple[Victim, ...],
    gone: tuple[Victim, ...],
    placed: Mapping[int, int],
    only: Sequence[str],
) -> EmptiedFleet:
    """Build the fleet in which preemptors are placed.

    Args:
      snapshot: The fleet with those of `gone` gone.
      request: As for `build_problem`; its `pdb` decides whether budgets are hard.
      victims: Running units that may go.
      gone: Units evicted by earlier steps.
      placed: Pod -> node of pods that count as running.
      only: Refs of the units to place.
    """
    without = remove_pods(snapshot, [p for v in victims for p in v.pods], request.dra_reclaim)
    problem = build_problem(without, request, placed=placed, only=only)
    matrix = request_matrix(snapshot, problem.resources)
    pods = snapshot.pods
    specs = sorted({int(pods.spec[p]) for v in victims for p in v.pods})
    free = count_free(without, problem.resources, Relax(), placed)
    claims = find_held_claims(
        snapshot, without, problem.resources, free, victims, request.dra_reclaim, placed
    )
    scaled = scale_amounts(
        free, np.concatenate([problem.amounts, matrix[specs], claims.amounts]).astype(np.int64)
    )
    num_classes = len(problem.amounts)
    num_specs = len(specs)
    amounts = dict(
        zip(
            specs,
            scaled.requests[num_classes : num_classes + num_specs].astype(np.int64),
            strict=True,
        )
    )
    held: dict[int, dict[int, Indices]] = defaultdict(dict)
    for v, victim in enumerate(victims):
        for p in victim.pods:
            on_node = held[int(pods.node[p])]
            on_node[v] = on_node.get(v, 0) + amounts[int(pods.spec[p])]
    for (n, v), row in zip(
        claims.holders, scaled.requests[num_classes + num_specs :].astype(np.int64), strict=True
    ):
        held[n][v] = held[n].get(v, 0) + row
    return EmptiedFleet(
        problem=problem,
        state=FleetState(problem),
        victims=victims,
        gone=gone,
        free=scaled.free.astype(np.int64),
        requests=scaled.requests[:num_classes].astype(np.int64),
        held=held,
        is_hard=request.pdb == "hard",
        joint=claims.joint,
        is_exact=claims.is_exact,
    )


def choose_victims(
    fleet: EmptiedFleet,
    units: Sequence[int],
    nodes: Indices,
    steps: Sequence[Level | VictimLevel],
    *,
    node_limit: int,
    floor: Sequence[int] = (),
) -> VictimChoice | None:
    """Place units and choose victims, best in the steps; the fleet's state is left as it was.

    Args:
      fleet: Every possible victim gone.
      units: Units to place, indices into its problem.
      nodes: Nodes to use, ascending.
      steps: Compared in order.
      node_limit: Branch-and-bound nodes for each solve.
      floor: Values that the leading steps have to reach; a choice that does not is no use.

    Returns:
      None when nothing reaches the floor, or nothing was found within the limit.

    Raises:
      UndecidedError: Nothing was found, and it is not proven that there is nothing.
    """
    model = _Model(fleet, units, nodes)
    model.build()
    objectives, spans = model.write_objectives(steps)
    for objective, least in zip(objectives, floor, strict=False):
        model.mip.add_row(np.flatnonzero(objective), objective[objective != 0], low=least)
    # In one objective costs of victims hide what is placed from the relaxation of a large model.
    is_large = model.mip.num_variables > MAX_FOLDED
    apart = [i for i, s in enumerate(steps) if is_large and isinstance(s, VictimLevel)]
    result = model.mip.solve(objectives, spans, node_limit=node_limit, apart=apart)
    if result.values is None:
        if result.is_infeasible:
            return None
        raise UndecidedError
    values = result.values
    mark = fleet.state.mark()
    placements = {**model.trees.realise(values), **model.flats.realise(values)}
    fleet.state.undo(mark)
    score = tuple(round(float(objective @ values)) for objective in objectives)
    chosen = tuple(v for v, x in model.leaves.items() if round(values[x]) == 1)
    return VictimChoice(placements, chosen, score, result.proven, result.bounds)


@dataclass(slots=True)
class _Model:
    fleet: EmptiedFleet
    units: Sequence[int]
    nodes: Indices
    mip: MipModel = field(default_factory=MipModel)
    bins: list[Bin] = field(default_factory=list)
    loads: list[list[tuple[int, int, int]]] = field(default_factory=list)
    leaves: dict[int, int] = field(default_factory=dict)
    """Victim -> variable, for victims that can be of use here."""
    gives: dict[int, int] = field(default_factory=dict)
    """The same, and the variables of claims that victims share."""
    trees: TreeRows = field(init=False)
    flats: FlatRows = field(init=False)
    _domains: dict[int, Indices] = field(default_factory=dict)

    def build(self) -> None:
        problem, state = self.fleet.problem, self.fleet.state
        classes = sorted({t.pod_class for u in self.units for t in problem.units[u].tasks})
        self.bins = make_node_bins(state, self.nodes, classes)
        self.loads = [[] for _ in self.bins]
        blockers = list(find_blockers(problem, self.units, self.fleet.victims))
        leaving = list(find_leaving(problem, self.fleet.victims))
        useful = {v for b in self.bins for v in self.fleet.held.get(int(b.nodes[0]), ())}
        useful |= {b.victim for b in blockers} | {v for _, _, v, _ in leaving}
        shared = sorted(v for v in useful if v >= len(self.fleet.victims))
        sharers = {v: self.fleet.joint[v - len(self.fleet.victims)] for v in shared}
        useful = useful.difference(shared).union(*sharers.values())
        names = self.mip.add_variables(np.ones(len(useful))).tolist() if useful else []
        self.leaves = dict(zip(sorted(useful), names, strict=True))
        self.gives = dict(self.leaves)
        for claim, victims in sharers.items():
            self.gives[claim] = int(self.mip.add_variables(1)[0])
            for v in sorted(victims):
                self.mip.add_row([self.gives[claim], self.leaves[v]], [1, -1], up=0)
        self.trees = TreeRows(state, self.bins, self.mip, self.loads, {}, self._domain_of_bin)
        self.flats = FlatRows(
            state, self.bins, self.mip, self.loads, {}, self._domain_of_bin, shared=True
        )
        for t, domain, v, pods in leaving:
            self.trees.leaving.setdefault((t, domain), []).append((self.leaves[v], pods))
        # Whom a victim keeps out is a matter of single units.
        listed = {b.unit for b in blockers}
        for u in self.units:
            if u in listed or not self.flats.collect(u):
                self.trees.add(u)
        self.flats.add_pools()
        self.trees.finish()
        for b in range(len(self.bins)):
            self._add_room(b)
        entries = {entry.index: entry for entry in self.trees.entries}
        for unit, task, victim, where in blockers:
            bins, variables = entries[unit].pods[task]
            kept_out = [
                x
                for b, x in zip(bins.tolist(), variables.tolist(), strict=True)
                if where[self.bins[b].nodes[0]]
            ]
            if kept_out:
                limit = self.mip.count_at_most(kept_out)
                self.mip.add_row(
                    [*kept_out, self.leaves[victim]], [*([1] * len(kept_out)), -limit], up=0
                )

    def _domain_of_bin(self, column: int) -> Indices:
        if column not in self._domains:
            codes = self.fleet.problem.columns[column].codes
            found = [int(codes[b.nodes[0]]) if len(b.nodes) else NO_DOMAIN for b in self.bins]
            self._domains[column] = np.array(found, np.int64)
        return self._domains[column]

    def _add_room(self, b: int) -> None:
        """State that what comes and what stays fits one node, resource by resource."""
        load = self.loads[b]
        if not load:
            return
        n = int(self.bins[b].nodes[0])
        free = self.fleet.free[n]
        held = self.fleet.held.get(n, {})
        leaves = [self.gives[v] for v in held]
        classes = np.array([s for s, _, _ in load])
        pods = np.array([k for _, k, _ in load])
        variables = np.array([x for _, _, x in load])
        for r in range(len(free)):
            weight = self.fleet.requests[classes, r] * pods
            asks = weight > 0
            if not asks.any():
                continue
            amounts = np.array([amount[r] for amount in held.values()], np.int64)
            up = int(free[r] - amounts.sum())
            columns = [*variables[asks].tolist(), *leaves]
            entries = [*weight[asks].tolist(), *(-amounts).tolist()]
            if up < 0:
                # A node that is short of something already binds only those who ask for it.
                used = int(self.mip.add_variables(1)[0])
                limit = self.mip.count_at_most(variables[asks])
                ones = [1] * int(asks.sum())
                self.mip.add_row([*variables[asks].tolist(), used], [*ones, -limit], up=0)
                columns, entries, up = [*columns, used], [*entries, -up], 0
            step = int(np.gcd.reduce(np.abs(entries)))
            self.mip.add_row(columns, np.array(entries) // step, up=up // step)
        for s in sorted(set(classes.tolist())):
            self._add_cuts(b, s, variables[classes == s], pods[classes == s])

    def _add_cuts(self, b: int, pod_class: int, variables: Indices, pods: Indices) -> None:
        """State for each victim what its staying leaves room for: implied, and much tighter."""
        n = int(self.bins[b].nodes[0])
        request = self.fleet.requests[pod_class]
        asked = np.flatnonzero(request)
        most = int(self.bins[b].fits[pod_class])
        for v, amount in self.fleet.held.get(n, {}).items():
            if asked.size == 0:
                continue
            room = (self.fleet.free[n] - amount)[asked] // request[asked]
            beside = max(int(room.min()), 0)
            if beside < most:
                columns = [*variables.tolist(), self.gives[v]]
                self.mip.add_row(columns, [*pods.tolist(), beside - most], up=beside)

    def write_objectives(
        self, steps: Sequence[Level | VictimLevel]
    ) -> tuple[list[NDArray[np.float64]], list[int]]:
        """Return the objective of each step, and a limit of what it can differ by."""
        victims = {step: self._price(step) for step in steps if isinstance(step, VictimLevel)}
        if self.fleet.is_hard:
            self._hold_budgets()
        objectives, spans = [], []
        for step in steps:
            objective = np.zeros(self.mip.num_variables)
            span = 0
            if isinstance(step, VictimLevel):
                for x, cost in victims[step].items():
                    objective[x] = -cost
                    span += cost * self.mip.count_at_most([x])
            else:
                span = self.trees.add_objective(objective, step)
                span += self.flats.add_objective(objective, step)
            objectives.append(objective)
            spans.append(span)
        return objectives, spans

    def _price(self, step: VictimLevel) -> dict[int, int]:
        """Return variable -> cost of one criterion, beyond what is paid already."""
        victims = self.fleet.victims
        counted = {
            v: x
            for v, x in self.leaves.items()
            if step.least is None or victims[v].priority >= step.least
        }
        match step.criterion:
            case "victimPods":
                return {x: len(victims[v].pods) for v, x in counted.items()}
            case "victimGpus":
                return {x: victims[v].gpus for v, x in counted.items()}
            case "gpuSecondsLost":
                return {x: victims[v].lost for v, x in counted.items()}
            case "weightedVictimGpus":
                # Evicting must never look like a gain, so a negative priority costs nothing.
                return {
                    x: max(victims[v].priority, 0) * victims[v].gpus for v, x in counted.items()
                }
            case "victimUnits":
                return self._price_units(counted)
            case "highestVictimPriority":
                return self._price_highest(counted)
            case _:
                return self._price_budgets(counted)

    def _price_units(self, counted: Mapping[int, int]) -> dict[int, int]:
        paid = {victim.unit for victim in self.fleet.gone}
        of_unit: dict[tuple[int, int], list[int]] = {}
        for v, x in counted.items():
            of_unit.setdefault(self.fleet.victims[v].unit, []).append(x)
        prices: dict[int, int] = {}
        for unit, parts in of_unit.items():
            if unit in paid:
                continue
            if len(parts) == 1:
                prices[parts[0]] = 1
                continue
            any_of_it = int(self.mip.add_variables(1)[0])
            for x in parts:
                self.mip.add_row([x, any_of_it], [1, -1], up=0)
            prices[any_of_it] = 1
        return prices

    def _price_highest(self, counted: Mapping[int, int]) -> dict[int, int]:
        """Pay one for every priority up to the highest that goes: the order is the same."""
        levels = sorted({self.fleet.victims[v].priority for v in counted})
        paid = max((victim.priority for victim in self.fleet.gone), default=None)
        reaches = self.mip.add_variables(np.ones(len(levels))).tolist() if levels else []
        for lower, upper in itertools.pairwise(reaches):
            self.mip.add_row([upper, lower], [1, -1], up=0)
        rank = dict(zip(levels, reaches, strict=True))
        for v, x in counted.items():
            self.mip.add_row([x, rank[self.fleet.victims[v].priority]], [1, -1], up=0)
        return {x: 1 for p, x in rank.items() if paid is None or p > paid}

    def _covered(self, counted: Mapping[int, int]) -> dict[int, tuple[int, list[int], list[int]]]:
        """Return budget -> (pods evicted already, variables, pods of each)."""
        found: dict[int, tuple[int, list[int], list[int]]] = {}
        for v, x in counted.items():
            for b, pods in self.fleet.victims[v].budgets:
                before = sum(n for g in self.fleet.gone for c, n in g.budgets if c == b)
                _, variables, counts = found.setdefault(b, (before, [], []))
                variables.append(x)
                counts.append(pods)
        return found

    def _price_budgets(self, counted: Mapping[int, int]) -> dict[int, int]:
        prices: dict[int, int] = {}
        for b, (before, variables, counts) in sorted(self._covered(counted).items()):
            allowed = max(self.fleet.problem.snapshot.budgets[b].allowed, 0)
            left = max(allowed - before, 0)
            excess = int(self.mip.add_variables(sum(counts))[0])
            self.mip.add_row([*variables, excess], [*counts, -1], up=left)
            prices[excess] = 1
        return prices

    def _hold_budgets(self) -> None:
        for b, (before, variables, counts) in sorted(self._covered(self.leaves).items()):
            allowed = max(self.fleet.problem.snapshot.budgets[b].allowed, 0)
            self.mip.add_row(variables, counts, up=max(allowed - before, 0))
