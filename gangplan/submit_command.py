"""The command `submit`: another command as a Ray job."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from gangplan.answers import open_streams
from gangplan.exit_status import ANSWERED
from gangplan.options import NoColor, Quiet
from gangplan.streams import write_answer
from topology.errors import RequestError

__all__ = ["submit"]

SUBMITTED: Final = ("explain", "place", "preempt", "repack", "whatif")
"""Commands that run as jobs."""


def submit(
    context: typer.Context,
    command: Annotated[
        str,
        typer.Argument(metavar="COMMAND ARGS...", help="What to run.", show_default=False),
    ],
    address: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_API_SERVER_ADDRESS",
            help="The dashboard of the Ray cluster, http://HOST:8265.",
            show_default=False,
        ),
    ] = None,
    runtime_env: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="What the job needs beside us, as Ray's runtime_env in YAML (pip, env_vars ...).",
            show_default=False,
        ),
    ] = None,
    emit: Annotated[
        Literal["rayjob"] | None,
        typer.Option(help="Print a KubeRay manifest instead of submitting.", show_default=False),
    ] = None,
    image: Annotated[str, typer.Option(help="Image of --emit: Ray and gangplan.")] = (
        "registry.example.com/gangplan-ray:latest"
    ),
    quiet: Quiet = False,
    no_color: NoColor = False,
) -> int:
    """Run a command as a Ray job, show its log, fetch its answer."""
    streams = open_streams(context, quiet, no_color)
    args = [command, *context.args]
    from ray_jobs.submission import describe_ray_job, prepare_job, submit_job

    if command not in SUBMITTED:
        raise RequestError(f"submit: {command} is not run as a job; use {', '.join(SUBMITTED)}")
    if emit is not None:
        from data.encode import to_yaml

        manifest = describe_ray_job(args, name=f"gangplan-{command}", image=image, workers=2)
        write_answer(to_yaml(manifest), None)
        return ANSWERED
    if address is None:
        raise RequestError("submit: to which cluster? give --address http://HOST:8265")
    from gangplan.plan_files import load_document

    job = prepare_job(args, None if runtime_env is None else load_document(str(runtime_env)))
    done = submit_job(job, address, say=streams.note)
    if job.brings_answer and done.answer:
        write_answer(done.answer, None if job.output is None else Path(job.output))
    return done.status
