"""Random small fleets in which waiting gangs need somebody to go, one for each seed.

Four to sixteen nodes in racks, 5 to 60 running units of low priority (pods alone, groups that go
one by one, groups that go whole and span nodes and racks) under overlapping disruption budgets, and
one to five preemptors of one or several priorities. What a seed draws never depends on the others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import (
    HOSTNAME,
    PODS,
    Budget,
    Group,
    LabelSelector,
    Node,
    Phase,
    PodFlag,
    PodSpec,
    Requirement,
    TopologyTerm,
)

if TYPE_CHECKING:
    from topology.model import Snapshot

__all__ = ["OBJECTIVES", "Question", "draw_question"]

GPU: Final = "nvidia.com/gpu"
RACK: Final = "topo.example.com/rack"
API: Final = "scheduling.k8s.io/v1beta1/PodGroup"
APPS: Final = ("a", "b", "c")
CPU, MEMORY = 96_000, 1 << 40

OBJECTIVES: Final = (
    (
        "max:priority",
        "min:pdbViolations",
        "min:highestVictimPriority",
        "min:victimUnits",
        "min:victimPods",
    ),
    ("max:groupsPlaced", "min:victimPods"),
    ("max:gpusPlaced", "min:weightedVictimGpus"),
    ("min:weightedVictimGpus",),
    ("max:podsPlaced", "min:pdbViolations", "min:victimGpus"),
)


class Question(NamedTuple):
    """A fleet and what is asked of it."""

    snapshot: Snapshot
    objective: tuple[str, ...]
    pdb: str


def draw_question(seed: int) -> Question:
    """Draw one fleet; the default objective for half of the seeds, hard budgets for a third."""
    objective = OBJECTIVES[0] if seed % 2 == 0 else OBJECTIVES[1 + seed // 2 % 4]
    draw = _Draw(random.Random(f"victims {seed}"))
    if "min:weightedVictimGpus" in objective:
        # Below zero, evicting whom nobody needs would make the sum smaller.
        draw.priorities = [0, 0, 1, 2, 5, 8]
    draw.add_nodes()
    draw.add_running()
    draw.add_budgets()
    draw.add_preemptors()
    snapshot = assemble_snapshot(draw.nodes, draw.pods, draw.groups, budgets=draw.budgets)
    return Question(snapshot, objective, "hard" if seed % 3 == 0 else "soft")


@dataclass
class _Draw:
    rng: random.Random
    nodes: list[Node] = field(default_factory=list)
    pods: list[PodRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    budgets: list[Budget] = field(default_factory=list)
    room: dict[str, dict[str, int]] = field(default_factory=dict)
    binds: str = ""
    """A resource that is short beside GPUs, or ""."""
    priorities: list[int] = field(default_factory=lambda: [-5, 0, 0, 1, 2, 5, 8])

    def add_nodes(self) -> None:
        rng = self.rng
        self.binds = rng.choice(["", "", "cpu", "memory"])
        per_rack = rng.choice([2, 2, 3, 4])
        for i in range(rng.randint(2, 4) * per_rack):
            name = f"n{i:02}"
            labels = {HOSTNAME: name, RACK: f"r{i // per_rack}"}
            offers = {"cpu": CPU, "memory": MEMORY, PODS: 110, GPU: rng.choice([8, 8, 8, 4])}
            self.nodes.append(Node(name, labels, offers))
            self.room[name] = dict(offers)

    def _spec(self, gpus: int, **fields: Any) -> PodSpec:
        """Pods of as many GPUs differ in cpu or memory where that is short."""
        wanted = {GPU: gpus, PODS: 1}
        if self.binds:
            most = CPU if self.binds == "cpu" else MEMORY
            wanted[self.binds] = most // 16 * self.rng.choice([1, gpus, 2 * gpus, 3 * gpus])
            wanted[self.binds] = min(wanted[self.binds], most)
        return PodSpec(tuple(sorted((k, v) for k, v in wanted.items() if v)), **fields)

    def _take(self, spec: PodSpec, near: str = "") -> str:
        """Return a node with room for one pod and give it that room; "" where there is none."""
        fitting = [
            node
            for node in self.nodes
            if all(self.room[node.name].get(r, 0) >= amount for r, amount in spec.requests)
        ]
        close = [node for node in fitting if node.labels[RACK] == near]
        if not fitting:
            return ""
        name = self.rng.choice(close or fitting).name
        for resource, amount in spec.requests:
            self.room[name][resource] -= amount
        return name

    def _run(self, name: str, count: int, spec: PodSpec, priority: int, **fields: Any) -> int:
        """Start pods on nodes, mostly in one rack; return how many found room."""
        near = self.rng.choice([*self.nodes]).labels[RACK] if self.rng.random() < 0.7 else ""
        app = self.rng.choice(APPS)
        started = 0
        for i in range(count):
            node = self._take(spec, near)
            if not node:
                break
            labels = {"app": app, "tier": self.rng.choice(["x", "y"])}
            row = PodRow(f"ml/{name}-{i}", spec, labels, node=node, phase=Phase.RUNNING, **fields)
            row.priority = priority
            self.pods.append(row)
            started += 1
        return started

    def add_running(self) -> None:
        rng = self.rng
        for i in range(rng.choice([5, 10, 15, 25, 40, 60])):
            name = f"v{i:02}"
            priority = rng.choice(self.priorities)
            gpus = rng.choice([0, 1, 1, 2, 2, 4, 8]) if self.binds else rng.choice([1, 1, 2, 4, 8])
            spec = self._spec(gpus)
            match rng.choice(["pod", "pod", "single", "all", "all"]):
                case "pod":
                    flags = PodFlag.NOT_PREEMPTIBLE if rng.random() < 0.05 else 0
                    self._run(name, 1, spec, priority, flags=flags)
                case mode:
                    count = rng.choice([1, 2, 3, 4, 6])
                    ref = f"ml/{name}"
                    if self._run(name, count, spec, priority, group=ref):
                        group = Group(
                            ref,
                            "group",
                            API,
                            min_count=1,
                            size=count,
                            priority=priority,
                            disruption=mode,  # type: ignore[arg-type]
                            evictable=rng.random() > 0.04,
                        )
                        self.groups.append(GroupRow(group))
        for i in range(rng.choice([0, 0, 1, 2])):
            self._run(f"high{i}", 1, self._spec(rng.choice([1, 2, 4])), 1_000)

    def add_budgets(self) -> None:
        for i in range(self.rng.choice([0, 1, 2, 3])):
            key = self.rng.choice(["app", "app", "tier"])
            values = APPS if key == "app" else ("x", "y")
            chosen = tuple(sorted(self.rng.sample(values, self.rng.randint(1, 2))))
            gone = [row.ref.partition("/")[2] for row in self.pods if self.rng.random() < 0.05]
            selector = LabelSelector((Requirement(key, "In", chosen),))
            allowed = self.rng.choice([0, 0, 1, 2, 4])
            self.budgets.append(Budget(f"ml/b{i}", selector, allowed, frozenset(gone)))

    def add_preemptors(self) -> None:
        rng = self.rng
        several = rng.random() < 0.35
        for i in range(rng.choice([1, 1, 1, 2, 2, 3, 4, 5])):
            priority = rng.choice([3, 10, 50]) if several else 10
            gpus = rng.choice([1, 2, 4, 4, 8])
            spec, name = self._spec(gpus), f"p{i}"
            if rng.random() < 0.1:
                self.pods.append(PodRow(f"ml/{name}-0", spec, priority=priority))
                continue
            count = rng.randint(1, max(16 // gpus, 1))
            floor = count if rng.random() < 0.7 else rng.randint(1, count)
            topology = (TopologyTerm((RACK,)),) if rng.random() < 0.5 else ()
            group = Group(
                f"ml/{name}",
                "group",
                API,
                min_count=floor,
                size=count,
                priority=priority,
                topology=topology,
            )
            self.groups.append(GroupRow(group))
            # Some of its pods may run already, in its rack where it needs one.
            running = 0
            if not several and rng.random() < 0.15:
                running = self._run(f"{name}-run", 1, spec, priority, group=group.ref)
            self.pods += [
                PodRow(f"ml/{name}-{j}", spec, group=group.ref, priority=priority, rank=j)
                for j in range(running, count)
            ]
