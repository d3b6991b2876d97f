"""Where words go: the answer to standard output, all else to standard error, one line each."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Streams", "escape_line", "write_answer", "write_file"]

_RED, _YELLOW, _PLAIN = "\x1b[31m", "\x1b[33m", "\x1b[0m"


def escape_line(text: str) -> str:
    r"""Return text as one line that a terminal shows as it is.

    Names come from files: a line break would forge a line, a control character a colour.

    Example:
      >>> escape_line("node a\nerror: \x1b[31m")
      'node a\\nerror: \\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@dataclass(slots=True)
class Streams:
    """Standard error of one command.

    `quiet` keeps back progress and warnings, never errors.
    """

    quiet: bool = False
    color: bool = True

    def error(self, text: str) -> None:
        """Print one `error:` line."""
        self._print("error:", _RED, text)

    def warning(self, text: str) -> None:
        """Print one `warning:` line unless quiet."""
        if not self.quiet:
            self._print("warning:", _YELLOW, text)

    def note(self, text: str) -> None:
        """Print one line about what was done unless quiet."""
        if not self.quiet:
            print(escape_line(text), file=sys.stderr)

    @contextmanager
    def progress(self) -> Iterator[Callable[[str], None]]:
        """Show the latest step while the block runs, on a terminal only."""
        if self.quiet or not sys.stderr.isatty():
            yield lambda text: None
            return
        from rich.console import Console

        console = Console(stderr=True, no_color=not self.color or None)
        with console.status("", spinner="line") as status:
            yield lambda text: status.update(escape_line(text).replace("[", r"\["))

    def _print(self, word: str, color: str, text: str) -> None:
        if self.color and sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            word = f"{color}{word}{_PLAIN}"
        print(word, escape_line(text), file=sys.stderr)


def write_answer(answer: bytes, path: Path | None) -> None:
    """Write the answer to a file, or to standard output where none (or `-`) is named.

    A reader that went away (`| head`) is no error.

    Raises:
      RequestError: When it cannot be written.
    """
    if path is not None and str(path) != "-":
        write_file(path, answer)
        return
    try:
        sys.stdout.buffer.write(answer)
        sys.stdout.flush()
    except OSError as problem:
        # The interpreter flushes once more when it ends; give it somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(problem, BrokenPipeError):
            raise RequestError(f"standard output: cannot be written: {problem.strerror}") from None


def write_file(path: Path, content: bytes) -> None:
    """Write a file under a temporary name first, so that it is never there by half.

    Raises:
      RequestError: When it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():  # a device or a pipe cannot be renamed over
            path.write_bytes(content)
            return
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            file.write(content)
        try:
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(file.name, 0o666 & ~mask)
            os.replace(file.name, path)
        except OSError:
            os.unlink(file.name)
            raise
    except OSError as problem:
        raise RequestError(f"{path}: cannot be written: {problem.strerror}") from None
