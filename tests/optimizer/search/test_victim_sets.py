"""Victim sets of plain gangs: bounds, orders and all subsets against each other and HiGHS."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.kernels.runtime import TRACES
from optimizer.objective import Placed, build_steps
from optimizer.problem import FREE_CHOICE
from optimizer.search import victim_plain, victim_tensors
from optimizer.search.victim_model import choose_victims, empty_fleet
from optimizer.search.victim_plain import solve_plain
from optimizer.search.victim_sets import NO_ROOM, VictimSets, build_victim_sets, is_refused
from optimizer.search.victim_tensors import find_listable, find_sets, list_all_sets
from optimizer.victims import find_victims
from topology.model import AffinityTerm, Budget, HostPort, LabelSelector, Requirement, SpreadTerm
from topology.plan import Request

if TYPE_CHECKING:
    from topology.model import PodSpec, Snapshot

OBJECTIVES = (
    (
        "max:priority",
        "min:pdbViolations",
        "min:highestVictimPriority",
        "min:victimUnits",
        "min:victimPods",
    ),
    ("max:gpusPlaced", "min:weightedVictimGpus", "min:victimPods"),
    ("max:podsPlaced", "min:highestVictimPriority", "min:victimGpus"),
    ("max:priority", "min:victimPods"),
)


def draw_fleet(
    seed: int,
    *,
    racks: int = 3,
    per_rack: int = 4,
    units: int = 6,
    pending: PodSpec | None = None,
    key: str | None = RACK,
    budgets: bool = True,
) -> Snapshot:
    """Racks filled by gangs that go whole, some of them on two racks; one gang wants a rack."""
    rng = np.random.default_rng(seed)
    nodes = [
        make_node(f"n{i:02d}", rack=f"r{i // per_rack}", cpu=int(rng.choice([16, 24, 32])) * 1000)
        for i in range(racks * per_rack)
    ]
    groups, pods = [], []
    left = np.array([[8, node.allocatable["cpu"] // 1000] for node in nodes])
    for v in range(racks * units):
        gpus, cpu = int(rng.choice([1, 2, 2, 3, 4])), int(rng.integers(1, 9))
        spans = rng.random() < 0.15
        rack = v % racks
        own = rng.permutation(per_rack) + rack * per_rack
        where = rng.permutation(len(nodes)) if spans else own
        on = []
        for n in where[: int(rng.integers(1, 4))].tolist():
            if left[n][0] >= gpus and left[n][1] >= cpu:
                left[n] -= (gpus, cpu)
                on.append(nodes[n].name)
        if not on:
            continue
        ref, priority = f"ml/v{v:02d}", int(rng.choice([0, 1, 1, 3, 5]))
        groups.append(make_group(ref, len(on), disruption="all", priority=priority))
        spec = make_spec(gpus=gpus, cpu=cpu * 1000)
        labels = {"app": str(rng.choice(["x", "y"]))}
        pods.append(
            make_pods(
                f"v{v:02d}", len(on), group=ref, spec=spec, on=on, priority=priority, labels=labels
            )
        )
    count = int(rng.integers(1, per_rack + 1))
    spec = pending or make_spec(
        gpus=int(rng.choice([2, 4, 8])), cpu=int(rng.choice([1000, 3000, 7000]))
    )
    groups.append(make_group("ml/g", count, key=key, priority=10))
    pods.append(make_pods("g", count, group="ml/g", spec=spec, priority=10))
    covered = [
        Budget(f"ml/{app}", _select(app), int(rng.integers(0, 3))) for app in ("x", "y") if budgets
    ]
    return make_snapshot(nodes, *pods, groups=groups, budgets=covered)


def _select(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def build_sets(snapshot: Snapshot, **request: Any) -> VictimSets | None:
    asked = Request(command="preempt", preempt=True, **request)
    victims = find_victims(snapshot, 10)
    fleet = empty_fleet(snapshot, asked, victims=victims, gone=(), placed={}, only=["ml/g"])
    unit = fleet.problem.units[0]
    most = [Placed(unit.priority, 1, unit.num_pods, unit.gpus)]
    columns = [r.column for r in unit.root.required if r.pinned == FREE_CHOICE]
    usable = fleet.state.fits(unit.tasks[0].pod_class) > 0
    steps = build_steps(asked.objective, most)
    return build_victim_sets(fleet, 0, columns[0] if columns else -1, usable, steps)


def solve_domain(sets: VictimSets, domain: int) -> tuple[int, ...] | None:
    """The best score of one domain by HiGHS alone, None where not all pods find a place."""
    nodes = np.flatnonzero(sets.codes == domain)
    choice = choose_victims(sets.fleet, [0], nodes, sets.steps, node_limit=10_000)
    assert choice is not None
    assert choice.proven == len(sets.steps)
    fills = choice.placements.get(0, ())
    pods = sum(int(fill.counts.sum()) for fill in fills)
    return sets.score(fills, choice.victims) if pods == sets.need else None


def best_by_highs(sets: VictimSets) -> tuple[int, ...] | None:
    found = [solve_domain(sets, d) for d in range(sets.num_domains)]
    return max((score for score in found if score is not None), default=None)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(OBJECTIVES), st.sampled_from(["soft", "hard"]))
def test_all_sets_and_highs_agree(seed: int, objective: tuple[str, ...], pdb: str) -> None:
    sets = build_sets(draw_fleet(seed), objective=objective, pdb=pdb)
    if sets is None:
        return
    narrowed = sets.narrow(None)
    domains = np.flatnonzero(narrowed.bound < NO_ROOM).tolist()
    assert find_listable(sets, narrowed)[domains].all()
    want_best = best_by_highs(sets)
    found = list_all_sets(sets, narrowed, domains, None)
    if want_best is None:
        assert found is None
        return
    assert found is not None
    choice = sets.to_choice(*found)
    assert choice.score == want_best
    (fill,) = choice.placements[0]
    assert int(fill.counts.sum()) == sets.need
    # Below its own cost there is nothing, and that is proven.
    limit = sets.costs.price(choice.victims)
    assert list_all_sets(sets, sets.narrow(limit), domains, limit) is None


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_orders_find_a_set_in_every_domain_with_room(seed: int) -> None:
    sets = build_sets(draw_fleet(seed), objective=OBJECTIVES[1])
    if sets is None:
        return
    narrowed = sets.narrow(None)
    domains = np.flatnonzero(narrowed.bound < NO_ROOM).tolist()
    found = find_sets(sets, narrowed, domains, 16)
    assert sorted(domain for domain, _ in found) == domains
    costs = [sets.costs.price(victims) for _, victims in found]
    assert costs == sorted(costs)
    want_best = best_by_highs(sets)
    assert want_best is not None
    assert max(sets.to_choice(*one).score for one in found) <= want_best


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(OBJECTIVES))
def test_bounds_hold_and_narrowing_keeps_the_best(seed: int, objective: tuple[str, ...]) -> None:
    sets = build_sets(draw_fleet(seed, units=5), objective=objective)
    if sets is None:
        return
    narrowed = sets.narrow(None)
    for d in np.flatnonzero(narrowed.bound < NO_ROOM).tolist():
        found = list_all_sets(sets, narrowed, [d], None)
        assert found is not None
        victims = found[1]
        cost = sets.costs.price(victims)
        assert narrowed.bound[d] <= cost[0]
        # A limit just above the cost neither refuses the domain nor drops one of its victims.
        limit = (*cost[:-1], cost[-1] + 1)
        closer = sets.narrow(limit)
        assert not is_refused(closer.bound, limit)[d]
        inside = (sets.codes[sets.node] == d) & np.isin(sets.victim, victims)
        assert closer.goes[inside].all()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(OBJECTIVES), st.sampled_from([RACK, None]))
def test_the_search_finds_the_best_with_proof(
    seed: int, objective: tuple[str, ...], key: str | None
) -> None:
    sets = build_sets(draw_fleet(seed, key=key), objective=objective)
    if sets is None:
        return
    want_best = best_by_highs(sets)
    choice = solve_plain(sets, 10_000)
    assert choice is not None
    assert choice.score == want_best
    assert choice.proven == len(sets.steps)


@pytest.mark.parametrize("seed", [1, 2, 4, 6])
def test_tangled_domains_are_decided_by_kernels(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    # As if HiGHS decided nothing within its first nodes: kernels get all domains.
    sets = build_sets(draw_fleet(seed, pending=make_spec(gpus=4)), objective=OBJECTIVES[1])
    assert sets is not None
    want_best = best_by_highs(sets)
    monkeypatch.setattr(victim_plain, "MANY_HARD", 0)
    choice = solve_plain(sets, 10_000)
    assert choice is not None
    assert choice.score == want_best
    assert choice.proven == len(sets.steps)


def test_chunks_do_not_change_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = build_sets(draw_fleet(1, racks=5), objective=OBJECTIVES[1])
    assert sets is not None
    narrowed = sets.narrow(None)
    domains = np.flatnonzero(narrowed.bound < NO_ROOM).tolist()
    whole = find_sets(sets, narrowed, domains, 16), list_all_sets(sets, narrowed, domains, None)
    monkeypatch.setattr(victim_tensors, "MEMORY_LIMIT", 1)
    monkeypatch.setattr(victim_tensors, "CHUNK", 2)
    parts = find_sets(sets, narrowed, domains, 16), list_all_sets(sets, narrowed, domains, None)
    assert parts == whole


def test_a_fleet_of_like_size_compiles_nothing() -> None:
    def run(seed: int) -> None:
        sets = build_sets(draw_fleet(seed, budgets=False), objective=OBJECTIVES[1])
        assert sets is not None
        narrowed = sets.narrow(None)
        domains = np.flatnonzero(narrowed.bound < NO_ROOM).tolist()
        find_sets(sets, narrowed, domains, 16)
        list_all_sets(sets, narrowed, domains, None)

    run(21)
    before = TRACES.total()
    run(21)
    assert TRACES.total() == before


def test_a_victim_on_two_racks_is_charged_whole() -> None:
    # On rack 1 only two pods of b stand, but its two on rack 2 would go with them.
    nodes = [make_node("n0", rack="r0"), make_node("n1", rack="r1"), make_node("n2", rack="r2")]
    snapshot = make_snapshot(
        nodes,
        make_pods("a", 3, group="ml/a", on=["n0"] * 3),
        make_pods("b", 4, group="ml/b", on=["n1", "n1", "n2", "n2"]),
        make_pods("c", 5, group="ml/c", on=["n2"] * 5),
        make_pods("g", 1, group="ml/g", spec=make_spec(gpus=8), priority=10),
        groups=[
            make_group("ml/a", 3, disruption="all"),
            make_group("ml/b", 4, disruption="all"),
            make_group("ml/c", 5, disruption="all"),
            make_group("ml/g", 1, key=RACK, priority=10),
        ],
    )
    sets = build_sets(snapshot, objective=("max:priority", "min:victimPods"))
    assert sets is not None
    narrowed = sets.narrow(None)
    want_costs = [3, 4, 9]
    assert narrowed.bound.tolist() == want_costs
    for domain, want_cost in enumerate(want_costs):
        found = list_all_sets(sets, narrowed, [domain], None)
        assert found is not None
        assert sets.to_choice(*found).score == (8, -want_cost)
    choice = solve_plain(sets, 100)
    assert choice is not None
    assert choice.score == (8, -3)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(
            make_spec(anti_affinity=(AffinityTerm(RACK, _select("x"), ("ml",)),)),
            id="anti-affinity",
        ),
        pytest.param(make_spec(host_ports=(HostPort(80),)), id="host ports"),
        pytest.param(make_spec(spread=(SpreadTerm(RACK, 1, _select("x")),)), id="hard spread"),
    ],
)
def test_more_than_room_is_left_to_the_model(spec: PodSpec) -> None:
    assert build_sets(draw_fleet(0, pending=spec)) is None


def test_objectives_that_do_not_place_first_are_left_to_the_model() -> None:
    snapshot = draw_fleet(0)
    assert build_sets(snapshot, objective=("min:victimPods", "max:gpusPlaced")) is None
    assert build_sets(snapshot, objective=("min:gpusPlaced",)) is None


def test_part_of_a_gang_is_placed_where_no_rack_takes_all() -> None:
    nodes = [make_node("n0", rack="r0"), make_node("n1", rack="r1", gpus=4)]
    snapshot = make_snapshot(
        nodes,
        make_pods("a", 1, spec=make_spec(gpus=8), on="n0"),
        make_pods("g", 3, group="ml/g", spec=make_spec(gpus=4), priority=10),
        groups=[make_group("ml/g", 1, size=3, key=RACK, priority=10)],
    )
    sets = build_sets(snapshot, objective=("max:priority", "min:victimPods"))
    assert sets is not None
    assert sets.need == 2
    assert sets.narrow(None).bound.tolist() == [1, NO_ROOM]
    choice = solve_plain(sets, 100)
    assert choice is not None
    assert choice.score == (8, -1)
