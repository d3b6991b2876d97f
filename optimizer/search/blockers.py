"""Who has to leave a domain before a pod may enter it: anti-affinity, host ports, exclusivity.

Room is a matter of amounts; these are yes or no. Running pods that stay in any case are in the
tables of `optimizer.interactions`; here are those that may be evicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from optimizer.victims import selects
from topology.levels import NO_DOMAIN, build_column
from topology.model import NO_GROUP, PodFlag
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from optimizer.problem import Problem, Unit
    from optimizer.victims import Victim
    from topology.model import HostPort

__all__ = ["Blocker", "find_blockers", "find_leaving"]


class Blocker(NamedTuple):
    """Pods of a task stay out of some nodes until a victim is gone."""

    unit: int
    task: int
    victim: int
    nodes: NDArray[np.bool_]
    """bool[N]."""


def find_blockers(
    problem: Problem, units: Sequence[int], victims: Sequence[Victim]
) -> Iterator[Blocker]:
    """Yield every (task, victim) that cannot share a domain.

    Args:
      problem: The fleet with all victims gone; its units.
      units: Units to place.
      victims: Running pods that may stay or go.

    Source: InterPodAffinity (required anti-affinity, both ways round), NodePorts, exclusive
      topology of LeaderWorkerSet and JobSet.
    """
    yield from _find_repelled(problem, units, victims)
    for u in units:
        yield from _find_owned(problem, problem.units[u], u, victims)


def _find_repelled(
    problem: Problem, units: Sequence[int], victims: Sequence[Victim]
) -> Iterator[Blocker]:
    pods = problem.snapshot.pods
    columns: dict[str, NDArray[np.int32]] = {}

    def codes_of(key: str) -> NDArray[np.int32]:
        if key not in columns:
            columns[key] = build_column(problem.snapshot.nodes, (key,)).codes
        return columns[key]

    tasks = [(u, t) for u in units for t in range(len(problem.units[u].tasks))]
    asks = any(
        pods.specs[problem.class_specs[problem.units[u].tasks[t].pod_class]].anti_affinity
        or pods.specs[problem.class_specs[problem.units[u].tasks[t].pod_class]].host_ports
        for u, t in tasks
    )
    if not asks and not any(spec.anti_affinity for spec in pods.specs):
        return
    for v, victim in enumerate(victims):
        for q in victim.pods:
            theirs = pods.specs[pods.spec[q]]
            if not asks and not theirs.anti_affinity:
                continue
            for u, t in tasks:
                # Pods of a class may differ in labels that only this victim looks at.
                members = problem.units[u].tasks[t].pods
                mine = pods.specs[pods.spec[members[0]]]
                keys = {
                    term.key for term in mine.anti_affinity if selects(problem.snapshot, term, q)
                }
                keys |= {
                    term.key
                    for term in theirs.anti_affinity
                    if any(selects(problem.snapshot, term, p) for p in members)
                }
                nodes = np.zeros(len(problem.free), bool)
                for key in keys:
                    codes = codes_of(key)
                    here = codes[pods.node[q]]
                    if here != NO_DOMAIN:
                        nodes |= codes == here
                if any(_clash(a, b) for a in mine.host_ports for b in theirs.host_ports):
                    nodes[pods.node[q]] = True
                if nodes.any():
                    yield Blocker(u, t, v, nodes)


def _clash(mine: HostPort, theirs: HostPort) -> bool:
    same_ip = mine.ip == theirs.ip or "0.0.0.0" in (mine.ip, theirs.ip)
    return same_ip and (mine.port, mine.protocol) == (theirs.port, theirs.protocol)


def _find_owned(
    problem: Problem, unit: Unit, u: int, victims: Sequence[Victim]
) -> Iterator[Blocker]:
    """Yield the victims whose group holds a domain that a group of the unit may not share."""
    snapshot, tables = problem.snapshot, problem.interactions
    for at, node in enumerate(unit.tree):
        inside = set(unit.walk(at))
        tasks = [t for t, task in enumerate(unit.tasks) if task.leaf in inside]
        for rule in node.exclusive:
            codes = tables.exclusive[rule.rule].codes
            for v, victim in enumerate(victims):
                blocked = np.zeros(len(codes), bool)
                for q in victim.pods:
                    here = codes[snapshot.pods.node[q]]
                    g = int(snapshot.pods.group[q])
                    while g != NO_GROUP and here != NO_DOMAIN:
                        for other in tables.exclusive_rules(g, snapshot.groups[g]):
                            if (
                                other.rule == rule.rule
                                and other.owner != rule.owner
                                and (rule.is_keyed or other.is_keyed)
                            ):
                                blocked |= codes == here
                        g = snapshot.groups[g].parent
                if blocked.any():
                    for t in tasks:
                        yield Blocker(u, t, v, blocked)


def find_leaving(
    problem: Problem, victims: Sequence[Victim]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield (spread, domain, victim, pods): what each hard spread constraint would lose.

    Source: PodTopologySpread counts matching pods of the namespace, terminating ones left out.
    """
    pods = problem.snapshot.pods
    for t, spread in enumerate(problem.interactions.spreads):
        for v, victim in enumerate(victims):
            counts: dict[int, int] = {}
            for q in victim.pods:
                domain = int(spread.codes[pods.node[q]])
                if (
                    domain != NO_DOMAIN
                    and not pods.flags[q] & PodFlag.TERMINATING
                    and pods.refs[q].partition("/")[0] == spread.namespace
                    and matches_selector(spread.term.selector, pods.label_sets[pods.labels[q]])
                ):
                    counts[domain] = counts.get(domain, 0) + 1
            for domain, count in sorted(counts.items()):
                yield t, domain, v, count
