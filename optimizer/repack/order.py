"""From where pods stand to where they are to be: waves of moves, each of which has room.

What may go at once goes in one wave: everything in it has room while all of it still stands where
it did, so nothing waits for somebody of its own wave. Where everything waits in a circle, a pod
goes to a temporary node (live), or the circle stops together (restart). Budgets hold wave by wave:
`--max-parallel`, disruption budgets, floors of gangs.

Source: ours. The first break of a circle is chosen by following what every pod and node would lead
to, so that the extra steps are few.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.decode import replay, seat_pods
from optimizer.repack.fleet import fills_of, stand_at_home
from optimizer.repack.movers import BudgetIndex
from optimizer.repack.sequences import find_sequence
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.repack.fleet import MovableFleet

    Indices = NDArray[np.int64]

__all__ = ["Blocked", "Ordered", "Step", "order_moves", "seats_of"]

MAX_DIRECT: Final = 10
"""Moves up to which all orders are tried before a pod goes to a temporary node."""
FEW_TRIALS: Final = 24
"""The same where more moves than MAX_DIRECT wait for one another."""
MAX_TRIALS: Final = 200
"""Ways to break a circle that are followed to the end; the cheapest are tried."""
MAX_DEPTH: Final = 3
"""Breaks that a trial may need further on before it is given up as no better than others."""


@dataclass(frozen=True, slots=True)
class Step:
    """One pod on its way."""

    wave: int
    pod: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Blocked:
    """No order was found: these pods wait for one another for ever."""

    pods: tuple[int, ...]
    steps: tuple[Step, ...]
    """Moves up to there, each of which has room."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A pod that moves alone, or a unit that restarts as a whole."""

    pods: tuple[int, ...]
    pod_class: int
    """Of a pod that moves alone; -1 for a whole unit."""
    unit: int
    """Of the problem, for a whole unit; else -1."""
    gpus: int


@dataclass(frozen=True, slots=True)
class Ordered:
    """Moves in an order in which each has room."""

    steps: tuple[Step, ...]
    is_least: bool
    """No order of these moves takes fewer steps or moves fewer GPUs."""


def order_moves(fleet: MovableFleet) -> Ordered | Blocked:
    """Bring the moves of a plan into an order in which each has room.

    Args:
      fleet: `home`, `where` and `touched` say what moves; its state is not used.

    Returns:
      Steps by wave, or the pods for which no order was found.
    """
    order = _Order(fleet)
    steps = order.run()
    return steps if isinstance(steps, Blocked) else Ordered(steps, order.is_least(steps))


class _Order:
    def __init__(self, fleet: MovableFleet) -> None:
        self.fleet = fleet
        self.problem = fleet.problem
        assert fleet.request.move is not None
        self.is_live = fleet.request.move.mode == "live"
        self.most = fleet.request.move.max_parallel
        self.budgets = BudgetIndex(fleet.snapshot)
        self.state = stand_at_home(fleet)
        self.now = dict(fleet.home)
        self.is_refuted = False
        """All orders without detours were tried in vain."""
        self.slack = _count_slack(fleet)
        items = [
            _Item((p,), fleet.kinds[k].pod_class, -1, fleet.kinds[k].gpus)
            for p, k in sorted(fleet.kind_of.items())
            if fleet.where[p] != fleet.home[p]
        ]
        for u in sorted(fleet.touched):
            unit = self.problem.units[u]
            pods = tuple(sorted(p for task in unit.tasks for p in task.pods))
            items.append(_Item(pods, -1, u, unit.gpus))
        self.items = sorted(items, key=lambda item: (item.gpus, item.pods))

    def run(self) -> tuple[Step, ...] | Blocked:
        steps: list[Step] = []
        left = list(self.items)
        direct = self._find_direct() if self.is_live else None
        wave = 0
        while left:
            wave += 1
            if direct is not None:
                # A prefix of the order that is known to lead to the end.
                going = self._gather(direct, in_order=True)
                direct = direct[len(going) :]
            else:
                going = self._gather(left)
            targets = {p: self.fleet.where[p] for item in going for p in item.pods}
            if not going:
                made = self._break(left)
                if made is None:
                    return Blocked(tuple(sorted(p for i in left for p in i.pods)), tuple(steps))
                going, targets = made
            steps += [Step(wave, p, self.now[p], n) for p, n in targets.items()]
            self._carry_out(going, targets)
            left = [
                item
                for item in left
                if item not in going or any(targets[p] != self.fleet.where[p] for p in item.pods)
            ]
        return tuple(steps)

    # One wave.
    def _find_direct(self) -> list[_Item] | None:
        """Return an order without detours where that takes a search, and there is one."""
        items = self.items
        if not 1 < len(items) <= MAX_DIRECT or self._runs_through():
            return None
        mark = self.state.mark()
        saved = dict(self.now)
        marks: list[int] = []

        def step(i: int) -> bool:
            before = self.state.mark()
            self._lift(items[i])
            wanted = {p: self.fleet.where[p] for p in items[i].pods}
            if not (self._is_allowed([items[i]]) and self._settle(items[i], wanted)):
                self.state.undo(before)
                return False
            marks.append(before)
            self.now |= wanted
            return True

        def back(i: int) -> None:
            self.state.undo(marks.pop())
            self.now |= {p: saved[p] for p in items[i].pods}

        found = find_sequence(len(items), step, back)
        self.state.undo(mark)
        self.now = saved
        self.is_refuted = found is None
        return None if found is None else [items[i] for i in found]

    def _runs_through(self) -> bool:
        """Tell whether waves as full as can be come to the end without a detour."""
        mark = self.state.mark()
        saved = dict(self.now)
        left = list(self.items)
        while left and (going := self._gather(left)):
            for item in going:
                self._lift(item)
            for item in going:
                self.now |= {p: self.fleet.where[p] for p in item.pods}
                self._stand(item)
            left = [item for item in left if item not in going]
        self.state.undo(mark)
        self.now = saved
        return not left

    def is_least(self, steps: tuple[Step, ...]) -> bool:
        """Tell whether no order takes fewer steps, or moves fewer GPUs."""
        extra = [s for s in steps if s.target != self.fleet.where[s.pod]]
        least = min((item.gpus for item in self.items), default=0)
        specs = self.fleet.snapshot.pods
        return not extra or (
            self.is_refuted
            and len(extra) == 1
            and specs.specs[specs.spec[extra[0].pod]].gpus == least
        )

    def _gather(self, left: list[_Item], *, in_order: bool = False) -> list[_Item]:
        """Return what may go at once, each beside all that stands and all that comes.

        Args:
          left: What still has to move.
          in_order: Stop at the first that cannot go with those before it.
        """
        mark = self.state.mark()
        going: list[_Item] = []
        for item in left:
            if self.most is not None and len(going) >= self.most:
                break
            if going and in_order and not self._is_allowed([*going, item]):
                break
            if not self._is_allowed([*going, item]):
                continue
            before = self.state.mark()
            self._lift(item)
            if self._settle(item, {p: self.fleet.where[p] for p in item.pods}):
                self._stand(item)
                going.append(item)
            else:
                self.state.undo(before)
                if in_order:
                    break
        self.state.undo(mark)
        return going

    def _is_allowed(self, items: Iterable[_Item]) -> bool:
        """Tell whether budgets and floors allow all of these to be on the way at once."""
        pods = [p for item in items for p in item.pods]
        if self.budgets.exceeded(pods) is not None:
            return False
        if self.is_live:
            return True
        counts: dict[int, int] = defaultdict(int)
        for item in items:
            if item.unit < 0:
                for g in self._climb(item.pods[0]):
                    counts[g] += 1
        return all(count <= self.slack[g] for g, count in counts.items())

    def _climb(self, p: int) -> list[int]:
        found = []
        g = int(self.fleet.snapshot.pods.group[p])
        while g != NO_GROUP:
            found.append(g)
            g = self.fleet.snapshot.groups[g].parent
        return found

    def _fills(self, item: _Item, nodes: Mapping[int, int]) -> UnitPlacement:
        return fills_of(self.problem.units[item.unit], nodes)

    def _lift(self, item: _Item) -> None:
        """Take an item off where it stands now."""
        if item.unit >= 0:
            unit = self.problem.units[item.unit]
            replay(self.state, unit, self._fills(item, self.now), lift=True)
        else:
            self.state.lift(item.pod_class, np.array([self.now[item.pods[0]]]), np.array([1]))

    def _stand(self, item: _Item) -> None:
        """Put an item back where it stands now, whether that overcommits a node or not."""
        if item.unit >= 0:
            replay(self.state, self.problem.units[item.unit], self._fills(item, self.now))
        else:
            self.state.take(item.pod_class, np.array([self.now[item.pods[0]]]), np.array([1]))

    def _settle(self, item: _Item, targets: Mapping[int, int]) -> bool:
        """Let a lifted item take its targets if they have room for it; else change nothing."""
        if item.unit < 0:
            target = targets[item.pods[0]]
            if not self._has_room(item.pod_class, target, 1):
                return False
            self.state.take(item.pod_class, np.array([target]), np.array([1]))
            return True
        unit = self.problem.units[item.unit]
        mark = self.state.mark()
        fills = self._fills(item, targets)
        for at, node in enumerate(unit.tree):
            mask = self.state.exclusive_mask(node.exclusive)
            inside = set(unit.walk(at))
            if mask is not None and not all(
                mask[f.nodes].all() for f in fills if unit.tasks[f.task].leaf in inside
            ):
                return False
        for fill in fills:
            pod_class = unit.tasks[fill.task].pod_class
            for n, count in zip(fill.nodes.tolist(), fill.counts.tolist(), strict=True):
                if not self._has_room(pod_class, n, count):
                    self.state.undo(mark)
                    return False
                self.state.take(pod_class, np.array([n]), np.array([count]))
        self.state.undo(mark)
        replay(self.state, unit, fills)
        return True

    def _has_room(self, pod_class: int, n: int, count: int) -> bool:
        at = np.array([n])
        if self.state.is_coupled(pod_class) and not self.state.has_spread(pod_class):
            return int(self.state.coupled_fits(pod_class, at)[0]) >= count
        return int(self.state.fits(pod_class)[n]) >= count

    def _carry_out(self, going: list[_Item], targets: Mapping[int, int]) -> None:
        for item in going:
            self._lift(item)
        for item in going:
            for p in item.pods:
                self.now[p] = targets[p]
            self._stand(item)
        self.state.forget_journal()

    # Circles.
    def _break(self, left: list[_Item]) -> tuple[list[_Item], dict[int, int]] | None:
        if not self.is_live:
            joint = self._stop_together(left)
            if joint is not None:
                return joint, {p: self.fleet.where[p] for item in joint for p in item.pods}
        return self._step_aside(left)

    def _stop_together(self, left: list[_Item]) -> list[_Item] | None:
        """Return the smallest set found that has room once all of it has stopped."""
        best: list[_Item] | None = None
        for first in left[:MAX_TRIALS]:
            found = self._close(first, left)
            if found is not None and (best is None or _size(found) < _size(best)):
                best = found
        return best

    def _close(self, first: _Item, left: list[_Item]) -> list[_Item] | None:
        """Add to a set those who stand in its way until it has room, if that ends well."""
        chosen = [first]
        while True:
            if self.most is not None and len(chosen) > self.most:
                return None
            if not self._is_allowed(chosen):
                return None
            mark = self.state.mark()
            for item in chosen:
                self._lift(item)
            refused = next(
                (
                    item
                    for item in chosen
                    if not self._settle(item, {p: self.fleet.where[p] for p in item.pods})
                ),
                None,
            )
            self.state.undo(mark)
            if refused is None:
                return chosen
            targets = {self.fleet.where[p] for p in refused.pods}
            blockers = [
                item
                for item in left
                if item not in chosen and any(self.now[p] in targets for p in item.pods)
            ]
            if not blockers:
                # Somebody of another node holds a domain: let everybody stop, if that is allowed.
                blockers = [item for item in left if item not in chosen]
            if not blockers:
                return None
            chosen += blockers

    def _step_aside(self, left: list[_Item]) -> tuple[list[_Item], dict[int, int]] | None:
        """Send one pod to a temporary node so that another can move at once."""
        best: tuple[tuple[int, int, int], _Item, int] | None = None
        for item, n in self._find_asides(left):
            cost = self._follow(item, n, left, MAX_DEPTH)
            if cost is not None and (best is None or cost < best[0]):
                best = cost, item, n
                if cost[0] == 1 and item.gpus <= min(i.gpus for i in left):
                    break
        if best is None:
            return None
        _, item, n = best
        return [item], {item.pods[0]: n}

    def _find_asides(self, left: list[_Item]) -> list[tuple[_Item, int]]:
        """Return (pod, node with room for it now) where its leaving could help, cheapest first."""
        wanted = {self.fleet.where[p] for item in left for p in item.pods}
        found: list[tuple[_Item, int]] = []
        for item in left:
            if item.unit >= 0 or self.now[item.pods[0]] not in wanted:
                continue
            if not self._is_allowed([item]):
                continue
            kind = self.fleet.kinds[self.fleet.kind_of[item.pods[0]]]
            mark = self.state.mark()
            self._lift(item)
            nodes = np.flatnonzero((self.state.fits(item.pod_class) > 0) & kind.mask)
            if self.state.is_coupled(item.pod_class):
                nodes = nodes[self.state.coupled_fits(item.pod_class, nodes) > 0]
            self.state.undo(mark)
            # Nodes that nobody else is bound for come first: room there is in nobody's way.
            here = self.now[item.pods[0]]
            order = sorted((n for n in nodes.tolist() if n != here), key=lambda n: (n in wanted, n))
            found += [(item, n) for n in order[:8]]
        found.sort(key=lambda entry: entry[0].gpus)
        return found[: MAX_TRIALS if len(left) <= MAX_DIRECT else FEW_TRIALS]

    def _follow(
        self, item: _Item, n: int, left: list[_Item], depth: int
    ) -> tuple[int, int, int] | None:
        """Return (extra steps, their GPUs, pods left) of stepping aside; None if nobody gains."""
        saved = dict(self.now)
        mark = self.state.mark()
        try:
            self._shift(item, n)
            waiting = list(left)
            moved = 0
            while waiting:
                going = self._gather(waiting)
                if not going:
                    break
                for g in going:
                    self._lift(g)
                for g in going:
                    for p in g.pods:
                        self.now[p] = self.fleet.where[p]
                    self._stand(g)
                moved += sum(g is not item for g in going)
                waiting = [g for g in waiting if g not in going]
            if not waiting:
                return 1, item.gpus, 0
            if len(left) > MAX_DIRECT:
                # Too many to follow to the end: the most progress at once will do.
                return (1 + len(waiting), item.gpus, len(waiting)) if moved else None
            if depth == 0 or (moved == 0 and depth < MAX_DEPTH):
                return None
            rest: tuple[int, int, int] | None = None
            for other, m in self._find_asides(waiting)[:12]:
                if other is item:
                    continue
                cost = self._follow(other, m, waiting, depth - 1)
                if cost is not None and (rest is None or cost < rest):
                    rest = cost
                    if cost[0] == 1:
                        break
            return None if rest is None else (1 + rest[0], item.gpus + rest[1], rest[2])
        finally:
            self.state.undo(mark)
            self.now = saved

    def _shift(self, item: _Item, n: int) -> None:
        self._lift(item)
        self.now[item.pods[0]] = n
        self._stand(item)


def _size(items: list[_Item]) -> tuple[int, int]:
    return sum(len(item.pods) for item in items), sum(item.gpus for item in items)


def _count_slack(fleet: MovableFleet) -> dict[int, int]:
    """Return group -> pods of its subtree that may be on the way while its floor is kept."""
    snapshot = fleet.snapshot
    running: dict[int, int] = defaultdict(int)
    pods = snapshot.pods
    for g in pods.group[pods.is_running_member & (pods.group != NO_GROUP)].tolist():
        h = g
        while h != NO_GROUP:
            running[h] += 1
            h = snapshot.groups[h].parent
    slack = {}
    for g, count in running.items():
        group = snapshot.groups[g]
        is_child = group.policy == "basic" and group.parent != NO_GROUP
        free = group.is_inferred and not fleet.request.assume_gangs
        floor = max(0 if free else group.min_count, int(is_child))
        # The only pod of a group stops as a whole.
        slack[g] = max(count - floor, int(count == 1))
    return slack


def seats_of(fleet: MovableFleet, u: int, placement: UnitPlacement) -> dict[int, int]:
    """Give the pods of a whole mover their nodes, each its own node where it may keep it."""
    unit = fleet.problem.units[u]
    seats: dict[int, int] = {}
    wanted = seat_pods(unit, placement)
    for task in unit.tasks:
        free: dict[int, int] = defaultdict(int)
        for p in task.pods:
            free[wanted[p]] += 1
        rest = []
        for p in task.pods:
            if free[fleet.home[p]]:
                free[fleet.home[p]] -= 1
                seats[p] = fleet.home[p]
            else:
                rest.append(p)
        nodes = [n for n, count in sorted(free.items()) for _ in range(count)]
        seats.update(zip(rest, nodes, strict=True))
    return seats
