"""Growing a pod where it runs: who would have to go so that it fits its own node.

The scheduler looks at node name and resources alone: affinity, anti-affinity, spread and taints are
skipped, victims are found as for any preemptor, whole groups on all their nodes included. So a
resize is the preemption of one pod that waits for one node, in a fleet whose pods are amounts and
nothing else, and the same exact search decides it.

Source: in-place resize preemption of Kubernetes 1.37 (alpha gate
InPlacePodVerticalScalingSchedulerPreemption), `Node.spec.podPreemptionPolicy`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from optimizer.answer import describe_evictions
from optimizer.interactions import NO_SPREAD
from optimizer.node_reasons import find_filter
from optimizer.problem import build_problem
from optimizer.search.preempt import search_preemption
from optimizer.victims import find_victims, remove_pods
from topology.errors import RequestError
from topology.model import NO_GROUP, NO_NODE, Phase, PodFlag, PodSpec, Requirement, SelectorTerm
from topology.plan import Bound, Cause, ResizePlan
from topology.quantities import format_quantity
from topology.usage import count_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topology.model import Snapshot
    from topology.plan import CauseName, Eviction, Request, ResizeRequest

__all__ = ["RESIZABLE", "ResizeAnswer", "check_resize", "plan_resize"]

RESIZABLE: Final = ("cpu", "memory")
"""What a container may ask more of without a restart."""
RESIZES_SINCE: Final = "1.37"


@dataclass(frozen=True, slots=True)
class ResizeAnswer:
    """What would become of the resize, in names."""

    plan: ResizePlan
    after: Snapshot
    """The fleet without the victims."""
    evictions: tuple[Eviction, ...]
    cost: Mapping[str, int]
    bound: Bound
    warnings: tuple[str, ...]


def check_resize(snapshot: Snapshot, resize: ResizeRequest, release: str) -> int:
    """Return the index of the pod that is asked about.

    Raises:
      RequestError: There is no such pod, it may not be resized in place, nothing or something else
        than cpu and memory is asked for, or the release has no resize preemption.
    """
    where, pods = f"--resize {resize.pod}", snapshot.pods
    if release < RESIZES_SINCE:
        raise RequestError(
            f"{where}: --release {release}: the scheduler evicts for a resize in place since "
            f"{RESIZES_SINCE} only; leave out --release or ask for {RESIZES_SINCE}"
        )
    for resource, _ in resize.requests:
        if resource not in RESIZABLE:
            raise RequestError(
                f"{where}: --requests: {resource} cannot be resized in place; only "
                f"{' and '.join(RESIZABLE)} can: recreate the pod for the rest"
            )
    if resize.pod not in pods.refs:
        raise RequestError(
            f"{where}: no such pod was read; `gangplan inspect SNAPSHOT -o name` lists them"
        )
    p = pods.refs.index(resize.pod)
    flags = PodFlag(int(pods.flags[p]))
    state = None
    if not pods.is_live[p]:
        state = "is finished"
    elif flags & PodFlag.TERMINATING:
        state = "is terminating"
    elif pods.node[p] == NO_NODE:
        state = "waits for a node"
    elif pods.node[p] < 0:
        state = "is on a node that was not read"
    elif flags & PodFlag.STATIC:
        state = "is a static pod, which the kubelet does not resize"
    if state is not None:
        raise RequestError(f"{where}: {state}; name a pod that runs on a node of the snapshot")
    if not resize.requests and not flags & PodFlag.RESIZE_DEFERRED:
        raise RequestError(
            f"{where}: to what? say it by --requests cpu=8,memory=64Gi (only a pod whose resize is "
            "Deferred may be asked about without)"
        )
    return p


def plan_resize(
    snapshot: Snapshot, request: Request, progress: Callable[[str], None]
) -> ResizeAnswer:
    """Find the cheapest victims that let a pod grow on its own node.

    Args:
      snapshot: The fleet.
      request: Its `resize` names the pod and what it is to ask for in all; objective, budgets and
        effort are those of any preemption.
      progress: Called with a line now and then.

    Raises:
      RequestError: As `check_resize` says.
    """
    assert request.resize is not None
    p = check_resize(snapshot, request.resize, request.release)
    before = dict(snapshot.pods.specs[snapshot.pods.spec[p]].requests)
    asked = dict(request.resize.requests) or {r: before[r] for r in RESIZABLE if r in before}
    shown = tuple((r, before.get(r, 0)) for r in sorted(asked))
    node = snapshot.nodes[snapshot.pods.node[p]]
    found = ResizePlan(
        request.resize.pod, node.name, "resized", shown, tuple(sorted(asked.items()))
    )
    grows = any(amount > before.get(r, 0) for r, amount in asked.items())
    nobody = ResizeAnswer(found, snapshot, (), {}, Bound("victimPods", 0, 0.0, "optimal"), ())
    if not grows and not snapshot.pods.flags[p] & PodFlag.RESIZE_DEFERRED:
        return nobody
    scenario = _wait_for_own_node(snapshot, p, {**before, **asked}, is_bare=True)
    # A pod that may evict nobody is still told whether it fits as things are.
    may_evict = _say_never(snapshot, p)
    inner = replace(request, groups=(request.resize.pod,), resize=None, preempt=may_evict is None)
    result = search_preemption(scenario, inner, build_problem(scenario, inner), progress)
    if may_evict is not None and result.evictions:
        result = replace(result, placed={}, evictions=(), after=scenario)
    if p not in result.placed:
        cause = _explain(snapshot, request, p, {**before, **asked}, may_evict)
        return replace(
            nobody,
            plan=replace(found, outcome="notResized", cause=cause),
            bound=Bound("victimPods", None, None, "none"),
        )
    gone = [q for q, _ in result.evictions]
    evictions = describe_evictions(snapshot, result.evictions)
    warnings = _warn_of_skipped_rules(remove_pods(snapshot, gone), request, p)
    bound = result.bound if gone else nobody.bound
    return ResizeAnswer(
        found,
        remove_pods(snapshot, gone),
        evictions,
        result.cost.to_criteria(),
        bound,
        tuple(warnings),
    )


def _wait_for_own_node(
    snapshot: Snapshot, p: int, requests: Mapping[str, int], *, is_bare: bool
) -> Snapshot:
    """Return the fleet in which a running pod waits for its node, alone and with other requests.

    `is_bare`: all pods are amounts only, and the node takes everybody.
    """
    pods = snapshot.pods
    n = int(pods.node[p])
    own = pods.specs[pods.spec[p]]
    group = int(pods.group[p])
    here = SelectorTerm(fields=(Requirement("metadata.name", "In", (snapshot.nodes[n].name,)),))
    amounts = tuple(sorted((r, a) for r, a in requests.items() if a))
    specs = pods.specs
    nodes = snapshot.nodes
    if is_bare:
        specs = tuple(PodSpec(s.requests) for s in specs)
        bare = replace(nodes[n], taints=(), unschedulable=False, ready=True)
        nodes = (*nodes[:n], bare, *nodes[n + 1 :])
        moved = PodSpec(amounts, node_terms=(here,))
    else:
        moved = replace(own, requests=amounts, node_terms=(here,), node_selector=(), claims=())
    priority = pods.priority.copy()
    if group != NO_GROUP:
        priority[p] = snapshot.groups[group].priority
    spec, stands, of_group = pods.spec.copy(), pods.node.copy(), pods.group.copy()
    phase, flags = pods.phase.copy(), pods.flags.copy()
    spec[p], stands[p], of_group[p] = len(specs), NO_NODE, NO_GROUP
    phase[p], flags[p] = Phase.PENDING, 0
    table = replace(
        pods,
        specs=(*specs, moved),
        priority=priority,
        nominated=np.full_like(pods.nominated, NO_NODE),
        spec=spec,
        node=stands,
        group=of_group,
        phase=phase,
        flags=flags,
    )
    return replace(snapshot, nodes=nodes, pods=table)


def _say_never(snapshot: Snapshot, p: int) -> str | None:
    """Return why a pod may evict nobody on its node, None where it may."""
    pods = snapshot.pods
    node = snapshot.nodes[pods.node[p]]
    if not node.allows_resize_preemption:
        return (
            f"node {node.name} forbids it (spec.podPreemptionPolicy.disableResizePreemption); "
            "lift that, or make room by hand"
        )
    never = pods.specs[pods.spec[p]].never_preempts
    g = int(pods.group[p])
    while g != NO_GROUP:
        never = never or snapshot.groups[g].never_preempts
        g = snapshot.groups[g].parent
    return "its preemption policy is Never" if never else None


def _explain(
    snapshot: Snapshot,
    request: Request,
    p: int,
    requests: Mapping[str, int],
    may_evict: str | None,
) -> Cause:
    pods = snapshot.pods
    n = int(pods.node[p])
    node = snapshot.nodes[n]
    usage = count_usage(snapshot)
    own = dict(pods.specs[pods.spec[p]].requests)
    group = int(pods.group[p])
    priority = int(pods.priority[p]) if group == NO_GROUP else snapshot.groups[group].priority
    lower = {q for v in find_victims(snapshot, priority) for q in v.pods if int(pods.node[q]) == n}
    short, beyond, out_of_reach = [], [], []
    details: dict[str, object] = {}
    for resource, amount in sorted(requests.items()):
        allocatable = node.allocatable.get(resource, 0)
        column = usage.resources.index(resource) if resource in usage.resources else None
        used = 0 if column is None else int(usage.used[n, column])
        free = allocatable - used + own.get(resource, 0)
        if amount == 0 or amount <= free:
            continue
        freed = sum(pods.specs[pods.spec[q]].request(resource) for q in lower)
        words = [format_quantity(max(a, 0), resource) for a in (amount, free, allocatable)]
        details[resource] = dict(zip(("wanted", "free", "allocatable"), words, strict=True))
        short.append(f"{words[0]} {resource} wanted, {words[1]} left to it")
        if amount > allocatable:
            beyond.append(f"{words[0]} {resource} is more than its {words[2]}")
        if amount > free + freed:
            out_of_reach.append(resource)
    if beyond:
        return Cause(
            "impossible",
            f"node {node.name} is too small: {', '.join(beyond)}; recreate the pod elsewhere",
            details,
        )
    message = f"node {node.name} has no room: {', '.join(short)}"
    if may_evict is not None:
        name: CauseName = "busy" if out_of_reach else "policy-never"
        return Cause(name, f"{message}; nobody is evicted for it: {may_evict}", details)
    within = "" if request.pdb == "soft" or out_of_reach else " within the disruption budgets"
    return Cause(
        "busy",
        f"{message}; evicting work below priority {priority} would not make enough{within}",
        details,
    )


def _warn_of_skipped_rules(after: Snapshot, request: Request, p: int) -> list[str]:
    """Name the rules that a fresh pod would have to keep on this node and a resize does not."""
    pods = after.pods
    n = int(pods.node[p])
    ref, node = pods.refs[p], after.nodes[n]
    alone = _wait_for_own_node(after, p, dict(pods.specs[pods.spec[p]].requests), is_bare=False)
    problem = build_problem(alone, replace(request, groups=(ref,), resize=None))
    signature = problem.signatures[problem.pod_classes[p]]
    found = [words for words, mask in problem.interactions.refusals(signature) if mask[n]]
    if problem.interactions.skewed(signature)[n]:
        found.append(NO_SPREAD)
    own = find_filter(pods.specs[pods.spec[p]], node)
    return [
        f"{ref} on {node.name}: {words}; a resize in place does not look at that"
        for words in [*([own] if own else []), *dict.fromkeys(found)]
    ]
