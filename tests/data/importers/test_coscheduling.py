from __future__ import annotations

import pytest
from importer_builders import (
    group_of,
    lines_of,
    make_context,
    make_object,
    make_pod,
    members_of,
)

from data.importers.coscheduling import import_coscheduling
from topology.model import Phase, PodFlag

NEW, OLD = "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io/name"


@pytest.mark.parametrize(
    ("api", "label"),
    [
        pytest.param("scheduling.x-k8s.io/v1alpha1/PodGroup", NEW, id="current group"),
        pytest.param("scheduling.sigs.k8s.io/v1alpha1/PodGroup", OLD, id="older group"),
    ],
)
def test_group(api: str, label: str) -> None:
    pods = [
        make_pod("m-0", labels={label: "g"}, priority=5),
        make_pod("m-1", labels={label: "g"}, priority=5, on="n0"),
        make_pod("m-2", labels={label: "g"}, priority=5, phase=Phase.SUCCEEDED),
        make_pod("m-3", labels={label: "g"}, namespace="other"),
    ]
    context = make_context(make_object(api, "g", {"minMember": 3}), pods=pods)
    import_coscheduling(context)
    group = group_of(context, "ml/g")
    assert (group.api, group.min_count, group.size, group.priority) == (api, 3, 2, 5)
    assert members_of(context) == {"ml/g": ["m-0", "m-1", "m-2"]}
    assert pods[3].row.flags == PodFlag.WAITING


def test_priorities_that_differ() -> None:
    pods = [make_pod(f"m-{i}", labels={NEW: "g"}, priority=i) for i in range(2)]
    group = make_object("scheduling.x-k8s.io/v1alpha1/PodGroup", "g", {"minMember": 2})
    context = make_context(group, pods=pods)
    import_coscheduling(context)
    assert group_of(context, "ml/g").priority == 1
    assert context.warnings == [
        "PodGroup ml/g: its pods have priorities 0 to 1; the highest is used"
    ]


def test_owned_by_another_api() -> None:
    pod = make_pod("m-0", labels={NEW: "g"})
    pod.row.group = "ml/other"
    group = make_object("scheduling.x-k8s.io/v1alpha1/PodGroup", "g", {"minMember": 1})
    context = make_context(group, pods=[pod])
    import_coscheduling(context)
    assert (context.groups, context.warnings, pod.row.flags) == ({}, [], 0)


def test_a_taken_reference() -> None:
    """The same name in the older and the current API group: the first stays."""
    objects = [
        make_object(f"{group}/v1alpha1/PodGroup", "g", {"minMember": 1})
        for group in ("scheduling.x-k8s.io", "scheduling.sigs.k8s.io")
    ]
    context = make_context(*objects)
    import_coscheduling(context)
    assert lines_of(context) == ["ml/g: metadata.name"]
    assert group_of(context, "ml/g").api == "scheduling.x-k8s.io/v1alpha1/PodGroup"
