"""Quality of plans on small fleets, against CP-SAT: `python -m bench.quality [--fleets N]`.

For each fleet: the plan must verify, its score is compared with the optimum level by level, its
bound must not be below the optimum, and a claim of `optimal` must be true. Fleets of this size are
solved whole by one exact model; a second table leaves that model out, to show what the search
reaches that larger fleets depend on.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.exact_model import count_levels, list_levels, solve_placement
from bench.small_fleets import OBJECTIVES, draw_objective, make_small_fleet
from optimizer.search.place import EFFORTS
from ray_jobs.pipeline import make_plan
from topology.plan import Request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bench.exact_model import LevelName
    from topology.plan import Bound, Plan

__all__ = ["Comparison", "compare", "find_false_claim", "summarize"]

RESULTS = Path(__file__).parent / "results" / "quality.md"


@dataclass(frozen=True)
class Comparison:
    """One fleet, planned and solved exactly."""

    seed: int
    objective: tuple[str, ...]
    found: tuple[int, ...]
    best: tuple[int, ...]
    is_proven: bool
    """CP-SAT proved `best`."""
    violations: tuple[str, ...]
    false_claim: str
    """Why the plan's statement about its bound is wrong, or ""."""
    proof: str
    seconds: float

    @property
    def is_optimal(self) -> bool:
        """As good as the best known in every level."""
        return self.found >= self.best

    @property
    def gap(self) -> float:
        """Relative gap of the first level that differs; 0 where none does."""
        for found, best in zip(self.found, self.best, strict=True):
            if found != best:
                return max((best - found) / max(abs(best), 1), 0.0)
        return 0.0


def compare(seed: int, effort: str = "normal") -> Comparison:
    """Plan the fleet of a seed and solve it with CP-SAT."""
    snapshot = make_small_fleet(seed)
    objective = draw_objective(seed)
    request = Request(objective=objective, seed=0, effort=effort)  # type: ignore[arg-type]
    start = time.perf_counter()
    plan = make_plan(snapshot, request)
    seconds = time.perf_counter() - start
    levels = list_levels(snapshot, objective)
    placed = [pod.pod for entry in plan.groups for pod in entry.pods]
    found = count_levels(snapshot, placed, levels)
    answer = solve_placement(snapshot, levels)
    verdict = plan.verification
    broken = () if verdict is None else tuple(f"{v.rule} {v.object}" for v in verdict.violations)
    return Comparison(
        seed=seed,
        objective=objective,
        found=found,
        best=answer.levels,
        is_proven=answer.proven,
        violations=broken,
        false_claim=find_false_claim(plan, levels, found, answer.levels),
        proof=plan.bound.proof,
        seconds=seconds,
    )


def find_false_claim(
    plan: Plan, levels: list[LevelName], found: tuple[int, ...], best: tuple[int, ...]
) -> str:
    """Return what is wrong with the plan's bound, given that some plan reaches `best`."""
    bound: Bound = plan.bound
    if bound.proof == "optimal":
        return f"optimal, but {found} < {best}" if found < best else ""
    if bound.proof == "bound" and bound.value is not None:
        # The bound is of one level, and holds for plans that equal this one in those before it.
        names = [level.stated_as for level in levels]
        for i, level in enumerate(levels):
            if names[i] == bound.criterion and found[:i] == best[:i]:
                limit = bound.value * level.sign
                if found[i] != best[i]:
                    return f"bound {limit} below {best[i]}" if limit < best[i] else ""
    return ""


def summarize(results: list[Comparison]) -> str:
    """Write the results as a table, one line for each objective."""
    if not results:
        return "No fleets.\n"
    lines = [
        "| objective | fleets | optimal | mean gap | proven by the plan | false claims | invalid |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for objective in (*OBJECTIVES, None):
        rows = [r for r in results if objective in (None, r.objective)]
        if not rows:
            continue
        optimal = sum(r.is_optimal for r in rows)
        name = "all" if objective is None else "`" + ",".join(objective) + "`"
        lines.append(
            f"| {name} | {len(rows)} | {optimal} ({100 * optimal / len(rows):.1f} %) "
            f"| {100 * sum(r.gap for r in rows) / len(rows):.2f} % "
            f"| {sum(r.proof == 'optimal' for r in rows)} "
            f"| {sum(bool(r.false_claim) for r in rows)} "
            f"| {sum(bool(r.violations) for r in rows)} |"
        )
    unproven = sum(not r.is_proven for r in results)
    lines += [
        "",
        f"CP-SAT left {unproven} of {len(results)} optima unproven within its limit; "
        "the plan is then compared with the best that it found.",
    ]
    missed = [r for r in results if not r.is_optimal]
    if missed:
        lines += ["", "Not optimal:", ""]
        lines += [
            f"- seed {r.seed}: found {r.found}, best {r.best} (`{','.join(r.objective)}`)"
            for r in missed
        ]
    return "\n".join(lines) + "\n"


def run(seeds: Iterable[int], effort: str) -> list[Comparison]:
    """Compare every seed, and say at once where something is wrong."""
    results = []
    for seed in seeds:
        result = compare(seed, effort)
        results.append(result)
        if result.violations or result.false_claim or not result.is_optimal:
            print(
                f"seed {seed}: found {result.found} best {result.best} {result.objective} "
                f"{result.false_claim} {result.violations[:3]}",
                flush=True,
            )
    return results


def run_without_exact(seeds: Iterable[int], effort: str) -> list[Comparison]:
    """Do what `run` does, but with no fleet small enough for the exact model."""
    before = EFFORTS[effort]
    EFFORTS[effort] = replace(before, exact_variables=0)
    try:
        return run(seeds, effort)
    finally:
        EFFORTS[effort] = before


def main() -> None:
    """Run the benchmark and write `results/quality.md`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleets", type=int, default=320)
    parser.add_argument("--search-fleets", type=int, default=60, help="fleets of the second table")
    parser.add_argument("--first", type=int, default=0, help="seed of the first fleet")
    parser.add_argument("--effort", default="normal", choices=sorted(EFFORTS))
    parser.add_argument("--dry", action="store_true", help="do not write the results file")
    args = parser.parse_args()
    results = run(range(args.first, args.first + args.fleets), args.effort)
    searched = run_without_exact(range(args.first, args.first + args.search_fleets), args.effort)
    text = (
        "# Plans of small fleets against CP-SAT\n\n"
        f"`python -m bench.quality --fleets {args.fleets} --search-fleets {args.search_fleets}`, "
        f"effort {args.effort}, seed 0.\n\n"
        f"{summarize(results)}\n"
        f"## Without the exact model of the whole fleet\n\n{summarize(searched)}"
    )
    print(text)
    total = sum(r.seconds for r in results)
    print(f"planning took {total:.0f} s, without the exact model of the whole fleet ", end="")
    print(f"{sum(r.seconds for r in searched):.0f} s for {len(searched)} fleets")
    if not args.dry:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
