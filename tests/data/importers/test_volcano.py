from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import make_node
from importer_builders import (
    finish,
    group_of,
    lines_of,
    make_context,
    make_object,
    make_pod,
    members_of,
)

from data.importers.volcano import import_volcano
from topology.model import PodFlag, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportedPod, RawObject

NAME = "scheduling.k8s.io/group-name"
TASK = "volcano.sh/task-spec"
NODES = [make_node("a0"), make_node("b0")]
T1, T2 = "hypernode/tier-1", "hypernode/tier-2"


def make_pod_group(name: str = "g", **spec: Any) -> RawObject:
    return make_object("scheduling.volcano.sh/v1beta1/PodGroup", name, spec)


def make_member(
    name: str, task: str = "", labels: dict[str, str] | None = None, **fields: Any
) -> ImportedPod:
    annotations = {NAME: "g", **({TASK: task} if task else {}), **fields.pop("annotations", {})}
    return make_pod(name, annotations=annotations, labels=labels, **fields)


def make_tiers(*, covers_all: bool = True) -> list[RawObject]:
    def hypernode(name: str, tier: int, kind: str, *names: str) -> RawObject:
        members = [{"type": kind, "selector": {"exactMatch": {"name": n}}} for n in names]
        spec = {"tier": tier, "tierName": f"t{tier}", "members": members}
        return make_object("topology.volcano.sh/v1alpha1/HyperNode", name, spec, namespace="")

    return [
        hypernode("sa", 1, "Node", "a0"),
        hypernode("sb", 1, "Node", "b0"),
        hypernode("top", 2, "HyperNode", *(("sa", "sb") if covers_all else ("sa",))),
    ]


def test_flat_group() -> None:
    group_ = make_pod_group(minMember=2, priorityClassName="high")
    pods = [
        make_member("m-0"),
        make_member("m-1", annotations={"volcano.sh/preemptable": "false"}),
        make_pod("x"),
    ]
    context = make_context(group_, pods=pods, priority_classes={"high": 9})
    import_volcano(context)
    assert members_of(context) == {"ml/g": ["m-0", "m-1"]}
    group = group_of(context, "ml/g")
    assert (group.min_count, group.size, group.priority, group.queue) == (2, 2, 9, "default")
    assert group.api == "scheduling.volcano.sh/v1beta1/PodGroup"
    assert [p.row.flags for p in pods] == [0, PodFlag.NOT_PREEMPTIBLE, 0]


def test_tasks_have_floors() -> None:
    group_ = make_pod_group(minMember=3, minTaskMember={"head": 1, "worker": 2}, queue="q")
    pods = [
        make_member("h-0", "head"),
        make_member("w-0", "worker"),
        make_member("w-1", "worker"),
        make_member("s-0", "side"),
        make_member("r-0"),
    ]
    context = make_context(group_, pods=pods)
    import_volcano(context)
    assert members_of(context) == {
        "ml/g#head": ["h-0"],
        "ml/g#worker": ["w-0", "w-1"],
        "ml/g#side": ["s-0"],
        "ml/g#rest": ["r-0"],
    }
    floors = {ref: row.group.min_count for ref, row in context.groups.items()}
    assert floors == {
        "ml/g": 3,
        "ml/g#head": 1,
        "ml/g#worker": 2,
        "ml/g#side": 0,
        "ml/g#rest": 0,
    }
    assert group_of(context, "ml/g").min_groups == 4
    assert pods[1].row.template == "worker"
    finish(context)


PARTITION = {
    "name": "part",
    "labelSelector": {"matchLabels": {"role": "w"}},
    "matchLabelKeys": ["volcano.sh/partition-id"],
    "subGroupSize": 2,
    "minSubGroups": 1,
    "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
}


def make_partitioned(role: str, *ids: str) -> list[ImportedPod]:
    return [
        make_member(f"{role}-{i}", labels={"role": role, "volcano.sh/partition-id": p})
        for i, p in enumerate(ids)
    ]


def test_subgroups_of_one_policy() -> None:
    pods = [*make_partitioned("w", "0", "0", "1", "1"), make_member("x")]
    group_ = make_pod_group(minMember=2, minTaskMember={"no": 1}, subGroupPolicy=[PARTITION])
    context = make_context(*make_tiers(), group_, pods=pods, nodes=NODES)
    import_volcano(context)
    assert members_of(context) == {
        "ml/g#part.0": ["w-0", "w-1"],
        "ml/g#part.1": ["w-2", "w-3"],
        "ml/g#rest": ["x"],
    }
    leaf = group_of(context, "ml/g#part.1")
    assert (leaf.min_count, leaf.topology) == (2, (TopologyTerm((T1,)),))
    assert group_of(context, "ml/g").min_groups == 2  # One partition, and the rest as it may be.


def test_subgroups_of_two_policies() -> None:
    other = {"name": "head", "labelSelector": {"matchLabels": {"role": "h"}}, "subGroupSize": 1}
    pods = [*make_partitioned("w", "0", "0"), *make_partitioned("h", "9")]
    group_ = make_pod_group(minMember=3, subGroupPolicy=[PARTITION, other])
    context = make_context(*make_tiers(), group_, pods=pods, nodes=NODES)
    import_volcano(context)
    assert {ref: row.parent for ref, row in context.groups.items()} == {
        "ml/g": "",
        "ml/g#part": "ml/g",
        "ml/g#part.0": "ml/g#part",
        "ml/g#head": "ml/g",
        "ml/g#head.all": "ml/g#head",
    }
    assert group_of(context, "ml/g#part").min_groups == 1
    assert group_of(context, "ml/g").min_groups == 2
    finish(context)


@pytest.mark.parametrize(
    ("rule", "covers_all", "want_topology", "want_warnings"),
    [
        pytest.param(
            {"highestTierAllowed": 2},
            True,
            (TopologyTerm((T2,)), TopologyTerm((T1,), False)),
            [],
            id="hard by default, closer preferred",
        ),
        pytest.param(
            {"mode": "soft", "highestTierAllowed": 2},
            True,
            (TopologyTerm((T1,), False), TopologyTerm((T2,), False)),
            [],
            id="soft",
        ),
        pytest.param({"highestTierName": "t1"}, True, (TopologyTerm((T1,)),), [], id="by name"),
        pytest.param(
            {"highestTierAllowed": 7},
            True,
            (TopologyTerm((T2,)), TopologyTerm((T1,), False)),
            [],
            id="wider than any",
        ),
        pytest.param(
            {"highestTierName": "zone"},
            True,
            (),
            ["PodGroup ml/g: no HyperNode has tier name zone; Volcano applies no constraint"],
            id="unknown name",
        ),
        pytest.param(
            {"highestTierAllowed": 2},
            False,
            (TopologyTerm((T2,)), TopologyTerm((T1,), False)),
            [
                "PodGroup ml/g: 1 nodes are in no HyperNode of tier 2, "
                "so they are outside its network topology"
            ],
            id="a node outside the tier",
        ),
    ],
)
def test_network_topology(
    rule: dict[str, Any],
    covers_all: bool,
    want_topology: tuple[TopologyTerm, ...],
    want_warnings: list[str],
) -> None:
    context = make_context(
        *make_tiers(covers_all=covers_all), make_pod_group(networkTopology=rule), nodes=NODES
    )
    import_volcano(context)
    assert group_of(context, "ml/g").topology == want_topology
    assert context.warnings == want_warnings


def test_pods_of_a_missing_group_wait() -> None:
    pods = [make_member("m-0"), make_member("m-1", on="n0")]
    context = make_context(pods=pods)
    import_volcano(context)
    assert [p.row.flags for p in pods] == [PodFlag.WAITING, 0]
    assert context.warnings == [
        "Volcano PodGroup ml/g is missing or unusable; 1 pods that name it wait for it: "
        "add it to the snapshot, or remove its name from the pods"
    ]


@pytest.mark.parametrize(
    ("spec", "want_field"),
    [
        pytest.param({"minMember": "2"}, "spec.minMember", id="text"),
        pytest.param({"minMember": -1}, "spec.minMember", id="negative"),
        pytest.param({"minTaskMember": {"a": None}}, "spec.minTaskMember.n", id="null floor"),
        pytest.param({"subGroupPolicy": 1}, "spec.subGroupPolicy", id="policies"),
        pytest.param({"networkTopology": {"mode": "x"}}, "spec.networkTopology.mode", id="mode"),
    ],
)
def test_invalid_groups_are_set_aside(spec: dict[str, Any], want_field: str) -> None:
    pods = [make_member("m-0")]
    context = make_context(make_pod_group(**spec), pods=pods)
    import_volcano(context)
    assert lines_of(context) == [f"ml/g: {want_field}"]
    assert context.groups == {}
    assert pods[0].row.flags == PodFlag.WAITING
