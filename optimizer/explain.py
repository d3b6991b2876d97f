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
from optimizer.search.exact import solve_exact
from optimizer.search.kinds import describe_flat
from optimizer.victims import explain_no_preemption
from topology.model import NO_GROUP
from topology.plan import Cause

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from optimizer.decode import UnitPlacement
    from optimizer.problem import Unit, UnitKey
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
    _index: dict[Relax, dict[UnitKey, int]] = field(default_factory=dict)
    _found: dict[tuple[Relax, object], tuple[int, ...] | None] = field(default_factory=dict)
    _free: dict[Relax, NDArray[np.int64]] = field(default_factory=dict)
    _events: dict[object, tuple[dict[str, int], int]] = field(default_factory=dict)

    def explain(self, unit: Unit, cycle: str = "") -> Cause:
        """Return the cause of one unit of `unplaced`.

        `cycle` is what a scheduler's own cycle said of it, "" where the search left it out.
        """
        cause = self._explain_cycle(unit, cycle) if cycle else self._explain(unit)
        root = unit.root.group
        if root == NO_GROUP or self.snapshot.groups[root].kind != "composite":
            return cause
        # Each of its groups will show this message.
        return replace(cause, message=f"composite group {unit.ref}: {cause.message}")

    def _explain_cycle(self, unit: Unit, cycle: str) -> Cause:
        """Say what stopped the scheduler, and whether another arrangement would do."""
        if unit.has_quorum() and not unit.blocked and self.fits(unit, Relax()):
            return Cause(
                "fragmented",
                f"kube-scheduler leaves it waiting: {cycle}; another choice of nodes has room for "
                "it, which --policy optimize finds",
                {"cycle": cycle},
            )
        cause = self._explain(unit)
        return replace(cause, details={**cause.details, "cycle": cycle})

    def _explain(self, unit: Unit) -> Cause:
        if not unit.has_quorum():
            return Cause("quorum-missing", *say_quorum(self.snapshot, unit))
        if unit.blocked:
            return Cause("refused", f"its scheduler refuses the group: {unit.blocked}")
        now = self.choose_view(unit)
        if not self.fits(unit, _EMPTIED):
            words = say_impossible(self._view(unit, _EMPTIED))
            return self._with_event(now, "impossible", *words)
        is_pinned = any(r.pinned != FREE_CHOICE for n in unit.tree for r in n.required)
        if is_pinned and self.fits(unit, replace(now.relax, pins=True)):
            return self._with_event(now, "domain-pinned", *say_pinned(now))
        below = unit.priority if self._why_nobody_goes(unit) is None else None
        freed = replace(now.relax, devices=True, evictable_below=below)
        if self._has_claims(unit) and self.fits(unit, freed):
            words = say_devices(now, self.request.dra_reclaim)
            return self._with_event(now, "device-held", *words)
        never = unit.root.group >= 0 and self.snapshot.groups[unit.root.group].never_preempts
        if never and self.fits(unit, replace(now.relax, evictable_below=unit.priority)):
            message = (
                f"evicting work below priority {unit.priority} would make room, but its preemption "
                "policy is Never; set PreemptLowerPriority, or wait"
            )
            return self._with_event(now, "policy-never", message, {"priority": unit.priority})
        nodes = self.find(unit, replace(now.relax, filters=True))
        if nodes is not None:
            return self._with_event(now, "constraint", *say_filters(now, nodes))
        return self._explain_room(now)

    def choose_view(self, unit: Unit) -> View:
        """Return the unit in the fleet as it is, or, where it fits there, as the plan leaves it."""
        alone = Relax(plan=bool(self.placed))
        return self._view(unit, alone if not self.fits(unit, alone) else Relax())

    def _state(self, relax: Relax) -> tuple[FleetState, dict[UnitKey, int]]:
        if relax not in self._states:
            problem = build_problem(
                self.snapshot,
                self.request,
                relax=relax,
                placed=self._placed_under(relax),
                only=self.unplaced,
            )
            self._states[relax] = FleetState(problem)
            self._index[relax] = {unit.key: u for u, unit in enumerate(problem.units)}
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
        u = index[unit.key]
        if problem.reservations:
            free = free.copy()
            for pod_class, node in find_nominated(problem, u):
                free[node] -= problem.amounts[pod_class]
        return View(state, u, relax, free)

    def find(self, unit: Unit, relax: Relax) -> tuple[int, ...] | None:
        """Return the nodes a unit would use in the fleet with some facts left out."""
        state, index = self._state(relax)
        u = index[unit.key]
        kind = describe_flat(state.problem, state.problem.units[u]) or unit.key
        key = (relax, kind)
        if key not in self._found:
            self._found[key] = find_nodes(state, u)
        return self._found[key]

    def fits(self, unit: Unit, relax: Relax) -> bool:
        """Tell whether a unit fits the fleet with some facts left out."""
        return self.find(unit, relax) is not None

    def _has_claims(self, unit: Unit) -> bool:
        specs = self.snapshot.pods.specs
        return any(specs[self.problem.class_specs[t.pod_class]].claims for t in unit.tasks)

    def _explain_room(self, now: View) -> Cause:
        mark = now.state.mark()
        holds = hold_nominated(now.state, now.index)
        enough = has_enough_in_sum(now)
        message, details = say_room(now, enough=enough, fits_alone=self._fits_alone(now))
        now.state.undo(mark)
        if holds:
            message += f"; room is kept for {count_pods(len(holds))} nominated to a node"
            details["nominatedPods"] = len(holds)
        if self.request.preempt:
            message += f"; {self._say_preemption(now.unit)}"
        return self._with_event(now, "fragmented" if enough else "busy", message, details)

    def _why_nobody_goes(self, unit: Unit) -> str | None:
        """Return why nobody is evicted for a unit, None where victims were looked for."""
        if not self.request.preempt:
            return "eviction was not asked for"
        return explain_no_preemption(self.snapshot, unit, self.request.release)

    def _say_preemption(self, unit: Unit) -> str:
        reason = self._why_nobody_goes(unit)
        if reason is not None:
            return f"nobody is evicted for it: {reason}"
        within = " within the disruption budgets" if self.request.pdb == "hard" else ""
        return f"no victims below priority {unit.priority} were found that make room{within}"

    def _fits_alone(self, now: View) -> bool:
        """Tell whether `choose_view` found that only the rest of the plan is in the way."""
        return bool(self.placed) and not now.relax.plan

    def _with_event(
        self, now: View, name: CauseName, message: str, details: dict[str, Any]
    ) -> Cause:
        if self._fits_alone(now) and "fitsAlone" not in details and name != "impossible":
            others = "alone it would fit, but the others of this plan take the room; beside them"
            message = f"{others} {message}"
            details = details | {"fitsAlone": True}
        reasons, passing = self._count_reasons(now)
        if reasons:
            event = format_event(reasons, len(self.snapshot.nodes), passing)
            details = details | {"nodes": reasons, "event": event}
        return Cause(name, message, details)

    def _count_reasons(self, now: View) -> tuple[dict[str, int], int]:
        """Count what the scheduler would say of the unit's most difficult pod."""
        problem = now.problem
        whose = now.unit.key if problem.reservations else None
        found = []
        for pod_class in sorted({t.pod_class for t in now.unit.tasks}):
            key = (now.relax, pod_class, whose)
            if key not in self._events:
                self._events[key] = count_reasons(problem, pod_class, now.free)
            found.append((-int(problem.class_gpus[pod_class]), self._events[key]))
        _, (reasons, passing) = min(found, key=lambda entry: (entry[1][1], entry[0]))
        return reasons, passing
