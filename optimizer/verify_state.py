"""Where every pod is while a plan is replayed, and the list of broken rules.

Part of the verifier: plain Python, exact integers, nothing shared with kernels or searches.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optimizer.verify_neighbours import Neighbours
from topology.model import NO_GROUP, NO_NODE
from topology.plan import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model import Group, HostPort, PodSpec, Snapshot

__all__ = ["Log", "Replay"]


@dataclass(slots=True)
class Log:
    """What was checked and what failed."""

    checks: int = 0
    violations: list[Violation] = field(default_factory=list)

    def require(self, holds: bool, rule: str, name: str, wanted: str, found: str) -> bool:
        """Count one check, note a violation unless it holds, and return whether it holds."""
        self.checks += 1
        if not holds:
            self.violations.append(Violation(rule, name, wanted, found))
        return holds

    def report(self, rule: str, name: str, wanted: str, found: str) -> None:
        """Note a violation of a check that was counted already."""
        self.violations.append(Violation(rule, name, wanted, found))


class Replay:
    """The snapshot as lists, changed step by step by the evictions, moves and placements.

    Axes: P pods, N nodes, G groups. `node[p]` is where pod p is now; `holds[p]` and `is_member[p]`
    say whether it holds room there and counts as a running member of its group.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Read a snapshot; nothing of it is changed."""
        pods = snapshot.pods
        self.snapshot = snapshot
        self.log = Log()
        self.node_index = {node.name: n for n, node in enumerate(snapshot.nodes)}
        self.pod_index = {ref: p for p, ref in enumerate(pods.refs)}
        self.group_index = {group.ref: g for g, group in enumerate(snapshot.groups)}

        self.spec: list[int] = pods.spec.tolist()
        self.labels: list[int] = pods.labels.tolist()
        self.group: list[int] = pods.group.tolist()
        self.phase: list[int] = pods.phase.tolist()
        self.flags: list[int] = pods.flags.tolist()
        self.own_priority: list[int] = pods.priority.tolist()
        self.nominated: list[int] = pods.nominated.tolist()
        self.node: list[int] = pods.node.tolist()
        self.holds: list[bool] = pods.holds_room.tolist()
        self.is_member: list[bool] = pods.is_running_member.tolist()
        self.is_pending: list[bool] = pods.is_pending.tolist()

        self.evicted: set[int] = set()
        self.drained: set[int] = set()
        """Evicted pods that wait for a node again."""
        self.moved: set[int] = set()
        self.placed: dict[int, int] = {}
        """New pod -> node, in the order of the plan."""

        self._pods_of: defaultdict[int, list[int]] | None = None
        self.children: list[list[int]] = [[] for _ in snapshot.groups]
        for g, group in enumerate(snapshot.groups):
            if group.parent != NO_GROUP:
                self.children[group.parent].append(g)
        self.used, self._ports = self._count_usage()
        self.neighbours = Neighbours(
            snapshot,
            [p for p, holds in enumerate(self.holds) if holds and self.node[p] >= 0],
        )

    def _count_usage(
        self,
    ) -> tuple[list[defaultdict[str, int]], defaultdict[int, list[tuple[HostPort, int]]]]:
        used: list[defaultdict[str, int]] = [defaultdict(int) for _ in self.snapshot.nodes]
        specs = self.snapshot.pods.specs
        pairs = Counter(
            (n, x)
            for n, x, holds in zip(self.node, self.spec, self.holds, strict=True)
            if holds and n >= 0
        )
        for (n, x), count in pairs.items():
            for resource, amount in specs[x].requests:
                used[n][resource] += amount * count
        ports: defaultdict[int, list[tuple[HostPort, int]]] = defaultdict(list)
        with_ports = {x for x, spec in enumerate(specs) if spec.host_ports}
        if with_ports:
            for p, x in enumerate(self.spec):
                if x in with_ports and self.holds[p] and self.node[p] >= 0:
                    ports[self.node[p]] += [(port, p) for port in specs[x].host_ports]
        return used, ports

    def spec_of(self, p: int) -> PodSpec:
        """Return the spec of pod p."""
        return self.snapshot.pods.specs[self.spec[p]]

    def pod_ref(self, p: int) -> str:
        """Return the "namespace/name" of pod p."""
        return self.snapshot.pods.refs[p]

    def place_name(self, n: int) -> str:
        """Return the name of node n, or what stands for it where there is none."""
        if n >= 0:
            return self.snapshot.nodes[n].name
        return "no node" if n == NO_NODE else "a node that is not in the snapshot"

    def climb(self, g: int) -> Iterator[int]:
        """Yield a group and its ancestors, the root last."""
        while g != NO_GROUP:
            yield g
            g = self.snapshot.groups[g].parent

    def subtree(self, g: int) -> Iterator[int]:
        """Yield a group and all groups below it."""
        stack = [g]
        while stack:
            top = stack.pop()
            yield top
            stack += self.children[top]

    def owner(self, p: int) -> int:
        """Return the group that lists pod p in a plan: its nearest ancestor that is no subgroup."""
        groups = self.snapshot.groups
        g = self.group[p]
        while g != NO_GROUP and groups[g].kind == "subgroup" and groups[g].parent != NO_GROUP:
            g = groups[g].parent
        return g

    def owner_ref(self, p: int) -> str | None:
        """Return the reference of the pod's owner, None for a plain pod."""
        g = self.owner(p)
        return None if g == NO_GROUP else self.snapshot.groups[g].ref

    def priority(self, p: int) -> int:
        """Return the priority preemption sees: the root group's, else the pod's own."""
        g = self.group[p]
        return self.own_priority[p] if g == NO_GROUP else self.snapshot.groups[g].priority

    def find_disruption_unit(self, p: int) -> int:
        """Return the highest `all` ancestor of a pod's group, NO_GROUP if it goes alone."""
        unit = NO_GROUP
        for g in self.climb(self.group[p]):
            if self.snapshot.groups[g].disruption == "all":
                unit = g
        return unit

    def pods_below(self, g: int) -> list[int]:
        """Return the pods of a group's subtree, whatever became of them, in order."""
        if self._pods_of is None:
            self._pods_of = defaultdict(list)
            for p, leaf in enumerate(self.group):
                if leaf != NO_GROUP:
                    self._pods_of[leaf].append(p)
        pods_of = self._pods_of
        return sorted(p for leaf in self.subtree(g) for p in pods_of.get(leaf, ()))

    def members_below(self, g: int) -> list[int]:
        """Return the running members of a group's subtree as they are now, new pods included."""
        return [p for p in self.pods_below(g) if self.is_member[p]]

    def groups_above(self, p: int) -> Iterator[Group]:
        """Yield the groups a pod is in, its leaf first."""
        return (self.snapshot.groups[g] for g in self.climb(self.group[p]))

    def find_port_clash(self, p: int, n: int) -> tuple[HostPort, int] | None:
        """Return a port wanted by pod p that a pod of node n holds, and that pod."""
        wanted = self.spec_of(p).host_ports
        if not wanted:
            return None
        for mine in wanted:
            for theirs, q in self._ports[n]:
                if (mine.port, mine.protocol) == (theirs.port, theirs.protocol) and (
                    mine.ip == theirs.ip or {mine.ip, theirs.ip} & {"0.0.0.0", ""}
                ):
                    return mine, q
        return None

    def leave(self, p: int) -> None:
        """Take pod p off its node."""
        n = self.node[p]
        if n >= 0:
            spec = self.spec_of(p)
            for resource, amount in spec.requests:
                self.used[n][resource] -= amount
            if spec.host_ports:
                self._ports[n] = [(port, q) for port, q in self._ports[n] if q != p]
            self.neighbours.remove(p, n)
        self.node[p] = NO_NODE
        self.holds[p] = self.is_member[p] = False

    def occupy(self, p: int, n: int) -> None:
        """Let pod p hold its room on node n (its neighbours are told by `Neighbours.admit`)."""
        spec = self.spec_of(p)
        used = self.used[n]
        for resource, amount in spec.requests:
            used[resource] += amount
        if spec.host_ports:
            self._ports[n] += [(port, p) for port in spec.host_ports]
        self.node[p] = n
        self.holds[p] = self.is_member[p] = True
