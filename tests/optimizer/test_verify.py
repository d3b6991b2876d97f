"""A valid plan with everything in it, and every way to break it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from plan_builders import broken_rules, make_plan

from optimizer import verify
from optimizer.verify import verify_plan
from topology.model import PodFlag
from topology.plan import ChosenDomain, GroupPlan, Move

if TYPE_CHECKING:
    from collections.abc import Callable

    from topology.model import Snapshot
    from topology.plan import Plan


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """Two racks of two nodes; r1 is half free, r2 full of evictable and movable pods."""
    four = make_spec(gpus=4)
    return make_snapshot(
        [make_node(f"n{i}", rack=f"r{1 + i // 2}") for i in range(4)],
        make_pods("gang", 3, group="ml/gang", spec=four, template="worker"),
        make_pods("late", 2, group="ml/late", spec=four),
        make_pods("solo", 1, priority=7),
        make_pods("run", 2, spec=make_spec(gpus=2), on=["n0", "n1"]),
        make_pods("all", 2, group="ml/all", spec=four, on=["n2", "n3"]),
        make_pods("one", 1, group="ml/one", spec=four, on="n2"),
        make_pods("daemon", 1, spec=make_spec(gpus=0, cpu=100), on="n3", flags=PodFlag.DAEMON),
        make_pods("gone", 1, spec=make_spec(gpus=0), on="n3", flags=PodFlag.TERMINATING),
        make_pods("gated", 1, group="ml/gang", flags=PodFlag.GATED),
        groups=[
            make_group("ml/gang", 3, key=RACK, priority=10),
            make_group("ml/late", 2, priority=3),
            make_group("ml/all", 2, priority=5, disruption="all"),
            make_group("ml/one", 1, priority=20),
        ],
    )


@pytest.fixture
def plan(snapshot: Snapshot) -> Plan:
    """gang goes to r2 (n3, n3, n2) after `all` is evicted; solo to n1, a run pod moves there."""
    plan = make_plan(
        snapshot,
        {"ml/gang-0": "n3", "ml/gang-1": "n3", "ml/gang-2": "n2", "ml/solo-0": "n1"},
        victims={"ml/all-0": "ml/gang", "ml/all-1": "ml/gang"},
        moves=[Move(1, 1, "ml/run-0", "n0", "n1", "live")],
        criteria={
            "groupsPlaced": 2,
            "podsPlaced": 4,
            "gpusPlaced": 13,
            "weightedGpus": 127,
            "victimPods": 2,
            "victimUnits": 1,
            "victimGpus": 8,
            "weightedVictimGpus": 40,
            "highestVictimPriority": 5,
            "pdbViolations": 0,
            "moves": 1,
            "movedGpus": 2,
            "disturbedPods": 1,
        },
    )
    return change("ml/gang", domains=(ChosenDomain(RACK, "r2"),))(plan)


def entry(plan: Plan, ref: str) -> GroupPlan:
    return next(e for e in plan.groups if e.group == ref)


def change(ref: str, **fields: Any) -> Callable[[Plan], Plan]:
    return lambda plan: replace(
        plan, groups=tuple(replace(e, **fields) if e.group == ref else e for e in plan.groups)
    )


def change_pod(ref: str, i: int, **fields: Any) -> Callable[[Plan], Plan]:
    def mutate(plan: Plan) -> Plan:
        pods = list(entry(plan, ref).pods)
        pods[i] = replace(pods[i], **fields)
        return change(ref, pods=tuple(pods))(plan)

    return mutate


def drop_pod(plan: Plan) -> Plan:
    pods = entry(plan, "ml/gang").pods
    return change("ml/gang", pods=pods[:2], pending_pods=(pods[2].pod,))(plan)


def list_under_solo(plan: Plan) -> Plan:
    gang, solo = entry(plan, "ml/gang"), entry(plan, "ml/solo-0")
    plan = change("ml/gang", pods=gang.pods[:2])(plan)
    return change("ml/solo-0", pods=solo.pods + gang.pods[2:])(plan)


def change_eviction(i: int, **fields: Any) -> Callable[[Plan], Plan]:
    def mutate(plan: Plan) -> Plan:
        evictions = list(plan.evictions)
        evictions[i] = replace(evictions[i], **fields)
        return replace(plan, evictions=tuple(evictions))

    return mutate


def change_move(**fields: Any) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, moves=(replace(plan.moves[0], **fields),))


def add_move(*fields: Any) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, moves=(*plan.moves, Move(*fields)))


def state(name: str, value: int) -> Callable[[Plan], Plan]:
    return lambda plan: replace(plan, criteria={**plan.criteria, name: value})


def test_valid_plan_verifies(snapshot: Snapshot, plan: Plan) -> None:
    verification = verify_plan(snapshot, plan)
    assert verification.violations == ()
    assert verification.checks > 100


def test_plan_that_does_nothing_verifies(snapshot: Snapshot) -> None:
    assert verify_plan(snapshot, make_plan(snapshot, {})).violations == ()


def test_group_without_pods_in_an_empty_cluster() -> None:
    empty = make_snapshot([], groups=[make_group("ml/g", 2)])
    entry = GroupPlan(
        "ml/g", "scheduling.k8s.io/v1beta1/PodGroup", "gang", 2, 0, outcome="notPlaced"
    )
    plan = replace(make_plan(empty, {}), groups=(entry,))
    assert verify_plan(empty, plan).violations == ()


@pytest.mark.parametrize(
    ("mutate", "want_rule"),
    [
        pytest.param(change("ml/gang", group="ml/nobody"), "exists", id="unknown group"),
        pytest.param(change("ml/gang", api="v1/Pod"), "exists", id="group said to be a pod"),
        pytest.param(change("ml/solo-0", group="ml/run-9"), "exists", id="unknown plain pod"),
        pytest.param(change("ml/gang", composite="ml/late"), "exists", id="no such composite"),
        pytest.param(change_pod("ml/gang", 0, node="n9"), "exists", id="unknown node"),
        pytest.param(change_pod("ml/gang", 0, pod="ml/gang-9"), "exists", id="unknown pod"),
        pytest.param(
            lambda p: replace(p, groups=(*p.groups, entry(p, "ml/gang"))),
            "listed-once",
            id="group listed twice",
        ),
        pytest.param(change("ml/gang", priority=11), "facts", id="other priority"),
        pytest.param(change("ml/gang", api="batch/v1/Job"), "facts", id="other API"),
        pytest.param(list_under_solo, "owner", id="pod under another group"),
        pytest.param(change_pod("ml/gang", 0, subgroup="0"), "subgroup", id="unknown subgroup"),
        pytest.param(change_pod("ml/gang", 0, template="leader"), "template", id="other template"),
        pytest.param(change("ml/gang", outcome="notPlaced"), "outcome", id="notPlaced with pods"),
        pytest.param(change("ml/late", outcome="placed"), "outcome", id="placed without pods"),
        pytest.param(change_pod("ml/gang", 0, pod="ml/run-1"), "pending", id="runs already"),
        pytest.param(change_pod("ml/gang", 0, pod="ml/gated-0"), "pending", id="gated"),
        pytest.param(change_pod("ml/gang", 0, pod="ml/all-0"), "pending", id="victim placed again"),
        pytest.param(change_pod("ml/gang", 0, pod="ml/gang-1"), "placed-once", id="placed twice"),
        pytest.param(change("ml/late", pending_pods=("ml/late-0",)), "pending-pods", id="one lost"),
        pytest.param(
            change("ml/late", pending_pods=("ml/late-0", "ml/late-0", "ml/late-1")),
            "pending-pods",
            id="one waits twice",
        ),
        pytest.param(
            change("ml/gang", pending_pods=("ml/gated-0",)), "pending-pods", id="gated one listed"
        ),
        pytest.param(change_pod("ml/gang", 2, node="n3"), "capacity", id="node too full"),
        pytest.param(change_pod("ml/gang", 2, node="n1"), "topology", id="another rack"),
        pytest.param(drop_pod, "floor", id="one pod too few"),
        pytest.param(
            change("ml/gang", domains=(ChosenDomain(RACK, "r1"),)), "domain", id="domain misnamed"
        ),
        pytest.param(
            change("ml/late", domains=(ChosenDomain(RACK, "r1"),)), "domain", id="domain of no pod"
        ),
        pytest.param(
            change("ml/gang", domains=(ChosenDomain(RACK, "r2", "0"),)),
            "exists",
            id="domain of an unknown subgroup",
        ),
        pytest.param(change_eviction(0, pod="ml/all-9"), "exists", id="unknown victim"),
        pytest.param(change_eviction(0, pod="ml/late-0"), "evict-running", id="victim waits"),
        pytest.param(change_eviction(0, pod="ml/gone-0"), "evict-running", id="victim terminates"),
        pytest.param(change_eviction(0, pod="ml/all-1"), "evicted-once", id="evicted twice"),
        pytest.param(change_eviction(0, node="n0"), "evict-node", id="victim is elsewhere"),
        pytest.param(change_eviction(0, group="ml/one"), "owner", id="victim of another group"),
        pytest.param(change_eviction(0, pod="ml/daemon-0"), "evict-pinned", id="DaemonSet pod"),
        pytest.param(change_eviction(0, pod="ml/one-0"), "evict-priority", id="higher priority"),
        pytest.param(change_eviction(0, preemptor="ml/late"), "preemptor", id="not placed itself"),
        pytest.param(change_eviction(0, preemptor=None), "preemptor", id="for nobody"),
        pytest.param(
            lambda p: replace(p, evictions=p.evictions[:1]), "evict-unit", id="half of an all unit"
        ),
        pytest.param(
            lambda p: replace(p, request=replace(p.request, preempt=False)),
            "preempt-asked",
            id="nobody asked for victims",
        ),
        pytest.param(lambda p: replace(p, evictions=()), "capacity", id="victims stay"),
        pytest.param(change_move(pod="ml/run-9"), "exists", id="unknown pod moved"),
        pytest.param(change_move(target="n9"), "exists", id="unknown target"),
        pytest.param(change_move(source="n1"), "move-source", id="moved from elsewhere"),
        pytest.param(change_move(pod="ml/solo-0"), "move-source", id="waiting pod moved"),
        pytest.param(change_move(pod="ml/all-0", source="n2"), "move-source", id="victim moved"),
        pytest.param(change_move(target="n0"), "move-target", id="moved to where it is"),
        pytest.param(change_move(group="ml/all"), "owner", id="moved pod of another group"),
        pytest.param(change_move(pod="ml/daemon-0", source="n3"), "movable", id="DaemonSet moved"),
        pytest.param(change_move(pod="ml/gone-0", source="n3"), "movable", id="terminating moved"),
        pytest.param(
            change_move(pod="ml/one-0", source="n2", target="n3"), "capacity", id="no room there"
        ),
        pytest.param(
            add_move(1, 1, "ml/run-0", "n1", "n0", "live"), "move-order", id="step does not rise"
        ),
        pytest.param(
            add_move(2, 0, "ml/run-0", "n1", "n0", "live"), "move-order", id="wave goes back"
        ),
        pytest.param(
            add_move(2, 1, "ml/run-0", "n0", "n2", "live"), "move-source", id="not there any more"
        ),
        pytest.param(state("groupsPlaced", 3), "criterion", id="groupsPlaced"),
        pytest.param(state("podsPlaced", 5), "criterion", id="podsPlaced"),
        pytest.param(state("gpusPlaced", 16), "criterion", id="gpusPlaced"),
        pytest.param(state("weightedGpus", 120), "criterion", id="weightedGpus"),
        pytest.param(state("victimPods", 1), "criterion", id="victimPods"),
        pytest.param(state("victimUnits", 2), "criterion", id="victimUnits"),
        pytest.param(state("victimGpus", 4), "criterion", id="victimGpus"),
        pytest.param(state("weightedVictimGpus", 8), "criterion", id="weightedVictimGpus"),
        pytest.param(state("highestVictimPriority", 0), "criterion", id="highestVictimPriority"),
        pytest.param(state("pdbViolations", 1), "criterion", id="pdbViolations"),
        pytest.param(state("moves", 0), "criterion", id="moves"),
        pytest.param(state("movedGpus", 1), "criterion", id="movedGpus"),
        pytest.param(state("disturbedPods", 2), "criterion", id="disturbedPods"),
    ],
)
def test_mutation_is_caught(
    snapshot: Snapshot, plan: Plan, mutate: Callable[[Plan], Plan], want_rule: str
) -> None:
    verification = verify_plan(snapshot, mutate(plan))
    assert want_rule in broken_rules(verification)
    assert all(v.object and v.wanted and v.found for v in verification.violations)


def test_violation_says_what_was_wanted_and_found(snapshot: Snapshot, plan: Plan) -> None:
    verification = verify_plan(snapshot, change_pod("ml/gang", 2, node="n3")(plan))
    assert [v.to_dict() for v in verification.violations] == [
        {
            "rule": "capacity",
            "object": "ml/gang-2 on n3",
            "wanted": "4 nvidia.com/gpu free",
            "found": "0 free",
        }
    ]


def test_fleet_of_100_000_pods() -> None:
    spec = make_spec(gpus=1, cpu=1000)
    nodes = [make_node(f"n{i:05d}", rack=f"r{i // 10}") for i in range(12_500)]
    rows = make_pods("run", 50_000, spec=spec, on=[f"n{i // 8:05d}" for i in range(50_000)])
    groups, placed = [], {}
    for g in range(2_500):
        groups.append(make_group(f"ml/g{g}", 20, key=RACK))
        rows += make_pods(f"g{g}", 20, group=f"ml/g{g}", spec=spec)
        # Four gangs of 20 fill the ten nodes of a rack.
        placed |= {f"ml/g{g}-{i}": f"n{6250 + (g * 20 + i) // 8:05d}" for i in range(20)}
    snapshot = make_snapshot(nodes, rows, groups=groups)
    plan = make_plan(snapshot, placed, criteria={"podsPlaced": 50_000})
    verification = verify_plan(snapshot, plan)
    assert verification.violations == ()
    assert verification.checks > 500_000


def test_every_rule_is_documented() -> None:
    """The module lists its rules, the page explains them; what is checked is in both."""
    root = Path(__file__).parents[2]
    code = "".join(file.read_text() for file in sorted((root / "optimizer").glob("verify_*.py")))
    listed = re.sub(r"\(.*?\)", "", (verify.__doc__ or "").partition("Rules,")[2])
    rules = set(re.findall(r"[a-z]+(?:-[a-z]+)*", re.sub(r"^.*?:", "", listed, flags=re.M)))
    page = (root / "docs/verification.md").read_text()
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([a-z-]+)`", rows)) == rules
    assert {rule for rule in rules if f'"{rule}"' not in code} == set()


def test_verifier_loads_no_jax() -> None:
    code = "import sys, optimizer.verify; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
