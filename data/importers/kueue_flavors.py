"""Which nodes and which Topology a Kueue pod set gets: queues, flavors, admission.

Quota is not modelled: it decides whether and where a workload is admitted, not whether it fits.

Source: kubernetes-sigs/kueue, apis/kueue/v1beta2 and pkg/scheduler/flavorassigner.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from data.importers.fields import read_list, read_strings, read_text
from data.importers.topologies import NO_LEVELS, Levels, read_topologies
from topology.model import Requirement, SelectorTerm, Taint, Toleration
from topology.selectors import tolerates

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from data.importers.base import ImportContext, RawObject
    from data.importers.kueue_request import TopologyRequest
    from topology.model import PodSpec

__all__ = ["API_GROUP", "Flavors", "NodeChoice"]

API_GROUP = "kueue.x-k8s.io"


class _Flavor(NamedTuple):
    name: str
    labels: tuple[tuple[str, str], ...]
    taints: tuple[Taint, ...]
    tolerations: tuple[Toleration, ...]
    topology: str


class NodeChoice(NamedTuple):
    """What the flavors of a pod set add to its pods, and the topology they bring."""

    labels: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    levels: Levels = NO_LEVELS
    is_tas: bool = False
    """The flavor has a Topology: only nodes with all its labels are used."""
    reasons: tuple[str, ...] = ()
    """Why the choice is only an assumption."""
    blocked: str = ""


@dataclass(slots=True)
class Flavors:
    """The Kueue objects of a snapshot that tell where pod sets may go."""

    context: ImportContext
    topologies: dict[str, Levels] = field(default_factory=dict)
    flavors: dict[str, _Flavor] = field(default_factory=dict)
    _specs: dict[tuple[PodSpec, NodeChoice], PodSpec] = field(default_factory=dict)

    @classmethod
    def read(cls, context: ImportContext) -> Flavors:
        """Read Topology and ResourceFlavor objects."""
        made = cls(context, read_topologies(context, API_GROUP))

        def read(obj: RawObject) -> None:
            made.flavors[obj.name] = _read_flavor(obj)

        for obj in context.all_of(API_GROUP, "ResourceFlavor"):
            context.guard(obj, read)
        return made

    def choose(
        self,
        namespace: str,
        queue: str,
        spec: PodSpec,
        request: TopologyRequest,
        assigned: Iterable[str] = (),
    ) -> NodeChoice:
        """Choose the flavors of a pod set.

        Args:
          namespace: Of the workload.
          queue: Name of its LocalQueue.
          spec: Of the pod set's template.
          request: Its topology request.
          assigned: Names of the flavors its admission assigned.
        """
        chosen = [self.flavors[name] for name in dict.fromkeys(assigned) if name in self.flavors]
        reasons: tuple[str, ...] = ()
        if not chosen:
            cluster_queue, blocked = self._find_queue(namespace, queue)
            if blocked:
                return NodeChoice(blocked=blocked)
            if cluster_queue is not None:
                for options in self._list_options(cluster_queue, spec):
                    fitting = [f for f in options if not self._refuse(f, spec, request)]
                    if not fitting:
                        why = self._refuse(options[0], spec, request)
                        return NodeChoice(
                            blocked=f"ClusterQueue {cluster_queue.name} has no flavor for it: {why}"
                        )
                    flavor = self._first_with_nodes(fitting)
                    chosen.append(flavor)
                    if len(fitting) > 1:
                        reasons += (
                            f"flavor {flavor.name} of ClusterQueue {cluster_queue.name} is assumed;"
                            f" {len(fitting) - 1} more may be assigned instead",
                        )
        return self._combine(chosen, reasons)

    def apply(self, spec: PodSpec, choice: NodeChoice) -> PodSpec:
        """Return the spec as Kueue releases it: with selectors and tolerations of its flavors."""
        key = (spec, choice)
        if key not in self._specs:
            self._specs[key] = _apply(spec, choice)
        return self._specs[key]

    def _find_queue(self, namespace: str, queue: str) -> tuple[RawObject | None, str]:
        local = _find(self.context.all_of(API_GROUP, "LocalQueue"), namespace, queue)
        if local is None:
            if queue and self.context.all_of(API_GROUP, "LocalQueue"):
                self.context.warn(
                    f"LocalQueue {namespace}/{queue} is not in the snapshot; "
                    "its workloads are planned on every node: add it"
                )
            return None, ""
        name = read_text(local.spec, "clusterQueue", at="spec")
        cluster = _find(self.context.all_of(API_GROUP, "ClusterQueue"), "", name)
        for obj in (local, cluster):
            policy = read_text(obj.spec, "stopPolicy", "None", at="spec") if obj else "None"
            if obj and policy != "None":
                return None, f"{obj.kind} {obj.ref} is stopped (stopPolicy {policy})"
        return cluster, ""

    def _list_options(self, cluster_queue: RawObject, spec: PodSpec) -> list[list[_Flavor]]:
        """Return the flavors of each resource group that covers a resource of the spec."""
        asked = {name for name, _ in spec.requests}
        options: list[list[_Flavor]] = []
        for i, group in enumerate(read_list(cluster_queue.body, "spec.resourceGroups")):
            names = [
                read_text(flavor, "name", at=f"spec.resourceGroups[{i}].flavors")
                for flavor in read_list(group, "flavors", at=f"spec.resourceGroups[{i}]")
            ]
            known = [self.flavors[name] for name in names if name in self.flavors]
            for name in names:
                if name not in self.flavors:
                    self.context.warn(
                        f"ResourceFlavor {name} of ClusterQueue {cluster_queue.name} is not in "
                        "the snapshot; it is passed over: add it"
                    )
            covered = group.get("coveredResources")
            if known and isinstance(covered, list) and asked & {str(name) for name in covered}:
                options.append(known)
        return options

    def _refuse(self, flavor: _Flavor, spec: PodSpec, request: TopologyRequest) -> str:
        """Return why a pod set cannot have a flavor, "" when it can."""
        wanted = dict(spec.node_selector)
        for key, value in flavor.labels:
            if wanted.get(key, value) != value:
                return f"flavor {flavor.name} has {key}={value}, the pods select {wanted[key]}"
        for taint in flavor.taints:
            tolerations = spec.tolerations + flavor.tolerations
            if taint.effect != "PreferNoSchedule" and not any(
                tolerates(t, taint) for t in tolerations
            ):
                return f"flavor {flavor.name} has taint {taint.key}, which is not tolerated"
        if request.is_present and not flavor.topology:
            return f"flavor {flavor.name} does not support topology requests (no topologyName)"
        levels = self.topologies.get(flavor.topology)
        unknown = sorted(request.keys - set(levels.keys)) if levels else []
        if unknown:
            return (
                f'no requested topology level: "{unknown[0]}" is not in Topology {flavor.topology}'
            )
        return ""

    def _first_with_nodes(self, flavors: list[_Flavor]) -> _Flavor:
        nodes = self.context.nodes.values()
        found = (f for f in flavors if any(_has(node.labels, f) for node in nodes))
        return next(found, flavors[0])

    def _combine(self, chosen: list[_Flavor], reasons: tuple[str, ...]) -> NodeChoice:
        labels = {key: value for flavor in chosen for key, value in flavor.labels}
        tolerations = tuple(dict.fromkeys(t for flavor in chosen for t in flavor.tolerations))
        name = next((flavor.topology for flavor in chosen if flavor.topology), "")
        if name and name not in self.topologies:
            self.context.warn(
                f"Topology {name} is not in the snapshot; its labels are taken for global ones: "
                "add it"
            )
        levels = self.topologies.get(name, NO_LEVELS)
        if not chosen and len(self.topologies) == 1:
            levels = next(iter(self.topologies.values()))
        return NodeChoice(
            tuple(sorted(labels.items())),
            tolerations,
            levels,
            is_tas=name in self.topologies,
            reasons=reasons,
        )


def _has(labels: Mapping[str, str], flavor: _Flavor) -> bool:
    return all(labels.get(key) == value for key, value in flavor.labels)


def _find(objects: list[RawObject], namespace: str, name: str) -> RawObject | None:
    return next((o for o in objects if o.name == name and o.namespace == namespace), None)


def _read_flavor(obj: RawObject) -> _Flavor:
    labels = read_strings(obj.body, "spec.nodeLabels")
    return _Flavor(
        obj.name,
        tuple(sorted(labels.items())),
        tuple(
            Taint(
                read_text(t, "key", at="spec.nodeTaints"),
                read_text(t, "value", at="spec.nodeTaints"),
                read_text(t, "effect", at="spec.nodeTaints"),
            )
            for t in read_list(obj.body, "spec.nodeTaints")
        ),
        tuple(
            Toleration(
                read_text(t, "key", at="spec.tolerations"),
                read_text(t, "operator", "Equal", at="spec.tolerations"),
                read_text(t, "value", at="spec.tolerations"),
                read_text(t, "effect", at="spec.tolerations"),
            )
            for t in read_list(obj.body, "spec.tolerations")
        ),
        read_text(obj.body, "spec.topologyName"),
    )


def _apply(spec: PodSpec, choice: NodeChoice) -> PodSpec:
    selector = tuple(sorted((dict(spec.node_selector) | dict(choice.labels)).items()))
    tolerations = tuple(dict.fromkeys(spec.tolerations + choice.tolerations))
    terms = spec.node_terms
    if choice.is_tas:
        labelled = tuple(Requirement(key, "Exists") for key in choice.levels.keys)
        if terms is None:
            terms = (SelectorTerm(labelled),)
        else:
            terms = tuple(_require(term, labelled) for term in terms)
    changed = replace(spec, node_selector=selector, tolerations=tolerations, node_terms=terms)
    return spec if changed == spec else changed


def _require(term: SelectorTerm, wanted: tuple[Requirement, ...]) -> SelectorTerm:
    if not term.expressions and not term.fields:
        return term  # Matches no node and must go on doing so.
    new = tuple(r for r in wanted if r not in term.expressions)
    return replace(term, expressions=term.expressions + new)
