from __future__ import annotations

import pytest
from builders import GPU, make_node, make_pods, make_snapshot

from topology.assemble import PodRow
from topology.model import (
    PODS,
    Exclusive,
    Group,
    Phase,
    Pod,
    PodFlag,
    PodSpec,
    SliceTerm,
    TopologyTerm,
    is_gpu,
)


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        pytest.param("nvidia.com/gpu", True, id="NVIDIA"),
        pytest.param("amd.com/gpu", True, id="AMD"),
        pytest.param("google.com/tpu", True, id="TPU"),
        pytest.param("aws.amazon.com/neuron", True, id="Trainium"),
        pytest.param("huawei.com/Ascend910", True, id="Ascend as its plugin spells it"),
        pytest.param("nvidia.com/mig-1g.10gb", False, id="a fraction"),
        pytest.param("nvidia.com/gpu.shared", False, id="time slices"),
        pytest.param("aws.amazon.com/neuroncore", False, id="a core of an accelerator"),
        pytest.param("gpu", False, id="no domain"),
        pytest.param("cpu", False, id="cpu"),
    ],
)
def test_is_gpu(resource: str, want: bool) -> None:
    assert is_gpu(resource) is want


def test_requests_of_a_spec() -> None:
    spec = PodSpec((("amd.com/gpu", 2), ("cpu", 500), (GPU, 4), (PODS, 1)))
    assert (spec.request("cpu"), spec.request("memory"), spec.request(PODS)) == (500, 0, 1)
    assert spec.gpus == 6
    assert PodSpec().gpus == 0


@pytest.mark.parametrize(
    ("phase", "node", "flags", "want"),
    [
        pytest.param(Phase.PENDING, "", 0, "live pending", id="waits for a node"),
        pytest.param(Phase.PENDING, "", PodFlag.PLANNED, "live pending", id="not created yet"),
        pytest.param(Phase.PENDING, "", PodFlag.GATED, "live", id="gated"),
        pytest.param(Phase.PENDING, "", PodFlag.WAITING, "live", id="its group is missing"),
        pytest.param(Phase.PENDING, "", PodFlag.TERMINATING, "live", id="deleted while pending"),
        pytest.param(Phase.PENDING, "n1", 0, "live holds member", id="bound, not started"),
        pytest.param(Phase.RUNNING, "n1", 0, "live holds member", id="running"),
        pytest.param(Phase.RUNNING, "n1", PodFlag.TERMINATING, "live holds", id="being deleted"),
        pytest.param(Phase.RUNNING, "gone", 0, "live holds member", id="on a node not read"),
        pytest.param(Phase.UNKNOWN, "n1", 0, "live holds member", id="node does not answer"),
        pytest.param(Phase.SUCCEEDED, "n1", 0, "", id="succeeded"),
        pytest.param(Phase.FAILED, "n1", 0, "", id="failed"),
        pytest.param(Phase.FAILED, "", 0, "", id="failed before it was bound"),
    ],
)
def test_what_counts(phase: Phase, node: str, flags: int, want: str) -> None:
    row = PodRow("ml/p", PodSpec(), node=node, phase=phase, flags=flags)
    pods = make_snapshot([make_node("n1")], [row]).pods
    claims = {
        "live": pods.is_live,
        "holds": pods.holds_room,
        "member": pods.is_running_member,
        "pending": pods.is_pending,
    }
    assert [name for name, found in claims.items() if found[0]] == want.split()


def test_a_row_of_the_table() -> None:
    snapshot = make_snapshot(
        [make_node("n1")],
        make_pods("a", 2, on=["n1", ""], priority=7, template="worker", flags=PodFlag.GATED),
    )
    assert len(snapshot.pods) == 2
    assert snapshot.pods.row(0) == Pod(
        ref="ml/a-0",
        spec=PodSpec(((GPU, 1), (PODS, 1))),
        labels={},
        node=0,
        group=-1,
        phase=Phase.RUNNING,
        flags=PodFlag.GATED,
        priority=7,
        nominated=-1,
        rank=0,
        template="worker",
        created=-1,
        started=-1,
        checkpoint=-1,
    )


def test_paths_of_a_group() -> None:
    group = Group(
        "ml/g",
        "group",
        "api",
        topology=(TopologyTerm(("block", "rack")), TopologyTerm(("zone",), required=False)),
        slices=(SliceTerm(("rack",), 4),),
        exclusive=(Exclusive("ml", "hall"), Exclusive("ml")),
    )
    assert group.paths == (("block", "rack"), ("zone",), ("rack",), ("hall",))
    assert group.topology[0].key == "rack"
