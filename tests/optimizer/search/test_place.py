"""Whole plans on fleets that fit in the head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.search.place import tighten_bounds
from ray_jobs.pipeline import make_plan
from topology.model import (
    HOSTNAME,
    AffinityTerm,
    Exclusive,
    LabelSelector,
    Requirement,
    SliceTerm,
    SpreadTerm,
    TopologyTerm,
)
from topology.plan import Request

if TYPE_CHECKING:
    from topology.model import Node, Snapshot
    from topology.plan import Plan


def plan_for(snapshot: Snapshot, **fields: object) -> Plan:
    plan = make_plan(snapshot, Request(**fields))  # type: ignore[arg-type]
    assert plan.verification is not None
    assert plan.verification.violations == ()
    return plan


def nodes_of(plan: Plan) -> dict[str, str]:
    return {pod.pod: pod.node for entry in plan.groups for pod in entry.pods}


def racks(*sizes: int) -> list[Node]:
    """One node a rack: n0 in r0, n1 in r1 …"""
    return [make_node(f"n{i}", gpus=size, rack=f"r{i}") for i, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("bounds", "others", "want_bounds"),
    [
        pytest.param((5, 9), (4, 12), (4, 12), id="what follows a larger value is left out"),
        pytest.param((5, 9), (5, 7), (5, 7), id="equal values, then the smaller"),
        pytest.param((5, None), (5, 7), (5, 7), id="nothing known of one"),
        pytest.param((None, 9), (5, 7), (5, 7), id="what follows the unknown is left out"),
        pytest.param((4, None), (5, 7), (4, None), id="nothing known after the smaller"),
    ],
)
def test_bounds_are_joined_for_plans_that_reach_those_before(
    bounds: tuple[int | None, ...],
    others: tuple[int | None, ...],
    want_bounds: tuple[int | None, ...],
) -> None:
    assert tighten_bounds(bounds, others) == want_bounds


@pytest.mark.parametrize(
    ("objective", "want_placed"),
    [
        pytest.param(("max:groupsPlaced", "min:gpusPlaced"), {"b", "c"}, id="two small ones"),
        pytest.param(("max:gpusPlaced",), {"a"}, id="the large one"),
        pytest.param(("min:gpusPlaced",), set(), id="none: least is best"),
        pytest.param(("max:podsPlaced", "max:gpusPlaced"), {"b", "c"}, id="most pods"),
    ],
)
def test_objectives_decide_what_is_placed(
    objective: tuple[str, ...], want_placed: set[str]
) -> None:
    pods = [
        *make_pods("a", 1, group="ml/a", spec=make_spec(gpus=4)),
        *make_pods("b", 1, group="ml/b", spec=make_spec(gpus=1)),
        *make_pods("c", 1, group="ml/c", spec=make_spec(gpus=2)),
    ]
    groups = [make_group(f"ml/{name}", 1) for name in "abc"]
    plan = plan_for(make_snapshot(racks(4), pods, groups=groups), objective=objective)
    assert {p.partition("/")[2].partition("-")[0] for p in nodes_of(plan)} == want_placed
    assert plan.bound.proof == "optimal"


def test_pods_beyond_the_floor_are_placed_where_room_is_left() -> None:
    spec = make_spec(gpus=0, cpu=16_000)
    snapshot = make_snapshot(
        [make_node("n0", cpu=64_000)],
        make_pods("a", 6, group="ml/a", spec=spec),
        groups=[make_group("ml/a", 1, size=6)],
    )
    assert len(nodes_of(plan_for(snapshot))) == 4


def test_extras_of_a_gang_that_runs_already() -> None:
    snapshot = make_snapshot(
        racks(4, 8),
        make_pods("run", 2, group="ml/a", on="n0"),
        make_pods("more", 4, group="ml/a"),
        groups=[make_group("ml/a", 2, size=6, key=RACK)],
    )
    assert sorted(nodes_of(plan_for(snapshot)).values()) == ["n0", "n0"]


@pytest.mark.parametrize(
    ("first", "second", "want_pods"),
    [
        pytest.param(3, 1, 4, id="a run of both roles"),
        pytest.param(5, 3, 8, id="two runs, one of both roles"),
        pytest.param(4, 2, 6, id="the last run is short"),
    ],
)
def test_slices_cut_through_roles(first: int, second: int, want_pods: int) -> None:
    group = make_group("ml/a", first + second, slices=(SliceTerm((RACK,), 4),))
    snapshot = make_snapshot(
        racks(4, 4),
        make_pods("lead", first, group="ml/a", spec=make_spec(cpu=1_000)),
        make_pods("work", second, group="ml/a", spec=make_spec()),
        groups=[group],
    )
    assert len(nodes_of(plan_for(snapshot))) == want_pods


@pytest.mark.parametrize(
    ("running", "pending", "want_nodes"),
    [
        pytest.param(["n0"], 1, ["n0"], id="to the one that is begun"),
        pytest.param(["n0"], 3, ["n0", "n1", "n1"], id="then a run of its own"),
        pytest.param(["n0", "n1"], 2, ["n0", "n1"], id="two are begun"),
        pytest.param(["n0", "n1"], 1, ["n0"], id="one of two completed"),
        pytest.param(["n0", "gone"], 2, [], id="a member outside every rack"),
    ],
)
def test_runs_that_running_members_began(
    running: list[str], pending: int, want_nodes: list[str]
) -> None:
    snapshot = make_snapshot(
        racks(2, 4),
        make_pods("run", len(running), group="ml/a", on=running),
        make_pods("wait", pending, group="ml/a"),
        groups=[make_group("ml/a", 1, size=8, slices=(SliceTerm((RACK,), 2),))],
    )
    assert sorted(nodes_of(plan_for(snapshot)).values()) == want_nodes


def test_a_preferred_domain_is_named_only_if_running_members_share_it() -> None:
    group = make_group("ml/a", 2, topology=(TopologyTerm((RACK,), required=False),))
    snapshot = make_snapshot(
        racks(1, 4),
        make_pods("run", 1, group="ml/a", on="n0"),
        make_pods("wait", 1, group="ml/a"),
        groups=[group],
    )
    plan = plan_for(snapshot)
    assert nodes_of(plan) == {"ml/wait-0": "n1"}
    assert plan.groups[0].domains == ()


def _same_app() -> LabelSelector:
    return LabelSelector((Requirement("app", "In", ("x",)),))


@pytest.mark.parametrize(
    ("key", "want_placed"),
    [
        pytest.param(RACK, 2, id="both gangs in one rack"),
        pytest.param(HOSTNAME, 1, id="both gangs on one node, which holds one"),
    ],
)
def test_gangs_that_want_company_of_each_other(key: str, want_placed: int) -> None:
    spec = make_spec(gpus=2, affinity=(AffinityTerm(key, _same_app(), ("ml",)),))
    nodes = [make_node(f"n{i}", gpus=2 if key == RACK else 4, rack=f"r{i // 4}") for i in range(8)]
    pods = [make_pods(name, 2, group=f"ml/{name}", spec=spec, labels={"app": "x"}) for name in "ab"]
    groups = [make_group(f"ml/{name}", 2) for name in "ab"]
    placed = nodes_of(plan_for(make_snapshot(nodes, *pods, groups=groups)))
    assert len(placed) == 2 * want_placed
    rack_of = {node.name: node.labels[key] for node in nodes}
    assert len({rack_of[node] for node in placed.values()}) == 1


@pytest.mark.parametrize("key", ["rack", "hall"])
def test_a_key_that_no_node_carries(key: str) -> None:
    """Tables over no domain at all."""
    path = f"topo.example.com/{key}"
    term = AffinityTerm(path, _same_app(), ("ml",))
    specs = [
        make_spec(anti_affinity=(term,)),
        make_spec(affinity=(term,)),
        make_spec(spread=(SpreadTerm(path, 1, _same_app()),)),
    ]
    pods = [
        make_pods(f"p{i}", 1, group=f"ml/g{i}", spec=spec, labels={"app": "x"})
        for i, spec in enumerate([*specs, make_spec()])
    ]
    exclusive = (Exclusive("ml", path),)
    groups = [make_group(f"ml/g{i}", 1) for i in range(3)]
    groups.append(make_group("ml/g3", 1, key=path, exclusive=exclusive))
    plan = plan_for(make_snapshot([make_node("n0"), make_node("n1")], *pods, groups=groups))
    # Anti-affinity never binds on a node without the key; the others need it.
    assert set(nodes_of(plan)) == {"ml/p0-0"}


def test_no_nodes_at_all() -> None:
    snapshot = make_snapshot([], make_pods("a", 2, group="ml/a"), groups=[make_group("ml/a", 2)])
    plan = plan_for(snapshot)
    assert [entry.outcome for entry in plan.groups] == ["notPlaced"]
    assert plan.bound.proof == "optimal"


@pytest.mark.parametrize(
    ("nominated", "group_priority", "want_nodes"),
    [
        pytest.param(10, 0, {"ml/a-0": "n1"}, id="room is kept for a higher priority"),
        pytest.param(0, 0, {"ml/a-0": "n1"}, id="and for an equal one"),
        pytest.param(0, 10, {"ml/a-0": "n0"}, id="not for a lower one"),
    ],
)
def test_nominated_pods_outside_the_question(
    nominated: int, group_priority: int, want_nodes: dict[str, str]
) -> None:
    snapshot = make_snapshot(
        [make_node("n0", gpus=4), make_node("n1", gpus=4)],
        make_pods("a", 1, group="ml/a", spec=make_spec(gpus=4), priority=group_priority),
        make_pods("b", 1, spec=make_spec(gpus=4), priority=nominated, nominated="n0"),
        groups=[make_group("ml/a", 1, priority=group_priority)],
    )
    assert nodes_of(plan_for(snapshot, groups=("ml/a",))) == want_nodes


def test_nominations_that_the_plan_fulfils_do_not_stop_the_search() -> None:
    """In the scheduler's order a takes four GPUs and c, the larger pair, finds no room."""
    snapshot = make_snapshot(
        racks(4, 4),
        make_pods("a", 4, group="ml/a", nominated="n0"),
        make_pods("b", 2, group="ml/b", spec=make_spec(gpus=2)),
        make_pods("c", 2, group="ml/c", spec=make_spec(gpus=4)),
        groups=[make_group("ml/a", 4), make_group("ml/b", 2), make_group("ml/c", 2)],
    )
    plan = plan_for(snapshot)
    assert plan.criteria["gpusPlaced"] == 8
    assert plan.bound.proof == "optimal"
