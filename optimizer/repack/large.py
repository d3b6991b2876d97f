"""Fleets beyond one model: goal after goal, by selection, greedy relocation and exact pieces.

Drained nodes first, then the groups that wait, then domains to empty, then fragmentation. What is
asked of a domain is first tried greedily (lift what stands there, place it elsewhere); where that
fails, a piece of the fleet with the domain and nodes that could take its contents is solved
exactly, chains of displacements included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.decode import place_unit, replay
from optimizer.problem import build_problem
from optimizer.repack.apply import adopt
from optimizer.repack.defragment import Defragmentation
from optimizer.repack.model import PieceModel
from optimizer.repack.pieces import make_piece
from optimizer.repack.receivers import (
    add_receivers,
    count_movable,
    find_whole_nodes,
    rank_domains,
)
from optimizer.repack.relocate import Residents, empty_nodes
from optimizer.repack.selection import select_domains
from optimizer.repack.steps import MOVE_CRITERIA, MoveLevel
from optimizer.search.place import search_placement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.objective import Level
    from optimizer.repack.fleet import MovableFleet
    from optimizer.repack.goals import DomainGoal
    from optimizer.repack.model import Piece, PieceResult

    Indices = NDArray[np.int64]

__all__ = ["Pieces"]

DOMAINS_TRIED: Final = {"quick": 4, "normal": 12, "thorough": 48}
"""Domains in which room is made for one group before the best is taken, by effort."""
MANY_GROUPS: Final = 8
"""Waiting groups beyond which room is made greedily first, where it can be."""
PIECE_VARIABLES: Final = 6_000
"""Variables of one piece, roughly."""
MAX_SELECTIONS: Final = 24
"""Times that a selection is corrected for domains that could not be emptied."""
PIECE_NODES: Final = 400
"""Branch-and-bound nodes of each solve of a piece."""


class Pieces:
    """One search over one fleet that is too large for one model."""

    def __init__(
        self,
        fleet: MovableFleet,
        steps: Sequence[Level | MoveLevel],
        say: Callable[[str], None],
        *,
        emptiest_first: bool = False,
    ) -> None:
        self.fleet = fleet
        self.emptiest_first = emptiest_first
        """Empty domains in the order of what stands there, not those a relaxation selects."""
        self.steps = steps
        self.say = say
        self.open = np.ones(len(fleet.problem.free), bool)
        """bool[N] nodes that may take something: neither drained nor emptied for a goal."""
        self.open[fleet.goals.drained] = False
        for goal in fleet.goals.frees:
            for d in goal.kept_empty:
                self.open[goal.domains[d]] = False
        self.residents = Residents(fleet)
        self.least: dict[str, int] | None = None
        """What reaching the only goal costs at least; None where that is not known."""
        named = [s.criterion for s in steps if isinstance(s, MoveLevel)]
        self.criteria = [c for c in named if c in MOVE_CRITERIA]

    def run(self) -> None:
        """Serve every goal in turn; the plan so far is always feasible."""
        self._drain()
        self._place_groups()
        for goal in self.fleet.goals.frees:
            if self.emptiest_first:
                self._free_emptiest(goal)
            else:
                self._free(goal)
        if not self.fleet.pending and self.fleet.goals.is_none:
            Defragmentation(self.fleet, self.residents, self.say).run()

    def _solve(
        self, nodes: Indices, pending: Sequence[int] = ()
    ) -> tuple[Piece, PieceResult] | None:
        """Solve the piece of some nodes; None when nothing was found."""
        piece = make_piece(self.fleet, nodes, pending, prizes=())
        result = PieceModel(self.fleet, piece, self.steps).solve(PIECE_NODES)
        return None if result is None else (piece, result)

    def _adopt(self, piece: Piece, result: PieceResult) -> None:
        adopt(self.fleet, piece, result)
        self.residents = Residents(self.fleet)

    def _drain(self) -> None:
        drained = self.fleet.goals.drained
        if not len(drained):
            return
        self.say(f"emptying {len(drained)} nodes")
        if empty_nodes(self.fleet, self.residents, drained, self.open):
            return
        for n in drained.tolist():
            alone = np.array([n])
            if not empty_nodes(self.fleet, self.residents, alone, self.open):
                nodes = add_receivers(self.fleet, self.residents, alone, PIECE_VARIABLES, self.open)
                found = self._solve(nodes)
                if found is not None:
                    self._adopt(*found)

    def _place_groups(self) -> None:
        """Place what fits as things stand, then make room for the others, one after another."""
        fleet = self.fleet
        if not fleet.pending:
            return
        for u, placement in _place_without_moves(fleet, self.say).items():
            nodes = np.concatenate([f.nodes for f in placement])
            if self.open[nodes].all():
                replay(fleet.state, fleet.problem.units[u], placement)
                fleet.placements[u] = placement
        fleet.state.forget_journal()
        waiting = [u for u in fleet.pending if u not in fleet.placements]
        for u in waiting:
            if len(waiting) <= MANY_GROUPS or not self._clear_nodes(u):
                self._make_room(u)

    def _clear_nodes(self, u: int) -> bool:
        """Make room for a gang of whole-node pods greedily: empty the nodes that are used least.

        Where many groups wait, a model for each of them would take its time for little gain.
        """
        fleet = self.fleet
        unit = fleet.problem.units[u]
        need = find_whole_nodes(fleet, u)
        if need is None:
            return False
        for domain in rank_domains(fleet, u, self.open, 1):
            used = self.residents.count_each(domain)
            free = np.maximum(fleet.state.node_gpus[domain], 0)
            order = domain[np.lexsort((domain, used, -free))][:need]
            busy = order[self.residents.count_each(order) > 0]
            allowed = self.open.copy()
            allowed[order] = False
            # Free nodes are what others wait for; whoever gives way goes where work is already.
            allowed &= self.residents.count_each(np.arange(len(allowed))) > 0
            if len(busy) and not empty_nodes(fleet, self.residents, busy, allowed):
                return False
            placement = place_unit(fleet.state, unit, within=np.sort(order))
            if placement is None:
                return False
            fleet.placements[u] = placement
            fleet.state.forget_journal()
            return True
        return False

    def _make_room(self, u: int) -> None:
        unit = self.fleet.problem.units[u]
        tried = DOMAINS_TRIED[self.fleet.request.effort]
        domains = rank_domains(self.fleet, u, self.open, tried)
        self.say(f"making room for {unit.ref} in {len(domains)} domains")
        best: tuple[Piece, PieceResult] | None = None
        for domain in domains:
            nodes = add_receivers(self.fleet, self.residents, domain, PIECE_VARIABLES, self.open)
            found = self._solve(nodes, (u,))
            is_placed = found is not None and u in found[1].placements
            if found and is_placed and (best is None or found[1].score > best[1].score):
                best = found
        if best is not None:
            self._adopt(*best)

    def _free_emptiest(self, goal: DomainGoal) -> None:
        """Empty the domains with the fewest GPUs in use, one after another, greedily."""
        used = count_movable(self.fleet)
        order = sorted(goal.candidates, key=lambda d: (int(used[goal.domains[d]].sum()), d))
        done: set[int] = set()
        for d in order:
            self._count_done(goal, done)
            if len(done) >= goal.wanted:
                return
            nodes = goal.domains[d]
            if d not in done and not self._is_used(nodes):
                empty_nodes(self.fleet, self.residents, nodes, self.open)

    def _free(self, goal: DomainGoal) -> None:
        """Empty the cheapest domains that can be; those that cannot give way to others."""
        banned: set[int] = set()
        done: set[int] = set()
        is_alone = len(self.fleet.goals.frees) == 1 and not self.fleet.pending
        is_alone = is_alone and not len(self.fleet.goals.drained)
        for attempt in range(MAX_SELECTIONS):
            self._count_done(goal, done)
            left = goal.wanted - len(done)
            if left <= 0:
                return
            offered = [d for d in goal.candidates if d not in banned | done]
            chosen = self._select(goal, offered, left, first=attempt == 0 and is_alone)
            if not chosen:
                return
            self.say(f"emptying {len(chosen)} domains of {goal.goal.key}")
            taken = np.concatenate([goal.domains[d] for d in chosen])
            allowed = self.open.copy()
            allowed[taken] = False
            for d in chosen:
                if self._empty(goal.domains[d], allowed):
                    done.add(d)
                    self.open[goal.domains[d]] = False
                else:
                    banned.add(d)
                    allowed[goal.domains[d]] = self.open[goal.domains[d]]

    def _count_done(self, goal: DomainGoal, done: set[int]) -> None:
        """Add the domains that came to be empty on the way."""
        for d in goal.candidates:
            nodes = goal.domains[d]
            if d not in done and not self.residents.count(nodes) and not self._is_used(nodes):
                done.add(d)
                self.open[nodes] = False

    def _is_used(self, nodes: Indices) -> bool:
        """Tell whether something that waited was placed on some nodes."""
        return any(
            np.isin(fill.nodes, nodes).any()
            for placement in self.fleet.placements.values()
            for fill in placement
        )

    def _select(
        self, goal: DomainGoal, offered: list[int], wanted: int, *, first: bool
    ) -> list[int]:
        offered = [d for d in offered if not self._is_used(goal.domains[d])]
        domains = [goal.domains[d] for d in offered]
        if not domains:
            return []
        found = None
        for with_slots in (True, False):
            chosen = select_domains(
                self.fleet,
                self.residents,
                domains,
                wanted,
                with_slots=with_slots,
                node_limit=PIECE_NODES * 5,
                criteria=self.criteria,
            )
            if first and not with_slots and chosen is not None and chosen.is_optimal:
                kept = len(goal.kept_empty)
                self.least = {"domainsFreed": len(chosen.domains) + kept, **chosen.cost}
            if chosen is not None and (found is None or len(chosen.domains) > len(found.domains)):
                found = chosen
            if found is not None and len(found.domains) == wanted and not first:
                break
        return [] if found is None else [offered[i] for i in found.domains]

    def _empty(self, domain: Indices, allowed: NDArray[np.bool_]) -> bool:
        if empty_nodes(self.fleet, self.residents, domain, allowed):
            return True
        nodes = add_receivers(self.fleet, self.residents, domain, PIECE_VARIABLES, allowed)
        found = self._solve(nodes)
        if found is None:
            return False
        piece, result = found
        freed = self.steps.index(MoveLevel("domainsFreed"))
        if result.score[freed] < len(piece.targets):
            return False
        self._adopt(piece, result)
        return True


def _place_without_moves(
    fleet: MovableFleet, say: Callable[[str], None]
) -> dict[int, UnitPlacement]:
    """Return what the joint search of `place` finds for the units that wait, nothing moved."""
    names = [fleet.problem.units[u].ref for u in fleet.pending]
    problem = build_problem(fleet.snapshot, fleet.request, only=names)
    result = search_placement(problem, fleet.request, say)
    by_key = {fleet.problem.units[u].key: u for u in fleet.pending}
    found: dict[int, UnitPlacement] = {}
    for other, placement in result.placements.items():
        u = by_key.get(problem.units[other].key)
        if u is None:
            continue
        mine, theirs = fleet.problem.units[u].tasks, problem.units[other].tasks
        if [task.pods for task in mine] == [task.pods for task in theirs]:
            found[u] = placement
    return found
