"""Batches filled with whole columns equal, byte for byte, those that kafka-python fills record by record."""

from __future__ import annotations

from random import Random
from typing import Any

import kafka as kafka_python
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import KafkaProducer, TopicPartition
from kafka.cluster import ClusterMetadata
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.record.memory_records import MemoryRecords

from opicflow.connectors.kafka.client.producer_batches import TESTED_VERSIONS, BatchAppender, RecordColumns
from opicflow.connectors.kafka.connection import Connection
from opicflow.connectors.kafka.publisher import Publisher
from opicflow.connectors.kafka.topics import TopicSpec, make
from opicflow.schemas.arrays import Ints
from support.services import LocalKafka, raw_records

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("topic", 3)

some = st.one_of(st.none(), st.binary(max_size=300))
rows = st.lists(st.tuples(some, some).filter(lambda row: row != (None, None)), min_size=1, max_size=60)


class Alone:
    """A producer without a cluster: records stay in its batches."""

    def __init__(self, batch_size: int) -> None:
        self.config = {"batch_size": batch_size, "linger_ms": 3_600_000}
        self.woken = 0
        self._accumulator: Any = RecordAccumulator(
            batch_size=batch_size, linger_ms=10, retry_backoff_ms=100, message_version=2, compression_attrs=0
        )
        self._metadata = ClusterMetadata()
        self._sender = self

    def wakeup(self) -> None:
        """Count the call; there is no thread that sends."""
        self.woken += 1

    def batches(self) -> list[Any]:
        return list(self._accumulator._batches[PARTITION])

    def records(self) -> list[bytes]:
        """Return the bytes of each batch."""
        found = []
        for batch in self.batches():
            batch.records.close()
            found.append(bytes(batch.records.buffer()))
        return found


def together(
    producer: Any, records: list[tuple[bytes | None, bytes | None]], times_ms: Ints | int = NOW_MS
) -> list[Any]:
    keys, values = zip(*records, strict=True)
    return list(
        BatchAppender(producer).append("topic", 3, RecordColumns.of(keys, values, times_ms), np.arange(len(keys)))
    )


def test_the_installed_version_of_kafka_python_is_supported() -> None:
    assert kafka_python.__version__.startswith(TESTED_VERSIONS)


@given(st.lists(rows, min_size=1, max_size=4), st.integers(100, 3000), st.randoms(use_true_random=False))
def test_batches_equal_those_of_kafka_python(calls: list[Any], batch_size: int, random: Random) -> None:
    ours, theirs = Alone(batch_size), Alone(batch_size)
    for number, records in enumerate(calls):
        spread = 10 ** random.randint(0, 9)
        times = [NOW_MS + 7 * number + random.randint(-spread, spread) * (number % 2) for _ in records]
        chunks = together(ours, records, np.array(times, np.int64) if number % 2 else times[0])
        assert sum(chunk.records for chunk in chunks) == len(records)
        assert sum(chunk.size_bytes for chunk in chunks) == sum(
            (-1 if one is None else len(one)) for record in records for one in record
        )
        for time_ms, (key, value) in zip(times, records, strict=True):
            theirs._accumulator.append(PARTITION, time_ms, key, value, [])
    assert [batch.record_count for batch in ours.batches()] == [batch.record_count for batch in theirs.batches()]
    assert ours.records() == theirs.records()


def test_both_ways_to_append_may_alternate() -> None:
    ours, theirs = Alone(400), Alone(400)
    records: list[tuple[bytes | None, bytes | None]] = [(b"k%d" % n, b"v" * n) for n in range(40)]
    together(ours, records[:15])
    for key, value in records[15:20]:
        BatchAppender(ours).append_one("topic", 3, key, value, NOW_MS)
    together(ours, records[20:])
    for key, value in records:
        theirs._accumulator.append(PARTITION, NOW_MS, key, value, [])
    assert ours.records() == theirs.records()


def test_a_chunk_is_done_with_its_batch() -> None:
    producer = Alone(1000)
    chunks = together(producer, [(b"key", b"x" * 90)] * 30)
    assert len(chunks) > 1
    for batch, chunk in zip(producer.batches(), chunks, strict=True):
        assert not chunk.future.is_done
        batch.done(base_offset=100, timestamp_ms=-1)
        assert chunk.future.succeeded() and chunk.future.value.offset == 100 + chunk.records - 1


def test_a_record_larger_than_a_batch_has_its_own() -> None:
    producer = Alone(200)
    chunks = together(producer, [(b"a", b"1"), (b"b", b"2" * 5000), (b"c", b"3")])
    assert [chunk.records for chunk in chunks] == [1, 1, 1]
    (batch,) = MemoryRecords(producer.records()[1])
    assert [record.value for record in batch] == [b"2" * 5000]


def test_the_sender_is_woken_if_it_would_be_late() -> None:
    producer = Alone(400)
    bulk, records = BatchAppender(producer), RecordColumns.of([b"key"] * 2, [b"x" * 150] * 2, NOW_MS)

    def woken_by(partition: int, together: bool = False) -> int:
        """Append one record or two, and return how often the sender was woken."""
        before = producer.woken
        if together:
            list(bulk.append("topic", partition, records, np.arange(2)))
        else:
            assert not bulk.append_one("topic", partition, b"key", b"x" * 150, NOW_MS).is_done
        return producer.woken - before

    assert woken_by(0) == 1  # the first batch
    assert [woken_by(1), woken_by(2), woken_by(3, together=True)] == [0, 0, 0]  # the sender is awake
    assert woken_by(0) == 0
    assert woken_by(0) == 1  # a full batch is sent without a delay
    assert woken_by(3, together=True) == 1
    producer._accumulator._batches.clear()  # all was sent
    assert woken_by(4) == 1
    producer._accumulator.muted.add(TopicPartition("topic", 4))
    assert woken_by(5) == 1  # partition 4 waits for an answer
    bulk._woken_at -= 3_600_000
    assert woken_by(6) == 1  # the last call was long ago


def test_only_producers_of_supported_versions_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BatchAppender.of(object()) is None
    producer = KafkaProducer.__new__(KafkaProducer)
    producer._closed = True  # so that it is not closed again
    producer.config = Alone(100).config
    producer._accumulator = Alone(100)._accumulator
    assert BatchAppender.of(producer) is not None
    monkeypatch.setattr(kafka_python, "__version__", "4.0.0")
    assert BatchAppender.of(producer) is None


@pytest.mark.slow
def test_records_sent_together_arrive_each_once_and_in_order(kafka: LocalKafka, topic_prefix: str) -> None:
    topic = f"{topic_prefix}bulk"
    connection = Connection(kafka.brokers)
    make(connection, [TopicSpec(topic, 3, "delete", "CreateTime")])
    random = np.random.default_rng(1)
    sent: dict[int, list[tuple[bytes, bytes | None]]] = {0: [], 1: [], 2: []}
    with Publisher(connection) as publisher:
        for call in range(30):
            count = int(random.integers(1, 3000))
            partitions = random.integers(0, 3, count).tolist()
            keys = [b"%d-%d" % (call, row) for row in range(count)]
            values = [None if row % 50 == 7 else random.bytes(int(random.integers(0, 400))) for row in range(count)]
            assert publisher.send_many(topic, partitions, keys, values) == []
            for partition, key, value in zip(partitions, keys, values, strict=True):
                sent[partition].append((key, value))
            publisher.send(topic, b"alone", b"%d" % call, call % 3)
            sent[call % 3].append((b"alone", b"%d" % call))
            if call % 7 == 0:
                publisher.flush()
        publisher.flush()
        assert publisher.acknowledged == sum(map(len, sent.values()))
    arrived: dict[int, list[tuple[bytes, bytes | None]]] = {0: [], 1: [], 2: []}
    for record in raw_records(kafka.brokers, topic):
        arrived[record.partition].append((record.key, record.value))
    assert arrived == sent
