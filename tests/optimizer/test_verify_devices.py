"""Mutations: a plan with devices is broken in each way that the verifier must notice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.verify import verify_plan
from ray_jobs.pipeline import make_plan
from topology.devices import (
    ALL_DEVICES,
    AllocatedClaim,
    AllocatedDevice,
    Capacity,
    Counter,
    DeviceConstraint,
    DeviceFilter,
    DeviceKind,
    DevicePool,
    DeviceRequest,
    DeviceTable,
    ExtendedResource,
    RequestChoice,
    Reserver,
)
from topology.model import ClaimNeed
from topology.plan import Eviction, PlacedDevice, PlacedPod, Request
from topology.taints import Taint

if TYPE_CHECKING:
    from topology.model import Snapshot
    from topology.plan import Plan

WHOLE = DeviceKind((0,), attributes=(("x/root", "string:one"),))
ELSEWHERE = DeviceKind((0,), attributes=(("x/root", "string:two"),))
TAINTED = DeviceKind((0,), taints=(Taint("broken"),))
NIC = DeviceKind((1,), capacity=(Capacity("x/speed", 10, 4),), is_shared=True)
PART = DeviceKind((2,), counters=(Counter("gpu", "slices", 4),))
KINDS = [WHOLE, ELSEWHERE, TAINTED, NIC, PART]
DEVICES = {
    # name: (pool, kind, node)
    "a0": (0, WHOLE, 0),
    "a1": (0, WHOLE, 0),
    "a2": (0, ELSEWHERE, 0),
    "a3": (0, TAINTED, 0),
    "a4": (0, NIC, 0),
    "a5": (0, PART, 0),
    "a6": (0, PART, 0),
    "b0": (1, WHOLE, 1),
    "c0": (2, WHOLE, 0),
}
NAMES = list(DEVICES)


def make_table(*held: str, reserved_for: str = "", **fields: Any) -> DeviceTable:
    counters = (Counter("gpu", "slices", 7),)
    reservers = (Reserver("pods", reserved_for),) if reserved_for else ()
    entries = tuple(AllocatedDevice(NAMES.index(name)) for name in held)
    return DeviceTable(
        filters=(DeviceFilter("gpu"), DeviceFilter("nic"), DeviceFilter("part")),
        pools=(
            DevicePool("driver", "a", True, counters),
            DevicePool("driver", "b"),
            DevicePool("driver", "c", False),
        ),
        kinds=tuple(KINDS),
        reaches=((0,), (1,)),
        names=tuple(DEVICES),
        pool=tuple(pool for pool, _, _ in DEVICES.values()),
        kind=tuple(KINDS.index(kind) for _, kind, _ in DEVICES.values()),
        reach=tuple(node for _, _, node in DEVICES.values()),
        claims=(AllocatedClaim("ml/old", entries, reservers),) if held else (),
        **fields,
    )


def make_need(count: int = 1, chosen: int = 0, **fields: Any) -> ClaimNeed:
    constraints = fields.pop("constraints", ())
    request = DeviceRequest("r", chosen, count, **fields)
    return ClaimNeed("c", requests=(RequestChoice("r", (request,)),), constraints=constraints)


def place(need: ClaimNeed | None, table: DeviceTable, pods: int = 1) -> tuple[Snapshot, Plan]:
    """Plan pods on node n0, where all fits, and give them no devices at all."""
    spec = make_spec(gpus=0, node_selector=(("pool", "a"),), claims=(need,) if need else ())
    nodes = [make_node("n0", labels={"pool": "a"}), make_node("n1")]
    snapshot = make_snapshot(
        nodes,
        make_pods("p", pods, spec=spec),
        make_pods("old", 1, on="n0", priority=-1),
        devices=table,
    )
    free = replace(snapshot, devices=DeviceTable(filters=table.filters, kinds=table.kinds))
    plan = make_plan(free, Request())
    return snapshot, plan


def give(plan: Plan, *given: str, request: str = "r", claim: str = "c") -> Plan:
    """Give each pod its devices, listed by name: "a0 a1"."""
    pool = {name: "abc"[index] for name, (index, _, _) in DEVICES.items()}
    by_ref = {
        f"ml/p-{number}": tuple(
            PlacedDevice(claim, request, "driver", pool.get(name, "a"), name)
            for name in names.split()
        )
        for number, names in enumerate(given)
    }
    return replace(
        plan,
        groups=tuple(
            replace(
                entry,
                outcome="placed",
                cause=None,
                pending_pods=(),
                pods=(PlacedPod(entry.group, "n0", devices=by_ref.get(entry.group, ())),),
            )
            for entry in plan.groups
        ),
    )


def broken(snapshot: Snapshot, plan: Plan) -> list[str]:
    found = {v.rule for v in verify_plan(snapshot, plan).violations}
    return sorted(rule for rule in found if rule.startswith("device"))


@pytest.mark.parametrize(
    ("need", "given", "want"),
    [
        pytest.param(make_need(), ["a0"], [], id="one device"),
        pytest.param(make_need(2), ["a0 a1"], [], id="two"),
        pytest.param(make_need(), [""], ["device"], id="none"),
        pytest.param(make_need(2), ["a0"], ["device"], id="one too few"),
        pytest.param(make_need(), ["a0 a1"], ["device"], id="one too many"),
        pytest.param(make_need(2), ["a0 a0"], ["device"], id="one twice"),
        pytest.param(make_need(), ["a9"], ["device"], id="no such device"),
        pytest.param(make_need(), ["b0"], ["device"], id="of another node"),
        pytest.param(make_need(), ["c0"], ["device"], id="of a pool that lacks slices"),
        pytest.param(make_need(), ["a4"], ["device"], id="not selected"),
        pytest.param(make_need(), ["a3"], ["device"], id="tainted"),
        pytest.param(make_need(), ["a0", "a0"], ["device"], id="given to two pods"),
        pytest.param(make_need(), ["a0", "a1"], [], id="one each"),
        pytest.param(
            make_need(2, constraints=(DeviceConstraint("x/root"),)), ["a0 a1"], [], id="matches"
        ),
        pytest.param(
            make_need(2, constraints=(DeviceConstraint("x/root"),)),
            ["a0 a2"],
            ["device-constraint"],
            id="does not match",
        ),
        pytest.param(
            make_need(2, constraints=(DeviceConstraint("x/none"),)),
            ["a0 a1"],
            ["device-constraint"],
            id="attribute is missing",
        ),
        pytest.param(
            make_need(2, constraints=(DeviceConstraint("x/root", is_distinct=True),)),
            ["a0 a1"],
            ["device-constraint"],
            id="not distinct",
        ),
        pytest.param(
            make_need(2, constraints=(DeviceConstraint("x/root", is_distinct=True),)),
            ["a0 a2"],
            [],
            id="distinct",
        ),
        pytest.param(make_need(1, 2), ["a5"], [], id="4 of 7 slices"),
        pytest.param(make_need(1, 2), ["a5", "a6"], ["device-counter"], id="8 of 7 slices"),
        pytest.param(make_need(1, 1), ["a4", "a4"], [], id="shared by default amounts"),
        pytest.param(
            make_need(1, 1, capacity=(("x/speed", 6),)),
            ["a4", "a4"],
            ["device-capacity"],
            id="12 of 10",
        ),
        pytest.param(
            make_need(1, 1, capacity=(("x/speed", 11),)),
            ["a4"],
            ["device-capacity"],
            id="11 of 10",
        ),
        pytest.param(
            make_need(1, 1, capacity=(("x/heat", 1),)),
            ["a4"],
            ["device-capacity"],
            id="no such capacity",
        ),
        pytest.param(make_need(ALL_DEVICES, 1), ["a4"], [], id="all there are"),
        pytest.param(make_need(ALL_DEVICES, 2), ["a5"], ["device"], id="not all"),
        pytest.param(make_need(is_admin=True), ["a0", "a0"], [], id="case 61: admin access"),
        pytest.param(make_need(2, is_admin=True), ["a0 a0"], ["device"], id="watched twice"),
        pytest.param(None, ["a0"], ["device"], id="asked for none"),
    ],
)
def test_devices(need: ClaimNeed | None, given: list[str], want: list[str]) -> None:
    # All devices matter only where no pool of the node lacks slices.
    table = make_table()
    if need and any(r.count == ALL_DEVICES for c in need.requests for r in c.alternatives):
        pools = (*table.pools[:2], replace(table.pools[2], is_complete=True))
        table = replace(table, pools=pools)
    snapshot, plan = place(need, table, len(given))
    assert broken(snapshot, give(plan, *given)) == want


def test_all_devices_of_a_node_with_slices_missing() -> None:
    snapshot, plan = place(make_need(ALL_DEVICES, 1), make_table())
    assert broken(snapshot, give(plan, "a4")) == ["device"]


@pytest.mark.parametrize(
    ("request_name", "claim", "want"),
    [
        pytest.param("r", "c", [], id="as it is"),
        pytest.param("other", "c", ["device"], id="no such request"),
        pytest.param("r", "other", ["device"], id="no such claim"),
    ],
)
def test_names_of_requests_and_claims(request_name: str, claim: str, want: list[str]) -> None:
    snapshot, plan = place(make_need(), make_table())
    assert broken(snapshot, give(plan, "a0", request=request_name, claim=claim)) == want


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param("a1", [], id="another one"),
        pytest.param("a0", ["device"], id="case 55: allocated, nobody uses it"),
    ],
)
def test_devices_that_are_held(given: str, want: list[str]) -> None:
    snapshot, plan = place(make_need(), make_table("a0"))
    assert broken(snapshot, give(plan, given)) == want


def test_counters_that_are_held() -> None:
    snapshot, plan = place(make_need(1, 2), make_table("a5"))
    assert broken(snapshot, give(plan, "a6")) == ["device-counter"]


@pytest.mark.parametrize(
    ("reclaim", "reserved_for", "want"),
    [
        pytest.param("none", "ml/old-0", ["device"], id="case 56: nothing is released"),
        pytest.param("node-local", "ml/old-0", [], id="case 56: released with its only user"),
        pytest.param("all", "ml/old-0", [], id="released, whatever kind"),
        pytest.param("node-local", "ml/other-0", ["device"], id="case 57: somebody else's"),
        pytest.param("all", "", ["device"], id="nobody's"),
    ],
)
def test_evictions_release(reclaim: Any, reserved_for: str, want: list[str]) -> None:
    snapshot, plan = place(make_need(), make_table("a0", reserved_for=reserved_for))
    plan = replace(
        give(plan, "a0"),
        request=Request(preempt=True, dra_reclaim=reclaim),
        evictions=(Eviction("ml/old-0", "n0", preemptor="ml/p-0"),),
    )
    assert broken(snapshot, plan) == want


def test_a_first_available_request_gets_one_alternative() -> None:
    options = (DeviceRequest("r/x", 1), DeviceRequest("r/y", 0))
    need = ClaimNeed("c", requests=(RequestChoice("r", options),))
    snapshot, plan = place(need, make_table())
    assert broken(snapshot, give(plan, "a0", request="r/y")) == []
    assert broken(snapshot, give(plan, "a0", request="r/x")) == ["device"]
    both = give(plan, "a0 a4", request="r/y")
    (entry,) = both.groups
    first, second = entry.pods[0].devices
    mixed = replace(entry.pods[0], devices=(first, replace(second, request="r/x")))
    mixed_plan = replace(both, groups=(replace(entry, pods=(mixed,)),))
    assert broken(snapshot, mixed_plan) == ["device"]


def test_extended_resources_need_devices_where_nobody_else_offers_them() -> None:
    table = make_table(extended=(ExtendedResource("example.com/gpu", 0, (0,)),))
    spec = make_spec(gpus=0)
    spec = replace(spec, requests=tuple(sorted((*spec.requests, ("example.com/gpu", 2)))))
    node = make_node("n0")
    node = replace(node, allocatable={**node.allocatable, "example.com/gpu": 4})
    snapshot = make_snapshot([node, make_node("n1")], make_pods("p", 1, spec=spec), devices=table)
    plan = make_plan(snapshot, Request())
    assert broken(snapshot, plan) == []
    assert [d.device for d in plan.groups[0].pods[0].devices] == ["a0", "a1"]
    assert broken(snapshot, give(plan, "")) == ["device"]


def test_a_shared_claim_is_listed_once() -> None:
    need = replace(make_need(), shared_by_group=True)
    spec = make_spec(gpus=0, claims=(need,))
    snapshot = make_snapshot(
        [make_node("n0"), make_node("n1")],
        make_pods("p", 2, group="ml/g", spec=spec),
        groups=[make_group("ml/g", 2)],
        devices=make_table(),
    )
    plan = make_plan(snapshot, Request())
    assert broken(snapshot, plan) == []
    (entry,) = plan.groups
    first, second = entry.pods
    again = replace(entry, pods=(first, replace(second, devices=first.devices)))
    assert broken(snapshot, replace(plan, groups=(again,))) == ["device"]
    apart = replace(entry, pods=(first, replace(second, node="n1")))
    assert broken(snapshot, replace(plan, groups=(apart,))) == ["device"]
