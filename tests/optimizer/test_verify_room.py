"""Rules of one pod on one node: each row is a node, its pods, a newcomer, and what is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import GPU, make_node, make_pods, make_snapshot, make_spec
from plan_builders import broken_rules, make_plan

from optimizer.verify import verify_plan
from topology.model import (
    PODS,
    ClaimNeed,
    HostPort,
    Node,
    PodFlag,
    PodSpec,
    Requirement,
    SelectorTerm,
    Taint,
    Toleration,
)

if TYPE_CHECKING:
    from topology.assemble import PodRow

NOT_READY = "node.kubernetes.io/not-ready"
CORDON = Toleration("node.kubernetes.io/unschedulable", "Exists")
DEFAULT_TOLERATION = Toleration(NOT_READY, "Exists", effect="NoExecute")


def place_one(node: Node, spec: PodSpec, *others: list[PodRow], **fields: Any) -> list[str]:
    """Rules broken when `ml/new-0` is put on the node."""
    snapshot = make_snapshot([node], make_pods("new", 1, spec=spec), *others, **fields)
    return broken_rules(verify_plan(snapshot, make_plan(snapshot, {"ml/new-0": node.name})))


def run(gpus: int = 0, count: int = 1, **fields: Any) -> list[PodRow]:
    return make_pods("run", count, spec=make_spec(gpus=gpus), on="n", **fields)


@pytest.mark.parametrize(
    ("node", "spec", "others", "want"),
    [
        pytest.param(make_node("n"), make_spec(gpus=8), [], [], id="request equal to free"),
        pytest.param(make_node("n"), make_spec(gpus=9), [], ["capacity"], id="one GPU too few"),
        pytest.param(make_node("n"), make_spec(gpus=5), run(4), ["capacity"], id="room is taken"),
        pytest.param(
            make_node("n"),
            make_spec(gpus=5),
            run(4, flags=PodFlag.TERMINATING),
            ["capacity"],
            id="terminating pod holds its room",
        ),
        pytest.param(
            make_node("n", slots=2),
            make_spec(gpus=1),
            run(count=2, flags=PodFlag.STATIC),
            ["capacity"],
            id="no pod slot although GPUs are free",
        ),
        pytest.param(
            make_node("n", gpus=2), make_spec(gpus=1), run(3), ["capacity"], id="overcommitted"
        ),
        pytest.param(
            make_node("n", gpus=2),
            make_spec(gpus=0, cpu=100),
            run(3),
            [],
            id="overcommitted in GPUs only",
        ),
        pytest.param(
            make_node("n"),
            PodSpec((("example.com/fpga", 1), (PODS, 1))),
            [],
            ["capacity"],
            id="resource the node lacks",
        ),
        pytest.param(
            Node("n", {}, {GPU: 8}), make_spec(gpus=1), [], ["capacity"], id="no slots listed"
        ),
    ],
)
def test_room(node: Node, spec: PodSpec, others: list[PodRow], want: list[str]) -> None:
    assert place_one(node, spec, others) == want


def test_finished_pod_gives_its_room_back() -> None:
    done = run(8)
    for row in done:
        row.phase = row.phase.SUCCEEDED
    assert place_one(make_node("n", slots=1), make_spec(gpus=8), done) == []


@pytest.mark.parametrize(
    ("node", "spec", "want"),
    [
        pytest.param(make_node("n", unschedulable=True), make_spec(), ["taint"], id="cordoned"),
        pytest.param(
            make_node("n", unschedulable=True),
            make_spec(tolerations=(CORDON,)),
            [],
            id="cordon tolerated",
        ),
        pytest.param(
            make_node("n", taints=[Taint("pool", "a")]), make_spec(), ["taint"], id="taint"
        ),
        pytest.param(
            make_node("n", taints=[Taint("pool", "a", "PreferNoSchedule")]),
            make_spec(),
            [],
            id="soft taint",
        ),
        pytest.param(
            make_node("n", ready=False), make_spec(), ["ready"], id="not Ready, no taint says so"
        ),
        pytest.param(
            make_node("n", ready=False, taints=[Taint(NOT_READY, effect="NoExecute")]),
            make_spec(tolerations=(DEFAULT_TOLERATION,)),
            [],
            id="NoExecute form of not-ready is tolerated by default",
        ),
        pytest.param(
            make_node(
                "n",
                ready=False,
                taints=[Taint(NOT_READY, effect="NoExecute"), Taint(NOT_READY)],
            ),
            make_spec(tolerations=(DEFAULT_TOLERATION,)),
            ["taint"],
            id="its NoSchedule twin is not",
        ),
        pytest.param(
            make_node("n", taints=[Taint("load", "950")]),
            make_spec(tolerations=(Toleration("load", "Gt", "900"),)),
            [],
            id="Gt 900 tolerates 950",
        ),
        pytest.param(
            make_node("n", taints=[Taint("load", "800")]),
            make_spec(tolerations=(Toleration("load", "Gt", "900"),)),
            ["taint"],
            id="Gt 900 does not tolerate 800",
        ),
        pytest.param(
            make_node("n"),
            make_spec(node_selector=(("pool", "a"),)),
            ["node-affinity"],
            id="nodeSelector on an absent label",
        ),
        pytest.param(
            make_node("n"),
            make_spec(node_terms=(SelectorTerm((Requirement("pool", "NotIn", ("a",)),)),)),
            [],
            id="NotIn on an absent label matches",
        ),
        pytest.param(
            make_node("n", labels={"gen": "abc"}),
            make_spec(node_terms=(SelectorTerm((Requirement("gen", "Gt", ("1",)),)),)),
            ["node-affinity"],
            id="Gt on a word",
        ),
        pytest.param(
            make_node("n"), make_spec(node_terms=()), ["node-affinity"], id="no term, no node"
        ),
        pytest.param(
            make_node("n"),
            make_spec(node_terms=(SelectorTerm(),)),
            ["node-affinity"],
            id="an empty term matches no node",
        ),
        pytest.param(
            make_node("n"),
            make_spec(
                claims=(
                    ClaimNeed(
                        "gpu",
                        "ml/c",
                        allocated_nodes=(
                            SelectorTerm(fields=(Requirement("metadata.name", "In", ("m",)),)),
                        ),
                    ),
                )
            ),
            ["claim"],
            id="claim is allocated on another node",
        ),
        pytest.param(
            make_node("n"),
            make_spec(claims=(ClaimNeed("gpu", "ml/c", allocated_nodes=()),)),
            [],
            id="claim usable anywhere",
        ),
    ],
)
def test_filters(node: Node, spec: PodSpec, want: list[str]) -> None:
    assert place_one(node, spec) == want


@pytest.mark.parametrize(
    ("held", "wanted", "want"),
    [
        pytest.param(HostPort(80), HostPort(80), ["host-port"], id="same"),
        pytest.param(HostPort(80), HostPort(81), [], id="other port"),
        pytest.param(HostPort(80), HostPort(80, "UDP"), [], id="other protocol"),
        pytest.param(
            HostPort(80, ip="10.0.0.1"), HostPort(80), ["host-port"], id="one against any"
        ),
        pytest.param(
            HostPort(80, ip="10.0.0.1"), HostPort(80, ip="10.0.0.2"), [], id="two addresses"
        ),
    ],
)
@pytest.mark.parametrize("is_running", [True, False], ids=["running", "new"])
def test_host_ports(held: HostPort, wanted: HostPort, want: list[str], is_running: bool) -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("a", 1, spec=make_spec(host_ports=(held,)), on="n" if is_running else ""),
        make_pods("b", 1, spec=make_spec(host_ports=(wanted,))),
    )
    placed = {"ml/b-0": "n"} if is_running else {"ml/a-0": "n", "ml/b-0": "n"}
    assert broken_rules(verify_plan(snapshot, make_plan(snapshot, placed))) == want


def test_evicted_pod_gives_its_port_back() -> None:
    spec = make_spec(host_ports=(HostPort(80),))
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("a", 1, spec=spec, on="n"),
        make_pods("b", 1, spec=spec, priority=1),
    )
    plan = make_plan(snapshot, {"ml/b-0": "n"}, victims={"ml/a-0": "ml/b-0"})
    assert verify_plan(snapshot, plan).violations == ()


@pytest.mark.parametrize(
    ("nominee", "newcomer", "gpus", "want"),
    [
        pytest.param(10, 5, 1, ["nominated"], id="lower priority stays away"),
        pytest.param(10, 10, 1, ["nominated"], id="equal priority stays away"),
        pytest.param(10, 11, 1, [], id="higher priority takes the room"),
        pytest.param(10, 5, 0, [], id="asks for nothing the nominee needs"),
    ],
)
def test_nominated_pod_keeps_its_room(
    nominee: int, newcomer: int, gpus: int, want: list[str]
) -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("high", 1, spec=make_spec(gpus=8), priority=nominee, nominated="n"),
        make_pods("new", 1, spec=make_spec(gpus=gpus), priority=newcomer),
    )
    assert broken_rules(verify_plan(snapshot, make_plan(snapshot, {"ml/new-0": "n"}))) == want


def test_nominated_pod_that_is_placed_keeps_nothing() -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m")],
        make_pods("high", 1, spec=make_spec(gpus=8), priority=10, nominated="n"),
        make_pods("new", 1, spec=make_spec(gpus=8)),
    )
    plan = make_plan(snapshot, {"ml/new-0": "n", "ml/high-0": "m"})
    assert verify_plan(snapshot, plan).violations == ()
