"""Messages and details of causes: numbers asked and found, the best domain, what would be enough.

Amounts in details are Kubernetes quantities; pods, groups and nodes are counts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optimizer.decode import place_unit
from optimizer.explain_view import count_pods, name_arrangement, name_part, write_amount
from optimizer.node_reasons import CORDONED, NOT_READY, find_filter
from optimizer.problem import BROKEN, FREE_CHOICE
from optimizer.shortfall import (
    count_needed,
    count_room,
    find_best_domain,
    find_short,
    find_usable,
    list_some,
    sum_requests,
)
from topology.device_counts import count_by_class
from topology.model import PodFlag, is_gpu
from topology.quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from optimizer.explain_view import View, Words
    from optimizer.problem import Unit
    from optimizer.shortfall import BestDomain
    from topology.model import Snapshot

__all__ = [
    "has_enough_in_sum",
    "say_devices",
    "say_filters",
    "say_pinned",
    "say_quorum",
    "say_room",
]

# Too few pods


def say_quorum(snapshot: Snapshot, unit: Unit, top: int = 0) -> Words:
    """Say which floor of a subtree has too few pods, or that too few groups are ready."""
    for at in unit.walk(top):
        node = unit.tree[at]
        have = unit.count_members(at)
        if have >= node.min_count:
            continue
        pending = unit.count_pending(at)
        missing = node.min_count - have
        held = _count_held(snapshot, unit, at)
        listed = [f"{node.running} running", f"{pending} pending without gates"]
        listed += [f"{count} {what}" for what, count in held.items() if count]
        where = name_part(snapshot, unit, at)
        exist = f"only {have} exist" if have else "none exists"
        return (
            f"{where} needs {count_pods(node.min_count)}, but {exist} ({', '.join(listed)}); "
            f"{missing} more would be enough",
            {
                "minCount": node.min_count,
                "running": node.running,
                "pending": pending,
                "missing": missing,
                **{what: count for what, count in held.items() if count},
            },
        )
    node = unit.tree[top]
    ready = sum(unit.has_quorum(c) for c in node.children)
    return (
        f"it needs {node.min_groups} of its groups, but only {ready} have the pods they need",
        {"minGroups": node.min_groups, "ready": ready},
    )


def _count_held(snapshot: Snapshot, unit: Unit, at: int) -> dict[str, int]:
    """Count members that exist and do not count: gated, and being deleted."""
    groups = [unit.tree[below].group for below in unit.walk(at)]
    pods = snapshot.pods
    inside = np.isin(pods.group, groups) & pods.is_live
    leaving = inside & ((pods.flags & PodFlag.TERMINATING) != 0)
    gated = inside & ~leaving & ((pods.flags & PodFlag.GATED) != 0)
    return {"gated": int(gated.sum()), "terminating": int(leaving.sum())}


# Held to a domain, devices, filters


def say_pinned(view: View) -> Words:
    """Say which domain the running members hold the unit to, and what is free there."""
    for at, node in enumerate(view.unit.tree):
        for required in node.required:
            column = view.problem.columns[required.column]
            if required.pinned == BROKEN:
                return (
                    f"its {node.running} running members are not in one {column.key}, so the "
                    "scheduler places no further member; move or restart them together",
                    {"key": column.key, "running": node.running},
                )
            if required.pinned == FREE_CHOICE:
                continue
            value = "/".join(column.values[required.pinned])
            needed = count_needed(view.problem, view.unit, at)
            room = sum(
                min(int(view.state.capacity(s, required.column)[required.pinned]), count)
                for s, count in needed.items()
            )
            members = "member holds" if node.running == 1 else "members hold"
            return (
                f"its {node.running} running {members} it to {column.key}={value}, which has room "
                f"for {room} of the {count_pods(needed.total())} it still needs; it would fit in "
                "another domain if it were restarted as a whole",
                {
                    "key": column.key,
                    "domain": value,
                    "running": node.running,
                    "asked": needed.total(),
                    "found": room,
                },
            )
    raise AssertionError("a pinned unit has a pinned term")


def say_devices(view: View, reclaim: str) -> Words:
    """Say which devices are held through claims.

    Args:
      view: The fleet as it is.
      reclaim: Which claims of victims were counted as released (`Request.dra_reclaim`).
    """
    table = view.problem.snapshot.devices
    asked: dict[str, int] = {}
    for pod_class, count in count_needed(view.problem, view.unit).items():
        for claim in view.spec_of(pod_class).claims:
            for choice in claim.requests:
                request = choice.alternatives[0]
                device_class = table.filters[request.filter].device_class
                # Whoever shares a claim takes its devices once.
                times = 1 if claim.claim or claim.shared_by_group else count
                wanted = max(request.count, 1) * times
                asked[device_class] = asked.get(device_class, 0) + wanted
    counts = count_by_class(table)
    listed = []
    details: dict[str, Any] = {"devices": {}}
    for device_class, devices in sorted(asked.items()):
        of_class = [found[device_class] for found in counts.values() if device_class in found]
        total, free = sum(t for t, _ in of_class), sum(f for _, f in of_class)
        listed.append(f"{devices} of class {device_class} ({free} of {total} are free)")
        details["devices"][device_class] = {"asked": devices, "free": free, "total": total}
    hint = (
        "preempt --dra-reclaim node-local shows what reclaiming would unlock"
        if reclaim == "none"
        else f"--dra-reclaim {reclaim} does not release enough of them"
    )
    return (
        f"it would fit if devices held through resource claims were free; it asks for "
        f"{' and '.join(listed) or 'devices'}; they come back only when the claims are released, "
        f"not when pods are evicted ({hint})",
        details,
    )


def say_filters(view: View, nodes: Iterable[int]) -> Words:
    """Say what keeps the unit off the nodes that it would use.

    Args:
      view: The fleet as it is.
      nodes: Where the unit would go if nothing but room counted.
    """
    snapshot = view.problem.snapshot
    needed = count_needed(view.problem, view.unit)
    kept: dict[str, list[str]] = {}
    for n in sorted(nodes):
        for pod_class in needed:
            reason = find_filter(view.spec_of(pod_class), snapshot.nodes[n])
            if reason is not None:
                kept.setdefault(reason, []).append(snapshot.nodes[n].name)
                break
    listed = [
        f"{list_some(names)} {_state_reason(reason, len(names))}"
        for reason, names in sorted(kept.items())
    ]
    return (
        "it would fit now if taints, cordons and node readiness were ignored: "
        f"{'; '.join(listed)}; uncordon or untaint nodes, or add tolerations",
        {"inTheWay": {reason: names for reason, names in sorted(kept.items())}},
    )


def _state_reason(reason: str, count: int) -> str:
    be = "is" if count == 1 else "are"
    words = {CORDONED: "cordoned", NOT_READY: "not ready"}
    taint = reason.partition("{")[2].rstrip("}").replace(": ", "=").rstrip("=")
    return f"{be} {words.get(reason) or f'tainted {taint}'}"


# Room


def has_enough_in_sum(view: View) -> bool:
    """Tell whether the nodes a unit may use are free enough in sum, resource by resource."""
    needed = count_needed(view.problem, view.unit)
    usable = find_usable(view.problem, view.unit, needed)
    asked = sum_requests(view.problem, needed)
    return find_short(asked, view.free[usable], view.problem.resources) is None


def say_room(view: View, *, enough: bool, fits_alone: bool) -> Words:
    """Say how much room there is now, and how much would be enough.

    Args:
      view: The fleet as it is, or as the plan leaves it.
      enough: What `has_enough_in_sum` says.
      fits_alone: It would fit the fleet as it is.
    """
    needed = count_needed(view.problem, view.unit)
    wanted, room = needed.total(), count_room(view.state, needed)
    details: dict[str, Any] = {"asked": wanted, "podsThatFitAnywhere": room}
    best = find_best_domain(view.state, view.unit)
    if best is not None and best.value is not None:
        details |= {"key": best.key, "bestDomain": best.value, "found": best.room}
        tail = _say_best(view, best)
    elif room < wanted:
        tail = f"{_say_largest_hole(view, needed)}room for {wanted - room} more would be enough"
    else:
        tail = f"no arrangement holds them {name_arrangement(view)}"
    if fits_alone:
        details["fitsAlone"] = True
        left = f"leave room for {room} of {count_pods(wanted)}"
        head = f"alone it would fit, but the others of this plan {left}"
    elif enough and wanted == 1:
        head = "enough is free in sum for one pod, but not on one node"
    elif enough:
        mine = count_pods(wanted)
        head = f"enough is free in sum for its {mine}, but not where they may go together"
    elif room == 0:
        waiting = view.unit.num_pods
        mine = f"any of its {count_pods(waiting)}" if waiting > 1 else "its pod"
        head = f"it fits an empty cluster, but there is no room for {mine} now"
    else:
        head = f"it fits an empty cluster, but {room} of {count_pods(wanted)} have room now"
    return f"{head}; {tail}", details


def _say_best(view: View, best: BestDomain) -> str:
    if best.room < best.wanted:
        return (
            f"the best {best.key} is {best.value}, which holds {best.room} of "
            f"{count_pods(best.wanted)} now; room for {best.wanted - best.room} more there would "
            "be enough"
        )
    parts, room = len(view.unit.root.children), _count_parts(view)
    if 0 < room < parts:
        return f"{room} of its {parts} parts have room at the same time"
    rules = name_arrangement(view)
    return f"the best {best.key} is {best.value}, but its pods do not fit there {rules}"


def _count_parts(view: View) -> int:
    """Count the children of the root that fit beside one another, hardest first."""
    root = replace(view.unit.root, min_count=0, min_groups=0)
    mark = view.state.mark()
    fills = place_unit(view.state, replace(view.unit, tree=(root, *view.unit.tree[1:])))
    view.state.undo(mark)
    leaves = {view.unit.tasks[fill.task].leaf for fill in fills or ()}
    return sum(not leaves.isdisjoint(view.unit.walk(child)) for child in root.children)


def _say_largest_hole(view: View, needed: Mapping[int, int]) -> str:
    """Return the largest free piece of what the largest pod asks for, if no node takes it."""
    hardest = max(needed, key=lambda s: (int(view.problem.class_gpus[s]), -s))
    resource = next((r for r, _ in view.spec_of(hardest).requests if is_gpu(r)), None)
    usable = np.flatnonzero(view.problem.eligible[hardest])
    if resource is None or not usable.size or view.state.fits(hardest).any():
        return ""
    free = view.free[usable, view.problem.resources.index(resource)]
    at = int(np.argmax(free))
    amount = view.spec_of(hardest).request(resource)
    if free[at] >= amount:
        return ""
    name = view.problem.snapshot.nodes[int(usable[at])].name
    return (
        f"one pod asks for {write_amount(resource, amount)}, and the most free on a node is "
        f"{format_quantity(max(int(free[at]), 0), resource)}, on {name}; "
    )
