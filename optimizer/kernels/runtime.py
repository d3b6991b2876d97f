"""How kernels are compiled: shape buckets, the persistent cache, and a count of traces."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TRACES", "bucket", "pad", "prepare_jax"]

TRACES: Final[Counter[str]] = Counter()
"""Kernel name -> times it was traced (compiled or read from the cache) in this process."""

SMALLEST_BUCKET: Final = 8


def bucket(size: int) -> int:
    """Round a size up to a step of at most a quarter, so that like sizes share a compilation.

    Example:
      >>> [bucket(n) for n in (0, 5, 8, 9, 100, 1000, 1025)]
      [8, 8, 8, 10, 112, 1024, 1280]
    """
    if size <= SMALLEST_BUCKET:
        return SMALLEST_BUCKET
    power = 1 << (size - 1).bit_length() - 1
    step = max(power // 4, 1)
    return -(-size // step) * step


def pad(array: NDArray[np.int32], shape: tuple[int, ...], fill: int = 0) -> NDArray[np.int32]:
    """Pad with NumPy (a pad in JAX would be compiled for every shape)."""
    out = np.full(shape, fill, np.int32)
    out[tuple(slice(0, n) for n in array.shape)] = array
    return out


def prepare_jax() -> None:
    """Turn on the persistent compilation cache; call before the first kernel of a process.

    The folder is the user's own (mode 0700): whoever can write to it can run code as the user.
    `JAX_COMPILATION_CACHE_DIR` overrides it.
    """
    import jax

    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(root) / "gangplan" / "jax"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
