"""How problems are cut: which nodes stay together, which units are dealt, held or kept out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.problem import build_problem
from optimizer.search.parts import cut_problem, is_large, take_part
from topology.model import ClaimNeed
from topology.plan import Request

if TYPE_CHECKING:
    from optimizer.problem import Problem
    from topology.model import PodSpec

ZONE = "topology.kubernetes.io/zone"
WHOLE = make_spec(gpus=8)


def problem_of(*gangs: tuple[int, str | None, PodSpec], racks: int = 4) -> Problem:
    """Racks of two nodes, two racks a zone, and gangs of so many pods of a spec."""
    nodes = [
        make_node(f"n{r}{i}", rack=f"r{r}", labels={ZONE: f"z{r // 2}"})
        for r in range(racks)
        for i in range(2)
    ]
    groups = [make_group(f"ml/g{i}", count, key=key) for i, (count, key, _) in enumerate(gangs)]
    pods = [
        make_pods(f"p{i}", count, group=f"ml/g{i}", spec=spec)
        for i, (count, _, spec) in enumerate(gangs)
    ]
    return build_problem(make_snapshot(nodes, *pods, groups=groups), Request())


@pytest.mark.parametrize(
    ("gangs", "most", "want_nodes"),
    [
        pytest.param([(1, RACK, WHOLE)] * 8, 2, [[0, 1], [2, 3], [4, 5], [6, 7]], id="by rack"),
        pytest.param([(1, RACK, WHOLE)] * 8, 5, [[0, 1, 2, 3], [4, 5, 6, 7]], id="racks in runs"),
        pytest.param([(1, ZONE, WHOLE)] * 8, 4, [[0, 1, 2, 3], [4, 5, 6, 7]], id="by zone"),
        pytest.param([(1, None, WHOLE)] * 8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]], id="by number"),
    ],
)
def test_nodes_of_each_part(
    gangs: list[tuple[int, str | None, PodSpec]],
    most: int,
    want_nodes: list[list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("optimizer.search.parts.MAX_NODES", most)
    cut = cut_problem(problem_of(*gangs))
    assert [part.nodes.tolist() for part in cut.parts] == want_nodes


@pytest.mark.parametrize(
    ("gang", "want"),
    [
        pytest.param((2, RACK, WHOLE), "part", id="in a rack"),
        pytest.param((3, None, WHOLE), "held", id="across racks"),
        pytest.param((3, ZONE, WHOLE), "held, kept", id="a key that is divided"),
        pytest.param((3, RACK, WHOLE), "roomless", id="more than any rack has"),
        pytest.param((9, None, WHOLE), "nowhere", id="more than there are"),
        pytest.param(
            (1, RACK, make_spec(gpus=8, claims=(ClaimNeed("c", "ml/c"),))), "held, kept", id="claim"
        ),
    ],
)
def test_where_a_group_goes(
    gang: tuple[int, str | None, PodSpec], want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.search.parts.MAX_NODES", 2)
    cut = cut_problem(problem_of((1, RACK, make_spec(gpus=0, cpu=1)), gang))
    dealt = [u for part in cut.parts for u in part.units]
    where = [
        *(["part"] if 1 in dealt else []),
        *(["held"] if 1 in cut.held else []),
        *(["kept"] if 1 in cut.kept else []),
        *(["roomless"] if 1 in cut.roomless else []),
    ]
    assert (", ".join(where) or "nowhere") == want


def test_a_part_is_a_problem_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optimizer.search.parts.MAX_NODES", 2)
    problem = problem_of((1, None, make_spec(gpus=1)), (2, RACK, WHOLE))
    part = next(part for part in cut_problem(problem).parts if 1 in part.units)
    small = take_part(problem, part)
    assert small.free.tolist() == problem.free[part.nodes].tolist()
    assert [column.values for column in small.columns] == [
        tuple(column.values[d] for d in np.unique(column.codes[part.nodes]).tolist())
        for column in problem.columns
    ]
    assert [unit.ref for unit in small.units] == [problem.units[u].ref for u in part.units]


@pytest.mark.parametrize(
    ("most", "least", "want"),
    [
        pytest.param(8, 0, False, id="one part"),
        pytest.param(7, 8, True, id="more, and enough to place"),
        pytest.param(7, 9, False, id="more, but little to place"),
    ],
)
def test_when_a_fleet_is_cut(
    most: int, least: int, want: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("optimizer.search.parts.MAX_NODES", most)
    monkeypatch.setattr("optimizer.search.parts.CUT_FROM", least)
    assert is_large(problem_of((2, RACK, WHOLE))) is want
