"""What is said of gangs that evictions would leave below their minimum."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask
from kube import container, gang, node, pod

Obj = dict[str, Any]


def running(name: str, on: str, group: str = "v") -> Obj:
    return pod(name, container(gpus=8), group=group, on=on, priority=1)


LEFT = (
    "evictions would leave 1 gang below the minimum: ml/v (would run 1 of 2 pods); "
    "what still runs of a gang then holds its room for nothing"
)


@pytest.mark.parametrize(
    ("group", "nodes", "release", "want"),
    [
        pytest.param(gang("v", 2, priority=1), 2, "1.37", [LEFT], id="its pods go one by one"),
        pytest.param(
            gang("v", 2, priority=1, disruptionMode={"all": {}}), 2, "1.37", [], id="it goes whole"
        ),
        pytest.param(
            gang("v", 2, priority=1, disruptionMode={"all": {}}),
            2,
            "1.36",
            [LEFT],
            id="1.36: a single pod takes one pod of it even so",
        ),
        pytest.param(gang("v", 1, priority=1), 2, "1.37", [], id="enough are left"),
        pytest.param(gang("v", 1, priority=1), 1, "1.37", [], id="none is left"),
        pytest.param(gang("v", 3, priority=1), 2, "1.37", [], id="it was below before"),
    ],
)
def test_gangs_left_below_their_minimum(
    group: Obj, nodes: int, release: str, want: list[str]
) -> None:
    fleet = [node(f"n{i}") for i in range(nodes)]
    members = [running(f"v-{i}", f"n{i}") for i in range(nodes)]
    preemptor = pod("p", container(gpus=8), priority=10)
    plan = ask(*fleet, group, *members, preemptor, command="preempt", preempt=True, release=release)
    assert plan.evictions
    assert [w for w in plan.warnings if w.startswith("evictions")] == want
