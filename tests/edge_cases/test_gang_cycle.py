"""The group scheduling cycle as it shows in a plan: floors, members, entry checks, order."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of, group_of, placed, pods_of, spread, why_not
from kube import GPU, container, gang, node, pod, thing

Obj = dict[str, Any]
BASIC = {"schedulingPolicy": {"basic": {}}}
GONE = {"deletionTimestamp": "2026-11-30T10:00:00Z"}
GATES = [{"name": "example.com/quota"}]


def room(gpus: int, name: str = "n0") -> Obj:
    """A node with so many GPUs."""
    return node(name, allocatable={"cpu": "64", "memory": "512Gi", "pods": "110", GPU: str(gpus)})


def members(count: int, *, start: int = 0, group: str = "g", **fields: Any) -> list[Obj]:
    """Pods p<start> … of a group."""
    name = "p" if group == "g" else f"{group}-p"
    return [pod(f"{name}{i}", group=group, **fields) for i in range(start, start + count)]


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([room(8), gang("g", 4), *members(3)], 0, id="case 9: one pod too few"),
        pytest.param([room(3), gang("g", 4), *members(4)], 0, id="case 10: room for 3 of 4"),
        pytest.param([room(5), gang("g", 4), *members(6)], 5, id="case 11: floor 4, room for 5"),
        pytest.param(
            [room(8), gang("g", 8), *members(7, on="n0"), *members(1, start=7)],
            1,
            id="case 12: 7 run, the replacement fits",
        ),
        pytest.param(
            [room(8), gang("g", 8), *members(3, on="n0"), *members(4, start=3)],
            0,
            id="case 13: 3 run and 4 wait, of 8",
        ),
        pytest.param(
            [room(4), gang("g", 4), *members(4, on="n0"), *members(2, start=4)],
            0,
            id="case 14: no room for the extras",
        ),
        pytest.param(
            [room(5), gang("g", 4), *members(4, on="n0"), *members(2, start=4)],
            1,
            id="case 15: room for one of the extras",
        ),
        pytest.param(
            [room(2), gang("g", **BASIC), *members(5)], 2, id="case 16: basic, room for 2"
        ),
        pytest.param([room(0), gang("g", **BASIC), *members(5)], 0, id="case 17: basic, no room"),
        pytest.param(
            [room(8), gang("g", 4), *members(4), *members(1, start=4, schedulingGates=GATES)],
            4,
            id="case 18: a gated member is left out",
        ),
        pytest.param(
            [room(8), gang("g", 4), *members(3), *members(1, start=3, schedulingGates=GATES)],
            0,
            id="case 18: a gated member does not count toward the floor",
        ),
        pytest.param(
            [room(4), gang("g", 4), *members(3, on="n0"), *members(1, start=3, on="n0")],
            None,
            id="nothing waits",
        ),
        pytest.param(
            [
                room(4),
                gang("g", 4),
                pod("p0", group="g", on="n0", phase="Succeeded"),
                *members(3, start=1),
            ],
            0,
            id="case 20: a finished member does not count toward the floor",
        ),
        pytest.param(
            [
                room(4),
                gang("g", 4),
                pod("p0", group="g", on="n0", phase="Succeeded"),
                pod("p1", group="g", on="n0", phase="Failed"),
                *members(4, start=2),
            ],
            4,
            id="case 20: finished members hold no room",
        ),
        pytest.param(
            [room(8), gang("g", 4), *members(5)], 5, id="case 26: floor lowered to 4, 5 fit"
        ),
        pytest.param(
            [room(6), gang("g", 4), *members(1, on="n0"), *members(6, start=1)],
            5,
            id="case 26: floor lowered to 4, the running one stays",
        ),
    ],
)
def test_pods_placed(objects: list[Obj], want: int | None) -> None:
    plan = ask(*objects)
    assert [len(entry.pods) for entry in plan.groups] == ([] if want is None else [want])


def test_case_18_a_gated_member_is_not_listed_as_pending() -> None:
    plan = ask(room(8), gang("g", 4), *members(4), *members(1, start=4, schedulingGates=GATES))
    assert pods_of(plan) == dict.fromkeys(["p0", "p1", "p2", "p3"], "n0")
    assert group_of(plan).pending_pods == ()


@pytest.mark.parametrize(
    ("extra", "want_placed", "want_missing"),
    [
        pytest.param({"metadata": {"name": "p3", "namespace": "ml", **GONE}}, 0, 1, id="leaving"),
        pytest.param({}, 4, None, id="staying"),
    ],
)
def test_case_19_a_pending_member_that_is_being_deleted_counts_for_nothing(
    extra: Obj, want_placed: int, want_missing: int | None
) -> None:
    plan = ask(room(8), gang("g", 4), *members(3), pod("p3", group="g", **extra))
    assert len(group_of(plan).pods) == want_placed
    if want_missing is not None:
        assert cause_of(plan).details["missing"] == want_missing


def test_case_19_a_leaving_member_holds_its_room_and_counts_for_nothing() -> None:
    gone = pod("p0", group="g", on="n0", metadata={"name": "p0", "namespace": "ml", **GONE})
    plan = ask(room(4), gang("g", 3), gone, *members(4, start=1))
    assert len(group_of(plan).pods) == 3


MISMATCHES = [
    pytest.param(
        [*members(1), *members(1, start=1, schedulerName="volcano")],
        {},
        ("refused", "refused"),
        "members differ in schedulerName: ml/p0 has default-scheduler, ml/p1 has volcano",
        id="case 21: two schedulers",
    ),
    pytest.param(
        [*members(1), *members(1, start=1, schedulerName="volcano", on="n0")],
        {},
        ("refused", "refused"),
        "members differ in schedulerName: ml/p0 has default-scheduler, ml/p1 has volcano",
        id="case 21: the placed one is another scheduler's",
    ),
    pytest.param(
        members(2, priority=5),
        {"priority": 10},
        ("refused", None),
        "pod ml/p0 has priority 5, its group 10",
        id="case 22: pods 5, group 10",
    ),
    pytest.param(
        [*members(1, priority=5, on="n0"), *members(2, start=1, priority=10)],
        {"priority": 10},
        ("refused", None),
        "pod ml/p0 has priority 5, its group 10",
        id="case 23: a placed one differs",
    ),
    pytest.param(
        [*members(1), *members(1, start=1, preemptionPolicy="Never")],
        {},
        ("refused", None),
        "members differ in preemptionPolicy: ml/p0 has PreemptLowerPriority, ml/p1 has Never",
        id="case 46: one never preempts",
    ),
    pytest.param(
        [*members(2), *members(1, start=2, priority=5, schedulingGates=GATES)],
        {},
        (None, None),
        "",
        id="a gated member is not checked",
    ),
    pytest.param(members(2), {"priority": 10}, (None, None), "", id="pods without a priority"),
]


@pytest.mark.parametrize("release", ["1.37", "1.36"])
@pytest.mark.parametrize(("pods", "spec", "want", "want_message"), MISMATCHES)
def test_entry_checks(
    pods: list[Obj], spec: Obj, want: tuple[str | None, ...], want_message: str, release: str
) -> None:
    plan = ask(room(8), gang("g", 2, **spec), *pods, release=release)
    cause = group_of(plan).cause
    assert (cause.name if cause else None) == want[release == "1.36"]
    if cause is not None:
        assert want_message in cause.message
        assert not cause.message.partition("1.37: ")[1]


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        pytest.param({"priority": 5}, {"priority": 10}, "ml/b", id="case 24: 10 before 5"),
        pytest.param({"priority": 10}, {"priority": 5}, "ml/a", id="case 24: the other way round"),
        pytest.param({}, {}, "ml/a", id="equal in everything: by name"),
    ],
)
def test_case_24_one_of_two_gangs_is_placed_whole(first: Obj, second: Obj, want: str) -> None:
    plan = ask(
        room(8),
        gang("a", 8, **first),
        gang("b", 8, **second),
        *members(8, group="a", **first),
        *members(8, group="b", **second),
    )
    assert placed(plan) == {want: 8}


@pytest.mark.parametrize(
    ("first", "second", "want"),
    [
        pytest.param("2026-11-30T10:00:00Z", "2026-11-30T09:00:00Z", "ml/b", id="b is older"),
        pytest.param("2026-11-30T09:00:00Z", "2026-11-30T10:00:00Z", "ml/a", id="a is older"),
    ],
)
def test_case_24_of_equal_priority_the_older_gang_is_placed(
    first: str, second: str, want: str
) -> None:
    groups = [gang("a", 8), gang("b", 8)]
    for group, created in zip(groups, (first, second), strict=True):
        group["metadata"]["creationTimestamp"] = created
    plan = ask(room(8), *groups, *members(8, group="a"), *members(8, group="b"))
    assert placed(plan) == {want: 8}


def test_case_25_one_large_and_eight_small_pods_fit_two_nodes() -> None:
    small = [pod(f"a{i}", group="g") for i in range(8)]
    large = pod("z", container(gpus=8), group="g")
    plan = ask(node("n0"), node("n1"), gang("g", 9), *small, large)
    where = pods_of(plan)
    assert len(where) == 9
    assert sorted(spread(plan).values()) == [1, 8]
    assert {where[f"a{i}"] for i in range(8)} != {where["z"]}


@pytest.mark.parametrize(
    ("keys", "room_for", "want"),
    [
        pytest.param(["0"] * 4 + ["1"] * 4, 8, {"ml/w/g/0": 4, "ml/w/g/1": 4}, id="both fit"),
        pytest.param(["0"] * 4 + ["1"] * 4, 7, {"ml/w/g/0": 4}, id="one fits"),
        pytest.param(["0"] * 3 + ["1"] * 4, 8, {"ml/w/g/1": 4}, id="one lacks a pod"),
        pytest.param([""] * 4, 8, {"ml/w/g": 4}, id="no key"),
    ],
)
def test_case_2_replica_keys_are_gangs_of_their_own(
    keys: list[str], room_for: int, want: dict[str, int]
) -> None:
    workload = thing(
        "scheduling.k8s.io/v1alpha1/Workload",
        "w",
        "ml",
        spec={"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 4}}}]},
    )
    reference = {"name": "w", "podGroup": "g"}
    pods = [
        pod(f"p{i}", workloadRef=reference | ({"podGroupReplicaKey": key} if key else {}))
        for i, key in enumerate(keys)
    ]
    assert placed(ask(room(room_for), workload, *pods, release="1.35")) == want


def test_case_4_a_pod_of_a_missing_group_waits_and_takes_nothing() -> None:
    plan = ask(room(1), pod("lost", group="nowhere"), pod("own"))
    assert placed(plan) == {"ml/own": 1}
    assert [entry.group for entry in plan.groups] == ["ml/own"]
    (warning,) = plan.warnings
    assert "PodGroup ml/nowhere is missing" in warning


def test_case_5_the_group_counts_not_its_template() -> None:
    workload = thing(
        "scheduling.k8s.io/v1beta1/Workload",
        "w",
        "ml",
        spec={"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"gang": {"minCount": 4}}}]},
    )
    group = gang("g", 8, workloadRef={"workloadName": "w", "templateName": "t"})
    plan = ask(room(8), workload, group, *members(4))
    assert why_not(plan) == {"ml/g": "quorum-missing"}
    assert cause_of(plan).details["minCount"] == 8


def test_case_6_an_invalid_group_is_reported_and_its_pods_wait() -> None:
    plan = ask(room(8), gang("g", schedulingPolicy={}), *members(2), pod("own"))
    assert placed(plan) == {"ml/own": 1}
    assert [(e.object, e.field) for e in plan.errors] == [("ml/g", "spec.schedulingPolicy")]


def test_pods_of_another_scheduler_are_not_placed_but_hold_their_room() -> None:
    plan = ask(
        room(2),
        pod("held", on="n0", schedulerName="volcano"),
        pod("foreign", schedulerName="volcano"),
        pod("ours"),
    )
    assert placed(plan) == {"ml/ours": 1}
