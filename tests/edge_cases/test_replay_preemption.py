"""Cases 14 to 17 and 39 to 54: whom the scheduler itself would evict, beside the search."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, placed
from builders import RACK
from kube import composite, container, gang, node, pod, thing
from replaying import (
    ALL,
    BASIC,
    ONE_RACK,
    Obj,
    crowd,
    replay,
    room,
    run,
    victims,
    wait,
)

from optimizer.objective import PREEMPT_OBJECTIVE

OLD_GANG = "scheduling.k8s.io/v1alpha2"
GONE = {"deletionTimestamp": "2026-11-30T10:00:00Z"}
APP = {"matchLabels": {"app": "x"}}


def labelled(name: str, on: str, second: int, **fields: Any) -> Obj:
    metadata = {"name": name, "namespace": "ml", "labels": {"app": "x"}}
    return run(name, on, second=second, metadata=metadata, **fields)


def budget(allowed: int) -> Obj:
    return thing(
        "policy/v1/PodDisruptionBudget",
        "b",
        "ml",
        spec={"selector": APP},
        status={"disruptionsAllowed": allowed},
    )


NEEDED = [gang("g", 8, priority=10), *wait(8, priority=10)]
A_OR_B = [
    node("a"),
    node("b"),
    *crowd("a", 8, "a", priority=1),
    *crowd("b", 8, "b", priority=3),
    *NEEDED,
]


@pytest.mark.parametrize(
    ("objects", "request_fields", "want_replay", "want_optimize"),
    [
        pytest.param(
            [
                room(4),
                gang("g", 4, priority=10),
                *crowd("r", 4, "n0", group="g", priority=10),
                *wait(2, priority=10),
                node("n1"),
                *crowd("v", 8, "n1"),
            ],
            {},
            ["v6", "v7"],
            None,
            id="14: no room for the extras: preemption for them",
        ),
        pytest.param(
            [
                room(5),
                gang("g", 4, priority=10),
                *crowd("r", 4, "n0", group="g", priority=10),
                *wait(2, priority=10),
                node("n1"),
                *crowd("v", 8, "n1"),
            ],
            {},
            [],
            None,
            id="15: one of the extras binds: nobody goes in this cycle",
        ),
        pytest.param(
            [room(1), *crowd("v", 1, "n0"), gang("g", priority=10, **BASIC), *wait(5, priority=10)],
            {},
            ["v0"],
            ["v0"],
            id="17: basic and nothing fits: preemption",
        ),
        pytest.param(
            [
                node(labels={RACK: "r"}),
                *crowd("v", 8, "n0"),
                gang("g", 8, api=OLD_GANG, priority=10, **ONE_RACK),
                *wait(8, priority=10),
            ],
            {"release": "1.36"},
            [],
            [],
            id="39: 1.36 does not preempt for a topology constraint",
        ),
        pytest.param(
            [
                node(labels={RACK: "r"}),
                *crowd("v", 8, "n0"),
                gang("g", 8, priority=10, **ONE_RACK),
                *wait(8, priority=10),
            ],
            {},
            [f"v{i}" for i in range(8)],
            [f"v{i}" for i in range(8)],
            id="39: 1.37 does",
        ),
        pytest.param(
            [node(), *crowd("v", 8, "n0", priority=10), *NEEDED],
            {},
            [],
            [],
            id="40: equal priority never",
        ),
        pytest.param(
            [
                *(node(f"n{i}") for i in range(4)),
                gang("v", 1, **ALL),
                *(run(f"v{i}-{j}", f"n{i}", group="v") for i in range(4) for j in range(4)),
                *(run(f"w{i}", f"n{i}", gpus=4, priority=20) for i in range(4)),
                gang("g", 1, priority=10),
                *wait(1, priority=10),
            ],
            {},
            [f"v{i}-{j}" for i in range(4) for j in range(4)],
            [f"v{i}-{j}" for i in range(4) for j in range(4)],
            id="41: all sixteen or none",
        ),
        pytest.param(
            [
                node(),
                gang("v", 1, api=OLD_GANG, disruptionMode="PodGroup"),
                *crowd("v", 2, "n0", gpus=4, group="v"),
                pod("p", container(gpus=4), priority=10),
            ],
            {"release": "1.36"},
            ["v1"],
            None,
            id="42: 1.36, a single pod breaks the group",
        ),
        pytest.param(
            [
                node(),
                gang("v", 1, **ALL),
                *crowd("v", 2, "n0", gpus=4, group="v"),
                pod("p", container(gpus=4), priority=10),
            ],
            {},
            ["v0", "v1"],
            ["v0", "v1"],
            id="42: 1.37, the whole group goes",
        ),
        pytest.param(
            [
                node(),
                gang("v", 1, api=OLD_GANG, priority=5),
                *crowd("v", 8, "n0", group="v", priority=100),
                gang("g", 8, api=OLD_GANG, priority=10),
                *wait(8, priority=10),
            ],
            {"release": "1.36"},
            [f"v{i}" for i in range(8)],
            [f"v{i}" for i in range(8)],
            id="43: 1.36, the priority of the group counts for a group",
        ),
        pytest.param(
            [
                node(),
                gang("v", 1, api=OLD_GANG, priority=5),
                *crowd("v", 8, "n0", group="v", priority=100),
                pod("p", container(gpus=4), priority=10),
            ],
            {"release": "1.36"},
            [],
            [],
            id="43: 1.36, that of the pod for a pod",
        ),
        pytest.param(
            A_OR_B,
            {},
            ["a4", "a5", "a6", "a7", "b4", "b5", "b6", "b7"],
            [f"a{i}" for i in range(8)],
            id="44: 1.37, four on each node and its four youngest",
        ),
        pytest.param(
            A_OR_B,
            {"release": "1.36"},
            [f"a{i}" for i in range(8)],
            [f"a{i}" for i in range(8)],
            id="44: 1.36 places anew for each one spared: the lower ones go",
        ),
        pytest.param(
            [
                node(),
                budget(1),
                *(labelled(f"v{i}", "n0", i, gpus=2) for i in range(3)),
                *crowd("w", 2, "n0", priority=20),
                gang("g", 1, priority=10),
                *wait(1, gpus=2, priority=10),
            ],
            {},
            ["v0"],
            None,
            id="45: the two younger violate the budget and are spared first",
        ),
        pytest.param(
            [
                node(),
                *crowd("v", 8, "n0"),
                gang("g", 2, api=OLD_GANG, priority=10),
                *wait(1, priority=10),
                *wait(1, start=1, priority=10, preemptionPolicy="Never"),
            ],
            {"release": "1.36"},
            [],
            [],
            id="46: 1.36, Never on one member",
        ),
        pytest.param(
            [
                node(),
                *crowd("v", 8, "n0"),
                gang("g", 2, priority=10),
                *wait(1, priority=10),
                *wait(1, start=1, priority=10, preemptionPolicy="Never"),
            ],
            {},
            [],
            [],
            id="46: 1.37, mixed policies are an error",
        ),
        pytest.param(
            [
                node(),
                *crowd("v", 8, "n0"),
                gang("g", 3, priority=10),
                *wait(3, gpus=3, priority=10),
            ],
            {},
            [],
            [],
            id="47: not even with all of them gone",
        ),
        pytest.param(
            [
                room(4),
                node("n1"),
                *crowd("v", 8, "n1"),
                gang("g", 4, priority=10),
                *wait(8, priority=10),
            ],
            {},
            [],
            None,
            id="48: room for the floor: nobody goes in this cycle",
        ),
        pytest.param(
            [
                room(3),
                room(5, "n1"),
                *crowd("v", 5, "n1"),
                gang("g", 4, priority=10),
                *wait(8, priority=10),
            ],
            {},
            [f"v{i}" for i in range(5)],
            None,
            id="49: short of the floor: victims for as many as an emptied cluster takes",
        ),
        pytest.param(
            [
                node(),
                run("v0", "n0", gpus=8, metadata={"name": "v0", "namespace": "ml", **GONE}),
                node("n1"),
                run("u0", "n1", gpus=8),
                gang("g", 1, priority=10),
                *wait(1, gpus=8, priority=10, status={"nominatedNodeName": "n0"}),
            ],
            {},
            [],
            [],
            id="50: waits for what terminates on its nominated node",
        ),
        pytest.param(
            [
                node("x"),
                node("y"),
                run("x0", "x", gpus=8, priority=10),
                *(run(f"y{i}", "y", gpus=g, priority=1) for i, g in enumerate((3, 3, 2))),
                pod("p", container(gpus=8), priority=20),
            ],
            {},
            ["y0", "y1", "y2"],
            ["y0", "y1", "y2"],
            id="51: three of priority 1 before one of priority 10",
        ),
        pytest.param(
            [
                node("x"),
                node("y"),
                run("x0", "x", gpus=4, priority=5),
                run("x1", "x", gpus=4, priority=1),
                run("y0", "y", gpus=4, priority=5),
                run("y1", "y", gpus=4, priority=2),
                pod("p", container(gpus=8), priority=20),
            ],
            {},
            ["x0", "x1"],
            None,
            id="51: {5,1} before {5,2}",
        ),
        pytest.param(
            [
                node(),
                pod(
                    "d0",
                    container(cpu="4", gpus=8),
                    on="n0",
                    metadata={
                        "name": "d0",
                        "namespace": "ml",
                        "ownerReferences": [{"kind": "DaemonSet", "name": "d", "controller": True}],
                    },
                ),
                gang("g", 1, priority=10),
                *wait(1, gpus=8, priority=10),
            ],
            {},
            ["d0"],
            [],
            id="53: a DaemonSet pod can be a victim of the scheduler, not of a plan",
        ),
        pytest.param(
            [
                node(),
                composite("top", 1, **ALL),
                *(
                    gang(
                        name,
                        1,
                        parentCompositePodGroupName="top",
                        workloadRef={"workloadName": "w", "templateName": name},
                        **ALL,
                    )
                    for name in ("va", "vb")
                ),
                *crowd("va", 2, "n0", group="va"),
                *crowd("vb", 2, "n0", group="vb"),
                *crowd("w", 4, "n0", priority=20),
                gang("g", 1, priority=10),
                *wait(1, priority=10),
            ],
            {},
            ["va0", "va1", "vb0", "vb1"],
            ["va0", "va1", "vb0", "vb1"],
            id="54: pods of both leaves are one unit",
        ),
    ],
)
def test_victims(
    objects: list[Obj],
    request_fields: Obj,
    want_replay: list[str],
    want_optimize: list[str] | None,
) -> None:
    """`want_optimize` None: the search may do better in its own way."""
    assert victims(replay(*objects, preempt=True, **request_fields)) == want_replay
    if want_optimize is not None:
        plan = ask(*objects, preempt=True, objective=PREEMPT_OBJECTIVE, **request_fields)
        assert victims(plan) == want_optimize


def test_extras_beyond_the_floor_cost_victims() -> None:
    """Case 49: all eight are nominated, though four would do."""
    objects = [room(3), room(5, "n1"), *crowd("v", 5, "n1")]
    plan = replay(*objects, gang("g", 4, priority=10), *wait(8, priority=10), preempt=True)
    assert placed(plan) == {"ml/g": 8}


def test_floor_first() -> None:
    """Case 48: four are placed, the others wait for the next cycle."""
    objects = [room(4), node("n1"), *crowd("v", 8, "n1")]
    plan = replay(*objects, gang("g", 4, priority=10), *wait(8, priority=10), preempt=True)
    assert placed(plan) == {"ml/g": 4}


@pytest.mark.parametrize(
    ("victims_on_node", "want_placed", "want_victims"),
    [
        pytest.param(8, {"ml/g": 4}, ["v4", "v5", "v6", "v7"], id="enough lower ones"),
        pytest.param(3, {}, [], id="three of four: the evictions would be for nothing"),
    ],
)
def test_pod_by_pod(
    victims_on_node: int, want_placed: dict[str, int], want_victims: list[str]
) -> None:
    """1.35 preempts for each pod of a gang; what it wastes on one that fails is left out."""
    objects = [
        node(),
        *crowd("v", victims_on_node, "n0"),
        *crowd("w", 8 - victims_on_node, "n0", priority=20),
        gang("g", 4, priority=10),
        *wait(4, priority=10),
    ]
    plan = replay(*objects, preempt=True, release="1.35")
    assert (placed(plan), victims(plan)) == (want_placed, want_victims)


def test_queue_goes_on_without_the_victims() -> None:
    """The first preemptor needs half of what its victim held; the next entry finds the rest."""
    plan = replay(
        node(),
        gang("v", 1, **ALL),
        *crowd("v", 2, "n0", gpus=4, group="v"),
        gang("g", 1, priority=10),
        *wait(1, gpus=4, priority=10),
        gang("h", 1, priority=5),
        *wait(1, gpus=4, group="h", priority=5),
        preempt=True,
    )
    assert placed(plan) == {"ml/g": 1, "ml/h": 1}
    assert victims(plan) == ["v0", "v1"]
    assert {eviction.preemptor for eviction in plan.evictions} == {"ml/g"}


def test_broken_group_is_a_unit_still() -> None:
    """1.36: what a single pod left of a group goes whole for the group that comes next."""
    plan = replay(
        node(),
        gang("v", 1, api=OLD_GANG, disruptionMode="PodGroup"),
        *crowd("v", 3, "n0", gpus=2, group="v"),
        *crowd("w", 2, "n0", priority=50),
        pod("p", container(gpus=2), priority=20),
        gang("g", 1, api=OLD_GANG, priority=10),
        *wait(1, gpus=2, priority=10),
        preempt=True,
        release="1.36",
    )
    assert placed(plan) == {"ml/g": 1, "ml/p": 1}
    assert victims(plan) == ["v0", "v1", "v2"]
