"""A whole stream in this process, on Beam's in-process runner: for a team without Flink, and for the first evening.

The stages are those on Flink. What Flink keeps is in a folder: snapshots of the ledgers, and how far the routers are.
A process that is killed goes on from there, and from the logs of its ledgers, which are in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from time import monotonic

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner

from opicflow.connectors.files.locked_folder import locked_folder
from opicflow.connectors.files.whole_file import remove_leftovers
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.rounds import Stopping
from opicflow.connectors.runs import closing_run, kept
from opicflow.connectors.storage.folder import StorageFolder
from opicflow.pipelines.stages.bundle_ends import bundles_end_sooner
from opicflow.pipelines.stream.pipeline import Stream, StreamConfig
from opicflow.pipelines.stream.routers import RouterStates
from opicflow.pipelines.stream.snapshot_store import Snapshots
from opicflow.schemas.errors import UserError

MOST_ROUNDS = 2000
"""The rounds of one pipeline; the next goes on with its ledgers. Beam keeps 25 KB of each round until the end."""
_ROUTERS = "routers"
_RETRY_SECONDS = 5.0
_LEAST_SECONDS_OF_A_GOOD_RUN = 60.0
_MOST_FAILURES = 10


class StreamFolderRefused(UserError):
    """The folder of a stream cannot be used."""


@contextmanager
def stream_folder(path: Path) -> Iterator[Path]:
    """Use the folder of a stream, and keep other processes out. Raises `StreamFolderRefused`."""
    if (path / "state.json").exists():
        raise StreamFolderRefused(f"{path}: it is the state of a replay: name another folder")
    try:
        (path / _ROUTERS).mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise StreamFolderRefused(f"{path}: cannot be written to ({problem.strerror}): name another folder") from None
    with locked_folder(path, "another stream: end it", StreamFolderRefused, StreamFolderRefused):
        remove_leftovers(path / _ROUTERS, ".*")
        yield path


def snapshots_in(path: Path) -> Snapshots:
    """Return the snapshots in the folder of a stream."""
    folder = path / "snapshots"
    folder.mkdir(parents=True, exist_ok=True)
    return Snapshots(StorageFolder.of(str(folder)))


def run_stream(config: StreamConfig, state: Path, say: Callable[[str], None], stop: Event | None = None) -> None:
    """Run a stream with its state in a folder, until `stop` is set or the process ends.

    While the cluster does not answer, it tries again. Raises `KafkaRefused` if that lasts.
    """
    stop, failures = stop or Event(), 0
    config = replace(config, most_rounds=MOST_ROUNDS, states=RouterStates(state / _ROUTERS))
    while not stop.is_set():
        began = monotonic()
        try:
            _run_until_it_fails(config, stop)
        except KafkaRefused as problem:
            failures = 1 if monotonic() - began > _LEAST_SECONDS_OF_A_GOOD_RUN else failures + 1
            if failures > _MOST_FAILURES:
                raise
            say(f"{problem} (it is tried again in {_RETRY_SECONDS:.0f} s)")
            stop.wait(_RETRY_SECONDS)


def _run_until_it_fails(config: StreamConfig, stop: Event) -> None:
    """Run one pipeline after another, with the same ledgers in this process, until their logs are others."""
    stream = Stream(config)
    run = stream.run
    with closing_run(run):
        kept(run, Stopping, stop)
        while not stop.is_set() and stream.run == run:
            pipeline = beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([]))
            _ = pipeline | "Stream" >> stream
            with bundles_end_sooner():
                pipeline.run().wait_until_finish()
            stream = Stream(config)  # Beam takes a transform for one pipeline
