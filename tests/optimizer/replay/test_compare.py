"""The two plans side by side, and the one that is never worse."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from asking import ask, placed
from builders import make_group, make_node, make_pods, make_snapshot, make_spec
from kube import container, gang, node, pod

from optimizer.objective import PREEMPT_OBJECTIVE
from ray_jobs import pipeline
from topology.plan import Request
from topology.plan_json import plan_from_dict

if TYPE_CHECKING:
    import pytest

Obj = dict[str, Any]
HETEROGENEOUS: list[Obj] = [
    node("n0"),
    node("n1"),
    gang("g", 9),
    *(pod(f"g{i}", container(cpu="4", gpus=1), group="g") for i in range(8)),
    pod("g8", container(cpu="4", gpus=8), group="g"),
]


def test_saved() -> None:
    plan = ask(*HETEROGENEOUS, policy="compare")
    assert plan.comparison is not None
    assert placed(plan) == {"ml/g": 9}
    assert placed(plan.comparison.replay) == {}
    assert {name: n for name, n in plan.comparison.saved.items() if n} == {
        "groupsPlaced": 1,
        "podsPlaced": 9,
        "gpusPlaced": 16,
    }
    assert plan.comparison.replay.bound.proof == "none"
    assert plan.comparison.replay.request.policy == "replay"


def test_round_trip() -> None:
    document = ask(*HETEROGENEOUS, policy="compare").to_dict()
    assert plan_from_dict(document).to_dict() == document
    assert "comparison" not in document["comparison"]["replay"]


def test_other_policies_have_no_comparison() -> None:
    for policy in ("optimize", "replay"):
        assert "comparison" not in ask(*HETEROGENEOUS, policy=policy).to_dict()


def test_better_replay_is_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Should the search ever lose, the answer is kube-scheduler's own plan, and says so."""
    search = pipeline.search_placement

    def lose(*args: Any) -> Any:
        return replace(search(*args), placements={})

    monkeypatch.setattr(pipeline, "search_placement", lose)
    plan = ask(node(), gang("g", 2), pod("g0", group="g"), pod("g1", group="g"), policy="compare")
    assert placed(plan) == {"ml/g": 2}
    assert plan.request.policy == "compare"
    assert plan.warnings[-1:] == (
        "the search found nothing as good as kube-scheduler's own plan, which is kept",
    )
    assert plan.comparison is not None
    assert not any(plan.comparison.saved.values())


def test_victims_for_a_lower_priority_are_not_adopted() -> None:
    """The scheduler puts the first gang on n0, by name, so that the second may have n1."""
    plan = ask(
        node("n0"),
        node("n1"),
        pod("high", container(gpus=8), on="n0", priority=8),
        pod("low", container(gpus=8), on="n1", priority=2),
        gang("a", priority=9),
        pod("a0", container(gpus=8), group="a", priority=9),
        gang("b", priority=4),
        pod("b0", container(gpus=8), group="b", priority=4),
        command="place",
        preempt=True,
        objective=PREEMPT_OBJECTIVE,
        policy="compare",
    )
    assert plan.bound.proof == "optimal"
    assert [e.pod for e in plan.evictions] == ["ml/low"]
    assert placed(plan) == {"ml/a": 1}
    assert plan.comparison is not None
    assert placed(plan.comparison.replay) == {"ml/a": 1, "ml/b": 1}
    assert not any("kube-scheduler" in warning for warning in plan.warnings)


def test_protected_victims_are_not_adopted() -> None:
    """The scheduler evicts a DaemonSet pod; a plan of ours does not, even if it places less."""
    owner = {"kind": "DaemonSet", "name": "d", "controller": True}
    metadata = {"name": "d0", "namespace": "ml", "ownerReferences": [owner]}
    plan = ask(
        node(),
        pod("d0", container(gpus=8), on="n0", metadata=metadata),
        gang("g", priority=10),
        pod("g0", container(gpus=8), group="g", priority=10),
        policy="compare",
        preempt=True,
        objective=PREEMPT_OBJECTIVE,
    )
    assert plan.comparison is not None
    assert (placed(plan), placed(plan.comparison.replay)) == ({}, {"ml/g": 1})
    assert plan.comparison.replay.verification is not None
    assert plan.comparison.replay.verification.is_valid
    assert plan.comparison.saved["groupsPlaced"] == -1


def test_snapshot_is_left_alone() -> None:
    """Victims go in the working snapshot alone."""
    snapshot = make_snapshot(
        [make_node("n0")],
        make_pods("v", 2, spec=make_spec(gpus=4), on="n0"),
        make_pods("g", 1, spec=make_spec(gpus=8), group="ml/g", priority=10),
        groups=[make_group("ml/g", 1, priority=10)],
    )
    before = snapshot.pods.phase.copy(), snapshot.pods.node.copy()
    plan = pipeline.make_plan(snapshot, Request(policy="replay", preempt=True))
    assert len(plan.evictions) == 2
    assert (before[0] == snapshot.pods.phase).all()
    assert (before[1] == snapshot.pods.node).all()
