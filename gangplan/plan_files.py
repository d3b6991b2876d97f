"""Reading a plan that an earlier command printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from topology.errors import RequestError

if TYPE_CHECKING:
    from topology.plan import Plan

__all__ = ["load_plan"]


def load_plan(path: str) -> Plan:
    """Read a Plan document in JSON from a file, or from standard input (`-`).

    Raises:
      RequestError: When the file cannot be read or is no Plan document.
    """
    from topology.plan_json import plan_from_dict

    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as problem:
        raise RequestError(f"{path}: cannot be read: {problem.strerror}") from None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as problem:
        raise RequestError(
            f"{path}: is no JSON ({problem}); save a plan by `gangplan place ... -o json`"
        ) from None
    if not isinstance(document, dict):
        raise RequestError(f"{path}: holds no object; save a plan by `gangplan place ... -o json`")
    try:
        return plan_from_dict(document)
    except RequestError as problem:
        raise RequestError(f"{path}: {problem}") from None
