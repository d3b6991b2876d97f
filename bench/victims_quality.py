"""Quality of plans with evictions against CP-SAT: `python -m bench.victims_quality [--fleets N]`.

For each fleet the plan must verify; its value is compared with the optimum of an independent model
(`bench.exact_victims`) step by step of the objective; a claim of `optimal` must be true and a bound
must not be below the optimum.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from bench.exact_victims import count_plan, list_steps, solve_preemption
from bench.quality import Comparison, find_false_claim
from bench.table import write_table
from bench.victim_fleets import OBJECTIVES, draw_question
from ray_jobs.pipeline import make_plan
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["compare"]

ASKED_SHARE, ASKED_GAP = 0.98, 0.002


def compare(seed: int, effort: str = "normal") -> Comparison:
    """Plan the fleet of a seed with evictions, and solve it with CP-SAT."""
    snapshot, objective, pdb = draw_question(seed)
    request = Request(
        command="preempt",
        preempt=True,
        objective=objective,
        pdb=pdb,  # type: ignore[arg-type]
        effort=effort,  # type: ignore[arg-type]
    )
    start = time.perf_counter()
    plan = make_plan(snapshot, request)
    seconds = time.perf_counter() - start
    steps = list_steps(snapshot, objective)
    placed = [pod.pod for entry in plan.groups for pod in entry.pods]
    found = count_plan(snapshot, placed, {e.pod for e in plan.evictions}, steps)
    answer = solve_preemption(snapshot, steps, pdb=pdb)
    assert plan.verification is not None
    broken = [f"{v.rule} {v.object}" for v in plan.verification.violations]
    broken += [
        f"{step.criterion} is {-value}, stated as {plan.criteria[step.criterion]}"
        for step, value in zip(steps, found, strict=True)
        if step.sign < 0
        and step.priority is None
        and plan.criteria.get(step.criterion, -value) != -value
    ]
    if pdb == "hard" and plan.criteria["pdbViolations"]:
        broken.append("a hard budget is exceeded")
    return Comparison(
        seed=seed,
        objective=objective,
        found=found,
        best=answer.levels,
        is_proven=answer.proven,
        violations=tuple(broken),
        false_claim=find_false_claim(plan, steps, found, answer.levels),
        proof=plan.bound.proof,
        seconds=seconds,
    )


def run(seeds: Iterable[int], effort: str) -> list[Comparison]:
    """Compare every seed, and say at once where something is not as asked."""
    results = []
    for seed in seeds:
        result = compare(seed, effort)
        results.append(result)
        if result.violations or result.false_claim or result.found != result.best:
            print(
                f"seed {seed}: found {result.found} best {result.best} {result.objective} "
                f"proof {result.proof} {result.false_claim} {result.violations[:3]}",
                flush=True,
            )
    return results


def _describe(name: str, rows: list[Comparison]) -> list[object]:
    optimal = sum(r.is_optimal for r in rows)
    return [
        name,
        len(rows),
        f"{optimal} ({100 * optimal / len(rows):.1f} %)",
        f"{100 * sum(r.gap for r in rows) / len(rows):.3f} %",
        f"{100 * max(r.gap for r in rows):.1f} %",
        f"{sum(r.proof == 'optimal' for r in rows)}",
        sum(bool(r.false_claim) for r in rows),
        sum(bool(r.violations) for r in rows),
        sum(not r.is_proven for r in rows),
    ]


def main() -> int:
    """Run the benchmark, write `results/victims_quality.md`, and fail where a plan is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=320)
    parser.add_argument("--first", type=int, default=0, help="seed of the first fleet")
    parser.add_argument("--effort", default="normal", choices=("quick", "normal", "thorough"))
    args = parser.parse_args()
    results = run(range(args.first, args.first + args.fleets), args.effort)
    chosen = {
        objective: [r for r in results if r.objective == objective] for objective in OBJECTIVES
    }
    rows = [_describe(f"`{','.join(o)}`", some) for o, some in chosen.items() if some]
    rows.append(_describe("all", results))
    heads = [
        "objective",
        "fleets",
        "optimal",
        "mean gap",
        "worst gap",
        "proven by the plan",
        "false claims",
        "invalid",
        "CP-SAT unproven",
    ]
    write_table(
        "victims_quality", f"Plans with evictions against CP-SAT, effort {args.effort}", heads, rows
    )
    print(f"planning took {sum(r.seconds for r in results):.0f} s")
    return int(any(r.violations or r.false_claim for r in results))


if __name__ == "__main__":
    raise SystemExit(main())
