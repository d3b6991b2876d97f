from __future__ import annotations

from typing import Any

import pytest
from kube import composite, find_group, gang, pod, read

from topology.model import NO_GROUP

Obj = dict[str, Any]


def child(name: str, parent: str, **spec: Any) -> Obj:
    ref = {"workloadName": spec.pop("workload", "w"), "templateName": "t"}
    return gang(name, 2, parentCompositePodGroupName=parent, workloadRef=ref, **spec)


def tree() -> list[Obj]:
    """A composite over a composite over a leaf, and a leaf of its own."""
    return [
        composite("top", 2, priority=10, disruptionMode={"all": {}}),
        composite("mid", 1, parentCompositePodGroupName="top", priority=99),
        child("a", "mid", priority=50),
        child("b", "top"),
        *[pod(f"a-{i}", group="a") for i in range(3)],
        *[pod(f"b-{i}", group="b") for i in range(2)],
    ]


def test_a_tree() -> None:
    snapshot = read(*tree())
    found = {
        g.ref: (
            g.kind,
            snapshot.groups[g.parent].ref if g.parent != NO_GROUP else "",
            g.min_count,
            g.min_groups,
            g.size,
        )
        for g in snapshot.groups
    }
    assert found == {
        "ml/top": ("composite", "", 0, 2, 5),
        "ml/mid": ("composite", "ml/top", 0, 1, 3),
        "ml/a": ("group", "ml/mid", 2, 0, 3),
        "ml/b": ("group", "ml/top", 2, 0, 2),
    }
    assert {g.priority for g in snapshot.groups} == {10}
    assert {g.blocked for g in snapshot.groups} == {""}
    assert find_group(snapshot, "ml/top").disruption == "all"


def test_basic_composites_need_one_child() -> None:
    snapshot = read(composite("top", schedulingPolicy={"basic": {}}))
    group = find_group(snapshot, "ml/top")
    assert (group.policy, group.min_count, group.min_groups) == ("basic", 0, 1)


def test_never_holds_for_the_whole_tree() -> None:
    objects = tree()
    objects[-1]["spec"]["preemptionPolicy"] = "Never"
    assert {g.never_preempts for g in read(*objects).groups} == {True}


def chain(length: int) -> list[Obj]:
    """Composites c0 over c1 over … over a leaf; `length` levels in all."""
    inner = [
        composite(f"c{i}", parentCompositePodGroupName=f"c{i - 1}" if i else None)
        for i in range(length - 1)
    ]
    return [*inner, child("leaf", f"c{length - 2}")]


@pytest.mark.parametrize(
    ("objects", "ref", "want"),
    [
        pytest.param([child("a", "lost")], "ml/a", "CompositePodGroup ml/lost", id="no parent"),
        pytest.param(
            [gang("x"), child("a", "x")], "ml/a", "CompositePodGroup ml/x", id="leaf as parent"
        ),
        pytest.param(
            [
                composite("a", parentCompositePodGroupName="b"),
                composite("b", parentCompositePodGroupName="a"),
                child("leaf", "b"),
            ],
            "ml/leaf",
            "cycle: ml/a -> ml/b -> ml/a",
            id="cycle",
        ),
        pytest.param(
            [composite("a", parentCompositePodGroupName="a")],
            "ml/a",
            "cycle: ml/a -> ml/a",
            id="self",
        ),
        pytest.param(chain(4), "ml/leaf", "", id="four levels"),
        pytest.param(chain(5), "ml/leaf", "5 levels deep", id="five levels"),
        pytest.param(
            [composite("top"), child("a", "top"), child("b", "top", workload="v")],
            "ml/a",
            "mixes Workloads v and w",
            id="two Workloads",
        ),
    ],
)
def test_trees_that_do_not_hold_together(objects: list[Obj], ref: str, want: str) -> None:
    snapshot = read(*objects)
    assert len(snapshot.groups) == len(objects)
    blocked = find_group(snapshot, ref).blocked
    assert (want in blocked) if want else blocked == ""


@pytest.mark.parametrize(
    ("pods", "spec", "want"),
    [
        pytest.param([{}, {}], {"priority": 10}, "", id="pods that state no priority"),
        pytest.param(
            [{"schedulerName": "x"}, {}],
            {},
            "SchedulerError: members differ in schedulerName: ml/p0 has x, "
            "ml/p1 has default-scheduler",
            id="case 21: schedulers",
        ),
        pytest.param(
            [{"priority": 5}, {"priority": 10}],
            {"priority": 10},
            "1.37: SchedulerError: pod ml/p0 has priority 5, its group 10",
            id="case 22: priority",
        ),
        pytest.param(
            [{"priority": 10}, {"priority": 7, "on": "n0"}],
            {"priority": 10},
            "1.37: SchedulerError: pod ml/p1 has priority 7, its group 10",
            id="case 23: priority of a placed member",
        ),
        pytest.param(
            [{"preemptionPolicy": "Never"}, {}],
            {},
            "1.37: SchedulerError: members differ in preemptionPolicy: ml/p0 has Never, "
            "ml/p1 has PreemptLowerPriority",
            id="case 46: mixed preemption policies",
        ),
        pytest.param(
            [{"schedulerName": "x", "phase": "Succeeded"}, {}], {}, "", id="finished member"
        ),
        pytest.param(
            [{"schedulerName": "x", "schedulingGates": [{"name": "g"}]}, {}],
            {},
            "",
            id="case 18: gated member",
        ),
        pytest.param(
            [{"schedulerName": "x", "metadata": {"deletionTimestamp": "2026-11-30T10:00:00Z"}}, {}],
            {},
            "",
            id="case 19: member on its way out",
        ),
        pytest.param(
            [{"schedulerName": "x", "on": "n0"}, {}],
            {},
            "SchedulerError: members differ in schedulerName: ml/p0 has x, "
            "ml/p1 has default-scheduler",
            id="scheduler of a placed member",
        ),
    ],
)
def test_entry_checks(pods: list[Obj], spec: Obj, want: str) -> None:
    some = [pod(f"p{i}", group="g", **fields) for i, fields in enumerate(pods)]
    assert find_group(read(gang("g", **spec), *some)).blocked == want


def test_entry_checks_span_the_tree() -> None:
    objects = tree()
    objects[-1]["spec"]["schedulerName"] = "x"
    assert all("ml/b-1 has x" in g.blocked for g in read(*objects).groups)
