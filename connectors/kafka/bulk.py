"""Records into the batches of a kafka-python producer, many at once.

Its `send` takes 70 µs a record: checks, locks, a future and its callbacks for each. Here the records of a partition are
written by a kernel, as a batch has them, and acknowledged together: 120 µs a partition, and 2 a record. And it wakes
the thread that sends for every batch that is begun, which then takes the interpreter from whoever begins the next one;
here only where that thread would not look in time. This reaches into what kafka-python does not promise to keep, so it
is done with versions only that were tried (`TRIED`): with others, and where a batch might be too large for its topic
and be split, records are sent one by one (docs/decisions/bulk-sending.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import kafka
import numpy as np
import numpy.typing as npt
from kafka import KafkaProducer, TopicPartition
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.memory_records import MemoryRecordsBuilder

from opicflow.schemas.columns import Texts
from opicflow.schemas.kernel import kernel

TRIED = ("3.0.",)
"""How versions of kafka-python begin whose batches are made as they are made here."""

FEWEST = 3
"""Of fewer records a partition than that more is lost than saved."""

_MOST_FRAME = 40
"""What a record takes at most beside its key and value: lengths, offset, timestamp, attributes, no headers."""

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]


class Chunk(NamedTuple):
    """Records that are acknowledged together."""

    future: Any
    records: int
    size_bytes: int


class Records(NamedTuple):
    """Keys and values, one after the other, where each starts, and how long it is: -1 of what is none."""

    keys: Bytes
    key_starts: Int64s
    key_lengths: Int64s
    values: Bytes
    value_starts: Int64s
    value_lengths: Int64s

    @classmethod
    def of(cls, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Records:
        """These records."""
        return cls(*_joined(keys), *_joined(values))

    @property
    def sizes(self) -> Int64s:
        """The bytes of each, as kafka-python counts them: -1 for what is none."""
        return self.key_lengths + self.value_lengths


class BulkAppender:
    """Puts records into the batches of a producer, as its own `send` would."""

    def __init__(self, producer: KafkaProducer) -> None:
        """A producer that keeps no transactions."""
        self._producer = producer
        self._accumulator: Any = producer._accumulator
        self._batch_bytes = int(producer.config["batch_size"])
        self._linger_seconds = producer.config["linger_ms"] / 1000
        self._woke_at = -math.inf

    @classmethod
    def of(cls, producer: Any) -> BulkAppender | None:
        """None if this is no producer whose batches are known."""
        known = isinstance(producer, KafkaProducer) and kafka.__version__.startswith(TRIED)
        return cls(producer) if known and producer._accumulator.config["message_version"] == 2 else None

    def may_take(self, topic: str, most_bytes: int) -> bool:
        """Whether batches of this topic are never split, and its partitions are known."""
        return most_bytes >= 2 * self._batch_bytes and self._producer._metadata.partitions_for_topic(topic) is not None

    def knows(self, topic: str, partition: int) -> bool:
        """Whether there is such a partition, as far as the producer has heard."""
        return partition in (self._producer._metadata.partitions_for_topic(topic) or ())

    def append_one(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int | None
    ) -> Any:
        """Put one record into the batches of a partition; its future."""
        place = TopicPartition(topic, partition)
        future, is_full, is_new, _ = self._accumulator.append(place, timestamp_ms, key, value, [])
        if is_full or is_new:
            self._begun(place, is_full)
        return future

    def append(self, topic: str, partition: int, records: Records, rows: Int64s, timestamp_ms: int) -> Iterator[Chunk]:
        """Put these of the records into batches of a partition, in this order: some at a time."""
        place, accumulator = TopicPartition(topic, partition), self._accumulator
        at, is_full, is_new = 0, False, False
        while at < len(rows):
            accumulator._appends_in_progress.increment()
            try:
                with accumulator._tp_lock(place):
                    if accumulator._closed:
                        raise kafka.errors.IllegalStateError("RecordAccumulator is closed")
                    waiting = accumulator._batches[place]
                    added = self._fill(waiting[-1], records, rows[at:], timestamp_ms) if waiting else 0
                    if added == 0:
                        builder = MemoryRecordsBuilder(2, accumulator.config["compression_attrs"], self._batch_bytes)
                        batch = ProducerBatch(place, builder)
                        added = self._fill(batch, records, rows[at:], timestamp_ms)
                        is_full = len(waiting) > 0
                        waiting.append(batch)
                        accumulator._incomplete.add(batch)
                        is_new = True
                    batch = waiting[-1]
                    last = batch.record_count - 1
                    future = FutureRecordMetadata(batch.produce_future, last, timestamp_ms, None, -1, -1, -1)
                    batch._record_futures.append(future)
            finally:
                accumulator._appends_in_progress.decrement()
            some = rows[at : at + added]
            at += added
            yield Chunk(future, added, int(records.sizes[some].sum()))
        if is_new:
            self._begun(place, is_full)

    def _begun(self, place: TopicPartition, is_full: bool) -> None:
        """Wake the thread that sends: it has a batch to send, or to wait for. `flush` wakes it in any case.

        Not where another batch waits already: it looks at all of them when that one's time has come.
        """
        now = time.monotonic()
        if not is_full and now - self._woke_at < self._linger_seconds:
            muted = self._accumulator.muted  # these wait for an answer, which may take long
            waiting = list(self._accumulator._batches.items())
            if any(batches and other != place and other not in muted for other, batches in waiting):
                return
        self._woke_at = now
        self._producer._sender.wakeup()

    def _fill(self, batch: Any, records: Records, rows: Int64s, timestamp_ms: int) -> int:
        """Add to a batch as many of the records as it takes; at least one if it has none yet."""
        memory = batch.records
        if memory._closed:
            return 0
        builder = memory._builder
        is_new = builder._first_timestamp is None
        room = self._batch_bytes - len(builder._buffer)
        delta = 0 if is_new else timestamp_ms - builder._first_timestamp
        most = int(np.maximum(records.sizes[rows] + _MOST_FRAME, 0).sum())
        out = np.empty(max(0, min(room, most)), np.uint8)
        added, used = _encode(*records, rows, memory._next_offset, delta, out)
        if added == 0 and is_new:  # it is larger than a batch, and has one to itself
            out = np.empty(int(records.sizes[rows[0]]) + _MOST_FRAME, np.uint8)
            added, used = _encode(*records, rows[:1], memory._next_offset, delta, out)
        if added == 0:
            return 0
        builder._buffer += out[:used].data
        if is_new:
            builder._first_timestamp = builder._max_timestamp = timestamp_ms
        builder._max_timestamp = max(builder._max_timestamp, timestamp_ms)
        builder._num_records += added
        memory._next_offset += added
        builder._last_offset = memory._next_offset - 1
        batch.last_append = time.monotonic()
        batch.max_record_size = max(batch.max_record_size, used // added)
        return int(added)


def _joined(columns: Sequence[bytes | None]) -> tuple[Bytes, Int64s, Int64s]:
    if isinstance(columns, Texts):
        return columns.text, columns.starts, columns.lengths
    lengths = np.fromiter((-1 if one is None else len(one) for one in columns), np.int64, len(columns))
    ends = np.cumsum(np.maximum(lengths, 0))
    text = b"".join(one for one in columns if one is not None)
    return np.frombuffer(text, np.uint8), ends - np.maximum(lengths, 0), lengths


@kernel
def _encode(
    keys: Any,
    key_starts: Any,
    key_lengths: Any,
    values: Any,
    value_starts: Any,
    value_lengths: Any,
    rows: Any,
    offset: int,
    delta: int,
    out: Any,
) -> Any:
    """Write the records of these rows as long as they fit: how many, and how many bytes they take."""
    at: Any = np.int64(0)
    for number in range(rows.shape[0]):
        row, place = rows[number], offset + number
        size = (
            2  # attributes, and no headers
            + _varint_size(delta)
            + _varint_size(place)
            + _varint_size(key_lengths[row])
            + max(key_lengths[row], 0)
            + _varint_size(value_lengths[row])
            + max(value_lengths[row], 0)
        )
        if at + _varint_size(size) + size > out.shape[0]:
            return number, at
        at = _put_varint(out, at, size)
        out[at] = 0
        at = _put_varint(out, at + 1, delta)
        at = _put_varint(out, at, place)
        at = _put_varint(out, at, key_lengths[row])
        for i in range(key_lengths[row]):
            out[at + i] = keys[key_starts[row] + i]
        at = _put_varint(out, at + max(key_lengths[row], 0), value_lengths[row])
        for i in range(value_lengths[row]):
            out[at + i] = values[value_starts[row] + i]
        at += max(value_lengths[row], 0) + 1
        out[at - 1] = 0
    return rows.shape[0], at


@kernel
def _varint_size(value: Any) -> Any:
    """How many bytes a number takes, its sign in the lowest bit."""
    left = (value << 1) ^ (value >> 63)
    size = 1
    while left > 127:
        left >>= 7
        size += 1
    return size


@kernel
def _put_varint(out: Any, at: Any, value: Any) -> Any:
    """Write it; returns where the next one begins."""
    left = (value << 1) ^ (value >> 63)
    while left > 127:
        out[at] = (left & 127) | 128
        left >>= 7
        at += 1
    out[at] = left
    return at + 1
