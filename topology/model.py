"""A cluster at one moment, in names and exact integers.

Quantities are Python integers in canonical units: cpu in milli-cores, every other resource in
whole units (bytes, pieces). Nodes, groups and budgets are few and are objects; pods are many and
are the columns of one `PodTable`. Pods made from one template share one `PodSpec` object.

Everything here is frozen: a scenario is a function from snapshot to snapshot.

Source: field meanings follow the Kubernetes API types of 1.35 to 1.37 and the gang APIs named at
each field. Rules are those of NodeResourcesFit, TaintToleration, NodeAffinity, NodePorts,
PodTopologySpread and InterPodAffinity of kube-scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from topology.devices import NO_DEVICES, DeviceConstraint, DeviceTable, RequestChoice
from topology.taints import Taint, Toleration

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "HOSTNAME",
    "MISSING_NODE",
    "NO_GROUP",
    "NO_NODE",
    "PODS",
    "AffinityTerm",
    "Budget",
    "ClaimNeed",
    "Exclusive",
    "Group",
    "HostPort",
    "LabelSelector",
    "Node",
    "ObjectError",
    "Phase",
    "Pod",
    "PodFlag",
    "PodSpec",
    "PodTable",
    "Requirement",
    "SelectorTerm",
    "SliceTerm",
    "Snapshot",
    "SpreadTerm",
    "Taint",
    "Toleration",
    "TopologyTerm",
    "is_gpu",
]

NO_NODE: Final = -1
"""`PodTable.node` of a pod that has no node."""
MISSING_NODE: Final = -2
"""`PodTable.node` of a pod bound to a node that is not in the snapshot."""
NO_GROUP: Final = -1
"""`PodTable.group` of a pod in no group; `Group.parent` of a root."""
PODS: Final = "pods"
"""The resource of pod slots: every pod requests exactly one."""
HOSTNAME: Final = "kubernetes.io/hostname"

_GPU_NAMES: Final = frozenset(
    {
        "gpu.intel.com/i915",
        "gpu.intel.com/xe",
        "habana.ai/gaudi",
        "google.com/tpu",
        "aws.amazon.com/neuron",
        "aws.amazon.com/neurondevice",
        "huawei.com/ascend910",
        "cambricon.com/mlu",
    }
)


@lru_cache(maxsize=4096)
def is_gpu(resource: str) -> bool:
    """Tell whether one unit of a resource is one whole accelerator.

    Fractions (MIG profiles, time slices) are resources of their own and do not count.

    Example:
      >>> is_gpu("nvidia.com/gpu"), is_gpu("nvidia.com/mig-1g.10gb"), is_gpu("cpu")
      (True, False, False)
    """
    return resource.endswith("/gpu") or resource.lower() in _GPU_NAMES


@dataclass(frozen=True, slots=True)
class Requirement:
    """One `matchExpressions` entry: In, NotIn, Exists, DoesNotExist, Gt, Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements hold (`matchLabels` folded in as In); none listed selects everything.

    A null selector, which selects nothing, is `None` wherever a selector is optional.
    """

    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorTerm:
    """One `nodeSelectorTerms` entry; with neither list it matches no node.

    `fields` knows only `metadata.name` with In and NotIn.
    """

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class HostPort:
    """A host port asked for; ip "0.0.0.0" clashes with any ip."""

    port: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """A required inter-pod (anti-)affinity term, namespaces already resolved.

    `namespaces` lists the namespaces of the selected pods; `all_namespaces` overrides it.
    """

    key: str
    selector: LabelSelector | None
    namespaces: tuple[str, ...] = ()
    all_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class SpreadTerm:
    """A `DoNotSchedule` topology spread constraint (matchLabelKeys already folded in)."""

    key: str
    max_skew: int
    selector: LabelSelector | None
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


@dataclass(frozen=True, slots=True)
class ClaimNeed:
    """A `spec.resourceClaims[]` entry of a pod.

    `claim` is "namespace/name" of an existing ResourceClaim, or "" when one is still to be made
    from `template`. `allocated_nodes` is None while the claim has no allocation; otherwise the
    node selector terms of the allocation (an empty tuple: usable anywhere).
    """

    name: str
    claim: str = ""
    template: str = ""
    shared_by_group: bool = False
    allocated_nodes: tuple[SelectorTerm, ...] | None = None
    requests: tuple[RequestChoice, ...] = ()
    """Devices asked for; those of unknown classes are left out."""
    constraints: tuple[DeviceConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What placement needs to know of a pod template; equal specs are one object.

    `requests` are effective requests (containers, sidecars, overhead, pod level, resize), sorted
    by resource, zero entries left out, always with ("pods", 1).
    """

    requests: tuple[tuple[str, int], ...] = ((PODS, 1),)
    node_selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[SelectorTerm, ...] | None = None
    """Required node affinity: OR of terms. None: no constraint. Empty: no node matches."""
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadTerm, ...] = ()
    claims: tuple[ClaimNeed, ...] = ()
    scheduler: str = "default-scheduler"
    never_preempts: bool = False
    unmodelled: tuple[str, ...] = ()
    """Reasons why a placement is only conditional (volumes, unknown plugins …)."""

    def request(self, resource: str) -> int:
        """Return the effective request of a resource, 0 when it asks for none."""
        return next((amount for name, amount in self.requests if name == resource), 0)

    @property
    def gpus(self) -> int:
        """Whole accelerators asked for."""
        return sum(amount for name, amount in self.requests if is_gpu(name))


@dataclass(frozen=True, slots=True)
class Node:
    """A machine. `allocatable` is `status.allocatable` in canonical units."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels some key of the snapshot refers to, and those known to describe topology."""
    allocatable: Mapping[str, int] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    """Condition Ready; only a node whose taints do not say so already is filtered by it."""
    allows_resize_preemption: bool = True
    """False where `spec.podPreemptionPolicy.disableResizePreemption[]` names something."""


class Phase(IntEnum):
    """`Pod.status.phase`."""

    PENDING = 0
    RUNNING = 1
    SUCCEEDED = 2
    FAILED = 3
    UNKNOWN = 4


class PodFlag(IntFlag):
    """Facts about a pod that change how it counts."""

    TERMINATING = 1
    """Has a deletionTimestamp: holds resources until gone, is no member any more."""
    GATED = 2
    """Has scheduling gates: neither placed nor part of the cycle."""
    DAEMON = 4
    STATIC = 8
    PLANNED = 16
    """Described by a template, not created yet."""
    WAITING = 32
    """Names a group that is not in the snapshot."""
    NOT_PREEMPTIBLE = 64
    """Its own API says it may not be a victim (KAI non-preemptible, Volcano preemptable=false)."""
    NOT_MOVABLE = 128
    """Its own API says a re-packing may not move it (KAI safe-to-consolidate=false)."""
    RESIZE_DEFERRED = 256
    """Condition PodResizePending has reason Deferred: it waits for room to grow where it runs."""


class Pod(NamedTuple):
    """One row of a `PodTable`, for reading."""

    ref: str
    spec: PodSpec
    labels: Mapping[str, str]
    node: int
    group: int
    phase: Phase
    flags: PodFlag
    priority: int
    nominated: int
    rank: int
    template: str
    created: int
    started: int
    checkpoint: int


@dataclass(frozen=True, slots=True)
class PodTable:
    """All pods, one column an attribute; axis P, sorted by `refs`."""

    refs: tuple[str, ...]
    """(P,) "namespace/name", unique."""
    specs: tuple[PodSpec, ...]
    """(X,) distinct specs."""
    label_sets: tuple[Mapping[str, str], ...]
    """(Y,) distinct label maps, cut down to keys that some selector of the snapshot mentions."""
    templates: tuple[str, ...]
    """(Z,) distinct template names; "" first."""
    spec: NDArray[np.int32]
    """i32[P] index into `specs`."""
    labels: NDArray[np.int32]
    """i32[P] index into `label_sets`."""
    template: NDArray[np.int32]
    """i32[P] index into `templates`: "leader", "worker", a Kueue pod set, a role."""
    node: NDArray[np.int32]
    """i32[P] index into `Snapshot.nodes`, NO_NODE or MISSING_NODE."""
    group: NDArray[np.int32]
    """i32[P] index into `Snapshot.groups` of the leaf that owns the pod, or NO_GROUP."""
    phase: NDArray[np.int8]
    """i8[P] `Phase`."""
    flags: NDArray[np.int16]
    """i16[P] bits of `PodFlag`."""
    priority: NDArray[np.int32]
    """i32[P] the pod's own `spec.priority` (absent: 0)."""
    nominated: NDArray[np.int32]
    """i32[P] node of `status.nominatedNodeName`, or NO_NODE."""
    rank: NDArray[np.int32]
    """i32[P] place in its group (LWS worker index, completion index …), -1 where it has none."""
    created: NDArray[np.int64]
    """i64[P] creation time in seconds since 1970, -1 where unknown."""
    started: NDArray[np.int64]
    """i64[P] `status.startTime` in seconds since 1970, -1 where unknown."""
    checkpoint: NDArray[np.int64]
    """i64[P] when its work was last saved, in seconds since 1970, -1 where unknown: the annotation
    `gangplan.io/last-checkpoint`, or the one that `--checkpoint-annotation` names."""

    def __len__(self) -> int:
        return len(self.refs)

    def row(self, p: int) -> Pod:
        """Return pod `p` as a tuple of its attributes."""
        return Pod(
            self.refs[p],
            self.specs[self.spec[p]],
            self.label_sets[self.labels[p]],
            int(self.node[p]),
            int(self.group[p]),
            Phase(int(self.phase[p])),
            PodFlag(int(self.flags[p])),
            int(self.priority[p]),
            int(self.nominated[p]),
            int(self.rank[p]),
            self.templates[self.template[p]],
            int(self.created[p]),
            int(self.started[p]),
            int(self.checkpoint[p]),
        )

    @property
    def is_live(self) -> NDArray[np.bool_]:
        """bool[P], neither Succeeded nor Failed."""
        live: NDArray[np.bool_] = (self.phase != Phase.SUCCEEDED) & (self.phase != Phase.FAILED)
        return live

    @property
    def holds_room(self) -> NDArray[np.bool_]:
        """bool[P], bound and not finished: counts against its node (terminating ones too)."""
        holds: NDArray[np.bool_] = self.is_live & (self.node != NO_NODE)
        return holds

    @property
    def is_running_member(self) -> NDArray[np.bool_]:
        """bool[P], counts toward the floor of its group: bound, not finished, not terminating."""
        counts: NDArray[np.bool_] = self.holds_room & ((self.flags & PodFlag.TERMINATING) == 0)
        return counts

    @property
    def is_pending(self) -> NDArray[np.bool_]:
        """bool[P], waits for a node and may be given one (not gated, terminating or waiting)."""
        held = PodFlag.TERMINATING | PodFlag.GATED | PodFlag.WAITING
        waits: NDArray[np.bool_] = (
            self.is_live & (self.node == NO_NODE) & ((self.flags & held) == 0)
        )
        return waits


@dataclass(frozen=True, slots=True)
class TopologyTerm:
    """All pods below a group share one domain.

    `path` holds the node labels whose values identify the domain, widest first, the constraining
    key last. In-tree Kubernetes compares one label alone (a path of one); Kueue identifies a
    domain by its path, so that rack-1 under block-1 is not rack-1 under block-2.
    """

    path: tuple[str, ...]
    required: bool = True

    @property
    def key(self) -> str:
        """The constraining label key."""
        return self.path[-1]


@dataclass(frozen=True, slots=True)
class SliceTerm:
    """Consecutive runs of `size` pods of a leaf each share one domain of `path`.

    Source: Kueue `podSetSliceSize`, KAI `segment-size`, Volcano `partitionSize`.
    """

    path: tuple[str, ...]
    size: int
    required: bool = True


@dataclass(frozen=True, slots=True)
class Exclusive:
    """Membership in a class of groups that keep out of one another's domains.

    In every domain of `key`, at most one group of `peers` may have pods if one of them there has
    a `key` of its own. `key` None: a member of the class that asks for nothing itself (an LWS
    group without the annotation) but must stay out of domains others hold.

    Source: LeaderWorkerSet exclusive-topology (peers: namespace), JobSet exclusive-topology
    (peers: cluster and priority).
    """

    peers: str
    key: str | None = None


GroupKind = Literal["composite", "group", "subgroup"]


@dataclass(frozen=True, slots=True)
class Group:
    """A node of the group forest: composite over groups, group over subgroups, leaf over pods.

    A group succeeds when at least `min_count` pods of its subtree run or are placed (counting
    children that succeed) and at least `min_groups` children succeed; a child that fails gives
    back what it took.
    """

    ref: str
    """Reference of the contract; a subgroup's is its group's plus "#name"."""
    kind: GroupKind
    api: str
    """The apiVersion and kind of the object it was read from, joined by "/"."""
    parent: int = NO_GROUP
    """Index into `Snapshot.groups`."""
    name: str = ""
    """Name inside the parent: subgroup index, pod set, task. "" for a root."""
    policy: Literal["gang", "basic"] = "gang"
    min_count: int = 0
    """Pods of the subtree that must run; basic: 0."""
    min_groups: int = 0
    """Direct children that must succeed; 0 for a leaf."""
    size: int = 0
    """Pods wanted in the subtree, running ones included."""
    priority: int = 0
    """Of the root group; the same in its whole tree."""
    topology: tuple[TopologyTerm, ...] = ()
    slices: tuple[SliceTerm, ...] = ()
    """Outer to inner; leaves only."""
    exclusive: tuple[Exclusive, ...] = ()
    disruption: Literal["single", "all"] = "single"
    never_preempts: bool = False
    evictable: bool = True
    movable: bool = True
    created: int = -1
    """Creation time in seconds since 1970; decides ties of equal priority."""
    queue: str = ""
    is_inferred: bool = False
    """The importer assumed atomicity; the API did not promise it."""
    is_leader: bool = False
    """A leaf that holds only the leader (LWS LeaderExcluded)."""
    blocked: str = ""
    """Why its scheduler would refuse the group as it stands (reason and message), or ""."""
    unmodelled: tuple[str, ...] = ()
    """Reasons why a placement of this group is only conditional."""

    @property
    def paths(self) -> tuple[tuple[str, ...], ...]:
        """Every topology path the group refers to (an exclusive key is a path of one)."""
        return (
            *(t.path for t in self.topology),
            *(s.path for s in self.slices),
            *((e.key,) for e in self.exclusive if e.key is not None),
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: `status.disruptionsAllowed` over pods that match."""

    ref: str
    selector: LabelSelector | None
    allowed: int
    disrupted: frozenset[str] = frozenset()
    """Names in `status.disruptedPods`."""


@dataclass(frozen=True, slots=True)
class ObjectError:
    """An object that was set aside, or a field of it that could not be believed."""

    object: str
    """Its "namespace/name", or file and position when it has no name."""
    kind: str
    field: str
    message: str
    """What is wrong and what to do."""
    file: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything read from one cluster at one moment; never changed.

    Sorted: nodes by name, groups by ref, pods by ref. Indices point into these orders.
    """

    nodes: tuple[Node, ...]
    pods: PodTable
    groups: tuple[Group, ...] = ()
    budgets: tuple[Budget, ...] = ()
    devices: DeviceTable = NO_DEVICES
    errors: tuple[ObjectError, ...] = ()
    warnings: tuple[str, ...] = ()
