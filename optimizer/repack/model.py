"""A piece of the fleet as one HiGHS model: who moves where, what is placed, what comes free.

Of a kind, whole numbers leave and come to each node; a unit that restarts as a whole gives back
what it holds everywhere and is placed anew by the rows of `optimizer.search.tree_rows`, next to
what waits. Every constraint is one of the fleet as it will be in the end; the order of the moves is
`optimizer.repack.order`'s business.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.decode import replay
from optimizer.objective import PLACE_CRITERIA, Level
from optimizer.repack.fleet import make_kind_unit
from optimizer.search.bins import make_node_bins
from optimizer.search.mip import MipModel
from optimizer.search.tree_rows import TreeRows
from topology.levels import NO_DOMAIN
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.steps import MoveLevel
    from optimizer.search.bins import Bin

    Indices = NDArray[np.int64]

__all__ = ["Piece", "PieceModel", "PieceResult"]

MAX_CUTS: Final = 8
"""Pods of one kind on one node up to which a cut for larger pods is worked out."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one model decides anew."""

    nodes: Indices
    """Ascending; nothing outside is touched."""
    pending: tuple[int, ...]
    """Units to place, those placed already and lying inside included."""
    wholes: tuple[int, ...]
    """Units that restart as a whole and lie inside."""
    kinds: tuple[int, ...]
    """Kinds whose pods inside may move."""
    targets: tuple[tuple[int, Indices], ...] = ()
    """(goal, nodes) of the domains inside that may be emptied; goal -1: a drained node."""
    quotas: tuple[tuple[int, int], ...] = ()
    """(goal, most domains to empty for it)."""
    prizes: tuple[tuple[int, Indices], ...] = ()
    """(worth, nodes) of the domains inside that fragmentation counts where they are wholly free."""
    moves_left: int | None = None
    disturbed_left: int | None = None


@dataclass(frozen=True, slots=True)
class PieceResult:
    """A solution of one piece."""

    placements: dict[int, UnitPlacement]
    """Pending units."""
    restarts: dict[int, UnitPlacement]
    """Whole movers that restart, and where."""
    leaves: dict[tuple[int, int], int]
    """(kind, node) -> pods that leave."""
    arrivals: dict[int, dict[int, int]]
    """Kind -> node -> pods that come."""
    score: tuple[int, ...]
    proven: int
    bounds: tuple[float, ...]
    values: NDArray[np.float64]
    """f64[variables] of the model."""


@dataclass(slots=True)
class PieceModel:
    """Builds, solves and reads back the model of one piece."""

    fleet: MovableFleet
    piece: Piece
    steps: Sequence[Level | MoveLevel]
    mip: MipModel = field(default_factory=MipModel)
    bins: list[Bin] = field(default_factory=list)
    trees: TreeRows = field(init=False)
    is_infeasible: bool = False
    """The last solve proved that there is no (further) solution."""
    _loads: list[list[tuple[int, int, int]]] = field(default_factory=list)
    _stand: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    """Node -> kind -> pods, within the piece."""
    _touched: dict[int, int] = field(default_factory=dict)
    """Whole mover -> variable."""
    _leaves: dict[tuple[int, int], int] = field(default_factory=dict)
    _moved: dict[tuple[int, int], int] = field(default_factory=dict)
    """(kind, node) -> pods there that the plan moved before: they cost nothing more."""
    _emptied: list[tuple[int, int]] = field(default_factory=list)
    """(goal, variable)."""
    _prized: list[tuple[int, int]] = field(default_factory=list)
    """(worth, variable)."""
    _units: dict[int, int] = field(default_factory=dict)
    """`all` group -> variable: one of its pods moves alone."""
    _fresh: dict[tuple[int, int], int] = field(default_factory=dict)
    """(kind, node) -> variable: pods leaving it that had not been moved before."""
    _domains: dict[int, Indices] = field(default_factory=dict)
    _objectives: list[NDArray[np.float64]] = field(default_factory=list)
    _spans: list[int] = field(default_factory=list)

    def solve(self, node_limit: int) -> PieceResult | None:
        """Solve the piece; the fleet's state is as before afterwards. May be called again."""
        state = self.fleet.state
        mark = state.mark()
        try:
            if not self._objectives:
                self._lift()
                self._build()
                self._objectives, self._spans = self._write_objectives()
                self._add_budgets()
            size = self.mip.num_variables
            objectives = [np.pad(o, (0, size - len(o))) for o in self._objectives]
            result = self.mip.solve(objectives, self._spans, node_limit=node_limit)
            if result.values is None:
                self.is_infeasible = result.is_infeasible
                return None
            return self._read(result.values, objectives, result.proven, result.bounds)
        finally:
            state.undo(mark)

    def forbid(self, result: PieceResult) -> None:
        """Keep the next solution from moving exactly what this one moves to the same nodes."""
        columns: list[int] = []
        signs: list[int] = []
        constant = 0
        for x in self._decided:
            value, most = round(float(result.values[x])), self.mip.count_at_most([x])
            if value == 0:
                columns, signs = [*columns, x], [*signs, 1]
            elif value == most:
                columns, signs = [*columns, x], [*signs, -1]
                constant += most
            else:
                more, less = self.mip.add_variables([1, 1]).tolist()
                self.mip.add_row([x, more], [1, -(value + 1)], low=0)
                self.mip.add_row([x, less], [1, most - value + 1], up=most)
                columns, signs = [*columns, more, less], [*signs, 1, 1]
        self.mip.add_row(columns, signs, low=1 - constant)

    @property
    def _decided(self) -> list[int]:
        """Variables that say what moves where."""
        of_movers = [
            x
            for entry in self.trees.entries
            if entry.index not in self.piece.pending
            for _, variables in entry.pods.values()
            for x in variables.tolist()
        ]
        return [*self._leaves.values(), *self._touched.values(), *of_movers]

    # What stands in the piece is lifted, so that state and bins are those of an empty piece.
    def _lift(self) -> None:
        fleet, piece = self.fleet, self.piece
        inside = np.zeros(len(fleet.problem.free), bool)
        inside[piece.nodes] = True
        wanted = set(piece.kinds)
        for k in piece.kinds:
            for p in fleet.kinds[k].pods:
                n = fleet.where[p]
                if inside[n]:
                    self._stand.setdefault(n, {}).setdefault(k, []).append(p)
        for n, of_kind in self._stand.items():
            for k, pods in of_kind.items():
                if k in wanted:
                    fleet.state.lift(fleet.kinds[k].pod_class, np.array([n]), np.array([len(pods)]))
        for u in piece.wholes:
            replay(fleet.state, fleet.problem.units[u], fleet.fills_at(u), lift=True)
        for u in piece.pending:
            if u in fleet.placements:
                replay(fleet.state, fleet.problem.units[u], fleet.placements[u], lift=True)

    def _build(self) -> None:
        fleet, piece = self.fleet, self.piece
        units = fleet.problem.units
        classes = {t.pod_class for u in (*piece.pending, *piece.wholes) for t in units[u].tasks}
        classes |= {fleet.kinds[k].pod_class for k in piece.kinds}
        self.bins = make_node_bins(fleet.state, piece.nodes, sorted(classes))
        self._loads = [[] for _ in self.bins]
        self.trees = TreeRows(
            fleet.state, self.bins, self.mip, self._loads, {}, self._domain_of_bin
        )
        open_nodes = np.ones(len(fleet.problem.free), bool)
        open_nodes[fleet.goals.drained] = False
        for u in piece.pending:
            self.trees.add(u, within=open_nodes)
        for u in piece.wholes:
            self._add_whole(u, open_nodes)
        for k in piece.kinds:
            self._add_kind(k)
        self._add_standing()
        self.trees.finish()
        self._add_units()
        self._add_room()
        for goal, nodes in piece.targets:
            self._emptied.append((goal, self._add_emptied(nodes)))
        for worth, nodes in piece.prizes:
            self._prized.append((worth, self._add_emptied(nodes, only_gpus=True)))
        for goal, most in piece.quotas:
            chosen = [x for g, x in self._emptied if g == goal]
            if chosen and len(chosen) > most:
                self.mip.add_row(chosen, 1, up=most)

    def _domain_of_bin(self, column: int) -> Indices:
        if column not in self._domains:
            codes = self.fleet.problem.columns[column].codes
            self._domains[column] = np.array([int(codes[b.nodes[0]]) for b in self.bins], np.int64)
        return self._domains[column]

    def _add_whole(self, u: int, open_nodes: NDArray[np.bool_]) -> None:
        """Place a unit anew where it restarts; then all of its pods find a node."""
        unit = self.fleet.problem.units[u]
        self.trees.add(u, within=open_nodes)
        entry = self.trees.entries[-1]
        touched = entry.success[0]
        self._touched[u] = touched
        for t, task in enumerate(unit.tasks):
            _, variables = entry.pods[t]
            ones = np.ones(len(variables))
            self.mip.add_row(np.r_[variables, touched], np.r_[ones, -task.count], 0, 0)

    def _add_kind(self, k: int) -> None:
        kind = self.fleet.kinds[k]
        here = {n: of[k] for n, of in sorted(self._stand.items()) if k in of}
        if not here:
            return
        pods = tuple(p for found in here.values() for p in found)
        self.trees.add(-1 - k, make_kind_unit(kind, pods), kind.mask)
        _, arrivals = self.trees.entries[-1].pods[0]
        leaves = self.mip.add_variables([len(found) for found in here.values()])
        for (n, found), x in zip(here.items(), leaves.tolist(), strict=True):
            self._leaves[k, n] = x
            moved = sum(self.fleet.is_moved(p) for p in found)
            fresh = x
            if moved:
                # Pods that the plan moved before go first, at no further cost.
                fresh = int(self.mip.add_variables(len(found) - moved)[0])
                self.mip.add_row([x, fresh], [1, -1], up=moved)
            self._moved[k, n] = moved
            self._fresh[k, n] = fresh
        ones = np.r_[np.ones(len(arrivals)), -np.ones(len(leaves))]
        self.mip.add_row(np.r_[arrivals, leaves], ones, 0, 0)

    def _add_units(self) -> None:
        """Charge the members of an `all` group once when any pod of it moves alone."""
        for (k, n), x in self._fresh.items():
            unit = self.fleet.kinds[k].unit
            if unit == NO_GROUP:
                continue
            if unit not in self._units:
                self._units[unit] = int(self.mip.add_variables(1)[0])
            most = len(self._stand[n][k])
            self.mip.add_row([x, self._units[unit]], [1, -most], up=0)

    def _add_room(self) -> None:
        """State that what comes and what stays fits each node, resource by resource."""
        problem, state = self.fleet.problem, self.fleet.state
        at = self._held_by_wholes()
        for b, load in enumerate(self._loads):
            if not load:
                continue
            n = int(self.bins[b].nodes[0])
            classes = np.array([s for s, _, _ in load])
            variables = np.array([x for _, _, x in load])
            stays: list[tuple[int, int, Indices]] = []
            for k, pods in self._stand.get(n, {}).items():
                request = problem.requests[self.fleet.kinds[k].pod_class].astype(np.int64)
                stays.append((self._leaves[k, n], len(pods), request))
            for u, held in at.get(n, {}).items():
                stays.append((self._touched[u], 1, held))
            for r in range(state.free.shape[1]):
                self._add_resource(n, r, classes, variables, stays)
            for s in sorted(set(classes.tolist())):
                self._add_cuts(b, s, variables[classes == s], stays)

    def _held_by_wholes(self) -> dict[int, dict[int, Indices]]:
        """Return node -> whole mover -> i64[R] that it holds there."""
        problem = self.fleet.problem
        found: dict[int, dict[int, Indices]] = {}
        for u in self.piece.wholes:
            unit = problem.units[u]
            for fill in self.fleet.fills_at(u):
                request = problem.requests[unit.tasks[fill.task].pod_class].astype(np.int64)
                for n, count in zip(fill.nodes.tolist(), fill.counts.tolist(), strict=True):
                    of_node = found.setdefault(n, {})
                    of_node[u] = of_node.get(u, 0) + request * count
        return found

    def _add_resource(
        self,
        n: int,
        r: int,
        classes: Indices,
        variables: Indices,
        stays: Sequence[tuple[int, int, Indices]],
    ) -> None:
        weight = self.fleet.problem.requests[classes, r].astype(np.int64)
        asks = weight > 0
        if not asks.any():
            return
        amounts = np.array([amount[r] for _, _, amount in stays], np.int64)
        counts = np.array([count for _, count, _ in stays], np.int64)
        up = int(self.fleet.state.free[n, r] - (amounts * counts).sum())
        columns = [*variables[asks].tolist(), *(x for x, _, _ in stays)]
        entries = [*weight[asks].tolist(), *(-amounts).tolist()]
        if up < 0:
            # A node that is short of something already binds only those who ask for it.
            used = int(self.mip.add_variables(1)[0])
            limit = self.mip.count_at_most(variables[asks])
            ones = [1] * int(asks.sum())
            self.mip.add_row([*variables[asks].tolist(), used], [*ones, -limit], up=0)
            columns, entries, up = [*columns, used], [*entries, -up], 0
        step = max(int(np.gcd.reduce(np.abs(entries))), 1)
        self.mip.add_row(columns, np.array(entries) // step, up=up // step)

    def _add_cuts(
        self,
        b: int,
        pod_class: int,
        variables: Indices,
        stays: Sequence[tuple[int, int, Indices]],
    ) -> None:
        """State what staying pods leave room for: implied, and much tighter than the amounts."""
        request = self.fleet.problem.requests[pod_class].astype(np.int64)
        asked = np.flatnonzero(request)
        if asked.size == 0:
            return
        free = self.fleet.state.free[int(self.bins[b].nodes[0])]
        most = int(self.bins[b].fits[pod_class])
        for x, count, amount in stays:
            if count > MAX_CUTS:
                continue
            # Room falls by at least `slope` for each pod that stays.
            slope = float(most)
            for j in range(1, count + 1):
                room = int(((free - j * amount)[asked] // request[asked]).min())
                slope = min(slope, (most - max(room, 0)) / j)
            if slope > 0:
                ones = [1.0] * len(variables)
                self.mip.add_row([*variables.tolist(), x], [*ones, -slope], up=most - slope * count)

    def _add_standing(self) -> None:
        """Let pods that stay keep others out of their domains, as those who come do."""
        self._add_owned()
        tables = self.fleet.problem.interactions
        for t, conflict in enumerate(tables.conflicts):
            self._add_repelled(t, conflict.codes)
        for t, spread in enumerate(tables.spreads):
            for u in self.piece.wholes:
                unit = self.fleet.problem.units[u]
                counts: dict[int, int] = {}
                for fill in self.fleet.fills_at(u):
                    signature = self.fleet.problem.signatures[unit.tasks[fill.task].pod_class]
                    if not signature.spread_matched >> t & 1:
                        continue
                    for n, count in zip(fill.nodes.tolist(), fill.counts.tolist(), strict=True):
                        domain = int(spread.codes[n])
                        if domain != NO_DOMAIN:
                            counts[domain] = counts.get(domain, 0) + count
                for domain, count in sorted(counts.items()):
                    self.trees.leaving.setdefault((t, domain), []).append((self._touched[u], count))

    def _add_owned(self) -> None:
        """Let a whole mover that does not restart hold its exclusive domains."""
        tables = self.fleet.problem.interactions.exclusive
        for u in self.piece.wholes:
            unit = self.fleet.problem.units[u]
            stays: int | None = None
            fills = self.fleet.fills_at(u)
            for at, node in enumerate(unit.tree):
                inside = set(unit.walk(at))
                nodes = [f.nodes for f in fills if unit.tasks[f.task].leaf in inside]
                if not node.exclusive or not nodes:
                    continue
                if stays is None:
                    stays = int(self.mip.add_variables(1)[0])
                    self.mip.add_row([stays, self._touched[u]], [1, 1], 1, 1)
                for rule in node.exclusive:
                    codes = np.unique(tables[rule.rule].codes[np.concatenate(nodes)])
                    for domain in codes[codes != NO_DOMAIN].tolist():
                        self.trees.stand(rule, domain, stays)

    def _add_repelled(self, t: int, codes: NDArray[np.int32]) -> None:
        """Keep a conflict's two sides apart where one of them may stay."""
        signatures = self.fleet.problem.signatures
        roles = [(s.holds >> t & 1) | (s.matched >> t & 1) << 1 for s in signatures]
        if not any(roles):
            return
        arriving = self.trees.each_pod_variable(codes, roles)
        for domain, role, has_left in self._find_repellers(t, codes, roles):
            # Holders (1) repel matched (2), and the other way round; 3 is both.
            opposed = [r for r in (1, 2, 3) if (role & 1 and r & 2) or (role & 2 and r & 1)]
            kept_out = [x for r in opposed for x in arriving[r][domain]]
            if kept_out:
                limit = self.mip.count_at_most(kept_out)
                self.mip.add_row([*kept_out, has_left], [*([1] * len(kept_out)), -limit], up=0)

    def _find_repellers(
        self, t: int, codes: NDArray[np.int32], roles: Sequence[int]
    ) -> list[tuple[int, int, int]]:
        """Return (domain, role, variable that is 1 only where they have left) of all who stand."""
        found: list[tuple[int, int, int]] = []
        for n, of_kind in sorted(self._stand.items()):
            domain = int(codes[n])
            for k, pods in of_kind.items():
                role = roles[self.fleet.kinds[k].pod_class]
                if role and domain != NO_DOMAIN:
                    gone = int(self.mip.add_variables(1)[0])
                    self.mip.add_row([self._leaves[k, n], gone], [1, -len(pods)], low=0)
                    found.append((domain, role, gone))
        for u in self.piece.wholes:
            unit = self.fleet.problem.units[u]
            for fill in self.fleet.fills_at(u):
                role = roles[unit.tasks[fill.task].pod_class]
                if role:
                    domains = np.unique(codes[fill.nodes])
                    found += [(d, role, self._touched[u]) for d in domains[domains >= 0].tolist()]
        return found

    def _add_emptied(self, nodes: Indices, *, only_gpus: bool = False) -> int:
        """Add a yes/no for a domain: everything in it leaves, and nothing comes.

        Args:
          nodes: The domain.
          only_gpus: What asks for no GPU does not count.
        """
        gpus = self.fleet.problem.class_gpus
        x = int(self.mip.add_variables(1)[0])
        inside = set(nodes.tolist())
        for n in sorted(inside):
            for k, pods in self._stand.get(n, {}).items():
                if gpus[self.fleet.kinds[k].pod_class] or not only_gpus:
                    self.mip.add_row([self._leaves[k, n], x], [1, -len(pods)], low=0)
        for u in self.piece.wholes:
            tasks = self.fleet.problem.units[u].tasks
            counted = [
                f.nodes.tolist()
                for f in self.fleet.fills_at(u)
                if gpus[tasks[f.task].pod_class] or not only_gpus
            ]
            if any(not inside.isdisjoint(found) for found in counted):
                self.mip.add_row([self._touched[u], x], [1, -1], low=0)
        for b, load in enumerate(self._loads):
            if load and int(self.bins[b].nodes[0]) in inside:
                variables = [v for s, _, v in load if gpus[s] or not only_gpus]
                if variables:
                    limit = self.mip.count_at_most(variables)
                    ones = [1] * len(variables)
                    self.mip.add_row([*variables, x], [*ones, limit], up=limit)
        return x

    def _cost(self, criterion: str) -> dict[int, int]:
        """Return variable -> what one of it adds to a criterion of moves."""
        fleet = self.fleet
        cost: dict[int, int] = {}
        for (k, _), x in self._fresh.items():
            kind = fleet.kinds[k]
            if criterion == "movedGpus":
                cost[x] = kind.gpus
            elif criterion == "moves" or kind.unit == NO_GROUP:
                cost[x] = 1
        if criterion == "disturbedPods":
            for unit, x in self._units.items():
                cost[x] = fleet.movers.members[unit]
        for u, x in self._touched.items():
            if u not in fleet.touched:
                unit_ = fleet.problem.units[u]
                cost[x] = unit_.gpus if criterion == "movedGpus" else unit_.num_pods
        return cost

    def _add_budgets(self) -> None:
        for left, criterion in (
            (self.piece.moves_left, "moves"),
            (self.piece.disturbed_left, "disturbedPods"),
        ):
            cost = self._cost(criterion)
            if left is not None and cost:
                self.mip.add_row(list(cost), list(cost.values()), up=left)

    def _write_objectives(self) -> tuple[list[NDArray[np.float64]], list[int]]:
        objectives, spans = [], []
        pending = frozenset(self.piece.pending)
        for step in self.steps:
            objective = np.zeros(self.mip.num_variables)
            span = 0
            if isinstance(step, Level) and step.criterion in PLACE_CRITERIA:
                span = self.trees.add_objective(objective, step, pending)
            else:
                for x, worth in self._worth(step.criterion).items():
                    objective[x] = worth
                    span += abs(worth) * self.mip.count_at_most([x])
            objectives.append(objective)
            spans.append(span)
        return objectives, spans

    def _worth(self, criterion: str) -> dict[int, int]:
        """Return variable -> worth, more is better, of a criterion that is not of placing."""
        match criterion:
            case "drained":
                return {x: 1 for goal, x in self._emptied if goal < 0}
            case "domainsFreed":
                return {x: 1 for goal, x in self._emptied if goal >= 0}
            case "fragmentation":
                return {x: worth for worth, x in self._prized}
            case _:
                return {x: -cost for x, cost in self._cost(criterion).items()}

    def _read(
        self,
        values: NDArray[np.float64],
        objectives: Sequence[NDArray[np.float64]],
        proven: int,
        bounds: tuple[float, ...],
    ) -> PieceResult:
        read = self.trees.realise(values)
        leaves = {key: round(float(values[x])) for key, x in self._leaves.items()}
        arrivals: dict[int, dict[int, int]] = {}
        for index, placement in read.items():
            if index < 0:
                fill = placement[0]
                counts = zip(fill.nodes.tolist(), fill.counts.tolist(), strict=True)
                arrivals[-1 - index] = dict(counts)
        for k, counts_at in arrivals.items():
            for n in list(counts_at):
                both = min(counts_at[n], leaves.get((k, n), 0))
                if both:
                    counts_at[n] -= both
                    leaves[k, n] -= both
        return PieceResult(
            placements={u: read[u] for u in self.piece.pending if u in read},
            restarts={u: read[u] for u, x in self._touched.items() if round(float(values[x])) == 1},
            leaves={key: count for key, count in leaves.items() if count},
            arrivals=arrivals,
            score=tuple(round(float(o @ values)) for o in objectives),
            proven=proven,
            bounds=bounds,
            values=values,
        )
