"""Devices held through resource claims, as they show in placements and causes."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of, group_of, placed, why_not
from fleets import machine, members
from kube import GPU, container, gang, pod, thing

Obj = dict[str, Any]
DRIVER = "gpu.example.com"


def device_objects(total: int, held: int, *, on: str = "a") -> list[Obj]:
    """A device class, a slice of a node, and a claim that holds some devices of it."""
    names = [f"gpu-{i}" for i in range(total)]
    results = [
        {"request": "r", "driver": DRIVER, "pool": on, "device": name} for name in names[:held]
    ]
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": held}}
    return [
        thing("resource.k8s.io/v1/DeviceClass", "gpu", spec={}),
        thing(
            "resource.k8s.io/v1/ResourceSlice",
            f"slice-{on}",
            spec={
                "driver": DRIVER,
                "nodeName": on,
                "pool": {"name": on, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": name} for name in names],
            },
        ),
        thing(
            "resource.k8s.io/v1/ResourceClaim",
            "old",
            "ml",
            spec={"devices": {"requests": [request]}},
            status={"allocation": {"devices": {"results": results}}},
        ),
        thing(
            "resource.k8s.io/v1/ResourceClaimTemplate",
            "four",
            "ml",
            spec={
                "spec": {
                    "devices": {
                        "requests": [
                            {"name": "r", "exactly": {"deviceClassName": "gpu", "count": 4}}
                        ]
                    }
                }
            },
        ),
    ]


CLAIMING = {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "four"}]}


@pytest.mark.parametrize(
    ("held", "want", "want_mentions"),
    [
        pytest.param(4, None, "", id="enough is free"),
        pytest.param(
            6,
            "device-held",
            "it asks for 4 of class gpu (2 of 8 are free)",
            id="devices are held",
        ),
    ],
)
def test_device_held(held: int, want: str | None, want_mentions: str) -> None:
    plan = ask(
        machine("a"), *device_objects(8, held), gang("g"), *members(1, container("1"), **CLAIMING)
    )
    assert why_not(plan) == ({"ml/g": want} if want else {})
    if want:
        cause = cause_of(plan)
        assert want_mentions in cause.message
        assert cause.details["devices"] == {"gpu": {"asked": 4, "free": 2, "total": 8}}
        assert cause.details["event"] == "0/1 nodes are available: 1 cannot allocate all claims."


def test_a_plan_says_which_devices() -> None:
    plan = ask(
        machine("a"), *device_objects(8, 4), gang("g"), *members(1, container("1"), **CLAIMING)
    )
    assert placed(plan) == {"ml/g": 1}
    assert plan.conditional == ()
    (member,) = group_of(plan).pods
    assert [d.to_dict() for d in member.devices] == [
        {"claim": "gpus", "request": "r", "driver": DRIVER, "pool": "a", "device": f"gpu-{i}"}
        for i in range(4, 8)
    ]


def test_case_63_an_allocated_claim_holds_its_pod_to_a_node() -> None:
    claim = thing(
        "resource.k8s.io/v1/ResourceClaim",
        "mine",
        "ml",
        spec={"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        status={
            "allocation": {
                "devices": {
                    "results": [{"request": "r", "driver": DRIVER, "pool": "b", "device": "gpu-0"}]
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": ["b"]}
                            ]
                        }
                    ]
                },
            }
        },
    )
    wanting = pod("p", resourceClaims=[{"name": "gpus", "resourceClaimName": "mine"}])
    here = ask(machine("a"), machine("b"), claim, wanting)
    assert [p.node for p in group_of(here, "ml/p").pods] == ["b"]
    full = ask(machine("a"), machine("b"), claim, wanting, pod("x", container(gpus=8), on="b"))
    assert why_not(full) == {"ml/p": "busy"}
    assert cause_of(full, "ml/p").details["nodes"] == {
        f"Insufficient {GPU}": 1,
        "cannot allocate all claims": 1,
    }
