"""What the pictures draw, from a snapshot and from a document."""

from __future__ import annotations

import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot, make_spec

import gangplan
from data.inspection_documents import inspection_from_dict
from gangplan.reporting.fleet import fleet_of_inspection, fleet_of_snapshot
from topology.errors import RequestError
from topology.model import ClaimNeed, Node, Snapshot, Taint


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


@pytest.mark.parametrize(
    ("node", "spec", "devices", "want_unit", "want_capacity", "want_free"),
    [
        pytest.param(make_node("n0"), make_spec(gpus=3), (), "GPU", [8], [5], id="GPUs"),
        pytest.param(
            Node("n0", {}, {"cpu": 8000, "pods": 10}),
            make_spec(gpus=0, cpu=2500),
            (),
            "CPU",
            [8],
            [5],
            id="neither GPUs nor devices",
        ),
        pytest.param(
            Node("n0", {}, {"cpu": 8000, "pods": 10}),
            make_spec(gpus=0, claims=(ClaimNeed("c", devices=(("gpu.example.com", 1),)),)),
            (("n0", "gpu.example.com", 4, 3), ("n0", "mig.example.com", 2, 2)),
            "device",
            [4],
            [3],
            id="devices, the class with the most",
        ),
        pytest.param(
            make_node("n0", taints=[Taint("broken")]),
            make_spec(gpus=3),
            (),
            "GPU",
            [8],
            [0],
            id="taint that nobody tolerates",
        ),
    ],
)
def test_units(
    node: Node,
    spec: object,
    devices: tuple[tuple[str, str, int, int], ...],
    want_unit: str,
    want_capacity: list[int],
    want_free: list[int],
) -> None:
    snapshot = make_snapshot([node], make_pods("p", 1, spec=spec, on="n0"), devices=devices)  # type: ignore[arg-type]
    fleet = fleet_of_snapshot(snapshot)
    assert (fleet.unit, fleet.capacity.tolist(), fleet.free.tolist()) == (
        want_unit,
        want_capacity,
        want_free,
    )
    inspected = fleet_of_inspection(inspection_from_dict(gangplan.inspect(snapshot).to_dict()))
    assert (inspected.unit, inspected.capacity.tolist()) == (want_unit, want_capacity)
    if not node.taints:  # not in the document
        assert inspected.free.tolist() == want_free


def test_amounts_that_are_none_are_refused() -> None:
    document = gangplan.inspect(make_fleet()).to_dict()
    document["nodes"][2]["free"][GPU] = "many"
    with pytest.raises(RequestError, match="inspection: n2: "):
        fleet_of_inspection(inspection_from_dict(document))
