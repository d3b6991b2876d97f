"""Which units are alike, so that models and rollouts count them instead of listing them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from optimizer.problem import BROKEN, FREE_CHOICE

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.problem import Problem, Unit

__all__ = ["CountedKind", "FlatKind", "count_pod_variables", "describe_counted", "describe_flat"]


@dataclass(frozen=True, slots=True, order=True)
class FlatKind:
    """What makes plain gangs interchangeable: one class, one count, at most one required key."""

    priority: int
    pod_class: int
    count: int
    column: int
    """-1 without a required key."""
    pinned: int


def describe_flat(problem: Problem, unit: Unit) -> FlatKind | None:
    """Return the kind of a plain gang (all its pods or none, one class), None for other units."""
    root = unit.root
    if len(unit.tree) != 1 or len(unit.tasks) != 1 or root.slices or root.exclusive or unit.blocked:
        return None
    task = unit.tasks[0]
    if len(root.required) > 1 or root.min_count - root.running < task.count:
        return None
    if problem.signatures[task.pod_class].is_coupled:
        return None
    required = root.required[0] if root.required else None
    if required is not None and required.pinned == BROKEN:
        return None
    column = -1 if required is None else required.column
    pinned = FREE_CHOICE if required is None else required.pinned
    return FlatKind(unit.priority, task.pod_class, task.count, column, pinned)


@dataclass(frozen=True, slots=True, order=True)
class CountedKind:
    """What makes units interchangeable in a model that counts them."""

    priority: int
    tasks: tuple[tuple[int, int], ...]
    """(class, pods), ascending."""
    floor: int
    """Pods it takes at least; all of them where it is placed whole or not at all."""
    column: int
    """-1 without a required key."""
    pinned: int
    groups: int
    """Groups that count as placed with it."""

    @property
    def is_whole(self) -> bool:
        """It is placed with all its pods or not at all."""
        return self.floor == sum(count for _, count in self.tasks)


def describe_counted(problem: Problem, unit: Unit) -> CountedKind | None:
    """Return the kind of a unit whose pods are bound to no more than one domain together.

    All its pods or none, of any classes and in any tree; or any number from a floor up, of one
    class. None for other units.
    """
    root = unit.root
    if unit.blocked or not unit.tasks or len(root.required) > 1:
        return None
    if any(node.slices or node.exclusive for node in unit.tree):
        return None
    if any(node.required for node in unit.tree[1:]):
        return None
    if any(problem.signatures[task.pod_class].is_coupled for task in unit.tasks):
        return None
    floor = unit.count_needed()
    if floor < unit.num_pods and (len(unit.tree) > 1 or len(unit.tasks) > 1):
        return None
    required = root.required[0] if root.required else None
    if required is not None and required.pinned == BROKEN:
        return None
    groups = problem.snapshot.groups
    counted = sum(
        node.group < 0 or groups[node.group].kind == "group"
        for at, node in enumerate(unit.tree)
        if unit.count_pending(at)
    )
    return CountedKind(
        unit.priority,
        tuple(sorted((task.pod_class, task.count) for task in unit.tasks)),
        floor,
        -1 if required is None else required.column,
        FREE_CHOICE if required is None else required.pinned,
        counted,
    )


def count_pod_variables(state: FleetState, nodes: NDArray[np.int64] | None = None) -> int:
    """Count the pod variables of a model of all units, on all nodes or some; kinds share theirs."""
    problem = state.problem
    classes: dict[tuple[int, ...], int] = {}
    for u, unit in enumerate(problem.units):
        kind = describe_counted(problem, unit)
        for t, task in enumerate(unit.tasks):
            pool = (task.pod_class, u, t)
            if kind is not None:
                pool = (task.pod_class, kind.column, kind.pinned)
            classes[(kind is None, *pool)] = task.pod_class
    fits = {s: state.fits(s) for s in sorted(set(classes.values()))}
    room = {s: int(((f if nodes is None else f[nodes]) > 0).sum()) for s, f in fits.items()}
    return sum(room[s] for s in classes.values())
