"""Topology objects of Kueue and KAI: ordered node labels, and the terms that refer to them.

Both identify a domain by the path of label values from the widest level down.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from data.importers.base import ReadProblem
from data.importers.fields import read_list, read_text
from topology.model import TopologyTerm

if TYPE_CHECKING:
    from data.importers.base import ImportContext, RawObject

__all__ = ["Levels", "make_path", "make_terms", "read_topologies"]


class Levels(NamedTuple):
    """The levels of one Topology object."""

    name: str
    """Of the object; "" when the snapshot has none."""
    keys: tuple[str, ...]
    """Node labels, widest first; empty when unknown: then every key stands alone."""


NO_LEVELS = Levels("", ())


def read_topologies(context: ImportContext, api_group: str) -> dict[str, Levels]:
    """Return the Topology objects of an API group by name; unreadable ones are reported."""
    found: dict[str, Levels] = {}

    def read(obj: RawObject) -> None:
        keys = tuple(
            read_text(level, "nodeLabel", at=f"spec.levels[{i}]")
            for i, level in enumerate(read_list(obj.body, "spec.levels"))
        )
        if not keys or not all(keys):
            raise ReadProblem("spec.levels", "names no node label; list at least one nodeLabel")
        if len(set(keys)) < len(keys):
            raise ReadProblem("spec.levels", "repeats a node label; list each level once")
        found[obj.name] = Levels(obj.name, keys)

    for obj in context.all_of(api_group, "Topology"):
        context.guard(obj, read)
    return found


def make_path(levels: Levels, key: str) -> tuple[str, ...] | None:
    """Return the label keys that identify a domain of `key`, None when it is not a level."""
    if not levels.keys:
        return (key,)
    if key not in levels.keys:
        return None
    return levels.keys[: levels.keys.index(key) + 1]


def make_terms(
    levels: Levels, required: str, preferred: str
) -> tuple[tuple[TopologyTerm, ...], str]:
    """Build the terms of a request.

    A preferred level is a target: when it cannot be had, the next wider one is better than none,
    so every level between the two is a preferred term of its own.

    Args:
      levels: Of the topology in force.
      required: Node label that all pods must share, "" for none.
      preferred: Node label that they had better share, "" for none; dropped where it is required.

    Returns:
      Terms (required first, then preferred ones, narrowest first), and why the request would be
      refused, or "".
    """
    for key in (required, preferred):
        if key and make_path(levels, key) is None:
            return (), f'no requested topology level: "{key}" is not in Topology {levels.name}'
    terms = [TopologyTerm(make_path(levels, required) or ())] if required else []
    if preferred and preferred != required:
        path = make_path(levels, preferred) or ()
        widest = len(terms[0].path) if terms and levels.keys else 0
        terms += [TopologyTerm(path[:end], required=False) for end in range(len(path), widest, -1)]
    return tuple(terms), ""
