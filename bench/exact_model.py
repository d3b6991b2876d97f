"""The placement problem of a small snapshot as one CP-SAT model, to measure the search against.

Written from the definitions of `topology.model` and of the verifier's rules; it shares no code with
`optimizer`. Pods of one leaf with one spec and one set of labels are counted, not listed. Left out,
because no fleet of the benchmark has them: inter-pod affinity, resource claims, nominated nodes.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ortools.sat.python import cp_model

from topology.model import NO_GROUP, HostPort, PodFlag
from topology.selectors import find_untolerated, matches_node_affinity, matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topology.model import AffinityTerm, Node, PodSpec, Snapshot, SpreadTerm

__all__ = [
    "ExactAnswer",
    "Facts",
    "LevelName",
    "PlacementModel",
    "count_levels",
    "list_levels",
    "maximize_levels",
    "solve_placement",
]


class PodKind(NamedTuple):
    """Pending pods nothing tells apart: leaf (or, for a pod of its own, ~pod), spec, labels."""

    leaf: int
    spec: int
    labels: int
    namespace: str


class LevelName(NamedTuple):
    """One step of a lexicographic comparison; `priority` set: only pods of that priority."""

    criterion: str
    sign: int
    priority: int | None = None

    @property
    def stated_as(self) -> str:
        """How a plan names the step in its bound; "" where it never does."""
        if self.priority is None:
            return self.criterion
        return "priority" if self.criterion == "gpusPlaced" else ""


class ExactAnswer(NamedTuple):
    """The best value of every level, and whether it is proven."""

    levels: tuple[int, ...]
    """Signs applied: more is better."""
    proven: bool
    nodes: dict[str, str]
    """Pod -> node of one optimal plan."""


def list_levels(snapshot: Snapshot, objective: Sequence[str]) -> list[LevelName]:
    """Spell out an objective: `priority` becomes GPUs of each priority, the highest first."""
    facts = Facts(snapshot)
    priorities = sorted({facts.priority_of(p) for p in facts.pending}, reverse=True)
    levels: list[LevelName] = []
    for item in objective:
        direction, _, criterion = item.partition(":")
        sign = 1 if direction == "max" else -1
        if criterion == "priority":
            levels += [LevelName("gpusPlaced", sign, p) for p in priorities]
        elif criterion in ("groupsPlaced", "podsPlaced", "gpusPlaced", "weightedGpus"):
            levels.append(LevelName(criterion, sign))
    return levels


def count_levels(
    snapshot: Snapshot, placed: Iterable[str], levels: Sequence[LevelName]
) -> tuple[int, ...]:
    """Count what a set of placed pods is worth in every level, signs applied."""
    facts = Facts(snapshot)
    index = {ref: p for p, ref in enumerate(snapshot.pods.refs)}
    chosen = [index[ref] for ref in placed]
    groups = {g for p in chosen for g in facts.counted_groups(p)}
    totals = []
    for level in levels:
        total = 0
        if level.criterion == "groupsPlaced":
            total = len(groups)
        for p in chosen:
            total += facts.worth(p, level)
        totals.append(level.sign * total)
    return tuple(totals)


class Facts:
    """What the snapshot says, by name of the thing, in plain Python."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        pods = snapshot.pods
        self.pending = [p for p, waits in enumerate(pods.is_pending.tolist()) if waits]
        self.children: defaultdict[int, list[int]] = defaultdict(list)
        for g, group in enumerate(snapshot.groups):
            self.children[group.parent].append(g)

    def climb(self, g: int) -> Iterator[int]:
        """Yield a group and its ancestors, the root last."""
        while g != NO_GROUP:
            yield g
            g = self.snapshot.groups[g].parent

    def walk(self, g: int) -> Iterator[int]:
        """Yield a group and all groups below it."""
        yield g
        for child in self.children[g]:
            yield from self.walk(child)

    def priority_of(self, p: int) -> int:
        """Return the priority of a pod's root group, or its own."""
        g = int(self.snapshot.pods.group[p])
        return int(self.snapshot.pods.priority[p]) if g < 0 else self.snapshot.groups[g].priority

    def counted_groups(self, p: int) -> list[int]:
        """Return what a placed pod makes count as a placed group; ~pod for a pod of its own."""
        g = int(self.snapshot.pods.group[p])
        if g == NO_GROUP:
            return [~p]
        return [a for a in self.climb(g) if self.snapshot.groups[a].kind == "group"]

    def worth(self, p: int, level: LevelName) -> int:
        """Return what one more placed pod adds to a level other than groups."""
        gpus: int = self.snapshot.pods.row(p).spec.gpus
        match level.criterion:
            case "podsPlaced":
                return 1
            case "gpusPlaced":
                return gpus if level.priority in (None, self.priority_of(p)) else 0
            case "weightedGpus":
                return gpus * self.priority_of(p)
            case _:
                return 0


@dataclass
class PlacementModel:
    """Placements of a snapshot that break no rule, as variables and constraints of CP-SAT."""

    snapshot: Snapshot
    facts: Facts
    cp: Any = field(default_factory=cp_model.CpModel)
    kinds: dict[PodKind, list[int]] = field(default_factory=dict)
    put: dict[tuple[PodKind, int], Any] = field(default_factory=dict)
    """(kind, node) -> how many of its pods go there."""
    succeeds: dict[int, Any] = field(default_factory=dict)
    gains: dict[int, Any] = field(default_factory=dict)
    """Group (or ~pod) -> it gets a new pod."""

    def build(self) -> None:
        """Add every rule."""
        pods = self.snapshot.pods
        self.standing = [
            p for p, holds in enumerate(pods.holds_room.tolist()) if holds and pods.node[p] >= 0
        ]
        for p in self.facts.pending:
            g = int(pods.group[p])
            namespace = pods.refs[p].partition("/")[0]
            kind = PodKind(g if g >= 0 else ~p, int(pods.spec[p]), int(pods.labels[p]), namespace)
            self.kinds.setdefault(kind, []).append(p)
        for i, (kind, members) in enumerate(self.kinds.items()):
            spec = pods.specs[kind.spec]
            for n, node in enumerate(self.snapshot.nodes):
                if _may_enter(spec, node):
                    self.put[kind, n] = self.cp.new_int_var(0, len(members), f"x{i},{n}")
            self.cp.add(self.total([kind]) <= len(members))
        self._add_room()
        self._add_forest()
        for g, group in enumerate(self.snapshot.groups):
            for term in group.topology:
                if term.required:
                    self._add_topology(g, term.path)
            for slices in group.slices:
                if slices.required:
                    self._add_slices(g, slices.path, slices.size)
        self._add_exclusive()
        self._add_anti_affinity()
        self._add_ports()
        self._add_spread()

    def total(self, kinds: Iterable[PodKind], nodes: Iterable[int] | None = None) -> Any:
        """Return how many pods of some kinds are placed, on all nodes or on some."""
        chosen = range(len(self.snapshot.nodes)) if nodes is None else list(nodes)
        return sum(self.put[k, n] for k in kinds for n in chosen if (k, n) in self.put)

    def below(self, g: int) -> list[PodKind]:
        """Return the kinds of pending pods of a subtree."""
        inside = set(self.facts.walk(g))
        return [k for k in self.kinds if k.leaf in inside]

    def has_any(self, amount: Any, most: int, name: str) -> Any:
        """Return a boolean that holds exactly when `amount` is positive."""
        flag = self.cp.new_bool_var(name)
        self.cp.add(amount >= 1).only_enforce_if(flag)
        self.cp.add(amount <= 0).only_enforce_if(flag.negated())
        return flag

    def domain(self, n: int, path: Sequence[str]) -> tuple[str, ...] | None:
        """Return the domain of a node, None where it lacks a label."""
        labels = self.snapshot.nodes[n].labels
        found = tuple(labels[key] for key in path if key in labels)
        return found if len(found) == len(path) else None

    def domains(self, path: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
        """Return the nodes of every domain."""
        found: dict[tuple[str, ...], list[int]] = {}
        for n in range(len(self.snapshot.nodes)):
            value = self.domain(n, path)
            if value is not None:
                found.setdefault(value, []).append(n)
        return found

    def members(self, g: int) -> list[int]:
        """Return the running members of a subtree."""
        inside = set(self.facts.walk(g))
        running = self.snapshot.pods.is_running_member
        return [
            p for p in range(len(running)) if running[p] and self.snapshot.pods.group[p] in inside
        ]

    def _add_room(self) -> None:
        used: list[Counter[str]] = [Counter() for _ in self.snapshot.nodes]
        for p in self.standing:
            for resource, amount in self.snapshot.pods.row(p).spec.requests:
                used[self.snapshot.pods.node[p]][resource] += amount
        for n, node in enumerate(self.snapshot.nodes):
            loads: defaultdict[str, list[Any]] = defaultdict(list)
            for kind in self.kinds:
                if (kind, n) in self.put:
                    for resource, amount in self.snapshot.pods.specs[kind.spec].requests:
                        loads[resource].append(amount * self.put[kind, n])
            for resource, terms in loads.items():
                free = node.allocatable.get(resource, 0) - used[n][resource]
                fits = self.cp.add(sum(terms) <= free + self.given_back(n, resource))
                if free < 0:
                    # A node that is short of something refuses only those who ask for it.
                    fits.only_enforce_if(self.has_any(sum(terms), 0, f"asks{n}{resource}"))

    def given_back(self, n: int, resource: str) -> Any:
        """Return what leaves a node; nothing where nobody is evicted."""
        return 0

    def _add_forest(self) -> None:
        groups = self.snapshot.groups
        counts: dict[int, Any] = {}
        for g in [g for root in self.facts.children[NO_GROUP] for g in self.facts.walk(root)]:
            self.succeeds[g] = self.cp.new_bool_var(f"ok{g}")
        for g in reversed(self.succeeds):
            group, ok = groups[g], self.succeeds[g]
            own = [k for k in self.kinds if k.leaf == g]
            running = sum(1 for p in self.members(g) if self.snapshot.pods.group[p] == g)
            most = running + sum(len(self.kinds[k]) for k in own)
            most += sum(counts[c][1] for c in self.facts.children[g])
            # A failing child adds nothing; pods of a failing subtree are not placed.
            counted = self.cp.new_int_var(0, most, f"n{g}")
            full = self.total(own) + running + sum(counts[c][0] for c in self.facts.children[g])
            self.cp.add(counted == full).only_enforce_if(ok)
            self.cp.add(counted == 0).only_enforce_if(ok.negated())
            counts[g] = (counted, most)
            self.cp.add(counted >= group.min_count).only_enforce_if(ok)
            children = []
            for c in self.facts.children[g]:
                self.cp.add_implication(self.succeeds[c], ok)
                if groups[c].policy == "basic":
                    both = self.has_any(counts[c][0], counts[c][1], f"some{c}")
                    children.append(both)
                else:
                    children.append(self.succeeds[c])
            self.cp.add(sum(children) >= group.min_groups).only_enforce_if(ok)
            for kind in own:
                for n in range(len(self.snapshot.nodes)):
                    if (kind, n) in self.put:
                        self.cp.add(self.put[kind, n] == 0).only_enforce_if(ok.negated())
            if group.blocked:
                self.cp.add(self.total(self.below(g)) == 0)
            self.gains[g] = self.has_any(self.total(self.below(g)), 0, f"new{g}")
        for kind in self.kinds:
            if kind.leaf < 0:
                self.gains[kind.leaf] = self.has_any(self.total([kind]), 1, f"own{kind.leaf}")

    def _add_topology(self, g: int, path: Sequence[str]) -> None:
        kinds = self.below(g)
        pinned = {self.domain(int(self.snapshot.pods.node[p]), path) for p in self.members(g)}
        domains = self.domains(path)
        if len(pinned) > 1 or None in pinned:
            self.cp.add(self.total(kinds) == 0)
            return
        chosen = {}
        for value in domains:
            chosen[value] = self.cp.new_bool_var(f"in{g}{value}")
            if pinned and value not in pinned:
                self.cp.add(chosen[value] == 0)
        self.cp.add_at_most_one(chosen.values())
        for kind in kinds:
            for n in range(len(self.snapshot.nodes)):
                if (kind, n) not in self.put:
                    continue
                here = self.domain(n, path)
                if here is None:
                    self.cp.add(self.put[kind, n] == 0)
                else:
                    self.cp.add(self.put[kind, n] == 0).only_enforce_if(chosen[here].negated())

    def _add_slices(self, g: int, path: Sequence[str], size: int) -> None:
        kinds = self.below(g)
        standing = Counter(
            self.domain(int(self.snapshot.pods.node[p]), path) for p in self.members(g)
        )
        if None in standing:
            self.cp.add(self.total(kinds) == 0)
            return
        domains = self.domains(path)
        inside = {n for nodes in domains.values() for n in nodes}
        self.cp.add(self.total(kinds, set(range(len(self.snapshot.nodes))) - inside) == 0)
        shorter = []
        for value, nodes in domains.items():
            here = self.total(kinds, nodes) + standing[value]
            whole = self.cp.new_int_var(0, 1000, f"runs{g}{value}")
            rest = self.cp.new_int_var(0, size - 1, f"rest{g}{value}")
            self.cp.add(here == size * whole + rest)
            shorter.append(self.has_any(rest, size, f"short{g}{value}"))
        # A leaf that gets nothing new is as it was found.
        self.cp.add(sum(shorter) <= 1).only_enforce_if(self.gains[g])

    def _add_exclusive(self) -> None:
        classes: defaultdict[str, list[tuple[int, str | None]]] = defaultdict(list)
        for g, group in enumerate(self.snapshot.groups):
            for entry in group.exclusive:
                classes[entry.peers].append((g, entry.key))
        pods = self.snapshot.pods
        for peers, entries in classes.items():
            for key in {k for _, k in entries if k is not None}:
                for value, nodes in self.domains((key,)).items():
                    owners, keyed, touched = [], [], []
                    for g, own in entries:
                        inside = set(self.facts.walk(g))
                        here = self.total(self.below(g), nodes)
                        name = f"{peers}{key}{value}{g}"
                        new = self.has_any(here, 0, name)
                        touched.append(new)
                        stands = any(
                            int(pods.group[p]) in inside and int(pods.node[p]) in nodes
                            for p in self.standing
                        )
                        there: Any = 1 if stands else new
                        owners.append(there)
                        if own == key:
                            keyed.append(there)
                    claimed = self.cp.new_bool_var(f"keyed{peers}{key}{value}")
                    for flag in keyed:
                        self.cp.add(claimed >= flag)
                    any_new = self.cp.new_bool_var(f"touched{peers}{key}{value}")
                    for flag in touched:
                        self.cp.add_implication(flag, any_new)
                    self.cp.add(sum(owners) <= 1).only_enforce_if(claimed, any_new)

    def _selects(self, term: AffinityTerm | SpreadTerm, namespaces: Iterable[str], p: int) -> bool:
        pods = self.snapshot.pods
        inside = pods.refs[p].partition("/")[0] in set(namespaces)
        return inside and matches_selector(term.selector, pods.label_sets[pods.labels[p]])

    def _repel(self, holders: Any, others: Any, name: str) -> None:
        """Not both positive."""
        if isinstance(holders, int) or isinstance(others, int):
            return
        flag = self.cp.new_bool_var(name)
        self.cp.add(holders == 0).only_enforce_if(flag.negated())
        self.cp.add(others == 0).only_enforce_if(flag)

    def _add_anti_affinity(self) -> None:
        pods = self.snapshot.pods
        terms = {
            t for p in (*self.standing, *self.facts.pending) for t in pods.row(p).spec.anti_affinity
        }
        every = {pods.refs[p].partition("/")[0] for p in range(len(pods))}
        for i, term in enumerate(sorted(terms, key=repr)):
            namespaces = every if term.all_namespaces else set(term.namespaces)
            holds = {k for k in self.kinds if term in pods.specs[k.spec].anti_affinity}
            wanted = {k for k, m in self.kinds.items() if self._selects(term, namespaces, m[0])}
            for value, nodes in self.domains((term.key,)).items():
                here = [p for p in self.standing if int(pods.node[p]) in nodes]
                if any(self._selects(term, namespaces, p) for p in here):
                    self.cp.add(self.total(holds, nodes) == 0)
                if any(term in pods.row(p).spec.anti_affinity for p in here):
                    self.cp.add(self.total(wanted, nodes) == 0)
                self.cp.add(self.total(holds & wanted, nodes) <= 1)
                name = f"anti{i}{value}"
                self._repel(self.total(holds, nodes), self.total(wanted - holds, nodes), name)
                self._repel(
                    self.total(holds - wanted, nodes), self.total(wanted & holds, nodes), name
                )

    def _add_ports(self) -> None:
        pods = self.snapshot.pods
        ports = {k: pods.specs[k.spec].host_ports for k in self.kinds}
        for n in range(len(self.snapshot.nodes)):
            taken = [
                port
                for p in self.standing
                if int(pods.node[p]) == n
                for port in pods.row(p).spec.host_ports
            ]
            for kind, wanted in ports.items():
                if (kind, n) not in self.put or not wanted:
                    continue
                if _clash(wanted, taken):
                    self.cp.add(self.put[kind, n] == 0)
                self.cp.add(self.put[kind, n] <= 1)
            for a, b in itertools.combinations([k for k in ports if (k, n) in self.put], 2):
                if _clash(ports[a], ports[b]):
                    self._repel(self.put[a, n], self.put[b, n], f"port{n}")

    def _add_spread(self) -> None:
        pods = self.snapshot.pods
        for i, kind in enumerate(self.kinds):
            spec = pods.specs[kind.spec]
            for term in spec.spread:
                eligible: dict[str, list[int]] = {}
                for n, node in enumerate(self.snapshot.nodes):
                    if (
                        all(t.key in node.labels for t in spec.spread)
                        and (not term.honor_affinity or matches_node_affinity(spec, node))
                        and (not term.honor_taints or find_untolerated(spec, node) is None)
                    ):
                        eligible.setdefault(node.labels[term.key], []).append(n)
                wanted = [
                    k for k, m in self.kinds.items() if self._selects(term, [kind.namespace], m[0])
                ]
                counts = {}
                for value, nodes in eligible.items():
                    standing = sum(
                        int(pods.node[p]) in nodes
                        and not int(pods.flags[p]) & PodFlag.TERMINATING
                        and self._selects(term, [kind.namespace], p)
                        for p in self.standing
                    )
                    counts[value] = self.total(wanted, nodes) + standing
                least: Any = self.cp.new_int_var(0, 10_000, f"least{i}{term.key}")
                for count in counts.values():
                    self.cp.add(least <= count)
                if len(counts) < term.min_domains:
                    least = 0
                for value, count in counts.items():
                    arrive = self.total(
                        [kind],
                        [
                            n
                            for n in range(len(self.snapshot.nodes))
                            if self.snapshot.nodes[n].labels.get(term.key) == value
                        ],
                    )
                    if isinstance(arrive, int):
                        continue
                    flag = self.has_any(arrive, 0, f"spread{i}{term.key}{value}")
                    self.cp.add(count - least <= term.max_skew).only_enforce_if(flag)

    def hinted(self) -> Iterable[Any]:
        """Return the variables whose values help the next level."""
        return self.put.values()

    def objective(self, level: LevelName) -> Any:
        """Return what a placement is worth in one level, signs applied."""
        if level.criterion == "groupsPlaced":
            counted = [
                flag
                for g, flag in self.gains.items()
                if g < 0 or self.snapshot.groups[g].kind == "group"
            ]
            return level.sign * sum(counted)
        return level.sign * sum(
            self.facts.worth(self.kinds[k][0], level) * x for (k, _), x in self.put.items()
        )


def _may_enter(spec: PodSpec, node: Node) -> bool:
    keyed = [*(t.key for t in spec.affinity), *(t.key for t in spec.spread)]
    return (
        node.ready
        and matches_node_affinity(spec, node)
        and find_untolerated(spec, node) is None
        and all(key in node.labels for key in keyed)
    )


def _clash(mine: Iterable[HostPort], theirs: Iterable[HostPort]) -> bool:
    return any(
        (a.port, a.protocol) == (b.port, b.protocol) and (a.ip == b.ip or "0.0.0.0" in (a.ip, b.ip))
        for a in mine
        for b in theirs
    )


def solve_placement(
    snapshot: Snapshot, levels: Sequence[LevelName], *, effort: float = 5.0
) -> ExactAnswer:
    """Find the best placement, level after level.

    Args:
      snapshot: Small: tens of nodes.
      levels: Compared in order.
      effort: CP-SAT's deterministic time for each level.

    Returns:
      The value of every level; `proven` when each was solved to optimality.
    """
    model = PlacementModel(snapshot, Facts(snapshot))
    model.build()
    return maximize_levels(model, [model.objective(level) for level in levels], effort)


def maximize_levels(model: PlacementModel, worths: Sequence[Any], effort: float) -> ExactAnswer:
    """Maximise expressions one after another, each given those before it.

    Args:
      model: Built.
      worths: Linear expressions of its variables, or integers; more is better.
      effort: CP-SAT's deterministic time for each.

    Returns:
      As `solve_placement`.
    """
    values: list[int] = []
    proven = True
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    for worth in worths:
        if isinstance(worth, int):
            values.append(worth)
            continue
        model.cp.maximize(worth)
        status = solver.solve(model.cp)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return ExactAnswer(tuple(values), False, {})
        proven = proven and status == cp_model.OPTIMAL
        values.append(round(solver.objective_value))
        model.cp.add(worth >= values[-1])
        model.cp.clear_hints()
        for x in model.hinted():
            model.cp.add_hint(x, solver.value(x))
    nodes: dict[str, str] = {}
    pods = model.snapshot.pods
    for kind, members in model.kinds.items():
        waiting = iter(members)
        for n, node in enumerate(model.snapshot.nodes):
            if values and (kind, n) in model.put:
                for _ in range(solver.value(model.put[kind, n])):
                    nodes[pods.refs[next(waiting)]] = node.name
    return ExactAnswer(tuple(values), proven, nodes)
