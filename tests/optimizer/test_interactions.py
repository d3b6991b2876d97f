from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from builders import RACK, make_group, make_node, make_pods, make_snapshot, make_spec

from optimizer.interactions import (
    ANTI_AFFINITY,
    EXISTING_ANTI_AFFINITY,
    MANY_OWNERS,
    NO_AFFINITY,
    NO_FREE_PORTS,
    NO_OWNER,
    NO_SPREAD_LABEL,
    ExclusiveRule,
)
from optimizer.problem import Problem, Relax, build_problem
from topology.model import (
    HOSTNAME,
    AffinityTerm,
    Exclusive,
    HostPort,
    LabelSelector,
    PodFlag,
    PodSpec,
    Requirement,
    SpreadTerm,
    Taint,
)
from topology.plan import Request

if TYPE_CHECKING:
    from topology.assemble import GroupRow, PodRow

APP = LabelSelector((Requirement("app", "In", ("x",)),))
NODES = [
    make_node("a1", rack="a"),
    make_node("a2", rack="a"),
    make_node("b1", rack="b"),
    make_node("n1"),
]


def run(on: str, spec: PodSpec | None = None, app: str = "x", **fields: Any) -> list[PodRow]:
    """A running pod."""
    return make_pods(f"run-{on}", 1, on=on, spec=spec, labels={"app": app}, **fields)


def wait(spec: PodSpec, app: str = "x", namespace: str = "ml") -> list[PodRow]:
    """The pending pod that a test is about."""
    return make_pods("p", 1, spec=spec, labels={"app": app}, namespace=namespace)


def compile_pods(*pods: list[PodRow], relax: Relax | None = None) -> Problem:
    return build_problem(make_snapshot(NODES, *pods), Request(), relax=relax)


def refused(problem: Problem) -> dict[str, str]:
    """Words -> nodes refused, of the only class."""
    (signature,) = problem.signatures
    found: dict[str, str] = {}
    for words, mask in problem.interactions.refusals(signature):
        names = " ".join(n.name for n, no in zip(NODES, mask, strict=True) if no)
        if names:
            found[words] = names
    return found


def repel(key: str, app: str = "x", **fields: Any) -> PodSpec:
    selector = LabelSelector((Requirement("app", "In", (app,)),))
    return make_spec(
        anti_affinity=(AffinityTerm(key, selector, fields.pop("namespaces", ("ml",)), **fields),)
    )


def attract(key: str) -> PodSpec:
    return make_spec(affinity=(AffinityTerm(key, APP, ("ml",)),))


PORT = make_spec(host_ports=(HostPort(80),))


def listen(port: int = 80, protocol: str = "TCP", ip: str = "0.0.0.0") -> PodSpec:
    return make_spec(host_ports=(HostPort(port, protocol, ip),))


@pytest.mark.parametrize(
    ("running", "waiting", "want_refused"),
    [
        pytest.param(run("a1"), wait(make_spec()), {}, id="nobody minds"),
        pytest.param(run("a1"), wait(repel(HOSTNAME)), {ANTI_AFFINITY: "a1"}, id="its own node"),
        pytest.param(run("a1"), wait(repel(RACK)), {ANTI_AFFINITY: "a1 a2"}, id="the whole rack"),
        pytest.param(
            run("n1"), wait(repel(RACK)), {}, id="a node without the key is never in conflict"
        ),
        pytest.param(run("a1", app="y"), wait(repel(RACK)), {}, id="another label"),
        pytest.param(run("a1", namespace="dev"), wait(repel(RACK)), {}, id="another namespace"),
        pytest.param(
            run("a1", namespace="dev"),
            wait(repel(RACK, all_namespaces=True)),
            {ANTI_AFFINITY: "a1 a2"},
            id="all namespaces",
        ),
        pytest.param(
            run("a1", flags=PodFlag.TERMINATING),
            wait(repel(HOSTNAME)),
            {ANTI_AFFINITY: "a1"},
            id="a pod that is not gone yet",
        ),
        pytest.param(run("gone"), wait(repel(HOSTNAME)), {}, id="on a node that was not read"),
        pytest.param(
            run("a1", repel(RACK), app="y"),
            wait(make_spec()),
            {EXISTING_ANTI_AFFINITY: "a1 a2"},
            id="a running pod keeps the newcomer away",
        ),
        pytest.param(
            run("a1", repel(RACK), app="y"), wait(make_spec(), app="z"), {}, id="but not any other"
        ),
        pytest.param(
            run("a1", repel(HOSTNAME)),
            wait(repel(HOSTNAME)),
            {ANTI_AFFINITY: "a1", EXISTING_ANTI_AFFINITY: "a1"},
            id="both mind",
        ),
        pytest.param(run("a1", PORT), wait(PORT), {NO_FREE_PORTS: "a1"}, id="the same port"),
        pytest.param(run("a1", listen(81)), wait(PORT), {}, id="another port"),
        pytest.param(run("a1", listen(80, "UDP")), wait(PORT), {}, id="another protocol"),
        pytest.param(
            run("a1", listen(ip="10.0.0.1")), wait(PORT), {NO_FREE_PORTS: "a1"}, id="any address"
        ),
        pytest.param(
            run("a1", listen(ip="10.0.0.1")), wait(listen(ip="10.0.0.2")), {}, id="two addresses"
        ),
        pytest.param(run("a1"), wait(attract(RACK)), {NO_AFFINITY: "b1 n1"}, id="near a pod"),
        pytest.param(
            run("a1", app="y"), wait(attract(RACK)), {NO_AFFINITY: "n1"}, id="the first of its kind"
        ),
        pytest.param(
            run("a1", app="y"),
            wait(attract(RACK), app="z"),
            {NO_AFFINITY: "a1 a2 b1 n1"},
            id="the first, and not of the kind it wants",
        ),
        pytest.param(
            run("a1"),
            wait(attract(RACK), namespace="dev"),
            {NO_AFFINITY: "b1 n1"},
            id="near a pod of the namespace it names",
        ),
    ],
)
def test_refusals(
    running: list[PodRow], waiting: list[PodRow], want_refused: dict[str, str]
) -> None:
    problem = compile_pods(running, waiting)
    found = refused(problem)
    assert found == want_refused
    open_nodes = problem.interactions.allowed_nodes(problem.signatures[0])
    listed = {name for names in found.values() for name in names.split()}
    assert [n.name for n, ok in zip(NODES, open_nodes, strict=True) if not ok] == sorted(listed)


def test_the_first_of_its_kind_binds_the_rest_to_its_domain() -> None:
    problem = compile_pods(wait(attract(RACK)))
    assert problem.interactions.self_affine_keys(0) == (RACK,)
    assert problem.interactions.conditional_specs == set()
    near = compile_pods(run("a1"), wait(attract(RACK)))
    assert near.interactions.self_affine_keys(0) == ()
    assert len(near.interactions.conditional_specs) == 1


def test_an_empty_fleet_keeps_daemons_only() -> None:
    pods = [run("a1"), run("b1", flags=PodFlag.DAEMON), wait(repel(HOSTNAME))]
    assert refused(compile_pods(*pods)) == {ANTI_AFFINITY: "a1 b1"}
    assert refused(compile_pods(*pods, relax=Relax(empty=True))) == {ANTI_AFFINITY: "b1"}


def test_plain_pods_have_no_tables() -> None:
    problem = compile_pods(run("a1"), wait(make_spec()))
    assert problem.interactions.is_trivial
    assert not compile_pods(wait(PORT)).interactions.is_trivial


# Spread


@pytest.mark.parametrize(
    ("term", "spec", "want_domains", "want_counts", "want_unkeyed"),
    [
        pytest.param({}, {}, "11", [2, 1], "n1", id="all racks"),
        pytest.param(
            {},
            {"node_selector": ((HOSTNAME, "b1"),)},
            "01",
            [0, 1],
            "a1 a2 n1",
            id="nodes it may not use do not count",
        ),
        pytest.param(
            {"honor_affinity": False},
            {"node_selector": ((HOSTNAME, "b1"),)},
            "11",
            [2, 1],
            "n1",
            id="unless nodeAffinityPolicy is Ignore",
        ),
        pytest.param({"selector": None}, {}, "11", [0, 0], "n1", id="nothing is selected"),
    ],
)
def test_spread_tables(
    term: dict[str, Any],
    spec: dict[str, Any],
    want_domains: str,
    want_counts: list[int],
    want_unkeyed: str,
) -> None:
    spread = SpreadTerm(RACK, 1, **{"selector": APP, **term})
    problem = compile_pods(
        run("a1"),
        run("a2"),
        run("b1"),
        make_pods("leaving", 1, on="b1", labels={"app": "x"}, flags=PodFlag.TERMINATING),
        make_pods("foreign", 1, on="b1", labels={"app": "x"}, namespace="dev"),
        wait(make_spec(spread=(spread,), **spec)),
    )
    (found,) = problem.interactions.spreads
    assert "".join(str(int(x)) for x in found.is_domain) == want_domains
    assert found.counts.tolist() == want_counts
    assert refused(problem)[NO_SPREAD_LABEL] == want_unkeyed


def test_tainted_nodes_are_no_domains_where_taints_are_honoured() -> None:
    nodes = [make_node("a1", rack="a"), make_node("b1", rack="b", taints=[Taint("x")])]
    for honor, want_domains in ((False, [True, True]), (True, [True, False])):
        term = SpreadTerm(RACK, 1, APP, honor_taints=honor)
        pods = wait(make_spec(spread=(term,)))
        problem = build_problem(make_snapshot(nodes, pods), Request())
        assert problem.interactions.spreads[0].is_domain.tolist() == want_domains


@pytest.mark.parametrize(
    ("max_skew", "min_domains", "want_skewed"),
    [
        pytest.param(1, 1, "a1 a2", id="rack a has two, rack b one"),
        pytest.param(2, 1, "", id="a skew of two is allowed"),
        pytest.param(1, 3, "a1 a2 b1", id="too few racks: measured from nought"),
    ],
)
def test_skewed(max_skew: int, min_domains: int, want_skewed: str) -> None:
    term = SpreadTerm(RACK, max_skew, APP, min_domains)
    problem = compile_pods(run("a1"), run("a2"), run("b1"), wait(make_spec(spread=(term,))))
    mask = problem.interactions.skewed(problem.signatures[0])
    assert [n.name for n, no in zip(NODES, mask, strict=True) if no] == want_skewed.split()


# Exclusive topology


def own(ref: str, *peers: str, key: str | None = RACK, **fields: Any) -> GroupRow:
    return make_group(ref, 1, exclusive=tuple(Exclusive(p, key) for p in peers), **fields)


def member(group: str, on: str = "") -> list[PodRow]:
    return make_pods(f"{group.partition('/')[2]}-{on}", 1, group=group, on=on)


def test_owners_of_domains() -> None:
    groups = [own("ml/a", "ml"), own("ml/b", "ml"), own("ml/c", "ml", key=None)]
    snapshot = make_snapshot(
        [*NODES, make_node("c1", rack="c"), make_node("d1", rack="d")],
        member("ml/a", "a1"),
        member("ml/b", "b1"),
        member("ml/c", "b1"),
        member("ml/c", "c1"),
        member("ml/a", "n1"),
        groups=groups,
    )
    (table,) = build_problem(snapshot, Request()).interactions.exclusive
    assert table.owner.tolist() == [0, MANY_OWNERS, 2, NO_OWNER]
    assert table.is_keyed.tolist() == [True, True, False, False]
    empty = build_problem(snapshot, Request(), relax=Relax(empty=True)).interactions
    assert empty.exclusive[0].owner.tolist() == [NO_OWNER] * 4


def test_rules_of_a_group() -> None:
    groups = [
        own("ml/a", "ml"),
        own("ml/b", "ml", key=None),
        own("dev/a", "dev", key=HOSTNAME),
        own("dev/lone", "nobody", key=None),
    ]
    snapshot = make_snapshot(NODES, member("ml/a"), groups=groups)
    tables = build_problem(snapshot, Request()).interactions
    rules = {g.ref: tables.exclusive_rules(i, g) for i, g in enumerate(snapshot.groups)}
    # Classes by (peers, key): dev and the hostname, then ml and the rack.
    assert rules == {
        "dev/a": (ExclusiveRule(0, 0, True),),
        "dev/lone": (),
        "ml/a": (ExclusiveRule(1, 2, True),),
        "ml/b": (ExclusiveRule(1, 3, False),),
    }
