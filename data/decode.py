"""Bytes of a file -> the Kubernetes objects in it, each still undecoded where it is JSON.

Read: JSON (one object, a List, an array, several documents one after another, the content of a
KAI snapshot) and YAML (any number of documents). Files are not trusted: depth, aliases and numbers
are bounded, and whatever is wrong is one line with a place.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from topology.errors import SnapshotError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Item", "read_items"]

_MAX_LIST_DEPTH: Final = 8
_BOM: Final = b"\xef\xbb\xbf"

# What kubectl prints begins so; reading it here saves a pass over every object.
_TYPE_META: Final = re.compile(
    rb'\s*\{\s*"apiVersion"\s*:\s*"([\w./-]*)"\s*,\s*"kind"\s*:\s*"(\w*)"\s*[,}]'
)
# A raw newline cannot stand inside a JSON string, so this never cuts an object.
_BETWEEN_DOCUMENTS: Final = re.compile(rb"\}[ \t\r]*\n\s*(?=\{)")

# Go's JSON encoding of typed lists drops the type of the items.
_KAI_KINDS: Final = {
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "namespaces": ("v1", "Namespace"),
    "queues": ("scheduling.run.ai/v2", "Queue"),
    "podGroups": ("scheduling.run.ai/v2alpha2", "PodGroup"),
    "bindRequests": ("scheduling.run.ai/v1alpha2", "BindRequest"),
    "topologies": ("kai.scheduler/v1alpha1", "Topology"),
    "podDisruptionBudgets": ("policy/v1", "PodDisruptionBudget"),
    "priorityClasses": ("scheduling.k8s.io/v1", "PriorityClass"),
    "resourceClaims": ("resource.k8s.io/v1", "ResourceClaim"),
    "resourceSlices": ("resource.k8s.io/v1", "ResourceSlice"),
    "deviceClasses": ("resource.k8s.io/v1", "DeviceClass"),
}


class Item(NamedTuple):
    """One object of a file; `kind` is "" when it does not say what it is."""

    api_version: str
    kind: str
    body: msgspec.Raw | dict[str, Any] | None
    """None: not an object at all."""
    file: str
    position: str
    """Place in the file for messages: "document 2", "items[7]"."""


class _Head(msgspec.Struct, rename="camel", gc=False):
    """The outside of any object; wrong types are judged later, with a place."""

    kind: Any = ""
    api_version: Any = ""
    items: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    raw_objects: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_HEAD: Final = msgspec.json.Decoder(_Head)
_RAW_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw] | None)
_RAW_LISTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)


class _NotReadable(Exception):
    """A document that is neither JSON nor YAML; carries the reason and, if known, the place."""


def read_items(data: bytes, file: str) -> Iterator[Item]:
    """Yield the objects of a file, members of lists one by one, in their order.

    Args:
      data: Content, unpacked. It stays referenced by the items.
      file: Name for messages; `.yaml` and `.yml` allow a brace at the start to be YAML.

    Raises:
      SnapshotError: The file as a whole cannot be decoded.
    """
    if data.startswith(_BOM):
        data = data[len(_BOM) :]
    start = data[:4096].lstrip()[:1]
    try:
        if start in (b"{", b"["):
            try:
                yield from _read_json(data, file)
                return
            except _NotReadable:
                # Flow style YAML also begins with a brace; JSON files get the JSON message.
                if not file.lower().removesuffix(".gz").endswith((".yaml", ".yml")):
                    raise
        yield from _read_yaml(data, file)
    except _NotReadable as problem:
        raise SnapshotError(f"{file}: {problem}; write the file again") from None


# JSON


def _read_json(data: bytes, file: str) -> Iterator[Item]:
    """Decode everything before yielding anything, so that YAML can still be tried."""
    try:
        yield from _split(data, file, "")
        return
    except _NotReadable as problem:
        if "trailing characters" not in str(problem):
            raise
    cuts = [0, *(m.start() + 1 for m in _BETWEEN_DOCUMENTS.finditer(data)), len(data)]
    if len(cuts) > 2:
        documents = [
            _split(memoryview(data)[start:stop], file, f"document {i + 1}")
            for i, (start, stop) in enumerate(pairwise(cuts))
        ]
        for items in documents:
            yield from items
        return
    yield from _read_dense_json(data, file)


def _split(data: bytes | memoryview, file: str, position: str) -> list[Item]:
    """Return the objects of one JSON document."""
    try:
        if bytes(data[:4096]).lstrip()[:1] == b"[":
            return _list_items(_RAW_LIST.decode(data) or [], "", "", file, position, 0)
        return _expand(_HEAD.decode(data), msgspec.Raw(data), file, position, 0)
    except RecursionError:
        raise _NotReadable(_at(position, "is nested too deeply")) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise _NotReadable(_at(position, f"is not valid JSON ({error})")) from None


def _expand(head: _Head, raw: msgspec.Raw, file: str, position: str, depth: int) -> list[Item]:
    kind = head.kind if isinstance(head.kind, str) else ""
    version = head.api_version if isinstance(head.api_version, str) else ""
    if head.raw_objects is not msgspec.UNSET and not kind:
        items: list[Item] = []
        for name, raw_list in (_RAW_LISTS.decode(head.raw_objects) or {}).items():
            known = _KAI_KINDS.get(name)
            if known is not None:
                members = _RAW_LIST.decode(raw_list) or []
                items += [Item(*known, r, file, f"{name}[{i}]") for i, r in enumerate(members)]
        return items
    if not kind.endswith("List") or head.items is msgspec.UNSET:
        return [Item(version, kind, raw, file, position)]
    if depth >= _MAX_LIST_DEPTH:
        raise _NotReadable(_at(position, "nests lists too deeply"))
    members = _RAW_LIST.decode(head.items) or []
    own = ("", "") if kind == "List" else (version, kind.removesuffix("List"))
    return _list_items(members, *own, file, position, depth)


def _list_items(
    members: list[msgspec.Raw], version: str, kind: str, file: str, position: str, depth: int
) -> list[Item]:
    """Return the members of a list; those without a type get the list's own."""
    items: list[Item] = []
    prefix = f"{position} items" if position else "items"
    for i, raw in enumerate(members):
        match = _TYPE_META.match(memoryview(raw))
        if match is not None and not match[2].endswith(b"List"):
            items.append(Item(match[1].decode(), match[2].decode(), raw, file, f"{prefix}[{i}]"))
            continue
        try:
            head = _HEAD.decode(raw)
        except msgspec.ValidationError:
            items.append(Item("", "", None, file, f"{prefix}[{i}]"))
            continue
        head.kind = head.kind or kind
        head.api_version = head.api_version or version
        items += _expand(head, raw, file, f"{prefix}[{i}]", depth + 1)
    return items


def _read_dense_json(data: bytes, file: str) -> Iterator[Item]:
    """Read JSON documents that follow one another without a line break between them."""
    try:
        text = data.decode()
        decoder = json.JSONDecoder(parse_constant=_refuse_constant)
        index = end = 0
        while (end := _skip_space(text, end)) < len(text):
            document, end = decoder.raw_decode(text, end)
            index += 1
            yield from _expand_plain(document, file, f"document {index}", 0)
    except RecursionError:
        raise _NotReadable("is nested too deeply") from None
    except ValueError as error:
        raise _NotReadable(f"is not valid JSON ({error})") from None


_SPACE: Final = re.compile(r"[ \t\r\n]*")


def _skip_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# YAML


def _read_yaml(data: bytes, file: str) -> Iterator[Item]:
    from data.yaml_documents import YamlProblem, load_documents

    try:
        for i, document in enumerate(load_documents(data)):
            if document is not None:
                yield from _expand_plain(document, file, f"document {i + 1}", 0)
    except YamlProblem as problem:
        raise _NotReadable(str(problem)) from None


def _expand_plain(document: Any, file: str, position: str, depth: int) -> Iterator[Item]:
    """Yield the objects of one document that is already plain values."""
    if isinstance(document, list):
        for i, member in enumerate(document):
            yield from _expand_plain(member, file, f"{position} items[{i}]", depth + 1)
        return
    if not isinstance(document, dict):
        yield Item("", "", None, file, position)
        return
    kind, version = document.get("kind"), document.get("apiVersion")
    kind = kind if isinstance(kind, str) else ""
    version = version if isinstance(version, str) else ""
    if not kind.endswith("List") or "items" not in document:
        yield Item(version, kind, document, file, position)
        return
    members = document["items"]
    if not isinstance(members, list | None) or depth >= _MAX_LIST_DEPTH:
        yield Item(version, kind, None, file, position)
        return
    for i, member in enumerate(members or []):
        if kind != "List" and isinstance(member, dict) and "kind" not in member:
            member = {"kind": kind.removesuffix("List"), "apiVersion": version, **member}
        yield from _expand_plain(member, file, f"{position} items[{i}]", depth + 1)


def _at(position: str, what: str) -> str:
    return f"{position}: {what}" if position else what
