from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from devices import make_devices, make_need

from optimizer.answer import (
    assign_pods,
    count_criteria,
    describe_bound,
    describe_groups,
    find_conditions,
)
from optimizer.decode import Fill
from optimizer.objective import Level
from optimizer.problem import build_problem
from optimizer.search.place import PlaceResult
from topology.assemble import GroupRow, PodRow
from topology.model import AffinityTerm, ClaimNeed, Group, LabelSelector, Requirement, TopologyTerm
from topology.plan import Bound, ChosenDomain, GroupPlan, PlacedPod, Request

if TYPE_CHECKING:
    from topology.model import Snapshot

BLOCK = "topo.example.com/block"


def fill(task: int, *on: tuple[int, int]) -> Fill:
    """Pods of a task: (node, count) each."""
    nodes, counts = zip(*on, strict=True)
    return Fill(task, np.array(nodes), np.array(counts))


def test_pods_take_the_fills_in_order_of_rank() -> None:
    rows = [PodRow(f"ml/p{i}", make_spec(), group="ml/g", rank=5 - i) for i in range(5)]
    snapshot = make_snapshot([make_node("a"), make_node("b")], rows, groups=[make_group("ml/g", 1)])
    problem = build_problem(snapshot, Request())
    result = PlaceResult({0: (fill(0, (1, 2)), fill(0, (0, 1)))}, (), (), ())
    # Ranks 1 and 2 are p4 and p3; two pods stay without a node.
    assert assign_pods(problem, result) == {4: 1, 3: 1, 2: 0}
    assert assign_pods(problem, PlaceResult({}, (), (), ())) == {}


# Groups


def describe(snapshot: Snapshot, placed: dict[str, str]) -> dict[str, GroupPlan]:
    request = Request()
    nodes = [n.name for n in snapshot.nodes]
    rows = {snapshot.pods.refs.index(p): nodes.index(n) for p, n in placed.items()}
    problem = build_problem(snapshot, request)
    entries = describe_groups(snapshot, request, problem, rows, lambda line: None)
    assert [e.group for e in entries] == sorted(e.group for e in entries)
    return {entry.group: entry for entry in entries}


RACKS = [
    make_node("a1", rack="a", labels={BLOCK: "x"}),
    make_node("a2", rack="a", labels={BLOCK: "x"}),
    make_node("b1", rack="b", labels={BLOCK: "x"}),
]


def test_a_gang_that_is_placed_to_its_floor() -> None:
    snapshot = make_snapshot(
        RACKS,
        make_pods("p", 3, group="ml/g", template="worker"),
        groups=[make_group("ml/g", 2, size=3, key=RACK, priority=7)],
    )
    entry = describe(snapshot, {"ml/p-0": "a1", "ml/p-2": "a2"})["ml/g"]
    assert entry == GroupPlan(
        "ml/g",
        "scheduling.k8s.io/v1beta1/PodGroup",
        "gang",
        2,
        7,
        "placed",
        domains=(ChosenDomain(RACK, "a"),),
        pods=(
            PlacedPod("ml/p-0", "a1", None, "worker"),
            PlacedPod("ml/p-2", "a2", None, "worker"),
        ),
        pending_pods=("ml/p-1",),
    )


def test_a_gang_that_is_not_placed_says_why() -> None:
    snapshot = make_snapshot(
        RACKS,
        make_pods("p", 1, spec=make_spec(gpus=9), group="ml/g"),
        groups=[make_group("ml/g", 1)],
    )
    entry = describe(snapshot, {})["ml/g"]
    assert (entry.outcome, entry.pods, entry.pending_pods) == ("notPlaced", (), ("ml/p-0",))
    assert entry.cause is not None
    assert entry.cause.name == "impossible"


def test_single_pods() -> None:
    snapshot = make_snapshot(RACKS, make_pods("p", 2, priority=3, spec=make_spec(gpus=8)))
    found = describe(snapshot, {"ml/p-1": "b1"})
    assert found["ml/p-1"] == GroupPlan(
        "ml/p-1", "v1/Pod", "basic", 1, 3, "placed", pods=(PlacedPod("ml/p-1", "b1"),)
    )
    assert found["ml/p-0"].pending_pods == ("ml/p-0",)


def test_subgroups_are_told_apart_inside_their_group() -> None:
    snapshot = make_snapshot(
        RACKS,
        make_pods("lead", 1, group="ml/g#lead", template="leader"),
        make_pods("p", 2, group="ml/g#0"),
        groups=[
            make_group("ml/g", 3, key=BLOCK),
            make_group("ml/g#lead", 1, parent="ml/g", kind="subgroup", name="0", is_leader=True),
            make_group("ml/g#0", 2, parent="ml/g", kind="subgroup", name="1", key=RACK),
        ],
    )
    found = describe(snapshot, {"ml/lead-0": "b1", "ml/p-0": "a1", "ml/p-1": "a2"})
    assert list(found) == ["ml/g"]
    assert found["ml/g"].pods == (
        PlacedPod("ml/lead-0", "b1", None, "leader"),
        PlacedPod("ml/p-0", "a1", "1"),
        PlacedPod("ml/p-1", "a2", "1"),
    )
    assert found["ml/g"].domains == (ChosenDomain(BLOCK, "x"), ChosenDomain(RACK, "a", "1"))


@pytest.mark.parametrize(
    ("running", "placed", "want_domains"),
    [
        pytest.param([], ["a1", "a2"], [ChosenDomain(RACK, "a")], id="all in one rack"),
        pytest.param([], ["a1", "b1"], [], id="a preference that was not met"),
        pytest.param(["a1"], ["a2", "a2"], [ChosenDomain(RACK, "a")], id="with those that run"),
        pytest.param(["b1"], ["a2", "a2"], [], id="those that run are elsewhere"),
        pytest.param(["gone"], ["a2", "a2"], [], id="one runs nobody knows where"),
    ],
)
def test_domains_that_all_pods_share(
    running: list[str], placed: list[str], want_domains: list[ChosenDomain]
) -> None:
    preferred = (TopologyTerm((RACK,), required=False),)
    snapshot = make_snapshot(
        RACKS,
        make_pods("r", len(running), group="ml/g", on=running),
        make_pods("p", 2, group="ml/g"),
        groups=[make_group("ml/g", 0, size=3, topology=preferred)],
    )
    found = describe(snapshot, {f"ml/p-{i}": node for i, node in enumerate(placed)})
    assert list(found["ml/g"].domains) == want_domains


def test_a_child_that_its_composite_is_placed_without() -> None:
    snapshot = make_snapshot(
        RACKS,
        make_pods("x", 1, group="ml/x"),
        make_pods("y", 1, group="ml/y"),
        groups=[
            GroupRow(Group("ml/top", "composite", "CompositePodGroup", min_groups=1)),
            make_group("ml/x", 1, parent="ml/top"),
            make_group("ml/y", 1, parent="ml/top"),
        ],
    )
    found = describe(snapshot, {"ml/x-0": "a1"})
    assert list(found) == ["ml/x", "ml/y"]
    assert {entry.composite for entry in found.values()} == {"ml/top"}
    assert (found["ml/x"].outcome, found["ml/x"].cause) == ("placed", None)
    left = found["ml/y"].cause
    assert left is not None
    assert (left.name, left.details) == ("busy", {"composite": "ml/top"})


# Figures


def test_criteria() -> None:
    snapshot = make_snapshot(
        [make_node("n1"), make_node("n2")],
        make_pods("p", 2, group="ml/g", spec=make_spec(gpus=2)),
        make_pods("solo", 1, spec=make_spec(gpus=1), priority=3),
        groups=[make_group("ml/g", 2, priority=10)],
    )
    groups = tuple(describe(snapshot, {"ml/p-0": "n1", "ml/p-1": "n1", "ml/solo-0": "n1"}).values())
    rows = {0: 0, 1: 0, 2: 0}
    found = count_criteria(snapshot, groups, rows)
    assert {name: value for name, value in found.items() if value} == {
        "groupsPlaced": 2,
        "podsPlaced": 3,
        "gpusPlaced": 5,
        "weightedGpus": 2 * 2 * 10 + 3,
        "fragmentation": 3,
    }
    assert sum(count_criteria(snapshot, (), {}).values()) == 0


@pytest.mark.parametrize(
    ("levels", "score", "bounds", "want"),
    [
        pytest.param(
            (Level("gpusPlaced"),),
            (64,),
            (64,),
            Bound("gpusPlaced", 64, 0.0, "optimal"),
            id="reached",
        ),
        pytest.param(
            (Level("gpusPlaced"),),
            (48,),
            (64,),
            Bound("gpusPlaced", 64, 0.25, "bound"),
            id="not reached",
        ),
        pytest.param(
            (Level("gpusPlaced"),),
            (48,),
            (None,),
            Bound("gpusPlaced", None, None, "none"),
            id="not known",
        ),
        pytest.param(
            (Level("groupsPlaced"), Level("gpusPlaced")),
            (3, 48),
            (3, 64),
            Bound("gpusPlaced", 64, 0.25, "bound"),
            id="the first level that is not proven",
        ),
        pytest.param(
            (Level("priority", 1, 9), Level("priority", 1, 5)),
            (16, 48),
            (16, 48),
            Bound("gpusPlaced", 64, 0.0, "optimal"),
            id="all priorities: GPUs in all",
        ),
        pytest.param(
            (Level("priority", 1, 9), Level("priority", 1, 5)),
            (16, 48),
            (32, 48),
            Bound("priority", 32, 0.5, "bound"),
            id="of one priority",
        ),
        pytest.param(
            (Level("gpusPlaced", -1),),
            (-4,),
            (0,),
            Bound("gpusPlaced", 0, 4.0, "bound"),
            id="as few as can be",
        ),
    ],
)
def test_bound(
    levels: tuple[Level, ...], score: tuple[int, ...], bounds: tuple[int | None, ...], want: Bound
) -> None:
    assert describe_bound(PlaceResult({}, levels, score, bounds)) == want


NEAR_X = AffinityTerm(RACK, LabelSelector((Requirement("app", "In", ("x",)),)), ("ml",))


@pytest.mark.parametrize(
    ("spec", "group", "want"),
    [
        pytest.param({}, {}, [], id="nothing is left open"),
        pytest.param({"unmodelled": ("volume v",)}, {}, [("ml/g", "volume v")], id="a volume"),
        pytest.param({}, {"unmodelled": ("admission",)}, [("ml/g", "admission")], id="its API"),
        pytest.param({"claims": (make_need(1),)}, {}, [], id="devices that are allocated anew"),
        pytest.param(
            {"claims": (ClaimNeed("c", claim="ml/c", allocated_nodes=()),)},
            {},
            [],
            id="devices that are allocated",
        ),
        pytest.param(
            {"affinity": (NEAR_X,)},
            {},
            [("ml/g", "inter-pod affinity to pods that are pending themselves")],
            id="near pods that are not there",
        ),
    ],
)
def test_conditions(
    spec: dict[str, object],
    group: dict[str, object],
    want: list[tuple[str, str]],
) -> None:
    snapshot = make_snapshot(
        RACKS,
        make_pods("p", 1, group="ml/g#0", spec=make_spec(**spec)),
        groups=[
            make_group("ml/g", 1, **group),
            make_group("ml/g#0", 1, parent="ml/g", kind="subgroup"),
        ],
        devices=make_devices([(0, "gpu", 8, 8)]),
    )
    problem = build_problem(snapshot, Request())
    assert list(find_conditions(snapshot, problem)) == want
