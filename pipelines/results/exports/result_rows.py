"""Rows of results that are exported: of importance, of a schedule or of orders, from files or from a replay's state."""

from __future__ import annotations

from collections import Counter, namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from opicflow.connectors.files.divided_files import files_of_result
from opicflow.connectors.files.opening import STDIN, InputRefused, expand
from opicflow.connectors.files.record_files import ColumnBlock, RecordBlock, read_records
from opicflow.pipelines.results.record_columns import RESULTS
from opicflow.schemas.columns import plain_rows, row_count, row_slice
from opicflow.schemas.records import RECORDS

_ROWS_AT_ONCE = 1 << 13


class ImportanceRow(NamedTuple):
    """How important a page is. A score of 1 is that of an average page."""

    url: str
    page: str
    importance: float
    score: float


class ScheduleRow(NamedTuple):
    """When a page is to be fetched again, in milliseconds since 1970; None: it is not."""

    url: str
    page: str
    due: int | None
    interval_seconds: float | None
    decided_by: str
    importance: float


class OrderRow(NamedTuple):
    """A page to fetch in this cycle. Times are milliseconds since 1970; `not_before` None: at once."""

    url: str
    page: str
    ordered_at: int
    why: str
    priority: float
    not_before: int | None
    expires_at: int | None
    importance: float
    last_visit: int | None

    @property
    def fetch_ms(self) -> int:
        """The time from which it may be fetched."""
        return self.ordered_at if self.not_before is None else self.not_before


Row = ImportanceRow | ScheduleRow | OrderRow
_ROW_TYPES: dict[str, type[Row]] = {"importance": ImportanceRow, "schedule": ScheduleRow, "orders": OrderRow}
_FILE_NAMES = {"importance": "importance", "schedule": "refresh-schedule", "orders": "crawl-orders"}
KINDS = tuple(_ROW_TYPES)
_FILTERED_BY = {"orders": ("ordered_at", "expires_at")}
"""Columns that are read in any case."""


class ColumnType(NamedTuple):
    """The types that the values of a column have."""

    types: tuple[type, ...]
    is_time: bool
    """Whether it is milliseconds since 1970."""


def _column_types(record: type[Any]) -> dict[str, ColumnType]:
    """Return the columns of the files of a record, by their names."""
    hints, found = get_type_hints(record), {}
    for one in fields(record):
        name, hint = one.name.removesuffix("_ms"), hints[one.name]
        types = tuple(str if get_origin(each) is Literal else each for each in get_args(hint) or (hint,))
        if get_origin(hint) is Literal or name == "page":  # words, and a number that is written as digits
            types = (str,)
        types = (*types, int) if float in types else types
        found[name] = ColumnType(types, one.name.endswith("_ms"))
    return found


COLUMN_TYPES = {kind: _column_types(RECORDS[RESULTS[name].schema]) for kind, name in _FILE_NAMES.items()}
"""All columns of each kind, in the order of its files."""


@cache
def _row_type(kind: str, columns: tuple[str, ...]) -> Any:
    """Return the type of rows with these columns; without any, with those that other systems take."""
    if not columns:
        return _ROW_TYPES[kind]
    return namedtuple("Row", dict.fromkeys((*columns, *_FILTERED_BY.get(kind, ()))))


@dataclass(frozen=True)
class Rows:
    """The rows of a result, to be read more than once. Orders that have expired at `now_ms` are left out.

    They begin with the columns that were chosen; without any, they have those that other systems take. Without `now_ms`
    it is the time of the latest order: files of a replay also have the orders of earlier cycles. `counts` has how many
    rows the latest reading gave, and how many orders it left out that expired, or that are not due.
    """

    kind: str
    source: Callable[[], Iterator[list[Any]]]
    now_ms: int | None = None
    chosen: tuple[str, ...] = ()
    due_by_ms: int | None = None
    """Orders that may not be fetched by then are left out, too."""
    by_time: bool = False
    """Orders come in the order of the times from which they may be fetched. Those of one time keep their order."""
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns to write."""
        return self.chosen or _ROW_TYPES[self.kind]._fields

    def __iter__(self) -> Iterator[list[Any]]:
        """Yield the rows, some thousands at a time."""
        self.counts.clear()
        if not self.by_time:
            yield from self._open_rows()
            return
        orders = sorted((order for some in self._open_rows() for order in some), key=lambda order: order.fetch_ms)
        for first in range(0, len(orders), _ROWS_AT_ONCE):
            yield orders[first : first + _ROWS_AT_ONCE]

    def _open_rows(self) -> Iterator[list[Any]]:
        for some in self.source():
            open_ = [order for order in some if _is_open(order, self._now)] if self.kind == "orders" else some
            due = open_ if self.due_by_ms is None else [order for order in open_ if order.fetch_ms <= self.due_by_ms]
            self.counts["rows"] += len(due)
            self.counts["expired"] += len(some) - len(open_)
            self.counts["not due"] += len(open_) - len(due)
            yield due

    @cached_property
    def total(self) -> int:
        """The number of rows. They are read for it once."""
        return sum(map(len, self))

    @cached_property
    def _now(self) -> int:
        if self.now_ms is not None:
            return self.now_ms
        return max((order.ordered_at for some in self.source() for order in some), default=0)


def _is_open(order: Any, now_ms: int) -> bool:
    return order.expires_at is None or order.expires_at > now_ms


def rows_of_parts(kind: str, parts: Iterable[bytes], now_ms: int | None = None, chosen: tuple[str, ...] = ()) -> Rows:
    """Return the rows of packed parts, as the answers of a state are."""
    columns_of, row_type = RESULTS[_FILE_NAMES[kind]].columns_of, _row_type(kind, chosen)

    def read() -> Iterator[list[Any]]:
        for part in parts:
            columns = columns_of(part)
            needed = {name: columns[name] for name in row_type._fields}
            for first in range(0, row_count(needed), _ROWS_AT_ONCE):
                some = row_slice(needed, first, first + _ROWS_AT_ONCE)
                yield [row_type(**row) for row in plain_rows(some)]

    return Rows(kind, read, now_ms, chosen)


def rows_of_files(kind: str, names: Sequence[str], now_ms: int | None = None, chosen: tuple[str, ...] = ()) -> Rows:
    """Return the rows of files of results: JSON lines, Avro or Parquet; of a folder that a replay wrote, its file.

    A file that is no such result is an `InputRefused`.
    """
    files, row_type = [file for name in names for file in _files_of(kind, name)], _row_type(kind, chosen)

    def read() -> Iterator[list[Any]]:
        for file in files:
            for block in read_records(file, row_type._fields):
                yield _rows(kind, row_type, block)

    return Rows(kind, read, now_ms, chosen)


def rows_of_values(kind: str, values: Sequence[Mapping[str, Any]], now_ms: int | None = None) -> Rows:
    """Return the rows of records of a result, as they were decoded from Avro."""
    rows = _rows(kind, _ROW_TYPES[kind], RecordBlock(values, lambda row: f"record {row + 1}"))
    return Rows(kind, lambda: iter([rows]), now_ms)


def _files_of(kind: str, name: str) -> list[str]:
    if name == STDIN:
        raise InputRefused("standard input: results are read twice: name a file")
    if not Path(name).is_dir():
        return expand([name])
    return files_of_result(Path(name), _FILE_NAMES[kind])


def _rows(kind: str, row_type: Any, block: RecordBlock | ColumnBlock) -> list[Any]:
    """Return the rows of a block. A field that is missing, or has another type, is refused."""
    columns = []
    for name in row_type._fields:
        columns.append(values := block.values(name))
        types = COLUMN_TYPES[kind][name].types
        if set(map(type, values)) - set(types):
            row = next(row for row, value in enumerate(values) if type(value) not in types)
            raise InputRefused(
                f"{block.location(row)}: no {name} as results have it: "
                f"name a file of {_FILE_NAMES[kind]}, or its folder"
            )
    return list(map(row_type, *columns))
