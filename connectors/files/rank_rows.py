"""Rows of files of ranks, as columns: they are checked, and get the ids of their pages or sites.

The forms of a file: JSON lines, CSV, Avro, Parquet, or a list of sites as Common Crawl or Tranco write it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import chain
from types import NoneType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson
import pyarrow as pa

from opicflow.connectors.files.csv_tables import RowBlock, read_columns
from opicflow.connectors.files.line_blocks import LineBlock
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.record_files import MISSING, AvroFile, ColumnBlock, ParquetFile, RecordBlock, json_block
from opicflow.connectors.files.site_lists import reversed_host
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints
from opicflow.schemas.errors import printable
from opicflow.schemas.pages import PageIds

_MOST_SHOWN = 60
_MOST_NAMES_SHOWN = 400
_ID_DIGITS = 16
_ROWS_AT_ONCE = 1 << 14
SITE = "site"
_KEYS = ("url", "page", SITE)
_REVERSED = "host_rev"
_FIELD_OF_RECORDS = "clock"
"""Records of importance have the moment of the estimate: a file with this field is a stream, in which newer records
replace older ones. In a file without it every page is expected once."""

_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGITS[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)

Location = Callable[[int], str]
"""Where a row of a block is: the file, and the line or row."""


class RankBatch(NamedTuple):
    """Consecutive rows. The rank of a page that is gone is NaN."""

    pages: Ids
    values: Floats
    urls: pa.Array | None


class RankLayout(NamedTuple):
    """The rows of a file, and its columns; whether it is a stream, or a list of sites, perhaps with positions only.

    Rows that are wrong are refused while batches are read.
    """

    is_stream: bool
    batches: Iterator[RankBatch]
    columns: Collection[str]
    of_sites: bool = False
    by_position: bool = False


# -- files -------------------------------------------------------------------------------------------------------------


def read_json_lines(name: str, lines: Iterator[LineBlock], rank: str) -> RankLayout:
    """Return the layout of a file of JSON lines, of which there is one at least."""
    blocks = (json_block(name, some) for some in lines)
    first = next(blocks)
    is_stream = any(_FIELD_OF_RECORDS in row or "gone" in row for row in first.rows)
    return _layout(first.rows[0], chain([first], blocks), rank, is_stream)


def read_avro(name: str, file: BinaryIO, rank: str) -> RankLayout:
    """Return the layout of a file of Avro."""
    records = AvroFile(name, file)
    _check_names(name, records.names, rank)
    return _layout(records.names, records.blocks(_ROWS_AT_ONCE), rank)


def read_parquet(name: str, file: BinaryIO, rank: str) -> RankLayout:
    """Return the layout of a file of Parquet."""
    records = ParquetFile(name, file)
    types = records.types
    _check_names(name, list(types), rank)
    numeric = [column for column, kind in types.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)]
    if rank not in numeric:
        raise InputRefused(f"{name}: column {rank} holds {types[rank]}, no numbers: {_instead(numeric)}")
    columns = [column for column in (_key_of(types), "page") if column in types]
    for column in columns:
        if not _is_text(types[column]):
            raise InputRefused(f"{name}: column {column} holds {types[column]}, no texts: name a file of ranks")
    return _layout(types, records.blocks([*columns, rank], _ROWS_AT_ONCE), rank)


def read_csv(name: str, blocks: Iterator[RowBlock], rank: str) -> RankLayout:
    """Return the layout of a file of CSV, or of a list of sites."""
    first = next(blocks, None)
    if first is None:
        raise InputRefused(f"{name}: it is empty: name another file")
    names, rest = first.split_head()
    if first.divider == "\t":
        return _common_crawl(name, names, chain([rest], blocks), rank)
    if len(names) == 2 and names[0].isdecimal() and names[1].strip():
        return _tranco(name, chain([first], blocks), rank)
    _check_names(name, names, rank)
    for column in (*_KEYS, rank):
        if names.count(column) > 1:
            raise InputRefused(f"{name}: several columns {column}: keep one")
    return _layout(names, _csv_columns(name, chain([rest], blocks), names, _key_of(names), rank), rank)


def _layout(
    names: Collection[str], blocks: Iterator[RecordBlock | ColumnBlock], rank: str, is_stream: bool | None = None
) -> RankLayout:
    key = _key_of(names)
    is_stream = _FIELD_OF_RECORDS in names if is_stream is None else is_stream
    return RankLayout(is_stream, (batch_of(block, rank, key) for block in blocks), names, key == SITE)


def _common_crawl(name: str, head: list[str], blocks: Iterator[RowBlock], rank: str) -> RankLayout:
    names = [column.removeprefix("#") for column in head]
    if _REVERSED not in names or "pr_val" not in names:
        raise InputRefused(
            f"{name}, line 1: no head of a file of ranks of Common Crawl: it has #pr_val and #host_rev, with tabs"
        )
    column = "pr_val" if rank == "importance" else rank
    if column not in names or column == _REVERSED:
        raise InputRefused(f"{name}: no column of ranks {_shown(rank)}: {_instead(names[: names.index(_REVERSED)])}")

    def batches() -> Iterator[RankBatch]:
        for some in _csv_columns(name, blocks, names, _REVERSED, column):
            hosts = pa.array([reversed_host(host) for host in some.values(_REVERSED)], pa.string())
            yield batch_of(ColumnBlock({**some.columns, _REVERSED: hosts}, some.location), column, _REVERSED)

    return RankLayout(False, batches(), names, of_sites=True)


def _tranco(name: str, blocks: Iterator[RowBlock], rank: str) -> RankLayout:
    if rank != "importance":
        raise InputRefused(
            f"{name}: no column of ranks {_shown(rank)}: a list of positions and sites has none: omit it"
        )
    names = ("position", SITE)

    def batches() -> Iterator[RankBatch]:
        for some in _csv_columns(name, blocks, names, SITE, "position"):
            batch = batch_of(some, "position", SITE)
            wrong = batch.values < 1.0
            if wrong.any():
                where = some.location(int(np.argmax(wrong)))
                raise InputRefused(f"{where}: no position from 1: write lines such as 1,example.org")
            yield batch._replace(values=1.0 / batch.values)

    return RankLayout(False, batches(), names, of_sites=True, by_position=True)


def _csv_columns(
    name: str, blocks: Iterator[RowBlock], names: Sequence[str], key: str, rank: str
) -> Iterator[ColumnBlock]:
    """Yield the columns of a rank, and of its pages or sites."""
    types = {column: pa.string() for column in (key, "page") if column in names} | {rank: pa.float64()}

    def problem_of(cells: list[str]) -> str:
        cell = cells[names.index(rank)]
        try:
            float(cell)
        except ValueError:
            return _no_rank(rank, cell)
        return ""

    for some in blocks:
        if some.text.strip():
            table = read_columns(name, some, names, types, problem_of)
            columns = {column: table[column].combine_chunks() for column in types}
            yield ColumnBlock(columns, partial(_line, name, some))


def _line(name: str, block: RowBlock, row: int) -> str:
    return f"{name}, line {block.line_of(row)}"


def _check_names(name: str, names: list[str], rank: str) -> None:
    """Refuse a file without a column of pages or sites, or without that of the rank."""
    if not set(_KEYS) & set(names):
        found = f"none of {_listed(names)} is" if names else "nothing in it is"
        raise InputRefused(f"{name}: {found} a column url, page or site: name a file of ranks")
    if rank not in names or rank in _KEYS:
        others = [other for other in names if other not in _KEYS]
        raise InputRefused(f"{name}: no column of ranks {_shown(rank)}: {_instead(others)}")


def _key_of(names: Collection[str]) -> str:
    """Return the column with the names of rows: their URLs, or their sites."""
    return SITE if SITE in names and not {"url", "page"} & set(names) else "url"


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_null(type_))


# -- rows --------------------------------------------------------------------------------------------------------------


def batch_of(block: RecordBlock | ColumnBlock, rank: str, key: str) -> RankBatch:
    """Check rows, whose names are in the column `key`, and return them as a batch."""
    if isinstance(block, ColumnBlock):
        values = block.columns[rank].cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        gone = np.zeros(len(block), np.bool_)
        texts = {name: block.columns[name].cast(pa.string()) for name in (key, "page") if name in block.columns}
    else:
        given = block.values(rank)
        if not set(map(type, given)) <= {float, int, NoneType}:  # True and "1" are no ranks either
            given = [value if type(value) in (float, int) else None for value in given]
        values = np.array(given, np.float64)
        gone = np.isnan(values)
        for row in np.flatnonzero(gone).tolist():
            gone[row] = rank not in block.rows[row] and block.rows[row].get("gone") is True
        texts = {name: _texts(block, name) for name in ((key,) if key == SITE else (key, "page"))}
    missing = "neither url nor page" if key == "url" else f"no {key}"
    ids = _ids_of(texts.get(key), texts.get("page"), len(values), missing, block.location)
    wrong = ~(np.isfinite(values) & (values >= 0.0)) & ~gone
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputRefused(f"{block.location(row)}: {_why_no_rank(block, row, rank)}")
    return RankBatch(ids, np.where(gone, np.nan, values) if gone.any() else values, texts.get(key))


def _texts(block: RecordBlock, name: str) -> pa.Array:
    texts: list[Any] = [None if text is MISSING else text for text in block.values(name)]
    try:
        return pa.array(texts, pa.string())
    except (pa.ArrowException, TypeError, UnicodeError):
        row = next((row for row, text in enumerate(texts) if not isinstance(text, str | None)), 0)
        raise InputRefused(f"{block.location(row)}: {name} is no text: write it as one") from None


def _why_no_rank(block: RecordBlock | ColumnBlock, row: int, rank: str) -> str:
    if isinstance(block, ColumnBlock):
        return _no_rank(rank, str(block.columns[rank][row]))
    record = block.rows[row]
    if rank not in record:
        return f"no {_shown(rank)}: {_instead([name for name, one in record.items() if type(one) in (int, float)])}"
    value = record[rank]
    return _no_rank(rank, str(value) if isinstance(value, float) else orjson.dumps(value, default=str).decode())


def _no_rank(rank: str, written: str) -> str:
    return f"{rank} {_shown(written) or 'is empty'}: a rank is a number from 0: mend it, or name another column"


def _ids_of(urls: pa.Array | None, pages: pa.Array | None, rows: int, missing: str, location: Location) -> Ids:
    """Return the page id of every row: that of its URL by the default rules, or its own where it has none.

    Streams have page ids by keys of their own: so two files are compared by URLs.
    """
    hashed = starts_and_text(urls, rows)
    named = starts_and_text(pages, rows)
    lengths = np.diff(named.starts)
    has_url = np.diff(hashed.starts) > 0
    ids = PageIds().of_text(hashed.text, hashed.starts)
    by_id = np.flatnonzero(lengths == _ID_DIGITS)
    wrong = np.flatnonzero((lengths != _ID_DIGITS) & (lengths != 0))
    if len(by_id):
        digits = _DIGITS[named.text[named.starts[by_id][:, None] + np.arange(_ID_DIGITS)]]
        wrong = np.concatenate((by_id[(digits > 15).any(axis=1)], wrong))
        own = (digits[:, 0::2] << 4 | digits[:, 1::2]).view(">u8")[:, 0]
        ids[by_id] = np.where(has_url[by_id], ids[by_id], own)
    if pages is not None and len(wrong):
        row = int(wrong.min())
        raise InputRefused(
            f"{location(row)}: page {_shown(pages[row].as_py())} is no page id: give {_ID_DIGITS} hexadecimal digits"
        )
    empty: Bools = ~has_url & (lengths == 0)
    if empty.any():
        raise InputRefused(f"{location(int(np.argmax(empty)))}: {missing}: give one")
    return ids


class _Texts(NamedTuple):
    """Texts as the kernels take them: text i is `text[starts[i]:starts[i + 1]]`."""

    starts: Ints
    text: Bytes


def starts_and_text(array: pa.Array | None, rows: int) -> _Texts:
    """The texts of a column; empty ones if there is no column."""
    if array is None:
        return _Texts(np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8))
    if array.null_count:
        array = array.fill_null("")
    _, offsets, text = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + rows + 1].astype(np.int64)
    return _Texts(starts, np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8))


def _instead(ranks: Sequence[str]) -> str:
    return f"name one of {_listed(ranks)}" if ranks else "name a file of ranks"


def _listed(names: Sequence[str]) -> str:
    return _shown(", ".join(names), _MOST_NAMES_SHOWN)


def _shown(text: str, most: int = _MOST_SHOWN) -> str:
    """Return a text of a file as one short line without control characters."""
    text = printable(" ".join(text[: 2 * most].split()))
    return text if len(text) <= most else text[:most] + "…"
