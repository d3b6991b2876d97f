"""Hard topology spread, over zones of two nodes each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import make_node, make_pods, make_snapshot, make_spec
from plan_builders import broken_rules, make_plan

from optimizer.verify import verify_plan
from topology.model import LabelSelector, Node, PodFlag, Requirement, SpreadTerm, Taint
from topology.plan import Move

if TYPE_CHECKING:
    from topology.assemble import PodRow

ZONE = "topology.kubernetes.io/zone"
APP = LabelSelector((Requirement("app", "In", ("a",)),))


def make_nodes(zones: str = "abc", **fields: Any) -> list[Node]:
    return [
        make_node(f"{z}{i}", labels={ZONE: z, "pool": "p" if z < "c" else "q"}, **fields)
        for z in zones
        for i in range(2)
    ]


def running(nodes: list[str], **fields: Any) -> list[PodRow]:
    return make_pods("run", len(nodes), on=nodes, labels={"app": "a"}, **fields)


def spread(**fields: Any) -> SpreadTerm:
    return SpreadTerm(**{"key": ZONE, "max_skew": 1, "selector": APP, **fields})


@pytest.mark.parametrize(
    ("rows", "term", "placed", "want"),
    [
        pytest.param(
            running(["a0", "a1", "b0", "b1", "c0"]), spread(), ["a0"], ["spread"], id="2/2/1 to 3"
        ),
        pytest.param(
            running(["a0", "a1", "b0", "b1", "c0"]), spread(), ["c1"], [], id="2/2/1 to 2"
        ),
        pytest.param([], spread(), ["a0", "b0", "c0", "a1", "b1"], [], id="newcomers in turn"),
        pytest.param([], spread(), ["a0", "a1", "b0"], ["spread"], id="newcomers lopsided"),
        pytest.param([], spread(max_skew=2), ["a0", "a1"], [], id="skew of two allowed"),
        pytest.param(
            running(["a0", "b0", "c0"], flags=PodFlag.TERMINATING),
            spread(),
            ["a0", "a1"],
            ["spread"],
            id="terminating pods are not counted",
        ),
        pytest.param(
            running(["a0"], namespace="x"), spread(), ["a0"], [], id="other namespaces do not count"
        ),
        pytest.param(
            running(["a0", "b0", "c0"]),
            spread(min_domains=4),
            ["a1"],
            ["spread"],
            id="too few domains: the smallest is 0",
        ),
        pytest.param(
            running(["a0"]), spread(selector=None), ["a1", "a1"], [], id="null selector counts none"
        ),
    ],
)
def test_spread(rows: list[PodRow], term: SpreadTerm, placed: list[str], want: list[str]) -> None:
    new = make_pods("new", len(placed), spec=make_spec(spread=(term,)), labels={"app": "a"})
    snapshot = make_snapshot(make_nodes(), rows, new)
    plan = make_plan(snapshot, {f"ml/new-{i}": node for i, node in enumerate(placed)})
    assert broken_rules(verify_plan(snapshot, plan)) == want


@pytest.mark.parametrize(
    ("honor", "want"),
    [pytest.param(True, [], id="Honor"), pytest.param(False, ["spread"], id="Ignore")],
)
def test_node_affinity_policy(honor: bool, want: list[str]) -> None:
    spec = make_spec(spread=(spread(honor_affinity=honor),), node_selector=(("pool", "p"),))
    new = make_pods("new", 1, spec=spec, labels={"app": "a"})
    snapshot = make_snapshot(make_nodes(), running(["a0", "b0"]), new)
    assert broken_rules(verify_plan(snapshot, make_plan(snapshot, {"ml/new-0": "a1"}))) == want


@pytest.mark.parametrize(
    ("honor", "want"),
    [pytest.param(True, [], id="Honor"), pytest.param(False, ["spread"], id="Ignore")],
)
def test_node_taints_policy(honor: bool, want: list[str]) -> None:
    spec = make_spec(spread=(spread(honor_taints=honor),))
    new = make_pods("new", 1, spec=spec, labels={"app": "a"})
    nodes = make_nodes("ab") + make_nodes("c", taints=[Taint("pool")])
    snapshot = make_snapshot(nodes, running(["a0", "b0"]), new)
    assert broken_rules(verify_plan(snapshot, make_plan(snapshot, {"ml/new-0": "a1"}))) == want


def test_node_without_the_key() -> None:
    new = make_pods("new", 1, spec=make_spec(spread=(spread(),)), labels={"app": "a"})
    snapshot = make_snapshot([*make_nodes(), make_node("x")], new)
    plan = make_plan(snapshot, {"ml/new-0": "x"})
    assert broken_rules(verify_plan(snapshot, plan)) == ["spread"]


def test_moved_pod_is_counted_where_it_ends() -> None:
    rows = make_pods(
        "run",
        3,
        spec=make_spec(spread=(spread(),)),
        on=["a0", "b0", "c0"],
        labels={"app": "a"},
    )
    snapshot = make_snapshot(make_nodes(), rows)
    plan = make_plan(snapshot, {}, moves=[Move(1, 1, "ml/run-0", "a0", "b1", "live")])
    assert broken_rules(verify_plan(snapshot, plan)) == ["spread"]
