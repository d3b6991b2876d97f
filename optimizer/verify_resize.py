"""Rules of a pod that is resized where it runs.

Part of the verifier: plain Python, exact integers. The scheduler checks node name and resources
alone, so nothing else is checked here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topology.model import NO_GROUP, NO_NODE

if TYPE_CHECKING:
    from optimizer.verify_state import Replay
    from topology.plan import Plan

__all__ = ["check_resize", "find_resized"]

_RESIZABLE = ("cpu", "memory")


def find_resized(replay: Replay, plan: Plan, ref: str | None) -> tuple[int, int] | None:
    """Return (group, NO_NODE) or (NO_GROUP, plain pod) for which victims go because it grows.

    None where `ref` is no such pod.
    """
    if plan.resize is None or plan.resize.outcome != "resized" or plan.resize.pod != ref:
        return None
    p = replay.pod_index.get(plan.resize.pod, NO_NODE)
    if p == NO_NODE:
        return None
    group = replay.group[p]
    return (NO_GROUP, p) if group == NO_GROUP else (group, NO_NODE)


def check_resize(replay: Replay, plan: Plan) -> None:
    """Check that the pod fits its own node with what it is to ask for, after the evictions."""
    resize = plan.resize
    if resize is None:
        return
    log, p = replay.log, replay.pod_index.get(resize.pod, NO_NODE)
    if not log.require(p != NO_NODE, "exists", resize.pod, "a pod of the snapshot", "none"):
        return
    asked = plan.request.resize
    log.require(
        asked is not None and asked.pod == resize.pod and asked.requests in ((), resize.after),
        "resize-asked",
        resize.pod,
        "what the request asks for",
        "another pod or other amounts",
    )
    here = replay.place_name(replay.node[p])
    log.require(resize.node == here, "resize-node", resize.pod, here, resize.node)
    own = dict(replay.spec_of(p).requests)
    log.require(
        dict(resize.before) == {r: own.get(r, 0) for r, _ in resize.after},
        "resize-from",
        resize.pod,
        "what the pod asks for now",
        "other amounts",
    )
    for resource, _ in resize.after:
        log.require(
            resource in _RESIZABLE, "resize-resource", resize.pod, "cpu or memory", resource
        )
    log.require(
        resize.outcome == "resized" or not plan.evictions,
        "resize-victims",
        resize.pod,
        "no victims for a pod that stays as it is",
        f"{len(plan.evictions)} evictions",
    )
    n = replay.node[p]
    if resize.outcome != "resized" or n < 0:
        return
    log.require(
        not plan.evictions or replay.snapshot.nodes[n].allows_resize_preemption,
        "resize-preemption",
        resize.node,
        "a node that lets a resize evict",
        "one that does not",
    )
    _check_victims(replay, plan, resize.pod, n)
    # Asking for no more needs no room, even where the node is overcommitted.
    allocatable = replay.snapshot.nodes[n].allocatable
    for resource, amount in resize.after:
        free = allocatable.get(resource, 0) - replay.used[n][resource] + own.get(resource, 0)
        log.require(
            amount == 0
            or amount <= free
            or (amount <= own.get(resource, 0) and not plan.evictions),
            "capacity",
            f"{resize.pod} on {resize.node}",
            f"{amount} {resource} free",
            f"{free} free",
        )


def _check_victims(replay: Replay, plan: Plan, ref: str, n: int) -> None:
    """Check that everybody goes for the pod, and that each unit has a pod on its node."""
    stood = replay.snapshot.pods.node
    units: dict[int, tuple[int, int]] = {}
    for eviction in plan.evictions:
        replay.log.require(
            eviction.preemptor == ref,
            "preemptor",
            eviction.pod,
            f"evicted for {ref}",
            str(eviction.preemptor),
        )
        p = replay.pod_index.get(eviction.pod, NO_NODE)
        if p != NO_NODE:
            unit = replay.find_disruption_unit(p)
            units[p] = (unit, p if unit == NO_GROUP else NO_NODE)
    here = {own for p, own in units.items() if stood[p] == n}
    for p, own in sorted(units.items()):
        replay.log.require(
            own in here,
            "resize-victims",
            replay.pod_ref(p),
            f"a unit with a pod on {replay.place_name(n)}",
            "none there",
        )
