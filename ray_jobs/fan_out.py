"""One function over many items, here or on Ray workers, answers in the order of the items.

Ray does the distributing. What all items share is put into its object store once; a worker keeps
its compiled kernels between items and has one share of the cores.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any, Final, TypeVar

from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Shared = TypeVar("Shared")
    Item = TypeVar("Item")
    Result = TypeVar("Result")

__all__ = ["map_ordered", "parse_workers"]

MAX_TRIES: Final = 3
"""Times an item is tried when its worker dies."""


def parse_workers(text: str | int | None) -> int | str | None:
    """Return a number of local workers, `auto`, an address, or None for this process.

    Raises:
      RequestError: A number below 0.

    Example:
      >>> parse_workers("2"), parse_workers("0"), parse_workers("auto")
      (2, None, 'auto')
    """
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        return str(text)
    if number < 0:
        raise RequestError(f"--workers {number}: write 0 or more, auto, or an address of Ray")
    return number or None


def map_ordered(
    function: Callable[[Shared, Item], Result],
    shared: Shared,
    items: Sequence[Item],
    *,
    workers: str | int | None = None,
    progress: Callable[[str], None] | None = None,
) -> Iterator[Result]:
    """Yield `function(shared, item)` for every item, in order, as soon as each is there.

    Args:
      function: Defined at the top of a module, so that workers can import it.
      shared: What every call reads; sent to the object store once.
      items: Small.
      workers: None: all in this process, without Ray. A number: that many local worker processes.
        `auto`: the Ray cluster this process belongs to (RAY_ADDRESS), else all local cores. Other
        text: the address of a cluster.
      progress: Called with a line when a worker died.

    Raises:
      RequestError: Ray is missing, the address does not answer, or an item keeps killing workers.
    """
    count = parse_workers(workers)
    if count is None or not items:
        for item in items:
            yield function(shared, item)
        return
    with _Session(count) as session:
        yield from session.run(function, shared, items, progress or (lambda _: None))


class _Session:
    """A connection to Ray that is closed again, if it was opened here."""

    def __init__(self, workers: int | str) -> None:
        self.workers = workers
        self.is_ours = False

    def __enter__(self) -> _Session:
        try:
            import ray
        except ImportError:
            raise RequestError(
                "--workers: needs Ray, which is not installed; pip install 'gangplan[ray]', or "
                "leave --workers out"
            ) from None
        self.ray: Any = ray
        if not ray.is_initialized():
            self._connect()
            self.is_ours = True
        if isinstance(self.workers, int):
            self.num_workers = self.workers
        else:
            self.num_workers = max(int(self.ray.cluster_resources().get("CPU", 1)), 1)
        self.gpus = int(self.ray.cluster_resources().get("GPU", 0))
        return self

    def _connect(self) -> None:
        options: dict[str, Any] = {"include_dashboard": False, "logging_level": "ERROR"}
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if isinstance(self.workers, int):
            options |= {"address": "local", "num_cpus": max(self.workers, 1)}
        elif self.workers == "auto":
            if not os.environ.get("RAY_ADDRESS"):
                options |= {"address": "local"}
        else:
            _check_address(self.workers)
            options = {"address": self.workers, "logging_level": "ERROR"}
        try:
            self.ray.init(log_to_driver=False, **options)
        except Exception as problem:  # Ray raises what its transports raise
            reason = " ".join(str(problem).split())[:200]
            raise RequestError(
                f"--workers {self.workers}: Ray does not answer ({reason}); check the address, or "
                "give a number of local workers"
            ) from None

    def __exit__(self, *exc: object) -> None:
        if self.is_ours:
            self.ray.shutdown()

    def run(
        self,
        function: Callable[[Any, Any], Any],
        shared: Any,
        items: Sequence[Any],
        say: Callable[[str], None],
    ) -> Iterator[Any]:
        """Keep every worker busy with one item, and hand answers on in order."""
        ray = self.ray
        held = ray.put(shared)
        num_workers = min(self.num_workers, len(items))
        idle = [self._start(slot, num_workers) for slot in range(num_workers)]
        running: dict[Any, tuple[Any, int]] = {}
        waiting = list(range(len(items)))[::-1]
        tries = [0] * len(items)
        done: dict[int, Any] = {}
        at = 0
        try:
            while at < len(items):
                while idle and waiting:
                    worker, i = idle.pop(), waiting.pop()
                    tries[i] += 1
                    running[worker.call.remote(function, held, items[i])] = (worker, i)
                ready, _ = ray.wait(list(running), num_returns=1)
                for answer in ready:
                    worker, i = running.pop(answer)
                    try:
                        done[i] = ray.get(answer)
                        idle.append(worker)
                    except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError):
                        if tries[i] >= MAX_TRIES:
                            raise RequestError(
                                f"--workers: part {i + 1} of {len(items)} ended its worker "
                                f"{tries[i]} times (out of memory?); use fewer workers"
                            ) from None
                        say(f"a worker died; trying part {i + 1} again")
                        waiting.append(i)
                        idle.append(self._start(0, num_workers))
                while at in done:
                    yield done.pop(at)
                    at += 1
        except ray.exceptions.RayTaskError as problem:
            raise problem.cause from None
        except (ray.exceptions.RaySystemError, ConnectionError) as problem:
            reason = " ".join(str(problem).split())[:200]
            raise RequestError(
                f"--workers {self.workers}: lost the Ray cluster ({reason}); answers that are "
                "written stay, run the same command again to go on"
            ) from None
        finally:
            for worker in [*idle, *(w for w, _ in running.values())]:
                ray.kill(worker)

    def _start(self, slot: int, num_workers: int) -> Any:
        share = {"num_gpus": 1} if slot < self.gpus else {}
        env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        worker = self.ray.remote(_Worker)
        return worker.options(num_cpus=1, runtime_env={"env_vars": env}, **share).remote(
            slot, num_workers
        )


def _check_address(address: str) -> None:
    """Refuse an address that nobody listens at; Ray itself would try for minutes.

    Raises:
      RequestError: It is no address, or nothing answers there.
    """
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise RequestError(
            f"--workers {address}: write a number, auto, HOST:PORT or ray://HOST:PORT"
        )
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise RequestError(
            f"--workers {address}: Ray does not answer ({reason}); check the address, or give a "
            "number of local workers"
        ) from None


_PASSED_ON: Final = (
    "GANGPLAN_DEBUG",
    "JAX_COMPILATION_CACHE_DIR",
    "JAX_PLATFORMS",
    "XDG_CACHE_HOME",
)
"""Settings that workers need as the driver has them: one compile cache for all, above all."""


class _Worker:
    """Keeps to its share of the cores: XLA sizes its thread pool by the cores it may use."""

    def __init__(self, slot: int, num_workers: int) -> None:
        if hasattr(os, "sched_setaffinity"):
            cores = sorted(os.sched_getaffinity(0))
            own = cores[slot % len(cores) :: num_workers] or cores
            os.sched_setaffinity(0, own)

    def call(self, function: Callable[[Any, Any], Any], shared: Any, item: Any) -> Any:
        return function(shared, item)
