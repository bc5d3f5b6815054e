"""Topics as the source of a stream: at a poll, the stage that needs a partition reads it.

A partition is read from any offset in batches that touch: a batch covers the offsets [start, end), and the next one
begins at its end, even after the runner has restarted the stage (docs/decisions/flink.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

from apache_beam.metrics import metric
from kafka import TopicPartition
from kafka.errors import RetriableError

from opicflow.connectors.flink.key_groups import number_of
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
)
from opicflow.connectors.kafka.polls import NO_END, UNKNOWN_END, Poll, WatchedTopic, wall_seconds
from opicflow.connectors.runs import kept
from opicflow.schemas.message_columns import MessageBatch

_metrics: Any = metric.Metrics  # comes without types

_MOST_RECORDS = 100_000
_MOST_SECONDS = 1.0
"""The time limit of one read of a partition that has more. A read that has what its poll requests ends at once."""
_MOST_WAIT_SECONDS = 0.2
"""The time limit of one read in which nothing of what its poll requests comes."""
_POLL_MS, _WAIT_MS = 5, 50
_RANGE_POLL_MS = 50
_FETCH_WAIT_MS = 500
_MOST_SKEW_SECONDS = 2.0
"""After this time without a read, a poll counts whatever its time: the clock of its sender may be behind."""
_UNUSED_SECONDS = 60.0
_CHECK_SECONDS = 30.0
_START_AGAIN = (
    "end the stream with opicflow stream cancel, and start it with the command that this prints: a new crawl-events or "
    "policies is then read from its beginning; for a new page-ledger, opicflow rebuild instead"
)


class PartitionReader:
    """Reads partitions of a topic, for a limited time at every poll. The offsets are state of the stage that has it.

    Polls come from a source of Flink: on Flink neither a splittable `DoFn` that defers its remainder nor a timer works
    for long (docs/decisions/flink.md).
    """

    def __init__(self, topic: WatchedTopic, run: str = "") -> None:
        """Connections are made by the first read. The run has those that are idle, for all readers of the process."""
        self._topic = topic
        self._run = run
        self._last: dict[int, _LastRead] = {}

    def read(self, poll: Poll, start: Callable[[], int]) -> Iterator[MessageBatch]:
        """Yield batches from offset `start()` on, unless the poll is outdated or all that it requests was read."""
        partition, (sent_at, end) = number_of(poll[0]), poll[1]
        _set_gauge("read_second", self._topic.partition(partition), int(wall_seconds()))
        last = self._last.setdefault(partition, _LastRead())
        if last.is_after(sent_at):
            return
        at, begun = start(), wall_seconds()
        if end == UNKNOWN_END or end > at or time.monotonic() - last.ended > _CHECK_SECONDS:
            consumers, input_range = kept(self._run, Consumers), self._topic.partition(partition)
            yield from _read_until_deadline(consumers, input_range, at, end, self._topic.most_records)
            last.begun, last.ended = begun, time.monotonic()

    def close(self) -> None:
        """Close the idle consumers of this topic."""
        kept(self._run, Consumers).close(self._topic.partitions[0])


@dataclass
class _LastRead:
    """When the last read of a partition began, on the clock of polls, and when it ended, on that of the process.

    Polls queue up before a slow read, and a checkpoint waits for them. So polls that were sent before the last read
    began are ignored; the others request the records since then, or the records that this read had no time for.
    """

    begun: float = -math.inf
    ended: float = -math.inf

    def is_after(self, sent_at: float) -> bool:
        """Whether the read began after a poll was sent."""
        return sent_at <= self.begun and time.monotonic() - self.ended < _MOST_SKEW_SECONDS


def read_range(input_range: PartitionRange) -> Iterator[MessageBatch]:
    """Yield all batches of a range that has an end, without a pipeline."""
    at = input_range.start
    consumer = _PartitionConsumer(input_range, at)
    try:
        while at < input_range.end:
            parts, end = consumer.next(at, input_range.end)
            if end > at:
                yield message_batch(parts, at, end)
                at = end
    finally:
        consumer.close()


def _read_until_deadline(
    consumers: Consumers, input_range: PartitionRange, at: int, wanted_end: int, batch_records: int
) -> Iterator[MessageBatch]:
    """Yield batches from an offset on, up to an end that is wanted and up to limits of records and time.

    Records that arrive in small pieces are joined: each batch costs an entry in the log of every shard, or a cut of a
    ledger.
    """
    found_at = begun = time.monotonic()
    records_left = _MOST_RECORDS
    consumer = consumers.take(input_range, at, batch_records)
    is_good, start, held = False, at, list[FetchedRecords]()
    try:
        while records_left > 0:
            parts, end = consumer.next(at, NO_END, _WAIT_MS if at < wanted_end else _POLL_MS)
            _metrics.gauge("opicflow", f"lag_{input_range.topic}_{input_range.partition}").set(consumer.lag(end))
            _set_gauge("read_to", input_range, end)
            held += parts
            records_left -= sum(map(len, parts))
            now, has_found = time.monotonic(), end > at or bool(parts)
            at, found_at = end, now if has_found else found_at
            if sum(map(len, held)) >= batch_records:
                yield message_batch(held, start, at)
                start, held = at, []
            is_all = at >= wanted_end and not (has_found and wanted_end == UNKNOWN_END)
            if is_all or now - begun >= _MOST_SECONDS or now - found_at >= _MOST_WAIT_SECONDS:
                break
        if at > start:
            yield message_batch(held, start, at)
        is_good = True
    finally:
        consumers.give_back(consumer) if is_good else consumer.close()


def _answers(input_range: PartitionRange) -> bool:
    """Whether the cluster answers. Refuses another topic of the same name."""
    try:
        with closing(input_range.connection.admin()) as admin:
            found = described(admin, input_range.topic)
    except (RetriableError, KafkaRefused):
        return False
    check_topic(input_range.topic, input_range.topic_id, found and found[0], _START_AGAIN)
    return True


def _set_gauge(name: str, of: PartitionRange, value: int) -> None:
    """Set a gauge of a partition. It is named by the id of the topic: a new topic of the same name has other gauges."""
    _metrics.gauge("opicflow", f"{name}_{of.topic_id}_{of.partition}").set(value)


# -- consumers of a run ------------------------------------------------------------------------------------------------


class _PartitionConsumer:
    """A partition with a consumer of its own."""

    def __init__(self, input_range: PartitionRange, at: int, batch_records: int | None = None) -> None:
        self.input_range = input_range
        self._topic_partition = TopicPartition(input_range.topic, input_range.partition)
        self._at = at
        with input_range.connection.doing(f"reading {input_range.topic}"):
            with closing(input_range.connection.admin()) as admin:
                found = described(admin, input_range.topic)
            check_topic(input_range.topic, input_range.topic_id, found and found[0], _START_AGAIN)
            settings = consumer_settings()
            if (
                input_range.end == NO_END
            ):  # no other partition waits for this fetch, which returns with the first record
                settings["fetch_max_wait_ms"] = _FETCH_WAIT_MS
            if batch_records is not None:
                settings["max_poll_records"] = batch_records
            self._consumer = input_range.connection.consumer(**settings)
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

    def _check(self, at: int, now: float) -> None:
        """Refuse a cluster that has not answered for long, and a topic that was replaced."""
        self._checked_at = now
        if _answers(self.input_range):
            self._answered_at = now
        elif now - self._answered_at > PATIENCE_SECONDS:
            raise no_answer(replace(self.input_range, start=at), now - self._answered_at)

    def close(self) -> None:
        with suppress(Exception):  # it may be closed because it is broken
            self._consumer.close()


class Consumers:
    """The consumers of a run between two reads of their partitions, closed when they are unused for a while."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: dict[tuple[Connection, str, int], _PartitionConsumer] = {}

    def take(self, input_range: PartitionRange, at: int, batch_records: int) -> _PartitionConsumer:
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

    def close(self, of: PartitionRange | None = None) -> None:
        """Close all idle consumers, or those of the topic of a range."""
        with self._lock:
            some = [one for one in self._idle if of is None or one[:2] == (of.connection, of.topic_id)]
            idle = [self._idle.pop(one) for one in some]
        for one in idle:
            one.close()
