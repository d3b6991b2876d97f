"""What the messages of causes share: a unit in a fleet, and words for its parts and amounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topology.model import NO_GROUP
from topology.quantities import format_quantity

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from optimizer.fleet_state import FleetState
    from optimizer.problem import Problem, Relax, Unit
    from topology.model import PodSpec, Snapshot

__all__ = ["View", "Words", "count_pods", "name_arrangement", "name_part", "write_amount"]

Words = tuple[str, dict[str, Any]]
"""Message and details."""


@dataclass(frozen=True, slots=True)
class View:
    """A unit in a fleet, perhaps a changed one."""

    state: FleetState
    index: int
    """Of the unit in `Problem.units`."""
    relax: Relax
    """What is changed."""
    free: NDArray[np.int64]
    """i64[N, R] exact amounts, less what nominated pods keep the unit from."""

    @property
    def problem(self) -> Problem:
        """The problem of the state."""
        return self.state.problem

    @property
    def unit(self) -> Unit:
        """The unit as it is in this fleet."""
        return self.problem.units[self.index]

    def spec_of(self, pod_class: int) -> PodSpec:
        """The spec of a class."""
        return self.problem.snapshot.pods.specs[self.problem.class_specs[pod_class]]


def count_pods(count: int) -> str:
    """Return a number of pods in words."""
    return f"{count} pod" if count == 1 else f"{count} pods"


def write_amount(resource: str, amount: int) -> str:
    """Return a resource with an amount of it.

    Example:
      >>> write_amount("memory", 16 << 30)
      'memory 16Gi'
    """
    return f"{resource} {format_quantity(amount, resource)}"


def name_part(snapshot: Snapshot, unit: Unit, at: int) -> str:
    """Return "it" for the unit as a whole, the reference of a group below it."""
    group = unit.tree[at].group
    return "it" if at == 0 or group == NO_GROUP else snapshot.groups[group].ref


def name_arrangement(view: View) -> str:
    """Return what an arrangement has to obey besides room, as an end of a sentence."""
    columns = view.problem.columns
    rules: list[str] = []
    for node in view.unit.tree:
        rules += [f"every {size} share one {columns[c].key}" for c, size in node.slices]
        if node.group == NO_GROUP:
            continue
        for entry in view.problem.snapshot.groups[node.group].exclusive:
            if entry.key is None:
                rules.append("they keep out of what other groups of their kind hold alone")
            else:
                rules.append(f"no other group of its kind is in its {entry.key}")
    for task in view.unit.tasks:
        spec = view.spec_of(task.pod_class)
        rules += [f"they differ by at most {t.max_skew} between each {t.key}" for t in spec.spread]
        rules += [f"they are apart by {t.key}" for t in spec.anti_affinity]
        if spec.host_ports:
            rules.append("no node gives a host port twice")
    return f"so that {' and '.join(dict.fromkeys(rules))}" if rules else "together"
