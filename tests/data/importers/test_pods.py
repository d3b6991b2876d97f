from __future__ import annotations

from typing import Any

import pytest
from kube import complaints, find_pod, pod, read, thing

from topology.model import MISSING_NODE, NO_NODE, Phase, PodFlag

Obj = dict[str, Any]


def owned_by(kind: str, *, controller: bool | None = True) -> Obj:
    owner = {"apiVersion": "v1", "kind": kind, "name": "x"}
    return {
        "ownerReferences": [owner if controller is None else {**owner, "controller": controller}]
    }


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(pod("p"), PodFlag(0), id="plain"),
        pytest.param(
            pod("p", on="n0", metadata={"deletionTimestamp": "2026-11-30T10:00:00Z"}),
            PodFlag.TERMINATING,
            id="case 70: terminating",
        ),
        pytest.param(pod("p", schedulingGates=[{"name": "x/y"}]), PodFlag.GATED, id="gated"),
        pytest.param(pod("p", schedulingGates=[]), PodFlag(0), id="no gates left"),
        pytest.param(pod("p", metadata=owned_by("DaemonSet")), PodFlag.DAEMON, id="daemon"),
        pytest.param(
            pod("p", metadata=owned_by("DaemonSet", controller=None)),
            PodFlag.DAEMON,
            id="only owner",
        ),
        pytest.param(pod("p", metadata=owned_by("Node")), PodFlag.STATIC, id="owned by its node"),
        pytest.param(
            pod("p", metadata={"annotations": {"kubernetes.io/config.mirror": "abc"}}),
            PodFlag.STATIC,
            id="mirror",
        ),
        pytest.param(pod("p", group="none"), PodFlag.WAITING, id="case 4: its group is missing"),
    ],
)
def test_flags(obj: Obj, want: PodFlag) -> None:
    assert find_pod(read(obj)).flags == want


@pytest.mark.parametrize(
    ("obj", "want_holds", "want_pending"),
    [
        pytest.param(pod("p", on="n0"), True, False, id="running"),
        pytest.param(pod("p", on="n0", phase="Pending"), True, False, id="bound, starting"),
        pytest.param(pod("p", on="n0", phase="Unknown"), True, False, id="node lost"),
        pytest.param(pod("p", on="n0", phase="Succeeded"), False, False, id="case 70: succeeded"),
        pytest.param(pod("p", on="n0", phase="Failed"), False, False, id="failed"),
        pytest.param(
            pod("p", on="n0", metadata={"deletionTimestamp": "2026-11-30T10:00:00Z"}),
            True,
            False,
            id="case 70: terminating",
        ),
        pytest.param(pod("p"), False, True, id="pending"),
        pytest.param(pod("p", group="none"), False, False, id="case 4: waits for its group"),
        pytest.param(pod("p", schedulingGates=[{"name": "x"}]), False, False, id="gated"),
        pytest.param(pod("p", status={"phase": None}), False, True, id="no phase"),
    ],
)
def test_what_counts(obj: Obj, want_holds: bool, want_pending: bool) -> None:
    pods = read(obj).pods
    assert (bool(pods.holds_room[0]), bool(pods.is_pending[0])) == (want_holds, want_pending)


def test_facts_of_the_row() -> None:
    obj = pod(
        "p",
        on="gone",
        priority=7,
        metadata={"creationTimestamp": "2026-11-30T10:00:00Z"},
        status={"startTime": "2026-11-30T12:00:00+02:00", "nominatedNodeName": "n0"},
    )
    row = find_pod(read(obj))
    assert (row.node, row.nominated, row.priority) == (MISSING_NODE, 0, 7)
    assert (row.created, row.started) == (1_796_032_800, 1_796_032_800)
    assert (row.phase, row.template, row.rank) == (Phase.RUNNING, "", -1)


def test_what_is_absent() -> None:
    row = find_pod(read(pod("p")))
    assert (row.node, row.nominated, row.priority) == (NO_NODE, NO_NODE, 0)
    assert (row.created, row.started, row.spec.scheduler) == (-1, -1, "default-scheduler")


CLASSES = [
    thing("scheduling.k8s.io/v1/PriorityClass", "high", value=1000, preemptionPolicy="Never"),
    thing("scheduling.k8s.io/v1/PriorityClass", "usual", value=50, globalDefault=True),
]


@pytest.mark.parametrize(
    ("fields", "want_priority", "want_never"),
    [
        pytest.param({}, 0, False, id="none: 0, whatever the default class"),
        pytest.param({"priority": 5}, 5, False, id="number"),
        pytest.param(
            {"priority": 5, "priorityClassName": "usual"}, 5, False, id="number and class"
        ),
        pytest.param({"priorityClassName": "high"}, 1000, True, id="class that never preempts"),
        pytest.param(
            {"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"},
            1000,
            False,
            id="own policy wins",
        ),
        pytest.param({"preemptionPolicy": "Never"}, 0, True, id="never"),
        pytest.param(
            {"priorityClassName": "system-node-critical"}, 2_000_001_000, False, id="built in"
        ),
        pytest.param({"priorityClassName": "lost"}, 0, False, id="class that is not there"),
    ],
)
def test_priority(fields: Obj, want_priority: int, want_never: bool) -> None:
    row = find_pod(read(pod("p", **fields), *CLASSES))
    assert (row.priority, row.spec.never_preempts) == (want_priority, want_never)


def test_a_missing_class_is_told_once() -> None:
    snapshot = read(*[pod(f"p{i}", priorityClassName="lost") for i in range(3)])
    assert [w for w in snapshot.warnings if "PriorityClass lost" in w] == [
        "PriorityClass lost is not in the snapshot; its pods count as priority 0"
    ]
    assert complaints(snapshot) == []
