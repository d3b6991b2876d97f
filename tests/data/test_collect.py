from __future__ import annotations

from typing import Any

import pytest
from kube import complaints, find_group, find_pod, gang, node, pod, read, thing


@pytest.mark.parametrize(
    ("obj", "want_error"),
    [
        pytest.param(pod("", status={}), ("items[1]", "metadata.name"), id="no name"),
        pytest.param(pod("a/b"), ("ml/a/b", "metadata.name"), id="slash in a name"),
        pytest.param(
            pod("p", metadata={"namespace": "a b"}), ("a b/p", "metadata.namespace"), id="space"
        ),
        pytest.param(
            pod("p", metadata={"labels": {"on": True}}),
            ("ml/p", "metadata.labels[on]"),
            id="label that is no string",
        ),
        pytest.param(
            gang("g") | {"metadata": {"name": "g", "namespace": "ml", "labels": {"a": 1}}},
            ("ml/g", "metadata.labels[a]"),
            id="label of a group that is no string",
        ),
        pytest.param(
            pod("p", priority="high"), ("ml/p", "spec.priority"), id="priority that is no number"
        ),
        pytest.param(pod("p", priority=2**31), ("ml/p", "spec.priority"), id="priority too large"),
        pytest.param(pod("p", containers=5), ("ml/p", "spec.containers"), id="containers no list"),
        pytest.param(
            pod("p", containers=[{"resources": {"requests": {"cpu": [1]}}}]),
            ("ml/p", "spec.containers[0].resources.requests[cpu]"),
            id="quantity that is a list",
        ),
        pytest.param(
            pod("p", containers=[{"resources": {"requests": {"cpu": "1K"}}}]),
            ("ml/p", "spec.containers[0].resources.requests[cpu]"),
            id="case 68: 1K",
        ),
        pytest.param(pod("p", phase="Lost"), ("ml/p", "status.phase"), id="unknown phase"),
        pytest.param(
            pod("p", metadata={"creationTimestamp": "yesterday"}),
            ("ml/p", "metadata.creationTimestamp"),
            id="no time",
        ),
        pytest.param({"kind": "Pod", "apiVersion": "v1"}, ("items[1]", ""), id="no metadata"),
        pytest.param({"kind": "Pod"}, ("items[1]", "apiVersion"), id="no apiVersion"),
        pytest.param({"metadata": {"name": "x"}}, ("x", "kind"), id="no kind"),
        pytest.param(
            node("n1", allocatable={"cpu": "many"}),
            ("n1", "status.allocatable[cpu]"),
            id="allocatable that is no quantity",
        ),
        pytest.param(
            thing("scheduling.k8s.io/v1/PriorityClass", "c", value="10"),
            ("c", "value"),
            id="class value that is no number",
        ),
    ],
)
def test_sets_one_bad_object_aside(obj: dict[str, Any], want_error: tuple[str, str]) -> None:
    snapshot = read(node("n0"), obj, pod("good"))
    assert complaints(snapshot) == [want_error]
    assert "ml/good" in snapshot.pods.refs
    assert [n.name for n in snapshot.nodes] == ["n0"]


@pytest.mark.parametrize(
    ("objects", "want_refs", "want_errors"),
    [
        pytest.param([pod("p"), pod("p")], ["ml/p"], [], id="same pod twice"),
        pytest.param(
            [pod("p"), pod("p", metadata={"resourceVersion": "7"})], ["ml/p"], [], id="read again"
        ),
        pytest.param(
            [pod("p", priority=1), pod("p", priority=2)],
            ["ml/p"],
            [("ml/p", "metadata.name")],
            id="two pods of one name",
        ),
        pytest.param(
            [node("n0"), node("n0", labels={"a": "b"}), pod("p")],
            ["ml/p"],
            [("n0", "metadata.name")],
            id="two nodes of one name",
        ),
        pytest.param(
            [gang("g", 1), gang("g", 2), pod("p")],
            ["ml/p"],
            [("ml/g", "metadata.name")],
            id="two groups of one name",
        ),
    ],
)
def test_duplicates(
    objects: list[dict[str, Any]], want_refs: list[str], want_errors: list[tuple[str, str]]
) -> None:
    snapshot = read(*objects)
    assert list(snapshot.pods.refs) == want_refs
    assert complaints(snapshot) == want_errors


def test_the_first_of_two_pods_is_kept() -> None:
    assert find_pod(read(pod("p", priority=1), pod("p", priority=2))).priority == 1


def test_the_later_version_of_an_object_wins() -> None:
    old = gang("g", 2, api="scheduling.k8s.io/v1alpha2")
    new = gang("g", 3)
    for objects in ((old, new), (new, old)):
        snapshot = read(*objects)
        assert find_group(snapshot).min_count == 3
        assert complaints(snapshot) == []
        assert any("v1alpha2 and scheduling.k8s.io/v1beta1" in w for w in snapshot.warnings)


def test_no_namespace_means_default() -> None:
    bare = pod("p")
    del bare["metadata"]["namespace"]
    assert read(bare).pods.refs == ("default/p",)


def test_kinds_of_other_api_groups_are_told_apart() -> None:
    foreign = thing("example.com/v1/PodGroup", "g", "ml", spec={})
    snapshot = read(gang("g", 2), foreign)
    assert [g.min_count for g in snapshot.groups] == [2]
    assert any("PodGroup (1)" in w for w in snapshot.warnings)
