"""Gangs that wait for one another's GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from asking import ask, cause_of
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from kube import container, gang, node, pod

from optimizer.deadlocks import find_deadlocks

if TYPE_CHECKING:
    from topology.assemble import GroupRow, PodRow
    from topology.model import Node

WHOLE = make_spec(gpus=8)


def nodes(count: int, rack: str = "r0") -> list[Node]:
    return [make_node(f"{rack}-{i}", rack=rack) for i in range(count)]


def partial(name: str, on: list[str], pending: int, **fields: Any) -> tuple[list[PodRow], GroupRow]:
    """A gang of whole nodes, some of whose pods run."""
    ref = f"ml/{name}"
    spread = [*on, *[""] * pending]
    size = len(spread)
    return (
        make_pods(name, size, group=ref, spec=WHOLE, on=spread),
        make_group(ref, fields.pop("min_count", size), size=size, **fields),
    )


def solve(fleet: list[Node], *gangs: tuple[list[PodRow], GroupRow], extra: Any = ()) -> Any:
    snapshot = make_snapshot(
        fleet, *(pods for pods, _ in gangs), extra, groups=[group for _, group in gangs]
    )
    return [
        [(g.group, g.running, g.min_count, g.gpus, g.missing) for g in deadlock.gangs]
        for deadlock in find_deadlocks(snapshot)
    ]


def names(start: int, end: int, rack: str = "r0") -> list[str]:
    return [f"{rack}-{i}" for i in range(start, end)]


@pytest.mark.parametrize(
    ("fleet", "gangs", "want_deadlocks"),
    [
        pytest.param(
            nodes(14),
            [partial("a", names(0, 7), 1), partial("b", names(7, 14), 1)],
            [[("ml/a", 7, 8, 56, 8), ("ml/b", 7, 8, 56, 8)]],
            id="seven of eight, twice",
        ),
        pytest.param(
            nodes(6),
            [
                partial("a", names(0, 2), 1),
                partial("b", names(2, 4), 1),
                partial("c", names(4, 6), 1),
            ],
            [[("ml/a", 2, 3, 16, 8), ("ml/b", 2, 3, 16, 8), ("ml/c", 2, 3, 16, 8)]],
            id="three in a ring",
        ),
        pytest.param(
            nodes(15),
            [partial("a", names(0, 7), 1), partial("b", names(7, 14), 1)],
            [],
            id="room for one of them",
        ),
        pytest.param(
            nodes(7),
            [partial("a", names(0, 6), 2), partial("b", names(6, 7), 1)],
            [],
            id="one could not run even then",
        ),
        pytest.param(
            nodes(4),
            [partial("a", names(0, 2), 1), partial("b", names(2, 4), 1, min_count=2)],
            [],
            id="the other runs well",
        ),
        pytest.param(
            [*nodes(4), *nodes(4, "r1")],
            [
                partial("a", names(0, 2), 1, key=RACK),
                partial("b", names(2, 4), 1, key=RACK),
                partial("c", names(0, 2, "r1"), 1, key=RACK),
                partial("d", names(2, 4, "r1"), 1, key=RACK),
            ],
            [
                [("ml/a", 2, 3, 16, 8), ("ml/b", 2, 3, 16, 8)],
                [("ml/c", 2, 3, 16, 8), ("ml/d", 2, 3, 16, 8)],
            ],
            id="one in each rack",
        ),
        pytest.param(
            [*nodes(2), *nodes(2, "r1")],
            [
                partial("a", names(0, 2), 1, key=RACK),
                partial("b", names(0, 2, "r1"), 1, key=RACK),
            ],
            [],
            id="in racks of their own",
        ),
        pytest.param(nodes(2), [partial("a", names(0, 2), 1)], [], id="alone"),
    ],
)
def test_finds(fleet, gangs, want_deadlocks):
    assert solve(fleet, *gangs) == want_deadlocks


def test_others_in_the_way_are_no_deadlock():
    fixed = make_pods("x", 2, spec=WHOLE, on=names(2, 4))
    gangs = [partial("a", names(0, 1), 2), partial("b", names(1, 2), 2)]
    assert solve(nodes(4), *gangs, extra=fixed) == []


def test_explain_names_the_others():
    objects = [
        *(node(f"n{i}") for i in range(4)),
        *(gang(name, 3) for name in "ab"),
        *(
            pod(f"{name}{i}", container(gpus=8), group=name, on=f"n{first + i}" if i < 2 else "")
            for first, name in ((0, "a"), (2, "b"))
            for i in range(3)
        ),
    ]
    cause = cause_of(ask(*objects, command="explain"), "ml/a")
    assert cause.name == "busy"
    assert "; it and ml/b block one another: each holds GPUs that the others need" in cause.message
    assert cause.details["deadlock"] == ["ml/b"]
    assert "deadlock" not in cause_of(ask(*objects, command="place"), "ml/a").details
