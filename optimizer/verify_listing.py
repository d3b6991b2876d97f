"""Rules of the plan's own lists: names exist, pods are pending, groups are complete."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from topology.model import NO_GROUP, NO_NODE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from optimizer.verify_state import Replay
    from topology.plan import GroupPlan, Plan

__all__ = ["POD_API", "Entry", "check_listing", "find_entries", "find_subgroups"]

POD_API = "v1/Pod"
"""`GroupPlan.api` of a plain pod, which a plan lists as a group of its own."""

Entry = tuple["GroupPlan", int, int]
"""(entry of the plan, its group or NO_GROUP, its plain pod or NO_NODE)."""


def find_entries(replay: Replay, plan: Plan) -> list[Entry]:
    """Return the entries of a plan whose group or plain pod exists; note the others."""
    entries: list[Entry] = []
    seen: set[tuple[int, int]] = set()
    for entry in plan.groups:
        g, p = NO_GROUP, NO_NODE
        if entry.api == POD_API:
            p = replay.pod_index.get(entry.group, NO_NODE)
            exists = p != NO_NODE and replay.group[p] == NO_GROUP
        else:
            g = replay.group_index.get(entry.group, NO_GROUP)
            exists = g != NO_GROUP
        if not replay.log.require(
            exists, "exists", entry.group, f"a {entry.api} of the snapshot", "none"
        ):
            continue
        _check_facts(replay, entry, g, p)
        if replay.log.require((g, p) not in seen, "listed-once", entry.group, "one entry", "two"):
            seen.add((g, p))
            entries.append((entry, g, p))
    return entries


def _check_facts(replay: Replay, entry: GroupPlan, g: int, p: int) -> None:
    """Check what the entry repeats of the object it stands for."""
    if g != NO_GROUP:
        api, priority = replay.snapshot.groups[g].api, replay.snapshot.groups[g].priority
    else:
        api, priority = POD_API, replay.own_priority[p]
    replay.log.require(entry.api == api, "facts", entry.group, api, entry.api)
    replay.log.require(
        entry.priority == priority,
        "facts",
        entry.group,
        f"priority {priority}",
        f"priority {entry.priority}",
    )


def check_listing(replay: Replay, entries: Sequence[Entry]) -> list[tuple[int, int]]:
    """Check the entries against the pods that wait, those a drain takes away among them.

    Returns:
      (pod, node) of every new pod that is named well enough to be placed.
    """
    waiting: defaultdict[int, set[int]] = defaultdict(set)
    for p, is_pending in enumerate(replay.is_pending):
        if is_pending:
            waiting[replay.owner(p)].add(p)
    arrivals: dict[int, int] = {}
    for entry, g, own in entries:
        wanted = waiting[g] if g != NO_GROUP else {own} & waiting[NO_GROUP]
        _check_entry(replay, entry, g)
        for placed in entry.pods:
            p = replay.pod_index.get(placed.pod, NO_NODE)
            n = replay.node_index.get(placed.node, NO_NODE)
            is_named = replay.log.require(
                p != NO_NODE, "exists", placed.pod, "a pod of the snapshot", "none"
            )
            is_named &= replay.log.require(
                n != NO_NODE, "exists", placed.pod, "a node of the snapshot", placed.node
            )
            if not is_named:
                continue
            _check_role(replay, p, g, placed.subgroup, placed.template)
            if p not in wanted and replay.is_pending[p]:
                found = replay.owner_ref(p) or "no group"
                replay.log.report("owner", placed.pod, f"listed under {found}", entry.group)
            is_new = replay.log.require(
                replay.is_pending[p],
                "pending",
                placed.pod,
                "a pod that waits for a node",
                f"on {replay.place_name(replay.node[p])}"
                if replay.holds[p]
                else "finished, gated, terminating or without its group",
            ) and replay.log.require(
                p not in arrivals, "placed-once", placed.pod, "one node", "a second one"
            )
            if is_new:
                arrivals[p] = n
        _check_rest(replay, entry, wanted)
    listed = {g if g != NO_GROUP else replay.pod_ref(p) for _, g, p in entries}
    for p in sorted(replay.drained):
        g = replay.owner(p)
        replay.log.require(
            (g if g != NO_GROUP else replay.pod_ref(p)) in listed,
            "drain-listed",
            replay.pod_ref(p),
            "an entry for the group of a drained pod",
            "none",
        )
    return list(arrivals.items())


def _check_entry(replay: Replay, entry: GroupPlan, g: int) -> None:
    is_placed = entry.outcome == "placed"
    replay.log.require(
        bool(entry.pods) == is_placed,
        "outcome",
        entry.group,
        "at least one new pod" if is_placed else "no new pod",
        f"{len(entry.pods)} new pods",
    )
    if entry.composite is not None:
        above = {replay.snapshot.groups[a].ref for a in replay.climb(g)} - {entry.group}
        replay.log.require(
            entry.composite in above,
            "exists",
            entry.group,
            "a composite above the group",
            entry.composite,
        )


def _check_role(replay: Replay, p: int, g: int, subgroup: str | None, template: str | None) -> None:
    """Check the subgroup and the template that the plan gives a pod, where it gives any."""
    if subgroup is not None:
        replay.log.require(
            bool(find_subgroups(replay, g, subgroup) & set(replay.climb(replay.group[p]))),
            "subgroup",
            replay.pod_ref(p),
            "the subgroup the pod is in",
            subgroup,
        )
    if template is not None:
        pods = replay.snapshot.pods
        own = pods.templates[int(pods.template[p])]
        replay.log.require(
            template == own, "template", replay.pod_ref(p), own or "no template", template
        )


def find_subgroups(replay: Replay, g: int, name: str) -> set[int]:
    """Return the groups below an entry's group that go by a name, or by its reference."""
    if g == NO_GROUP:
        return set()
    groups = replay.snapshot.groups
    return {
        s
        for s in replay.subtree(g)
        if s != g and name in (groups[s].name, groups[s].ref.removeprefix(f"{groups[g].ref}#"))
    }


def _check_rest(replay: Replay, entry: GroupPlan, wanted: set[int]) -> None:
    """Check that new and pending pods together are all that wait, each listed once."""
    names = [p.pod for p in entry.pods] + list(entry.pending_pods)
    own = {replay.pod_ref(p) for p in wanted}
    missing, foreign = sorted(own - set(names)), sorted(set(entry.pending_pods) - own)
    replay.log.require(
        not missing,
        "pending-pods",
        entry.group,
        f"{len(own)} waiting pods in pods and pendingPods",
        f"{', '.join(missing[:3])} left out",
    )
    replay.log.require(
        not foreign,
        "pending-pods",
        entry.group,
        "only waiting pods of the group in pendingPods",
        ", ".join(foreign[:3]),
    )
    times = Counter(names)
    twice = sorted({name for name in entry.pending_pods if times[name] > 1})
    replay.log.require(
        not twice, "pending-pods", entry.group, "each pod once", f"{', '.join(twice[:3])} twice"
    )
