"""What is placed whole or not at all: units, their trees and their tasks.

A *unit* is a root of the group forest or a pod of its own. Its tree mirrors the forest; *tasks*
hang at its vertices, each the pending pods of one *class*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optimizer.interactions import ExclusiveRule

__all__ = ["BROKEN", "FREE_CHOICE", "Required", "Task", "TreeNode", "Unit", "UnitKey"]

FREE_CHOICE: Final = -1
"""`Required.pinned` of a group that may choose its domain."""
BROKEN: Final = -2
"""`Required.pinned` of a group whose running members already break the constraint."""


@dataclass(frozen=True, slots=True)
class Task:
    """Pending pods of one class in one leaf."""

    leaf: int
    """Index into `Unit.tree`."""
    pod_class: int
    pods: tuple[int, ...]
    """Pod indices in the order in which they are placed (rank, then ref)."""

    @property
    def count(self) -> int:
        """Number of pods."""
        return len(self.pods)


@dataclass(frozen=True, slots=True)
class Required:
    """One required topology term: the column, and the domain running members pin."""

    column: int
    pinned: int = FREE_CHOICE


@dataclass(frozen=True, slots=True)
class TreeNode:
    """One node of a unit's tree; the root is node 0, children follow parents."""

    group: int
    """Index into `Snapshot.groups`, NO_GROUP for a pod of its own."""
    children: tuple[int, ...] = ()
    tasks: tuple[int, ...] = ()
    min_count: int = 0
    """Pods of the subtree needed, running ones included."""
    min_groups: int = 0
    running: int = 0
    """Running members of the subtree."""
    required: tuple[Required, ...] = ()
    preferred: tuple[int, ...] = ()
    """Columns, finest first."""
    slices: tuple[tuple[int, int], ...] = ()
    """(column, size), outer to inner."""
    standing: tuple[Mapping[int, int], ...] = ()
    """For each entry of `slices`: running members by domain."""
    exclusive: tuple[ExclusiveRule, ...] = ()


UnitKey = tuple[int, str]
"""(group or NO_GROUP, reference)."""


@dataclass(frozen=True, slots=True)
class Unit:
    """What is placed whole or not at all."""

    ref: str
    tree: tuple[TreeNode, ...]
    tasks: tuple[Task, ...]
    priority: int
    created: int
    gpus: int
    """GPUs of all its pending pods."""
    blocked: str = ""

    @property
    def key(self) -> UnitKey:
        """What tells it from all others: a group and a pod may have one reference."""
        return self.root.group, self.ref

    @property
    def root(self) -> TreeNode:
        """Node 0."""
        return self.tree[0]

    @property
    def num_pods(self) -> int:
        """Pending pods."""
        return sum(t.count for t in self.tasks)

    def has_quorum(self, at: int = 0) -> bool:
        """Tell whether enough running and pending pods exist for the floors of a subtree."""
        node = self.tree[at]
        ready = sum(self.has_quorum(c) for c in node.children)
        return ready >= node.min_groups and self.count_members(at) >= node.min_count

    def count_members(self, at: int = 0) -> int:
        """Count the running and pending pods of a subtree."""
        return self.tree[at].running + self.count_pending(at)

    def count_pending(self, at: int = 0) -> int:
        """Count the pending pods of a subtree."""
        node = self.tree[at]
        own = sum(self.tasks[t].count for t in node.tasks)
        return own + sum(self.count_pending(c) for c in node.children)

    def count_own_running(self, at: int) -> int:
        """Count the running members of a group itself, those of its children left out."""
        node = self.tree[at]
        return node.running - sum(self.tree[c].running for c in node.children)

    def count_needed(self, at: int = 0) -> int:
        """Count the new pods that a subtree needs at least to succeed with one."""
        node = self.tree[at]
        children = sorted(self.count_needed(c) for c in node.children)
        return max(node.min_count - node.running, sum(children[: node.min_groups]), int(at == 0))

    def walk(self, at: int = 0) -> list[int]:
        """Return the indices of a subtree, parents first."""
        found = [at]
        for child in self.tree[at].children:
            found += self.walk(child)
        return found
