"""YAML documents -> plain values, the way the API server's YAML reader understands them.

Only maps, lists, strings, booleans, null and numbers exist. Dates and base-60 numbers stay text.
A document may repeat parts by aliases, but not so often that it explodes.

Source: sigs.k8s.io/yaml (YAML 1.1 without timestamps and sexagesimal numbers).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["YamlProblem", "load_documents"]

_MAX_DIGITS: Final = 100
_MAX_REPEATED: Final = 1_000_000
"""Nodes that aliases may add to a document."""

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG: Final = "tag:yaml.org,2002:"
_KEPT_TAGS: Final = ("map", "seq", "str", "bool", "null")
_SPECIAL_FLOATS: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_INT: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|0|[1-9][0-9_]*)\Z")
_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+]?[0-9]+)?\Z"
    r"|[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
)


class YamlProblem(Exception):
    """The file cannot be read as YAML; the message says why and where."""


class _Loader(_Base):  # type: ignore[misc]
    """Constructs JSON values only."""

    yaml_constructors = {  # noqa: RUF012
        f"{_TAG}{tag}": yaml.SafeLoader.yaml_constructors[f"{_TAG}{tag}"] for tag in _KEPT_TAGS
    }
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [
            (tag, found) for tag, found in rules if tag[len(_TAG) :] in ("bool", "null", "merge")
        ]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _construct_int(loader: Any, node: Any) -> int:
    text = loader.construct_scalar(node).replace("_", "")
    if len(text) > _MAX_DIGITS:
        raise YamlProblem(_place(node.start_mark, f"a number of {len(text)} digits"))
    # YAML 1.1 reads a leading zero as octal, Python wants "0o".
    body = text.lstrip("+-")
    if len(body) > 1 and body[0] == "0" and body[1].isdigit():
        return int(text, 8)
    return int(text, 0)


def _construct_float(loader: Any, node: Any) -> float:
    text = loader.construct_scalar(node).replace("_", "")
    if _SPECIAL_FLOATS.match(text):
        raise YamlProblem(_place(node.start_mark, f"{text} is not a number objects can hold"))
    return float(text)


_Loader.add_constructor(f"{_TAG}int", _construct_int)
_Loader.add_constructor(f"{_TAG}float", _construct_float)
_Loader.add_constructor(None, yaml.SafeLoader.yaml_constructors[None])
_Loader.add_implicit_resolver(f"{_TAG}int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, list("-+0123456789."))


def load_documents(data: bytes) -> Iterator[Any]:
    """Yield the documents of a file as plain values, None for an empty one.

    Raises:
      YamlProblem: Not YAML, nested too deeply, or aliases that repeat without bound.
    """
    has_aliases = b"*" in data and b"&" in data
    try:
        loader = _Loader(data)
        try:
            while loader.check_node():
                node = loader.get_node()
                if has_aliases:
                    _refuse_explosion(node, len(data) + _MAX_REPEATED)
                yield loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise YamlProblem(_place(mark, f"is not valid YAML ({error.problem})")) from None
    except (RecursionError, MemoryError):
        raise YamlProblem("is nested too deeply") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise YamlProblem(f"is not valid YAML ({reason})") from None


def _refuse_explosion(root: Any, limit: int) -> None:
    """Count the nodes a document has once its aliases are written out; raise beyond a bound.

    A document without aliases has fewer nodes than bytes.
    """
    sizes: dict[int, int] = {}
    open_nodes: set[int] = set()
    stack = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if id(node) in sizes:
            continue
        children = _children(node)
        if is_done:
            open_nodes.discard(id(node))
            size = sizes[id(node)] = 1 + sum(sizes[id(child)] for child in children)
            if size > limit:
                what = f"aliases repeat parts more than {_MAX_REPEATED} times"
                raise YamlProblem(_place(node.start_mark, what))
        elif children:
            if id(node) in open_nodes:
                raise YamlProblem(_place(node.start_mark, "an alias that contains itself"))
            open_nodes.add(id(node))
            stack.append((node, True))
            stack += [(child, False) for child in children]
        else:
            sizes[id(node)] = 1


def _children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _place(mark: Any, what: str) -> str:
    return what if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: {what}"
