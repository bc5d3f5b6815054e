"""A stream in one process, on Beam's in-process runner: what it counts is in Kafka once, whatever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.storage.folder import StorageFolder
from opicflow.pipelines.cli.stream_options import DIRECT_RUNNER
from opicflow.pipelines.lab.web.webs import power_law_web
from opicflow.pipelines.stream.one_process import MOST_ROUNDS, StreamFolderRefused, stream_folder
from opicflow.pipelines.stream.resharding import Resharding
from opicflow.pipelines.stream.snapshot_store import Snapshots
from support.commands import command, output_of, refusal
from support.logs import WebLog, jsonl
from support.services import LocalKafka
from support.waiting import wait_for

SHARDS = 3


RUN = """
import logging, sys
logging.disable(logging.WARNING)  # as the command does before it imports Beam
from opicflow.pipelines.cli.main import main
from opicflow.pipelines.stream import one_process

one_process.MOST_ROUNDS = {}
sys.exit(main())
"""


def _begun(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Topics:
    """The topics of a test, and a stream of them in a process of its own."""

    def __init__(self, kafka: LocalKafka, prefix: str, folder: Path) -> None:
        self._at = ["--brokers", kafka.brokers, "--prefix", prefix]
        self.folder = folder
        output_of("topics", "create", "--shards", str(SHARDS), "--replication", "1", *self._at)

    @contextmanager
    def running(self, *more: str, most_rounds: int = MOST_ROUNDS) -> Iterator[subprocess.Popen[str]]:
        """Run the stream in another process, which is killed at the end."""
        words = ["stream", "--set", "snapshot-mb=0.05", "--runner", DIRECT_RUNNER, "--state", f"{self.folder}/state"]
        process = _begun([sys.executable, "-c", RUN.format(most_rounds), *words, *self._at, *more])
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def publishing(self, log: Path, rate: int = 100_000) -> subprocess.Popen[str]:
        """Publish events from another process."""
        words = ["publish", "events", str(log), "--quiet", "--rate", str(rate)]
        return _begun([sys.executable, "-m", "opicflow.pipelines.cli", *words, *self._at])

    def publish(self, log: Path) -> None:
        process = self.publishing(log)
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err

    def audit(self) -> dict[str, Any]:
        result = command("audit", "--json", *self._at)
        return {} if result.code == 2 else json.loads(result.out)

    def wait_for_visits(self, visits: int, seconds: float = 90.0) -> None:
        wait_for(f"{visits} visits", lambda: self.audit().get("visits") == visits, seconds)

    def prove(self, *more: str) -> str:
        return command("audit", "--prove", *self._at, *more).out


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.jsonl"
    path.write_bytes(jsonl(WebLog(power_law_web(500, 3, dangling=0.1)).crawl("random", 6000).events))
    return path


def pause(seconds: float) -> None:
    threading.Event().wait(seconds)


@pytest.mark.slow
def test_every_event_is_counted_once_though_the_process_is_killed(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path, log: Path, seed: int
) -> None:
    topics, chance = Topics(kafka, topic_prefix, tmp_path), Random(seed)
    publishing = topics.publishing(log, 400)
    for _ in range(4):
        with topics.running() as process:
            pause(chance.uniform(2, 8))
            if chance.random() < 0.5:
                process.send_signal(signal.SIGSTOP)
                pause(1)
    _, err = publishing.communicate(timeout=120)
    assert publishing.returncode == 0, err
    with topics.running() as process:
        topics.wait_for_visits(6000)
        assert f"proven: all {SHARDS} ledgers equal their logs" in topics.prove()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == f"the stream runs in this process, with {SHARDS} shards; Ctrl-C ends it\n"
    assert err == f"opicflow: stopped: the same command continues from {tmp_path / 'state'}\n"
    assert any((tmp_path / "state" / "snapshots").rglob("manifest.json"))
    assert topics.audit()["visits"] == 6000


@pytest.mark.slow
def test_pipelines_follow_one_another_with_the_same_ledgers(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path, log: Path
) -> None:
    """A pipeline of four rounds ends within some seconds: events come during some of them."""
    topics = Topics(kafka, topic_prefix, tmp_path)
    with topics.running(most_rounds=4) as process:
        publishing = topics.publishing(log, 600)
        topics.wait_for_visits(6000)
        publishing.communicate(timeout=60)
        assert "proven" in topics.prove()
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err.count("\n")) == (0, 1), err


@pytest.mark.slow
def test_a_state_that_is_lost_costs_time_alone(kafka: LocalKafka, topic_prefix: str, tmp_path: Path, log: Path) -> None:
    topics = Topics(kafka, topic_prefix, tmp_path)
    topics.publish(log)
    with topics.running():
        topics.wait_for_visits(6000)
    (tmp_path / "state").rename(tmp_path / "lost")
    topics.publish(log)  # the same visits again: duplicates
    with topics.running():
        wait_for("ledgers equal their logs", lambda: "proven" in topics.prove(), 90)
        assert topics.audit()["visits"] == 6000


@pytest.mark.slow
def test_a_state_that_is_lost_after_a_reshard_costs_time_alone(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    """New logs, snapshots of their ledgers and crawl-events are all that is left: each event counts once."""
    topics, ledger, snapshots = (
        Topics(kafka, topic_prefix, tmp_path),
        f"{topic_prefix}page-ledger",
        tmp_path / "ledgers",
    )
    logs = ("--snapshots", snapshots.as_uri(), "--ledger", f"{ledger}-5")
    events = WebLog(power_law_web(500, 3, dangling=0.1)).crawl("random", 7500).events
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    before.write_bytes(jsonl(events[:-1500]))
    after.write_bytes(jsonl(events[-1500:]))
    topics.publish(before)
    with topics.running(*logs[:2]):
        topics.wait_for_visits(6000)
    stored = Snapshots(StorageFolder.of(snapshots.as_uri()))
    Resharding(Connection(kafka.brokers), topic_prefix, ledger, f"{ledger}-5", 5, stored).run()
    (tmp_path / "state").rename(tmp_path / "lost")
    topics.publish(before)  # the same visits again: duplicates
    topics.publish(after)
    with topics.running(*logs):
        topics.wait_for_visits(7500)
        assert "proven: all 5 ledgers equal their logs" in topics.prove(*logs)


@pytest.mark.soak
def test_a_broker_that_is_away_is_waited_for(
    mortal_kafka: LocalKafka, topic_prefix: str, tmp_path: Path, log: Path
) -> None:
    topics = Topics(mortal_kafka, topic_prefix, tmp_path)
    with topics.running() as process:
        topics.publish(log)
        mortal_kafka.kill()
        pause(3)
        mortal_kafka.restart()
        topics.wait_for_visits(6000, 300.0)  # what was being sent is given up after two minutes
        assert process.poll() is None


def refused(*words: object) -> str:
    return refusal("stream", "--runner", DIRECT_RUNNER, "--brokers", "127.0.0.1:1", *words)


def refused_action(action: str) -> str:
    return refusal("stream", action, "--runner", DIRECT_RUNNER, "--brokers", "127.0.0.1:1")


def test_errors_of_users_are_one_line(tmp_path: Path) -> None:
    state = ["--state", tmp_path / "state"]
    assert "--runner DirectRunner: name the folder of the stream's state with --state" in refused()
    assert "--checkpoints: it is for Flink: omit it" in refused(*state, "--checkpoints", "file:///c")
    assert "--flink-master: it is for Flink: omit it" in refused(*state, "--flink-master", "localhost:1")
    assert "stop is for a job on Flink: omit --runner" in refused_action("stop")
    assert "127.0.0.1:1" in refused(*state)
    (tmp_path / "replay").mkdir()
    (tmp_path / "replay" / "state.json").write_text("{}")
    assert "it is the state of a replay: name another folder" in refused("--state", tmp_path / "replay")
    (tmp_path / "file").write_text("")
    assert "cannot be written to" in refused("--state", tmp_path / "file")
    error = refusal("stream", "--state", tmp_path / "x", "--brokers", "127.0.0.1:1", "--checkpoints", "file:///c")
    assert "--state: it is for --runner DirectRunner" in error


def test_a_folder_has_one_stream(tmp_path: Path) -> None:
    in_use = pytest.raises(StreamFolderRefused, match="in use by another stream: end it, or name another folder")
    with stream_folder(tmp_path / "state"), in_use, stream_folder(tmp_path / "state"):
        pass
    with stream_folder(tmp_path / "state"):
        pass
