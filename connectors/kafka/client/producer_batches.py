"""Packs many records at once into the batches of a kafka-python producer.

kafka-python's `send` takes 70 µs per record for checks, locks, a future and its callbacks. Here a kernel writes all
records of a partition into the batch, and one future acknowledges them: 120 µs per partition and 2 µs per record.
kafka-python also wakes the sender thread for every new batch, and that thread then takes the interpreter from the one
that fills the next batch; here the sender is woken only if it would not send the batch in time.

This depends on private parts of kafka-python, so it is done only with versions that were tested
(`TESTED_VERSIONS`). With other versions, and where a batch may be too large for its topic and be split, records are
sent one by one (docs/decisions/columns.md).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import kafka
import numpy as np
from kafka import KafkaProducer, TopicPartition
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder

from opicflow.schemas.arrays import Bytes, Int, Ints
from opicflow.schemas.columns import Texts
from opicflow.schemas.kernel import kernel
from opicflow.schemas.varint import put_bytes, put_signed, signed_bytes

TESTED_VERSIONS = ("3.0.",)
"""Prefixes of the versions of kafka-python whose batches have the layout that is written here."""

MIN_RECORDS = 3
"""For fewer records per partition, `append` costs more than it saves."""

_MAX_FRAME_BYTES = 40
"""The size of a record without its key and value: lengths, offset, timestamp, attributes, no headers."""


class RecordChunk(NamedTuple):
    """Records that one future acknowledges."""

    future: FutureRecordMetadata
    records: int
    size_bytes: int


class RecordColumns(NamedTuple):
    """Times, and keys and values as concatenated bytes, with the start and the length of each: length -1 = none.

    `sizes` are those of the records as kafka-python counts them, where a missing key or value counts -1.
    """

    sizes: Ints
    times_ms: Ints
    keys: Bytes
    key_starts: Ints
    key_lengths: Ints
    values: Bytes
    value_starts: Ints
    value_lengths: Ints

    @classmethod
    def of(cls, keys: Sequence[bytes | None], values: Sequence[bytes | None], times_ms: Ints | int) -> RecordColumns:
        """Make columns of keys, values, and times or one time; `Texts` are columns already and are not copied."""
        times = np.full(len(keys), times_ms, np.int64) if isinstance(times_ms, int) else times_ms
        texts = (*_join(keys), *_join(values))
        return cls(texts[2] + texts[5], times, *texts)


class BatchAppender:
    """Appends records to the batches of a producer, with the same result as the producer's `send`."""

    def __init__(self, producer: KafkaProducer) -> None:
        """The producer must not use transactions."""
        self._producer = producer
        self._accumulator: RecordAccumulator = producer._accumulator
        self._batch_bytes = int(producer.config["batch_size"])
        self._linger_seconds = producer.config["linger_ms"] / 1000
        self._woken_at = -math.inf

    @classmethod
    def of(cls, producer: KafkaProducer) -> BatchAppender | None:
        """Return an appender, or None if the layout of the producer's batches is unknown."""
        is_tested = isinstance(producer, KafkaProducer) and kafka.__version__.startswith(TESTED_VERSIONS)
        return cls(producer) if is_tested and producer._accumulator.config["message_version"] == 2 else None

    def can_append(self, topic: str, max_message_bytes: int) -> bool:
        """Whether batches of the topic are never split, and the producer has the topic's metadata."""
        return (
            max_message_bytes >= 2 * self._batch_bytes
            and self._producer._metadata.partitions_for_topic(topic) is not None
        )

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether the partition exists according to the producer's metadata."""
        return partition in (self._producer._metadata.partitions_for_topic(topic) or ())

    def append_one(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, timestamp_ms: int | None
    ) -> FutureRecordMetadata:
        """Append one record to the batches of a partition; returns its future."""
        topic_partition = TopicPartition(topic, partition)
        future, is_full, is_new, _ = self._accumulator.append(topic_partition, timestamp_ms, key, value, [])
        if is_full or is_new:
            self._wake_sender(topic_partition, is_full)
        return future

    def append(self, topic: str, partition: int, records: RecordColumns, rows: Ints) -> Iterator[RecordChunk]:
        """Append the records at `rows`, in this order, to the batches of a partition; yields a chunk for each batch."""
        topic_partition, accumulator = TopicPartition(topic, partition), self._accumulator
        at, is_full, is_new = 0, False, False
        while at < len(rows):
            accumulator._appends_in_progress.increment()
            try:
                with accumulator._tp_lock(topic_partition):
                    if accumulator._closed:
                        raise kafka.errors.IllegalStateError("RecordAccumulator is closed")
                    waiting = accumulator._batches[topic_partition]
                    added = self._fill(waiting[-1], records, rows[at:]) if waiting else 0
                    if added == 0:
                        builder = MemoryRecordsBuilder(2, accumulator.config["compression_attrs"], self._batch_bytes)
                        batch = ProducerBatch(topic_partition, builder)
                        added = self._fill(batch, records, rows[at:])
                        is_full = len(waiting) > 0
                        waiting.append(batch)
                        accumulator._incomplete.add(batch)
                        is_new = True
                    batch = waiting[-1]
                    last = batch.record_count - 1
                    time_ms = int(records.times_ms[rows[at + added - 1]])
                    future = FutureRecordMetadata(batch.produce_future, last, time_ms, None, -1, -1, -1)
                    batch._record_futures.append(future)
            finally:
                accumulator._appends_in_progress.decrement()
            chunk_rows = rows[at : at + added]
            at += added
            yield RecordChunk(future, added, int(records.sizes[chunk_rows].sum()))
        if is_new:
            self._wake_sender(topic_partition, is_full)

    def _wake_sender(self, topic_partition: TopicPartition, is_full: bool) -> None:
        """Wake the sender thread for a new batch, unless it will check all batches soon. `flush` always wakes it.

        While a batch of another partition lingers, the sender wakes at the end of its linger time and checks all.
        """
        now = time.monotonic()
        if not is_full and now - self._woken_at < self._linger_seconds:
            muted = self._accumulator.muted  # these wait for a response, which may take long
            waiting = list(self._accumulator._batches.items())
            if any(batches and other != topic_partition and other not in muted for other, batches in waiting):
                return
        self._woken_at = now
        self._producer._sender.wakeup()

    def _fill(self, batch: ProducerBatch, records: RecordColumns, rows: Ints) -> int:
        """Append as many records as fit, at least one if the batch is empty; returns how many."""
        memory = batch.records
        if memory._closed:
            return 0
        builder = memory._builder
        is_new = builder._first_timestamp is None
        room = self._batch_bytes - len(builder._buffer)
        first_ms = int(records.times_ms[rows[0]]) if is_new else builder._first_timestamp
        max_bytes = int(np.maximum(records.sizes[rows] + _MAX_FRAME_BYTES, 0).sum())
        out = np.empty(max(0, min(room, max_bytes)), np.uint8)
        added, used = _encode(*records, rows, memory._next_offset, first_ms, out)
        if added == 0 and is_new:  # larger than a batch: it gets a batch of its own
            out = np.empty(int(records.sizes[rows[0]]) + _MAX_FRAME_BYTES, np.uint8)
            added, used = _encode(*records, rows[:1], memory._next_offset, first_ms, out)
        if added == 0:
            return 0
        builder._buffer += out[:used].data
        if is_new:
            builder._first_timestamp = builder._max_timestamp = first_ms
        builder._max_timestamp = max(builder._max_timestamp, int(records.times_ms[rows[:added]].max()))
        builder._num_records += added
        memory._next_offset += added
        builder._last_offset = memory._next_offset - 1
        batch.last_append = time.monotonic()
        batch.max_record_size = max(batch.max_record_size, used // added)
        return int(added)


def is_sending(producer: KafkaProducer) -> bool:
    """Whether the producer's sender thread is alive."""
    return bool(producer._sender.is_alive())


def stop_sending(producer: KafkaProducer) -> None:
    """Make the sender thread drop its unsent records: `close` would wait for it, and raise before it stops."""
    producer._sender.force_close()


def compressed_size(key: bytes | None, value: bytes | None, max_bytes: int) -> int | None:
    """Return the size of a record in a batch of its own, or None if it is larger than `max_bytes` uncompressed."""
    if DefaultRecordBatchBuilder.estimate_size_in_bytes(key, value, []) > max_bytes:
        return None
    batch = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=DefaultRecordBatchBuilder.CODEC_LZ4,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=0,
    )
    batch.append(0, 0, key, value, [])
    return len(batch.build())


def _join(values: Sequence[bytes | None]) -> tuple[Bytes, Ints, Ints]:
    if isinstance(values, Texts):
        return values.text, values.starts, values.lengths
    lengths = np.fromiter((-1 if value is None else len(value) for value in values), np.int64, len(values))
    ends = np.cumsum(np.maximum(lengths, 0))
    text = b"".join(value for value in values if value is not None)
    return np.frombuffer(text, np.uint8), ends - np.maximum(lengths, 0), lengths


@kernel
def _encode(
    sizes: Ints,
    times_ms: Ints,
    keys: Bytes,
    key_starts: Ints,
    key_lengths: Ints,
    values: Bytes,
    value_starts: Ints,
    value_lengths: Ints,
    rows: Ints,
    offset: int,
    first_ms: int,
    out: Bytes,
) -> tuple[Int, Int]:
    """Write the records at `rows` until one does not fit; returns how many were written, and their bytes."""
    at = np.int64(0)
    for number in range(rows.shape[0]):
        row, record_offset = rows[number], offset + number
        delta = times_ms[row] - first_ms
        size = (
            2  # attributes, and no headers
            + signed_bytes(delta)
            + signed_bytes(record_offset)
            + signed_bytes(key_lengths[row])
            + max(key_lengths[row], 0)
            + signed_bytes(value_lengths[row])
            + max(value_lengths[row], 0)
        )
        if at + signed_bytes(size) + size > out.shape[0]:
            return number, at
        at = put_signed(out, at, size)
        out[at] = 0
        at = put_signed(out, at + 1, delta)
        at = put_signed(out, at, record_offset)
        at = put_signed(out, at, key_lengths[row])
        at = put_bytes(out, at, keys, key_starts[row], key_starts[row] + max(key_lengths[row], 0))
        at = put_signed(out, at, value_lengths[row])
        at = put_bytes(out, at, values, value_starts[row], value_starts[row] + max(value_lengths[row], 0))
        out[at] = 0
        at += 1
    return rows.shape[0], at
