"""What a re-packing is for, and what it may touch: the `move` object of a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["FreeGoal", "GoalOutcome", "MoveRequest"]


@dataclass(frozen=True, slots=True)
class FreeGoal:
    """`--free KEY[=VALUE]:N`: so many domains of a label key are to be empty at the end.

    A domain is empty when no pod stands on its nodes but DaemonSet, static and terminating ones,
    and nothing is placed there. Domains that are empty already count.
    """

    key: str
    value: str | None
    """The domain that is meant; None: whichever are cheapest to empty."""
    count: int

    @property
    def text(self) -> str:
        """The goal as the command line takes it."""
        named = self.key if self.value is None else f"{self.key}={self.value}"
        return f"{named}:{self.count}"

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `request.move.free`."""
        return {"key": self.key, "value": self.value, "count": self.count}


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """How running work may be moved; limits are None where there is none."""

    mode: Literal["live", "restart"] = "restart"
    """live: a pod goes to a node with room at that moment, while all others run; restart: a unit
    stops as a whole, then starts elsewhere as a whole."""
    free: tuple[FreeGoal, ...] = ()
    drain: tuple[str, ...] = ()
    """Names of nodes that take nothing new and that everything must leave but DaemonSet and static
    pods."""
    drain_unit: Literal["group", "pod"] = "group"
    """What leaves a drained node where it cannot be moved: a whole `all` group, or a pod."""
    movable: tuple[str, ...] | None = None
    """References of pods; with `movable_groups`: nothing else may be moved. None: no such list."""
    movable_groups: tuple[str, ...] | None = None
    keep: tuple[str, ...] = ()
    """References of pods and groups that stay where they are."""
    max_moves: int | None = None
    """Most steps of the plan."""
    max_disturbed: int | None = None
    """Most pods moved, plus members of `all` groups of which one is."""
    max_parallel: int | None = None
    """Most units (pods, or groups that restart as a whole) on the way in one wave."""
    priority_ceiling: int | None = None
    """Work of a higher priority stays where it is."""

    def to_dict(self) -> dict[str, Any]:
        """Return the object `request.move` of the contract."""
        return {
            "mode": self.mode,
            "free": [goal.to_dict() for goal in self.free],
            "drain": list(self.drain),
            "drainUnit": self.drain_unit,
            "movable": None if self.movable is None else list(self.movable),
            "movableGroups": None if self.movable_groups is None else list(self.movable_groups),
            "keep": list(self.keep),
            "maxMoves": self.max_moves,
            "maxDisturbed": self.max_disturbed,
            "maxParallel": self.max_parallel,
            "priorityCeiling": self.priority_ceiling,
        }


@dataclass(frozen=True, slots=True)
class GoalOutcome:
    """What became of one goal of a re-packing."""

    goal: str
    """As the command line takes it: `free KEY:N`, `drain NODE`."""
    wanted: int
    """Domains, or nodes, that were to be empty."""
    reached: int
    reason: str | None = None
    """Why not all are; None where they are."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `goals`."""
        return {
            "goal": self.goal,
            "wanted": self.wanted,
            "reached": self.reached,
            "reason": self.reason,
        }
