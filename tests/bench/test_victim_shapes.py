"""The fleets of the reports have the sizes that the reports name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from bench.victim_shapes import make_cliques, make_tangled_fleet, make_wide_fleet

if TYPE_CHECKING:
    from topology.model import Snapshot


@pytest.mark.parametrize(
    ("snapshot", "want_nodes", "want_gangs", "want_pending"),
    [
        pytest.param(make_wide_fleet(2000, 100), 2000, 701, 40, id="kueue#13148"),
        pytest.param(make_cliques(), 180, 93, 16, id="kueue#10815"),
        pytest.param(make_tangled_fleet(2, 26), 36, 53, 43, id="two tangled domains"),
    ],
)
def test_size(snapshot: Snapshot, want_nodes: int, want_gangs: int, want_pending: int) -> None:
    pods = snapshot.pods
    assert (len(snapshot.nodes), len(snapshot.groups)) == (want_nodes, want_gangs)
    assert int(pods.is_pending.sum()) == want_pending
    held = np.zeros(len(snapshot.nodes), int)
    for node, spec in zip(pods.node.tolist(), pods.spec.tolist(), strict=True):
        if node >= 0:
            held[node] += pods.specs[spec].gpus
    assert held.max() <= max(node.allocatable["nvidia.com/gpu"] for node in snapshot.nodes)
