"""Whatever a file holds, reading it gives a snapshot or one line that says why not."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from kube import composite, container, gang, node, pod, thing

from data.reader import format_error, read_snapshot
from topology.errors import SnapshotError

Obj = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
RACK = "topo.example.com/rack"
LWS = "leaderworkerset.sigs.k8s.io/"
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container("1", 1)]}}

CLUSTER: list[Obj] = [
    node("n0", labels={RACK: "r0"}, spec={"taints": [{"key": "a", "effect": "NoSchedule"}]}),
    node("n1", labels={RACK: "r1"}),
    pod("p0", container("1", 1), group="g", on="n0", priority=5, overhead={"cpu": "250m"}),
    pod(
        "p1",
        group="g",
        initContainers=[container("3", restartPolicy="Always")],
        tolerations=[{"key": "a", "operator": "Exists"}],
        affinity={
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": RACK, "operator": "In", "values": ["r0"]}]}
                    ]
                }
            },
            "podAntiAffinity": {
                REQUIRED: [
                    {
                        "topologyKey": RACK,
                        "labelSelector": {"matchLabels": {"app": "x"}},
                        "namespaceSelector": {"matchLabels": {"team": "x"}},
                    }
                ]
            },
        },
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": RACK, "whenUnsatisfiable": "DoNotSchedule"}
        ],
        resourceClaims=[{"name": "c", "resourceClaimName": "c"}],
        metadata={"labels": {"app": "x"}, "creationTimestamp": "2026-11-30T10:00:00Z"},
    ),
    gang("g", 2, schedulingConstraints={"topology": [{"key": RACK}]}, disruptionMode={"all": {}}),
    composite("top"),
    gang("leaf", 1, parentCompositePodGroupName="top", workloadRef={"workloadName": "w"}),
    thing("v1/Namespace", "ml", metadata={"labels": {"team": "x"}}),
    thing("scheduling.k8s.io/v1/PriorityClass", "high", value=10, globalDefault=True),
    thing(
        "policy/v1/PodDisruptionBudget",
        "b",
        "ml",
        spec={"selector": {"matchLabels": {"app": "x"}}},
        status={"disruptionsAllowed": 1},
    ),
    thing(
        "scheduling.k8s.io/v1alpha1/Workload",
        "w",
        "ml",
        spec={"podGroups": [{"name": "a", "policy": {"gang": {"minCount": 2}}}]},
    ),
    pod("old", workloadRef={"name": "w", "podGroup": "a", "podGroupReplicaKey": "0"}),
    thing(
        "resource.k8s.io/v1/DeviceClass",
        "gpu",
        spec={"selectors": [{"cel": {"expression": 'device.driver == "d"'}}]},
    ),
    thing(
        "resource.k8s.io/v1/ResourceSlice",
        "s",
        spec={
            "driver": "d",
            "nodeName": "n0",
            "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "a", "attributes": {"type": {"string": "gpu"}}}, {"name": "b"}],
        },
    ),
    thing(
        "resource.k8s.io/v1/ResourceClaim",
        "c",
        "ml",
        spec={"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        status={
            "allocation": {"devices": {"results": [{"driver": "d", "pool": "n0", "device": "a"}]}}
        },
    ),
    thing(
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        "l",
        "ml",
        spec={
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 2,
                "workerTemplate": TEMPLATE,
                "subGroupPolicy": {"subGroupSize": 1},
            },
        },
        metadata={"annotations": {f"{LWS}exclusive-topology": RACK}},
    ),
    thing(
        "kueue.x-k8s.io/v1beta2/Workload",
        "k",
        "ml",
        spec={
            "queueName": "q",
            "podSets": [
                {
                    "name": "main",
                    "count": 2,
                    "template": TEMPLATE,
                    "topologyRequest": {"required": RACK},
                }
            ],
        },
    ),
    thing("kueue.x-k8s.io/v1beta2/Topology", "t", spec={"levels": [{"nodeLabel": RACK}]}),
    thing("kueue.x-k8s.io/v1beta2/ResourceFlavor", "f", spec={"topologyName": "t"}),
    thing("kueue.x-k8s.io/v1beta2/LocalQueue", "q", "ml", spec={"clusterQueue": "cq"}),
    thing(
        "kueue.x-k8s.io/v1beta2/ClusterQueue",
        "cq",
        spec={"resourceGroups": [{"flavors": [{"name": "f"}]}]},
    ),
    thing(
        "scheduling.volcano.sh/v1beta1/PodGroup",
        "v",
        "ml",
        spec={"minMember": 1, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}},
    ),
    thing(
        "topology.volcano.sh/v1alpha1/HyperNode",
        "h",
        spec={
            "tier": 1,
            "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n0"}}}],
        },
    ),
    thing(
        "scheduling.run.ai/v2alpha2/PodGroup",
        "kai",
        "ml",
        spec={"minMember": 1, "subGroups": [{"name": "a", "minMember": 1}]},
    ),
    thing("scheduling.x-k8s.io/v1alpha1/PodGroup", "x", "ml", spec={"minMember": 1}),
    thing(
        "jobset.x-k8s.io/v1alpha2/JobSet",
        "j",
        "ml",
        spec={"replicatedJobs": [{"name": "a", "template": {"spec": {"template": TEMPLATE}}}]},
    ),
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["ml", "g", "n0", "p0", "top", "l", "1e99", "1e-99999", "9" * 5000, "-1", "a/b", "\n", RACK]
    ),
)
junk = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def list_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything inside a value."""
    if isinstance(value, dict):
        entries: Any = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    else:
        return [path]
    return [path, *(p for key, inner in entries for p in list_places(inner, (*path, key)))]


PLACES = [p for p in list_places(CLUSTER) if p]


def put(cluster: list[Obj], path: tuple[Any, ...], value: Any) -> None:
    """Replace what stands at a path, unless an earlier change took the path away."""
    holder: Any = cluster
    with contextlib.suppress(KeyError, IndexError, TypeError):
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value


def check(data: bytes, name: str = "x.json") -> None:
    """Read a file; anything but a snapshot or a SnapshotError of one line fails the test."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        file.write_bytes(data)
        try:
            lines = [format_error(error) for error in read_snapshot([str(file)]).errors]
        except SnapshotError as error:
            lines = [str(error)]
    assert all("\n" not in line and len(line) < 1000 for line in lines)


def test_the_unharmed_cluster_reads_without_errors() -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "x.json")
        file.write_text(json.dumps(CLUSTER))
        assert read_snapshot([str(file)]).errors == ()


@given(st.lists(st.tuples(st.sampled_from(PLACES), junk), min_size=1, max_size=4))
@settings(max_examples=400)
def test_wrong_values(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    cluster = copy.deepcopy(CLUSTER)
    for path, value in changes:
        put(cluster, path, copy.deepcopy(value))
    check(json.dumps(cluster).encode())


@given(st.lists(st.tuples(st.sampled_from(PLACES), junk), max_size=2))
@settings(max_examples=40)
def test_wrong_values_in_yaml(changes: list[tuple[tuple[Any, ...], Any]]) -> None:
    cluster = copy.deepcopy(CLUSTER)
    for path, value in changes:
        put(cluster, path, copy.deepcopy(value))
    check(yaml.dump_all(cluster, Dumper=yaml.CSafeDumper).encode(), "x.yaml")


@given(st.integers(0, len(CLUSTER) - 1), st.sampled_from(PLACES), junk)
@settings(max_examples=60)
def test_objects_that_appear_twice(index: int, path: tuple[Any, ...], value: Any) -> None:
    again = copy.deepcopy(CLUSTER)
    put(again, path, value)
    check(json.dumps([*CLUSTER, again[index], again[path[0]]]).encode())


WRITTEN = {
    "x.json": json.dumps({"apiVersion": "v1", "kind": "List", "items": CLUSTER}, indent=1).encode(),
    "x.yaml": yaml.dump_all(CLUSTER, Dumper=yaml.CSafeDumper).encode(),
    "x.json.gz": gzip.compress(json.dumps(CLUSTER).encode(), mtime=0),
}


@given(st.sampled_from(sorted(WRITTEN)), st.floats(0, 1))
@settings(max_examples=60)
def test_files_cut_short(name: str, share: float) -> None:
    check(WRITTEN[name][: int(len(WRITTEN[name]) * share)], name)


@given(
    st.sampled_from(sorted(WRITTEN)),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=5),
)
@settings(max_examples=80)
def test_bytes_that_flipped(name: str, flips: list[tuple[float, int]]) -> None:
    data = bytearray(WRITTEN[name])
    for share, byte in flips:
        data[int((len(data) - 1) * share)] = byte
    check(bytes(data), name)


@given(st.binary(max_size=200), st.sampled_from(["x.json", "x.yaml"]))
@settings(max_examples=100)
def test_any_bytes(data: bytes, name: str) -> None:
    check(data, name)


NAMES = ["a", "b", "c", "d"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(NAMES), st.sampled_from([*NAMES, None]), st.sampled_from(["w", "v"])
        ),
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from([*NAMES, None])), max_size=6),
)
@settings(max_examples=100)
def test_any_shape_of_parents(
    composites: list[tuple[str, str | None, str]], leaves: list[tuple[int, str | None]]
) -> None:
    objects = [node()]
    objects += [composite(n, workload=w, parentCompositePodGroupName=p) for n, p, w in composites]
    objects += [gang(f"g{i}", parentCompositePodGroupName=p) for i, p in leaves]
    check(json.dumps(objects).encode())


HUGE = "1" * 10_000_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(json.dumps([node(allocatable={"cpu": HUGE})]).encode(), id="giant quantity"),
        pytest.param(json.dumps([node("n")]).replace('"64"', HUGE).encode(), id="giant number"),
        pytest.param(json.dumps([pod(HUGE), node()]).encode(), id="giant name"),
        pytest.param(b'{"kind":"List","apiVersion":"v1","items":' + b"[" * 10**6, id="deep list"),
        pytest.param(b'{"apiVersion":"v1","kind":"Pod","a":' * 10**5, id="deep object"),
        pytest.param(b"{}" * 10**5, id="very many empty objects"),
        pytest.param(b"---\n" * 10**5, id="very many empty documents"),
        pytest.param(json.dumps([pod(phase="x" * 10**6), node()]).encode(), id="giant phase"),
    ],
)
def test_giants(data: bytes) -> None:
    check(data)
