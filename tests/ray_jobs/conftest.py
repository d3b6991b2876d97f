"""One local Ray for all tests that need it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A Ray of this process alone; never one that happens to run on the machine."""
    ray = pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=4,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([os.getcwd(), *_test_paths()])}},
    )
    yield
    ray.shutdown()


def _test_paths() -> list[str]:
    here = os.path.dirname(__file__)
    return [here, os.path.dirname(here)]
