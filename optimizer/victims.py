"""Victim units: which running pods may be evicted, and which of them go together.

Source: kube-scheduler preemption (KEP-5710). A pod goes alone, or with all running pods of the
highest group above it whose disruption mode is `all`. Priority is that of the root group, and only
a strictly lower one may be evicted. Before 1.37 a preemptor that is a single pod sees single pods
with their own priorities. DaemonSet and static pods are left alone (kube-scheduler itself spares
neither), so are pods and groups whose API says they may not be victims.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.devices.reclaim import release_claims
from optimizer.lost_work import count_lost_gpu_seconds
from topology.model import NO_GROUP, Phase, PodFlag
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optimizer.problem import Unit
    from topology.model import AffinityTerm, Budget, Snapshot

__all__ = [
    "BudgetIndex",
    "Victim",
    "VictimCost",
    "count_budgets",
    "count_cost",
    "explain_no_preemption",
    "find_root",
    "find_victims",
    "remove_pods",
    "sees_groups",
    "selects",
]

GROUPS_SINCE: Final = "1.37"
"""First release in which single pods respect groups, and in which groups with a topology
constraint preempt at all."""

_KEPT: Final = PodFlag.DAEMON | PodFlag.STATIC | PodFlag.NOT_PREEMPTIBLE
_IN_TREE: Final = "scheduling.k8s.io/"


@dataclass(frozen=True, slots=True)
class Victim:
    """Pods that go together or not at all."""

    pods: tuple[int, ...]
    """Running pods on nodes of the snapshot, ascending."""
    unit: tuple[int, int]
    """(`all` group or NO_GROUP, pod or -1): what `victimUnits` counts once."""
    priority: int
    """Of the root group, or of the pod itself."""
    gpus: int
    budgets: tuple[tuple[int, int], ...] = ()
    """(index into `Snapshot.budgets`, pods that count against it)."""
    lost: int = 0
    """GPU seconds of work since it was last saved (`optimizer.lost_work`)."""


@dataclass(frozen=True, slots=True)
class VictimCost:
    """The victim criteria of the contract for one set of victims."""

    pods: int = 0
    units: int = 0
    gpus: int = 0
    weighted_gpus: int = 0
    highest_priority: int | None = None
    """None when nobody goes."""
    pdb_violations: int = 0
    gpu_seconds_lost: int = 0

    def to_criteria(self) -> dict[str, int]:
        """Return the entries of `Plan.criteria`; the highest priority of nobody is left out."""
        found = {
            "victimPods": self.pods,
            "victimUnits": self.units,
            "victimGpus": self.gpus,
            "weightedVictimGpus": self.weighted_gpus,
            "pdbViolations": self.pdb_violations,
            "gpuSecondsLost": self.gpu_seconds_lost,
        }
        if self.highest_priority is not None:
            found["highestVictimPriority"] = self.highest_priority
        return found


def count_cost(victims: Iterable[Victim], budgets: Sequence[Budget]) -> VictimCost:
    """Add up what a set of victims costs; each is charged once."""
    chosen = list(victims)
    covered = [0] * len(budgets)
    for victim in chosen:
        for b, pods in victim.budgets:
            covered[b] += pods
    excess = (
        max(0, n - max(budget.allowed, 0)) for n, budget in zip(covered, budgets, strict=True)
    )
    return VictimCost(
        pods=sum(len(v.pods) for v in chosen),
        units=len({v.unit for v in chosen}),
        gpus=sum(v.gpus for v in chosen),
        weighted_gpus=sum(v.priority * v.gpus for v in chosen),
        highest_priority=max((v.priority for v in chosen), default=None),
        pdb_violations=sum(excess),
        gpu_seconds_lost=sum(v.lost for v in chosen),
    )


def sees_groups(unit: Unit, release: str) -> bool:
    """Tell whether a preemptor respects disruption modes and group priorities of victims."""
    return unit.root.group != NO_GROUP or release >= GROUPS_SINCE


def explain_no_preemption(snapshot: Snapshot, unit: Unit, release: str) -> str | None:
    """Return why a unit evicts nobody whatever it would gain, None where it may."""
    groups = [snapshot.groups[n.group] for n in unit.tree if n.group != NO_GROUP]
    pending = [p for task in unit.tasks for p in task.pods]
    specs = {int(snapshot.pods.spec[p]) for p in pending}
    if any(g.never_preempts for g in groups) or (
        not groups and any(snapshot.pods.specs[x].never_preempts for x in specs)
    ):
        return "its preemption policy is Never"
    if release < GROUPS_SINCE and any(g.topology and g.api.startswith(_IN_TREE) for g in groups):
        return f"release {release} does not preempt for groups with a topology constraint"
    if _waits_for_victims(snapshot, unit, pending):
        return "pods of lower priority are terminating on the nodes it is nominated to"
    return None


def _waits_for_victims(snapshot: Snapshot, unit: Unit, pending: Sequence[int]) -> bool:
    """Tell whether room is on its way: then the scheduler starts no second preemption."""
    pods = snapshot.pods
    nominated = {int(pods.nominated[p]) for p in pending if pods.nominated[p] >= 0}
    if not nominated:
        return False
    going = np.flatnonzero(
        pods.holds_room
        & ((pods.flags & PodFlag.TERMINATING) != 0)
        & np.isin(pods.node, sorted(nominated))
    )
    return any(_find_priority(snapshot, p) < unit.priority for p in going.tolist())


def _find_priority(snapshot: Snapshot, pod: int) -> int:
    g = int(snapshot.pods.group[pod])
    return int(snapshot.pods.priority[pod]) if g == NO_GROUP else snapshot.groups[g].priority


def remove_pods(snapshot: Snapshot, pods: Iterable[int], reclaim: str = "none") -> Snapshot:
    """Return the snapshot after some running pods are gone; indices keep their meaning.

    What they hold through resource claims stays held, since allocations outlive their pods, but
    for the claims that `reclaim` (`Request.dra_reclaim`) counts as released.
    """
    gone = sorted(pods)
    if not gone:
        return snapshot
    phase = snapshot.pods.phase.copy()
    phase[gone] = Phase.FAILED
    devices = release_claims(snapshot, gone, reclaim)
    return replace(snapshot, pods=replace(snapshot.pods, phase=phase), devices=devices)


def find_victims(
    snapshot: Snapshot,
    below: int,
    *,
    with_groups: bool = True,
    kept_roots: frozenset[int] = frozenset(),
    attractive: Sequence[AffinityTerm] = (),
    spares_kept: bool = True,
) -> tuple[Victim, ...]:
    """Return every unit that a preemptor of priority `below` may evict, by first pod.

    Args:
      snapshot: The fleet.
      below: Priority that victims must stay under.
      with_groups: What `sees_groups` says of the preemptor.
      kept_roots: Root groups that are not touched, because a plan adds pods to them.
      attractive: Required affinity terms of what is planned; what they select is not evicted, so
        that nobody loses the company it asks for.
      spares_kept: Leave alone DaemonSet and static pods and those whose API says so, which
        kube-scheduler itself does not.
    """
    members = _Members(snapshot, with_groups)
    lost = count_lost_gpu_seconds(snapshot).tolist()
    pods = snapshot.pods
    is_bound = (pods.node >= 0).tolist()
    spec_of = pods.spec.tolist()
    gpus_of = [spec.gpus for spec in pods.specs]
    found = []
    for unit, together in members.units():
        priority = _find_priority(snapshot, together[0])
        seen = priority if with_groups else int(pods.priority[together[0]])
        if seen >= below or members.root_of(together[0]) in kept_roots:
            continue
        if spares_kept and not all(members.may_go(p) for p in together):
            continue
        if any(selects(snapshot, term, p) for term in attractive for p in together):
            continue
        on_nodes = tuple(p for p in together if is_bound[p])
        if not on_nodes:
            continue
        gpus = sum(gpus_of[spec_of[p]] for p in on_nodes)
        budgets = members.count_budgets(on_nodes)
        work = sum(lost[p] for p in on_nodes)
        found.append(Victim(on_nodes, unit, priority, gpus, budgets, lost=work))
    return tuple(found)


def count_budgets(snapshot: Snapshot, pods: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return (index into `Snapshot.budgets`, how many of the pods count against it)."""
    return _Members(snapshot, with_groups=True).count_budgets(pods)


def selects(snapshot: Snapshot, term: AffinityTerm, pod: int) -> bool:
    """Tell whether an inter-pod affinity term selects a pod."""
    namespace = snapshot.pods.refs[pod].partition("/")[0]
    return (term.all_namespaces or namespace in term.namespaces) and matches_selector(
        term.selector, snapshot.pods.label_sets[snapshot.pods.labels[pod]]
    )


class _Members:
    """The running pods of a snapshot, and what is above each."""

    def __init__(self, snapshot: Snapshot, with_groups: bool) -> None:
        self.snapshot = snapshot
        self.with_groups = with_groups
        groups = snapshot.groups
        self._above = [_climb(snapshot, g) for g in range(len(groups))]
        self._highest_all = [
            next((h for h in reversed(path) if groups[h].disruption == "all"), NO_GROUP)
            for path in self._above
        ]
        self._evictable = [all(groups[h].evictable for h in path) for path in self._above]
        self._budgets = BudgetIndex(snapshot)
        # Looked up for every running pod: lists are several times as fast as single array entries.
        self._group = snapshot.pods.group.tolist()
        self._is_kept = ((snapshot.pods.flags & int(_KEPT)) != 0).tolist()

    def units(self) -> list[tuple[tuple[int, int], list[int]]]:
        """Return (identity, running pods) of every unit, terminating pods left out."""
        pods = self.snapshot.pods
        together: dict[tuple[int, int], list[int]] = {}
        alone: list[tuple[tuple[int, int], list[int]]] = []
        for p in np.flatnonzero(pods.is_running_member).tolist():
            g = self._group[p]
            top = NO_GROUP if g == NO_GROUP else self._highest_all[g]
            unit = (top, p if top == NO_GROUP else -1)
            if self.with_groups:
                together.setdefault(unit, []).append(p)
            else:
                alone.append((unit, [p]))
        return [*sorted(together.items(), key=lambda entry: entry[1][0]), *alone]

    def root_of(self, pod: int) -> int:
        g = int(self.snapshot.pods.group[pod])
        return NO_GROUP if g == NO_GROUP else self._above[g][-1]

    def may_go(self, pod: int) -> bool:
        g = self._group[pod]
        return not self._is_kept[pod] and (g == NO_GROUP or self._evictable[g])

    def count_budgets(self, pods: Iterable[int]) -> tuple[tuple[int, int], ...]:
        counts: dict[int, int] = {}
        if not self.snapshot.budgets:
            return ()
        for pod in pods:
            for b in self._budgets.covering(pod):
                counts[b] = counts.get(b, 0) + 1
        return tuple(sorted(counts.items()))


class BudgetIndex:
    """Which disruption budgets cover a pod."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._found: dict[tuple[int, str], list[int]] = {}

    def covering(self, pod: int) -> list[int]:
        """Return the budgets (indices) that a disruption of a pod counts against."""
        table, budgets = self._snapshot.pods, self._snapshot.budgets
        namespace, _, name = table.refs[pod].partition("/")
        key = (int(table.labels[pod]), namespace)
        if key not in self._found:
            self._found[key] = [
                b
                for b, budget in enumerate(budgets)
                if budget.ref.partition("/")[0] == namespace
                and matches_selector(budget.selector, table.label_sets[key[0]])
            ]
        return [b for b in self._found[key] if name not in budgets[b].disrupted]


def find_root(snapshot: Snapshot, pod: int) -> int:
    """Return the root group of a pod, NO_GROUP for one of no group."""
    g = int(snapshot.pods.group[pod])
    return NO_GROUP if g == NO_GROUP else _climb(snapshot, g)[-1]


def _climb(snapshot: Snapshot, g: int) -> list[int]:
    """Return a group and its ancestors, the root last."""
    path = [g]
    while snapshot.groups[path[-1]].parent != NO_GROUP:
        path.append(snapshot.groups[path[-1]].parent)
    return path
