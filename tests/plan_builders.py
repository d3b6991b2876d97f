"""Plans by hand: placements in, a complete Plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topology.model import NO_GROUP
from topology.plan import Eviction, GroupPlan, Move, PlacedPod, Plan, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topology.model import Snapshot
    from topology.plan import Verification


def make_plan(
    snapshot: Snapshot,
    placed: Mapping[str, str],
    *,
    victims: Mapping[str, str] | None = None,
    drained: Iterable[str] = (),
    moves: Iterable[Move] = (),
    criteria: Mapping[str, int] | None = None,
    **request: Any,
) -> Plan:
    """A plan that lists every group with waiting pods.

    `placed` maps pod to node, `victims` pod to preemptor; `drained` are pods a drain takes away;
    `request` holds fields of the Request.
    """
    pods = snapshot.pods
    drained = tuple(drained)
    is_pending = pods.is_pending
    waiting: dict[str, list[str]] = {}
    entries: dict[str, tuple[str, str, int, int]] = {}
    for p, ref in enumerate(pods.refs):
        if not (is_pending[p] or ref in drained):
            continue
        g = int(pods.group[p])
        if g == NO_GROUP:
            entries[ref] = ("v1/Pod", "basic", 1, int(pods.priority[p]))
            waiting[ref] = [ref]
            continue
        while snapshot.groups[g].kind == "subgroup":
            g = snapshot.groups[g].parent
        group = snapshot.groups[g]
        entries[group.ref] = (group.api, group.policy, group.min_count, group.priority)
        waiting.setdefault(group.ref, []).append(ref)
    victims = victims or {}
    return Plan(
        Request(preempt=request.pop("preempt", bool(victims)), **request),
        {"digest": "sha256:0", "release": "1.37", "nodes": 0, "pods": 0, "groups": 0},
        groups=tuple(
            GroupPlan(
                ref,
                *entries[ref],
                outcome="placed" if any(pod in placed for pod in names) else "notPlaced",
                pods=tuple(PlacedPod(pod, placed[pod]) for pod in names if pod in placed),
                pending_pods=tuple(pod for pod in names if pod not in placed),
            )
            for ref, names in sorted(waiting.items())
        ),
        evictions=tuple(
            Eviction(pod, _find_node(snapshot, pod), preemptor=preemptor)
            for pod, preemptor in sorted(victims.items())
        )
        + tuple(Eviction(pod, _find_node(snapshot, pod), reason="drain") for pod in drained),
        moves=tuple(moves),
        criteria=criteria or {},
    )


def _find_node(snapshot: Snapshot, pod: str) -> str:
    n = int(snapshot.pods.node[snapshot.pods.refs.index(pod)])
    return snapshot.nodes[n].name if n >= 0 else ""


def broken_rules(verification: Verification) -> list[str]:
    """Names of the broken rules, each once, sorted."""
    return sorted({violation.rule for violation in verification.violations})
