from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from devices import make_devices

from topology.assemble import PodRow, assemble_snapshot, find_node_keys, find_pod_keys
from topology.model import (
    HOSTNAME,
    MISSING_NODE,
    NO_GROUP,
    NO_NODE,
    AffinityTerm,
    Budget,
    ClaimNeed,
    Exclusive,
    Group,
    LabelSelector,
    ObjectError,
    PodSpec,
    Requirement,
    SelectorTerm,
    SpreadTerm,
    Taint,
    TopologyTerm,
)


def select(key: str) -> LabelSelector:
    return LabelSelector((Requirement(key, "Exists"),))


def test_everything_is_sorted_and_indices_follow() -> None:
    snapshot = make_snapshot(
        [make_node("n2"), make_node("n1")],
        make_pods("b", 1, group="ml/z#0", on="n2"),
        make_pods("a", 1, group="ml/b", nominated="n1"),
        groups=[
            make_group("ml/z#0", 1, parent="ml/z", kind="subgroup"),
            make_group("ml/z", 1),
            make_group("ml/b", 1),
        ],
        budgets=[Budget("ml/y", None, 0), Budget("ml/x", None, 0)],
        devices=make_devices([(1, "gpu", 8, 1), (0, "nic", 2, 2)]),
    )
    assert [n.name for n in snapshot.nodes] == ["n1", "n2"]
    assert [(g.ref, g.parent) for g in snapshot.groups] == [
        ("ml/b", NO_GROUP),
        ("ml/z", NO_GROUP),
        ("ml/z#0", 1),
    ]
    assert snapshot.pods.refs == ("ml/a-0", "ml/b-0")
    assert snapshot.pods.node.tolist() == [NO_NODE, 1]
    assert snapshot.pods.nominated.tolist() == [0, NO_NODE]
    assert snapshot.pods.group.tolist() == [0, 2]
    assert [b.ref for b in snapshot.budgets] == ["ml/x", "ml/y"]
    assert len(snapshot.devices) == 10


def test_nodes_that_were_not_read() -> None:
    snapshot = make_snapshot(
        [make_node("n1")],
        make_pods("a", 1, on="gone"),
        make_pods("b", 1, nominated="gone"),
    )
    assert snapshot.pods.node.tolist() == [MISSING_NODE, NO_NODE]
    assert snapshot.pods.nominated.tolist() == [NO_NODE, NO_NODE]
    assert not snapshot.devices


def test_equal_specs_and_labels_are_stored_once() -> None:
    snapshot = make_snapshot(
        [],
        make_pods("a", 2, spec=make_spec(gpus=2), template="worker"),
        make_pods("b", 1, spec=make_spec(gpus=2), template="leader"),
        make_pods("c", 1, spec=make_spec(gpus=1)),
    )
    pods = snapshot.pods
    assert pods.spec.tolist() == [0, 0, 0, 1]
    assert [spec.gpus for spec in pods.specs] == [2, 1]
    assert pods.templates == ("", "worker", "leader")
    assert pods.template.tolist() == [1, 1, 2, 0]
    assert (pods.label_sets, pods.labels.tolist()) == (({},), [0, 0, 0, 0])


def test_every_column_has_its_type() -> None:
    pods = make_snapshot([], make_pods("a", 1, priority=2**31 - 1, created=2**40)).pods
    found = {name: str(getattr(pods, name).dtype) for name in ("priority", "phase", "flags")}
    assert found == {"priority": "int32", "phase": "int8", "flags": "int16"}
    assert (pods.row(0).priority, pods.row(0).created) == (2**31 - 1, 2**40)


SPREAD = SpreadTerm("zone", 1, select("app"))
LABELS = {"app": "x", "team": "y", "tier": "z", "noise": "w"}


@pytest.mark.parametrize(
    ("spec", "budgets", "pod_keys", "want_labels"),
    [
        pytest.param(PodSpec(), [], (), {}, id="nobody mentions a label"),
        pytest.param(
            PodSpec(affinity=(AffinityTerm("zone", select("app")),)),
            [],
            (),
            {"app": "x"},
            id="affinity",
        ),
        pytest.param(
            PodSpec(anti_affinity=(AffinityTerm("zone", select("team")),)),
            [],
            (),
            {"team": "y"},
            id="anti-affinity",
        ),
        pytest.param(PodSpec(spread=(SPREAD,)), [], (), {"app": "x"}, id="spread"),
        pytest.param(
            PodSpec(spread=(replace(SPREAD, selector=None),)), [], (), {}, id="null selector"
        ),
        pytest.param(
            PodSpec(), [Budget("ml/b", select("tier"), 1)], (), {"tier": "z"}, id="budget"
        ),
        pytest.param(PodSpec(), [], ("team", "gone"), {"team": "y"}, id="asked for"),
        pytest.param(
            PodSpec(spread=(SPREAD,)),
            [],
            ["team"],
            {"app": "x", "team": "y"},
            id="asked for, beside the selectors",
        ),
    ],
)
def test_labels_of_pods(
    spec: PodSpec, budgets: list[Budget], pod_keys: list[str], want_labels: dict[str, str]
) -> None:
    snapshot = assemble_snapshot(
        [], [PodRow("ml/p", spec, LABELS)], budgets=budgets, pod_keys=pod_keys
    )
    assert snapshot.pods.row(0).labels == want_labels
    assert find_pod_keys([spec], budgets) | set(pod_keys) >= want_labels.keys()


ANYWHERE = SelectorTerm((Requirement("pool", "Exists"),))


@pytest.mark.parametrize(
    ("spec", "group", "want_keys"),
    [
        pytest.param(PodSpec(), {}, set(), id="nobody mentions a label"),
        pytest.param(PodSpec(node_selector=(("pool", "a"),)), {}, {"pool"}, id="selector"),
        pytest.param(PodSpec(node_terms=(ANYWHERE,)), {}, {"pool"}, id="affinity"),
        pytest.param(
            PodSpec(claims=(ClaimNeed("c", allocated_nodes=(ANYWHERE,)),)), {}, {"pool"}, id="claim"
        ),
        pytest.param(PodSpec(spread=(replace(SPREAD, key="pool"),)), {}, {"pool"}, id="spread"),
        pytest.param(
            PodSpec(anti_affinity=(AffinityTerm("hall", None),)), {}, {"hall"}, id="anti-affinity"
        ),
        pytest.param(
            PodSpec(), {"topology": (TopologyTerm(("hall", "pool")),)}, {"hall", "pool"}, id="path"
        ),
        pytest.param(
            PodSpec(), {"exclusive": (Exclusive("ml", "hall"),)}, {"hall"}, id="exclusive"
        ),
        pytest.param(PodSpec(), {"exclusive": (Exclusive("ml"),)}, set(), id="exclusive, no key"),
    ],
)
def test_labels_of_nodes(spec: PodSpec, group: dict[str, object], want_keys: set[str]) -> None:
    labels = {"pool": "a", "hall": "h", "noise": "n"}
    row = make_group("ml/g", 1, **group)
    snapshot = make_snapshot(
        [make_node("n1", rack="r1", labels=labels)],
        [PodRow("ml/p", spec, group="ml/g")],
        groups=[row],
    )
    # Labels known to describe topology stay, mentioned or not.
    assert snapshot.nodes[0].labels.keys() == {HOSTNAME, RACK} | want_keys
    assert find_node_keys([spec], [row.group]) == {HOSTNAME} | want_keys


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_input_does_not_count(seed: int) -> None:
    parts = {
        "nodes": [make_node(f"n{i}", rack=f"r{i % 2}", taints=[Taint("x")]) for i in range(4)],
        "pods": [
            *make_pods("a", 3, group="ml/g#0", on=["n1", "n3", ""], labels={"app": "x"}),
            *make_pods("b", 3, spec=make_spec(spread=(SPREAD,)), labels={"app": "y"}),
        ],
        "groups": [
            make_group("ml/g", 2),
            make_group("ml/g#0", 2, parent="ml/g", kind="subgroup"),
        ],
    }
    want = make_snapshot(parts["nodes"], parts["pods"], groups=parts["groups"])
    shuffled = {name: random.Random(seed).sample(rows, len(rows)) for name, rows in parts.items()}
    found = make_snapshot(shuffled["nodes"], shuffled["pods"], groups=shuffled["groups"])
    assert (found.nodes, found.groups) == (want.nodes, want.groups)
    assert found.pods.refs == want.pods.refs
    assert [found.pods.row(p) for p in range(6)] == [want.pods.row(p) for p in range(6)]
    # Interning goes by the sorted pods, so codes are the same as well.
    assert np.array_equal(found.pods.spec, want.pods.spec)
    assert np.array_equal(found.pods.labels, want.pods.labels)


def test_an_empty_cluster() -> None:
    snapshot = assemble_snapshot([], [])
    assert (len(snapshot.nodes), len(snapshot.pods), snapshot.groups) == (0, 0, ())
    assert snapshot.pods.templates == ("",)
    assert snapshot.pods.node.shape == (0,)


def test_errors_and_warnings_keep_their_order() -> None:
    errors = (ObjectError("b", "Pod", "f", "m"), ObjectError("a", "Pod", "f", "m"))
    snapshot = assemble_snapshot([], [], errors=errors, warnings=("z", "y"))
    assert (snapshot.errors, snapshot.warnings) == (errors, ("z", "y"))


def test_a_group_keeps_what_it_says() -> None:
    group = Group("ml/g", "group", "x/v1/PodGroup", min_count=2, priority=5, queue="q")
    snapshot = make_snapshot([], groups=[replace(make_group("ml/g", 2), group=group)])
    assert snapshot.groups == (group,)
    assert GPU not in find_node_keys([], snapshot.groups)
