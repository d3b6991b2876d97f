"""The benchmark for accelerators: what it needs, what it compares, and what it says without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from bench import gpu, table
from bench.kernel_calls import KernelCall, list_calls
from optimizer.kernels.victim_subsets import BestSubset

ROOT = Path(__file__).parents[2]
ABSENT = ("msgspec", "yaml", "pyarrow", "ray", "pydantic", "numba", "ortools", "typer", "rich")


@pytest.fixture
def call() -> KernelCall:
    return next(list_calls(40, candidates=4, gangs=8))


@pytest.fixture
def one_gigabyte_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "measure_bandwidth", lambda device: 1e9)


def test_needs_nothing_but_jax_numpy_scipy_and_networkx() -> None:
    code = f"import sys; sys.modules.update(dict.fromkeys({ABSENT!r}))\n"
    code += "from bench.gpu import list_calls; print(len(list(list_calls(40, candidates=4))))"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert int(ran.stdout) == 8


@pytest.mark.usefixtures("one_gigabyte_a_second")
def test_a_row_for_two_devices(call: KernelCall) -> None:
    cpu = jax.devices("cpu")[0]
    report = gpu.Report([cpu, cpu], seconds=0.0, limit=60.0)
    report.add(40, call)
    (row,) = report.rows
    assert len(row) == len(report.list_heads())
    assert row[:4] == ["40", "fit: pods of 8 classes on every node", "4", "3,072"]
    assert row[-1] == "yes"
    assert report.num_wrong == 0


@pytest.mark.usefixtures("one_gigabyte_a_second")
def test_different_answers_are_counted(call: KernelCall, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = jax.devices("cpu")[0]
    monkeypatch.setattr(gpu, "is_same", lambda left, right: False)
    report = gpu.Report([cpu, cpu], seconds=0.0, limit=60.0)
    report.add(40, call)
    assert report.rows[0][-1] == "NO"
    assert report.num_wrong == 1


@pytest.mark.usefixtures("one_gigabyte_a_second")
def test_what_there_is_no_time_for_is_said(call: KernelCall) -> None:
    report = gpu.Report(jax.devices("cpu")[:1], seconds=0.0, limit=-1.0)
    report.add(40, call)
    assert report.rows == [["40", call.name, "no time left", "", "", "", ""]]


@pytest.mark.usefixtures("one_gigabyte_a_second")
@pytest.mark.parametrize(
    ("num_devices", "want_stored"),
    [
        pytest.param(1, [], id="without an accelerator nothing is stored"),
        pytest.param(2, ["gpu.md"], id="with one it is"),
    ],
)
def test_write(
    num_devices: int,
    want_stored: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    gpu.Report(jax.devices("cpu")[:1] * num_devices, seconds=0.0, limit=60.0).write()
    printed = capsys.readouterr().out
    assert ("JAX found no accelerator: the CPU alone." in printed) is (num_devices == 1)
    assert "copies 1 GB/s; 0 of the quotients next to multiples wrong." in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == want_stored


def make_best(*, words: int = 7, looks: int = 3) -> BestSubset:
    one = np.int32(1)
    return BestSubset(np.array([words], np.int32), one, one, one, np.array([looks], np.int32))


@pytest.mark.parametrize(
    ("left", "right", "want"),
    [
        pytest.param(make_best(), make_best(looks=4), True, id="how long it looked may differ"),
        pytest.param(make_best(), make_best(words=8), False, id="another cost"),
        pytest.param(np.arange(3), np.arange(3), True, id="equal"),
        pytest.param(np.arange(3), np.array([0, 1, 1]), False, id="one domain differs"),
        pytest.param(np.arange(3), np.arange(4), False, id="another shape"),
    ],
)
def test_is_same(left: object, right: object, want: bool) -> None:
    assert gpu.is_same(left, right) is want


def test_quotients_are_exact_on_the_cpu() -> None:
    assert gpu.count_wrong_quotients(jax.devices("cpu")[0]) == 0
