"""One scheduling cycle of one entry of the queue: a pod, a pod group, or a tree of them.

Greedy, one pass, no backtracking: each pod goes to the best scored node that passes, later pods see
it there. A group tries each domain of its topology key on its own and keeps the best scored one.

Source: kubernetes pkg/scheduler/schedule_one_podgroup.go (KEP-4671), KEP-5732 (topology), KEP-6012
(composites). A subgroup of another API is a child; required slices are runs of pods that each
choose a domain as a group does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optimizer.replay.scores import score_counts
from optimizer.replay.tried import Trial
from topology.levels import NO_DOMAIN
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from optimizer.replay.state import Seat, WorkingSnapshot
    from optimizer.replay.tried import TriedPlacements
    from optimizer.units import TreeNode, Unit

    Indices = NDArray[np.int64]

__all__ = ["Cycle", "Outcome", "choose_node"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cycle came to; the pods of a success are assumed on their nodes."""

    seats: tuple[Seat, ...] = ()
    """(pod, node) in the order of the cycle."""
    message: str = ""
    """Why nothing was placed."""
    is_error: bool = False
    """SchedulerError: no preemption follows."""

    @property
    def is_success(self) -> bool:
        """Tell whether at least one pod was placed, and every floor is met."""
        return bool(self.seats)


class _SchedulerError(Exception):
    """The group cannot be looked at as it stands."""


@dataclass(frozen=True, slots=True)
class _Found:
    seats: list[Seat]
    members: int
    """Pods of the subtree that run or are placed, those of failed children left out."""


def choose_node(state: WorkingSnapshot, pod: int, nodes: Indices) -> int | None:
    """Return the node that a pod is scheduled to among i64[n] nodes, ascending; None for none.

    The node it is nominated to comes first; of equal scores the first name wins.
    """
    nominated = int(state.snapshot.pods.nominated[pod])
    if nominated >= 0 and nominated in nodes and state.passes(pod, nominated):
        return nominated
    passing = state.filter(pod, nodes)
    if passing.size == 0:
        return None
    scores = state.load.score(int(state.snapshot.pods.spec[pod]), passing)
    return int(passing[np.argmax(scores)])


@dataclass(slots=True)
class Cycle:
    """The placement algorithm for one unit; may be run again after the state changed."""

    state: WorkingSnapshot
    unit: Unit
    release: str
    running_pods: dict[int, list[int]]
    """Group -> its running pods, evicted ones included."""
    tried: TriedPlacements
    _pending: dict[int, list[int]] = field(default_factory=dict)
    _best: tuple[int, int] = (0, 0)
    """(pods reached, pods needed) where the last floor was missed."""

    def run(self) -> Outcome:
        """Place the unit as the scheduler would, or leave the state as it was."""
        self._best = (0, 0)
        try:
            found = self._place(0, self.state.everywhere)
        except _SchedulerError as error:
            return Outcome(message=f"SchedulerError: {error}", is_error=True)
        if found is None:
            reached, needed = self._best
            if self.unit.root.group == NO_GROUP:
                return Outcome(message="no node passes all filters")
            return Outcome(message=f"one greedy pass reaches {reached} of the {needed} it needs")
        if not found.seats:
            return Outcome(message="none of its pending pods passes the filters of any node")
        return Outcome(tuple(found.seats))

    def has_quorum(self, at: int = 0) -> bool:
        """Tell whether enough running and pending pods exist to enter the queue (PreEnqueue)."""
        node = self.unit.tree[at]
        ready = sum(self.has_quorum(c) for c in node.children)
        members = self._count_running(at) + self.unit.count_pending(at)
        return ready >= node.min_groups and members >= node.min_count

    def _running(self, at: int) -> list[int]:
        """Return the running pods of a vertex itself, those evicted left out."""
        found = self.running_pods.get(self.unit.tree[at].group, [])
        return [p for p in found if p not in self.state.gone]

    def _count_running(self, at: int) -> int:
        return sum(len(self._running(below)) for below in self.unit.walk(at))

    def _pods(self, at: int) -> list[int]:
        """Return the pending pods of a vertex itself in the order of the cycle."""
        if at not in self._pending:
            pods = self.state.snapshot.pods
            found = [p for t in self.unit.tree[at].tasks for p in self.unit.tasks[t].pods]

            def order(p: int) -> tuple[int, int, int]:
                first = -int(pods.priority[p]) if self.release < "1.37" else 0
                return first, int(pods.created[p]), p

            self._pending[at] = sorted(found, key=order)
        return self._pending[at]

    def _place(self, at: int, universe: Indices) -> _Found | None:
        """Place a subtree in the best of its placements; None (nothing taken) where it fails."""
        if not self.unit.count_pending(at):
            return self._fill(at, universe)
        placements = self._find_placements(at, universe)
        if placements is None:
            return self._fill(at, universe)
        tries = [self._try_placement(at, nodes) for nodes in placements]
        feasible = [entry for entry in tries if entry is not None]
        # A placement with nothing new is no success of a cycle that still has pods to place.
        placing = [entry for entry in feasible if entry[0].seats] or feasible
        if not placing:
            self._note(self._count_running(at), self.unit.tree[at])
            return None
        counts = score_counts([found.members for found, _ in placing])
        scores = [count + fill for count, (_, fill) in zip(counts, placing, strict=True)]
        chosen = placing[scores.index(max(scores))][0]
        for pod, node in chosen.seats:
            self.state.assume(pod, node)
        return chosen

    def _try_placement(self, at: int, nodes: Indices) -> tuple[_Found, int] | None:
        """Return what a placement would hold and how full it would be, and leave the state."""
        pods, vertex = self._pods(at), self.unit.tree[at]
        shape = None
        if not (vertex.children or vertex.slices or self._running(at)):
            shape = self.tried.find_shape(pods, vertex.min_count)
        if shape is not None and (trial := self.tried.recall(shape, nodes)) is not None:
            if trial.seats is None:
                return None
            seats = [(pods[i], node) for i, node in trial.seats]
            return _Found(seats, len(seats)), trial.fill
        found = self._fill(at, nodes)
        fill = 0
        if found is not None:
            fill = self.state.load.score_fill(nodes)
            self.state.forget(reversed(found.seats))
        if shape is not None:
            places = None
            if found is not None:
                places = tuple((pods.index(pod), node) for pod, node in found.seats)
            self.tried.note(shape, nodes, Trial(places, fill))
        return None if found is None else (found, fill)

    def _find_placements(self, at: int, universe: Indices) -> list[Indices] | None:
        """Return the node sets to try, by name of their domains; None without a topology key.

        Raises:
          _SchedulerError: Placed members are in several domains, or outside all.
        """
        g = self.unit.tree[at].group
        group = None if g == NO_GROUP else self.state.snapshot.groups[g]
        terms = [] if group is None else [t for t in group.topology if t.required]
        if group is None or not terms:
            return None
        placed = [p for below in self.unit.walk(at) for p in self._running(below)]
        placements = [universe]
        for term in terms:
            codes = self.state.column(term.path).codes
            if placed:
                nodes = self.state.snapshot.pods.node[placed]
                found = {int(codes[n]) if n >= 0 else NO_DOMAIN for n in nodes.tolist()}
                if len(found) > 1 or NO_DOMAIN in found:
                    raise _SchedulerError(
                        f"placed members of {group.ref} are not all in one {term.key}"
                    )
                placements = [nodes[codes[nodes] == found.copy().pop()] for nodes in placements]
            else:
                placements = [part for nodes in placements for part in _split(nodes, codes)]
        return [nodes for nodes in placements if nodes.size]

    def _fill(self, at: int, nodes: Indices) -> _Found | None:
        """Run the placement algorithm inside a node set; None (nothing taken) where it fails."""
        tree = self.unit.tree
        vertex = tree[at]
        seats: list[Seat] = []
        members, succeeded = len(self._running(at)), 0
        for i, child in enumerate(children := self._order_children(vertex)):
            if succeeded + len(children) - i < vertex.min_groups:
                break
            found = self._place(child, nodes)
            if found is not None:
                # A child that wants no pod of its own has not made progress by having none.
                succeeded += 1
                members += found.members
                seats += found.seats
        missing = vertex.min_count - members
        if succeeded >= vertex.min_groups:
            if vertex.slices:
                own = self._fill_runs(at, nodes)
            else:
                own = self._fill_pods(self._pods(at), nodes, missing)
            seats += own
            members += len(own)
        if members < vertex.min_count or succeeded < vertex.min_groups:
            self._note(members, vertex, succeeded)
            self.state.forget(reversed(seats))
            return None
        return _Found(seats, members)

    def _note(self, members: int, vertex: TreeNode, succeeded: int = 0) -> None:
        """Remember how far the best try of the cycle came."""
        is_pods = members < vertex.min_count
        near = (members, vertex.min_count) if is_pods else (succeeded, vertex.min_groups)
        self._best = max(self._best, near)

    def _order_children(self, vertex: TreeNode) -> list[int]:
        groups = self.state.snapshot.groups

        def order(child: int) -> tuple[int, str]:
            group = groups[self.unit.tree[child].group]
            return group.created, group.ref

        return sorted(vertex.children, key=order)

    def _fill_pods(self, pods: Sequence[int], nodes: Indices, missing: int) -> list[Seat]:
        """Place pods one after another; stop when the floor is out of reach."""
        seats: list[Seat] = []
        for i, pod in enumerate(pods):
            if len(seats) + len(pods) - i < missing:
                break
            node = choose_node(self.state, pod, nodes)
            if node is not None:
                self.state.assume(pod, node)
                seats.append((pod, node))
        return seats

    def _fill_runs(self, at: int, nodes: Indices) -> list[Seat]:
        """Place the pods of a vertex with slices: runs begun first, each whole in its domains."""
        vertex = self.unit.tree[at]
        standing = [self._count_standing(at, column) for column, _ in vertex.slices]
        if any(NO_DOMAIN in counts for counts in standing):
            return []
        waiting = list(self._pods(at))
        column, size = vertex.slices[0]
        codes = self.state.problem.columns[column].codes[nodes]
        begun = [
            (size - count % size, nodes[codes == domain])
            for domain, count in sorted(standing[0].items())
            if count % size
        ]
        seats: list[Seat] = []
        sound = 0
        for wanted, where in (*begun, *[(size, nodes)] * len(waiting)):
            run = self._place_run(waiting[:wanted], vertex.slices, where) if waiting else None
            if run is None:
                continue
            waiting = waiting[len(run) :]
            seats += run
            if self._is_sound(vertex, standing, seats):
                sound = len(seats)
        self.state.forget(reversed(seats[sound:]))
        return seats[:sound]

    def _place_run(
        self, pods: Sequence[int], levels: Sequence[tuple[int, int]], nodes: Indices
    ) -> list[Seat] | None:
        """Place all pods of a run in one domain of each level, or none."""
        if not levels:
            seats = self._fill_pods(pods, nodes, len(pods))
            if len(seats) == len(pods):
                return seats
            self.state.forget(reversed(seats))
            return None
        column, _ = levels[0]
        inner = levels[1][1] if len(levels) > 1 else len(pods)
        best: tuple[int, list[Seat]] | None = None
        for part in _split(nodes, self.state.problem.columns[column].codes):
            seats = []
            for start in range(0, len(pods), inner):
                run = self._place_run(pods[start : start + inner], levels[1:], part)
                if run is None:
                    break
                seats += run
            if len(seats) == len(pods):
                score = self.state.load.score_fill(part)
                if best is None or score > best[0]:
                    best = score, seats
            self.state.forget(reversed(seats))
        if best is None:
            return None
        for pod, node in best[1]:
            self.state.assume(pod, node)
        return best[1]

    def _count_standing(self, at: int, column: int) -> dict[int, int]:
        """Count running members by domain, NO_DOMAIN for those in none."""
        codes = self.state.problem.columns[column].codes
        counts: dict[int, int] = {}
        for p in self._running(at):
            node = int(self.state.snapshot.pods.node[p])
            domain = int(codes[node]) if node >= 0 else NO_DOMAIN
            counts[domain] = counts.get(domain, 0) + 1
        return counts

    def _is_sound(
        self, vertex: TreeNode, standing: Sequence[dict[int, int]], seats: Sequence[Seat]
    ) -> bool:
        """Tell whether at most one domain of each slice level holds a run that is short."""
        for (column, size), before in zip(vertex.slices, standing, strict=True):
            codes = self.state.problem.columns[column].codes
            counts = dict(before)
            for _, node in seats:
                domain = int(codes[node])
                counts[domain] = counts.get(domain, 0) + 1
            if sum(count % size > 0 for count in counts.values()) > 1:
                return False
        return True


def _split(nodes: Indices, codes: NDArray[np.int32]) -> Iterator[Indices]:
    """Yield the nodes of each domain, by name of the domain; those in none are left out."""
    here = codes[nodes]
    order = np.argsort(here, kind="stable")
    order = order[here[order] != NO_DOMAIN]
    for part in np.split(order, np.flatnonzero(np.diff(here[order])) + 1):
        if part.size:
            yield nodes[part]
