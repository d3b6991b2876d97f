"""Waves of moves: who waits for whom, circles, limits."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec
from repacking import ask_moves, list_goals, list_moves

from topology.model import Budget, LabelSelector, Requirement, Snapshot


def make_chain() -> Snapshot:
    """Node a must come free: its pod fits only b, once b's pod went to c."""
    return make_snapshot(
        [make_node("a", gpus=8), make_node("b", gpus=8), make_node("c", gpus=4)],
        make_pods("big", 1, spec=make_spec(gpus=6), on="a"),
        make_pods("small", 1, spec=make_spec(gpus=4), on="b"),
    )


@pytest.mark.parametrize("mode", ["live", "restart"])
def test_chain(mode: str) -> None:
    plan = ask_moves(make_chain(), drain=["a"], mode=mode)
    assert list_moves(plan) == [(1, "small-0", "b", "c"), (2, "big-0", "a", "b")]


def make_exchange() -> Snapshot:
    """Pods x (5 GPUs) and y (6) are to change places, and there is no third node."""
    return make_snapshot(
        [
            make_node("l", gpus=8, labels={"side": "left"}),
            make_node("r", gpus=8, labels={"side": "right"}),
        ],
        make_pods("x", 1, spec=make_spec(gpus=5), on="l"),
        make_pods("y", 1, spec=make_spec(gpus=6), on="r"),
        # Needs 3 GPUs beside the 5 on the right; and nothing else will do.
        make_pods(
            "ask", 1, spec=make_spec(gpus=3, node_selector=(("side", "right"),)), group="ml/ask"
        ),
        groups=[make_group("ml/ask", 1)],
    )


def test_exchange_by_stopping_together() -> None:
    plan = ask_moves(make_exchange(), "ml/ask", mode="restart")
    assert list_moves(plan) == [(1, "x-0", "l", "r"), (1, "y-0", "r", "l")]


def test_exchange_has_no_order_without_a_third_node() -> None:
    plan = ask_moves(make_exchange(), "ml/ask", mode="live")
    assert (plan.moves, plan.groups[0].outcome) == ((), "notPlaced")


def make_crowd(**fields: Any) -> Snapshot:
    """Four pods to leave one node for four others."""
    return make_snapshot(
        [make_node("a"), *(make_node(f"n{i}", gpus=2) for i in range(4))],
        make_pods("p", 4, spec=make_spec(gpus=2), on="a", labels={"app": "x"}),
        **fields,
    )


@pytest.mark.parametrize("mode", ["live", "restart"])
@pytest.mark.parametrize(
    ("most", "want_waves"),
    [
        pytest.param(None, [1, 1, 1, 1], id="all at once"),
        pytest.param(3, [1, 1, 1, 2], id="three at once"),
        pytest.param(1, [1, 2, 3, 4], id="one after another"),
    ],
)
def test_max_parallel(mode: str, most: int | None, want_waves: list[int]) -> None:
    plan = ask_moves(make_crowd(), drain=["a"], mode=mode, max_parallel=most)
    assert [m.wave for m in plan.moves] == want_waves


@pytest.mark.parametrize("mode", ["live", "restart"])
def test_budgets_hold_wave_by_wave(mode: str) -> None:
    budget = Budget("ml/pdb", LabelSelector((Requirement("app", "In", ("x",)),)), 2)
    plan = ask_moves(make_crowd(budgets=(budget,)), drain=["a"], mode=mode)
    assert [m.wave for m in plan.moves] == [1, 1, 2, 2]
    assert list_goals(plan) == [("drain a", 1, 1)]


def test_a_gang_keeps_its_floor() -> None:
    snapshot = make_snapshot(
        [make_node("a"), *(make_node(f"n{i}", gpus=2) for i in range(4))],
        make_pods("p", 4, spec=make_spec(gpus=2), on="a", group="ml/g"),
        groups=[make_group("ml/g", 3, size=4)],
    )
    plan = ask_moves(snapshot, drain=["a"], mode="restart")
    assert [m.wave for m in plan.moves] == [1, 2, 3, 4]
