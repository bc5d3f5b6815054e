"""Records in files of JSON lines, Avro and Parquet, in blocks, with the location of each row for messages.

Times are whole milliseconds: Python has no dates after the year 9999. orjson reads JSON lines: pyarrow takes no less
time, and crashes at a line `null`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any, BinaryIO

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from opicflow.connectors.files.line_blocks import LineBlock, json_objects, pieces_of, whole_lines
from opicflow.connectors.files.opening import InputRefused, open_bytes
from opicflow.schemas.errors import in_one_line
from opicflow.schemas.writer_schema import WriterSchema

PARQUET, AVRO = b"PAR1", b"Obj\x01"
"""The first bytes of files."""
MISSING = object()
"""The value of a field that a record does not have."""
_ROWS_AT_ONCE = 1 << 13
_DAMAGED = (pa.ArrowException, OSError, ValueError, KeyError)
"""The errors of Arrow for bytes that make no sense. KeyError: two columns of one name."""


@dataclass(frozen=True)
class RecordBlock:
    """Consecutive records. `location` returns where a row of the block is: the file, and the line or row."""

    rows: Sequence[Mapping[str, Any]]
    location: Callable[[int], str]

    def __len__(self) -> int:
        """The number of its records."""
        return len(self.rows)

    def values(self, name: str) -> list[Any]:
        """Return the values of a field, `MISSING` for a record without it."""
        try:
            return list(map(itemgetter(name), self.rows))
        except KeyError:
            return [row.get(name, MISSING) for row in self.rows]


@dataclass(frozen=True)
class ColumnBlock:
    """Consecutive records as columns of Arrow."""

    columns: Mapping[str, Any]
    location: Callable[[int], str]

    def __len__(self) -> int:
        """The number of its records."""
        return len(next(iter(self.columns.values()), ()))

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """The records one by one."""
        names, columns = list(self.columns), map(self.values, self.columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def values(self, name: str) -> list[Any]:
        """Return the values of a column, `MISSING` if there is none of this name."""
        if name not in self.columns:
            return [MISSING] * len(self)
        column = self.columns[name]
        try:
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms", column.type.tz)).cast(pa.int64())
            values: list[Any] = column.to_pylist()
        except _DAMAGED as problem:
            raise InputRefused(
                f"{self.location(0)}: {name} is damaged ({in_one_line(problem)}): write it again"
            ) from None
        return values


def read_records(name: str, names: Sequence[str] | None = None) -> Iterator[RecordBlock | ColumnBlock]:
    """Yield the records of a file. Of Parquet only the fields with these names are read.

    Raises `InputRefused` for a file that cannot be read.
    """
    with open_bytes(name) as file:
        first = file.read(len(PARQUET))
        file.seek(0)
        if first == PARQUET:
            yield from ParquetFile(name, file).blocks(names)
            return
        if first == AVRO:
            yield from AvroFile(name, file).blocks()
            return
    for lines in whole_lines(name, pieces_of(name)):
        yield json_block(name, lines)


def json_block(name: str, lines: LineBlock) -> RecordBlock:
    """Return the objects of lines of JSON."""
    return RecordBlock(json_objects(name, lines), lambda row: f"{name}, line {lines.line_of(row)}")


def _row_of(name: str, first: int, row: int) -> str:
    return f"{name}, row {first + row}"


class ParquetFile:
    """A file of Parquet. `types` are those of its columns."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name = name
        try:
            self._table = pq.ParquetFile(file)
            self.types: dict[str, pa.DataType] = {one.name: one.type for one in self._table.schema_arrow}
        except _DAMAGED as problem:
            raise self._damaged(problem, 0) from None

    def blocks(self, names: Sequence[str] | None = None, at_once: int = _ROWS_AT_ONCE) -> Iterator[ColumnBlock]:
        """Yield the columns of these names, as far as they exist; all if none does, or without names."""
        names = [name for name in names or () if name in self.types] or None
        row = 0
        try:
            for group in range(self._table.num_row_groups):  # Arrow keeps all that it reads until an iterator ends
                for batch in self._table.iter_batches(at_once, [group], columns=names, use_threads=False):
                    columns = {name: batch.column(name) for name in batch.schema.names}
                    yield ColumnBlock(columns, partial(_row_of, self._name, row + 1))
                    row += len(batch)
        except _DAMAGED as problem:
            raise self._damaged(problem, row) from None

    def _damaged(self, problem: Exception, row: int) -> InputRefused:
        where = f", from row {row + 1}" if row else ""
        return InputRefused(f"{self._name}{where}: damaged ({in_one_line(problem)}): write it again")


class AvroFile:
    """A container file of Avro. `names` are those of the fields of its records."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        self._name = name
        try:
            self._blocks: Any = fastavro.block_reader(file)
            written: Any = self._blocks.writer_schema
            self._schema: Any = WriterSchema(written).parsed
        except Exception as problem:  # fastavro has no errors of its own for bytes that make no sense
            raise self._damaged(problem, 1) from None
        is_record = isinstance(written, dict) and written.get("type") == "record"
        self.names: list[str] = [field["name"] for field in written["fields"]] if is_record else []

    def blocks(self, at_once: int = _ROWS_AT_ONCE) -> Iterator[RecordBlock]:
        """Yield the records."""
        row, records = 1, self._records()
        while True:
            try:
                some = list(islice(records, at_once))
            except Exception as problem:
                raise self._damaged(problem, row) from None
            if not some:
                return
            yield RecordBlock(some, partial(_row_of, self._name, row))
            row += len(some)

    def _records(self) -> Iterator[Mapping[str, Any]]:
        for block in self._blocks:
            for _ in range(block.num_records):
                record: Any = fastavro.schemaless_reader(block.bytes_, self._schema, None)
                yield record

    def _damaged(self, problem: Exception, row: int) -> InputRefused:
        return InputRefused(f"{self._name}, from row {row}: damaged ({in_one_line(problem)}): write it again")
