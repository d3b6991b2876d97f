"""One pass over the scheduling queue: what each entry in turn gets, and whom it evicts.

After a preemption the plan holds the preemptor's pods on their nominated nodes and the victims as
gone, and the queue goes on in that fleet: as if the victims had left and the nominations held.

Source: kubernetes KEP-4671 (queue of pod groups), KEP-5710 (preemption). Before 1.37 pods are what
is sorted, and popping one pulls in its group; 1.35 schedules pods one by one and holds those of a
gang until enough of them have a node (Permit).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from optimizer.replay.cycle import Cycle, choose_node
from optimizer.replay.importance import Candidates
from optimizer.replay.preemption import Preemption, preempt_for_group
from optimizer.replay.single_pod import preempt_for_pod
from optimizer.replay.state import WorkingSnapshot
from optimizer.replay.tried import TriedPlacements
from optimizer.victims import (
    BudgetIndex,
    count_cost,
    explain_no_preemption,
    find_root,
    remove_pods,
    sees_groups,
)
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from optimizer.problem import Problem
    from optimizer.replay.importance import Candidate
    from optimizer.units import Unit, UnitKey
    from optimizer.victims import VictimCost
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["ReplayResult", "replay_queue"]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What one pass over the queue comes to."""

    after: Snapshot
    """The fleet without the victims."""
    placed: Mapping[int, int]
    """Pod -> node, nominated ones included."""
    evictions: tuple[tuple[int, str], ...]
    """(pod, ref of the unit that it goes for), ascending."""
    cost: VictimCost
    messages: Mapping[UnitKey, str]
    """Unit -> why its cycle placed nothing."""


def replay_queue(
    snapshot: Snapshot,
    request: Request,
    problem: Problem,
    progress: Callable[[str], None] | None = None,
) -> ReplayResult:
    """Do what kube-scheduler of a release would do with everything that waits, once.

    Args:
      snapshot: The fleet.
      request: `release` and `preempt` matter; objective, budgets mode, effort and seed do not.
      problem: What `build_problem` made of both.
      progress: Called with a line now and then.

    Returns:
      Placements and victims in indices of the snapshot.
    """
    say = progress or (lambda _: None)
    say(f"replaying kube-scheduler {request.release} for {len(problem.units)} groups and pods")
    barred: set[UnitKey] = set()
    while True:
        queue = _Queue(snapshot, request, problem, frozenset(barred))
        for entry in queue.order():
            queue.serve(entry)
        wasted = queue.time_out()
        if not wasted:
            return queue.finish()
        barred |= wasted


@dataclass(slots=True)
class _Queue:
    snapshot: Snapshot
    request: Request
    problem: Problem
    barred: frozenset[UnitKey]
    """Gangs that may not evict, because in an earlier pass they did and failed all the same."""
    state: WorkingSnapshot = field(init=False)
    candidates: Candidates = field(init=False)
    budgets: BudgetIndex = field(init=False)
    tried: TriedPlacements = field(init=False)
    now: Snapshot = field(init=False)
    """The fleet without the victims so far."""
    gone: list[tuple[Candidate, str]] = field(default_factory=list)
    messages: dict[UnitKey, str] = field(default_factory=dict)
    _cycles: dict[UnitKey, Cycle] = field(default_factory=dict)
    _running: dict[int, list[int]] = field(default_factory=dict)
    _held: dict[UnitKey, list[Preemption]] = field(default_factory=dict)
    """1.35: what pods of a gang hold until enough of them do."""

    def __post_init__(self) -> None:
        self.state = WorkingSnapshot(self.problem)
        self.candidates = Candidates(self.snapshot, self.request.release)
        self.budgets = BudgetIndex(self.snapshot)
        self.tried = TriedPlacements(self.state)
        self.now = self.snapshot
        pods = self.snapshot.pods
        for p in np.flatnonzero(pods.is_running_member & (pods.group != NO_GROUP)).tolist():
            self._running.setdefault(int(pods.group[p]), []).append(p)

    def order(self) -> Iterator[tuple[Unit, int | None]]:
        """Yield the entries of the queue: a unit, or from a unit one pod (1.35)."""
        if self.request.release >= "1.37":
            yield from ((unit, None) for unit in self.problem.units)
            return
        pods = self.snapshot.pods
        seen: set[UnitKey] = set()
        waiting = [
            (-int(pods.priority[p]), int(pods.created[p]), p, u)
            for u, unit in enumerate(self.problem.units)
            for task in unit.tasks
            for p in task.pods
        ]
        for _, _, pod, u in sorted(waiting):
            unit = self.problem.units[u]
            if self.request.release == "1.35" and _is_flat(unit, self.snapshot):
                yield unit, pod
            elif unit.key not in seen:
                seen.add(unit.key)
                yield unit, None

    def serve(self, entry: tuple[Unit, int | None]) -> None:
        """Run the cycle of one entry, with preemption where it follows."""
        unit, pod = entry
        cycle = self._cycles.setdefault(
            unit.key, Cycle(self.state, unit, self.request.release, self._running, self.tried)
        )
        if not unit.tasks:
            return
        if not cycle.has_quorum():
            self.messages[unit.key] = "it does not enter the queue: too few of its pods exist"
        elif unit.blocked:
            self.messages[unit.key] = unit.blocked
        elif unit.root.group == NO_GROUP or pod is not None:
            self._serve_pod(unit, unit.tasks[0].pods[0] if pod is None else pod)
        else:
            self._serve_group(unit, cycle)

    def _serve_pod(self, unit: Unit, pod: int) -> None:
        node = choose_node(self.state, pod, self.state.everywhere)
        found: Preemption | None = None
        if node is not None:
            self.state.assume(pod, node)
            found = Preemption(((pod, node),), ())
        elif (units := self._find_candidates(unit)) is not None:
            found = preempt_for_pod(self.state, pod, units, self.budgets)
        if found is None:
            self.messages[unit.key] = "no node passes all filters"
        elif unit.root.group == NO_GROUP:
            self._keep(unit, found.victims)
        else:
            self._hold(unit, found)

    def _hold(self, unit: Unit, found: Preemption) -> None:
        """Let a pod of a gang wait for the others; its victims are gone from now on."""
        self._held.setdefault(unit.key, []).append(found)
        self._keep(unit, found.victims)

    def _serve_group(self, unit: Unit, cycle: Cycle) -> None:
        outcome = cycle.run()
        if outcome.is_success:
            return
        self.messages[unit.key] = outcome.message
        units = None if outcome.is_error else self._find_candidates(unit)
        if units is None:
            return
        found = preempt_for_group(self.state, cycle, units, self.budgets)
        if found is not None:
            del self.messages[unit.key]
            self._keep(unit, found.victims)

    def _find_candidates(self, unit: Unit) -> list[Candidate] | None:
        """Return whom a unit may evict, None where it evicts nobody."""
        if not self.request.preempt or unit.key in self.barred:
            return None
        if explain_no_preemption(self.now, unit, self.request.release) is not None:
            return None
        # Groups that this pass gave pods to count as bound; their members stay together.
        busy = {find_root(self.snapshot, p) for p in self.state.seats} - {NO_GROUP}
        found = self.candidates.below(
            unit.priority,
            self.state.gone,
            with_groups=sees_groups(unit, self.request.release),
        )
        return [candidate for candidate in found if candidate.root not in busy]

    def _keep(self, unit: Unit, victims: Sequence[Candidate]) -> None:
        self.gone += [(candidate, unit.ref) for candidate in victims]
        if victims:
            self.now = remove_pods(self.snapshot, self.state.gone)
            if self.request.release < "1.37":
                # A single pod may have broken a group: what is left of it is a unit still.
                self.candidates = Candidates(self.now, self.request.release)

    def time_out(self) -> set[UnitKey]:
        """Let gangs whose held pods are too few give their nodes back (1.35).

        Returns:
          Those of them that evicted for nothing.
        """
        wasted: set[UnitKey] = set()
        for unit in self.problem.units:
            held = self._held.get(unit.key, [])
            seats = [seat for found in held for seat in found.seats]
            running = set(self._running.get(unit.root.group, ())) - self.state.gone
            if not held or len(seats) + len(running) >= unit.root.min_count:
                continue
            self.messages[unit.key] = (
                f"its pods would hold {len(seats)} nodes of the {unit.root.min_count} they need "
                "together, and time out"
            )
            self.state.forget(reversed(seats))
            if any(found.victims for found in held):
                wasted.add(unit.key)
        return wasted

    def finish(self) -> ReplayResult:
        """Count what the pass came to."""
        placed = dict(sorted(self.state.seats.items()))
        for unit in self.problem.units:
            if any(p in placed for task in unit.tasks for p in task.pods):
                self.messages.pop(unit.key, None)
        return ReplayResult(
            after=remove_pods(self.snapshot, self.state.gone),
            placed=placed,
            evictions=tuple(sorted((p, ref) for c, ref in self.gone for p in c.victim.pods)),
            cost=count_cost((c.victim for c, _ in self.gone), self.snapshot.budgets),
            messages=self.messages,
        )


def _is_flat(unit: Unit, snapshot: Snapshot) -> bool:
    """Tell whether a unit is a plain gang, as 1.35 knows them: no parts, domains or runs."""
    root = unit.root
    if root.group == NO_GROUP:
        return True
    return not (
        root.children or root.slices or root.exclusive or snapshot.groups[root.group].topology
    )
