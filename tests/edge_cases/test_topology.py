"""Topology constraints and composite groups as they show in a plan."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of, group_of, placed, pods_of, spread, why_not
from builders import RACK
from kube import GPU, composite, gang, node, pod

Obj = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
ONE_RACK = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
ONE_ZONE = {"schedulingConstraints": {"topology": [{"key": ZONE}]}}
BASIC = {"schedulingPolicy": {"basic": {}}}


def machine(name: str, gpus: int, rack: str = "", zone: str = "", **spec: Any) -> Obj:
    """A node of a rack and a zone with so many GPUs."""
    labels = {**({RACK: rack} if rack else {}), **({ZONE: zone} if zone else {})}
    return node(
        name,
        labels=labels,
        spec=spec,
        allocatable={"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)},
    )


def members(group: str, count: int, *, start: int = 0, **fields: Any) -> list[Obj]:
    """Pods <group><start> … of a group."""
    return [pod(f"{group}{i}", group=group, **fields) for i in range(start, start + count)]


def child(name: str, min_count: int, parent: str = "top", **spec: Any) -> Obj:
    """A gang below a composite, made from the same Workload."""
    reference = {"workloadName": "w", "templateName": "t"}
    return gang(name, min_count, parentCompositePodGroupName=parent, workloadRef=reference, **spec)


def test_case_27_a_rack_that_holds_the_gang_is_chosen_the_tightest_first() -> None:
    plan = ask(
        machine("a", 6, "r6"),
        machine("b", 8, "r8"),
        machine("c", 8, "r16"),
        machine("d", 8, "r16"),
        gang("g", 8, **ONE_RACK),
        *members("g", 8),
    )
    assert spread(plan) == {"b": 8}
    assert [(d.key, d.value) for d in group_of(plan).domains] == [(RACK, "r8")]


def test_case_27_without_the_right_rack_two_nodes_share_the_gang() -> None:
    plan = ask(
        machine("a", 6, "r6"),
        machine("c", 6, "r12"),
        machine("d", 6, "r12"),
        gang("g", 8, **ONE_RACK),
        *members("g", 8),
    )
    assert spread(plan) == {"c": 6, "d": 2} or spread(plan) == {"c": 2, "d": 6}


def test_case_28_a_node_without_the_label_is_never_used() -> None:
    plan = ask(
        machine("big", 64),
        machine("a", 3, "r1"),
        gang("g", 4, **ONE_RACK),
        *members("g", 4),
    )
    assert placed(plan) == {}
    (warning,) = plan.warnings
    assert warning == f"1 of 2 nodes lack the label {RACK} and are in no such domain"


def test_case_29_no_node_has_the_label() -> None:
    plan = ask(machine("a", 8), gang("g", 4, **ONE_RACK), *members("g", 4))
    assert why_not(plan) == {"ml/g": "impossible"}
    assert plan.errors == ()
    assert cause_of(plan).message == (
        f"no node that can hold its pods carries the label {RACK}, which it requires; "
        "label the nodes"
    )


@pytest.mark.parametrize(
    ("min_count", "room", "want", "want_cause"),
    [
        pytest.param(4, (2, 8), {}, "domain-pinned", id="case 30: A full, B free"),
        pytest.param(4, (4, 8), {"a": 2}, None, id="A has room"),
        pytest.param(3, (3, 8), {"a": 1}, None, id="A has room for the floor alone"),
        pytest.param(2, (2, 8), {}, "domain-pinned", id="floor kept, A full"),
        pytest.param(4, (2, 1), {}, "busy", id="neither has room"),
    ],
)
def test_case_30_running_members_hold_the_rest_to_their_rack(
    min_count: int, room: tuple[int, int], want: dict[str, int], want_cause: str | None
) -> None:
    plan = ask(
        machine("a", room[0], "A"),
        machine("b", room[1], "B"),
        machine("c", 4, "C"),
        gang("g", min_count, **ONE_RACK),
        *members("g", 2, on="a"),
        *members("g", 2, start=2),
        *([pod("x", group="", on="c") for _ in range(1)]),
        *([pod(f"y{i}", on="c") for i in range(3)]),
    )
    assert spread(plan) == want
    assert why_not(plan) == ({"ml/g": want_cause} if want_cause else {})


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(machine("b", 8, "B"), id="case 31: two racks"),
        pytest.param(machine("b", 8), id="case 31: one on an unlabelled node"),
    ],
)
def test_case_31_running_members_in_two_racks_stop_the_group(second: Obj) -> None:
    plan = ask(
        machine("a", 8, "A"),
        second,
        gang("g", 4, **ONE_RACK),
        *members("g", 1, on="a"),
        *members("g", 1, start=1, on="b"),
        *members("g", 2, start=2),
    )
    assert placed(plan) == {}
    cause = cause_of(plan)
    assert cause.name == "domain-pinned"
    assert f"its 2 running members are not in one {RACK}" in cause.message


def test_case_31_a_running_member_on_a_node_that_was_not_read_stops_the_group() -> None:
    plan = ask(
        machine("a", 8, "A"),
        gang("g", 2, **ONE_RACK),
        *members("g", 1, on="lost"),
        *members("g", 1, start=1),
    )
    assert why_not(plan) == {"ml/g": "domain-pinned"}


def test_case_32_a_rack_name_in_two_zones_is_one_domain_and_is_reported() -> None:
    plan = ask(
        machine("a", 2, "r1", "a"),
        machine("b", 2, "r1", "b"),
        machine("c", 2, "r2", "a"),
        machine("d", 2, "r3", "b"),
        gang("g", 4, **ONE_RACK),
        *members("g", 4),
    )
    assert spread(plan) == {"a": 2, "b": 2}
    assert plan.warnings == (
        f"1 values of {RACK} stand under several values of {ZONE} (r1): a group that requires "
        f"{RACK} sees each as one domain; make the labels unique",
    )


@pytest.mark.parametrize(
    ("room", "want"),
    [
        pytest.param((4, 4), [{"a": 4}, {"b": 4}], id="a rack each"),
        pytest.param((8, 3), [{"a": 4}, {"a": 4}], id="the same rack"),
    ],
)
def test_case_33_groups_of_one_template_choose_on_their_own(
    room: tuple[int, int], want: list[dict[str, int]]
) -> None:
    plan = ask(
        machine("a", room[0], "A"),
        machine("b", room[1], "B"),
        gang("g", 4, **ONE_RACK),
        gang("h", 4, **ONE_RACK),
        *members("g", 4),
        *members("h", 4),
    )
    found = [spread(plan, "ml/g"), spread(plan, "ml/h")]
    assert sorted(found, key=str) == want


def test_case_34_children_choose_their_racks_inside_the_zone_of_the_composite() -> None:
    plan = ask(
        machine("a1", 4, "a1", "a"),
        machine("a2", 3, "a2", "a"),
        machine("b1", 4, "b1", "b"),
        machine("b2", 4, "b2", "b"),
        composite("top", 2, **ONE_ZONE),
        child("g", 4, **ONE_RACK),
        child("h", 4, **ONE_RACK),
        *members("g", 4),
        *members("h", 4),
    )
    found = [spread(plan, "ml/g"), spread(plan, "ml/h")]
    assert sorted(found, key=str) == [{"b1": 4}, {"b2": 4}]
    assert [d.key for d in group_of(plan).domains] == [RACK]
    assert group_of(plan).composite == "ml/top"


@pytest.mark.parametrize(
    ("racks", "want"),
    [
        pytest.param({"a1": 8, "a2": 2}, [{"a1": 4}, {"a1": 4}], id="case 35: zone a, one rack"),
        pytest.param({"b1": 4, "b2": 4}, [{"b1": 4}, {"b2": 4}], id="case 35: zone b, one each"),
        pytest.param({"c1": 6, "c2": 2}, [{}, {}], id="case 35: neither"),
    ],
)
def test_case_35_two_children_of_4(racks: dict[str, int], want: list[dict[str, int]]) -> None:
    plan = ask(
        *(machine(name, gpus, name, "z") for name, gpus in racks.items()),
        composite("top", 2, **ONE_ZONE),
        child("g", 4, **ONE_RACK),
        child("h", 4, **ONE_RACK),
        *members("g", 4),
        *members("h", 4),
    )
    assert sorted([spread(plan, "ml/g"), spread(plan, "ml/h")], key=str) == want


@pytest.mark.parametrize(
    ("min_groups", "want"),
    [
        pytest.param(2, {"ml/h": 2, "ml/i": 2}, id="case 36: 2 of 3 suffice"),
        pytest.param(3, {}, id="case 37: 3 of 3 are needed"),
    ],
)
def test_a_composite_of_three_with_one_child_that_never_fits(
    min_groups: int, want: dict[str, int]
) -> None:
    plan = ask(
        machine("a", 4, "A", "z"),
        composite("top", min_groups),
        child("g", 8),
        child("h", 2),
        child("i", 2),
        *members("g", 8),
        *members("h", 2),
        *members("i", 2),
    )
    assert placed(plan) == want
    assert group_of(plan).pending_pods == tuple(f"ml/g{i}" for i in range(8))


def test_case_38_one_child_leaves_room_for_the_other() -> None:
    plan = ask(
        machine("a", 8, "A", "z"),
        composite("top", 2),
        child("g", 2),
        child("h", 4),
        *members("g", 8),
        *members("h", 4),
    )
    assert placed(plan) == {"ml/g": 4, "ml/h": 4}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param(
            [composite("top", 1), child("g", 1, **BASIC), *members("g", 3)],
            {"ml/g": 3},
            id="a basic child with pods",
        ),
        pytest.param(
            [
                composite("top", 2),
                child("g", 1, **BASIC),
                child("h", 8),
                *members("g", 3),
                *members("h", 8),
            ],
            {},
            id="a basic child and one that does not fit, both needed",
        ),
        pytest.param(
            [
                composite("top", schedulingPolicy={"basic": {}}),
                child("g", 8),
                child("h", 4),
                *members("g", 8),
                *members("h", 4),
            ],
            {"ml/h": 4},
            id="a basic composite takes what fits",
        ),
        pytest.param(
            [
                composite("top", 1),
                composite("mid", 2, parentCompositePodGroupName="top"),
                child("g", 2, "mid"),
                child("h", 2, "mid"),
                *members("g", 2),
                *members("h", 2),
            ],
            {"ml/g": 2, "ml/h": 2},
            id="three levels",
        ),
        pytest.param(
            [
                composite("top", 2),
                child("g", 2),
                child("h", 2),
                *members("g", 2, on="a"),
                *members("h", 2),
            ],
            {"ml/h": 2},
            id="one child runs already",
        ),
        pytest.param(
            [composite("top", 2), child("g", 2), *members("g", 2)],
            {},
            id="fewer children than needed",
        ),
        pytest.param(
            [child("g", 2, "lost"), *members("g", 2)], {}, id="the composite is not there"
        ),
    ],
)
def test_composites(objects: list[Obj], want: dict[str, int]) -> None:
    assert placed(ask(machine("a", 5, "A", "z"), *objects)) == want


def test_running_children_pin_the_zone_of_the_composite() -> None:
    plan = ask(
        machine("a1", 4, "a1", "a"),
        machine("b1", 8, "b1", "b"),
        composite("top", 2, **ONE_ZONE),
        child("g", 2),
        child("h", 2),
        *members("g", 2, on="a1"),
        *members("h", 2),
    )
    assert pods_of(plan, "ml/h") == {"h0": "a1", "h1": "a1"}


def test_cordoned_nodes_of_the_chosen_rack_are_left_out() -> None:
    plan = ask(
        machine("a1", 8, "A", unschedulable=True),
        machine("a2", 2, "A"),
        machine("b1", 4, "B"),
        gang("g", 4, **ONE_RACK),
        *members("g", 4),
    )
    assert spread(plan) == {"b1": 4}
