"""Kubernetes objects as they stand in JSON: only the fields that are read.

Unknown fields are ignored. Every field may be absent or null, since hand-written manifests leave
out what the API server fills in. The structs live in `data/` alone; the model is in `topology`.

Source: k8s.io/api core/v1.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

__all__ = [
    "Affinity",
    "Container",
    "ContainerStatus",
    "LabelSelectorWire",
    "NodeSelectorTerm",
    "NodeWire",
    "ObjectMeta",
    "PodAffinityTerm",
    "PodResourceClaim",
    "PodSpecWire",
    "PodStatus",
    "PodTemplate",
    "PodWire",
    "Quantities",
    "RequirementWire",
    "TolerationWire",
    "TopologySpreadConstraint",
]

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
Quantities = dict[str, str | Int64 | float] | None
Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Wire(msgspec.Struct, rename="camel", omit_defaults=True, gc=False):
    """Base: camelCase names; fields with their default are left out of cache keys."""


class OwnerReference(_Wire):
    """`metadata.ownerReferences[]`."""

    kind: str = ""
    name: str = ""
    controller: bool | None = None


class ObjectMeta(_Wire):
    """`metadata`."""

    name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] | None = None


class RequirementWire(_Wire):
    """One `matchExpressions[]` or `matchFields[]` entry."""

    key: str
    operator: str
    values: list[str] | None = None


class LabelSelectorWire(_Wire):
    """A label selector."""

    match_labels: dict[str, str] | None = None
    match_expressions: list[RequirementWire] | None = None


class NodeSelectorTerm(_Wire):
    """`nodeSelectorTerms[]`."""

    match_expressions: list[RequirementWire] | None = None
    match_fields: list[RequirementWire] | None = None


class NodeSelector(_Wire):
    """A node selector."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(_Wire):
    """`affinity.nodeAffinity`."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None


class PodAffinityTerm(_Wire):
    """A term of pod affinity or anti-affinity."""

    topology_key: str
    label_selector: LabelSelectorWire | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelectorWire | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class PodAffinity(_Wire):
    """`affinity.podAffinity` and `affinity.podAntiAffinity`."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None


class Affinity(_Wire):
    """`spec.affinity`, required parts only."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class TopologySpreadConstraint(_Wire):
    """`topologySpreadConstraints[]`."""

    max_skew: Int32
    topology_key: str
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelectorWire | None = None
    match_label_keys: list[str] | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class TolerationWire(_Wire):
    """`tolerations[]`."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class ContainerPort(_Wire):
    """`containers[].ports[]`."""

    container_port: Int32 = 0
    host_port: Int32 | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class Resources(_Wire):
    """`resources` of a container, a pod or a status."""

    requests: Quantities = None
    limits: Quantities = None


class Container(_Wire):
    """`containers[]` and `initContainers[]`."""

    name: str = ""
    resources: Resources | None = None
    restart_policy: str | None = None
    ports: list[ContainerPort] | None = None


class ClaimSource(_Wire):
    """A volume source that names or makes a PersistentVolumeClaim."""

    claim_name: str | None = None


class Volume(_Wire):
    """Only the sources that tie a pod to storage of some nodes; `{}` for all others."""

    persistent_volume_claim: ClaimSource | None = None
    ephemeral: ClaimSource | None = None


class PodResourceClaim(_Wire):
    """`spec.resourceClaims[]` of a pod."""

    name: str
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGate(_Wire):
    """`spec.schedulingGates[]`."""

    name: str = ""


class SchedulingGroup(_Wire):
    """`spec.schedulingGroup` (1.36 and later)."""

    pod_group_name: str | None = None


class WorkloadReference(_Wire):
    """`spec.workloadRef` (1.35)."""

    name: str
    pod_group: str
    pod_group_replica_key: str | None = None


class PodSpecWire(_Wire):
    """`spec` of a pod."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Resources | None = None
    overhead: Quantities = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[TolerationWire] | None = None
    topology_spread_constraints: list[TopologySpreadConstraint] | None = None
    host_network: bool | None = None
    volumes: list[Volume] | None = None
    resource_claims: list[PodResourceClaim] | None = None
    scheduler_name: str | None = None
    preemption_policy: str | None = None
    priority: Int32 | None = None
    priority_class_name: str | None = None
    node_name: str | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadReference | None = None


class ContainerStatus(_Wire):
    """`status.containerStatuses[]` and `initContainerStatuses[]`."""

    name: str = ""
    allocated_resources: Quantities = None
    resources: Resources | None = None


class PodCondition(_Wire):
    """`status.conditions[]`."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class ResourceClaimStatus(_Wire):
    """`status.resourceClaimStatuses[]`."""

    name: str
    resource_claim_name: str | None = None


class PodStatus(_Wire):
    """`status` of a pod."""

    phase: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Quantities = None
    resource_claim_statuses: list[ResourceClaimStatus] | None = None


class PodWire(_Wire):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpecWire
    status: PodStatus | None = None


class PodTemplate(_Wire):
    """`spec.template` of a controller: a pod without a name."""

    metadata: ObjectMeta | None = None
    spec: PodSpecWire = msgspec.field(default_factory=PodSpecWire)


class TaintWire(_Wire):
    """`spec.taints[]` of a node."""

    key: str
    value: str | None = None
    effect: str = "NoSchedule"


class PodPreemptionPolicy(_Wire):
    """`spec.podPreemptionPolicy` of a node (1.37, alpha)."""

    disable_resize_preemption: list[Any] | None = None
    """Why growing in place may evict nobody here; what the entries say does not matter."""


class NodeSpec(_Wire):
    """`spec` of a node."""

    taints: list[TaintWire] | None = None
    unschedulable: bool | None = None
    pod_preemption_policy: PodPreemptionPolicy | None = None


class NodeStatus(_Wire):
    """`status` of a node."""

    allocatable: Quantities = None
    conditions: list[PodCondition] | None = None


class NodeWire(_Wire):
    """A node."""

    metadata: ObjectMeta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None
