"""Hard topology spread of the pods that arrived, in the final state.

Source: PodTopologySpread of kube-scheduler (`DoNotSchedule` constraints).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from topology.model import PodFlag
from topology.selectors import find_untolerated, matches_node_affinity, matches_selector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from optimizer.verify_state import Replay
    from topology.model import Node, PodSpec, SpreadTerm

__all__ = ["check_spread"]


def check_spread(replay: Replay) -> None:
    """Check the skew of every domain that received a pod with a hard spread constraint.

    The pods of the namespace that the constraint selects are counted on eligible nodes, those that
    terminate left out. A domain passes if its count exceeds the smallest by at most `max_skew`; the
    smallest is 0 where fewer than `min_domains` domains are eligible.
    """
    specs = replay.snapshot.pods.specs
    arrived: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
    for p in sorted(replay.moved | replay.placed.keys()):
        if specs[replay.spec[p]].spread:
            namespace = replay.pod_ref(p).partition("/")[0]
            arrived[replay.spec[p], namespace].append(p)
    if not arrived:
        return
    crowd = _count_crowd(replay, {namespace for _, namespace in arrived})
    for (x, namespace), pods in arrived.items():
        for term in specs[x].spread:
            counts = _count_domains(replay, specs[x], term, crowd[namespace])
            smallest = min(counts.values(), default=0) if len(counts) >= term.min_domains else 0
            first_in: dict[str, int] = {}
            for p in pods:
                value = replay.snapshot.nodes[replay.node[p]].labels.get(term.key)
                if value is not None:
                    first_in.setdefault(value, p)
            for value, first in sorted(first_in.items()):
                count = counts[value]
                replay.log.require(
                    count - smallest <= term.max_skew,
                    "spread",
                    replay.pod_ref(first),
                    f"{term.key}={value} at most {term.max_skew} above the smallest ({smallest})",
                    f"{count} pods there",
                )


def _count_crowd(replay: Replay, namespaces: set[str]) -> dict[str, dict[int, Counter[int]]]:
    """Count the pods of each namespace and label set on each node, terminating ones left out."""
    crowd: dict[str, dict[int, Counter[int]]] = {
        namespace: defaultdict(Counter) for namespace in namespaces
    }
    for p, n in enumerate(replay.node):
        if n >= 0 and replay.holds[p] and not replay.flags[p] & PodFlag.TERMINATING:
            namespace = replay.pod_ref(p).partition("/")[0]
            if namespace in crowd:
                crowd[namespace][replay.labels[p]][n] += 1
    return crowd


def _count_domains(
    replay: Replay, spec: PodSpec, term: SpreadTerm, crowd: Mapping[int, Counter[int]]
) -> Counter[str]:
    """Return how many pods the term selects in each domain that has an eligible node."""
    label_sets = replay.snapshot.pods.label_sets
    on_node: Counter[int] = Counter()
    for labels, counts in crowd.items():
        if matches_selector(term.selector, label_sets[labels]):
            on_node.update(counts)
    domains: Counter[str] = Counter()
    for n, node in enumerate(replay.snapshot.nodes):
        if _is_eligible(spec, term, node):
            domains[node.labels[term.key]] += on_node.get(n, 0)
    return domains


def _is_eligible(spec: PodSpec, term: SpreadTerm, node: Node) -> bool:
    return (
        all(t.key in node.labels for t in spec.spread)
        and (not term.honor_affinity or matches_node_affinity(spec, node))
        and (not term.honor_taints or find_untolerated(spec, node) is None)
    )
