"""What eviction would unlock: for a group without room, who would have to go, or why nobody may.

A quick answer to put beside a cause, not the cheapest: the exact model of `gangplan preempt`, asked
only about the domains with most room now. Groups that are alike are asked once.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from optimizer.explain_view import count_pods
from optimizer.objective import PREEMPT_OBJECTIVE, Placed, build_steps
from optimizer.search.kinds import describe_flat
from optimizer.search.victim_model import UndecidedError, choose_victims, empty_fleet
from optimizer.shortfall import list_some
from optimizer.victims import count_cost, explain_no_preemption, find_victims, sees_groups
from topology.model import NO_GROUP
from topology.owners import planned_ref

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optimizer.explain import Explainer
    from optimizer.explain_view import View
    from optimizer.problem import Unit
    from optimizer.search.victim_model import EmptiedFleet, VictimChoice
    from topology.plan import Cause

__all__ = ["MAX_KINDS", "EvictionAdviser"]

MAX_KINDS: Final = 8
"""Kinds of groups for which victims are sought in one answer; a kind takes up to a second."""
MAX_DOMAINS: Final = 3
MAX_NODES: Final = 64
"""Nodes of one domain that are offered: those with the fewest GPUs to clear for each pod."""
NODE_LIMIT: Final = 20
"""Branch-and-bound nodes of each solve."""
ROOM_CAUSES: Final = ("fragmented", "busy")

_ANYBODY: Final = 2**40
"""Above every priority."""


@dataclass(slots=True)
class EvictionAdviser:
    """Adds to causes what eviction would change."""

    explainer: Explainer
    skipped: int = 0
    """Groups for which victims were not sought any more."""
    _known: dict[object, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def add(self, unit: Unit, cause: Cause) -> Cause:
        """Return the cause of a unit with a sentence and `details.eviction` where room is short."""
        if cause.name not in ROOM_CAUSES:
            return cause
        view = self.explainer.choose_view(unit)
        key = (view.relax, describe_flat(view.problem, view.unit) or unit.key)
        if key not in self._known and len(self._known) >= MAX_KINDS:
            self.skipped += 1
            return cause
        if key not in self._known:
            self._known[key] = self._advise(view)
        sentence, eviction = self._known[key]
        holders = find_holders(view)
        details = {**cause.details, "eviction": eviction, "holders": holders}
        message = f"{cause.message}; {sentence}"
        if holders:
            listed = ", ".join(f"{h['group']} ({_count_gpus(h['gpus'])})" for h in holders)
            message += f"; the largest holders of what it could use: {listed}"
        return replace(cause, message=message, details=details)

    def describe_skipped(self) -> str | None:
        """Return a line about groups whose victims were not sought, None where all were."""
        if not self.skipped:
            return None
        return (
            f"what eviction would unlock was sought for {MAX_KINDS} kinds of groups only, not for "
            f"{self.skipped} more groups; ask about those by --group"
        )

    def _advise(self, view: View) -> tuple[str, dict[str, Any]]:
        unit, snapshot = view.unit, self.explainer.snapshot
        release = self.explainer.request.release
        reason = explain_no_preemption(snapshot, unit, release)
        if reason is not None:
            return f"it evicts nobody: {reason}", {"would": False, "reason": reason}
        if not self._fits_without(view, unit.priority):
            reason = self._say_who_stays(view)
            return f"eviction would not help: {reason}", {"would": False, "reason": reason}
        found = self._choose(view, unit.priority)
        if found is None:
            sentence = (
                f"evicting work below priority {unit.priority} would make room; ask "
                "`gangplan preempt` whose"
            )
            return sentence, {"would": True, "victims": None, "victimGpus": None}
        fleet, choice = found
        victims = [fleet.victims[v] for v in choice.victims]
        cost = count_cost(victims, snapshot.budgets)
        pods = sorted(p for victim in victims for p in victim.pods)
        names = list_some(sorted({planned_ref(snapshot, p) for p in pods}))
        beyond = f", {cost.pdb_violations} beyond disruption budgets" if cost.pdb_violations else ""
        sentence = (
            f"evicting {count_pods(cost.pods)} of lower priority with {_count_gpus(cost.gpus)} "
            f"would make room ({names}{beyond})"
        )
        return sentence, {
            "would": True,
            "victims": [snapshot.pods.refs[p] for p in pods],
            "victimGpus": cost.gpus,
        }

    def _fits_without(self, view: View, below: int) -> bool:
        return self.explainer.fits(view.unit, replace(view.relax, evictable_below=below))

    def _say_who_stays(self, view: View) -> str:
        """Return why those who are in the way may not be victims."""
        priority = view.unit.priority
        if not self._fits_without(view, _ANYBODY):
            return "the pods in its way may not be evicted by their own API, or are DaemonSet pods"
        equals = "pods in its way"
        have = "have"
        if (found := self._choose(view, _ANYBODY)) is not None:
            fleet, choice = found
            chosen = [fleet.victims[v] for v in choice.victims]
            stay = sum(len(v.pods) for v in chosen if v.priority >= priority)
            equals, have = f"{count_pods(stay)} in its way", "has" if stay == 1 else "have"
        return f"{equals} {have} the same priority or a higher one"

    def _choose(self, view: View, below: int) -> tuple[EmptiedFleet, VictimChoice] | None:
        """Return the cheapest victims of the domains with most room, None where none were found."""
        unit, explainer = view.unit, self.explainer
        request = replace(explainer.request, preempt=True, objective=PREEMPT_OBJECTIVE, pdb="soft")
        placed = {} if view.relax.plan else explainer.placed
        roots = {int(explainer.snapshot.pods.group[p]) for p in placed}
        fleet = empty_fleet(
            explainer.snapshot,
            request,
            victims=find_victims(
                explainer.snapshot,
                below,
                with_groups=sees_groups(unit, request.release),
                kept_roots=frozenset(roots - {NO_GROUP}),
            ),
            gone=(),
            placed=placed,
            only=[unit.ref],
        )
        u = next(i for i, other in enumerate(fleet.problem.units) if other.key == unit.key)
        own = fleet.problem.units[u]
        steps = build_steps(
            PREEMPT_OBJECTIVE, [Placed(unit.priority, len(own.tree), own.num_pods, own.gpus)]
        )
        best: VictimChoice | None = None
        for nodes in _find_places(fleet, own):
            try:
                choice = choose_victims(fleet, [u], nodes, steps, node_limit=NODE_LIMIT)
            except UndecidedError:
                continue
            if choice is None or not choice.placements:
                continue
            if best is None or choice.score > best.score:
                best = choice
        return None if best is None else (fleet, best)


def _find_places(fleet: EmptiedFleet, unit: Unit) -> list[NDArray[np.int64]]:
    """Return the nodes of the domains with most room now, or the cheapest nodes of the fleet."""
    problem, state = fleet.problem, fleet.state
    classes = sorted({t.pod_class for t in unit.tasks})
    room: NDArray[np.int64] = np.zeros(len(fleet.free), np.int64)
    for s in classes:
        room += state.fits(s)
    to_clear = np.zeros(len(room), np.int64)
    pods = problem.snapshot.pods
    for n, held in fleet.held.items():
        for v in held:
            to_clear[n] += sum(
                pods.specs[pods.spec[p]].gpus
                for p in fleet.victims[v].pods
                if int(pods.node[p]) == n
            )
    needed = unit.count_needed()

    def pick(nodes: NDArray[np.int64]) -> tuple[int, NDArray[np.int64]] | None:
        usable = nodes[room[nodes] > 0]
        order = usable[np.lexsort((usable, to_clear[usable] / room[usable]))]
        enough = int(np.searchsorted(np.cumsum(room[order]), needed)) + 1
        if enough > len(order):
            return None
        return int(to_clear[order[:enough]].sum()), np.sort(order[: max(MAX_NODES, enough)])

    if unit.root.required:
        required = unit.root.required[0]
        members = state.members(required.column)
        chosen = members if required.pinned < 0 else [members[required.pinned]]
        found = [place for nodes in chosen if (place := pick(nodes)) is not None]
    else:
        place = pick(np.arange(len(room)))
        found = [] if place is None else [place]
    found.sort(key=lambda entry: (entry[0], entry[1].tolist()))
    return [nodes for _, nodes in found[:MAX_DOMAINS]]


def find_holders(view: View, most: int = 3) -> list[dict[str, Any]]:
    """Return the other groups and single pods that hold most GPUs of the nodes a unit may use."""
    problem = view.problem
    snapshot, pods = problem.snapshot, problem.snapshot.pods
    wanted = [t.pod_class for t in view.unit.tasks if problem.class_gpus[t.pod_class]]
    if not wanted:
        return []
    usable = np.zeros(len(snapshot.nodes), bool)
    for pod_class in wanted:
        usable |= problem.eligible[pod_class]
    own = [n.group for n in view.unit.tree if n.group != NO_GROUP]
    held: Counter[str] = Counter()
    gpus = np.array([spec.gpus for spec in pods.specs] or [0], np.int64)[pods.spec]
    holds = pods.holds_room & (pods.node >= 0) & (gpus > 0) & ~np.isin(pods.group, own)
    for p in np.flatnonzero(holds).tolist():
        if usable[pods.node[p]]:
            held[planned_ref(snapshot, p)] += int(gpus[p])
    ranked = sorted(held.items(), key=lambda entry: (-entry[1], entry[0]))
    return [{"group": name, "gpus": amount} for name, amount in ranked[:most]]


def _count_gpus(amount: int) -> str:
    return f"{amount} GPU{'' if amount == 1 else 's'}"
