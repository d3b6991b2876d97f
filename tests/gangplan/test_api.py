"""The verbs as functions."""

from __future__ import annotations

from pathlib import Path

import pytest

import gangplan
from topology.plan import Request

CASES = Path(__file__).parents[1] / "cases"
RACKS = CASES / "place-fragmented-racks/snapshot.yaml"


def test_every_verb(tmp_path: Path) -> None:
    snapshot = gangplan.read(RACKS)
    plan = gangplan.place(snapshot, ["work/train-b"], seed=3, objective=("max:groupsPlaced",))
    assert plan.request == Request(
        groups=("work/train-b",), seed=3, objective=("max:groupsPlaced",)
    )
    assert gangplan.verify(snapshot, plan).is_valid
    table = gangplan.placements_table(plan)
    assert set(table.column("group").to_pylist()) == {"work/train-b"}
    assert gangplan.explain(snapshot).request.command == "explain"

    gangplan.write_snapshot(snapshot, tmp_path / "stored")
    assert gangplan.read(tmp_path / "stored").pods.refs == snapshot.pods.refs
    assert "work" not in gangplan.anonymize(snapshot).pods.refs[0]


def test_preempt() -> None:
    snapshot = gangplan.read(CASES / "preempt-pdb-two-domains/snapshot.yaml")
    plan = gangplan.preempt(snapshot, ["work/wide"], pdb="hard")
    assert [(e.pod, e.node, e.preemptor) for e in plan.evictions] == [
        ("other/x1", "n1", "work/wide"),
        ("other/x2", "n2", "work/wide"),
    ]
    assert gangplan.verify(snapshot, plan).is_valid
    assert plan.request.objective[0] == "max:priority"
    assert gangplan.place(snapshot, ["work/wide"]).evictions == ()


def test_steps_are_told() -> None:
    steps: list[str] = []
    gangplan.place(gangplan.read(RACKS, progress=steps.append), progress=steps.append)
    assert f"reading {RACKS}" in steps


@pytest.mark.parametrize(
    ("groups", "options", "want_message"),
    [
        pytest.param(["work/train-c"], {}, "did you mean work/train-", id="unknown group"),
        pytest.param(None, {"objective": ("max:speed",)}, "speed", id="unknown criterion"),
    ],
)
def test_refusals(groups: list[str] | None, options: dict[str, object], want_message: str) -> None:
    with pytest.raises(gangplan.RequestError, match=want_message):
        gangplan.place(gangplan.read(RACKS), groups, **options)


def test_unreadable() -> None:
    with pytest.raises(gangplan.SnapshotError, match=r"nowhere\.yaml"):
        gangplan.read("nowhere.yaml")


def test_the_graph_of_domains_reaches_every_node() -> None:
    import networkx as nx

    snapshot = gangplan.generate("dgx-h100", nodes=8, utilization=0.5, pending=0.2, seed=1)
    graph = gangplan.graph(snapshot)
    machines = {("node", node.name) for node in snapshot.nodes}
    assert machines <= nx.descendants(graph, ("fleet",))
    assert nx.is_directed_acyclic_graph(graph)
