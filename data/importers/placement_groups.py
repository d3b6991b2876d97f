"""Placement groups of Ray as gangs: where would their bundles fit?

They are no Kubernetes objects; `docs/whatif.md` shows how to write one down:

    apiVersion: gangplan/v1
    kind: RayPlacementGroup
    metadata: {name: train, namespace: ray}
    spec: {strategy: STRICT_SPREAD, bundles: [{CPU: 8, GPU: 8}, {CPU: 8, GPU: 8}]}

where `spec` is what `ray.util.placement_group_table()` says of it. All bundles are reserved or
none. STRICT_PACK puts them on one node, STRICT_SPREAD on as many nodes as there are bundles; PACK
and SPREAD only prefer it.

Source: Ray placement groups, strategies and bundles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from data.importers.base import ReadProblem
from data.importers.fields import find_field, read_created, read_int, read_text
from data.importers.trees import Member, Part, add_tree, check_planned, make_planned
from data.quantities import parse_quantity
from topology.model import (
    HOSTNAME,
    PODS,
    AffinityTerm,
    Group,
    LabelSelector,
    PodSpec,
    Requirement,
    TopologyTerm,
)

if TYPE_CHECKING:
    from data.importers.base import ImportContext, RawObject

__all__ = ["import_placement_groups"]

API_GROUP: Final = "gangplan"
LABEL: Final = "gangplan.io/placement-group"
STRATEGIES: Final = ("PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD")
_SPREAD: Final = "strategy SPREAD is a wish; its bundles may share nodes"
_RESOURCES: Final = {"CPU": "cpu", "GPU": "nvidia.com/gpu", "memory": "memory"}


def import_placement_groups(context: ImportContext) -> None:
    """Add one gang for each placement group, a pod for each of its bundles."""

    def read(obj: RawObject) -> None:
        _add_group(context, obj)

    for obj in context.all_of(API_GROUP, "RayPlacementGroup"):
        context.guard(obj, read)


def _add_group(context: ImportContext, obj: RawObject) -> None:
    strategy = read_text(obj.spec, "strategy", "PACK", at="spec")
    if strategy not in STRATEGIES:
        raise ReadProblem("spec.strategy", f"is {strategy!r}; write one of {', '.join(STRATEGIES)}")
    bundles = find_field(obj.spec, "bundles", at="spec")
    if isinstance(bundles, dict):  # placement_group_table numbers them
        bundles = [bundles[key] for key in sorted(bundles, key=lambda key: int(key))]
    if not isinstance(bundles, list) or not bundles:
        raise ReadProblem("spec.bundles", "is no list of resources; write one map for each bundle")
    check_planned(len(bundles), "spec.bundles")
    priority = read_int(obj.spec, "priority", 0, minimum=-(2**31), at="spec")
    selector = LabelSelector((Requirement(LABEL, "In", (obj.name,)),))
    apart = AffinityTerm(HOSTNAME, selector, (obj.namespace,))
    members = []
    for i, bundle in enumerate(bundles):
        spec = PodSpec(
            _read_bundle(bundle, f"spec.bundles[{i}]"),
            anti_affinity=(apart,) if strategy == "STRICT_SPREAD" else (),
        )
        pod = make_planned(
            f"{obj.namespace}/{obj.name}-bundle-{i}", spec, {LABEL: obj.name}, priority=priority
        )
        members.append(Member(pod, i, "bundle"))
    packs = strategy in ("PACK", "STRICT_PACK")
    group = Group(
        obj.ref,
        "group",
        obj.api,
        min_count=len(bundles),
        priority=priority,
        topology=(TopologyTerm((HOSTNAME,), strategy == "STRICT_PACK"),) if packs else (),
        disruption="all",
        created=read_created(obj),
        unmodelled=("bundles are spread only as far as it happens",)
        if strategy == "SPREAD"
        else (),
    )
    add_tree(context, group, [Part("", len(bundles), members=members)])


def _read_bundle(bundle: Any, at: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(bundle, dict):
        raise ReadProblem(at, "is no map of resources; write {CPU: 8, GPU: 1}")
    amounts = {PODS: 1}
    for name, amount in bundle.items():
        resource = _RESOURCES.get(str(name), str(name))
        try:
            value = parse_quantity(amount, resource)
        except (ValueError, TypeError) as problem:
            raise ReadProblem(f"{at}.{name}", str(problem)) from None
        if value:
            amounts[resource] = value
    return tuple(sorted(amounts.items()))
