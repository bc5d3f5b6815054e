"""Unpacks fetched record batches as columns: what kafka-python does record by record, in a sixth of the time.

A consumer given to `unpack_in_columns` returns `Record`s instead of kafka-python's own records. kafka-python still
decides what to fetch and when, and what a failure means. It also unpacks small batches, and the formats before Kafka
0.11. What is unpacked at once is bounded in bytes and in records: a batch may hold a thousand times its own bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError
from kafka.protocol.consumer import IsolationLevel

from opicflow.connectors.kafka.client.unpacking import UnpacksTooLarge, unpack, unpack_old
from opicflow.schemas.arrays import Ints
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.varint import read_signed

_MIN_RECORDS = 4
"""For fewer records, columns cost more than they save."""
_MOST_RECORDS = 1 << 16
"""Records that are unpacked at once."""
_LEAST_BYTES = 7
"""A record without key, value and headers: length, attributes, time, offset, and three more lengths."""


class Record(NamedTuple):
    """The fields of a record that opicflow uses. A size is -1 where there is no key or no value.

    A record whose value has the size -1 - n stands for n records that were not read: their batch is too large.
    """

    leader_epoch: int
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    serialized_key_size: int
    serialized_value_size: int


_as_record: Callable[[tuple[Any, ...]], Record] = partial(tuple.__new__, Record)
"""`Record._make` without a Python call."""
_Unpacks = Callable[[Any, int], Iterator[list[Record]]]


def unpack_in_columns(consumer: Any) -> Any:
    """Return the consumer, a new one of kafka-python, changed to unpack batches here."""
    consumer._fetcher.PartitionRecords = _PartitionRecords
    return consumer


class _PartitionRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one fetched partition, handled in lists: one by one would double the cost."""

    _ready: Sequence[Record] = ()
    _ready_from = 0

    def take(self, n: int | None = None) -> list[Record]:
        """Return the next records, at most `n`; a failure is raised after all records before it were returned."""
        self._maybe_raise_next_inline_exception()
        taken: list[Record] = []
        try:
            while n is None or len(taken) < n:
                if self._ready_from >= len(self._ready):
                    found = next(self.record_iterator, None)
                    if found is None:
                        break
                    if found[0].offset < self.fetch_offset:
                        found = [record for record in found if record.offset >= self.fetch_offset]
                    self._ready, self._ready_from = found, 0
                end = len(self._ready) if n is None else self._ready_from + n - len(taken)
                some, self._ready_from = self._ready[self._ready_from : end], end
                if some:
                    taken += some
                    self.next_fetch_offset = some[-1].offset + 1
        except Exception as problem:
            if not taken:
                raise
            self._next_inline_exception = problem
        return taken

    def _maybe_skip_record(self, records: Sequence[Record]) -> bool:
        """Whether a batch ends before the requested offset."""
        return bool(records[-1].offset < self.fetch_offset)

    def _unpack_records(self, topic_partition: Any, records: Any, *deserializers: Any) -> Iterator[list[Record]]:
        """Yield the records of each batch, without aborted transactions and transaction markers."""
        last = None
        while (batch := _next_batch(records)) is not None:
            last = batch
            if self.check_crcs and not batch.validate_crc():
                raise CorruptRecordError(
                    f"Record batch for partition {topic_partition} at offset {batch.base_offset} failed crc check"
                )
            if batch.magic < 2:
                yield from filter(None, _unpack(batch, topic_partition.partition, _unpack_old))
                continue
            if batch.magic > 2:
                raise CorruptRecordError(
                    f"the batch at offset {batch.base_offset} has format {batch.magic}, which is not known"
                )
            self.leader_epoch = batch.leader_epoch
            if not self._was_aborted(batch) and not batch.is_control_batch:
                yield from filter(None, _unpack(batch, topic_partition.partition, _unpack_new))
            self.next_fetch_offset = batch.next_offset
        if last is not None and last.magic == 2:
            self.next_fetch_offset = last.next_offset  # compaction may have removed the last records
        self.drain()

    def _was_aborted(self, batch: Any) -> bool:
        if self.isolation_level != IsolationLevel.READ_COMMITTED or not batch.has_producer_id():
            return False
        self._consume_aborted_transactions_up_to(batch.last_offset)
        if self._contains_abort_marker(batch):
            self.aborted_producer_ids.discard(batch.producer_id)
            return False
        return bool(self._is_batch_aborted(batch))


def _next_batch(records: Any) -> Any:
    """Return the next batch of a fetch; None at its end."""
    try:
        return records.next_batch()
    except (struct.error, AssertionError):  # of kafka-python, before it compares checksums
        raise CorruptRecordError("a batch does not have the length that its head says") from None


def _unpack(batch: Any, partition: int, unpack_parts: _Unpacks) -> Iterator[list[Record]]:
    """Yield the records of a batch. For one that is too large, a record that says so, at its last offset."""
    try:
        yield from unpack_parts(batch, partition)
    except UnpacksTooLarge as problem:
        last = getattr(batch, "last_offset", batch.base_offset)
        time_ms, epoch = getattr(batch, "max_timestamp", None), getattr(batch, "leader_epoch", -1)
        yield [Record(epoch, partition, last, -1 if time_ms is None else time_ms, None, None, -1, -1 - problem.records)]


def _unpack_new(batch: Any, partition: int) -> Iterator[list[Record]]:
    """Yield the records of a batch of the present format."""
    unpack(batch)
    if batch.records_count >= _MIN_RECORDS:
        yield from _unpack_columns(batch, partition)
    else:
        yield list(_unpack_records(batch, partition))


def _unpack_old(batch: Any, partition: int) -> Iterator[list[Record]]:
    """Yield the records of a batch of a format before 0.11."""
    unpack_old(batch)
    try:
        yield list(_unpack_records(batch, partition))
    except KafkaError:
        raise
    except Exception as problem:  # kafka-python compares neither lengths nor attributes with what may be
        raise CorruptRecordError(
            f"the batch at offset {batch.base_offset} cannot be unpacked ({type(problem).__name__})"
        ) from None


def _unpack_records(batch: Any, partition: int) -> Iterator[Record]:
    for record in batch:
        key, value = record.key, record.value
        yield Record(
            getattr(batch, "leader_epoch", -1),
            partition,
            record.offset,
            record.timestamp,
            key,
            value,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )


def _unpack_columns(batch: Any, partition: int) -> Iterator[list[Record]]:
    text, count = bytes(batch._buffer), batch.records_count
    if count * _LEAST_BYTES > len(text) - batch._pos:  # before memory is taken for so many
        raise CorruptRecordError(f"the batch at offset {batch.base_offset} is too short for its {count} records")
    data, columns = np.frombuffer(text, np.uint8), np.empty((6, min(count, _MOST_RECORDS)), np.int64)
    parts = [columns[:, : min(_MOST_RECORDS, count - begin)] for begin in range(0, count, _MOST_RECORDS)]
    begins = [batch._pos]
    for part in parts:
        begins.append(_scan(data, begins[-1], batch.base_offset, batch.first_timestamp, part))
        if begins[-1] < 0:
            break
    if begins[-1] != len(text):  # before any record is returned
        raise CorruptRecordError(
            f"the batch at offset {batch.base_offset} does not hold the {count} records of its header"
        )
    for begin, part in zip(begins, parts, strict=False):
        if len(parts) > 1:
            _scan(data, begin, batch.base_offset, batch.first_timestamp, part)
        yield list(_records_of(batch, partition, text, part))


def _records_of(batch: Any, partition: int, text: bytes, columns: Ints) -> Iterator[Record]:
    offsets, times_ms, key_begins, key_sizes, begins, sizes = columns.tolist()
    count = len(offsets)
    if batch.timestamp_type:
        times_ms = [batch.max_timestamp] * count
    keys = [None if size < 0 else text[begin : begin + size] for begin, size in zip(key_begins, key_sizes, strict=True)]
    values = [None if size < 0 else text[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
    epochs, partitions = repeat(batch.leader_epoch, count), repeat(partition, count)
    rows = zip(epochs, partitions, offsets, times_ms, keys, values, key_sizes, sizes, strict=True)
    return map(_as_record, rows)


@lean_kernel
def _scan(data: Any, at: Any, first_offset: Any, first_time_ms: Any, columns: Any) -> Any:
    """Fill a column per record: offset, time, begin and size of its key, begin and size of its value.

    Returns the end of the last record, -1 if the data are corrupt. A record consists of length, attributes (1 byte),
    time and offset relative to the first, key, value and headers. All but the attributes are variable-length numbers,
    or bytes after their length, where -1 = none. A length is compared with what is left, never added first: the sum of
    a position and a hostile length wraps around.
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
            columns[column, row], columns[column + 1, row] = at, max(part, -1)
            at += max(part, 0)
        headers, at = read_signed(data, at, size)
        if headers < 0 or headers > end - at:
            return -1
        for _ in range(2 * headers):
            part, at = read_signed(data, at, size)
            if part > end - at:
                return -1
            at += max(part, 0)
        if at != end:
            return -1
    return at
