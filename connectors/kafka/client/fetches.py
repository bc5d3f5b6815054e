"""Unpacks fetched record batches as columns: what kafka-python does record by record, in a tenth of the time.

A consumer given to `unpack_in_columns` returns `FetchedRecords` instead of kafka-python's own records. kafka-python
still decides what to fetch and when, and what a failure means. The records unpacked at once are bounded in bytes and in
number: a batch may hold a thousand times its own bytes. Formats before Kafka 0.11 are not read: brokers that give
topics an id, as opicflow needs them, write none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.protocol.consumer import IsolationLevel
from kafka.record.default_records import DefaultRecordBatch
from kafka.record.memory_records import MemoryRecords

from opicflow.connectors.kafka.client.fetched_records import COLUMNS, TIMES, FetchedRecords
from opicflow.connectors.kafka.client.unpacking import UnpacksTooLarge, unpacked_records
from opicflow.schemas.arrays import Bytes, Int, Ints
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.libraries import parts_of
from opicflow.schemas.varint import read_signed

_MOST_RECORDS = 1 << 16
"""Records that are unpacked at once."""
_NO_END = (1 << 63) - 1
_FORMAT = 2
"""The format of batches since Kafka 0.11."""
_LEAST_BYTES = 7
"""A record without key, value and headers: length, attributes, time, offset, and three more lengths."""


@parts_of("kafka-python", "kafka")
def unpack_in_columns(consumer: KafkaConsumer) -> KafkaConsumer:
    """Return the consumer, a new one of kafka-python, changed to return `FetchedRecords`."""
    consumer._fetcher.PartitionRecords = PartitionColumns
    return consumer


class _Taken:
    """Records in columns. For kafka-python it has the length of a list of records; it yields only their parts."""

    def __init__(self, parts: Sequence[FetchedRecords]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __iter__(self) -> Iterator[FetchedRecords]:
        return iter(self._parts)


class PartitionColumns(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one fetched partition, handled in columns."""

    _ready: FetchedRecords | None = None

    def take(self, n: int | None = None) -> _Taken:
        """Return the next records, at most `n`; a failure is raised after all records before it were returned."""
        self._maybe_raise_next_inline_exception()
        taken: list[FetchedRecords] = []
        left = _NO_END if n is None else n
        try:
            while left > 0:
                if self._ready is None:
                    found = next(self.record_iterator, None)
                    if found is None:
                        break
                    self._ready = found.between(self.fetch_offset, _NO_END)
                some = self._ready.rows(0, left)
                self._ready = self._ready.rows(left, len(self._ready)) if len(self._ready) > left else None
                if some:
                    taken.append(some)
                    left -= len(some)
                    self.next_fetch_offset = some.next_offset
        except Exception as problem:
            if not taken:
                raise
            self._next_inline_exception = problem
        return _Taken(taken)

    def _maybe_skip_record(self, records: FetchedRecords) -> bool:
        """Whether a part of a batch ends before the requested offset."""
        return bool(records.next_offset <= self.fetch_offset)

    def _unpack_records(
        self, topic_partition: TopicPartition, records: MemoryRecords, *deserializers: object
    ) -> Iterator[FetchedRecords]:
        """Yield the records of each batch, without aborted transactions and transaction markers."""
        last = None
        while (batch := _next_batch(records)) is not None:
            last = batch
            if batch.magic != _FORMAT:
                raise CorruptRecordError(
                    f"the batch at offset {batch.base_offset} has format {batch.magic}, which is not read"
                )
            if self.check_crcs and not batch.validate_crc():
                raise CorruptRecordError(
                    f"Record batch for partition {topic_partition} at offset {batch.base_offset} failed crc check"
                )
            self.leader_epoch = batch.leader_epoch
            if not self._was_aborted(batch) and not batch.is_control_batch:
                yield from filter(None, _unpack(batch, topic_partition.partition))
            self.next_fetch_offset = batch.next_offset
        if last is not None:
            self.next_fetch_offset = last.next_offset  # compaction may have removed the last records
        self.drain()

    def _was_aborted(self, batch: DefaultRecordBatch) -> bool:
        if self.isolation_level != IsolationLevel.READ_COMMITTED or not batch.has_producer_id():
            return False
        self._consume_aborted_transactions_up_to(batch.last_offset)
        if self._contains_abort_marker(batch):
            self.aborted_producer_ids.discard(batch.producer_id)
            return False
        return bool(self._is_batch_aborted(batch))


def _next_batch(records: MemoryRecords) -> DefaultRecordBatch | None:
    """Return the next batch of a fetch; None at its end."""
    try:
        return records.next_batch()
    except (struct.error, AssertionError):  # of kafka-python, before it compares checksums
        raise CorruptRecordError("a batch does not have the length that is in its head") from None


def _unpack(batch: DefaultRecordBatch, partition: int) -> Iterator[FetchedRecords]:
    """Yield the records of a batch in parts of a bounded size.

    For a batch that is too large, yield a record that reports it, at its last offset.
    """
    try:
        text, count = unpacked_records(batch), batch.records_count
    except UnpacksTooLarge:
        yield FetchedRecords.unread(partition, batch.last_offset, batch.max_timestamp, max(batch.records_count, 1))
        return
    if not 0 <= count * _LEAST_BYTES <= len(text):  # before memory is taken for so many
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} is too short for its {count} records")
    data, begins = np.frombuffer(text, np.uint8), list[Int]([0])
    sizes = [min(_MOST_RECORDS, count - first) for first in range(0, count, _MOST_RECORDS)]
    columns = np.empty((COLUMNS, min(count, _MOST_RECORDS)), np.int64)
    for size in sizes:
        begins.append(_scan(data, begins[-1], batch.base_offset, batch.first_timestamp, columns[:, :size]))
        if begins[-1] < 0:
            break
    if begins[-1] != len(text):  # before any record is returned
        raise CorruptRecordError(
            f"the batch at offset {batch.base_offset} does not hold the {count} records of its header"
        )
    for begin, size in zip(begins, sizes, strict=False):
        if len(sizes) > 1:
            columns = np.empty((COLUMNS, size), np.int64)
            _scan(data, begin, batch.base_offset, batch.first_timestamp, columns)
        if batch.timestamp_type:
            columns[TIMES] = batch.max_timestamp
        yield FetchedRecords(partition, text, columns)


@lean_kernel
def _scan(data: Bytes, at: Int, first_offset: Int, first_time_ms: Int, columns: Ints) -> Int:
    """Fill a column per record: offset, time, begin and size of its key, begin and size of its value.

    Returns the end of the last record, -1 if the data are corrupt. A record consists of length, attributes (1 byte),
    time and offset relative to the first, key, value and headers. All but the attributes are variable-length numbers,
    or bytes after their length, where -1 = none. A length is compared with the rest of the batch, never added first:
    the sum of a position and a hostile length wraps around.
    """
    size = data.shape[0]
    for row in range(columns.shape[1]):
        length, at = read_signed(data, at, size)
        if length < 0 or length > size - at:
            return -1
        end = at + length
        time_ms, at = read_signed(data, at + 1, size)
        offset, at = read_signed(data, at, size)
        columns[0, row], columns[1, row] = first_offset + offset, first_time_ms + time_ms
        for column in (2, 4):
            part, at = read_signed(data, at, size)
            if part > end - at:
                return -1
            columns[column, row], columns[column + 1, row] = at, max(part, np.int64(-1))
            at += max(part, np.int64(0))
        headers, at = read_signed(data, at, size)
        if headers < 0 or headers > end - at:
            return -1
        for _ in range(2 * headers):
            part, at = read_signed(data, at, size)
            if part > end - at:
                return -1
            at += max(part, np.int64(0))
        if at != end:
            return -1
    return at
