"""Ray clusters and placement groups as gangs."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, pods_of
from kube import GPU, complaints, find_group, node, pod, read, thing

from topology.model import HOSTNAME, PodFlag, Snapshot


def template(gpus: int = 0, cpu: str = "1") -> dict[str, Any]:
    requests = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {})}
    return {"spec": {"containers": [{"name": "ray", "resources": {"requests": requests}}]}}


def workers(name: str, replicas: int, **fields: Any) -> dict[str, Any]:
    gpus = fields.pop("gpus", 8)
    return {"groupName": name, "replicas": replicas, "template": template(gpus), **fields}


def cluster(*groups: dict[str, Any], name: str = "llm", **spec: Any) -> dict[str, Any]:
    head = {"template": template()}
    body = {"headGroupSpec": head, "workerGroupSpecs": list(groups), **spec}
    return thing("ray.io/v1/RayCluster", name, "ml", spec=body)


def ray_pod(name: str, group: str, on: str = "", **labels: str) -> dict[str, Any]:
    kind = "head" if group == "headgroup" else "worker"
    own = {"ray.io/cluster": "llm", "ray.io/group": group, "ray.io/node-type": kind, **labels}
    made = pod(name, gpus=8 if kind == "worker" else 0, on=on)
    made["metadata"]["labels"] = own
    return made


def sizes(snapshot: Snapshot) -> dict[str, tuple[int, int, int]]:
    """Reference -> (minCount, groups needed, size)."""
    return {g.ref: (g.min_count, g.min_groups, g.size) for g in snapshot.groups}


def members(snapshot: Snapshot, ref: str) -> list[str]:
    g = next(i for i, group in enumerate(snapshot.groups) if group.ref == ref)
    rows = sorted(
        (p for p in range(len(snapshot.pods)) if snapshot.pods.group[p] == g),
        key=lambda p: snapshot.pods.rank[p],
    )
    return [snapshot.pods.refs[p].partition("/")[2] for p in rows]


def test_a_cluster_that_does_not_exist_yet_is_planned_whole() -> None:
    found = read(node("n1"), cluster(workers("gpu", 2)))
    assert sizes(found) == {"ml/llm": (3, 2, 3), "ml/llm#gpu": (2, 0, 2), "ml/llm#head": (1, 0, 1)}
    assert members(found, "ml/llm#head") == ["llm-head-0"]
    assert members(found, "ml/llm#gpu") == ["llm-gpu-0", "llm-gpu-1"]
    assert find_group(found, "ml/llm").is_inferred
    assert all(flags & PodFlag.PLANNED for flags in found.pods.flags)


def test_replicas_of_several_hosts_are_units() -> None:
    found = read(node("n1"), cluster(workers("tpu", 2, numOfHosts=2)))
    assert sizes(found) == {
        "ml/llm": (5, 2, 5),
        "ml/llm#head": (1, 0, 1),
        "ml/llm#tpu": (4, 2, 4),
        "ml/llm#tpu-0": (2, 0, 2),
        "ml/llm#tpu-1": (2, 0, 2),
    }
    modes = {g.ref: g.disruption for g in found.groups}
    assert modes["ml/llm#tpu-0"] == modes["ml/llm#tpu-1"] == "all"
    assert modes["ml/llm"] == "single"


def test_with_autoscaling_the_least_replicas_are_needed() -> None:
    group = workers("gpu", 4, minReplicas=1, maxReplicas=9)
    found = read(node("n1"), cluster(group, enableInTreeAutoscaling=True))
    assert sizes(found)["ml/llm"] == (2, 2, 5)


def test_pods_that_run_are_members() -> None:
    found = read(
        node("n1"),
        cluster(workers("gpu", 2)),
        ray_pod("llm-head-x", "headgroup", on="n1"),
        ray_pod("llm-gpu-worker-y", "gpu", on="n1"),
    )
    assert members(found, "ml/llm#head") == ["llm-head-x"]
    assert members(found, "ml/llm#gpu") == ["llm-gpu-worker-y", "llm-gpu-1"]


def test_hosts_of_a_replica_are_told_by_their_labels() -> None:
    labels = [
        ("a", "tpu-r2", "1"),
        ("b", "tpu-r1", "0"),
        ("c", "tpu-r2", "0"),
        ("d", "tpu-r1", "1"),
    ]
    pods = [
        ray_pod(
            name,
            "tpu",
            on="n1",
            **{"ray.io/worker-group-replica-name": replica, "ray.io/replica-host-index": index},
        )
        for name, replica, index in labels
    ]
    found = read(node("n1"), cluster(workers("tpu", 2, numOfHosts=2)), *pods)
    assert members(found, "ml/llm#tpu-0") == ["b", "d"]
    assert members(found, "ml/llm#tpu-1") == ["c", "a"]


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        pytest.param("RayJob", "rayClusterSpec", id="job"),
        pytest.param("RayService", "rayClusterConfig", id="service"),
    ],
)
def test_what_makes_a_cluster_stands_for_it(kind: str, where: str) -> None:
    spec = {where: cluster(workers("gpu", 1))["spec"]}
    maker = thing(f"ray.io/v1/{kind}", "job", "ml", spec=spec)
    assert sizes(read(node("n1"), maker))["ml/job"] == (2, 2, 2)
    made = cluster(workers("gpu", 1))
    made["metadata"]["ownerReferences"] = [{"kind": kind, "name": "job", "controller": True}]
    assert "ml/job" not in sizes(read(node("n1"), maker, made))


@pytest.mark.parametrize("spec", [{"suspend": True}], ids=["suspended"])
def test_a_suspended_cluster_wants_nothing(spec: dict[str, Any]) -> None:
    assert read(node("n1"), cluster(workers("gpu", 1), **spec)).groups == ()


@pytest.mark.parametrize(
    ("group", "want"),
    [
        pytest.param({"replicas": 1, "template": template()}, "groupName", id="no name"),
        pytest.param({"groupName": "a", "replicas": 1}, "template.spec", id="no template"),
        pytest.param(workers("a", 2**31 - 1), "workerGroupSpecs", id="absurd number"),
        pytest.param(workers("a", 1, numOfHosts=0), "numOfHosts", id="no hosts"),
        pytest.param(workers("head", 1), "workerGroupSpecs", id="named head"),
    ],
)
def test_mistakes_cost_the_cluster_alone(group: dict[str, Any], want: str) -> None:
    found = read(node("n1"), cluster(group))
    ((ref, field),) = complaints(found)
    assert ref == "ml/llm"
    assert field.endswith(want)
    assert found.groups == ()


def bundles(strategy: str, *amounts: dict[str, Any]) -> dict[str, Any]:
    spec = {"strategy": strategy, "bundles": list(amounts)}
    return thing("gangplan/v1/RayPlacementGroup", "pg", "ml", spec=spec)


FOUR = ({"CPU": 1, "GPU": 4},) * 2


@pytest.mark.parametrize(
    ("strategy", "want"),
    [
        pytest.param("STRICT_PACK", {"pg-bundle-0": "n1", "pg-bundle-1": "n1"}, id="one node"),
        pytest.param("STRICT_SPREAD", {"pg-bundle-0": "n1", "pg-bundle-1": "n2"}, id="two nodes"),
        pytest.param("PACK", {"pg-bundle-0": "n1", "pg-bundle-1": "n1"}, id="rather one"),
    ],
)
def test_strategies(strategy: str, want: dict[str, str]) -> None:
    plan = ask(node("n1"), node("n2"), bundles(strategy, *FOUR))
    assert pods_of(plan, "ml/pg") == want


def test_strict_pack_needs_one_node_for_all() -> None:
    plan = ask(node("n1"), node("n2"), bundles("STRICT_PACK", *({"GPU": 5},) * 2))
    assert plan.groups[0].outcome == "notPlaced"


def test_bundles_as_ray_numbers_them() -> None:
    spec = {"bundles": {"10": {"GPU": 1}, "2": {"CPU": 0.5, "memory": 1 << 30}}}
    found = read(node("n1"), thing("gangplan/v1/RayPlacementGroup", "pg", "ml", spec=spec))
    requests = [dict(found.pods.row(p).spec.requests) for p in range(2)]
    assert requests == [{"cpu": 500, "memory": 1 << 30, "pods": 1}, {GPU: 1, "pods": 1}]
    assert [t.path for t in find_group(found, "ml/pg").topology] == [(HOSTNAME,)]


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param({"strategy": "LINE", "bundles": [{"CPU": 1}]}, "spec.strategy", id="strategy"),
        pytest.param({"bundles": []}, "spec.bundles", id="no bundles"),
        pytest.param({"bundles": [1]}, "spec.bundles[0]", id="no map"),
        pytest.param({"bundles": [{"GPU": -1}]}, "spec.bundles[0].GPU", id="negative"),
    ],
)
def test_placement_groups_that_cannot_be_read(body: dict[str, Any], want: str) -> None:
    found = read(node("n1"), thing("gangplan/v1/RayPlacementGroup", "pg", "ml", spec=body))
    assert complaints(found) == [("ml/pg", want)]
