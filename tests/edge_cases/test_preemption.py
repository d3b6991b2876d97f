"""Who may be evicted, who has to go together, and who evicts nobody."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from asking import ask, cause_of, pods_of, why_not
from builders import RACK
from kube import GPU, composite, container, gang, node, pod, thing
from preempting import DEFAULT, crowd, preempt, rack, running, victims, wanted

from topology.move_request import MoveRequest

Obj = dict[str, Any]
APP = {"matchLabels": {"app": "x"}}
ALL: Obj = {"disruptionMode": {"all": {}}}
ONE_RACK = {"schedulingConstraints": {"topology": [{"key": RACK}]}}


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


def test_budget_covers_three_and_allows_one() -> None:
    """45: two of three have to go; the budget is exceeded by one, whoever they are."""
    plan = preempt(
        node(),
        *(labelled(f"v{i}", "n0", gpus=2) for i in range(3)),
        running("w", "n0", 20, gpus=2),
        budget(1),
        gang(priority=10),
        *wanted(gpus=4),
    )
    assert (len(victims(plan)), plan.criteria["pdbViolations"]) == (2, 1)
    assert plan.bound.proof == "optimal"


def test_overlapping_budgets_count_each() -> None:
    """A pod that two budgets select counts in both: the one that only one selects goes."""
    both = {"name": "a", "namespace": "ml", "labels": {"app": "x", "tier": "y"}}
    tier = thing(
        "policy/v1/PodDisruptionBudget",
        "c",
        "ml",
        spec={"selector": {"matchLabels": {"tier": "y"}}},
        status={"disruptionsAllowed": 0},
    )
    plan = preempt(
        node(),
        running("a", "n0", gpus=4, metadata=both),
        labelled("b", "n0", gpus=4),
        budget(0),
        tier,
        gang(priority=10),
        *wanted(gpus=4),
    )
    assert (victims(plan), plan.criteria["pdbViolations"]) == (["b"], 1)


@pytest.mark.parametrize(
    ("spec", "status", "want_violations"),
    [
        pytest.param({}, {"disruptionsAllowed": 1}, 0, id="allows one"),
        pytest.param({}, {}, 1, id="no status: none"),
        pytest.param(
            {},
            {"disruptionsAllowed": 1, "observedGeneration": 1},
            1,
            id="status older than the object: none",
        ),
        pytest.param(
            {},
            {"disruptionsAllowed": 0, "disruptedPods": {"v": "2026-01-01T00:00:00Z"}},
            0,
            id="disrupted already",
        ),
        pytest.param({"selector": None}, {"disruptionsAllowed": 0}, 0, id="null selects none"),
        pytest.param({"selector": {}}, {"disruptionsAllowed": 0}, 1, id="empty selects all"),
    ],
)
def test_what_a_budget_says(spec: Obj, status: Obj, want_violations: int) -> None:
    own = thing(
        "policy/v1/PodDisruptionBudget",
        "b",
        "ml",
        metadata={"generation": 2},
        spec={"selector": APP, **spec},
        status=status,
    )
    plan = preempt(node(), labelled("v", "n0", gpus=8), own, gang(priority=10), *wanted())
    assert (victims(plan), plan.criteria["pdbViolations"]) == (["v"], want_violations)


@pytest.mark.parametrize(
    ("left", "right", "objective", "want_victims"),
    [
        pytest.param(
            {"x": (10, 8)},
            {"y0": (1, 4), "y1": (1, 2), "y2": (1, 2)},
            DEFAULT,
            ["y0", "y1", "y2"],
            id="51: three of priority 1 before one of priority 10",
        ),
        pytest.param(
            {"x0": (5, 4), "x1": (1, 4)},
            {"y0": (5, 4), "y1": (2, 4)},
            ("min:highestVictimPriority", "min:weightedVictimGpus"),
            ["x0", "x1"],
            id="51: equal highest priority, the smaller sum",
        ),
        pytest.param(
            {"x": (1, 8)},
            {"y0": (1, 4), "y1": (1, 4)},
            DEFAULT,
            ["x"],
            id="equal priorities: fewer victims",
        ),
    ],
)
def test_choice_of_a_node(
    left: dict[str, tuple[int, int]],
    right: dict[str, tuple[int, int]],
    objective: tuple[str, ...],
    want_victims: list[str],
) -> None:
    """51, a single pod: what stands on n0 or what stands on n1, (priority, GPUs) of each."""
    plan = preempt(
        node("n0"),
        node("n1"),
        *(running(name, "n0", priority, gpus=gpus) for name, (priority, gpus) in left.items()),
        *(running(name, "n1", priority, gpus=gpus) for name, (priority, gpus) in right.items()),
        pod("p", container(gpus=8), priority=20),
        objective=objective,
    )
    assert victims(plan) == want_victims
    assert plan.bound.proof == "optimal"


def test_never_on_one_member_is_refused_by_1_37() -> None:
    """46: members that differ in their policy fail together, whatever room there is."""
    plan = preempt(
        node(),
        running("v", "n0", gpus=8),
        gang(min_count=2, priority=10),
        *wanted(1, gpus=4, preemptionPolicy="Never"),
        pod("g1", container(gpus=4), group="g", priority=10),
    )
    assert (victims(plan), why_not(plan)) == ([], {"ml/g": "refused"})


def test_never_of_a_victim_protects_nobody() -> None:
    """The policy is about preempting, not about being preempted."""
    plan = preempt(
        node(),
        running("v", "n0", gpus=8, preemptionPolicy="Never"),
        gang(priority=10),
        *wanted(),
    )
    assert victims(plan) == ["v"]


def test_never_uses_room_that_others_leave() -> None:
    """A group that may not preempt takes what another one's victim leaves free."""
    plan = preempt(
        node(),
        running("v", "n0", gpus=8),
        *(gang(name, priority=10) for name in ("g", "h")),
        *wanted(gpus=4),
        pod("h0", container(gpus=4), group="h", priority=10, preemptionPolicy="Never"),
    )
    assert victims(plan) == ["v"]
    assert {e.preemptor for e in plan.evictions} == {"ml/g"}
    assert pods_of(plan, "ml/h") == {"h0": "n0"}


def test_no_false_proof_beside_a_group_that_never_preempts() -> None:
    """h may stand on either node; while it stays on n0, g cannot evict enough there."""
    plan = preempt(
        node("n0"),
        node("n2"),
        running("v", "n0", gpus=4),
        *(gang(name, priority=10) for name in ("g", "h")),
        *wanted(nodeSelector={"kubernetes.io/hostname": "n0"}),
        pod("h0", container(gpus=4), group="h", priority=10, preemptionPolicy="Never"),
    )
    assert victims(plan) == ["v"] or plan.bound.proof != "optimal"


@pytest.mark.parametrize(
    ("release", "want_victims"),
    [
        pytest.param("1.36", ["v"], id="1.36: allowed, the group's priority counts"),
        pytest.param("1.37", [], id="1.37: refused"),
    ],
)
def test_group_priority_above_its_pods(release: str, want_victims: list[str]) -> None:
    """22: pods of priority 5 in a group of priority 10, victims of priority 7."""
    plan = preempt(
        node(),
        running("v", "n0", 7, gpus=8),
        gang(priority=10),
        *wanted(priority=5),
        release=release,
    )
    assert victims(plan) == want_victims


def test_terminating_pod_holds_its_room_and_is_no_victim() -> None:
    """50: a pod that is going already keeps its GPUs, and is not evicted again."""
    going = {
        "metadata": {"name": "old", "namespace": "ml", "deletionTimestamp": "2026-01-01T0:0:0Z"}
    }
    plan = preempt(
        node(),
        running("old", "n0", gpus=4, **going),
        running("v", "n0", gpus=2),
        running("w", "n0", gpus=2),
        gang(priority=10),
        *wanted(gpus=4),
    )
    assert victims(plan) == ["v", "w"]
    assert cause_of(preempt(node(), running("old", "n0", gpus=8, **going), gang(), *wanted())).name


def test_terminating_member_of_a_unit_does_not_go_again() -> None:
    going = {
        "metadata": {"name": "v1", "namespace": "ml", "deletionTimestamp": "2026-01-01T0:0:0Z"}
    }
    plan = preempt(
        node(),
        node("n1"),
        gang("v", 2, **ALL),
        running("v0", "n0", gpus=8, group="v"),
        running("v1", "n1", gpus=8, group="v", **going),
        gang(priority=10),
        *wanted(),
    )
    assert victims(plan) == ["v0"]


def test_unit_goes_for_the_highest_on_its_nodes() -> None:
    """Both use a node that the unit of priority 5 leaves; only h may evict it."""
    plan = preempt(
        node("n0", labels={"pool": "a"}),
        node("n1", labels={"pool": "b"}),
        gang("v", 2, priority=5, **ALL),
        running("v0", "n0", 5, gpus=8, group="v"),
        running("v1", "n1", 5, gpus=8, group="v"),
        gang(priority=3),
        gang("h", priority=50),
        *wanted(priority=3, nodeSelector={"pool": "a"}),
        pod("h0", container(gpus=8), group="h", priority=50, nodeSelector={"pool": "b"}),
    )
    assert victims(plan) == ["v0", "v1"]
    assert {eviction.preemptor for eviction in plan.evictions} == {"ml/h"}
    assert pods_of(plan) == {"g0": "n0"}


@pytest.mark.parametrize(
    ("unit", "want_gone"),
    [
        pytest.param("pod", ["v0"], id="pod by pod, as the eviction API of 1.37 does"),
        pytest.param("group", [f"v{i}" for i in range(8)], id="the group as a whole"),
    ],
)
def test_drain_of_a_node_with_one_of_eight(
    unit: Literal["group", "pod"], want_gone: list[str]
) -> None:
    """52: one pod of an ALL group of eight is on the drained node, and finds no room elsewhere."""
    plan = ask(
        node("n0", spec={"unschedulable": True}),
        *(node(f"n{i}") for i in range(1, 8)),
        gang("v", 8, **ALL),
        *(running(f"v{i}", f"n{i}", gpus=8, group="v") for i in range(8)),
        move=MoveRequest(drain=("n0",), drain_unit=unit),
    )
    assert victims(plan) == want_gone
    assert {eviction.reason for eviction in plan.evictions} == {"drain"}
    assert pods_of(plan, "ml/v") == {}


def test_static_pod_is_never_a_victim() -> None:
    """53: nobody evicts what the kubelet starts again by itself."""
    mirror = {"name": "s", "namespace": "ml", "annotations": {"kubernetes.io/config.mirror": "1"}}
    static = pod("s", container(gpus=8), on="n0", metadata=mirror)
    assert victims(preempt(node(), static, gang(priority=10), *wanted())) == []


def test_nested_all_composites_are_one_unit() -> None:
    """54: the highest ALL ancestor counts, two levels up and across its branches."""
    link = {"workloadRef": {"workloadName": "w", "templateName": "t"}}
    plan = preempt(
        *(node(f"n{i}") for i in range(3)),
        composite("top", priority=1, **ALL),
        composite("low", priority=1, parentCompositePodGroupName="top"),
        gang("a", priority=1, parentCompositePodGroupName="low", **link),
        gang("b", priority=1, parentCompositePodGroupName="top", **link),
        running("a0", "n0", 1, gpus=8, group="a"),
        running("b0", "n1", 1, gpus=8, group="b"),
        running("c0", "n2", 20, gpus=8),
        running("d0", "n1", 20, gpus=0),
        gang(priority=10),
        *wanted(),
    )
    assert victims(plan) == ["a0", "b0"]
    assert plan.criteria["victimUnits"] == 1


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
