"""Movers: the running pods that may be moved, and which of them stop and start together.

Live, every pod moves alone. In a restart a pod moves alone where its groups keep their floors
without it; else all running pods of its root group stop and start together: the pods of an `all`
group (a LeaderWorkerSet replica by default), a gang that runs at its minimum.

Source: ours; disruption modes of KEP-5710, `restartPolicy` of LeaderWorkerSet, KAI's
`safe-to-consolidate`; the eviction API for budgets that allow nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topology.model import NO_GROUP, PodFlag
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topology.model import Budget, Snapshot
    from topology.plan import Request

__all__ = ["BudgetIndex", "Mover", "Movers", "find_movers"]

PINNED: Final = PodFlag.DAEMON | PodFlag.STATIC


@dataclass(frozen=True, slots=True)
class Mover:
    """Pods that are moved together, or one pod."""

    pods: tuple[int, ...]
    """Ascending."""
    root: int
    """Root group, NO_GROUP for a pod in none."""
    is_whole: bool
    """All running pods of the root; they may stop together and choose their domains anew."""


@dataclass(frozen=True, slots=True)
class Movers:
    """Who may be moved, and why the others may not."""

    movers: tuple[Mover, ...]
    """By first pod."""
    staying: dict[int, str]
    """Running pod -> why it stays, for all that are no DaemonSet or static pods."""
    unit: dict[int, int]
    """Pod of a mover -> highest `all` group above it, NO_GROUP if there is none."""
    members: dict[int, int]
    """`all` group -> running pods below it: all are disturbed when one is moved."""


class BudgetIndex:
    """Which disruption budgets cover a pod."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._found: dict[tuple[int, str], tuple[int, ...]] = {}

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets of the snapshot."""
        return self._snapshot.budgets

    def covering(self, pod: int) -> tuple[int, ...]:
        """Return the indices of the budgets that a disruption of a pod counts against."""
        table, budgets = self._snapshot.pods, self._snapshot.budgets
        if not budgets:
            return ()
        namespace, _, name = table.refs[pod].partition("/")
        key = int(table.labels[pod]), namespace
        if key not in self._found:
            self._found[key] = tuple(
                b
                for b, budget in enumerate(budgets)
                if budget.ref.partition("/")[0] == namespace
                and matches_selector(budget.selector, table.label_sets[key[0]])
            )
        return tuple(b for b in self._found[key] if name not in budgets[b].disrupted)

    def exceeded(self, pods: Iterable[int]) -> int | None:
        """Return a budget that does not allow these pods to stop at once, None if all do."""
        counts: dict[int, int] = defaultdict(int)
        for pod in pods:
            for b in self.covering(pod):
                counts[b] += 1
        for b, count in sorted(counts.items()):
            if count > max(self._snapshot.budgets[b].allowed, 0):
                return b
        return None


def find_movers(snapshot: Snapshot, request: Request) -> Movers:
    """Find out which running pods a re-packing may move.

    Args:
      snapshot: The fleet.
      request: With `move`; groups that it asks to place are not moved.
    """
    return _Finder(snapshot, request).run()


class _Finder:
    def __init__(self, snapshot: Snapshot, request: Request) -> None:
        assert request.move is not None
        self.snapshot = snapshot
        self.request = request
        self.move = request.move
        self.groups, self.pods = snapshot.groups, snapshot.pods
        self.above = [self._climb(g) for g in range(len(self.groups))]
        self.budgets = BudgetIndex(snapshot)
        self.keep = frozenset(self.move.keep)
        self.is_listed = self.move.movable is not None or self.move.movable_groups is not None
        self.movable = frozenset(self.move.movable or ())
        self.movable_groups = frozenset(self.move.movable_groups or ())
        asked = set(request.groups or ())
        self.asked_roots = {
            self.above[g][-1] for g, group in enumerate(self.groups) if group.ref in asked
        }
        spread_terms = [term for spec in self.pods.specs for term in spec.spread]
        self.has_spread = bool(spread_terms)
        self.running: dict[int, int] = defaultdict(int)
        """Group -> running pods of its subtree."""
        self.members: dict[int, list[int]] = defaultdict(list)
        self.split: dict[int, str | None] = {}
        self.counted: dict[int, bool] = {}
        """Index into `PodTable.label_sets` -> some hard spread constraint selects it."""

    def _climb(self, g: int) -> tuple[int, ...]:
        path = [g]
        while self.groups[path[-1]].parent != NO_GROUP:
            path.append(self.groups[path[-1]].parent)
        return tuple(path)

    def run(self) -> Movers:
        pods = self.pods
        running = np.flatnonzero(pods.is_running_member).tolist()
        of_root: dict[int, list[int]] = defaultdict(list)
        alone: list[int] = []
        for p in running:
            g = int(pods.group[p])
            if g == NO_GROUP:
                alone.append(p)
                continue
            of_root[self.above[g][-1]].append(p)
            for h in self.above[g]:
                self.running[h] += 1
        staying: dict[int, str] = {}
        movers: list[Mover] = []
        for p in alone:
            self._add([p], NO_GROUP, False, movers, staying)
        for root, members in of_root.items():
            if len(members) == 1:
                leaf = int(pods.group[members[0]])
                is_owner = any(self.groups[h].exclusive for h in self.above[leaf])
                self._add(members, root, is_owner, movers, staying)
            elif self.move.mode == "live" or all(self._can_go_alone(p) for p in members):
                for p in members:
                    self._add([p], root, False, movers, staying)
            else:
                self._add(members, root, True, movers, staying)
        movers.sort(key=lambda mover: mover.pods[0])
        unit = {p: self._disruption_unit(p) for mover in movers for p in mover.pods}
        members_of = {g: self.running[g] for g in set(unit.values()) - {NO_GROUP}}
        return Movers(tuple(movers), staying, unit, members_of)

    def _add(
        self,
        pods: list[int],
        root: int,
        is_whole: bool,
        movers: list[Mover],
        staying: dict[int, str],
    ) -> None:
        reasons = [(p, reason) for p in pods if (reason := self._why_not(p, is_whole)) is not None]
        if not reasons and root != NO_GROUP:
            blocked = self._why_root_stays(root, len(pods))
            if blocked is not None:
                reasons = [(pods[0], blocked)]
        if not reasons and not is_whole and (key := self._find_split(pods[0])) is not None:
            reasons = [(pods[0], f"its group does not stand as it should in {key}")]
        if not reasons and (b := self.budgets.exceeded(pods)) is not None:
            budget = self.snapshot.budgets[b]
            allowed = max(budget.allowed, 0)
            text = f"disruption budget {budget.ref} allows {allowed} of its {len(pods)} pods to go"
            reasons = [(pods[0], text)]
        if not reasons:
            movers.append(Mover(tuple(sorted(pods)), root, is_whole))
            return
        first, why = reasons[0]
        for p in pods:
            if self.pods.flags[p] & PINNED:
                continue
            own = dict(reasons).get(p)
            staying[p] = own or (
                f"restarts together with {self.pods.refs[first]}, which stays: {why}"
                if len(pods) > 1
                else why
            )

    def _why_not(self, p: int, is_whole: bool) -> str | None:
        """Return why one pod stays where it is, None where it may be moved."""
        pods, groups = self.pods, self.groups
        if pods.node[p] < 0:
            return "its node was not read"
        flags = int(pods.flags[p])
        if flags & PINNED:
            return "a DaemonSet or static pod"
        if flags & PodFlag.NOT_MOVABLE:
            return "its API says that it may not be moved"
        g = int(pods.group[p])
        path = () if g == NO_GROUP else self.above[g]
        refs = {pods.refs[p], *(groups[h].ref for h in path)}
        for h in path:
            if not groups[h].movable:
                return f"group {groups[h].ref} may not be moved"
        if kept := sorted(refs & self.keep):
            return f"--keep {kept[0]}"
        if self.is_listed and not (
            pods.refs[p] in self.movable or refs - {pods.refs[p]} & self.movable_groups
        ):
            return "not among --movable and --movable-groups"
        priority = groups[path[-1]].priority if path else int(pods.priority[p])
        ceiling = self.move.priority_ceiling
        if ceiling is not None and priority > ceiling:
            return f"its priority {priority} is above --priority-ceiling {ceiling}"
        if path and path[-1] in self.asked_roots:
            return "its group waits for a node itself"
        spec = pods.specs[pods.spec[p]]
        if spec.claims:
            return "it holds devices through resource claims"
        if not is_whole and spec.spread:
            return "it has a hard topology spread constraint"
        if not is_whole and self.has_spread and self._is_counted(p):
            return "a hard topology spread constraint counts it"
        return None

    def _is_counted(self, p: int) -> bool:
        index = int(self.pods.labels[p])
        if index not in self.counted:
            self.counted[index] = any(
                matches_selector(term.selector, self.pods.label_sets[index])
                for spec in self.pods.specs
                for term in spec.spread
            )
        return self.counted[index]

    def _why_root_stays(self, root: int, num_pods: int) -> str | None:
        group = self.groups[root]
        reason = group.blocked
        if reason.startswith("1.37: ") and self.request.release in ("1.35", "1.36"):
            reason = ""
        if reason:
            return f"its scheduler would refuse the group: {reason.removeprefix('1.37: ')}"
        if self.move.mode == "restart" and self.running[root] < group.min_count:
            return f"{self.running[root]} of its group run, fewer than its {group.min_count}"
        return None

    def _find_split(self, p: int) -> str | None:
        """Return a topology key in which a pod's group breaks its own rules, None if none."""
        g = int(self.pods.group[p])
        path = () if g == NO_GROUP else self.above[g]
        for h in path:
            if h not in self.split:
                self.split[h] = self._find_split_of(h)
            if self.split[h] is not None:
                return self.split[h]
        return None

    def _find_split_of(self, g: int) -> str | None:
        group = self.groups[g]
        terms = [(t.path, 0) for t in group.topology if t.required]
        terms += [(s.path, s.size) for s in group.slices if s.required]
        if not terms:
            return None
        if not self.members:
            for p in np.flatnonzero(self.pods.is_running_member).tolist():
                for h in self.above[int(self.pods.group[p])] if self.pods.group[p] >= 0 else ():
                    self.members[h].append(p)
        for path, size in terms:
            counts: Counter[tuple[str | None, ...]] = Counter()
            for p in self.members[g]:
                n = int(self.pods.node[p])
                labels = self.snapshot.nodes[n].labels if n >= 0 else {}
                counts[tuple(labels.get(key) for key in path)] += 1
            rest = counts.total() % size if size else 0
            odd = [c % size for c in counts.values() if c % size] if size else []
            if any(None in value for value in counts) or (
                odd != ([rest] if rest else []) if size else len(counts) > 1
            ):
                return path[-1]
        return None

    def _floor(self, g: int) -> int:
        group = self.groups[g]
        if group.is_inferred and not self.request.assume_gangs:
            return 0
        return group.min_count

    def _can_go_alone(self, p: int) -> bool:
        """Tell whether a pod may stop while the others of its groups run on."""
        for g in self.above[int(self.pods.group[p])]:
            group = self.groups[g]
            is_child = group.policy == "basic" and group.parent != NO_GROUP
            if group.disruption == "all" or self.running[g] - 1 < max(self._floor(g), is_child):
                return False
        return True

    def _disruption_unit(self, p: int) -> int:
        g = int(self.pods.group[p])
        if g == NO_GROUP:
            return NO_GROUP
        alls = [h for h in self.above[g] if self.groups[h].disruption == "all"]
        return alls[-1] if alls else NO_GROUP
