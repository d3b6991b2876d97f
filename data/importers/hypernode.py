"""Volcano HyperNodes: an explicit tree over nodes, turned into one node label for each tier.

Source: topology.volcano.sh/v1alpha1 HyperNode; volcano docs/design, Network Topology Aware
Scheduling.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.fields import read_int, read_list, read_map, read_strings, read_text
from topology.model import LabelSelector, Requirement
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from data.importers.base import ImportContext, RawObject

__all__ = ["Tiers", "import_hypernodes", "read_selector", "tier_label"]

API_GROUP: Final = "topology.volcano.sh"
_MOST_REPEATS: Final = 4
_REPEAT: Final = re.compile(r"[*+{]")
_REPEATED_GROUP: Final = re.compile(r"\)\s*[*+{]")


def tier_label(tier: int) -> str:
    """Return the node label that stands for a tier."""
    return f"hypernode/tier-{tier}"


@dataclass(frozen=True, slots=True)
class Tiers:
    """The tiers of the HyperNode tree."""

    names: Mapping[str, int] = field(default_factory=dict)
    """`tierName` to tier."""
    numbers: tuple[int, ...] = ()
    """Tiers that some node is in, closest first."""
    uncovered: Mapping[int, int] = field(default_factory=dict)
    """Nodes outside each tier; tiers that cover every node are left out."""


@dataclass(slots=True)
class _HyperNode:
    obj: RawObject
    tier: int
    tier_name: str
    nodes: set[str] = field(default_factory=set)
    children: list[str] = field(default_factory=list)
    parent: str = ""


def import_hypernodes(context: ImportContext) -> Tiers:
    """Label every node with the HyperNodes that contain it.

    What breaks the tree (a second parent, a child of an equal or wider tier, a node in two
    HyperNodes of one tier) is reported and left out; the first by name stays.

    Returns:
      The tiers found.
    """
    tree: dict[str, _HyperNode] = {}

    def read(obj: RawObject) -> None:
        tree[obj.name] = _HyperNode(
            obj,
            read_int(obj.body, "spec.tier", minimum=1),
            read_text(obj.body, "spec.tierName"),
        )

    def read_members(obj: RawObject) -> None:
        _read_members(context, tree, tree[obj.name], node_labels)

    node_labels = {name: node.labels for name, node in context.nodes.items()}
    objects = context.all_of(API_GROUP, "HyperNode")
    for obj in objects:
        context.guard(obj, read)
    for obj in objects:
        if obj.name in tree:
            context.guard(obj, read_members)
    labels = _label_nodes(context, tree)
    for name, own in labels.items():
        node = context.nodes[name]
        context.nodes[name] = replace(node, labels={**node.labels, **own})
    numbers = sorted({h.tier for h in tree.values()})
    covered = {t: sum(tier_label(t) in own for own in labels.values()) for t in numbers}
    return Tiers(
        {h.tier_name: h.tier for h in tree.values() if h.tier_name},
        tuple(t for t in numbers if covered[t]),
        {t: len(context.nodes) - n for t, n in covered.items() if n < len(context.nodes)},
    )


def _read_members(
    context: ImportContext,
    tree: dict[str, _HyperNode],
    hypernode: _HyperNode,
    node_labels: Mapping[str, Mapping[str, str]],
) -> None:
    for i, member in enumerate(read_list(hypernode.obj.body, "spec.members")):
        at = f"spec.members[{i}]"
        selector = read_map(member, "selector", at=at)
        match read_text(member, "type", at=at):
            case "Node":
                hypernode.nodes |= _select(selector, node_labels, f"{at}.selector")
            case "HyperNode":
                found = _select(selector, {name: {} for name in tree}, f"{at}.selector")
                for name in sorted(found - {hypernode.obj.name}):
                    _adopt(context, hypernode, tree[name], f"{at}.selector")
            case other:
                raise ReadProblem(f"{at}.type", f"is {other!r:.40}; it must be Node or HyperNode")


def _adopt(context: ImportContext, parent: _HyperNode, child: _HyperNode, field: str) -> None:
    name = child.obj.name
    if child.parent and child.parent != parent.obj.name:
        context.report(
            parent.obj,
            field,
            f"takes HyperNode {name}, which already is a member of {child.parent}; "
            "a HyperNode has one parent: remove it here or there",
        )
    elif child.tier >= parent.tier:
        context.report(
            parent.obj,
            field,
            f"takes HyperNode {name} of tier {child.tier} into tier {parent.tier}; "
            "members must be of a smaller tier",
        )
    elif not child.parent:
        child.parent = parent.obj.name
        parent.children.append(name)


def _select(
    selector: Mapping[str, Any], candidates: Mapping[str, Mapping[str, str]], at: str
) -> set[str]:
    """Return the names a member selector selects; `candidates` are labels by name."""
    if selector.get("exactMatch") is not None:
        return {read_text(selector, "exactMatch.name", at=at)} & candidates.keys()
    if selector.get("regexMatch") is not None:
        text = read_text(selector, "regexMatch.pattern", at=at)
        field = f"{at}.regexMatch.pattern"
        # Go's expressions take linear time; what could take very long here is not tried.
        if _REPEATED_GROUP.search(text) or len(_REPEAT.findall(text)) > _MOST_REPEATS:
            raise ReadProblem(
                field, f"repeats a group or has over {_MOST_REPEATS} repetitions; simplify it"
            )
        try:
            pattern = re.compile(text)
        except (re.error, RecursionError, OverflowError) as error:
            raise ReadProblem(field, f"is no regular expression ({error}); correct it") from error
        return {name for name in candidates if pattern.search(name)}
    if selector.get("labelMatch") is not None:
        wanted = read_selector(read_map(selector, "labelMatch", at=at), f"{at}.labelMatch")
        return {name for name, labels in candidates.items() if matches_selector(wanted, labels)}
    raise ReadProblem(at, "has none of exactMatch, regexMatch and labelMatch; give one")


def read_selector(body: Mapping[str, Any], at: str) -> LabelSelector:
    """Read a label selector (`matchLabels`, `matchExpressions`)."""
    labels = read_strings(body, "matchLabels", at=at)
    requirements = [Requirement(key, "In", (labels[key],)) for key in sorted(labels)]
    for i, item in enumerate(read_list(body, "matchExpressions", at=at)):
        below = f"{at}.matchExpressions[{i}]"
        values = item.get("values") or []
        if not isinstance(values, list):
            raise ReadProblem(f"{below}.values", "is not a list; make it one")
        requirements.append(
            Requirement(
                read_text(item, "key", at=below),
                read_text(item, "operator", at=below),
                tuple(str(value) for value in values),
            )
        )
    return LabelSelector(tuple(requirements))


def _label_nodes(
    context: ImportContext, tree: Mapping[str, _HyperNode]
) -> dict[str, dict[str, str]]:
    """Return the labels of each node that is in some HyperNode."""
    labels: dict[str, dict[str, str]] = {}
    for name in sorted(tree, key=lambda n: (tree[n].tier, n)):
        hypernode = tree[name]
        for above in _ancestry(tree, name):
            key = tier_label(tree[above].tier)
            clash = sorted(
                node for node in hypernode.nodes if labels.get(node, {}).get(key, above) != above
            )
            if clash:
                context.report(
                    hypernode.obj,
                    "spec.members",
                    f"puts node {clash[0]} into HyperNode {above}, which already is in "
                    f"{labels[clash[0]][key]} of tier {tree[above].tier}; remove it from one",
                )
            for node in hypernode.nodes - set(clash):
                labels.setdefault(node, {})[key] = above
    return labels


def _ancestry(tree: Mapping[str, _HyperNode], name: str) -> Iterable[str]:
    """Yield a HyperNode and all above it; tiers grow upwards, so this ends."""
    while name:
        yield name
        name = tree[name].parent
