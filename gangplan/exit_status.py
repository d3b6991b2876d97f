"""What the exit status of a command means."""

from typing import Final

__all__ = ["ANSWERED", "FAILED", "NOT_REACHED", "UNUSABLE"]

ANSWERED: Final = 0
"""Answered, and the plan passed verification."""
FAILED: Final = 1
"""A plan failed verification, or an internal failure."""
UNUSABLE: Final = 2
"""Bad usage or unusable input."""
NOT_REACHED: Final = 3
"""Only with `--exit-status`: an asked group is not placed, or a goal is not reached."""
