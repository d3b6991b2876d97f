"""Who may be evicted, together with whom, and what a set of victims costs."""

from __future__ import annotations

from typing import Any

import pytest
from builders import make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.victims import Victim, VictimCost, count_cost, find_victims, remove_pods
from topology.model import AffinityTerm, Budget, LabelSelector, PodFlag, Requirement

APP = LabelSelector((Requirement("app", "In", ("x",)),))
NODES = [make_node("n0"), make_node("n1")]


def found(snapshot: Any, below: int = 10, **options: Any) -> list[list[str]]:
    """The names of the pods of each unit."""
    return [
        [snapshot.pods.refs[p].partition("/")[2] for p in victim.pods]
        for victim in find_victims(snapshot, below, **options)
    ]


def team(disruption: str = "all", **fields: Any) -> list[Any]:
    return [make_group("ml/v", 2, disruption=disruption, **fields)]


ON_BOTH = ("n0", "n1")


@pytest.mark.parametrize(
    ("pods", "groups", "want"),
    [
        pytest.param(make_pods("v", 2, on=ON_BOTH), [], [["v-0"], ["v-1"]], id="plain pods"),
        pytest.param(make_pods("v", 1, on="n0", priority=10), [], [], id="equal priority"),
        pytest.param(
            make_pods("v", 2, on=ON_BOTH, group="ml/v", priority=99),
            team("single"),
            [["v-0"], ["v-1"]],
            id="single: one by one, by the group's priority",
        ),
        pytest.param(
            make_pods("v", 2, on=ON_BOTH, group="ml/v"),
            team(),
            [["v-0", "v-1"]],
            id="all: together",
        ),
        pytest.param(
            make_pods("v", 2, on=ON_BOTH, group="ml/v"), team(priority=10), [], id="all: equal"
        ),
        pytest.param(
            make_pods("v", 2, on=ON_BOTH, group="ml/v"), team(evictable=False), [], id="kept group"
        ),
        pytest.param(
            make_pods("v", 1, on="n0", flags=PodFlag.TERMINATING), [], [], id="going already"
        ),
        pytest.param(make_pods("v", 1, on="n0", flags=PodFlag.DAEMON), [], [], id="DaemonSet"),
        pytest.param(make_pods("v", 1, on="n0", flags=PodFlag.STATIC), [], [], id="static"),
        pytest.param(
            make_pods("v", 1, on="n0", flags=PodFlag.NOT_PREEMPTIBLE), [], [], id="not preemptible"
        ),
        pytest.param(
            [
                *make_pods("v", 1, on="n0", group="ml/v"),
                *make_pods("w", 1, on="n1", group="ml/v", flags=PodFlag.NOT_PREEMPTIBLE),
            ],
            team(),
            [],
            id="all: one that may not go keeps the others",
        ),
        pytest.param(
            [
                *make_pods("v", 1, on="n0", group="ml/v"),
                *make_pods("w", 1, on="n1", group="ml/v", flags=PodFlag.TERMINATING),
            ],
            team(),
            [["v-0"]],
            id="all: one that is going leaves the rest",
        ),
        pytest.param(
            make_pods("v", 2, on=("n0", "elsewhere"), group="ml/v"),
            team(),
            [["v-0"]],
            id="all: a pod on a node that was not read cannot be listed",
        ),
        pytest.param(make_pods("v", 1), [], [], id="a pending pod is no victim"),
        pytest.param(
            [
                *make_pods("a", 1, on="n0", group="ml/a"),
                *make_pods("b", 1, on="n1", group="ml/b"),
            ],
            [
                make_group("ml/top", 0, kind="composite", disruption="all"),
                make_group("ml/a", 1, parent="ml/top", disruption="all"),
                make_group("ml/b", 1, parent="ml/top"),
            ],
            [["a-0", "b-0"]],
            id="the highest `all` ancestor counts",
        ),
    ],
)
def test_units(pods: list[Any], groups: list[Any], want: list[list[str]]) -> None:
    assert found(make_snapshot(NODES, pods, groups=groups)) == want


def test_single_pod_before_1_37() -> None:
    """It sees the pods of a group one by one, with their own priorities."""
    pods = make_pods("v", 2, on=ON_BOTH, group="ml/v", priority=3)
    snapshot = make_snapshot(NODES, pods, groups=team(priority=50))
    assert found(snapshot) == []
    assert found(snapshot, with_groups=False) == [["v-0"], ["v-1"]]


def test_kept() -> None:
    pods = make_pods("v", 2, on=ON_BOTH, group="ml/v", labels={"app": "x"})
    other = make_pods("w", 1, on="n0")
    term = AffinityTerm("rack", APP, ("ml",))
    budget = Budget("ml/b", APP, 0)
    snapshot = make_snapshot(NODES, pods, other, groups=team(), budgets=[budget])
    assert found(snapshot) == [["v-0", "v-1"], ["w-0"]]
    assert found(snapshot, attractive=[term]) == [["w-0"]]
    assert found(snapshot, kept_roots=frozenset([0])) == [["w-0"]]


@pytest.mark.parametrize(
    ("budget", "want"),
    [
        pytest.param(Budget("ml/b", APP, 1), ((0, 2),), id="selected"),
        pytest.param(Budget("ml/b", LabelSelector(), 1), ((0, 2),), id="empty selects all"),
        pytest.param(Budget("ml/b", None, 1), (), id="null selects none"),
        pytest.param(Budget("other/b", APP, 1), (), id="another namespace"),
        pytest.param(Budget("ml/b", APP, 1, frozenset({"v-0"})), ((0, 1),), id="disrupted already"),
    ],
)
def test_budgets(budget: Budget, want: tuple[tuple[int, int], ...]) -> None:
    pods = make_pods("v", 2, on=ON_BOTH, group="ml/v", labels={"app": "x"})
    snapshot = make_snapshot(NODES, pods, groups=team(), budgets=[budget])
    (victim,) = find_victims(snapshot, 10)
    assert victim.budgets == want


def test_cost() -> None:
    victims = [
        Victim((0, 1), (3, -1), 5, 8, ((0, 2),)),
        Victim((2,), (-1, 2), 2, 1, ((0, 1), (1, 1))),
    ]
    budgets = [Budget("ml/a", APP, 1), Budget("ml/b", APP, -1)]
    want = VictimCost(3, 2, 9, 42, 5, 3)
    assert count_cost(victims, budgets) == want
    assert count_cost([], budgets) == VictimCost()
    assert "highestVictimPriority" not in VictimCost().to_criteria()


def test_removed_pods_hold_nothing() -> None:
    snapshot = make_snapshot(NODES, make_pods("v", 2, on=ON_BOTH, spec=make_spec(gpus=2)))
    after = remove_pods(snapshot, [0])
    assert after.pods.holds_room.tolist() == [False, True]
    assert not after.pods.is_pending.any()
    assert snapshot.pods.holds_room.tolist() == [True, True]
