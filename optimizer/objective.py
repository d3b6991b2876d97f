"""Criteria of the contract as integer levels, compared in order and never added up.

A level is linear in what a unit places: groups, pods and GPUs. `priority` (GPUs compared from the
highest priority down) becomes one level for each priority present.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "COST_OBJECTIVES",
    "CRITERIA",
    "PLACE_CRITERIA",
    "PREEMPT_OBJECTIVE",
    "VICTIM_CRITERIA",
    "Level",
    "Placed",
    "VictimLevel",
    "build_levels",
    "build_steps",
    "parse_objective",
]

CRITERIA: Final = (
    "groupsPlaced",
    "podsPlaced",
    "gpusPlaced",
    "weightedGpus",
    "priority",
    "victimPods",
    "victimUnits",
    "victimGpus",
    "weightedVictimGpus",
    "highestVictimPriority",
    "pdbViolations",
    "gpuSecondsLost",
    "moves",
    "movedGpus",
    "disturbedPods",
    "domainsFreed",
    "fragmentation",
)
"""Names that `--objective` accepts."""

PLACE_CRITERIA: Final = ("groupsPlaced", "podsPlaced", "gpusPlaced", "weightedGpus", "priority")
"""Criteria that depend on what is placed; without evictions and moves the others are constant,
but for fragmentation, which best fit looks after."""

VICTIM_CRITERIA: Final = (
    "victimPods",
    "victimUnits",
    "victimGpus",
    "weightedVictimGpus",
    "highestVictimPriority",
    "pdbViolations",
    "gpuSecondsLost",
)
"""Criteria of what is evicted; less is better."""

PREEMPT_OBJECTIVE: Final = (
    "max:priority",
    "min:pdbViolations",
    "min:highestVictimPriority",
    "min:victimUnits",
    "min:victimPods",
)
"""The default where victims are looked for, in the spirit of kube-scheduler's choice of nodes."""

COST_OBJECTIVES: Final = {
    "scheduler": PREEMPT_OBJECTIVE,
    "gpu-seconds-lost": (
        "max:priority",
        "min:pdbViolations",
        "min:gpuSecondsLost",
        "min:victimUnits",
        "min:victimPods",
    ),
}
"""What `--cost` stands for: what makes a victim dear."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What a unit places: whole numbers."""

    priority: int
    groups: int = 0
    pods: int = 0
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class Level:
    """One step of the comparison; more is better once multiplied by `sign`."""

    criterion: str
    sign: int = 1
    priority: int | None = None
    """Set for a level of `priority`: only units of this priority count."""

    def weights(self, priority: int) -> tuple[int, int, int]:
        """Return what one group, one pod and one GPU of a unit of this priority are worth."""
        match self.criterion:
            case "groupsPlaced":
                return (self.sign, 0, 0)
            case "podsPlaced":
                return (0, self.sign, 0)
            case "gpusPlaced":
                return (0, 0, self.sign)
            case "weightedGpus":
                return (0, 0, self.sign * priority)
            case _:
                return (0, 0, self.sign if priority == self.priority else 0)

    def value(self, placed: Iterable[Placed]) -> int:
        """Return the level of a set of placements, sign applied."""
        total = 0
        for unit in placed:
            groups, pods, gpus = self.weights(unit.priority)
            total += groups * unit.groups + pods * unit.pods + gpus * unit.gpus
        return total


@dataclass(frozen=True, slots=True)
class VictimLevel:
    """One step of the comparison that counts victims; always to be minimised."""

    criterion: str
    least: int | None = None
    """Set where only victims of this priority or a higher one count."""


def parse_objective(objective: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Split "max:gpusPlaced" into direction and criterion.

    Raises:
      RequestError: A direction or criterion that does not exist, or one named twice.

    Example:
      >>> parse_objective(["max:groupsPlaced", "min:fragmentation"])
      (('max', 'groupsPlaced'), ('min', 'fragmentation'))
    """
    parsed: list[tuple[str, str]] = []
    for item in objective:
        direction, colon, criterion = item.partition(":")
        if not colon or direction not in ("max", "min"):
            raise RequestError(f"--objective: {item!r}: write max:CRITERION or min:CRITERION")
        if criterion not in CRITERIA:
            raise RequestError(
                f"--objective: unknown criterion {criterion!r}; use one of {', '.join(CRITERIA)}"
            )
        if any(criterion == named for _, named in parsed):
            raise RequestError(f"--objective: {criterion} is named twice; name it once")
        parsed.append((direction, criterion))
    if not parsed:
        raise RequestError("--objective: is empty; name at least one criterion")
    return tuple(parsed)


def build_levels(objective: Sequence[str], units: Iterable[Placed]) -> tuple[Level, ...]:
    """Return the levels that decide among placements, most important first.

    Args:
      objective: As `parse_objective` takes it.
      units: What each unit would place at most.

    Returns:
      The placing criteria of the objective (`priority` as one level for each priority), and pods
      placed as a last one where some units ask for no GPU and nothing else would tell them apart.
    """
    wanted = list(units)
    priorities = sorted({u.priority for u in wanted if u.gpus}, reverse=True)
    levels: list[Level] = []
    for direction, criterion in parse_objective(objective):
        sign = 1 if direction == "max" else -1
        settled = any(level.criterion == "priority" for level in levels)
        if criterion == "priority":
            levels += [Level("priority", sign, p) for p in priorities]
        elif criterion in PLACE_CRITERIA and not (criterion == "gpusPlaced" and settled):
            levels.append(Level(criterion, sign))
    named = {level.criterion for level in levels}
    if not levels:
        levels.append(Level("gpusPlaced"))
    if any(not u.gpus for u in wanted) and not named & {"groupsPlaced", "podsPlaced"}:
        levels.append(Level("podsPlaced"))
    return tuple(levels)


def build_steps(
    objective: Sequence[str], units: Iterable[Placed]
) -> tuple[Level | VictimLevel, ...]:
    """Return what decides among placements with evictions, most important first.

    Args:
      objective: As `parse_objective` takes it.
      units: What each unit would place at most.

    Returns:
      Placing levels and victim levels in the order of the objective. Where it names no placing
      criterion, `priority` comes first, else nobody would ever be evicted; victim pods come last,
      so that no plan keeps a victim it does not need.

    Raises:
      RequestError: A victim criterion is to be maximised.
    """
    parsed = parse_objective(objective)
    for direction, criterion in parsed:
        if direction == "max" and criterion in VICTIM_CRITERIA:
            raise RequestError(
                f"--objective: max:{criterion}: evictions are only ever made few; "
                f"write min:{criterion}"
            )
    items = [":".join(item) for item in parsed]
    placing = [item for item in items if item.partition(":")[2] in PLACE_CRITERIA]
    if not placing:
        placing = ["max:priority"]
        items = [*placing, *items]
    left = list(build_levels(placing, units))
    last = placing[-1]
    steps: list[Level | VictimLevel] = []
    for item in items:
        criterion = item.partition(":")[2]
        if criterion in VICTIM_CRITERIA:
            steps.append(VictimLevel(criterion))
        elif item == last:
            # Levels that were added to tell apart what the objective leaves equal end here too.
            steps += left
            left = []
        elif criterion in PLACE_CRITERIA:
            mine = [level for level in left if level.criterion == criterion]
            steps += mine
            left = [level for level in left if level.criterion != criterion]
    if VictimLevel("victimPods") not in steps:
        steps.append(VictimLevel("victimPods"))
    return tuple(steps)
