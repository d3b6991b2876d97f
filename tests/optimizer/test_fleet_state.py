from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from hypothesis import given
from hypothesis import strategies as st
from placing import compile_fleet, describe_state, unit_of

from optimizer.decode import place_unit, replay
from optimizer.fleet_state import PLENTY, FleetState, count_fits
from topology.model import (
    HOSTNAME,
    AffinityTerm,
    Exclusive,
    HostPort,
    LabelSelector,
    Requirement,
    SliceTerm,
    Snapshot,
    SpreadTerm,
)

if TYPE_CHECKING:
    from topology.assemble import PodRow

APP = LabelSelector((Requirement("app", "In", ("x",)),))


@pytest.mark.parametrize(
    ("free", "request_", "want_fits"),
    [
        pytest.param([[8, 100]], [2, 10], [4], id="GPUs bind"),
        pytest.param([[8, 25]], [2, 10], [2], id="memory binds"),
        pytest.param([[8, 20]], [8, 20], [1], id="equality fits"),
        pytest.param([[7, 20]], [8, 20], [0], id="one GPU too few"),
        pytest.param([[-3, 20]], [1, 0], [0], id="overcommitted"),
        pytest.param([[-3, 20]], [0, 10], [2], id="overcommitted in what is not asked for"),
        pytest.param([[0, 0]], [0, 0], [PLENTY], id="asks for nothing"),
        pytest.param([[2**24, 1]], [1, 0], [2**24], id="the largest amount"),
        pytest.param([[1, 9], [2, 9]], [1, 1], [1, 2], id="each node by itself"),
    ],
)
def test_count_fits(free: list[list[int]], request_: list[int], want_fits: list[int]) -> None:
    found = count_fits(np.array(free, np.int64), np.array(request_, np.int32))
    assert found.tolist() == want_fits


def simple() -> FleetState:
    nodes = [
        make_node("a1", gpus=8, rack="a"),
        make_node("a2", gpus=4, rack="a"),
        make_node("b1", gpus=8, rack="b", unschedulable=True),
        make_node("c1", gpus=8),
    ]
    snapshot = make_snapshot(
        nodes,
        make_pods("p", 1, group="ml/g", spec=make_spec(gpus=2)),
        make_pods("q", 1, group="ml/g", spec=make_spec(gpus=3)),
        groups=[make_group("ml/g", 2, key=RACK)],
    )
    return compile_fleet(snapshot)


def test_fits_and_capacity_follow_what_is_taken() -> None:
    state = simple()
    small = int(np.argmin(state.problem.class_gpus))
    # A cordoned node fits nothing; a node without the label is in no domain.
    assert state.fits(small).tolist() == [4, 2, 0, 4]
    assert state.capacity(small, 0).tolist() == [6, 0]
    assert [m.tolist() for m in state.members(0)] == [[0, 1], [2]]
    state.take(1 - small, np.array([0, 1]), np.array([2, 1]))
    assert state.fits(small).tolist() == [1, 0, 0, 4]
    assert state.capacity(small, 0).tolist() == [1, 0]
    assert state.node_gpus.tolist() == [2, 1, 8, 8]
    state.lift(1 - small, np.array([0]), np.array([1]))
    assert state.fits(small).tolist() == [2, 0, 0, 4]
    assert state.node_gpus.tolist() == [5, 1, 8, 8]


def test_undo_goes_back_to_its_mark() -> None:
    state = simple()
    fresh = describe_state(state)
    state.take(0, np.array([0]), np.array([1]))
    middle, mark = describe_state(state), state.mark()
    state.take(1, np.array([1, 3]), np.array([1, 2]))
    state.undo(mark)
    assert describe_state(state) == middle
    state.undo(0)
    assert describe_state(state) == fresh


def test_what_is_forgotten_is_not_undone() -> None:
    state = simple()
    state.take(0, np.array([0]), np.array([1]))
    taken = describe_state(state)
    state.forget_journal()
    state.undo(0)
    assert describe_state(state) == taken


def test_the_problem_is_never_changed() -> None:
    state = simple()
    fresh = describe_state(FleetState(state.problem))
    place_unit(state, state.problem.units[0])
    assert describe_state(FleetState(state.problem)) == fresh


def test_domains_change_hands() -> None:
    groups = [make_group(f"ml/{i}", 1, exclusive=(Exclusive("ml", RACK),)) for i in range(2)]
    groups.append(make_group("ml/2", 1, exclusive=(Exclusive("ml"),)))
    pods = [row for i in range(3) for row in make_pods(f"p{i}", 1, group=f"ml/{i}")]
    nodes = [make_node("a1", rack="a"), make_node("b1", rack="b"), make_node("c1")]
    state = compile_fleet(make_snapshot(nodes, pods, groups=groups))
    first, second, plain = (unit_of(state.problem, f"ml/{i}").root.exclusive for i in range(3))

    def masks() -> list[str]:
        found = [state.exclusive_mask(rules) for rules in (first, second, plain)]
        return ["".join(str(int(x)) for x in mask) for mask in found if mask is not None]

    rack_a = np.array([0])
    assert masks() == ["110", "110", "111"]
    state.own(first, rack_a)
    assert masks() == ["110", "010", "011"]
    # Two fills of one group: the domain is free again when both are gone.
    state.own(first, rack_a)
    state.own(first, rack_a, -1)
    assert masks() == ["110", "010", "011"]
    state.own(first, rack_a, -1)
    assert masks() == ["110", "110", "111"]
    state.own(plain, rack_a)
    assert masks() == ["010", "010", "111"]
    state.undo(0)
    assert masks() == ["110", "110", "111"]
    assert state.exclusive_mask(()) is None


# Any sequence of placements, lifts and undos


def make_fleet(gpus: list[int], kinds: list[int], running: list[int]) -> Snapshot:
    """Racks of two nodes; units of eight kinds; running pods of kind 1 and 4."""
    specs = [
        make_spec(gpus=1),
        make_spec(gpus=2, anti_affinity=(AffinityTerm(HOSTNAME, APP, ("ml",)),)),
        make_spec(gpus=1, anti_affinity=(AffinityTerm(RACK, APP, ("ml",)),)),
        make_spec(gpus=1, spread=(SpreadTerm(RACK, 1, APP),)),
        make_spec(gpus=1, host_ports=(HostPort(80),)),
        make_spec(gpus=2),
        make_spec(gpus=3),
        make_spec(gpus=1, affinity=(AffinityTerm(RACK, APP, ("ml",)),)),
    ]
    terms = [{}, {}, {}, {}, {}, {"key": RACK}, {"slices": (SliceTerm((RACK,), 2),)}, {}]
    nodes = [make_node(f"n{i}", gpus=free, rack=f"r{i // 2}") for i, free in enumerate(gpus)]
    rows: list[PodRow] = []
    groups = []
    for u, kind in enumerate(kinds):
        exclusive = (Exclusive("ml", RACK if u % 2 else None),) if u % 3 == 0 or u % 2 else ()
        groups.append(make_group(f"ml/u{u}", 1, size=3, exclusive=exclusive, **terms[kind]))
        labels = {"app": "x" if u % 2 else "y"}
        rows += make_pods(f"u{u}", 2, group=f"ml/u{u}", spec=specs[kind], labels=labels)
        rows += make_pods(f"v{u}", 1, group=f"ml/u{u}", spec=specs[0], labels=labels)
    for i, n in enumerate(running):
        spec = specs[4 if i % 2 else 1]
        on = f"n{n % max(len(nodes), 1)}"
        rows += make_pods(f"run{i}", 1, on=on, spec=spec, labels={"app": "x"})
    return make_snapshot(nodes, rows, groups=groups)


FLEETS = st.builds(
    make_fleet,
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
    st.lists(st.integers(0, 7), min_size=1, max_size=4),
    st.lists(st.integers(0, 5), max_size=2),
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["place", "lift", "again", "undo", "look"]), st.integers(0, 3)),
    max_size=8,
)


@given(FLEETS, STEPS)
def test_undo_restores_the_state_exactly(snapshot: Snapshot, steps: list[tuple[str, int]]) -> None:
    state = compile_fleet(snapshot)
    units = state.problem.units
    placements: dict[int, tuple] = {}
    marks = [(state.mark(), describe_state(state), dict(placements))]
    for action, number in steps:
        u = number % len(units)
        if action == "place" and u not in placements:
            if placement := place_unit(state, units[u]):
                placements[u] = placement
        elif action == "lift" and u in placements:
            replay(state, units[u], placements.pop(u), lift=True)
        elif action == "again" and u in placements:
            # Lifting and taking the same again changes nothing.
            before = describe_state(state)
            replay(state, units[u], placements[u], lift=True)
            replay(state, units[u], placements[u])
            assert describe_state(state) == before
        elif action == "undo":
            marks = marks[: number + 1]
            mark, want, placements = marks[-1]
            placements = dict(placements)
            state.undo(mark)
            assert describe_state(state) == want
        marks.append((state.mark(), describe_state(state), dict(placements)))
    # A fresh state that takes the same says the same: nothing that is kept went stale.
    fresh = FleetState(state.problem)
    for u, placement in placements.items():
        replay(fresh, units[u], placement)
    assert describe_state(fresh) == describe_state(state)
    state.undo(0)
    assert describe_state(state) == describe_state(FleetState(state.problem))
