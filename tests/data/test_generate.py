from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from builders import GPU, RACK, make_group, make_node, make_pods, make_snapshot, make_spec
from rich_snapshot import assert_same, make_rich_snapshot

from data.digest import digest_snapshot
from data.generate import FRAGMENTATIONS, MIXES, PRESETS, describe_presets, generate_fleet
from data.generate.checks import check_fleet, describe_fleet
from data.generate.manifests import to_objects, write_manifests
from data.generate.presets import POOL_LABEL
from data.generate.shapes import JobShape, find_shapes
from data.reader import read_snapshot
from topology.errors import RequestError, SnapshotError
from topology.levels import build_column
from topology.model import NO_GROUP, Budget, PodFlag, TopologyTerm
from topology.usage import count_usage

# Distributions


@pytest.mark.parametrize(
    ("mix", "want_mean"),
    [
        pytest.param("frontier", 26.8, id="Kalos"),
        pytest.param("research", 3.7, id="Helios"),
        pytest.param("legacy", 1.9, id="Philly"),
        pytest.param("llm", 6.6, id="Seren, by its own curve"),
    ],
)
def test_mean_gpus_a_job(mix, want_mean):
    mean = sum(size * share for size, share in MIXES[mix].jobs)
    assert mean == pytest.approx(want_mean, rel=0.1)


@pytest.mark.parametrize(
    ("mix", "want_share"),
    [
        pytest.param("frontier", 0.967, id="Kalos"),
        pytest.param("research", 0.056, id="Helios"),
        pytest.param("legacy", 0.0, id="Philly"),
        pytest.param("llm", 0.724, id="Seren"),
    ],
)
def test_share_of_gpu_time_above_64_gpus(mix, want_share):
    gpu_time = MIXES[mix].gpu_time
    assert sum(share for _, share in gpu_time) == pytest.approx(1)
    assert sum(share for size, share in gpu_time if size > 64) == pytest.approx(
        want_share, abs=0.005
    )


@pytest.mark.parametrize(
    ("sizes", "node_gpus", "limit", "want_shapes"),
    [
        pytest.param(
            ((1, 0.25), (8, 0.25), (24, 0.5)),
            8,
            64,
            {JobShape(3, 8): 0.5, JobShape(1, 8): 0.25, JobShape(1, 1): 0.25},
            id="one pod up to a node, whole nodes above",
        ),
        pytest.param(
            ((8, 0.5), (128, 0.5)), 8, 64, {JobShape(1, 8): 1.0}, id="too large is left out"
        ),
        pytest.param(((6, 1.0),), 4, 64, {JobShape(2, 4): 1.0}, id="rounded up to whole nodes"),
    ],
)
def test_shapes(sizes, node_gpus, limit, want_shapes):
    found = find_shapes(sizes, node_gpus, limit)
    assert dict(found) == pytest.approx(want_shapes)
    totals = [shape.total for shape, _ in found]
    assert totals == sorted(totals, reverse=True)


def test_shapes_of_nvlink_racks():
    """Of 144 GPUs: 60 % of the gangs 16 nodes of a rack, 20 % 2 x 16, 20 % 2 x 18."""
    found = dict(find_shapes(((144, 1.0),), 4, 1_000, nvlink_nodes=18))
    by_count = {(s.pods, s.part): weight / s.total for s, weight in found.items()}
    whole = sum(by_count.values())
    assert {key: n / whole for key, n in by_count.items()} == pytest.approx(
        {(16, 0): 0.6, (32, 16): 0.2, (36, 18): 0.2}
    )


# Fleets


@pytest.mark.parametrize("preset", sorted(PRESETS))
@pytest.mark.parametrize("mix", sorted(MIXES))
@pytest.mark.parametrize("fragmentation", sorted(FRAGMENTATIONS))
def test_passes_its_own_checks(preset, mix, fragmentation):
    for utilization in (0.5, 0.92, 0.97):
        snapshot = generate_fleet(
            preset, mix=mix, fragmentation=fragmentation, utilization=utilization, seed=7
        )
        assert check_fleet(snapshot, preset=preset, mix=mix, utilization=utilization) == []


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_no_node_holds_too_much_and_gangs_keep_their_domains(preset):
    snapshot = generate_fleet(preset, nodes=400, seed=2)
    assert count_usage(snapshot).free.min() >= 0
    pods = snapshot.pods
    for g, group in enumerate(snapshot.groups):
        members = np.flatnonzero(pods.group == g)
        nodes = set(pods.node[members].tolist())
        assert group.kind == "composite" or len(members) == group.size
        assert -1 not in nodes or nodes == {-1}
        for term in group.topology:
            column = build_column(snapshot.nodes, term.path)
            assert nodes == {-1} or len(set(column.codes[sorted(nodes)].tolist())) <= 1
    used = set(pods.node[(pods.flags & PodFlag.DAEMON) == 0].tolist()) - {-1}
    assert not any(snapshot.nodes[n].taints or snapshot.nodes[n].unschedulable for n in used)


def test_composites_share_a_unit_and_their_parts_a_rack_each():
    snapshot = generate_fleet("nvl72", nodes=2_304, mix="frontier")
    unit = build_column(snapshot.nodes, ("topology.example.com/su",)).codes
    rack = build_column(snapshot.nodes, ("nvidia.com/gpu.clique",)).codes
    pods = snapshot.pods
    seen = Counter()
    for root, group in enumerate(snapshot.groups):
        if group.kind != "composite":
            continue
        parts = [g for g, child in enumerate(snapshot.groups) if child.parent == root]
        assert len(parts) == group.min_groups >= 2
        assert sum(snapshot.groups[g].size for g in parts) == group.size
        nodes = [pods.node[pods.group == g] for g in parts]
        if nodes[0][0] >= 0:
            seen["running"] += 1
            racks = [set(rack[n].tolist()) for n in nodes]
            assert all(len(r) == 1 for r in racks)
            assert len(set.union(*racks)) == len(parts)
            assert not group.topology or len(set(unit[np.concatenate(nodes)].tolist())) == 1
        seen["all"] += 1
    assert seen["running"] >= 5
    assert seen["all"] > seen["running"]


def test_gangs_of_nvlink_racks_by_count():
    """60 % of the multi-node gangs take a quarter to a whole of 16 nodes of one rack."""
    snapshot = generate_fleet("nvl72", nodes=20_000, mix="llm", pending=0.0)
    sizes = Counter(g.size for g in snapshot.groups if g.parent == NO_GROUP)
    assert sizes[4] + sizes[8] + sizes[12] > sizes[18]
    small = sum(sizes[n] for n in (4, 8, 12)) + sizes[16] * 0.75
    assert small / sum(sizes.values()) == pytest.approx(0.6, abs=0.1)


@pytest.mark.parametrize(
    ("preset", "nodes", "want_domains"),
    [
        pytest.param("dgx-h100", 128, [(4, 32), (32, 4)], id="S: 4 units of 8 racks of 4"),
        pytest.param("dgx-h100", 5_000, [(4, 1_250), (8, 1), (32, 156)], id="L: last unit short"),
        pytest.param("nvl72", 2_304, [(18, 128), (144, 16)], id="R: 128 racks"),
        pytest.param("kueue-grid", 640, [(64, 10), (640, 1)], id="Kueue"),
        pytest.param(
            "clos",
            847,
            [
                *((2, 3), (3, 1), (4, 2), (5, 7), (6, 15), (7, 23), (8, 68)),
                *((179, 1), (306, 1), (362, 1)),
            ],
            id="Lingjun",
        ),
    ],
)
def test_domains(preset, nodes, want_domains):
    snapshot = generate_fleet(preset, nodes=nodes, utilization=0, pending=0)
    found: Counter[int] = Counter()
    for key in (PRESETS[preset].inner_key, PRESETS[preset].outer_key):
        found.update(np.bincount(build_column(snapshot.nodes, (key,)).codes).tolist())
    assert sorted(found.items()) == want_domains


def test_pools_are_kept_apart():
    snapshot = generate_fleet("hetero-pools", nodes=428)
    by_pool = Counter(n.labels[POOL_LABEL] for n in snapshot.nodes)
    want_nodes = {"a10": 250, "a100": 43, "a800": 2, "h800": 22}
    want_nodes |= {"series1-1x": 90, "series1-4x": 1, "series1-8x": 8, "series2": 12}
    assert by_pool == want_nodes
    for p in np.flatnonzero((snapshot.pods.flags & PodFlag.DAEMON) == 0).tolist():
        pod = snapshot.pods.row(p)
        (selector,) = pod.spec.node_selector
        assert pod.node < 0 or snapshot.nodes[pod.node].labels[POOL_LABEL] == selector[1]


def test_some_nodes_are_out():
    snapshot = generate_fleet("dgx-h100", nodes=4_000, utilization=0.5)
    cordoned = sum(n.unschedulable for n in snapshot.nodes)
    tainted = sum(n.taints[0].key == "example.com/maintenance" for n in snapshot.nodes if n.taints)
    down = {
        n.labels["topology.example.com/rack"]
        for n in snapshot.nodes
        if n.taints and n.taints[0].key == "node.kubernetes.io/not-ready"
    }
    assert 58 <= cordoned + tainted <= 60
    assert len(down) == 10


def test_priorities_and_disruption_follow_size():
    snapshot = generate_fleet("dgx-h100", nodes=5_000, mix="research")
    roots = [g for g in snapshot.groups if g.parent == NO_GROUP]
    large = [g for g in roots if g.size * 8 >= 64]
    medium = [g for g in roots if g.size * 8 < 64]
    assert {g.disruption for g in large} == {"all"}
    assert {g.priority for g in large} == {100, 200}
    shares = Counter(g.priority for g in medium)
    assert [round(shares[p] / len(medium), 1) for p in (50, 100, 200)] == [0.7, 0.2, 0.1]
    spare = [g for g in medium if g.min_count < g.size]
    assert {g.disruption for g in spare} == {"single"}
    assert {g.disruption for g in medium if g.min_count == g.size} == {"all"}
    assert len(spare) / len(medium) == pytest.approx(0.1, abs=0.04)
    assert {g.api for g in roots} == {"scheduling.k8s.io/v1beta1/PodGroup"}


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        pytest.param({"seed": 3}, {"seed": 3}, True, id="same seed"),
        pytest.param({"seed": 3}, {"seed": 4}, False, id="other seed"),
        pytest.param(
            {}, {"mix": "llm", "fragmentation": "normal", "pending": 0.2}, True, id="same"
        ),
        pytest.param({}, {"utilization": 0.8}, False, id="other utilization"),
    ],
)
def test_arguments_decide_everything(one, other, is_same):
    fleets = [generate_fleet("dgx-h100", **args) for args in (one, other)]
    assert (digest_snapshot(fleets[0]) == digest_snapshot(fleets[1])) is is_same


def test_more_fragmentation_leaves_less_whole():
    found = []
    for level in ("tidy", "normal", "bad"):
        snapshot = generate_fleet("dgx-h100", nodes=1_024, mix="research", fragmentation=level)
        (line,) = (x for x in describe_fleet(snapshot, preset="dgx-h100") if "fragment" in x)
        found.append(float(line.split()[1]))
    assert found == sorted(found)
    assert found[2] > 5 * found[1] > 10 * found[0]


def test_describes_a_fleet():
    snapshot = generate_fleet("dgx-h100", seed=1)
    lines = describe_fleet(snapshot, preset="dgx-h100")
    assert lines[0] == "GPUs in use: 927 of 1008 usable (92.0 %)"
    assert [line.partition(":")[0] for line in lines] == [
        *("GPUs in use", "running", "waiting", "idle GPUs", "fragment")
    ]


@pytest.mark.parametrize("nodes", [1, 2, 3, 17])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_small_fleets(preset, nodes):
    snapshot = generate_fleet(preset, nodes=nodes)
    assert len(snapshot.nodes) == nodes
    assert count_usage(snapshot).free.min() >= 0


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param({"preset": "dgx"}, "preset 'dgx' is unknown; choose one of clos", id="preset"),
        pytest.param({"mix": "x"}, "mix 'x' is unknown", id="mix"),
        pytest.param({"fragmentation": "x"}, "fragmentation 'x' is unknown", id="fragmentation"),
        pytest.param({"nodes": 0}, "nodes is 0; choose 1 to 1000000", id="no nodes"),
        pytest.param({"utilization": 0.99}, "utilization is 0.99; choose 0 to 0.98", id="too full"),
        pytest.param({"utilization": float("nan")}, "utilization is nan", id="not a number"),
        pytest.param({"pending": -1.0}, "pending is -1.0", id="negative"),
        pytest.param({"seed": -1}, "seed is -1", id="negative seed"),
    ],
)
def test_refuses(arguments, want):
    with pytest.raises(RequestError, match=want):
        generate_fleet(**{"preset": "dgx-h100", **arguments})


def test_presets_have_a_line_each():
    assert sorted(describe_presets()) == [
        *("clos", "dgx-h100", "hetero-pools"),
        "kueue-grid",
        "nvl72",
    ]
    assert describe_presets()["kueue-grid"].endswith("(640 nodes)")


@pytest.mark.slow
def test_a_hundred_thousand_nodes():
    snapshot = generate_fleet("dgx-h100", nodes=100_000)
    assert len(snapshot.pods) > 900_000
    assert check_fleet(snapshot, preset="dgx-h100", mix="llm", utilization=0.92) == []


# Checks


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"utilization": 0.8}, "of the usable GPUs are in use, 80.0% wanted", id="use"),
        pytest.param({"preset": "dgx-h100", "mix": "research"}, "above 64 GPUs hold", id="sizes"),
    ],
)
def test_checks_notice(change, want):
    snapshot = generate_fleet("dgx-h100", nodes=5_000)
    problems = check_fleet(snapshot, **change)
    assert any(want in problem for problem in problems)


def test_checks_notice_a_node_in_another_rack():
    snapshot = generate_fleet("dgx-h100")
    labels = {**snapshot.nodes[0].labels, "topology.example.com/rack": "rack-001"}
    nodes = (replace(snapshot.nodes[0], labels=labels), *snapshot.nodes[1:])
    assert check_fleet(replace(snapshot, nodes=nodes), preset="dgx-h100") == [
        "pool dgx: domain 0 of topology.example.com/rack has 3 nodes, 4 wanted"
    ]


@pytest.mark.parametrize(
    ("gang", "gpus", "is_split"),
    [
        pytest.param(3, 8, True, id="two idle nodes in one rack, one in the other"),
        pytest.param(2, 8, False, id="fits a rack"),
        pytest.param(4, 8, False, id="more than is idle"),
        pytest.param(5, 4, True, id="half nodes"),
    ],
)
def test_checks_want_a_gang_that_fits_nowhere(gang, gpus, is_split):
    nodes = [make_node(f"n{i}", rack=f"r{i // 3}") for i in range(6)]
    snapshot = make_snapshot(
        nodes,
        make_pods("run", 3, spec=make_spec(gpus=8), on=["n0", "n3", "n4"]),
        make_pods("wait", gang, spec=make_spec(gpus=gpus), group="ml/wait"),
        groups=[make_group("ml/wait", gang, key=RACK)],
    )
    assert (check_fleet(snapshot) == []) is is_split


# Manifests


@pytest.mark.parametrize(
    ("preset", "arguments", "name"),
    [
        pytest.param("dgx-h100", {}, "fleet.json", id="json"),
        pytest.param("dgx-h100", {"nodes": 20}, "fleet.yaml", id="yaml"),
        pytest.param("dgx-h100", {}, "fleet.json.gz", id="json.gz"),
        pytest.param("dgx-h100", {"nodes": 20}, "fleet.yml.gz", id="yml.gz"),
        pytest.param("nvl72", {"nodes": 1_152, "mix": "frontier"}, "f.json", id="composites"),
        pytest.param("hetero-pools", {"fragmentation": "bad"}, "f.json", id="selectors"),
    ],
)
def test_manifests_read_back(preset, arguments, name, tmp_path):
    snapshot = generate_fleet(preset, **arguments)
    write_manifests(snapshot, tmp_path / name)
    again = read_snapshot([str(tmp_path / name)])
    assert again.errors == again.warnings == ()
    assert digest_snapshot(again) == digest_snapshot(snapshot)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_manifests_of_every_kind_they_can_write(tmp_path):
    spec = make_spec(cpu=1500, memory=3 << 30, never_preempts=True, scheduler="my-scheduler")
    snapshot = make_snapshot(
        [make_node("n0"), make_node("n1", unschedulable=True), make_node("n2", ready=False)],
        make_pods("gate", 1, flags=int(PodFlag.GATED)),
        make_pods("end", 1, on="n0", flags=int(PodFlag.TERMINATING)),
        make_pods("static", 1, on="n0", flags=int(PodFlag.STATIC)),
        make_pods("nominated", 1, nominated="n1"),
        make_pods("never", 2, spec=spec, group="ml/never", priority=7),
        groups=[make_group("ml/never", 0, size=2, policy="basic", priority=7, never_preempts=True)],
    )
    for pods in ("gate-0", "end-0", "static-0", "nominated-0"):
        p = snapshot.pods.refs.index(f"ml/{pods}")
        snapshot.pods.rank[p] = -1
    write_manifests(snapshot, tmp_path / "f.json")
    again = read_snapshot([str(tmp_path / "f.json")])
    assert_same(replace(again, warnings=()), snapshot)


def test_composites_name_a_workload():
    objects = list(to_objects(generate_fleet("nvl72", nodes=1_152, mix="frontier")))
    workloads = {o["metadata"]["name"] for o in objects if o["kind"] == "Workload"}
    composites = [o for o in objects if o["kind"] == "CompositePodGroup"]
    assert workloads == {o["spec"]["workloadRef"]["workloadName"] for o in composites} != set()
    children = [o for o in objects if "parentCompositePodGroupName" in o["spec"]]
    assert {o["spec"]["workloadRef"]["templateName"] for o in children} == {"level-1"}


def test_manifest_bytes_repeat(tmp_path):
    for name in ("a.json.gz", "b.json.gz"):
        write_manifests(generate_fleet("dgx-h100", nodes=8), tmp_path / name)
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()
    assert json.loads(gzip.decompress((tmp_path / "a.json.gz").read_bytes()))["kind"] == "List"


def test_an_empty_list(tmp_path):
    for name in ("a.json", "a.yaml"):
        write_manifests(make_snapshot([]), tmp_path / name)
    assert json.loads((tmp_path / "a.json").read_text())["items"] == []
    assert (tmp_path / "a.yaml").read_text().split() == [
        "apiVersion:",
        "v1",
        "kind:",
        "List",
        "items:",
        "[]",
    ]


@pytest.mark.parametrize(
    ("snapshot", "name", "want"),
    [
        pytest.param(make_snapshot([]), "f.txt", "no known format", id="ending"),
        pytest.param(make_snapshot([]), "no/f.json", "cannot be written", id="no such folder"),
        pytest.param(make_rich_snapshot(), "f.json", "budgets and devices", id="all of it"),
        pytest.param(
            make_snapshot([], budgets=[Budget("ml/b", None, 1)]), "f.json", "budgets", id="budget"
        ),
        pytest.param(
            make_snapshot([], make_pods("a", 1, on="gone")), "f.json", "ml/a-0", id="lost node"
        ),
        pytest.param(
            make_snapshot([], make_pods("a", 1, spec=make_spec(unmodelled=("volume",)))),
            "f.json",
            "pods with unmodelled",
            id="spec",
        ),
        pytest.param(
            make_snapshot([], groups=[make_group("ml/g", 1, api="kueue.x-k8s.io/v1/Workload")]),
            "f.json",
            "group ml/g",
            id="other API",
        ),
        pytest.param(
            make_snapshot(
                [], groups=[make_group("ml/g", 1, topology=(TopologyTerm((RACK,), False),))]
            ),
            "f.json",
            "group ml/g",
            id="preferred topology",
        ),
    ],
)
def test_manifests_refuse(snapshot, name, want, tmp_path):
    with pytest.raises(SnapshotError, match=want):
        write_manifests(snapshot, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_gpus_are_what_runs_out():
    """Pods with all GPUs of a node leave room for the DaemonSets only."""
    for preset in PRESETS:
        snapshot = generate_fleet(preset, nodes=300, utilization=0.97, pending=0)
        usage = count_usage(snapshot)
        full = usage.free[:, usage.column(GPU)] == 0
        assert np.all(usage.free[full] >= 0)
        assert np.any(full)
