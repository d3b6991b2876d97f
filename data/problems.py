"""Decoding an object by its type, with errors that name the field at fault."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from data.importers.base import ReadProblem

if TYPE_CHECKING:
    from data.decode import Item

__all__ = ["decode_as", "decode_body", "find_name"]

_T = TypeVar("_T")
_DECODERS: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}
_ANY: Final = msgspec.json.Decoder()
_WHERE: Final = re.compile(
    r"(?P<what>.*?)(?: - at (?P<key>`key` in )?`\$\.?(?P<path>.*)`)?\Z", re.S
)


def decode_as(wanted: type[_T], item: Item) -> _T:
    """Return an object as a wire type.

    Raises:
      ReadProblem: It does not fit the type; the field is named.
    """
    body = item.body
    if body is None:
        raise ReadProblem("", "is not an object; remove it")
    try:
        if isinstance(body, dict):
            return msgspec.convert(body, wanted)
        decoder = _DECODERS.get(wanted)
        if decoder is None:
            decoder = _DECODERS[wanted] = msgspec.json.Decoder(wanted)
        result: _T = decoder.decode(body)
        return result
    except msgspec.ValidationError as error:
        raise _explain(error, item) from None
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ReadProblem("", f"cannot be decoded ({error}); write the file again") from None


def decode_body(item: Item) -> dict[str, Any]:
    """Return an object as plain dicts, lists and scalars.

    Raises:
      ReadProblem: It is not an object.
    """
    body = item.body
    try:
        plain = _ANY.decode(body) if isinstance(body, msgspec.Raw) else body
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
        raise ReadProblem("", f"cannot be decoded ({error}); write the file again") from None
    if not isinstance(plain, dict):
        raise ReadProblem("", "is not an object; remove it")
    return plain


def find_name(item: Item) -> str:
    """Return "namespace/name" of an object that cannot be read, else its place in the file."""
    try:
        metadata = decode_body(item).get("metadata")
    except ReadProblem:
        metadata = None
    if isinstance(metadata, dict) and isinstance(name := metadata.get("name"), str) and name:
        namespace = metadata.get("namespace")
        return f"{namespace:.63}/{name:.253}" if isinstance(namespace, str) else f"{name:.253}"
    return item.position or item.file


def _explain(error: msgspec.ValidationError, item: Item) -> ReadProblem:
    """Name the key too where msgspec only says that some value of a map is wrong."""
    match = _WHERE.match(str(error))
    if match is None or match["path"] is None:
        return ReadProblem("", f"{str(error)[:1].lower()}{str(error)[1:]}; correct it")
    path, what = match["path"], match["what"].replace("`", "")
    what = f"{what[:1].lower()}{what[1:]}"
    if match["key"]:
        return ReadProblem(path, f"has a key of the wrong type ({what}); quote it")
    if "[...]" in path:
        found = _find_wrong(decode_body(item), path)
        if found is not None:
            path, value = found
            hint = (
                "quote it" if "str" in what and not isinstance(value, dict | list) else "correct it"
            )
            return ReadProblem(path, f"is {value!r:.60}: {what}; {hint}")
    return ReadProblem(path, f"{what}; correct it")


def _find_wrong(body: Any, path: str) -> tuple[str, Any] | None:
    """Return the path and value of the first entry of a map that is not a string."""
    value: Any = body
    walked = ""
    for part in re.findall(r"\[\.\.\.\]|\[\d+\]|[^.\[\]]+", path):
        if part == "[...]":
            if not isinstance(value, dict):
                return None
            wrong = next(
                (k for k, v in value.items() if not isinstance(v, str | int | float)), None
            )
            if wrong is None:
                wrong = next((k for k, v in value.items() if not isinstance(v, str)), None)
            if wrong is None:
                return None
            return f"{walked}[{wrong}]", value[wrong]
        if part.startswith("["):
            index = int(part[1:-1])
            if not isinstance(value, list) or index >= len(value):
                return None
            value = value[index]
            walked += part
        else:
            value = value.get(part) if isinstance(value, dict) else None
            walked += f".{part}" if walked else part
    return None
