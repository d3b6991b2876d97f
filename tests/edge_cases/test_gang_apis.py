"""Gangs of other APIs as they end in a plan: LWS, Kueue, Volcano, KAI, JobSet, coscheduling."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of, group_of, placed, pods_of, spread, why_not
from builders import RACK
from kube import GPU, container, node, pod, thing

Obj = dict[str, Any]
BLOCK = "topo.example.com/block"
HOST = "kubernetes.io/hostname"


def machine(name: str, gpus: int = 4, rack: str = "", block: str = "") -> Obj:
    """A node of a rack and a block with so many GPUs."""
    return node(
        name,
        labels={**({RACK: rack} if rack else {}), **({BLOCK: block} if block else {})},
        allocatable={"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)},
    )


def template(gpus: int = 1, **spec: Any) -> Obj:
    return {"spec": {"containers": [container(gpus=gpus)], **spec}}


def member(name: str, scheduler: str, labels: Obj, annotations: Obj, gpus: int = 1) -> Obj:
    metadata = {"name": name, "namespace": "ml", "labels": labels, "annotations": annotations}
    return pod(name, container(gpus=gpus), metadata=metadata, schedulerName=scheduler)


FOUR = [
    machine("a", rack="r1", block="b1"),
    machine("b", rack="r2", block="b1"),
    machine("c", rack="r3", block="b2"),
    machine("d", rack="r4", block="b2"),
]


# LeaderWorkerSet


def lws(
    name: str = "s",
    size: int = 4,
    replicas: int = 1,
    *,
    subgroup: int = 0,
    policy: str = "LeaderWorker",
    namespace: str = "ml",
    **exclusive: str,
) -> Obj:
    """A LeaderWorkerSet; `group` and `subgroup_key` are exclusive topology keys."""
    pods: Obj = {"size": size, "workerTemplate": template()}
    if subgroup:
        pods["subGroupPolicy"] = {"subGroupSize": subgroup, "subGroupPolicyType": policy}
    prefix = "leaderworkerset.sigs.k8s.io/"
    names = {"group": "exclusive-topology", "subgroup_key": "subgroup-exclusive-topology"}
    return thing(
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        name,
        namespace,
        spec={"replicas": replicas, "leaderWorkerTemplate": pods},
        metadata={"annotations": {prefix + names[key]: value for key, value in exclusive.items()}},
    )


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [*FOUR, lws(size=4, replicas=2, group=RACK)],
            {"ml/s/0": {"a": 4}, "ml/s/1": {"b": 4}},
            id="a rack for each replica",
        ),
        pytest.param(
            [*FOUR, lws(size=4, replicas=3, group=BLOCK)],
            {"ml/s/0": {"a": 4}, "ml/s/1": {"c": 4}, "ml/s/2": {}},
            id="more replicas than blocks",
        ),
        pytest.param(
            [machine("a", 4, "r1"), lws("s", 2, group=RACK), lws("t", 2, namespace="other")],
            {"ml/s/0": {"a": 2}, "other/t/0": {"a": 2}},
            id="another namespace may share the rack",
        ),
        pytest.param(
            [machine("a", 4, "r1"), lws("s", 2, group=RACK), lws("t", 2)],
            {"ml/s/0": {"a": 2}, "ml/t/0": {}},
            id="a set without the annotation keeps out as well",
        ),
        pytest.param(
            [machine("x", 8), lws("s", 4, group=RACK)],
            {"ml/s/0": {}},
            id="no node has the label",
        ),
    ],
)
def test_lws_replicas(objects: list[Obj], want: dict[str, dict[str, int]]) -> None:
    plan = ask(*objects)
    assert {ref: spread(plan, ref) for ref in want} == want


def test_lws_group_and_subgroups_each_have_a_domain_of_their_own() -> None:
    plan = ask(*FOUR, lws(size=8, subgroup=4, group=BLOCK, subgroup_key=RACK))
    assert [(d.subgroup, d.key, d.value) for d in group_of(plan, "ml/s/0").domains] == [
        (None, BLOCK, "b1"),
        ("0", RACK, "r1"),
        ("1", RACK, "r2"),
    ]
    assert [p.subgroup for p in group_of(plan, "ml/s/0").pods] == ["0"] * 4 + ["1"] * 4


def test_lws_leader_outside_of_the_subgroups_needs_no_rack() -> None:
    head = machine("head", 1)
    plan = ask(
        *FOUR[:2],
        head,
        lws(size=9, subgroup=4, policy="LeaderExcluded", subgroup_key=RACK),
    )
    assert spread(plan, "ml/s/0") == {"head": 1, "a": 4, "b": 4}
    assert pods_of(plan, "ml/s/0")["s-0"] == "head"
    leader = group_of(plan, "ml/s/0").pods[0]
    assert (leader.pod, leader.subgroup, leader.template) == ("ml/s-0", None, "leader")


def test_lws_subgroup_zero_holds_one_pod_more() -> None:
    nodes = [machine("a", 4, "r1"), machine("b", 5, "r2")]
    plan = ask(*nodes, lws(size=9, subgroup=4, subgroup_key=RACK))
    sizes = {d.subgroup: d.value for d in group_of(plan, "ml/s/0").domains}
    assert sizes == {"0": "r2", "1": "r1"}
    assert spread(plan, "ml/s/0") == {"b": 5, "a": 4}


# Kueue

QUEUE = [
    thing(
        "kueue.x-k8s.io/v1beta2/Topology",
        "fabric",
        spec={"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": RACK}, {"nodeLabel": HOST}]},
    ),
    thing(
        "kueue.x-k8s.io/v1beta2/ResourceFlavor",
        "gpu",
        spec={"topologyName": "fabric", "nodeLabels": {}},
    ),
    thing("kueue.x-k8s.io/v1beta2/LocalQueue", "q", "ml", spec={"clusterQueue": "cq"}),
    thing(
        "kueue.x-k8s.io/v1beta2/ClusterQueue",
        "cq",
        spec={
            "resourceGroups": [
                {
                    "coveredResources": [GPU],
                    "flavors": [
                        {"name": "gpu", "resources": [{"name": GPU, "nominalQuota": "99"}]}
                    ],
                }
            ]
        },
    ),
]


def pod_set(name: str = "main", count: int = 8, **fields: Any) -> Obj:
    return {"name": name, "count": count, "template": template(), **fields}


def workload(*pod_sets: Obj) -> list[Obj]:
    spec = {"podSets": list(pod_sets), "queueName": "q"}
    return [*QUEUE, thing("kueue.x-k8s.io/v1beta2/Workload", "w", "ml", spec=spec)]


def request(**fields: Any) -> Obj:
    return {"topologyRequest": fields}


RUNS = {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 4}
UNEVEN = [
    machine("a", 6, "r1", "b1"),
    machine("b", 6, "r2", "b1"),
    machine("c", 4, "r3", "b2"),
    machine("d", 4, "r4", "b2"),
]


@pytest.mark.parametrize(
    ("nodes", "pod_sets", "want"),
    [
        pytest.param(
            FOUR, [pod_set(**request(required=BLOCK))], {"a": 4, "b": 4}, id="required block"
        ),
        pytest.param(FOUR, [pod_set(**request(required=RACK))], {}, id="required rack, too small"),
        pytest.param(
            [machine("a", rack="r1", block="b1"), machine("b", rack="r1", block="b2")],
            [pod_set(**request(required=RACK))],
            {},
            id="a rack is its whole path: r1 of two blocks is two racks",
        ),
        pytest.param(
            FOUR,
            [pod_set(**request(preferred=RACK))],
            {"a": 4, "b": 4},
            id="preferred rack, two racks of one block",
        ),
        pytest.param(
            FOUR,
            [pod_set(count=4, **request(preferred=RACK))],
            {"a": 4},
            id="preferred rack, one holds it",
        ),
        pytest.param(
            UNEVEN,
            [pod_set(**request(required=BLOCK, **RUNS))],
            {"c": 4, "d": 4},
            id="slices of 4: the block they fill",
        ),
        pytest.param(
            [machine("a", 6, "r1", "b1"), machine("b", 2, "r2", "b1")],
            [pod_set(**request(required=BLOCK, **RUNS))],
            {},
            id="slices of 4: 6 and 2 do not do",
        ),
        pytest.param(
            [machine("a", 9, "r1", "b1"), machine("b", 8, "r2", "b1")],
            [
                pod_set("leader", 1, **request(required=RACK, podSetGroupName="x")),
                pod_set("worker", 8, **request(required=RACK, podSetGroupName="x")),
            ],
            {"a": 9},
            id="pod sets of one group share a rack",
        ),
        pytest.param(
            [machine("a", 8, "r1", "b1"), machine("b", 1, "r2", "b1")],
            [
                pod_set("leader", 1, **request(required=RACK)),
                pod_set("worker", 8, **request(required=RACK)),
            ],
            {"a": 8, "b": 1},
            id="pod sets of no group choose alone",
        ),
        pytest.param(
            [machine("a", 8, "r1", "b1")],
            [pod_set("leader", 1), pod_set("worker", 8)],
            {},
            id="all pod sets or none",
        ),
        pytest.param(
            [machine("a", 6, "r1", "b1")], [pod_set(minCount=4)], {"a": 6}, id="partial admission"
        ),
    ],
)
def test_kueue(nodes: list[Obj], pod_sets: list[Obj], want: dict[str, int]) -> None:
    plan = ask(*nodes, *workload(*pod_sets))
    assert spread(plan, "ml/w") == want


@pytest.mark.parametrize(
    ("pod_sets", "want", "want_mentions"),
    [
        pytest.param(
            [pod_set(**request(required="topo.example.com/zone"))],
            "refused",
            'no requested topology level: "topo.example.com/zone" is not in Topology fabric',
            id="an unknown level",
        ),
        pytest.param(
            [pod_set(**request(required=RACK))],
            "impossible",
            f"it needs 8 pods in one {RACK}; the best domain, b1/r1, holds 4",
            id="too wide",
        ),
        pytest.param(
            [pod_set(count=12, **request(required=BLOCK, **RUNS))],
            "impossible",
            f"it needs 12 pods in one {BLOCK}; the best domain, b1, holds 8",
            id="slices too wide for a block",
        ),
        pytest.param(
            [pod_set(count=6, **request(required=BLOCK, **(RUNS | {"podSetSliceSize": 3})))],
            None,
            "",
            id="slices of 3",
        ),
    ],
)
def test_kueue_causes(pod_sets: list[Obj], want: str | None, want_mentions: str) -> None:
    plan = ask(*FOUR, *workload(*pod_sets))
    assert why_not(plan) == ({"ml/w": want} if want else {})
    if want:
        assert want_mentions in cause_of(plan, "ml/w").message


def test_kueue_slices_are_named_in_the_cause() -> None:
    nodes = [machine("a", 6, "r1", "b1"), machine("b", 2, "r2", "b1")]
    plan = ask(*nodes, *workload(pod_set(**request(required=BLOCK, **RUNS))))
    assert cause_of(plan, "ml/w").message == (
        f"it needs 8 pods in one {BLOCK}; even when it is empty no domain holds them so that every "
        f"4 share one {RACK}; the best is b1; a larger domain, or fewer or smaller pods, would be "
        "enough"
    )


# Volcano


def hyper_node(name: str, tier: int, kind: str, *names: str) -> Obj:
    members = [{"type": kind, "selector": {"exactMatch": {"name": n}}} for n in names]
    spec = {"tier": tier, "tierName": f"t{tier}", "members": members}
    return thing("topology.volcano.sh/v1alpha1/HyperNode", name, spec=spec)


SWITCHES = [
    *(hyper_node(f"s{name}", 1, "Node", name) for name in "abcd"),
    hyper_node("u1", 2, "HyperNode", "sa", "sb"),
    hyper_node("u2", 2, "HyperNode", "sc", "sd"),
]


def volcano(count: int, floor: int, *objects: Obj, **spec: Any) -> list[Obj]:
    """A PodGroup g with pods p0 … of no task."""
    group = thing(
        "scheduling.volcano.sh/v1beta1/PodGroup", "g", "ml", spec={"minMember": floor, **spec}
    )
    return [group, *objects, *(volcano_pod(f"p{i}") for i in range(count))]


def volcano_pod(name: str, task: str = "") -> Obj:
    annotations = {"scheduling.k8s.io/group-name": "g"}
    if task:
        annotations["volcano.sh/task-spec"] = task
    return member(name, "volcano", {}, annotations)


def tier(mode: str, highest: int) -> Obj:
    return {"networkTopology": {"mode": mode, "highestTierAllowed": highest}}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(volcano(6, 4), {"a": 4, "b": 2}, id="no topology"),
        pytest.param(volcano(6, 6, **tier("hard", 1)), {}, id="hard, tier 1: too small"),
        pytest.param(volcano(6, 6, **tier("hard", 2)), {"a": 4, "b": 2}, id="hard, tier 2"),
        pytest.param(volcano(4, 4, **tier("hard", 2)), {"a": 4}, id="hard, tier 2: the tightest"),
        pytest.param(volcano(6, 6, **tier("soft", 1)), {"a": 4, "b": 2}, id="soft, tier 1"),
        pytest.param(
            [*volcano(4, 4, **tier("soft", 1)), pod("x", on="a"), pod("y", on="b")],
            {"c": 4},
            id="soft, tier 1: one switch holds it",
        ),
        pytest.param(
            [*volcano(8, 8, **tier("hard", 2)), pod("x", on="a"), pod("y", on="c")],
            {},
            id="hard, tier 2: 7 free under each",
        ),
    ],
)
def test_volcano_hyper_nodes(objects: list[Obj], want: dict[str, int]) -> None:
    assert spread(ask(*FOUR, *SWITCHES, *objects)) == want


def test_volcano_tasks_have_floors_of_their_own() -> None:
    tasks = {"minTaskMember": {"head": 1, "worker": 2}}
    pods = [volcano_pod("h", "head"), *(volcano_pod(f"w{i}", "worker") for i in range(4))]
    plan = ask(machine("a", 3), *volcano(0, 3, **tasks), *pods)
    assert pods_of(plan) == {"h": "a", "w0": "a", "w1": "a"}
    headless = ask(machine("a"), *volcano(0, 3, **tasks), *pods[1:])
    assert cause_of(headless).message == (
        "ml/g#head needs 1 pod, but none exists (0 running, 0 pending without gates); 1 more would "
        "be enough"
    )


# KAI


def kai(*pods: Obj, **spec: Any) -> list[Obj]:
    levels = {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": RACK}]}
    return [
        thing("kai.scheduler/v1alpha1/Topology", "fabric", spec=levels),
        thing("scheduling.run.ai/v2alpha2/PodGroup", "g", "ml", spec=spec),
        *pods,
    ]


def kai_pods(subgroup: str, count: int) -> list[Obj]:
    labels = {"kai.scheduler/subgroup-name": subgroup}
    return [
        member(f"{subgroup}{i}", "kai-scheduler", labels, {"pod-group-name": "g"})
        for i in range(count)
    ]


def level(**levels: str) -> Obj:
    return {"topologyConstraint": {"topology": "fabric", **levels}}


IN_RACK = level(requiredTopologyLevel=RACK)
IN_BLOCK = level(requiredTopologyLevel=BLOCK)


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            kai(
                *kai_pods("prefill", 4),
                *kai_pods("decode", 4),
                minSubGroup=2,
                subGroups=[
                    {"name": "prefill", "minMember": 4, **IN_RACK},
                    {"name": "decode", "minMember": 4, **IN_RACK},
                ],
                **IN_BLOCK,
            ),
            {"a": 4, "b": 4},
            id="two racks of one block",
        ),
        pytest.param(
            kai(
                *kai_pods("prefill", 3),
                *kai_pods("decode", 6),
                minSubGroup=2,
                subGroups=[
                    {"name": "prefill", "minMember": 3, **IN_RACK},
                    {"name": "decode", "minMember": 6},
                ],
                **IN_BLOCK,
            ),
            {},
            id="more than a block holds",
        ),
        pytest.param(
            kai(
                *kai_pods("x", 3),
                *kai_pods("y", 3),
                minSubGroup=1,
                subGroups=[
                    {"name": "pair", "minSubGroup": 2, **IN_BLOCK},
                    {"name": "x", "parent": "pair", "minMember": 3, **IN_RACK},
                    {"name": "y", "parent": "pair", "minMember": 3, **IN_RACK},
                ],
            ),
            {"a": 3, "b": 3},
            id="three levels of subgroups",
        ),
        pytest.param(
            kai(
                *kai_pods("x", 2),
                *kai_pods("y", 5),
                minSubGroup=1,
                subGroups=[
                    {"name": "x", "minMember": 2, **IN_RACK},
                    {"name": "y", "minMember": 5, **IN_RACK},
                ],
            ),
            {"a": 2},
            id="one subgroup of two suffices",
        ),
    ],
)
def test_kai_subgroups(objects: list[Obj], want: dict[str, int]) -> None:
    assert spread(ask(*FOUR, *objects)) == want


def test_kai_prefers_one_rack() -> None:
    pods = [member(f"p{i}", "kai-scheduler", {}, {"pod-group-name": "g"}) for i in range(4)]
    group = kai(*pods, minMember=4, **level(preferredTopologyLevel=RACK))
    plan = ask(*FOUR, *group, pod("x", on="a"), pod("y", on="c"))
    assert spread(plan) == {"b": 4}


# JobSet


def jobset(name: str, replicas: int, *, key: str = RACK, **spec: Any) -> Obj:
    job = {"spec": {"parallelism": 4, "completions": 4, "template": template(**spec)}}
    annotations = {"alpha.jobset.sigs.k8s.io/exclusive-topology": key} if key else {}
    return thing(
        "jobset.x-k8s.io/v1alpha2/JobSet",
        name,
        "ml",
        spec={"replicatedJobs": [{"name": "w", "replicas": replicas, "template": job}]},
        metadata={"annotations": annotations},
    )


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([*FOUR, jobset("j", 2)], {"ml/j": {"a": 4, "b": 4}}, id="a rack for each job"),
        pytest.param([*FOUR[:2], jobset("j", 3)], {"ml/j": {}}, id="all jobs or none"),
        pytest.param(
            [machine("a", 8, "r1"), jobset("j", 1, priority=1), jobset("k", 1, priority=2)],
            {"ml/j": {"a": 4}, "ml/k": {"a": 4}},
            id="jobs of another priority may share the rack",
        ),
        pytest.param(
            [machine("a", 8, "r1"), jobset("j", 1, priority=1), jobset("k", 1, priority=1)],
            {"ml/j": {"a": 4}, "ml/k": {}},
            id="jobs of the same priority may not",
        ),
    ],
)
def test_jobset(objects: list[Obj], want: dict[str, dict[str, int]]) -> None:
    plan = ask(*objects)
    assert {ref: spread(plan, ref) for ref in want} == want


# coscheduling


@pytest.mark.parametrize(
    ("room", "want"),
    [
        pytest.param(3, {"ml/g": 3}, id="the floor fits"),
        pytest.param(2, {}, id="one too few"),
    ],
)
def test_coscheduling(room: int, want: dict[str, int]) -> None:
    group = thing("scheduling.x-k8s.io/v1alpha1/PodGroup", "g", "ml", spec={"minMember": 3})
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    pods = [member(f"p{i}", "default-scheduler", labels, {}) for i in range(4)]
    assert placed(ask(machine("a", room), group, *pods)) == want


@pytest.mark.parametrize(
    ("assume", "want"),
    [
        pytest.param(True, {}, id="held to it"),
        pytest.param(False, {"ml/s/0": 3}, id="as its scheduler would"),
    ],
)
def test_a_gang_that_the_api_does_not_promise(assume: bool, want: dict[str, int]) -> None:
    assert placed(ask(machine("a", 3), lws(size=4), assume_gangs=assume)) == want
