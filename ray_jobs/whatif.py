"""Many scenarios of one fleet: each becomes a snapshot, is planned, verified and summed up.

Scenarios are cut into chunks; a chunk is one task of the fan-out and one file of results. What is
answered depends on the scenarios alone, never on how they are cut or who answers them.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from data.scenarios.apply import Changed, apply_scenario
from optimizer.answer import assign_pods
from optimizer.drain import drain_nodes
from optimizer.fragmentation import find_largest_gangs
from optimizer.problem import build_problem
from optimizer.repack.steps import REPACK_OBJECTIVE
from optimizer.search.mend import MENDED_FROM, Variant, mend_placements
from ray_jobs.fan_out import map_ordered
from ray_jobs.pipeline import (
    Found,
    check_groups,
    count_drained,
    finish_plan,
    join_groups,
    make_plan,
    prove_nothing,
)
from ray_jobs.repacking import make_move_plan
from topology.errors import RequestError
from topology.model import is_gpu
from topology.move_request import MoveRequest
from topology.owners import planned_ref
from topology.plan_json import plan_from_dict
from topology.settle import settle_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from data.scenarios.wire import Scenario
    from topology.model import Snapshot
    from topology.plan import Plan, Request

__all__ = ["BASE", "ROW", "Answer", "WhatIf", "answer_scenarios"]

BASE: Final = "base"
"""Name of what every row is compared with: the snapshot as it is."""
ROW: Final = (
    "groupsPlaced",
    "groupsNotPlaced",
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
    is_valid: bool = True
    """False when the verifier refuses the plan."""
    plan: Plan | None = None
    """None where only rows are asked for."""
    error: str = ""


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
    plans: bool = True,
    base: Answer | None = None,
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
      plans: Keep the plans with the answers.
      base: The answer for the snapshot as it is, where that is known already.
      progress: Called with a line now and then.

    Returns:
      One answer a scenario. One that cannot be carried out has an `error` and no plan.

    Raises:
      RequestError: The request itself cannot be answered, the folder holds other results, or the
        workers cannot be had.
    """
    say = progress or (lambda _: None)
    base = base or _answer_base(snapshot, request, say)
    assert base.plan is not None
    shared = _Shared(snapshot, request, _find_seats(snapshot, base.plan, request), plans)
    chunks = _cut(scenarios)
    kept = None
    if results is not None:
        from data.scenarios.results import ResultFolder

        question = _digest_question(snapshot, scenarios, request, plans)
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
        map_ordered(_answer_chunk, shared, tasks, workers=workers, progress=say),
        strict=True,
    ):
        found[c] = answers
        done += len(answers)
        if kept is not None:
            kept.write(c, [_to_row(answer) for answer in answers])
        say(f"{done} of {len(scenarios)} scenarios answered")
    return WhatIf(base, tuple(answer for c in range(len(chunks)) for answer in found[c]))


def _answer_base(snapshot: Snapshot, request: Request, say: Callable[[str], None]) -> Answer:
    say("planning the fleet as it is")
    plan = make_plan(snapshot, request, say)
    verdict = plan.verification
    is_valid = verdict is not None and verdict.is_valid
    return Answer(BASE, request.command, _sum_up(Changed(snapshot), plan), is_valid, plan)


def _find_seats(snapshot: Snapshot, plan: Plan, request: Request) -> dict[str, str]:
    """Return pod -> node of the base plan where scenarios are mended from it, else nothing."""
    waiting = int(snapshot.pods.is_pending.sum())
    if request.effort == "thorough" or waiting * len(snapshot.nodes) < MENDED_FROM:
        return {}
    return {pod.pod: pod.node for group in plan.groups for pod in group.pods}


def _digest_question(
    snapshot: Snapshot, scenarios: Sequence[Scenario], request: Request, plans: bool
) -> str:
    from data.digest import digest_snapshot
    from data.scenarios.wire import encode_scenarios

    asked = json.dumps(
        {"plans": plans, **request.to_dict(), "release": request.release}, sort_keys=True
    )
    parts = (digest_snapshot(snapshot).encode(), encode_scenarios(scenarios), asked.encode())
    return hashlib.sha256(b"\n".join(parts)).hexdigest()


def _to_row(answer: Answer) -> dict[str, Any]:
    plan = None if answer.plan is None else json.dumps(answer.plan.to_dict(), ensure_ascii=False)
    return {
        "name": answer.name,
        "command": answer.command,
        "error": answer.error,
        "isValid": answer.is_valid,
        **answer.row,
        "plan": plan,
    }


def _from_row(row: dict[str, Any]) -> Answer:
    plan = None if row["plan"] is None else plan_from_dict(json.loads(row["plan"]))
    counts = {name: row[name] for name in ROW if row[name] is not None}
    return Answer(row["name"], row["command"], counts, row["isValid"], plan, row["error"])


def _cut(scenarios: Sequence[Scenario]) -> list[list[Scenario]]:
    """Cut into runs of like length; the same for any number of workers, so that runs resume."""
    size = min(max(len(scenarios) // _CHUNKS, 1), _MAX_CHUNK)
    return [list(scenarios[at : at + size]) for at in range(0, len(scenarios), size)]


class _Shared(NamedTuple):
    """What every chunk reads."""

    snapshot: Snapshot
    request: Request
    base: Mapping[str, str]
    """Pod -> node of the plan for the snapshot as it is; empty where none is mended from."""
    plans: bool
    """Keep the plans, with causes; else the rows alone."""


class _Asked(NamedTuple):
    """A scenario that has happened, and what is asked of it."""

    changed: Changed
    request: Request


def _answer_chunk(shared: _Shared, chunk: Sequence[Scenario]) -> list[Answer]:
    """Answer scenarios: those to be mended in one batch, the others one by one."""
    asked = [_happen(shared, scenario) for scenario in chunk]
    mended = _mend(shared, [a for a in asked if isinstance(a, _Asked) and _is_mended(shared, a)])
    answers = []
    for scenario, entry in zip(chunk, asked, strict=True):
        if isinstance(entry, str):
            answers.append(Answer(scenario.name, error=entry))
            continue
        try:
            plan = next(mended) if _is_mended(shared, entry) else _make_plan(entry)
        except RequestError as problem:
            answers.append(Answer(scenario.name, error=f"scenario {scenario.name}: {problem}"))
            continue
        row = _sum_up(entry.changed, plan)
        kept = plan if shared.plans else None
        verdict = plan.verification
        is_valid = verdict is not None and verdict.is_valid
        answers.append(Answer(scenario.name, entry.request.command, row, is_valid, kept))
    return answers


def _happen(shared: _Shared, scenario: Scenario) -> _Asked | str:
    """Return the scenario carried out, or what is wrong with it."""
    try:
        changed = apply_scenario(shared.snapshot, scenario)
        request = _ask(changed, scenario, shared.request)
        check_groups(changed.snapshot, request)
    except RequestError as problem:
        text = str(problem)
        return text if text.startswith("scenario ") else f"scenario {scenario.name}: {text}"
    return _Asked(changed, request)


def _make_plan(asked: _Asked) -> Plan:
    snapshot, request = asked.changed.snapshot, asked.request
    if request.command == "repack":
        return make_move_plan(snapshot, request)
    return make_plan(snapshot, request, ran=asked.changed.lost)


def _is_mended(shared: _Shared, asked: _Asked) -> bool:
    """Tell whether a scenario is answered from the base plan.

    It has to be about placing alone, by the objective of the base plan.
    """
    return bool(
        shared.base
        and asked.request.command == "place"
        and not asked.request.preempt
        and asked.request.objective == shared.request.objective
    )


def _mend(shared: _Shared, asked: Sequence[_Asked]) -> Iterator[Plan]:
    """Yield the plan of each scenario, made from the base plan, all of them in one batch."""
    variants = []
    founds = []
    for entry in asked:
        drained = drain_nodes(entry.changed.snapshot, entry.request)
        request = join_groups(entry.request, drained.groups)
        problem = build_problem(drained.after, request)
        back = set(entry.changed.lost) | {e.pod for e in drained.evictions}
        pods = drained.after.pods
        first = frozenset(
            p for p in np.flatnonzero(pods.is_pending).tolist() if pods.refs[p] in back
        )
        variants.append(Variant(problem, first))
        founds.append((drained, request))
    results = mend_placements(variants, shared.base, shared.request) if variants else []
    for entry, variant, result, (drained, request) in zip(
        asked, variants, results, founds, strict=True
    ):
        found = Found(
            drained.after,
            variant.problem,
            assign_pods(variant.problem, result),
            prove_nothing(result),
            drained.evictions,
            count_drained(entry.changed.snapshot, drained),
            drained.warnings,
            goals=drained.goals,
        )
        yield finish_plan(
            entry.changed.snapshot, request, found, lambda _: None, for_sums=not shared.plans
        )


def _ask(changed: Changed, scenario: Scenario, request: Request) -> Request:
    run = scenario.run
    edits: dict[str, Any] = dict(changed.rules)
    unit = edits.pop("drain_unit", "group")
    command = run.command or request.command
    if run.command is not None:
        edits |= {"command": command, "preempt": command == "preempt" or request.preempt}
    if command == "repack":
        edits |= {"preempt": False, "objective": REPACK_OBJECTIVE}
    if changed.drain or command == "repack":
        edits["move"] = MoveRequest(drain=changed.drain, drain_unit=unit)
    if run.objective is not None:
        edits["objective"] = tuple(run.objective)
    groups = request.groups if run.groups is None else tuple(sorted(run.groups))
    if groups is not None:
        back = _find_owners(changed.snapshot, changed.lost)
        edits["groups"] = tuple(sorted({*groups, *changed.groups, *back}))
    return replace(request, **edits)


def _find_owners(snapshot: Snapshot, refs: Sequence[str]) -> set[str]:
    """Return what some waiting pods are planned under."""
    if not refs:
        return set()
    index = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    return {planned_ref(snapshot, index[ref]) for ref in refs if ref in index}


def _sum_up(changed: Changed, plan: Plan) -> dict[str, int]:
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
        "groupsNotPlaced": sum(entry.outcome != "placed" for entry in plan.groups),
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


if __name__ == "__main__":
    # The entry point of `ray job submit -- python -m ray_jobs.whatif ARGS`: the command line is
    # above us, so it is run, not imported; the job's own cluster does the work.
    os.execv(
        sys.executable,
        [sys.executable, "-m", "gangplan", "whatif", *sys.argv[1:], "--workers", "auto"],
    )
