"""Exclusive topology of LeaderWorkerSets: one group, or one subgroup, to a domain.

The webhook injects pod (anti-)affinity without namespaces, so only groups of one namespace keep
apart, and its label test is "has a group key", so groups without the annotation are peers too.

Source: kubernetes-sigs/lws, SetExclusiveAffinities in pkg/webhooks/pod_webhook.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from data.importers.lws_labels import GROUP_KEY, SUBGROUP_KEY
from topology.model import Exclusive, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportContext
    from data.importers.lws_replica import Replica
    from data.importers.trees import Part
    from topology.model import AffinityTerm, PodSpec

__all__ = ["exclude_group", "exclude_subgroup", "warn_of_keys"]


def warn_of_keys(context: ImportContext, replica: Replica) -> None:
    """Warn of keys that no node carries and of one key at both levels."""
    name = f"LeaderWorkerSet {replica.namespace}/{replica.lws}"
    for key in sorted({replica.exclusive, replica.subgroup_exclusive} - {""}):
        if not any(key in node.labels for node in context.nodes.values()):
            context.warn(f"{name}: no node has label {key}, which it wants to be exclusive on")
    if replica.exclusive and replica.exclusive == replica.subgroup_exclusive:
        context.warn(
            f"{name}: group and subgroups are exclusive on the same key {replica.exclusive}; "
            "two or more subgroups of a group can never be placed so"
        )


def exclude_group(context: ImportContext, replica: Replica) -> Exclusive:
    """Return the group's place in the class of all LWS groups of its namespace."""
    key = replica.exclusive
    spec = None
    if replica.leader is not None:
        spec = replica.leader.row.spec
    elif replica.lws_set is not None:
        spec = replica.lws_set.leader.spec
    if key and spec is not None and _is_skipped(spec, key, GROUP_KEY):
        _warn_skipped(context, replica, key)
        key = ""
    return Exclusive(f"lws-group:{replica.namespace}", key or None)


def exclude_subgroup(context: ImportContext, replica: Replica, part: Part) -> None:
    """Give a subgroup its place in the class of all LWS subgroups of its namespace.

    Under an annotation all its pods get the terms, so they share one domain as well.
    """
    key = replica.subgroup_exclusive
    if key and all(_is_skipped(m.pod.row.spec, key, SUBGROUP_KEY) for m in part.members):
        _warn_skipped(context, replica, key)
        key = ""
    if key:
        part.topology = (TopologyTerm((key,)),)
    part.exclusive = (Exclusive(f"lws-subgroup:{replica.namespace}", key or None),)


def _is_skipped(spec: PodSpec, key: str, label: str) -> bool:
    """Tell whether the webhook leaves the pod as it is, for it has terms of its user on the key."""

    def on_key(terms: tuple[AffinityTerm, ...]) -> list[AffinityTerm]:
        return [term for term in terms if term.key == key]

    terms = on_key(spec.affinity), on_key(spec.anti_affinity)
    injected = any(
        term.selector is not None and any(r.key == label for r in term.selector.requirements)
        for side in terms
        for term in side
    )
    return all(terms) and not injected


def _warn_skipped(context: ImportContext, replica: Replica, key: str) -> None:
    context.warn(
        f"LeaderWorkerSet {replica.namespace}/{replica.lws}: its pods have affinity and "
        f"anti-affinity terms of their own on {key}, so LWS adds none and they are not exclusive"
    )
