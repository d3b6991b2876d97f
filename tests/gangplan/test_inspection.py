"""What the Inspection document says."""

from __future__ import annotations

import numpy as np
import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from devices import make_devices

from gangplan.inspection import (
    Inspection,
    describe_groups,
    describe_nodes,
    describe_pods,
    find_stranded,
    inspect_snapshot,
    is_schedulable,
)
from topology.assemble import GroupRow
from topology.model import Group, Node, Phase, PodFlag, Snapshot, Taint, TopologyTerm


def test_nodes() -> None:
    snapshot = make_snapshot(
        [
            make_node("n2", rack="r1", labels={"other": "x", "hypernode/tier-1": "h"}),
            Node("n1", {}, {GPU: 2, "cpu": 15_890}),
        ],
        make_pods("a", 3, on="n1"),
        make_pods("b", 1, on="n2", spec=make_spec(gpus=0, cpu=1500, memory=1 << 30)),
        devices=make_devices([(1, "gpu.example.com", 8, 3)]),
    )
    want_nodes = [
        {
            "node": "n1",
            "allocatable": {"cpu": "15890m", GPU: "2"},
            "free": {"cpu": "15890m", GPU: "0"},  # overcommitted: never below zero
            "domains": {},
            "devices": {},
            "schedulable": True,
        },
        {
            "node": "n2",
            "allocatable": {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"},
            "free": {"cpu": "62500m", "memory": "511Gi", GPU: "8", "pods": "109"},
            "domains": {"hypernode/tier-1": "h", RACK: "r1"},
            "devices": {"gpu.example.com": {"total": 8, "free": 3}},
            "schedulable": True,
        },
    ]
    assert describe_nodes(snapshot) == want_nodes


@pytest.mark.parametrize(
    ("fields", "want_schedulable"),
    [
        pytest.param({}, True, id="plain"),
        pytest.param({"unschedulable": True}, False, id="cordoned"),
        pytest.param({"ready": False}, False, id="not ready"),
        pytest.param({"taints": [Taint("nvidia.com/gpu")]}, True, id="a taint some tolerate"),
        pytest.param(
            {"taints": [Taint("node.kubernetes.io/not-ready")]}, False, id="tainted not ready"
        ),
        pytest.param(
            {"taints": [Taint("node.kubernetes.io/unreachable", effect="PreferNoSchedule")]},
            True,
            id="a taint that only prefers",
        ),
    ],
)
def test_is_schedulable(fields: dict[str, object], want_schedulable: bool) -> None:
    assert is_schedulable(make_node("n", **fields)) is want_schedulable  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "want_state"),
    [
        pytest.param({}, "pending", id="pending"),
        pytest.param({"on": "n1"}, "bound", id="bound"),
        pytest.param({"on": "gone"}, "bound", id="bound to a node that was not read"),
        pytest.param({"on": "n1", "flags": PodFlag.TERMINATING}, "bound", id="terminating"),
        pytest.param({"flags": PodFlag.TERMINATING}, "finished", id="deleted before bound"),
        pytest.param({"flags": PodFlag.GATED}, "gated", id="gated"),
        pytest.param({"flags": PodFlag.WAITING}, "waiting", id="group missing"),
        pytest.param({"flags": PodFlag.WAITING | PodFlag.GATED}, "waiting", id="both"),
        pytest.param({"flags": PodFlag.PLANNED}, "pending", id="not created yet"),
    ],
)
def test_state(fields: dict[str, object], want_state: str) -> None:
    snapshot = make_snapshot([make_node("n1")], make_pods("a", 1, **fields))  # type: ignore[arg-type]
    assert describe_pods(snapshot, None)[0]["state"] == want_state


def test_finished_pod() -> None:
    pods = make_pods("a", 1, on="n1")
    pods[0].phase = Phase.SUCCEEDED
    want_pod = {
        "pod": "ml/a-0",
        "node": "n1",
        "group": None,
        "state": "finished",
        "requests": {GPU: "1", "pods": "1"},
    }
    assert describe_pods(make_snapshot([make_node("n1")], pods), None) == [want_pod]


def make_lws() -> Snapshot:
    """A replica of five pods: a leader of its own and two subgroups of two; ten on top."""
    leaves = [
        make_group("ml/s/0#0", 2, parent="ml/s/0", kind="subgroup", name="0"),
        make_group("ml/s/0#1", 2, parent="ml/s/0", kind="subgroup", name="1"),
        make_group(
            "ml/s/0#leader", 1, parent="ml/s/0", kind="subgroup", name="leader", is_leader=True
        ),
    ]
    rows = make_pods("s", 5, template="worker")
    for row, leaf in zip(rows, ["leader", "0", "0", "1", "1"], strict=True):
        row.group = f"ml/s/0#{leaf}"
    rows[0].template = "leader"
    return make_snapshot([make_node("n1")], rows, groups=[make_group("ml/s/0", 5), *leaves])


def test_leader_outside_of_subgroups() -> None:
    found = describe_groups(make_lws(), None)
    assert [g["group"] for g in found] == ["ml/s/0"]
    assert found[0]["leader"] is None
    assert found[0]["subgroups"] == [{"name": "0", "size": 2}, {"name": "1", "size": 2}]
    assert found[0]["subgroupIndex"] == {"0": None, "1": 0, "2": 0, "3": 1, "4": 1}


def test_leader_inside_a_subgroup() -> None:
    rows = make_pods("s", 11, template="worker")
    rows[0].template = "leader"
    for i, row in enumerate(rows):
        row.group = f"ml/s/0#{i}"
    leaves = [
        make_group(f"ml/s/0#{i}", 1, parent="ml/s/0", kind="subgroup", name=str(i))
        for i in range(11)
    ]
    snapshot = make_snapshot([make_node("n")], rows, groups=[make_group("ml/s/0", 11), *leaves])
    found = describe_groups(snapshot, None)[0]
    assert found["leader"] == 0
    # By number, not "0", "1", "10", "2".
    assert [s["name"] for s in found["subgroups"]] == [str(i) for i in range(11)]
    assert found["subgroupIndex"]["10"] == 10


def test_pod_sets_and_nested_subgroups() -> None:
    snapshot = make_snapshot(
        [make_node("n1")],
        make_pods("l", 1, group="ml/k#leader", template="leader"),
        make_pods("w", 2, group="ml/k#pair/workers", template="workers"),
        groups=[
            make_group("ml/k", 3),
            make_group("ml/k#leader", 1, parent="ml/k", kind="subgroup", name="leader"),
            make_group("ml/k#pair", 2, parent="ml/k", kind="subgroup", name="pair"),
            make_group("ml/k#pair/workers", 2, parent="ml/k#pair", kind="subgroup", name="workers"),
        ],
    )
    found = describe_groups(snapshot, None)[0]
    assert found["subgroups"] == [
        {"name": "leader", "size": 1},
        {"name": "pair/workers", "size": 2},
    ]
    # Each pod set counts its ranks from 0, so a rank tells no pod from another.
    assert found["subgroupIndex"] == {}


def test_composite() -> None:
    snapshot = make_snapshot(
        [make_node("n1")],
        make_pods("a", 2, group="ml/a", on=["n1", ""]),
        groups=[
            make_group(
                "ml/a",
                2,
                size=3,
                parent="ml/top",
                priority=7,
                disruption="all",
                topology=(TopologyTerm(("block", RACK)), TopologyTerm(("block",), required=False)),
            ),
            GroupRow(
                Group("ml/top", "composite", "v1/CompositePodGroup", min_groups=2, priority=7)
            ),
            make_group("ml/other", 1),
        ],
    )
    found = {g["group"]: g for g in describe_groups(snapshot, None)}
    assert found["ml/top"]["minCount"] == 2
    assert found["ml/top"]["subgroups"] == []
    want_group = {
        "group": "ml/a",
        "api": "scheduling.k8s.io/v1beta1/PodGroup",
        "kind": "group",
        "policy": "gang",
        "minCount": 2,
        "size": 3,
        "running": 1,
        "pending": 1,
        "priority": 7,
        "disruptionMode": "all",
        "composite": "ml/top",
        "queue": None,
        "blocked": None,
        "topology": [{"key": RACK, "mode": "required"}, {"key": "block", "mode": "preferred"}],
        "leader": None,
        "subgroups": [],
        "subgroupIndex": {},
    }
    assert found["ml/a"] == want_group

    shown = np.array([True, False])
    assert [g["group"] for g in describe_groups(snapshot, shown)] == ["ml/a", "ml/top"]
    assert [p["pod"] for p in describe_pods(snapshot, shown)] == ["ml/a-0"]


def test_stranded() -> None:
    no_gpus = make_spec(gpus=0, cpu=1)
    snapshot = make_snapshot(
        [make_node("n1"), make_node("n2")],
        make_pods("half", 4, group="ml/half#0", on=["n1", "n1", "n2", ""]),
        make_pods("whole", 2, group="ml/whole", on="n1"),
        make_pods("leaving", 2, group="ml/leaving", on="n2", flags=PodFlag.TERMINATING),
        make_pods("cpu", 2, group="ml/cpu", on=["n1", ""], spec=no_gpus),
        groups=[
            make_group("ml/half", 4),
            make_group("ml/half#0", 4, parent="ml/half", kind="subgroup", name="0"),
            make_group("ml/whole", 2),
            make_group("ml/leaving", 2),
            make_group("ml/cpu", 2),
        ],
    )
    found = find_stranded(snapshot)
    assert [s.to_dict() for s in found] == [
        {"group": "ml/half", "running": 3, "minCount": 4, "gpus": 3}
    ]
    inspection = Inspection(snapshot, {}, {}, stranded=found)
    assert inspection.warnings == (
        "ml/half: stranded below its minimum: 3 of 4 pods run and hold 3 GPUs; "
        "complete the gang or delete it",
    )


def test_empty() -> None:
    document = Inspection(make_snapshot([]), {}, {}).to_dict()
    assert document["nodes"] == document["pods"] == document["groups"] == []


def test_gangs_that_block_one_another():
    spec = make_spec(gpus=8)
    pods = [
        make_pods(name, 3, group=f"ml/{name}", spec=spec, on=[*where, ""])
        for name, where in (("a", ["n0", "n1"]), ("b", ["n2", "n3"]))
    ]
    snapshot = make_snapshot(
        [make_node(f"n{i}") for i in range(4)],
        *pods,
        groups=[make_group("ml/a", 3), make_group("ml/b", 3)],
    )
    found = inspect_snapshot(snapshot)
    assert found.to_dict()["deadlocks"] == [
        {
            "groups": [
                {"group": "ml/a", "running": 2, "minCount": 3, "gpus": 16, "missingGpus": 8},
                {"group": "ml/b", "running": 2, "minCount": 3, "gpus": 16, "missingGpus": 8},
            ]
        }
    ]
    assert found.warnings[-1] == (
        "2 gangs block one another: ml/a runs 2 of 3 pods, holds 16 and lacks 8 GPUs; ml/b runs 2 "
        "of 3 pods, holds 16 and lacks 8 GPUs; delete the running pods of one so that another can "
        "start"
    )
