"""Devices as resources of the search: which columns there are, and what nodes have of them."""

from __future__ import annotations

import itertools
from collections import Counter as Tally
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders import make_node, make_pods, make_snapshot, make_spec
from device_strategies import make_table, needs, tables
from devices import make_devices, make_need
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.devices.allocator import allocate
from optimizer.devices.columns import DeviceColumns, is_device_resource
from optimizer.devices.needs import Demand
from optimizer.devices.state import DeviceState
from optimizer.problem import build_problem
from ray_jobs.pipeline import make_plan
from topology.device_counts import count_together
from topology.devices import (
    ALL_DEVICES,
    DeviceConstraint,
    DeviceKind,
    DeviceTable,
    ExtendedResource,
)
from topology.plan import Request

if TYPE_CHECKING:
    from topology.model import ClaimNeed, Snapshot

PAIR = (DeviceConstraint("x/root"),)


def fleet(*needs_of_pods: ClaimNeed, table: DeviceTable, nodes: int = 1) -> Snapshot:
    return make_snapshot(
        [make_node(f"n{i}") for i in range(nodes)],
        *(
            make_pods(f"p{i}", 1, spec=make_spec(gpus=0, claims=(need,)))
            for i, need in enumerate(needs_of_pods)
        ),
        devices=table,
    )


def at(root: str) -> DeviceKind:
    return DeviceKind((0,), attributes=(("x/root", f"string:{root}"),))


def free_of(snapshot: Snapshot) -> dict[str, list[int]]:
    problem = build_problem(snapshot, Request())
    return {
        name: problem.free[:, r].tolist()
        for r, name in enumerate(problem.resources)
        if is_device_resource(name) or name == "example.com/gpu"
    }


@pytest.mark.parametrize(
    ("need", "want"),
    [
        pytest.param(make_need(1), {"deviceclass:a": [5]}, id="a mere count"),
        pytest.param(
            make_need(2, constraints=PAIR),
            {"deviceclass:a": [2], "claims:0": [2]},
            id="pairs of one root: 2 of 2 and 2 of 3",
        ),
        pytest.param(
            make_need(ALL_DEVICES), {"deviceclass:a": [5], "claims:0": [1]}, id="all of them"
        ),
        pytest.param(make_need(1, claim="ml/c"), {"deviceclass:a": [5]}, id="a claim of one pod"),
        pytest.param(
            make_need(1, shared_by_group=True), {"claims:0": [512]}, id="shared: no limit of pods"
        ),
        pytest.param(
            make_need(9, shared_by_group=True), {"claims:0": [0]}, id="shared, and too much"
        ),
    ],
)
def test_columns(need: ClaimNeed, want: dict[str, list[int]]) -> None:
    table = make_table(at("one"), at("one"), at("two"), at("two"), at("two"))
    assert free_of(fleet(need, table=table)) == want


def test_devices_of_a_class_called_gpu_are_not_counted_as_gpus() -> None:
    snapshot = fleet(make_need(2), table=make_devices([(0, "gpu", 4, 4)]))
    problem = build_problem(snapshot, Request())
    assert problem.class_gpus.tolist() == [0]
    plan = make_plan(snapshot, Request("place"))
    assert (plan.criteria["gpusPlaced"], plan.bound.value) == (0, 0)


def test_like_nodes_share_the_work() -> None:
    snapshot = fleet(
        make_need(2, constraints=PAIR),
        table=make_devices([(n, "gpu", 8, 8) for n in range(50)]),
        nodes=50,
    )
    columns = DeviceColumns(snapshot)
    state = DeviceState(snapshot.devices)
    assert len({state.describe(n) for n in range(50)}) == 1
    assert set(columns.count_free("claims:0", state).tolist()) == {0}


def test_extended_resources_are_devices_on_some_nodes_only() -> None:
    table = replace(
        make_devices([(0, "gpu", 4, 3), (1, "gpu", 4, 3)]),
        extended=(ExtendedResource("example.com/gpu", 0, (1,)),),
    )
    spec = make_spec(gpus=0)
    spec = replace(spec, requests=tuple(sorted((*spec.requests, ("example.com/gpu", 2)))))
    nodes = [make_node("n0"), make_node("n1")]
    offering = [replace(n, allocatable={**n.allocatable, "example.com/gpu": 8}) for n in nodes]
    snapshot = make_snapshot(offering, make_pods("p", 1, spec=spec), devices=table)
    assert free_of(snapshot) == {"claims:0": [512, 1], "example.com/gpu": [4, 4]}


LOADS = st.lists(
    st.dictionaries(
        st.sampled_from([("s", "x"), ("s", "y"), ("t", "x")]), st.integers(0, 3), max_size=2
    ),
    max_size=7,
)


@given(loads=LOADS, room=st.integers(0, 6))
def test_count_together(loads: list[dict[tuple[str, str], int]], room: int) -> None:
    most = 0
    for size in range(len(loads) + 1):
        for some in itertools.combinations(loads, size):
            taken = Tally[tuple[str, str]]()
            for load in some:
                taken.update(load)
            if all(amount <= room for amount in taken.values()):
                most = size
    keys = {key for load in loads for key in load}
    found = count_together(
        [tuple(sorted(load.items())) for load in loads], dict.fromkeys(keys, room)
    )
    assert found == most


@given(first=tables(), second=tables(), claims=st.lists(needs(), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_plans_hold_and_are_best_where_they_say_so(
    first: DeviceTable, second: DeviceTable, claims: list[ClaimNeed]
) -> None:
    table = _join(first, second)
    snapshot = fleet(*claims, table=table, nodes=2)
    plan = make_plan(snapshot, Request(objective=("max:podsPlaced",)))
    assert plan.verification is not None
    assert plan.verification.violations == ()
    best = 0
    for homes in itertools.product((None, 0, 1), repeat=len(claims)):
        state = DeviceState(table)
        fits = all(
            allocate(
                state,
                n,
                [
                    Demand(c.requests, c.constraints)
                    for c, home in zip(claims, homes, strict=True)
                    if home == n
                ],
            )
            is not None
            for n in (0, 1)
        )
        if fits:
            best = max(best, sum(home is not None for home in homes))
    assert plan.criteria["podsPlaced"] <= best
    if plan.bound.proof == "optimal":
        assert plan.criteria["podsPlaced"] == best


def _join(first: DeviceTable, second: DeviceTable) -> DeviceTable:
    """The devices of one node and those of another."""
    kinds = [*first.kinds, *second.kinds]
    pools = (replace(first.pools[0], name="a"), replace(second.pools[0], name="b"))
    return replace(
        first,
        pools=pools,
        kinds=tuple(kinds),
        reaches=((0,), (1,)),
        names=(*first.names, *second.names),
        pool=(*first.pool, *(1 for _ in second.pool)),
        kind=(*first.kind, *(len(first.kinds) + k for k in second.kind)),
        reach=(*first.reach, *(1 for _ in second.reach)),
    )
