"""Submits a pipeline to a Flink cluster, and finds the checkpoints that it leaves."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer
from apache_beam.runners.runner import PipelineResult

from opicflow.connectors.flink.key_groups import KEY_GROUPS
from opicflow.connectors.flink.rest import FlinkCluster, FlinkRefused, Job, JobDetails
from opicflow.connectors.flink.worker_environment import worker_options
from opicflow.schemas.errors import in_one_line, interrupted_after

JOB_NAME = "opicflow"
FLINK_RUNNER = "FlinkRunner"
LATEST = "latest"
"""Instead of the path of a savepoint: the newest checkpoint or savepoint."""

FLINK_VERSION = "1.19"
"""The Flink version of the job server that Beam starts. Without it, Beam takes the newest one that it supports."""
MOST_SLOTS = KEY_GROUPS
"""The most parallel tasks of a stage. Another number loses all state."""

_SUBMIT_SECONDS = 300.0
_CONNECT_SECONDS = 10.0
_METADATA = "_metadata"
"""The file that Flink writes last into the folder of a checkpoint or savepoint."""
_MORE_SLOTS = "start TaskManagers, stop other jobs, or give a smaller --parallelism"
_NO_TASK_MANAGERS = (
    "no TaskManager has registered: start them. On Kubernetes, Flink's native mode starts them for a job only: use "
    "'mode: standalone' in the FlinkDeployment, or the setting slotmanager.number-of-slots.min"
)
_STATE_CACHE_MB = 64
"""A worker's cache of state: without it every poll of a partition requests the offset from Flink."""


class _StartOptions(PipelineOptions):
    """An option of Beam that does nothing: Flink shows the options of a job."""

    @classmethod
    def _add_argparse_args(cls, parser: ArgumentParser) -> None:
        parser.add_argument("--opicflow_started_with", help="the options of the command that started the job, as JSON")


class StartedJob(NamedTuple):
    """How a job that runs was started."""

    options: dict[str, object]
    """The options of the command that started it; empty for jobs of older versions."""
    checkpoints: str
    """The folder of its checkpoints, as a value of `--checkpoints`; empty = not known."""


@dataclass(frozen=True)
class FlinkJob:
    """A job of a Flink cluster: where it runs, with which workers and checkpoints."""

    flink_master: str = "localhost:8081"
    """HOST:PORT of Flink's REST interface."""
    name: str = JOB_NAME
    job_server: str | None = None
    """HOST:PORT of Beam's job server; None = Beam starts one."""
    job_server_jar: str | None = None
    checkpoints: str | None = None
    """The URL or path of a folder that all TaskManagers can access."""
    checkpoint_seconds: float = 10.0
    state_backend: str = "rocksdb"
    parallelism: int | None = None
    """None = all free slots."""
    workers: int = 2
    """Python workers of a TaskManager."""
    worker_command: str | None = None
    worker_logs: str | None = None
    worker_image: str | None = None
    started_with: Mapping[str, object] = field(default_factory=dict)
    """The options of the command that starts the job. Flink shows them, and `stream stop` finds them there."""
    beam_options: tuple[str, ...] = ()
    quiet: bool = False

    @property
    def cluster(self) -> FlinkCluster:
        """The cluster of the job."""
        return FlinkCluster(self.flink_master)


def check_free(job: FlinkJob) -> None:
    """Raise `FlinkRefused` if a job of this name runs."""
    if any(not one.ended for one in job.cluster.jobs(job.name)):
        raise FlinkRefused(f"a job {job.name!r} runs there already: see opicflow stream status, or give another --name")


def check_place(job: FlinkJob, freed_slots: int = 0) -> int:
    """Return how many slots a job will use; raises `FlinkRefused` if it cannot be submitted.

    `freed_slots` are those of a job that ends before.
    """
    cluster = job.cluster.overview()
    slots = cluster.slots_free + freed_slots
    parallelism = job.parallelism or min(slots, MOST_SLOTS)
    if parallelism > MOST_SLOTS:
        raise FlinkRefused(f"--parallelism {parallelism}: a stream uses at most {MOST_SLOTS} slots: give a smaller one")
    if not 0 < parallelism <= slots:
        raise FlinkRefused(
            f"{job.flink_master}: {slots} slots are free and {max(parallelism, 1)} are needed: "
            + (_MORE_SLOTS if cluster.task_managers else _NO_TASK_MANAGERS)
        )
    if job.job_server:
        _check_job_server(job.job_server)
    elif not job.job_server_jar:
        _fetch_job_server()
    elif not Path(job.job_server_jar).is_file():
        raise FlinkRefused(f"job-server-jar {job.job_server_jar}: there is no such file: check the path")
    return parallelism


def _check_job_server(address: str) -> None:
    """Raise `FlinkRefused` unless a server of gRPC answers: Beam waits five minutes for another one."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_SECONDS).close()
        with grpc.insecure_channel(address) as channel:
            grpc.channel_ready_future(channel).result(timeout=_CONNECT_SECONDS)
    except grpc.FutureTimeoutError:
        raise FlinkRefused(f"--job-server {address}: it is no job server of Beam: check its address") from None
    except (OSError, ValueError, OverflowError):
        raise FlinkRefused(
            f"--job-server {address}: it cannot be reached: check its address, and that it runs"
        ) from None


def _fetch_job_server() -> None:
    """Fetch the job server that Beam starts, unless it is there. Raises `FlinkRefused`."""
    server = FlinkJarJobServer(PipelineOptions([f"--flink_version={FLINK_VERSION}"]))  # type: ignore[no-untyped-call]
    try:
        server.local_jar(server.path_to_jar())  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError) as problem:
        reason = getattr(problem, "reason", problem)
        raise FlinkRefused(
            f"no job server: the one of Beam for Flink {FLINK_VERSION} cannot be fetched ({in_one_line(reason)}): "
            "name one that runs with --job-server, or its jar with --set job-server-jar=FILE"
        ) from None


def submit(job: FlinkJob, transform: Callable[[int], beam.PTransform[Any, Any]], savepoint: str | None = None) -> Job:
    """Submit a pipeline, and wait until it runs. `transform` is called with the number of slots that it may use."""
    check_free(job)
    flink = job.cluster
    parallelism = check_place(job)
    pipeline = beam.Pipeline(options=PipelineOptions(_beam_options(job, parallelism, savepoint)))
    _ = pipeline | "Stream" >> transform(parallelism)
    if not job.quiet:
        print("submitting: this takes a while", file=sys.stderr, flush=True)
    submitted_ms = max([one.started_ms for one in flink.jobs()], default=0)
    try:
        result = pipeline.run()
    except grpc.RpcError as problem:
        why = problem.details() if isinstance(problem, grpc.Call) else type(problem).__name__
        raise FlinkRefused(
            f"{job.job_server or 'the job server of Beam'}: it did not take the job ({in_one_line(Exception(why))}): "
            "check --job-server, and see its log"
        ) from None
    with interrupted_after(lambda: f"the job was submitted, and goes on: {job.flink_master} shows it"):
        return _wait_until_it_runs(job, submitted_ms, result)


def _wait_until_it_runs(job: FlinkJob, submitted_ms: int, result: PipelineResult) -> Job:
    """Return the job that was submitted after another one, when all of it runs."""
    flink = job.cluster
    why = "see the cluster's page"
    give_up_at = monotonic() + _SUBMIT_SECONDS
    while monotonic() < give_up_at:
        mine = [one for one in flink.jobs(job.name) if one.started_ms > submitted_ms]
        if len([one for one in mine if not one.ended]) > 1:
            flink.find(job.name)  # of two starts at once
        if mine and mine[0].ended:
            raise FlinkRefused(f"the job ended at once ({mine[0].state}): {_trouble(flink.details(mine[0].id))}")
        if mine:
            details = flink.details(mine[0].id)
            if details.runs:
                return mine[0]
            why = _trouble(details)
        if str(result.state) in ("FAILED", "CANCELLED"):
            raise FlinkRefused(f"{job.job_server or job.flink_master}: the job was refused: see its log")
        Event().wait(0.5)
    raise FlinkRefused(
        f"{job.flink_master}: job {job.name!r} does not run after {_SUBMIT_SECONDS:.0f} s, and goes on trying: {why}"
    )


def checkpoint_folder(job: FlinkJob) -> str:
    """Return the URL of the job's own folder of checkpoints, so that `latest` does not find those of another job."""
    if not job.checkpoints:
        raise FlinkRefused(
            "no folder for checkpoints: name one that all TaskManagers can access with --checkpoints, such as "
            "file:///var/lib/opicflow or s3://bucket/opicflow"
        )
    is_uri = re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", job.checkpoints)  # Flink writes file:/var/lib
    uri = job.checkpoints if is_uri else Path(job.checkpoints).absolute().as_uri()
    return f"{uri.rstrip('/')}/{quote(job.name)}"


def savepoint_folder(job: FlinkJob) -> str:
    """Return the URL of the folder of savepoints, which `latest` looks into: below that of the job's checkpoints."""
    return f"{checkpoint_folder(job)}/savepoints"


def started_job(job: FlinkJob, job_id: str) -> StartedJob:
    """Return how a job that runs was started."""
    shown = job.cluster.beam_options(job_id)
    options = json.loads(shown.get("opicflowStartedWith") or "{}")
    return StartedJob(options, shown.get("stateBackendStoragePath", "").rpartition("/")[0])


def savepoint_path(job: FlinkJob, given: str | None) -> str | None:
    """Return the path of a savepoint; of the newest one for `latest`."""
    if given != LATEST:
        path = _local(given) if given else None
        if path and (path.exists() or path.parent.exists()) and not (path / _METADATA).is_file():
            raise FlinkRefused(
                f"--from-savepoint {given}: there is no complete savepoint or checkpoint: check the path"
            )
        return given
    folder = _local(checkpoint_folder(job))
    if folder is None:
        raise FlinkRefused(f"--from-savepoint {LATEST}: only for checkpoints in a folder of this machine: give a path")
    newest = newest_checkpoint(folder)
    if newest is None:
        raise FlinkRefused(f"{folder}: there is no checkpoint and no savepoint: omit --from-savepoint")
    return newest.as_uri()


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the latest complete checkpoint or savepoint below a folder; a job may delete old ones meanwhile."""
    found = []
    for inside, _, files in os.walk(folder):  # a glob would fail on a folder that is deleted meanwhile
        path = Path(inside)
        if _METADATA in files and path.name.startswith(("chk-", "savepoint-")):
            with suppress(FileNotFoundError):
                found.append(((path / _METADATA).stat().st_mtime_ns, path))
    return max(found)[1] if found else None


def _local(uri: str) -> Path | None:
    parts = urlsplit(uri)
    return Path(url2pathname(parts.path)) if parts.scheme in ("file", "") else None


def _beam_options(job: FlinkJob, parallelism: int, savepoint: str | None) -> list[str]:
    """Return the options for Beam. They contain no secret: passwords are in the properties file, where workers run."""
    if job.job_server:
        runner = ["--runner=PortableRunner", f"--job_endpoint={job.job_server}"]
    else:
        runner = [f"--runner={FLINK_RUNNER}", f"--flink_master={job.flink_master}", f"--flink_version={FLINK_VERSION}"]
        runner += [f"--flink_job_server_jar={job.job_server_jar}"] if job.job_server_jar else []
    if job.worker_image:
        workers = ["--environment_type=DOCKER", f"--environment_config={job.worker_image}"]
    else:
        variables = {"OPICFLOW_WORKER_LOGS": job.worker_logs} if job.worker_logs else {}
        workers = worker_options(job.worker_command, variables)
    return [
        *runner,
        *workers,
        "--streaming",
        f"--job_name={job.name}",
        f"--parallelism={parallelism}",
        f"--max_parallelism={MOST_SLOTS}",
        f"--sdk_worker_parallelism={job.workers}",
        f"--checkpointing_interval={int(job.checkpoint_seconds * 1000)}",
        "--fail_on_checkpointing_errors",  # Beam makes false of it: storage that is full does not restart the job
        "--externalized_checkpoints_enabled",
        "--retain_externalized_checkpoints_on_cancellation",
        f"--state_backend={'rocksdb' if job.state_backend == 'rocksdb' else 'filesystem'}",
        f"--state_backend_storage_path={checkpoint_folder(job)}",
        "--max_bundle_size=1",
        f"--max_cache_memory_usage_mb={_STATE_CACHE_MB}",
        "--experiments=disable_logging_submission_environment",  # else a file that only the job server has
        *([f"--savepoint_path={savepoint}"] if savepoint else []),
        f"--opicflow_started_with={json.dumps(dict(job.started_with))}",
        *job.beam_options,
    ]


def _trouble(details: JobDetails) -> str:
    return details.trouble[0].cause if details.trouble else "see the cluster's page"
