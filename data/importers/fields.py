"""Typed reads from decoded objects; what has the wrong type becomes a `ReadProblem`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from data.importers.base import ReadProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from data.importers.base import RawObject

__all__ = [
    "find_field",
    "has_condition",
    "parse_index",
    "read_created",
    "read_int",
    "read_list",
    "read_map",
    "read_strings",
    "read_text",
]


def _path(at: str, field: str) -> str:
    return f"{at}.{field}" if at else field


def find_field(body: Mapping[str, Any], field: str, *, at: str = "") -> Any:
    """Return the value at a dotted path, None when it or a parent is absent or null.

    Args:
      body: A decoded object or part of one.
      field: Dotted path below `body`.
      at: Path of `body` in its object, for messages.

    Raises:
      ReadProblem: A parent is not an object.
    """
    value: Any = body
    walked: list[str] = []
    for part in field.split("."):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ReadProblem(
                _path(at, ".".join(walked)) or "metadata",
                f"is {type(value).__name__}; make it an object",
            )
        value = value.get(part)
        walked.append(part)
    return value


def read_int(
    body: Mapping[str, Any],
    field: str,
    default: int | None = None,
    *,
    minimum: int = 0,
    at: str = "",
) -> int:
    """Return an int32 field; absent or null gives the default, or a problem without one."""
    value = find_field(body, field, at=at)
    if value is None:
        if default is None:
            raise ReadProblem(_path(at, field), "is missing; set it")
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise ReadProblem(_path(at, field), f"is {value!r:.40}; make it an integer")
    if not minimum <= value < 2**31:
        raise ReadProblem(_path(at, field), f"is {value:.6g}; it must be {minimum} to 2147483647")
    return value


def read_text(body: Mapping[str, Any], field: str, default: str = "", *, at: str = "") -> str:
    """Return a string field; absent or null gives the default."""
    value = find_field(body, field, at=at)
    if value is None:
        return default
    if not isinstance(value, str):
        raise ReadProblem(_path(at, field), f"is {value!r:.40}; make it a string")
    return value


def read_list(body: Mapping[str, Any], field: str, *, at: str = "") -> list[dict[str, Any]]:
    """Return a list of objects; absent or null gives none."""
    value = find_field(body, field, at=at)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ReadProblem(_path(at, field), "is not a list of objects; make it one")
    return value


def read_map(body: Mapping[str, Any], field: str, *, at: str = "") -> dict[str, Any]:
    """Return an object; absent or null gives an empty one."""
    value = find_field(body, field, at=at)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ReadProblem(_path(at, field), f"is {type(value).__name__}; make it an object")
    return value


def read_strings(body: Mapping[str, Any], field: str, *, at: str = "") -> dict[str, str]:
    """Return a map of strings (labels, annotations); absent or null gives an empty one."""
    found = read_map(body, field, at=at)
    for key, value in found.items():
        if not isinstance(value, str):
            raise ReadProblem(
                f"{_path(at, field)}.{key}", f"is {value!r:.40}; make it a string (quote it)"
            )
    return found


def read_created(obj: RawObject) -> int:
    """Return `metadata.creationTimestamp` in seconds since 1970, -1 when absent or unreadable."""
    value = find_field(obj.body, "metadata.creationTimestamp")
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return -1
    if not isinstance(value, datetime):
        return -1
    return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())


def has_condition(obj: RawObject, kind: str) -> bool:
    """Tell whether `status.conditions[]` has this type with status "True"."""
    conditions = obj.status.get("conditions") or []
    return any(
        isinstance(c, dict) and c.get("type") == kind and c.get("status") in ("True", True)
        for c in conditions
    )


def parse_index(text: object) -> int:
    """Return a label value as an index, -1 when it is none (absent, not decimal, too long)."""
    if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 9:
        return int(text)
    return -1
