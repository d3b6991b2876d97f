"""Why a unit is not placed: the first cause that applies, with numbers to act on.

Each cause is a question to the same decoder about a changed fleet: would it fit if every pod were
gone, if taints were ignored, if its running members did not pin it? One changed fleet serves all
units that are asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from optimizer.decode import place_unit
from optimizer.fleet_state import FleetState
from optimizer.node_reasons import count_reasons, format_event
from optimizer.nominations import hold_nominated
from optimizer.objective import Level
from optimizer.problem import BROKEN, FREE_CHOICE, Problem, Relax, build_problem
from optimizer.search.bins import make_node_bins
from optimizer.search.exact import describe_flat, solve_exact
from topology.model import PODS
from topology.plan import Cause
from topology.usage import count_usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from optimizer.problem import Unit
    from topology.model import Snapshot
    from topology.plan import CauseName, Request

__all__ = ["Explainer", "fits_alone"]

MAX_EXACT_VARIABLES: Final = 20_000
"""Pod variables up to which a unit the greedy decoder refuses is decided exactly."""


def fits_alone(state: FleetState, u: int) -> bool:
    """Tell whether one unit fits in the current state, leaving it unchanged.

    Plain gangs are decided by the decoder, which is exact for them; units with several classes,
    levels or slices that it refuses are decided by a small exact model.
    """
    mark = state.mark()
    hold_nominated(state, u)
    fits = place_unit(state, state.problem.units[u]) is not None or _fits_exactly(state, u)
    state.undo(mark)
    return fits


def _fits_exactly(state: FleetState, u: int) -> bool:
    """Decide a unit that the greedy decoder refuses; the state may take its placement."""
    problem = state.problem
    unit = problem.units[u]
    if unit.blocked or not unit.tasks or describe_flat(problem, unit) is not None:
        return False
    if any(r.pinned == BROKEN for r in unit.root.required):
        return False
    classes = sorted({t.pod_class for t in unit.tasks})
    bins = make_node_bins(state, np.arange(len(problem.free)), classes)
    if not bins or len(bins) * len(unit.tasks) > MAX_EXACT_VARIABLES:
        return False
    result = solve_exact(state, [u], bins, [Level("groupsPlaced")], node_limit=200)
    return result is not None and u in result.placements


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
    _verdicts: dict[tuple[Relax, object], bool] = field(default_factory=dict)
    _events: dict[int, tuple[dict[str, int], int]] = field(default_factory=dict)
    _free: list[dict[str, int]] = field(default_factory=list)

    def explain(self, unit: Unit) -> Cause:
        """Return the cause of one unit of `unplaced`."""
        if not unit.has_quorum():
            return self._explain_quorum(unit)
        if unit.blocked:
            return Cause("refused", f"its scheduler refuses the group: {unit.blocked}")
        if not self._fits(unit, Relax(empty=True, filters=True, pins=True, devices=True)):
            return self._explain_impossible(unit)
        pinned = [r for n in unit.tree for r in n.required if r.pinned != FREE_CHOICE]
        if pinned and self._fits(unit, Relax(pins=True)):
            return self._explain_pinned(unit)
        if self._has_claims(unit) and self._fits(unit, Relax(devices=True)):
            return self._with_event(
                unit,
                "device-held",
                "it would fit if devices held through resource claims were free; claims give "
                "devices back only when their pods are gone and the claim is released",
                {},
            )
        never = unit.root.group >= 0 and self.snapshot.groups[unit.root.group].never_preempts
        if never and self._fits(unit, Relax(evictable_below=unit.priority)):
            return self._with_event(
                unit,
                "policy-never",
                f"evicting work below priority {unit.priority} would make room, but its "
                "preemption policy is Never",
                {},
            )
        if self._fits(unit, Relax(filters=True)):
            return self._with_event(
                unit,
                "constraint",
                "it would fit now if taints, cordons and node readiness were ignored; uncordon "
                "or untaint nodes, or add tolerations",
                {},
            )
        return self._explain_room(unit)

    def _state(self, relax: Relax) -> tuple[FleetState, dict[str, int]]:
        if relax not in self._states:
            placed = {} if relax.empty else self.placed
            problem = build_problem(
                self.snapshot, self.request, relax=relax, placed=placed, only=self.unplaced
            )
            self._states[relax] = FleetState(problem)
            self._index[relax] = {unit.ref: u for u, unit in enumerate(problem.units)}
        return self._states[relax], self._index[relax]

    def _fits(self, unit: Unit, relax: Relax) -> bool:
        state, index = self._state(relax)
        if unit.ref not in index:
            return False
        u = index[unit.ref]
        kind = describe_flat(state.problem, state.problem.units[u]) or unit.ref
        key = (relax, kind)
        if key not in self._verdicts:
            self._verdicts[key] = fits_alone(state, u)
        return self._verdicts[key]

    def _has_claims(self, unit: Unit) -> bool:
        specs = self.snapshot.pods.specs
        return any(specs[self.problem.class_specs[t.pod_class]].claims for t in unit.tasks)

    def _explain_quorum(self, unit: Unit) -> Cause:
        for at, node in enumerate(unit.tree):
            have = unit.count_members(at)
            if have < node.min_count:
                pending = unit.count_pending(at)
                where = self._name(unit, at)
                return Cause(
                    "quorum-missing",
                    f"{where} needs {node.min_count} pods, but only {have} exist "
                    f"({node.running} running, {pending} pending without gates); "
                    f"{node.min_count - have} more would be enough",
                    {
                        "minCount": node.min_count,
                        "running": node.running,
                        "pending": pending,
                        "missing": node.min_count - have,
                    },
                )
        ready = sum(unit.has_quorum(c) for c in unit.root.children)
        return Cause(
            "quorum-missing",
            f"it needs {unit.root.min_groups} of its groups, but only {ready} have the pods they "
            "need",
            {"minGroups": unit.root.min_groups, "ready": ready},
        )

    def _name(self, unit: Unit, at: int) -> str:
        if at == 0 or unit.tree[at].group < 0:
            return "it"
        return self.snapshot.groups[unit.tree[at].group].ref

    def _explain_impossible(self, unit: Unit) -> Cause:
        relax = Relax(empty=True, filters=True, pins=True, devices=True)
        state, index = self._state(relax)
        whole = state.problem.units[index[unit.ref]] if unit.ref in index else unit
        for task in whole.tasks:
            fits = state.fits(task.pod_class)
            if not fits.any():
                return self._explain_impossible_pod(state.problem, task.pod_class)
        best = self._best_domain(state, whole)
        if best is not None:
            key, value, pods, wanted, exact = best
            if value is None:
                return Cause(
                    "impossible",
                    f"no node that can hold its pods carries the label {key}, which it requires; "
                    "label the nodes",
                    {"key": key, "domains": 0},
                )
            least = "" if exact else "by room alone "
            return Cause(
                "impossible",
                f"needs {wanted} pods in one {key}; {least}the best domain, {value}, holds {pods} "
                "even when it is empty; a larger domain, fewer or smaller pods would be enough",
                {"key": key, "bestDomain": value, "asked": wanted, "found": pods},
            )
        total = sum(min(int(state.fits(t.pod_class).sum()), t.count) for t in whole.tasks)
        wanted = max(whole.root.min_count - whole.root.running, 1)
        return Cause(
            "impossible",
            f"needs {wanted} pods; the nodes it may use hold {total} even when they are empty, "
            "in no arrangement its constraints allow; more nodes or a smaller minimum would be "
            "enough",
            {"asked": wanted, "found": total},
        )

    def _explain_impossible_pod(self, problem: Problem, pod_class: int) -> Cause:
        spec = self.snapshot.pods.specs[problem.class_specs[pod_class]]
        eligible = np.flatnonzero(problem.eligible[pod_class])
        if eligible.size == 0:
            reasons, passing = self._event(problem.class_specs[pod_class])
            event = format_event(reasons, len(self.snapshot.nodes), passing)
            return Cause(
                "impossible",
                "no node matches the node selector and affinity of its pods; change them or label "
                f"nodes ({event})",
                {"nodes": reasons, "event": event},
            )
        nodes = [self.snapshot.nodes[n] for n in eligible.tolist()]
        short = []
        for resource, amount in spec.requests:
            most = max(node.allocatable.get(resource, 0) for node in nodes)
            if most < amount:
                short.append((resource, amount, most))
        if not short:
            resources = [r for r, _ in spec.requests if r != PODS]
            return Cause(
                "impossible",
                f"no node has enough {' and '.join(resources)} at once for one of its pods, even "
                "when it is empty",
                {"asked": dict(spec.requests)},
            )
        resource, amount, most = short[0]
        return Cause(
            "impossible",
            f"each pod asks for {resource} {amount}; the largest node it may use offers {most}; "
            f"nodes with {amount} or pods that ask for at most {most} would be enough",
            {"resource": resource, "asked": amount, "found": most},
        )

    def _best_domain(
        self, state: FleetState, unit: Unit
    ) -> tuple[str, str | None, int, int, bool] | None:
        """Return (key, value, pods that fit, pods wanted, exact) of the most promising domain."""
        for at in unit.walk():
            node = unit.tree[at]
            for required in node.required:
                column = state.problem.columns[required.column]
                wanted = max(node.min_count - node.running, 1)
                tasks = [t for b in unit.walk(at) for t in unit.tree[b].tasks]
                if not column.values:
                    return column.key, None, 0, wanted, True
                room = np.zeros(len(column.values), np.int64)
                for t in tasks:
                    task = unit.tasks[t]
                    caps = state.capacity(task.pod_class, required.column)
                    room += np.minimum(caps, task.count)
                best = int(np.argmax(room))
                if required.pinned >= 0:
                    best = required.pinned
                value = "/".join(column.values[best])
                if room[best] < wanted or at == 0:
                    exact = len(tasks) == 1
                    return column.key, value, int(room[best]), wanted, exact
        return None

    def _explain_pinned(self, unit: Unit) -> Cause:
        for node in unit.tree:
            for required in node.required:
                column = self.problem.columns[required.column]
                if required.pinned == BROKEN:
                    return self._with_event(
                        unit,
                        "domain-pinned",
                        f"its {node.running} running members are not in one {column.key}, so the "
                        "scheduler places no further member; move or restart them together",
                        {"key": column.key},
                    )
                if required.pinned >= 0:
                    value = "/".join(column.values[required.pinned])
                    return self._with_event(
                        unit,
                        "domain-pinned",
                        f"its {node.running} running members hold it to {column.key}={value}, "
                        f"which has no room for {unit.count_pending()} more; it would fit in "
                        "another domain if it were restarted as a whole",
                        {"key": column.key, "domain": value, "running": node.running},
                    )
        raise AssertionError("a pinned unit has a pinned term")

    def _explain_room(self, unit: Unit) -> Cause:
        state, index = self._state(Relax())
        now = state.problem.units[index[unit.ref]]
        wanted = max(now.root.min_count - now.root.running, 1)
        enough = self._has_enough_in_sum(state, now)
        total = sum(min(int(state.fits(t.pod_class).sum()), t.count) for t in now.tasks)
        details: dict[str, Any] = {"asked": wanted, "podsThatFitAnywhere": total}
        best = self._best_domain(state, now)
        lacks = ""
        if best is not None:
            key, value, pods, in_domain, _ = best
            details |= {"key": key, "bestDomain": value, "found": pods}
            lacks = (
                f"; the best {key} is {value}, which holds {pods} of {in_domain} pods now; room "
                f"for {max(in_domain - pods, 1)} more there would be enough"
                if pods < in_domain
                else f"; the best {key} is {value}, but the pods do not fit together there"
            )
        if enough:
            return self._with_event(
                unit,
                "fragmented",
                f"enough is free in sum for its {wanted} pods, but not where they may go "
                f"together{lacks}",
                details,
            )
        if best is None:
            lacks = f"; {max(wanted - total, 1)} more would be enough"
        return self._with_event(
            unit,
            "busy",
            f"it fits an empty cluster, but {total} of {wanted} pods have room now{lacks}",
            details,
        )

    def _has_enough_in_sum(self, state: FleetState, unit: Unit) -> bool:
        """Tell whether the nodes it may use are free enough in sum, resource by resource."""
        problem = state.problem
        left = max(unit.root.min_count - unit.root.running, 1)
        asked = np.zeros(len(problem.resources), np.int64)
        usable = np.zeros(len(problem.free), bool)
        for task in sorted(unit.tasks, key=lambda t: int(problem.class_gpus[t.pod_class])):
            take = min(task.count, left) if len(unit.tree) == 1 else task.count
            asked += problem.requests[task.pod_class].astype(np.int64) * take
            usable |= problem.eligible[task.pod_class]
            left -= take
        for node in unit.tree[:1]:
            for required in node.required:
                usable &= problem.columns[required.column].codes >= 0
        free = np.maximum(state.free[usable], 0).sum(axis=0)
        return bool(np.all((asked == 0) | (asked <= free)))

    def _with_event(
        self, unit: Unit, name: CauseName, message: str, details: dict[str, Any]
    ) -> Cause:
        hardest = max(
            unit.tasks,
            key=lambda t: (int(self.problem.class_gpus[t.pod_class]), -t.pod_class),
        )
        reasons, passing = self._event(self.problem.class_specs[hardest.pod_class])
        event = format_event(reasons, len(self.snapshot.nodes), passing)
        return Cause(name, message, details | {"nodes": reasons, "event": event})

    def _event(self, spec: int) -> tuple[dict[str, int], int]:
        if not self._free:
            usage = count_usage(self.snapshot)
            free = usage.free
            column = {name: r for r, name in enumerate(usage.resources)}
            for pod, node in self.placed.items():
                for name, amount in self.snapshot.pods.specs[self.snapshot.pods.spec[pod]].requests:
                    free[node, column[name]] -= amount
            self._free = [dict(zip(usage.resources, row, strict=True)) for row in free.tolist()]
        if spec not in self._events:
            self._events[spec] = count_reasons(
                self.snapshot.pods.specs[spec], self.snapshot.nodes, self._free
            )
        return self._events[spec]
