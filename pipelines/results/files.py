"""Results as files, or one stream: lines of JSON, Avro or Parquet, from columns.

All formats have the same columns in the same order, those of the published schema. Memory is bounded: some tens of
thousands of rows at a time, in Parquet a row group.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol

import orjson

from opicflow.connectors.files.avro_writer import AvroWriter
from opicflow.connectors.files.divided_files import divided_file, paths_of
from opicflow.connectors.files.whole_file import synced_file, whole_file
from opicflow.pipelines.results.record_columns import ResultKind, pages_of, reject_columns, tombstone_columns
from opicflow.schemas.columns import Columns, plain_rows, row_count, row_slice
from opicflow.schemas.published_schemas import Schema, schema

ROW_GROUP_ROWS = 1 << 17
"""The rows of a row group of Parquet; the last one of a file may have fewer."""
_ROWS_AT_ONCE = 1 << 16
_LINES_AT_ONCE = 1 << 13
_FEW_ROWS = 1 << 11
"""Their lines of JSON take a few milliseconds. The import of Arrow takes 70 ms, and 36 MB."""
_OF_FEW_TEXTS = {"host", "by", "reason", "source", "subscribers"}
"""Columns of texts that many rows have in common, besides those of the words of an enum."""


def json_lines(columns: Columns) -> bytes:
    """Return a line of JSON for each row, its fields in the order of the columns.

    Lists have texts, or numbers and nothing. Few rows have the same bytes as they have among many.
    """
    if row_count(columns) <= _FEW_ROWS:
        return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in plain_rows(columns))
    from opicflow.pipelines.results.arrow_lines import many_lines

    return many_lines(columns)


@contextmanager
def written_result(
    folder: Path, name: str, format_: str, kind: ResultKind, packed: Callable[[], Iterable[bytes]], parts: int = 1
) -> Iterator[list[Path]]:
    """The paths of records that were written in their order, in one file or divided into so many.

    The files get their names at the end. Files of this name that an earlier run divided otherwise are removed then.
    `packed` is called again to count the rows.
    """
    rows = 0 if parts == 1 else sum(row_count(kind.columns_of(part)) for part in packed())
    source = _Rows(map(kind.columns_of, packed()))
    with divided_file(folder, name, format_, parts) as paths:
        for number, path in enumerate(paths):
            is_last = number == parts - 1
            share = math.inf if is_last else rows * (number + 1) // parts - rows * number // parts
            with synced_file(path) as file:
                _write(file, format_, kind.schema, source.take(share))
        yield paths_of(folder, name, format_, parts)


def stream_result(file: BinaryIO, format_: str, kind: ResultKind, packed: Iterable[bytes]) -> None:
    """Write records to a file that may be a pipe."""
    _write(file, format_, kind.schema, _Rows(map(kind.columns_of, packed)).take())
    file.flush()


def write_rejects(file: BinaryIO, format_: str, parts: Iterable[bytes]) -> None:
    """Write rejects, which come as lines of JSON."""
    if format_ == "jsonl":
        file.writelines(parts)
    else:
        _write(file, format_, "Reject", _Rows(map(reject_columns, parts)).take())


def write_tombstones(file: BinaryIO, parts: Iterable[bytes]) -> None:
    """Write which pages are no longer there, as lines of JSON."""
    file.writelines(json_lines(tombstone_columns(pages_of(part))) for part in parts)


def write_records(path: Path, format_: str, name: str, parts: Iterable[Columns]) -> None:
    """Write columns as records of a published schema, in the requested format."""
    with whole_file(path) as file:
        _write(file, format_, name, _Rows(parts).take())


def load_arrow(format_: str) -> None:
    """Import what many rows of a format are written with: it takes a tenth of a second, for which they would wait."""
    if format_ == "jsonl":
        from opicflow.pipelines.results import arrow_lines  # noqa: F401
    elif format_ == "parquet":
        import pyarrow.parquet  # noqa: F401

        from opicflow.pipelines.results import arrow_columns  # noqa: F401


class _Rows:
    """Columns in their order, to be taken some rows at a time."""

    def __init__(self, parts: Iterable[Columns]) -> None:
        self._parts = iter(parts)
        self._left: Columns | None = None

    def take(self, most: float = math.inf) -> Iterator[Columns]:
        """Yield the next rows, so many in all or up to the end."""
        while most > 0:
            columns = next(self._parts, None) if self._left is None else self._left
            if columns is None:
                return
            rows = row_count(columns)
            end = int(min(rows, most, _ROWS_AT_ONCE))
            self._left = row_slice(columns, end, rows) if end < rows else None
            most -= end
            if end:
                yield row_slice(columns, 0, end) if end < rows else columns


class _Writer(Protocol):
    def write(self, columns: Columns) -> None: ...


def _write(file: BinaryIO, format_: str, name: str, parts: Iterable[Columns]) -> None:
    """Write columns as records of a published schema."""
    with _WRITERS[format_](file, schema(name)) as writer:
        for columns in parts:
            writer.write(columns)


class _JsonWriter:
    """Writes lines of JSON."""

    def __init__(self, file: BinaryIO, schema: Schema) -> None:
        self._file = file

    def write(self, columns: Columns) -> None:
        for first in range(0, row_count(columns), _LINES_AT_ONCE):
            last = min(first + _LINES_AT_ONCE, row_count(columns))
            self._file.write(json_lines(row_slice(columns, first, last)))

    def __enter__(self) -> _JsonWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass


class _ParquetWriter:
    """Writes row groups of the same size, whatever the sizes of the parts are: the bytes depend on the rows alone."""

    def __init__(self, file: BinaryIO, schema: Schema) -> None:
        import pyarrow.parquet as pq  # few need it

        from opicflow.pipelines.results.arrow_columns import arrow_schema

        self._schema = arrow_schema(schema)
        words = [
            field["name"] for field in schema["fields"] if _is_enum(field["type"]) or field["name"] in _OF_FEW_TEXTS
        ]
        self._file = _Forward(file)
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            compression="zstd",
            use_dictionary=words,
            write_statistics=True,
            store_schema=False,
        )
        self._waiting: list[object] = []
        self._rows = 0

    def write(self, columns: Columns) -> None:
        from opicflow.pipelines.results.arrow_columns import record_batch

        batch = record_batch(columns, self._schema)
        while self._rows + len(batch) >= ROW_GROUP_ROWS:
            end = ROW_GROUP_ROWS - self._rows
            self._waiting.append(batch.slice(0, end))
            self._write_group()
            batch = batch.slice(end)
        self._waiting.append(batch)
        self._rows += len(batch)

    def _write_group(self) -> None:
        import pyarrow as pa

        group = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._rows = [], 0
        if group.num_rows:
            self._writer.write_table(group, row_group_size=ROW_GROUP_ROWS)

    def __enter__(self) -> _ParquetWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self._write_group()
            self._writer.close()
        else:
            self._file.is_written = False


class _Forward:
    """A file, perhaps a pipe, that Arrow writes from front to back: it reads its position, which a pipe does not have.

    After an error nothing more is written: Arrow would add a footer when its writer is collected.
    """

    closed = False
    is_written = True

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0

    def write(self, data: bytes | memoryview) -> int:
        self._at += len(data)
        if self.is_written:
            self.is_written = False
            self._file.write(data)
            self.is_written = True
        return len(data)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        """Leave the file to its owner."""


def _is_enum(avro_type: object) -> bool:
    return isinstance(avro_type, dict) and avro_type["type"] == "enum"


_WRITERS: dict[str, Callable[[BinaryIO, Schema], AbstractContextManager[_Writer]]] = {
    "jsonl": _JsonWriter,
    "avro": AvroWriter,
    "parquet": _ParquetWriter,
}
FORMATS = tuple(_WRITERS)
"""The formats of results, which are the endings of their files."""
