"""A command line as a Ray job: inputs go along, logs are streamed, the answer comes back.

The job runs from an unpacked copy of a folder that holds our own packages and the input files, so
the cluster needs our dependencies but not us. What the command answers is written to a file there
and handed back through the job's log, between markers, because a cluster shares no disk with us.

Source: Ray Jobs SDK; KubeRay `ray.io/v1` RayJob.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import re
import shlex
import shutil
import tempfile
import time
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from topology.errors import RequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Finished", "Job", "describe_ray_job", "prepare_job", "submit_job"]

ANSWER: Final = "answer"
BEGIN: Final = "-----BEGIN GANGPLAN ANSWER-----"
END: Final = "-----END GANGPLAN ANSWER-----"
_PACKAGES: Final = ("topology", "data", "optimizer", "ray_jobs", "gangplan")
_LINE: Final = 4096
_URI: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Job:
    """What is sent to a cluster."""

    entrypoint: str
    """A shell command, run in the unpacked folder."""
    inputs: tuple[tuple[Path, str], ...] = ()
    """(local file or folder, name in the job's folder)."""
    brings_answer: bool = True
    """The answer comes back through the log; else the command writes it where it was told."""
    output: str | None = None
    """Local file for the answer, None for standard output."""
    runtime_env: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """How a job ended."""

    status: int
    """Exit status of the command."""
    answer: bytes = b""


def prepare_job(args: Sequence[str], runtime_env: dict[str, Any] | None = None) -> Job:
    """Turn a command line into a job.

    Args:
      args: Command and arguments as after `gangplan`. Arguments (and values after `=`) that are
        local files or folders go along; the value of -O stays here unless it is a URI.
      runtime_env: What else the job needs, as Ray takes it (`pip`, `env_vars` …).

    Raises:
      RequestError: Standard input is to be read, or nothing is asked.
    """
    if not args:
        raise RequestError("submit: which command? write gangplan submit whatif SNAPSHOT ...")
    if "-" in args:
        raise RequestError("submit: a job has no standard input; give a file")
    inputs: list[tuple[Path, str]] = []
    sent: list[str] = []
    output: str | None = None
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        option, equals, value = arg.partition("=")
        if option in ("-O", "--output"):
            output = value if equals else (rest.pop(0) if rest else "")
            continue
        if equals and option.startswith("-"):
            sent.append(f"{option}={_take_along(value, inputs)}")
        else:
            sent.append(_take_along(arg, inputs))
    goes_elsewhere = output is not None and _URI.match(output) is not None
    ending = Path(output).suffix if output else ""
    target = str(output) if goes_elsewhere else ANSWER + (ending or ".txt")
    command = shlex.join(["python", "-m", "gangplan", *sent, "-O", target])
    if not goes_elsewhere:
        hand_back = shlex.join(["python", "-m", "ray_jobs.hand_back", target])
        command = f"{command}; status=$?; {hand_back}; exit $status"
    return Job(
        command,
        tuple(inputs),
        not goes_elsewhere,
        None if goes_elsewhere else output,
        runtime_env or {},
    )


def _take_along(text: str, inputs: list[tuple[Path, str]]) -> str:
    if not text or text.startswith("-") or _URI.match(text):
        return text
    path = Path(text)
    if not path.exists():
        return text
    known = {source: name for source, name in inputs}
    if path not in known:
        inputs.append((path, f"inputs/{len(inputs)}/{path.resolve().name}"))
        known[path] = inputs[-1][1]
    return known[path]


def submit_job(
    job: Job, address: str, *, say: Callable[[str], None], job_id: str | None = None
) -> Finished:
    """Run a job and wait for it.

    Args:
      job: As `prepare_job` makes it.
      address: Of the dashboard, `http://HOST:8265`.
      say: Called with every line of the job's log but the answer.
      job_id: The submission id; the default is made from what is submitted and the time.

    Raises:
      RequestError: Ray is missing, does not answer, or the job could not be started.
    """
    try:
        from ray.job_submission import JobSubmissionClient
    except ImportError:
        raise RequestError(
            "submit: needs Ray, which is not installed; pip install 'gangplan[ray]'"
        ) from None
    logging.getLogger("ray").setLevel(logging.WARNING)  # it tells of every upload
    with tempfile.TemporaryDirectory(prefix="gangplan-job-") as folder:
        _pack(job, Path(folder))
        try:
            client = JobSubmissionClient(address)
            own_id = client.submit_job(
                entrypoint=job.entrypoint,
                submission_id=job_id or _make_id(job),
                runtime_env={**job.runtime_env, "working_dir": folder},
            )
        except Exception as problem:  # the client raises what its transport raises
            raise RequestError(
                f"--address {address}: {_shorten(problem)}; give the dashboard's, such as "
                "http://HEAD:8265"
            ) from None
    say(f"submitted as {own_id}; stop it by: ray job stop --address {address} {own_id}")
    try:
        return _follow(client, own_id, say)
    except KeyboardInterrupt:
        client.stop_job(own_id)
        say(f"stopped {own_id}")
        raise
    except RequestError:
        raise
    except Exception as problem:
        raise RequestError(
            f"--address {address}: lost job {own_id} ({_shorten(problem)}); look for it by: "
            f"ray job status --address {address} {own_id}"
        ) from None


def _pack(job: Job, folder: Path) -> None:
    import importlib

    for package in _PACKAGES:
        source = Path(next(iter(importlib.import_module(package).__path__)))
        ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
        shutil.copytree(source, folder / package, ignore=ignore)
    for source, name in job.inputs:
        target = folder / name
        target.parent.mkdir(parents=True)
        if source.is_dir():
            shutil.copytree(source, target)
        else:
            shutil.copy(source, target)


def _make_id(job: Job) -> str:
    seed = f"{job.entrypoint} {time.time_ns()}".encode()
    return f"gangplan-{hashlib.sha256(seed).hexdigest()[:12]}"


def _follow(client: Any, job_id: str, say: Callable[[str], None]) -> Finished:
    """Hand on the log as it grows, keep the answer back, and wait for the end."""
    seen = 0
    answer: list[str] = []
    is_answer = False
    while True:
        status = client.get_job_status(job_id)
        log = client.get_job_logs(job_id)
        end = len(log) if status.is_terminal() else log.rfind("\n") + 1
        for line in log[seen:end].splitlines():
            if line == BEGIN:
                is_answer = True
            elif line == END:
                is_answer = False
            elif is_answer:
                answer.append(line)
            elif line:
                say(line)
        seen = max(seen, end)
        if status.is_terminal():
            break
        time.sleep(_POLL_S)
    info = client.get_job_info(job_id)
    code = info.driver_exit_code
    if str(status) == "STOPPED":
        raise RequestError(f"submit: job {job_id} was stopped before it ended")
    if code is None:
        raise RequestError(f"submit: job {job_id} did not start: {_shorten(info.message)}")
    return Finished(int(code), _unpack("".join(answer)))


def _unpack(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text)) if text else b""


def pack_answer(content: bytes) -> list[str]:
    """Return the lines between which and in which an answer goes through a log."""
    text = base64.b64encode(zlib.compress(content)).decode()
    body = [text[at : at + _LINE] for at in range(0, len(text), _LINE)]
    return [BEGIN, *body, END]


def _shorten(problem: object) -> str:
    return " ".join(str(problem).split())[:200]


def describe_ray_job(args: Sequence[str], *, name: str, image: str, workers: int) -> dict[str, Any]:
    """Return a KubeRay RayJob that runs a command on a cluster of its own.

    Args:
      args: Command and arguments; inputs and outputs have to be URIs or paths of the image.
      name: Of the RayJob.
      image: Holds Ray and gangplan.
      workers: Worker pods.
    """
    container = {
        "image": image,
        "resources": {"limits": {"cpu": "4", "memory": "16Gi"}},
    }
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": {
            "entrypoint": shlex.join(["python", "-m", "gangplan", *args, "--workers", "auto"]),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": 3600,
            "rayClusterSpec": {
                "headGroupSpec": {
                    "rayStartParams": {},
                    "template": {"spec": {"containers": [{"name": "ray-head", **container}]}},
                },
                "workerGroupSpecs": [
                    {
                        "groupName": "workers",
                        "replicas": workers,
                        "minReplicas": workers,
                        "maxReplicas": workers,
                        "rayStartParams": {},
                        "template": {"spec": {"containers": [{"name": "ray-worker", **container}]}},
                    }
                ],
            },
        },
    }
