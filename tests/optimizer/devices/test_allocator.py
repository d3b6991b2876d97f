"""The allocator on one node: by example, and against every allocation there is."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from builders import make_node, make_pods, make_snapshot, make_spec
from device_strategies import SLICES, make_table, several_needs, tables
from hypothesis import given, settings

from optimizer.devices.allocator import allocate, count_open, find_consumed
from optimizer.devices.needs import Demand
from optimizer.devices.state import DeviceState
from optimizer.verify import verify_plan
from topology.devices import (
    ALL_DEVICES,
    Capacity,
    Counter,
    DeviceConstraint,
    DeviceKind,
    DeviceRequest,
    DeviceTable,
    RequestChoice,
)
from topology.plan import Bound, GroupPlan, PlacedDevice, PlacedPod, Plan, Request
from topology.taints import Taint, Toleration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topology.model import ClaimNeed, Snapshot


def partition(amount: int, counter_set: str = "gpu-0", *filters: int) -> DeviceKind:
    return DeviceKind(filters or (0,), counters=(Counter(counter_set, SLICES, amount),))


def at(root: str, **fields: Any) -> DeviceKind:
    return DeviceKind((0,), attributes=(("x/root", f"string:{root}"),), **fields)


def ask(count: int = 1, chosen: int = 0, name: str = "r", **fields: Any) -> RequestChoice:
    return RequestChoice(name, (DeviceRequest(name, chosen, count, **fields),))


def first_of(*options: tuple[int, int]) -> RequestChoice:
    """(filter, count) in order of preference."""
    return RequestChoice(
        "r", tuple(DeviceRequest(f"r/{i}", f, count) for i, (f, count) in enumerate(options))
    )


SAME = (DeviceConstraint("x/root"),)
APART = (DeviceConstraint("x/root", is_distinct=True),)
ONE, TWO = at("one"), at("two")
SHARED = DeviceKind((0,), capacity=(Capacity("x/memory", 10, 4),), is_shared=True)
TAINTED = DeviceKind((0,), taints=(Taint("broken"),))
PLAIN = DeviceKind((0,))
OTHER = DeviceKind((1,))


def solve(table: DeviceTable, *demands: Demand) -> list[list[str]] | None:
    state = DeviceState(table)
    found = allocate(state, 0, demands)
    if found is None:
        assert state.users == [0] * len(table)
        return None
    return [[table.names[grant.device] for grant in grants] for grants in found]


@pytest.mark.parametrize(
    ("kinds", "demands", "want"),
    [
        pytest.param([PLAIN] * 3, [Demand((ask(2),))], [["d0", "d1"]], id="first ones by name"),
        pytest.param([PLAIN], [Demand((ask(2),))], None, id="one too few"),
        pytest.param([OTHER, PLAIN], [Demand((ask(),))], [["d1"]], id="only of the filter"),
        pytest.param(
            [ONE, TWO, TWO],
            [Demand((ask(2),), SAME)],
            [["d1", "d2"]],
            id="matchAttribute: one PCIe root",
        ),
        pytest.param(
            [ONE, TWO, TWO], [Demand((ask(2),), APART)], [["d0", "d1"]], id="distinctAttribute"
        ),
        pytest.param([TWO, TWO], [Demand((ask(2),), APART)], None, id="never distinct"),
        pytest.param([PLAIN, ONE], [Demand((ask(),), SAME)], [["d1"]], id="has the attribute"),
        pytest.param(
            [ONE, TWO, TWO],
            [Demand((ask(),)), Demand((ask(2),), SAME)],
            [["d0"], ["d1", "d2"]],
            id="two claims",
        ),
        pytest.param(
            [ONE, ONE, TWO],
            [Demand((ask(),)), Demand((ask(2),), SAME)],
            [["d2"], ["d0", "d1"]],
            id="the first claim makes way for the second",
        ),
        pytest.param(
            [PLAIN, OTHER, OTHER],
            [Demand((first_of((0, 2), (1, 2)),))],
            [["d1", "d2"]],
            id="firstAvailable: the second will do",
        ),
        pytest.param(
            [PLAIN, PLAIN, OTHER, OTHER],
            [Demand((first_of((0, 2), (1, 2)),))],
            [["d0", "d1"]],
            id="firstAvailable: the first is preferred",
        ),
        pytest.param(
            [PLAIN, OTHER],
            [Demand((first_of((0, 1), (1, 1)),)), Demand((ask(),))],
            [["d1"], ["d0"]],
            id="firstAvailable makes way",
        ),
        pytest.param([PLAIN] * 2, [Demand((ask(ALL_DEVICES),))], [["d0", "d1"]], id="All"),
        pytest.param(
            [PLAIN] * 2, [Demand((ask(),)), Demand((ask(ALL_DEVICES),))], None, id="All, one used"
        ),
        pytest.param([OTHER], [Demand((ask(ALL_DEVICES),))], None, id="All of none"),
        pytest.param(
            [PLAIN],
            [Demand((ask(),)), Demand((ask(is_admin=True),))],
            [["d0"], ["d0"]],
            id="admin access whoever holds it",
        ),
        pytest.param([TAINTED, PLAIN], [Demand((ask(),))], [["d1"]], id="taint"),
        pytest.param(
            [TAINTED],
            [Demand((ask(tolerations=(Toleration("broken", "Exists"),)),))],
            [["d0"]],
            id="taint tolerated",
        ),
        pytest.param(
            [SHARED],
            [Demand((ask(capacity=(("x/memory", 6),)),)), Demand((ask(),))],
            [["d0"], ["d0"]],
            id="shared by 6 of 10 and the default of 4",
        ),
        pytest.param(
            [SHARED],
            [Demand((ask(capacity=(("x/memory", 7),)),)), Demand((ask(),))],
            None,
            id="7 of 10 and 4 are too much",
        ),
        pytest.param(
            [SHARED], [Demand((ask(2),))], [["d0", "d0"]], id="a shared device twice in a request"
        ),
    ],
)
def test_allocate(
    kinds: list[DeviceKind], demands: list[Demand], want: list[list[str]] | None
) -> None:
    assert solve(make_table(*kinds), *demands) == want


@pytest.mark.parametrize(
    ("demands", "want"),
    [
        pytest.param([ask(1, 1)], [["d0"]], id="case 60: whole GPU"),
        pytest.param([ask(1, 1), ask(1, 0)], None, id="case 60: whole GPU, no partition"),
        pytest.param([ask(1, 0), ask(1, 1)], None, id="case 60: a partition, no whole GPU"),
        pytest.param([ask(3)], [["d2", "d3", "d4"]], id="small ones where large ones leave none"),
        pytest.param([ask(1, 2), ask(1, 2)], [["d1"], ["d5"]], id="two halves"),
        pytest.param([ask(1, 2), ask(1, 2), ask()], [["d1"], ["d5"], ["d2"]], id="and one more"),
        pytest.param([ask(1, 2), ask(1, 2), ask(2)], None, id="7 of 7 taken"),
    ],
)
def test_partitions_share_counters(
    demands: list[RequestChoice], want: list[list[str]] | None
) -> None:
    whole, half, small = DeviceKind((1,)), DeviceKind((0, 2)), DeviceKind((0,))
    taking = {whole: 7, half: 3, small: 1}
    kinds = [
        DeviceKind(kind.filters, counters=(Counter("gpu-0", SLICES, taking[kind]),))
        for kind in (whole, half, small, small, small, half)
    ]
    found = solve(make_table(*kinds, counters={"gpu-0": 7}), *(Demand((r,)) for r in demands))
    if want is None:
        assert found is None
    else:
        assert found is not None
        if len(demands) > 1:
            assert found == want


@pytest.mark.parametrize(
    ("capacity", "asked", "want"),
    [
        pytest.param(Capacity("m", 10), None, 10, id="no request: all of it"),
        pytest.param(Capacity("m", 10, 3), None, 3, id="no request: the default"),
        pytest.param(Capacity("m", 10), 4, 4, id="as asked"),
        pytest.param(Capacity("m", 10), 11, None, id="more than there is"),
        pytest.param(Capacity("m", 10, 2, (2, 4, 8)), 3, 4, id="rounded up to a valid value"),
        pytest.param(Capacity("m", 10, 2, (2, 4, 8)), 9, None, id="beyond the valid values"),
        pytest.param(Capacity("m", 10, 2, (), 2, 8, 3), 3, 5, id="rounded up by steps"),
        pytest.param(Capacity("m", 10, 2, (), 2, 8, 3), 1, 2, id="at least the minimum"),
        pytest.param(Capacity("m", 10, 2, (), 2, 8), 9, None, id="above the maximum"),
    ],
)
def test_consumed_capacity(capacity: Capacity, asked: int | None, want: int | None) -> None:
    kind = DeviceKind((0,), capacity=(capacity,), is_shared=True)
    request = DeviceRequest("r", 0, capacity=() if asked is None else (("m", asked),))
    found = find_consumed(kind, request)
    assert (None if found is None else dict(found)["m"]) == want


def test_a_device_that_is_not_shared_has_to_be_large_enough() -> None:
    kind = DeviceKind((0,), capacity=(Capacity("m", 10),))
    assert find_consumed(kind, DeviceRequest("r", 0, capacity=(("m", 10),))) == ()
    assert find_consumed(kind, DeviceRequest("r", 0, capacity=(("m", 11),))) is None
    assert find_consumed(kind, DeviceRequest("r", 0, capacity=(("other", 1),))) is None


def test_open_devices_are_counted_as_far_as_they_go_together() -> None:
    table = make_table(
        partition(7),
        *[partition(2)] * 3,
        *[partition(4, "gpu-1")] * 2,
        counters={"gpu-0": 7, "gpu-1": 7},
    )
    assert count_open(DeviceState(table), 0, DeviceRequest("r", 0)) == 3 + 1


# Against all allocations


def list_options(table: DeviceTable, need: ClaimNeed) -> Iterator[list[tuple[str, int]]]:
    """Every way to give devices to the requests of a claim, good or bad."""
    per_choice = []
    for choice in need.requests:
        options: list[list[tuple[str, int]]] = []
        for request in choice.alternatives:
            near = [d for d, k in enumerate(table.kind) if request.filter in table.kinds[k].filters]
            if request.count == ALL_DEVICES:
                options.append([(request.name, d) for d in near])
            else:
                options += [
                    [(request.name, d) for d in some]
                    for some in itertools.combinations_with_replacement(near, request.count)
                ]
        per_choice.append(options)
    for parts in itertools.product(*per_choice):
        yield [entry for part in parts for entry in part]


def is_valid(snapshot: Snapshot, given: Sequence[Sequence[tuple[str, int]]]) -> bool:
    names = snapshot.devices.names
    groups = tuple(
        GroupPlan(
            ref,
            "v1/Pod",
            "basic",
            1,
            0,
            "placed",
            pods=(
                PlacedPod(
                    ref,
                    "n",
                    devices=tuple(
                        PlacedDevice("c", request, "driver", "pool", names[d])
                        for request, d in entries
                    ),
                ),
            ),
        )
        for ref, entries in zip(snapshot.pods.refs, given, strict=True)
    )
    plan = Plan(Request(), {}, groups, bound=Bound("gpusPlaced", None, None, "none"))
    broken = {v.rule for v in verify_plan(snapshot, plan).violations}
    return not any(rule.startswith("device") for rule in broken)


@given(table=tables(), claims=several_needs())
@settings(max_examples=60, deadline=None)
def test_finds_an_allocation_exactly_when_there_is_one(
    table: DeviceTable, claims: list[ClaimNeed]
) -> None:
    pods = [
        row
        for i, need in enumerate(claims)
        for row in make_pods(f"p{i}", 1, spec=make_spec(gpus=0, claims=(need,)))
    ]
    snapshot = make_snapshot([make_node("n")], pods, devices=table)
    demands = [Demand(need.requests, need.constraints) for need in claims]
    found = allocate(DeviceState(table), 0, demands)
    every = itertools.islice(
        itertools.product(*(list_options(table, need) for need in claims)), 1000
    )
    if found is None:
        assert not any(is_valid(snapshot, given) for given in every)
    else:
        given_devices = [[(g.request, g.device) for g in grants] for grants in found]
        assert is_valid(snapshot, given_devices)
