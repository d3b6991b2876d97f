"""Filters that depend on other pods: anti-affinity, host ports, spread, affinity, exclusivity.

Node masks cannot hold these, because pods placed earlier in the same plan count as existing. Each
becomes a table over the domains of its key: what stands there now, and which pod classes it
concerns. Host ports are anti-affinity whose domains are single nodes.

Source: kube-scheduler InterPodAffinity (symmetric required terms), NodePorts, PodTopologySpread;
LeaderWorkerSet and JobSet exclusive topology.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from topology.levels import NO_DOMAIN
from topology.masks import NodeFilters
from topology.model import NO_GROUP, AffinityTerm, HostPort, PodFlag
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from topology.levels import DomainColumn
    from topology.model import Group, PodSpec, Snapshot, SpreadTerm

__all__ = [
    "ANTI_AFFINITY",
    "EXISTING_ANTI_AFFINITY",
    "MANY_OWNERS",
    "NO_AFFINITY",
    "NO_FREE_PORTS",
    "NO_OWNER",
    "NO_SPREAD",
    "NO_SPREAD_LABEL",
    "Attraction",
    "Conflict",
    "ExclusiveClass",
    "ExclusiveRule",
    "Interactions",
    "Signature",
    "Spread",
    "build_interactions",
    "carries_term",
    "meets_term",
]

ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
NO_AFFINITY: Final = "node(s) didn't match pod affinity rules"
NO_FREE_PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
NO_SPREAD: Final = "node(s) didn't match pod topology spread constraints"
NO_SPREAD_LABEL: Final = f"{NO_SPREAD} (missing required label)"

ANY_IP = "0.0.0.0"
MANY_OWNERS = -2
NO_OWNER = -1


@dataclass(frozen=True, slots=True)
class Conflict:
    """Holders repel matched pods from their domain, and the other way round."""

    term: AffinityTerm | HostPort
    codes: NDArray[np.int32]
    """i32[N] domain of each node, NO_DOMAIN where the key is absent (never a conflict there)."""
    holders: NDArray[np.int32]
    """i32[D] existing pods that carry the term."""
    matched: NDArray[np.int32]
    """i32[D] existing pods that the term selects."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A hard topology spread constraint of one spec."""

    spec: int
    namespace: str
    term: SpreadTerm
    codes: NDArray[np.int32]
    """i32[N], NO_DOMAIN on nodes that are not eligible."""
    counts: NDArray[np.int32]
    """i32[D] matching pods on eligible nodes."""
    is_domain: NDArray[np.bool_]
    """bool[D] domain has an eligible node."""

    def find_floor(self, counts: NDArray[np.int32]) -> int:
        """Return the smallest of i32[D] counts, 0 while there are fewer domains than wanted."""
        if int(self.is_domain.sum()) < self.term.min_domains:
            return 0
        return int(counts[self.is_domain].min(initial=2**30))


@dataclass(frozen=True, slots=True)
class Attraction:
    """An affinity term that only its own carriers meet: all of them go to one domain.

    No pod that stands meets it, so the first carrier may go anywhere; the others follow it.
    """

    term: AffinityTerm
    codes: NDArray[np.int32]
    size: int
    """Domains of the key."""


@dataclass(frozen=True, slots=True)
class ExclusiveClass:
    """One (peers, key): who owns each domain now."""

    peers: str
    codes: NDArray[np.int32]
    owner: NDArray[np.int32]
    """i32[D] index of the only group there, NO_OWNER or MANY_OWNERS."""
    is_keyed: NDArray[np.bool_]
    """bool[D] some owner there has the key itself."""


@dataclass(frozen=True, slots=True)
class ExclusiveRule:
    """A group takes part in an exclusivity class (see `topology.model.Exclusive`)."""

    rule: int
    """Index into `Interactions.exclusive`."""
    owner: int
    """Identity of the group among the owners of domains."""
    is_keyed: bool


class Signature(NamedTuple):
    """What makes pods of one spec differ: bits over the tables, and an affinity mask."""

    holds: int = 0
    matched: int = 0
    spreads: int = 0
    spread_matched: int = 0
    affinity: int = 0
    attracts: int = 0

    @property
    def is_coupled(self) -> bool:
        """Tell whether other new pods decide where such a pod may go, or it decides for them."""
        return any((self.holds, self.matched, self.spreads, self.spread_matched, self.attracts))


@dataclass(slots=True)
class Interactions:
    """All tables of one problem, and the signature of each pod in them."""

    conflicts: list[Conflict] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    attractions: list[Attraction] = field(default_factory=list)
    exclusive: list[ExclusiveClass] = field(default_factory=list)
    conditional_specs: set[int] = field(default_factory=set)
    """Specs whose affinity may also be met by other pending pods, which is not searched."""
    _signatures: dict[int, Signature] = field(default_factory=dict)
    _affine_keys: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _affinity_masks: list[NDArray[np.bool_] | None] = field(default_factory=lambda: [None])
    _rules: dict[tuple[str, str], int] = field(default_factory=dict)
    _keys_of: dict[str, set[str]] = field(default_factory=dict)
    _num_nodes: int = 0

    @property
    def is_trivial(self) -> bool:
        """True when no pending pod of the problem is concerned by another pod."""
        return not (self.conflicts or self.spreads)

    def signature(self, pod: int) -> Signature:
        """Return the signature of a pending pod."""
        return self._signatures.get(pod, _PLAIN)

    def self_affine_keys(self, pod: int) -> tuple[str, ...]:
        """Return keys whose domain the pod must share with its own kind."""
        return self._affine_keys.get(pod, ())

    def allowed_nodes(self, signature: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return bool[N]: nodes where what runs now leaves room for a pod of this signature.

        Skew is left out: the pods of a plan may raise the floor it is measured from.
        """
        mask = np.ones(self._num_nodes, bool)
        for _, refused in self.refusals(signature):
            mask &= ~refused
        return mask

    def refusals(self, signature: tuple[int, ...]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """Yield (kube-scheduler's words, bool[N] nodes refused)."""
        own = Signature(*signature)
        for t, conflict in enumerate(self.conflicts):
            inside = conflict.codes != NO_DOMAIN
            is_port = isinstance(conflict.term, HostPort)
            if own.holds >> t & 1:
                words = NO_FREE_PORTS if is_port else ANTI_AFFINITY
                yield words, inside & (conflict.matched[conflict.codes] > 0)
            if own.matched >> t & 1:
                words = NO_FREE_PORTS if is_port else EXISTING_ANTI_AFFINITY
                yield words, inside & (conflict.holders[conflict.codes] > 0)
        for t, spread in enumerate(self.spreads):
            if own.spreads >> t & 1:
                yield NO_SPREAD_LABEL, spread.codes == NO_DOMAIN
        affinity = self._affinity_masks[own.affinity]
        if affinity is not None:
            yield NO_AFFINITY, ~affinity

    def skewed(self, signature: tuple[int, ...]) -> NDArray[np.bool_]:
        """Return bool[N]: nodes of domains that one more pod would skew, as things stand."""
        own = Signature(*signature)
        mask = np.zeros(self._num_nodes, bool)
        for t, spread in enumerate(self.spreads):
            if own.spreads >> t & 1:
                extra = own.spread_matched >> t & 1
                counts = spread.counts[spread.codes] + extra - spread.find_floor(spread.counts)
                mask |= (spread.codes != NO_DOMAIN) & (counts > spread.term.max_skew)
        return mask

    def exclusive_rules(self, g: int, group: Group) -> tuple[ExclusiveRule, ...]:
        """Return the rules a group takes part in."""
        return tuple(
            ExclusiveRule(self._rules[entry.peers, key], g, entry.key == key)
            for entry in group.exclusive
            for key in sorted(self._keys_of.get(entry.peers, ()))
        )


_PLAIN = Signature()


def build_interactions(
    snapshot: Snapshot,
    wanted: NDArray[np.int64],
    nodes_of: NDArray[np.int32],
    columns: Callable[[tuple[str, ...]], int],
    *,
    relax_empty: bool = False,
) -> Interactions:
    """Collect the interactions that concern the wanted pending pods.

    Args:
      snapshot: The fleet.
      wanted: Pending pods of the problem.
      nodes_of: i32[P] node of every pod, planned placements included.
      columns: Path -> index of its domain column (an object with attribute `columns`).
      relax_empty: Leave out what existing pods contribute.
    """
    found = Interactions(_num_nodes=len(snapshot.nodes))
    _add_exclusive(found, snapshot, nodes_of, columns, relax_empty)
    pods = snapshot.pods
    specs = {int(x) for x in np.unique(pods.spec[wanted])}
    live = np.flatnonzero(pods.is_live & (nodes_of >= 0))
    if relax_empty:
        stays = (pods.flags[live] & (PodFlag.DAEMON | PodFlag.STATIC)) != 0
        live = live[stays]
    live_specs = {int(x) for x in np.unique(pods.spec[live])}
    concerned = any(
        pods.specs[x].anti_affinity
        or pods.specs[x].affinity
        or pods.specs[x].spread
        or pods.specs[x].host_ports
        for x in specs
    ) or any(pods.specs[x].anti_affinity for x in live_specs)
    if concerned:
        _Builder(found, snapshot, wanted, live, nodes_of, columns).build(specs, live_specs)
    return found


def _add_exclusive(
    found: Interactions,
    snapshot: Snapshot,
    nodes_of: NDArray[np.int32],
    columns: Any,
    relax_empty: bool,
) -> None:
    for group in snapshot.groups:
        for entry in group.exclusive:
            if entry.key is not None:
                found._keys_of.setdefault(entry.peers, set()).add(entry.key)
    for peers, keys in sorted(found._keys_of.items()):
        for key in sorted(keys):
            column = columns.columns[columns((key,))]
            size = _count_rows(column)
            found._rules[peers, key] = len(found.exclusive)
            found.exclusive.append(
                ExclusiveClass(
                    peers,
                    column.codes,
                    np.full(size, NO_OWNER, np.int32),
                    np.zeros(size, bool),
                )
            )
    if not found.exclusive or relax_empty:
        return
    pods = snapshot.pods
    standing = np.flatnonzero(pods.is_live & (nodes_of >= 0) & (pods.group != NO_GROUP))
    for g, n in sorted(
        set(zip(pods.group[standing].tolist(), nodes_of[standing].tolist(), strict=True))
    ):
        at = g
        while at != NO_GROUP:
            group = snapshot.groups[at]
            for rule in found.exclusive_rules(at, group):
                table = found.exclusive[rule.rule]
                domain = table.codes[n]
                if domain == NO_DOMAIN:
                    continue
                owner = table.owner[domain]
                table.owner[domain] = at if owner in (NO_OWNER, at) else MANY_OWNERS
                table.is_keyed[domain] |= rule.is_keyed
            at = group.parent


def _count_rows(column: DomainColumn) -> int:
    """Rows of a table over domains: one at least, which nodes without the key look up in vain."""
    return max(len(column.values), 1)


def carries_term(spec: PodSpec, term: AffinityTerm | HostPort) -> bool:
    """Tell whether a pod spec has an anti-affinity term, or asks for a host port."""
    return term in (spec.anti_affinity if isinstance(term, AffinityTerm) else spec.host_ports)


def meets_term(
    snapshot: Snapshot, term: AffinityTerm | HostPort, kind: tuple[int, int, str]
) -> bool:
    """Tell whether a term selects pods of (spec, labels, namespace), or a port clashes."""
    spec, labels, namespace = kind
    if isinstance(term, AffinityTerm):
        return (term.all_namespaces or namespace in term.namespaces) and matches_selector(
            term.selector, snapshot.pods.label_sets[labels]
        )
    return any(
        p.port == term.port
        and p.protocol == term.protocol
        and (p.ip == term.ip or ANY_IP in (p.ip, term.ip))
        for p in snapshot.pods.specs[spec].host_ports
    )


@dataclass(slots=True)
class _Builder:
    found: Interactions
    snapshot: Snapshot
    wanted: NDArray[np.int64]
    live: NDArray[np.int64]
    nodes_of: NDArray[np.int32]
    columns: Any
    _live_kinds: dict[tuple[int, int, str], list[int]] = field(default_factory=dict)

    def build(self, specs: set[int], live_specs: set[int]) -> None:
        pods = self.snapshot.pods
        for pod in self.live.tolist():
            kind = (int(pods.spec[pod]), int(pods.labels[pod]), self._namespace(pod))
            self._live_kinds.setdefault(kind, []).append(pod)
        terms = {t: None for x in sorted(specs | live_specs) for t in pods.specs[x].anti_affinity}
        ports = {p: None for x in sorted(specs) for p in pods.specs[x].host_ports}
        for term in terms:
            self._add_conflict(term)
        for port in ports:
            self._add_conflict(port)
        self._add_spreads(specs)
        cache: dict[tuple[int, int, str], tuple[Signature, tuple[str, ...]]] = {}
        for pod in self.wanted.tolist():
            kind = (int(pods.spec[pod]), int(pods.labels[pod]), self._namespace(pod))
            if kind not in cache:
                cache[kind] = self._describe(kind)
            self.found._signatures[pod], self.found._affine_keys[pod] = cache[kind]

    def _namespace(self, pod: int) -> str:
        return self.snapshot.pods.refs[pod].partition("/")[0]

    def _count(
        self,
        codes: NDArray[np.int32],
        size: int,
        concerns: Callable[[tuple[int, int, str]], bool],
    ) -> NDArray[np.int32]:
        counts = np.zeros(size, np.int32)
        for kind, pods in self._live_kinds.items():
            if concerns(kind):
                domains = codes[self.nodes_of[pods]]
                np.add.at(counts, domains[domains != NO_DOMAIN], 1)
        return counts

    def _count_matched(self, term: AffinityTerm, column: DomainColumn) -> NDArray[np.int32]:
        size = _count_rows(column)
        return self._count(column.codes, size, lambda kind: meets_term(self.snapshot, term, kind))

    def _add_conflict(self, term: AffinityTerm | HostPort) -> None:
        if isinstance(term, AffinityTerm):
            column = self.columns.columns[self.columns((term.key,))]
            codes, size = column.codes, _count_rows(column)
        else:
            size = len(self.snapshot.nodes)
            codes = np.arange(size, dtype=np.int32)
        holders = self._count(
            codes, size, lambda kind: carries_term(self.snapshot.pods.specs[kind[0]], term)
        )
        matched = self._count(codes, size, lambda kind: meets_term(self.snapshot, term, kind))
        self.found.conflicts.append(Conflict(term, codes, holders, matched))

    def _add_spreads(self, specs: Iterable[int]) -> None:
        pods = self.snapshot.pods
        filters = NodeFilters(self.snapshot.nodes)
        chosen = self.wanted[np.isin(pods.spec[self.wanted], list(specs))].tolist()
        pairs = sorted({(int(pods.spec[p]), self._namespace(p)) for p in chosen})
        for spec, namespace in pairs:
            terms = pods.specs[spec].spread
            masks = filters.evaluate(pods.specs[spec])
            keyed = np.ones(len(self.snapshot.nodes), bool)
            for term in terms:
                keyed &= self.columns.columns[self.columns((term.key,))].codes != NO_DOMAIN
            for term in terms:
                column = self.columns.columns[self.columns((term.key,))]
                usable = keyed.copy()
                if term.honor_affinity:
                    usable &= masks.affinity
                if term.honor_taints:
                    usable &= masks.taints
                codes = np.where(usable, column.codes, NO_DOMAIN).astype(np.int32)
                size = _count_rows(column)
                counts = np.zeros(size, np.int32)
                for kind, standing in self._live_kinds.items():
                    if kind[2] == namespace and matches_selector(
                        term.selector, pods.label_sets[kind[1]]
                    ):
                        alive = [p for p in standing if not pods.flags[p] & PodFlag.TERMINATING]
                        domains = codes[self.nodes_of[alive]]
                        np.add.at(counts, domains[domains != NO_DOMAIN], 1)
                is_domain = np.zeros(size, bool)
                is_domain[codes[codes != NO_DOMAIN]] = True
                self.found.spreads.append(Spread(spec, namespace, term, codes, counts, is_domain))

    def _describe(self, kind: tuple[int, int, str]) -> tuple[Signature, tuple[str, ...]]:
        spec, labels, namespace = kind
        holds = matched = spreads = spread_matched = attracts = 0
        for t, conflict in enumerate(self.found.conflicts):
            holds |= carries_term(self.snapshot.pods.specs[spec], conflict.term) << t
            matched |= meets_term(self.snapshot, conflict.term, kind) << t
        for t, spread in enumerate(self.found.spreads):
            own = spread.spec == spec and spread.namespace == namespace
            spreads |= own << t
            spread_matched |= (
                spread.namespace == namespace
                and matches_selector(spread.term.selector, self.snapshot.pods.label_sets[labels])
            ) << t
        mask: NDArray[np.bool_] | None = None
        affine: list[str] = []
        for term in self.snapshot.pods.specs[spec].affinity:
            column = self.columns.columns[self.columns((term.key,))]
            standing = self._count_matched(term, column)
            allowed = column.codes != NO_DOMAIN
            if standing.any():
                allowed &= standing[column.codes] > 0
                self.found.conditional_specs.add(spec)
            elif meets_term(self.snapshot, term, kind):
                affine.append(term.key)
                attracts |= 1 << self._find_attraction(term, column)
                if self._is_met_by_others(term):
                    self.found.conditional_specs.add(spec)
            else:
                allowed = np.zeros_like(allowed)
                self.found.conditional_specs.add(spec)
            mask = allowed if mask is None else mask & allowed
        affinity = 0
        if mask is not None:
            affinity = len(self.found._affinity_masks)
            self.found._affinity_masks.append(mask)
        signature = Signature(holds, matched, spreads, spread_matched, affinity, attracts)
        return signature, tuple(affine)

    def _is_met_by_others(self, term: AffinityTerm) -> bool:
        """Tell whether pending pods without the term meet it too, which is not searched."""
        pods = self.snapshot.pods
        kinds = {
            (int(pods.spec[p]), int(pods.labels[p]), self._namespace(p))
            for p in self.wanted.tolist()
        }
        return any(
            meets_term(self.snapshot, term, kind) and term not in pods.specs[kind[0]].affinity
            for kind in kinds
        )

    def _find_attraction(self, term: AffinityTerm, column: DomainColumn) -> int:
        known = [attraction.term for attraction in self.found.attractions]
        if term not in known:
            self.found.attractions.append(Attraction(term, column.codes, _count_rows(column)))
            return len(known)
        return known.index(term)
