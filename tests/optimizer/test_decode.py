from __future__ import annotations

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from placing import compile_fleet, count_nodes, describe_state, place_on, unit_of

from optimizer.decode import Fill, order_classes, place_unit, replay
from topology.assemble import GroupRow, PodRow
from topology.model import (
    HOSTNAME,
    AffinityTerm,
    Exclusive,
    Group,
    HostPort,
    LabelSelector,
    Node,
    PodSpec,
    Requirement,
    SliceTerm,
    SpreadTerm,
    TopologyTerm,
)

BLOCK = "topo.example.com/block"
APP = LabelSelector((Requirement("app", "In", ("x",)),))


def room(**gpus: int) -> list[Node]:
    """Nodes by name with so many free GPUs; the first letter of the name is the rack."""
    return [make_node(name, gpus=free, rack=name[0]) for name, free in gpus.items()]


def gang(
    count: int, floor: int | None = None, spec: PodSpec | None = None, **group: object
) -> tuple[list[PodRow], list[GroupRow]]:
    """A waiting gang of equal pods."""
    pods = make_pods("p", count, group="ml/g", spec=spec, labels={"app": "x"})
    return pods, [make_group("ml/g", count if floor is None else floor, size=count, **group)]


WHOLE = make_spec(gpus=8)


# Floors and order of nodes


@pytest.mark.parametrize(
    ("nodes", "unit", "want"),
    [
        pytest.param(room(a1=8, a2=8), gang(2, spec=WHOLE), {"a1": 1, "a2": 1}, id="it fits"),
        pytest.param(room(a1=8, a2=7), gang(2, spec=WHOLE), None, id="one GPU too few"),
        pytest.param(room(a1=8, a2=7), gang(2, 1, spec=WHOLE), {"a1": 1}, id="to its floor"),
        pytest.param(room(a1=3), gang(5, 3), {"a1": 3}, id="no more than fit"),
        pytest.param(room(a1=2), gang(5, 3), None, id="below the floor: none at all"),
        pytest.param(room(a1=0), gang(2, 0), None, id="no floor, no room: nothing new"),
        pytest.param(room(a1=1), gang(2, 0), {"a1": 1}, id="no floor: what fits"),
        pytest.param(room(a1=8, a2=2), gang(2), {"a2": 2}, id="the fullest node first"),
        pytest.param(room(a1=8, a2=2), gang(3), {"a1": 1, "a2": 2}, id="then the next"),
        pytest.param(room(a1=4, a2=4), gang(3), {"a1": 3}, id="equal nodes by name"),
        pytest.param([], gang(1), None, id="no nodes"),
    ],
)
def test_floors(
    nodes: list[Node], unit: tuple[list[PodRow], list[GroupRow]], want: dict[str, int] | None
) -> None:
    assert place_on(compile_fleet(make_snapshot(nodes, unit[0], groups=unit[1]))) == want


@pytest.mark.parametrize(
    ("running", "floor", "want"),
    [
        pytest.param(2, 3, {"a1": 1}, id="running members count"),
        pytest.param(1, 4, None, id="too few with them"),
        pytest.param(3, 3, {"a1": 1}, id="the floor is kept already"),
    ],
)
def test_running_members_count_toward_the_floor(
    running: int, floor: int, want: dict[str, int] | None
) -> None:
    pods = make_pods("r", running, group="ml/g", on="b1")
    waiting = make_pods("p", 2, group="ml/g")
    # One GPU is free: b1 is full of running members.
    nodes = room(a1=1, b1=running)
    snapshot = make_snapshot(nodes, pods, waiting, groups=[make_group("ml/g", floor, size=8)])
    assert place_on(compile_fleet(snapshot)) == want


def test_a_blocked_unit_is_not_placed() -> None:
    pods, groups = gang(1, blocked="two schedulers")
    assert place_on(compile_fleet(make_snapshot(room(a1=8), pods, groups=groups))) is None


def test_only_the_nodes_that_are_named() -> None:
    pods, groups = gang(2)
    state = compile_fleet(make_snapshot(room(a1=8, a2=1, b1=1), pods, groups=groups))
    assert place_on(state, within=np.array([1])) is None
    assert place_on(state, within=np.array([1, 2])) == {"a2": 1, "b1": 1}


# Domains


@pytest.mark.parametrize(
    ("nodes", "count", "want"),
    [
        pytest.param(room(a1=8, b1=4), 4, {"b1": 4}, id="the tightest rack that holds all"),
        pytest.param(room(a1=4, b1=4), 4, {"a1": 4}, id="equal racks by name"),
        pytest.param(room(a1=2, a2=2, b1=3), 4, {"a1": 2, "a2": 2}, id="two nodes of one rack"),
        pytest.param(room(a1=3, b1=3), 4, None, id="enough in sum, in no rack"),
        pytest.param([make_node("n1"), *room(a1=2)], 4, None, id="a node without the label"),
        pytest.param([make_node("n1")], 1, None, id="no node has the label"),
    ],
)
def test_required_domain(nodes: list[Node], count: int, want: dict[str, int] | None) -> None:
    pods, groups = gang(count, key=RACK)
    assert place_on(compile_fleet(make_snapshot(nodes, pods, groups=groups))) == want


@pytest.mark.parametrize(
    ("running", "nodes", "want"),
    [
        pytest.param(["a1"], room(a1=3, b1=8), {"a1": 2}, id="to the rack of those that run"),
        pytest.param(["b1"], room(a1=8, b1=3), {"b1": 2}, id="however much the other has"),
        pytest.param(["a1"], room(a1=2, b1=8), {"a1": 1}, id="what fits there, the floor is kept"),
        pytest.param(["a1"], room(a1=1, b1=8), None, id="no room there"),
        pytest.param(["a1", "b1"], room(a1=8, b1=8), None, id="two racks: nothing new"),
        pytest.param(["a1", "n1"], [*room(a1=8), make_node("n1")], None, id="one in no rack"),
    ],
)
def test_pinned_domain(running: list[str], nodes: list[Node], want: dict[str, int] | None) -> None:
    snapshot = make_snapshot(
        nodes,
        make_pods("r", len(running), group="ml/g", on=running),
        make_pods("p", 2, group="ml/g"),
        groups=[make_group("ml/g", 1, size=4, key=RACK)],
    )
    assert place_on(compile_fleet(snapshot)) == want


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param(room(a1=8, b1=4), {"b1": 4}, id="one rack holds all"),
        pytest.param(room(a1=2, b1=2), {"a1": 2, "b1": 2}, id="no rack does: across"),
    ],
)
def test_preferred_domain(nodes: list[Node], want: dict[str, int]) -> None:
    pods, groups = gang(4, topology=(TopologyTerm((RACK,), required=False),))
    assert place_on(compile_fleet(make_snapshot(nodes, pods, groups=groups))) == want


def halls(**gpus: int) -> list[Node]:
    """Nodes `a1x`: block a, rack a1."""
    return [
        make_node(name, gpus=free, rack=name[:2], labels={BLOCK: name[0]})
        for name, free in gpus.items()
    ]


@pytest.mark.parametrize(
    ("nodes", "floors", "want"),
    [
        pytest.param(
            halls(a1x=4, a2x=4, b1x=8, b2x=2),
            (4, 4),
            {"a1x": 4, "a2x": 4},
            id="a rack each in the tightest block",
        ),
        pytest.param(halls(a1x=8, a2x=0), (4, 4), {"a1x": 8}, id="the same rack"),
        pytest.param(halls(a1x=4, b1x=4), (4, 4), None, id="not across blocks"),
        pytest.param(halls(a1x=6, a2x=2), (4, 4), None, id="the second finds no rack"),
        pytest.param(halls(a1x=7, a2x=2), (4, 2), {"a1x": 4, "a2x": 2}, id="the tightest rack"),
    ],
)
def test_subgroups_choose_racks_inside_the_block(
    nodes: list[Node], floors: tuple[int, int], want: dict[str, int] | None
) -> None:
    snapshot = make_snapshot(
        nodes,
        make_pods("x", floors[0], group="ml/g#0"),
        make_pods("y", floors[1], group="ml/g#1"),
        groups=[
            make_group("ml/g", sum(floors), key=BLOCK),
            make_group("ml/g#0", floors[0], key=RACK, parent="ml/g", kind="subgroup"),
            make_group("ml/g#1", floors[1], key=RACK, parent="ml/g", kind="subgroup"),
        ],
    )
    assert place_on(compile_fleet(snapshot)) == want


@pytest.mark.parametrize(
    ("min_groups", "free", "want"),
    [
        pytest.param(2, 5, None, id="both children are needed"),
        pytest.param(1, 5, {"a1": 3}, id="one is enough, the other gives back what it took"),
        pytest.param(2, 6, {"a1": 6}, id="both fit"),
        pytest.param(1, 2, None, id="none fits"),
    ],
)
def test_children_that_succeed(min_groups: int, free: int, want: dict[str, int] | None) -> None:
    snapshot = make_snapshot(
        room(a1=free),
        make_pods("x", 3, group="ml/x"),
        make_pods("y", 3, group="ml/y"),
        groups=[
            GroupRow(Group("ml/g", "composite", "CompositePodGroup", min_groups=min_groups)),
            make_group("ml/x", 3, parent="ml/g"),
            make_group("ml/y", 3, parent="ml/g"),
        ],
    )
    assert place_on(compile_fleet(snapshot)) == want


# Slices


@pytest.mark.parametrize(
    ("nodes", "count", "floor", "want"),
    [
        pytest.param(room(a1=2, b1=2), 4, 4, {"a1": 2, "b1": 2}, id="a run in each rack"),
        pytest.param(room(a1=3, b1=3), 4, 4, {"a1": 2, "b1": 2}, id="a GPU is left in each"),
        pytest.param(room(a1=3, b1=1), 4, 4, None, id="4 GPUs, but one run only"),
        pytest.param(room(a1=3, b1=1), 4, 2, {"a1": 2}, id="whole runs only"),
        pytest.param(room(a1=1, a2=1, b1=2), 4, 4, {"a1": 1, "a2": 1, "b1": 2}, id="two nodes"),
        pytest.param(room(a1=2, b1=1), 3, 3, {"a1": 2, "b1": 1}, id="the last run is short"),
    ],
)
def test_slices(nodes: list[Node], count: int, floor: int, want: dict[str, int] | None) -> None:
    pods, groups = gang(count, floor, slices=(SliceTerm((RACK,), 2),))
    assert place_on(compile_fleet(make_snapshot(nodes, pods, groups=groups))) == want


def test_slices_inside_slices() -> None:
    pods, groups = gang(8, slices=(SliceTerm((BLOCK,), 4), SliceTerm((RACK,), 2)))
    nodes = halls(a1x=3, a2x=2, b1x=2, b2x=1, c1x=2, c2x=3)
    state = compile_fleet(make_snapshot(nodes, pods, groups=groups))
    # Block b has 3 GPUs in runs of 2: no slice of 4.
    assert place_on(state) == {"a1x": 2, "a2x": 2, "c1x": 2, "c2x": 2}


# Exclusive domains


def replicas(count: int, *, key: str | None = RACK) -> list[GroupRow]:
    return [make_group(f"ml/{i}", 2, exclusive=(Exclusive("ml", key),)) for i in range(count)]


def test_keyed_groups_keep_out_of_each_others_domains() -> None:
    pods = [row for i in range(3) for row in make_pods(f"p{i}", 2, group=f"ml/{i}")]
    state = compile_fleet(make_snapshot(room(a1=4, b1=4), pods, groups=replicas(3)))
    assert place_on(state, "ml/0") == {"a1": 2}
    assert place_on(state, "ml/1") == {"b1": 2}
    assert place_on(state, "ml/2") is None


def test_a_group_without_a_key_keeps_out_of_domains_that_others_hold() -> None:
    pods = [row for i in range(3) for row in make_pods(f"p{i}", 2, group=f"ml/{i}")]
    groups = [*replicas(1), *replicas(3, key=None)[1:]]
    state = compile_fleet(make_snapshot(room(a1=4, b1=4), pods, groups=groups))
    assert place_on(state, "ml/0") == {"a1": 2}
    # They do not mind each other.
    assert place_on(state, "ml/1") == {"b1": 2}
    assert place_on(state, "ml/2") == {"b1": 2}


def test_a_keyed_group_needs_a_domain_without_others() -> None:
    pods = [row for i in range(2) for row in make_pods(f"p{i}", 2, group=f"ml/{i}")]
    groups = [*replicas(1), *replicas(2, key=None)[1:]]
    state = compile_fleet(make_snapshot(room(a1=8), pods, groups=groups))
    assert place_on(state, "ml/1") == {"a1": 2}
    assert place_on(state, "ml/0") is None


def test_running_groups_hold_their_domains() -> None:
    snapshot = make_snapshot(
        room(a1=8, b1=8),
        make_pods("r", 2, group="ml/0", on="a1"),
        make_pods("p", 2, group="ml/1"),
        groups=replicas(2),
    )
    assert place_on(compile_fleet(snapshot), "ml/1") == {"b1": 2}


def test_a_keyed_group_needs_the_label() -> None:
    pods = make_pods("p", 2, group="ml/0")
    state = compile_fleet(make_snapshot([make_node("n1")], pods, groups=replicas(1)))
    assert place_on(state, "ml/0") is None


# Pods that keep each other away


def apart(key: str = HOSTNAME) -> PodSpec:
    return make_spec(anti_affinity=(AffinityTerm(key, APP, ("ml",)),))


@pytest.mark.parametrize(
    ("nodes", "spec", "count", "want"),
    [
        pytest.param(room(a1=8, a2=8), apart(), 2, {"a1": 1, "a2": 1}, id="one a node"),
        pytest.param(room(a1=8, a2=8), apart(), 3, None, id="more pods than nodes"),
        pytest.param(room(a1=8, a2=8, b1=8), apart(RACK), 2, {"a1": 1, "b1": 1}, id="one a rack"),
        pytest.param(
            room(a1=8, a2=8),
            make_spec(host_ports=(HostPort(80),)),
            2,
            {"a1": 1, "a2": 1},
            id="one port a node",
        ),
        pytest.param(
            room(a1=8, a2=8), make_spec(host_ports=(HostPort(80),)), 3, None, id="no third port"
        ),
    ],
)
def test_one_each(
    nodes: list[Node], spec: PodSpec, count: int, want: dict[str, int] | None
) -> None:
    pods, groups = gang(count, spec=spec)
    assert place_on(compile_fleet(make_snapshot(nodes, pods, groups=groups))) == want


@pytest.mark.parametrize(
    ("standing", "waiting", "want"),
    [
        pytest.param(
            make_pods("r", 1, on="a1", spec=apart(), labels={"app": "y"}),
            make_spec(),
            {"a2": 1},
            id="kept off by a pod that runs",
        ),
        pytest.param(
            make_pods("r", 1, on="a1", labels={"app": "x"}),
            apart(),
            {"a2": 1},
            id="keeps off itself",
        ),
        pytest.param(
            make_pods("r", 1, on="a1", labels={"app": "x"}, namespace="dev"),
            apart(),
            {"a1": 1},
            id="a pod of another namespace",
        ),
        pytest.param(
            make_pods("r", 1, on="a1", spec=make_spec(host_ports=(HostPort(80, ip="10.0.0.1"),))),
            make_spec(host_ports=(HostPort(80),)),
            {"a2": 1},
            id="the port is in use on one address",
        ),
        pytest.param(
            make_pods("r", 1, on="a1", spec=make_spec(host_ports=(HostPort(80, "UDP"),))),
            make_spec(host_ports=(HostPort(80),)),
            {"a1": 1},
            id="another protocol",
        ),
    ],
)
def test_neighbours(standing: list[PodRow], waiting: PodSpec, want: dict[str, int]) -> None:
    pods, groups = gang(1, spec=waiting)
    # a1 is the fuller one, so it is taken unless something is in the way.
    snapshot = make_snapshot(room(a1=2, a2=8), standing, pods, groups=groups)
    assert place_on(compile_fleet(snapshot)) == want


def test_pods_placed_before_count_as_neighbours() -> None:
    pods, groups = gang(1, spec=apart())
    pods += make_pods("q", 1, labels={"app": "x"})
    state = compile_fleet(make_snapshot(room(a1=2, a2=8), pods, groups=groups))
    assert place_on(state, "ml/q-0") == {"a1": 1}
    assert place_on(state) == {"a2": 1}


# Spread


@pytest.mark.parametrize(
    ("nodes", "term", "count", "want"),
    [
        pytest.param(
            room(a1=8, b1=8), SpreadTerm(RACK, 1, APP), 4, {"a1": 2, "b1": 2}, id="evenly"
        ),
        pytest.param(
            room(a1=8, b1=1), SpreadTerm(RACK, 1, APP), 3, {"a1": 2, "b1": 1}, id="one apart"
        ),
        pytest.param(room(a1=8, b1=1), SpreadTerm(RACK, 1, APP), 4, None, id="two apart"),
        pytest.param(
            room(a1=8, b1=1), SpreadTerm(RACK, 2, APP), 4, {"a1": 3, "b1": 1}, id="skew of two"
        ),
        pytest.param(
            room(a1=8, b1=8),
            SpreadTerm(RACK, 1, APP, min_domains=3),
            2,
            {"a1": 1, "b1": 1},
            id="fewer racks than wanted: one each",
        ),
        pytest.param(
            room(a1=8, b1=8),
            SpreadTerm(RACK, 1, APP, min_domains=3),
            3,
            None,
            id="fewer racks than wanted: no second",
        ),
        pytest.param(
            room(a1=8, b1=8), SpreadTerm(RACK, 1, None), 3, {"a1": 3}, id="nothing is selected"
        ),
        pytest.param([make_node("n1")], SpreadTerm(RACK, 1, APP), 1, None, id="no rack label"),
    ],
)
def test_spread(
    nodes: list[Node], term: SpreadTerm, count: int, want: dict[str, int] | None
) -> None:
    pods, groups = gang(count, spec=make_spec(spread=(term,)))
    assert place_on(compile_fleet(make_snapshot(nodes, pods, groups=groups))) == want


# Several classes


def test_the_hardest_class_goes_first() -> None:
    rows = [
        PodRow("ml/lead", make_spec(gpus=8), group="ml/g"),
        PodRow("ml/cpu", make_spec(gpus=0, cpu=1000), group="ml/g"),
        *make_pods("w", 4, group="ml/g", spec=make_spec(gpus=1)),
        PodRow("ml/bound", make_spec(gpus=1, node_selector=((HOSTNAME, "a2"),)), group="ml/g"),
    ]
    state = compile_fleet(make_snapshot(room(a1=8, a2=5), rows, groups=[make_group("ml/g", 7)]))
    unit = unit_of(state.problem, "ml/g")
    order = [
        unit.tasks[t].pods[0] for t in order_classes(state, unit, tuple(range(len(unit.tasks))))
    ]
    refs = state.problem.snapshot.pods.refs
    assert [refs[p] for p in order] == ["ml/lead", "ml/bound", "ml/w-0", "ml/cpu"]
    assert place_on(state) == {"a1": 2, "a2": 5}


# Taking and giving back


def test_what_is_refused_leaves_no_trace() -> None:
    snapshot = make_snapshot(
        halls(a1x=6, a2x=2),
        make_pods("x", 4, group="ml/g#0", spec=apart(RACK), labels={"app": "x"}),
        make_pods("y", 4, group="ml/g#1"),
        groups=[
            make_group("ml/g", 8, key=BLOCK, exclusive=(Exclusive("ml", BLOCK),)),
            make_group("ml/g#0", 4, parent="ml/g", kind="subgroup"),
            make_group("ml/g#1", 4, key=RACK, parent="ml/g", kind="subgroup"),
        ],
    )
    state = compile_fleet(snapshot)
    before, mark = describe_state(state), state.mark()
    assert place_on(state) is None
    assert describe_state(state) == before
    assert state.mark() == mark


def test_replay_takes_and_lifts_what_was_placed() -> None:
    pods, groups = gang(2, spec=apart(), exclusive=(Exclusive("ml", RACK),))
    state = compile_fleet(make_snapshot(room(a1=8, a2=8, b1=8), pods, groups=groups))
    unit = unit_of(state.problem, "ml/g")
    before = describe_state(state)
    placement = place_unit(state, unit)
    assert placement is not None
    after = describe_state(state)
    replay(state, unit, placement, lift=True)
    assert describe_state(state) == before
    replay(state, unit, placement)
    assert describe_state(state) == after
    assert count_nodes(state.problem, placement) == {"a1": 1, "a2": 1}


def test_fills_name_distinct_nodes() -> None:
    pods, groups = gang(12)
    state = compile_fleet(make_snapshot(room(a1=8, a2=3, b1=4), pods, groups=groups))
    placement = place_unit(state, unit_of(state.problem, "ml/g"))
    assert placement is not None
    (fill,) = placement
    assert isinstance(fill, Fill)
    assert (fill.nodes.tolist(), fill.counts.tolist()) == ([1, 2, 0], [3, 4, 5])
