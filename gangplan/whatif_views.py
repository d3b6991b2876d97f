"""Answers of a what-if run as a table and as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gangplan.tables import count, format_table
from ray_jobs.whatif import ROW
from topology.errors import RequestError
from topology.plan import API_VERSION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ray_jobs.least import Least
    from ray_jobs.whatif import Answer, WhatIf
    from topology.model import Snapshot
    from topology.plan import Request

__all__ = ["parse_rank", "rank_answers", "show_whatif", "to_document"]

_COLUMNS: Final = (
    ("GROUPS", "groupsPlaced"),
    ("GPUS", "gpusPlaced"),
    ("LOST", "groupsLost"),
    ("RECOVERED", "groupsRecovered"),
    ("VICTIMS", "victimPods"),
    ("MOVES", "moves"),
    ("FRAGMENTED", "fragmentation"),
    ("LARGEST", "largestGang"),
)
_WIDE: Final = (
    ("PODS", "podsPlaced"),
    ("VICTIM-GPUS", "victimGpus"),
    ("PDB-VIOLATIONS", "pdbViolations"),
)
_COMPARED: Final = ("groupsPlaced", "gpusPlaced", "fragmentation", "largestGang")


def parse_rank(text: str | None) -> tuple[str, bool] | None:
    """Return the column that `--rank` names and whether the most comes first; None: file order.

    Raises:
      RequestError: There is no such column.

    Example:
      >>> parse_rank("min:groupsLost"), parse_rank("gpusPlaced")
      (('groupsLost', False), ('gpusPlaced', True))
    """
    if text is None:
        return None
    direction, colon, name = text.partition(":")
    if not colon:
        direction, name = "max", text
    if name not in ROW or direction not in ("max", "min"):
        raise RequestError(f"--rank: write max: or min: and one of {', '.join(ROW)}")
    return name, direction == "max"


def rank_answers(answers: Sequence[Answer], rank: tuple[str, bool] | None) -> list[Answer]:
    """Return the answers sorted, equal ones as they were, those without a plan last."""
    if rank is None:
        return list(answers)
    name, most_first = rank
    return sorted(
        answers,
        key=lambda a: (not a.row, -a.row.get(name, 0) if most_first else a.row.get(name, 0)),
    )


def show_whatif(
    found: WhatIf, rank: tuple[str, bool] | None, least: Least | None = None, *, wide: bool
) -> str:
    """Return one row a scenario, in brackets what is other than in the snapshot as it is."""
    columns = _COLUMNS + (_WIDE if wide else ())
    rows = [("*", *(found.base.row.get(name) for _, name in columns), _state(found.base))]
    for answer in rank_answers(found.answers, rank):
        cells = [_compare(answer, found.base, name) for _, name in columns]
        rows.append((answer.name, *cells, _state(answer)))
    headings = ["SCENARIO", *(heading for heading, _ in columns), "RESULT"]
    table = format_table(headings, rows)
    if least is not None:
        return f"{table}\n\n{_say_least(least)}"
    failed = sum(not answer.row for answer in found.answers)
    tail = f", {failed} of them cannot be answered" if failed else ""
    return f"{table}\n\n{count(len(found.answers), 'scenario')}{tail}"


def _say_least(least: Least) -> str:
    last = least.tried.answers[-1]
    if least.number is None:
        return (
            f"not enough: with {last.name.removeprefix('add-')} more, "
            f"{count(last.row['groupsNotPlaced'], 'group')} would still not be placed; "
            "gangplan explain says why"
        )
    if least.number == 0:
        return "none is needed: all asked groups are placed as it is"
    return f"{least.number} more would be enough, {least.number - 1} not"


def _compare(answer: Answer, base: Answer, name: str) -> str | None:
    if not answer.row:
        return None
    value = answer.row[name]
    change = value - base.row.get(name, value)
    return f"{value} ({change:+})" if change and name in _COMPARED else str(value)


def _state(answer: Answer) -> str:
    if answer.error:
        return f"not answered: {answer.error}"
    if not answer.is_valid:
        return "refused by the verifier"
    if not answer.row["groupsPlaced"] + answer.row["groupsNotPlaced"]:
        return "nothing to place"
    missing = answer.row["groupsNotPlaced"]
    return f"{missing} not placed" if missing else "all placed"


def to_document(
    found: WhatIf,
    snapshot: Snapshot,
    request: Request,
    rank: tuple[str, bool] | None,
    least: Least | None = None,
) -> dict[str, Any]:
    """Return the WhatIf document of the contract."""
    base = found.base
    assert base.plan is not None
    return {
        "apiVersion": API_VERSION,
        "kind": "WhatIf",
        "command": "whatif",
        "snapshot": dict(base.plan.snapshot),
        "request": request.to_dict(),
        "base": base.row,
        **({} if least is None else {"least": least.number}),
        "scenarios": [_entry(a, base) for a in found.answers],
        "ranking": [a.name for a in rank_answers(found.answers, rank)],
        "warnings": list(snapshot.warnings),
        "errors": [
            {"object": e.object, "kind": e.kind, "field": e.field, "message": e.message}
            for e in snapshot.errors
        ],
    }


def _entry(answer: Answer, base: Answer) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": answer.name}
    if answer.error:
        return {**entry, "error": answer.error, "plan": None}
    change = {name: answer.row[name] - base.row.get(name, 0) for name in ROW}
    plan = None if answer.plan is None else answer.plan.to_dict()
    return {**entry, "row": answer.row, "change": change, "plan": plan}
