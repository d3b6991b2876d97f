"""When pods last saved their work: an annotation that jobs keep up to date.

Kubernetes knows nothing of checkpoints, so the key is gangplan's own; another may be named.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from data.importers.base import ReadProblem
from data.importers.pods import parse_time

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CHECKPOINT_ANNOTATION", "CheckpointReader"]

CHECKPOINT_ANNOTATION: Final = "gangplan.io/last-checkpoint"
_LATEST: Final = 253_402_300_799
"""The last second of the year 9999: a larger number counts something else, such as milliseconds."""


@dataclass(slots=True)
class CheckpointReader:
    """Reads one annotation of every pod, and remembers which of them say no time."""

    key: str = CHECKPOINT_ANNOTATION
    bad: list[str] = field(default_factory=list)
    """Refs of pods whose annotation could not be read."""

    def read(self, ref: str, annotations: Mapping[str, str]) -> int:
        """Return the time in seconds since 1970, -1 where there is none that can be read.

        Accepts RFC 3339 and whole seconds since 1970. A pod is not set aside for it: it would free
        what it holds.
        """
        text = annotations.get(self.key, "").strip()
        try:
            time = int(text) if text.isdecimal() else parse_time(text, self.key)
        except (ReadProblem, ValueError):
            time = _LATEST + 1
        if time <= _LATEST:
            return time
        self.bad.append(ref)
        return -1

    def describe_bad(self) -> str | None:
        """Return a line about what could not be read, None where everything could."""
        if not self.bad:
            return None
        return (
            f"annotation {self.key} says no time in {len(self.bad)} pods (first: {min(self.bad)}); "
            "their work counts as never saved: write 2026-11-30T10:00:00Z or seconds since 1970"
        )
