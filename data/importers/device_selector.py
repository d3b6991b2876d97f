"""The part of CEL that device classes are written in, evaluated on one device.

Understood: `device.driver`, `device.attributes["domain"].name`, `device.capacity["domain"].name`
with `compareTo(quantity("…"))`, literals and lists, comparison, `in`, `&&`, `||`, `!`. Everything
else is unknown, as is an attribute the device lacks; unknown never selects a device.

Source: k8s.io/dynamic-resource-allocation/cel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from data.quantities import parse_nanos

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["DeviceFacts", "Selector", "parse_selector"]

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<number>-?[0-9]+(?:\.[0-9]+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<op>&&|\|\||==|!=|<=|>=|[<>!()\[\].,?:+\-*/%])
    )""",
    re.X,
)
_MAX_TOKENS: Final = 2000
_MAX_DEPTH: Final = 50
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a selector may ask of a device."""

    driver: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    """"domain/name" -> string, integer or boolean."""
    capacity: Mapping[str, Any] = field(default_factory=dict)
    """"domain/name" -> quantity as written."""


@dataclass(frozen=True, slots=True)
class Selector:
    """A parsed expression."""

    evaluate: Callable[[DeviceFacts], Any]
    """Value for a device; None: unknown."""
    is_understood: bool
    """False if some part of it is outside the subset."""
    attributes: frozenset[str] = frozenset()
    """Qualified names of the attributes it asks about."""

    def selects(self, device: DeviceFacts) -> bool:
        """Tell whether the device surely matches."""
        return self.evaluate(device) is True


def parse_selector(expression: str) -> Selector:
    """Return the selector of an expression; never raises."""
    parser = _Parser(_tokenize(expression))
    try:
        evaluate = parser.parse_or(0)
        if parser.peek() is not None:
            raise _Unknown
    except _Unknown:
        return Selector(lambda device: None, is_understood=False)
    return Selector(evaluate, parser.is_understood, frozenset(parser.attributes))


class _Unknown(Exception):
    """The text is not of the subset, and where its parts end cannot be told either."""


def _tokenize(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    end, text = 0, text.rstrip()
    while end < len(text):
        match = _TOKEN.match(text, end)
        if match is None or len(tokens) >= _MAX_TOKENS:
            return [("bad", "")]
        tokens.append((match.lastgroup or "", match[match.lastgroup or 0]))
        end = match.end()
    return tokens


class _Parser:
    """Recursive descent; each method returns a function of the device."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._next = 0
        self.is_understood = True
        self.attributes: set[str] = set()

    def peek(self) -> str | None:
        """Return the text of the next token, None at the end."""
        return self._tokens[self._next][1] if self._next < len(self._tokens) else None

    def _take(self, wanted: str | None = None) -> tuple[str, str]:
        if self._next >= len(self._tokens):
            raise _Unknown
        token = self._tokens[self._next]
        if (wanted is not None and token[1] != wanted) or token[0] == "bad":
            raise _Unknown
        self._next += 1
        return token

    def _accept(self, text: str) -> bool:
        if self.peek() == text and self._tokens[self._next][0] != "string":
            self._next += 1
            return True
        return False

    def parse_or(self, depth: int) -> Callable[[DeviceFacts], Any]:
        """Parse alternatives: true if one is, unknown if none is and one is unknown."""
        if depth > _MAX_DEPTH:
            raise _Unknown
        parts = [self._parse_and(depth)]
        while self._accept("||"):
            parts.append(self._parse_and(depth))
        return parts[0] if len(parts) == 1 else lambda device: _any(parts, device)

    def _parse_and(self, depth: int) -> Callable[[DeviceFacts], Any]:
        parts = [self._parse_not(depth)]
        while self._accept("&&"):
            parts.append(self._parse_not(depth))
        return parts[0] if len(parts) == 1 else lambda device: _all(parts, device)

    def _parse_not(self, depth: int) -> Callable[[DeviceFacts], Any]:
        is_negated = False
        while self._accept("!"):
            is_negated = not is_negated
        inner = self._parse_comparison(depth)
        if not is_negated:
            return inner

        def negate(device: DeviceFacts) -> Any:
            value = inner(device)
            return not value if isinstance(value, bool) else None

        return negate

    def _parse_comparison(self, depth: int) -> Callable[[DeviceFacts], Any]:
        left = self._parse_operand(depth)
        operator = self.peek()
        if operator in _COMPARE or operator == "in":
            self._take()
            right = self._parse_operand(depth)
            return lambda device: _compare(operator or "", left(device), right(device))
        return left

    def _parse_operand(self, depth: int) -> Callable[[DeviceFacts], Any]:
        kind, text = self._take()
        if kind == "string":
            return _constant(_unquote(text))
        if kind == "number":
            return _constant(float(text) if "." in text else int(text[:30]))
        if text == "(":
            inner = self.parse_or(depth + 1)
            self._take(")")
            return inner
        if text == "[":
            return self._parse_list(depth)
        if text in ("true", "false"):
            return _constant(text == "true")
        if kind == "name":
            return self._parse_path(text, depth)
        raise _Unknown

    def _parse_list(self, depth: int) -> Callable[[DeviceFacts], Any]:
        if depth > _MAX_DEPTH:
            raise _Unknown
        parts = []
        while not self._accept("]"):
            parts.append(self._parse_operand(depth + 1))
            if not self._accept(","):
                self._take("]")
                break
        return lambda device: [part(device) for part in parts]

    def _parse_path(self, first: str, depth: int) -> Callable[[DeviceFacts], Any]:
        """Parse `name.name["text"](argument)…`; what is no known path is unknown."""
        path: list[str] = [first]
        argument: Callable[[DeviceFacts], Any] | None = None
        while (token := self.peek()) in (".", "[", "("):
            self._take()
            if token == ".":
                path.append(self._take()[1])
            elif token == "[":
                kind, text = self._take()
                path.append(_unquote(text) if kind == "string" else "")
                self._take("]")
            else:
                path.append("()")
                if not self._accept(")"):
                    argument = self.parse_or(depth + 1)
                    while self._accept(","):
                        self.parse_or(depth + 1)
                    self._take(")")
        return self._resolve(path, argument)

    def _resolve(
        self, path: list[str], argument: Callable[[DeviceFacts], Any] | None
    ) -> Callable[[DeviceFacts], Any]:
        match path:
            case ["device", "driver"]:
                return lambda device: device.driver
            case ["device", "attributes", domain, name]:
                qualified = f"{domain}/{name}"
                self.attributes.add(qualified)
                return lambda device: device.attributes.get(qualified)
            case ["device", "capacity", domain, name, "compareTo", "()"] if argument is not None:
                return lambda device: _compare_amounts(
                    device.capacity.get(f"{domain}/{name}"), argument(device)
                )
            case ["quantity", "()"] if argument is not None:
                return argument
        self.is_understood = False
        return _constant(None)


def _constant(value: Any) -> Callable[[DeviceFacts], Any]:
    return lambda device: value


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1])


def _any(parts: list[Callable[[DeviceFacts], Any]], device: DeviceFacts) -> bool | None:
    values = [part(device) for part in parts]
    if True in values:
        return True
    return False if all(v is False for v in values) else None


def _all(parts: list[Callable[[DeviceFacts], Any]], device: DeviceFacts) -> bool | None:
    values = [part(device) for part in parts]
    if False in values:
        return False
    return True if all(v is True for v in values) else None


def _compare(operator: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    if operator == "in":
        return left in right if isinstance(right, list) else None
    is_number = isinstance(left, int | float) and isinstance(right, int | float)
    if type(left) is not type(right) and not is_number:
        return None
    if isinstance(left, list) and operator not in ("==", "!="):
        return None
    return _COMPARE[operator](left, right)


def _compare_amounts(have: Any, want: Any) -> int | None:
    try:
        left, right = parse_nanos(have), parse_nanos(want)
    except (ValueError, TypeError):
        return None
    return (left > right) - (left < right)
