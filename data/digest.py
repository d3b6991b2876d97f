"""Fingerprint of a snapshot: equal content gives equal digests, however it was read.

Covers nodes, pods, groups, budgets and devices; errors, warnings and file names say how a
snapshot was read, not what it holds, and so do pod labels that were kept though no selector of the
snapshot mentions them. The order in which specs, label sets and templates were interned does not
count, nor do entries that no pod uses.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from topology.assemble import find_pod_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topology.model import Snapshot

__all__ = ["DIGEST_VERSION", "digest_snapshot"]

DIGEST_VERSION: Final = 2
"""Raised whenever equal content gets another digest, as when the model gains a field."""

_COLUMNS: Final = ("node", "group", "phase", "flags", "priority", "nominated", "rank")
_TIMES: Final = ("created", "started", "checkpoint")


def digest_snapshot(snapshot: Snapshot) -> str:
    """Return "sha256:<hex>" over the canonical content of a snapshot."""
    digest = hashlib.sha256(f"gangplan {DIGEST_VERSION}".encode())

    def add(name: str, content: bytes) -> None:
        # Name and length in front, so that no content can pass for another.
        digest.update(f"\n{name} {len(content)}\n".encode())
        digest.update(content)

    for name in ("nodes", "groups", "budgets", "devices"):
        add(name, _encode(getattr(snapshot, name)))
    pods = snapshot.pods
    add("refs", "\0".join(pods.refs).encode())
    for name, (texts, codes) in _canonical_tables(snapshot).items():
        add(name, b"\0".join(texts))
        add(f"{name} codes", _as_bytes(codes, "<i4"))
    for name in _COLUMNS:
        add(name, _as_bytes(getattr(pods, name), "<i4"))
    for name in _TIMES:
        add(name, _as_bytes(getattr(pods, name), "<i8"))
    return f"sha256:{digest.hexdigest()}"


def _canonical_tables(snapshot: Snapshot) -> dict[str, tuple[list[bytes], NDArray[np.int32]]]:
    pods = snapshot.pods
    used = (pods.specs[x] for x in np.unique(pods.spec).tolist())
    keys = find_pod_keys(used, snapshot.budgets)
    label_sets = [{k: v for k, v in labels.items() if k in keys} for labels in pods.label_sets]
    return {
        "specs": _sort_table(pods.specs, pods.spec),
        "label sets": _sort_table(label_sets, pods.labels),
        "templates": _sort_table(pods.templates, pods.template),
    }


def _sort_table(
    table: Sequence[object], codes: NDArray[np.int32]
) -> tuple[list[bytes], NDArray[np.int32]]:
    """Return the encodings in use, sorted, and the codes that point into them."""
    used, inverse = np.unique(codes, return_inverse=True)
    texts = [_encode(table[x]) for x in used]
    ordered = sorted(set(texts))
    position = {text: i for i, text in enumerate(ordered)}
    ranks = np.fromiter((position[text] for text in texts), np.int32, len(texts))
    return ordered, ranks[inverse].astype(np.int32)


def _encode(value: object) -> bytes:
    # The standard library, because planning must also run where msgspec is not installed.
    text = json.dumps(
        value, default=_expand, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return text.encode("utf-8", "surrogatepass")


def _expand(value: object) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Set):
        return sorted(value)
    raise TypeError(f"cannot encode {type(value).__name__}")


def _as_bytes(column: NDArray[Any], dtype: str) -> bytes:
    return np.ascontiguousarray(column, dtype=dtype).tobytes()
