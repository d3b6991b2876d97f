"""Taints and tolerations, the same words for nodes and for devices."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Taint", "Toleration"]


@dataclass(frozen=True, slots=True)
class Taint:
    """`taints[]` of a node or device; only NoSchedule and NoExecute keep pods away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """`tolerations[]`; empty key with Exists tolerates every taint, empty effect all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
