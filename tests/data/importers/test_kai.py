from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from importer_builders import (
    finish,
    group_of,
    lines_of,
    make_context,
    make_object,
    make_pod,
    members_of,
)

from data.importers.kai import import_kai
from topology.model import PodFlag, SliceTerm, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportedPod, RawObject

BLOCK = "topo.example.com/block"
RACK = "topo.example.com/rack"
TOPOLOGY = make_object(
    "kai.scheduler/v1alpha1/Topology",
    "fabric",
    {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": RACK}]},
    namespace="",
)


def make_pod_group(**spec: Any) -> RawObject:
    return make_object("scheduling.run.ai/v2alpha2/PodGroup", "g", spec)


def make_member(name: str, subgroup: str = "", **fields: Any) -> ImportedPod:
    annotations = {"pod-group-name": "g", **fields.pop("annotations", {})}
    labels = {"kai.scheduler/subgroup-name": subgroup} if subgroup else {}
    return make_pod(name, annotations=annotations, labels=labels, **fields)


def test_flat_group() -> None:
    context = make_context(
        TOPOLOGY,
        make_pod_group(
            minMember=2,
            queue="team",
            topologyConstraint={
                "topology": "fabric",
                "requiredTopologyLevel": BLOCK,
                "preferredTopologyLevel": RACK,
            },
        ),
        pods=[make_member("m-0"), make_member("m-1"), make_member("m-2")],
    )
    import_kai(context)
    group = group_of(context, "ml/g")
    assert (group.min_count, group.min_groups, group.size, group.queue) == (2, 0, 3, "team")
    assert group.topology == (TopologyTerm((BLOCK,)), TopologyTerm((BLOCK, RACK), False))
    assert members_of(context) == {"ml/g": ["m-0", "m-1", "m-2"]}


def test_nested_subgroups() -> None:
    rack = {"topology": "fabric", "requiredTopologyLevel": RACK}
    context = make_context(
        TOPOLOGY,
        make_pod_group(
            minSubGroup=2,
            topologyConstraint={"topology": "fabric", "requiredTopologyLevel": BLOCK},
            subGroups=[
                {"name": "prefill", "topologyConstraint": rack},
                {"name": "leader", "parent": "prefill", "minMember": 1},
                {"name": "worker", "parent": "prefill", "minMember": 2},
                {"name": "decode", "minMember": 1},
                {"name": "elastic", "minMember": 0},
            ],
        ),
        pods=[
            make_member("l-0", "leader"),
            make_member("w-0", "worker"),
            make_member("w-1", "worker"),
            make_member("d-0", "decode"),
            make_member("e-0", "elastic"),
            make_member("x-0"),
        ],
    )
    import_kai(context)
    assert {ref: row.parent for ref, row in context.groups.items()} == {
        "ml/g": "",
        "ml/g#prefill": "ml/g",
        "ml/g#leader": "ml/g#prefill",
        "ml/g#worker": "ml/g#prefill",
        "ml/g#decode": "ml/g",
        "ml/g#elastic": "ml/g",
        "ml/g#rest": "ml/g",
    }
    floors = {ref: (r.group.min_count, r.group.min_groups) for ref, r in context.groups.items()}
    assert floors == {
        "ml/g": (1, 3),  # Two subgroups, and the rest as it may be.
        "ml/g#prefill": (3, 2),
        "ml/g#leader": (1, 0),
        "ml/g#worker": (2, 0),
        "ml/g#decode": (1, 0),
        "ml/g#elastic": (0, 0),
        "ml/g#rest": (0, 0),
    }
    assert group_of(context, "ml/g#prefill").topology == (TopologyTerm((BLOCK, RACK)),)
    assert group_of(context, "ml/g#prefill").size == 3
    assert members_of(context)["ml/g#rest"] == ["x-0"]
    finish(context)


@pytest.mark.parametrize(
    ("spec", "priority", "want_evictable"),
    [
        pytest.param({}, 99, True, id="below 100"),
        pytest.param({}, 100, False, id="100 and above"),
        pytest.param({"preemptibility": "preemptible"}, 100, True, id="said so"),
        pytest.param({"preemptibility": "non-preemptible"}, 50, False, id="said not"),
        pytest.param({"preemptibility": "semi-preemptible"}, 50, False, id="semi"),
    ],
)
def test_preemptibility(spec: dict[str, Any], priority: int, want_evictable: bool) -> None:
    pod = make_member("m-0", on="n0", priority=priority)
    context = make_context(make_pod_group(minMember=1, **spec), pods=[pod])
    import_kai(context)
    assert group_of(context, "ml/g").evictable is want_evictable
    assert bool(pod.row.flags & PodFlag.NOT_PREEMPTIBLE) is not want_evictable


@pytest.mark.parametrize(
    ("spec", "annotations", "want_movable"),
    [
        pytest.param({}, {}, True, id="default"),
        pytest.param({"safeToConsolidate": False}, {}, False, id="field"),
        pytest.param({}, {"kai.scheduler/safe-to-consolidate": "false"}, False, id="annotation"),
    ],
)
def test_movable(spec: dict[str, Any], annotations: dict[str, str], want_movable: bool) -> None:
    pod = make_member("m-0", on="n0", annotations=annotations)
    context = make_context(make_pod_group(minMember=1, **spec), pods=[pod])
    import_kai(context)
    assert group_of(context, "ml/g").movable is want_movable
    assert bool(pod.row.flags & PodFlag.NOT_MOVABLE) is not want_movable


SEGMENT = "kai.scheduler/segment-"


@pytest.mark.parametrize(
    ("annotations", "want_slices"),
    [
        pytest.param(
            {SEGMENT + "size": "2", SEGMENT + "topology-required-placement": RACK},
            (SliceTerm((BLOCK, RACK), 2),),
            id="required",
        ),
        pytest.param(
            {
                SEGMENT + "size": "2",
                SEGMENT + "topology-required-placement": BLOCK,
                SEGMENT + "topology-preferred-placement": RACK,
            },
            (SliceTerm((BLOCK,), 2), SliceTerm((BLOCK, RACK), 2, required=False)),
            id="required and preferred",
        ),
    ],
)
def test_segments(annotations: dict[str, str], want_slices: tuple[SliceTerm, ...]) -> None:
    pods = [make_member(f"m-{i}", annotations=annotations) for i in range(4)]
    context = make_context(TOPOLOGY, make_pod_group(minMember=4), pods=pods)
    import_kai(context)
    assert group_of(context, "ml/g").slices == want_slices


@pytest.mark.parametrize(
    ("spec", "want_field"),
    [
        pytest.param({"minMember": 1, "minSubGroup": 1}, "spec.minSubGroup", id="both floors"),
        pytest.param(
            {"subGroups": [{"name": "a"}, {"name": "a"}]}, "spec.subGroups[1].name", id="same name"
        ),
        pytest.param({"subGroups": [{"name": "a", "parent": "z"}]}, "spec", id="unknown parent"),
        pytest.param(
            {"subGroups": [{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}]},
            "spec",
            id="cycle",
        ),
        pytest.param({"subGroups": [{"name": "a", "parent": "a"}]}, "spec", id="own parent"),
        pytest.param(
            {
                "subGroups": [
                    {"name": f"s{i}", "parent": f"s{i - 1}" if i else ""} for i in range(3000)
                ]
            },
            "spec",
            id="far too deep",
        ),
        pytest.param({"preemptibility": "maybe"}, "spec.preemptibility", id="preemptibility"),
        pytest.param({"topologyConstraint": "rack"}, "spec.topologyConstraint", id="wrong type"),
    ],
)
def test_invalid_groups_are_set_aside(spec: dict[str, Any], want_field: str) -> None:
    pod = make_member("m-0")
    context = make_context(make_pod_group(**spec), pods=[pod])
    import_kai(context)
    assert lines_of(context) == [f"ml/g: {want_field}"]
    assert context.groups == {}
    assert pod.row.flags == PodFlag.WAITING


def test_unknown_level() -> None:
    rule = {"topology": "fabric", "requiredTopologyLevel": "example.com/room"}
    context = make_context(TOPOLOGY, make_pod_group(minMember=1, topologyConstraint=rule))
    import_kai(context)
    assert group_of(context, "ml/g").blocked == (
        'no requested topology level: "example.com/room" is not in Topology fabric'
    )
