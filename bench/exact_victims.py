"""Placement and victims of a small snapshot as one CP-SAT model, to measure preemption against.

Written from kubernetes' rules of victims (KEP-5710) and the definitions of `topology.model`; it
shares no code with `optimizer`. A victim goes only for a placed preemptor of higher priority that
has a pod on one of the nodes it leaves. Left out, because no fleet of the benchmark has them:
victims that repel pods (anti-affinity, host ports, spread, exclusive domains), releases before
1.37, preemptors that never preempt, and running members of groups that wait for more pods while
somebody may evict them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from bench.exact_model import (
    Facts,
    LevelName,
    PlacementModel,
    count_levels,
    list_levels,
    maximize_levels,
)
from topology.model import NO_GROUP, PodFlag
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from bench.exact_model import ExactAnswer
    from topology.model import Snapshot

__all__ = ["count_plan", "list_steps", "solve_preemption"]

VICTIM_NAMES: Final = (
    "pdbViolations",
    "highestVictimPriority",
    "victimUnits",
    "victimPods",
    "victimGpus",
    "weightedVictimGpus",
)
PLACING_NAMES: Final = ("groupsPlaced", "podsPlaced", "gpusPlaced", "weightedGpus", "priority")
KEPT: Final = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.NOT_PREEMPTIBLE | PodFlag.TERMINATING
NOBODY: Final = 2**31
"""Worth of the highest priority where nobody goes: beyond every priority."""


def list_steps(snapshot: Snapshot, objective: Sequence[str]) -> list[LevelName]:
    """Spell out an objective; what is placed comes first where it names none of it.

    Between one priority and the next, all that may go of the victims that the next may not evict is
    what those above need at least: a victim criterion with a priority counts victims of that
    priority or higher.
    """
    items = list(objective)
    if not any(item.partition(":")[2] in PLACING_NAMES for item in items):
        items = ["max:priority", *items]
    if "min:victimPods" not in items:
        items.append("min:victimPods")
    names = [item.partition(":")[2] for item in items]
    costs = [LevelName(name, -1) for name in names if name in VICTIM_NAMES]
    steps: list[LevelName] = []
    for item, name in zip(items, names, strict=True):
        if name in VICTIM_NAMES:
            steps.append(LevelName(name, -1))
            continue
        for level in list_levels(snapshot, [item]):
            if steps and level.priority is not None:
                steps += [cost._replace(priority=level.priority) for cost in costs]
            steps.append(level)
    return steps


@dataclass(frozen=True)
class _Unit:
    """Running pods that go together."""

    pods: tuple[int, ...]
    priority: int
    gpus: int


def find_units(snapshot: Snapshot) -> list[_Unit]:
    """Return every unit that some preemptor might evict, by first pod."""
    facts, pods, groups = Facts(snapshot), snapshot.pods, snapshot.groups
    members: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for p, runs in enumerate(pods.is_running_member.tolist()):
        above = list(facts.climb(int(pods.group[p]))) if runs else []
        whole = [g for g in above if groups[g].disruption == "all"]
        if runs:
            members[(whole[-1], -1) if whole else (NO_GROUP, p)].append(p)
    units = []
    for inside in sorted(members.values()):
        spared = any(
            int(pods.flags[p]) & KEPT
            or any(not groups[g].evictable for g in facts.climb(int(pods.group[p])))
            for p in inside
        )
        if not spared:
            gpus = sum(pods.row(p).spec.gpus for p in inside)
            units.append(_Unit(tuple(inside), facts.priority_of(inside[0]), gpus))
    return units


def count_covered(snapshot: Snapshot, evicted: Iterable[int]) -> Counter[str]:
    """Count the evicted pods that each disruption budget covers."""
    pods = snapshot.pods
    covered: Counter[str] = Counter()
    for p in evicted:
        namespace, _, name = pods.refs[p].partition("/")
        labels = pods.label_sets[pods.labels[p]]
        for budget in snapshot.budgets:
            if (
                budget.ref.startswith(f"{namespace}/")
                and name not in budget.disrupted
                and matches_selector(budget.selector, labels)
            ):
                covered[budget.ref] += 1
    return covered


def count_plan(
    snapshot: Snapshot,
    placed: Iterable[str],
    evicted: Collection[str],
    steps: Sequence[LevelName],
) -> tuple[int, ...]:
    """Count what a plan is worth in every step, signs applied; more is better."""
    index = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    gone = {index[ref] for ref in evicted}
    units = [unit for unit in find_units(snapshot) if gone & set(unit.pods)]
    names = list(placed)
    return tuple(
        -_count_cost(snapshot, [u for u in units if _counts(u, step)], step.criterion)
        if step.criterion in VICTIM_NAMES
        else count_levels(snapshot, names, [step])[0]
        for step in steps
    )


def _counts(unit: _Unit, step: LevelName) -> bool:
    return step.priority is None or unit.priority >= step.priority


def _count_cost(snapshot: Snapshot, units: Sequence[_Unit], criterion: str) -> int:
    match criterion:
        case "pdbViolations":
            covered = count_covered(snapshot, [p for unit in units for p in unit.pods])
            allowed = {budget.ref: max(budget.allowed, 0) for budget in snapshot.budgets}
            return sum(max(n - allowed[ref], 0) for ref, n in covered.items())
        case "highestVictimPriority":
            return max((u.priority for u in units), default=-NOBODY)
        case "victimUnits":
            return len(units)
        case "victimPods":
            return sum(len(u.pods) for u in units)
        case "victimGpus":
            return sum(u.gpus for u in units)
        case _:
            return sum(u.gpus * u.priority for u in units)


@dataclass
class _VictimModel(PlacementModel):
    pdb: str = "soft"
    units: list[_Unit] = field(default_factory=list)
    leaves: list[Any] = field(default_factory=list)
    """For each unit: it goes."""

    def build(self) -> None:
        pods = self.snapshot.pods
        self.units = find_units(self.snapshot)
        self.leaves = [self.cp.new_bool_var(f"leaves{v}") for v in range(len(self.units))]
        super().build()
        ranks = {k: self.facts.priority_of(members[0]) for k, members in self.kinds.items()}
        for unit, leaves in zip(self.units, self.leaves, strict=True):
            nodes = {int(pods.node[p]) for p in unit.pods}
            above = [k for k, rank in ranks.items() if rank > unit.priority]
            self.cp.add(self.total(above, nodes) >= leaves)
        if self.pdb == "hard":
            for excess in self._excesses(list(zip(self.units, self.leaves, strict=True))):
                self.cp.add(excess <= 0)

    def given_back(self, n: int, resource: str) -> Any:
        pods = self.snapshot.pods
        return sum(
            leaves * pods.row(p).spec.request(resource)
            for unit, leaves in zip(self.units, self.leaves, strict=True)
            for p in unit.pods
            if int(pods.node[p]) == n
        )

    def hinted(self) -> Iterable[Any]:
        return [*super().hinted(), *self.leaves]

    def _excesses(self, pairs: Sequence[tuple[_Unit, Any]]) -> list[Any]:
        """Return, for each budget, its evicted pods beyond what it allows."""
        covered = [(count_covered(self.snapshot, unit.pods), x) for unit, x in pairs]
        return [
            sum(x * count[budget.ref] for count, x in covered) - max(budget.allowed, 0)
            for budget in self.snapshot.budgets
        ]

    def worth(self, step: LevelName) -> Any:
        """Return the worth of one step."""
        if step.criterion not in VICTIM_NAMES:
            return self.objective(step)
        pairs = [
            (unit, x)
            for unit, x in zip(self.units, self.leaves, strict=True)
            if _counts(unit, step)
        ]
        name = f"{step.criterion}{step.priority}"
        match step.criterion:
            case "highestVictimPriority":
                highest = self.cp.new_int_var(-NOBODY, NOBODY, name)
                for unit, x in pairs:
                    self.cp.add(highest >= unit.priority).only_enforce_if(x)
                return -highest
            case "pdbViolations":
                beyond = []
                for b, excess in enumerate(self._excesses(pairs)):
                    beyond.append(self.cp.new_int_var(0, len(self.snapshot.pods), f"{name}{b}"))
                    self.cp.add(beyond[-1] >= excess)
                return -sum(beyond)
            case additive:
                return -sum(_count_cost(self.snapshot, [unit], additive) * x for unit, x in pairs)


def solve_preemption(
    snapshot: Snapshot, steps: Sequence[LevelName], *, pdb: str, effort: float = 5.0
) -> ExactAnswer:
    """Find the best plan with evictions, step after step.

    Args:
      snapshot: Small: tens of nodes and victims.
      steps: As `list_steps` returns them.
      pdb: "hard": no budget is exceeded.
      effort: CP-SAT's deterministic time for each step.

    Returns:
      The value of every step; `proven` when each was solved to optimality.
    """
    model = _VictimModel(snapshot, Facts(snapshot), pdb=pdb)
    model.build()
    return maximize_levels(model, [model.worth(step) for step in steps], effort)
