"""What eviction would unlock, in the words and details of a cause."""

from __future__ import annotations

from typing import Any

import pytest
from asking import ask, cause_of
from builders import RACK
from kube import container, gang, node, pod

import optimizer.explain_eviction as explain_eviction

Obj = dict[str, Any]
ALL: Obj = {"disruptionMode": {"all": {}}}
ONE_RACK: Obj = {"schedulingConstraints": {"topology": [{"key": RACK}]}}


def running(name: str, on: str, gpus: int = 8, priority: int = 0, **fields: Any) -> Obj:
    return pod(name, container(gpus=gpus), on=on, priority=priority, **fields)


def waiting(count: int = 1, name: str = "g", **spec: Any) -> list[Obj]:
    """Gang of pods of 8 GPUs, priority 10."""
    options = {"priority": 10, **spec}
    return [
        gang(name, count, **options),
        *(
            pod(f"{name}{i}", container(gpus=8), group=name, priority=options["priority"])
            for i in range(count)
        ),
    ]


@pytest.mark.parametrize(
    ("objects", "want_words", "want_eviction"),
    [
        pytest.param(
            [node("n0"), running("a", "n0", 4), running("b", "n0", 4), *waiting()],
            "evicting 2 pods of lower priority with 8 GPUs would make room (ml/a and ml/b); "
            "the largest holders of what it could use: ml/a (4 GPUs), ml/b (4 GPUs)",
            {"would": True, "victims": ["ml/a", "ml/b"], "victimGpus": 8},
            id="two pods",
        ),
        pytest.param(
            [
                node("n0"),
                node("n1"),
                gang("x", 2, **ALL),
                running("x0", "n0", group="x"),
                running("x1", "n1", group="x"),
                *waiting(),
            ],
            "evicting 2 pods of lower priority with 16 GPUs would make room (ml/x)",
            {"would": True, "victims": ["ml/x0", "ml/x1"], "victimGpus": 16},
            id="a group that goes whole",
        ),
        pytest.param(
            [
                node("n0", labels={RACK: "r0"}),
                node("n1", labels={RACK: "r0"}),
                node("n2", labels={RACK: "r1"}),
                node("n3", labels={RACK: "r1"}),
                running("a", "n0"),
                running("b", "n1"),
                running("c", "n2", 1),
                *waiting(2, **ONE_RACK),
            ],
            "evicting 1 pod of lower priority with 1 GPU would make room (ml/c)",
            {"would": True, "victims": ["ml/c"], "victimGpus": 1},
            id="the rack with most room",
        ),
        pytest.param(
            [node("n0"), running("a", "n0", priority=10), *waiting()],
            "eviction would not help: 1 pod in its way has the same priority or a higher one",
            {
                "would": False,
                "reason": "1 pod in its way has the same priority or a higher one",
            },
            id="equal priority",
        ),
        pytest.param(
            [
                node("n0"),
                node("n1"),
                running("a", "n0", priority=10),
                running("b", "n1"),
                *waiting(2),
            ],
            "eviction would not help: 1 pod in its way has the same priority or a higher one",
            {
                "would": False,
                "reason": "1 pod in its way has the same priority or a higher one",
            },
            id="one of two may go",
        ),
    ],
)
def test_says_who_would_go(objects, want_words, want_eviction):
    plan = ask(*objects, command="explain")
    cause = cause_of(plan)
    assert want_words in cause.message
    assert cause.details["eviction"] == want_eviction
    assert plan.evictions == ()


def test_only_explain_says_it():
    objects = [node("n0"), running("a", "n0"), *waiting()]
    assert "eviction" not in cause_of(ask(*objects, command="place")).details
    assert "eviction" not in cause_of(ask(*objects, *waiting(2, "h"), preempt=True), "ml/h").details


def test_a_topology_constraint_before_1_37():
    objects = [node("n0", labels={RACK: "r0"}), running("a", "n0"), *waiting(**ONE_RACK)]
    cause = cause_of(ask(*objects, command="explain", release="1.36"))
    assert cause.details["eviction"] == {
        "would": False,
        "reason": "release 1.36 does not preempt for groups with a topology constraint",
    }


def test_alike_groups_are_asked_once_and_kinds_are_limited(monkeypatch):
    monkeypatch.setattr(explain_eviction, "MAX_KINDS", 1)
    objects = [
        *[node(f"n{i}") for i in range(2)],
        running("a", "n0"),
        running("b", "n1"),
        *waiting(1, "g"),
        *waiting(1, "h"),
        *waiting(2, "i"),
        pod("j", container(gpus=8), priority=9),
    ]
    plan = ask(*objects, command="explain")
    told = {
        entry.group
        for entry in plan.groups
        if entry.cause is not None and "eviction" in entry.cause.details
    }
    assert len(told) < 4
    assert any("was sought for 1 kinds of groups only" in line for line in plan.warnings)
