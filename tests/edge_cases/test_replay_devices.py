"""Case 55 to 57 for the scheduler's own steps: devices are filters, and victims give none back."""

from __future__ import annotations

import pytest
from asking import placed
from kube import container, gang, node, pod, thing
from replaying import Obj, replay, victims

DRIVER = "gpu.example.com"


def ask_for(count: int) -> Obj:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "count": count}}
    return {"devices": {"requests": [request]}}


def devices(total: int, held: int, on: str = "n0") -> list[Obj]:
    """A class, the devices of a node, a claim that holds some of them, a template for two."""
    names = [f"gpu-{i}" for i in range(total)]
    results = [{"request": "r", "driver": DRIVER, "pool": on, "device": n} for n in names[:held]]
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    reserved = [{"resource": "pods", "name": "v", "uid": "v"}]
    found = [
        thing("resource.k8s.io/v1/DeviceClass", "gpu", spec={}),
        thing(
            "resource.k8s.io/v1/ResourceSlice",
            f"slice-{on}",
            spec={
                "driver": DRIVER,
                "nodeName": on,
                "pool": pool,
                "devices": [{"name": name} for name in names],
            },
        ),
        thing("resource.k8s.io/v1/ResourceClaimTemplate", "two", "ml", spec={"spec": ask_for(2)}),
    ]
    if held:
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        found.append(
            thing(
                "resource.k8s.io/v1/ResourceClaim", "old", "ml", spec=ask_for(held), status=status
            )
        )
    return found


def claiming(count: int, **fields: object) -> list[Obj]:
    """Pending pods of gang g that each want two devices."""
    claims = [{"name": "gpus", "resourceClaimTemplateName": "two"}]
    return [
        pod(f"g{i}", container(cpu="1"), group="g", resourceClaims=claims, **fields)
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("held", "want_placed"),
    [
        pytest.param(0, {"ml/g": 4}, id="eight free: four pods"),
        pytest.param(2, {"ml/g": 3}, id="six free: three of the four, the floor is two"),
        pytest.param(5, {}, id="three free: one pod is too few"),
    ],
)
def test_devices_are_a_filter(held: int, want_placed: dict[str, int]) -> None:
    assert placed(replay(node(), *devices(8, held), gang("g", 2), *claiming(4))) == want_placed


def test_victims_give_no_device_back() -> None:
    """Case 56: the victim's claim outlives it, so nobody goes."""
    objects = [node(), *devices(8, 8), pod("v", container(cpu="1"), on="n0")]
    plan = replay(*objects, gang("g", 1, priority=10), *claiming(1, priority=10), preempt=True)
    assert (placed(plan), victims(plan)) == ({}, [])
    alone = replay(
        *objects,
        pod(
            "p",
            container(cpu="1"),
            priority=10,
            resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two"}],
        ),
        preempt=True,
    )
    assert (placed(alone), victims(alone)) == ({}, [])
