from __future__ import annotations

from typing import Any

import pytest
from kube import complaints, composite, find_group, find_pod, gang, pod, read, thing

from topology.model import PodFlag, TopologyTerm

Obj = dict[str, Any]
V2 = "scheduling.k8s.io/v1alpha2"
V3 = "scheduling.k8s.io/v1alpha3"


def members(snapshot: Any, ref: str) -> list[str]:
    """Names of the pods of a group in order of rank."""
    rows = [snapshot.pods.row(p) for p in range(len(snapshot.pods))]
    own = [r for r in rows if r.group >= 0 and snapshot.groups[r.group].ref == ref]
    return [r.ref for r in sorted(own, key=lambda r: r.rank)]


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(gang(api=V2, disruptionMode="PodGroup"), "all", id="case 1: 1.36 PodGroup"),
        pytest.param(gang(api=V2, disruptionMode="Pod"), "single", id="1.36 Pod"),
        pytest.param(gang(disruptionMode={"all": {}}), "all", id="case 1: 1.37 all"),
        pytest.param(gang(disruptionMode={"single": {}}), "single", id="1.37 single"),
        pytest.param(gang(), "single", id="case 1: absent"),
        pytest.param(gang(disruptionMode=None), "single", id="null"),
        pytest.param(gang(api=V2, disruptionMode={"all": {}}), "all", id="new form, old version"),
        pytest.param(gang(disruptionMode="PodGroup"), "all", id="old form, new version"),
        pytest.param(gang(api=V3, disruptionMode={"all": {}}), "all", id="v1alpha3"),
    ],
)
def test_disruption_mode(obj: Obj, want: str) -> None:
    snapshot = read(obj, pod("p", group="g"))
    assert (find_group(snapshot).disruption, complaints(snapshot)) == (want, [])


@pytest.mark.parametrize(
    ("spec", "want_field"),
    [
        pytest.param({"schedulingPolicy": {}}, "spec.schedulingPolicy", id="case 6: neither"),
        pytest.param({"schedulingPolicy": None}, "spec.schedulingPolicy", id="case 6: null"),
        pytest.param(
            {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 2}}},
            "spec.schedulingPolicy",
            id="case 6: both",
        ),
        pytest.param({"disruptionMode": {}}, "spec.disruptionMode", id="case 6: empty mode"),
        pytest.param(
            {"disruptionMode": {"single": {}, "all": {}}}, "spec.disruptionMode", id="two modes"
        ),
        pytest.param({"disruptionMode": "Node"}, "spec.disruptionMode", id="unknown mode"),
        pytest.param({"disruptionMode": 5}, "spec.disruptionMode", id="mode of the wrong type"),
        pytest.param(
            {"schedulingPolicy": {"gang": {}}}, "spec.schedulingPolicy.gang.minCount", id="no floor"
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "spec.schedulingPolicy.gang.minCount",
            id="floor of zero",
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": "4"}}},
            "spec.schedulingPolicy.gang.minCount",
            id="floor that is text",
        ),
        pytest.param(
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}},
            "spec.schedulingConstraints.topology",
            id="two topology keys",
        ),
        pytest.param(
            {"schedulingConstraints": {"topology": [{}]}},
            "spec.schedulingConstraints.topology[0].key",
            id="topology without key",
        ),
        pytest.param({"priority": "high"}, "spec.priority", id="priority that is text"),
    ],
)
def test_invalid_groups_are_skipped_and_their_pods_wait(spec: Obj, want_field: str) -> None:
    snapshot = read(gang("g", **spec), pod("p", group="g"))
    assert complaints(snapshot) == [("ml/g", want_field)]
    assert snapshot.groups == ()
    assert find_pod(snapshot).flags == PodFlag.WAITING
    assert any("PodGroup ml/g is missing or unusable" in w for w in snapshot.warnings)


def test_case_2_every_replica_key_is_a_gang_of_its_own() -> None:
    policy = {"gang": {"minCount": 4}}
    workload = thing(
        "scheduling.k8s.io/v1alpha1/Workload",
        "w",
        "ml",
        spec={
            "podGroups": [{"name": "g", "policy": policy}, {"name": "b", "policy": {"basic": {}}}]
        },
    )
    pods = [
        pod(
            f"p{i}",
            workloadRef={"name": "w", "podGroup": "g", "podGroupReplicaKey": str(i % 2)},
            priority=i,
        )
        for i in range(8)
    ]
    snapshot = read(workload, *pods)
    assert [(g.ref, g.policy, g.min_count, g.size, g.priority) for g in snapshot.groups] == [
        ("ml/w/b", "basic", 0, 0, 0),
        ("ml/w/g/0", "gang", 4, 4, 6),
        ("ml/w/g/1", "gang", 4, 4, 7),
    ]
    assert members(snapshot, "ml/w/g/1") == ["ml/p1", "ml/p3", "ml/p5", "ml/p7"]
    assert snapshot.groups[0].api == "scheduling.k8s.io/v1alpha1/Workload"


def test_a_group_inside_a_workload_without_replica_key() -> None:
    workload = thing(
        "scheduling.k8s.io/v1alpha1/Workload",
        "w",
        "ml",
        spec={"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 1}}}]},
    )
    snapshot = read(workload, pod("p", workloadRef={"name": "w", "podGroup": "g"}))
    assert [g.ref for g in snapshot.groups] == ["ml/w/g"]
    assert members(snapshot, "ml/w/g") == ["ml/p"]


def test_a_pod_that_names_no_group_of_the_workload_waits() -> None:
    workload = thing("scheduling.k8s.io/v1alpha1/Workload", "w", "ml", spec={"podGroups": []})
    snapshot = read(workload, pod("p", workloadRef={"name": "w", "podGroup": "g"}))
    assert find_pod(snapshot).flags == PodFlag.WAITING


def test_case_3_a_volcano_group_of_the_same_name_is_never_merged() -> None:
    volcano = thing("scheduling.volcano.sh/v1beta1/PodGroup", "g", "ml", spec={"minMember": 9})
    snapshot = read(gang("g", 2), volcano, pod("p", group="g"))
    ours = find_group(snapshot)
    assert (ours.api, ours.min_count) == ("scheduling.k8s.io/v1beta1/PodGroup", 2)
    assert members(snapshot, "ml/g") == ["ml/p"]


def test_case_4_a_pod_of_a_missing_group_waits() -> None:
    snapshot = read(pod("p", group="lost"))
    assert not snapshot.pods.is_pending[0]
    assert not snapshot.pods.holds_room[0]
    assert any("PodGroup ml/lost is missing" in w for w in snapshot.warnings)


def test_case_5_the_pod_group_counts_not_its_workload() -> None:
    template = {"name": "t", "schedulingPolicy": {"gang": {"minCount": 4}}, "priority": 9}
    workload = thing(
        "scheduling.k8s.io/v1beta1/Workload", "w", "ml", spec={"podGroupTemplates": [template]}
    )
    group = gang("g", 8, workloadRef={"workloadName": "w", "templateName": "t"})
    snapshot = read(workload, group, pod("p", group="g"))
    assert [(g.ref, g.min_count, g.priority) for g in snapshot.groups] == [("ml/g", 8, 0)]


def test_case_8_size_is_counted_from_pods_not_from_conditions() -> None:
    group = gang("g", 8)
    group["status"] = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}
    leaving = {"deletionTimestamp": "2026-11-30T10:00:00Z"}
    snapshot = read(
        group,
        *[pod(f"p{i}", group="g", on="n0") for i in range(3)],
        pod("p3", group="g", on="n0", phase="Succeeded"),
        pod("p4", group="g", on="n0", phase="Failed"),
        pod("p5", group="g", on="n0", metadata=leaving),
    )
    assert (find_group(snapshot).size, find_group(snapshot).min_count) == (3, 8)
    assert len(members(snapshot, "ml/g")) == 6


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, (), id="none"),
        pytest.param({"schedulingConstraints": {"topology": None}}, (), id="null list"),
        pytest.param({"schedulingConstraints": None}, (), id="null constraints"),
        pytest.param(
            {"schedulingConstraints": {"topology": [{"key": "rack"}]}},
            (TopologyTerm(("rack",)),),
            id="one key",
        ),
    ],
)
def test_topology(spec: Obj, want: tuple[TopologyTerm, ...]) -> None:
    assert find_group(read(gang("g", **spec))).topology == want


def test_basic_has_no_floor() -> None:
    group = find_group(read(gang("g", schedulingPolicy={"basic": {}})))
    assert (group.policy, group.min_count, group.min_groups) == ("basic", 0, 0)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param({}, 0, id="none: 0, not the default class"),
        pytest.param({"priority": -5}, -5, id="number"),
        pytest.param({"priorityClassName": "high"}, 1000, id="class"),
        pytest.param({"priority": 7, "priorityClassName": "high"}, 7, id="number before class"),
        pytest.param({"priorityClassName": "lost"}, 0, id="class that is not there"),
    ],
)
def test_priority(spec: Obj, want: int) -> None:
    classes = [
        thing("scheduling.k8s.io/v1/PriorityClass", "high", value=1000),
        thing("scheduling.k8s.io/v1/PriorityClass", "usual", value=50, globalDefault=True),
    ]
    snapshot = read(gang("g", **spec), *classes)
    assert find_group(snapshot).priority == want
    assert complaints(snapshot) == []


@pytest.mark.parametrize(
    ("spec", "policies", "want"),
    [
        pytest.param({}, [None, None], False, id="nobody says never"),
        pytest.param({}, ["Never", None], True, id="case 46: one pending member"),
        pytest.param({"preemptionPolicy": "Never"}, [None, None], True, id="the group"),
        pytest.param(
            {"preemptionPolicy": "PreemptLowerPriority"}, ["Never", None], False, id="group decides"
        ),
    ],
)
def test_never_preempts(spec: Obj, policies: list[str | None], want: bool) -> None:
    pods = [pod(f"p{i}", group="g", preemptionPolicy=p) for i, p in enumerate(policies)]
    assert find_group(read(gang("g", **spec), *pods)).never_preempts == want


def test_a_running_member_does_not_keep_the_group_from_preempting() -> None:
    running = pod("p0", group="g", on="n0", preemptionPolicy="Never")
    assert not find_group(read(gang("g"), running, pod("p1", group="g"))).never_preempts


@pytest.mark.parametrize(
    ("pods", "want"),
    [
        pytest.param(
            [pod(f"w-{i}", group="g") for i in (10, 9, 2)],
            ["ml/w-2", "ml/w-9", "ml/w-10"],
            id="trailing number",
        ),
        pytest.param(
            [
                pod(name, group="g", metadata={"labels": {"apps.kubernetes.io/pod-index": i}})
                for name, i in (("a", "1"), ("b", "0"))
            ],
            ["ml/b", "ml/a"],
            id="pod index",
        ),
        pytest.param(
            [
                pod(
                    name,
                    group="g",
                    metadata={"labels": {"batch.kubernetes.io/job-completion-index": i}},
                )
                for name, i in (("x-0-abc", "1"), ("x-1-abc", "0"))
            ],
            ["ml/x-1-abc", "ml/x-0-abc"],
            id="completion index",
        ),
        pytest.param(
            [
                pod("b", group="g", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"}),
                pod("c-7", group="g", metadata={"creationTimestamp": "2026-01-03T00:00:00Z"}),
                pod("a", group="g", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"}),
            ],
            ["ml/b", "ml/a", "ml/c-7"],
            id="age, where not all have a number",
        ),
        pytest.param(
            [pod("b-1", group="g"), pod("a-1", group="g")], ["ml/a-1", "ml/b-1"], id="same number"
        ),
    ],
)
def test_ranks(pods: list[Obj], want: list[str]) -> None:
    snapshot = read(gang("g", len(pods)), *pods)
    assert members(snapshot, "ml/g") == want


def test_created_and_api() -> None:
    obj = gang("g", api=V2)
    obj["metadata"]["creationTimestamp"] = "2026-11-30T10:00:00Z"
    group = find_group(read(obj))
    assert (group.created, group.api) == (1_796_032_800, f"{V2}/PodGroup")


def test_group_claims_make_it_conditional() -> None:
    group = gang("g", resourceClaims=[{"name": "c", "resourceClaimName": "x"}])
    assert find_group(read(group)).unmodelled == ("resource claims of the group are not modelled",)


def test_a_pod_group_and_a_composite_of_one_name() -> None:
    snapshot = read(gang("g"), composite("g"))
    assert [g.kind for g in snapshot.groups] == ["group"]
    assert [(e.kind, e.object) for e in snapshot.errors] == [("CompositePodGroup", "ml/g")]
