"""Inter-pod affinity and anti-affinity, on two racks of two nodes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from builders import RACK, make_node, make_pods, make_snapshot, make_spec
from plan_builders import broken_rules, make_plan

from optimizer.verify import verify_plan
from topology.model import (
    HOSTNAME,
    AffinityTerm,
    LabelSelector,
    PodFlag,
    PodSpec,
    Requirement,
)
from topology.plan import Move

if TYPE_CHECKING:
    from topology.assemble import PodRow


def select(app: str) -> LabelSelector:
    return LabelSelector((Requirement("app", "In", (app,)),))


def term(app: str, key: str = RACK, namespace: str = "ml") -> AffinityTerm:
    return AffinityTerm(key, select(app), (namespace,))


def anti(*terms: AffinityTerm) -> PodSpec:
    return make_spec(anti_affinity=terms)


def near(*terms: AffinityTerm) -> PodSpec:
    return make_spec(affinity=terms)


def pod(
    name: str, app: str, spec: PodSpec | None = None, on: str = "", namespace: str = "ml"
) -> list[PodRow]:
    return make_pods(name, 1, spec=spec, on=on, labels={"app": app}, namespace=namespace)


NODES = [
    make_node("n0", rack="r1"),
    make_node("n1", rack="r1"),
    make_node("n2", rack="r2"),
    make_node("n3", rack="r2"),
    make_node("n4"),
]


@pytest.mark.parametrize(
    ("rows", "placed", "want"),
    [
        pytest.param(
            pod("old", "a", on="n0") + pod("new", "b", anti(term("a"))),
            {"ml/new-0": "n1"},
            ["anti-affinity"],
            id="newcomer's term",
        ),
        pytest.param(
            pod("old", "a", on="n0") + pod("new", "b", anti(term("a"))),
            {"ml/new-0": "n2"},
            [],
            id="another rack",
        ),
        pytest.param(
            pod("old", "a", on="n0") + pod("new", "b", anti(term("a"))),
            {"ml/new-0": "n4"},
            [],
            id="a node without the key passes",
        ),
        pytest.param(
            pod("old", "a", anti(term("b")), on="n0") + pod("new", "b"),
            {"ml/new-0": "n1"},
            ["anti-affinity"],
            id="existing pod's term repels a newcomer that has none",
        ),
        pytest.param(
            pod("old", "a", on="n0", namespace="x") + pod("new", "b", anti(term("a"))),
            {"ml/new-0": "n1"},
            [],
            id="other namespace",
        ),
        pytest.param(
            pod("old", "a", on="n0", namespace="x")
            + pod("new", "b", anti(replace(term("a"), all_namespaces=True))),
            {"ml/new-0": "n1"},
            ["anti-affinity"],
            id="all namespaces",
        ),
        pytest.param(
            pod("old", "a", on="n0") + pod("new", "b", anti(AffinityTerm(RACK, None, ("ml",)))),
            {"ml/new-0": "n1"},
            [],
            id="a null selector selects nothing",
        ),
        pytest.param(
            pod("old", "a", on="n0")
            + pod("new", "b", anti(AffinityTerm(RACK, LabelSelector(), ("ml",)))),
            {"ml/new-0": "n1"},
            ["anti-affinity"],
            id="an empty selector selects everything",
        ),
        pytest.param(
            pod("u", "a", anti(term("a", HOSTNAME))) + pod("v", "a", anti(term("a", HOSTNAME))),
            {"ml/u-0": "n0", "ml/v-0": "n0"},
            ["anti-affinity"],
            id="two newcomers, one node",
        ),
        pytest.param(
            pod("u", "a", anti(term("a", HOSTNAME))) + pod("v", "a", anti(term("a", HOSTNAME))),
            {"ml/u-0": "n0", "ml/v-0": "n1"},
            [],
            id="two newcomers, a node each",
        ),
        pytest.param(
            pod("u", "a", anti(term("b"))) + pod("v", "b"),
            {"ml/u-0": "n0", "ml/v-0": "n1"},
            ["anti-affinity"],
            id="two newcomers, one has a term",
        ),
        pytest.param(
            pod("old", "a", on="n0") + pod("new", "b", near(term("a"))),
            {"ml/new-0": "n1"},
            [],
            id="affinity met",
        ),
        pytest.param(
            pod("old", "a", on="n0") + pod("new", "b", near(term("a"))),
            {"ml/new-0": "n2"},
            ["affinity"],
            id="affinity met only elsewhere",
        ),
        pytest.param(
            pod("new", "b", near(term("a"))),
            {"ml/new-0": "n2"},
            ["affinity"],
            id="no such pod and not its own kind",
        ),
        pytest.param(
            pod("old", "a", on="n4") + pod("new", "b", near(term("a"))),
            {"ml/new-0": "n4"},
            ["affinity"],
            id="the node lacks the key",
        ),
        pytest.param(
            pod("u", "a", near(term("a"))) + pod("v", "a", near(term("a"))),
            {"ml/u-0": "n0", "ml/v-0": "n1"},
            [],
            id="first of a self-affine set, second in its domain",
        ),
        pytest.param(
            pod("u", "a", near(term("a"))) + pod("v", "a", near(term("a"))),
            {"ml/u-0": "n0", "ml/v-0": "n2"},
            ["affinity"],
            id="second of a self-affine set in another domain",
        ),
        pytest.param(
            pod("old", "a", on="n2") + pod("u", "a", near(term("a"))),
            {"ml/u-0": "n0"},
            ["affinity"],
            id="self-affine, but one runs elsewhere",
        ),
        pytest.param(
            pod("u", "a") + pod("v", "b", near(term("a"))),
            {"ml/u-0": "n0", "ml/v-0": "n1"},
            [],
            id="wanted pod is new too",
        ),
        pytest.param(
            pod("u", "a", near(term("b"))) + pod("v", "b", near(term("c"))) + pod("w", "c"),
            {"ml/u-0": "n0", "ml/v-0": "n1", "ml/w-0": "n0"},
            [],
            id="a chain of newcomers",
        ),
        pytest.param(
            pod("u", "a", near(term("b"))) + pod("v", "b", near(term("a"))),
            {"ml/u-0": "n0", "ml/v-0": "n1"},
            ["affinity"],
            id="two that wait for each other",
        ),
        pytest.param(
            pod("x", "a", on="n0") + pod("u", "c", near(term("a"), term("b", HOSTNAME))),
            {"ml/u-0": "n1"},
            ["affinity"],
            id="one of two terms",
        ),
    ],
)
def test_affinity(rows: list[PodRow], placed: dict[str, str], want: list[str]) -> None:
    snapshot = make_snapshot(NODES, rows)
    assert broken_rules(verify_plan(snapshot, make_plan(snapshot, placed))) == want


def test_terminating_pod_still_repels() -> None:
    old = pod("old", "a", anti(term("b")), on="n0")
    old[0].flags = PodFlag.TERMINATING
    snapshot = make_snapshot(NODES, old, pod("new", "b"))
    plan = make_plan(snapshot, {"ml/new-0": "n1"})
    assert broken_rules(verify_plan(snapshot, plan)) == ["anti-affinity"]


def test_victim_repels_nobody() -> None:
    new = pod("new", "b")
    new[0].priority = 1
    snapshot = make_snapshot(NODES, pod("old", "a", anti(term("b")), on="n0"), new)
    plan = make_plan(snapshot, {"ml/new-0": "n1"}, victims={"ml/old-0": "ml/new-0"})
    assert verify_plan(snapshot, plan).violations == ()


@pytest.mark.parametrize(
    ("target", "want"),
    [
        pytest.param("n1", [], id="its own rack once it has left"),
        pytest.param("n2", ["anti-affinity"], id="a rack of its kind"),
    ],
)
def test_moved_pod_minds_its_new_neighbours(target: str, want: list[str]) -> None:
    spec = anti(term("a"))
    snapshot = make_snapshot(NODES, pod("u", "a", spec, on="n0"), pod("v", "a", spec, on="n3"))
    plan = make_plan(snapshot, {}, moves=[Move(1, 1, "ml/u-0", "n0", target, "live")])
    assert broken_rules(verify_plan(snapshot, plan)) == want
