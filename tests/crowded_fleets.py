"""Tiny fleets with running units of low priority besides, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

from builders import RACK, make_group, make_spec
from hypothesis import strategies as st
from tiny_fleets import Rows, tiny_fleets

from topology.assemble import PodRow
from topology.model import AffinityTerm, LabelSelector, Phase

__all__ = ["crowded_fleets"]

REPEL = AffinityTerm(RACK, LabelSelector(), ("ml",))


@st.composite
def crowded_fleets(draw: st.DrawFn) -> Rows:
    """A tiny fleet with one to four running units of low priority besides."""
    rows = draw(tiny_fleets())
    names = [node.name for node in rows.nodes]
    for i in range(draw(st.integers(1, 4))):
        priority = draw(st.sampled_from((-5, -1, -1, 0, 5)))
        mode = draw(st.sampled_from(("pod", "single", "all")))
        count = draw(st.integers(1, 2))
        group = "" if mode == "pod" else f"ml/r{i}"
        if group:
            rows.groups.append(make_group(group, 0, size=count, priority=priority, disruption=mode))
        spec = make_spec(
            gpus=draw(st.sampled_from((0, 1, 1, 2))),
            cpu=draw(st.sampled_from((0, 1_000, 3_000))),
            anti_affinity=draw(st.sampled_from(((), (), (REPEL,)))),
        )
        for j in range(count):
            fields: dict[str, Any] = {"labels": {"app": draw(st.sampled_from(("g0", "g1", "x")))}}
            node = draw(st.sampled_from(names))
            rows.pods.append(
                PodRow(
                    f"ml/r{i}-{j}",
                    spec,
                    node=node,
                    group=group,
                    phase=Phase.RUNNING,
                    priority=priority,
                    **fields,
                )
            )
    return rows
