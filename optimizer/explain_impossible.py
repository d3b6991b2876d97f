"""Why a unit could never be placed: what an emptied fleet without taints and cordons lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from optimizer.devices.columns import is_device_resource
from optimizer.explain_view import count_pods, name_arrangement, name_part, write_amount
from optimizer.node_reasons import NO_MATCH, find_filter
from optimizer.shortfall import (
    count_needed,
    count_room,
    find_best_domain,
    find_short,
    find_usable,
    sum_requests,
)
from topology.model import PODS, is_gpu
from topology.quantities import format_quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optimizer.explain_view import View, Words

__all__ = ["say_impossible"]


def say_impossible(view: View) -> Words:
    """Say what an emptied fleet without taints and cordons lacks."""
    if not view.problem.snapshot.nodes:
        return "the snapshot holds no node; add nodes to it", {"nodes": {}}
    needed = count_needed(view.problem, view.unit)
    for task in view.unit.tasks:
        if needed[task.pod_class] and not view.state.fits(task.pod_class).any():
            return _say_impossible_pod(view, task.pod_class)
    best = find_best_domain(view.state, view.unit)
    if best is None:
        return _say_impossible_sum(view)
    if best.value is None:
        return (
            f"no node that can hold its pods carries the label {best.key}, which it requires; "
            "label the nodes",
            {"key": best.key, "domains": 0},
        )
    details = {"key": best.key, "bestDomain": best.value, "asked": best.wanted, "found": best.room}
    subject = name_part(view.problem.snapshot, view.unit, best.at)
    wants = f"{subject} needs {count_pods(best.wanted)} in one {best.key}"
    if best.room < best.wanted:
        return (
            f"{wants}; the best domain, {best.value}, holds {best.room} even when it is empty; a "
            f"domain that holds {best.wanted}, or fewer or smaller pods, would be enough",
            details,
        )
    usable = find_usable(view.problem, view.unit, best.needed) & (best.codes == best.code)
    short = find_short(
        sum_requests(view.problem, best.needed), view.free[usable], view.problem.resources
    )
    if short is not None:
        resource, asked, found = short
        return (
            f"{wants}, which ask for {write_amount(resource, asked)} together; the best domain, "
            f"{best.value}, has {format_quantity(found, resource)} even when it is empty; a larger "
            "domain, or fewer or smaller pods, would be enough",
            details | _amounts(resource, asked, found),
        )
    return (
        f"{wants}; even when it is empty no domain holds them {name_arrangement(view)}; the best "
        f"is {best.value}; a larger domain, or fewer or smaller pods, would be enough",
        details,
    )


def _amounts(resource: str, asked: int, found: int) -> dict[str, Any]:
    return {
        "resource": resource,
        "askedAmount": format_quantity(asked, resource),
        "foundAmount": format_quantity(found, resource),
    }


def _say_impossible_sum(view: View) -> Words:
    needed = count_needed(view.problem, view.unit)
    room = count_room(view.state, needed)
    details = {"asked": needed.total(), "found": room}
    if room < needed.total():
        return (
            f"it needs {count_pods(needed.total())}; the nodes it may use hold {room} even when "
            "they are empty; more nodes or a smaller minimum would be enough",
            details,
        )
    return (
        f"it needs {count_pods(needed.total())}; even when they are empty, the nodes it may use do "
        f"not hold them {name_arrangement(view)}; more nodes or a smaller minimum would be enough",
        details,
    )


def _say_impossible_pod(view: View, pod_class: int) -> Words:
    problem = view.problem
    spec = view.spec_of(pod_class)
    pods = next(t.pods for t in view.unit.tasks if t.pod_class == pod_class)
    is_alike = len(view.unit.tasks) == 1
    ref = problem.snapshot.pods.refs[pods[0]]
    each, whose = ("each pod", "its pods") if is_alike else (ref, ref)
    eligible = np.flatnonzero(problem.eligible[pod_class])
    if not eligible.size:
        blind = all(
            find_filter(spec, node, labels_only=True) == NO_MATCH for node in problem.snapshot.nodes
        )
        if blind:
            return (
                f"no node matches the node selector and affinity of {whose}; change them or label "
                "nodes",
                {},
            )
        return (
            f"no node has the labels, allocated devices and neighbours that {whose} require"
            if is_alike
            else f"no node has the labels, allocated devices and neighbours that {whose} requires",
            {},
        )
    most = view.free[eligible].max(axis=0).tolist()
    asked = [(r, a, most[problem.resources.index(r)]) for r, a in spec.requests]
    short = [entry for entry in asked if entry[1] > entry[2]]
    if not short and _lacks_devices(view, pod_class, eligible):
        return (
            f"no node that {whose} may use has the devices that "
            f"{'their' if is_alike else 'its'} resource claims ask for, even when all are free; "
            "change the claims or add such devices",
            {},
        )
    if not short:
        listed = " and ".join(write_amount(r, a) for r, a, _ in asked if r != PODS)
        return (
            f"{each} asks for {listed}; no node offers all of it at once, even when it is empty",
            {"asked": {r: format_quantity(a, r) for r, a, _ in asked}},
        )
    resource, amount, offered = max(short, key=lambda s: is_gpu(s[0]))
    details = {
        "resource": resource,
        "asked": format_quantity(amount, resource),
        "found": format_quantity(max(offered, 0), resource),
    }
    held = max(problem.snapshot.nodes[n].allocatable.get(resource, 0) for n in eligible.tolist())
    if held >= amount:
        return (
            f"{each} asks for {write_amount(resource, amount)}; DaemonSet and static pods leave at "
            f"most {format_quantity(max(offered, 0), resource)} on any node it may use",
            details,
        )
    if resource == PODS and offered <= 0:
        return "no node it may use offers room for a single pod", details
    if offered <= 0:
        return (
            f"{each} asks for {write_amount(resource, amount)}, which no node it may use offers",
            details,
        )
    text, limit = format_quantity(amount, resource), format_quantity(offered, resource)
    return (
        f"{each} asks for {resource} {text}; the largest node it may use offers {limit}; nodes "
        f"with {text}, or pods that ask for at most {limit}, would be enough",
        details,
    )


def _lacks_devices(view: View, pod_class: int, eligible: NDArray[np.int64]) -> bool:
    """Tell whether the claims of a pod are what no node can meet."""
    problem = view.problem
    columns = [r for r, name in enumerate(problem.resources) if is_device_resource(name)]
    asked = problem.amounts[pod_class, columns]
    return bool((view.free[eligible][:, columns] < asked).any(axis=1).all())
