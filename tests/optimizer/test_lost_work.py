"""What stopping a pod would lose, and who goes when that is what counts."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask
from builders import make_node, make_pods, make_snapshot, make_spec
from kube import container, gang, node, pod

from optimizer.lost_work import count_lost_gpu_seconds, describe_unstarted, find_now
from optimizer.objective import COST_OBJECTIVES
from topology.model import Phase

NOW = 10_000
Obj = dict[str, Any]


@pytest.mark.parametrize(
    ("fields", "want_lost"),
    [
        pytest.param({"started": 9_000}, 2_000, id="since the start"),
        pytest.param({"started": 9_000, "checkpoint": 9_900}, 200, id="since the checkpoint"),
        pytest.param({"started": 9_900, "checkpoint": 9_000}, 200, id="restarted since"),
        pytest.param({"started": NOW, "checkpoint": -1}, 0, id="just started"),
        pytest.param({}, 0, id="not started"),
        pytest.param({"checkpoint": 9_000}, 0, id="not started, saved by the one before it"),
    ],
)
def test_of_one_pod(fields, want_lost):
    pods = make_pods("a", 1, spec=make_spec(gpus=2), on="n0", **fields)
    clock = make_pods("clock", 1, created=NOW)
    snapshot = make_snapshot([make_node("n0")], pods, clock)
    assert find_now(snapshot) == NOW
    assert count_lost_gpu_seconds(snapshot).tolist() == [want_lost, 0]


def test_only_pods_that_run_lose_work():
    finished = make_pods("done", 1, on="n0", started=1)
    finished[0].phase = Phase.SUCCEEDED
    snapshot = make_snapshot(
        [make_node("n0")],
        finished,
        make_pods("cpu", 1, spec=make_spec(gpus=0, cpu=1), on="n0", started=1),
        make_pods("run", 1, on="n0", started=1),
        make_pods("wait", 1, created=NOW),
    )
    assert count_lost_gpu_seconds(snapshot).tolist() == [0, 0, 9_999, 0]


def test_an_empty_snapshot():
    snapshot = make_snapshot([make_node("n0")])
    assert find_now(snapshot) == -1
    assert count_lost_gpu_seconds(snapshot).tolist() == []
    assert describe_unstarted(snapshot) is None


def at(minute: int) -> str:
    return f"2026-11-30T10:{minute:02d}:00Z"


def running(name: str, on: str, started: int, saved: int | None = None, **fields: Any) -> Obj:
    """A pod of 8 GPUs that started, and perhaps saved its work, minutes past ten."""
    metadata: Obj = {"name": name, "namespace": "ml"}
    if saved is not None:
        metadata["annotations"] = {"gangplan.io/last-checkpoint": at(saved)}
    return pod(
        name,
        container(gpus=8),
        on=on,
        metadata=metadata,
        status={"startTime": at(started)},
        **fields,
    )


WAITING = [
    gang(priority=10),
    pod(
        "g0",
        container(gpus=8),
        group="g",
        priority=10,
        metadata={"name": "g0", "namespace": "ml", "creationTimestamp": at(50)},
    ),
]


def big_gang(started: int, saved: int) -> list[Obj]:
    """Two pods that go together, on n1 and n2."""
    return [
        gang("all", 2, disruptionMode={"all": {}}),
        running("all-0", "n1", started, saved, group="all"),
        running("all-1", "n2", started, saved, group="all"),
    ]


@pytest.mark.parametrize(
    ("objects", "cost", "want_victims", "want_lost"),
    [
        pytest.param(
            [running("old", "n0", 0), running("young", "n1", 40)],
            "gpu-seconds-lost",
            ["ml/young"],
            8 * 600,
            id="the youngest",
        ),
        pytest.param(
            [running("saved", "n0", 0, 49), running("young", "n1", 40)],
            "gpu-seconds-lost",
            ["ml/saved"],
            8 * 60,
            id="the one that saved last",
        ),
        pytest.param(
            [running("saved", "n0", 0, 49, priority=5), running("young", "n1", 40)],
            "gpu-seconds-lost",
            ["ml/saved"],
            8 * 60,
            id="even of a higher priority",
        ),
        pytest.param(
            [running("saved", "n0", 0, 49, priority=5), running("young", "n1", 40)],
            "scheduler",
            ["ml/young"],
            8 * 600,
            id="not by the scheduler's order",
        ),
        pytest.param(
            [running("old", "n0", 0), *big_gang(0, 49)],
            "gpu-seconds-lost",
            ["ml/all-0", "ml/all-1"],
            16 * 60,
            id="a gang that saved, whole",
        ),
        pytest.param(
            [running("mid", "n0", 48), *big_gang(0, 48)],
            "gpu-seconds-lost",
            ["ml/mid"],
            8 * 120,
            id="all pods of a gang are counted",
        ),
    ],
)
def test_victims_that_lose_least(objects, cost, want_victims, want_lost):
    used = sorted({o["spec"]["nodeName"] for o in objects if "nodeName" in o["spec"]})
    plan = ask(
        *map(node, used),
        *objects,
        *WAITING,
        command="preempt",
        groups=("ml/g",),
        preempt=True,
        objective=COST_OBJECTIVES[cost],
    )
    assert [eviction.pod for eviction in plan.evictions] == want_victims
    assert plan.criteria["gpuSecondsLost"] == want_lost
    assert plan.bound.proof == "optimal"


def test_warns_of_pods_that_state_no_start():
    unstarted = pod("p", container(gpus=8), on="n0")
    plan = ask(
        node("n0"),
        unstarted,
        *WAITING,
        preempt=True,
        objective=COST_OBJECTIVES["gpu-seconds-lost"],
    )
    assert [e.pod for e in plan.evictions] == ["ml/p"]
    assert plan.warnings == (
        "1 running pods with GPUs have no status.startTime (first: ml/p); evicting them counts as "
        "losing no work",
    )


def test_months_of_work_are_still_exact():
    """Sums of 11 digits, which differ by one GPU second."""
    started = 1_600_000_000
    pods = [
        make_pods(name, 1, spec=make_spec(gpus=8), on=name, started=started + late)
        for late, name in enumerate(["n0", "n1", "n2", "n3"])
    ]
    from builders import make_group

    from ray_jobs.pipeline import make_plan
    from topology.plan import Request

    waiting = make_pods("g", 3, group="ml/g", spec=make_spec(gpus=8), created=1_800_000_000)
    snapshot = make_snapshot(
        [make_node(f"n{i}") for i in range(4)],
        *pods,
        waiting,
        groups=[make_group("ml/g", 3, priority=10)],
    )
    plan = make_plan(snapshot, Request(preempt=True, objective=COST_OBJECTIVES["gpu-seconds-lost"]))
    assert [e.node for e in plan.evictions] == ["n1", "n2", "n3"]
    assert plan.criteria["gpuSecondsLost"] == 8 * (3 * 200_000_000 - 6)
    assert plan.bound.proof == "optimal"
