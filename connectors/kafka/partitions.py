"""Ranges of partitions: how they are found from times and offsets, fetched, and checked.

Reading stops with `KafkaRefused` where the result would be wrong: at deleted offsets, in a log that was cut off or is
damaged, in a topic that was deleted and created again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.errors import (
    CorruptRecordError,
    KafkaError,
    LogTruncationError,
    NoError,
    OffsetOutOfRangeError,
    RetriableError,
    UnknownTopicOrPartitionError,
    for_code,
)

from opicflow.connectors.kafka.client import FetchedRecords
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.schemas.errors import in_one_line

_Offsets = dict[TopicPartition, int]

PATIENCE_SECONDS = 120.0
_MOST_WAIT_MS = 100
_ENDS_TIMEOUT_MS = 1_000
_COUNT_SECONDS = 60.0
_POLL_RECORDS = 4_000
_FETCH_BYTES = 2 << 20
_LEAST_FETCH_BYTES = 128 << 10
_ALL_FETCHES_BYTES = 16 << 20
"""The limit for the fetches of all consumers of a topic, unless the minimum per consumer exceeds it."""
_READ_AGAIN = "read it from its beginning into a new state"


@dataclass(frozen=True)
class PartitionRange:
    """The records of a partition at the offsets [start, end). `source` is its name.

    `last_digest` is the digest of the last record that was read before `start`, if any. A record at `start - 1` must
    have this digest.
    """

    source: str
    connection: Connection
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    last_digest: str = ""


class RecordsDeleted(KafkaRefused):
    """The records to be read were deleted."""


def resolve(
    connection: Connection,
    topic: str,
    since_ms: int | None = None,
    until_ms: int | None = None,
    starts: Mapping[int, int] | None = None,
) -> list[PartitionRange]:
    """Return the ranges of a topic between two record times; the defaults are its beginning and its present end.

    The present end is the last offset before open transactions. `starts` overrides the start of partitions.
    """
    with connection.doing(f"reading {topic}"):
        topic_id, partitions = partitions_of_topic(connection, topic)
        if unknown := sorted(set(starts or ()) - set(range(partitions))):
            raise KafkaRefused(
                f"{topic} has {partitions} partitions, so there is no partition {unknown[0]}: name others"
            )
        all_partitions = [TopicPartition(topic, number) for number in range(partitions)]
        with closing(connection.consumer(isolation_level="read_committed")) as consumer:
            first, last = consumer.beginning_offsets(all_partitions), consumer.end_offsets(all_partitions)
            begins, ends = _at_time(consumer, first, last, since_ms), _at_time(consumer, last, last, until_ms)
    chosen = {one: (starts or {}).get(one.partition, begins[one]) for one in all_partitions}
    return [
        PartitionRange(
            f"kafka/{topic_id}/{one.partition}",
            connection,
            topic,
            topic_id,
            one.partition,
            chosen[one],
            max(chosen[one], ends[one]),
        )
        for one in all_partitions
    ]


class TopicEnds:
    """Reads where the partitions of topics end, again and again. It connects when it is first called."""

    def __init__(self, connection: Connection, topics: Sequence[str]) -> None:
        self._connection = connection
        self._topics = topics
        self._consumer: KafkaConsumer | None = None
        self._partitions: dict[str, list[TopicPartition]] = {}
        self._counted_at = 0.0

    def __call__(self) -> dict[str, list[int]] | None:
        """Return the ends of each topic's partitions, as readers find them; None if the cluster does not answer."""
        try:
            consumer = self._connected()
            every = [one for of_topic in self._partitions.values() for one in of_topic]
            ends = consumer.end_offsets(every, timeout_ms=_ENDS_TIMEOUT_MS)
        except (KafkaError, KafkaRefused, KeyError):  # KeyError: of the client, for a partition that was added just now
            self.close()
            return None
        return {topic: [ends[one] for one in of_topic] for topic, of_topic in self._partitions.items()}

    def _connected(self) -> KafkaConsumer:
        """Connect, and count the partitions from time to time: some may be added."""
        now = time.monotonic()
        if self._consumer is None or now - self._counted_at > _COUNT_SECONDS:
            self._counted_at = now
            counts = {topic: partitions_of_topic(self._connection, topic)[1] for topic in self._topics}
            self._partitions = {
                topic: [TopicPartition(topic, number) for number in range(count)] for topic, count in counts.items()
            }
        if self._consumer is None:
            self._consumer = self._connection.consumer(isolation_level="read_committed")
        return self._consumer

    def close(self) -> None:
        """Close the connection; the next call makes another one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


def partitions_of_topic(connection: Connection, topic: str) -> tuple[str, int]:
    """Return the id of a topic and its number of partitions. Raises `KafkaRefused` if there is no such topic."""
    found = find_topic(connection, topic)
    if found is None:
        raise KafkaRefused(f"there is no topic {topic}: create it with opicflow topics create, or name another one")
    return found


def find_topic(connection: Connection, topic: str) -> tuple[str, int] | None:
    """Return the id of a topic and its number of partitions; None if there is no such topic."""
    with connection.doing(f"reading {topic}"), closing(connection.admin()) as admin:
        return described(admin, topic)


def consumer_settings(consumers: int = 1) -> dict[str, object]:
    """Return settings for one of several consumers. Without a reset policy, a deleted offset raises an error."""
    return {
        "isolation_level": "read_committed",
        "auto_offset_reset": "none",
        "max_partition_fetch_bytes": min(_FETCH_BYTES, max(_ALL_FETCHES_BYTES // consumers, _LEAST_FETCH_BYTES)),
        "max_poll_records": _POLL_RECORDS,
        "fetch_max_wait_ms": _MOST_WAIT_MS,  # while a fetch waits, other partitions of its broker wait too
        "reconnect_backoff_max_ms": 1_000,
    }


def check_range(input_range: PartitionRange, first: int, last: int) -> None:
    """Refuse a range that is not part of a log with the offsets `first` to `last`."""
    where = f"{input_range.topic}, partition {input_range.partition}"
    if input_range.start < first:
        raise RecordsDeleted(
            f"{where}: offsets {input_range.start} to {first - 1} were deleted before they were read: "
            "read from the beginning of the topic into a new state, and give the topic a longer retention"
        )
    if input_range.start > last:
        raise KafkaRefused(
            f"{where}: the log ends at offset {last}, before offset {input_range.start} where reading should continue: "
            "it was cut off or replaced: read it from its beginning into a new state"
        )
    if input_range.end > last:
        raise KafkaRefused(
            f"{where}: the log ends at offset {last}, before offset {input_range.end}, the end of the "
            "range: give an earlier end"
        )


def poll(consumer: KafkaConsumer, left: PartitionRange, timeout_ms: int) -> dict[TopicPartition, list[FetchedRecords]]:
    """Return the next records of a range; none after a failure that a retry may solve."""
    try:
        found: dict[TopicPartition, list[FetchedRecords]] = consumer.poll(timeout_ms=timeout_ms)
    except (OffsetOutOfRangeError, LogTruncationError) as problem:
        raise _loss(consumer, left, problem) from None
    except CorruptRecordError as problem:
        raise KafkaRefused(
            f"{left.topic}: a record is damaged in the log ({in_one_line(problem)}; being read: partition "
            f"{left.partition} from offset {left.start}): restore the log from a replica, or continue reading after it"
        ) from None
    except RetriableError:
        return {}
    return found


def no_answer(input_range: PartitionRange, seconds: float) -> KafkaRefused:
    """Return the error for a cluster that returns nothing. `input_range` is the rest of the range."""
    return KafkaRefused(
        f"no answer from {input_range.connection.brokers} for {seconds:.0f} s while reading {input_range.topic}, "
        f"partition {input_range.partition} at offset {input_range.start}: check the brokers, and run "
        "again to continue"
    )


def _loss(consumer: KafkaConsumer, left: PartitionRange, problem: KafkaError) -> KafkaRefused:
    """Return the error for records that were lost while they were read."""
    with closing(left.connection.admin()) as admin:
        found = described(admin, left.topic)
    lost = TopicPartition(left.topic, left.partition)
    first, last = consumer.beginning_offsets([lost]), consumer.end_offsets([lost])
    try:
        check_topic(left.topic, left.topic_id, found and found[0])
        check_range(replace(left, end=left.start), first[lost], last[lost])
    except KafkaRefused as refused:
        return refused
    return KafkaRefused(
        f"{left.topic}: the log changed while it was read ({in_one_line(problem)}): read it into a new state"
    )


def record_at(
    connection: Connection, topic: str, partition: int, offset: int, limit_seconds: float = 30.0
) -> bytes | None:
    """Return the value of the record at an offset; None if there is no record, or it has no value."""
    target = TopicPartition(topic, partition)
    give_up_at = time.monotonic() + limit_seconds
    settings = {**consumer_settings(), "max_partition_fetch_bytes": _LEAST_FETCH_BYTES}
    with connection.doing(f"reading {topic}"), closing(connection.consumer(**settings)) as consumer:
        first, last = consumer.beginning_offsets([target])[target], consumer.end_offsets([target])[target]
        if not first <= offset < last:
            return None
        consumer.assign([target])
        consumer.seek(target, offset)
        while time.monotonic() < give_up_at:
            parts = consumer.poll(timeout_ms=_MOST_WAIT_MS).get(target, [])
            if parts:
                first_record = parts[0].record(0)
                return first_record.value if first_record.offset == offset else None
    raise KafkaRefused(f"{connection.brokers}: {topic}, partition {partition}: no answer: check the brokers")


def delete_before(connection: Connection, topic: str, offsets: Mapping[int, int]) -> None:
    """Delete the records before an offset in each partition."""
    if not offsets:
        return
    with connection.doing(f"deleting old records of {topic}"), closing(connection.admin()) as admin:
        admin.delete_records({TopicPartition(topic, number): offset for number, offset in offsets.items()})


def check_topic(topic: str, topic_id: str, found: str | None, todo: str = _READ_AGAIN) -> None:
    """Refuse a topic that was deleted (`found` is None), and another topic under the same name.

    `todo` is what the user does about the latter.
    """
    if found is None:
        raise KafkaRefused(f"{topic}: the topic was deleted: nothing more can be read from it")
    if topic_id != found:
        raise KafkaRefused(
            f"{topic}: the topic was deleted and created again (its id was {topic_id} and is {found}), so its offsets "
            f"belong to other records: {todo}"
        )


def described(admin: KafkaAdminClient, topic: str) -> tuple[str, int] | None:
    """Return the id of a topic and its number of partitions, None if there is none. Errors of the client pass."""
    (found,) = admin.describe_topics([topic])
    problem = for_code(found["error_code"])
    if problem is UnknownTopicOrPartitionError:
        return None
    if problem is not NoError:
        raise problem(topic)
    return str(found["topic_id"]), len(found["partitions"])


def _at_time(consumer: KafkaConsumer, default: _Offsets, last: _Offsets, time_ms: int | None) -> _Offsets:
    """Return the first offsets at or after a time, or the last offsets where there are none."""
    if time_ms is None:
        return default
    found = consumer.offsets_for_times({one: max(time_ms, 0) for one in last})
    return {one: min(found[one].offset, last[one]) if found.get(one) else last[one] for one in last}
