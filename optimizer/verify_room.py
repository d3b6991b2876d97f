"""Rules for a pod that comes to a node: filters of the node, room, host ports, neighbours.

Source: NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit and
DynamicResources (allocated claims) of kube-scheduler.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from topology.selectors import find_untolerated, matches_node_affinity, matches_terms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.verify_state import Replay
    from topology.model import Node, PodSpec

__all__ = ["Obstacle", "Room", "check_nominated", "find_obstacles"]

_NOT_READY_TAINTS: Final = frozenset(
    {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
)
_NUM_FILTERS: Final = 5


class Obstacle(NamedTuple):
    """A filter of a node that a pod spec does not pass."""

    rule: str
    wanted: str
    found: str


def find_obstacles(spec: PodSpec, node: Node) -> tuple[Obstacle, ...]:
    """Return every filter of the node itself, whoever else is there, that keeps a pod away."""
    found: list[Obstacle] = []
    taint = find_untolerated(spec, node)
    if taint is not None:
        found.append(Obstacle("taint", "taints tolerated", f"{taint.key}:{taint.effect}"))
    if not node.ready and not any(t.key in _NOT_READY_TAINTS for t in node.taints):
        found.append(Obstacle("ready", "a node that is Ready", "not Ready"))
    if not matches_node_affinity(spec, node):
        found.append(Obstacle("node-affinity", "nodeSelector and affinity met", "not met"))
    for key in (t.key for t in spec.affinity):
        if key not in node.labels:
            found.append(Obstacle("affinity", f"a node with label {key}", "no such label"))
    for key in (t.key for t in spec.spread):
        if key not in node.labels:
            found.append(Obstacle("spread", f"a node with label {key}", "no such label"))
    for claim in spec.claims:
        # An allocation without a node selector can be used anywhere.
        if claim.allocated_nodes and not matches_terms(claim.allocated_nodes, node):
            found.append(
                Obstacle("claim", f"a node where claim {claim.name} is allocated", "elsewhere")
            )
    return tuple(found)


class Room:
    """Lets pods arrive at nodes and notes every rule of the node that it breaks."""

    def __init__(self, replay: Replay) -> None:
        """Work on a replay; its log takes the violations."""
        self._replay = replay
        self._obstacles: dict[tuple[int, int], tuple[Obstacle, ...]] = {}

    def settle(self, arrivals: Sequence[tuple[int, int]]) -> None:
        """Check pods that arrive in one step, and let them hold their room.

        Args:
          arrivals: (pod, node); none of the pods is on a node.
        """
        replay = self._replay
        for p, n in arrivals:
            self._check_node(p, n)
            self._check_fit(p, n)
            replay.occupy(p, n)
        for clash in replay.neighbours.admit(arrivals):
            replay.log.report(clash.rule, replay.pod_ref(clash.pod), clash.wanted, clash.found)
        replay.log.checks += 2 * len(arrivals)

    def _check_node(self, p: int, n: int) -> None:
        replay = self._replay
        key = (replay.spec[p], n)
        obstacles = self._obstacles.get(key)
        if obstacles is None:
            obstacles = find_obstacles(replay.spec_of(p), replay.snapshot.nodes[n])
            self._obstacles[key] = obstacles
        replay.log.checks += _NUM_FILTERS
        for rule, wanted, found in obstacles:
            replay.log.report(rule, replay.pod_ref(p), wanted, f"{found} on {replay.place_name(n)}")

    def _check_fit(self, p: int, n: int) -> None:
        replay, spec = self._replay, self._replay.spec_of(p)
        used, node = replay.used[n], replay.snapshot.nodes[n]
        replay.log.checks += len(spec.requests) + len(spec.host_ports)
        for resource, amount in spec.requests:
            free = node.allocatable.get(resource, 0) - used[resource]
            # A request of zero fits an overcommitted node.
            if 0 < amount > free:
                replay.log.report(
                    "capacity",
                    f"{replay.pod_ref(p)} on {node.name}",
                    f"{amount} {resource} free",
                    f"{free} free",
                )
        clash = replay.find_port_clash(p, n)
        if clash is not None:
            port, other = clash
            replay.log.report(
                "host-port",
                f"{replay.pod_ref(p)} on {node.name}",
                f"{port.protocol} port {port.port} of {port.ip} free",
                f"held by {replay.pod_ref(other)}",
            )


def check_nominated(replay: Replay) -> None:
    """Check that pods still waiting for a node they are nominated to keep their room there.

    A newcomer must leave room for every nominated pod of its own or a higher priority that the
    plan does not place; priorities are the pods' own.
    """
    waiting: defaultdict[int, list[int]] = defaultdict(list)
    for p, n in enumerate(replay.nominated):
        if n >= 0 and replay.is_pending[p] and p not in replay.placed:
            waiting[n].append(p)
    if not waiting:
        return
    for p in sorted(replay.moved | replay.placed.keys()):
        n = replay.node[p]
        kept: defaultdict[str, int] = defaultdict(int)
        for q in waiting.get(n, ()):
            if replay.own_priority[q] >= replay.own_priority[p]:
                for resource, amount in replay.spec_of(q).requests:
                    kept[resource] += amount
        for resource, _ in replay.spec_of(p).requests:
            if not kept[resource]:
                continue
            node = replay.snapshot.nodes[n]
            free = node.allocatable.get(resource, 0) - replay.used[n][resource]
            replay.log.require(
                free >= kept[resource],
                "nominated",
                f"{replay.pod_ref(p)} on {node.name}",
                f"{kept[resource]} {resource} left to the pods nominated there",
                f"{free} left",
            )
