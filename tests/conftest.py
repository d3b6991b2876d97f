"""Settings every test shares."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Builders are plain modules beside the tests; importlib mode puts no folder on the path.
sys.path.insert(0, str(Path(__file__).parent))

# Before anything imports jax: an installed CUDA plugin would take the device, and every run would
# compile anew.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE / "gangplan" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the one switch that rewrites expected files."""
    parser.addoption("--update-golden", action="store_true", help="write expected output anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether expected output is to be written anew instead of compared."""
    return bool(request.config.getoption("--update-golden"))
