"""Many scenarios of one fleet: each becomes a snapshot, is planned, verified and summed up.

Scenarios are cut into chunks; a chunk is one task of the fan-out and one file of results. What is
answered depends on the scenarios alone, never on how they are cut or who answers them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from data.scenarios.apply import apply_scenario
from data.scenarios.wire import Scenario
from optimizer.fragmentation import find_largest_gangs
from ray_jobs.fan_out import map_ordered
from ray_jobs.pipeline import make_plan
from topology.errors import RequestError
from topology.model import NO_GROUP, is_gpu
from topology.plan_json import plan_from_dict
from topology.settle import settle_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from data.scenarios.apply import Changed
    from topology.model import Snapshot
    from topology.plan import Plan, Request

__all__ = ["BASE", "ROW", "Answer", "WhatIf", "answer_scenario", "answer_scenarios"]

BASE: Final = "base"
"""Name of what every row is compared with: the snapshot as it is."""
ROW: Final = (
    "groupsPlaced",
    "podsPlaced",
    "gpusPlaced",
    "groupsLost",
    "groupsRecovered",
    "victimPods",
    "victimUnits",
    "victimGpus",
    "pdbViolations",
    "moves",
    "movedGpus",
    "disturbedPods",
    "fragmentation",
    "largestGang",
)
"""Columns of a row of answers, whole numbers all."""
_CHUNKS: Final = 32
_MAX_CHUNK: Final = 32


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one scenario: a plan and its sums, or why there is none."""

    name: str
    command: str = ""
    row: dict[str, int] = field(default_factory=dict)
    plan: Plan | None = None
    error: str = ""

    @property
    def is_valid(self) -> bool:
        """False when the verifier refuses the plan."""
        return self.plan is None or bool(self.plan.verification and self.plan.verification.is_valid)


@dataclass(frozen=True, slots=True)
class WhatIf:
    """All answers of a run, and that for the snapshot as it is."""

    base: Answer
    answers: tuple[Answer, ...]

    @property
    def is_valid(self) -> bool:
        """False when the verifier refuses some plan."""
        return self.base.is_valid and all(answer.is_valid for answer in self.answers)


def answer_scenarios(
    snapshot: Snapshot,
    scenarios: Sequence[Scenario],
    request: Request,
    *,
    workers: str | int | None = None,
    results: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> WhatIf:
    """Answer the snapshot as it is, and every scenario in the order given.

    Args:
      snapshot: The fleet; never changed.
      scenarios: As `data.scenarios.read` reads them.
      request: What is asked where a scenario says nothing else.
      workers: None: in this process; else as for `ray_jobs.fan_out.map_ordered`.
      results: A folder or URI for one Parquet file a chunk; chunks that are there already are not
        answered again.
      progress: Called with a line now and then.

    Returns:
      One answer a scenario. One that cannot be carried out has an `error` and no plan.

    Raises:
      RequestError: The request itself cannot be answered, the folder holds other results, or the
        workers cannot be had.
    """
    say = progress or (lambda _: None)
    base = answer_scenario(snapshot, Scenario(BASE), request)
    if base.error:
        raise RequestError(base.error)
    chunks = _cut(scenarios)
    kept = None
    if results is not None:
        from data.scenarios.results import ResultFolder

        question = _digest_question(snapshot, scenarios, request)
        kept = ResultFolder(results, question, len(chunks), ROW)
    found: dict[int, list[Answer]] = {}
    if kept is not None:
        found = {c: [_from_row(row) for row in rows] for c, rows in kept.read().items()}
        if found:
            say(f"{len(found)} of {len(chunks)} chunks are answered already")
    left = [c for c in range(len(chunks)) if c not in found]
    done = sum(map(len, found.values()))
    tasks = [chunks[c] for c in left]
    for c, answers in zip(
        left,
        map_ordered(_answer_chunk, (snapshot, request), tasks, workers=workers, progress=say),
        strict=True,
    ):
        found[c] = answers
        done += len(answers)
        if kept is not None:
            kept.write(c, [_to_row(answer) for answer in answers])
        say(f"{done} of {len(scenarios)} scenarios answered")
    return WhatIf(base, tuple(answer for c in range(len(chunks)) for answer in found[c]))


def _digest_question(snapshot: Snapshot, scenarios: Sequence[Scenario], request: Request) -> str:
    from data.digest import digest_snapshot
    from data.scenarios.wire import encode_scenarios

    asked = json.dumps({**request.to_dict(), "release": request.release}, sort_keys=True)
    parts = (digest_snapshot(snapshot).encode(), encode_scenarios(scenarios), asked.encode())
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def _to_row(answer: Answer) -> dict[str, Any]:
    plan = None if answer.plan is None else json.dumps(answer.plan.to_dict(), ensure_ascii=False)
    return {
        "name": answer.name,
        "command": answer.command,
        "error": answer.error,
        **answer.row,
        "plan": plan,
    }


def _from_row(row: dict[str, Any]) -> Answer:
    plan = None if row["plan"] is None else plan_from_dict(json.loads(row["plan"]))
    counts = {name: row[name] for name in ROW if row[name] is not None}
    return Answer(row["name"], row["command"], counts, plan, row["error"])


def _cut(scenarios: Sequence[Scenario]) -> list[list[Scenario]]:
    """Cut into runs of like length; the same for any number of workers, so that runs resume."""
    size = min(max(len(scenarios) // _CHUNKS, 1), _MAX_CHUNK)
    return [list(scenarios[at : at + size]) for at in range(0, len(scenarios), size)]


def _answer_chunk(shared: tuple[Snapshot, Request], chunk: Sequence[Scenario]) -> list[Answer]:
    snapshot, request = shared
    return [answer_scenario(snapshot, scenario, request) for scenario in chunk]


def answer_scenario(snapshot: Snapshot, scenario: Scenario, request: Request) -> Answer:
    """Answer one scenario; what is wrong with it is in its `error`.

    Raises nothing for a scenario that cannot be carried out.
    """
    try:
        changed = apply_scenario(snapshot, scenario)
        asked = _ask(changed, scenario, request)
        plan = make_plan(changed.snapshot, asked)
    except RequestError as problem:
        return Answer(scenario.name, error=str(problem))
    return Answer(scenario.name, asked.command, _sum_up(snapshot, changed, plan), plan)


def _ask(changed: Changed, scenario: Scenario, request: Request) -> Request:
    run = scenario.run
    edits: dict[str, Any] = {**changed.rules, "drain": changed.drain}
    if run.command is not None:
        edits |= {"command": run.command, "preempt": run.command == "preempt" or request.preempt}
    if run.objective is not None:
        edits["objective"] = tuple(run.objective)
    groups = request.groups if run.groups is None else tuple(sorted(run.groups))
    if groups is not None:
        back = _find_owners(changed.snapshot, changed.lost)
        edits["groups"] = tuple(sorted({*groups, *changed.groups, *back}))
    return replace(request, **edits)


def _find_owners(snapshot: Snapshot, refs: Sequence[str]) -> set[str]:
    """Return the groups, or the pods themselves, that some waiting pods belong to."""
    if not refs:
        return set()
    index = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    found = set()
    for ref in refs:
        if ref in index:
            g = int(snapshot.pods.group[index[ref]])
            while g != NO_GROUP and snapshot.groups[g].kind == "subgroup":
                g = snapshot.groups[g].parent
            found.add(ref if g == NO_GROUP else snapshot.groups[g].ref)
    return found


def _sum_up(snapshot: Snapshot, changed: Changed, plan: Plan) -> dict[str, int]:
    drained = [e.pod for e in plan.evictions if e.reason == "drain"]
    hit = _find_owners(changed.snapshot, [*changed.lost, *drained])
    outcome = {entry.group: entry for entry in plan.groups}
    back = {
        ref
        for ref in hit
        if ref in outcome and outcome[ref].outcome == "placed" and not outcome[ref].pending_pods
    }
    counts = {
        **{name: 0 for name in ROW},
        **{name: value for name, value in plan.criteria.items() if name in ROW},
        "groupsLost": len(hit - back),
        "groupsRecovered": len(back),
        "largestGang": _find_largest_gang(settle_plan(changed.snapshot, plan)),
    }
    return {name: int(counts[name]) for name in ROW}


def _find_largest_gang(snapshot: Snapshot) -> int:
    """Return the most pods of a whole node each that still fit together.

    A whole node is as many GPUs as most nodes have; together is in one domain of the key that most
    groups require, or anywhere where none do.
    """
    gangs = find_largest_gangs(snapshot)
    sizes = Counter(
        sum(amount for name, amount in node.allocatable.items() if is_gpu(name))
        for node in snapshot.nodes
    )
    usual = max(sizes, key=lambda size: (size > 0, sizes[size], size), default=0)
    size = max((gang["gpusPerPod"] for gang in gangs if gang["gpusPerPod"] <= usual), default=1)
    keys = Counter(t.key for group in snapshot.groups for t in group.topology if t.required)
    key = min(keys, key=lambda name: (-keys[name], name), default=None)
    wanted = [gang["pods"] for gang in gangs if gang["gpusPerPod"] == size]
    return next(
        (g["pods"] for g in gangs if g["key"] == key and g["gpusPerPod"] == size),
        max(wanted, default=0),
    )
