from __future__ import annotations

from typing import Any

import pytest
from kube import GPU, container, find_pod, pod, read

from data.importers.base import ReadProblem
from data.importers.claims import ClaimIndex
from data.importers.pod_spec import SpecBuilder
from topology.model import PodSpec


def test_pods_of_one_template_share_one_spec() -> None:
    pods = [
        pod(
            f"p{i}",
            container("1", env=[{"name": "INDEX", "value": str(i)}]),
            on="n0" if i % 2 else "",
            priority=i,
            volumes=[{"name": f"token-{i}", "projected": {}}],
            metadata={"labels": {"index": str(i)}},
        )
        for i in range(6)
    ]
    snapshot = read(*pods)
    assert snapshot.pods.specs == (PodSpec((("cpu", 1000), ("pods", 1))),)


@pytest.mark.parametrize(
    ("volumes", "want"),
    [
        pytest.param(
            [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {}}], (), id="local"
        ),
        pytest.param(
            [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            ("volume claims are not modelled",),
            id="claim",
        ),
        pytest.param(
            [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}],
            ("volume claims are not modelled",),
            id="claim made for the pod",
        ),
        pytest.param(None, (), id="null"),
    ],
)
def test_volume_claims_make_a_pod_conditional(volumes: Any, want: tuple[str, ...]) -> None:
    assert find_pod(read(pod("p", volumes=volumes))).spec.unmodelled == want


BUILDER = SpecBuilder(ClaimIndex({}, {}), {}, frozenset({"batch"}))


def test_templates() -> None:
    template = {
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "containers": [{"name": "main", "resources": {"limits": {"cpu": 2, GPU: 4}}}],
            "nodeSelector": {"b": "2", "a": "1"},
            "priorityClassName": "batch",
            "schedulerName": "volcano",
        },
    }
    spec = BUILDER.build_template(template, "ml")
    assert spec == PodSpec(
        (("cpu", 2000), (GPU, 4), ("pods", 1)),
        (("a", "1"), ("b", "2")),
        scheduler="volcano",
        never_preempts=True,
    )
    assert BUILDER.build_template(template, "other") is spec


@pytest.mark.parametrize(
    ("template", "want_field"),
    [
        pytest.param({"spec": {"containers": 5}}, "spec.containers", id="wrong type"),
        pytest.param(
            {"spec": {"containers": [container("x")]}},
            "spec.containers[0].resources.requests[cpu]",
            id="bad quantity",
        ),
    ],
)
def test_bad_templates(template: dict[str, Any], want_field: str) -> None:
    with pytest.raises(ReadProblem) as caught:
        BUILDER.build_template(template, "ml")
    assert caught.value.field == want_field


def test_an_empty_template_asks_for_a_slot() -> None:
    assert BUILDER.build_template({}, "ml") == PodSpec()
