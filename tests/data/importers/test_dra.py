from __future__ import annotations

from typing import Any

import pytest
from kube import complaints, container, node, pod, read, thing

from topology.device_counts import count_by_class

Obj = dict[str, Any]
DRIVER = "gpu.example.com"


def device_class(name: str = "gpu", expression: str = "", **spec: Any) -> Obj:
    selectors = [{"cel": {"expression": expression}}] if expression else None
    return thing("resource.k8s.io/v1/DeviceClass", name, spec={"selectors": selectors, **spec})


def resource_slice(
    *devices: Obj | str,
    name: str = "s",
    pool: str = "n0",
    generation: int = 1,
    count: int = 1,
    **spec: Any,
) -> Obj:
    where = (
        {}
        if spec.keys() & {"nodeSelector", "allNodes", "perDeviceNodeSelection"}
        else {"nodeName": "n0"}
    )
    return thing(
        "resource.k8s.io/v1/ResourceSlice",
        name,
        spec={
            "driver": DRIVER,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": [{"name": d} if isinstance(d, str) else d for d in devices],
            **where,
            **spec,
        },
    )


def holding(*devices: str, name: str = "c", pool: str = "n0", **result: Any) -> Obj:
    results = [
        {"request": "r", "driver": DRIVER, "pool": pool, "device": d, **result} for d in devices
    ]
    return thing(
        "resource.k8s.io/v1/ResourceClaim",
        name,
        "ml",
        spec={"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        status={"allocation": {"devices": {"results": results}}},
    )


def partition(name: str, amount: int) -> Obj:
    """A device that takes `amount` of the 7 slices of one GPU."""
    counters = {"slices": {"value": str(amount)}}
    return {"name": name, "consumesCounters": [{"counterSet": "gpu-0", "counters": counters}]}


MIG = resource_slice(
    partition("whole", 7),
    partition("half", 3),
    *[partition(f"small-{i}", 1) for i in range(7)],
    sharedCounters=[{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}],
)
ON_N1 = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    ]
}
BOTH = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]}
    ]
}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([resource_slice("a", "b")], [("n0", 2, 2)], id="nothing used"),
        pytest.param(
            [resource_slice("a", "b"), holding("a")],
            [("n0", 2, 1)],
            id="case 55: pod gone, device held",
        ),
        pytest.param(
            [resource_slice("a", "b"), holding("a", adminAccess=True)],
            [("n0", 2, 2)],
            id="case 61: admin access",
        ),
        pytest.param(
            [resource_slice("a"), holding("a", pool="other")], [("n0", 1, 1)], id="another pool"
        ),
        pytest.param(
            [resource_slice("a", "b"), resource_slice("a", name="s2", generation=2)],
            [("n0", 1, 1)],
            id="case 59: the newer generation counts",
        ),
        pytest.param(
            [resource_slice("a"), resource_slice("b", name="s2", generation=2, count=2)],
            [],
            id="case 59: the newer one is incomplete",
        ),
        pytest.param(
            [resource_slice("a", count=2), resource_slice("b", name="s2", count=2)],
            [("n0", 2, 2)],
            id="a pool of two slices",
        ),
        pytest.param([MIG], [("n0", 7, 7)], id="case 60: partitions that go together"),
        pytest.param([MIG, holding("whole")], [("n0", 7, 0)], id="case 60: whole GPU used"),
        pytest.param([MIG, holding("half")], [("n0", 7, 4)], id="case 60: 3 of 7 used"),
        pytest.param(
            [resource_slice({"name": "a", "taints": [{"key": "x", "effect": "NoSchedule"}]}, "b")],
            [("n0", 2, 1)],
            id="tainted device",
        ),
        pytest.param(
            [resource_slice({"name": "a", "taints": [{"key": "x", "effect": "None"}]})],
            [("n0", 1, 1)],
            id="taint without effect",
        ),
        pytest.param(
            [resource_slice("a", nodeSelector=ON_N1)], [("n1", 1, 1)], id="selector of one node"
        ),
        pytest.param([resource_slice("a", nodeSelector=BOTH)], [], id="reached from two nodes"),
        pytest.param([resource_slice("a", allNodes=True)], [], id="reached from all nodes"),
        pytest.param(
            [
                resource_slice(
                    {"name": "a", "nodeName": "n0"},
                    {"name": "b", "nodeName": "n1"},
                    perDeviceNodeSelection=True,
                )
            ],
            [("n0", 1, 1), ("n1", 1, 1)],
            id="each device has its node",
        ),
        pytest.param(
            [resource_slice({"name": "a", "basic": {"attributes": {}}})],
            [("n0", 1, 1)],
            id="v1beta1",
        ),
        pytest.param([], [], id="no slices"),
    ],
)
def test_counts(objects: list[Obj], want: list[tuple[str, int, int]]) -> None:
    snapshot = read(node("n0"), node("n1"), device_class(), *objects)
    counts = count_by_class(snapshot.devices)
    found = [(snapshot.nodes[n].name, *of_class["gpu"]) for n, of_class in counts.items()]
    assert found == want
    assert complaints(snapshot) == []


def typed(name: str, kind: str) -> Obj:
    return {"name": name, "attributes": {"type": {"string": kind}}}


def test_classes_select_devices() -> None:
    by_type = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == '
    snapshot = read(
        device_class("gpu", by_type + '"gpu"'),
        device_class("mig", by_type + '"mig"'),
        device_class("odd", "device.name.startsWith('a')"),
        resource_slice(typed("a", "gpu"), typed("b", "gpu"), typed("c", "mig"), "d"),
        holding("b"),
    )
    assert count_by_class(snapshot.devices) == {0: {"gpu": (2, 1), "mig": (1, 1)}}
    assert any("DeviceClass odd has a selector" in w for w in snapshot.warnings)


@pytest.mark.parametrize(
    ("objects", "want_warning"),
    [
        pytest.param([resource_slice("a", count=2)], "1 device pools lack slices", id="incomplete"),
        pytest.param(
            [resource_slice("a"), holding("b")], "1 allocated devices are in no", id="device gone"
        ),
        pytest.param(
            [resource_slice("a"), device_class("two")],
            "device classes gpu and two select the same devices",
            id="overlap",
        ),
    ],
)
def test_says_what_it_leaves_out(objects: list[Obj], want_warning: str) -> None:
    assert any(want_warning in w for w in read(device_class(), *objects).warnings)


def test_case_64_extended_resources_backed_by_a_class() -> None:
    name = "example.com/gpu"
    asks = {"resources": {"requests": {name: "1"}}}
    plugin = node("n1", allocatable={"cpu": "64", "pods": "110", name: "4"})
    snapshot = read(
        node("n0"),
        plugin,
        device_class(extendedResourceName=name),
        resource_slice("a", "b", "c"),
        resource_slice("x", "y", name="s1", pool="n1", nodeName="n1"),
        holding("a"),
        holding("b", name="other"),
        pod("p", asks, on="n0"),
        pod("q", asks),
    )
    # Of a, b and c one is p's and one another claim's: p's request is charged against 2.
    offered = [n.allocatable.get(name) for n in snapshot.nodes]
    assert offered == [2, 4]
    assert any(f"1 nodes offer {name} through device class gpu" in w for w in snapshot.warnings)


def test_nodes_offer_nothing_extra_where_nobody_asks() -> None:
    snapshot = read(device_class(extendedResourceName="example.com/gpu"), resource_slice("a"))
    assert "example.com/gpu" not in snapshot.nodes[0].allocatable


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(
            resource_slice({"nodeName": "n0"}),
            ("s", "spec.devices[0].name"),
            id="device without name",
        ),
        pytest.param(resource_slice("a", pool=""), ("s", "spec.pool.name"), id="no pool"),
        pytest.param(
            resource_slice(
                {"name": "a", "consumesCounters": [{"counters": {"x": {"value": "1K"}}}]}
            ),
            ("s", "spec.devices[0].consumesCounters[0].counters.x"),
            id="counter that is no quantity",
        ),
        pytest.param(
            resource_slice(
                {"name": "a", "consumesCounters": [{"counters": {"x": {"value": "1"}}}]}
            ),
            ("s", "spec.devices[0].consumesCounters"),
            id="counter that the pool does not share",
        ),
        pytest.param(
            resource_slice({"name": "a", "capacity": {"memory": {"value": "much"}}}),
            ("s", "spec.devices[0].capacity.memory.value"),
            id="capacity that is no quantity",
        ),
        pytest.param(resource_slice("a", driver=5), ("s", "spec.driver"), id="driver"),
    ],
)
def test_bad_slices_are_reported(obj: Obj, want: tuple[str, str]) -> None:
    assert complaints(read(device_class(), obj, pod("p", container("1")))) == [want]
