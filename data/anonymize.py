"""Snapshot -> the same fleet under other names, fit to be shared.

Names are replaced consistently, so that selectors, groups and domains match what they matched.
Numbers stay: amounts, counts, priorities, times, and indices in names. No mapping is kept. Label
keys, resources, device classes and schedulers that are public words stay as well.

The seed decides which new name an old one gets. Whoever knows it can put the new names into the
alphabetical order of the old ones, no more.
"""

from __future__ import annotations

import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from data.anonymize_devices import rename_constraint, rename_devices, rename_request
from data.renaming import Renaming
from topology.model import NO_GROUP, ObjectError, Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.model import Budget, ClaimNeed, Group, Node, PodSpec, SelectorTerm

__all__ = ["anonymize_snapshot"]

_REMOVED: Final = "removed by anonymize"
_REFUSAL: Final = re.compile(r"(?:\d+\.\d+: )?(?:SchedulerError: )?")
"""What a refusal begins with: the first release that knows it, and the reason of its condition."""


def anonymize_snapshot(snapshot: Snapshot, seed: int = 0) -> Snapshot:
    """Return a snapshot with all names replaced.

    Namespaces, nodes, pods, groups, budgets, claims, queues, templates, label values and label
    keys of the user's own are replaced; the label `kubernetes.io/hostname` follows its node.
    Errors keep their number and kind, warnings their number.

    Args:
      snapshot: Stays as it is.
      seed: Decides the new names; keep it to yourself to hide the order of the old ones.

    Returns:
      An equal fleet: a plan for one is a plan for the other, names apart.
    """
    rng = random.Random(seed)
    names = Renaming(snapshot)
    # A name gets its number when it is first seen, so the order of walking hides the old one.
    node_order = rng.sample(range(len(snapshot.nodes)), len(snapshot.nodes))
    group_order = rng.sample(range(len(snapshot.groups)), len(snapshot.groups))
    nodes = {n: _rename_node(snapshot.nodes[n], names) for n in node_order}
    groups = {g: _rename_group(snapshot.groups[g], names) for g in group_order}
    refs = _rename_pods(snapshot.pods.refs, names, rng)
    budgets = [_rename_budget(b, names, refs) for b in snapshot.budgets]

    sorted_nodes = sorted(nodes, key=lambda n: nodes[n].name)
    sorted_groups = sorted(groups, key=lambda g: groups[g].ref)
    new_node = _invert(sorted_nodes)
    new_group = _invert(sorted_groups)
    pods = snapshot.pods
    new_refs = list(refs.values())
    order = np.array(sorted(range(len(pods)), key=new_refs.__getitem__), np.int64)
    columns = {
        name: getattr(pods, name)[order]
        for name in (
            *("spec", "labels", "template", "phase", "flags", "priority", "rank"),
            *("created", "started", "checkpoint"),
        )
    }
    return Snapshot(
        nodes=tuple(nodes[n] for n in sorted_nodes),
        pods=replace(
            pods,
            refs=tuple(new_refs[p] for p in order.tolist()),
            specs=tuple(_rename_spec(spec, names) for spec in pods.specs),
            label_sets=tuple(names.labels(labels) for labels in pods.label_sets),
            templates=tuple(names.part(t) for t in pods.templates),
            node=_move(pods.node, new_node)[order],
            nominated=_move(pods.nominated, new_node)[order],
            group=_move(pods.group, new_group)[order],
            **columns,
        ),
        groups=tuple(
            replace(
                groups[g],
                parent=NO_GROUP if groups[g].parent == NO_GROUP else new_group[groups[g].parent],
            )
            for g in sorted_groups
        ),
        budgets=tuple(sorted(budgets, key=lambda b: b.ref)),
        devices=rename_devices(snapshot.devices, names, new_node, refs),
        errors=tuple(
            ObjectError(f"object-{i}", error.kind, "", _REMOVED)
            for i, error in enumerate(snapshot.errors)
        ),
        warnings=tuple(f"warning {i} was {_REMOVED}" for i in range(len(snapshot.warnings))),
    )


def _invert(order: Sequence[int]) -> dict[int, int]:
    return {old: new for new, old in enumerate(order)}


def _move(codes: NDArray[np.int32], new: dict[int, int]) -> NDArray[np.int32]:
    """Return codes that point into the new order; negative ones stay."""
    target = np.empty(len(new), np.int32)
    target[list(new.keys())] = list(new.values())
    moved = codes.copy()
    moved[codes >= 0] = target[codes[codes >= 0]]
    return moved


def _rename_node(node: Node, names: Renaming) -> Node:
    return replace(
        node,
        name=names.node(node.name),
        labels=names.labels(node.labels),
        allocatable={names.resource(r): amount for r, amount in node.allocatable.items()},
        taints=tuple(
            replace(t, key=names.key(t.key), value=names.value(t.key, t.value)) for t in node.taints
        ),
    )


def _rename_group(group: Group, names: Renaming) -> Group:
    def rename_path(path: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.key(key) for key in path)

    blocked = group.blocked
    if prefix := _REFUSAL.match(blocked):
        blocked = f"{prefix[0]}reason {_REMOVED}" if blocked else ""
    return replace(
        group,
        ref=names.group_ref(group.ref),
        name=names.part(group.name),
        topology=tuple(replace(t, path=rename_path(t.path)) for t in group.topology),
        slices=tuple(replace(s, path=rename_path(s.path)) for s in group.slices),
        exclusive=tuple(
            replace(e, peers=names.peers(e.peers), key=None if e.key is None else names.key(e.key))
            for e in group.exclusive
        ),
        queue=names.queue(group.queue),
        blocked=blocked,
        unmodelled=tuple(names.reason(r) for r in group.unmodelled),
    )


def _rename_pods(refs: Sequence[str], names: Renaming, rng: random.Random) -> dict[str, str]:
    numbers = rng.sample(range(len(refs)), len(refs))
    return {
        ref: f"{names.namespace(ref.partition('/')[0])}/pod-{number}"
        for ref, number in zip(refs, numbers, strict=True)
    }


def _rename_budget(budget: Budget, names: Renaming, refs: dict[str, str]) -> Budget:
    namespace = budget.ref.partition("/")[0]
    disrupted = (
        refs[ref].partition("/")[2] if (ref := f"{namespace}/{pod}") in refs else names.gone(pod)
        for pod in sorted(budget.disrupted)
    )
    return replace(
        budget,
        ref=names.budget_ref(budget.ref),
        selector=names.selector(budget.selector),
        disrupted=frozenset(disrupted),
    )


def _rename_terms(terms: tuple[SelectorTerm, ...], names: Renaming) -> tuple[SelectorTerm, ...]:
    return tuple(
        replace(
            term,
            expressions=tuple(names.requirement(r) for r in term.expressions),
            fields=tuple(
                replace(r, values=tuple(names.node(v) for v in r.values)) for r in term.fields
            ),
        )
        for term in terms
    )


def _rename_claim(claim: ClaimNeed, names: Renaming) -> ClaimNeed:
    terms = claim.allocated_nodes
    return replace(
        claim,
        name=names.claim(claim.name),
        claim=names.claim_ref(claim.claim),
        template=names.claim_ref(claim.template),
        allocated_nodes=None if terms is None else _rename_terms(terms, names),
        requests=tuple(rename_request(r, names) for r in claim.requests),
        constraints=tuple(rename_constraint(c, names) for c in claim.constraints),
    )


def _rename_spec(spec: PodSpec, names: Renaming) -> PodSpec:
    affinity, anti_affinity = (
        tuple(
            replace(
                t,
                key=names.key(t.key),
                selector=names.selector(t.selector),
                namespaces=tuple(sorted(names.namespace(n) for n in t.namespaces)),
            )
            for t in terms
        )
        for terms in (spec.affinity, spec.anti_affinity)
    )
    return replace(
        spec,
        requests=tuple(sorted((names.resource(r), amount) for r, amount in spec.requests)),
        node_selector=tuple(
            sorted((names.key(k), names.value(k, v)) for k, v in spec.node_selector)
        ),
        node_terms=None if spec.node_terms is None else _rename_terms(spec.node_terms, names),
        tolerations=tuple(
            replace(t, key=names.key(t.key), value=names.value(t.key, t.value))
            for t in spec.tolerations
        ),
        affinity=affinity,
        anti_affinity=anti_affinity,
        spread=tuple(
            replace(t, key=names.key(t.key), selector=names.selector(t.selector))
            for t in spec.spread
        ),
        claims=tuple(_rename_claim(c, names) for c in spec.claims),
        scheduler=names.scheduler(spec.scheduler),
        unmodelled=tuple(names.reason(r) for r in spec.unmodelled),
    )
