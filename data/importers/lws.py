"""LeaderWorkerSet replicas: one group each, from objects, from pods, or from both.

Pods that exist are believed before the object: during a rolling update the size and the subgroup
policy belong to a revision, and only the pods say which.

Source: kubernetes-sigs/lws, pkg/controllers/pod_controller.go and pkg/webhooks/pod_webhook.go.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from data.importers.base import ReadProblem
from data.importers.fields import parse_index
from data.importers.kueue_request import find_ignored
from data.importers.lws_exclusive import exclude_group, exclude_subgroup, warn_of_keys
from data.importers.lws_labels import GROUP_INDEX, GROUP_KEY, NAME, WORKER_INDEX
from data.importers.lws_merge import merge_replica
from data.importers.lws_replica import Replica
from data.importers.lws_set import API_GROUP, read_sets
from data.importers.trees import add_tree, is_member
from topology.model import Group, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportContext
    from data.importers.lws_set import LwsSet

__all__ = ["import_lws"]


def import_lws(context: ImportContext) -> None:
    """Add one inferred gang for each LWS replica, with the pods that are still to be created.

    A replica whose pods another API already owns is merged into that group.
    """
    sets = read_sets(context)
    replicas = _collect(context, sets)
    owned = Counter(pod.row.group for pod in context.pods.values() if pod.row.group)
    for lws_set in sets.values():
        replicas += _missing_replicas(lws_set, replicas)
    for replica in sorted(replicas, key=lambda r: r.ref):
        try:
            if not merge_replica(context, replica, owned):
                _add_replica(context, replica)
        except ReadProblem as problem:
            culprit = replica.lws_set.obj if replica.lws_set else replica.pods[0][1]
            context.report(culprit, problem.field, problem.message)


def _collect(context: ImportContext, sets: dict[str, LwsSet]) -> list[Replica]:
    """Return the replicas that have pods, by group key where the pods carry one."""
    found: dict[tuple[str, str, str], Replica] = {}
    for ref in sorted(context.pods):
        pod = context.pods[ref]
        labels = pod.row.labels
        if NAME not in labels or GROUP_INDEX not in labels:
            continue
        worker = parse_index(labels.get(WORKER_INDEX))
        if worker < 0:
            context.report(
                pod,
                f"metadata.labels.{WORKER_INDEX}",
                f"is {labels.get(WORKER_INDEX)!r:.40}; set it to the index of the pod in its group",
            )
            continue
        lws = labels[NAME]
        key = (pod.namespace, lws, labels.get(GROUP_KEY) or labels[GROUP_INDEX])
        if key not in found:
            found[key] = Replica(
                pod.namespace, lws, labels[GROUP_INDEX], sets.get(f"{pod.namespace}/{lws}")
            )
        found[key].pods.append((worker, pod))
    for replica in found.values():
        replica.pods.sort(key=lambda item: (item[0], item[1].row.ref))
    return list(found.values())


def _missing_replicas(lws_set: LwsSet, replicas: list[Replica]) -> list[Replica]:
    """Return the replicas an object wants that have no pods yet."""
    own = [r for r in replicas if r.lws_set is lws_set]
    if lws_set.has_hash_identity or any(parse_index(r.index) < 0 for r in own):
        # Their hashes do not exist yet either, so numbers stand for them.
        live = sum(any(is_member(pod) for _, pod in r.pods) for r in own)
        indices = range(live, lws_set.replicas)
    else:
        indices = range(lws_set.replicas)
    taken = {r.index for r in own}
    obj = lws_set.obj
    return [
        Replica(obj.namespace, obj.name, str(i), lws_set) for i in indices if str(i) not in taken
    ]


def _add_replica(context: ImportContext, replica: Replica) -> None:
    parts = replica.make_parts()
    warn_of_keys(context, replica)
    exclusive = exclude_group(context, replica)
    for part in parts:
        if part.name and not part.is_leader:
            exclude_subgroup(context, replica, part)
    group = Group(
        replica.ref,
        "group",
        replica.lws_set.obj.api if replica.lws_set else f"{API_GROUP}/v1/LeaderWorkerSet",
        min_count=replica.shape.size,
        min_groups=sum(bool(part.name) for part in parts),
        size=replica.shape.size,
        priority=replica.priority,
        topology=(TopologyTerm((replica.exclusive,)),) if replica.exclusive else (),
        exclusive=(exclusive,),
        disruption=replica.disruption,
        created=replica.created,
        is_inferred=True,
        unmodelled=find_ignored(m.pod for part in parts for m in part.members),
    )
    add_tree(context, group, parts)
