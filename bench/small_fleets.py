"""Random small fleets with every rule the exact model knows, one for each seed.

Six to forty nodes in two or three levels, four to fourteen pending groups that ask for more
than is free, so that choosing matters. What a seed draws never depends on the other seeds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import (
    HOSTNAME,
    PODS,
    AffinityTerm,
    Exclusive,
    Group,
    HostPort,
    LabelSelector,
    Node,
    Phase,
    PodSpec,
    Requirement,
    SliceTerm,
    SpreadTerm,
    Taint,
    Toleration,
    TopologyTerm,
)

if TYPE_CHECKING:
    from topology.model import Snapshot

__all__ = ["OBJECTIVES", "draw_objective", "make_small_fleet"]

GPU: Final = "nvidia.com/gpu"
BLOCK: Final = "topo.example.com/block"
RACK: Final = "topo.example.com/rack"
LEVELS: Final = (BLOCK, RACK)
API: Final = "scheduling.k8s.io/v1beta1/PodGroup"

OBJECTIVES: Final = (
    ("max:priority", "max:gpusPlaced", "min:fragmentation"),
    ("max:groupsPlaced",),
    ("max:weightedGpus", "max:groupsPlaced"),
    ("max:gpusPlaced", "max:podsPlaced"),
    ("max:groupsPlaced", "min:gpusPlaced"),
)


def draw_objective(seed: int) -> tuple[str, ...]:
    """Return the objective of a seed: the default one for half of them."""
    return OBJECTIVES[0] if seed % 2 == 0 else OBJECTIVES[1 + seed // 2 % (len(OBJECTIVES) - 1)]


def make_small_fleet(seed: int) -> Snapshot:
    """Draw one fleet."""
    draw = _Draw(random.Random(f"small fleet {seed}"))
    draw.add_nodes()
    draw.add_fill()
    for i in range(draw.rng.randint(4, 14)):
        draw.add_pending(f"g{i:02}")
        if draw.asked > 1.6 * draw.free:
            break
    return assemble_snapshot(draw.nodes, draw.pods, draw.groups)


@dataclass
class _Draw:
    rng: random.Random
    nodes: list[Node] = field(default_factory=list)
    pods: list[PodRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    room: dict[str, dict[str, int]] = field(default_factory=dict)
    free: int = 0
    asked: int = 0
    equal_priorities: bool = False

    def add_nodes(self) -> None:
        rng = self.rng
        self.equal_priorities = rng.random() < 0.5
        num_nodes, per_rack = rng.randint(6, 40), rng.choice([2, 3, 4, 6, 8])
        racks_per_block = rng.choice([2, 3])
        gpus = rng.choice([4, 8, 8, 8])
        for i in range(num_nodes):
            name, rack = f"n{i:02}", i // per_rack
            labels = {
                HOSTNAME: name,
                RACK: f"r{rack}",
                BLOCK: f"b{rack // racks_per_block}",
                "pool": rng.choice(["a", "a", "b"]),
            }
            if rng.random() < 0.03:
                del labels[RACK]
            allocatable = {"cpu": 64_000, "memory": 512 << 30, PODS: 110, GPU: gpus}
            if rng.random() < 0.1:
                allocatable[GPU] //= 2
            taints = (Taint("dedicated", "x"),) if rng.random() < 0.08 else ()
            cordoned = rng.random() < 0.04
            self.nodes.append(Node(name, labels, allocatable, taints, unschedulable=cordoned))
            self.room[name] = dict(allocatable)

    def add_fill(self) -> None:
        """Running pods of their own, so that nodes differ in what is free."""
        for node in self.nodes:
            take = self.rng.choice([0, 0, 0, 1, 2, 3, 4, 6])
            cpu = self.rng.choice([0, 8_000, 24_000, 40_000])
            if take > node.allocatable[GPU]:
                take = node.allocatable[GPU]
            if take or cpu:
                spec = _spec(take, cpu)
                self.pods.append(
                    PodRow(f"fill/{node.name}", spec, node=node.name, phase=Phase.RUNNING)
                )
                self._hold(node.name, spec)
        self.free = sum(max(room[GPU], 0) for room in self.room.values())

    def add_pending(self, name: str) -> None:
        shape = self.rng.choice(
            ["plain"] * 6
            + ["elastic", "elastic", "roles", "roles", "subgroups", "subgroups"]
            + ["slices", "slices", "composite", "exclusive", "exclusive", "pinned", "pinned"]
            + ["apart", "ports", "spread", "cpu", "single", "basic", "levels"]
        )
        getattr(self, f"_add_{shape}")(name, self._priority())

    def _priority(self) -> int:
        return 0 if self.equal_priorities else self.rng.choice([0, 0, 10, 50])

    def _hold(self, node: str, spec: PodSpec) -> None:
        for resource, amount in spec.requests:
            self.room[node][resource] -= amount

    def _any_spec(self, **fields: Any) -> PodSpec:
        rng = self.rng
        gpus = rng.choice([1, 1, 2, 2, 3, 4, 4, 8])
        cpu = rng.choice([0, 0, 1_000, 8_000 * gpus, 12_000 * gpus])
        if rng.random() < 0.15:
            fields["node_selector"] = (("pool", rng.choice("ab")),)
        if rng.random() < 0.2:
            fields["tolerations"] = (Toleration("dedicated", "Exists"),)
        return _spec(gpus, min(cpu, 64_000), **fields)

    def _count(self, spec: PodSpec, most: int = 16) -> int:
        top = min(most, 32 // max(spec.gpus, 1))
        return self.rng.randint(1, max(top, 1))

    def _topology(self) -> tuple[TopologyTerm, ...]:
        key = self.rng.choice([None, BLOCK, RACK, RACK])
        if key is None:
            return ()
        required = self.rng.random() < 0.85
        terms = [TopologyTerm(LEVELS[: LEVELS.index(key) + 1], required)]
        if key == BLOCK and self.rng.random() < 0.3:
            terms.append(TopologyTerm((RACK,), required=False))
        return tuple(terms)

    def _group(self, ref: str, parent: str = "", **fields: Any) -> None:
        kind = fields.pop("kind", "group")
        self.groups.append(GroupRow(Group(ref, kind, API, **fields), parent))

    def _members(
        self, group: str, name: str, count: int, spec: PodSpec, priority: int, **fields: Any
    ) -> None:
        self.asked += count * spec.gpus
        for i in range(count):
            self.pods.append(
                PodRow(f"ml/{name}-{i:02}", spec, group=group, priority=priority, rank=i, **fields)
            )

    def _add_plain(self, name: str, priority: int) -> None:
        spec = self._any_spec()
        count = self._count(spec)
        self._group(
            f"ml/{name}", min_count=count, size=count, priority=priority, topology=self._topology()
        )
        self._members(f"ml/{name}", name, count, spec, priority)

    def _add_elastic(self, name: str, priority: int) -> None:
        spec = self._any_spec()
        count = max(self._count(spec), 2)
        self._group(
            f"ml/{name}",
            min_count=self.rng.randint(1, count),
            size=count,
            priority=priority,
            topology=self._topology(),
        )
        self._members(f"ml/{name}", name, count, spec, priority)

    def _add_basic(self, name: str, priority: int) -> None:
        spec = self._any_spec()
        count = self._count(spec, 6)
        self._group(
            f"ml/{name}",
            policy="basic",
            size=count,
            priority=priority,
            topology=self._topology(),
        )
        self._members(f"ml/{name}", name, count, spec, priority)

    def _add_roles(self, name: str, priority: int) -> None:
        leader = _spec(self.rng.choice([0, 0, 1]), self.rng.choice([4_000, 16_000]))
        spec = self._any_spec()
        count = self._count(spec, 8)
        spare = self.rng.choice([0, 0, 1, 2])
        self._group(
            f"ml/{name}",
            min_count=max(count + 1 - spare, 1),
            size=count + 1,
            priority=priority,
            topology=self._topology(),
        )
        self._members(f"ml/{name}", f"{name}-lead", 1, leader, priority)
        self._members(f"ml/{name}", f"{name}-work", count, spec, priority)

    def _add_subgroups(self, name: str, priority: int) -> None:
        spec = self._any_spec()
        parts = self.rng.randint(2, 4)
        count = max(1, min(4, self._count(spec) // parts))
        needed = self.rng.choice([parts, parts, max(parts - 1, 1)])
        outer = self.rng.choice([(), (TopologyTerm((BLOCK,)),)])
        inner = self.rng.choice([(), (TopologyTerm((RACK,)),), (TopologyTerm((HOSTNAME,)),)])
        self._group(
            f"ml/{name}",
            min_count=needed * count,
            min_groups=needed,
            size=parts * count,
            priority=priority,
            topology=outer,
        )
        for i in range(parts):
            ref = f"ml/{name}#{i}"
            self._group(
                ref,
                f"ml/{name}",
                kind="subgroup",
                name=str(i),
                min_count=count,
                size=count,
                priority=priority,
                topology=inner,
            )
            self._members(ref, f"{name}-{i}", count, spec, priority)

    def _add_slices(self, name: str, priority: int) -> None:
        spec = self._any_spec()
        size = self.rng.choice([2, 3, 4])
        count = max(self._count(spec), size)
        slices = [SliceTerm((RACK,), size)]
        if size == 4 and self.rng.random() < 0.4:
            slices.append(SliceTerm((HOSTNAME,), 2))
        floor = self.rng.choice([count, count, size])
        self._group(
            f"ml/{name}",
            min_count=floor,
            size=count,
            priority=priority,
            topology=self.rng.choice([(), (TopologyTerm((BLOCK,)),)]),
            slices=tuple(slices),
        )
        first = self.rng.choice([count, count, count // 2])
        self._members(f"ml/{name}", f"{name}-a", first, spec, priority)
        if count - first:
            other = _spec(spec.gpus, 2_000)
            self._members(f"ml/{name}", f"{name}-b", count - first, other, priority)

    def _add_composite(self, name: str, priority: int) -> None:
        needed = self.rng.randint(1, 3)
        outer = self.rng.choice([(), (TopologyTerm((BLOCK,)),)])
        self._group(
            f"ml/{name}", kind="composite", min_groups=needed, priority=priority, topology=outer
        )
        for i in range(3):
            spec = self._any_spec()
            count = self._count(spec, 4)
            ref = f"ml/{name}-{i}"
            basic = self.rng.random() < 0.2
            self._group(
                ref,
                f"ml/{name}",
                policy="basic" if basic else "gang",
                min_count=0 if basic else self.rng.randint(1, count),
                size=count,
                priority=priority,
                topology=self.rng.choice([(), (TopologyTerm((RACK,)),)]),
            )
            self._members(ref, f"{name}-{i}", count, spec, priority)

    def _add_exclusive(self, name: str, priority: int) -> None:
        spec = self._any_spec()
        count = self._count(spec, 8)
        key = self.rng.choice([RACK, RACK, BLOCK, None])
        self._group(
            f"ml/{name}",
            min_count=count,
            size=count,
            priority=priority,
            topology=() if key is None else (TopologyTerm((key,)),),
            exclusive=(Exclusive("ml", key),),
        )
        self._members(f"ml/{name}", name, count, spec, priority)

    def _add_pinned(self, name: str, priority: int) -> None:
        """A gang some of whose pods run, in one rack or (rarely) in two."""
        spec = self._any_spec()
        count = max(self._count(spec, 8), 2)
        key = self.rng.choice([RACK, BLOCK])
        floor = self.rng.choice([count, max(count - 1, 1), 1])
        ref = f"ml/{name}"
        topology = (TopologyTerm((key,), self.rng.random() < 0.8),)
        homes = [n for n in self.nodes if RACK in n.labels and self._fits(n.name, spec)]
        self._group(ref, min_count=floor, size=count, priority=priority, topology=topology)
        running = 0
        if homes:
            home = self.rng.choice(homes)
            for i in range(self.rng.randint(1, count - 1)):
                near = [n for n in homes if n.labels[key] == home.labels[key]]
                near = [n for n in near if self._fits(n.name, spec)]
                if not near:
                    break
                at = self.rng.choice(near).name
                self._hold(at, spec)
                self.free -= spec.gpus
                running += 1
                self.pods.append(
                    PodRow(
                        f"ml/{name}-run-{i}",
                        spec,
                        node=at,
                        group=ref,
                        phase=Phase.RUNNING,
                        priority=priority,
                        rank=i,
                    )
                )
        self._members(ref, f"{name}-wait", count - running, spec, priority)

    def _fits(self, node: str, spec: PodSpec) -> bool:
        return all(self.room[node][r] >= amount for r, amount in spec.requests)

    def _add_apart(self, name: str, priority: int) -> None:
        """One pod a node (or rack) of its own kind."""
        key = self.rng.choice([HOSTNAME, HOSTNAME, RACK])
        term = AffinityTerm(key, _selects(name), ("ml",))
        spec = self._any_spec(anti_affinity=(term,))
        count = self._count(spec, 5)
        self._group(
            f"ml/{name}",
            min_count=self.rng.randint(1, count),
            size=count,
            priority=priority,
            topology=self.rng.choice([(), (TopologyTerm((BLOCK,)),)]),
        )
        self._members(f"ml/{name}", name, count, spec, priority, labels={"app": name})

    def _add_ports(self, name: str, priority: int) -> None:
        spec = self._any_spec(host_ports=(HostPort(self.rng.choice([8080, 9090])),))
        count = self._count(spec, 5)
        self._group(
            f"ml/{name}", min_count=count, size=count, priority=priority, topology=self._topology()
        )
        self._members(f"ml/{name}", name, count, spec, priority)

    def _add_spread(self, name: str, priority: int) -> None:
        term = SpreadTerm(
            self.rng.choice([RACK, HOSTNAME]), self.rng.choice([1, 2]), _selects(name)
        )
        spec = self._any_spec(spread=(term,))
        count = self._count(spec, 8)
        self._group(
            f"ml/{name}", min_count=self.rng.randint(1, count), size=count, priority=priority
        )
        self._members(f"ml/{name}", name, count, spec, priority, labels={"app": name})

    def _add_cpu(self, name: str, priority: int) -> None:
        spec = _spec(0, self.rng.choice([8_000, 20_000, 30_000]))
        count = self.rng.randint(1, 8)
        self._group(
            f"ml/{name}",
            min_count=self.rng.randint(1, count),
            size=count,
            priority=priority,
            topology=self._topology(),
        )
        self._members(f"ml/{name}", name, count, spec, priority)

    def _add_single(self, name: str, priority: int) -> None:
        self._members("", name, self.rng.randint(1, 3), self._any_spec(), priority)

    def _add_levels(self, name: str, priority: int) -> None:
        """Required by block, preferred by rack, with roles."""
        topology = (TopologyTerm((BLOCK,)), TopologyTerm((RACK,), required=False))
        spec = self._any_spec()
        count = self._count(spec, 8)
        self._group(
            f"ml/{name}",
            min_count=max(count - 1, 1),
            size=count,
            priority=priority,
            topology=topology,
        )
        self._members(f"ml/{name}", name, count, spec, priority)


def _spec(gpus: int, cpu: int, **fields: Any) -> PodSpec:
    wanted = {GPU: gpus, "cpu": cpu, PODS: 1}
    return PodSpec(tuple(sorted((k, v) for k, v in wanted.items() if v)), **fields)


def _selects(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))
