"""Plans carried out in part, against a newer snapshot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders import make_node, make_pods, make_snapshot, make_spec
from repacking import ask_moves, find_bad_prefixes, list_moves

from ray_jobs.repacking import resume_plan
from topology.errors import RequestError
from topology.plan import Request

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan

NODES = {"a": 8, "b": 8, "c": 4, "d": 8}


def make_fleet(without: str = "", **on: str) -> Snapshot:
    """Pod big (6 GPUs) on a and small (4) on b, unless `on` says where; a is to be drained."""
    where = {"big": "a", "small": "b", "full": "d", **on}
    sizes = {"big": 6, "small": 4, "full": 8}
    return make_snapshot(
        [make_node(name, gpus=gpus) for name, gpus in NODES.items() if name != without],
        *(
            make_pods(name, 1, spec=make_spec(gpus=sizes[name]), on=node)
            for name, node in where.items()
            if node
        ),
    )


@pytest.fixture
def plan() -> Plan:
    found = ask_moves(make_fleet(), drain=["a"])
    assert list_moves(found) == [(1, "small-0", "b", "c"), (2, "big-0", "a", "b")]
    return found


@pytest.mark.parametrize(
    ("now", "want_moves", "want_words"),
    [
        pytest.param(
            make_fleet(),
            [(1, "small-0", "b", "c"), (2, "big-0", "a", "b")],
            "0 of 2 steps are done; the other 2 still hold and are kept",
            id="nothing done",
        ),
        pytest.param(
            make_fleet(small="c"),
            [(1, "big-0", "a", "b")],
            "1 of 2 steps are done; the other 1 still hold and are kept",
            id="one step done",
        ),
        pytest.param(
            make_fleet(small="c", big="b"),
            [],
            "2 of 2 steps are done; the other 0 still hold and are kept",
            id="all done",
        ),
        pytest.param(
            make_fleet(without="c", full=""),
            [(1, "big-0", "a", "d")],
            "planned anew, because ml/full-0",
            id="node c is lost, d is free",
        ),
        pytest.param(
            make_fleet(small="d", full=""),
            [(1, "big-0", "a", "b")],
            "ml/small-0 is on d, where the plan never has it",
            id="a pod went elsewhere",
        ),
    ],
)
def test_resume(
    plan: Plan, now: Snapshot, want_moves: list[tuple[int, str, str, str]], want_words: str
) -> None:
    found = resume_plan(now, plan)
    assert list_moves(found) == want_moves
    assert want_words.split(",")[0] in found.warnings[0]
    assert found.verification is not None
    assert found.verification.is_valid
    assert find_bad_prefixes(now, found) == []


def test_a_node_lost_in_the_middle_is_named(plan: Plan) -> None:
    found = resume_plan(make_fleet(without="c"), plan)
    assert "node c is gone" in found.warnings[0]


def test_only_plans_of_repack(plan: Plan) -> None:
    other = replace(plan, request=Request(command="place"))
    with pytest.raises(RequestError, match="is a plan of place"):
        resume_plan(make_fleet(), other)
