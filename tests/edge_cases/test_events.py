"""What the scheduler would say of single nodes, in its own words and order."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of
from builders import RACK
from fleets import APP, apart, labelled, machine
from kube import GPU, container, node, pod

Obj = dict[str, Any]
HOST = "kubernetes.io/hostname"
CORDON = "node(s) were unschedulable"


@pytest.mark.parametrize(
    ("objects", "want_event"),
    [
        pytest.param(
            [
                machine("a", unschedulable=True),
                machine("b", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
                machine("c", 1),
                pod("p", container(gpus=2)),
            ],
            f"0/3 nodes are available: 1 Insufficient {GPU}, 1 node(s) had untolerated taint "
            f"{{team: x}}, 1 {CORDON}.",
            id="a reason for each node",
        ),
        pytest.param(
            [
                node("a", allocatable={"cpu": "1", "memory": "1Gi", "pods": "10", GPU: "1"}),
                pod("p", container("2", gpus=2)),
            ],
            f"0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient {GPU}.",
            id="one node is short of two resources",
        ),
        pytest.param(
            [machine("a"), machine("b"), pod("p", nodeSelector={"pool": "x"})],
            "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
            id="selector",
        ),
        pytest.param(
            [
                node("a", allocatable={"cpu": "1", "memory": "1Gi", "pods": "1", GPU: "8"}),
                pod("r", on="a"),
                pod("p"),
            ],
            "0/1 nodes are available: 1 Too many pods.",
            id="pod slots",
        ),
        pytest.param(
            [
                machine("a"),
                pod("r", container(ports=[{"containerPort": 1, "hostPort": 80}]), on="a"),
                pod("p", container(ports=[{"containerPort": 2, "hostPort": 80}])),
            ],
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod "
            "ports.",
            id="host ports",
        ),
        pytest.param(
            [machine("a"), labelled("r", on="a"), pod("p", **apart(HOST))],
            "0/1 nodes are available: 1 node(s) didn't match pod anti-affinity rules.",
            id="its own anti-affinity",
        ),
        pytest.param(
            [machine("a"), pod("r", on="a", **apart(HOST)), labelled("p")],
            "0/1 nodes are available: 1 node(s) didn't satisfy existing pods anti-affinity rules.",
            id="anti-affinity of a running pod",
        ),
        pytest.param(
            [
                machine("a"),
                pod(
                    "p",
                    affinity={
                        "podAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": [
                                {"topologyKey": HOST, "labelSelector": APP}
                            ]
                        }
                    },
                ),
            ],
            "0/1 nodes are available: 1 node(s) didn't match pod affinity rules.",
            id="nobody to be near",
        ),
        pytest.param(
            [
                machine("a", rack="r1"),
                machine("b", 0, rack="r2"),
                machine("c"),
                labelled("r", on="a"),
                labelled(
                    "p",
                    topologySpreadConstraints=[
                        {
                            "maxSkew": 1,
                            "topologyKey": RACK,
                            "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": APP,
                        }
                    ],
                ),
            ],
            f"0/3 nodes are available: 1 Insufficient {GPU}, 1 node(s) didn't match pod topology "
            "spread constraints, 1 node(s) didn't match pod topology spread constraints (missing "
            "required label).",
            id="spread",
        ),
    ],
)
def test_event(objects: list[Obj], want_event: str) -> None:
    plan = ask(*objects, command="explain")
    assert cause_of(plan, "ml/p").details["event"] == want_event
