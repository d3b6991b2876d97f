"""Why a group is not placed: the cause that comes first, and a message a person can act on."""

from __future__ import annotations

import re
from typing import Any

import pytest
from asking import ask, cause_of, group_of, placed, why_not
from builders import RACK
from fleets import apart, labelled, machine, members
from kube import GPU, composite, container, gang, node, pod

Obj = dict[str, Any]
HOST = "kubernetes.io/hostname"
ONE_RACK = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
GATES = [{"name": "example.com/quota"}]
FITS = "it fits an empty cluster, but "


def daemon(name: str, gpus: int, on: str) -> Obj:
    owner = {"kind": "DaemonSet", "name": "d", "controller": True}
    metadata = {"name": name, "namespace": "ml", "ownerReferences": [owner]}
    return pod(name, container(gpus=gpus), on=on, metadata=metadata)


def child(name: str, min_count: int) -> Obj:
    reference = {"workloadName": "w", "templateName": "t"}
    return gang(name, min_count, parentCompositePodGroupName="top", workloadRef=reference)


RACKS = [machine("a", rack="r1"), machine("b", rack="r2")]
TAKEN = [pod("x", container(gpus=5), on="a"), pod("y", container(gpus=4), on="b")]


@pytest.mark.parametrize(
    ("objects", "want", "want_message"),
    [
        pytest.param(
            [*RACKS, gang("g", 4), *members(3)],
            "quorum-missing",
            "it needs 4 pods, but only 3 exist (0 running, 3 pending without gates); 1 more would "
            "be enough",
            id="quorum-missing: one pod too few",
        ),
        pytest.param(
            [*RACKS, gang("g", 8), *members(3, on="a"), *members(4, start=3)],
            "quorum-missing",
            "it needs 8 pods, but only 7 exist (3 running, 4 pending without gates); 1 more would "
            "be enough",
            id="quorum-missing: running ones count",
        ),
        pytest.param(
            [*RACKS, gang("g", 4), *members(2), *members(2, start=2, schedulingGates=GATES)],
            "quorum-missing",
            "it needs 4 pods, but only 2 exist (0 running, 2 pending without gates, 2 gated); 2 "
            "more would be enough",
            id="quorum-missing: the rest is gated",
        ),
        pytest.param(
            [*RACKS, composite("top", 2), child("g", 4), child("h", 1), *members(3)],
            "quorum-missing",
            "composite group ml/top: ml/g needs 4 pods, but only 3 exist (0 running, 3 pending "
            "without gates); 1 more would be enough",
            id="quorum-missing: below a composite",
        ),
        pytest.param(
            [*RACKS, gang("g", 2, priority=10), *members(2, priority=5)],
            "refused",
            "its scheduler refuses the group: SchedulerError: pod ml/g0 has priority 5, its group "
            "10",
            id="refused: priorities differ",
        ),
        pytest.param(
            [*RACKS, gang("g"), *members(1, container(gpus=16))],
            "impossible",
            f"each pod asks for {GPU} 16; the largest node it may use offers 8; nodes with 16, or "
            "pods that ask for at most 8, would be enough",
            id="impossible: pod larger than a node",
        ),
        pytest.param(
            [*RACKS, gang("g"), *members(1, container("100", gpus=1))],
            "impossible",
            "each pod asks for cpu 100; the largest node it may use offers 64; nodes with 100, or "
            "pods that ask for at most 64, would be enough",
            id="impossible: too much cpu",
        ),
        pytest.param(
            [*RACKS, gang("g"), *members(1, {"name": "m", "resources": {"requests": {"x/y": 1}}})],
            "impossible",
            "each pod asks for x/y 1, which no node it may use offers",
            id="impossible: a resource nobody offers",
        ),
        pytest.param(
            [
                node("a", allocatable={"cpu": "4", "pods": "10", GPU: "8"}),
                node("b", allocatable={"cpu": "64", "pods": "10", GPU: "1"}),
                gang("g"),
                *members(1, container("8", gpus=4)),
            ],
            "impossible",
            f"each pod asks for cpu 8 and {GPU} 4; no node offers all of it at once, even when it "
            "is empty",
            id="impossible: never both on one node",
        ),
        pytest.param(
            [machine("a"), daemon("d", 6, "a"), gang("g"), *members(1, container(gpus=4))],
            "impossible",
            f"each pod asks for {GPU} 4; DaemonSet and static pods leave at most 2 on any node it "
            "may use",
            id="impossible: DaemonSet pods stay",
        ),
        pytest.param(
            [*RACKS, gang("g", 9, **ONE_RACK), *members(9)],
            "impossible",
            f"it needs 9 pods in one {RACK}; the best domain, r1, holds 8 even when it is empty; a "
            "domain that holds 9, or fewer or smaller pods, would be enough",
            id="impossible: wider than a rack",
        ),
        pytest.param(
            [
                *RACKS,
                gang("g", 9, **ONE_RACK),
                *members(8),
                *members(1, container(gpus=4), start=8),
            ],
            "impossible",
            f"it needs 9 pods in one {RACK}, which ask for {GPU} 12 together; the best domain, r1, "
            "has 8 even when it is empty; a larger domain, or fewer or smaller pods, would be "
            "enough",
            id="impossible: pods of two sizes",
        ),
        pytest.param(
            [*RACKS, gang("g", 17), *members(17)],
            "impossible",
            "it needs 17 pods; the nodes it may use hold 16 even when they are empty; more nodes "
            "or a smaller minimum would be enough",
            id="impossible: wider than the fleet",
        ),
        pytest.param(
            [*RACKS, gang("g"), *members(1, nodeSelector={"pool": "x"})],
            "impossible",
            "no node matches the node selector and affinity of its pods; change them or label "
            "nodes",
            id="impossible: no node is selected",
        ),
        pytest.param(
            [*RACKS, gang("g", 2), *members(1), *members(1, start=1, nodeSelector={"pool": "x"})],
            "impossible",
            "no node matches the node selector and affinity of ml/g1; change them or label nodes",
            id="impossible: one pod of two selects no node",
        ),
        pytest.param(
            [
                *RACKS,
                composite("top", 2, **ONE_RACK),
                child("g", 4),
                child("h", 5),
                *members(4),
                *members(5, group="h"),
            ],
            "impossible",
            f"composite group ml/top: it needs 9 pods in one {RACK}; the best domain, r1, holds 8 "
            "even when it is empty; a domain that holds 9, or fewer or smaller pods, would be "
            "enough",
            id="impossible: a composite wider than a rack",
        ),
        pytest.param(
            [*RACKS, gang("g", 3), *(labelled(f"g{i}", group="g", **apart(HOST)) for i in "012")],
            "impossible",
            "it needs 3 pods; even when they are empty, the nodes it may use do not hold them so "
            f"that they are apart by {HOST}; more nodes or a smaller minimum would be enough",
            id="impossible: apart on two nodes",
        ),
        pytest.param(
            [gang("g"), *members(1)],
            "impossible",
            "the snapshot holds no node; add nodes to it",
            id="impossible: no nodes at all",
        ),
        pytest.param(
            [
                machine("a", 3, "r1"),
                machine("b", rack="r2"),
                gang("g", 4, **ONE_RACK),
                *members(2, on="a"),
                *members(2, start=2),
            ],
            "domain-pinned",
            f"its 2 running members hold it to {RACK}=r1, which has room for 1 of the 2 pods it "
            "still needs; it would fit in another domain if it were restarted as a whole",
            id="domain-pinned: the rack is nearly full",
        ),
        pytest.param(
            [
                machine("a", 8, "r1", unschedulable=True),
                machine("b", rack="r2"),
                gang("g", 4, **ONE_RACK),
                *members(1, on="a"),
                *members(3, start=1),
            ],
            "domain-pinned",
            f"its 1 running member holds it to {RACK}=r1, which has room for 0 of the 3 pods it "
            "still needs; it would fit in another domain if it were restarted as a whole",
            id="domain-pinned: the rack is cordoned",
        ),
        pytest.param(
            [
                machine("a"),
                pod("x", container(gpus=8), on="a", priority=1),
                gang("g", priority=10),
                *members(1, priority=10, preemptionPolicy="Never"),
            ],
            "policy-never",
            "evicting work below priority 10 would make room, but its preemption policy is Never; "
            "set PreemptLowerPriority, or wait",
            id="policy-never: lower priority runs",
        ),
        pytest.param(
            [
                machine("a"),
                pod("x", container(gpus=8), on="a", priority=10),
                gang("g", priority=10),
                *members(1, priority=10, preemptionPolicy="Never"),
            ],
            "busy",
            f"{FITS}there is no room for its pod now; one pod asks for {GPU} 1, and the most free "
            "on a node is 0, on a; room for 1 more would be enough",
            id="policy-never: not where equal priority runs",
        ),
        pytest.param(
            [machine("a", unschedulable=True), gang("g"), *members(1)],
            "constraint",
            "it would fit now if taints, cordons and node readiness were ignored: a is cordoned; "
            "uncordon or untaint nodes, or add tolerations",
            id="constraint: cordoned",
        ),
        pytest.param(
            [
                machine("a", unschedulable=True),
                machine("b", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]),
                machine("c", taints=[{"key": "gone", "effect": "NoExecute"}]),
                gang("g", 24),
                *members(24),
            ],
            "constraint",
            "it would fit now if taints, cordons and node readiness were ignored: c is tainted "
            "gone; b is tainted team=x; a is cordoned; uncordon or untaint nodes, or add "
            "tolerations",
            id="constraint: each node for its own reason",
        ),
        pytest.param(
            [
                *(machine(f"n{i}", unschedulable=True) for i in range(5)),
                gang("g", 40),
                *members(40),
            ],
            "constraint",
            "it would fit now if taints, cordons and node readiness were ignored: n0, n1, n2 and 2 "
            "more are cordoned; uncordon or untaint nodes, or add tolerations",
            id="constraint: many nodes",
        ),
        pytest.param(
            [*RACKS, *TAKEN, gang("g", 6, **ONE_RACK), *members(6)],
            "fragmented",
            "enough is free in sum for its 6 pods, but not where they may go together; the best "
            f"{RACK} is r2, which holds 4 of 6 pods now; room for 2 more there would be enough",
            id="fragmented: over racks",
        ),
        pytest.param(
            [*RACKS, *TAKEN, gang("g"), *members(1, container(gpus=6))],
            "fragmented",
            f"enough is free in sum for one pod, but not on one node; one pod asks for {GPU} 6, "
            "and the most free on a node is 4, on b; room for 1 more would be enough",
            id="fragmented: over nodes",
        ),
        pytest.param(
            [*RACKS, *TAKEN, gang("g", 10), *members(10)],
            "busy",
            f"{FITS}7 of 10 pods have room now; room for 3 more would be enough",
            id="busy: room for some",
        ),
        pytest.param(
            [*RACKS, *TAKEN, gang("g", 8, **ONE_RACK), *members(8)],
            "busy",
            f"{FITS}7 of 8 pods have room now; the best {RACK} is r2, which holds 4 of 8 pods now; "
            "room for 4 more there would be enough",
            id="busy: in every rack",
        ),
        pytest.param(
            [machine("a", 4), gang("g", 4), *members(4, on="a"), *members(2, start=4)],
            "busy",
            f"{FITS}there is no room for any of its 2 pods now; one pod asks for {GPU} 1, and the "
            "most free on a node is 0, on a; room for 1 more would be enough",
            id="busy: extra pods of a group that runs",
        ),
    ],
)
def test_cause(objects: list[Obj], want: str, want_message: str) -> None:
    plan = ask(*objects, command="explain")
    assert placed(plan) == {}
    cause = cause_of(plan)
    # What eviction would change follows where room is short; test_explain_eviction asks about it.
    message = re.split(r"; (?=evict|it evicts nobody)", cause.message)[0]
    assert (cause.name, message) == (want, want_message)


def test_no_event_where_every_node_would_take_a_pod() -> None:
    details = cause_of(ask(machine("a"), gang("g", 9), *members(9))).details
    assert details == {"asked": 9, "found": 8}


def test_causes_come_in_order() -> None:
    """A group that is short of pods, too wide, pinned and cordoned: each cause hides the next."""
    cordoned = machine("a", 4, "r1", unschedulable=True)
    other = machine("b", 4, "r2")
    running = members(1, on="a")

    def why(pods: int, floor: int, *more: Obj) -> str:
        group = gang("g", floor, **ONE_RACK)
        plan = ask(cordoned, *more, group, *running, *members(pods, start=1))
        return why_not(plan).get("ml/g", "placed")

    assert why(2, 4, other) == "quorum-missing"
    assert why(8, 9, other) == "impossible"
    assert why(3, 4, other) == "domain-pinned"
    assert why(3, 4) == "constraint"


def test_numbers_of_details_are_for_programs() -> None:
    plan = ask(*RACKS, *TAKEN, gang("g", 6, **ONE_RACK), *members(6))
    assert cause_of(plan).details == {
        "asked": 6,
        "podsThatFitAnywhere": 6,
        "key": RACK,
        "bestDomain": "r2",
        "found": 4,
    }


def test_a_group_that_loses_to_another_is_told_so() -> None:
    plan = ask(
        machine("a"),
        gang("g", 8, priority=1),
        gang("h", 8, priority=2),
        *members(8, priority=1),
        *members(8, group="h", priority=2),
    )
    assert placed(plan) == {"ml/h": 8}
    cause = cause_of(plan)
    assert cause.name == "busy"
    assert cause.message == (
        "alone it would fit, but the others of this plan leave room for 0 of 8 pods; one pod asks "
        f"for {GPU} 1, and the most free on a node is 0, on a; room for 8 more would be enough"
    )
    assert cause.details["fitsAlone"] is True


def test_a_group_that_would_fit_beside_the_winner_but_for_a_cordon() -> None:
    plan = ask(
        machine("a"),
        machine("b", unschedulable=True),
        gang("g", 8, priority=1),
        gang("h", 8, priority=2),
        *members(8, priority=1),
        *members(8, group="h", priority=2),
    )
    cause = cause_of(plan)
    assert cause.name == "constraint"
    assert cause.message.startswith(
        "alone it would fit, but the others of this plan take the room; beside them it would fit "
        "now if taints, cordons and node readiness were ignored: b is cordoned; "
    )


def test_the_plan_of_others_does_not_hide_what_is_free_now() -> None:
    """Two racks with 4 free GPUs each; h takes one of them, g needs 6 in one rack."""
    taken = [pod("x", container(gpus=4), on="a"), pod("y", container(gpus=4), on="b")]
    plan = ask(
        *RACKS, *taken, gang("g", 6, **ONE_RACK), gang("h", 4), *members(6), *members(4, group="h")
    )
    assert placed(plan) == {"ml/h": 4}
    cause = cause_of(plan)
    assert (cause.name, cause.details["found"]) == ("fragmented", 4)


@pytest.mark.parametrize(
    ("pods", "want_causes", "want_warnings"),
    [
        pytest.param(
            members(2, on="a"),
            {},
            ("group ml/g has no pod that waits for a node; it is left out",),
            id="all run",
        ),
        pytest.param([], {"ml/g": "quorum-missing"}, (), id="none exists"),
        pytest.param(
            members(2, schedulingGates=GATES), {"ml/g": "quorum-missing"}, (), id="all gated"
        ),
    ],
)
def test_a_group_without_pending_pods(
    pods: list[Obj], want_causes: dict[str, str], want_warnings: tuple[str, ...]
) -> None:
    plan = ask(machine("a"), gang("g", 2), *pods, groups=("ml/g",))
    assert (why_not(plan), plan.warnings) == (want_causes, want_warnings)


def test_a_pod_and_a_group_of_one_name_have_causes_of_their_own() -> None:
    big = pod("g", container(gpus=9))
    taken = pod("x", container(gpus=7), on="a")
    plan = ask(machine("a"), taken, gang("g", 2), big, *members(2))
    found = {entry.api: entry.cause.name for entry in plan.groups if entry.cause}
    assert found == {"v1/Pod": "impossible", "scheduling.k8s.io/v1beta1/PodGroup": "busy"}


def test_a_child_short_of_pods_says_so_though_its_composite_is_placed() -> None:
    plan = ask(
        machine("a"),
        composite("top", 1),
        child("g", 4),
        child("h", 2),
        *members(1),
        *members(2, group="h"),
    )
    assert placed(plan) == {"ml/h": 2}
    assert cause_of(plan).name == "quorum-missing"
    assert cause_of(plan).details["missing"] == 3


def test_room_kept_for_a_nominated_pod_is_told() -> None:
    first = pod("first", container(gpus=8), priority=10, status={"nominatedNodeName": "a"})
    plan = ask(machine("a"), first, pod("p"), groups=("ml/p",))
    cause = cause_of(plan, "ml/p")
    assert cause.name == "busy"
    assert "room is kept for 1 pod nominated to a node" in cause.message
    assert cause.details["event"] == f"0/1 nodes are available: 1 Insufficient {GPU}."


def test_children_share_the_cause_of_their_composite() -> None:
    plan = ask(
        machine("a", 4),
        composite("top", 2),
        child("g", 4),
        child("h", 4),
        *members(4),
        *members(4, group="h"),
    )
    assert why_not(plan) == {"ml/g": "impossible", "ml/h": "impossible"}
    assert cause_of(plan).message == cause_of(plan, "ml/h").message
    assert group_of(plan).composite == "ml/top"
