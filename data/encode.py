"""Answers -> JSON and YAML text."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["to_json", "to_yaml"]


def to_json(obj: Any, indent: int = 2) -> bytes:
    """Return JSON in UTF-8, keys in their own order, ending in a newline.

    Args:
      obj: Plain dicts, lists, tuples and scalars (or dataclasses of them).
      indent: Spaces a level; 0 puts everything on one line.

    Raises:
      TypeError: Something else is inside.
    """
    text = msgspec.json.encode(obj)
    return (msgspec.json.format(text, indent=indent) if indent > 0 else text) + b"\n"


def to_yaml(obj: Any) -> bytes:
    """Return YAML in UTF-8 with the same content and order as `to_json`.

    Raises:
      TypeError: Something is inside that JSON has no form for.
    """
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text = yaml.dump(
        msgspec.to_builtins(obj),
        Dumper=dumper,
        sort_keys=False,
        allow_unicode=True,
        width=2**31 - 1,
        encoding="utf-8",
    )
    assert isinstance(text, bytes)
    return text
