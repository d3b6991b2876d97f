"""Scenarios carried out: what a fleet looks like afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from hypothesis import given
from hypothesis import strategies as st
from tiny_fleets import tiny_fleets

from data.scenarios.apply import Changed, apply_scenario
from data.scenarios.read import expand_scenarios
from topology.errors import RequestError
from topology.model import HOSTNAME, NO_NODE, PodFlag, Snapshot

NODES = [make_node(f"n{i}", rack=f"r{i // 2}") for i in range(4)]
RUNNING = make_group("ml/run", 2, disruption="all", priority=5)
WAITING = make_group("ml/wait", 2, key=RACK, priority=9)
FLEET = make_snapshot(
    NODES,
    make_pods("run", 2, group="ml/run", on=["n0", "n2"], priority=5),
    make_pods("wait", 2, group="ml/wait", spec=make_spec(gpus=8), priority=9),
    make_pods("solo", 1, on="n1"),
    make_pods("agent", 1, on="n0", flags=int(PodFlag.DAEMON)),
    groups=[RUNNING, WAITING],
)


def change(fleet: Snapshot = FLEET, **parts: Any) -> Changed:
    return apply_scenario(fleet, expand_scenarios([{"name": "s", **parts}], fleet)[0])


def where(snapshot: Snapshot) -> dict[str, str]:
    """Pod -> node of what is on one."""
    pods = snapshot.pods
    return {
        ref: snapshot.nodes[n].name
        for ref, n in zip(pods.refs, pods.node.tolist(), strict=True)
        if n >= 0
    }


def waiting(snapshot: Snapshot) -> list[str]:
    pods = snapshot.pods
    return [pods.refs[p] for p in np.flatnonzero(pods.is_pending)]


def test_nothing_changes_nothing() -> None:
    assert change().snapshot == FLEET


def test_new_nodes_are_empty_and_like_another() -> None:
    now = change(add={"nodes": 2, "name": "new", "like": "n0", "labels": {RACK: "r9"}}).snapshot
    added = [node for node in now.nodes if node.name.startswith("new")]
    assert [(n.name, n.labels[RACK], n.labels[HOSTNAME]) for n in added] == [
        ("new-0", "r9", "new-0"),
        ("new-1", "r9", "new-1"),
    ]
    assert added[0].allocatable == NODES[0].allocatable
    assert where(now) == where(FLEET)


def test_described_nodes_have_the_usual_pod_slots() -> None:
    amounts = {GPU: 4, "cpu": "32", "memory": "1Ti"}
    now = change(add={"nodes": 1, "name": "new", "allocatable": amounts}).snapshot
    new = next(node for node in now.nodes if node.name == "new-0")
    assert new.allocatable == {GPU: 4, "cpu": 32_000, "memory": 1 << 40, "pods": 110}


def test_a_copied_rack_has_as_many_nodes_and_a_name_of_its_own() -> None:
    like = {"key": RACK, "value": "r0"}
    now = change(add={"domains": 2, "name": "spare", "like": like}).snapshot
    racks = sorted(node.labels[RACK] for node in now.nodes)
    assert racks == ["r0", "r0", "r1", "r1", "spare-0", "spare-0", "spare-1", "spare-1"]


def test_domains_inside_a_copied_one_are_copied_too() -> None:
    inner = "nvidia.com/gpu.clique"
    nodes = [make_node(f"n{i}", rack="r0", labels={inner: f"c{i // 2}"}) for i in range(4)]
    fleet = make_snapshot(nodes)
    now = change(
        fleet, add={"domains": 1, "name": "new", "like": {"key": RACK, "value": "r0"}}
    ).snapshot
    cliques = [node.labels[inner] for node in now.nodes if node.labels[RACK] == "new-0"]
    assert cliques == ["new-0-c0", "new-0-c0", "new-0-c1", "new-0-c1"]


@pytest.mark.parametrize("part", ["remove", "fail"])
def test_a_lost_node_takes_whole_units_down(part: str) -> None:
    found = change(**{part: ["n0"]})
    assert [node.name for node in found.snapshot.nodes] == ["n1", "n2", "n3"]
    assert waiting(found.snapshot) == ["ml/run-0", "ml/run-1", "ml/wait-0", "ml/wait-1"]
    assert where(found.snapshot) == {"ml/solo-0": "n1"}
    assert found.lost == ("ml/run-0", "ml/run-1")
    assert "ml/agent-0" not in found.snapshot.pods.refs


def test_a_lost_rack_is_named_by_its_label() -> None:
    found = change(fail={RACK: "r0"})
    assert [node.name for node in found.snapshot.nodes] == ["n2", "n3"]
    assert found.lost == ("ml/run-0", "ml/run-1", "ml/solo-0")


def test_a_drain_cordons_and_leaves_the_rest_to_the_plan() -> None:
    found = change(drain=["n2"])
    assert found.drain == ("n2",)
    assert [node.name for node in found.snapshot.nodes if node.unschedulable] == ["n2"]
    assert where(found.snapshot) == where(FLEET)


def test_labels_and_taints_of_nodes() -> None:
    taint = {"key": "maintenance", "effect": "NoExecute"}
    edit = {"nodes": {RACK: "r1"}, "labels": {RACK: None, "zone": "b"}, "taints": [taint]}
    now = change(set=edit).snapshot
    n2 = now.nodes[2]
    assert (RACK in n2.labels, n2.labels["zone"]) == (False, "b")
    assert [(t.key, t.effect) for t in n2.taints] == [("maintenance", "NoExecute")]


@pytest.mark.parametrize(
    ("edit", "field", "want"),
    [
        pytest.param({"priority": 50}, "priority", 50, id="priority"),
        pytest.param({"minCount": 1}, "min_count", 1, id="minCount"),
        pytest.param({"topologyKey": ""}, "topology", (), id="no topology"),
        pytest.param({"disruptionMode": "all"}, "disruption", "all", id="disruption mode"),
        pytest.param({"preemptionPolicy": "Never"}, "never_preempts", True, id="never"),
    ],
)
def test_facts_about_groups(edit: dict[str, Any], field: str, want: object) -> None:
    now = change(set={"group": "ml/wait", **edit}).snapshot
    assert getattr(now.groups[1], field) == want
    assert now.groups[0] == FLEET.groups[0]


def test_a_priority_is_that_of_the_pods_too() -> None:
    now = change(set={"group": "ml/wa*", "priority": 50}).snapshot
    assert now.pods.priority.tolist() == [0, 5, 5, 0, 50, 50]


def test_preferred_instead_of_required() -> None:
    now = change(set={"group": "ml/wait", "topologyMode": "preferred"}).snapshot
    assert [(t.key, t.required) for t in now.groups[1].topology] == [(RACK, False)]


def test_requests_of_pods_that_wait() -> None:
    now = change(set={"group": "ml/wait", "requests": {GPU: 2, "cpu": "500m"}}).snapshot
    row = now.pods.row(now.pods.refs.index("ml/wait-0"))
    assert dict(row.spec.requests) == {GPU: 2, "cpu": 500, "pods": 1}


def test_copies_of_a_group_wait() -> None:
    found = change(groups={"add": {"like": "ml/run", "times": 2, "priority": 7}})
    assert found.groups == ("ml/run-copy-1", "ml/run-copy-2")
    assert waiting(found.snapshot) == [
        "ml/run-0-copy-1",
        "ml/run-0-copy-2",
        "ml/run-1-copy-1",
        "ml/run-1-copy-2",
        "ml/wait-0",
        "ml/wait-1",
    ]
    copy = next(g for g in found.snapshot.groups if g.ref == "ml/run-copy-2")
    assert (copy.priority, copy.disruption) == (7, "all")
    assert where(found.snapshot) == where(FLEET)


def test_copies_keep_their_trees() -> None:
    fleet = make_snapshot(
        NODES,
        make_pods("a", 2, group="ml/a#0"),
        groups=[make_group("ml/a", 2), make_group("ml/a#0", 2, parent="ml/a", kind="subgroup")],
    )
    now = change(fleet, groups={"add": {"like": "ml/a"}}).snapshot
    leaf = next(g for g in now.groups if g.ref == "ml/a-copy-1#0")
    assert now.groups[leaf.parent].ref == "ml/a-copy-1"
    assert now.groups[now.pods.group[now.pods.refs.index("ml/a-1-copy-1")]] == leaf


def test_groups_from_a_manifest() -> None:
    objects = [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "new", "namespace": "ml"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "priority": 3},
        },
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "new-0", "namespace": "ml"},
            "spec": {
                "priority": 3,
                "schedulingGroup": {"podGroupName": "new"},
                "containers": [{"name": "c", "resources": {"requests": {GPU: "4"}}}],
            },
        },
    ]
    found = change(groups={"add": {"manifest": objects}})
    assert found.groups == ("ml/new",)
    row = found.snapshot.pods.row(found.snapshot.pods.refs.index("ml/new-0"))
    assert (row.spec.gpus, row.node, row.priority) == (4, NO_NODE, 3)


def test_removed_groups_take_their_pods_along() -> None:
    now = change(groups={"remove": "ml/run"}).snapshot
    assert [group.ref for group in now.groups] == ["ml/wait"]
    assert sorted(where(now)) == ["ml/agent-0", "ml/solo-0"]
    assert now.groups[now.pods.group[now.pods.refs.index("ml/wait-0")]].ref == "ml/wait"


def test_rules_of_a_scenario() -> None:
    found = change(set=[{"release": "1.36"}, {"pdb": "hard"}])
    assert found.rules == {"release": "1.36", "pdb": "hard"}


@pytest.mark.parametrize(
    ("parts", "want"),
    [
        pytest.param(
            {"drain": ["n9"]}, "scenario s: drain: no node n9 in the snapshot", id="no node"
        ),
        pytest.param(
            {"fail": {RACK: "r7"}}, f"fail: no node with {RACK}=r7 in the snapshot", id="no rack"
        ),
        pytest.param(
            {"add": {"name": "x", "nodes": 1}}, "add[0]: write like: NODE, or", id="like what"
        ),
        pytest.param(
            {"add": {"name": "x", "like": "n0"}}, "add[0]: write nodes: or domains:", id="how many"
        ),
        pytest.param(
            {"add": [{"name": "n", "nodes": 1, "like": "n0"}] * 2},
            "add[1].name: node n-0 is there already",
            id="name taken",
        ),
        pytest.param(
            {"add": {"name": "x", "nodes": 1, "allocatable": {GPU: "-1"}}},
            f"add[0].allocatable.{GPU}: is negative",
            id="negative amount",
        ),
        pytest.param(
            {"set": {"group": "ml/none", "priority": 1}},
            "set[0].group: no group ml/none",
            id="no group",
        ),
        pytest.param(
            {"set": {"group": "ml/wait", "minCount": 3}},
            "set[0].minCount: is 3, but ml/wait has 2 pods",
            id="more than there are",
        ),
        pytest.param(
            {"set": {"group": "ml/run", "topologyMode": "preferred"}},
            "ml/run has no topology key",
            id="mode without key",
        ),
        pytest.param(
            {"set": {"group": "ml/run", "unschedulable": True}},
            "set[0].unschedulable: does not go with group:",
            id="node field of a group",
        ),
        pytest.param({"set": {"priority": 4}}, "set[0].priority: does not go", id="whose priority"),
        pytest.param({"set": {}}, "set[0]: changes nothing", id="empty change"),
        pytest.param(
            {"groups": {"add": {"times": 2}}}, "write like: GROUP, or manifest:", id="which group"
        ),
        pytest.param(
            {"groups": {"add": {"manifest": [{"kind": "Pod"}]}}},
            "groups.add[0].manifest:",
            id="bad",
        ),
    ],
)
def test_mistakes_are_named(parts: dict[str, Any], want: str) -> None:
    with pytest.raises(RequestError) as problem:
        change(**parts)
    assert want in str(problem.value)
    assert str(problem.value).startswith("scenario s: ")


@given(tiny_fleets(), st.data())
def test_every_scenario_leaves_a_sound_snapshot(rows: Any, data: st.DataObject) -> None:
    fleet = rows.build()
    node = st.sampled_from([n.name for n in fleet.nodes])
    parts = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "add": st.fixed_dictionaries(
                    {"nodes": st.integers(1, 2), "name": st.just("zz"), "like": node}
                ),
                "fail": st.lists(node, max_size=2),
                "cordon": st.lists(node, max_size=1),
                "groups": st.just({"add": {"like": "*"}} if fleet.groups else {}),
            },
        )
    )
    lost = parts.get("fail", [])
    parts["cordon"] = [name for name in parts.get("cordon", []) if name not in lost]
    if parts.get("add", {}).get("like") in lost:
        del parts["add"]
    now = change(fleet, **parts).snapshot
    pods = now.pods
    assert list(pods.refs) == sorted(set(pods.refs))
    assert [g.ref for g in now.groups] == sorted(g.ref for g in now.groups)
    assert [n.name for n in now.nodes] == sorted(n.name for n in now.nodes)
    assert pods.node.max(initial=-1) < len(now.nodes)
    assert pods.group.max(initial=-1) < len(now.groups)
    assert pods.spec.max(initial=0) < max(len(pods.specs), 1)
    for g, group in enumerate(now.groups):
        assert group.parent < len(now.groups)
        assert group.parent != g
    before = where(fleet)
    assert all(before[ref] == name for ref, name in where(now).items())
