"""Goals: domains to empty, nodes to drain, groups to make room for, less fragmentation."""

from __future__ import annotations

from typing import Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from repacking import ask_moves, list_goals, list_moves

import gangplan
from topology.errors import RequestError
from topology.model import HOSTNAME, Exclusive, PodFlag, Snapshot


def make_racks(**fields: Any) -> Snapshot:
    """Racks a, b, c of two nodes; a holds 2 GPUs of work, b 3, c none."""
    nodes = [make_node(f"{rack}{i}", gpus=4, rack=rack) for rack in "abc" for i in range(2)]
    return make_snapshot(
        nodes,
        make_pods("a", 1, spec=make_spec(gpus=2), on="a0"),
        make_pods("b", 1, spec=make_spec(gpus=3), on="b0"),
        **fields,
    )


@pytest.mark.parametrize(
    ("free", "want_moves", "want_goals"),
    [
        pytest.param(f"{RACK}:1", [], [(f"free {RACK}:1", 1, 1)], id="one is empty already"),
        pytest.param(
            f"{RACK}:2", [(1, "a-0", "a0", "b1")], [(f"free {RACK}:2", 2, 2)], id="the cheapest"
        ),
        pytest.param(
            f"{RACK}=b", [(1, "b-0", "b0", "a1")], [(f"free {RACK}=b:1", 1, 1)], id="the named"
        ),
        pytest.param(f"{RACK}:0", [], [(f"free {RACK}:0", 0, 0)], id="none"),
    ],
)
def test_free(
    free: str, want_moves: list[tuple[int, str, str, str]], want_goals: list[Any]
) -> None:
    plan = ask_moves(make_racks(), free=[free])
    assert (list_moves(plan), list_goals(plan)) == (want_moves, want_goals)


@pytest.mark.parametrize(
    ("options", "want"),
    [
        pytest.param({"free": [f"{RACK}:4"]}, "there are only 3 such domains", id="too many"),
        pytest.param({"free": ["zone:1"]}, "has the label 'zone'", id="no such key"),
        pytest.param({"free": [f"{RACK}=z"]}, f"no node has {RACK}=z", id="no such domain"),
        pytest.param({"drain": ["a9"]}, "no node of that name was read", id="no such node"),
        pytest.param({"objective": ("max:moves",)}, "min:moves", id="moves to be many"),
    ],
)
def test_refuses(options: dict[str, Any], want: str) -> None:
    with pytest.raises(RequestError, match=want):
        gangplan.repack(make_racks(), **options)


def reason_of(plan: Any) -> str:
    (goal,) = plan.goals
    assert goal.reached < goal.wanted
    return str(goal.reason)


def test_contradictory_goals_are_answered_with_the_reason() -> None:
    plan = ask_moves(make_racks(), free=[f"{RACK}=a"], keep=("ml/a-0",))
    assert reason_of(plan) == "only 0 can be emptied; ml/a-0 on a0: --keep ml/a-0"


def test_limits_are_named_in_the_reason() -> None:
    plan = ask_moves(make_racks(), free=[f"{RACK}=a"], max_moves=0)
    assert reason_of(plan).endswith("within --max-moves 0")


def test_a_group_restarts_where_its_topology_and_exclusivity_hold() -> None:
    nodes = [make_node(f"{rack}{i}", gpus=2, rack=rack) for rack in "abc" for i in range(2)]
    exclusive = (Exclusive("ml", RACK),)
    snapshot = make_snapshot(
        nodes,
        make_pods("g", 2, spec=make_spec(gpus=2), on=["a0", "a1"], group="ml/g"),
        make_pods("h", 1, spec=make_spec(gpus=1), on="b0", group="ml/h"),
        groups=[
            make_group("ml/g", 2, key=RACK, disruption="all", exclusive=exclusive),
            make_group("ml/h", 1, key=RACK, disruption="all", exclusive=exclusive),
        ],
    )
    plan = ask_moves(snapshot, free=[f"{RACK}=a"], mode="restart")
    assert {(move.pod, move.target[0]) for move in plan.moves} == {
        ("ml/g-0", "c"),
        ("ml/g-1", "c"),
    }


def test_a_live_pod_does_not_leave_the_rack_of_its_gang() -> None:
    nodes = [make_node(f"{rack}{i}", gpus=4, rack=rack) for rack in "ab" for i in range(2)]
    snapshot = make_snapshot(
        nodes,
        make_pods("g", 2, spec=make_spec(gpus=2), on=["a0", "a1"], group="ml/g"),
        groups=[make_group("ml/g", 2, key=RACK)],
    )
    assert ask_moves(snapshot, free=[f"{RACK}=a"], mode="live").moves == ()
    assert len(ask_moves(snapshot, free=[f"{RACK}=a"], mode="restart").moves) == 2
    assert list_moves(ask_moves(snapshot, drain=["a0"], mode="live")) == [(1, "g-0", "a0", "a1")]


def test_fragmentation_without_a_goal() -> None:
    snapshot = make_snapshot(
        [make_node(f"n{i}", gpus=4) for i in range(3)],
        make_pods("p", 3, spec=make_spec(gpus=1), on=["n0", "n1", "n2"]),
    )
    plan = ask_moves(snapshot)
    # All three on one node leaves the others whole: 8 of 9 free GPUs.
    assert (len(plan.moves), plan.criteria["fragmentation"]) == (2, 1)
    assert plan.criteria["domainsFreed"] == 2


@pytest.mark.parametrize(
    ("unit", "want_evicted"),
    [
        pytest.param("group", ["ml/g-0", "ml/g-1"], id="the whole group"),
        pytest.param("pod", ["ml/g-0"], id="a pod alone"),
    ],
)
def test_drain_evicts_what_finds_no_room(unit: str, want_evicted: list[str]) -> None:
    snapshot = make_snapshot(
        [make_node("a", gpus=2), make_node("b", gpus=2)],
        make_pods("g", 2, spec=make_spec(gpus=2), on=["a", "b"], group="ml/g"),
        make_pods("agent", 1, spec=make_spec(gpus=0), on="a", flags=PodFlag.DAEMON),
        groups=[make_group("ml/g", 2, disruption="all")],
    )
    plan = ask_moves(snapshot, drain=["a"], drain_unit=unit)
    assert [e.pod for e in plan.evictions] == want_evicted
    assert {e.reason for e in plan.evictions} == {"drain"}
    assert list_goals(plan) == [("drain a", 1, 1)]
    assert plan.groups[0].group == "ml/g"


def test_drain_places_anew_what_may_not_be_moved() -> None:
    snapshot = make_snapshot(
        [make_node("a"), make_node("b")],
        make_pods("p", 1, on="a", flags=PodFlag.NOT_MOVABLE),
    )
    plan = ask_moves(snapshot, drain=["a"])
    assert [e.pod for e in plan.evictions] == ["ml/p-0"]
    assert [(p.pod, p.node) for p in plan.groups[0].pods] == [("ml/p-0", "b")]


def test_combined_goals() -> None:
    plan = ask_moves(make_racks(), free=[f"{RACK}:2"], drain=["b1"])
    assert list_goals(plan) == [(f"free {RACK}:2", 2, 2), ("drain b1", 1, 1)]


def test_a_node_is_a_domain_too() -> None:
    plan = ask_moves(make_racks(), free=[f"{HOSTNAME}:5"])
    # The two pods do not fit one node together.
    assert list_goals(plan) == [(f"free {HOSTNAME}:5", 4, 5)]
