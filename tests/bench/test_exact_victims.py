"""The model that preemption is measured against, on fleets whose answer is plain to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

pytest.importorskip("ortools")

from bench.exact_victims import NOBODY, count_plan, list_steps, solve_preemption
from bench.victim_fleets import draw_question
from topology.model import Budget, LabelSelector

if TYPE_CHECKING:
    from topology.assemble import GroupRow, PodRow
    from topology.model import Snapshot

DEFAULT = ("max:priority", "min:pdbViolations", "min:highestVictimPriority", "min:victimUnits")
FEW = ("max:gpusPlaced", "min:victimPods")


def gang(name: str, count: int, gpus: int, priority: int = 10, **fields: Any) -> Any:
    """A waiting gang: its pods and its group."""
    spec = make_spec(gpus=gpus)
    pods = make_pods(name, count, spec=spec, group=f"ml/{name}", priority=priority)
    return pods, make_group(f"ml/{name}", count, priority=priority, **fields)


def fleet(
    *pods: list[PodRow], groups: list[GroupRow], nodes: int = 2, budgets: tuple[Budget, ...] = ()
) -> Snapshot:
    machines = [make_node(f"n{i}", rack=f"r{i}") for i in range(nodes)]
    return make_snapshot(machines, *pods, groups=groups, budgets=budgets)


def unit(name: str, nodes: list[str], gpus: int, priority: int = 0) -> Any:
    """A running group that goes whole."""
    pods = make_pods(
        name, len(nodes), spec=make_spec(gpus=gpus), on=nodes, group=f"ml/{name}", priority=priority
    )
    return pods, make_group(f"ml/{name}", 1, disruption="all", priority=priority)


def test_unit_is_charged_whole() -> None:
    """One pod of a unit of three is in the way; two single pods elsewhere are fewer."""
    whole, owner = unit("x", ["n0", "n1", "n1"], 4)
    alone = make_pods("y", 2, spec=make_spec(gpus=2), on="n0")
    new, group = gang("g", 1, 4)
    snapshot = fleet(whole, alone, new, groups=[owner, group])
    assert solve_preemption(snapshot, list_steps(snapshot, FEW), pdb="soft").levels == (4, -2)


@pytest.mark.parametrize(
    ("pdb", "want"),
    [
        pytest.param("soft", (8, -1, 0, -1, -1), id="soft: exceeded by one"),
        pytest.param("hard", (0, 0, NOBODY, 0, 0), id="hard: nobody goes"),
    ],
)
def test_budgets(pdb: str, want: tuple[int, ...]) -> None:
    old = make_pods("x", 1, spec=make_spec(gpus=8), on="n0")
    new, group = gang("g", 1, 8)
    snapshot = fleet(
        old, new, groups=[group], nodes=1, budgets=(Budget("ml/b", LabelSelector(), 0),)
    )
    found = solve_preemption(snapshot, list_steps(snapshot, DEFAULT), pdb=pdb)
    assert (found.levels, found.proven) == (want, True)


def test_rack_with_the_cheaper_victims() -> None:
    left, first = unit("x", ["n0"], 8, priority=5)
    right = make_pods("y", 2, spec=make_spec(gpus=4), on="n1")
    new, group = gang("g", 2, 4, key=RACK)
    snapshot = fleet(left, right, new, groups=[first, group])
    found = solve_preemption(snapshot, list_steps(snapshot, DEFAULT), pdb="soft")
    assert found.levels == (8, 0, 0, -2, -2)
    assert found.nodes == {"ml/g-0": "n1", "ml/g-1": "n1"}


def test_equal_priority_stays() -> None:
    old = make_pods("x", 1, spec=make_spec(gpus=8), on="n0", priority=10)
    new, group = gang("g", 1, 8)
    snapshot = fleet(old, new, groups=[group], nodes=1)
    assert solve_preemption(snapshot, list_steps(snapshot, FEW), pdb="soft").levels == (0, 0)


def test_nobody_goes_on_behalf_of_a_lower_priority() -> None:
    """High fits on n1 as it is; that low could have n1 if high took n0 moves nobody of 15."""
    old = make_pods("x", 1, spec=make_spec(gpus=8), on="n0", priority=15)
    high, above = gang("h", 1, 8, priority=20)
    low, below = gang("g", 1, 8, priority=10)
    snapshot = fleet(old, high, low, groups=[above, below])
    steps = list_steps(snapshot, DEFAULT)
    found = solve_preemption(snapshot, steps, pdb="soft")
    assert found.levels == (8, 0, NOBODY, 0, 0, 0, 0, NOBODY, 0, 0)
    assert found.levels == count_plan(snapshot, ["ml/h-0"], [], steps)


@pytest.mark.parametrize("seed", range(0, 40, 4))
def test_fleets_repeat_and_are_as_asked(seed: int) -> None:
    question = draw_question(seed)
    again = draw_question(seed)
    assert question.snapshot.pods.refs == again.snapshot.pods.refs
    assert question.snapshot.groups == again.snapshot.groups
    assert (question.objective, question.pdb) == (again.objective, again.pdb)
    preemptors = {ref.partition("-")[0] for ref in question.snapshot.pods.refs if "ml/p" in ref}
    assert 1 <= len(preemptors) <= 5
    assert 4 <= len(question.snapshot.nodes) <= 16
