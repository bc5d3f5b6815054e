"""The output of `opicflow stream status` and `stop` for a fake cluster. The real one: stream/test_cluster.py."""

from __future__ import annotations

import json
import shlex
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer

from opicflow.connectors.flink.rest import (
    Checkpoint,
    Checkpoints,
    FlinkCluster,
    FlinkRefused,
    Job,
    JobDetails,
    Overview,
    Trouble,
    Vertex,
)
from opicflow.connectors.kafka import connection, partitions
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange
from opicflow.connectors.kafka.record_reader import STREAMS
from opicflow.pipelines.cli.commands import stream as cli_stream
from opicflow.pipelines.cli.main import parse
from opicflow.pipelines.cli.stream_options import default_origin, ledger_topic_of, new_ledger_topic_of, started_with
from opicflow.pipelines.ledger import LedgerConfig
from opicflow.pipelines.stages.log_settings import Continuation, Origin
from opicflow.pipelines.stream import origin, requests, resharding, submit
from opicflow.pipelines.stream.resharding import Resharding
from opicflow.pipelines.stream.submit import FlinkJob, _beam_options, savepoint_path, started_job
from opicflow.schemas.shards import ShardRanges
from support.commands import command, finished, refusal
from support.fake_flink import fake_flink
from support.fake_job_server import fake_job_server
from support.fake_registry import FakeRegistry

METRICS = {
    **{f"pages_shard_{shard}": float(pages) for shard, pages in enumerate((90_000, 10_000))},
    **{f"visits_shard_{shard}": float(visits) for shard, visits in enumerate((5_000, 5_000))},
    **{f"bytes_shard_{shard}": float(size) for shard, size in enumerate((9_000_000, 1_000_000))},
    "unsettled_shard_0": 1.0,
    "unsettled_shard_1": 0.0,
    "certificate_per_million_shard_0": 50.0,
    "certificate_per_million_shard_1": 80.0,
    "pages_off_shard_0": 3.0,
    "pages_off_shard_1": 1200.0,
    "events_read": 7.0,
    "lag_crawl-events_0": 3.0,
    "lag_crawl-events_1": 4.0,
}
NOBODY = "127.0.0.1:1"
"""Brokers that do not answer."""


def checkpoint(path: str, **changes: Any) -> Checkpoint:
    values = {"id": 4, "written_bytes": 2_000_000, "seconds": 1.5}
    return Checkpoint(path=path, **{**values, **changes})


class Stream:
    """A stream on a cluster that answers from here."""

    def __init__(self) -> None:
        self.job = Job("1f" * 16, "opicflow", "RUNNING", 5)
        self.subtasks = {"RUNNING": 2}
        self.trouble: tuple[Trouble, ...] = ()
        self.retained = (checkpoint("file:/var/streams/opicflow/1f1f/chk-4"),)
        self.failed_since_last = 0
        self.restored_path = ""
        self.waiting_since_ms, self.now_ms = 0, 1_767_225_660_000
        self.metrics: dict[str, float] = dict(METRICS)
        self.beam_options = {"stateBackendStoragePath": "file:/var/streams/opicflow"}
        self.folder: str | None = "not stopped"
        self.canceled: list[str] = []

    def details(self) -> JobDetails:
        vertices = (Vertex("2", "Keep", 2, "RUNNING", self.subtasks),)
        return JobDetails(self.job, vertices, 1, 1_767_225_600_000, self.trouble, self.now_ms)

    def checkpoints(self) -> Checkpoints:
        last = (*self.retained, None)[0]
        waits = self.waiting_since_ms
        return Checkpoints(3, 9, self.failed_since_last, 0, 0, last, self.retained, self.restored_path, waits)

    def stop(self, folder: str | None) -> str:
        self.folder = folder
        return f"{folder or 'file:/default'}/savepoint-1"


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    fake = Stream()
    monkeypatch.setattr(FlinkCluster, "find", lambda _, name: fake.job)
    monkeypatch.setattr(FlinkCluster, "details", lambda _, job: fake.details())
    monkeypatch.setattr(FlinkCluster, "checkpoints", lambda _, job: fake.checkpoints())
    monkeypatch.setattr(FlinkCluster, "beam_metrics", lambda _, job: fake.metrics)
    monkeypatch.setattr(FlinkCluster, "beam_options", lambda _, job: fake.beam_options)
    monkeypatch.setattr(FlinkCluster, "stop", lambda _, job, folder: fake.stop(folder))
    monkeypatch.setattr(FlinkCluster, "cancel", lambda _, job: fake.canceled.append(job))
    yield fake


def status(*options: str) -> list[str]:
    return finished("stream", "status", *options).out.splitlines()


def test_the_status_says_how_evenly_pages_are_spread(stream: Stream) -> None:
    lines = status()
    assert "load         shard 0 has the most pages, 1.80 times the mean; shard 0 the most visits, 1.00 times" in lines
    note = "note         dividing is worth it: shard 0 has 1.8 times the mean of pages, and all shards wait for it"
    assert note in "\n".join(lines)
    assert "settled      no, in 1 of 2 shards: while pages are visited again, its errors fall" in lines
    assert "certificate  all errors of importance together are at most 8e-05" in lines
    assert "pages off    1,203 pages have moved by more than a hundredth since they were published" in lines


def test_the_status_shows_a_row_for_each_shard_on_request(stream: Stream) -> None:
    assert "        pages       visits" not in "\n".join(status())
    rows = "\n".join(status("--shard-table"))
    assert "  shard        pages       visits       MB\n      0       90,000        5,000      9.0\n" in rows
    found = json.loads("\n".join(status("--json")))["loads"]
    assert found == [
        {"shard": 0, "pages": 90_000, "visits": 5_000, "bytes": 9_000_000},
        {"shard": 1, "pages": 10_000, "visits": 5_000, "bytes": 1_000_000},
    ]


def test_counts_of_ledgers_are_those_of_their_whole_life(stream: Stream) -> None:
    stream.metrics["visits"] = 12.0  # counted since the last start
    lines = status()
    assert "visits       10,000" in lines and "pages        100,000" in lines
    assert "since start  7 events read, 0 late, 0 duplicates, 0 rejected" in lines
    stream.metrics["refused_ticks"] = 12.0
    assert "since start  7 events read, 0 late, 0 duplicates, 0 rejected, 12 ticks refused: clocks differ" in status()


def test_checkpoints_that_failed_before_the_last_complete_one_are_no_trouble(stream: Stream) -> None:
    assert "checkpoints  3 complete; the last wrote 2.0 MB in 1.5 s" in status()
    stream.failed_since_last = 2
    assert "checkpoints  3 complete, 2 failed since; the last wrote 2.0 MB in 1.5 s" in status()
    stream.retained = ()
    assert "checkpoints  none complete, 2 failed" in status()


def test_trouble_has_a_date_and_is_forgotten_when_it_healed(stream: Stream) -> None:
    after, before = Trouble(1_767_225_600_001, "KafkaRefused: no answer"), Trouble(1_767_225_599_999, "it was away")
    stream.trouble = (after, before)
    assert status()[-1] == "trouble      2026-01-01T00:00:00Z: KafkaRefused: no answer"
    assert "it was away" not in "\n".join(status())
    lasts = [one["lasts"] for one in json.loads("\n".join(status("--json")))["trouble"]]
    assert lasts == [True, False]
    stream.subtasks = {"RUNNING": 1}
    result = command("stream", "status")
    assert result.code == 2 and "it was away" in result.out
    assert result.err.endswith("some tasks do not run: see the trouble above, and the cluster's page\n")


def test_a_job_that_waits_for_slots_says_how_many_are_missing(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlinkCluster, "overview", lambda _: Overview("1.19.0", 1, 2, 1))
    stream.subtasks = {"SCHEDULED": 2}
    result = command("stream", "status")
    words = "the job needs 2, the cluster has 2, 1 free: start another TaskManager\n"
    assert result.code == 2 and result.err.endswith(words), result.err


def test_a_worker_that_hangs_is_trouble_and_its_earlier_values_are_not_shown_as_present(stream: Stream) -> None:
    stream.waiting_since_ms = stream.now_ms - 60_000
    assert "lag          crawl-events: 7 records" in status(), "it may still come"
    stream.waiting_since_ms -= 1000
    result = command("stream", "status")
    assert result.code == 2 and result.err.endswith("see its log; Flink replaces one that is killed\n"), result
    assert "lag          not known while a worker does not answer: see the trouble below" in result.out
    since = "trouble      2025-12-31T23:59:59Z: since then a worker does not answer; all counts are of that time"
    assert result.out.splitlines()[-1] == since
    found = json.loads(command("stream", "status", "--json").out)
    assert (found["lag"], found["checkpoints"]["waiting_since"]) == (None, "2025-12-31T23:59:59Z")


@pytest.mark.slow
def test_brokers_that_do_not_answer_are_named_with_exit_code_2(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BOOTSTRAP_TIMEOUT_SECONDS", 0.5)
    result = command("stream", "status", "--brokers", NOBODY)
    assert result.code == 2
    assert "brokers      do not answer: see the trouble below" in result.out
    assert "lag          not known while the brokers do not answer" in result.out
    assert f"trouble      {NOBODY}: " in result.out
    assert len(result.err.splitlines()) == 1 and "its brokers do not answer: start them" in result.err
    found = json.loads(command("stream", "status", "--brokers", NOBODY, "--json").out)
    assert NOBODY in found["brokers"] and found["lag"] is None


def of_brokers(topic: str, topic_id: str, *ends: int, start: int = 0) -> list[PartitionRange]:
    return [
        PartitionRange(f"kafka/{topic_id}/{number}", Connection(NOBODY), topic, topic_id, number, start, end)
        for number, end in enumerate(ends)
    ]


@pytest.fixture
def on_brokers(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[PartitionRange]]:
    """The topics that the brokers have, by their names."""
    found = {"crawl-events": of_brokers("crawl-events", "e1", 10, 20), "policies": of_brokers("policies", "p1", 0)}
    found["page-ledger"] = of_brokers("page-ledger", "l1", 100, 100, start=40)
    monkeypatch.setattr(partitions, "resolve", lambda connection, topic: found[topic])
    return found


def test_lags_are_what_the_brokers_have_beyond_what_was_read(
    stream: Stream, on_brokers: dict[str, list[PartitionRange]]
) -> None:
    def lags() -> dict[str, int]:
        return json.loads("\n".join(status("--brokers", NOBODY, "--json")))["lag"]

    read = {"read_to_e1_0": 10.0, "read_to_e1_1": 17.0, "read_to_l1_0": 100.0, "read_to_l1_1": 100.0}
    stream.metrics |= read
    assert lags() == {"crawl-events": 3, "policies": 0, "page-ledger": 0}
    assert "lag          crawl-events: 3 records" in status("--brokers", NOBODY)
    on_brokers["crawl-events"] = of_brokers("crawl-events", "e1", 10, 20, 500)
    assert lags()["crawl-events"] == 3 + 500, "nothing of the new partition was read"
    on_brokers["crawl-events"] = of_brokers("crawl-events", "e2", 12, 20, 500)
    assert lags()["crawl-events"] == 532, "the topic was created again: the records read were of another one"
    on_brokers["page-ledger"] = of_brokers("page-ledger", "l2", 100, 100, start=40)
    assert lags()["page-ledger"] == 120, "records that were deleted are not counted"
    on_brokers["page-ledger"] = of_brokers("page-ledger", "l1", 99, 100)
    assert lags()["page-ledger"] == 0, "records read since the ends were found"


def test_lags_are_those_of_the_logs_that_the_stream_was_started_with(
    stream: Stream, on_brokers: dict[str, list[PartitionRange]]
) -> None:
    on_brokers["page-ledger-6"] = of_brokers("page-ledger-6", "l6", 7)
    stream.beam_options["opicflowStartedWith"] = json.dumps({"ledger": "page-ledger-6"})
    assert "lag          page-ledger-6: 7 records" in status("--brokers", NOBODY)


def test_counts_have_their_age_and_those_of_a_worker_that_is_paused_are_not_shown_as_present(stream: Stream) -> None:
    second = stream.now_ms // 1000
    stream.metrics |= {"read_second_e1_0": second - 7.0, "read_second_l1_1": second - 59.0}
    assert "counts       of 2026-01-01T00:00:01Z, 59 s ago" in status()
    stream.metrics["read_second_l1_1"] = second - 61.0
    result = command("stream", "status")
    assert result.code == 2 and "lag          not known while a worker does not answer" in result.out, result
    since = "trouble      2025-12-31T23:59:59Z: since then a worker does not answer; all counts are of that time"
    assert result.out.splitlines()[-1] == since
    found = json.loads(command("stream", "status", "--json").out)
    assert (found["lag"], found["counted_at"]) == (None, "2025-12-31T23:59:59Z")
    stream.subtasks = {"RUNNING": 1}
    shown = command("stream", "status").out
    assert "counts       of 2025-12-31T23:59:59Z, 61 s ago, before the tasks ended" in shown
    stream.metrics.clear()
    shown = command("stream", "status").out
    assert "counts       not known: no worker has reported since the tasks started" in shown
    assert "visits       0" not in shown


def test_nothing_counts_as_lag_before_a_worker_has_reported_where_it_goes_on(
    stream: Stream, on_brokers: dict[str, list[PartitionRange]]
) -> None:
    """A restored stream goes on behind the start of its topics."""
    stream.metrics.clear()
    assert "lag          not known: no worker has reported since the tasks started" in status("--brokers", NOBODY)
    assert json.loads("\n".join(status("--brokers", NOBODY, "--json")))["lag"] is None
    stream.metrics["read_to_e1_0"] = 10.0
    assert "lag          crawl-events: 20 records" in status("--brokers", NOBODY), "its other partition is not read yet"


def test_brokers_that_the_command_does_not_know_are_not_shown_as_answering(stream: Stream) -> None:
    lines = status()
    assert "brokers      not checked: name them with --brokers HOST:PORT" in lines
    assert "lag          crawl-events: 7 records" in lines


def continued(out: str) -> list[str]:
    return shlex.split(out.splitlines()[-1].removeprefix("continue with: "))


def test_a_savepoint_goes_where_latest_looks_and_the_command_to_continue_is_whole(stream: Stream) -> None:
    result = finished("stream", "stop", "--brokers", "b:9092", "--job-server", "j:8099", "--name", "my crawl")
    assert stream.folder == "file:/var/streams/my%20crawl/savepoints"
    assert result.out.splitlines()[0] == f"stopped, with a savepoint: {stream.folder}/savepoint-1"
    assert continued(result.out) == [
        "opicflow",
        "stream",
        *("--brokers", "b:9092"),
        *("--name", "my crawl"),
        *("--flink-master", "localhost:8081"),
        *("--job-server", "j:8099"),
        *("--checkpoints", "file:/var/streams"),
        *("--from-savepoint", f"{stream.folder}/savepoint-1"),
    ]


def test_a_folder_for_checkpoints_that_is_given_is_used(stream: Stream) -> None:
    result = command("stream", "stop", "--checkpoints", "s3://bucket/streams")
    assert stream.folder == "s3://bucket/streams/opicflow/savepoints"
    assert "--checkpoints s3://bucket/streams" in result.out and "--brokers HOST:PORT --from-savepoint" in result.out


def test_a_job_that_shows_no_folder_stops_into_the_folder_of_the_cluster(stream: Stream) -> None:
    stream.beam_options = {}
    result = command("stream", "stop")
    assert stream.folder is None
    assert "--checkpoints URL --from-savepoint file:/default/savepoint-1" in result.out


def test_the_command_to_continue_has_the_options_that_the_stream_was_started_with(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start = ["--brokers", "b:9092", "--job-server", "j:8099", "--checkpoints", "streams", "--snapshots", "s3://b/s"]
    start += ["--set", "snapshot-mb=64", "--set", "keep-snapshots=9", "--set", "worker-logs=logs", "--workers", "2"]
    start += ["--ledger", "page-ledger-6", "--set", "beam-option=--one", "--set", "beam-option=--two", "--hosted"]
    options = parse(["stream", *start])
    stream.beam_options["opicflowStartedWith"] = json.dumps(started_with(options))
    assert continued(command("stream", "stop", "--brokers", "c:9092").out) == [
        *("opicflow", "stream", "--ledger", "page-ledger-6", "--brokers", "c:9092", "--hosted"),
        *("--snapshots", "s3://b/s", "--flink-master", "localhost:8081", "--job-server", "j:8099"),
        *("--set", "beam-option=--one", "--set", "beam-option=--two", "--checkpoints", f"{tmp_path}/streams"),
        *("--workers", "2", "--set", f"worker-logs={tmp_path}/logs"),
        *("--set", "snapshot-mb=64.0", "--set", "keep-snapshots=9"),
        *("--from-savepoint", "file:/var/streams/opicflow/savepoints/savepoint-1"),
    ]


def test_a_job_that_fails_again_and_again_is_canceled_and_the_command_to_continue_is_whole(stream: Stream) -> None:
    stream.subtasks = {"RUNNING": 1}
    stream.beam_options["opicflowStartedWith"] = json.dumps({"ledger": "page-ledger-6", "snapshots": "s3://b/s"})
    where = ("--brokers", "b:9092", "--job-server", "j:8099")
    result = command("stream", "cancel", *where)
    assert (result.code, result.err, stream.canceled, stream.folder) == (0, "", [stream.job.id], "not stopped")
    assert result.out.startswith(f"canceled, without a savepoint: job 'opicflow' ({stream.job.id}); no event is lost\n")
    assert "if its state is the cause, omit --from-savepoint: " in result.out
    newest = stream.retained[0].path
    rest = ["--flink-master", "localhost:8081", "--job-server", "j:8099", "--checkpoints", "file:/var/streams"]
    known = ["opicflow", "stream", "--ledger", "page-ledger-6", "--snapshots", "s3://b/s", "--brokers", "b:9092", *rest]
    assert sorted(continued(result.out)) == sorted([*known, "--from-savepoint", newest])
    found = json.loads(command("stream", "cancel", *where, "--json").out)
    assert (found["checkpoint"], shlex.split(found["continue"])) == (newest, continued(result.out))
    stream.retained = ()
    stream.restored_path = "file:/var/streams/opicflow/savepoints/savepoint-1"
    assert continued(command("stream", "cancel", *where).out)[-1] == stream.restored_path, "it began from there"
    stream.restored_path = ""
    result = command("stream", "cancel", *where)
    assert (
        "--from-savepoint" not in result.out
        and json.loads(command("stream", "cancel", *where, "--json").out)["checkpoint"] is None
    )


def test_flink_shows_the_options_that_a_job_was_started_with() -> None:
    with fake_flink() as flink:
        job = FlinkJob(flink.master, checkpoints="/c", worker_command="/w", started_with={"ledger": "page-ledger-6"})
        options = PipelineOptions(_beam_options(job, 1, None)).get_all_options()
        shown = {"opicflowStartedWith": options["opicflow_started_with"], "stateBackendStoragePath": "file:/c/opicflow"}
        flink.answers[f"GET /jobs/{'1f' * 16}/config"] = {"execution-config": {"user-config": shown}}
        assert started_job(job, "1f" * 16) == ({"ledger": "page-ledger-6"}, "file:/c")
        flink.answers[f"GET /jobs/{'1f' * 16}/config"] = {}
        assert started_job(job, "1f" * 16) == ({}, "")


# -- an upgrade ------------------------------------------------------------------------------------------------------


UPGRADE = ("stream", "upgrade", "--checkpoints", "file:///var/streams", "--brokers", NOBODY)


@pytest.fixture
def ready(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Topics and slots that are as they should be, and a job server. Yields its address."""
    monkeypatch.setattr(cli_stream, "shards_of", lambda options, connection: 4)
    kept = default_origin(4)
    monkeypatch.setattr(origin, "origin_of", lambda connection, topic, snapshots: kept)
    monkeypatch.setattr(resharding, "ran_since", lambda connection, prefix, topic: 0)
    monkeypatch.setattr(FlinkCluster, "overview", lambda _: Overview("1.19", 1, 4, 1))
    with fake_job_server() as address:
        yield address


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("--from-savepoint", "latest"), "upgrade continues from a savepoint of its own: omit --from-savepoint"),
        (("--ledger", "audit"), "--ledger audit: this topic holds something else: name the topic of the ledgers' logs"),
        (("--set", "damping=0.7"), "its ledgers count with other options (damping: 0.85"),
        (("--parallelism", "4"), "3 slots are free and 4 are needed"),
        (("--job-server", NOBODY), f"--job-server {NOBODY}: it cannot be reached"),
        (("--registry", f"http://{NOBODY}"), f"schema registry http://{NOBODY}: it cannot be reached"),
        (("--set", "job-server-jar=/nowhere/a.jar"), "job-server-jar /nowhere/a.jar: there is no such file"),
    ],
)
def test_what_a_start_would_refuse_is_refused_before_the_running_stream_is_stopped(
    stream: Stream, ready: str, options: tuple[str, ...], why: str
) -> None:
    assert why in refusal(*UPGRADE, *(() if "jar" in options[-1] else ("--job-server", ready)), *options)
    assert stream.folder == "not stopped"


def test_logs_that_begin_with_snapshots_need_their_folder(
    stream: Stream, ready: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Origin(LedgerConfig(), ShardRanges.equal(4), continues=Continuation("page-ledger", "id", ("f",) * 4, {}))
    monkeypatch.setattr(origin, "origin_of", lambda connection, topic, snapshots: kept)
    error = refusal(*UPGRADE, "--job-server", ready)
    assert "continue those of page-ledger, and begin with snapshots: name the folder of these with" in error
    assert stream.folder == "not stopped"


def test_logs_that_a_stream_has_left_behind_are_named(
    stream: Stream, ready: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resharding, "ran_since", lambda connection, prefix, topic: 6)
    result = command(*UPGRADE, "--job-server", ready, "--parallelism", "4")
    assert result.code == 2
    assert "a stream of 6 shards has run since the logs in page-ledger ended: if you mean its logs, name" in result.err


def test_a_republication_of_logs_that_a_stream_has_left_behind_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes nothing that anybody reads: after a reshard --ledger was forgotten."""
    monkeypatch.setattr(requests, "republish", lambda connection, topic, snapshots: 4)
    for others, warns in ((6, True), (0, False)):
        monkeypatch.setattr(resharding, "ran_since", lambda connection, prefix, topic, others=others: others)
        result = command("stream", "republish", "--brokers", NOBODY)
        assert result.code == 0 and "page-ledger: 4 shards will publish" in result.out
        assert ("a stream of 6 shards has run since the logs in page-ledger ended" in result.err) is warns


def test_another_server_is_no_job_server(stream: Stream, ready: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = command(*UPGRADE, "--job-server", f"127.0.0.1:{server.getsockname()[1]}")
    assert result.code == 2 and "it is no job server of Beam: check its address" in result.err
    assert stream.folder == "not stopped"


def test_a_job_server_that_cannot_be_fetched_is_named_before_the_running_stream_is_stopped(
    stream: Stream, ready: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(*arguments: Any) -> str:
        raise URLError(OSError("Name or service not known"))

    monkeypatch.setattr(FlinkJarJobServer, "local_jar", fetch)
    error = refusal(*UPGRADE)
    assert "no job server: the one of Beam for Flink 1.19 cannot be fetched" in error
    assert "(Name or service not known): name one that runs with --job-server" in error
    assert stream.folder == "not stopped"


@pytest.mark.parametrize("action", ["upgrade", "reshard"])
def test_a_stream_is_not_stopped_for_logs_that_are_not_its_own(
    stream: Stream, ready: str, action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FlinkCluster, "jobs", lambda _, name=None: [stream.job])
    monkeypatch.setattr(Resharding, "has_begun", lambda _: False)
    stream.beam_options["opicflowStartedWith"] = json.dumps({"ledger": "page-ledger-6"})
    new = ("--shards", "9", "--snapshots", str(tmp_path)) if action == "reshard" else ()
    error = refusal("stream", action, *UPGRADE[2:], "--job-server", ready, *new)
    assert "runs on the logs in page-ledger-6, not page-ledger: give --ledger" in error
    assert stream.folder == "not stopped"


def test_an_upgrade_that_finds_all_it_needs_stops_the_stream(
    stream: Stream, ready: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    running = Job("2e" * 16, "opicflow", "RUNNING", 9)
    registry = FakeRegistry()

    def submit_stream(*arguments: Any) -> Job:
        given.append(arguments)
        assert sorted(registry.subjects) == sorted(f"t-{topic}-value" for topic in STREAMS), "workers only request them"
        return running

    monkeypatch.setattr(cli_stream, "submit_stream", submit_stream)
    with closing(registry):
        options = ("--parallelism", "3", "--registry", registry.url, "--prefix", "t-", "--ledger", "page-ledger")
        result = command(*UPGRADE, "--job-server", ready, *options)
    assert result.code == 0, result
    assert stream.folder == "file:///var/streams/opicflow/savepoints"
    assert given[0][-1] == "file:///var/streams/opicflow/savepoints/savepoint-1"


def test_a_savepoint_that_is_not_there_is_refused_before_anything_is_submitted(ready: str, tmp_path: Path) -> None:
    job = FlinkJob(checkpoints=tmp_path.as_uri())
    for given in (str(tmp_path), (tmp_path / "savepoint-1").as_uri()):
        with pytest.raises(FlinkRefused, match=r"there is no complete savepoint or checkpoint: check the path"):
            savepoint_path(job, given)
    (tmp_path / "_metadata").touch()
    for given in (str(tmp_path), "file:///another/machine/savepoint-1", "s3://bucket/savepoint-1"):
        assert savepoint_path(job, given) == given


@pytest.mark.parametrize(
    "words",
    [
        ("stream", "status"),
        ("rebuild", "--shards", "6"),
        ("audit", "--prove"),
        ("publish", "rules"),
        ("show", "https://a.example/"),
        ("topics", "check"),
    ],
)
def test_the_topic_of_the_logs_is_given_with_or_without_the_prefix(words: tuple[str, ...]) -> None:
    def topic(*given: str) -> str:
        return ledger_topic_of(parse([*words, "--brokers", NOBODY, *given]))

    assert topic() == "page-ledger" and topic("--ledger", "p-page-ledger-6") == "p-page-ledger-6"
    assert topic("--prefix", "p-") == "p-page-ledger"
    for given in ("page-ledger-6", "p-page-ledger-6"):
        assert topic("--prefix", "p-", "--ledger", given) == "p-page-ledger-6"
    with pytest.raises(KafkaRefused, match="p-audit: this topic holds something else"):
        topic("--prefix", "p-", "--ledger", "audit")


def test_the_new_topic_of_the_logs_is_given_with_or_without_the_prefix() -> None:
    def topic(*given: str) -> str:
        return new_ledger_topic_of(parse(["stream", "reshard", "--shards", "6", "--prefix", "p-", *given]))

    assert topic() == topic("--to-ledger", "page-ledger-6") == topic("--to-ledger", "p-page-ledger-6")
    with pytest.raises(KafkaRefused, match="p-page-ledger: this topic holds the present ledgers: name another"):
        topic("--to-ledger", "page-ledger")
