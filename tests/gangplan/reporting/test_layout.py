"""Which nodes stand together, and how closely a heat map looks."""

from __future__ import annotations

import numpy as np
import pytest

from gangplan.reporting import layout
from gangplan.reporting.fleet import Fleet
from gangplan.reporting.layout import arrange
from topology.levels import DomainColumn


def make_fleet(num_nodes: int, *levels: int, lacking: int = 0) -> Fleet:
    """Nodes in levels of so many domains each, the last `lacking` ones in none."""
    codes = [np.arange(num_nodes) * size // num_nodes for size in levels]
    for column in codes:
        column[num_nodes - lacking :] = -1
    columns = tuple(
        DomainColumn(
            (f"example.com/l{i}",),
            column.astype(np.int32),
            tuple((f"{i}-{d}",) for d in range(int(column.max()) + 1)),
        )
        for i, column in enumerate(codes)
    )
    ones = np.ones(num_nodes, np.int64)
    names = tuple(f"n{i:05}" for i in range(num_nodes))
    trees = (columns,) if columns else ()
    return Fleet(names, ones, ones * 0, ones.astype(np.bool_), {}, trees)


@pytest.mark.parametrize(
    ("fleet", "want_detail", "want_key", "want_sections", "want_blocks"),
    [
        pytest.param(make_fleet(8), "slots", None, 1, 1, id="no topology"),
        pytest.param(make_fleet(8, 4), "slots", "example.com/l0", 1, 4, id="racks"),
        pytest.param(make_fleet(16, 2, 8), "slots", "example.com/l1", 2, 8, id="racks in blocks"),
        pytest.param(
            make_fleet(16, 2, 8, lacking=4), "slots", "example.com/l1", 3, 7, id="some in none"
        ),
        pytest.param(make_fleet(200, 50), "nodes", "example.com/l0", 1, 50, id="many nodes"),
        pytest.param(
            make_fleet(layout.MOST_NODES + 1, 4, 500), "domains", "example.com/l1", 4, 500,
            id="too many nodes",
        ),
        pytest.param(
            make_fleet(10_000, 20, 2500), "domains", "example.com/l0", 1, 20,
            id="too many nodes and racks",
        ),
        pytest.param(make_fleet(10_000), "domains", None, 1, 100, id="too many nodes, no topology"),
    ],
)  # fmt: skip
def test_arrange(
    fleet: Fleet, want_detail: str, want_key: str | None, want_sections: int, want_blocks: int
) -> None:
    found = arrange(fleet, {})
    assert (found.detail, found.key) == (want_detail, want_key)
    assert len(found.sections) == want_sections
    blocks = [block for section in found.sections for block in section.blocks]
    assert len(blocks) == want_blocks
    shown = np.concatenate([block.nodes for block in blocks])
    assert sorted(shown.tolist()) == list(range(len(fleet.nodes)))


def test_the_tree_that_groups_ask_for_is_drawn() -> None:
    racks, cliques = make_fleet(8, 2).trees[0], make_fleet(8, 4, lacking=1).trees[0]
    other = tuple(DomainColumn(("nvidia.com/gpu.clique",), c.codes, c.values) for c in cliques)
    fleet = make_fleet(8)
    both = Fleet(fleet.nodes, fleet.capacity, fleet.used, fleet.is_open, {}, trees=(racks, other))
    assert arrange(both, {}).key == "example.com/l0"
    assert arrange(both, {"nvidia.com/gpu.clique": 3}).key == "nvidia.com/gpu.clique"
