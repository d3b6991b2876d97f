from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders import make_node, make_spec
from importer_builders import (
    LWS,
    finish,
    group_of,
    make_context,
    make_object,
    make_pod,
    make_template,
    members_of,
)

from data.importers.kueue import import_kueue
from data.importers.lws import import_lws
from data.importers.lws_labels import Shape, make_labels
from data.importers.volcano import import_volcano
from topology.model import Exclusive, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportContext

RACK = "topo.example.com/rack"


def make_case(
    *, min_member: int, existing: int, subgroup_size: int = 0, group_name: str = "s-0-abc"
) -> ImportContext:
    """An LWS of four under a Volcano PodGroup, as its gang provider makes it."""
    template = {"size": 4, "workerTemplate": make_template(4)}
    if subgroup_size:
        template["subGroupPolicy"] = {"subGroupSize": subgroup_size}
    pods = [
        make_pod(
            f"s-0-{w}" if w else "s-0",
            labels=make_labels(Shape(4, subgroup_size), "ml", "s", "s-0", w, "0"),
            annotations={"scheduling.k8s.io/group-name": group_name, LWS + "size": "4"},
        )
        for w in range(existing)
    ]
    return make_context(
        make_object(
            "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
            "s",
            {"replicas": 1, "leaderWorkerTemplate": template},
            annotations={LWS + "exclusive-topology": RACK},
        ),
        make_object("scheduling.volcano.sh/v1beta1/PodGroup", "s-0-abc", {"minMember": min_member}),
        pods=pods,
        nodes=[make_node("n0", rack="r0")],
    )


@pytest.mark.parametrize(
    ("min_member", "existing"),
    [
        pytest.param(4, 4, id="all pods exist"),
        pytest.param(1, 1, id="LeaderReady: only the leader exists"),
    ],
)
def test_flat_owner(min_member: int, existing: int) -> None:
    context = make_case(min_member=min_member, existing=existing)
    import_volcano(context)
    import_lws(context)
    assert members_of(context) == {"ml/s-0-abc": ["s-0", "s-0-1", "s-0-2", "s-0-3"]}
    group = group_of(context, "ml/s-0-abc")
    assert (group.min_count, group.size, group.disruption) == (min_member, 4, "all")
    assert group.topology == (TopologyTerm((RACK,)),)
    assert group.exclusive == (Exclusive("lws-group:ml", RACK),)
    assert list(context.groups) == ["ml/s-0-abc"]
    assert context.warnings == []


@pytest.mark.parametrize(
    ("min_member", "want_floors"),
    [
        pytest.param(4, (2, 2, 2), id="the owner wants all"),
        pytest.param(1, (0, 0, 0), id="the owner wants one"),
    ],
)
def test_owner_gets_the_subgroups(min_member: int, want_floors: tuple[int, int, int]) -> None:
    context = make_case(min_member=min_member, existing=3, subgroup_size=2)
    import_volcano(context)
    import_lws(context)
    assert members_of(context) == {
        "ml/s-0-abc#0": ["s-0", "s-0-1"],
        "ml/s-0-abc#1": ["s-0-2", "s-0-3"],
    }
    floors = (
        group_of(context, "ml/s-0-abc").min_groups,
        group_of(context, "ml/s-0-abc#0").min_count,
        group_of(context, "ml/s-0-abc#1").min_count,
    )
    assert floors == want_floors
    assert group_of(context, "ml/s-0-abc").min_count == min_member
    finish(context)


def test_several_owners() -> None:
    context = make_case(min_member=1, existing=2)
    context.objects["scheduling.volcano.sh", "PodGroup"].append(
        make_object("scheduling.volcano.sh/v1beta1/PodGroup", "other", {"minMember": 1})
    )
    context.pods["ml/s-0-1"].annotations = {"scheduling.k8s.io/group-name": "other"}
    import_volcano(context)
    import_lws(context)
    assert members_of(context) == {"ml/other": ["s-0-1"], "ml/s-0-abc": ["s-0"]}
    assert context.warnings == [
        "LeaderWorkerSet replica ml/s/0: its pods belong to several groups "
        "(ml/other, ml/s-0-abc); those are kept and what LWS asks for is left out"
    ]


def test_shared_owner() -> None:
    """A group over more than one replica cannot take the exclusivity of one."""
    context = make_case(min_member=4, existing=4)
    stranger = make_pod("x", annotations={"scheduling.k8s.io/group-name": "s-0-abc"})
    context.pods["ml/x"] = stranger
    import_volcano(context)
    import_lws(context)
    group = group_of(context, "ml/s-0-abc")
    assert group.exclusive == ()
    assert group.unmodelled == ("LWS exclusive topology of a shared group is not modelled",)


def test_kueue_workload_of_a_replica() -> None:
    """Kueue plans the pods under their names, so that LWS does not plan them again."""
    pod_sets = [
        {"name": "leader", "count": 1, "template": make_template(0)},
        {"name": "worker", "count": 2, "template": make_template(8)},
    ]
    context = make_context(
        make_object(
            "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
            "s",
            {
                "replicas": 2,
                "leaderWorkerTemplate": {"size": 3, "workerTemplate": make_template(8)},
            },
        ),
        make_object(
            "kueue.x-k8s.io/v1beta2/Workload",
            "leaderworkerset-s-1-0a1b2",
            {"podSets": pod_sets},
            ownerReferences=[{"kind": "LeaderWorkerSet", "name": "s"}],
        ),
    )
    import_kueue(context)
    import_lws(context)
    assert members_of(context) == {
        "ml/leaderworkerset-s-1-0a1b2#leader": ["s-1"],
        "ml/leaderworkerset-s-1-0a1b2#worker": ["s-1-1", "s-1-2"],
        "ml/s/0": ["s-0", "s-0-1", "s-0-2"],
    }
    assert make_spec(gpus=8) == context.pods["ml/s-1-2"].row.spec
