from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders import GPU, RACK, make_node, make_pods, make_snapshot, make_spec
from devices import make_devices, make_need

from optimizer.node_reasons import (
    CORDONED,
    NO_MATCH,
    NOT_READY,
    count_reasons,
    find_filter,
    format_event,
)
from optimizer.problem import build_problem
from topology.model import (
    HOSTNAME,
    PODS,
    AffinityTerm,
    ClaimNeed,
    HostPort,
    LabelSelector,
    Node,
    PodSpec,
    Requirement,
    SelectorTerm,
    SpreadTerm,
    Taint,
    Toleration,
)
from topology.plan import Request
from topology.usage import count_usage

if TYPE_CHECKING:
    from topology.assemble import PodRow

APP = LabelSelector((Requirement("app", "In", ("x",)),))
SHORT = f"Insufficient {GPU}"
POOL = (("pool", "a"),)


@pytest.mark.parametrize(
    ("fields", "spec", "want"),
    [
        pytest.param({}, {}, None, id="all pass"),
        pytest.param({"unschedulable": True}, {}, CORDONED, id="cordoned"),
        pytest.param(
            {"taints": [Taint("gpu", "yes")]},
            {},
            "node(s) had untolerated taint {gpu: yes}",
            id="tainted",
        ),
        pytest.param(
            {"taints": [Taint("gpu")], "unschedulable": True},
            {"tolerations": (Toleration("gpu"),)},
            CORDONED,
            id="one tolerated, then the cordon",
        ),
        pytest.param({"ready": False}, {}, NOT_READY, id="not ready"),
        pytest.param({}, {"node_selector": POOL}, NO_MATCH, id="another pool"),
        pytest.param(
            {"unschedulable": True}, {"node_selector": POOL}, CORDONED, id="the cordon comes first"
        ),
    ],
)
def test_find_filter(fields: dict[str, Any], spec: dict[str, Any], want: str | None) -> None:
    node = make_node("n1", **fields)
    assert find_filter(make_spec(**spec), node) == want
    want_by_label = NO_MATCH if "node_selector" in spec else None
    assert find_filter(make_spec(**spec), node, labels_only=True) == want_by_label


def reasons(nodes: list[Node], spec: PodSpec, *running: list[PodRow]) -> tuple[dict, int]:
    """Count for a pending pod, with what is free as things stand."""
    snapshot = make_snapshot(nodes, *running, make_pods("p", 1, spec=spec, labels={"app": "x"}))
    problem = build_problem(snapshot, Request())
    free = count_usage(snapshot, problem.resources).free
    return count_reasons(problem, 0, free)


@pytest.mark.parametrize(
    ("nodes", "spec", "want_reasons", "want_passing"),
    [
        pytest.param([make_node("n1")], make_spec(gpus=8), {}, 1, id="it fits"),
        pytest.param([make_node("n1", gpus=7)], make_spec(gpus=8), {SHORT: 1}, 0, id="one short"),
        pytest.param(
            [make_node("n1", gpus=0, cpu=100)],
            make_spec(gpus=1, cpu=200),
            {SHORT: 1, "Insufficient cpu": 1},
            0,
            id="short of two: counted for both",
        ),
        pytest.param([make_node("n1", slots=0)], make_spec(), {"Too many pods": 1}, 0, id="slots"),
        pytest.param(
            [make_node("n1", gpus=0, unschedulable=True), make_node("n2", gpus=0), make_node("n3")],
            make_spec(),
            {CORDONED: 1, SHORT: 1},
            1,
            id="the first filter that fails",
        ),
        pytest.param([], make_spec(), {}, 0, id="no nodes"),
    ],
)
def test_nodes_by_reason(
    nodes: list[Node], spec: PodSpec, want_reasons: dict[str, int], want_passing: int
) -> None:
    assert reasons(nodes, spec) == (want_reasons, want_passing)


ANTI = make_spec(anti_affinity=(AffinityTerm(HOSTNAME, APP, ("ml",)),))
NEAR = make_spec(affinity=(AffinityTerm(RACK, APP, ("ml",)),))
PORT = make_spec(host_ports=(HostPort(80),))


@pytest.mark.parametrize(
    ("spec", "running", "want_reasons"),
    [
        pytest.param(
            PORT,
            make_pods("r", 1, on="a1", spec=PORT),
            {"node(s) didn't have free ports for the requested pod ports": 1},
            id="port in use",
        ),
        pytest.param(
            ANTI,
            make_pods("r", 1, on="a1", labels={"app": "x"}),
            {"node(s) didn't match pod anti-affinity rules": 1},
            id="anti-affinity",
        ),
        pytest.param(
            make_spec(),
            make_pods("r", 1, on="a1", spec=ANTI),
            {"node(s) didn't satisfy existing pods anti-affinity rules": 1},
            id="anti-affinity of the pod that runs",
        ),
        pytest.param(
            NEAR,
            make_pods("r", 1, on="a1", labels={"app": "x"}),
            {"node(s) didn't match pod affinity rules": 1},
            id="not near enough",
        ),
        pytest.param(
            make_spec(spread=(SpreadTerm(RACK, 1, APP),)),
            make_pods("r", 1, on="a1", labels={"app": "x"}),
            {"node(s) didn't match pod topology spread constraints": 1},
            id="too much in one rack",
        ),
        pytest.param(
            make_spec(spread=(SpreadTerm("zone", 1, APP),)),
            [],
            {"node(s) didn't match pod topology spread constraints (missing required label)": 2},
            id="no such label",
        ),
        pytest.param(
            make_spec(
                claims=(
                    ClaimNeed(
                        "c",
                        allocated_nodes=(SelectorTerm((Requirement(HOSTNAME, "In", ("a1",)),)),),
                    ),
                )
            ),
            [],
            {"cannot allocate all claims": 1},
            id="devices are elsewhere",
        ),
        pytest.param(
            make_spec(gpus=8, host_ports=(HostPort(80),)),
            make_pods("r", 1, on="a1", spec=PORT),
            {"node(s) didn't have free ports for the requested pod ports": 1},
            id="ports before resources",
        ),
    ],
)
def test_pods_that_stand_there(
    spec: PodSpec, running: list[PodRow], want_reasons: dict[str, int]
) -> None:
    nodes = [make_node("a1", rack="a"), make_node("b1", rack="b")]
    found, passing = reasons(nodes, spec, running)
    assert found == want_reasons
    assert passing == 2 - sum(want_reasons.values())


def test_devices_that_are_held() -> None:
    spec = make_spec(claims=(make_need(2),))
    snapshot = make_snapshot(
        [make_node("n1"), make_node("n2")],
        make_pods("p", 1, spec=spec),
        devices=make_devices([(0, "gpu", 8, 1), (1, "gpu", 8, 2)]),
    )
    problem = build_problem(snapshot, Request())
    free = np.array([[1, 8, 110], [2, 8, 110]])
    assert problem.resources == ("deviceclass:gpu", GPU, PODS)
    assert count_reasons(problem, 0, free) == ({"cannot allocate all claims": 1}, 1)


@pytest.mark.parametrize(
    ("found", "num_nodes", "passing", "want_event"),
    [
        pytest.param({}, 3, 3, "3/3 nodes are available.", id="all"),
        pytest.param({}, 0, 0, "0/0 nodes are available.", id="no nodes"),
        pytest.param(
            {SHORT: 4, CORDONED: 1},
            5,
            0,
            "0/5 nodes are available: 1 node(s) were unschedulable, 4 Insufficient nvidia.com/gpu.",
            id="sorted as the scheduler sorts them",
        ),
        pytest.param(
            {"Insufficient cpu": 10, SHORT: 9},
            10,
            0,
            "0/10 nodes are available: 10 Insufficient cpu, 9 Insufficient nvidia.com/gpu.",
            id="as text, not as numbers",
        ),
    ],
)
def test_format_event(found: dict[str, int], num_nodes: int, passing: int, want_event: str) -> None:
    assert format_event(found, num_nodes, passing) == want_event
