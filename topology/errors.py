"""Errors about input and use, each a single line a person can act on."""

from __future__ import annotations

__all__ = ["GangplanError", "RequestError", "SnapshotError"]


class GangplanError(Exception):
    """Base of every error that is the input's or the user's, not ours (exit status 2)."""


class SnapshotError(GangplanError):
    """The snapshot as a whole cannot be used: unreadable file, nothing usable left, `--strict`."""


class RequestError(GangplanError):
    """A question that cannot be asked of this snapshot: unknown group, criterion or option."""
