"""The fleet before and after a plan, node by node, and the badges of the groups it touches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from gangplan.reporting.fleet import count_open
from gangplan.reporting.numbers import count

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from gangplan.reporting.fleet import Fleet
    from topology.plan import Plan

__all__ = ["NUM_COLORS", "Badge", "Changes", "Share", "View", "find_changes", "show_running"]

NUM_COLORS: Final = 8
Mark = Literal["stays", "placed", "evicted", "leaves", "arrives"]


class Badge(NamedTuple):
    """How a picture marks a group: a letter for those who see no colours, and a colour."""

    letter: str
    color: int


class Share(NamedTuple):
    """What the pods of one badged group hold on a node, and what becomes of them."""

    owner: str
    mark: Mark
    amount: int


@dataclass(frozen=True, slots=True)
class View:
    """One moment of a fleet; axis N."""

    used: NDArray[np.int64]
    free: NDArray[np.int64]
    """What open nodes have left."""
    shares: Mapping[int, Sequence[Share]]
    """By node: what badged groups hold, in the order of badges. The rest of `used` is others'."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Both moments; equal ones where the plan changes nothing."""

    before: View
    after: View
    badges: Mapping[str, Badge]
    roles: Mapping[str, tuple[str, ...]]
    """What the plan does with each badged group: "placed" ("would fit" of an explanation),
    "would be evicted", "would move"."""
    touched: frozenset[int]
    """Nodes on which something changes."""
    unknown_nodes: int = 0
    """Entries of the plan on nodes that the fleet does not have."""


def _letter(i: int) -> str:
    """Return A to Z, then AA, AB and so on."""
    return chr(65 + i) if i < 26 else _letter(i // 26 - 1) + chr(65 + i % 26)


def _make_badges(owners: Iterable[str]) -> dict[str, Badge]:
    """Give each owner the next letter and colour, in order."""
    return {o: Badge(_letter(i), i % NUM_COLORS) for i, o in enumerate(dict.fromkeys(owners))}


def find_changes(fleet: Fleet, plan: Plan) -> Changes:
    """Return what a plan would do to a fleet; moves count from first source to last target."""
    groups = sorted(plan.groups, key=lambda g: (-g.priority, g.group))
    placed = {p.pod: (g.group, p.node) for g in groups for p in g.pods}
    evicted = {e.pod: (e.group or e.pod, e.node) for e in plan.evictions}
    moved: dict[str, tuple[str, str, str]] = {}
    for move in sorted(plan.moves, key=lambda m: (m.step, m.wave, m.pod)):
        owner, source, _ = moved.get(move.pod, (move.group or move.pod, move.source, ""))
        moved[move.pod] = (owner, source, move.target)
    moved = {pod: m for pod, m in moved.items() if m[1] != m[2]}

    roles: dict[str, list[str]] = {}
    for owners, role in (
        (
            [owner for owner, _ in placed.values()],
            "would fit" if plan.request.command == "explain" else "placed",
        ),
        ([evicted[pod][0] for pod in sorted(evicted)], "would be evicted"),
        ([moved[pod][0] for pod in sorted(moved)], "would move"),
    ):
        for owner in dict.fromkeys(owners):
            roles.setdefault(owner, []).append(role)
    badges = _make_badges(roles)

    before, after = _Tally(fleet), _Tally(fleet)
    unknown = 0
    for pod, holding in fleet.pods.items():
        if holding.node < 0 or holding.owner not in badges or pod in moved or pod in evicted:
            continue
        if pod not in placed:
            before.show(holding.owner, "stays", holding.node, holding.amount)
            after.show(holding.owner, "stays", holding.node, holding.amount)
    for pod, (owner, name) in evicted.items():
        amount, node = _amount(fleet, pod), fleet.index.get(name, -1)
        unknown += node < 0
        before.show(owner, "evicted", node, amount)
        after.take(node, -amount)
    for pod, (owner, source, target) in moved.items():
        amount = _amount(fleet, pod)
        origin, goal = fleet.index.get(source, -1), fleet.index.get(target, -1)
        unknown += (origin < 0) + (goal < 0)
        before.show(owner, "leaves", origin, amount)
        after.take(origin, -amount)
        after.take(goal, amount)
        after.show(owner, "arrives", goal, amount)
    for pod, (owner, name) in placed.items():
        amount, node = _amount(fleet, pod), fleet.index.get(name, -1)
        unknown += node < 0
        after.take(node, amount)
        after.show(owner, "placed", node, amount)
    touched = frozenset(before.changed | after.changed)
    return Changes(
        before.close(badges),
        after.close(badges),
        badges,
        {owner: tuple(words) for owner, words in roles.items()},
        touched,
        unknown,
    )


def show_running(fleet: Fleet, most: int = NUM_COLORS) -> Changes:
    """Return the fleet as it is, with badges for the groups that hold the most."""
    held: dict[str, int] = {}
    for ref, holding in fleet.pods.items():
        if holding.node >= 0 and holding.owner != ref:
            held[holding.owner] = held.get(holding.owner, 0) + holding.amount
    largest = sorted((o for o in held if held[o]), key=lambda o: (-held[o], o))[:most]
    badges = _make_badges(largest)
    tally = _Tally(fleet)
    for holding in fleet.pods.values():
        if holding.node >= 0 and holding.owner in badges:
            tally.show(holding.owner, "stays", holding.node, holding.amount)
    view = tally.close(badges)
    roles = {owner: (count(held[owner], fleet.unit),) for owner in largest}
    return Changes(view, view, badges, roles, frozenset())


def _amount(fleet: Fleet, pod: str) -> int:
    holding = fleet.pods.get(pod)
    return holding.amount if holding else 0


class _Tally:
    """Adds up one view."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._used = fleet.used.copy()
        self._shares: dict[int, dict[tuple[str, Mark], int]] = {}
        self.changed: set[int] = set()

    def take(self, node: int, amount: int) -> None:
        if node >= 0:
            self._used[node] += amount

    def show(self, owner: str, mark: Mark, node: int, amount: int) -> None:
        if node < 0:
            return
        if mark != "stays":
            self.changed.add(node)
        here = self._shares.setdefault(node, {})
        here[owner, mark] = here.get((owner, mark), 0) + amount

    def close(self, badges: Mapping[str, Badge]) -> View:
        order = {owner: i for i, owner in enumerate(badges)}
        shares = {
            node: tuple(
                Share(owner, mark, amount)
                for (owner, mark), amount in sorted(
                    here.items(), key=lambda item: (order[item[0][0]], item[0][1])
                )
            )
            for node, here in self._shares.items()
        }
        return View(self._used, count_open(self._fleet, self._used), shares)
