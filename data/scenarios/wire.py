"""The scenarios file as types; what does not fit is refused with its path.

Every field is explained in docs/whatif.md; `scenario_schema` is the same for editors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "AddGroups",
    "AddNodes",
    "Change",
    "DomainOf",
    "GroupEdits",
    "RandomFailures",
    "RandomLevel",
    "Run",
    "Scenario",
    "Taint",
    "add_copies",
    "encode_scenarios",
    "scenario_schema",
]

Positive = Annotated[int, msgspec.Meta(ge=1)]
Whole = Annotated[int, msgspec.Meta(ge=0)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
Quantity = str | int | float
NodeSelection = str | dict[str, str] | list[str | dict[str, str]]
"""Node names, or maps of labels that a node carries, all of them; several are joined."""


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A field that is misspelt is an error, never ignored."""


class Taint(_Strict, frozen=True):
    """A taint to put on nodes."""

    key: Name
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class DomainOf(_Strict, frozen=True):
    """One domain of a topology key."""

    key: Name
    value: str


class AddNodes(_Strict, frozen=True):
    """New, empty nodes, like an existing one or as described; or copies of a whole domain."""

    name: Name
    """In front of the numbers: nodes `name-0`, `name-1` …, or values of the key of `like`."""
    nodes: Positive | None = None
    domains: Positive | None = None
    """Copies of the domain `like`, each with as many nodes: a rack like rack r1."""
    like: str | DomainOf | None = None
    labels: dict[str, str] = {}
    """Set on top of those of `like`; the hostname label is the node's own name."""
    taints: list[Taint] | None = None
    """In place of those of `like`."""
    allocatable: dict[str, Quantity] = {}
    """Set on top of that of `like`."""


class RandomLevel(_Strict, frozen=True):
    """What is drawn: `count` domains of a topology key, or nodes (`node`)."""

    level: Name
    count: Positive = 1


class RandomFailures(_Strict, frozen=True):
    """Failures drawn without putting back, anew in each of `samples` scenarios."""

    fail: RandomLevel
    samples: Positive
    seed: Whole = 0


class Change(_Strict, frozen=True):
    """Facts that are other than in the snapshot: of groups, of nodes, or of the rules.

    What is left out stays as it is. `group` or `nodes` says what is changed; neither: the rules.
    """

    group: str | None = None
    """A reference, or a pattern with `*`."""
    priority: int | None = None
    minCount: Whole | None = None
    topologyKey: str | None = None
    """"" takes the constraint away."""
    topologyMode: Literal["required", "preferred"] | None = None
    disruptionMode: Literal["single", "all"] | None = None
    preemptionPolicy: Literal["Never", "PreemptLowerPriority"] | None = None
    requests: dict[str, Quantity] = {}
    """Effective requests of each of its pods that wait; other resources stay."""

    nodes: NodeSelection | None = None
    labels: dict[str, str | None] = {}
    """A value, or null to take the label away."""
    taints: list[Taint] | None = None
    """In place of those the nodes have."""
    unschedulable: bool | None = None

    release: Literal["1.35", "1.36", "1.37"] | None = None
    draReclaim: Literal["none", "node-local", "all"] | None = None
    pdb: Literal["soft", "hard"] | None = None
    drainUnit: Literal["group", "pod"] | None = None


class AddGroups(_Strict, frozen=True):
    """Pending groups: copies of one in the snapshot, or read from manifests."""

    like: str | None = None
    manifest: str | list[dict[str, Any]] | None = None
    """A file beside the scenarios file, or the objects themselves."""
    times: Positive = 1
    priority: int | None = None
    minCount: Whole | None = None
    topologyKey: str | None = None
    topologyMode: Literal["required", "preferred"] | None = None
    requests: dict[str, Quantity] = {}


class GroupEdits(_Strict, frozen=True):
    """Groups that come and go."""

    add: AddGroups | list[AddGroups] = []
    remove: str | list[str] = []
    """References or patterns; their pods go with them."""


class Run(_Strict, frozen=True):
    """What a scenario is asked, where it is not what the command line says."""

    command: Literal["place", "preempt", "repack", "explain"] | None = None
    groups: list[str] | None = None
    objective: list[str] | None = None


class Scenario(_Strict, frozen=True):
    """A name, and what is other than in the snapshot."""

    name: Name
    add: AddNodes | list[AddNodes] = []
    remove: NodeSelection = []
    """Nodes that are gone; their pods wait for a node again."""
    cordon: NodeSelection = []
    drain: NodeSelection = []
    fail: NodeSelection = []
    """Nodes that are lost, at once; their pods wait for a node again."""
    set: Change | list[Change] = []
    groups: GroupEdits = GroupEdits()
    random: RandomFailures | None = None
    matrix: dict[str, list[str | int | float | bool]] = {}
    """Every combination of the values becomes a scenario; `${KEY}` stands for them in any text."""
    run: Run = Run()


class ScenariosFile(_Strict, frozen=True):
    """The file, where it is a map."""

    scenarios: list[Scenario]


def add_copies(name: str, addition: AddNodes, number: int) -> Scenario:
    """Return the scenario in which so many copies are added."""
    field = "nodes" if addition.nodes is not None else "domains"
    return Scenario(name, add=msgspec.structs.replace(addition, **{field: number}))


def encode_scenarios(scenarios: Sequence[Scenario]) -> bytes:
    """Return scenarios as canonical JSON: the same bytes for the same meaning."""
    return msgspec.json.encode(scenarios, order="sorted")


def scenario_schema() -> dict[str, Any]:
    """Return the JSON Schema of a scenarios file."""
    schema: dict[str, Any] = msgspec.json.schema(list[Scenario] | ScenariosFile)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
