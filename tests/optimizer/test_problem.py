from __future__ import annotations

from dataclasses import replace

import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from devices import make_devices, make_need
from placing import unit_of

from optimizer.devices.columns import DEVICE_PREFIX
from optimizer.problem import (
    BROKEN,
    FREE_CHOICE,
    Problem,
    Relax,
    Required,
    build_problem,
)
from topology.assemble import GroupRow, PodRow
from topology.model import (
    PODS,
    Group,
    PodFlag,
    SliceTerm,
    Snapshot,
    Taint,
    TopologyTerm,
)
from topology.plan import Request


def compile_units(snapshot: Snapshot, relax: Relax | None = None, **request: object) -> Problem:
    return build_problem(snapshot, Request(**request), relax=relax)


# Which units there are


def fleet() -> Snapshot:
    return make_snapshot(
        [make_node("n1")],
        make_pods("old", 1, group="ml/old"),
        make_pods("new", 1, group="ml/new"),
        make_pods("top", 1, group="ml/top"),
        make_pods("run", 1, group="ml/run", on="n1"),
        make_pods("held", 1, group="ml/held", flags=PodFlag.GATED),
        make_pods("child", 1, group="ml/child"),
        make_pods("solo", 1, priority=7),
        make_pods("other", 1, spec=make_spec(scheduler="volcano")),
        groups=[
            make_group("ml/old", 1, created=10),
            make_group("ml/new", 1, created=20),
            make_group("ml/top", 1, priority=5, created=30),
            make_group("ml/run", 1),
            make_group("ml/held", 1),
            GroupRow(Group("ml/tree", "composite", "CompositePodGroup", priority=6)),
            make_group("ml/child", 1, parent="ml/tree", priority=6),
        ],
    )


@pytest.mark.parametrize(
    ("groups", "want_units"),
    [
        pytest.param(
            None,
            ["ml/solo-0", "ml/tree", "ml/top", "ml/old", "ml/new"],
            id="everything pending: by priority, then age",
        ),
        pytest.param(("ml/new",), ["ml/new"], id="one group"),
        pytest.param(("ml/child",), ["ml/tree"], id="a child stands for its tree"),
        pytest.param(("ml/solo-0",), ["ml/solo-0"], id="a pod of its own"),
        pytest.param(("ml/other-0",), ["ml/other-0"], id="another scheduler's pod, asked for"),
        pytest.param(("ml/held",), ["ml/held"], id="asked for, but nothing of it may be placed"),
        pytest.param((), [], id="nothing"),
    ],
)
def test_units(groups: tuple[str, ...] | None, want_units: list[str]) -> None:
    problem = compile_units(fleet(), groups=groups)
    assert [unit.ref for unit in problem.units] == want_units


def test_units_of_equal_priority_and_age_go_by_name() -> None:
    problem = make_snapshot(
        [],
        make_pods("b", 1, group="ml/b"),
        make_pods("a", 1),
        groups=[make_group("ml/b", 1)],
    )
    assert [unit.ref for unit in compile_units(problem).units] == ["ml/a-0", "ml/b"]


def test_only_overrides_the_request() -> None:
    problem = build_problem(fleet(), Request(groups=("ml/new",)), only=["ml/old"])
    assert [unit.ref for unit in problem.units] == ["ml/old"]


def test_an_empty_fleet_and_no_pods() -> None:
    problem = compile_units(make_snapshot([]))
    assert (problem.units, problem.resources) == ((), (PODS,))
    assert problem.free.shape == (0, 1)
    assert problem.eligible.shape == (0, 0)


# Tasks and classes


def test_pods_of_one_kind_are_one_task_in_order_of_rank() -> None:
    rows = [PodRow(f"ml/p{i}", make_spec(gpus=1), group="ml/g", rank=9 - i) for i in range(3)]
    rows += [PodRow("ml/lead", make_spec(gpus=8), group="ml/g", rank=0, template="leader")]
    problem = compile_units(make_snapshot([make_node("n1")], rows, groups=[make_group("ml/g", 4)]))
    refs = problem.snapshot.pods.refs
    found = [
        (int(problem.class_gpus[t.pod_class]), [refs[p] for p in t.pods])
        for t in problem.units[0].tasks
    ]
    assert found == [(8, ["ml/lead"]), (1, ["ml/p2", "ml/p1", "ml/p0"])]
    assert problem.units[0].gpus == 11
    assert problem.units[0].num_pods == 4


def test_classes_are_shared_between_units() -> None:
    problem = compile_units(
        make_snapshot(
            [make_node("n1")],
            make_pods("a", 2, group="ml/a"),
            make_pods("b", 1, spec=make_spec(gpus=1)),
            make_pods("c", 1, spec=make_spec(gpus=2)),
            groups=[make_group("ml/a", 2)],
        )
    )
    assert sorted(problem.class_gpus.tolist()) == [1, 2]
    assert len(problem.class_specs) == 2


def test_amounts() -> None:
    problem = compile_units(
        make_snapshot(
            [make_node("n1", memory=100), make_node("n2", gpus=2, memory=19)],
            make_pods("run", 1, spec=make_spec(gpus=3, memory=10), on="n1"),
            make_pods("p", 1, spec=make_spec(gpus=2, memory=20)),
        )
    )
    assert problem.resources == ("memory", GPU, PODS)
    # Memory in units of 20, GPUs in pairs: 90 bytes are 4 units, 5 GPUs are 2 pairs.
    assert problem.free.tolist() == [[4, 2, 109], [0, 1, 110]]
    assert problem.requests.tolist() == [[1, 1, 1]]
    assert problem.amounts.tolist() == [[20, 2, 1]]
    assert problem.node_gpus.tolist() == [5, 2]


def test_overcommitted_nodes_have_less_than_nothing() -> None:
    problem = compile_units(
        make_snapshot(
            [make_node("n1", gpus=2)],
            make_pods("run", 3, on="n1"),
            make_pods("p", 1),
        )
    )
    assert problem.free[0, problem.resources.index(GPU)] == -1
    assert problem.node_gpus.tolist() == [0]


# What a tree holds


def members(count: int, on: str, start: int = 0) -> list[PodRow]:
    return [
        PodRow(f"ml/m{i}", make_spec(), node=on, group="ml/g") for i in range(start, start + count)
    ]


RACKS = [make_node("a", rack="r1"), make_node("b", rack="r2"), make_node("c")]


@pytest.mark.parametrize(
    ("running", "want_pinned"),
    [
        pytest.param([], FREE_CHOICE, id="none runs"),
        pytest.param(members(2, "b"), 1, id="all in r2"),
        pytest.param(members(1, "a") + members(1, "b", 1), BROKEN, id="in two racks"),
        pytest.param(members(1, "c"), BROKEN, id="on a node without a rack"),
        pytest.param(members(1, "a") + members(1, "c", 1), BROKEN, id="one outside every rack"),
        pytest.param(members(1, "gone"), BROKEN, id="on a node that was not read"),
    ],
)
def test_running_members_pin_a_domain(running: list[PodRow], want_pinned: int) -> None:
    snapshot = make_snapshot(
        RACKS,
        running,
        make_pods("p", 1, group="ml/g"),
        groups=[make_group("ml/g", 1, size=4, key=RACK)],
    )
    unit = compile_units(snapshot).units[0]
    assert unit.root.required == (Required(0, want_pinned),)
    assert unit.root.running == len(running)
    free = compile_units(snapshot, Relax(pins=True)).units[0]
    assert free.root.required == (Required(0, FREE_CHOICE),)


def test_terms_of_a_group() -> None:
    block = "topo.example.com/block"
    problem = compile_units(
        make_snapshot(
            RACKS,
            make_pods("p", 4, group="ml/g"),
            groups=[
                make_group(
                    "ml/g",
                    4,
                    topology=(TopologyTerm((block,)), TopologyTerm((RACK,), required=False)),
                    slices=(SliceTerm((RACK,), 2), SliceTerm((block,), 1, required=False)),
                )
            ],
        )
    )
    root = problem.units[0].root
    paths = [column.path for column in problem.columns]
    assert [paths[r.column] for r in root.required] == [(block,)]
    assert [paths[c] for c in root.preferred] == [(RACK,)]
    assert [(paths[c], size) for c, size in root.slices] == [((RACK,), 2)]


def forest() -> Snapshot:
    """A composite of a gang of 3 with 2 pods running, and a basic group of 2."""
    composite = Group("ml/t", "composite", "CompositePodGroup", min_groups=2)
    return make_snapshot(
        [make_node("n1")],
        members(2, "n1"),
        members(1, "", start=2),
        make_pods("b", 2, group="ml/b"),
        groups=[
            GroupRow(composite),
            make_group("ml/g", 3, parent="ml/t"),
            make_group("ml/b", 0, size=2, parent="ml/t", policy="basic"),
        ],
    )


def test_tree_of_a_composite() -> None:
    problem = compile_units(forest())
    unit = problem.units[0]
    refs = [problem.snapshot.groups[node.group].ref for node in unit.tree]
    assert refs == ["ml/t", "ml/b", "ml/g"]
    assert unit.root.children == (1, 2)
    assert (unit.root.min_groups, unit.root.min_count, unit.root.running) == (2, 0, 2)
    # A basic group succeeds as a child only with a pod.
    assert [(n.min_count, n.running) for n in unit.tree[1:]] == [(1, 0), (3, 2)]
    assert unit.walk() == [0, 1, 2]
    assert (unit.count_members(), unit.count_pending(), unit.count_own_running(0)) == (5, 3, 0)
    assert unit.count_needed() == 2
    assert unit.has_quorum()


@pytest.mark.parametrize(
    ("floor", "running", "pending", "want"),
    [
        pytest.param(4, 1, 3, True, id="just enough"),
        pytest.param(4, 1, 2, False, id="one pod too few"),
        pytest.param(4, 4, 0, True, id="all run"),
        pytest.param(0, 0, 1, True, id="no floor"),
    ],
)
def test_quorum(floor: int, running: int, pending: int, want: bool) -> None:
    snapshot = make_snapshot(
        [make_node("n1")],
        members(running, "n1"),
        members(pending, "", start=running),
        groups=[make_group("ml/g", floor)],
    )
    assert unit_of(compile_units(snapshot, groups=("ml/g",)), "ml/g").has_quorum() is want


@pytest.mark.parametrize(
    ("inferred", "assume_gangs", "want_floor"),
    [
        pytest.param(True, True, 4, id="inferred, held to it"),
        pytest.param(True, False, 0, id="inferred, not held to it"),
        pytest.param(False, False, 4, id="promised by its API"),
    ],
)
def test_inferred_floors(inferred: bool, assume_gangs: bool, want_floor: int) -> None:
    snapshot = make_snapshot(
        [],
        make_pods("p", 4, group="ml/g"),
        groups=[make_group("ml/g", 4, is_inferred=inferred)],
    )
    unit = compile_units(snapshot, assume_gangs=assume_gangs).units[0]
    assert unit.root.min_count == want_floor


@pytest.mark.parametrize(
    ("blocked", "release", "want_blocked"),
    [
        pytest.param("two schedulers", "1.35", "two schedulers", id="every release refuses"),
        pytest.param("1.37: priorities differ", "1.37", "priorities differ", id="from 1.37 on"),
        pytest.param("1.37: priorities differ", "1.36", "", id="not before"),
        pytest.param("", "1.37", "", id="nothing to refuse"),
    ],
)
def test_blocked(blocked: str, release: str, want_blocked: str) -> None:
    snapshot = make_snapshot(
        [],
        make_pods("p", 1, group="ml/g"),
        groups=[make_group("ml/t", 1), make_group("ml/g", 1, parent="ml/t", blocked=blocked)],
    )
    assert compile_units(snapshot, release=release).units[0].blocked == want_blocked


# What is left out to find out what is in the way


def busy() -> Snapshot:
    held = make_need(2)
    spec = replace(make_spec(gpus=1), claims=(held,))
    return make_snapshot(
        [make_node("n1"), make_node("n2", unschedulable=True, taints=[Taint("x")])],
        make_pods("low", 1, on="n1", priority=1),
        make_pods("high", 2, on="n1", priority=9),
        make_pods("own", 1, on="n1", flags=PodFlag.DAEMON),
        make_pods("kept", 1, on="n1", flags=PodFlag.NOT_PREEMPTIBLE),
        make_pods("grouped", 1, on="n1", group="ml/v"),
        make_pods("p", 1, spec=spec, priority=5),
        groups=[make_group("ml/v", 1, evictable=False)],
        devices=make_devices([(0, "gpu.example.com", 8, 3), (1, "gpu.example.com", 8, 8)]),
    )


@pytest.mark.parametrize(
    ("relax", "want_gpus", "want_devices", "want_eligible"),
    [
        pytest.param(Relax(), [2, 8], [3, 8], [True, False], id="as it is"),
        pytest.param(Relax(empty=True), [7, 8], [8, 8], [True, False], id="daemons stay"),
        pytest.param(Relax(filters=True), [2, 8], [3, 8], [True, True], id="no taints"),
        pytest.param(Relax(devices=True), [2, 8], [8, 8], [True, False], id="devices"),
        pytest.param(
            Relax(evictable_below=5), [3, 8], [3, 8], [True, False], id="lower priority goes"
        ),
        pytest.param(Relax(evictable_below=1), [2, 8], [3, 8], [True, False], id="not equal ones"),
    ],
)
def test_relax(
    relax: Relax, want_gpus: list[int], want_devices: list[int], want_eligible: list[bool]
) -> None:
    problem = compile_units(busy(), relax)
    unit = problem.units[0]
    devices = problem.resources.index(DEVICE_PREFIX + "gpu.example.com")
    assert problem.free[:, problem.resources.index(GPU)].tolist() == want_gpus
    # Two devices a pod: the tensor counts pairs.
    assert problem.free[:, devices].tolist() == [n // 2 for n in want_devices]
    assert problem.requests[unit.tasks[0].pod_class, devices] == 1
    assert problem.eligible[unit.tasks[0].pod_class].tolist() == want_eligible


def test_a_plan_so_far_counts_as_running() -> None:
    snapshot = make_snapshot(
        [make_node("n1"), make_node("n2")],
        make_pods("p", 3, spec=make_spec(gpus=2)),
    )
    problem = build_problem(snapshot, Request(), placed={0: 1, 2: 1})
    assert [unit.ref for unit in problem.units] == ["ml/p-1"]
    assert problem.node_gpus.tolist() == [8, 4]


def test_nominated_pods_are_known_though_not_asked_for() -> None:
    snapshot = make_snapshot(
        [make_node("n1")], make_pods("a", 1, nominated="n1"), make_pods("b", 1)
    )
    problem = compile_units(snapshot, groups=("ml/b-0",))
    assert problem.reservations == {0: (0,)}
    assert problem.unit_of_pod == {0: -1, 1: 0}
    assert compile_units(snapshot, Relax(empty=True)).reservations == {}
