"""Reading a topic: the ranges of its partitions, the errors that end a read, and those that do not."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.admin import NewTopic
from kafka.errors import CorruptRecordError, KafkaConnectionError, LogTruncationError, OffsetOutOfRangeError

from opicflow.connectors.kafka import partitions, topic_log
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import PartitionRange, resolve
from opicflow.connectors.kafka.topic_log import digest_of, read_topic, topic_range
from support.fake_topic import (
    HOUR_MS,
    TOPIC,
    Cluster,
    Consumer,
    Partition,
    Record,
    Topics,
    advanced_to,
    all_steps,
    filled,
    in_order,
    log_of,
    ranges_of,
    record,
    records_of,
    send,
    send_with,
    step_of,
)
from support.services import LocalKafka

# -- refusals


def refused(input_ranges: list[PartitionRange], **more: Any) -> str:
    with pytest.raises(KafkaRefused) as caught:
        list(read_topic(topic_range(input_ranges), **more))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_offsets_that_were_deleted_before_reading_are_refused() -> None:
    cluster = filled([0, 0], [0] * 9)
    input_ranges = ranges_of(cluster)
    cluster.partitions[1].first = 4
    input_ranges[1] = replace(input_ranges[1], start=1)
    assert refused(input_ranges).startswith("events, partition 1: offsets 1 to 3 were deleted before they were read")


def test_a_log_that_ends_before_the_start_is_refused() -> None:
    (input_range,) = ranges_of(filled([0, 0]))
    message = refused([replace(input_range, start=5, end=5)])
    assert message.startswith(
        "events, partition 0: the log ends at offset 2, before offset 5 where reading should continue"
    )


def test_an_end_beyond_the_log_is_refused() -> None:
    (input_range,) = ranges_of(filled([0, 0]))
    assert "ends at offset 2, before offset 3" in refused([replace(input_range, end=3)])


def test_another_topic_of_the_same_name_is_refused() -> None:
    cluster = filled([0])
    cluster.topic_id = "id-2"
    message = refused(ranges_of(cluster))
    assert "created again (its id was id-1 and is id-2)" in message


def test_a_deleted_topic_is_refused() -> None:
    cluster = filled([0])
    cluster.topic_id = None
    assert "was deleted" in refused(ranges_of(cluster))


def test_a_topic_replaced_while_it_is_read_is_noticed_at_the_end() -> None:
    cluster = filled([0, 0])
    found = read_topic(log_of(cluster))
    next(found)
    cluster.topic_id = "id-2"
    with pytest.raises(KafkaRefused, match="deleted and created again"):
        list(found)


def test_another_record_before_the_start_is_refused() -> None:
    cluster = filled([0, 0, 0])
    (input_range,) = ranges_of(cluster)
    digest = digest_of(cluster.partitions[0].records[1])
    for start, end in ((2, 3), (2, 2)):
        after = replace(input_range, start=start, end=end, last_digest=digest)
        assert [step.offsets for step in all_steps(topic_range([after]))] == [[2]] * (end - start)
        message = refused([replace(after, last_digest="0" * 16)])
        assert message.startswith("events, partition 0: the record at offset 1 is not the one that was read before")


@pytest.mark.parametrize("first", [0, 2])
def test_a_missing_record_before_the_start_is_ignored(first: int) -> None:
    """Compaction or retention removed it."""
    cluster = filled([0, 0, 0])
    del cluster.partitions[0].records[:2]
    cluster.partitions[0].first = first
    steps = all_steps(log_of(cluster, start=2, last_digest="0" * 16))
    assert [step.offsets for step in steps] == [[2]]


def test_records_differ_by_offset_key_and_value() -> None:
    texts = [None, b"", b"1", b"11"]
    digests = {digest_of(Record(offset, 0, key, value)) for offset in (0, 1, 11) for key in texts for value in texts}
    assert len(digests) == 3 * 4 * 4


def test_offsets_deleted_while_reading_are_refused() -> None:
    cluster = filled([0] * 50)
    partition = TopicPartition(TOPIC, 0)
    cluster.problems[3] = OffsetOutOfRangeError({partition: 10})
    found = read_topic(log_of(cluster))

    class Shrinking(Consumer):
        def beginning_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
            return {partition: 45 if self.polls else 0}

    cluster.consumer = lambda **_: Shrinking(cluster)  # type: ignore[method-assign]
    with pytest.raises(KafkaRefused, match=r"partition 0: offsets \d+ to 44 were deleted"):
        list(found)


def test_a_log_truncated_while_reading_is_refused() -> None:
    cluster = filled([0] * 50)
    cluster.problems[2] = LogTruncationError({TopicPartition(TOPIC, 0): None})
    assert "the log changed while it was read" in refused(ranges_of(cluster))


def test_a_damaged_record_is_refused_with_its_offset() -> None:
    cluster = filled([0] * 50)
    cluster.problems[2] = CorruptRecordError("Record batch for partition 0 at offset 7 failed crc check")
    message = refused(ranges_of(cluster))
    assert "damaged" in message and "at offset 7" in message


def test_reading_continues_after_a_broken_connection() -> None:
    cluster = filled([0] * 50, [1] * 50)
    whole = records_of(all_steps(log_of(cluster)))
    again = replace(cluster, problems={number: KafkaConnectionError() for number in (1, 2, 4)})
    assert records_of(all_steps(log_of(again))) == whole and not again.problems and len(whole) == 100


def test_a_cluster_that_does_not_answer_within_the_patience_is_refused() -> None:
    cluster = filled([0] * 50)
    cluster.silent_from = 2
    message = refused(ranges_of(cluster), patience_seconds=0.01)
    assert message.startswith("no answer from b:9092 for 0 s while reading events, partition 0 at offset ")


# -- on a broker


def test_partitions_of_unequal_size_are_read_in_order_for_any_fetch_size(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_log, "BATCH_RECORDS", 100)
    monkeypatch.setattr(topic_log, "_READY_RECORDS", 30)
    topic = topics.make("skew", 3)
    chance = random.Random(1)
    records = {
        number: [record(number, offset, offset / size * 30, chance.randrange(2000)) for offset in range(size)]
        for number, size in enumerate((1500, 150, 15))
    }
    send(topics.connection, topic, records)
    input_ranges = resolve(topics.connection, topic)
    assert [(s.start, s.end, s.topic) for s in input_ranges] == [(0, 1500, topic), (0, 150, topic), (0, 15, topic)]
    assert [s.source for s in input_ranges] == [f"kafka/{s.topic_id}/{number}" for number, s in enumerate(input_ranges)]
    log = topic_range(input_ranges)
    steps = all_steps(log)
    expected = in_order(log, Cluster({number: Partition(of_one, 0, len(of_one)) for number, of_one in records.items()}))
    assert records_of(steps) == expected
    for name, value in {"_POLL_RECORDS": 7, "_FETCH_BYTES": 3000}.items():
        monkeypatch.setattr(partitions, name, value)
        assert records_of(all_steps(log)) == expected
    cut = len(steps) // 2
    assert records_of(steps[:cut] + all_steps(advanced_to(log, steps[cut - 1]))) == expected


def test_aborted_transactions_are_not_read_and_open_ones_do_not_delay(topics: Topics) -> None:
    topic = topics.make("transactions")
    with closing(topics.connection.producer(transactional_id=topic)) as producer:
        producer.init_transactions()
        for is_good in (True, False, True, False):
            producer.begin_transaction()
            send_with(producer, topic, {0: [record(0, 0), record(0, 1)]})
            if is_good:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        input_ranges = resolve(topics.connection, topic)
        producer.begin_transaction()
        send_with(producer, topic, {0: [record(0, 0)]})
        assert resolve(topics.connection, topic) == input_ranges
        producer.abort_transaction()
    log = topic_range(input_ranges)
    first, rest = all_steps(log)
    assert first.offsets == [0, 1, 6, 7] and (log.partitions[0].start, log.partitions[0].end) == (0, 12)
    assert (rest.start, rest.end, rest.records, rest.size_bytes) == (8, 12, (), 0)
    assert rest.reached == (first.reached[0]._replace(at=12),)
    assert all_steps(advanced_to(log, first)) == [rest]
    assert all_steps(advanced_to(log, rest)) == []


def test_a_log_whose_beginning_was_deleted_is_refused(topics: Topics) -> None:
    topic = topics.make("short")
    send(topics.connection, topic, {0: [record(0, offset) for offset in range(20)]})
    (input_range,) = resolve(topics.connection, topic)
    topics.admin.delete_records({TopicPartition(topic, 0): 8})
    assert "partition 0: offsets 0 to 7 were deleted" in refused([input_range])
    assert resolve(topics.connection, topic) == [replace(input_range, start=8)]


def test_records_that_are_deleted_while_they_are_read_are_refused(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_log, "BATCH_BYTES", 1000)
    monkeypatch.setattr(partitions, "_FETCH_BYTES", 1000)
    monkeypatch.setattr(partitions, "_POLL_RECORDS", 5)
    topic = topics.make("shrinks")
    with closing(topics.connection.producer()) as producer:
        for first in range(0, 200, 10):  # one batch for each, so that a fetch returns only a few
            send_with(producer, topic, {0: [record(0, offset, 0, 300) for offset in range(first, first + 10)]})
    found = read_topic(topic_range(resolve(topics.connection, topic)))
    next(found)
    topics.admin.delete_records({TopicPartition(topic, 0): 199})
    with pytest.raises(KafkaRefused, match=r"offsets \d+ to 198 were deleted before they were read"):
        list(found)


def test_a_replaced_topic_is_refused(topics: Topics) -> None:
    topic = topics.make("replaced")
    send(topics.connection, topic, {0: [record(0, 0)]})
    (input_range,) = resolve(topics.connection, topic)
    topics.delete(topic)
    assert "the topic was deleted" in refused([input_range])
    topics.make("replaced")
    send(topics.connection, topic, {0: [record(0, 0)]})
    assert "deleted and created again" in refused([input_range])


def test_ranges_are_between_times_or_start_at_offsets(topics: Topics) -> None:
    topic = topics.make("times", 2)
    send(topics.connection, topic, {0: [record(0, offset, 10 + offset) for offset in range(10)]})

    def ranges(**chosen: Any) -> list[tuple[int, int]]:
        return [(s.start, s.end) for s in resolve(topics.connection, topic, **chosen)]

    assert ranges() == [(0, 10), (0, 0)]
    assert ranges(since_ms=13 * HOUR_MS, until_ms=16 * HOUR_MS) == [(3, 6), (0, 0)]
    assert ranges(since_ms=13 * HOUR_MS + 1, until_ms=99 * HOUR_MS) == [(4, 10), (0, 0)]
    assert ranges(since_ms=99 * HOUR_MS) == [(10, 10), (0, 0)]
    assert ranges(until_ms=-1) == [(0, 0), (0, 0)]
    assert ranges(starts={0: 7}) == [(7, 10), (0, 0)]
    assert ranges(starts={0: 7}, until_ms=13 * HOUR_MS) == [(7, 7), (0, 0)]
    with pytest.raises(KafkaRefused, match="has 2 partitions, so there is no partition 2"):
        ranges(starts={2: 0})


def test_a_missing_topic_is_refused_by_name(topics: Topics) -> None:
    with pytest.raises(KafkaRefused, match="there is no topic nowhere: create it with opicflow topics create"):
        resolve(topics.connection, "nowhere")


@pytest.mark.slow
def test_reading_continues_after_a_killed_broker_restarts(
    mortal_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_log, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(partitions, "_FETCH_BYTES", 20_000)
    connection = Connection(mortal_kafka.brokers)
    with closing(connection.admin()) as admin:
        admin.create_topics([NewTopic("lone", 2, 1, topic_configs={"retention.ms": "-1", "flush.messages": "1"})])
        admin.wait_for_topics(["lone"])
    with closing(connection.producer()) as producer:
        for first in range(0, 2000, 100):
            records = [record(0, offset, 0, 300) for offset in range(first, first + 100)]
            send_with(producer, "lone", {0: records, 1: records[:20]})
    log = topic_range(resolve(connection, "lone"))
    whole = records_of(all_steps(log))
    found = read_topic(log, patience_seconds=60)
    some = [step_of(next(found)) for _ in range(3)]
    mortal_kafka.kill()
    mortal_kafka.restart()
    assert records_of(some + [step_of(batch) for batch in found]) == whole
