from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import make_node, make_spec
from importer_builders import (
    LWS,
    finish,
    group_of,
    lines_of,
    make_context,
    make_object,
    make_pod,
    make_template,
    members_of,
)

from data.importers.kueue import import_kueue
from data.importers.lws import import_lws
from data.importers.lws_labels import Shape, make_labels
from topology.model import (
    AffinityTerm,
    Exclusive,
    LabelSelector,
    Phase,
    PodFlag,
    Requirement,
    TopologyTerm,
)

if TYPE_CHECKING:
    from data.importers.base import ImportedPod, RawObject

RACK = "topo.example.com/rack"
BLOCK = "topo.example.com/block"
NODES = [make_node("n0", rack="r0", labels={BLOCK: "b0"})]


def make_lws(
    name: str = "s",
    *,
    size: int = 1,
    replicas: int = 1,
    subgroup_size: int = 0,
    policy: str = "",
    leader: dict[str, Any] | None = None,
    restart: str = "",
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> RawObject:
    template: dict[str, Any] = {"size": size, "workerTemplate": make_template(4)}
    if subgroup_size:
        template["subGroupPolicy"] = {"subGroupSize": subgroup_size}
        if policy:
            template["subGroupPolicy"]["subGroupPolicyType"] = policy
    if leader:
        template["leaderTemplate"] = leader
    if restart:
        template["restartPolicy"] = restart
    return make_object(
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        name,
        {"replicas": replicas, "leaderWorkerTemplate": template, **spec},
        annotations={LWS + key: value for key, value in (annotations or {}).items()},
    )


def make_member(
    worker: int,
    *,
    shape: Shape | None = None,
    lws: str = "s",
    group: str = "0",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **fields: Any,
) -> ImportedPod:
    """A pod as the controller makes it; annotations without their prefix."""
    shape = shape or Shape(4)
    leader = f"{lws}-{group}"
    own = make_labels(shape, "ml", lws, leader, worker, group)
    return make_pod(
        f"{leader}-{worker}" if worker else leader,
        labels={**own, **(labels or {})},
        annotations={LWS + key: value for key, value in (annotations or {}).items()},
        **fields,
    )


def names(*workers: int) -> list[str]:
    return [f"s-0-{w}" if w else "s-0" for w in workers]


@pytest.mark.parametrize(
    ("size", "subgroup_size", "policy", "want_members"),
    [
        pytest.param(
            16,
            8,
            "LeaderWorker",
            {"0": names(*range(8)), "1": names(*range(8, 16))},
            id="16/8 LeaderWorker",
        ),
        pytest.param(9, 8, "LeaderWorker", {"0": names(*range(9))}, id="9/8 LeaderWorker"),
        pytest.param(
            9,
            8,
            "LeaderExcluded",
            {"leader": names(0), "0": names(*range(1, 9))},
            id="9/8 LeaderExcluded",
        ),
        pytest.param(
            9,
            4,
            "LeaderWorker",
            {"0": names(0, 1, 2, 3, 4), "1": names(5, 6, 7, 8)},
            id="9/4 LeaderWorker",
        ),
        pytest.param(
            9,
            4,
            "LeaderExcluded",
            {"leader": names(0), "0": names(1, 2, 3, 4), "1": names(5, 6, 7, 8)},
            id="9/4 LeaderExcluded",
        ),
        pytest.param(
            17,
            4,
            "",
            {
                "0": names(0, 1, 2, 3, 4),
                "1": names(5, 6, 7, 8),
                "2": names(9, 10, 11, 12),
                "3": names(13, 14, 15, 16),
            },
            id="17/4, LeaderWorker by default",
        ),
        pytest.param(
            5, 2, "LeaderWorker", {"0": names(0, 1, 2), "1": names(3, 4)}, id="5/2 LeaderWorker"
        ),
        pytest.param(
            5,
            2,
            "LeaderExcluded",
            {"leader": names(0), "0": names(1, 2), "1": names(3, 4)},
            id="5/2 LeaderExcluded",
        ),
        pytest.param(
            4, 2, "LeaderWorker", {"0": names(0, 1), "1": names(2, 3)}, id="4/2 LeaderWorker"
        ),
        pytest.param(4, 3, "LeaderWorker", {"0": names(0, 1, 2, 3)}, id="4/3 LeaderWorker"),
        pytest.param(
            4,
            3,
            "LeaderExcluded",
            {"leader": names(0), "0": names(1, 2, 3)},
            id="4/3 LeaderExcluded",
        ),
        pytest.param(6, 6, "LeaderWorker", {"0": names(*range(6))}, id="6/6 LeaderWorker"),
        pytest.param(
            4,
            1,
            "LeaderWorker",
            {"0": names(0), "1": names(1), "2": names(2), "3": names(3)},
            id="4/1 LeaderWorker",
        ),
        pytest.param(
            4,
            1,
            "LeaderExcluded",
            {"leader": names(0), "1": names(1), "2": names(2), "3": names(3)},
            id="4/1 LeaderExcluded: index 0 unused",
        ),
        pytest.param(1, 1, "LeaderWorker", {"0": names(0)}, id="1/1 LeaderWorker"),
        pytest.param(1, 1, "LeaderExcluded", {"leader": names(0)}, id="1/1 LeaderExcluded"),
    ],
)
def test_subgroups(
    size: int, subgroup_size: int, policy: str, want_members: dict[str, list[str]]
) -> None:
    """Pods that do not exist, then the same pods with nothing but labels and annotations."""
    context = make_context(make_lws(size=size, subgroup_size=subgroup_size, policy=policy))
    import_lws(context)
    want = {f"ml/s/0#{name}": pods for name, pods in want_members.items()}
    assert members_of(context) == want
    assert {g.ref: g.min_count for g in map(lambda r: r.group, context.groups.values())} == {
        "ml/s/0": size,
        **{ref: len(pods) for ref, pods in want.items()},
    }
    assert group_of(context, "ml/s/0").min_groups == len(want)
    assert [r for r in want if group_of(context, r).is_leader] == [
        r for r in want if r.endswith("#leader")
    ]

    again = make_context(
        pods=[
            make_pod(p.name, labels=dict(p.row.labels), annotations=dict(p.annotations))
            for p in context.pods.values()
        ]
    )
    import_lws(again)
    assert members_of(again) == want
    finish(again)


@pytest.mark.parametrize(
    ("policy", "labels", "want_members"),
    [
        pytest.param(
            "LeaderWorker",
            ["0", "0", None, "2"],
            {"0": names(0, 1), "1": names(2), "2": names(3)},
            id="a missing worker of 0.9 goes by the formula of 0.9",
        ),
        pytest.param(
            "LeaderWorker",
            ["0", "1", None, "3"],
            {"0": names(0), "1": names(1), "2": names(2), "3": names(3)},
            id="a missing worker of 0.10",
        ),
        pytest.param(
            "LeaderExcluded",
            [None, "0", "1", "2"],
            {"leader": names(0), "0": names(1), "1": names(2), "2": names(3)},
            id="labels of 0.9 are believed",
        ),
    ],
)
def test_subgroups_of_one(
    policy: str, labels: list[str | None], want_members: dict[str, list[str]]
) -> None:
    """Worker 2 does not exist unless labels say so; the leader does."""
    pods = [
        make_pod(
            names(w)[0],
            labels={
                LWS + "name": "s",
                LWS + "group-index": "0",
                LWS + "worker-index": str(w),
                **({LWS + "subgroup-index": label} if label is not None else {}),
            },
        )
        for w, label in enumerate(labels)
        if label is not None or w == 0
    ]
    context = make_context(make_lws(size=4, subgroup_size=1, policy=policy), pods=pods)
    import_lws(context)
    assert members_of(context) == {f"ml/s/0#{k}": v for k, v in want_members.items()}


def test_planned_pods_are_the_controllers() -> None:
    leader = make_template(0, priorityClassName="high")
    leader["metadata"] = {"labels": {"app": "x"}}
    lws = make_lws(size=2, replicas=2, leader=leader)
    context = make_context(lws, priority_classes={"high": 7})
    import_lws(context)
    rows = {p.row.ref: p.row for p in context.pods.values()}
    assert sorted(rows) == ["ml/s-0", "ml/s-0-1", "ml/s-1", "ml/s-1-1"]
    assert [rows[r].spec.gpus for r in sorted(rows)] == [0, 4, 0, 4]
    assert [rows[r].template for r in sorted(rows)] == ["leader", "worker"] * 2
    assert [rows[r].rank for r in sorted(rows)] == [0, 1, 0, 1]
    assert all(row.flags == PodFlag.PLANNED for row in rows.values())
    assert rows["ml/s-0"].labels["app"] == "x"
    assert rows["ml/s-1-1"].labels[LWS + "group-index"] == "1"
    group = group_of(context, "ml/s/1")
    assert (group.api, group.is_inferred, group.policy, group.min_count, group.size) == (
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        True,
        "gang",
        2,
        2,
    )
    assert (group.priority, group.disruption, group.min_groups) == (7, "all", 0)
    assert rows["ml/s-1"].group == "ml/s/1"


@pytest.mark.parametrize(
    ("annotations", "subgroup_size", "want_group", "want_leaf"),
    [
        pytest.param({}, 0, ((), None), None, id="none: still a peer"),
        pytest.param(
            {"exclusive-topology": BLOCK},
            0,
            ((TopologyTerm((BLOCK,)),), BLOCK),
            None,
            id="group",
        ),
        pytest.param(
            {"subgroup-exclusive-topology": RACK},
            2,
            ((), None),
            ((TopologyTerm((RACK,)),), RACK),
            id="subgroups",
        ),
        pytest.param(
            {"exclusive-topology": BLOCK, "subgroup-exclusive-topology": RACK},
            2,
            ((TopologyTerm((BLOCK,)),), BLOCK),
            ((TopologyTerm((RACK,)),), RACK),
            id="both",
        ),
        pytest.param({}, 2, ((), None), ((), None), id="subgroups without annotation are peers"),
    ],
)
def test_exclusive(
    annotations: dict[str, str],
    subgroup_size: int,
    want_group: tuple[tuple[TopologyTerm, ...], str | None],
    want_leaf: tuple[tuple[TopologyTerm, ...], str | None] | None,
) -> None:
    lws = make_lws(size=4, subgroup_size=subgroup_size, annotations=annotations)
    context = make_context(lws, nodes=NODES)
    import_lws(context)
    group = group_of(context, "ml/s/0")
    assert (group.topology, group.exclusive) == (
        want_group[0],
        (Exclusive("lws-group:ml", want_group[1]),),
    )
    if want_leaf is not None:
        leaf = group_of(context, "ml/s/0#1")
        assert (leaf.topology, leaf.exclusive) == (
            want_leaf[0],
            (Exclusive("lws-subgroup:ml", want_leaf[1]),),
        )
    assert context.warnings == []


def test_excluded_leader_is_no_exclusive_subgroup() -> None:
    lws = make_lws(
        size=3,
        subgroup_size=2,
        policy="LeaderExcluded",
        annotations={"subgroup-exclusive-topology": RACK},
    )
    context = make_context(lws, nodes=NODES)
    import_lws(context)
    leader = group_of(context, "ml/s/0#leader")
    assert (leader.exclusive, leader.topology, leader.min_count) == ((), (), 1)


@pytest.mark.parametrize(
    ("annotations", "want_warning"),
    [
        pytest.param(
            {"exclusive-topology": "example.com/none"},
            "LeaderWorkerSet ml/s: no node has label example.com/none, "
            "which it wants to be exclusive on",
            id="no node has the key",
        ),
        pytest.param(
            {"exclusive-topology": RACK, "subgroup-exclusive-topology": RACK},
            f"LeaderWorkerSet ml/s: group and subgroups are exclusive on the same key {RACK}; "
            "two or more subgroups of a group can never be placed so",
            id="same key",
        ),
    ],
)
def test_exclusive_warnings(annotations: dict[str, str], want_warning: str) -> None:
    lws = make_lws(size=4, subgroup_size=2, annotations=annotations)
    context = make_context(lws, nodes=NODES)
    import_lws(context)
    assert context.warnings == [want_warning]


def _on_rack(label: str) -> tuple[AffinityTerm, ...]:
    return (AffinityTerm(RACK, LabelSelector((Requirement(label, "Exists"),)), ("ml",)),)


@pytest.mark.parametrize(
    ("affinity", "anti_affinity", "want_key"),
    [
        pytest.param(_on_rack("app"), _on_rack("app"), None, id="terms of the user: not injected"),
        pytest.param(_on_rack("app"), (), RACK, id="only affinity: injected"),
        pytest.param((), _on_rack("app"), RACK, id="only anti-affinity: injected"),
        pytest.param(
            _on_rack(LWS + "group-key"), _on_rack(LWS + "group-key"), RACK, id="terms of LWS"
        ),
    ],
)
def test_injection_is_skipped(
    affinity: tuple[AffinityTerm, ...],
    anti_affinity: tuple[AffinityTerm, ...],
    want_key: str | None,
) -> None:
    spec = make_spec(affinity=affinity, anti_affinity=anti_affinity)
    pods = [make_member(0, spec=spec, annotations={"exclusive-topology": RACK, "size": "1"})]
    context = make_context(pods=pods)
    import_lws(context)
    group = group_of(context, "ml/s/0")
    assert group.exclusive == (Exclusive("lws-group:ml", want_key),)
    assert group.topology == (TopologyTerm((RACK,)),)
    assert len(context.warnings) == (want_key is None)


@pytest.mark.parametrize(
    ("restart", "annotations", "phases", "want_disruption"),
    [
        pytest.param("", {}, "RR", "all", id="default"),
        pytest.param("RecreateGroupOnPodRestart", {}, "P", "all", id="on pod restart"),
        pytest.param("RecreateGroupAfterStart", {}, "RR", "all", id="after start, started"),
        pytest.param("RecreateGroupAfterStart", {}, "RP", "single", id="after start, one pending"),
        pytest.param("RecreateGroupAfterStart", {}, "R", "single", id="after start, one missing"),
        pytest.param(
            "",
            {"experimental-recreate-group-after-start": "true"},
            "RP",
            "single",
            id="by annotation",
        ),
        pytest.param("None", {}, "RR", "single", id="None"),
        pytest.param("Default", {}, "RR", "single", id="Default"),
    ],
)
def test_disruption(
    restart: str, annotations: dict[str, str], phases: str, want_disruption: str
) -> None:
    pods = [
        make_member(w, on="n0", phase=Phase.RUNNING if phase == "R" else Phase.PENDING)
        for w, phase in enumerate(phases)
    ]
    lws = make_lws(size=2, restart=restart, annotations=annotations)
    context = make_context(lws, pods=pods)
    import_lws(context)
    assert group_of(context, "ml/s/0").disruption == want_disruption


def test_hash_identity() -> None:
    """Groups go by their hash, pods by their leader's name; numbers stand for missing groups."""
    key = "0123456789abcdef0123456789abcdef01234567"
    labels = {LWS + "name": "s", LWS + "group-index": key, LWS + "group-key": key}
    pods = [
        make_pod("s-6d4f-x2x9k", labels={**labels, LWS + "worker-index": "0"}),
        make_pod("s-6d4f-x2x9k-1", labels={**labels, LWS + "worker-index": "1"}),
    ]
    lws = make_lws(size=3, replicas=2, groupIdentity="Hash")
    context = make_context(lws, pods=pods)
    import_lws(context)
    assert members_of(context) == {
        f"ml/s/{key}": ["s-6d4f-x2x9k", "s-6d4f-x2x9k-1", "s-6d4f-x2x9k-2"],
        "ml/s/1": ["s-1", "s-1-1", "s-1-2"],
    }


def test_revisions_and_surge() -> None:
    """Running pods say their own size; a surge group is a group like any other."""
    old = Shape(2)
    pods = [
        make_member(0, shape=old, on="n0", annotations={"size": "2"}),
        make_member(1, shape=old, on="n0", annotations={"size": "2"}, spec=make_spec(gpus=8)),
        make_member(0, group="1", annotations={"size": "3"}),
    ]
    context = make_context(make_lws(size=3, replicas=1), pods=pods)
    import_lws(context)
    assert members_of(context) == {
        "ml/s/0": ["s-0", "s-0-1"],
        "ml/s/1": ["s-1", "s-1-1", "s-1-2"],
    }
    assert group_of(context, "ml/s/0").min_count == 2


def test_a_missing_worker_is_like_its_sibling() -> None:
    pods = [make_member(0), make_member(1, spec=make_spec(gpus=8))]
    context = make_context(make_lws(size=3), pods=pods)
    import_lws(context)
    assert context.pods["ml/s-0-2"].row.spec is context.pods["ml/s-0-1"].row.spec


def test_a_terminating_pod_keeps_its_name() -> None:
    pods = [make_member(0, on="n0"), make_member(1, on="n0", flags=PodFlag.TERMINATING)]
    context = make_context(make_lws(size=3), pods=pods)
    import_lws(context)
    assert members_of(context) == {"ml/s/0": ["s-0", "s-0-1", "s-0-2"]}
    assert (group_of(context, "ml/s/0").min_count, group_of(context, "ml/s/0").size) == (3, 3)


def test_kueue_annotations_without_workload() -> None:
    """They are not taken for a group of the StatefulSet that owns the leaders."""
    pods = [make_member(w, owner_kind="StatefulSet", owner_name="s") for w in range(2)]
    for pod in pods:
        pod.annotations = {"kueue.x-k8s.io/podset-required-topology": RACK}
    context = make_context(make_lws(size=2), pods=pods)
    import_kueue(context)
    import_lws(context)
    assert members_of(context) == {"ml/s/0": ["s-0", "s-0-1"]}
    assert group_of(context, "ml/s/0").unmodelled == (
        "Kueue topology annotations without a Workload in the snapshot are not followed",
    )


def test_only_labels() -> None:
    """A running pod of an unknown set is a peer of its namespace."""
    shape = Shape(1, 1)
    context = make_context(pods=[make_member(0, shape=shape, lws="tiny", on="n0")])
    import_lws(context)
    assert members_of(context) == {"ml/tiny/0#0": ["tiny-0"]}
    leaf = group_of(context, "ml/tiny/0#0")
    assert leaf.exclusive == (Exclusive("lws-subgroup:ml"),)
    assert (leaf.min_count, leaf.size, leaf.kind) == (1, 1, "subgroup")


@pytest.mark.parametrize(
    ("lws", "want_field"),
    [
        pytest.param(
            make_lws(size=6, subgroup_size=4),
            "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize",
            id="subgroup size divides nothing",
        ),
        pytest.param(
            make_lws(size=2, subgroup_size=2, policy="LeaderExcluded"),
            "spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize",
            id="LeaderExcluded without the extra pod",
        ),
        pytest.param(
            make_lws(size=2, subgroup_size=2, policy="Leaders"),
            "spec.leaderWorkerTemplate.subGroupPolicy.subGroupPolicyType",
            id="unknown policy type",
        ),
        pytest.param(
            make_lws(annotations={"subgroup-exclusive-topology": RACK}),
            f"metadata.annotations.{LWS}subgroup-exclusive-topology",
            id="annotation without policy",
        ),
        pytest.param(make_lws(size=0), "spec.leaderWorkerTemplate.size", id="size 0"),
        pytest.param(
            make_lws(size=2_000_000, replicas=1_000_000), "spec.replicas", id="absurd numbers"
        ),
        pytest.param(
            make_lws(restart="Sometimes"), "spec.leaderWorkerTemplate.restartPolicy", id="restart"
        ),
        pytest.param(
            make_object("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "s", {"replicas": 1}),
            "spec.leaderWorkerTemplate.workerTemplate.spec",
            id="no template",
        ),
        pytest.param(
            make_object("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "s", {"replicas": "1"}),
            "spec.replicas",
            id="wrong type",
        ),
    ],
)
def test_invalid_objects_are_set_aside(lws: RawObject, want_field: str) -> None:
    """The running pods of such a set are still a group."""
    context = make_context(lws, pods=[make_member(0, on="n0")])
    import_lws(context)
    assert lines_of(context) == [f"ml/s: {want_field}"]
    assert members_of(context) == {"ml/s/0": ["s-0"]}


def test_a_planned_name_that_is_taken() -> None:
    context = make_context(make_lws(size=2), pods=[make_pod("s-0")])
    import_lws(context)
    assert lines_of(context) == ["ml/s: metadata.name"]
    assert sorted(context.pods) == ["ml/s-0"]
    assert context.groups == {}


def test_a_member_without_index() -> None:
    pod = make_pod("x", labels={LWS + "name": "s", LWS + "group-index": "0"})
    context = make_context(pods=[pod])
    import_lws(context)
    assert lines_of(context) == [f"ml/x: metadata.labels.{LWS}worker-index"]
