"""What the pictures draw, from a snapshot and from a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot
from kube import Obj, container, node, pod, read, thing

import gangplan
from data.inspection_documents import inspection_from_dict
from gangplan.reporting.fleet import fleet_of_inspection, fleet_of_snapshot
from topology.errors import RequestError

if TYPE_CHECKING:
    from topology.model import Snapshot


def make_fleet() -> Snapshot:
    """Four nodes in two racks; one is cordoned, one runs a gang."""
    return make_snapshot(
        [
            make_node("n0", gpus=4, rack="a"),
            make_node("n1", gpus=4, rack="a", unschedulable=True),
            make_node("n2", gpus=4, rack="b"),
            make_node("n3", gpus=4, rack="b"),
        ],
        make_pods("run", 2, group="ml/run", on="n2", priority=3),
        make_pods("wait", 1),
        groups=[make_group("ml/run", 2, priority=7)],
    )


def test_an_inspection_holds_the_same_fleet() -> None:
    snapshot = make_fleet()
    document = inspection_from_dict(gangplan.inspect(snapshot).to_dict())
    for fleet in (fleet_of_snapshot(snapshot), fleet_of_inspection(document)):
        assert fleet.nodes == ("n0", "n1", "n2", "n3")
        assert fleet.capacity.tolist() == [4, 4, 4, 4]
        assert fleet.used.tolist() == [0, 0, 2, 0]
        assert fleet.free.tolist() == [4, 0, 2, 4]
        assert [c.key for tree in fleet.trees for c in tree] == [RACK]
        run = fleet.pods["ml/run-0"]
        assert (run.owner, run.node, run.amount, run.priority) == ("ml/run", 2, 1, 7)
        assert fleet.pods["ml/wait-0"].node == -1


DRIVER = "gpu.example.com"
TWO_DEVICES = {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]}


def device_objects(on: str) -> list[Obj]:
    """Four devices of a node, two of them held by a claim, and a template for two."""
    held = [{"request": "r", "driver": DRIVER, "pool": on, "device": f"d{i}"} for i in range(2)]
    api = "resource.k8s.io/v1"
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"d{i}"} for i in range(4)]
    spec = {"driver": DRIVER, "nodeName": on, "pool": pool, "devices": devices}
    return [
        thing(f"{api}/DeviceClass", "gpu", spec={}),
        thing(f"{api}/ResourceSlice", f"slice-{on}", spec=spec),
        thing(
            f"{api}/ResourceClaim",
            "old",
            "ml",
            spec={"devices": TWO_DEVICES},
            status={"allocation": {"devices": {"results": held}}},
        ),
        thing(f"{api}/ResourceClaimTemplate", "two", "ml", spec={"spec": {"devices": TWO_DEVICES}}),
    ]


NO_GPUS = {"allocatable": {"cpu": "8", "pods": "10"}}
CLAIMING = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "two"}]}
BROKEN = {"taints": [{"key": "broken", "effect": "NoSchedule"}]}


@pytest.mark.parametrize(
    ("objects", "want_unit", "want_capacity", "want_free", "want_asked"),
    [
        pytest.param(
            [node(), pod("run", container(gpus=3), on="n0"), pod("p", container(gpus=2))],
            "GPU", [8], [5], 2,
            id="GPUs",
        ),
        pytest.param(
            [node(**NO_GPUS), pod("run", container("2500m"), on="n0"), pod("p", container("1"))],
            "CPU", [8], [5], 1,
            id="neither GPUs nor devices",
        ),
        pytest.param(
            [node(**NO_GPUS), *device_objects("n0"), pod("p", container(), **CLAIMING)],
            "device", [4], [2], 2,
            id="devices",
        ),
        pytest.param(
            [node(), node("n1", **NO_GPUS), *device_objects("n1"), pod("p", container(gpus=1))],
            "GPU", [8, 4], [8, 2], 1,
            id="GPUs here, devices there",
        ),
        pytest.param(
            [node(), *device_objects("n0"), pod("p", container(gpus=1))],
            "GPU", [8], [8], 1,
            id="both on one node",
        ),
        pytest.param(
            [node(spec=BROKEN), pod("p", container(gpus=1))], "GPU", [8], [0], 1, id="taint"
        ),
    ],
)  # fmt: skip
def test_units(
    objects: list[Obj],
    want_unit: str,
    want_capacity: list[int],
    want_free: list[int],
    want_asked: int,
) -> None:
    snapshot = read(*objects)
    fleet = fleet_of_snapshot(snapshot)
    assert (fleet.unit, fleet.capacity.tolist(), fleet.free.tolist()) == (
        want_unit,
        want_capacity,
        want_free,
    )
    assert fleet.pods["ml/p"].amount == want_asked
    inspected = fleet_of_inspection(inspection_from_dict(gangplan.inspect(snapshot).to_dict()))
    assert (inspected.unit, inspected.capacity.tolist()) == (want_unit, want_capacity)
    if not snapshot.nodes[0].taints:  # not in the document
        assert inspected.free.tolist() == want_free


def test_amounts_that_are_none_are_refused() -> None:
    document = gangplan.inspect(make_fleet()).to_dict()
    document["nodes"][2]["free"][GPU] = "many"
    with pytest.raises(RequestError, match="inspection: n2: "):
        fleet_of_inspection(inspection_from_dict(document))
