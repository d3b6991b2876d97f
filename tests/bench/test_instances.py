"""The benchmark instances keep the numbers of the published generator (128 nodes, seed 0)."""

from __future__ import annotations

import pytest

from bench.instances import make_instance


@pytest.mark.parametrize(
    ("kind", "want_fillers", "want_pods", "want_gpus"),
    [
        pytest.param("whole", 74, 83, 664, id="pods are whole nodes"),
        pytest.param("pow2", 74, 286, 664, id="pods of 1, 2, 4 or 8"),
        pytest.param("vec", 128, 286, 664, id="every node has a filler that holds cores"),
        pytest.param("tight", 74, 236, 640, id="three priorities"),
        pytest.param("equal", 74, 296, 640, id="one priority"),
    ],
)
def test_instance(kind: str, want_fillers: int, want_pods: int, want_gpus: int) -> None:
    snapshot = make_instance(kind, 128, 20)
    pods = snapshot.pods
    pending = pods.is_pending
    assert (len(snapshot.nodes), len(snapshot.groups)) == (128, 20)
    assert (int((~pending).sum()), int(pending.sum())) == (want_fillers, want_pods)
    assert sum(pods.specs[s].gpus for s in pods.spec[pending].tolist()) == want_gpus
