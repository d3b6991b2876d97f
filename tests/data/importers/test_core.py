from __future__ import annotations

from typing import Any

import pytest
from kube import GPU, complaints, node, pod, read, thing

from data.importers.base import ImportContext
from data.importers.core import read_priority_classes
from topology.model import Budget, LabelSelector, Node, Requirement, Taint

Obj = dict[str, Any]
NOT_READY = [{"type": "Ready", "status": "Unknown"}]


def only(obj: Obj) -> Node:
    return read(obj).nodes[0]


def test_a_node() -> None:
    found = only(
        node(
            "n0",
            labels={"topo.example.com/rack": "r0", "example.com/unused": "x"},
            spec={"taints": [{"key": "a", "effect": "NoExecute"}], "unschedulable": True},
            allocatable={"cpu": "63500m", "memory": "1.5Ti", "pods": 20, GPU: "8"},
            capacity={"cpu": "64"},
        )
    )
    assert found == Node(
        "n0",
        {"kubernetes.io/hostname": "n0", "topo.example.com/rack": "r0"},
        {"cpu": 63_500, "memory": 1_649_267_441_664, "pods": 20, GPU: 8},
        (Taint("a", "", "NoExecute"),),
        unschedulable=True,
    )


@pytest.mark.parametrize(
    ("conditions", "taints", "want_ready"),
    [
        pytest.param([{"type": "Ready", "status": "True"}], [], True, id="ready"),
        pytest.param(None, None, True, id="nothing known"),
        pytest.param(NOT_READY, [], False, id="not ready, taint not there yet"),
        pytest.param(
            NOT_READY, [{"key": "node.kubernetes.io/unreachable"}], True, id="the taint says it"
        ),
        pytest.param(
            NOT_READY, [{"key": "node.kubernetes.io/not-ready"}], True, id="so does this one"
        ),
        pytest.param(NOT_READY, [{"key": "other"}], False, id="another taint does not"),
    ],
)
def test_readiness(conditions: Any, taints: Any, want_ready: bool) -> None:
    snapshot = read(node("n0", conditions=conditions, spec={"taints": taints}))
    assert snapshot.nodes[0].ready == want_ready
    assert any("1 nodes are not Ready" in w for w in snapshot.warnings) == (not want_ready)


def test_a_node_without_allocatable_holds_nothing() -> None:
    snapshot = read(node("n0", allocatable=None, capacity={"cpu": "64"}))
    assert snapshot.nodes[0].allocatable == {}
    assert any("no status.allocatable (first: n0)" in w for w in snapshot.warnings)


def budget(status: Obj | None = None, selector: Obj | None = None, **metadata: Any) -> Obj:
    status = {"disruptionsAllowed": 2} if status is None else status
    return thing(
        "policy/v1/PodDisruptionBudget",
        "b",
        "ml",
        spec={"selector": selector, "minAvailable": 1},
        status=status,
        metadata=metadata,
    )


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(budget(), Budget("ml/b", None, 2), id="null selector matches nothing"),
        pytest.param(
            budget(selector={}), Budget("ml/b", LabelSelector(), 2), id="empty selector matches all"
        ),
        pytest.param(
            budget(selector={"matchLabels": {"app": "x"}}),
            Budget("ml/b", LabelSelector((Requirement("app", "In", ("x",)),)), 2),
            id="labels",
        ),
        pytest.param(
            budget({"disruptionsAllowed": 2, "observedGeneration": 1}, generation=2),
            Budget("ml/b", None, 0),
            id="status older than the spec",
        ),
        pytest.param(
            budget({"disruptionsAllowed": 2, "observedGeneration": 2}, generation=2),
            Budget("ml/b", None, 2),
            id="status of this generation",
        ),
        pytest.param(
            budget({"disruptionsAllowed": 1, "disruptedPods": {"p": "2026-11-30T10:00:00Z"}}),
            Budget("ml/b", None, 1, frozenset({"p"})),
            id="pods on their way out",
        ),
        pytest.param(budget({}), Budget("ml/b", None, 0), id="no status"),
    ],
)
def test_budgets(obj: Obj, want: Budget) -> None:
    assert read(obj).budgets == (want,)


def test_the_selector_of_a_budget_keeps_the_labels_it_needs() -> None:
    snapshot = read(
        budget(selector={"matchLabels": {"app": "x"}}),
        pod("p", metadata={"labels": {"app": "x", "other": "y"}}),
    )
    assert snapshot.pods.label_sets == ({"app": "x"},)


def test_a_budget_with_a_bad_selector_is_reported() -> None:
    assert complaints(read(budget(selector={"matchLabels": 5}))) == [("ml/b", "spec.selector")]


def priority_class(name: str, value: int, **fields: Any) -> Obj:
    return thing("scheduling.k8s.io/v1/PriorityClass", name, value=value, **fields)


def test_the_smallest_of_several_default_classes_counts() -> None:
    from data.importers.base import RawObject

    objects = [
        RawObject("scheduling.k8s.io/v1", "PriorityClass", "", o["metadata"]["name"], o)
        for o in (
            priority_class("a", 30, globalDefault=True),
            priority_class("b", 20, globalDefault=True, preemptionPolicy="Never"),
            priority_class("c", 10),
        )
    ]
    context = ImportContext(
        {}, {}, {("scheduling.k8s.io", "PriorityClass"): objects}, lambda template, namespace: None
    )
    assert read_priority_classes(context) == frozenset({"b"})
    assert context.default_priority == 20
    assert context.priority_classes["c"] == 10
    assert context.priority_classes["system-cluster-critical"] == 2_000_000_000
