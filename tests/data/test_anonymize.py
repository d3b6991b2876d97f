from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from builders import GPU, make_group, make_node, make_pods, make_snapshot, make_spec
from rich_snapshot import BLOCK, assert_same, make_rich_snapshot

from data.anonymize import anonymize_snapshot
from data.digest import digest_snapshot
from data.generate import generate_fleet
from topology.device_counts import count_by_class
from topology.levels import build_column, find_keys_in_use
from topology.model import HOSTNAME, Exclusive, Requirement, SelectorTerm, Taint, Toleration
from topology.selectors import find_untolerated, matches_node_affinity
from topology.usage import count_usage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topology.model import Snapshot


def _find_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _find_strings(getattr(value, field.name))
    elif isinstance(value, dict):
        yield from _find_strings([*value.keys(), *value.values()])
    elif isinstance(value, (list, tuple, set, frozenset)):
        for item in value:
            yield from _find_strings(item)


def test_no_name_survives():
    snapshot = make_rich_snapshot()
    assert sum("zebra" in text for text in _find_strings(snapshot)) > 60
    left = sorted({t for t in _find_strings(anonymize_snapshot(snapshot)) if "zebra" in t})
    assert left == []


def test_structure_survives():
    old = make_rich_snapshot()
    new = anonymize_snapshot(old)
    assert len(new.nodes) == 4
    assert all(n.labels[HOSTNAME] == n.name for n in new.nodes)
    assert Counter(g.kind for g in new.groups) == Counter(g.kind for g in old.groups)
    composite = next(i for i, g in enumerate(new.groups) if g.kind == "composite")
    assert [g.parent for g in new.groups if g.kind == "group" and g.parent >= 0] == [composite]
    for group in new.groups:
        if group.kind == "subgroup":
            assert group.ref == f"{new.groups[group.parent].ref}#{group.name}"
    assert len(new.errors) == len(new.warnings) == 1
    assert (new.errors[0].kind, new.errors[0].message) == ("Pod", "removed by anonymize")
    assert sorted(g.blocked for g in new.groups if g.blocked) == [
        "SchedulerError: reason removed by anonymize"
    ]
    budget = next(b for b in new.budgets if b.selector is not None)
    namespace = budget.ref.partition("/")[0]
    known = {ref for ref in new.pods.refs if ref.startswith(f"{namespace}/")}
    assert sorted(f"{namespace}/{name}" in known for name in budget.disrupted) == [False, True]
    (counts,) = count_by_class(new.devices).values()
    assert list(counts.values()) == [(8, 7)]


def _matches(snapshot: Snapshot) -> Counter[tuple[bool, ...]]:
    """Which specs may run on a node, as many times as there are such nodes."""
    return Counter(
        tuple(
            matches_node_affinity(spec, node) and find_untolerated(spec, node) is None
            for spec in snapshot.pods.specs
        )
        for node in snapshot.nodes
    )


def _domains(snapshot: Snapshot) -> list[list[tuple[int, ...]]]:
    """Free amounts of the nodes of each domain, for each topology key."""
    free = [tuple(row) for row in count_usage(snapshot).free.tolist()]
    result = []
    for key in find_keys_in_use(snapshot):
        column = build_column(snapshot.nodes, (key,))
        found = [
            sorted(free[n] for n in np.flatnonzero(column.codes == d).tolist())
            for d in range(len(column.values))
        ]
        result += sorted(found)
    return sorted(result)


def _members(snapshot: Snapshot) -> list[tuple[Any, ...]]:
    pods = snapshot.pods
    return sorted(
        (
            group.min_count,
            group.size,
            group.priority,
            len(group.topology),
            sorted(
                (int(pods.rank[p]), int(pods.spec[p]), bool(pods.node[p] >= 0))
                for p in np.flatnonzero(pods.group == g).tolist()
            ),
        )
        for g, group in enumerate(snapshot.groups)
    )


@pytest.mark.parametrize(
    "snapshot",
    [
        pytest.param(make_rich_snapshot(), id="every field"),
        pytest.param(generate_fleet("hetero-pools", nodes=60, seed=1), id="pools"),
        pytest.param(generate_fleet("nvl72", mix="frontier", seed=1), id="composites"),
    ],
)
def test_the_fleet_is_the_same_but_for_names(snapshot):
    new = anonymize_snapshot(snapshot, seed=3)
    assert _matches(new) == _matches(snapshot)
    assert _domains(new) == _domains(snapshot)
    assert _members(new) == _members(snapshot)
    assert list(new.pods.refs) == sorted(new.pods.refs)
    assert [n.name for n in new.nodes] == sorted(n.name for n in new.nodes)
    assert [g.ref for g in new.groups] == sorted(g.ref for g in new.groups)


def test_seed_decides_the_names():
    snapshot = make_rich_snapshot()
    assert_same(anonymize_snapshot(snapshot, 5), anonymize_snapshot(snapshot, 5))
    digests = {digest_snapshot(anonymize_snapshot(snapshot, seed)) for seed in range(4)}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("key", "want"),
    [
        pytest.param("nvidia.com/gpu.clique", "nvidia.com/gpu.clique", id="public"),
        pytest.param("cloud.google.com/gke-nodepool", "cloud.google.com/gke-nodepool", id="cloud"),
        pytest.param("hypernode/tier-1", "hypernode/tier-1", id="Volcano tier"),
        pytest.param("topology.acme.com/rack", "topology-0.example.com/rack", id="own topology"),
        pytest.param("acme.com/shelf", "example.com/key-0", id="own key"),
        pytest.param("pool", "example.com/key-0", id="own key without a domain"),
        pytest.param("fakenvidia.com/x", "example.com/key-0", id="looks public"),
    ],
)
def test_label_keys(key, want):
    spec = make_spec(node_selector=((key, "some"),))
    snapshot = make_snapshot([make_node("n0", labels={key: "some"})], make_pods("a", 1, spec=spec))
    new = anonymize_snapshot(snapshot)
    assert [k for k, _ in new.pods.specs[0].node_selector] == [want]
    assert set(new.nodes[0].labels) == {HOSTNAME, want}
    assert _matches(new) == Counter([(True,)])


def test_own_resources_keep_what_they_are():
    node = make_node("n0", gpus=0)
    node = replace(node, allocatable={"acme.com/gpu": 4, "acme.com/license": 2, GPU: 1, "pods": 9})
    new = anonymize_snapshot(make_snapshot([node]))
    assert new.nodes[0].allocatable == {
        "resource-0.example.com/gpu": 4,
        "resource-1.example.com/piece": 2,
        "nvidia.com/gpu": 1,
        "pods": 9,
    }


def test_numbers_that_are_compared_stay():
    term = SelectorTerm((Requirement("acme.com/cores", "Gt", ("12",)),))
    spec = make_spec(
        node_terms=(term,), tolerations=(Toleration("acme.com/risk", "Lt", "5", "NoSchedule"),)
    )
    nodes = [
        make_node("n0", labels={"acme.com/cores": "16", "acme.com/serial": "77"}),
        make_node("n1", labels={"acme.com/cores": "8"}, taints=[Taint("acme.com/risk", "3")]),
        make_node("n2", labels={"acme.com/cores": "32"}, taints=[Taint("acme.com/risk", "9")]),
    ]
    snapshot = make_snapshot(nodes, make_pods("a", 1, spec=spec))
    new = anonymize_snapshot(snapshot)
    assert _matches(new) == _matches(snapshot) == Counter({(True,): 1, (False,): 2})


def test_hostname_that_is_not_the_name_follows_the_node():
    nodes = [
        replace(make_node("n0"), labels={HOSTNAME: "ip-10-0-0-1"}),
        replace(make_node("n1"), labels={HOSTNAME: "n0"}),
    ]
    new = anonymize_snapshot(make_snapshot(nodes))
    assert all(n.labels == {HOSTNAME: n.name} for n in new.nodes)


def test_references_of_every_depth_and_classes():
    exclusive = (Exclusive("acme", None),)
    groups = [
        make_group("acme/train/workers/7", 1, exclusive=exclusive),
        make_group("acme/serve/0", 1, exclusive=exclusive, topology=()),
        make_group("acme/serve/0#prefill/1", 1, kind="subgroup", parent="acme/serve/0"),
    ]
    new = anonymize_snapshot(make_snapshot([], groups=groups))
    shapes = sorted(re.sub(r"(namespace|group|part)-\d+", r"\1", g.ref) for g in new.groups)
    assert shapes == ["namespace/group/0", "namespace/group/0#part/1", "namespace/group/group/7"]
    assert {e.peers for g in new.groups for e in g.exclusive} == {"peers-0"}


def test_block_paths_still_nest():
    new = anonymize_snapshot(make_rich_snapshot())
    path = next(t.path for g in new.groups for t in g.topology if len(t.path) == 2)
    assert [key.rpartition("/")[2] for key in path] == ["block", "rack"]
    assert BLOCK not in path
    assert len(build_column(new.nodes, path).values) == 2
