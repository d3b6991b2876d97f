"""Cases 55 to 64: claims of every kind, by the objects of resource.k8s.io."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of, placed, why_not
from fleets import machine, members
from kube import container, gang, node, pod, thing

Obj = dict[str, Any]
DRIVER = "gpu.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
API = "resource.k8s.io/v1"
BIG = "g"


def classes(*names: str) -> list[Obj]:
    """Device classes that select by an attribute of the same name."""
    select = [
        {"cel": {"expression": f'device.attributes["{DRIVER}"].type == "{n}"'}} for n in names
    ]
    return [
        thing(f"{API}/DeviceClass", name, spec={"selectors": [chosen]})
        for name, chosen in zip(names, select, strict=True)
    ]


def device(name: str, kind: str = "gpu", **fields: Any) -> Obj:
    attributes = fields.pop("attributes", {})
    return {"name": name, "attributes": {"type": {"string": kind}, **attributes}, **fields}


def slices(
    on: str, *devices: Obj, generation: int = 1, count: int = 1, name: str = "", **spec: Any
) -> Obj:
    """The slice of a node, or with a selection of its own."""
    own = {} if spec.keys() & {"allNodes", "nodeSelector"} else {"nodeName": on}
    return thing(
        f"{API}/ResourceSlice",
        name or f"slice-{on}",
        spec={
            "driver": DRIVER,
            "pool": {"name": on, "generation": generation, "resourceSliceCount": count},
            "devices": list(devices),
            **own,
            **spec,
        },
    )


def exactly(device_class: str = "gpu", count: int = 1, name: str = "r", **fields: Any) -> Obj:
    if fields.get("allocationMode") != "All":
        fields["count"] = count
    return {"name": name, "exactly": {"deviceClassName": device_class, **fields}}


def template(name: str, *requests: Obj, **devices: Any) -> Obj:
    spec = {"devices": {"requests": list(requests) or [exactly()], **devices}}
    return thing(f"{API}/ResourceClaimTemplate", name, "ml", spec={"spec": spec})


def held(
    name: str,
    on: str,
    *devices: str,
    by: tuple[str, ...] = (),
    groups: tuple[str, ...] = (),
    **result: Any,
) -> Obj:
    """A claim that has devices of a node, reserved for pods and groups."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": on, "device": d, **result} for d in devices
    ]
    reserved = [{"resource": "pods", "name": pod, "uid": pod} for pod in by]
    reserved += [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": g, "uid": g}
        for g in groups
    ]
    field = {"key": "metadata.name", "operator": "In", "values": [on]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return thing(
        f"{API}/ResourceClaim",
        name,
        "ml",
        spec={"devices": {"requests": [exactly(count=len(devices))]}},
        status={
            "allocation": {"devices": {"results": results}, "nodeSelector": selector},
            "reservedFor": reserved,
        },
    )


def wanting(name: str, source: str = "t", **spec: Any) -> Obj:
    claims = [{"name": "gpus", "resourceClaimTemplateName": source}]
    return pod(name, container("1"), resourceClaims=claims, priority=10, **spec)


def using(name: str, claim: str, on: str, **fields: Any) -> Obj:
    """A running pod of low priority that uses a claim."""
    claims = [{"name": "gpus", "resourceClaimName": claim}]
    return pod(name, container("1"), on=on, resourceClaims=claims, **fields)


def given(plan: Any) -> dict[str, list[str]]:
    """Pod -> devices."""
    pods = [p for entry in plan.groups for p in entry.pods]
    return {p.pod.partition("/")[2]: [d.device for d in p.devices] for p in pods}


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([slices("a", device("x"))], {"p": ["x"]}, id="nobody has it"),
        pytest.param(
            [slices("a", device("x")), held("c", "a", "x")],
            {},
            id="case 55: allocated, reservedFor empty, pod gone",
        ),
        pytest.param(
            [
                slices("a", device("x")),
                held("c", "a", "x", groups=("old",)),
                gang("old"),
                pod("o", container("1"), group="old", on="a", phase="Succeeded"),
            ],
            {},
            id="case 58: PodGroup claim, all pods Succeeded",
        ),
        pytest.param(
            [
                slices("a", device("x"), device("y")),
                slices("a", device("z"), generation=2, name="newer"),
            ],
            {"p": ["z"]},
            id="case 59: only the newer generation counts",
        ),
        pytest.param(
            [slices("a", device("x")), slices("a", device("z"), generation=2, count=2, name="new")],
            {},
            id="case 59: newer incomplete, pool unusable",
        ),
        pytest.param(
            [slices("a", device("x")), held("c", "a", "x", adminAccess=True)],
            {"p": ["x"]},
            id="case 61: adminAccess takes no capacity",
        ),
        pytest.param(
            [slices("a", device("x", taints=[{"key": "bad", "effect": "NoExecute"}]))],
            {},
            id="tainted",
        ),
        pytest.param(
            [slices("a", device("x", taints=[{"key": "bad", "effect": "None"}]))],
            {"p": ["x"]},
            id="taint without effect",
        ),
        pytest.param([slices("a", device("x", "mig"))], {}, id="the class selects by attribute"),
        pytest.param(
            [slices("net", device("x"), allNodes=True)], {"p": ["x"]}, id="from every node"
        ),
    ],
)
def test_free_devices(objects: list[Obj], want: dict[str, list[str]]) -> None:
    plan = ask(machine("a"), *classes("gpu"), template("t"), wanting("p"), *objects)
    assert given(plan) == want
    assert plan.conditional == ()


MIG_PARTS = {"whole": 7, "big-0": 3, "big-1": 3, "small-0": 1, "small-1": 1}


def mig() -> Obj:
    """One GPU in partitions, kinds whole, big and small, of 7 slices in all."""
    parts = [
        device(
            name,
            name.partition("-")[0],
            consumesCounters=[{"counterSet": BIG, "counters": {"slices": {"value": str(n)}}}],
        )
        for name, n in MIG_PARTS.items()
    ]
    counters = {"name": BIG, "counters": {"slices": {"value": "7"}}}
    return slices("a", *parts, sharedCounters=[counters])


@pytest.mark.parametrize(
    ("taken", "want"),
    [
        pytest.param((), 3, id="all free: two big and a small one, say"),
        pytest.param(("whole",), 0, id="whole GPU allocated"),
        pytest.param(("big-0",), 2, id="one 3g allocated"),
        pytest.param(("small-0", "small-1"), 1, id="two small allocated"),
    ],
)
def test_case_60_partitions_by_counters(taken: tuple[str, ...], want: int) -> None:
    kinds = ("big", "small", "whole")
    plan = ask(
        machine("a"),
        *classes(*kinds),
        *(template(kind, exactly(kind)) for kind in kinds),
        mig(),
        *([held("c", "a", *taken)] if taken else []),
        *(
            pod(
                f"{kind}-{i}",
                container("1"),
                resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": kind}],
            )
            for kind in kinds
            for i in range(3)
        ),
        objective=("max:podsPlaced",),
    )
    found = [d for devices in given(plan).values() for d in devices]
    assert len(found) == want
    assert sum(MIG_PARTS[d] for d in (*found, *taken)) <= 7


@pytest.mark.parametrize(
    ("taken", "want"),
    [
        pytest.param((), {"p": ["x", "y"]}, id="both are free"),
        pytest.param(("y",), {}, id="case 62: one matching device in use"),
    ],
)
def test_case_62_all_devices(taken: tuple[str, ...], want: dict[str, list[str]]) -> None:
    plan = ask(
        machine("a"),
        *classes("gpu"),
        template("t", exactly(allocationMode="All")),
        slices("a", device("x"), device("y"), device("z", "mig")),
        *([held("c", "a", *taken)] if taken else []),
        wanting("p"),
    )
    assert given(plan) == want
    assert why_not(plan) == ({} if want else {"ml/p": "device-held"})


def root(name: str) -> Obj:
    return {"attributes": {ROOT: {"string": name}}}


@pytest.mark.parametrize(
    ("constraint", "want"),
    [
        pytest.param("matchAttribute", {"p": ["c", "d"]}, id="one PCIe root"),
        pytest.param("distinctAttribute", {"p": ["b", "c"]}, id="two PCIe roots"),
    ],
)
def test_constraints(constraint: str, want: dict[str, list[str]]) -> None:
    devices = [device(n, **root(r)) for n, r in (("a", "0"), ("b", "0"), ("c", "1"), ("d", "1"))]
    plan = ask(
        machine("a"),
        *classes("gpu"),
        template("t", exactly(count=2), constraints=[{constraint: ROOT}]),
        slices("a", *devices),
        held("c", "a", "a"),
        wanting("p"),
    )
    assert given(plan) == want


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([], {"p": ["r/large"]}, id="the first one"),
        pytest.param([held("c", "a", "x")], {"p": ["r/small", "r/small"]}, id="the second one"),
        pytest.param([held("c", "a", "x", "y")], {}, id="none"),
    ],
)
def test_first_available(objects: list[Obj], want: dict[str, list[str]]) -> None:
    options = [
        {"name": "large", "deviceClassName": "gpu"},
        {"name": "small", "deviceClassName": "mig", "count": 2},
    ]
    plan = ask(
        machine("a"),
        *classes("gpu", "mig"),
        template("t", {"name": "r", "firstAvailable": options}),
        slices("a", device("x"), device("y", "mig"), device("z", "mig")),
        wanting("p"),
        *objects,
    )
    pods = [p for entry in plan.groups for p in entry.pods]
    assert {p.pod.partition("/")[2]: [d.request for d in p.devices] for p in pods} == want


def test_devices_that_share_their_capacity() -> None:
    nic = device(
        "nic",
        allowMultipleAllocations=True,
        capacity={
            "bandwidth": {
                "value": "10G",
                "requestPolicy": {"default": "1G", "validRange": {"min": "1G", "step": "1G"}},
            }
        },
    )
    plan = ask(
        machine("a"),
        *classes("gpu"),
        template("t", exactly(capacity={"requests": {f"{DRIVER}/bandwidth": "2500M"}})),
        slices("a", nic),
        held("c", "a", "nic", consumedCapacity={"bandwidth": "1G"}),
        *(wanting(f"p{i}") for i in range(5)),
    )
    # 1G is taken, and each takes 3G: 2.5G rounded up.
    assert placed(plan) == {f"ml/p{i}": 1 for i in range(3)}


@pytest.mark.parametrize(
    ("by", "reclaim", "want_gone", "want_cause"),
    [
        pytest.param(("old",), "none", [], "device-held", id="case 56: not helped"),
        pytest.param(("old",), "node-local", ["ml/old"], None, id="case 56: helped"),
        pytest.param(
            ("old", "high"), "node-local", [], "device-held", id="case 57: shared with a survivor"
        ),
        pytest.param(("old", "high"), "all", [], "device-held", id="case 57: nor by all"),
        pytest.param(
            ("old", "older"), "node-local", ["ml/old", "ml/older"], None, id="all users go"
        ),
        pytest.param((), "all", [], "device-held", id="nobody's claim stays"),
    ],
)
def test_eviction_and_devices(
    by: tuple[str, ...], reclaim: str, want_gone: list[str], want_cause: str | None
) -> None:
    plan = ask(
        machine("a"),
        *classes("gpu"),
        template("t"),
        slices("a", device("x")),
        held("c", "a", "x", by=by),
        using("old", "c", "a", priority=1),
        using("older", "c", "a", priority=1),
        using("high", "c", "a", priority=100),
        wanting("p"),
        preempt=True,
        dra_reclaim=reclaim,
        objective=("max:podsPlaced", "min:victimPods"),
    )
    assert [e.pod for e in plan.evictions] == want_gone
    assert why_not(plan) == ({} if want_cause is None else {"ml/p": want_cause})
    if want_cause == "device-held":
        hint = "--dra-reclaim node-local shows" if reclaim == "none" else "does not release enough"
        assert hint in cause_of(plan, "ml/p").message
    assert any("kube-scheduler 1.37 does not do this" in w for w in plan.warnings) == (
        reclaim != "none"
    )


@pytest.mark.parametrize(
    ("reclaim", "want_gone"),
    [
        pytest.param("node-local", [], id="not by node-local"),
        pytest.param("all", ["ml/v0", "ml/v1"], id="with the whole group"),
    ],
)
def test_the_claim_of_a_group(reclaim: str, want_gone: list[str]) -> None:
    plan = ask(
        machine("a"),
        *classes("gpu"),
        template("t"),
        slices("a", device("x")),
        held("c", "a", "x", groups=("v",)),
        gang("v", 1),
        *members(2, container("1"), group="v", on="a"),
        wanting("p"),
        preempt=True,
        dra_reclaim=reclaim,
        objective=("max:podsPlaced", "min:victimPods"),
    )
    assert [e.pod for e in plan.evictions] == want_gone


def test_case_64_no_device_is_counted_twice() -> None:
    name = "example.com/gpu"
    (mapped,) = classes("gpu")
    mapped["spec"]["extendedResourceName"] = name
    asking = {"name": "main", "resources": {"requests": {"cpu": "1", name: "1"}}}
    plugin = node("plugin", allocatable={"cpu": "64", "pods": "110", name: "1"})
    bare = {"cpu": "64", "memory": "1Gi", "pods": "110"}
    plan = ask(
        plugin,
        node("dra", allocatable=bare),
        mapped,
        template("t"),
        slices("dra", device("x"), device("y"), device("z")),
        held("of-o", "dra", "x", by=("o",)),
        pod("o", asking, on="dra"),
        # Two devices are left on the node, and one in the plugin's counter.
        *(pod(f"r{i}", asking, priority=20) for i in range(2)),
        *(wanting(f"p{i}") for i in range(2)),
    )
    found = given(plan)
    assert sorted(d for devices in found.values() for d in devices) == ["y", "z"]
    assert len(found) == 3


def test_pods_with_unlike_claims_share_a_node() -> None:
    """Counting lets two pairs and a single one on each node; roots leave room for less."""
    devices = [device(f"{n}{r}", **root(r)) for r in ("0", "1") for n in ("a", "b")]
    plan = ask(
        machine("a"),
        *classes("gpu"),
        template("t"),
        template(
            "pair",
            exactly(count=2),
            constraints=[{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
        ),
        slices("a", *devices),
        *(wanting(f"one{i}", "t") for i in range(2)),
        *(wanting(f"two{i}", "pair") for i in range(2)),
    )
    found = given(plan)
    assert len(found) == 3
    assert sum(map(len, found.values())) == 4


def test_an_expression_that_is_not_understood_chooses_nothing() -> None:
    odd = {"cel": {"expression": "device.attributes['x'].y.matches('a.*')"}}
    plan = ask(
        machine("a"),
        *classes("gpu"),
        template("t", exactly(selectors=[odd])),
        slices("a", device("x")),
        gang("g"),
        wanting("p", group="g"),
    )
    assert given(plan) == {}
    ((group, reason),) = plan.conditional
    assert (group, "is not understood" in reason) == ("ml/g", True)
