"""An answer in names: placements, evictions, moves, why not, how good, and whether it verified.

The JSON form is `to_dict`; its keys are the contract with users' scripts (camelCase).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from topology.quantities import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topology.model import ObjectError
    from topology.move_request import GoalOutcome, MoveRequest

__all__ = [
    "API_VERSION",
    "Bound",
    "Cause",
    "CauseName",
    "ChosenDomain",
    "Comparison",
    "Eviction",
    "GroupPlan",
    "Move",
    "PlacedDevice",
    "PlacedPod",
    "Plan",
    "Request",
    "ResizePlan",
    "ResizeRequest",
    "Verification",
    "Violation",
]

API_VERSION = "gangplan/v1"

CauseName = Literal[
    "quorum-missing",
    "refused",
    "impossible",
    "domain-pinned",
    "device-held",
    "policy-never",
    "constraint",
    "fragmented",
    "busy",
]
"""Why a group is not placed, in the order in which they are tried.

`refused` means that its own scheduler would not try the group as it stands (members with different
schedulers or priorities, a tree that does not hold together, a topology level that does not exist).
"""


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """A running pod that is to grow or shrink where it is."""

    pod: str
    requests: tuple[tuple[str, int], ...] = ()
    """(resource, amount) that the pod as a whole is to ask for; empty: what its spec asks already,
    its resize being Deferred."""

    def to_dict(self) -> dict[str, Any]:
        """Return `request.resize`."""
        return {"pod": self.pod, "requests": _write_amounts(self.requests)}


@dataclass(frozen=True, slots=True)
class Request:
    """The question: what was asked of the snapshot, and how hard to look."""

    command: Literal["explain", "place", "preempt", "repack"] = "place"
    groups: tuple[str, ...] | None = None
    """References to plan for; None: everything pending."""
    objective: tuple[str, ...] = ("max:priority", "max:gpusPlaced", "min:fragmentation")
    seed: int = 0
    effort: Literal["quick", "normal", "thorough"] = "normal"
    preempt: bool = False
    release: str = "1.37"
    assume_gangs: bool = True
    """Hold groups whose atomicity the importer inferred to it."""
    pdb: Literal["soft", "hard"] = "soft"
    """hard: evictions never exceed what a disruption budget allows."""
    policy: Literal["optimize", "replay", "compare"] = "optimize"
    """optimize: search; replay: do as kube-scheduler of the release would; compare: both."""
    move: MoveRequest | None = None
    """What may be moved and why, and what is drained; None: nothing is."""
    dra_reclaim: Literal["none", "node-local", "all"] = "none"
    """Which claims of victims count as released: none is what kube-scheduler does; node-local
    those reserved by victims alone, for pods, all of whose devices are of one node; all: whatever
    victims alone use, claims of a PodGroup among it."""
    resize: ResizeRequest | None = None
    """Plan for this running pod instead of for groups."""

    def to_dict(self) -> dict[str, Any]:
        """Return the `request` object of the contract."""
        return {
            "groups": None if self.groups is None else list(self.groups),
            "preempt": self.preempt,
            "pdb": self.pdb,
            "draReclaim": self.dra_reclaim,
            "move": None if self.move is None else self.move.to_dict(),
            "objective": list(self.objective),
            "seed": self.seed,
            "effort": self.effort,
            "assumeGangs": self.assume_gangs,
            **({} if self.resize is None else {"resize": self.resize.to_dict()}),
            "policy": self.policy,
        }


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a group is not placed, with a message a person can act on."""

    name: CauseName
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the `cause` object of the contract."""
        return {"is": self.name, "message": self.message, "details": dict(self.details)}


@dataclass(frozen=True, slots=True)
class PlacedDevice:
    """A DRA device that a claim of a new pod would be given."""

    claim: str
    """Name of the pod's `spec.resourceClaims` entry, or of the extended resource it stands for."""
    request: str
    """Name of the request, "request/subrequest" where several alternatives were open."""
    driver: str
    pool: str
    device: str

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `groups[].pods[].devices`."""
        return {
            "claim": self.claim,
            "request": self.request,
            "driver": self.driver,
            "pool": self.pool,
            "device": self.device,
        }


@dataclass(frozen=True, slots=True)
class PlacedPod:
    """A pending pod and the node it would get."""

    pod: str
    node: str
    subgroup: str | None = None
    template: str | None = None
    devices: tuple[PlacedDevice, ...] = ()
    """Those of claims that are allocated with it; a claim that pods share is listed once, with
    the first of them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `groups[].pods`."""
        entry: dict[str, Any] = {
            "pod": self.pod,
            "node": self.node,
            "subgroup": self.subgroup,
            "template": self.template,
        }
        if self.devices:
            entry["devices"] = [d.to_dict() for d in self.devices]
        return entry


@dataclass(frozen=True, slots=True)
class ChosenDomain:
    """The domain that a group or one of its subgroups ends up in."""

    key: str
    value: str
    subgroup: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `groups[].domains`."""
        return {"subgroup": self.subgroup, "key": self.key, "value": self.value}


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """What happens to one group."""

    group: str
    api: str
    policy: str
    min_count: int
    priority: int
    outcome: Literal["placed", "notPlaced"]
    cause: Cause | None = None
    domains: tuple[ChosenDomain, ...] = ()
    pods: tuple[PlacedPod, ...] = ()
    pending_pods: tuple[str, ...] = ()
    composite: str | None = None
    """The CompositePodGroup above it, if any."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `groups`."""
        return {
            "group": self.group,
            "api": self.api,
            "policy": self.policy,
            "minCount": self.min_count,
            "priority": self.priority,
            "composite": self.composite,
            "outcome": self.outcome,
            "cause": None if self.cause is None else self.cause.to_dict(),
            "domains": [d.to_dict() for d in self.domains],
            "pods": [p.to_dict() for p in self.pods],
            "pendingPods": list(self.pending_pods),
        }


@dataclass(frozen=True, slots=True)
class Eviction:
    """A running pod that would go."""

    pod: str
    node: str
    group: str | None = None
    reason: Literal["preemption", "drain"] = "preemption"
    preemptor: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `evictions`."""
        return {
            "pod": self.pod,
            "group": self.group,
            "node": self.node,
            "reason": self.reason,
            "for": self.preemptor,
        }


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """What would become of a pod that is to be resized where it runs."""

    pod: str
    node: str
    outcome: Literal["resized", "notResized"]
    before: tuple[tuple[str, int], ...]
    """(resource, amount) that the scheduler counts for the pod now; only what is resized."""
    after: tuple[tuple[str, int], ...]
    cause: Cause | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return `resize` of the plan."""
        return {
            "pod": self.pod,
            "node": self.node,
            "outcome": self.outcome,
            "cause": None if self.cause is None else self.cause.to_dict(),
            "from": _write_amounts(self.before),
            "to": _write_amounts(self.after),
        }


def _write_amounts(amounts: Iterable[tuple[str, int]]) -> dict[str, str]:
    return {resource: format_quantity(amount, resource) for resource, amount in amounts}


@dataclass(frozen=True, slots=True)
class Move:
    """A running pod that would change its node, in the order of `step`.

    In a restart a pod may come back to its own node: it stops and starts with the rest of its unit.
    """

    step: int
    wave: int
    pod: str
    source: str
    target: str
    mode: Literal["live", "restart"]
    group: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `moves`."""
        return {
            "step": self.step,
            "wave": self.wave,
            "pod": self.pod,
            "group": self.group,
            "from": self.source,
            "to": self.target,
            "mode": self.mode,
        }


@dataclass(frozen=True, slots=True)
class Bound:
    """What no plan can beat in one criterion, and whether that was reached.

    proof: "optimal" when no plan is better in this criterion (given those before it), "bound"
    when `value` is proven but not reached, "none" when nothing could be proven.
    """

    criterion: str
    value: int | None
    gap: float | None
    proof: Literal["optimal", "bound", "none"]

    def to_dict(self) -> dict[str, Any]:
        """Return the `bound` object of the contract."""
        return {
            "criterion": self.criterion,
            "value": self.value,
            "gap": self.gap,
            "proof": self.proof,
        }


@dataclass(frozen=True, slots=True)
class Violation:
    """One hard rule that a plan breaks."""

    rule: str
    object: str
    wanted: str
    found: str

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of `verification.violations`."""
        return {
            "rule": self.rule,
            "object": self.object,
            "wanted": self.wanted,
            "found": self.found,
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """Verdict of the independent verifier."""

    checks: int
    violations: tuple[Violation, ...] = ()

    @property
    def is_valid(self) -> bool:
        """True when no rule is broken."""
        return not self.violations

    def to_dict(self) -> dict[str, Any]:
        """Return the `verification` object of the contract."""
        return {
            "valid": self.is_valid,
            "checks": self.checks,
            "violations": [v.to_dict() for v in self.violations],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """What kube-scheduler itself would do with the same question, and what the search saves."""

    replay: Plan
    saved: Mapping[str, int]
    """Criterion -> gain of the search: placed more, or evicted less."""

    def to_dict(self) -> dict[str, Any]:
        """Return the `comparison` object: the other Plan and the gains."""
        return {"replay": self.replay.to_dict(), "saved": dict(sorted(self.saved.items()))}


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole answer, ready to be shown, stored or verified again."""

    request: Request
    snapshot: Mapping[str, Any]
    """`digest`, `release`, `nodes`, `pods`, `groups` of the snapshot that was asked."""
    groups: tuple[GroupPlan, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    moves: tuple[Move, ...] = ()
    goals: tuple[GoalOutcome, ...] = ()
    """Of `repack`: what became of `--free` and `--drain`."""
    criteria: Mapping[str, int] = field(default_factory=dict)
    bound: Bound = field(default_factory=lambda: Bound("gpusPlaced", None, None, "none"))
    conditional: tuple[tuple[str, str], ...] = ()
    """(group, reason): relies on something that is not modelled."""
    warnings: tuple[str, ...] = ()
    errors: tuple[ObjectError, ...] = ()
    verification: Verification | None = None
    resize: ResizePlan | None = None
    comparison: Comparison | None = None
    """With policy compare: the replayed plan beside this one."""

    def with_verification(self, verification: Verification) -> Plan:
        """Return the plan with the verdict written in."""
        return replace(self, verification=verification)

    def to_dict(self) -> dict[str, Any]:
        """Return the Plan document of the contract."""
        return {
            "apiVersion": API_VERSION,
            "kind": "Plan",
            "command": self.request.command,
            "snapshot": dict(self.snapshot),
            "request": self.request.to_dict(),
            "groups": [g.to_dict() for g in self.groups],
            "evictions": [e.to_dict() for e in self.evictions],
            "moves": [m.to_dict() for m in self.moves],
            **({} if self.request.move is None else {"goals": [g.to_dict() for g in self.goals]}),
            **({} if self.resize is None else {"resize": self.resize.to_dict()}),
            "criteria": dict(sorted(self.criteria.items())),
            "bound": self.bound.to_dict(),
            "conditional": [{"group": g, "reason": r} for g, r in self.conditional],
            "warnings": list(self.warnings),
            "errors": [
                {"object": e.object, "kind": e.kind, "field": e.field, "message": e.message}
                for e in self.errors
            ],
            "verification": None if self.verification is None else self.verification.to_dict(),
            **({} if self.comparison is None else {"comparison": self.comparison.to_dict()}),
        }
