"""Sending to topics: in order, completely or with an error, and within bounds; in a pipeline; on a broker."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import apache_beam as beam
import pytest
import xxhash
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given
from hypothesis import strategies as st
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import InvalidTimestampError, KafkaError, KafkaTimeoutError, UnknownError
from kafka.record.default_records import DefaultRecordBatchBuilder

from opicflow.connectors.files.decoded import MOST_REJECTED_BYTES
from opicflow.connectors.kafka import sink
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.publisher import Publisher, partition_of, partitions_of
from opicflow.connectors.kafka.sink import REJECTS, Message, PublishMessages
from opicflow.connectors.kafka.topics import TopicSpec, make
from opicflow.connectors.runs import close_run, closing_run
from opicflow.schemas.crawl_events import Reason
from opicflow.schemas.shards import MOST_SHARDS
from support.fake_kafka import LIMIT, FakeConnection, FakeProducer


def publishing(**more: Any) -> tuple[Publisher, FakeProducer]:
    connection = FakeConnection("127.0.0.1:1")
    publisher = Publisher(connection, **more)
    return publisher, connection.fakes[0]


def test_records_are_sent_in_order() -> None:
    publisher, fake = publishing()
    assert publisher.send("events", b"a", b"1", 2, 77)
    assert publisher.send_many("events", [0, None], [b"b", None], [b"2", b"3"]) == []
    assert publisher.send("events", b"gone", None)
    assert fake.sent == [
        ("events", b"a", b"1", 2, 77),
        ("events", b"b", b"2", 0, None),
        ("events", None, b"3", None, None),
        ("events", b"gone", None, None, None),
    ]
    publisher.flush()
    assert publisher.acknowledged == 4
    publisher.close()
    assert fake.closed


def test_a_flush_waits_for_unacknowledged_records_even_if_that_of_the_producer_ended() -> None:
    publisher, fake = publishing()
    publisher.send("events", None, b"1")
    publisher.send("events", None, b"2")
    answers = iter([lambda: None, lambda: fake.answer(1), lambda: fake.answer(1)])
    fake.when_flushed = lambda: next(answers)()
    publisher.flush()
    assert next(answers, None) is None
    fake.when_flushed = fake.answer
    publisher.close()


def test_a_flush_continues_when_that_of_the_producer_times_out() -> None:
    publisher, fake = publishing()
    publisher.send("events", None, b"1")
    problems = iter([KafkaTimeoutError("a second"), UnknownError("Future not done: split")])

    def stumble() -> None:
        if problem := next(problems, None):
            raise problem
        fake.answer()

    fake.when_flushed = stumble
    publisher.flush()
    assert publisher.acknowledged == 1
    publisher.close()


def test_a_publisher_sends_nothing_after_its_first_failure() -> None:
    publisher, fake = publishing()
    publisher.send("events", None, b"1")
    publisher.send("events", None, b"2")
    fake.answer(1, InvalidTimestampError("too far off"))
    fake.answer(1)  # the producer continues after the gap
    for call in (publisher.flush, lambda: publisher.send("events", None, b"3"), publisher.close, publisher.flush):
        with pytest.raises(KafkaRefused, match=r"^127\.0\.0\.1:1: publishing to events: ") as refused:
            call()
        assert "\n" not in str(refused.value)
    assert fake.closed
    assert len(fake.sent) <= 3


def test_a_failure_during_a_flush_is_reported() -> None:
    publisher, fake = publishing()
    publisher.send("events", None, b"1")
    fake.when_flushed = lambda: fake.answer(1, KafkaError("lost"))
    with pytest.raises(KafkaRefused, match="lost"):
        publisher.flush()


def test_a_record_that_is_never_acknowledged_is_an_error_in_time() -> None:
    publisher, fake = publishing()
    publisher.send("events", None, b"1")
    fake.when_flushed = lambda: None
    with pytest.raises(KafkaRefused, match=r"1 records were not acknowledged in 0.01 s"):
        publisher.flush(timeout_seconds=0.01)


def test_the_end_of_the_producers_thread_is_noticed() -> None:
    publisher, fake = publishing()
    publisher.send("events", None, b"1")
    fake._sender.force_close()
    fake.when_flushed = lambda: None
    with pytest.raises(KafkaRefused, match="the sender thread has ended"):
        publisher.flush()


def test_sending_waits_while_too_much_is_not_acknowledged() -> None:
    publisher, fake = publishing(most_unacknowledged_bytes=100_000)
    sent = threading.Event()

    def send() -> None:
        for _ in range(60):
            publisher.send("events", None, b"x" * 4000)
        sent.set()

    thread = threading.Thread(target=send)
    thread.start()
    most = 0
    while not sent.is_set():
        most = max(most, len(fake.waiting))
        fake.answer(1)
    thread.join()
    assert len(fake.sent) == 60
    assert most <= 100_000 // 4000
    publisher.close()


def test_a_record_larger_than_the_buffer_is_sent_alone() -> None:
    publisher, _ = publishing(most_unacknowledged_bytes=10)
    assert publisher.send("events", None, b"x" * 4000)
    publisher.close()


def test_waiting_for_space_ends_with_the_first_failure() -> None:
    publisher, fake = publishing(most_unacknowledged_bytes=5000)
    publisher.send("events", None, b"x" * 4000)
    waited = threading.Event()

    def fail() -> None:
        while publisher._waiters == 0:
            waited.wait(0.001)
        fake.answer(1, KafkaError("lost"))

    thread = threading.Thread(target=fail)
    thread.start()
    with pytest.raises(KafkaRefused, match="lost"):
        publisher.send("events", None, b"x" * 4000)
    thread.join()


def test_a_record_larger_than_its_topic_allows_is_not_sent() -> None:
    publisher, fake = publishing()
    noise = os.urandom(3 * LIMIT)
    assert not publisher.send("events", None, noise)
    assert publisher.send("events", None, b"a" * 3 * LIMIT), "compressed it is small"
    assert publisher.send_many("events", [0] * 3, [None] * 3, [b"1", noise, b"2"]) == [1]
    assert [len(value) for _, _, value, _, _ in fake.sent] == [3 * LIMIT, 1, 1]
    publisher.close()


@pytest.mark.parametrize("more", [-200, -90, -61, -12, -5, 0])
def test_the_limit_applies_to_the_batch_as_the_broker_measures_it(more: int) -> None:
    publisher, _ = publishing()
    value = os.urandom(LIMIT + more)
    batch = DefaultRecordBatchBuilder(2, DefaultRecordBatchBuilder.CODEC_LZ4, False, -1, -1, -1, 0)
    batch.append(0, 0, b"key", value, [])
    assert publisher.send("events", b"key", value) == (len(batch.build()) <= LIMIT)
    publisher.close()


def test_a_record_that_no_client_sends_is_not_compressed_to_measure_it() -> None:
    publisher, _ = publishing()
    assert not publisher.send("events", None, b"\0" * (35 << 20))
    publisher.close()


def test_without_permission_to_read_limits_the_default_of_kafka_applies() -> None:
    publisher = Publisher(FakeConnection("127.0.0.1:1", limits=(None,)))
    assert publisher.partitions("events") == 4
    assert publisher.send("events", None, os.urandom(1_000_000))
    assert not publisher.send("events", None, os.urandom(1_100_000))
    publisher.close()


def test_a_missing_topic_is_refused_at_once_and_others_continue() -> None:
    publisher, _ = publishing()
    with pytest.raises(KafkaRefused, match="publishing to missing"):
        publisher.send("missing", None, b"1")
    assert publisher.send("events", None, b"1")
    publisher.close()


def test_an_error_in_the_context_discards_unsent_records() -> None:
    publisher, fake = publishing()
    fake.when_flushed = lambda: pytest.fail("flushed")
    with pytest.raises(ZeroDivisionError), publisher:
        publisher.send("events", None, b"1")
        raise ZeroDivisionError
    assert fake.closed


def test_deliver_returns_partitions_and_offsets() -> None:
    publisher, _ = publishing()
    assert publisher.deliver("events", [b"1", b"2"]) == [(0, 0), (0, 1)]
    with pytest.raises(KafkaRefused, match="record 2 is larger"):
        publisher.deliver("events", [b"1", os.urandom(LIMIT)])
    publisher.close()


@given(st.lists(st.text() | st.binary(), min_size=1), st.integers(1, MOST_SHARDS))
def test_partitions_are_ranges_of_the_hash_of_the_key(keys: list[str | bytes], partitions: int) -> None:
    """Consumers and earlier records rely on it: it never changes, whatever page ids are."""
    hashes = [xxhash.xxh64_intdigest(key.encode("utf-8", "replace") if isinstance(key, str) else key) for key in keys]
    expected = [hashed * partitions // 2**64 for hashed in hashes]
    assert [partition_of(key, partitions) for key in keys] == expected
    assert partitions_of(keys, partitions).tolist() == expected


# -- in a pipeline -----------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConnection]:
    """A fake cluster; copies of its connection return the same producers."""
    connection = FakeConnection("127.0.0.1:1")
    monkeypatch.setattr(FakeConnection, "__reduce__", lambda _: (_again, ()))
    _travellers.append(connection)
    yield connection
    close_run("")
    _travellers.remove(connection)


_travellers: list[FakeConnection] = []


def _again() -> FakeConnection:
    return _travellers[-1]


def test_a_pipeline_sends_messages_and_outputs_those_that_are_too_large(cluster: FakeConnection) -> None:
    noise = os.urandom(MOST_REJECTED_BYTES + 1000)
    messages = [Message("events", b"k", b"%d" % number, 1, number) for number in range(50)]
    with beam.Pipeline("FnApiRunner") as pipeline:
        made = pipeline | beam.Create([messages])
        rejects = (made | beam.FlatMap(lambda all_: [*all_[:20], Message("events", None, noise), *all_[20:]])) | (
            PublishMessages(cluster)
        )
        found = rejects[REJECTS] | beam.Map(lambda one: (one.reason, one.source, one.bytes))
        assert_that(found, equal_to([(Reason.TOO_LARGE, "events", noise[:MOST_REJECTED_BYTES])]))
    assert [key_value for fake in cluster.fakes for key_value in fake.sent] == [tuple(one) for one in messages]
    assert all(not fake.waiting for fake in cluster.fakes), "a bundle that ended was flushed"


def bundle_of(cluster: FakeConnection, run: str = "") -> sink._Publish:
    return sink._Publish(cluster, all_or_none=False, run=run, on_noted=None)


def test_a_failed_send_fails_every_bundle_that_shares_the_publisher(cluster: FakeConnection) -> None:
    first, second = bundle_of(cluster), bundle_of(cluster)
    for bundle in (first, second):
        bundle.start_bundle()
        assert list(bundle.process(Message("events", None, b"1"))) == []
    (fake,) = cluster.fakes
    fake.answer(1, KafkaError("lost"))
    for bundle in (first, second):
        with pytest.raises(KafkaRefused, match="lost"):
            bundle.finish_bundle()
    assert fake.closed


def test_a_failed_send_fails_no_bundle_of_another_run_and_runs_close_their_publishers(cluster: FakeConnection) -> None:
    bundles = [bundle_of(cluster, run) for run in ("one", "other")]
    with closing_run("one"), closing_run("other"):
        for bundle in bundles:
            bundle.start_bundle()
            list(bundle.process(Message("events", None, b"1")))
        cluster.fakes[0].answer(1, KafkaError("lost"))
        with pytest.raises(KafkaRefused, match="lost"):
            bundles[0].finish_bundle()
        bundles[1].finish_bundle()
        assert [fake.closed for fake in cluster.fakes] == [True, False]
    assert [fake.closed for fake in cluster.fakes] == [True, True]


def test_after_a_failure_bundles_get_a_publisher_that_works(cluster: FakeConnection) -> None:
    bundle = bundle_of(cluster)
    bundle.start_bundle()
    list(bundle.process(Message("events", None, b"1")))
    cluster.fakes[0].answer(1, KafkaError("lost"))
    with pytest.raises(KafkaRefused):
        list(bundle.process(Message("events", None, b"2")))
    bundle.start_bundle()
    list(bundle.process(Message("events", None, b"1")))
    bundle.finish_bundle()
    assert [one[2] for one in cluster.fakes[1].sent] == [b"1"]


# -- on a broker -------------------------------------------------------------------------------------------------------


def read_back(connection: Connection, topic: str) -> dict[int, list[Any]]:
    """Return all records of a topic, by partition."""
    consumer = connection.consumer()
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(partitions)
        found: dict[int, list[Any]] = {one.partition: [] for one in partitions}
        while any(consumer.position(one) < ends[one] for one in partitions):
            for one, parts in consumer.poll(timeout_ms=1000).items():
                found[one.partition] += [record for part in parts for record in part.records()]
        return found
    finally:
        consumer.close()


def test_too_large_records_between_good_ones_are_refused_and_too_large_batches_are_split(
    kafka: Any, topic_prefix: str
) -> None:
    connection, topic = Connection(kafka.brokers), f"{topic_prefix}small"
    make(connection, [TopicSpec(topic, 2, "delete", "CreateTime", most_bytes=20_000)])
    noise = os.urandom(50_000)
    with Publisher(connection) as publisher:
        for number in range(2000):
            if number % 100 == 0:
                assert not publisher.send(topic, None, noise, number % 2)
                assert publisher.send(topic, b"large", b"a" * 50_000, number % 2)
            assert publisher.send(topic, b"%d" % number, noise[:60] + b"x" * 60, number % 2, 1_000_000 + number)
        publisher.flush()
        assert publisher.acknowledged == 2020
    for partition, records in read_back(connection, topic).items():
        small = [record for record in records if record.key != b"large"]
        assert [int(record.key) for record in small] == list(range(partition, 2000, 2))
        assert [record.timestamp for record in small] == [1_000_000 + int(record.key) for record in small]
        assert len(records) - len(small) == (20 if partition == 0 else 0)


def test_a_lowered_limit_of_a_topic_fails_the_publisher_without_a_hang(kafka: Any, topic_prefix: str) -> None:
    connection, topic = Connection(kafka.brokers), f"{topic_prefix}shrinks"
    make(connection, [TopicSpec(topic, 1, "delete", "CreateTime", most_bytes=100_000)])
    with Publisher(connection) as publisher:
        assert publisher.send(topic, None, os.urandom(90_000))
        publisher.flush()
    publisher = Publisher(connection)
    assert publisher.partitions(topic) == 1
    with connection.admin() as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "20000"})])
    with pytest.raises(KafkaRefused, match=f"publishing to {topic}"):
        for _ in range(2_000):  # the broker confirms a limit a moment before it holds
            assert publisher.send(topic, None, os.urandom(90_000))
            publisher.flush()
    with pytest.raises(KafkaRefused, match=f"publishing to {topic}"):
        publisher.send(topic, None, b"1")


@pytest.mark.slow
def test_a_killed_and_restarted_broker_has_every_record_once(mortal_kafka: Any) -> None:
    connection, topic = Connection(mortal_kafka.brokers), "events"
    make(connection, [TopicSpec(topic, 3, "delete", "CreateTime")])
    begun = threading.Event()
    with Publisher(connection, most_unacknowledged_bytes=4 << 20) as publisher, ThreadPoolExecutor(1) as pool:

        def send_all() -> None:
            for number in range(30_000):
                if number == 10_000:
                    begun.set()
                publisher.send(topic, b"%d" % number, b"x" * 100, number % 3)
            publisher.flush()

        # Not on the same thread: sending waits while too much waits for a broker, which would not come back then.
        sent = pool.submit(send_all)
        assert begun.wait(60)
        mortal_kafka.kill()
        mortal_kafka.restart()
        sent.result()
    for partition, records in read_back(connection, topic).items():
        assert [int(record.key) for record in records] == list(range(partition, 30_000, 3))
