"""Who may be evicted, and who goes together, where another API than Kubernetes' own says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kube import container, gang, node, pod, thing
from preempting import preempt, running, victims, wanted

if TYPE_CHECKING:
    from kube import Obj

LWS = "leaderworkerset.sigs.k8s.io"


def kai(priority: int, **spec: Any) -> list[Obj]:
    """A KAI group of two pods, one on each node."""
    owner = thing("scheduling.run.ai/v2alpha2/PodGroup", "k", "ml", spec={"minMember": 1, **spec})
    return [owner, *(member(i, priority, {"pod-group-name": "k"}) for i in range(2))]


def volcano(first: str = "", key: str = "annotations") -> list[Obj]:
    """A Volcano group of two pods; what the first says of itself."""
    owner = thing("scheduling.volcano.sh/v1beta1/PodGroup", "k", "ml", spec={"minMember": 1})
    members = [member(i, 1, {"scheduling.k8s.io/group-name": "k"}) for i in range(2)]
    if first:
        members[0]["metadata"].setdefault(key, {})["volcano.sh/preemptable"] = first
    return [owner, *members]


def member(i: int, priority: int, annotations: dict[str, str]) -> Obj:
    metadata = {"name": f"k{i}", "namespace": "ml", "annotations": annotations}
    return running(f"k{i}", f"n{i}", priority, gpus=8, metadata=metadata)


def lws(restart: str, **second: Any) -> list[Obj]:
    """An LWS replica of two pods, one on each node."""
    template = {"spec": {"containers": [container(gpus=8)]}}
    spec = {
        "replicas": 1,
        "leaderWorkerTemplate": {
            "size": 2,
            "workerTemplate": template,
            **({"restartPolicy": restart} if restart else {}),
        },
    }
    members = []
    for i in range(2):
        labels = {f"{LWS}/name": "k", f"{LWS}/group-index": "0", f"{LWS}/worker-index": str(i)}
        name = "k-0" if i == 0 else "k-0-1"
        metadata = {"name": name, "namespace": "ml", "labels": labels}
        fields = second if i else {}
        members.append(running(name, f"n{i}", 1, gpus=8, metadata=metadata, **fields))
    return [thing("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "k", "ml", spec=spec), *members]


@pytest.mark.parametrize(
    ("objects", "priority", "want_victims"),
    [
        pytest.param(kai(50), 1_000, ["k1"], id="KAI: below 100, preemptible, pod by pod"),
        pytest.param(kai(100), 1_000, [], id="KAI: from 100 on it is not"),
        pytest.param(kai(100, preemptibility="preemptible"), 1_000, ["k1"], id="KAI: says it is"),
        pytest.param(kai(50, preemptibility="non-preemptible"), 1_000, [], id="KAI: says not"),
        pytest.param(kai(50), 50, [], id="KAI: equal priority"),
        pytest.param(volcano(), 10, ["k1"], id="Volcano: says nothing"),
        pytest.param(volcano("true"), 10, ["k1"], id="Volcano: preemptable"),
        pytest.param(volcano("false"), 10, ["k1"], id="Volcano: the other one is not"),
        pytest.param(
            lws(""), 10, ["k-0", "k-0-1"], id="LWS: by default the loss of one pod restarts all"
        ),
        pytest.param(
            lws("RecreateGroupOnPodRestart"), 10, ["k-0", "k-0-1"], id="LWS: restarts all"
        ),
        pytest.param(lws("None"), 10, ["k-0-1"], id="LWS: restarts nobody else"),
        pytest.param(
            lws("RecreateGroupAfterStart"), 10, ["k-0", "k-0-1"], id="LWS: all once all started"
        ),
        pytest.param(
            lws("RecreateGroupAfterStart", phase="Pending"),
            10,
            ["k-0-1"],
            id="LWS: one while some have not started",
        ),
    ],
)
def test_victims(objects: list[Obj], priority: int, want_victims: list[str]) -> None:
    """A gang needs node n1."""
    plan = preempt(
        node("n0"),
        node("n1", labels={"pool": "a"}),
        *objects,
        gang(priority=priority),
        *wanted(priority=priority, nodeSelector={"pool": "a"}),
    )
    assert victims(plan) == want_victims


@pytest.mark.parametrize("key", ["annotations", "labels"])
def test_volcano_pod_that_is_not_preemptable(key: str) -> None:
    plan = preempt(
        node("n0", labels={"pool": "a"}),
        node("n1"),
        *volcano("false", key),
        gang(priority=10),
        *wanted(nodeSelector={"pool": "a"}),
    )
    assert victims(plan) == []


def test_queued_workload_goes_whole() -> None:
    """Kueue evicts a Workload by stopping its job, so that all of its pods go."""
    workload = thing(
        "kueue.x-k8s.io/v1beta1/Workload",
        "k",
        "ml",
        spec={
            "queueName": "q",
            "podSets": [
                {
                    "name": "main",
                    "count": 2,
                    "template": {"spec": {"containers": [container(gpus=8)]}},
                }
            ],
        },
        status={"admission": {"clusterQueue": "c", "podSetAssignments": [{"name": "main"}]}},
    )
    members = [
        running(
            f"k{i}",
            f"n{i}",
            1,
            gpus=8,
            metadata={
                "name": f"k{i}",
                "namespace": "ml",
                "labels": {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/queue-name": "q"},
                "annotations": {"kueue.x-k8s.io/workload": "k"},
            },
        )
        for i in range(2)
    ]
    plan = preempt(
        node("n0"),
        node("n1"),
        workload,
        *members,
        pod("p", container(gpus=8), priority=10),
    )
    assert victims(plan) == ["k0", "k1"]
