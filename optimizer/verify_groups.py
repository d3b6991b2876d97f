"""Rules of the group forest in the final state: floors, refusals, domains, slices, exclusivity."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from optimizer.verify_listing import find_subgroups
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from optimizer.verify_listing import Entry
    from optimizer.verify_state import Replay
    from topology.model import SliceTerm
    from topology.plan import ChosenDomain, Plan

__all__ = ["check_groups", "check_places"]

_REFUSED_BY_1_37 = "1.37: "
"""How `Group.blocked` starts where only that release refuses the group."""


@dataclass(slots=True)
class _Membership:
    """Pods of each leaf at the end; `touched` are groups with a new or moved pod below."""

    own: Counter[int] = field(default_factory=Counter)
    """Leaf -> its running and new pods."""
    new: Counter[int] = field(default_factory=Counter)
    """Group -> new pods in its subtree."""
    touched: set[int] = field(default_factory=set)


def check_groups(replay: Replay, plan: Plan, entries: Sequence[Entry]) -> None:
    """Check every group that got a pod, or had one moved, once all pods are where they end."""
    members = _count_members(replay)
    _check_floors(replay, plan, members)
    check_places(replay, members.touched)
    for entry, g, p in entries:
        for domain in entry.domains:
            _check_chosen(replay, entry.group, g, p, domain)


def check_places(replay: Replay, touched: Iterable[int]) -> None:
    """Check the domains, slices and exclusive domains of groups as their pods stand now."""
    groups = replay.snapshot.groups
    found = sorted(touched)
    for g in found:
        _check_topology(replay, g)
        for term in groups[g].slices:
            if term.required:
                _check_slices(replay, g, term)
    if any(groups[g].exclusive for g in found):
        _check_exclusive(replay)


def _count_members(replay: Replay) -> _Membership:
    members = _Membership()
    for p, leaf in enumerate(replay.group):
        if leaf != NO_GROUP and replay.is_member[p]:
            members.own[leaf] += 1
    for p in replay.placed:
        members.new.update(replay.climb(replay.group[p]))
    for p in replay.moved:
        members.touched.update(replay.climb(replay.group[p]))
    members.touched |= members.new.keys()
    return members


def _check_floors(replay: Replay, plan: Plan, members: _Membership) -> None:
    """Check that each group with a new pod below it succeeds, and is not refused as a whole."""
    groups = replay.snapshot.groups
    roots = {list(replay.climb(g))[-1] for g in members.new}
    for root in sorted(roots):
        counts: dict[int, int] = {}
        succeeds: dict[int, bool] = {}
        # Children come after their parent in a walk down, so the reverse meets them first.
        for g in reversed(list(replay.subtree(root))):
            group = groups[g]
            passing = [c for c in replay.children[g] if succeeds[c]]
            counts[g] = members.own[g] + sum(counts[c] for c in passing)
            # A basic child is a gang of one: it takes a pod to count among its siblings.
            num_groups = sum(counts[c] > 0 or groups[c].policy != "basic" for c in passing)
            is_free = group.is_inferred and not plan.request.assume_gangs
            floor, floor_groups = (0, 0) if is_free else (group.min_count, group.min_groups)
            succeeds[g] = counts[g] >= floor and num_groups >= floor_groups
            if g not in members.new:
                continue
            replay.log.require(
                counts[g] >= floor,
                "floor",
                group.ref,
                f"at least {floor} pods running or placed",
                f"{counts[g]} pods",
            )
            replay.log.require(
                num_groups >= floor_groups,
                "floor",
                group.ref,
                f"at least {floor_groups} children that succeed",
                f"{num_groups} children",
            )
            is_refused = bool(group.blocked) and (
                plan.request.release == "1.37" or not group.blocked.startswith(_REFUSED_BY_1_37)
            )
            replay.log.require(not is_refused, "blocked", group.ref, "no new pod", group.blocked)


def _locate(replay: Replay, p: int, path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the domain of a path that a pod is in, None where a label is missing."""
    n = replay.node[p]
    if n < 0:
        return None
    labels = replay.snapshot.nodes[n].labels
    value = tuple(labels[key] for key in path if key in labels)
    return value if len(value) == len(path) else None


def _count_domains(
    replay: Replay, pods: Iterable[int], path: tuple[str, ...]
) -> Counter[tuple[str, ...] | None]:
    return Counter(_locate(replay, p, path) for p in pods)


def _name_domains(counts: Counter[tuple[str, ...] | None]) -> str:
    names = {"/".join(d) if d is not None else "no domain": c for d, c in counts.items()}
    return ", ".join(f"{count} in {name}" for name, count in sorted(names.items())[:4])


def _check_topology(replay: Replay, g: int) -> None:
    group = replay.snapshot.groups[g]
    for term in group.topology:
        if not term.required:
            continue
        counts = _count_domains(replay, replay.members_below(g), term.path)
        replay.log.require(
            None not in counts and len(counts) <= 1,
            "topology",
            group.ref,
            f"all pods in one {term.key}",
            _name_domains(counts),
        )


def _check_slices(replay: Replay, g: int, term: SliceTerm) -> None:
    """Check that the pods of a leaf can be cut into runs that each stay in one domain.

    Pods of a leaf are alike, so any cut will do: in every domain of the path the number of pods,
    running and new, is a multiple of the size, but for one domain that also holds the last, shorter
    run when their total is not a multiple. Nested slices are checked level by level.
    """
    counts = _count_domains(replay, replay.members_below(g), term.path)
    rest = counts.total() % term.size
    odd = [count % term.size for count in counts.values() if count % term.size]
    replay.log.require(
        None not in counts and odd == ([rest] if rest else []),
        "slice",
        replay.snapshot.groups[g].ref,
        f"runs of {term.size} pods in one {term.path[-1]} each",
        _name_domains(counts),
    )


def _check_exclusive(replay: Replay) -> None:
    """Check that groups of one class keep out of domains that a keyed group of the class holds.

    Pods that hold room count, terminating ones included. Domains that got no new or moved pod of
    the class are as the plan found them and are not its fault.
    """
    groups = replay.snapshot.groups
    classes: defaultdict[str, list[tuple[int, str | None]]] = defaultdict(list)
    for g, group in enumerate(groups):
        for exclusive in group.exclusive:
            classes[exclusive.peers].append((g, exclusive.key))
    for peers, entries in sorted(classes.items()):
        keys = {key for _, key in entries if key is not None}
        owners: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
        keyed: set[tuple[str, str]] = set()
        touched: set[tuple[str, str]] = set()
        for g, own_key in entries:
            for p in replay.pods_below(g):
                n = replay.node[p]
                if n < 0 or not replay.holds[p]:
                    continue
                labels = replay.snapshot.nodes[n].labels
                for domain in ((key, labels[key]) for key in keys if key in labels):
                    owners[domain].add(g)
                    if own_key == domain[0]:
                        keyed.add(domain)
                    if p in replay.placed or p in replay.moved:
                        touched.add(domain)
        for domain in sorted(keyed & touched):
            here = sorted(owners[domain])
            replay.log.require(
                len(here) == 1,
                "exclusive",
                f"{domain[0]}={domain[1]}",
                f"one group of {peers}",
                ", ".join(groups[g].ref for g in here[:3]),
            )


def _check_chosen(replay: Replay, ref: str, g: int, p: int, domain: ChosenDomain) -> None:
    """Check that the pods are in the domain that the plan names."""
    name = ref if domain.subgroup is None else f"{ref}#{domain.subgroup}"
    if g == NO_GROUP:
        pods = [p] if replay.holds[p] else []
    elif domain.subgroup is None:
        pods = replay.members_below(g)
    else:
        below = find_subgroups(replay, g, domain.subgroup)
        replay.log.require(bool(below), "exists", name, "a subgroup of the snapshot", "none")
        pods = sorted({q for s in below for q in replay.members_below(s)})
    counts = _count_domains(replay, pods, (domain.key,))
    replay.log.require(
        counts.keys() == {(domain.value,)},
        "domain",
        name,
        f"all pods in {domain.key}={domain.value}",
        _name_domains(counts) or "no pods",
    )
