from __future__ import annotations

import numpy as np
import pytest
from builders import GPU, make_node, make_pods, make_snapshot, make_spec

from topology.assemble import PodRow
from topology.model import PODS, Phase, PodFlag, Snapshot
from topology.usage import count_usage, request_matrix


def bound(**fields: object) -> list[PodRow]:
    """A pod of 2 GPUs on node n0."""
    return make_pods("p", 1, spec=make_spec(gpus=2), on="n0", **fields)


@pytest.mark.parametrize(
    ("pods", "want_used", "want_slots"),
    [
        pytest.param([], 0, 0, id="an empty node"),
        pytest.param(bound(), 2, 1, id="a running pod"),
        pytest.param(bound(flags=PodFlag.TERMINATING), 2, 1, id="one that is being deleted"),
        pytest.param(bound(flags=PodFlag.DAEMON), 2, 1, id="one of a DaemonSet"),
        pytest.param(bound(flags=PodFlag.STATIC), 2, 1, id="a static one"),
        pytest.param(
            make_pods("p", 3, spec=make_spec(gpus=3), on="n0"), 9, 3, id="more than there is"
        ),
        pytest.param(make_pods("p", 1), 0, 0, id="a pending pod"),
        pytest.param(make_pods("p", 1, nominated="n0"), 0, 0, id="a nominated pod"),
        pytest.param(make_pods("p", 1, on="gone"), 0, 0, id="on a node that was not read"),
        pytest.param(make_pods("p", 1, on="n1"), 0, 0, id="on another node"),
    ],
)
def test_used(pods: list[PodRow], want_used: int, want_slots: int) -> None:
    usage = count_usage(make_snapshot([make_node("n0"), make_node("n1")], pods))
    assert usage.used[0, usage.column(GPU)] == want_used
    assert usage.free[0, usage.column(GPU)] == 8 - want_used
    assert usage.used[0, usage.column(PODS)] == want_slots


@pytest.mark.parametrize(
    ("phase", "want_used"),
    [
        pytest.param(Phase.PENDING, 2, id="bound, not started"),
        pytest.param(Phase.RUNNING, 2, id="running"),
        pytest.param(Phase.UNKNOWN, 2, id="unknown"),
        pytest.param(Phase.SUCCEEDED, 0, id="succeeded"),
        pytest.param(Phase.FAILED, 0, id="failed"),
    ],
)
def test_finished_pods_hold_nothing(phase: Phase, want_used: int) -> None:
    row = PodRow("ml/p", make_spec(gpus=2), node="n0", phase=phase)
    assert count_usage(make_snapshot([make_node("n0")], [row])).used[0].tolist() == [
        0,
        0,
        want_used,
        int(want_used > 0),
    ]


def fleet() -> Snapshot:
    return make_snapshot(
        [make_node("n0", memory=2**53 + 1), make_node("n1", gpus=4, slots=10)],
        make_pods("a", 2, spec=make_spec(gpus=1, memory=2**52), on=["n0", "n1"]),
        make_pods("b", 2, spec=make_spec(gpus=2, memory=1), on="n0"),
    )


def test_amounts_are_exact_beyond_float64() -> None:
    usage = count_usage(fleet(), ["memory"])
    assert usage.free.tolist() == [[2**52 - 1], [(512 << 30) - 2**52]]


def test_resources_are_those_asked_for_in_their_order() -> None:
    usage = count_usage(fleet(), [GPU, "example.com/none", PODS])
    assert usage.resources == (GPU, "example.com/none", PODS)
    assert usage.allocatable.tolist() == [[8, 0, 110], [4, 0, 10]]
    assert usage.used.tolist() == [[5, 0, 3], [1, 0, 1]]


def test_all_resources_that_nodes_offer_or_pods_ask_for() -> None:
    spec = make_spec(gpus=0, cpu=500)
    pods = [PodRow("ml/p", type(spec)((("example.com/x", 1), (PODS, 1))))]
    usage = count_usage(make_snapshot([make_node("n0")], pods))
    assert usage.resources == ("cpu", "example.com/x", "memory", GPU, PODS)


def test_request_matrix() -> None:
    found = request_matrix(fleet(), ("memory", PODS, "cpu"))
    assert sorted(found.tolist()) == [[1, 1, 0], [2**52, 1, 0]]
    assert found.dtype == np.int64


def test_empty_fleet() -> None:
    usage = count_usage(make_snapshot([]), [GPU])
    assert usage.free.shape == (0, 1)
    assert count_usage(make_snapshot([], make_pods("p", 1))).free.shape == (0, 2)
