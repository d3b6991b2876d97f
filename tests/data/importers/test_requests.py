from __future__ import annotations

from typing import Any

import pytest
from kube import GPU, complaints, container, find_pod, pod, read

Obj = dict[str, Any]


def sidecar(cpu: str) -> Obj:
    return container(cpu, restartPolicy="Always")


def init(*containers: Obj, main: str = "2") -> Obj:
    named = [{**c, "name": f"init-{i}"} for i, c in enumerate(containers)]
    return pod("p", container(main), initContainers=named)


@pytest.mark.parametrize(
    ("obj", "want_cpu"),
    [
        pytest.param(
            pod("p", container("1"), container("1"), initContainers=[container("3")]),
            3000,
            id="case 65: init container above the sum",
        ),
        pytest.param(
            pod("p", container("1"), container("1"), initContainers=[sidecar("1"), container("3")]),
            4000,
            id="case 65: sidecar first",
        ),
        pytest.param(
            pod("p", container("1"), container("1"), initContainers=[container("3"), sidecar("1")]),
            3000,
            id="case 65: sidecar last",
        ),
        pytest.param(init(sidecar("1"), sidecar("2")), 5000, id="two sidecars run with the rest"),
        pytest.param(
            init(sidecar("1"), container("5"), sidecar("4"), main="1"), 6000, id="between sidecars"
        ),
        pytest.param(
            pod("p", container("2"), overhead={"cpu": "250m"}), 2250, id="case 66: overhead"
        ),
        pytest.param(
            pod("p", container("2"), resources={"requests": {"cpu": "4"}}), 4000, id="case 67"
        ),
        pytest.param(
            pod("p", container("2"), resources={"requests": {"cpu": "1"}}),
            1000,
            id="pod level below",
        ),
        pytest.param(
            pod("p", container("2"), resources={"requests": {"memory": "1Gi"}}),
            2000,
            id="pod level of another resource",
        ),
        pytest.param(
            pod("p", container("2"), resources={"limits": {"cpu": "4"}}),
            2000,
            id="limit of the pod, request of a container",
        ),
        pytest.param(
            pod("p", container(gpus=1), resources={"limits": {"cpu": "4"}}),
            4000,
            id="limit of the pod, no request",
        ),
        pytest.param(
            pod("p", container("2"), resources={"requests": {"cpu": "4"}}, overhead={"cpu": "1"}),
            5000,
            id="overhead comes on top of the pod level",
        ),
        pytest.param(
            pod("p", {"resources": {"limits": {"cpu": "3"}}}), 3000, id="limit without request"
        ),
        pytest.param(
            pod("p", {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "3"}}}),
            1000,
            id="limit above request",
        ),
        pytest.param(pod("p", container("0.0005")), 1, id="case 68"),
        pytest.param(pod("p", container("300u"), container("300u")), 1, id="rounded after summing"),
        pytest.param(
            pod("p", container("1"), ephemeralContainers=[container("9")]), 1000, id="ephemeral"
        ),
        pytest.param(pod("p", containers=None), 0, id="null containers"),
    ],
)
def test_cpu(obj: Obj, want_cpu: int) -> None:
    snapshot = read(obj)
    assert complaints(snapshot) == []
    assert find_pod(snapshot).spec.request("cpu") == want_cpu


def test_case_67_extended_resources_come_from_containers() -> None:
    obj = pod("p", container(gpus=2), resources={"requests": {"cpu": "4", GPU: "7"}})
    assert find_pod(read(obj)).spec.requests == (("cpu", 4000), (GPU, 2), ("pods", 1))


def test_every_pod_takes_one_slot_and_zeros_are_left_out() -> None:
    obj = pod("p", {"resources": {"requests": {"cpu": "0", "pods": "5"}}})
    assert find_pod(read(obj)).spec.requests == (("pods", 1),)


def resized(
    desired: str | None,
    allocated: str | None,
    actual: str | None,
    reason: str = "",
    kind: str = "container",
) -> Obj:
    """A pod whose main container (or sidecar) was resized in place."""
    status: Obj = {"name": "main"}
    if allocated is not None:
        status["allocatedResources"] = {"cpu": allocated}
    if actual is not None:
        status["resources"] = {"requests": {"cpu": actual}}
    conditions = (
        [{"type": "PodResizePending", "status": "True", "reason": reason}] if reason else []
    )
    statuses = {f"{kind}Statuses": [status], "conditions": conditions}
    if kind == "container":
        return pod("p", container(desired), on="n0", status=statuses)
    own = sidecar(desired or "0")
    return pod("p", {**container("1"), "name": "app"}, initContainers=[own], status=statuses)


@pytest.mark.parametrize(
    ("obj", "want_cpu"),
    [
        pytest.param(resized("4", "2", "2"), 4000, id="case 69: growing"),
        pytest.param(resized("4", "2", "2", "Deferred"), 4000, id="case 69: deferred"),
        pytest.param(resized("4", "2", "2", "Infeasible"), 2000, id="case 69: infeasible"),
        pytest.param(resized("2", "4", "4"), 4000, id="case 69: shrinking"),
        pytest.param(resized("2", None, "4"), 4000, id="case 69: actual above desired"),
        pytest.param(resized("2", "3", None), 3000, id="no actual: allocated"),
        pytest.param(resized("2", None, None), 2000, id="statuses without amounts"),
        pytest.param(resized("4", None, "2", "Infeasible"), 2000, id="infeasible, only actual"),
        pytest.param(resized("4", "2", "2", kind="initContainer"), 5000, id="a sidecar grows"),
        pytest.param(
            resized("4", "2", "2", "Infeasible", kind="initContainer"), 3000, id="a sidecar may not"
        ),
        pytest.param(
            pod(
                "p",
                container("1"),
                resources={"requests": {"cpu": "2"}},
                status={
                    "allocatedResources": {"cpu": "5"},
                    "resources": {"requests": {"cpu": "3"}},
                },
            ),
            5000,
            id="resize at pod level",
        ),
    ],
)
def test_resize(obj: Obj, want_cpu: int) -> None:
    assert find_pod(read(obj)).spec.request("cpu") == want_cpu


def test_statuses_that_repeat_the_spec_share_it() -> None:
    running = pod("a", container("4"), on="n0")
    running["status"]["containerStatuses"] = [
        {
            "name": "main",
            "allocatedResources": {"cpu": "4"},
            "resources": {"requests": {"cpu": "4"}},
        }
    ]
    assert len(read(running, pod("b", container("4"))).pods.specs) == 1


@pytest.mark.parametrize(
    ("obj", "want_field"),
    [
        pytest.param(
            pod("p", container("1"), initContainers=[container("x")]),
            "spec.initContainers[0].resources.requests[cpu]",
            id="init container",
        ),
        pytest.param(
            pod("p", overhead={"cpu": "-1"}), "spec.overhead[cpu]", id="negative overhead"
        ),
        pytest.param(
            pod("p", resources={"requests": {"cpu": "1e99"}}),
            "spec.resources.requests[cpu]",
            id="pod level out of range",
        ),
        pytest.param(
            pod("p", *[container(str(2**53))] * 2),
            "spec.containers[*].resources.requests[cpu]",
            id="sum out of range",
        ),
        pytest.param(
            pod("p", resources={"limits": {"cpu": "?"}}), "spec.resources.limits[cpu]", id="limit"
        ),
    ],
)
def test_names_the_field_at_fault(obj: Obj, want_field: str) -> None:
    assert complaints(read(obj)) == [("ml/p", want_field)]
