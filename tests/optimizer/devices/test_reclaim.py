"""Claims of victims: who has to go so that devices count as free, against every set of victims."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec
from devices import make_devices, make_need
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.devices.reclaim import find_releasing, release_claims
from optimizer.victims import remove_pods
from ray_jobs.pipeline import make_plan
from topology.devices import AllocatedClaim, AllocatedDevice, DeviceTable, Reserver
from topology.plan import Request

if TYPE_CHECKING:
    from topology.model import Snapshot

PER_NODE = 3


def make_fleet(
    holders: list[tuple[int, tuple[int, ...]]], *, wanted: int = 1, pods: int = 2
) -> Snapshot:
    """Two nodes of three devices; each claim holds one and is reserved for some of four pods."""
    table = make_devices([(n, "gpu", PER_NODE, PER_NODE) for n in range(2)])
    claims = tuple(
        AllocatedClaim(
            f"ml/c{i}",
            (AllocatedDevice(d),),
            tuple(Reserver("pods", f"ml/old-{p}") for p in users),
        )
        for i, (d, users) in enumerate(holders)
    )
    spec = make_spec(gpus=0, claims=(make_need(wanted),))
    return make_snapshot(
        [make_node("n0"), make_node("n1")],
        make_pods("old", 4, on=["n0", "n0", "n1", "n1"], spec=make_spec(gpus=0), priority=1),
        make_pods("new", pods, group="ml/g", spec=spec, priority=10),
        groups=[make_group("ml/g", pods, priority=10)],
        devices=replace(table, claims=claims),
    )


@pytest.mark.parametrize(
    ("reclaim", "gone", "want"),
    [
        pytest.param("none", [0, 1], ["ml/c0", "ml/c1"], id="none"),
        pytest.param("node-local", [0], ["ml/c1"], id="its only user goes"),
        pytest.param("node-local", [1], ["ml/c0", "ml/c1"], id="one of two users"),
        pytest.param("node-local", [0, 1, 2], [], id="all users"),
    ],
)
def test_released(reclaim: str, gone: list[int], want: list[str]) -> None:
    snapshot = make_fleet([(0, (0,)), (1, (1, 2))])
    victims = [snapshot.pods.refs.index(f"ml/old-{p}") for p in gone]
    left = release_claims(snapshot, victims, reclaim)
    assert [claim.ref for claim in left.claims] == want


def test_users_that_go_one_after_another() -> None:
    snapshot = make_fleet([(1, (1, 2))])
    first, second = (snapshot.pods.refs.index(f"ml/old-{p}") for p in (1, 2))
    after = remove_pods(snapshot, [first], "node-local")
    assert find_releasing(after, "node-local") == {0: frozenset([second])}
    assert remove_pods(after, [second], "node-local").devices.claims == ()
    assert remove_pods(snapshot, [first, second]).devices is snapshot.devices


def test_only_node_local_claims_of_pods() -> None:
    snapshot = make_fleet([(0, (0,))])
    (claim,) = snapshot.devices.claims
    remote = replace(claim, is_node_local=False)
    table = replace(snapshot.devices, claims=(remote,))
    assert find_releasing(replace(snapshot, devices=table), "node-local") == {}
    assert len(find_releasing(replace(snapshot, devices=table), "all")) == 1


HOLDERS = st.lists(
    st.lists(st.integers(0, 3), max_size=2, unique=True).map(tuple), max_size=2 * PER_NODE
)


@given(users=HOLDERS, wanted=st.integers(1, 2), pods=st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_victims_are_as_few_as_can_be(users: list[tuple[int, ...]], wanted: int, pods: int) -> None:
    snapshot = make_fleet(list(enumerate(users)), wanted=wanted, pods=pods)
    request = Request(
        command="preempt",
        groups=("ml/g",),
        preempt=True,
        dra_reclaim="node-local",
        objective=("max:podsPlaced", "min:victimPods"),
    )
    plan = make_plan(snapshot, request)
    assert plan.verification is not None
    assert plan.verification.violations == ()
    want = _find_fewest(snapshot.devices, users, wanted, pods)
    placed = any(entry.outcome == "placed" for entry in plan.groups)
    assert (len(plan.evictions) if placed else None) == want
    assert plan.bound.proof == "optimal"


def _find_fewest(
    table: DeviceTable, users: list[tuple[int, ...]], wanted: int, pods: int
) -> int | None:
    """Return the fewest of the old pods whose going makes room for all new ones."""
    for size in range(5):
        for gone in itertools.combinations(range(4), size):
            free = [PER_NODE, PER_NODE]
            for d, some in enumerate(users):
                if not some or not set(some) <= set(gone):
                    free[table.reaches[table.reach[d]][0]] -= 1
            if sum(left // wanted for left in free) >= pods:
                return size
    return None
