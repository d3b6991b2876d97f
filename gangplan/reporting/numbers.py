"""Numbers as people read them."""

from __future__ import annotations

__all__ = ["count"]


def count(number: int, noun: str) -> str:
    """Return a number with its noun, thousands set apart.

    Example:
      >>> count(1, "node"), count(10_008, "node")
      ('1 node', '10,008 nodes')
    """
    return f"{number:,} {noun if number == 1 else f'{noun}s'}"
