"""Command lines as Ray jobs: what goes along, and a real cluster of one node."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ray_jobs.submission import BEGIN, END, _unpack, pack_answer, prepare_job
from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "tests" / "cases" / "whatif-rack-and-drain" / "snapshot.yaml"


def test_local_files_go_along(tmp_path: Path) -> None:
    file = tmp_path / "fleet.json"
    file.touch()
    job = prepare_job(["place", str(file), f"--plan={file}", "--group", "ml/a b", "-o", "json"])
    assert job.inputs == ((file, "inputs/0/fleet.json"),)
    assert job.entrypoint == (
        "python -m gangplan place inputs/0/fleet.json --plan=inputs/0/fleet.json --group 'ml/a b' "
        "-o json -O answer.txt; status=$?; python -m ray_jobs.hand_back answer.txt; exit $status"
    )


def test_an_output_that_all_can_reach_is_written_there() -> None:
    job = prepare_job(["whatif", "s3://b/fleet", "-O", "s3://b/out"])
    assert job.entrypoint == "python -m gangplan whatif s3://b/fleet -O s3://b/out"
    assert not job.brings_answer


def test_a_local_output_stays_here() -> None:
    job = prepare_job(["place", "s3://b/fleet", "--output=plan.json"])
    assert (job.output, job.brings_answer) == ("plan.json", True)
    assert "-O answer.json;" in job.entrypoint


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(RequestError, match="which command"):
        prepare_job([])


@pytest.mark.parametrize("content", [b"", b"x", os.urandom(50_000)], ids=["empty", "one", "many"])
def test_answers_survive_a_log(content: bytes) -> None:
    first, *body, last = pack_answer(content)
    assert (first, last) == (BEGIN, END)
    assert _unpack("".join(body)) == content


def find_ports(count: int) -> list[int]:
    """Return free ports, so that another Ray of this machine is not in the way."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A head with dashboard, on ports of its own; its address and token as variables."""
    pytest.importorskip("ray")
    folder = tmp_path_factory.mktemp("ray")
    token = folder / "token"
    token.write_text(secrets.token_urlsafe(32))
    token.chmod(0o600)
    here = os.path.dirname(sys.executable)
    env = {
        **os.environ,
        "PATH": f"{here}{os.pathsep}{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "JAX_PLATFORMS": "cpu",
    }
    port, dashboard, agent, metrics, client = find_ports(5)
    short = Path("/tmp", f"gp{os.getpid()}")  # Ray's sockets have short names only
    head = subprocess.Popen(
        [
            *("ray", "start", "--head", f"--port={port}", "--dashboard-host=127.0.0.1"),
            *(f"--dashboard-port={dashboard}", "--num-cpus=2", "--disable-usage-stats"),
            *(f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}"),
            *(f"--ray-client-server-port={client}", "--object-store-memory=300000000"),
            *(f"--temp-dir={short}", "--block"),
        ],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    env["RAY_API_SERVER_ADDRESS"] = f"http://127.0.0.1:{dashboard}"
    for _ in range(60):
        listed = subprocess.run(["ray", "job", "list"], env=env, capture_output=True, check=False)
        if listed.returncode == 0:
            break
        time.sleep(1)
    else:
        head.terminate()
        pytest.skip("no Ray head could be started here")
    yield env
    head.terminate()
    head.wait(timeout=60)


def submit(env: dict[str, str], *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gangplan", "submit", *args],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.ray
class TestOnCluster:
    def test_the_answer_is_that_of_the_command(self, cluster: dict[str, str]) -> None:
        args = ["place", str(FLEET), "-o", "json"]
        here = subprocess.run(
            [sys.executable, "-m", "gangplan", *args], cwd=ROOT, capture_output=True, check=True
        )
        done = submit(cluster, *args)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == json.loads(here.stdout)
        assert "submitted as gangplan-" in done.stderr

    def test_the_status_is_that_of_the_command(self, cluster: dict[str, str]) -> None:
        done = submit(cluster, "place", str(FLEET), "--group", "work/nobody")
        assert done.returncode == 2
        assert "--group work/nobody: no such group was read" in done.stderr

    def test_scenarios_on_the_workers_of_the_cluster(
        self, cluster: dict[str, str], tmp_path: Path
    ) -> None:
        scenarios = tmp_path / "s.yaml"
        scenarios.write_text("- {name: a, cordon: [n11]}\n- {name: b, fail: [n12]}\n")
        done = submit(
            cluster,
            *("whatif", str(FLEET), "--scenarios", str(scenarios), "-o", "name"),
            *("--workers", "auto"),
        )
        assert (done.returncode, done.stdout) == (0, "a\nb\n"), done.stderr

    def test_plain_ray_job_submit(self, cluster: dict[str, str], tmp_path: Path) -> None:
        scenarios = tmp_path / "s.yaml"
        scenarios.write_text("- {name: a}\n")
        out = tmp_path / "out"
        done = subprocess.run(
            [
                *("ray", "job", "submit", "--working-dir", ".", "--"),
                *("python", "-m", "ray_jobs.whatif", str(FLEET), "--scenarios", str(scenarios)),
                *("-O", str(out), "--quiet"),
            ],
            cwd=ROOT,
            env=cluster,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert (out / "part-00000.parquet").is_file()


@pytest.mark.ray
def test_a_dashboard_that_does_not_answer_is_refused() -> None:
    pytest.importorskip("ray")
    done = submit({**os.environ}, "place", str(FLEET), "--address", "http://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: --address http://127.0.0.1:1: ")
