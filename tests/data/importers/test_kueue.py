from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import make_node, make_spec
from importer_builders import (
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
from topology.model import PodFlag, SliceTerm, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import RawObject

K = "kueue.x-k8s.io/"
BLOCK = "topo.example.com/block"
RACK = "topo.example.com/rack"
HOST = "kubernetes.io/hostname"
TOPOLOGY = make_object(
    K + "v1beta2/Topology",
    "fabric",
    {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": RACK}, {"nodeLabel": HOST}]},
    namespace="",
)


def make_workload(name: str = "w", *pod_sets: dict[str, Any], **fields: Any) -> RawObject:
    body = {k: fields.pop(k) for k in ("status", "ownerReferences") if k in fields}
    spec = {"podSets": list(pod_sets) or [pod_set()], **fields}
    return make_object(K + "v1beta2/Workload", name, spec, **body)


def pod_set(name: str = "main", count: int = 2, **fields: Any) -> dict[str, Any]:
    return {"name": name, "count": count, "template": make_template(8), **fields}


def required(key: str, **fields: Any) -> dict[str, Any]:
    return {"required": key, **fields}


def test_a_workload_is_a_gang_of_pod_sets() -> None:
    workload = make_workload(
        "w",
        pod_set("leader", 1),
        pod_set("worker", 4, minCount=3),
        queueName="lq",
        priority=50,
    )
    context = make_context(workload)
    import_kueue(context)
    group = group_of(context, "ml/w")
    assert (group.api, group.kind, group.policy) == (
        "kueue.x-k8s.io/v1beta2/Workload",
        "group",
        "gang",
    )
    assert (group.min_count, group.min_groups, group.size) == (4, 2, 5)
    assert (group.priority, group.disruption, group.queue) == (50, "all", "lq")
    assert not group.is_inferred
    worker = group_of(context, "ml/w#worker")
    assert (worker.kind, worker.name, worker.min_count, worker.size) == ("subgroup", "worker", 3, 4)
    assert members_of(context) == {
        "ml/w#leader": ["w-leader-0"],
        "ml/w#worker": ["w-worker-0", "w-worker-1", "w-worker-2", "w-worker-3"],
    }
    row = context.pods["ml/w-worker-1"].row
    assert (row.template, row.rank, row.flags) == ("worker", 1, PodFlag.PLANNED)
    finish(context)


@pytest.mark.parametrize(
    ("fields", "want_priority"),
    [
        pytest.param({"priority": 5, "priorityClassRef": {"name": "wpc"}}, 5, id="number"),
        pytest.param({"priorityClassRef": {"name": "wpc"}}, 7, id="workload priority class"),
        pytest.param({"priorityClassName": "pc"}, 9, id="pod priority class, v1beta1"),
        pytest.param({}, 3, id="of the template"),
    ],
)
def test_priority(fields: dict[str, Any], want_priority: int) -> None:
    wpc = make_object(K + "v1beta2/WorkloadPriorityClass", "wpc", namespace="", value=7)
    sets = pod_set(template=make_template(1, priorityClassName="low"))
    context = make_context(
        wpc, make_workload("w", sets, **fields), priority_classes={"pc": 9, "low": 3}
    )
    import_kueue(context)
    assert group_of(context, "ml/w").priority == want_priority


@pytest.mark.parametrize(
    "workload",
    [
        pytest.param(make_workload(active=False), id="not active"),
        pytest.param(
            make_workload(status={"conditions": [{"type": "Finished", "status": "True"}]}),
            id="finished",
        ),
    ],
)
def test_workloads_not_wanted(workload: RawObject) -> None:
    context = make_context(workload)
    import_kueue(context)
    assert (context.groups, context.pods, context.errors) == ({}, {}, [])


@pytest.mark.parametrize(
    ("objects", "request_", "want_topology", "want_blocked"),
    [
        pytest.param(
            [TOPOLOGY], required(RACK), (TopologyTerm((BLOCK, RACK)),), "", id="the only Topology"
        ),
        pytest.param([], required(RACK), (TopologyTerm((RACK,)),), "", id="no Topology"),
        pytest.param(
            [TOPOLOGY],
            required("example.com/room"),
            (),
            'pod set main: no requested topology level: "example.com/room" is not in '
            "Topology fabric",
            id="unknown level",
        ),
        pytest.param(
            [TOPOLOGY],
            {"preferred": RACK},
            (TopologyTerm((BLOCK, RACK), False), TopologyTerm((BLOCK,), False)),
            "",
            id="preferred: as narrow as can be",
        ),
        pytest.param(
            [TOPOLOGY],
            {"required": RACK, "preferred": RACK},
            (TopologyTerm((BLOCK, RACK)),),
            "",
            id="same key: required",
        ),
        pytest.param(
            [TOPOLOGY],
            {"required": BLOCK, "preferred": HOST},
            (
                TopologyTerm((BLOCK,)),
                TopologyTerm((BLOCK, RACK, HOST), False),
                TopologyTerm((BLOCK, RACK), False),
            ),
            "",
            id="preferred below required",
        ),
        pytest.param([TOPOLOGY], {"unconstrained": True}, (), "", id="unconstrained"),
    ],
)
def test_topology(
    objects: list[RawObject],
    request_: dict[str, Any],
    want_topology: tuple[TopologyTerm, ...],
    want_blocked: str,
) -> None:
    context = make_context(*objects, make_workload("w", pod_set(topologyRequest=request_)))
    import_kueue(context)
    assert group_of(context, "ml/w").topology == want_topology
    assert group_of(context, "ml/w").blocked == want_blocked


ONE = required(RACK, podSetGroupName="one")


def test_pod_set_group_of_the_whole_workload() -> None:
    context = make_context(
        TOPOLOGY,
        make_workload(
            "w", pod_set("leader", 1, topologyRequest=ONE), pod_set("worker", topologyRequest=ONE)
        ),
    )
    import_kueue(context)
    assert group_of(context, "ml/w").topology == (TopologyTerm((BLOCK, RACK)),)
    assert {ref: row.parent for ref, row in context.groups.items()} == {
        "ml/w": "",
        "ml/w#leader": "ml/w",
        "ml/w#worker": "ml/w",
    }
    assert group_of(context, "ml/w#worker").topology == ()


def test_pod_set_group_of_a_part() -> None:
    context = make_context(
        TOPOLOGY,
        make_workload(
            "w",
            pod_set("leader", 1, topologyRequest=ONE),
            pod_set("worker", 2, topologyRequest=ONE),
            pod_set("rest", 3, topologyRequest=required(BLOCK)),
        ),
    )
    import_kueue(context)
    assert {ref: row.parent for ref, row in context.groups.items()} == {
        "ml/w": "",
        "ml/w#group:one": "ml/w",
        "ml/w#leader": "ml/w#group:one",
        "ml/w#worker": "ml/w#group:one",
        "ml/w#rest": "ml/w",
    }
    above = group_of(context, "ml/w#group:one")
    assert (above.kind, above.min_count, above.min_groups, above.size) == ("subgroup", 3, 2, 3)
    assert above.topology == (TopologyTerm((BLOCK, RACK)),)
    assert group_of(context, "ml/w#rest").topology == (TopologyTerm((BLOCK,)),)
    assert group_of(context, "ml/w").min_groups == 2
    finish(context)


@pytest.mark.parametrize(
    ("request_", "annotations", "want_slices"),
    [
        pytest.param(
            {"required": BLOCK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 4},
            {},
            (SliceTerm((BLOCK, RACK), 4),),
            id="one layer",
        ),
        pytest.param(
            {
                "podsetSliceRequiredTopologyConstraints": [
                    {"topology": RACK, "size": 4},
                    {"topology": HOST, "size": 2},
                ]
            },
            {},
            (SliceTerm((BLOCK, RACK), 4), SliceTerm((BLOCK, RACK, HOST), 2)),
            id="two layers",
        ),
        pytest.param(
            None,
            {K + "podset-slice-required-topology": RACK, K + "podset-slice-size": "2"},
            (SliceTerm((BLOCK, RACK), 2),),
            id="annotations of the template",
        ),
        pytest.param(
            None,
            {
                K + "podset-slice-required-topology-constraints": (
                    '[{"topology": "topo.example.com/block", "size": 8},'
                    ' {"topology": "topo.example.com/rack", "size": 4}]'
                )
            },
            (SliceTerm((BLOCK,), 8), SliceTerm((BLOCK, RACK), 4)),
            id="layers in an annotation",
        ),
    ],
)
def test_slices(
    request_: dict[str, Any] | None,
    annotations: dict[str, str],
    want_slices: tuple[SliceTerm, ...],
) -> None:
    template = {**make_template(8), "metadata": {"annotations": annotations}}
    sets = pod_set(count=8, template=template, topologyRequest=request_)
    context = make_context(TOPOLOGY, make_workload("w", sets))
    import_kueue(context)
    assert lines_of(context) == []
    assert group_of(context, "ml/w").slices == want_slices


@pytest.mark.parametrize(
    ("sets", "want_field"),
    [
        pytest.param(
            pod_set(topologyRequest={"podSetSliceRequiredTopology": RACK}),
            "spec.podSets[0].topologyRequest.podSetSliceSize",
            id="slice without size",
        ),
        pytest.param(
            pod_set(
                topologyRequest={
                    "podsetSliceRequiredTopologyConstraints": [
                        {"topology": BLOCK, "size": 6},
                        {"topology": RACK, "size": 4},
                    ]
                }
            ),
            "spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[1].size",
            id="layer does not divide",
        ),
        pytest.param(pod_set(count="2"), "spec.podSets[0].count", id="count is text"),
        pytest.param({"name": "main"}, "spec.podSets[0].template.spec", id="no template"),
        pytest.param(pod_set(count=10**9), "spec.podSets", id="absurd count"),
    ],
)
def test_invalid_workloads_are_set_aside(sets: dict[str, Any], want_field: str) -> None:
    context = make_context(make_workload("w", sets), make_workload("x"))
    import_kueue(context)
    assert lines_of(context) == [f"ml/w: {want_field}"]
    assert sorted(context.groups) == ["ml/x"]


def test_a_pod_of_the_planned_name_is_passed_over() -> None:
    context = make_context(make_workload("w"), pods=[make_pod("w-main-0")])
    import_kueue(context)
    assert members_of(context) == {"ml/w": ["w-main-1", "w-main-2"]}


GATE = ("kueue.x-k8s.io/topology",)


@pytest.mark.parametrize(
    ("owner", "pods", "want_members"),
    [
        pytest.param(
            {"kind": "Job", "name": "j", "controller": True},
            [make_pod("j-x", owner_kind="Job", owner_name="j")],
            {"ml/w#leader": ["j-x"], "ml/w#worker": ["w-worker-0", "w-worker-1"]},
            id="job; told apart by requests",
        ),
        pytest.param(
            None,
            [make_pod("p", annotations={K + "workload": "w"}, labels={K + "podset": "worker"})],
            {"ml/w#leader": ["w-leader-0"], "ml/w#worker": ["p", "w-worker-0"]},
            id="annotation and pod set label",
        ),
        pytest.param(
            {"kind": "JobSet", "name": "js"},
            [
                make_pod(
                    "js-worker-0-1-abcde",
                    labels={
                        "jobset.sigs.k8s.io/jobset-name": "js",
                        "jobset.sigs.k8s.io/replicatedjob-name": "worker",
                        "batch.kubernetes.io/job-completion-index": "1",
                    },
                )
            ],
            {"ml/w#leader": ["w-leader-0"], "ml/w#worker": ["w-worker-0", "js-worker-0-1-abcde"]},
            id="jobset",
        ),
        pytest.param(
            None,
            [
                make_pod(
                    "p",
                    labels={K + "pod-group-name": "w"},
                    annotations={K + "role-hash": "leader"},
                )
            ],
            {"ml/w#leader": ["p"], "ml/w#worker": ["w-worker-0", "w-worker-1"]},
            id="pod group and role hash",
        ),
        pytest.param(
            None,
            [make_pod("p", namespace="other", annotations={K + "workload": "w"})],
            {"ml/w#leader": ["w-leader-0"], "ml/w#worker": ["w-worker-0", "w-worker-1"]},
            id="other namespace",
        ),
    ],
)
def test_members(
    owner: dict[str, Any] | None, pods: list[Any], want_members: dict[str, list[str]]
) -> None:
    workload = make_workload(
        "w",
        pod_set("leader", 1, template=make_template(1)),
        pod_set("worker", 2),
        ownerReferences=[owner] if owner else [],
    )
    for pod in pods:
        pod.row.group = ""
    context = make_context(workload, pods=pods)
    import_kueue(context)
    assert members_of(context) == want_members


def test_gates_of_kueue_are_opened() -> None:
    mark = {K + "workload": "w"}
    pods = [
        make_pod("a", annotations=mark, gates=GATE),
        make_pod("b", annotations=mark, gates=(*GATE, "example.com/other")),
        make_pod("c", gates=GATE),
    ]
    context = make_context(make_workload("w"), pods=pods)
    import_kueue(context)
    assert [pod.row.flags for pod in pods] == [0, PodFlag.GATED, PodFlag.GATED]


def test_rank_by_job_and_completion() -> None:
    """Pods of two child Jobs of two: the Job counts first."""
    request_ = required(
        RACK,
        podIndexLabel="batch.kubernetes.io/job-completion-index",
        subGroupIndexLabel="jobset.sigs.k8s.io/job-index",
        subGroupCount=2,
    )
    pods = [
        make_pod(
            f"p{job}{index}",
            annotations={K + "workload": "w"},
            labels={
                "batch.kubernetes.io/job-completion-index": str(index),
                "jobset.sigs.k8s.io/job-index": str(job),
            },
        )
        for index in (0, 1)
        for job in (0, 1)
    ]
    sets = pod_set(count=4, topologyRequest=request_)
    context = make_context(make_workload("w", sets), pods=pods)
    import_kueue(context)
    assert {p.name: p.row.rank for p in pods} == {"p00": 0, "p01": 1, "p10": 2, "p11": 3}


def test_owned_by_another_api() -> None:
    """The owner gets the queue and the Workload is no group."""
    context = make_context(make_workload("w", queueName="lq"))
    context.add_group(group_of(make_read("x"), "ml/x"))
    pod = make_pod("p", annotations={K + "workload": "w"})
    pod.row.group = "ml/x"
    context.pods["ml/p"] = pod
    import_kueue(context)
    assert sorted(context.groups) == ["ml/x"]
    assert group_of(context, "ml/x").queue == "lq"


def make_read(name: str) -> Any:
    context = make_context(make_workload(name))
    import_kueue(context)
    return context


def test_admission_and_reclaimable_pods() -> None:
    status = {
        "admission": {
            "clusterQueue": "cq",
            "podSetAssignments": [
                {"name": "main", "count": 3, "topologyAssignment": {"levels": [HOST]}}
            ],
        },
        "reclaimablePods": [{"name": "main", "count": 1}],
    }
    context = make_context(make_workload("w", pod_set(count=4), status=status))
    import_kueue(context)
    assert members_of(context) == {"ml/w": ["w-main-0", "w-main-1"]}
    assert group_of(context, "ml/w").min_count == 2
    assert context.warnings == [
        "Workload ml/w: its topology assignment is not followed; "
        "pods without a node are planned anew"
    ]


def test_annotated_pods_without_workload() -> None:
    annotations = {K + "podset-required-topology": RACK}
    pods = [
        make_pod(f"j-{i}", annotations=annotations, owner_kind="Job", owner_name="j", gates=GATE)
        for i in range(2)
    ]
    context = make_context(TOPOLOGY, pods=pods)
    import_kueue(context)
    assert members_of(context) == {"ml/j": ["j-0", "j-1"]}
    group = group_of(context, "ml/j")
    assert (group.api, group.is_inferred, group.min_count) == ("batch/v1/Job", True, 2)
    assert group.topology == (TopologyTerm((BLOCK, RACK)),)
    assert pods[0].row.flags == 0


def test_spec_is_shared() -> None:
    flavor = make_object(K + "v1beta2/ResourceFlavor", "f", {"nodeLabels": {"pool": "a"}})
    status = {"admission": {"podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}}]}}
    pods = [make_pod(n, annotations={K + "workload": "w"}, spec=make_spec(gpus=8)) for n in "ab"]
    context = make_context(
        flavor,
        make_workload("w", pod_set(count=2), status=status),
        pods=pods,
        nodes=[make_node("n0", labels={"pool": "a"})],
    )
    import_kueue(context)
    assert pods[0].row.spec is pods[1].row.spec
    assert pods[0].row.spec.node_selector == (("pool", "a"),)
