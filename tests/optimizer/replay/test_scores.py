"""Scores with literal numbers, as kube-scheduler's plugins would give them."""

from __future__ import annotations

import numpy as np
import pytest
from builders import make_node, make_pods, make_snapshot, make_spec

from optimizer.replay.scores import NodeLoad, score_counts
from topology.model import Taint, Toleration

GIB = 1 << 30
ALL_NODES = np.arange(2)


def load(*, used_cpu: int = 0, used_memory: int = 0, spec: dict[str, int]) -> tuple[NodeLoad, int]:
    """Two nodes of 10 cores and 100 GiB, the first in use; the index of a newcomer's spec."""
    nodes = [make_node(name, cpu=10_000, memory=100 * GIB) for name in ("n0", "n1")]
    old = make_pods("old", 1, spec=make_spec(cpu=used_cpu, memory=used_memory), on="n0")
    new = make_pods("new", 1, spec=make_spec(**spec))
    snapshot = make_snapshot(nodes, old, new)
    row = snapshot.pods.refs.index("ml/new-0")
    return NodeLoad(snapshot), int(snapshot.pods.spec[row])


@pytest.mark.parametrize(
    ("used", "spec", "want_scores"),
    [
        pytest.param(
            # n0: cpu 100*(10-5-2)/10 = 30, memory 100*(100-20-10)/100 = 70: 50;
            # balance 100*(1 - |0.7 - 0.3|/2) = 80. n1: 80 and 90: 85; balance 95.
            {"used_cpu": 5_000, "used_memory": 20 * GIB},
            {"cpu": 2_000, "memory": 10 * GIB},
            [130, 180],
            id="least allocated and balance",
        ),
        pytest.param(
            # n0: cpu (10 - 5 - 0.1)/10 = 49, memory 79 (20 GiB and 200 MiB): 64; no balance.
            {"used_cpu": 5_000, "used_memory": 20 * GIB},
            {},
            [64, 99],
            id="a pod that asks for neither counts 100m and 200Mi, and no balance",
        ),
        pytest.param(
            {"used_cpu": 9_000, "used_memory": 0},
            {"cpu": 2_000, "memory": 10 * GIB},
            # n0: cpu over: 0, memory 89: 44; shares 1 and 0.1: 55. n1: 85 and 95.
            [99, 180],
            id="beyond what a node has: zero",
        ),
    ],
)
def test_node_scores(used: dict[str, int], spec: dict[str, int], want_scores: list[int]) -> None:
    found, row = load(**used, spec=spec)
    assert found.score(row, ALL_NODES).tolist() == want_scores


def test_soft_taints() -> None:
    """Weight 3, the node with the most such taints gets nothing for it."""
    soft = [Taint(key, "", "PreferNoSchedule") for key in ("a", "b")]
    nodes = [make_node("n0", taints=soft), make_node("n1", taints=soft[:1])]
    spec = make_spec(tolerations=(Toleration("a", "Exists"),))
    snapshot = make_snapshot(nodes, make_pods("p", 1, spec=spec), make_pods("q", 1))
    found = NodeLoad(snapshot)
    tolerant, plain = (int(snapshot.pods.spec[p]) for p in range(2))
    assert found.score(tolerant, ALL_NODES).tolist() == [99, 99 + 3 * 100]
    assert found.score(plain, ALL_NODES).tolist() == [99, 99 + 3 * 50]


def test_shift_is_undone() -> None:
    found, row = load(used_cpu=5_000, spec={"cpu": 2_000})
    before = found.score(row, ALL_NODES).tolist()
    found.shift(row, 1, 1)
    assert found.score(row, ALL_NODES).tolist() != before
    found.shift(row, 1, -1)
    assert found.score(row, ALL_NODES).tolist() == before


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        # cpu 100*7/20 = 35; memory 100*20.2/200 = 10: (35 + 10) / 2.
        pytest.param([0, 1], 22, id="a domain of two: sums over sums"),
        pytest.param([0], 45, id="the node in use: 70 and 20"),
        pytest.param([1], 0, id="an empty one"),
    ],
)
def test_fill(nodes: list[int], want: int) -> None:
    found, row = load(used_cpu=5_000, used_memory=20 * GIB, spec={"cpu": 2_000})
    found.shift(row, 0, 1)
    assert found.score_fill(np.array(nodes)) == want


@pytest.mark.parametrize(
    ("counts", "want"),
    [
        pytest.param([8, 7], [100, 87], id="7 of 8"),
        pytest.param([3, 3], [100, 100], id="equal"),
        pytest.param([0, 0], [0, 0], id="nothing"),
        pytest.param([], [], id="no placement"),
    ],
)
def test_counts(counts: list[int], want: list[int]) -> None:
    assert score_counts(counts) == want
