"""One function over many items, here and on Ray: order, retries, clear refusals."""

from __future__ import annotations

import builtins
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ray_jobs.fan_out import map_ordered, parse_workers
from topology.errors import RequestError

ROOT = Path(__file__).parents[2]


def add(shared: int, item: int) -> int:
    return shared + item


def fail_on_three(shared: int, item: int) -> int:
    if item == 3:
        raise RequestError("three is too many")
    return item


def die_once(shared: str, item: int) -> int:
    """Kill the worker the first time that item 2 is asked for."""
    mark = Path(shared, "died")
    if item == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return item * item


def die_always(shared: str, item: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return item


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(None, None, id="nothing said"),
        pytest.param("0", None, id="none"),
        pytest.param("3", 3, id="a number"),
        pytest.param("auto", "auto", id="auto"),
        pytest.param("ray://head:10001", "ray://head:10001", id="an address"),
    ],
)
def test_workers_as_they_are_written(text: str | None, want: object) -> None:
    assert parse_workers(text) == want


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(RequestError, match="--workers -1: write 0 or more"):
        parse_workers("-1")


def test_without_workers_ray_is_not_imported() -> None:
    code = (
        "import sys; from ray_jobs.fan_out import map_ordered;"
        "print(list(map_ordered(lambda s, i: s + i, 10, [1, 2])), 'ray' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[11, 12] False\n"


def test_a_machine_without_ray_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "ray":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(RequestError, match=r"pip install 'gangplan\[ray\]'"):
        list(map_ordered(add, 1, [1], workers=2))


@pytest.mark.ray
class TestOnRay:
    @pytest.mark.parametrize("workers", [1, 2, 4])
    def test_answers_come_in_the_order_of_the_items(self, ray_session: None, workers: int) -> None:
        assert list(map_ordered(add, 100, range(20), workers=workers)) == list(range(100, 120))

    def test_an_error_of_ours_arrives_as_it_was(self, ray_session: None) -> None:
        with pytest.raises(RequestError, match="three is too many"):
            list(map_ordered(fail_on_three, 0, [1, 2, 3, 4], workers=2))

    def test_the_part_of_a_killed_worker_is_tried_again(
        self, ray_session: None, tmp_path: Path
    ) -> None:
        said: list[str] = []
        found = map_ordered(die_once, str(tmp_path), range(5), workers=2, progress=said.append)
        assert list(found) == [0, 1, 4, 9, 16]
        assert said == ["a worker died; trying part 3 again"]

    def test_a_part_that_kills_every_worker_is_given_up(
        self, ray_session: None, tmp_path: Path
    ) -> None:
        with pytest.raises(RequestError, match=r"part 1 of 1 ended its worker 3 times"):
            list(map_ordered(die_always, str(tmp_path), [1], workers=1))


@pytest.mark.parametrize(
    ("address", "want"),
    [
        pytest.param("127.0.0.1:1", "Ray does not answer (Connection refused)", id="nobody"),
        pytest.param("ray://127.0.0.1:1", "Ray does not answer (Connection refused)", id="client"),
        pytest.param("somewhere", "write a number, auto, HOST:PORT", id="no port"),
        pytest.param("h:99999999", "Ray does not answer", id="no such port"),
    ],
)
def test_an_address_that_does_not_answer_is_refused(address: str, want: str) -> None:
    pytest.importorskip("ray")
    with pytest.raises(RequestError) as problem:
        list(map_ordered(add, 0, [1], workers=address))
    assert str(problem.value).startswith(f"--workers {address}: ")
    assert want in str(problem.value)
