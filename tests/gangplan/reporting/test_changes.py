"""What a plan would do to each node."""

from __future__ import annotations

from typing import Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from plan_builders import make_plan

from gangplan.reporting.changes import Badge, find_changes, show_running
from gangplan.reporting.fleet import fleet_of_plan, fleet_of_snapshot
from topology.model import Snapshot, Taint
from topology.plan import Move


def make_fleet() -> Snapshot:
    """Three nodes; `old` runs on n0, `mover` on n1, gang `new` waits, n2 is tainted."""
    two = make_spec(gpus=2)
    return make_snapshot(
        [
            make_node("n0", gpus=4, rack="a"),
            make_node("n1", gpus=4, rack="a"),
            make_node("n2", gpus=4, rack="b", taints=[Taint("broken")]),
        ],
        make_pods("old", 1, group="ml/old", spec=two, on="n0", priority=5),
        make_pods("mover", 1, on="n1"),
        make_pods("new", 2, group="ml/new", spec=two),
        groups=[make_group("ml/old", 1, priority=5), make_group("ml/new", 2, priority=9)],
    )


def say(moment: Any) -> list[tuple[int, int, list[tuple[str, str, int]]]]:
    """Used, free and shares of each node."""
    shares = [[tuple(s) for s in moment.shares.get(n, ())] for n in range(len(moment.used))]
    return list(zip(moment.used.tolist(), moment.free.tolist(), shares, strict=True))


def test_place_and_evict() -> None:
    snapshot = make_fleet()
    plan = make_plan(snapshot, {"ml/new-0": "n0", "ml/new-1": "n0"}, victims={"ml/old-0": "ml/new"})
    changes = find_changes(fleet_of_snapshot(snapshot), plan)
    assert say(changes.before) == [
        (2, 2, [("ml/old-0", "evicted", 2)]),
        (1, 3, []),
        (0, 0, []),
    ]
    assert say(changes.after) == [
        (4, 0, [("ml/new", "placed", 4)]),
        (1, 3, []),
        (0, 0, []),
    ]
    assert changes.badges == {"ml/new": Badge("A", 0), "ml/old-0": Badge("B", 1)}
    assert changes.roles == {"ml/new": ("placed",), "ml/old-0": ("would be evicted",)}
    assert changes.touched == {0}


@pytest.mark.parametrize(
    ("moves", "want_before", "want_after"),
    [
        pytest.param(
            [("n1", "n0")], [(2, []), (1, ["leaves"])], [(3, ["arrives"]), (0, [])], id="one"
        ),
        pytest.param(
            [("n1", "n2"), ("n2", "n0")],
            [(2, []), (1, ["leaves"])],
            [(3, ["arrives"]), (0, [])],
            id="by way of another node",
        ),
        pytest.param(
            [("n1", "n0"), ("n0", "n1")], [(2, []), (1, [])], [(2, []), (1, [])], id="and back"
        ),
    ],
)
def test_moves_count_from_first_source_to_last_target(
    moves: list[tuple[str, str]],
    want_before: list[tuple[int, list[str]]],
    want_after: list[tuple[int, list[str]]],
) -> None:
    snapshot = make_fleet()
    steps = [
        Move(i + 1, i + 1, "ml/mover-0", source, target, "live")
        for i, (source, target) in enumerate(moves)
    ]
    changes = find_changes(fleet_of_snapshot(snapshot), make_plan(snapshot, {}, moves=steps))
    for view, want in ((changes.before, want_before), (changes.after, want_after)):
        found = [(used, [mark for _, mark, _ in shares]) for used, _, shares in say(view)[:2]]
        assert found == want


def test_a_plan_alone_shows_a_slot_for_each_pod() -> None:
    snapshot = make_fleet()
    plan = make_plan(snapshot, {"ml/new-0": "n0", "ml/new-1": "n1"}, victims={"ml/old-0": "ml/new"})
    fleet = fleet_of_plan(plan)
    changes = find_changes(fleet, plan)
    assert fleet.is_partial
    assert fleet.nodes == ("n0", "n1")
    assert [shares for _, _, shares in say(changes.before)] == [[("ml/old-0", "evicted", 1)], []]
    assert [shares for _, _, shares in say(changes.after)] == [
        [("ml/new", "placed", 1)],
        [("ml/new", "placed", 1)],
    ]


def test_nodes_of_another_fleet_are_counted() -> None:
    snapshot = make_fleet()
    plan = make_plan(snapshot, {"ml/new-0": "n0", "ml/new-1": "gone"})
    assert find_changes(fleet_of_snapshot(snapshot), plan).unknown_nodes == 1


def test_running_groups_are_badged_by_size() -> None:
    snapshot = make_snapshot(
        [make_node("n0", rack="a"), make_node("n1", rack="b")],
        make_pods("small", 1, group="ml/small", on="n0"),
        make_pods("large", 3, group="ml/large", on="n1"),
        make_pods("single", 4, on="n0"),
        groups=[make_group("ml/small", 1), make_group("ml/large", 3)],
    )
    fleet = fleet_of_snapshot(snapshot)
    changes = show_running(fleet)
    assert list(changes.badges) == ["ml/large", "ml/small"]
    assert changes.roles == {"ml/large": ("3 GPUs",), "ml/small": ("1 GPU",)}
    assert changes.touched == frozenset()
    assert [column.key for tree in fleet.trees for column in tree] == []  # a rack for each node
    assert RACK in snapshot.nodes[0].labels
