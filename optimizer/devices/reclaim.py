"""Claims that count as released once their users are evicted, as a what-if.

kube-scheduler 1.37 releases none (its DRA plugin keeps its own device state and reports shortage as
unresolvable), so `none` is the faithful answer. `node-local` is what enhancements#6113 proposes:
claims of pods alone, all of whose devices are of one node. `all` takes every claim whose users are
all gone, claims of a PodGroup among it.

Source: enhancements#5690, #6113.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from topology.devices import AllocatedClaim, DeviceTable, Reserver
    from topology.model import Snapshot

__all__ = ["find_releasing", "release_claims"]


def find_releasing(snapshot: Snapshot, reclaim: str) -> dict[int, frozenset[int]]:
    """Return claim -> the running pods that all have to go so that it counts as released.

    Args:
      snapshot: The fleet; those evicted already no longer reserve anything.
      reclaim: `Request.dra_reclaim`.

    Returns:
      Indices into `DeviceTable.claims`; claims that nothing releases are left out.
    """
    if reclaim == "none":
        return {}
    pods = snapshot.pods
    standing = pods.holds_room & (pods.node >= 0)
    index = {pods.refs[p]: p for p in np.flatnonzero(standing).tolist()}
    members = _find_members(snapshot)
    found = {}
    for c, claim in enumerate(snapshot.devices.claims):
        if not _may_release(claim, reclaim):
            continue
        users = [_find_users(reserver, index, members) for reserver in claim.reserved_for]
        if all(users):
            found[c] = frozenset().union(*users)
    return found


def _may_release(claim: AllocatedClaim, reclaim: str) -> bool:
    if not claim.reserved_for:
        return False  # Nobody's eviction releases what nobody uses.
    is_of_pods = all(reserver.resource == "pods" for reserver in claim.reserved_for)
    return reclaim == "all" or (claim.is_node_local and is_of_pods)


def _find_users(
    reserver: Reserver, index: Mapping[str, int], members: Mapping[str, frozenset[int]]
) -> frozenset[int]:
    """Return the running pods behind a reservation; none where it outlives its pods."""
    if reserver.resource == "pods":
        return frozenset([index[reserver.ref]]) if reserver.ref in index else frozenset()
    return members.get(reserver.ref, frozenset())


def _find_members(snapshot: Snapshot) -> dict[str, frozenset[int]]:
    """Return group -> pods of its subtree that hold room."""
    pods, groups = snapshot.pods, snapshot.groups
    found: defaultdict[str, set[int]] = defaultdict(set)
    inside = np.flatnonzero(pods.holds_room & (pods.group >= 0))
    for p in inside.tolist():
        g = int(pods.group[p])
        while g >= 0:
            found[groups[g].ref].add(p)
            g = groups[g].parent
    return {ref: frozenset(members) for ref, members in found.items()}


def release_claims(snapshot: Snapshot, gone: Collection[int], reclaim: str) -> DeviceTable:
    """Return the device table once pods are gone, as the claim controller would leave it.

    Args:
      snapshot: The fleet with these pods still there.
      gone: Evicted pods.
      reclaim: `Request.dra_reclaim`.
    """
    table = snapshot.devices
    if reclaim == "none" or not table.claims:
        return table
    leaving = set(gone)
    released = {c for c, users in find_releasing(snapshot, reclaim).items() if users <= leaving}
    refs = {snapshot.pods.refs[p] for p in leaving}
    kept = []
    for c, claim in enumerate(table.claims):
        if c in released:
            continue
        # Others of its users may go later, and then it is released all the same.
        staying = tuple(r for r in claim.reserved_for if r.resource != "pods" or r.ref not in refs)
        kept.append(
            claim
            if len(staying) == len(claim.reserved_for) or not _may_release(claim, reclaim)
            else replace(claim, reserved_for=staying)
        )
    return replace(table, claims=tuple(kept))
