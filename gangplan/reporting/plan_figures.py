"""The headline figures of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gangplan.reporting.markup import make
from gangplan.reporting.numbers import count
from gangplan.reporting.parts import tile

if TYPE_CHECKING:
    from gangplan.reporting.changes import Changes
    from gangplan.reporting.fleet import Fleet
    from gangplan.reporting.markup import Element
    from gangplan.reporting.source import Source
    from topology.plan import Plan

__all__ = ["show_figures"]

GAINS: Final = {
    "groupsPlaced": "more groups placed",
    "gpusPlaced": "more GPUs placed",
    "victimPods": "fewer pods evicted",
    "victimUnits": "fewer units evicted",
    "victimGpus": "fewer GPUs evicted",
}
"""What `saved` of a comparison says, most telling first."""


def show_figures(source: Source, plan: Plan) -> Element:
    """Return the headline figures."""
    fleet, changes, goals = source.fleet, source.changes, source.goals
    tiles = []
    if goals:
        reached, wanted = sum(g.reached for g in goals), sum(g.wanted for g in goals)
        state = "good" if reached >= wanted else "bad"
        tiles.append(
            tile("Emptied", f"{reached:,} of {wanted:,}", "domains and nodes", state=state)
        )
    if plan.groups:
        placed = sum(g.outcome == "placed" for g in plan.groups)
        pods = sum(len(g.pods) for g in plan.groups)
        waiting = sum(len(g.pending_pods) for g in plan.groups)
        verb = "would fit now" if plan.request.command == "explain" else "placed"
        share = f"{pods:,} of {count(pods + waiting, 'pod')}"
        tiles.append(tile(f"Groups {verb}", f"{placed:,} of {len(plan.groups):,}", share))
        if "gpusPlaced" in plan.criteria:
            tiles.append(tile(f"GPUs {verb}", f"{plan.criteria['gpusPlaced']:,}"))
    if source.is_replay:
        tiles.append(tile("Made by", "replay", "kube-scheduler's own steps"))
    else:
        tiles.append(_bound_tile(plan))
    if source.replay is not None:
        gains = [
            f"{source.saved[c]:,} {words}" for c, words in GAINS.items() if source.saved.get(c)
        ]
        first, *rest = gains or ["no difference"]
        tiles.append(tile("Than kube-scheduler", first, *rest))
    if plan.evictions or plan.request.preempt:
        units = plan.criteria.get("victimUnits", len({e.group or e.pod for e in plan.evictions}))
        gpus = plan.criteria.get("victimGpus")
        tiles.append(
            tile(
                "Would be evicted",
                count(len(plan.evictions), "pod"),
                f"in {count(units, 'unit')}" if units else None,
                f"{count(gpus, 'GPU')} held" if gpus else None,
            )
        )
    if plan.moves or plan.request.command == "repack":
        waves = len({m.wave for m in plan.moves})
        gpus = plan.criteria.get("movedGpus")
        tiles.append(
            tile(
                "Would move",
                count(len({m.pod for m in plan.moves}), "pod"),
                f"{count(len(plan.moves), 'move')} in {count(waves, 'wave')}",
                f"{count(gpus, 'GPU')} moved" if gpus else None,
            )
        )
    if not fleet.is_partial:
        tiles.append(_free_tile(fleet, changes))
    tiles.append(_verdict_tile(plan))
    return make("dl", tiles, class_="tiles")


def _bound_tile(plan: Plan) -> Element:
    bound = plan.bound
    value = plan.criteria.get(bound.criterion)
    # `priority` has no value of its own: it is decided by the first priority that is not served.
    shown = bound.criterion if value is None else f"{bound.criterion} {value:,}"
    if bound.proof == "optimal":
        return tile("Proof", "optimal", f"{shown}: no plan is better", state="good")
    if bound.value is None or bound.proof == "none":
        return tile("Proof", "none", "good, not proven best")
    gap = "" if bound.gap is None else f", gap {100 * bound.gap:.1f} %"
    return tile("Proof", "bound", f"{shown}: no plan beats {bound.value:,}{gap}")


def _free_tile(fleet: Fleet, changes: Changes) -> Element:
    before, after = int(changes.before.free.sum()), int(changes.after.free.sum())
    offers = fleet.capacity > 0
    whole = [
        int(((view.free == fleet.capacity) & offers).sum())
        for view in (changes.before, changes.after)
    ]
    change = f"{before:,} → {after:,}" if before != after else f"{before:,}"
    nodes = f"{whole[0]:,} → {whole[1]:,}" if whole[0] != whole[1] else f"{whole[0]:,}"
    total = int(fleet.capacity.sum())
    return tile(f"Free {fleet.unit}s", change, f"of {total:,}", f"wholly free nodes: {nodes}")


def _verdict_tile(plan: Plan) -> Element:
    verdict = plan.verification
    if verdict is None:
        return tile("Verification", "not verified", "run `gangplan verify`", state="bad")
    checks = count(verdict.checks, "check")
    if verdict.is_valid:
        return tile("Verification", "✓ valid", f"{checks}, no violation", state="good")
    broken = count(len(verdict.violations), "violation")
    return tile("Verification", "✗ not valid", f"{checks}, {broken}", state="bad")
