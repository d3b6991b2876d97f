"""LWS replicas whose pods another API already owns."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from data.importers.lws_exclusive import exclude_group, exclude_subgroup, warn_of_keys
from data.importers.trees import add_members, add_tree, check_planned_names, root_of
from topology.assemble import GroupRow
from topology.model import PodFlag, TopologyTerm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import ImportContext
    from data.importers.lws_replica import Replica
    from topology.model import Group

__all__ = ["merge_replica"]


def merge_replica(context: ImportContext, replica: Replica, owned: Mapping[str, int]) -> bool:
    """Merge a replica into the group that owns its pods; False when it is to be its own group.

    The owner keeps its floors. What LWS enforces beside them is added: the unit of disruption,
    exclusivity, subgroups (where the owner has none of its own) and the pods not created yet.

    Args:
      context: Holds the owner.
      replica: Has pods.
      owned: Pods of each leaf, before any replica was merged.
    """
    ours = Counter(pod.row.group for _, pod in replica.pods if pod.row.group)
    if not ours:
        return False
    owner, *others = sorted({root_of(context, leaf) for leaf in ours})
    if others:
        context.warn(
            f"LeaderWorkerSet replica {replica.ref}: its pods belong to several groups "
            f"({owner}, {others[0]}); those are kept and what LWS asks for is left out"
        )
        return True
    if ours.total() < len(replica.pods):
        context.warn(
            f"LeaderWorkerSet replica {replica.ref}: some of its pods belong to {owner} and some "
            "to no group; the latter are planned by themselves"
        )
    if any(owned[leaf] > count for leaf, count in ours.items()):
        if replica.exclusive or replica.subgroup_exclusive:
            _add_reason(context, owner, "LWS exclusive topology of a shared group is not modelled")
        return True
    warn_of_keys(context, replica)
    _set_group(context, _constrain(context, context.groups[owner].group, replica))
    if set(ours) == {owner}:
        _complete(context, replica, context.groups[owner].group)
    elif replica.subgroup_exclusive:
        _add_reason(context, owner, "LWS subgroup exclusive topology is not modelled")
    return True


def _constrain(context: ImportContext, group: Group, replica: Replica) -> Group:
    terms = (TopologyTerm((replica.exclusive,)),) if replica.exclusive else ()
    return replace(
        group,
        topology=group.topology + tuple(t for t in terms if t not in group.topology),
        exclusive=(*group.exclusive, exclude_group(context, replica)),
        disruption="all" if replica.disruption == "all" else group.disruption,
        size=max(group.size, replica.shape.size),
    )


def _complete(context: ImportContext, replica: Replica, group: Group) -> None:
    """Add to a flat group the pods not created yet, and the subgroups if there are any.

    Subgroups have floors when the group needs all its pods.
    """
    parts = replica.make_parts()
    for part in parts:
        part.members = [
            m for m in part.members if m.pod.row.group or m.pod.row.flags & PodFlag.PLANNED
        ]
        check_planned_names(context, part.members)
    if not parts[0].name:
        add_members(context, group.ref, parts[0].members)
        return
    is_whole = group.policy == "gang" and group.min_count >= replica.shape.size
    for part in parts:
        if not part.is_leader:
            exclude_subgroup(context, replica, part)
        if not is_whole:
            part.min_count = 0
        for member in part.members:
            member.pod.row.group = ""
    parent = context.groups.pop(group.ref).parent
    add_tree(context, replace(group, min_groups=len(parts) if is_whole else 0), parts, parent)


def _set_group(context: ImportContext, group: Group) -> None:
    context.groups[group.ref] = GroupRow(group, context.groups[group.ref].parent)


def _add_reason(context: ImportContext, ref: str, reason: str) -> None:
    group = context.groups[ref].group
    if reason not in group.unmodelled:
        _set_group(context, replace(group, unmodelled=(*group.unmodelled, reason)))
