from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import RACK, make_node, make_pods, make_snapshot, make_spec

from optimizer.fragmentation import count_free_gpus, find_largest_gangs, measure_fragmentation
from topology.model import PodFlag, Taint, Toleration

if TYPE_CHECKING:
    from topology.assemble import PodRow
    from topology.model import Node

TAINT = Taint("gpu", "yes")


def on(node: str, gpus: int, **fields: Any) -> list[PodRow]:
    return make_pods(f"on-{node}", 1, spec=make_spec(gpus=gpus), on=node, **fields)


def rack(name: str, count: int = 2, **fields: Any) -> list[Node]:
    return [make_node(f"{name}{i}", rack=name, **fields) for i in range(1, count + 1)]


@pytest.mark.parametrize(
    ("fields", "pods", "want_free"),
    [
        pytest.param({}, [], 8, id="idle"),
        pytest.param({}, on("n1", 3), 5, id="in use"),
        pytest.param({}, on("n1", 3, flags=PodFlag.TERMINATING), 5, id="not gone yet"),
        pytest.param({}, on("n1", 9), 0, id="overcommitted"),
        pytest.param({"unschedulable": True}, [], 0, id="cordoned"),
        pytest.param({"ready": False}, [], 0, id="not ready"),
        pytest.param({"taints": [TAINT]}, [], 0, id="tainted"),
        pytest.param(
            {"taints": [TAINT]},
            make_pods("p", 1, spec=make_spec(tolerations=(Toleration("gpu", "Exists"),))),
            8,
            id="a taint that GPU pods tolerate",
        ),
        pytest.param(
            {"taints": [TAINT]},
            make_pods("p", 1, spec=make_spec(gpus=0, tolerations=(Toleration("", "Exists"),))),
            0,
            id="a taint that only others tolerate",
        ),
        pytest.param(
            {"unschedulable": True},
            make_pods("p", 1, spec=make_spec(tolerations=(Toleration("", "Exists"),))),
            0,
            id="cordoned, whatever is tolerated",
        ),
        pytest.param({"gpus": 0}, [], 0, id="no GPUs"),
    ],
)
def test_free_gpus(fields: dict[str, Any], pods: list[PodRow], want_free: int) -> None:
    found = count_free_gpus(make_snapshot([make_node("n1", **fields)], pods))
    assert found.free.tolist() == [want_free]
    assert found.allocatable.tolist() == [fields.get("gpus", 8)]


def test_a_plan_takes_its_gpus_off() -> None:
    snapshot = make_snapshot(
        [make_node("n1"), make_node("n2")], make_pods("p", 2, spec=make_spec(gpus=3))
    )
    assert count_free_gpus(snapshot, {0: 1, 1: 1}).free.tolist() == [8, 2]
    assert measure_fragmentation(snapshot, {0: 1, 1: 1})["fragmentation"] == 2


@pytest.mark.parametrize(
    ("nodes", "pods", "want_free", "want_broken", "want_levels"),
    [
        pytest.param(
            rack("a") + rack("b"),
            [],
            32,
            0,
            {"node": (32, 1000, 4), RACK: (32, 1000, 2)},
            id="an idle fleet",
        ),
        pytest.param(
            rack("a") + rack("b"),
            on("a1", 1),
            31,
            7 + 15,
            {"node": (24, 774, 3), RACK: (16, 516, 1)},
            id="one GPU breaks its node and its rack",
        ),
        pytest.param(
            rack("a") + rack("b"),
            on("a1", 8),
            24,
            8,
            {"node": (24, 1000, 3), RACK: (16, 666, 1)},
            id="a full node breaks its rack only",
        ),
        pytest.param(
            rack("a") + rack("b"),
            on("a1", 8) + on("a2", 8),
            16,
            0,
            {"node": (16, 1000, 2), RACK: (16, 1000, 1)},
            id="a full rack breaks nothing",
        ),
        pytest.param(
            rack("a", 3) + rack("b", 1),
            on("a1", 4),
            28,
            4 + 20,
            {"node": (24, 857, 3), RACK: (8, 285, 1)},
            id="uneven racks",
        ),
        pytest.param(
            [*rack("a"), make_node("n1")],
            [],
            24,
            8,
            {"node": (24, 1000, 3), RACK: (16, 666, 1)},
            id="a node in no rack is part of no whole rack",
        ),
        pytest.param(
            [make_node("c", gpus=0, rack="c"), *rack("a", 1)],
            [],
            8,
            0,
            {"node": (8, 1000, 1), RACK: (8, 1000, 1)},
            id="a node without GPUs is no domain of them",
        ),
        pytest.param(
            rack("a", 1), on("a1", 8), 0, 0, {"node": (0, 0, 0), RACK: (0, 0, 0)}, id="all in use"
        ),
        pytest.param([], [], 0, 0, {"node": (0, 0, 0)}, id="no nodes"),
    ],
)
def test_measure(
    nodes: list[Node],
    pods: list[PodRow],
    want_free: int,
    want_broken: int,
    want_levels: dict[str, tuple[int, int, int]],
) -> None:
    found = measure_fragmentation(make_snapshot(nodes, pods))
    assert found["freeGpus"] == want_free
    assert found["fragmentation"] == want_broken
    names = ("wholeFreeGpus", "wholeFreePerMille", "wholeFreeDomains")
    assert found["levels"] == {
        key: dict(zip(names, values, strict=True)) for key, values in want_levels.items()
    }


def largest(snapshot_of: list[Node], pods: list[PodRow]) -> dict[tuple[str | None, int], tuple]:
    found = find_largest_gangs(make_snapshot(snapshot_of, pods))
    return {(f["key"], f["gpusPerPod"]): (f["pods"], f["domain"]) for f in found}


def test_largest_gangs() -> None:
    # 7 + 8 GPUs are free in rack a, 6 + 6 in rack b, 8 in no rack.
    found = largest(
        [*rack("a"), *rack("b"), make_node("n1")], on("a1", 1) + on("b1", 2) + on("b2", 2)
    )
    assert found == {
        (None, 1): (35, None),
        (None, 2): (17, None),
        (None, 4): (7, None),
        (None, 8): (2, None),
        (RACK, 1): (15, "a"),
        (RACK, 2): (7, "a"),
        (RACK, 4): (3, "a"),
        (RACK, 8): (1, "a"),
    }


def test_pod_slots_bound_a_gang() -> None:
    found = largest(rack("a", slots=3), [])
    assert [found[None, size][0] for size in (1, 2, 4, 8)] == [6, 6, 4, 2]


def test_no_nodes_take_no_gang() -> None:
    assert largest([], []) == {}
