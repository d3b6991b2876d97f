"""Evictions by preemption and drain."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from plan_builders import broken_rules, make_plan

from optimizer.verify import verify_plan
from topology.model import PODS, Budget, LabelSelector, Phase, PodFlag, Requirement
from topology.move_request import MoveRequest
from topology.plan import Eviction, Move

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.assemble import GroupRow
    from topology.model import Snapshot
    from topology.plan import Plan

FOUR, EIGHT = make_spec(gpus=4), make_spec(gpus=8)


def preempt(
    victim: dict[str, Any] | None = None,
    group: GroupRow | None = None,
    preemptor: dict[str, Any] | None = None,
    **request: Any,
) -> list[str]:
    """Rules broken when `ml/new-0`, priority 10, evicts `ml/old-0` from the only node."""
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods(
            "old", 1, spec=EIGHT, on="n", group=group.group.ref if group else "", **(victim or {})
        ),
        make_pods("new", 1, **{"spec": EIGHT, "priority": 10, **(preemptor or {})}),
        groups=[group] if group else [],
    )
    plan = make_plan(snapshot, {"ml/new-0": "n"}, victims={"ml/old-0": "ml/new-0"}, **request)
    return broken_rules(verify_plan(snapshot, plan))


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param({"victim": {"priority": 9}}, [], id="lower"),
        pytest.param({"victim": {"priority": 10}}, ["evict-priority"], id="equal never"),
        pytest.param({"victim": {"flags": PodFlag.DAEMON}}, ["evict-pinned"], id="DaemonSet"),
        pytest.param({"victim": {"flags": PodFlag.STATIC}}, ["evict-pinned"], id="static"),
        pytest.param(
            {"victim": {"flags": PodFlag.NOT_PREEMPTIBLE}}, ["evictable"], id="pod says no"
        ),
        pytest.param(
            {"group": make_group("ml/g", 1, evictable=False)}, ["evictable"], id="group says no"
        ),
        pytest.param(
            {"preemptor": {"spec": make_spec(gpus=8, never_preempts=True)}},
            ["never-preempts"],
            id="preemptor never preempts",
        ),
        pytest.param(
            {"victim": {"priority": 100}, "group": make_group("ml/g", 1, priority=5)},
            [],
            id="1.37: priority of the victim's group",
        ),
        pytest.param(
            {
                "victim": {"priority": 100},
                "group": make_group("ml/g", 1, priority=5),
                "release": "1.36",
            },
            ["evict-priority"],
            id="1.36: a single pod sees the pod's own priority",
        ),
    ],
)
def test_victim(arguments: dict[str, Any], want: list[str]) -> None:
    assert preempt(**arguments) == want


def test_group_that_never_preempts() -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("old", 1, spec=EIGHT, on="n"),
        make_pods("new", 1, spec=EIGHT, group="ml/g"),
        groups=[make_group("ml/g", 1, priority=10, never_preempts=True)],
    )
    plan = make_plan(snapshot, {"ml/new-0": "n"}, victims={"ml/old-0": "ml/g"})
    assert broken_rules(verify_plan(snapshot, plan)) == ["never-preempts"]


@pytest.mark.parametrize(
    ("modes", "victims", "release", "want"),
    [
        pytest.param(("single", "single"), ["x-0"], "1.37", [], id="single: one pod"),
        pytest.param(("single", "all"), ["x-0"], "1.37", ["evict-unit"], id="all: half of it"),
        pytest.param(("single", "all"), ["x-0", "x-1"], "1.37", [], id="all: whole"),
        pytest.param(
            ("all", "single"), ["x-0", "x-1"], "1.37", ["evict-unit"], id="the highest all counts"
        ),
        pytest.param(("all", "all"), ["x-0", "x-1", "y-0", "y-1"], "1.37", [], id="whole tree"),
        pytest.param(("single", "all"), ["x-0"], "1.36", [], id="1.36: single pod breaks a unit"),
    ],
)
def test_units_go_whole(
    modes: tuple[str, str], victims: list[str], release: str, want: list[str]
) -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m")],
        make_pods("x", 2, spec=FOUR, on=["n", "m"], group="ml/x"),
        make_pods("y", 2, spec=FOUR, on=["n", "m"], group="ml/y"),
        make_pods("new", 1, spec=FOUR, priority=10),
        groups=[
            make_group("ml/c", 0, kind="composite", min_groups=2, disruption=modes[0]),
            make_group("ml/x", 2, parent="ml/c", disruption=modes[1]),
            make_group("ml/y", 2, parent="ml/c", disruption=modes[1]),
        ],
    )
    plan = make_plan(
        snapshot,
        {"ml/new-0": "n"},
        victims={f"ml/{name}": "ml/new-0" for name in victims},
        release=release,
    )
    assert broken_rules(verify_plan(snapshot, plan)) == want


def test_composite_may_be_the_preemptor() -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("old", 1, spec=EIGHT, on="n"),
        make_pods("x", 1, spec=EIGHT, group="ml/x"),
        groups=[
            make_group("ml/c", 0, kind="composite", min_groups=1, priority=10),
            make_group("ml/x", 1, parent="ml/c", priority=10),
        ],
    )
    plan = make_plan(snapshot, {"ml/x-0": "n"}, victims={"ml/old-0": "ml/c"})
    assert verify_plan(snapshot, plan).violations == ()


@pytest.mark.parametrize(
    ("budgets", "stated", "want"),
    [
        pytest.param([("ml/b", 1, "a")], 1, [], id="two of them, one allowed"),
        pytest.param([("ml/b", 1, "a")], 0, ["criterion"], id="violation kept quiet"),
        pytest.param([("ml/b", 2, "a")], 0, [], id="allowed"),
        pytest.param([("x/b", 0, "a")], 0, [], id="budget of another namespace"),
        pytest.param([("ml/b", 0, "b")], 0, [], id="budget of other pods"),
        pytest.param([("ml/b", 0, None)], 0, [], id="null selector matches nobody"),
    ],
)
def test_budget_violations_are_counted(
    budgets: list[tuple[str, int, str | None]], stated: int, want: list[str]
) -> None:
    snapshot = make_snapshot(
        [make_node("n")],
        make_pods("old", 2, spec=FOUR, on="n", labels={"app": "a"}),
        make_pods("new", 1, spec=EIGHT, priority=10),
        budgets=[
            Budget(
                ref, LabelSelector((Requirement("app", "In", (app,)),)) if app else None, allowed
            )
            for ref, allowed, app in budgets
        ],
    )
    plan = make_plan(
        snapshot,
        {"ml/new-0": "n"},
        victims={"ml/old-0": "ml/new-0", "ml/old-1": "ml/new-0"},
        criteria={"pdbViolations": stated},
    )
    assert broken_rules(verify_plan(snapshot, plan)) == want


@pytest.mark.parametrize(
    ("placed", "want"),
    [
        pytest.param({"ml/x-0": "m", "ml/x-1": "m"}, [], id="comes back as a unit"),
        pytest.param({"ml/x-0": "m"}, ["floor"], id="comes back in part"),
        pytest.param({}, [], id="stays away"),
        pytest.param({"ml/x-0": "n", "ml/x-1": "n"}, ["taint"], id="back on the drained node"),
    ],
)
def test_drained_pods_wait_again(placed: dict[str, str], want: list[str]) -> None:
    snapshot = make_snapshot(
        [make_node("n", unschedulable=True), make_node("m")],
        make_pods("x", 2, spec=FOUR, on="n", group="ml/x"),
        groups=[make_group("ml/x", 2, disruption="all")],
    )
    plan = make_plan(snapshot, placed, drained=["ml/x-0", "ml/x-1"])
    assert broken_rules(verify_plan(snapshot, plan)) == want


def test_drain_may_take_one_pod_of_an_all_group() -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m")],
        make_pods("x", 2, spec=FOUR, on=["n", "m"], group="ml/x"),
        groups=[make_group("ml/x", 2, disruption="all", evictable=False)],
    )
    plan = make_plan(snapshot, {}, drained=["ml/x-0"], move=MoveRequest(drain_unit="pod"))
    assert verify_plan(snapshot, plan).violations == ()


def test_drained_group_has_an_entry() -> None:
    snapshot = make_snapshot([make_node("n")], make_pods("x", 1, on="n"))
    plan = make_plan(snapshot, {}, drained=["ml/x-0"])
    assert verify_plan(snapshot, plan).violations == ()
    assert broken_rules(verify_plan(snapshot, replace(plan, groups=()))) == ["drain-listed"]


# One fleet and one valid plan, and every way to break a rule of victims in it.


def crowded(
    *,
    victim: dict[str, Any] | None = None,
    whole: dict[str, Any] | None = None,
    preemptor: dict[str, Any] | None = None,
    pending: dict[str, Any] | None = None,
    budgets: tuple[Budget, ...] = (),
) -> Snapshot:
    """Gang `new` wants n and m, where `old-0` stands alone and group `x` goes whole."""
    return make_snapshot(
        [make_node(name, rack="a") for name in ("n", "m", "o")],
        make_pods("old", 1, **{"spec": EIGHT, "on": "n", "labels": {"app": "a"}, **(victim or {})}),
        make_pods("x", 2, spec=FOUR, on=["m", "o"], group="ml/x", labels={"app": "a"}),
        make_pods("new", 2, spec=EIGHT, group="ml/new", priority=10, **(pending or {})),
        make_pods("gone", 1, spec=make_spec(gpus=1), on="o", flags=PodFlag.TERMINATING),
        groups=[
            make_group("ml/x", 2, disruption="all", **(whole or {})),
            make_group("ml/new", 2, priority=10, **(preemptor or {})),
        ],
        budgets=budgets,
    )


def plan_of(snapshot: Snapshot, **request: Any) -> Plan:
    victims = {"ml/old-0": "ml/new", "ml/x-0": "ml/new", "ml/x-1": "ml/new"}
    criteria = {"victimPods": 3, "victimUnits": 2, "victimGpus": 16, "highestVictimPriority": 0}
    placed = {"ml/new-0": "n", "ml/new-1": "m"}
    return make_plan(snapshot, placed, victims=victims, criteria=criteria, **request)


def edit(plan: Plan, pod: str, **fields: Any) -> Plan:
    """The plan with other fields in one eviction."""
    evictions = [replace(e, **fields) if e.pod == pod else e for e in plan.evictions]
    return replace(plan, evictions=tuple(evictions))


def without(plan: Plan, pod: str) -> Plan:
    return replace(plan, evictions=tuple(e for e in plan.evictions if e.pod != pod), criteria={})


def also(plan: Plan, pod: str, node: str) -> Plan:
    more = Eviction(pod, node, preemptor="ml/new")
    return replace(plan, evictions=(*plan.evictions, more), criteria={})


def covering(ref: str, allowed: int, *, app: str = "a", **fields: Any) -> Budget:
    return Budget(ref, LabelSelector((Requirement("app", "In", (app,)),)), allowed, **fields)


def same(plan: Plan) -> Plan:
    return plan


@pytest.mark.parametrize(
    ("fleet", "request_", "mutate", "want"),
    [
        pytest.param({}, {}, same, [], id="nothing broken"),
        pytest.param({}, {"preempt": False}, same, ["preempt-asked"], id="nobody asked for it"),
        pytest.param(
            {},
            {},
            lambda p: also(p, "ml/nobody", "n"),
            ["exists"],
            id="a victim that does not exist",
        ),
        pytest.param(
            {}, {}, lambda p: also(p, "ml/old-0", "n"), ["evicted-once"], id="evicted twice"
        ),
        pytest.param(
            {}, {}, lambda p: also(p, "ml/new-0", ""), ["evict-running"], id="a pod that waits"
        ),
        pytest.param(
            {}, {}, lambda p: also(p, "ml/gone-0", "o"), ["evict-running"], id="a pod that goes"
        ),
        pytest.param(
            {}, {}, lambda p: edit(p, "ml/old-0", node="m"), ["evict-node"], id="not on that node"
        ),
        pytest.param(
            {}, {}, lambda p: edit(p, "ml/old-0", group="ml/x"), ["owner"], id="not of that group"
        ),
        pytest.param(
            {}, {}, lambda p: edit(p, "ml/old-0", preemptor=None), ["preemptor"], id="for nobody"
        ),
        pytest.param(
            {},
            {},
            lambda p: edit(p, "ml/old-0", preemptor="ml/x"),
            ["preemptor"],
            id="for a group that gets nothing",
        ),
        pytest.param(
            {}, {}, lambda p: without(p, "ml/old-0"), ["capacity"], id="the victim's room is needed"
        ),
        pytest.param(
            {}, {}, lambda p: without(p, "ml/x-1"), ["evict-unit"], id="half of a unit stays"
        ),
        pytest.param(
            {},
            {},
            lambda p: replace(p, criteria={**p.criteria, "victimUnits": 3}),
            ["criterion"],
            id="units counted as pods",
        ),
        pytest.param(
            {},
            {},
            lambda p: replace(p, criteria={**p.criteria, "highestVictimPriority": -1}),
            ["criterion"],
            id="a lower priority than the highest",
        ),
        pytest.param(
            {"victim": {"flags": PodFlag.STATIC}}, {}, same, ["evict-pinned"], id="static pod"
        ),
        pytest.param(
            {"victim": {"flags": PodFlag.DAEMON}}, {}, same, ["evict-pinned"], id="DaemonSet pod"
        ),
        pytest.param(
            {"victim": {"flags": PodFlag.NOT_PREEMPTIBLE}},
            {},
            same,
            ["evictable"],
            id="pod its own API protects",
        ),
        pytest.param(
            {"whole": {"evictable": False}},
            {},
            same,
            ["evictable"],
            id="group its own API protects",
        ),
        pytest.param(
            {"victim": {"priority": 10}},
            {},
            lambda p: replace(p, criteria={}),
            ["evict-priority"],
            id="equal priority",
        ),
        pytest.param(
            {"whole": {"priority": 11}},
            {},
            lambda p: replace(p, criteria={}),
            ["evict-priority"],
            id="higher priority of the victim's group",
        ),
        pytest.param(
            {"preemptor": {"never_preempts": True}},
            {},
            same,
            ["never-preempts"],
            id="preemption policy Never",
        ),
        pytest.param({"preemptor": {"key": RACK}}, {}, same, [], id="1.37: rack required"),
        pytest.param(
            {"preemptor": {"key": RACK}},
            {"release": "1.36"},
            same,
            ["evict-topology"],
            id="1.36: rack required",
        ),
        pytest.param(
            {"preemptor": {"key": RACK}},
            {"release": "1.35"},
            same,
            ["evict-topology"],
            id="1.35: rack required",
        ),
        pytest.param(
            {"preemptor": {"key": RACK, "api": "scheduling.volcano.sh/v1beta1/PodGroup"}},
            {"release": "1.36"},
            same,
            [],
            id="1.36: rack required by another API",
        ),
        pytest.param({"pending": {"nominated": "n"}}, {}, same, [], id="nominated, none going"),
        pytest.param(
            {"pending": {"nominated": "o"}},
            {},
            same,
            ["evict-waiting"],
            id="room on its way to the nominated node",
        ),
        pytest.param({"budgets": (covering("ml/b", 2),)}, {}, same, [], id="soft budget exceeded"),
        pytest.param(
            {"budgets": (covering("ml/b", 3),)}, {"pdb": "hard"}, same, [], id="hard budget kept"
        ),
        pytest.param(
            {"budgets": (covering("ml/b", 2),)},
            {"pdb": "hard"},
            same,
            ["pdb-hard"],
            id="hard budget exceeded",
        ),
        pytest.param(
            {"budgets": (covering("ml/b", -1),)},
            {"pdb": "hard"},
            same,
            ["pdb-hard"],
            id="a negative budget allows nobody",
        ),
        pytest.param(
            {"budgets": (covering("ml/b", 3), covering("ml/c", 2))},
            {"pdb": "hard"},
            same,
            ["pdb-hard"],
            id="a pod counts in each budget that selects it",
        ),
        pytest.param(
            {"budgets": (covering("ml/b", 2, disrupted=frozenset({"old-0"})),)},
            {"pdb": "hard"},
            same,
            [],
            id="disrupted pods were counted before",
        ),
        pytest.param(
            {"budgets": (covering("ml/b", 2, disrupted=frozenset({"new-0"})),)},
            {"pdb": "hard"},
            same,
            ["pdb-hard"],
            id="others were not",
        ),
        pytest.param(
            {"budgets": (covering("other/b", 0),)},
            {"pdb": "hard"},
            same,
            [],
            id="budgets protect their namespace only",
        ),
        pytest.param(
            {"budgets": (Budget("ml/b", None, 0),)},
            {"pdb": "hard"},
            same,
            [],
            id="a null selector protects nobody",
        ),
        pytest.param(
            {"budgets": (Budget("ml/b", LabelSelector(), 0),)},
            {"pdb": "hard"},
            same,
            ["pdb-hard"],
            id="an empty selector protects everybody",
        ),
    ],
)
def test_every_broken_rule_is_caught(
    fleet: dict[str, Any],
    request_: dict[str, Any],
    mutate: Callable[[Plan], Plan],
    want: list[str],
) -> None:
    """A plan broken in one way violates that rule and no other."""
    snapshot = crowded(**fleet)
    plan = mutate(plan_of(snapshot, **request_))
    assert broken_rules(verify_plan(snapshot, plan)) == sorted(want)


@pytest.mark.parametrize(
    "flag",
    [
        pytest.param(PodFlag.DAEMON, id="DaemonSet pod"),
        pytest.param(PodFlag.STATIC, id="static pod"),
        pytest.param(PodFlag.NOT_PREEMPTIBLE, id="pod another API protects"),
    ],
)
def test_replay_spares_nobody(flag: PodFlag) -> None:
    """53: nothing but its priority protects a pod from kube-scheduler, and a replay says so."""
    snapshot = crowded(victim={"flags": flag})
    assert broken_rules(verify_plan(snapshot, plan_of(snapshot, policy="replay"))) == []


def test_composite_tree_decides_who_preempts() -> None:
    """A sibling with a topology constraint keeps the whole tree from preempting in 1.36."""
    snapshot = make_snapshot(
        [make_node("n", rack="a"), make_node("m", rack="a")],
        make_pods("old", 1, spec=EIGHT, on="n"),
        make_pods("x", 1, spec=EIGHT, group="ml/x"),
        make_pods("y", 1, spec=EIGHT, group="ml/y"),
        groups=[
            make_group("ml/c", 0, kind="composite", min_groups=2, priority=10),
            make_group("ml/x", 1, parent="ml/c", priority=10),
            make_group("ml/y", 1, parent="ml/c", priority=10, key=RACK),
        ],
    )
    placed, victims = {"ml/x-0": "n", "ml/y-0": "m"}, {"ml/old-0": "ml/x"}
    for release, want in (("1.36", ["evict-topology"]), ("1.37", [])):
        plan = make_plan(snapshot, placed, victims=victims, release=release)
        assert broken_rules(verify_plan(snapshot, plan)) == want


@pytest.mark.parametrize(
    ("drained", "moves", "unit", "want"),
    [
        pytest.param(["x-0", "x-1"], [], "group", [], id="whole"),
        pytest.param(["x-0"], [], "group", ["drain-unit"], id="half of it"),
        pytest.param(["x-0"], [], "pod", [], id="pod by pod, as the eviction API does"),
        pytest.param(
            ["x-0"],
            [Move(1, 1, "ml/x-1", "m", "o", "restart")],
            "group",
            [],
            id="the other half moves",
        ),
        pytest.param(["y-0"], [], "group", [], id="a group of single pods"),
    ],
)
def test_drained_units(drained: list[str], moves: list[Move], unit: str, want: list[str]) -> None:
    snapshot = make_snapshot(
        [make_node("n"), make_node("m"), make_node("o")],
        make_pods("x", 2, spec=FOUR, on=["n", "m"], group="ml/x"),
        make_pods("y", 2, spec=FOUR, on=["n", "m"], group="ml/y"),
        groups=[make_group("ml/x", 1, disruption="all"), make_group("ml/y", 1)],
    )
    names = [f"ml/{name}" for name in drained]
    mode = moves[0].mode if moves else "restart"
    request = MoveRequest(mode, drain_unit=unit)
    plan = make_plan(snapshot, {}, drained=names, moves=moves, move=request)
    assert broken_rules(verify_plan(snapshot, plan)) == want


@pytest.mark.parametrize(
    ("command", "allowed", "phase", "want"),
    [
        pytest.param("repack", 1, Phase.RUNNING, [], id="within the budget"),
        pytest.param("repack", 0, Phase.RUNNING, ["drain-budget"], id="beyond it"),
        pytest.param("repack", 0, Phase.PENDING, [], id="never ran"),
        pytest.param("place", 0, Phase.RUNNING, [], id="only asked what would follow"),
    ],
)
def test_drain_and_budgets(command: str, allowed: int, phase: Phase, want: list[str]) -> None:
    rows = make_pods("x", 1, on="n", labels={"app": "a"})
    rows[0].phase = phase
    snapshot = make_snapshot([make_node("n")], rows, budgets=[covering("ml/b", allowed)])
    plan = make_plan(snapshot, {}, drained=["ml/x-0"], command=command)
    assert broken_rules(verify_plan(snapshot, plan)) == want


@pytest.mark.parametrize(
    ("resource", "want"),
    [
        pytest.param(GPU, ["capacity"], id="what the preemptor asks for"),
        pytest.param("cpu", [], id="what it does not ask for"),
        pytest.param(PODS, ["capacity"], id="pod slots"),
    ],
)
def test_overcommitted_node_stays_short(resource: str, want: list[str]) -> None:
    """An eviction gives back only what the victim held; the node is short of more than that."""
    offers = {"cpu": 64_000, "memory": 512 << 30, PODS: 110, GPU: 8, resource: -9}
    snapshot = make_snapshot(
        [replace(make_node("n"), allocatable=offers)],
        make_pods("old", 1, spec=FOUR, on="n"),
        make_pods("new", 1, spec=FOUR, priority=10),
    )
    plan = make_plan(snapshot, {"ml/new-0": "n"}, victims={"ml/old-0": "ml/new-0"})
    assert broken_rules(verify_plan(snapshot, plan)) == want
