"""A migration plan as a script or as manifests, for people to review; nothing is carried out.

Pods come back through their controllers and the scheduler, which know nothing of the plan: so the
scripts cordon what is to be left, say where each pod is expected, and stop after every wave.
`patches` and `kueue` say it in terms of objects: a node selector for the template, a topology
assignment for the Workload.

Source: the eviction subresource (policy/v1), LeaderWorkerSet restart policy
RecreateGroupOnPodRestart (a leader that goes takes its group along), Kueue v1beta2
`status.admission.podSetAssignments[].topologyAssignment`.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import quote

from topology.model import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topology.model import Snapshot
    from topology.plan import Move, Plan

__all__ = ["EMIT_FORMS", "EmitForm", "emit_plan"]

EmitForm = Literal["kubectl", "kueue", "lws", "patches"]
EMIT_FORMS = get_args(EmitForm)

_HEAD = """\
#!/usr/bin/env bash
# Migration plan by gangplan. Nothing of it has been carried out: read it, then run it yourself.
# Where a pod comes back is up to its controller and the scheduler; what the plan expects stands
# beside each pod. After a wave, compare, and plan the rest anew with `gangplan repack --resume`.
set -euo pipefail
"""


def emit_plan(snapshot: Snapshot, plan: Plan, form: EmitForm) -> str:
    """Return a plan as text.

    Args:
      snapshot: The fleet that the plan is for.
      plan: With moves, drain evictions, or both.
      form: kubectl: a script of cordons and evictions; lws: the same, by leaders; patches: a node
        selector for each pod's template; kueue: a topology assignment for each Workload.
    """
    match form:
        case "kubectl":
            return "\n".join(_write_script(snapshot, plan, by_leader=False)) + "\n"
        case "lws":
            return "\n".join(_write_script(snapshot, plan, by_leader=True)) + "\n"
        case "patches":
            return _to_yaml(_find_patches(snapshot, plan))
        case _:
            return _to_yaml(_find_assignments(snapshot, plan))


def _to_yaml(documents: Iterable[dict[str, Any]]) -> str:
    from data.encode import to_yaml

    return "".join(f"---\n{to_yaml(document).decode()}" for document in documents)


def _comment(text: str) -> str:
    """Return a line of comment; what could end it is escaped."""
    return "# " + json.dumps(text, ensure_ascii=True)[1:-1]


def _write_script(snapshot: Snapshot, plan: Plan, *, by_leader: bool) -> Iterator[str]:
    yield _HEAD.rstrip("\n")
    cordoned = {node.name for node in snapshot.nodes if node.unschedulable}
    drained = plan.request.move.drain if plan.request.move is not None else ()
    if drained:
        yield ""
        yield "# Nodes to drain: they stay cordoned."
        for name in drained:
            yield f"kubectl cordon -- {shlex.quote(name)}"
        cordoned |= set(drained)
    for eviction in plan.evictions:
        yield _comment(f"{eviction.pod} is evicted from {eviction.node} for the drain")
        yield from _evict([eviction.pod])
    leaders = _find_leaders(snapshot, plan) if by_leader else {}
    for wave, moves in itertools.groupby(plan.moves, key=lambda move: move.wave):
        yield ""
        yield from _write_wave(wave, list(moves), cordoned, leaders)
    placed = [pod for group in plan.groups for pod in group.pods]
    if placed:
        yield ""
        yield "# There is room now for what waits:"
        for pod in placed:
            yield _comment(f"{pod.pod} is expected on {pod.node}")


def _write_wave(
    wave: int, moves: Sequence[Move], cordoned: set[str], leaders: dict[str, str]
) -> Iterator[str]:
    yield f"# Wave {wave}"
    targets = {move.target for move in moves}
    sources = sorted({move.source for move in moves} - cordoned - targets)
    for name in sources:
        yield f"kubectl cordon -- {shlex.quote(name)}"
    for move in moves:
        yield _comment(f"{move.pod}: {move.source} -> {move.target} ({move.mode})")
    pods = [move.pod for move in moves]
    led = {leaders[pod] for pod in pods if pod in leaders}
    rest = [pod for pod in pods if pod not in leaders]
    yield from _evict(sorted(led))
    yield from _evict(rest)
    yield f"read -r -p 'Wave {wave}: press Enter once these pods run where expected '"
    for name in sources:
        yield f"kubectl uncordon -- {shlex.quote(name)}"


def _evict(refs: Sequence[str]) -> Iterator[str]:
    """Evict pods through the API, so that disruption budgets are asked, then wait for them."""
    for ref in refs:
        namespace, _, name = ref.partition("/")
        path = (
            f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}/eviction"
        )
        body = json.dumps(
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": name, "namespace": namespace},
            }
        )
        yield f"printf %s {shlex.quote(body)} | kubectl create --raw {shlex.quote(path)} -f -"
    for ref in refs:
        namespace, _, name = ref.partition("/")
        pod = shlex.quote(f"pod/{name}")
        yield (
            f"kubectl wait --for=delete {pod} --namespace={shlex.quote(namespace)} --timeout=15m"
        )


def _find_leaders(snapshot: Snapshot, plan: Plan) -> dict[str, str]:
    """Return pod -> its leader, for moved pods of LeaderWorkerSet replicas."""
    pods = snapshot.pods
    groups = {group.ref: g for g, group in enumerate(snapshot.groups)}
    found: dict[str, str] = {}
    for ref in sorted({move.group for move in plan.moves if move.group is not None}):
        if "LeaderWorkerSet" not in snapshot.groups[groups[ref]].api:
            continue
        inside = _find_below(snapshot, groups[ref])
        members = [p for p, g in enumerate(pods.group.tolist()) if g in inside]
        leading = [p for p in members if pods.templates[pods.template[p]] == "leader"]
        if leading:
            found |= {pods.refs[p]: pods.refs[leading[0]] for p in members}
    return found


def _find_below(snapshot: Snapshot, top: int) -> set[int]:
    inside = {top}
    for g, group in enumerate(snapshot.groups):
        above = group.parent
        while above >= 0 and above not in inside:
            above = snapshot.groups[above].parent
        if above in inside:
            inside.add(g)
    return inside


def _final_nodes(plan: Plan) -> dict[str, tuple[str, str | None]]:
    """Return pod -> (node in the end, group), of what is moved or placed."""
    final: dict[str, tuple[str, str | None]] = {m.pod: (m.target, m.group) for m in plan.moves}
    final |= {pod.pod: (pod.node, entry.group) for entry in plan.groups for pod in entry.pods}
    return final


def _find_patches(snapshot: Snapshot, plan: Plan) -> list[dict[str, Any]]:
    hostname = {node.name: node.labels.get(HOSTNAME, node.name) for node in snapshot.nodes}
    patches = []
    for ref, (node, _) in sorted(_final_nodes(plan).items()):
        namespace, _, name = ref.partition("/")
        patches.append(
            {
                "target": {"kind": "Pod", "namespace": namespace, "name": name},
                "patch": {"spec": {"nodeSelector": {HOSTNAME: hostname[node]}}},
            }
        )
    return patches


def _find_assignments(snapshot: Snapshot, plan: Plan) -> list[dict[str, Any]]:
    hostname = {node.name: node.labels.get(HOSTNAME, node.name) for node in snapshot.nodes}
    pods = snapshot.pods
    index = {ref: p for p, ref in enumerate(pods.refs)}
    apis = {group.ref: group.api for group in snapshot.groups}
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for ref, (node, group) in _final_nodes(plan).items():
        if group is not None and apis.get(group, "").startswith("kueue.x-k8s.io/"):
            template = pods.templates[pods.template[index[ref]]] or "main"
            counts[group][template][hostname[node]] += 1
    documents = []
    for group, pod_sets in sorted(counts.items()):
        namespace, _, name = group.partition("/")
        assignments = [
            {
                "name": pod_set,
                "topologyAssignment": {
                    "levels": [HOSTNAME],
                    "slices": [
                        {
                            "domainCount": len(nodes),
                            "valuesPerLevel": [{"individual": {"roots": sorted(nodes)}}],
                            "podCounts": {"individual": [nodes[n] for n in sorted(nodes)]},
                        }
                    ],
                },
            }
            for pod_set, nodes in sorted(pod_sets.items())
        ]
        documents.append(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "Workload",
                "metadata": {"name": name, "namespace": namespace},
                "status": {"admission": {"podSetAssignments": assignments}},
            }
        )
    return documents
