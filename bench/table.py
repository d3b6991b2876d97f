"""A Markdown table on standard output and in bench/results, with a line about the machine."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["describe_machine", "write_table"]

RESULTS = Path(__file__).parent / "results"


def describe_machine() -> str:
    """Say what ran: cores, Python, NumPy, JAX."""
    import jax
    import numpy as np

    return (
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, JAX {jax.__version__} on {jax.default_backend()}"
    )


def write_table(
    name: str,
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    notes: Iterable[str] = (),
    is_stored: bool = True,
) -> None:
    """Print a table, a paragraph for each note above it, and store it as bench/results/NAME.md."""
    lines = [f"# {title}", "", describe_machine(), ""]
    for note in notes:
        lines += [note, ""]
    lines.append("| " + " | ".join(heads) + " |")
    lines.append("|" + " --- |" * len(heads))
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    if is_stored:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.md").write_text(text)
