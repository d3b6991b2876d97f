"""Why a unit is not placed: the first cause that applies.

Each cause is a question to the same decoder about a changed fleet: would it fit if every pod were
gone, if taints were ignored, if its running members did not pin it? One changed fleet serves all
units that are asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from optimizer.decode import place_unit
from optimizer.explain_impossible import say_impossible
from optimizer.explain_view import View, count_pods
from optimizer.explain_words import (
    has_enough_in_sum,
    say_devices,
    say_filters,
    say_pinned,
    say_quorum,
    say_room,
)
from optimizer.fleet_state import FleetState
from optimizer.node_reasons import count_reasons, format_event
from optimizer.nominations import find_nominated, hold_nominated
from optimizer.objective import Level
from optimizer.problem import BROKEN, FREE_CHOICE, Problem, Relax, build_problem, count_free
from optimizer.search.bins import make_node_bins
from optimizer.search.exact import describe_flat, solve_exact
from topology.model import NO_GROUP
from topology.plan import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Unit
    from topology.model import Snapshot
    from topology.plan import CauseName, Request

__all__ = ["Explainer", "find_nodes"]

MAX_EXACT_VARIABLES: Final = 20_000
"""Pod variables up to which a unit the greedy decoder refuses is decided exactly."""

_EMPTIED: Final = Relax(empty=True, filters=True, pins=True, devices=True)


def find_nodes(state: FleetState, u: int) -> tuple[int, ...] | None:
    """Return the nodes one unit would use in the current state, which is left unchanged.

    Plain gangs are decided by the decoder, which is exact for them; units with several classes,
    levels or slices that it refuses are decided by a small exact model.

    Returns:
      Node indices, or None when it does not fit.
    """
    mark = state.mark()
    hold_nominated(state, u)
    placement = place_unit(state, state.problem.units[u])
    if placement is None:
        placement = _place_exactly(state, u)
    state.undo(mark)
    if placement is None:
        return None
    return tuple(sorted({n for fill in placement for n in fill.nodes.tolist()}))


def _place_exactly(state: FleetState, u: int) -> UnitPlacement | None:
    """Place a unit that the greedy decoder refuses; the state takes what is found."""
    problem = state.problem
    unit = problem.units[u]
    if unit.blocked or not unit.tasks or describe_flat(problem, unit) is not None:
        return None
    if any(r.pinned == BROKEN for r in unit.root.required):
        return None
    classes = sorted({t.pod_class for t in unit.tasks})
    bins = make_node_bins(state, np.arange(len(problem.free)), classes)
    if not bins or len(bins) * len(unit.tasks) > MAX_EXACT_VARIABLES:
        return None
    result = solve_exact(state, [u], bins, [Level("groupsPlaced")], node_limit=200)
    return None if result is None else result.placements.get(u)


@dataclass(slots=True)
class Explainer:
    """Answers for the units of one problem that a plan leaves out."""

    snapshot: Snapshot
    request: Request
    problem: Problem
    placed: Mapping[int, int]
    """Pod -> node of everything the plan places."""
    unplaced: Sequence[str]
    """Refs of the units to explain."""
    _states: dict[Relax, FleetState] = field(default_factory=dict)
    _index: dict[Relax, dict[str, int]] = field(default_factory=dict)
    _found: dict[tuple[Relax, object], tuple[int, ...] | None] = field(default_factory=dict)
    _free: dict[Relax, NDArray[np.int64]] = field(default_factory=dict)
    _events: dict[tuple[int, str], tuple[dict[str, int], int]] = field(default_factory=dict)

    def explain(self, unit: Unit) -> Cause:
        """Return the cause of one unit of `unplaced`."""
        cause = self._explain(unit)
        root = unit.root.group
        if root == NO_GROUP or self.snapshot.groups[root].kind != "composite":
            return cause
        # Each of its groups will show this message.
        return replace(cause, message=f"composite group {unit.ref}: {cause.message}")

    def _explain(self, unit: Unit) -> Cause:
        if not unit.has_quorum():
            return Cause("quorum-missing", *say_quorum(self.snapshot, unit))
        if unit.blocked:
            return Cause("refused", f"its scheduler refuses the group: {unit.blocked}")
        if not self._fits(unit, _EMPTIED):
            words = say_impossible(self._view(unit, _EMPTIED))
            return self._with_event(unit, "impossible", *words)
        is_pinned = any(r.pinned != FREE_CHOICE for n in unit.tree for r in n.required)
        if is_pinned and self._fits(unit, Relax(pins=True)):
            return self._with_event(unit, "domain-pinned", *say_pinned(self._view(unit, Relax())))
        if self._has_claims(unit) and self._fits(unit, Relax(devices=True)):
            return self._with_event(unit, "device-held", *say_devices(self._view(unit, Relax())))
        never = unit.root.group >= 0 and self.snapshot.groups[unit.root.group].never_preempts
        if never and self._fits(unit, Relax(evictable_below=unit.priority)):
            message = (
                f"evicting work below priority {unit.priority} would make room, but its preemption "
                "policy is Never; set PreemptLowerPriority, or wait"
            )
            return self._with_event(unit, "policy-never", message, {"priority": unit.priority})
        nodes = self._find(unit, Relax(filters=True))
        if nodes is not None:
            words = say_filters(self._view(unit, Relax()), nodes)
            return self._with_event(unit, "constraint", *words)
        return self._explain_room(unit)

    def _state(self, relax: Relax) -> tuple[FleetState, dict[str, int]]:
        if relax not in self._states:
            problem = build_problem(
                self.snapshot,
                self.request,
                relax=relax,
                placed=self._placed_under(relax),
                only=self.unplaced,
            )
            self._states[relax] = FleetState(problem)
            self._index[relax] = {unit.ref: u for u, unit in enumerate(problem.units)}
        return self._states[relax], self._index[relax]

    def _placed_under(self, relax: Relax) -> Mapping[int, int]:
        return {} if relax.empty or relax.plan else self.placed

    def _view(self, unit: Unit, relax: Relax) -> View:
        state, index = self._state(relax)
        problem = state.problem
        if relax not in self._free:
            self._free[relax] = count_free(
                self.snapshot, problem.resources, relax, self._placed_under(relax)
            )
        free = self._free[relax]
        u = index[unit.ref]
        if problem.reservations:
            free = free.copy()
            for pod_class, node in find_nominated(problem, u):
                free[node] -= problem.amounts[pod_class]
        return View(state, problem.units[u], free)

    def _find(self, unit: Unit, relax: Relax) -> tuple[int, ...] | None:
        state, index = self._state(relax)
        u = index[unit.ref]
        kind = describe_flat(state.problem, state.problem.units[u]) or unit.ref
        key = (relax, kind)
        if key not in self._found:
            self._found[key] = find_nodes(state, u)
        return self._found[key]

    def _fits(self, unit: Unit, relax: Relax) -> bool:
        return self._find(unit, relax) is not None

    def _has_claims(self, unit: Unit) -> bool:
        specs = self.snapshot.pods.specs
        return any(specs[self.problem.class_specs[t.pod_class]].claims for t in unit.tasks)

    def _explain_room(self, unit: Unit) -> Cause:
        view = self._view(unit, Relax())
        mark = view.state.mark()
        holds = hold_nominated(view.state, self._index[Relax()][unit.ref])
        enough = has_enough_in_sum(view)
        message, details = say_room(view, enough=enough)
        view.state.undo(mark)
        if holds:
            message += f"; room is kept for {count_pods(len(holds))} nominated to a node"
            details["nominatedPods"] = len(holds)
        if self.placed and self._fits(unit, Relax(plan=True)):
            message += "; alone it would fit: others that this plan places take the room"
            details["fitsAlone"] = True
        return self._with_event(unit, "fragmented" if enough else "busy", message, details)

    def _with_event(
        self, unit: Unit, name: CauseName, message: str, details: dict[str, Any]
    ) -> Cause:
        reasons, passing = self._count_reasons(unit)
        if reasons:
            event = format_event(reasons, len(self.snapshot.nodes), passing)
            details = details | {"nodes": reasons, "event": event}
        return Cause(name, message, details)

    def _count_reasons(self, unit: Unit) -> tuple[dict[str, int], int]:
        """Count what the scheduler would say of the unit's most difficult pod as things stand."""
        view = self._view(unit, Relax())
        problem = view.problem
        whose = unit.ref if problem.reservations else ""
        found = []
        for pod_class in sorted({t.pod_class for t in view.unit.tasks}):
            if (pod_class, whose) not in self._events:
                self._events[pod_class, whose] = count_reasons(problem, pod_class, view.free)
            found.append((-int(problem.class_gpus[pod_class]), self._events[pod_class, whose]))
        _, (reasons, passing) = min(found, key=lambda entry: (entry[1][1], entry[0]))
        return reasons, passing
