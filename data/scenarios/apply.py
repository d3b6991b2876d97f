"""Scenario x snapshot -> the snapshot in which it has happened, and the rules that then hold.

Order: nodes come, change, go and are cordoned; groups go, change and come. Drains are not carried
out here: what has to leave is part of the plan, so the nodes are cordoned and named in `drain`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from data.importers.base import ReadProblem
from data.quantities import parse_quantity
from data.scenarios.columns import copy_tree, join_pods, keep_groups, replace_nodes
from data.scenarios.select import (
    find_root,
    find_tree,
    list_domains,
    select_groups,
    select_nodes,
)
from topology.disruption import complete_units, release_pods, take_pods
from topology.errors import RequestError, SnapshotError
from topology.model import (
    HOSTNAME,
    NO_GROUP,
    NO_NODE,
    PODS,
    Node,
    Phase,
    PodFlag,
    Taint,
    TopologyTerm,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from data.scenarios.wire import AddGroups, AddNodes, Change, Scenario
    from topology.model import Group, PodSpec, Snapshot

__all__ = ["Changed", "apply_scenario"]


@dataclass(frozen=True, slots=True)
class Changed:
    """What a scenario makes of a snapshot."""

    snapshot: Snapshot
    drain: tuple[str, ...] = ()
    """Nodes whose pods have to leave, by name."""
    lost: tuple[str, ...] = ()
    """Pods that ran on nodes that are gone, and those that stopped with them."""
    rules: Mapping[str, str] = field(default_factory=dict)
    """`release`, `dra_reclaim`, `pdb`, `drain_unit` where they are other than asked."""
    groups: tuple[str, ...] = ()
    """References of pending groups that the scenario added."""
    changes: int = 0
    """Number of edits, 0 for the snapshot as it is."""


def apply_scenario(snapshot: Snapshot, scenario: Scenario) -> Changed:
    """Return the snapshot in which a scenario has happened; the given one stays as it is.

    Raises:
      RequestError: A part of it names nothing, or says what cannot be; the line names the part.
    """
    return _Edit(snapshot, scenario).run()


class _Edit:
    def __init__(self, snapshot: Snapshot, scenario: Scenario) -> None:
        self.before = self.now = snapshot
        self.scenario = scenario
        self.rules: dict[str, str] = {}
        self.added: list[str] = []
        self.lost: set[str] = set()
        self.changes = 0

    def run(self) -> Changed:
        scenario = self.scenario
        changes = scenario.set if isinstance(scenario.set, list) else [scenario.set]
        for i, addition in enumerate(_as_list(scenario.add)):
            self._add_nodes(addition, self._where(f"add[{i}]"))
        for i, change in enumerate(changes):
            if change.nodes is not None:
                self._change_nodes(change, self._where(f"set[{i}]"))
        for field_name, selection in (("remove", scenario.remove), ("fail", scenario.fail)):
            if selection:
                self._lose(select_nodes(self.now, selection, self._where(field_name)))
        drained = self._cordon(scenario.drain, "drain")
        self._cordon(scenario.cordon, "cordon")
        for pattern in _as_list(scenario.groups.remove):
            self._remove_group(pattern)
        for i, change in enumerate(changes):
            if change.nodes is None and change.group is not None:
                self._change_groups(change, self._where(f"set[{i}]"))
            elif change.nodes is None:
                self._set_rules(change, self._where(f"set[{i}]"))
        for i, added in enumerate(_as_list(scenario.groups.add)):
            self._add_groups(added, self._where(f"groups.add[{i}]"))
        return Changed(
            self.now,
            tuple(self.now.nodes[n].name for n in drained),
            tuple(sorted(self.lost)),
            self.rules,
            tuple(sorted(self.added)),
            self.changes,
        )

    def _where(self, part: str) -> str:
        return f"scenario {self.scenario.name}: {part}"

    # Nodes

    def _add_nodes(self, addition: AddNodes, where: str) -> None:
        if (addition.nodes is None) == (addition.domains is None):
            raise RequestError(f"{where}: write nodes: or domains:, how many of them")
        taken = {node.name for node in self.now.nodes}
        made: list[Node] = []
        if addition.nodes is not None:
            like = Node("")
            if isinstance(addition.like, str):
                like = self.now.nodes[select_nodes(self.now, addition.like, f"{where}.like")[0]]
            elif addition.like is not None:
                chosen = {addition.like.key: addition.like.value}
                like = self.now.nodes[select_nodes(self.now, chosen, f"{where}.like")[0]]
            elif not addition.allocatable:
                raise RequestError(f"{where}: write like: NODE, or allocatable: what nodes have")
            made = [
                self._make_node(like, f"{addition.name}-{i}", addition, {}, where)
                for i in range(addition.nodes)
            ]
        else:
            made = self._copy_domains(addition, where)
        for node in made:
            if node.name in taken:
                raise RequestError(f"{where}.name: node {node.name} is there already; rename")
            taken.add(node.name)
        self.now = replace_nodes(self.now, [*self.now.nodes, *made])
        self.changes += 1

    def _copy_domains(self, addition: AddNodes, where: str) -> list[Node]:
        like = addition.like
        if like is None or isinstance(like, str):
            raise RequestError(f"{where}.like: write key: and value: of the domain to copy")
        members = select_nodes(self.now, {like.key: like.value}, f"{where}.like")
        known = set(list_domains(self.now, like.key))
        inner = self._find_inner_keys(like.key, like.value, members)
        made = []
        for d in range(addition.domains or 0):
            value = f"{addition.name}-{d}"
            if value in known:
                raise RequestError(f"{where}.name: {like.key}={value} is there already; rename")
            for i, n in enumerate(members):
                node = self.now.nodes[n]
                labels = {like.key: value}
                labels |= {
                    key: f"{value}-{node.labels[key]}" for key in inner if key in node.labels
                }
                made.append(self._make_node(node, f"{value}-{i}", addition, labels, where))
        return made

    def _find_inner_keys(self, key: str, value: str, members: Sequence[int]) -> list[str]:
        """Return topology keys whose domains lie inside the copied one: copies get their own."""
        from topology.levels import find_keys_in_use

        inside, found = set(members), []
        for other in find_keys_in_use(self.now):
            if other in (key, HOSTNAME):
                continue
            values = {self.now.nodes[n].labels.get(other) for n in members} - {None}
            reach = {n for n, node in enumerate(self.now.nodes) if node.labels.get(other) in values}
            if values and reach <= inside and (len(values) > 1 or len(reach) < len(inside)):
                found.append(other)
        return found

    def _make_node(
        self, like: Node, name: str, addition: AddNodes, labels: Mapping[str, str], where: str
    ) -> Node:
        amounts = dict(like.allocatable)
        for resource, amount in addition.allocatable.items():
            amounts[resource] = _read_amount(resource, amount, f"{where}.allocatable.{resource}")
        amounts.setdefault(PODS, 110)
        taints = like.taints
        if addition.taints is not None:
            taints = tuple(Taint(t.key, t.value, t.effect) for t in addition.taints)
        return Node(
            name,
            {**like.labels, **labels, **addition.labels, HOSTNAME: name},
            amounts,
            taints,
        )

    def _change_nodes(self, change: Change, where: str) -> None:
        _refuse(change, where, "nodes", ("labels", "taints", "unschedulable"))
        assert change.nodes is not None
        nodes = list(self.now.nodes)
        for n in select_nodes(self.now, change.nodes, f"{where}.nodes"):
            labels = {**nodes[n].labels, **change.labels}
            nodes[n] = replace(
                nodes[n],
                labels={key: value for key, value in labels.items() if value is not None},
                taints=nodes[n].taints
                if change.taints is None
                else tuple(Taint(t.key, t.value, t.effect) for t in change.taints),
                unschedulable=nodes[n].unschedulable
                if change.unschedulable is None
                else change.unschedulable,
            )
        self.now = replace_nodes(self.now, nodes)
        self.changes += 1

    def _lose(self, chosen: Sequence[int]) -> None:
        pods = self.now.pods
        there = np.flatnonzero(pods.is_running_member & np.isin(pods.node, list(chosen)))
        with_them = complete_units(self.now, there)
        comes_back = (pods.flags & (PodFlag.DAEMON | PodFlag.STATIC)) == 0
        self.lost |= {pods.refs[p] for p in with_them[comes_back[with_them]].tolist()}
        self.now = release_pods(self.now, np.setdiff1d(with_them, there))
        gone = set(chosen)
        self.now = replace_nodes(
            self.now, [node for n, node in enumerate(self.now.nodes) if n not in gone]
        )
        self.changes += 1

    def _cordon(self, selection: Any, part: str) -> list[int]:
        if not selection:
            return []
        chosen = select_nodes(self.now, selection, self._where(part))
        nodes = list(self.now.nodes)
        for n in chosen:
            nodes[n] = replace(nodes[n], unschedulable=True)
        self.now = replace(self.now, nodes=tuple(nodes))
        self.changes += 1
        return chosen

    # Groups

    def _remove_group(self, pattern: str) -> None:
        gone: set[int] = set()
        for g in select_groups(self.now, pattern, self._where("groups.remove")):
            gone |= set(find_tree(self.now, g))
        kept = [g for g in range(len(self.now.groups)) if g not in gone]
        self.now = keep_groups(self.now, kept)
        self.changes += 1

    def _change_groups(self, change: Change, where: str) -> None:
        allowed = (
            "group",
            "priority",
            "minCount",
            "topologyKey",
            "topologyMode",
            "disruptionMode",
            "preemptionPolicy",
            "requests",
        )
        _refuse(change, where, "group", allowed)
        assert change.group is not None
        for g in select_groups(self.now, change.group, f"{where}.group"):
            self._change_group(g, change, where)
        self.changes += 1

    def _change_group(self, g: int, change: Change | AddGroups, where: str) -> None:
        groups = list(self.now.groups)
        groups[g] = _edit_group(groups[g], change, where)
        if change.priority is not None:
            # One priority in the whole tree, and that of its pods.
            tree = find_tree(self.now, find_root(self.now, g))
            for other in tree:
                groups[other] = replace(groups[other], priority=change.priority)
            pods = self.now.pods
            own = np.isin(pods.group, np.array(tree, np.int32))
            priority = np.where(own, change.priority, pods.priority).astype(np.int32)
            self.now = replace(self.now, pods=replace(pods, priority=priority))
        self.now = replace(self.now, groups=tuple(groups))
        if change.requests:
            self._change_requests(find_tree(self.now, g), change.requests, where)

    def _change_requests(
        self, tree: Sequence[int], requests: Mapping[str, Any], where: str
    ) -> None:
        amounts = {
            resource: _read_amount(resource, amount, f"{where}.requests.{resource}")
            for resource, amount in requests.items()
        }
        pods = self.now.pods
        rows = np.flatnonzero(np.isin(pods.group, np.array(tree, np.int32)) & pods.is_pending)
        specs = list(pods.specs)
        changed: dict[int, int] = {}
        for x in np.unique(pods.spec[rows]).tolist():
            spec = _edit_requests(specs[x], amounts)
            changed[x] = specs.index(spec) if spec in specs else len(specs)
            if changed[x] == len(specs):
                specs.append(spec)
        column = pods.spec.copy()
        column[rows] = [changed[x] for x in pods.spec[rows].tolist()]
        self.now = replace(self.now, pods=replace(pods, specs=tuple(specs), spec=column))

    def _add_groups(self, added: AddGroups, where: str) -> None:
        if (added.like is None) == (added.manifest is None):
            raise RequestError(f"{where}: write like: GROUP, or manifest: a file or objects")
        before = {group.ref for group in self.now.groups} | set(self.now.pods.refs)
        if added.like is not None:
            source = self.now
            roots = [find_root(source, g) for g in select_groups(source, added.like, where)]
        else:
            source = self._read_manifest(added.manifest, where)
            roots = [g for g, group in enumerate(source.groups) if group.parent == NO_GROUP]
            if not roots:
                raise RequestError(f"{where}.manifest: holds no group; add a PodGroup and its pods")
        width = len(str(added.times))
        for copy in range(1, added.times + 1):
            plain = added.manifest is not None and added.times == 1
            suffix = "" if plain else f"-copy-{copy:0{width}}"
            for root in sorted(set(roots)):
                self._join(source, root, suffix, before, added, where)
        self.changes += 1

    def _join(
        self,
        source: Snapshot,
        root: int,
        suffix: str,
        taken: set[str],
        added: AddGroups,
        where: str,
    ) -> None:
        tree = find_tree(source, root)
        groups, _, refs, rows = copy_tree(source, tree, suffix)
        clash = next((ref for ref in (groups[0].ref, *refs) if ref in taken), None)
        if clash is not None:
            raise RequestError(f"{where}: {clash} is in the snapshot already; rename")
        taken.update(refs)
        taken.update(group.ref for group in groups)
        table = take_pods(source.pods, rows)
        count = len(rows)
        keep = ~np.int16(PodFlag.TERMINATING | PodFlag.GATED | PodFlag.WAITING)
        table = replace(
            table,
            refs=tuple(refs),
            node=np.full(count, NO_NODE, np.int32),
            nominated=np.full(count, NO_NODE, np.int32),
            phase=np.full(count, Phase.PENDING, np.int8),
            started=np.full(count, -1, np.int64),
            checkpoint=np.full(count, -1, np.int64),
            flags=((table.flags & keep) | PodFlag.PLANNED).astype(np.int16),
        )
        inside = {g: i for i, g in enumerate(tree)}
        owners = np.array([inside[g] for g in source.pods.group[rows].tolist()], np.int64)
        parents = [group.parent for group in groups]
        self.now = join_pods(self.now, groups, parents, table, owners)
        at = next(g for g, group in enumerate(self.now.groups) if group.ref == groups[0].ref)
        self._change_group(at, added, where)
        self.added += [group.ref for group in groups if group.kind == "group"]

    def _read_manifest(self, manifest: Any, where: str) -> Snapshot:
        from data.reader import format_error, read_objects

        if isinstance(manifest, str):
            raise RequestError(
                f"{where}.manifest: {manifest!r} is a file name; only a scenarios file may name "
                "files, give the objects here"
            )
        keys = {key for labels in self.now.pods.label_sets for key in labels}
        try:
            found = read_objects(manifest, pod_labels=keys)
        except SnapshotError as problem:
            raise RequestError(f"{where}.manifest: {problem}") from None
        if found.errors:
            raise RequestError(f"{where}.manifest: {format_error(found.errors[0])}")
        return found

    def _set_rules(self, change: Change, where: str) -> None:
        names = {
            "release": "release",
            "draReclaim": "dra_reclaim",
            "pdb": "pdb",
            "drainUnit": "drain_unit",
        }
        _refuse(change, where, "rules", tuple(names))
        found = {names[k]: v for k in names if (v := getattr(change, k)) is not None}
        if not found and len(_as_list(self.scenario.set)) > 0 and _is_empty(change):
            raise RequestError(f"{where}: changes nothing; name group:, nodes: or a rule")
        self.rules |= found
        self.changes += 1


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_empty(change: Change) -> bool:
    return all(not getattr(change, name) for name in change.__struct_fields__)


def _refuse(change: Change, where: str, subject: str, allowed: Sequence[str]) -> None:
    """Refuse fields that say nothing about what is changed."""
    for name in change.__struct_fields__:
        is_given = getattr(change, name) not in (None, {})
        if is_given and name not in (*allowed, subject):
            whose = {"rules": "a change without group: or nodes:"}.get(subject, f"{subject}:")
            raise RequestError(f"{where}.{name}: does not go with {whose}; write it by itself")


def _read_amount(resource: str, amount: Any, where: str) -> int:
    try:
        return parse_quantity(amount, resource)
    except (ValueError, ReadProblem) as problem:
        raise RequestError(f"{where}: {problem}") from None


def _edit_requests(spec: PodSpec, amounts: Mapping[str, int]) -> PodSpec:
    requests = {**dict(spec.requests), **amounts}
    return replace(spec, requests=tuple(sorted((k, v) for k, v in requests.items() if v)))


def _edit_group(group: Group, change: Change | AddGroups, where: str) -> Group:
    edits: dict[str, Any] = {}
    if change.minCount is not None:
        if change.minCount > max(group.size, group.min_count):
            raise RequestError(
                f"{where}.minCount: is {change.minCount}, but {group.ref} has {group.size} pods"
            )
        edits |= {"min_count": change.minCount, "policy": "gang" if change.minCount else "basic"}
    key, mode = change.topologyKey, change.topologyMode
    if key is not None or mode is not None:
        terms = list(group.topology)
        if key == "":
            terms = []
        elif key is not None:
            terms = [*terms[:-1], TopologyTerm((key,), mode != "preferred")]
        elif not terms:
            raise RequestError(
                f"{where}.topologyMode: {group.ref} has no topology key; write topologyKey too"
            )
        if mode is not None and terms:
            terms[-1] = replace(terms[-1], required=mode == "required")
        edits["topology"] = tuple(terms)
    disruption = getattr(change, "disruptionMode", None)
    if disruption is not None:
        edits["disruption"] = disruption
    policy = getattr(change, "preemptionPolicy", None)
    if policy is not None:
        edits["never_preempts"] = policy == "Never"
    return replace(group, **edits)
