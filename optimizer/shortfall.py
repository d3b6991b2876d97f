"""What a unit still needs against what a fleet offers, in numbers for messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topology.model import is_gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.problem import Problem, TreeNode, Unit

__all__ = [
    "BestDomain",
    "count_needed",
    "count_room",
    "find_best_domain",
    "find_short",
    "find_usable",
    "list_some",
    "sum_requests",
]


@dataclass(frozen=True, slots=True)
class BestDomain:
    """The most promising domain of the term that stands in a unit's way."""

    at: int
    """Index into `Unit.tree` of the node that has the term."""
    key: str
    value: str | None
    """None: no node that could be used is in any domain of the key."""
    codes: NDArray[np.int32]
    code: int
    room: int
    """Pods that fit there, each class counted by itself."""
    needed: Counter[int]
    """Class -> pods that the subtree needs in one domain."""

    @property
    def wanted(self) -> int:
        """Pods needed in one domain."""
        return self.needed.total()


def count_needed(problem: Problem, unit: Unit, at: int = 0) -> Counter[int]:
    """Return class -> pods that a subtree must still get, by the cheapest way to its floors."""
    node = unit.tree[at]
    options = [count_needed(problem, unit, c) for c in node.children if unit.has_quorum(c)]
    options.sort(key=lambda needs: (_count_gpus(problem, needs), needs.total()))
    needed: Counter[int] = Counter()
    for option in options[: node.min_groups]:
        needed += option
    short = max(node.min_count - node.running, int(at == 0)) - needed.total()
    tasks = [unit.tasks[t] for below in unit.walk(at) for t in unit.tree[below].tasks]
    waiting: Counter[int] = Counter()
    for task in tasks:
        waiting[task.pod_class] += task.count
    for pod_class in sorted(waiting, key=lambda s: (int(problem.class_gpus[s]), s)):
        more = min(max(short, 0), waiting[pod_class] - needed[pod_class])
        if more > 0:
            needed[pod_class] += more
            short -= more
    return needed


def _count_gpus(problem: Problem, needs: Counter[int]) -> int:
    return sum(int(problem.class_gpus[s]) * count for s, count in needs.items())


def count_room(state: FleetState, needed: Counter[int]) -> int:
    """Return how many of the needed pods fit, each class counted by itself."""
    return sum(min(int(state.fits(s).sum()), count) for s, count in needed.items())


def sum_requests(problem: Problem, needed: Counter[int]) -> Counter[str]:
    """Return resource -> amount asked for by these pods together."""
    asked: Counter[str] = Counter()
    for pod_class, count in needed.items():
        spec = problem.snapshot.pods.specs[problem.class_specs[pod_class]]
        for resource, amount in spec.requests:
            asked[resource] += amount * count
    return asked


def find_usable(problem: Problem, unit: Unit, needed: Counter[int]) -> NDArray[np.bool_]:
    """Return bool[N]: nodes that filters and the root's domains leave to some needed pod."""
    usable: NDArray[np.bool_] = np.zeros(len(problem.free), bool)
    for pod_class in needed:
        usable |= problem.eligible[pod_class]
    for required in unit.root.required:
        codes = problem.columns[required.column].codes
        usable &= codes == required.pinned if required.pinned >= 0 else codes >= 0
    return usable


def find_short(
    asked: Counter[str], free: NDArray[np.int64], resources: Sequence[str]
) -> tuple[str, int, int] | None:
    """Return (resource, asked, free) of the resource that is short in sum, GPUs first.

    Args:
      asked: Resource -> amount.
      free: i64[n, R] of the nodes that may be used; negative counts as nothing.
      resources: (R,)
    """
    sums = np.maximum(free, 0).sum(axis=0).tolist()
    have = dict(zip(resources, sums, strict=True))
    short = [(r, amount, have.get(r, 0)) for r, amount in asked.items() if amount > have.get(r, 0)]
    return min(short, key=lambda s: (not is_gpu(s[0]), s[2] / s[1], s[0]), default=None)


def find_best_domain(state: FleetState, unit: Unit) -> BestDomain | None:
    """Return the domain that comes closest, for the widest term that no domain satisfies.

    When every term has a domain with enough room, the widest term is taken; None without terms.
    """
    first: BestDomain | None = None
    for at in unit.walk():
        for best in _rank_domains(state, unit, unit.tree[at], at):
            if best.room < best.wanted:
                return best
            first = first or best
    return first


def _rank_domains(state: FleetState, unit: Unit, node: TreeNode, at: int) -> list[BestDomain]:
    problem = state.problem
    needed = count_needed(problem, unit, at)
    found = []
    for required in node.required:
        column = problem.columns[required.column]
        room = np.zeros(len(column.values), np.int64)
        for pod_class, count in needed.items():
            room += np.minimum(state.capacity(pod_class, required.column), count)
        if not len(room):
            found.append(BestDomain(at, column.key, None, column.codes, -1, 0, needed))
            continue
        best = required.pinned if required.pinned >= 0 else int(np.argmax(room))
        name = "/".join(column.values[best])
        found.append(BestDomain(at, column.key, name, column.codes, best, int(room[best]), needed))
    return found


def list_some(names: Sequence[str], most: int = 3) -> str:
    """Return the first names in words.

    Example:
      >>> list_some(["a", "b", "c", "d", "e"])
      'a, b, c and 2 more'
      >>> list_some(["a", "b"])
      'a and b'
    """
    shown = list(names[:most])
    if len(names) > most:
        shown.append(f"{len(names) - most} more")
    *others, last = shown
    return f"{', '.join(others)} and {last}" if others else last
