"""The objective of a re-packing as steps that are compared in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from optimizer.objective import PLACE_CRITERIA, Level, build_levels, parse_objective
from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optimizer.objective import Placed
    from optimizer.repack.goals import Goals

__all__ = ["MOVE_CRITERIA", "REPACK_OBJECTIVE", "MoveLevel", "build_move_steps"]

REPACK_OBJECTIVE: Final = (
    "max:groupsPlaced",
    "max:domainsFreed",
    "min:disturbedPods",
    "min:movedGpus",
    "min:moves",
)
"""The default of `repack`."""

MOVE_CRITERIA: Final = ("disturbedPods", "movedGpus", "moves")
"""Criteria of what is moved; less is better."""


@dataclass(frozen=True, slots=True)
class MoveLevel:
    """One step of the comparison that is not about what is placed; more of its worth is better.

    `drained` counts drained nodes that are empty, `domainsFreed` domains emptied for `--free`,
    `fragmentation` GPUs that come to lie in wholly free nodes and domains.
    """

    criterion: str


def build_move_steps(
    objective: Sequence[str], units: Iterable[Placed], goals: Goals
) -> tuple[Level | MoveLevel, ...]:
    """Return what decides among plans, most important first.

    Drained nodes come before everything. Goals that the objective does not name come before what
    moves cost, and all costs come last, so that no plan moves what it need not.

    Raises:
      RequestError: A cost is to be maximised, or is one that moves are not chosen by.
    """
    parsed = parse_objective(objective)
    for direction, criterion in parsed:
        if direction == "max" and criterion in MOVE_CRITERIA:
            raise RequestError(
                f"--objective: max:{criterion}: moves are only ever made few; write min:{criterion}"
            )
    if ("min", "gpuSecondsLost") in parsed:
        raise RequestError(
            "--objective: min:gpuSecondsLost: is stated by a re-packing (-o json), but moves are "
            "not chosen by it; write min:movedGpus"
        )
    wanted = list(units)
    items = [":".join(item) for item in parsed]
    named = [criterion for _, criterion in parsed]
    placing = [item for item in items if item.partition(":")[2] in PLACE_CRITERIA]
    if wanted and not placing:
        placing = ["max:groupsPlaced"]
        items = [*placing, *items]
        named = ["groupsPlaced", *named]
    gains = ["domainsFreed"] if goals.frees else []
    if not wanted and goals.is_none:
        gains = ["fragmentation"]
    steps: list[Level | MoveLevel] = [MoveLevel("drained")] if len(goals.drained) else []
    left = list(build_levels(placing, wanted)) if wanted else []
    last = placing[-1] if placing else None
    pending_gains = [g for g in gains if g not in named]
    for item in items:
        criterion = item.partition(":")[2]
        if criterion in PLACE_CRITERIA:
            mine = left if item == last else [lv for lv in left if lv.criterion == criterion]
            steps += mine
            left = [lv for lv in left if lv not in mine]
        elif criterion in gains:
            steps.append(MoveLevel(criterion))
        elif criterion in MOVE_CRITERIA:
            steps += [MoveLevel(gain) for gain in pending_gains]
            pending_gains = []
            steps.append(MoveLevel(criterion))
    steps += [MoveLevel(gain) for gain in pending_gains]
    steps += [MoveLevel(c) for c in MOVE_CRITERIA if MoveLevel(c) not in steps]
    return tuple(steps)
