"""Kubernetes quantities <-> exact integers, without floats.

Source: k8s.io/apimachinery/pkg/api/resource.Quantity; rounding as kube-scheduler reads requests
(cpu by MilliValue, everything else by Value, both rounded up).
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Final

from topology.quantities import BINARY_SUFFIXES, format_quantity

__all__ = ["NANOS", "format_quantity", "parse_nanos", "parse_quantity", "round_nanos"]

_MAX_LENGTH: Final = 100
_MAX_EXPONENT: Final = 99
MAX_VALUE: Final = 2**63 - 1

_QUANTITY: Final = re.compile(
    r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]+))?\Z", re.ASCII
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


NANOS: Final = 10**9
"""`parse_nanos` of 1."""


@lru_cache(maxsize=65536, typed=True)
def parse_nanos(text: str | int | float) -> int:
    """Return a quantity in thousand-millionths of its own unit (core, byte, piece), rounded up.

    Sums of requests are rounded once, at the end, so they are taken in this unit.

    Raises:
      ValueError: Not a quantity, negative, or out of range; the message says which.
    """
    if isinstance(text, bool) or (isinstance(text, float) and not math.isfinite(text)):
        raise ValueError(f"is {text}; write a quantity such as 2, 500m or 16Gi")
    if isinstance(text, int):
        return _scale(text, 9, 0)
    if not isinstance(text, str):
        text = repr(text)
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"has {len(text)} characters; write it with at most {_MAX_LENGTH}")
    match = _QUANTITY.match(text)
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"is {text!r}, which is no quantity; write one such as 2, 500m or 16Gi")
    sign, whole, fraction, suffix, exponent = match.groups()
    fraction = fraction or ""
    mantissa = int(f"{sign}{whole}{fraction}")
    power = 9 - len(fraction)
    binary = 0
    if exponent is not None:
        if abs(int(exponent)) > _MAX_EXPONENT:
            raise ValueError(f"is {text!r}, an exponent beyond {_MAX_EXPONENT}; write it out")
        power += int(exponent)
    elif suffix in BINARY_SUFFIXES:
        binary = 10 * (BINARY_SUFFIXES.index(suffix) + 1)
    elif suffix:
        power += _DECIMAL[suffix]
    return _scale(mantissa, power, binary)


def _scale(mantissa: int, power: int, binary: int) -> int:
    """Return ceil(mantissa * 10**power * 2**binary) if that many nanos are in range."""
    if mantissa < 0:
        raise ValueError("is negative; an amount must be 0 or more")
    scaled = mantissa << binary
    value: int = scaled * 10**power if power >= 0 else -(-scaled // 10**-power)
    if value > MAX_VALUE * NANOS:
        raise ValueError("is beyond the range of a 64-bit integer; lower it")
    return value


def round_nanos(nanos: int, resource: str) -> int:
    """Return nanos in the canonical unit of a resource (cpu: milli-cores), rounded up.

    Raises:
      ValueError: Beyond 2**63 - 1.
    """
    amount = -(-nanos // (NANOS // 1000 if resource == "cpu" else NANOS))
    if amount > MAX_VALUE:
        raise ValueError("is beyond the range of a 64-bit integer; lower it")
    return amount


def parse_quantity(text: str | int | float, resource: str) -> int:
    """Return a quantity in the canonical unit of its resource, rounded up.

    Args:
      text: As in JSON or YAML; a number is read by its shortest decimal form.
      resource: "cpu" is measured in milli-cores, every other resource in whole units.

    Returns:
      0 to 2**63 - 1.

    Raises:
      ValueError: Not a quantity, negative, or out of range; the message says which.

    Example:
      >>> parse_quantity("1.5", "cpu"), parse_quantity("1.5Gi", "memory")
      (1500, 1610612736)
      >>> parse_quantity("0.0005", "cpu"), parse_quantity("100m", "memory")
      (1, 1)
    """
    return round_nanos(parse_nanos(text), resource)
