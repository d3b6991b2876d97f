"""Amounts of resources as Kubernetes writes them."""

from __future__ import annotations

from typing import Final

__all__ = ["BINARY_SUFFIXES", "format_quantity", "parse_canonical"]

BINARY_SUFFIXES: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_BYTE_RESOURCES: Final = ("memory", "ephemeral-storage", "storage")


def format_quantity(amount: int, resource: str) -> str:
    """Return the canonical text of an amount (cpu: milli-cores, all else whole units).

    Bytes take the largest binary suffix that leaves an integer; counts take none.

    Example:
      >>> format_quantity(15890, "cpu"), format_quantity(120 << 30, "memory")
      ('15890m', '120Gi')
      >>> format_quantity(1024, "pods")
      '1024'
    """
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if amount and (resource in _BYTE_RESOURCES or resource.startswith("hugepages-")):
        shift = (amount & -amount).bit_length() - 1
        steps = min(shift // 10, len(BINARY_SUFFIXES))
        if steps:
            return f"{amount >> 10 * steps}{BINARY_SUFFIXES[steps - 1]}"
    return str(amount)


def parse_canonical(text: str, resource: str) -> int:
    """Return the amount that `format_quantity` wrote.

    Raises:
      ValueError: It is no such text; other ways to write quantities are not read here.

    Example:
      >>> parse_canonical("15890m", "cpu"), parse_canonical("120Gi", "memory")
      (15890, 128849018880)
    """
    digits = text.rstrip("EGKMPTim")
    suffix = text.removeprefix(digits)
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{text!r} is no quantity")
    if resource == "cpu" and suffix in ("", "m"):
        return int(digits) * (1 if suffix else 1000)
    if suffix in BINARY_SUFFIXES:
        return int(digits) << 10 * (BINARY_SUFFIXES.index(suffix) + 1)
    if suffix:
        raise ValueError(f"{text!r} is no quantity of {resource}")
    return int(digits)
