"""Which nodes stand together in a heat map, and how closely it looks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from topology.levels import NO_DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gangplan.reporting.fleet import Fleet
    from topology.levels import DomainColumn

__all__ = ["Block", "Layout", "Section", "arrange", "name_domain", "short_key"]

MOST_SLOTS: Final = 160
"""Up to so many nodes, every single GPU is drawn."""
MOST_NODES: Final = 3000
"""Up to so many nodes, every node is a cell; beyond, every domain."""
MOST_DOMAINS: Final = 1200
MOST_SECTIONS: Final = 64
CHUNK: Final = 100
"""Nodes of a cell where no level of domains is coarse enough to draw."""


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes of one domain."""

    label: str
    nodes: NDArray[np.int64]
    """Indices, by name of the node."""


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks of one wider domain; label "" where there is none."""

    label: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a fleet is laid out."""

    detail: Literal["slots", "nodes", "domains"]
    key: str | None
    """Label key of the blocks; None: the nodes in one block, or cut by name."""
    sections: tuple[Section, ...]


def arrange(fleet: Fleet, asked_keys: Mapping[str, int]) -> Layout:
    """Lay out a fleet by the tree of levels that a plan asks for most, else the first.

    Args:
      fleet: Its nodes and levels.
      asked_keys: How often the plan's groups are in a domain of each key.
    """
    num_nodes = len(fleet.nodes)
    detail: Literal["slots", "nodes", "domains"] = (
        "slots" if num_nodes <= MOST_SLOTS else "nodes" if num_nodes <= MOST_NODES else "domains"
    )
    tree = max(
        fleet.trees,
        key=lambda tree: (sum(asked_keys.get(c.key, 0) for c in tree), len(tree)),
        default=(),
    )
    levels = [c for c in tree if detail != "domains" or len(c.values) <= MOST_DOMAINS]
    everything = np.arange(num_nodes)
    if not levels:
        return Layout(detail, None, (Section("", _cut(fleet, everything, detail == "domains")),))
    finest = levels[-1]
    wider = [
        c for c in levels[:-1] if 1 < len(c.values) <= min(MOST_SECTIONS, len(finest.values) // 2)
    ]
    if not wider:
        return Layout(detail, finest.key, (Section("", _blocks(finest, everything)),))
    outer = wider[-1]
    sections = [
        Section(
            name_domain(outer.key, "/".join(value)),
            _blocks(finest, np.flatnonzero(outer.codes == d)),
        )
        for d, value in enumerate(outer.values)
    ]
    rest = np.flatnonzero(outer.codes == NO_DOMAIN)
    if len(rest):
        sections.append(Section(f"no {short_key(outer.key)}", _blocks(finest, rest)))
    return Layout(detail, finest.key, tuple(sections))


def name_domain(key: str, value: str) -> str:
    """Return a domain with its level, once.

    Example:
      >>> name_domain("topo.example.com/rack", "r1"), name_domain("topo.example.com/rack", "rack-1")
      ('rack r1', 'rack-1')
    """
    level = short_key(key)
    return value if value.lower().startswith(level.lower()) else f"{level} {value}"


def short_key(key: str) -> str:
    """Return the last part of a label key.

    Example:
      >>> short_key("topology.example.com/rack")
      'rack'
    """
    return key.rpartition("/")[2] or key


def _blocks(column: DomainColumn, nodes: NDArray[np.int64]) -> tuple[Block, ...]:
    codes = column.codes[nodes]
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    blocks: list[Block] = []
    nowhere: list[Block] = []
    for part in np.split(nodes[order], cuts) if len(nodes) else []:
        code = int(column.codes[part[0]])
        if code == NO_DOMAIN:
            nowhere.append(Block(f"no {short_key(column.key)}", part))
        else:
            blocks.append(Block("/".join(column.values[code]), part))
    return (*blocks, *nowhere)


def _cut(fleet: Fleet, nodes: NDArray[np.int64], is_cut: bool) -> tuple[Block, ...]:
    if not is_cut:
        return (Block("", nodes),)
    size = max(CHUNK, -(-len(nodes) // MOST_DOMAINS))
    parts: Sequence[NDArray[np.int64]] = [nodes[i : i + size] for i in range(0, len(nodes), size)]
    return tuple(Block(f"{fleet.nodes[p[0]]} to {fleet.nodes[p[-1]]}", p) for p in parts)
