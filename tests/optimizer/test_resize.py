"""Growing a pod where it runs: who goes, who never does, and what is not looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from asking import read_yaml
from builders import RACK
from kube import container, gang, node, pod, thing

from optimizer.verify import verify_plan
from ray_jobs.pipeline import make_plan
from topology.errors import RequestError
from topology.plan import Plan, Request, ResizeRequest
from topology.plan_json import plan_from_dict

Obj = dict[str, Any]
GI = 1 << 30
DEFAULT = (
    "max:priority",
    "min:pdbViolations",
    "min:highestVictimPriority",
    "min:victimUnits",
    "min:victimPods",
)


def small(name: str = "n1", cpu: int = 16, **fields: Any) -> Obj:
    return node(name, allocatable={"cpu": str(cpu), "memory": "64Gi", "pods": "110"}, **fields)


def running(name: str, cpu: int, on: str = "n1", priority: int = 0, **fields: Any) -> Obj:
    return pod(name, container(cpu=str(cpu)), on=on, priority=priority, **fields)


def grow(*objects: Obj, to: dict[str, int] | None = None, **request: Any) -> Plan:
    """Resize ml/a; every plan must pass the verifier and survive its JSON form."""
    resize = ResizeRequest("ml/a", tuple(sorted((to or {}).items())))
    snapshot = read_yaml(objects)
    options = {"command": "preempt", "preempt": True, "objective": DEFAULT} | request
    plan = make_plan(snapshot, Request(resize=resize, **options))
    assert plan.verification is not None
    assert plan.verification.violations == ()
    again = plan_from_dict(plan.to_dict())
    assert again.to_dict() == plan.to_dict()
    assert verify_plan(snapshot, again).is_valid
    return plan


def victims(plan: Plan) -> list[str]:
    assert all(e.preemptor == "ml/a" for e in plan.evictions)
    return [e.pod.partition("/")[2] for e in plan.evictions]


ALL: Obj = {"disruptionMode": {"all": {}}}
CROWD = [running("b", 6), running("c", 3), running("d", 3)]
ME = running("a", 4, priority=10)


@pytest.mark.parametrize(
    ("objects", "cpu", "want_victims"),
    [
        pytest.param([small(cpu=17), ME, *CROWD], 5, [], id="room for it"),
        pytest.param([small(), ME, *CROWD], 2, [], id="shrinking"),
        pytest.param([small(cpu=8), ME, *CROWD], 3, [], id="shrinking on a full node"),
        pytest.param([small(), ME, *CROWD], 7, ["d"], id="one small pod is enough"),
        pytest.param([small(), ME, *CROWD], 10, ["b"], id="one large pod, not two small ones"),
        pytest.param([small(), ME, *CROWD], 16, ["b", "c", "d"], id="the whole node"),
        pytest.param(
            [small(), ME, running("b", 6, priority=5), running("c", 6)],
            10,
            ["c"],
            id="the lower priority",
        ),
        pytest.param(
            [
                small(),
                small("n2"),
                ME,
                gang("b", 2, priority=0, **ALL),
                running("b0", 6, group="b"),
                running("b1", 6, "n2", group="b"),
                running("c", 6, priority=5),
            ],
            10,
            ["b0", "b1"],
            id="an all group goes everywhere",
        ),
        pytest.param(
            [
                small(),
                gang("g", 2, priority=10),
                running("a", 4, group="g", priority=1),
                running("b", 12, priority=5),
            ],
            8,
            ["b"],
            id="the priority of its group counts",
        ),
    ],
)
def test_who_goes(objects, cpu, want_victims):
    plan = grow(*objects, to={"cpu": cpu * 1000})
    assert plan.resize is not None
    assert (plan.resize.outcome, plan.resize.node) == ("resized", "n1")
    assert victims(plan) == want_victims
    assert plan.bound.proof == "optimal"
    assert plan.criteria["victimPods"] == len(want_victims)


NEVER = "spec.podPreemptionPolicy.disableResizePreemption"


@pytest.mark.parametrize(
    ("objects", "cpu", "options", "want_cause", "want_words"),
    [
        pytest.param(
            [small(), ME, *CROWD],
            17,
            {},
            "impossible",
            "node n1 is too small: 17 cpu is more than its 16",
            id="more than the node has",
        ),
        pytest.param(
            [small(), ME, running("b", 12, priority=10)],
            5,
            {},
            "busy",
            "5 cpu wanted, 4 left to it; evicting work below priority 10 would not make enough",
            id="equal priority stays",
        ),
        pytest.param(
            [
                small(),
                ME,
                gang("g", 2, priority=10, **ALL),
                running("b0", 12, group="g"),
            ],
            5,
            {},
            "busy",
            "would not make enough",
            id="a group of equal priority stays, whatever its pods say",
        ),
        pytest.param(
            [
                small(spec={"podPreemptionPolicy": {"disableResizePreemption": ["Operator"]}}),
                ME,
                *CROWD,
            ],
            5,
            {},
            "policy-never",
            NEVER,
            id="the node forbids it",
        ),
        pytest.param(
            [small(), running("a", 4, priority=10, preemptionPolicy="Never"), *CROWD],
            5,
            {},
            "policy-never",
            "its preemption policy is Never",
            id="it never preempts",
        ),
        pytest.param(
            [
                small(),
                ME,
                pod(
                    "b",
                    container(cpu="12"),
                    on="n1",
                    metadata={"name": "b", "namespace": "ml", "labels": {"app": "x"}},
                ),
                thing(
                    "policy/v1/PodDisruptionBudget",
                    "b",
                    "ml",
                    spec={"selector": {"matchLabels": {"app": "x"}}},
                    status={"disruptionsAllowed": 0},
                ),
            ],
            5,
            {"pdb": "hard"},
            "busy",
            "would not make enough within the disruption budgets",
            id="a hard budget",
        ),
    ],
)
def test_why_not(objects, cpu, options, want_cause, want_words):
    plan = grow(*objects, to={"cpu": cpu * 1000}, **options)
    assert plan.resize is not None
    assert plan.resize.cause is not None
    assert (plan.resize.outcome, plan.resize.cause.name) == ("notResized", want_cause)
    assert want_words in plan.resize.cause.message
    assert plan.evictions == ()


def test_a_node_that_forbids_evicting_still_lets_it_grow_into_free_room():
    forbidden = {"podPreemptionPolicy": {"disableResizePreemption": ["Operator"]}}
    plan = grow(small(spec=forbidden), ME, running("b", 6), to={"cpu": 10_000})
    assert plan.resize is not None
    assert plan.resize.outcome == "resized"


def test_a_deferred_resize_needs_no_amounts():
    deferred = {
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Deferred"}],
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResources": {"cpu": "4"},
                "resources": {"requests": {"cpu": "4"}},
            }
        ],
    }
    plan = grow(small(), running("a", 8, priority=10, status=deferred), *CROWD)
    assert plan.to_dict()["resize"] == {
        "pod": "ml/a",
        "node": "n1",
        "outcome": "resized",
        "cause": None,
        "from": {"cpu": "8"},
        "to": {"cpu": "8"},
    }
    assert victims(plan) == ["b"]


def test_rules_it_skips_are_told():
    anti = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                }
            ]
        }
    }
    taint = {"key": "example.com/full", "effect": "NoSchedule"}
    other = {"name": "b", "namespace": "ml", "labels": {"app": "x"}}
    plan = grow(
        small(spec={"taints": [taint], "unschedulable": True}, labels={RACK: "r0"}),
        running("a", 4, priority=10, affinity=anti),
        pod("b", container(cpu="6"), on="n1", metadata=other, priority=10),
        running("c", 6),
        to={"cpu": 8000},
    )
    assert victims(plan) == ["c"]
    assert plan.warnings == (
        "ml/a on n1: node(s) had untolerated taint {example.com/full: }; a resize in place does "
        "not look at that",
        "ml/a on n1: node(s) didn't match pod anti-affinity rules; a resize in place does not "
        "look at that",
    )


@pytest.mark.parametrize(
    ("me", "to", "options", "want_words"),
    [
        pytest.param(ME, {"cpu": 1}, {"release": "1.36"}, "since 1.37 only", id="release"),
        pytest.param(ME, {"nvidia.com/gpu": 1}, {}, "nvidia.com/gpu cannot be", id="a GPU"),
        pytest.param(ME, {}, {}, "say it by --requests", id="no amounts"),
        pytest.param(running("b", 1), {"cpu": 1}, {}, "no such pod was read", id="unknown"),
        pytest.param(running("a", 1, ""), {"cpu": 1}, {}, "waits for a node", id="pending"),
        pytest.param(running("a", 1, "gone"), {"cpu": 1}, {}, "not read", id="unknown node"),
        pytest.param(
            running("a", 1, phase="Succeeded"), {"cpu": 1}, {}, "is finished", id="finished"
        ),
    ],
)
def test_refuses(me, to, options, want_words):
    with pytest.raises(RequestError, match=want_words):
        grow(small(), me, to=to, **options)


@pytest.mark.parametrize(
    ("change", "want_rule"),
    [
        pytest.param(
            lambda p: replace(p, evictions=()), "capacity", id="nobody goes, and it does not fit"
        ),
        pytest.param(
            lambda p: replace(p, resize=replace(p.resize, node="n2")), "resize-node", id="node"
        ),
        pytest.param(
            lambda p: replace(p, resize=replace(p.resize, after=(("cpu", 9000),))),
            "resize-asked",
            id="other amounts",
        ),
        pytest.param(
            lambda p: replace(p, resize=replace(p.resize, before=(("cpu", 1),))),
            "resize-from",
            id="amounts it never had",
        ),
        pytest.param(
            lambda p: replace(p, resize=replace(p.resize, outcome="notResized")),
            "resize-victims",
            id="victims for nothing",
        ),
        pytest.param(
            lambda p: replace(
                p,
                evictions=(
                    *p.evictions,
                    replace(p.evictions[0], pod="ml/e", node="n2"),
                ),
            ),
            "resize-victims",
            id="a victim elsewhere",
        ),
        pytest.param(
            lambda p: replace(p, evictions=(replace(p.evictions[0], preemptor="ml/c"),)),
            "preemptor",
            id="for another",
        ),
    ],
)
def test_the_verifier_notices(change, want_rule):
    objects = [small(), small("n2"), ME, *CROWD, running("e", 1, "n2")]
    plan = grow(*objects, to={"cpu": 10_000})
    verdict = verify_plan(read_yaml(objects), change(plan))
    assert want_rule in {violation.rule for violation in verdict.violations}
