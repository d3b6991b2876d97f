"""Whatever stands in one field, the rest is read and the snapshot holds together."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from builders import make_node
from hypothesis import given, settings
from hypothesis import strategies as st
from importer_builders import finish, make_context, make_object, make_pod, make_template

from data.importers.base import RawObject
from data.importers.coscheduling import import_coscheduling
from data.importers.jobset import import_jobset
from data.importers.kai import import_kai
from data.importers.kueue import import_kueue
from data.importers.lws import import_lws
from data.importers.volcano import import_volcano

if TYPE_CHECKING:
    from collections.abc import Iterator

K = "kueue.x-k8s.io/v1beta2/"
RACK = "topo.example.com/rack"
LEVELS = {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]}
RULE = {"topology": "fabric", "requiredTopologyLevel": RACK}
NAMESPACED: Final = [
    make_object(
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        "lws",
        {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 4,
                "subGroupPolicy": {"subGroupSize": 2},
                "workerTemplate": make_template(4),
            },
        },
        annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": RACK},
    ),
    make_object(
        K + "Workload",
        "workload",
        {
            "queueName": "lq",
            "priority": 3,
            "podSets": [
                {
                    "name": "main",
                    "count": 4,
                    "minCount": 2,
                    "template": make_template(4),
                    "topologyRequest": {
                        "required": RACK,
                        "podSetSliceRequiredTopology": RACK,
                        "podSetSliceSize": 2,
                    },
                }
            ],
        },
        ownerReferences=[{"kind": "Job", "name": "job", "controller": True}],
        status={"admission": {"podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}}]}},
    ),
    make_object(K + "LocalQueue", "lq", {"clusterQueue": "cq"}),
    make_object(
        "scheduling.volcano.sh/v1beta1/PodGroup",
        "volcano",
        {
            "minMember": 1,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
            "subGroupPolicy": [
                {
                    "name": "p",
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                    "matchLabelKeys": ["a"],
                    "subGroupSize": 1,
                }
            ],
        },
    ),
    make_object(
        "scheduling.run.ai/v2alpha2/PodGroup",
        "kai",
        {
            "minSubGroup": 1,
            "topologyConstraint": RULE,
            "subGroups": [
                {"name": "a", "minMember": 1},
                {"name": "b", "topologyConstraint": RULE},
                {"name": "c", "parent": "b", "minMember": 1},
            ],
        },
    ),
    make_object("scheduling.x-k8s.io/v1alpha1/PodGroup", "coscheduling", {"minMember": 1}),
    make_object(
        "jobset.x-k8s.io/v1alpha2/JobSet",
        "jobset",
        {
            "replicatedJobs": [
                {
                    "name": "w",
                    "replicas": 2,
                    "dependsOn": [{"name": "v", "status": "Ready"}],
                    "template": {"spec": {"parallelism": 2, "template": make_template(1)}},
                }
            ]
        },
        status={"replicatedJobsStatus": [{"name": "w", "succeeded": 0}]},
    ),
]
CLUSTER: Final = [
    make_object(K + "Topology", "fabric", LEVELS, namespace=""),
    make_object("kai.scheduler/v1alpha1/Topology", "fabric", LEVELS, namespace=""),
    make_object(
        K + "ResourceFlavor",
        "f",
        {
            "nodeLabels": {"pool": "a"},
            "nodeTaints": [{"key": "t", "effect": "NoSchedule"}],
            "tolerations": [{"key": "t", "operator": "Exists"}],
            "topologyName": "fabric",
        },
        namespace="",
    ),
    make_object(
        K + "ClusterQueue",
        "cq",
        {"resourceGroups": [{"coveredResources": ["pods"], "flavors": [{"name": "f"}]}]},
        namespace="",
    ),
    make_object(
        "topology.volcano.sh/v1alpha1/HyperNode",
        "hyper",
        {
            "tier": 1,
            "members": [{"type": "Node", "selector": {"exactMatch": {"name": "n0"}}}],
        },
        namespace="",
    ),
]
OBJECTS: Final = [*NAMESPACED, *CLUSTER]


def find_paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from find_paths(value[key], (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from find_paths(item, (*path, i))


PATHS: Final = [
    (i, path)
    for i, obj in enumerate(OBJECTS)
    for path in find_paths(obj.body)
    if path not in (("metadata",), ("metadata", "name"), ("metadata", "namespace"))
]
JUNK: Final = st.sampled_from(
    [None, "", "x", "(", -1, 0, 3, 2**31, 10**20, 1.5, float("nan"), True, [], [None], ["x"],
     [[]], {}, {"x": None}, {"x": {}}, {"name": 5}, [{"name": 5}], [{}]]
)  # fmt: skip


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(PATHS), JUNK), min_size=1, max_size=3))
def test_junk_in_a_field(changes: list[tuple[tuple[int, tuple[Any, ...]], Any]]) -> None:
    bodies = [copy.deepcopy(obj.body) for obj in OBJECTS]
    for (i, path), junk in changes:
        holder: Any = bodies[i]
        try:
            for key in path[:-1]:
                holder = holder[key]
            holder[path[-1]] = copy.deepcopy(junk)
        except (TypeError, KeyError, IndexError):
            continue  # An earlier change took the place away.
    objects = [
        RawObject(obj.api_version, obj.kind, obj.namespace, obj.name, body)
        for obj, body in zip(OBJECTS, bodies, strict=True)
    ]
    pods = [
        make_pod("lws-0-1", labels={"leaderworkerset.sigs.k8s.io/name": "lws",
                                    "leaderworkerset.sigs.k8s.io/group-index": "0",
                                    "leaderworkerset.sigs.k8s.io/worker-index": "1"}),
        make_pod("job-x", owner_kind="Job", owner_name="job"),
        make_pod("v-0", annotations={"scheduling.k8s.io/group-name": "volcano"}, labels={"a": "0"}),
        make_pod("k-0", annotations={"pod-group-name": "kai"}),
        make_pod("c-0", labels={"scheduling.x-k8s.io/pod-group": "coscheduling"}),
    ]  # fmt: skip
    context = make_context(*objects, pods=pods, nodes=[make_node("n0", labels={"pool": "a"})])
    for read in (
        import_kai,
        import_volcano,
        import_coscheduling,
        import_kueue,
        import_lws,
        import_jobset,
    ):
        read(context)
    snapshot = finish(context)
    assert len(snapshot.pods) >= len(pods)
