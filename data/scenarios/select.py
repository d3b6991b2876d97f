"""Which nodes and groups of a snapshot a scenario means."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from topology.errors import RequestError
from topology.levels import find_keys_in_use
from topology.model import NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.model import Snapshot

__all__ = [
    "find_levels",
    "find_root",
    "find_tree",
    "list_domains",
    "select_groups",
    "select_nodes",
]


def select_nodes(
    snapshot: Snapshot, selection: str | dict[str, str] | Sequence[str | dict[str, str]], where: str
) -> list[int]:
    """Return the nodes named, or carrying all labels of a map; ascending.

    Raises:
      RequestError: A name or map that selects nothing.
    """
    entries = [selection] if isinstance(selection, str | dict) else list(selection)
    found: set[int] = set()
    for entry in entries:
        if isinstance(entry, str):
            chosen = [n for n, node in enumerate(snapshot.nodes) if node.name == entry]
            what, known = f"node {entry}", [node.name for node in snapshot.nodes]
        else:
            if not entry:
                raise RequestError(f"{where}: is an empty map; name a label")
            chosen = [
                n
                for n, node in enumerate(snapshot.nodes)
                if all(node.labels.get(key) == value for key, value in entry.items())
            ]
            what = "node with " + ",".join(f"{k}={v}" for k, v in entry.items())
            known = []
        if not chosen:
            raise RequestError(f"{where}: no {what} in the snapshot{_hint(entry, known)}")
        found.update(chosen)
    return sorted(found)


def select_groups(snapshot: Snapshot, pattern: str, where: str) -> list[int]:
    """Return the groups that a reference or a pattern with `*` names, subgroups left out.

    Raises:
      RequestError: There is none.
    """
    chosen = [
        g
        for g, group in enumerate(snapshot.groups)
        if group.kind != "subgroup" and fnmatchcase(group.ref, pattern.replace("[", "[[]"))
    ]
    if not chosen:
        known = [group.ref for group in snapshot.groups if group.kind != "subgroup"]
        raise RequestError(f"{where}: no group {pattern} in the snapshot{_hint(pattern, known)}")
    return chosen


def find_tree(snapshot: Snapshot, root: int) -> list[int]:
    """Return a group and everything below it, ascending."""
    inside = {root}
    grew = True
    while grew:
        below = {g for g, group in enumerate(snapshot.groups) if group.parent in inside} - inside
        inside |= below
        grew = bool(below)
    return sorted(inside)


def find_root(snapshot: Snapshot, g: int) -> int:
    """Return the topmost group above a group."""
    while snapshot.groups[g].parent != NO_GROUP:
        g = snapshot.groups[g].parent
    return g


def find_levels(snapshot: Snapshot) -> list[str]:
    """Return `node` and the topology keys that nodes carry."""
    return ["node", *find_keys_in_use(snapshot)]


def list_domains(snapshot: Snapshot, level: str) -> list[str]:
    """Return the values of a topology key, or the names of all nodes; sorted."""
    if level == "node":
        return [node.name for node in snapshot.nodes]
    return sorted({node.labels[level] for node in snapshot.nodes if level in node.labels})


def _hint(name: object, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1) if isinstance(name, str) else []
    return f" (did you mean {near[0]}?)" if near else ""
