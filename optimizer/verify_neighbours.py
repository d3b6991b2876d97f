"""Rules between pods: required inter-pod affinity and anti-affinity, hard topology spread.

Source: InterPodAffinity and PodTopologySpread of kube-scheduler.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.model import AffinityTerm, Snapshot

__all__ = ["Clash", "Neighbours"]


_Domain = tuple[str, "str | None"]
"""(label key, value)."""


class Clash(NamedTuple):
    """Why a pod may not join the pods of a domain."""

    rule: str
    pod: int
    wanted: str
    found: str


class Neighbours:
    """Which kinds of pods, and which anti-affinity terms, are in every domain.

    Pods of one namespace and label set are one kind: a term selects all of them or none. A pod
    counts while it is bound and not finished, terminating ones included. Selectors are tried only
    on kinds that share a domain with the pod in question, since fleets hold thousands of both.
    """

    def __init__(self, snapshot: Snapshot, bound: Iterable[int]) -> None:
        """Count the pods that are on known nodes.

        Args:
          snapshot: Read whole.
          bound: Indices of the pods that hold room on a known node.
        """
        self._snapshot = snapshot
        pods = snapshot.pods
        terms: dict[AffinityTerm, int] = {}
        self._anti = [_intern(terms, spec.anti_affinity) for spec in pods.specs]
        self._affinity = [_intern(terms, spec.affinity) for spec in pods.specs]
        self._terms = tuple(terms)
        self._keys = sorted({term.key for term in self._terms})
        if not self._keys:
            return
        self._spec: list[int] = pods.spec.tolist()
        kinds: dict[tuple[str, int], int] = {}
        self._kind = [
            kinds.setdefault((ref.partition("/")[0], labels), len(kinds))
            for ref, labels in zip(pods.refs, pods.labels.tolist(), strict=True)
        ]
        self._kinds = tuple(kinds)
        self._kinds_by_label: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for kind, (_, labels) in enumerate(self._kinds):
            for item in pods.label_sets[labels].items():
                self._kinds_by_label[item].append(kind)
        self._named = [self._find_named(term) for term in self._terms]
        self._selects: list[dict[int, bool]] = [{} for _ in self._terms]
        self._crowd: defaultdict[_Domain, Counter[int]] = defaultdict(Counter)
        """domain -> pods of each kind; the domain None of a key is all nodes that have it."""
        self._owned: defaultdict[_Domain, Counter[int]] = defaultdict(Counter)
        """domain -> pods that carry each anti-affinity term of its key."""
        node = pods.node.tolist()
        alike = Counter((self._kind[p], self._spec[p], node[p]) for p in bound)
        for (kind, x, n), count in alike.items():
            self._change(kind, x, n, count)

    def _find_named(self, term: AffinityTerm) -> list[int] | None:
        """Return the kinds with a label value the selector asks for, None if it names no value."""
        for requirement in term.selector.requirements if term.selector is not None else ():
            if requirement.operator == "In":
                return sorted(
                    {
                        kind
                        for value in requirement.values
                        for kind in self._kinds_by_label.get((requirement.key, value), ())
                    }
                )
        return None

    def _selects_kind(self, t: int, kind: int) -> bool:
        found = self._selects[t].get(kind)
        if found is None:
            term, (namespace, labels) = self._terms[t], self._kinds[kind]
            found = (term.all_namespaces or namespace in term.namespaces) and matches_selector(
                term.selector, self._snapshot.pods.label_sets[labels]
            )
            self._selects[t][kind] = found
        return found

    def _count_selected(self, t: int, value: str | None) -> int:
        """Count the pods that term t selects in a domain of its key."""
        crowd = self._crowd.get((self._terms[t].key, value))
        if not crowd:
            return 0
        named = self._named[t]
        near = named if named is not None and len(named) < len(crowd) else crowd
        return sum(crowd[kind] for kind in near if self._selects_kind(t, kind))

    def _change(self, kind: int, x: int, n: int, count: int) -> None:
        labels = self._snapshot.nodes[n].labels
        for key in self._keys:
            if key in labels:
                self._crowd[key, labels[key]][kind] += count
                self._crowd[key, None][kind] += count
        for t in self._anti[x]:
            key = self._terms[t].key
            if key in labels:
                self._owned[key, labels[key]][t] += count

    def remove(self, p: int, n: int) -> None:
        """Forget pod p, which was on node n."""
        if self._keys:
            self._change(self._kind[p], self._spec[p], n, -1)

    def admit(self, arrivals: Sequence[tuple[int, int]]) -> list[Clash]:
        """Let pods join their domains and say which of them may not.

        Anti-affinity is checked for every pair, whichever comes first. Affinity looks for an order
        in which each pod finds the pods it wants, or is the first of a set that wants itself.

        Args:
          arrivals: (pod, node) of the pods that arrive in one step.

        Returns:
          One clash for each pod and rule broken; the pods are counted all the same.
        """
        if not self._keys:
            return []
        clashes: list[Clash] = []
        waiting = self._admit_attracted(
            [a for a in arrivals if self._affinity[self._spec[a[0]]]], clashes
        )
        for p, n in arrivals:
            if not self._affinity[self._spec[p]]:
                self._join(p, n, clashes)
        for p, n in self._admit_attracted(waiting, clashes):
            key, value = self._find_lonely(p, n)
            clashes.append(
                Clash("affinity", p, f"a pod its affinity selects in {key}={value}", "none there")
            )
            self._join(p, n, clashes)
        return clashes

    def _admit_attracted(
        self, waiting: list[tuple[int, int]], clashes: list[Clash]
    ) -> list[tuple[int, int]]:
        """Admit those whose affinity is met, again and again; return the rest."""
        while True:
            rest: list[tuple[int, int]] = []
            for p, n in waiting:
                if self._find_lonely(p, n)[0] and not self._is_first_of_its_own(p):
                    rest.append((p, n))
                else:
                    self._join(p, n, clashes)
            if not rest or len(rest) == len(waiting):
                return rest
            waiting = rest

    def _find_lonely(self, p: int, n: int) -> tuple[str, str]:
        """Return the key and value of the first affinity term with no pod in the node's domain.

        A node without the key is a fault of the node, found by its filters, and passes here.
        """
        labels = self._snapshot.nodes[n].labels
        for t in self._affinity[self._spec[p]]:
            key = self._terms[t].key
            if key in labels and not self._count_selected(t, labels[key]):
                return key, labels[key]
        return "", ""

    def _is_first_of_its_own(self, p: int) -> bool:
        """Tell whether no pod anywhere meets the pod's affinity terms and the pod does itself."""
        wanted = self._affinity[self._spec[p]]
        return all(self._selects_kind(t, self._kind[p]) for t in wanted) and any(
            not self._count_selected(t, None) for t in wanted
        )

    def _join(self, p: int, n: int, clashes: list[Clash]) -> None:
        """Check the anti-affinity of a pod and of those already there, and count the pod."""
        labels = self._snapshot.nodes[n].labels
        kind, x = self._kind[p], self._spec[p]
        for t in self._anti[x]:
            key = self._terms[t].key
            if key in labels and (count := self._count_selected(t, labels[key])):
                wanted = f"no pod its anti-affinity selects in {key}={labels[key]}"
                clashes.append(Clash("anti-affinity", p, wanted, f"{count} there"))
        for key in self._keys:
            owned = self._owned.get((key, labels[key])) if key in labels else None
            for t, count in (owned or {}).items():
                if count and self._selects_kind(t, kind):
                    wanted = f"no pod whose anti-affinity selects it in {key}={labels[key]}"
                    clashes.append(Clash("anti-affinity", p, wanted, f"{count} there"))
        self._change(kind, x, n, 1)


def _intern(index: dict[AffinityTerm, int], terms: Iterable[AffinityTerm]) -> tuple[int, ...]:
    return tuple(index.setdefault(term, len(index)) for term in terms)
