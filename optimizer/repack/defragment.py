"""Least fragmentation of a large fleet: domain after domain emptied where that leaves more whole.

Worth is the sum, over nodes and every topology level, of GPUs that lie in wholly free domains. Wide
domains come first, the least used of each level before the others; then nodes; then small sets of
nodes in part used are packed exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.repack.apply import adopt
from optimizer.repack.model import PieceModel
from optimizer.repack.pieces import find_prizes, make_piece
from optimizer.repack.relocate import Residents, empty_nodes
from optimizer.repack.steps import MOVE_CRITERIA, MoveLevel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from optimizer.repack.fleet import MovableFleet

    Indices = NDArray[np.int64]

__all__ = ["Defragmentation"]

ROUNDS: Final = {"quick": 4, "normal": 12, "thorough": 200}
"""Pieces packed exactly, by effort."""
PATIENCE: Final = {"quick": 10, "normal": 40, "thorough": 400}
"""Domains of one level that could not be emptied in a row, after which the level is left."""
PIECE_SIZE: Final = 16
PIECE_VARIABLES: Final = 100
"""Nodes × kinds of pods of one piece."""
PIECE_LIMIT: Final = 60
"""Branch-and-bound nodes of each solve of a piece."""


class Defragmentation:
    """One run over one fleet."""

    def __init__(
        self, fleet: MovableFleet, residents: Residents, say: Callable[[str], None]
    ) -> None:
        self.fleet = fleet
        self.residents = residents
        self.say = say
        everywhere = np.ones(len(fleet.problem.free), bool)
        self.prizes = find_prizes(fleet, everywhere)
        self.whole = np.full(len(fleet.problem.free), 2**40, np.int64)
        """i64[N] free GPUs at which a node is wholly free."""
        for worth, nodes in self.prizes:
            if len(nodes) == 1:
                self.whole[nodes] = worth
        domains = [(worth, nodes) for worth, nodes in self.prizes if len(nodes) > 1]
        self.domain_nodes = [nodes for _, nodes in domains]
        self.domain_worth = np.array([worth for worth, _ in domains], np.int64)
        sizes = [len(nodes) for nodes in self.domain_nodes]
        self.of_domain = np.repeat(np.arange(len(sizes)), sizes)
        self.worth = 0
        """Of the plan so far."""
        self.flat = np.concatenate([*self.domain_nodes, np.zeros(0, np.int64)]).astype(np.int64)

    def run(self) -> None:
        """Move until no attempt helps any more."""
        self.say("packing the fleet")
        order = np.argsort([-len(nodes) for nodes in self.domain_nodes], kind="stable")
        sizes = [len(self.domain_nodes[i]) for i in order]
        for size in sorted(set(sizes), reverse=True):
            level = [int(i) for i in order if len(self.domain_nodes[i]) == size]
            self._empty_each([self.domain_nodes[i] for i in level], wide=True)
        singles = [nodes for _, nodes in self.prizes if len(nodes) == 1]
        self._empty_each(singles, wide=False)
        self._pack_pieces()

    def _free(self) -> Indices:
        return np.maximum(self.fleet.state.node_gpus, 0)

    def _is_whole(self) -> NDArray[np.bool_]:
        whole: NDArray[np.bool_] = self._free() == self.whole
        return whole

    def _whole_domains(self, whole: NDArray[np.bool_]) -> NDArray[np.bool_]:
        broken = np.bincount(
            self.of_domain,
            ~whole[self.flat] & (self.whole[self.flat] < 2**40),
            len(self.domain_worth),
        )
        found: NDArray[np.bool_] = broken == 0
        return found

    def _worth(self) -> int:
        whole = self._is_whole()
        nodes = int(self.whole[whole].sum())
        return nodes + int(self.domain_worth[self._whole_domains(whole)].sum())

    def _is_gain(self) -> bool:
        return self._worth() > self.worth

    def _empty_each(self, domains: list[Indices], *, wide: bool) -> None:
        """Try to empty each of some domains, the least used first."""
        used = [
            int((self.whole[d] - self._free()[d])[self.whole[d] < 2**40].sum()) for d in domains
        ]
        order = sorted(range(len(domains)), key=lambda i: (used[i], domains[i][0]))
        self.worth = self._worth()
        idle = 0
        for i in order:
            if idle >= PATIENCE[self.fleet.request.effort]:
                return
            nodes = domains[i]
            whole = self._is_whole()
            if whole[nodes].all() or not self.residents.count(nodes):
                continue
            if wide:
                # Free nodes may be used up where their domain is broken already.
                allowed = np.ones(len(whole), bool)
                for d in np.flatnonzero(self._whole_domains(whole)).tolist():
                    allowed[self.domain_nodes[d]] = False
            else:
                allowed = ~whole
            if empty_nodes(self.fleet, self.residents, nodes, allowed, self._is_gain):
                self.worth = self._worth()
                idle = 0
            else:
                idle += 1

    def _pack_pieces(self) -> None:
        """Pack small sets of partly used nodes exactly, those of one domain more often."""
        fleet = self.fleet
        rng = np.random.default_rng(fleet.request.seed)
        steps = (MoveLevel("fragmentation"), *(MoveLevel(c) for c in MOVE_CRITERIA))
        for _ in range(ROUNDS[fleet.request.effort]):
            free = self._free()
            partial = np.flatnonzero((free > 0) & (free < self.whole) & (self.whole < 2**40))
            if len(partial) < 2:
                return
            size = min(PIECE_SIZE, len(partial))
            drawn = rng.choice(partial, size, replace=False)
            kinds: set[int] = set()
            for size, n in enumerate(drawn.tolist(), 1):
                kinds |= {fleet.kind_of[p] for p in self.residents.alone(np.array([n]))}
                if size > 2 and size * len(kinds) > PIECE_VARIABLES:
                    break
            nodes = np.sort(drawn[:size])
            inside = np.zeros(len(free), bool)
            inside[nodes] = True
            prizes = tuple((w, d) for w, d in self.prizes if len(d) == 1 and inside[d].all())
            piece = make_piece(fleet, nodes, (), prizes=prizes)
            found = PieceModel(fleet, piece, steps).solve(PIECE_LIMIT)
            if found is None or found.score[0] <= 0:
                continue
            adopt(fleet, piece, found)
            self.residents = Residents(fleet)
