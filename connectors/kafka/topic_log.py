"""A topic as one log: its partitions merged record by record, in the order of their times.

The next record is always the one with the earliest time among the next records of all partitions; of equal times, that
of the lowest partition. So the order depends only on the records and on the offsets where reading starts, and a reader
that continues from the end of a batch gets the same order (docs/decisions/topics.md).

A position in the log is the number of offsets that were passed since its beginning, summed over all partitions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event
from typing import NamedTuple

import numpy as np
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import RetriableError

from opicflow.connectors.files.decoded import Decoded
from opicflow.connectors.kafka.client import FetchedRecords, Record, message_batch
from opicflow.connectors.kafka.connection import KafkaRefused
from opicflow.connectors.kafka.messages import decode_messages, writer_of
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
from opicflow.schemas.arrays import Ints
from opicflow.schemas.framing import WriterOf
from opicflow.schemas.hashing import hash_text

BATCH_BYTES = 2 << 20
BATCH_RECORDS = 8_192
_READY_RECORDS = 2_048
"""Merging waits for this many records of each partition: the partition with the fewest limits the batch."""
_BUFFERED_BYTES = 16 << 20
_BUFFERED_RECORDS = 65_536
"""The limits for all partitions together, however many there are."""

_POLL_MS = 20  # one of many partitions is waited for: others may have records first
_CHECK_SECONDS = 10.0
_STALL_SECONDS = 1.0
"""After a pause this long, the topic is checked before its records are used."""


class PartitionProgress(NamedTuple):
    """How far a partition was read: the next offset, and the digest of the last record before it."""

    partition: int
    at: int
    last_digest: str


@dataclass(frozen=True)
class TopicRange:
    """Ranges of all partitions of a topic, as one log from position `start` on. `source` is its name in the ledger.

    `after_ms`: the range is read again, for its events after this time.
    """

    source: str
    partitions: tuple[PartitionRange, ...]
    start: int = 0
    after_ms: int | None = None

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self.partitions[0].topic

    @property
    def name(self) -> str:
        """The name of the source for messages."""
        return self.topic

    @property
    def stored_bytes(self) -> None:
        """Return None: the brokers do not report it."""
        return None

    @property
    def records(self) -> int:
        """The number of its offsets, at least as many as records."""
        return sum(one.end - one.start for one in self.partitions)

    def read(self) -> Generator[TopicBatch, None, bool]:
        """Yield the batches of the range. No record of a topic is incomplete."""
        yield from read_topic(self)
        return False

    def split(self, range_bytes: int) -> list[TopicRange]:
        """Return the range alone: its partitions are one log."""
        return [self]

    def advanced_to(self, at: int, reached: Sequence[tuple[int, int, str]]) -> TopicRange:
        """Return the rest of the range after a batch that ended at this position."""
        by_partition = {one.partition: one for one in (PartitionProgress(*progress) for progress in reached)}
        left = [
            replace(one, start=by_partition[one.partition].at, last_digest=by_partition[one.partition].last_digest)
            if one.partition in by_partition
            else one
            for one in self.partitions
        ]
        return replace(self, partitions=tuple(left), start=at)


class TopicBatch(NamedTuple):
    """Records of a topic at the positions [start, end) of its log, not yet decoded. Some positions have no record.

    `reached` is the progress of every partition at the end of the batch.
    """

    start: int
    end: int
    decode: Callable[[], Decoded]
    size_bytes: int
    reached: tuple[PartitionProgress, ...]


def topic_range(partitions: Sequence[PartitionRange]) -> TopicRange:
    """Return the partitions of a topic as one log."""
    return TopicRange(f"kafka/{partitions[0].topic_id}", tuple(partitions))


def read_topic(input_range: TopicRange, patience_seconds: float = PATIENCE_SECONDS) -> Iterator[TopicBatch]:
    """Yield the batches of a topic, each beginning where the one before ended.

    Raises `KafkaRefused` if the cluster returns nothing for `patience_seconds`. Shorter failures of brokers and changes
    of leaders are retried.
    """
    with ExitStack() as stack, input_range.partitions[0].connection.doing(f"reading {input_range.topic}"):
        check = stack.enter_context(_topic_check(input_range.partitions[0]))
        reader = _Reader(input_range.partitions, check, patience_seconds, stack)
        yield from _merge(reader, input_range, writer_of(input_range.partitions[0].connection))
        reader.check_topic()


def _merge(reader: _Reader, input_range: TopicRange, writers: WriterOf) -> Iterator[TopicBatch]:
    position = input_range.start
    while left := reader.fill():
        chosen = _choose(left)
        counts = np.bincount(chosen, minlength=len(left)).tolist()
        size_bytes = sum(int(buffer.sizes[:count].sum()) for buffer, count in zip(left, counts, strict=True))
        taken = [buffer.take(count) for buffer, count in zip(left, counts, strict=True)]
        parts = [part for some, _ in taken for part in some]
        target_rows = np.argsort(chosen, kind="stable")  # of the records of the first partition, then of the next
        passed = np.empty(len(chosen), np.int64)
        passed[target_rows] = np.concatenate([offsets for _, offsets in taken])
        ends = position + np.cumsum(passed)
        decode = partial(_decode, parts, target_rows, ends - 1, input_range, writers)
        yield TopicBatch(position, int(ends[-1]), decode, size_bytes, _progress(reader))
        position = int(ends[-1])
    rest = sum(buffer.take_rest() for buffer in reader.buffers)
    if rest:  # only transaction markers, and records that compaction removed
        none = np.zeros(0, np.int64)
        decode = partial(_decode, [], none, none, input_range, writers)
        yield TopicBatch(position, position + rest, decode, 0, _progress(reader))


def _choose(buffers: Sequence[_Buffer]) -> Ints:
    """Return the buffer index of each record of the next batch, in order.

    The sort key of a record is the latest time up to it in its partition, so a record with an earlier time follows
    directly after the one before it.
    """
    keys = [np.maximum.accumulate(buffer.times[:BATCH_RECORDS]) for buffer in buffers]
    # A record may be chosen only if no partition can still receive one that precedes it.
    limits = [
        (int(key[-1]), number)
        for number, (key, buffer) in enumerate(zip(keys, buffers, strict=True))
        if len(key) < BATCH_RECORDS and not buffer.is_complete
    ]
    if limits:
        time_ms, last = min(limits)
        keys = [
            key[: np.searchsorted(key, time_ms, side="right" if number <= last else "left")]
            for number, key in enumerate(keys)
        ]
    numbers = np.repeat(np.arange(len(keys)), [len(key) for key in keys])
    order = np.argsort(np.concatenate(keys), kind="stable")[:BATCH_RECORDS]
    sizes = np.concatenate([buffer.sizes[: len(key)] for buffer, key in zip(buffers, keys, strict=True)])
    rows = max(int(np.searchsorted(np.cumsum(sizes[order]), BATCH_BYTES, side="right")), 1)
    return numbers[order[:rows]]


def _progress(reader: _Reader) -> tuple[PartitionProgress, ...]:
    return tuple(PartitionProgress(one.input_range.partition, one.at, one.last_digest) for one in reader.buffers)


def _decode(
    parts: Sequence[FetchedRecords], target_rows: Ints, positions: Ints, input_range: TopicRange, writers: WriterOf
) -> Decoded:
    """Decode records. `target_rows` has the row of each record, `positions` the position of each row."""
    messages = message_batch(parts, 0, 0, target_rows)
    decoded = decode_messages(replace(messages, offsets=positions), input_range.source, writers)
    partitions = np.empty(len(target_rows), np.int64)
    partitions[target_rows] = np.repeat([part.partition for part in parts], [len(part) for part in parts])
    return decoded._replace(where=partial(_where, input_range.topic, positions, partitions, messages.offsets))


def _where(topic: str, positions: Ints, partitions: Ints, offsets: Ints, position: int) -> tuple[str, int]:
    """Return the partition and the offset of the record at a position."""
    row = int(np.searchsorted(positions, position))
    return f"{topic}/{partitions[row]}", int(offsets[row])


# -- buffers of fetched records ----------------------------------------------------------------------------------------


class _Buffer:
    """Fetched records of a partition that no batch has taken, with their times (ms) and the sizes of their values.

    `at` is the offset up to which records were taken.
    """

    def __init__(self, input_range: PartitionRange, partitions: int) -> None:
        """`partitions` is the number of partitions that share the limits."""
        self.topic_partition = TopicPartition(input_range.topic, input_range.partition)
        self.input_range = input_range
        self.at = input_range.start
        self.last_digest = input_range.last_digest
        self.times: Ints = np.zeros(0, np.int64)
        self.sizes: Ints = np.zeros(0, np.int64)
        self.fetched_to = input_range.start
        self.is_complete = False
        """Whether it holds all remaining records of the range."""
        self._parts: list[FetchedRecords] = []
        self._ready_bytes = min(BATCH_BYTES, _BUFFERED_BYTES // partitions)
        self._ready_records = min(_READY_RECORDS, _BUFFERED_RECORDS // partitions)

    def __len__(self) -> int:
        """The number of its records."""
        return len(self.times)

    @property
    def is_ready(self) -> bool:
        """Whether it holds enough records for a batch."""
        is_enough = len(self) >= self._ready_records or int(self.sizes.sum()) >= self._ready_bytes
        return self.is_complete or (len(self) > 0 and is_enough)

    @property
    def unfetched(self) -> PartitionRange:
        """The range that is not fetched yet."""
        return replace(self.input_range, start=self.fetched_to)

    def add(self, parts: Sequence[FetchedRecords], position: int | None) -> None:
        """Add fetched records. `position` is the consumer's position after them."""
        input_range = self.input_range
        if parts and parts[0].offsets[0] < input_range.start:
            self._check_last(parts[0].record(0))
        reached = [self.fetched_to, position or 0, *(part.next_offset for part in parts)]
        self.fetched_to = max(reached)
        self.is_complete |= self.fetched_to >= input_range.end
        inside = [part.between(input_range.start, input_range.end) for part in parts]
        self._parts += filter(None, inside)
        self.times = np.concatenate([self.times, *(part.times_ms for part in inside)])
        self.sizes = np.concatenate([self.sizes, *(np.maximum(part.value_sizes, 0) for part in inside)])

    def take(self, count: int) -> tuple[list[FetchedRecords], Ints]:
        """Remove and return the next records, and the number of offsets from each to the record before it."""
        taken, left = list[FetchedRecords](), count
        while left > 0:
            part = self._parts[0]
            taken.append(part.rows(0, left))
            self._parts[:1] = [part.rows(left, len(part))] if len(part) > left else []
            left -= len(taken[-1])
        self.times, self.sizes = self.times[count:], self.sizes[count:]
        offsets = np.concatenate([[self.at - 1], *(part.offsets for part in taken)])
        if taken:
            last = taken[-1].record(len(taken[-1]) - 1)
            self.at, self.last_digest = last.offset + 1, digest_of(last)
        return taken, offsets[1:] - offsets[:-1]

    def take_rest(self) -> int:
        """Pass the offsets after the last record; returns how many."""
        before, self.at = self.at, self.input_range.end
        return self.at - before

    def _check_last(self, record: Record) -> None:
        """Refuse a log whose record before the start is not the one that was read there."""
        input_range = self.input_range
        if record.offset == input_range.start - 1 and input_range.last_digest not in ("", digest_of(record)):
            raise KafkaRefused(
                f"{input_range.topic}, partition {input_range.partition}: the record at offset {record.offset} is not "
                "the one that was read before: the log was replaced or restored: read it from its beginning into a "
                "new state"
            )


def digest_of(record: Record) -> str:
    """Return a hash of offset, key and value, which identifies a record."""
    key, value = record.key or b"", record.value or b""
    sizes = b"%d %d %d " % (record.offset, record.serialized_key_size, record.serialized_value_size)
    return f"{hash_text(b''.join((sizes, key, value))):016x}"


class _Reader:
    """A consumer and a buffer for each partition.

    A partition whose buffer is full enough is not polled. One consumer for all partitions would have to pause it, and
    the client might then neither return the records it has fetched nor fetch them again.
    """

    def __init__(
        self,
        input_ranges: Sequence[PartitionRange],
        check_same_topic: Callable[[], None],
        patience_seconds: float,
        stack: ExitStack,
    ) -> None:
        """`stack` closes the consumers."""
        ordered = sorted(input_ranges, key=lambda one: one.partition)
        self.buffers = [_Buffer(input_range, len(ordered)) for input_range in ordered]
        settings = consumer_settings(len(ordered))
        self._consumers = [stack.enter_context(closing(one.connection.consumer(**settings))) for one in ordered]
        self._check_same_topic = check_same_topic
        self._patience_seconds = patience_seconds
        self._checked_at = self._got_at = time.monotonic()
        all_partitions = [buffer.topic_partition for buffer in self.buffers]
        first = self._consumers[0].beginning_offsets(all_partitions)
        last = self._consumers[0].end_offsets(all_partitions)
        for buffer in self.buffers:
            check_range(buffer.input_range, first[buffer.topic_partition], last[buffer.topic_partition])
        for buffer, consumer in zip(self.buffers, self._consumers, strict=True):
            input_range = buffer.input_range
            look_back = input_range.last_digest != "" and input_range.start > first[buffer.topic_partition]
            buffer.fetched_to = input_range.start - look_back
            buffer.is_complete = buffer.fetched_to == input_range.end
            consumer.assign([buffer.topic_partition])
            consumer.seek(buffer.topic_partition, buffer.fetched_to)

    def fill(self) -> list[_Buffer]:
        """Fetch until each partition has enough records for a batch.

        Returns the buffers with records, in the order of their partitions; none if all records were taken.
        """
        since = time.monotonic()
        while missing := [pair for pair in zip(self.buffers, self._consumers, strict=True) if not pair[0].is_ready]:
            before = [buffer.fetched_to for buffer, _ in missing]
            for buffer, consumer in missing:
                self._poll(buffer, consumer, 0)  # records received already; all consumers then fetch at the same time
            if before == [buffer.fetched_to for buffer, _ in missing]:
                self._poll(*missing[0], _POLL_MS)
            now = time.monotonic()
            if before != [buffer.fetched_to for buffer, _ in missing]:
                since = now
            elif now - since > self._patience_seconds:
                raise no_answer(missing[0][0].unfetched, self._patience_seconds)
        return [buffer for buffer in self.buffers if len(buffer)]

    def check_topic(self) -> None:
        """Refuse a topic that was replaced while it was read; waits for brokers as reading does."""
        since = time.monotonic()
        while not self._try_check():
            if time.monotonic() - since > self._patience_seconds:
                raise no_answer(self.buffers[0].unfetched, self._patience_seconds)
            Event().wait(_STALL_SECONDS)

    def _try_check(self) -> bool:
        try:
            self._check_same_topic()
        except RetriableError:
            return False
        self._checked_at = time.monotonic()
        return True

    def _poll(self, buffer: _Buffer, consumer: KafkaConsumer, timeout_ms: int) -> None:
        found = poll(consumer, buffer.unfetched, timeout_ms)
        now = time.monotonic()
        # After a pause the records may be those of a new topic: the client fetches by name.
        if found and (now - self._checked_at > _CHECK_SECONDS or now - self._got_at > _STALL_SECONDS):
            self._try_check()
        if found:
            self._got_at = now
        buffer.add(found.get(buffer.topic_partition, []), consumer.position(buffer.topic_partition, timeout_ms=0))


@contextmanager
def _topic_check(input_range: PartitionRange) -> Iterator[Callable[[], None]]:
    """Return a function that refuses a topic that was deleted or replaced."""
    with closing(input_range.connection.admin()) as admin:

        def check() -> None:
            found = described(admin, input_range.topic)
            check_topic(input_range.topic, input_range.topic_id, found and found[0])

        check()
        yield check
