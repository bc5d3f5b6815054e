"""Another number of shards for a stream that is stopped: nothing is lost, and an interrupted run goes on."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import resolve
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.record_reader import STREAMS, records
from opicflow.connectors.kafka.topics import TopicSpec, make, specs
from opicflow.connectors.storage.folder import StorageFolder, StorageRefused
from opicflow.pipelines.ledger import Certified, Interpolation, LedgerConfig, PolicyEntry, TickEntry
from opicflow.pipelines.ledger.encoding import encode_entry
from opicflow.pipelines.ledger.entries import LogPosition
from opicflow.pipelines.stages.ledger_keeper import LedgerKeeper
from opicflow.pipelines.stages.log_settings import LogRefused
from opicflow.pipelines.stream import resharding
from opicflow.pipelines.stream.rebuilt import Logs, rebuild
from opicflow.pipelines.stream.resharding import NewLogs, Resharding, ReshardProgress
from opicflow.pipelines.stream.snapshot_store import Snapshots
from opicflow.schemas.message_columns import MessageBatch
from opicflow.schemas.records import Audit, Policy
from opicflow.schemas.shards import ShardRanges
from support.commands import command
from support.guides import LOG
from support.memory_folder import MemoryFolder
from support.memory_kafka import MemoryCluster, MemoryConnection
from support.same_bytes import Kill, Killed
from support.services import LocalKafka
from support.stream_logs import StreamLogs, example_logs

INTERPOLATION = LedgerConfig(Interpolation())
CERTIFIED = LedgerConfig(Certified())


@cache
def stored_logs(config: LedgerConfig, shards: int) -> list[list[tuple[int, int, bytes]]]:
    return [log.records for log in example_logs(config, shards, 500).logs]


class Stopped:
    """A stream that is stopped: its logs in a cluster, and a folder for snapshots."""

    def __init__(self, kafka: LocalKafka, prefix: str, folder: Path, config: LedgerConfig, shards: int) -> None:
        self.prefix = prefix
        self.connection = Connection(kafka.brokers)
        self.topic = f"{prefix}page-ledger"
        wanted = specs(prefix, shards, 2, 2)
        make(self.connection, [replace(one, times="CreateTime") if one.name == self.topic else one for one in wanted])
        with Publisher(self.connection) as publisher:  # records keep their times: ticks are hours of the crawl
            for shard, stored in enumerate(stored_logs(config, shards)):
                for _, time_ms, value in stored:
                    publisher.send(self.topic, None, value, shard, time_ms)
        self.snapshots = Snapshots(StorageFolder.of(folder.as_uri()))

    def to(self, shards: int, topic: str | None = None) -> Resharding:
        to_topic = topic or f"{self.topic}-{shards}"
        return Resharding(self.connection, self.prefix, self.topic, to_topic, shards, self.snapshots)

    def ledgers(self, topic: str) -> list[LedgerKeeper]:
        return [rebuild(log, snapshots=self.snapshots) for log in resolve(self.connection, topic)]


def sums(keepers: list[LedgerKeeper]) -> dict[str, float]:
    ledgers = [keeper.ledger for keeper in keepers]
    assert all(ledgers)
    books = [ledger.audit() for ledger in ledgers if ledger]
    return {
        "pages": sum(one.pages for one in ledgers if one),
        "visits": sum(one.visits for one in ledgers if one),
        "minted": sum(book.minted for book in books),
        "drift": sum(abs(book.drift) for book in books),
    }


@pytest.mark.parametrize(("config", "shards", "others"), [(INTERPOLATION, 2, 5), (CERTIFIED, 3, 1)])
def test_new_logs_begin_with_what_the_old_ones_had(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path, config: LedgerConfig, shards: int, others: int
) -> None:
    stream = Stopped(kafka, topic_prefix, tmp_path, config, shards)
    made = stream.to(others).run()
    new, old = stream.ledgers(made.topic), stream.ledgers(stream.topic)
    assert len(new) == others and made.minted == sums(new)["minted"]
    assert sums(new)["drift"] == 0
    for name in ("pages", "visits"):
        assert sums(new)[name] >= sums(old)[name], "transfers on their way may have brought pages to life"
    assert list(made.pages) == [one.ledger.pages for one in new if one.ledger]
    assert max(made.pages) <= 1.3 * sum(made.pages) / others + 50
    for shard, keeper in enumerate(new):
        assert keeper.origin == made.origin and keeper.head.next == 1
        assert made.origin.continues is not None
        assert keeper.fingerprint() == made.origin.continues.fingerprints[shard]
    assert Logs.of(stream.connection, made.topic, stream.snapshots).origin == made.origin
    third = replace(stream.to(4), topic=made.topic).run()
    assert third.minted == made.minted and sum(third.pages) == sum(made.pages)
    assert sums(stream.ledgers(third.topic)) == sums(new)


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_makes_the_same(kafka: LocalKafka, topic_prefix: str, tmp_path: Path) -> None:
    stream = Stopped(kafka, topic_prefix, tmp_path, INTERPOLATION, 2)
    whole = stream.to(3, f"{stream.topic}-whole").run()
    steps: list[ReshardProgress] = []
    stream.to(3, f"{stream.topic}-steps").run(steps.append)
    assert [one.step for one in steps] == ["old ledgers"] * 2 + ["new ledgers"] * 3 + ["snapshots"] * 3

    for last in range(len(steps)):
        with pytest.raises(Killed):
            stream.to(3).run(Kill(last + 1))
        assert sums(stream.ledgers(stream.topic))["drift"] == 0, "the old logs are as they were"
    made = stream.to(3).run()
    assert made.origin == whole.origin and made.pages == whole.pages
    assert stream.to(3).run() == made
    fingerprints = [one.fingerprint() for one in stream.ledgers(made.topic)]
    assert fingerprints == [one.fingerprint() for one in stream.ledgers(whole.topic)]


def refused(run: Resharding, problem: type[Exception] = LogRefused) -> str:
    with pytest.raises(problem) as caught:
        run.run()
    return str(caught.value)


def test_what_cannot_be_divided_is_refused(kafka: LocalKafka, topic_prefix: str, tmp_path: Path) -> None:
    stream = Stopped(kafka, topic_prefix, tmp_path, INTERPOLATION, 2)
    made = stream.to(3).run()
    with Publisher(stream.connection) as publisher:
        policies = (Policy(host="a.example", importance_factor=2.0),)
        entry = PolicyEntry("p", LogPosition(0, 0), LogPosition(1, 0), policies=policies)
        publisher.deliver(stream.topic, [encode_entry(entry)], 0)
        assert "shard 1 has other rules or policies" in refused(stream.to(3))
        publisher.deliver(stream.topic, [encode_entry(entry)], 1)
    assert "begins with another entry" in refused(stream.to(3), KafkaRefused)
    with pytest.raises(
        KafkaRefused, match="it has records, perhaps of a reshard that was interrupted, after which the"
    ):
        stream.to(3).check(is_running=True)
    assert "it has 3 partitions, not 4" in refused(stream.to(4, made.topic), KafkaRefused)
    assert "it has 2 shards already" in refused(stream.to(2, "another"), KafkaRefused)
    for log in resolve(stream.connection, made.topic):
        with pytest.raises(
            LogRefused, match="continues the logs of other shards, so its ledger begins with a snapshot"
        ):
            rebuild(log)
        with pytest.raises(LogRefused, match="has no snapshot"):
            rebuild(log, snapshots=Snapshots(StorageFolder.of((tmp_path / "none").as_uri())))
    with pytest.raises(LogRefused, match="finish opicflow stream reshard"):
        list(LedgerKeeper(0).take(MessageBatch.of(0, [(0, 0, made.origin.entry())])))


def test_a_folder_of_snapshots_that_cannot_be_written_is_refused_before_the_stream_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        stream = MortalRun(StreamLogs(INTERPOLATION, ShardRanges.equal(2)), patch)
        reshard = Resharding(
            MemoryConnection(cluster=stream.cluster), "", "page-ledger", "new", 3, Snapshots(stream.folder)
        )
        reshard.check(is_running=True)
        assert stream.folder.files == {}
        stream.folder.faults["read-only"] = True
        with pytest.raises(StorageRefused, match="is read-only: make it writable, or name another folder"):
            reshard.check(is_running=True)


def test_a_number_of_shards_that_audits_would_mix_up_is_refused(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    stream = Stopped(kafka, topic_prefix, tmp_path, INTERPOLATION, 2)
    audits = [one.record for one in records(stream.connection, "audit", prefix=topic_prefix)]
    assert not audits
    made = stream.to(4).run()
    audits = [one.record for one in records(stream.connection, "audit", prefix=topic_prefix)]
    assert {one.shards for one in audits if isinstance(one, Audit)} == {2}, "what the old ledgers publish at last"
    back = replace(stream.to(2, f"{stream.topic}-back"), topic=made.topic)
    assert "audit has records of other ledgers of 2 shards" in refused(back, KafkaRefused)


def test_logs_that_another_number_of_shards_has_left_behind_are_refused(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    stream = Stopped(kafka, topic_prefix, tmp_path, INTERPOLATION, 2)
    made = stream.to(4).run()
    stream.to(5).run()  # publishes audits of two shards
    of_new_logs = replace(stream.to(3), topic=made.topic)
    assert "a stream of 2 shards has run since these logs ended: name its logs with --ledger" in refused(
        of_new_logs, KafkaRefused
    )


def test_a_run_that_was_killed_when_the_stream_had_begun_is_not_made_again(
    kafka: LocalKafka, topic_prefix: str, tmp_path: Path
) -> None:
    stream = Stopped(kafka, topic_prefix, tmp_path, INTERPOLATION, 2)
    run = stream.to(3)
    assert not run.has_begun(), "there is no such topic"
    made = run.run()
    assert not run.has_begun(), "no job has written anything"
    tick = encode_entry(TickEntry(1))
    with Publisher(stream.connection) as publisher:
        publisher.deliver(made.topic, [tick], 2)
        assert run.has_begun()
        other = replace(run, topic=f"{topic_prefix}audit")
        assert not other.has_begun(), "they continue other logs"
        publisher.deliver(stream.topic, [tick], 0)
    assert not run.has_begun(), "the old logs went on"


def test_the_command_says_what_it_needs(kafka: LocalKafka, topic_prefix: str, tmp_path: Path) -> None:
    words = [
        "stream",
        "reshard",
        "--brokers",
        kafka.brokers,
        "--prefix",
        topic_prefix,
        "--checkpoints",
        tmp_path.as_uri(),
    ]
    assert "name the folder of the stream's snapshots with --snapshots" in command(*words).err
    words += ["--snapshots", tmp_path.as_uri()]
    assert "give the new number of shards with --shards" in command(*words).err
    result = command(*words, "--shards", 3, "--to-ledger", f"{topic_prefix}page-ledger")
    assert result.code == 2 and "name another topic with --to-ledger" in result.err


class MortalRun:
    """A resharding of a stream in memory, whose process ends at one of the moments at which it changes anything."""

    def __init__(self, logs: StreamLogs, patch: pytest.MonkeyPatch) -> None:
        self.cluster = MemoryCluster(1, 0)
        for name in STREAMS:
            self.cluster.make(name, 2, has_broker_times=True)
        topic = self.cluster.make("page-ledger", len(logs.logs), has_broker_times=True)
        for shard, log in enumerate(logs.logs):
            for _, time_ms, value in log.records:
                topic.append(shard, time_ms, value)
        self.old = [list(one.records) for one in topic.partitions]
        self.folder = MemoryFolder()
        self.left = 1 << 30
        arrive, write = MemoryConnection.arrive, MemoryFolder.write
        patch.setattr(MemoryConnection, "arrive", lambda one: self._lives(one.waiting != []) and arrive(one))
        patch.setattr(MemoryFolder, "write", lambda *given: self._lives() and write(*given))
        patch.setattr(resharding, "make", self._make)
        self._arrive = arrive

    def _lives(self, changes: bool = True) -> bool:
        self.left -= changes
        if self.left == 0 and changes:
            raise Killed
        return True

    def _make(self, connection: Connection, wanted: Sequence[TopicSpec], replication: int | None) -> None:
        for spec in wanted:
            if self._lives() and spec.name not in self.cluster.topics:
                self.cluster.make(spec.name, spec.partitions, has_broker_times=True)

    def run(self, changes: int = 1 << 30) -> NewLogs:
        """Run in a new process, which ends before so many changes. Only a part of its records arrives."""
        self.left = changes
        connection = MemoryConnection(cluster=self.cluster)
        try:
            return Resharding(connection, "", "page-ledger", "new-ledger", 3, Snapshots(self.folder)).run()
        except Killed:
            self._arrive(connection, 0.5)
            raise

    def records(self) -> list[list[bytes | None]]:
        return [[one.value for one in log.records] for log in self.cluster.topics["new-ledger"].partitions]

    def fingerprints(self) -> list[str]:
        logs = resolve(MemoryConnection(cluster=self.cluster), "new-ledger")
        return [rebuild(log, snapshots=Snapshots(self.folder)).fingerprint() for log in logs]


@pytest.mark.slow
def test_a_run_that_ends_before_any_of_its_changes_goes_on_and_the_old_logs_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = StreamLogs(CERTIFIED, ShardRanges.equal(2)).read(gzip.decompress(LOG.read_bytes()).splitlines()[:100])
    with monkeypatch.context() as patch:
        whole = MortalRun(logs, patch)
        made = whole.run()
        expected, fingerprints = whole.records(), whole.fingerprints()
    changes, finished = 0, False
    while not finished:
        changes += 1
        with monkeypatch.context() as patch:
            stream = MortalRun(logs, patch)
            try:
                stream.run(changes)
                finished = True
            except Killed:
                pass
            assert [one.records for one in stream.cluster.topics["page-ledger"].partitions] == stream.old
            assert stream.run() == made
            assert stream.records() == expected and stream.fingerprints() == fingerprints
    assert changes > 12
