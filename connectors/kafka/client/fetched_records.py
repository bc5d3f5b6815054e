"""Records that were fetched from one partition, in columns, and one by one for those who want them so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise, repeat
from typing import Any, NamedTuple

import numpy as np

from opicflow.schemas.arrays import Bytes, Ints
from opicflow.schemas.kernel import lean_kernel
from opicflow.schemas.message_columns import MessageBatch, value_spans

OFFSETS, TIMES, KEYS, KEY_SIZES, VALUES, VALUE_SIZES = range(6)
COLUMNS = 6
_NEWLINE = 10


class Record(NamedTuple):
    """The fields of a record that opicflow uses. A size is -1 where there is no key or no value.

    A record whose value has the size -1 - n replaces n records that were not read: their batch is too large.
    """

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    serialized_key_size: int
    serialized_value_size: int


_as_record = partial(tuple.__new__, Record)
"""`Record._make` without a Python call."""


@dataclass(frozen=True)
class FetchedRecords:
    """Records of one partition, in the order of their offsets. Their keys and values are parts of `text`.

    `columns` has a row each for offsets, times (ms), begins and sizes of keys, begins and sizes of values. The sizes
    are those of `Record`.
    """

    partition: int
    text: bytes
    columns: Ints

    @classmethod
    def of(cls, partition: int, rows: Iterable[tuple[int, int, bytes | None, bytes | None]]) -> FetchedRecords:
        """Return records of which each is given as offset, time, key and value."""
        parts, columns, at = list[bytes](), list[tuple[int, ...]](), 0
        for offset, time_ms, key, value in rows:
            key_size, value_size = (-1 if part is None else len(part) for part in (key, value))
            value_at = at + max(key_size, 0)
            columns.append((offset, time_ms, at, key_size, value_at, value_size))
            parts += (key or b"", value or b"")
            at = value_at + max(value_size, 0)
        table = np.array(columns, np.int64).reshape(-1, COLUMNS)
        return cls(partition, b"".join(parts), np.ascontiguousarray(table.T))

    @classmethod
    def unread(cls, partition: int, offset: int, time_ms: int, records: int) -> FetchedRecords:
        """Return a record that replaces records that were not read."""
        return cls(partition, b"", np.array([[offset], [time_ms], [0], [-1], [0], [-1 - records]], np.int64))

    def __len__(self) -> int:
        """The number of records."""
        return int(self.columns.shape[1])

    @property
    def offsets(self) -> Ints:
        """The offset of each record."""
        column: Ints = self.columns[OFFSETS]
        return column

    @property
    def times_ms(self) -> Ints:
        """The time of each record."""
        column: Ints = self.columns[TIMES]
        return column

    @property
    def value_sizes(self) -> Ints:
        """The size of each value, below 0 where there is none."""
        column: Ints = self.columns[VALUE_SIZES]
        return column

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return int(self.columns[OFFSETS, -1]) + 1

    def rows(self, begin: int, end: int) -> FetchedRecords:
        """Return the records from one row to before another, without a copy."""
        return FetchedRecords(self.partition, self.text, self.columns[:, begin:end])

    def between(self, start: int, end: int) -> FetchedRecords:
        """Return the records at the offsets [start, end), without a copy."""
        first, last = np.searchsorted(self.offsets, [start, end]).tolist()
        return self if last - first == len(self) else self.rows(first, last)

    def record(self, row: int) -> Record:
        """Return one record."""
        (record,) = self.rows(row, row + 1).records()
        return record

    def records(self) -> Iterator[Record]:
        """Yield the records one by one."""
        offsets, times_ms, key_begins, key_sizes, begins, sizes = self.columns.tolist()
        text = self.text
        keys = [
            None if size < 0 else text[begin : begin + size] for begin, size in zip(key_begins, key_sizes, strict=True)
        ]
        values = [None if size < 0 else text[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
        partitions = repeat(self.partition, len(self))
        rows: Any = zip(partitions, offsets, times_ms, keys, values, key_sizes, sizes, strict=True)
        return map(_as_record, rows)


def message_batch(
    parts: Sequence[FetchedRecords], start: int, end: int, target_rows: Ints | None = None
) -> MessageBatch:
    """Return fetched records, which cover the offsets [start, end), as messages.

    `target_rows` has the row of the batch that each record becomes; without it they follow each other.
    """
    bounds = [0, *accumulate(map(len, parts))]
    count = bounds[-1]
    target_rows = np.arange(count) if target_rows is None else target_rows
    rows_of_parts = [target_rows[first:last] for first, last in pairwise(bounds)]
    offsets, times_ms, sizes = np.empty((3, count), np.int64)
    for part, rows in zip(parts, rows_of_parts, strict=True):
        offsets[rows], times_ms[rows], sizes[rows] = part.offsets, part.times_ms, part.value_sizes
    begins, ends = value_spans(sizes)
    text = np.full(int(np.maximum(sizes, 0).sum()) + max(count - 1, 0), _NEWLINE, np.uint8)
    for part, rows in zip(parts, rows_of_parts, strict=True):
        source, (value_begins, value_sizes) = np.frombuffer(part.text, np.uint8), part.columns[VALUES:]
        _copy_values(source, value_begins, value_sizes, text, begins[rows])
    return MessageBatch(start, end, offsets, times_ms, text.tobytes(), begins, ends)


@lean_kernel
def _copy_values(source: Bytes, begins: Ints, sizes: Ints, target: Bytes, target_begins: Ints) -> None:
    for row in range(sizes.shape[0]):
        begin, to, size = begins[row], target_begins[row], max(sizes[row], 0)
        value, into = source[begin : begin + size], target[to : to + size]
        for index in range(size):  # of slices: numba then copies many bytes at once
            into[index] = value[index]
