"""Claims that pods share are allocated once, and hold their pods to the nodes of the devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec
from devices import make_devices, make_need

from ray_jobs.pipeline import make_plan
from topology.plan import Request


def nodes_of(plan) -> dict[str, set[str]]:
    assert plan.verification.violations == ()
    return {entry.group: {p.node for p in entry.pods} for entry in plan.groups if entry.pods}


@pytest.mark.parametrize(
    ("free", "want_placed"),
    [
        pytest.param((2, 0), {"ml/a": {"n0"}}, id="devices for one group, on one node"),
        pytest.param((0, 2), {"ml/a": {"n1"}}, id="on the other node"),
        pytest.param((4, 0), {"ml/a": {"n0"}, "ml/b": {"n0"}}, id="for both on one node"),
        pytest.param((2, 2), {"ml/a": {"n0"}, "ml/b": {"n1"}}, id="for each on one node"),
        pytest.param((1, 1), {}, id="enough in sum, on no node"),
    ],
)
def test_devices_are_taken_once_for_a_group(
    free: tuple[int, int], want_placed: dict[str, set[str]]
) -> None:
    need = make_need(2, template="t", shared_by_group=True)
    spec = make_spec(gpus=0, claims=(need,))
    snapshot = make_snapshot(
        [make_node("n0"), make_node("n1")],
        *(make_pods(name, 2, group=f"ml/{name}", spec=spec) for name in "ab"),
        groups=[make_group(f"ml/{name}", 2) for name in "ab"],
        devices=make_devices([(i, "gpu.example.com", 4, count) for i, count in enumerate(free)]),
    )
    assert nodes_of(make_plan(snapshot, Request())) == want_placed


def test_the_devices_of_a_group_are_listed_with_its_first_pod() -> None:
    spec = make_spec(gpus=0, claims=(make_need(2, template="t", shared_by_group=True),))
    snapshot = make_snapshot(
        [make_node("n0")],
        make_pods("a", 2, group="ml/a", spec=spec),
        groups=[make_group("ml/a", 2)],
        devices=make_devices([(0, "gpu.example.com", 4, 3)]),
    )
    plan = make_plan(snapshot, Request())
    first, second = plan.groups[0].pods
    assert [d.device for d in first.devices] == ["d1", "d2"]
    assert second.devices == ()


@pytest.mark.parametrize(
    ("gpus", "want"),
    [
        pytest.param(3, {"ml/a": {"n0"}}, id="pods of a shared claim stay on one node"),
        pytest.param(6, {}, id="two of them fit no node"),
    ],
)
def test_a_claim_that_is_named_by_several_pods(gpus: int, want: dict[str, set[str]]) -> None:
    spec = make_spec(gpus=gpus, claims=(make_need(1, claim="ml/c"),))
    snapshot = make_snapshot(
        [make_node("n0"), make_node("n1")],
        make_pods("a", 2, group="ml/a", spec=spec),
        groups=[make_group("ml/a", 2)],
        devices=make_devices([(i, "gpu.example.com", 1, 1) for i in range(2)]),
    )
    assert nodes_of(make_plan(snapshot, Request())) == want


def test_a_device_of_the_network_does_not_hold_its_pods_to_one_node() -> None:
    spec = make_spec(gpus=6, claims=(make_need(1, claim="ml/c"),))
    table = make_devices([(0, "fabric.example.com", 1, 1)])
    snapshot = make_snapshot(
        [make_node("n0"), make_node("n1")],
        make_pods("a", 2, group="ml/a", spec=spec),
        groups=[make_group("ml/a", 2)],
        devices=replace(table, reaches=((0, 1),)),
    )
    plan = make_plan(snapshot, Request())
    assert nodes_of(plan) == {"ml/a": {"n0", "n1"}}
    bound = replace(table, reaches=((0, 1),), kinds=(replace(table.kinds[0], binds_to_node=True),))
    assert nodes_of(make_plan(replace(snapshot, devices=bound), Request())) == {}


def test_devices_of_the_network_are_given_once() -> None:
    spec = make_spec(gpus=1, claims=(make_need(1),))
    table = make_devices([(0, "fabric.example.com", 3, 2)])
    snapshot = make_snapshot(
        [make_node("n0", gpus=1), make_node("n1", gpus=1), make_node("n2", gpus=1)],
        make_pods("a", 3, spec=spec),
        devices=replace(table, reaches=((0, 1, 2),)),
    )
    plan = make_plan(snapshot, Request())
    assert sorted(nodes_of(plan)) == ["ml/a-0", "ml/a-1"]
    given = [d.device for entry in plan.groups for p in entry.pods for d in p.devices]
    assert given == ["d1", "d2"]
