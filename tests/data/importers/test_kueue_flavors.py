from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import GPU, make_node, make_spec
from importer_builders import lines_of, make_context, make_object

from data.importers.kueue_flavors import Flavors, NodeChoice
from data.importers.kueue_request import TopologyRequest
from data.importers.topologies import Levels
from topology.model import PodSpec, Requirement, SelectorTerm, Toleration

if TYPE_CHECKING:
    from data.importers.base import RawObject

V = "kueue.x-k8s.io/v1beta2/"
RACK = "topo.example.com/rack"
LEVELS = Levels("fabric", (RACK, "kubernetes.io/hostname"))
TOLERATION = {"key": "gpu", "operator": "Exists"}
ON_RACK = TopologyRequest(required=RACK, is_present=True)
NODES = [make_node("a0", rack="r0", labels={"pool": "a"}), make_node("b0", labels={"pool": "b"})]


def make_flavor(name: str, pool: str = "", **spec: Any) -> RawObject:
    labels = {"nodeLabels": {"pool": pool}} if pool else {}
    return make_object(V + "ResourceFlavor", name, {**labels, **spec}, namespace="")


def make_queue(*groups: tuple[str, ...], **spec: Any) -> list[RawObject]:
    """LocalQueue lq of ClusterQueue cq; the first group of flavors covers GPUs, the next cpu."""
    resource_groups = [
        {"coveredResources": [covered], "flavors": [{"name": name} for name in names]}
        for covered, names in zip((GPU, "cpu"), groups, strict=False)
    ]
    return [
        make_object(V + "LocalQueue", "lq", {"clusterQueue": "cq"}),
        make_object(
            V + "ClusterQueue", "cq", {"resourceGroups": resource_groups, **spec}, namespace=""
        ),
    ]


TOPOLOGY = make_object(
    V + "Topology", "fabric", {"levels": [{"nodeLabel": k} for k in LEVELS.keys]}, namespace=""
)
GPU_SPEC = make_spec(gpus=1, cpu=1)


@pytest.mark.parametrize(
    ("objects", "spec", "request_", "assigned", "want_choice"),
    [
        pytest.param(
            [*make_queue(("fa",)), make_flavor("fa", "a", tolerations=[TOLERATION])],
            GPU_SPEC,
            TopologyRequest(),
            [],
            NodeChoice((("pool", "a"),), (Toleration("gpu", "Exists"),)),
            id="the only flavor",
        ),
        pytest.param(
            [*make_queue(("fx", "fb", "fa")), *map(make_flavor, ("fx", "fb", "fa"), "xba")],
            GPU_SPEC,
            TopologyRequest(),
            [],
            NodeChoice(
                (("pool", "b"),),
                reasons=(
                    "flavor fb of ClusterQueue cq is assumed; 2 more may be assigned instead",
                ),
            ),
            id="several: the first with nodes",
        ),
        pytest.param(
            [*make_queue(("fa", "fb")), *map(make_flavor, ("fa", "fb"), "ab")],
            GPU_SPEC,
            TopologyRequest(),
            ["fb"],
            NodeChoice((("pool", "b"),)),
            id="assigned",
        ),
        pytest.param(
            [*make_queue(("fa",), ("fc",)), make_flavor("fa", "a"), make_flavor("fc")],
            GPU_SPEC,
            TopologyRequest(),
            [],
            NodeChoice((("pool", "a"),)),
            id="one flavor for each resource group",
        ),
        pytest.param(
            [*make_queue(("fa", "fb")), *map(make_flavor, ("fa", "fb"), "ab")],
            make_spec(node_selector=(("pool", "b"),)),
            TopologyRequest(),
            [],
            NodeChoice((("pool", "b"),)),
            id="the pods' own selector decides",
        ),
        pytest.param(
            [
                *make_queue(("fa", "fb")),
                make_flavor("fa", "a", nodeTaints=[{"key": "t", "effect": "NoSchedule"}]),
                make_flavor("fb", "b"),
            ],
            GPU_SPEC,
            TopologyRequest(),
            [],
            NodeChoice((("pool", "b"),)),
            id="a taint the pods do not tolerate",
        ),
        pytest.param(
            [
                TOPOLOGY,
                *make_queue(("fa", "fb")),
                make_flavor("fa", "a"),
                make_flavor("fb", "b", topologyName="fabric"),
            ],
            GPU_SPEC,
            ON_RACK,
            [],
            NodeChoice((("pool", "b"),), levels=LEVELS, is_tas=True),
            id="a topology request needs a flavor with Topology",
        ),
        pytest.param(
            [*make_queue(("fa",)), make_flavor("fa", "a")],
            GPU_SPEC,
            ON_RACK,
            [],
            NodeChoice(
                blocked="ClusterQueue cq has no flavor for it: flavor fa does not support "
                "topology requests (no topologyName)"
            ),
            id="no flavor with Topology",
        ),
        pytest.param(
            [TOPOLOGY, *make_queue(("fa",)), make_flavor("fa", "a", topologyName="fabric")],
            GPU_SPEC,
            TopologyRequest(required="example.com/room", is_present=True),
            [],
            NodeChoice(
                blocked="ClusterQueue cq has no flavor for it: no requested topology level: "
                '"example.com/room" is not in Topology fabric'
            ),
            id="unknown level",
        ),
        pytest.param(
            [*make_queue(("fa",), stopPolicy="Hold"), make_flavor("fa", "a")],
            GPU_SPEC,
            TopologyRequest(),
            [],
            NodeChoice(blocked="ClusterQueue cq is stopped (stopPolicy Hold)"),
            id="stopped queue",
        ),
        pytest.param([], GPU_SPEC, TopologyRequest(), [], NodeChoice(), id="no objects"),
    ],
)
def test_choice(
    objects: list[RawObject],
    spec: PodSpec,
    request_: TopologyRequest,
    assigned: list[str],
    want_choice: NodeChoice,
) -> None:
    context = make_context(*objects, nodes=NODES)
    flavors = Flavors.read(context)
    assert flavors.choose("ml", "lq", spec, request_, assigned) == want_choice
    assert (context.warnings, lines_of(context)) == ([], [])


@pytest.mark.parametrize(
    ("objects", "want_warning"),
    [
        pytest.param(
            make_queue(("fa",)),
            "ResourceFlavor fa of ClusterQueue cq is not in the snapshot; it is passed over: "
            "add it",
            id="flavor",
        ),
        pytest.param(
            [*make_queue(("fa",)), make_flavor("fa", "a", topologyName="fabric")],
            "Topology fabric is not in the snapshot; its labels are taken for global ones: add it",
            id="topology",
        ),
        pytest.param(
            [make_object(V + "LocalQueue", "other", {"clusterQueue": "cq"})],
            "LocalQueue ml/lq is not in the snapshot; its workloads are planned on every node: "
            "add it",
            id="local queue",
        ),
    ],
)
def test_missing_objects(objects: list[RawObject], want_warning: str) -> None:
    context = make_context(*objects, nodes=NODES)
    Flavors.read(context).choose("ml", "lq", GPU_SPEC, TopologyRequest())
    assert context.warnings == [want_warning]


RACK_EXISTS = Requirement(RACK, "Exists")
HOST_EXISTS = Requirement("kubernetes.io/hostname", "Exists")
GEN = Requirement("gen", "In", ("h",))


@pytest.mark.parametrize(
    ("terms", "want_terms"),
    [
        pytest.param(None, (SelectorTerm((RACK_EXISTS, HOST_EXISTS)),), id="none"),
        pytest.param((), (), id="no node matches"),
        pytest.param(
            (SelectorTerm((GEN,)), SelectorTerm()),
            (SelectorTerm((GEN, RACK_EXISTS, HOST_EXISTS)), SelectorTerm()),
            id="added to each term, but not to one that matches nothing",
        ),
    ],
)
def test_topology_wants_every_label(
    terms: tuple[SelectorTerm, ...] | None, want_terms: tuple[SelectorTerm, ...]
) -> None:
    """Kueue counts only nodes that carry all labels of the flavor's Topology."""
    flavors = Flavors.read(make_context())
    choice = NodeChoice((("pool", "a"),), (Toleration("x", "Exists"),), LEVELS, is_tas=True)
    spec = flavors.apply(make_spec(node_terms=terms, node_selector=(("z", "1"),)), choice)
    assert spec.node_terms == want_terms
    assert spec.node_selector == (("pool", "a"), ("z", "1"))
    assert spec.tolerations == (Toleration("x", "Exists"),)


@pytest.mark.parametrize(
    ("spec", "want_line"),
    [
        pytest.param({"levels": []}, "fabric: spec.levels", id="no levels"),
        pytest.param(
            {"levels": [{"nodeLabel": RACK}, {"nodeLabel": RACK}]},
            "fabric: spec.levels",
            id="a level twice",
        ),
        pytest.param({"levels": 3}, "fabric: spec.levels", id="wrong type"),
    ],
)
def test_invalid_topology(spec: dict[str, Any], want_line: str) -> None:
    context = make_context(make_object(V + "Topology", "fabric", spec, namespace=""))
    Flavors.read(context)
    assert lines_of(context) == [want_line]
