"""Who may be evicted, who has to go together, and who evicts nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from asking import ask, cause_of, pods_of, why_not
from builders import RACK
from kube import GPU, composite, container, gang, node, pod, thing

if TYPE_CHECKING:
    from topology.plan import Plan

Obj = dict[str, Any]
DEFAULT = (
    "max:priority",
    "min:pdbViolations",
    "min:highestVictimPriority",
    "min:victimUnits",
    "min:victimPods",
)
APP = {"matchLabels": {"app": "x"}}
ALL: Obj = {"disruptionMode": {"all": {}}}
ONE_RACK = {"schedulingConstraints": {"topology": [{"key": RACK}]}}


def preempt(*objects: Obj, **request: Any) -> Plan:
    """Plan with evictions; nobody is a victim who is not needed, as `ask` has verified."""
    return ask(*objects, **({"preempt": True, "objective": DEFAULT} | request))


def victims(plan: Plan) -> list[str]:
    """The evicted pods, the namespace left out."""
    return [eviction.pod.partition("/")[2] for eviction in plan.evictions]


def rack(name: str, where: str) -> Obj:
    return node(name, labels={RACK: where})


def running(name: str, on: str, priority: int = 0, *, gpus: int = 1, **fields: Any) -> Obj:
    return pod(name, container(gpus=gpus), on=on, priority=priority, **fields)


def crowd(name: str, count: int, on: str, priority: int = 0, **fields: Any) -> list[Obj]:
    return [running(f"{name}{i}", on, priority, **fields) for i in range(count)]


def wanted(count: int = 1, *, gpus: int = 8, priority: int = 10, **fields: Any) -> list[Obj]:
    """Pending pods of gang g."""
    return [
        pod(f"g{i}", container(gpus=gpus), group="g", priority=priority, **fields)
        for i in range(count)
    ]


def owned(name: str, kind: str, on: str) -> Obj:
    owner = {"kind": kind, "name": "d", "controller": True}
    metadata = {"name": name, "namespace": "ml", "ownerReferences": [owner]}
    return pod(name, container(gpus=8), on=on, metadata=metadata)


def labelled(name: str, on: str, **fields: Any) -> Obj:
    metadata = {"name": name, "namespace": "ml", "labels": {"app": "x"}}
    return running(name, on, metadata=metadata, **fields)


def budget(allowed: int) -> Obj:
    return thing(
        "policy/v1/PodDisruptionBudget",
        "b",
        "ml",
        spec={"selector": APP},
        status={"disruptionsAllowed": allowed},
    )


@pytest.mark.parametrize(
    ("objects", "want_victims"),
    [
        pytest.param(
            [node(), *crowd("v", 8, "n0", 10), gang(priority=10), *wanted()],
            [],
            id="40: equal priority never goes",
        ),
        pytest.param(
            [
                *(node(f"n{i}") for i in range(4)),
                gang("v", 1, **ALL),
                *(running(f"v{i}-{j}", f"n{i}", group="v") for i in range(4) for j in range(4)),
                *(running(f"w{i}", f"n{i}", 20, gpus=4) for i in range(4)),
                gang(priority=10),
                *wanted(gpus=1),
            ],
            [f"v{i}-{j}" for i in range(4) for j in range(4)],
            id="41: all sixteen pods on four nodes or none",
        ),
        pytest.param(
            [node(), *crowd("v", 8, "n0"), gang(min_count=3, priority=10), *wanted(3, gpus=3)],
            [],
            id="47: would not fit even with all of them gone",
        ),
        pytest.param(
            [
                node(),
                *crowd("w", 4, "n0", 20),
                running("v", "n0", gpus=4),
                node("n1"),
                running("u", "n1", 20, gpus=4),
                gang(min_count=4, priority=10),
                *wanted(8, gpus=1),
            ],
            ["v"],
            id="48: room for the minimum: the rest, too, is worth who may go",
        ),
        pytest.param(
            [node(), owned("d", "DaemonSet", "n0"), gang(priority=10), *wanted()],
            [],
            id="53: DaemonSet pods stay, unlike in kube-scheduler",
        ),
        pytest.param(
            [
                node(),
                node("n1"),
                composite("top", priority=1, **ALL),
                *(
                    gang(
                        name,
                        priority=1,
                        parentCompositePodGroupName="top",
                        workloadRef={"workloadName": "w", "templateName": "t"},
                        **ALL,
                    )
                    for name in ("a", "b")
                ),
                running("a0", "n0", 1, gpus=8, group="a"),
                running("b0", "n1", 1, gpus=1, group="b"),
                running("c0", "n1", 20, gpus=7),
                gang(priority=10),
                *wanted(),
            ],
            ["a0", "b0"],
            id="54: both leaves of an `all` parent are one unit",
        ),
        pytest.param(
            [
                node(),
                node("n1"),
                *crowd("v", 8, "n0", 1),
                *crowd("w", 8, "n1", 3),
                gang(min_count=8, priority=10),
                *wanted(8, gpus=1),
            ],
            [f"v{i}" for i in range(8)],
            id="44: the eight of lower priority, on one node",
        ),
        pytest.param(
            [
                node(),
                gang("v", 8, priority=50),
                *crowd("v", 8, "n0", 0, group="v"),
                gang(priority=10),
                *wanted(),
            ],
            [],
            id="the group's priority protects its pods",
        ),
        pytest.param(
            [
                rack("n0", "a"),
                rack("n1", "b"),
                running("v", "n0", gpus=8),
                running("w", "n1", gpus=2),
                running("x", "n1", gpus=2),
                gang(min_count=2, priority=10, **ONE_RACK),
                *wanted(2, gpus=4),
            ],
            ["v"],
            id="fewest units in the rack that needs fewest",
        ),
    ],
)
def test_victims(objects: list[Obj], want_victims: list[str]) -> None:
    plan = preempt(*objects)
    assert victims(plan) == want_victims
    assert bool(want_victims) == (plan.criteria["victimPods"] > 0)


def test_minimum_without_victims_evicts_for_the_rest() -> None:
    """48: the scheduler preempts for the other four in its next cycle; a plan is made for both."""
    plan = preempt(
        node(), running("v", "n0", gpus=4), gang(min_count=4, priority=10), *wanted(8, gpus=1)
    )
    assert (len(pods_of(plan)), victims(plan)) == (8, ["v"])
    assert plan.bound.proof == "optimal"


def test_below_the_minimum_as_many_as_fit_are_planned() -> None:
    """49: room for 3 of at least 4 pods: all 8 get a node, not just 4."""
    plan = preempt(node(), *crowd("v", 5, "n0"), gang(min_count=4, priority=10), *wanted(8, gpus=1))
    assert len(pods_of(plan)) == 8
    assert victims(plan) == [f"v{i}" for i in range(5)]


@pytest.mark.parametrize(
    ("release", "want_victims"),
    [
        pytest.param("1.36", ["v0"], id="1.36: one pod, the group is left broken"),
        pytest.param("1.37", ["v0", "v1"], id="1.37: the whole group"),
    ],
)
def test_single_pod_and_group_that_goes_whole(release: str, want_victims: list[str]) -> None:
    """42."""
    plan = preempt(
        node(),
        node("n1"),
        gang("v", 2, **ALL),
        running("v0", "n0", gpus=8, group="v"),
        running("v1", "n1", gpus=8, group="v"),
        running("w", "n1", 20, gpus=0),
        pod("p", container(gpus=8), priority=10, nodeSelector={"kubernetes.io/hostname": "n0"}),
        release=release,
    )
    assert victims(plan) == want_victims


@pytest.mark.parametrize(
    ("single", "want_victims"),
    [
        pytest.param(False, ["v0"], id="a gang sees the group's priority"),
        pytest.param(True, [], id="a single pod sees the pod's own"),
    ],
)
def test_priorities_of_a_group_and_of_its_pods(single: bool, want_victims: list[str]) -> None:
    """43, release 1.36: group of priority 5 whose pods say 100."""
    mine = [pod("p", container(gpus=8), priority=10)]
    plan = preempt(
        node(),
        gang("v", 1, priority=5),
        running("v0", "n0", 100, gpus=8, group="v"),
        *(mine if single else [gang(priority=10), *wanted()]),
        release="1.36",
    )
    assert victims(plan) == want_victims


@pytest.mark.parametrize(
    ("allowed", "pdb", "want_violations", "want_placed"),
    [
        pytest.param(1, "soft", 1, True, id="45: one of two goes within the budget"),
        pytest.param(2, "soft", 0, True, id="the budget allows both"),
        pytest.param(1, "hard", 0, False, id="hard: never beyond it"),
        pytest.param(2, "hard", 0, True, id="hard: within it"),
    ],
)
def test_budget(allowed: int, pdb: str, want_violations: int, want_placed: bool) -> None:
    plan = preempt(
        node(),
        *(labelled(f"v{i}", "n0", gpus=4) for i in range(2)),
        budget(allowed),
        gang(priority=10),
        *wanted(),
        pdb=pdb,
    )
    assert plan.criteria["pdbViolations"] == want_violations
    assert victims(plan) == (["v0", "v1"] if want_placed else [])


def test_budget_spares_others() -> None:
    """45: of three victims of equal priority, one free of the budget is taken first."""
    plan = preempt(
        node(),
        labelled("a", "n0", gpus=4),
        running("z", "n0", gpus=4),
        budget(0),
        gang(priority=10),
        *wanted(gpus=4),
    )
    assert victims(plan) == ["z"]


def test_never_preempts() -> None:
    """46: one member with the policy Never, in 1.36, keeps the whole group from preempting."""
    plan = preempt(
        node(),
        running("v", "n0", gpus=8),
        gang(min_count=2, priority=10),
        *wanted(1, gpus=4, preemptionPolicy="Never"),
        pod("g1", container(gpus=4), group="g", priority=10),
        release="1.36",
    )
    assert victims(plan) == []
    assert why_not(plan) == {"ml/g": "policy-never"}


@pytest.mark.parametrize(
    ("release", "want_victims"),
    [
        pytest.param("1.36", [], id="1.36 refuses"),
        pytest.param("1.37", ["v"], id="1.37 preempts"),
    ],
)
def test_group_with_topology(release: str, want_victims: list[str]) -> None:
    """39."""
    plan = preempt(
        rack("n0", "a"),
        running("v", "n0", gpus=8),
        gang(priority=10, **ONE_RACK),
        *wanted(),
        release=release,
    )
    assert victims(plan) == want_victims
    if not want_victims:
        assert "does not preempt for groups with a topology constraint" in cause_of(plan).message


def test_room_on_its_way_is_waited_for() -> None:
    """50: a victim that is terminating on the nominated node: no second preemption."""
    going = {
        "metadata": {"name": "old", "namespace": "ml", "deletionTimestamp": "2026-01-01T0:0:0Z"}
    }
    plan = preempt(
        node(),
        node("n1"),
        running("old", "n0", gpus=8, **going),
        running("v", "n1", gpus=8),
        gang(priority=10),
        *wanted(status={"nominatedNodeName": "n0"}),
    )
    assert victims(plan) == []
    assert "are terminating" in cause_of(plan).message


def test_cause_says_that_victims_were_looked_for() -> None:
    plan = preempt(node(), *crowd("v", 8, "n0", 20), gang(priority=10), *wanted())
    assert cause_of(plan).name == "busy"
    assert "no victims below priority 10 were found" in cause_of(plan).message


def test_shared_victim_is_charged_once() -> None:
    """Two gangs of one priority use what one victim leaves."""
    plan = preempt(
        node(),
        running("v", "n0", gpus=8),
        node("n1"),
        *crowd("w", 2, "n1", gpus=4),
        *(gang(name, priority=10) for name in ("g", "h")),
        *wanted(gpus=4),
        pod("h0", container(gpus=4), group="h", priority=10),
    )
    assert victims(plan) == ["v"]
    assert plan.bound.proof == "optimal"


def test_lower_priority_gives_way_and_is_placed_anew() -> None:
    """What waits at a lower priority is no obstacle; it goes where room is left."""
    plan = preempt(
        node(),
        running("v", "n0", gpus=4),
        node("n1", allocatable={"cpu": "64", "memory": "1Ti", "pods": "9", GPU: "4"}),
        running("w", "n1", 20, gpus=4),
        gang(priority=10),
        *wanted(),
        pod("low", container(gpus=4), priority=5),
    )
    assert pods_of(plan) == {"g0": "n0"}
    assert victims(plan) == ["v"]


def test_company_is_not_evicted() -> None:
    """A victim that the preemptor needs beside it (affinity) stays."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": APP}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    plan = preempt(
        node(),
        labelled("x", "n0", gpus=4),
        running("z", "n0", gpus=4),
        gang(priority=10),
        *wanted(gpus=4, affinity=near),
    )
    assert victims(plan) == ["z"]


def test_company_of_another_group_is_not_evicted() -> None:
    """Nor one that another group of the plan needs beside it."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": APP}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    plan = preempt(
        node(),
        labelled("x", "n0", gpus=3),
        running("z", "n0", gpus=3),
        *(gang(name, priority=10) for name in ("g", "h")),
        pod("h0", container(gpus=2), group="h", priority=10, affinity=near),
        *wanted(gpus=3),
    )
    assert victims(plan) == ["z"]
    assert pods_of(plan, "ml/h") == {"h0": "n0"}


def test_a_higher_priority_evicts_nobody_for_others() -> None:
    """Group h fits without victims, and evicts nobody so that g may have its place."""
    plan = preempt(
        node(),
        node("n1"),
        running("v", "n0", 15, gpus=8),
        gang(priority=10),
        gang("h", priority=20),
        *wanted(),
        pod("h0", container(gpus=8), group="h", priority=20),
    )
    assert (pods_of(plan, "ml/h"), pods_of(plan), victims(plan)) == ({"h0": "n1"}, {}, [])
    assert plan.bound.proof == "optimal"
