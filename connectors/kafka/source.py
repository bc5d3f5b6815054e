"""Topics as the source of a stream: a timer polls all partitions, and the stage that needs a partition reads it.

A partition is read from any offset in batches that touch: a batch covers the offsets [start, end), and the next one
begins at its end, even after the runner has restarted the stage (docs/decisions/polling.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.io.flink.flink_streaming_impulse_source import FlinkStreamingImpulseSource
from apache_beam.metrics import metric
from apache_beam.utils.timestamp import Timestamp
from kafka import TopicPartition
from kafka.errors import RetriableError

from opicflow.connectors.flink.key_groups import SpreadKeys, number_of
from opicflow.connectors.kafka.client import FetchedRecords, message_batch
from opicflow.connectors.kafka.connection import Connection, KafkaRefused
from opicflow.connectors.kafka.partitions import (
    PATIENCE_SECONDS,
    PartitionRange,
    check_range,
    check_topic,
    consumer_settings,
    described,
    no_answer,
    poll,
    resolve,
)
from opicflow.schemas.message_columns import MessageBatch

_metrics: Any = metric.Metrics  # comes without types

NO_END = (1 << 63) - 1
"""The end of a range that is read without end."""

_MOST_RECORDS = 20_000
_MOST_SECONDS = 0.2
"""The time limit of one read. A read that reaches the end of the partition returns at once."""
_POLL_MS = 5
_RANGE_POLL_MS = 50
_FETCH_WAIT_MS = 500
_IDLE_PAUSE_SECONDS, _MOST_PAUSE_SECONDS = 0.4, 1.0
"""After a read that found nothing, polls are ignored for this time, and longer each time until something is found."""
_MOST_SKEW_SECONDS = 2.0
"""After this time without a read, a poll counts whatever its time: the clock of its sender may be behind."""
_UNUSED_SECONDS = 60.0
_CHECK_SECONDS = 30.0

Poll = tuple[int, float]
"""A request to read a partition: the key of its number, and the time in seconds on the clock of the sender."""
POLL_HINT: Any = typehints.KV[int, float]
"""The type of a poll for Beam."""


def wall_seconds() -> float:
    """Return the time of day, for times that are compared between machines."""
    return float(Timestamp.now().micros) / 1e6


# -- transforms --------------------------------------------------------------------------------------------------------


class PollTimer(beam.PTransform[Any, Any]):
    """Emits an element in every slot at every interval, without end. Flink's own source: no other runner has it."""

    def __init__(self, interval_ms: int) -> None:
        """`interval_ms` is the interval of each slot."""
        super().__init__()
        self._interval_ms = interval_ms

    def expand(self, pbegin: Any) -> Any:
        """Add Flink's impulse source."""
        source = FlinkStreamingImpulseSource().set_interval_ms(self._interval_ms).set_message_count(0)
        return pbegin | "Impulse" >> source


class RateLimit(beam.DoFn):
    """Passes at most one element per interval, for each slot: each one that passes costs a bundle downstream."""

    def __init__(self, interval_seconds: float) -> None:
        """`interval_seconds` is the shortest time between two elements."""
        self._interval_seconds = interval_seconds
        self._passed_at = -math.inf

    def process(self, element: Any) -> Iterable[Any]:
        """Pass the element if the interval is over."""
        now = time.monotonic()
        if now - self._passed_at < self._interval_seconds:
            return ()
        self._passed_at = now
        return (element,)


@dataclass(frozen=True)
class WatchedTopic:
    """A topic that is read without end, and where reading of its partitions starts.

    Partitions that are added later are read from their beginning, or refused if `may_grow` is False.
    """

    partitions: tuple[PartitionRange, ...]
    may_grow: bool = True
    refresh_seconds: float = 60.0
    """The interval of the check for new partitions."""
    most_records: int = 1000
    """The size of a batch. The time limit of a read is checked between batches: a long bundle delays all others."""

    @classmethod
    def of(cls, connection: Connection, topic: str, **options: Any) -> WatchedTopic:
        """Return a topic with its present partitions, each from its beginning."""
        return cls(tuple(replace(one, end=NO_END) for one in resolve(connection, topic)), **options)

    def partition(self, number: int) -> PartitionRange:
        """Return the range of a partition, which may have been added since."""
        for one in self.partitions:
            if one.partition == number:
                return one
        first = self.partitions[0]
        return replace(first, source=f"kafka/{first.topic_id}/{number}", partition=number, start=0, last_digest="")


class PollPartitions(beam.PTransform[Any, Any]):
    """Turns each timer element into a poll of every partition of a topic, for a stage with a `PartitionReader`."""

    def __init__(self, topic: WatchedTopic) -> None:
        """Partitions that are added to the topic are polled too."""
        super().__init__()
        self._topic = topic
        self._keys = SpreadKeys(None if topic.may_grow else len(topic.partitions))

    def expand(self, timer: Any) -> Any:
        """Emit a poll for every partition, with a key that spreads them over the slots of Flink."""
        par_do: Any = beam.ParDo  # comes without types
        return timer | "Poll" >> par_do(SendPolls(self._topic, self._keys)).with_output_types(POLL_HINT)


class SendPolls(beam.DoFn):
    """The `DoFn` of `PollPartitions`."""

    def __init__(self, topic: WatchedTopic, keys: SpreadKeys) -> None:
        """The topic has at least one partition."""
        self._topic = topic
        self._keys = keys
        self._partitions = len(topic.partitions)
        self._refreshed_at = -math.inf

    def process(self, element: Any) -> Iterator[Poll]:
        """Poll all partitions."""
        now = time.monotonic()
        if now - self._refreshed_at > self._topic.refresh_seconds:
            self._refreshed_at = now
            self._refresh()
        sent_at = wall_seconds()
        return ((self._keys(partition), sent_at) for partition in range(self._partitions))

    def _refresh(self) -> None:
        """Count the partitions again. If the cluster does not answer, the next refresh will."""
        known, first = len(self._topic.partitions), self._topic.partitions[0]
        found = _describe(first)
        if found is None:
            return
        if found[1] > known and not self._topic.may_grow:
            raise KafkaRefused(
                f"{first.topic}: the topic grew from {known} to {found[1]} partitions, but the content of each depends "
                "on their number: create the topic again with the right number of partitions"
            )
        self._partitions = max(self._partitions, found[1])


# -- reading -----------------------------------------------------------------------------------------------------------


class PartitionReader:
    """Reads partitions of a topic, for a limited time at every poll. The offsets are state of the stage that has it.

    Polls come from a source of Flink: on Flink neither a splittable `DoFn` that defers its remainder nor a timer works
    for long (docs/decisions/polling.md).
    """

    def __init__(self, topic: WatchedTopic) -> None:
        """Connections are made by the first read."""
        self._topic = topic
        self._schedules: dict[int, _Schedule] = {}

    def read(self, poll: Poll, start: Callable[[], int]) -> Iterator[MessageBatch]:
        """Yield batches from offset `start()` on, unless the poll is outdated or the partition was at its end."""
        partition, sent_at = number_of(poll[0]), poll[1]
        schedule = self._schedules.setdefault(partition, _Schedule())
        if not schedule.is_due(sent_at):
            return
        at, begun = start(), wall_seconds()
        end, has_more = yield from _read_until_deadline(self._topic.partition(partition), at, self._topic.most_records)
        schedule.done(begun, end > at, has_more)

    def close(self) -> None:
        """Close the idle consumers of this process."""
        _CONSUMERS.close()


class _Schedule:
    """When a partition was read, and when it may be read again.

    Polls that were sent before the last read ended are ignored. Where that read did not come to the end of the
    partition, only those that were sent before it began: one that was sent meanwhile goes on at once.
    """

    def __init__(self) -> None:
        self._read_at_seconds = self._ended = self._again_at = -math.inf
        self._pause_seconds = 0.0

    def is_due(self, sent_at: float) -> bool:
        """Whether a poll was sent after the last read, and that read is long enough ago."""
        now = time.monotonic()
        is_outdated = sent_at <= self._read_at_seconds and now - self._ended < _MOST_SKEW_SECONDS
        return now >= self._again_at and not is_outdated

    def done(self, begun: float, has_found: bool, has_more: bool) -> None:
        self._read_at_seconds, self._ended = begun if has_more else wall_seconds(), time.monotonic()
        longer = min(max(2 * self._pause_seconds, _IDLE_PAUSE_SECONDS), _MOST_PAUSE_SECONDS)
        self._pause_seconds = 0.0 if has_found or has_more else longer
        self._again_at = self._ended + self._pause_seconds


def read_range(input_range: PartitionRange) -> Iterator[MessageBatch]:
    """Yield all batches of a range that has an end, without a pipeline."""
    at = input_range.start
    consumer = _CONSUMERS.take(input_range, at)
    try:
        while at < input_range.end:
            parts, end = consumer.next(at, input_range.end)
            if end > at:
                yield message_batch(parts, at, end)
                at = end
    finally:
        consumer.close()


def _read_until_deadline(
    input_range: PartitionRange, at: int, batch_records: int
) -> Generator[MessageBatch, None, tuple[int, bool]]:
    """Yield batches from an offset on, up to limits of records and time; returns the end, and whether there is more.

    What comes in small pieces is one batch: each costs an entry in the log of every shard, or a cut of a ledger.
    """
    deadline, records_left = time.monotonic() + _MOST_SECONDS, _MOST_RECORDS
    consumer = _CONSUMERS.take(input_range, at, batch_records)
    is_good, has_more, start, held = False, True, at, list[FetchedRecords]()
    try:
        while records_left > 0:
            parts, end = consumer.next(at, NO_END, _POLL_MS)
            _metrics.gauge("opicflow", f"lag_{input_range.topic}_{input_range.partition}").set(consumer.lag(end))
            held += parts
            records_left -= sum(map(len, parts))
            if end == at and not parts:
                has_more = consumer.has_more(end)
                break
            at = end
            if sum(map(len, held)) >= batch_records:
                yield message_batch(held, start, at)
                start, held = at, []
            if time.monotonic() >= deadline:
                break
        if at > start:
            yield message_batch(held, start, at)
        is_good = True
    finally:
        _CONSUMERS.give_back(consumer) if is_good else consumer.close()
    return at, has_more


def _describe(input_range: PartitionRange) -> tuple[str, int] | None:
    """Return id and partition count of the topic, None if the cluster does not answer. Refuses another topic."""
    try:
        with closing(input_range.connection.admin()) as admin:
            found = described(admin, input_range.topic)
    except (RetriableError, KafkaRefused):
        return None
    check_topic(input_range.topic, input_range.topic_id, found and found[0])
    return found


# -- consumers of this process -----------------------------------------------------------------------------------------


class _PartitionConsumer:
    """A partition with a consumer of its own."""

    def __init__(self, input_range: PartitionRange, at: int, batch_records: int | None = None) -> None:
        self.input_range = input_range
        self._topic_partition = TopicPartition(input_range.topic, input_range.partition)
        self._at = at
        with input_range.connection.doing(f"reading {input_range.topic}"):
            with closing(input_range.connection.admin()) as admin:
                found = described(admin, input_range.topic)
            check_topic(input_range.topic, input_range.topic_id, found and found[0])
            settings = consumer_settings()
            if (
                input_range.end == NO_END
            ):  # no other partition waits for this fetch, which returns with the first record
                settings["fetch_max_wait_ms"] = _FETCH_WAIT_MS
            if batch_records is not None:
                settings["max_poll_records"] = batch_records
            self._consumer = input_range.connection.column_consumer(**settings)
            try:
                first = self._consumer.beginning_offsets([self._topic_partition])[self._topic_partition]
                last = self._consumer.end_offsets([self._topic_partition])[self._topic_partition]
                end = at if input_range.end == NO_END else input_range.end
                check_range(replace(input_range, start=at, end=end), first, last)
                self._consumer.assign([self._topic_partition])
                self._consumer.seek(self._topic_partition, at)
            except BaseException:
                self.close()
                raise
        self.used_at = self._answered_at = self._checked_at = time.monotonic()

    def next(self, at: int, stop: int, timeout_ms: int = _RANGE_POLL_MS) -> tuple[list[FetchedRecords], int]:
        """Return the next records from offset `at` on and before `stop`, and the end of the offsets they cover."""
        if at != self._at:
            self._consumer.seek(self._topic_partition, at)
            self._at = at
        with self.input_range.connection.doing(f"reading {self.input_range.topic}"):
            found = poll(self._consumer, replace(self.input_range, start=at), timeout_ms)
            end = self._consumer.position(self._topic_partition, timeout_ms=0) or at
        parts = found.get(self._topic_partition, [])
        now = time.monotonic()
        if end > at:
            self._answered_at = now
        if now - self._checked_at > _CHECK_SECONDS:
            self._check(at, now)
        self._at = end
        if end > stop:
            parts = [part.between(at, stop) for part in parts]
        return parts, min(end, stop)

    def lag(self, offset: int) -> int:
        """Return how many offsets follow this one, as far as the consumer has received."""
        last = self._consumer.highwater(self._topic_partition)
        return 0 if last is None else max(last - offset, 0)

    def has_more(self, offset: int) -> bool:
        """Whether records may follow this offset; True until the cluster has answered."""
        last = self._consumer.highwater(self._topic_partition)
        return last is None or last > offset

    def _check(self, at: int, now: float) -> None:
        """Refuse a cluster that has not answered for long, and a topic that was replaced."""
        self._checked_at = now
        if _describe(self.input_range) is not None:
            self._answered_at = now
        elif now - self._answered_at > PATIENCE_SECONDS:
            raise no_answer(replace(self.input_range, start=at), now - self._answered_at)

    def close(self) -> None:
        with suppress(Exception):  # it may be closed because it is broken
            self._consumer.close()


class _ConsumerCache:
    """Consumers between two reads of their partitions, closed when they are unused for a while."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: dict[tuple[Connection, str, int], _PartitionConsumer] = {}

    def take(self, input_range: PartitionRange, at: int, batch_records: int | None = None) -> _PartitionConsumer:
        """Return a consumer for the caller alone."""
        with self._lock:
            found = self._idle.pop((input_range.connection, input_range.topic_id, input_range.partition), None)
        return found or _PartitionConsumer(input_range, at, batch_records)

    def give_back(self, consumer: _PartitionConsumer) -> None:
        """Keep a consumer for the next read, and close those that are unused for long."""
        input_range = consumer.input_range
        key = (input_range.connection, input_range.topic_id, input_range.partition)
        now = consumer.used_at = time.monotonic()
        with self._lock:
            old = [one for one, idle in self._idle.items() if now - idle.used_at > _UNUSED_SECONDS or one == key]
            unused = [self._idle.pop(one) for one in old]
            self._idle[key] = consumer
        for one in unused:
            one.close()

    def close(self) -> None:
        """Close all idle consumers."""
        with self._lock:
            idle, self._idle = list(self._idle.values()), {}
        for one in idle:
            one.close()


_CONSUMERS = _ConsumerCache()
