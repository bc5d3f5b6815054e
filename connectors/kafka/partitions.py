"""Partitions of a topic: where a stretch of them begins and ends, how it is fetched, and what stops reading it.

What would make reading go on wrong is refused: offsets that are gone, a log that was cut off or is damaged, a topic
that was made anew.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from kafka import TopicPartition
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

from opicflow.connectors.kafka.connection import Connection, KafkaRefused

PATIENCE_SECONDS = 120.0
_MOST_WAIT_MS = 100
_POLL_RECORDS = 4_000
_FETCH_BYTES = 2 << 20
_LEAST_FETCH_BYTES = 128 << 10
_ALL_FETCHES_BYTES = 16 << 20
"""What all consumers of a topic fetch at once, if the least of each does not make it more."""


@dataclass(frozen=True)
class PartitionRange:
    """A part of a partition: the records from offset `start` up to (not including) `end`.

    `source` is its name. `last_digest` is that of the last record that was read before, if there was one: if it lies
    right before `start`, it must still be the same.
    """

    source: str
    connection: Connection
    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    last_digest: str = ""


def resolve(
    connection: Connection,
    topic: str,
    since_ms: int | None = None,
    until_ms: int | None = None,
    starts: Mapping[int, int] | None = None,
) -> list[PartitionRange]:
    """The stretches of a topic between two times of its records: from its beginning, until now, where none is given.

    "Now" is the last offset that no open transaction can change any more. `starts` are offsets of partitions that
    begin there, whatever their times.
    """
    with connection.doing(f"reading {topic}"):
        topic_id, partitions = partitions_of_topic(connection, topic)
        if strange := sorted(set(starts or ()) - set(range(partitions))):
            raise KafkaRefused(f"{topic} has {partitions} partitions, and no partition {strange[0]}: name others")
        places = [TopicPartition(topic, number) for number in range(partitions)]
        with closing(connection.consumer(isolation_level="read_committed")) as consumer:
            first, last = consumer.beginning_offsets(places), consumer.end_offsets(places)
            begins, ends = _at_time(consumer, first, last, since_ms), _at_time(consumer, last, last, until_ms)
    chosen = {place: (starts or {}).get(place.partition, begins[place]) for place in places}
    return [
        PartitionRange(
            f"kafka/{topic_id}/{place.partition}",
            connection,
            topic,
            topic_id,
            place.partition,
            chosen[place],
            max(chosen[place], ends[place]),
        )
        for place in places
    ]


def partitions_of_topic(connection: Connection, topic: str) -> tuple[str, int]:
    """The id of a topic, and how many partitions it has."""
    with connection.doing(f"reading {topic}"), closing(connection.admin()) as admin:
        found = described(admin, topic)
    if found is None:
        raise KafkaRefused(f"there is no topic {topic}: make it with opicflow topics create, or name another one")
    return found


def consumer_settings(consumers: int = 1) -> dict[str, Any]:
    """How records are fetched, if so many consumers do it. There is no place that one may jump to by itself."""
    return {
        "isolation_level": "read_committed",
        "auto_offset_reset": "none",
        "max_partition_fetch_bytes": min(_FETCH_BYTES, max(_ALL_FETCHES_BYTES // consumers, _LEAST_FETCH_BYTES)),
        "max_poll_records": _POLL_RECORDS,
        "fetch_max_wait_ms": _MOST_WAIT_MS,  # a fetch that waits keeps other partitions of its broker waiting
        "reconnect_backoff_max_ms": 1_000,
    }


def check_range(input_range: PartitionRange, first: int, last: int) -> None:
    """Refuse a stretch that a log from offset `first` to `last` does not hold."""
    where = f"{input_range.topic}, partition {input_range.partition}"
    if input_range.start < first:
        raise KafkaRefused(
            f"{where}: offsets {input_range.start} to {first - 1} were deleted before they were read: "
            "read from the beginning of the topic into a new state, and give the topic a longer retention"
        )
    if input_range.start > last:
        raise KafkaRefused(
            f"{where}: the log ends at offset {last}, and reading would go on at {input_range.start}: it was cut "
            "off or made anew: read it from its beginning into a new state"
        )
    if input_range.end > last:
        raise KafkaRefused(
            f"{where}: the log ends at offset {last}, before offset {input_range.end} that it should be read to: "
            "give an end that is there"
        )


def poll(consumer: Any, left: PartitionRange, timeout_ms: int) -> dict[Any, list[Any]]:
    """The next records of what is left of a partition; nothing after a failure that may pass."""
    try:
        found: dict[Any, list[Any]] = consumer.poll(timeout_ms=timeout_ms)
    except (OffsetOutOfRangeError, LogTruncationError) as problem:
        raise _why_lost(consumer, left, problem) from None
    except CorruptRecordError as problem:
        raise KafkaRefused(
            f"{left.topic}: a record is damaged in the log ({_line(problem)}; being read: partition {left.partition} "
            f"from offset {left.start}): restore the log from a replica, or read on behind it"
        ) from None
    except RetriableError:
        return {}
    return found


def no_answer(input_range: PartitionRange, seconds: float) -> KafkaRefused:
    """What is said of a cluster that gives nothing. `stretch` is what is left to be read."""
    return KafkaRefused(
        f"no answer from {input_range.connection.brokers} for {seconds:.0f} s while reading {input_range.topic}, "
        f"partition {input_range.partition} at offset {input_range.start}: see whether the brokers run; "
        "run again to go on"
    )


def _why_lost(consumer: Any, left: PartitionRange, problem: KafkaError) -> KafkaRefused:
    """Why records that were there when reading began are not there any more."""
    with closing(left.connection.admin()) as admin:
        found = described(admin, left.topic)
    place = TopicPartition(left.topic, left.partition)
    first, last = consumer.beginning_offsets([place]), consumer.end_offsets([place])
    try:
        check_topic(left.topic, left.topic_id, found and found[0])
        check_range(replace(left, end=left.start), first[place], last[place])
    except KafkaRefused as refused:
        return refused
    return KafkaRefused(f"{left.topic}: the log changed while it was read ({_line(problem)}): read it into a new state")


def _line(problem: KafkaError) -> str:
    return " ".join(str(problem).split())


def record_at(
    connection: Connection, topic: str, partition: int, offset: int, limit_seconds: float = 30.0
) -> bytes | None:
    """The value of the record at an offset; None if there is no record, or it has no value."""
    place = TopicPartition(topic, partition)
    give_up_at = time.monotonic() + limit_seconds
    settings = {**consumer_settings(), "max_partition_fetch_bytes": _LEAST_FETCH_BYTES}
    with connection.doing(f"reading {topic}"), closing(connection.consumer(**settings)) as consumer:
        first, last = consumer.beginning_offsets([place])[place], consumer.end_offsets([place])[place]
        if not first <= offset < last:
            return None
        consumer.assign([place])
        consumer.seek(place, offset)
        while time.monotonic() < give_up_at:
            records = consumer.poll(timeout_ms=_MOST_WAIT_MS).get(place, [])
            if records:
                value: bytes | None = records[0].value
                return value if records[0].offset == offset else None
    raise KafkaRefused(f"{connection.brokers}: {topic}, partition {partition}: no answer: see whether the brokers run")


def check_topic(topic: str, topic_id: str, found: str | None) -> None:
    """Refuse a topic that is gone (None), or another one under the same name."""
    if found is None:
        raise KafkaRefused(f"{topic}: the topic was deleted: nothing more can be read of it")
    if topic_id != found:
        raise KafkaRefused(
            f"{topic}: the topic was deleted and made anew (its id was {topic_id} and is {found}), so its offsets mean "
            "other records: read it from its beginning into a new state"
        )


def described(admin: Any, topic: str) -> tuple[str, int] | None:
    """The id of a topic and how many partitions it has, None if there is no such topic. Raises what the client does."""
    (found,) = admin.describe_topics([topic])
    problem = for_code(found["error_code"])
    if problem is UnknownTopicOrPartitionError:
        return None
    if problem is not NoError:
        raise problem(topic)
    return str(found["topic_id"]), len(found["partitions"])


def _at_time(consumer: Any, otherwise: dict[Any, int], last: dict[Any, int], time_ms: int | None) -> dict[Any, int]:
    """The first offsets from a time on; where there is none yet, the last ones."""
    if time_ms is None:
        return otherwise
    found = consumer.offsets_for_times({place: max(time_ms, 0) for place in last})
    return {place: min(found[place].offset, last[place]) if found.get(place) else last[place] for place in last}
