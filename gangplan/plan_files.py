"""Reading a plan that an earlier command printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topology.errors import RequestError

if TYPE_CHECKING:
    from topology.plan import Plan

__all__ = ["load_document", "load_plan"]


def load_plan(path: str) -> Plan:
    """Read a Plan document in JSON or YAML from a file, or from standard input (`-`).

    Raises:
      RequestError: When the file cannot be read or is no Plan document.
    """
    from topology.plan_json import plan_from_dict

    document = load_document(path)
    try:
        return plan_from_dict(document)
    except RequestError as problem:
        raise RequestError(f"{path}: {problem}") from None


def load_document(path: str) -> dict[str, Any]:
    """Read the one object of a file, or of standard input (`-`), whatever its kind.

    Raises:
      RequestError: When the file cannot be read or holds no object.
    """
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except OSError as problem:
        raise RequestError(f"{path}: cannot be read: {problem.strerror}") from None
    document = _parse(content, path)
    if not isinstance(document, dict):
        raise RequestError(f"{path}: holds no object; save a plan by `gangplan place ... -o json`")
    return document


def _parse(content: bytes, path: str) -> Any:
    """Return the one document of a file that `-o json` or `-o yaml` printed."""
    from data.yaml_documents import YamlProblem, load_documents

    try:
        return json.loads(content)
    except RecursionError:
        raise RequestError(f"{path}: is nested too deeply; give a plan as it was printed") from None
    except ValueError:
        pass
    try:
        return next(load_documents(content), None)
    except YamlProblem as problem:
        raise RequestError(
            f"{path}: {problem}; save a plan by `gangplan place ... -o json`"
        ) from None
