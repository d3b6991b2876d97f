"""From the words of `repack` to a `MoveRequest`; every refusal is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gangplan.questions import parse_selector, select_pods, suggest
from topology.errors import RequestError
from topology.model import NO_GROUP
from topology.move_request import FreeGoal
from topology.selectors import matches_selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topology.model import LabelSelector, Snapshot

__all__ = ["choose_drained", "choose_movers", "parse_free"]


def parse_free(text: str) -> FreeGoal:
    """Return the goal of `--free KEY[=VALUE]:N`; with a value, N may be left out and is 1.

    Raises:
      RequestError: When it cannot be read.

    Example:
      >>> parse_free("topo.example.com/rack:2")
      FreeGoal(key='topo.example.com/rack', value=None, count=2)
      >>> parse_free("topo.example.com/rack=r1").count
      1
    """
    body, colon, number = text.rpartition(":")
    if not colon:
        body, number = text, "1" if "=" in text else ""
    key, equals, value = body.partition("=")
    if not key or (equals and not value) or not number.isascii() or not number.isdecimal():
        raise RequestError(f"--free {text}: write KEY:N or KEY=VALUE:N, N a number of domains")
    count = int(number)
    if equals and count > 1:
        raise RequestError(f"--free {text}: {value} is one domain; write {body}:1, or leave it out")
    return FreeGoal(key, value if equals else None, count)


def choose_drained(snapshot: Snapshot, texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the nodes that `--drain` means: names (parted by commas), or selectors.

    Raises:
      RequestError: When a name or selector matches no node.
    """
    names = {node.name for node in snapshot.nodes}
    chosen: set[str] = set()
    for text in texts:
        if names.issuperset(text.split(",")):
            chosen |= set(text.split(","))
            continue
        if not set(text) & set("=!,( "):
            raise RequestError(
                f"--drain {text}: no node of that name was read{suggest(text, sorted(names))}; "
                "write a name, or labels such as KEY=VALUE"
            )
        selector = parse_selector(text, option="--drain")
        found = {node.name for node in snapshot.nodes if matches_selector(selector, node.labels)}
        if not found:
            raise RequestError(
                f"--drain {text}: no node that was read has these labels; of a node, those are "
                "kept that describe topology or that a pod or group names"
            )
        chosen |= found
    return tuple(sorted(chosen))


def choose_movers(
    snapshot: Snapshot,
    *,
    movable: Sequence[str] | None,
    movable_groups: Sequence[str] | None,
    keep: Sequence[str],
    namespace: str | None = None,
    selector: LabelSelector | None = None,
) -> dict[str, Any]:
    """Return the fields of a `MoveRequest` that say what may be moved.

    `-n` and `-l` leave only the pods that they select movable.

    Raises:
      RequestError: When a reference names nothing, or nothing that runs.
    """
    pods = snapshot.pods
    index = {ref: p for p, ref in enumerate(pods.refs)}
    groups = {group.ref for group in snapshot.groups}
    running = pods.is_running_member
    own = set(movable or ())
    for ref in movable or ():
        _need(ref in index, "--movable", ref, "pod", index)
        _need(bool(running[index[ref]]), "--movable", ref, "running pod", ())
    for ref in movable_groups or ():
        _need(ref in groups, "--movable-groups", ref, "group", groups)
    for ref in keep:
        _need(ref in groups or ref in index, "--keep", ref, "pod or group", [*groups, *index])
    scope = select_pods(snapshot, namespace, selector)
    if scope is None:
        return {
            "movable": None if movable is None else tuple(sorted(own)),
            "movable_groups": None
            if movable_groups is None
            else tuple(sorted(set(movable_groups))),
            "keep": tuple(sorted(set(keep))),
        }
    listed = movable is not None or movable_groups is not None
    for p in range(len(pods)):
        if not (scope[p] and running[p]):
            own.discard(pods.refs[p])
        elif not listed or (movable_groups and _groups_above(snapshot, p) & set(movable_groups)):
            own.add(pods.refs[p])
    return {"movable": tuple(sorted(own)), "keep": tuple(sorted(set(keep)))}


def _groups_above(snapshot: Snapshot, p: int) -> set[str]:
    found = set()
    g = int(snapshot.pods.group[p])
    while g != NO_GROUP:
        found.add(snapshot.groups[g].ref)
        g = snapshot.groups[g].parent
    return found


def _need(holds: bool, option: str, ref: str, kind: str, known: Iterable[str]) -> None:
    if not holds:
        raise RequestError(f"{option} {ref}: no such {kind} was read{suggest(ref, sorted(known))}")
