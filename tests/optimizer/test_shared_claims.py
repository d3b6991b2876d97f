"""Claims that the pods of a group share take their devices once on a node."""

from __future__ import annotations

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec

from ray_jobs.pipeline import make_plan
from topology.model import ClaimNeed
from topology.plan import Request


@pytest.mark.parametrize(
    ("free", "want_placed"),
    [
        pytest.param((2, 0), {"ml/a": "n0"}, id="devices for one group, on one node"),
        pytest.param((0, 2), {"ml/a": "n1"}, id="on the other node"),
        pytest.param((4, 0), {"ml/a": "n0", "ml/b": "n0"}, id="for both"),
        pytest.param((1, 1), {}, id="enough in sum, on no node"),
    ],
)
def test_devices_are_taken_once_for_a_group(
    free: tuple[int, int], want_placed: dict[str, str]
) -> None:
    need = ClaimNeed("d", template="t", shared_by_group=True, devices=(("gpu.example.com", 2),))
    spec = make_spec(gpus=0, claims=(need,))
    snapshot = make_snapshot(
        [make_node("n0"), make_node("n1")],
        *(make_pods(name, 2, group=f"ml/{name}", spec=spec) for name in "ab"),
        groups=[make_group(f"ml/{name}", 2) for name in "ab"],
        devices=[(f"n{i}", "gpu.example.com", 4, count) for i, count in enumerate(free)],
    )
    plan = make_plan(snapshot, Request())
    assert plan.verification is not None
    assert plan.verification.violations == ()
    placed = {entry.group: entry.pods[0].node for entry in plan.groups if entry.pods}
    assert placed == want_placed
