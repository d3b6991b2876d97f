from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from importer_builders import (
    finish,
    group_of,
    lines_of,
    make_context,
    make_object,
    make_pod,
    make_template,
    members_of,
)

from data.importers.jobset import import_jobset
from data.importers.kueue import import_kueue
from topology.model import Exclusive, Group, PodFlag, TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportedPod, RawObject

RACK = "topo.example.com/rack"
J = "jobset.sigs.k8s.io/"
KEY = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def role(name: str, replicas: int = 1, pods: int = 2, **fields: Any) -> dict[str, Any]:
    job: dict[str, Any] = {
        "spec": {"parallelism": pods, "completions": pods, "template": make_template(8)}
    }
    if "annotations" in fields:
        job["metadata"] = {"annotations": fields.pop("annotations")}
    return {"name": name, "replicas": replicas, "template": job, **fields}


def make_jobset(*roles: dict[str, Any], **fields: Any) -> RawObject:
    body = {k: fields.pop(k) for k in ("status", "annotations") if k in fields}
    spec = {"replicatedJobs": list(roles), **fields}
    return make_object("jobset.x-k8s.io/v1alpha2/JobSet", "js", spec, **body)


def make_member(role_: str, job: int, index: int, **fields: Any) -> ImportedPod:
    labels = {
        J + "jobset-name": "js",
        J + "replicatedjob-name": role_,
        J + "job-index": str(job),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return make_pod(f"js-{role_}-{job}-{index}-abcde", labels=labels, **fields)


def test_tree() -> None:
    context = make_context(make_jobset(role("driver", pods=1), role("worker", 2, 2)))
    import_jobset(context)
    assert members_of(context) == {
        "ml/js#driver-0": ["js-driver-0-0"],
        "ml/js#worker-0": ["js-worker-0-0", "js-worker-0-1"],
        "ml/js#worker-1": ["js-worker-1-0", "js-worker-1-1"],
    }
    group = group_of(context, "ml/js")
    assert (group.min_count, group.min_groups, group.size, group.is_inferred) == (5, 3, 5, True)
    assert group.api == "jobset.x-k8s.io/v1alpha2/JobSet"
    row = context.pods["ml/js-worker-1-1"].row
    assert (row.rank, row.template, row.flags) == (1, "worker", PodFlag.PLANNED)
    finish(context)


def test_missing_pods() -> None:
    pods = [make_member("worker", 0, 1, on="n0")]
    context = make_context(make_jobset(role("worker", 1, 3)), pods=pods)
    import_jobset(context)
    assert members_of(context) == {
        "ml/js#worker-0": ["js-worker-0-0", "js-worker-0-1-abcde", "js-worker-0-2"]
    }


@pytest.mark.parametrize(
    ("annotations", "of_role", "want_key"),
    [
        pytest.param({KEY: RACK}, {}, RACK, id="on the jobset"),
        pytest.param({}, {KEY: RACK}, RACK, id="on the job template"),
        pytest.param({}, {}, None, id="none: a peer still"),
        pytest.param(
            {KEY: RACK, "alpha.jobset.sigs.k8s.io/node-selector": "true"},
            {},
            None,
            id="node selector strategy",
        ),
    ],
)
def test_exclusive(
    annotations: dict[str, str], of_role: dict[str, str], want_key: str | None
) -> None:
    jobset = make_jobset(role("worker", 2, annotations=of_role), annotations=annotations)
    context = make_context(jobset, default_priority=3)
    import_jobset(context)
    leaf = group_of(context, "ml/js#worker-1")
    assert leaf.exclusive == (Exclusive("jobset-job:3", want_key),)
    assert leaf.topology == ((TopologyTerm((RACK,)),) if want_key else ())


DEPENDS = {"dependsOn": [{"name": "init", "status": "Complete"}]}


@pytest.mark.parametrize(
    ("fields", "succeeded", "want_leaves"),
    [
        pytest.param(DEPENDS, 0, ["ml/js#init-0"], id="the predecessor comes first"),
        pytest.param(DEPENDS, 1, ["ml/js#main-0"], id="the predecessor is complete"),
        pytest.param(
            {"dependsOn": [{"name": "init", "status": "Ready"}]},
            0,
            ["ml/js#init-0", "ml/js#main-0"],
            id="ready keeps both",
        ),
    ],
)
def test_depends_on(fields: dict[str, Any], succeeded: int, want_leaves: list[str]) -> None:
    status = {"replicatedJobsStatus": [{"name": "init", "succeeded": succeeded}]}
    context = make_context(make_jobset(role("init"), role("main", **fields), status=status))
    import_jobset(context)
    assert sorted(members_of(context)) == want_leaves


@pytest.mark.parametrize(
    "jobset",
    [
        pytest.param(make_jobset(role("w"), suspend=True), id="suspended"),
        pytest.param(
            make_jobset(
                role("w"), status={"conditions": [{"type": "Completed", "status": "True"}]}
            ),
            id="completed",
        ),
        pytest.param(make_jobset(role("w"), status={"terminalState": "Failed"}), id="failed"),
    ],
)
def test_jobsets_without_pods(jobset: RawObject) -> None:
    context = make_context(jobset)
    import_jobset(context)
    assert (context.groups, context.pods, context.errors) == ({}, {}, [])


def test_only_labels() -> None:
    pods = [make_member("w", 0, i, annotations={KEY: RACK}) for i in range(2)]
    context = make_context(pods=pods)
    import_jobset(context)
    leaf = group_of(context, "ml/js#w-0")
    assert (leaf.min_count, leaf.exclusive) == (2, (Exclusive("jobset-job:0", RACK),))


def test_under_kueue() -> None:
    workload = make_object(
        "kueue.x-k8s.io/v1beta2/Workload",
        "jobset-js",
        {"podSets": [{"name": "w", "count": 2, "template": make_template(8)}]},
        ownerReferences=[{"kind": "JobSet", "name": "js"}],
    )
    pods = [make_member("w", 0, i) for i in range(2)]
    jobset = make_jobset(role("w"), annotations={KEY: RACK})
    context = make_context(workload, jobset, pods=pods)
    import_kueue(context)
    import_jobset(context)
    assert sorted(context.groups) == ["ml/jobset-js"]
    assert group_of(context, "ml/jobset-js").unmodelled == (
        "exclusive topology of its JobSet is not modelled",
    )


@pytest.mark.parametrize(
    ("jobset", "want_field"),
    [
        pytest.param(make_jobset(role("w", 10**6, 10)), "spec.replicatedJobs", id="absurd"),
        pytest.param(
            make_jobset({"name": "w"}),
            "spec.replicatedJobs[0].template.spec.template.spec",
            id="no template",
        ),
        pytest.param(
            make_jobset(role("w", "2")),  # type: ignore[arg-type]
            "spec.replicatedJobs[0].replicas",
            id="text",
        ),
    ],
)
def test_invalid_jobsets_are_set_aside(jobset: RawObject, want_field: str) -> None:
    """The running pods of such a set are still a group."""
    context = make_context(jobset, pods=[make_member("w", 0, 0, on="n0")])
    import_jobset(context)
    assert lines_of(context) == [f"ml/js: {want_field}"]
    assert members_of(context) == {"ml/js#w-0": ["js-w-0-0-abcde"]}


def test_a_taken_reference() -> None:
    """A JobSet that has the name of another group costs only itself."""
    pods = [make_member("w", 0, 0)]
    context = make_context(make_jobset(role("w")), pods=pods)
    context.add_group(Group("ml/js", "group", "example.com/v1/PodGroup"))
    import_jobset(context)
    assert lines_of(context) == ["ml/js: metadata.name", "ml/js-w-0-0-abcde: metadata.name"]
    assert sorted(context.pods) == ["ml/js-w-0-0-abcde"]
