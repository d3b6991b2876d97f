"""Fleets small enough for brute force, drawn by hypothesis; rows, so that tests can shuffle."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from builders import RACK, make_node, make_spec
from hypothesis import strategies as st

from topology.assemble import GroupRow, PodRow, assemble_snapshot
from topology.model import (
    HOSTNAME,
    AffinityTerm,
    Exclusive,
    Group,
    HostPort,
    LabelSelector,
    Phase,
    PodFlag,
    Requirement,
    SliceTerm,
    SpreadTerm,
    Taint,
    Toleration,
    TopologyTerm,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topology.model import Node, PodSpec, Snapshot

__all__ = ["Rows", "tiny_fleets", "tiny_gangs"]

API = "scheduling.k8s.io/v1beta1/PodGroup"
MAX_PENDING = 5
SHAPES = (
    "gang",
    "gang",
    "running",
    "roles",
    "slices",
    "subgroups",
    "composite",
    "exclusive",
    "apart",
    "together",
    "ports",
    "spread",
    "single",
)


@dataclass
class Rows:
    """Input of `assemble_snapshot`, in the order in which it was drawn."""

    nodes: list[Node] = field(default_factory=list)
    pods: list[PodRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)

    def build(self) -> Snapshot:
        """Assemble."""
        return assemble_snapshot(self.nodes, self.pods, self.groups)


@st.composite
def tiny_fleets(draw: st.DrawFn) -> Rows:
    """Two to four nodes in two racks; up to five pending pods in groups of every shape."""
    fleet = _Fleet(draw)
    fleet.add_nodes(draw(st.integers(2, 4)))
    for i in range(draw(st.integers(1, 4))):
        fleet.add(draw(st.sampled_from(SHAPES)), f"g{i}")
    return fleet.rows


@st.composite
def tiny_gangs(draw: st.DrawFn) -> Rows:
    """Two to four nodes and one pending gang."""
    fleet = _Fleet(draw)
    fleet.add_nodes(draw(st.integers(2, 4)))
    fleet.add(draw(st.sampled_from(("gang", "roles", "slices", "subgroups", "apart"))), "g0")
    return fleet.rows


@dataclass
class _Fleet:
    draw: st.DrawFn
    rows: Rows = field(default_factory=Rows)
    pending: int = 0

    def pick(self, *values: Any) -> Any:
        return self.draw(st.sampled_from(values))

    def add_nodes(self, count: int) -> None:
        for i in range(count):
            taints = [Taint("dedicated", "x")] if self.pick(False, False, False, True) else []
            node = make_node(
                f"n{i}",
                gpus=self.pick(1, 2, 3, 4, 4),
                cpu=self.pick(4_000, 8_000),
                rack=self.pick("a", "a", "b", "b", None),
                slots=self.pick(110, 110, 2),
                taints=taints,
                unschedulable=self.pick(False, False, False, False, True),
            )
            self.rows.nodes.append(node)
            fill = self.pick(0, 0, 0, 1, 2)
            if fill:
                self.rows.pods.append(
                    PodRow(
                        f"fill/{node.name}",
                        make_spec(gpus=fill),
                        node=node.name,
                        phase=Phase.RUNNING,
                    )
                )

    def add(self, shape: str, name: str) -> None:
        priority = self.pick(0, 0, 10)
        getattr(self, f"_add_{shape}")(name, priority)

    def _count(self, most: int = 4) -> int:
        """Draw the pods of a group, none once enough wait."""
        left = min(most, MAX_PENDING - self.pending)
        count = self.draw(st.integers(1, left)) if left > 0 else 0
        self.pending += count
        return count

    def _spec(self, **fields: Any) -> PodSpec:
        if self.pick(False, False, True):
            fields["tolerations"] = (Toleration("dedicated", "Exists"),)
        return make_spec(gpus=self.pick(0, 1, 1, 2, 3), cpu=self.pick(0, 1_000, 3_000), **fields)

    def _topology(self, *keys: str | None) -> tuple[TopologyTerm, ...]:
        key = self.pick(*(keys or (None, RACK, RACK, HOSTNAME)))
        return () if key is None else (TopologyTerm((key,), self.pick(True, True, False)),)

    def _group(self, ref: str, parent: str = "", **fields: Any) -> None:
        group = Group(ref, fields.pop("kind", "group"), API, **fields)
        self.rows.groups.append(GroupRow(group, parent))

    def _pods(
        self, name: str, group: str, count: int, spec: PodSpec, priority: int, **fields: Any
    ) -> None:
        self.rows.pods += [
            PodRow(f"ml/{name}-{i}", spec, group=group, priority=priority, rank=i, **fields)
            for i in range(count)
        ]

    def _gang(
        self,
        name: str,
        priority: int,
        spec: PodSpec,
        pods: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        count = self._count()
        floor = self.draw(st.integers(1, max(count, 1)))
        self._group(f"ml/{name}", min_count=floor, size=count, priority=priority, **fields)
        self._pods(name, f"ml/{name}", count, spec, priority, **(pods or {}))

    def _add_gang(self, name: str, priority: int) -> None:
        self._gang(name, priority, self._spec(), topology=self._topology())

    def _add_running(self, name: str, priority: int) -> None:
        """Some of its pods run somewhere, fitting or not; one may terminate."""
        spec = self._spec()
        slices = (SliceTerm((RACK,), 2),) if self.pick(False, False, True) else ()
        self._gang(name, priority, spec, topology=self._topology(), slices=slices)
        nodes = [node.name for node in self.rows.nodes]
        for i in range(self.draw(st.integers(1, 2))):
            self._pods(
                f"{name}-run{i}",
                f"ml/{name}",
                1,
                spec,
                priority,
                node=self.pick(*nodes, "gone"),
                phase=Phase.RUNNING,
                flags=self.pick(0, 0, 0, PodFlag.TERMINATING),
            )

    def _add_roles(self, name: str, priority: int) -> None:
        lead, work = self._spec(), self._spec()
        leaders, workers = self._count(1), self._count(3)
        self._group(
            f"ml/{name}",
            min_count=self.draw(st.integers(1, max(leaders + workers, 1))),
            size=leaders + workers,
            priority=priority,
            topology=self._topology(),
        )
        self._pods(f"{name}-lead", f"ml/{name}", leaders, lead, priority)
        self._pods(f"{name}-work", f"ml/{name}", workers, work, priority)

    def _add_slices(self, name: str, priority: int) -> None:
        sizes: Sequence[SliceTerm] = [SliceTerm((RACK,), self.pick(2, 3))]
        if self.pick(False, False, True):
            sizes = [SliceTerm((RACK,), 4), SliceTerm((HOSTNAME,), 2)]
        first, second = self._count(), self._count(2)
        self._group(
            f"ml/{name}",
            min_count=self.draw(st.integers(1, max(first + second, 1))),
            size=first + second,
            priority=priority,
            slices=tuple(sizes),
        )
        self._pods(f"{name}-a", f"ml/{name}", first, self._spec(), priority)
        self._pods(f"{name}-b", f"ml/{name}", second, self._spec(), priority)

    def _add_subgroups(self, name: str, priority: int) -> None:
        ref = f"ml/{name}"
        counts = [self._count(2) for _ in range(2)]
        self._group(
            ref,
            min_count=self.pick(0, min(counts), sum(counts)),
            min_groups=self.pick(0, 1, 2),
            size=sum(counts),
            priority=priority,
            topology=self._topology(None, RACK),
        )
        for i, count in enumerate(counts):
            self._group(
                f"{ref}#{i}",
                ref,
                kind="subgroup",
                name=str(i),
                min_count=self.draw(st.integers(min(count, 1), count)),
                size=count,
                priority=priority,
                topology=self._topology(None, HOSTNAME, RACK),
            )
            self._pods(f"{name}-{i}", f"{ref}#{i}", count, self._spec(), priority)

    def _add_composite(self, name: str, priority: int) -> None:
        ref = f"ml/{name}"
        self._group(
            ref,
            kind="composite",
            min_groups=self.pick(1, 2),
            priority=priority,
            topology=self._topology(None, RACK),
        )
        for i in range(2):
            count = self._count(2)
            policy = self.pick("gang", "gang", "basic")
            floor = 0 if policy == "basic" else self.draw(st.integers(1, max(count, 1)))
            self._group(
                f"{ref}-{i}", ref, policy=policy, min_count=floor, size=count, priority=priority
            )
            self._pods(f"{name}-{i}", f"{ref}-{i}", count, self._spec(), priority)

    def _add_exclusive(self, name: str, priority: int) -> None:
        key = self.pick(RACK, RACK, HOSTNAME, None)
        self._gang(
            name,
            priority,
            self._spec(),
            exclusive=(Exclusive("ml", key),),
            topology=() if key is None else (TopologyTerm((key,)),),
        )

    def _add_apart(self, name: str, priority: int) -> None:
        """No two pods of its own (or of a sibling application) in one domain."""
        app, other = self.pick("x", name), self.pick("x", name)
        key = self.pick(HOSTNAME, HOSTNAME, RACK)
        term = AffinityTerm(key, _select(other), ("ml",))
        spec = self._spec(anti_affinity=(term,))
        self._gang(name, priority, spec, {"labels": {"app": app}})

    def _add_together(self, name: str, priority: int) -> None:
        """Pods that want company of their kind, shared with other groups or not."""
        app = self.pick("t", name)
        term = AffinityTerm(self.pick(HOSTNAME, RACK, RACK), _select(app), ("ml",))
        spec = self._spec(affinity=(term,))
        self._gang(name, priority, spec, {"labels": {"app": app}})
        if self.pick(False, False, True):
            home = self.pick(*(node.name for node in self.rows.nodes))
            self.rows.pods.append(
                PodRow(
                    f"ml/{name}-old",
                    make_spec(gpus=0),
                    labels={"app": app},
                    node=home,
                    phase=Phase.RUNNING,
                )
            )

    def _add_ports(self, name: str, priority: int) -> None:
        port = HostPort(80, ip=self.pick("0.0.0.0", "10.0.0.1", "10.0.0.2"))
        self._gang(name, priority, self._spec(host_ports=(port,)))

    def _add_spread(self, name: str, priority: int) -> None:
        app = self.pick("x", name)
        term = SpreadTerm(
            self.pick(RACK, HOSTNAME),
            self.pick(1, 1, 2),
            _select(app),
            self.pick(1, 1, 3),
            honor_taints=self.pick(False, True),
        )
        self._gang(name, priority, self._spec(spread=(term,)), {"labels": {"app": app}})

    def _add_single(self, name: str, priority: int) -> None:
        self._pods(name, "", self._count(2), self._spec(), priority)


def _select(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))
