"""Reads files of ranks: a page a row, as replays, `simulate --ranks`, `rank` and `subscribe importance` write them.

Rows have a `url`, a `page` (the page id, 16 hexadecimal digits) or both, and a number for each rank. Lists of sites,
as `rank --by` writes them, have a `site` instead; or they have the form of Common Crawl or of Tranco (site_lists.py).
The format is detected by the content: Parquet, Avro, JSON lines or CSV, the last two plain, gzip or zstd. If a page has
several rows, the last one counts; a JSON line with `"gone": true` and no rank removes a page. Whole columns are read, a
batch of rows at a time. orjson reads JSON lines: pyarrow takes no less time, and crashes at a line `null`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, NamedTuple

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from opicflow.connectors.files.divided_files import found_paths
from opicflow.connectors.files.line_blocks import LineBlock, json_objects, pieces_of, whole_lines
from opicflow.connectors.files.opening import STDIN, InputRefused, open_bytes
from opicflow.connectors.files.site_lists import reversed_host
from opicflow.schemas.arrays import Bytes, Floats, Ids, Ints
from opicflow.schemas.errors import printable
from opicflow.schemas.pages import PageIds
from opicflow.schemas.sites import SiteKind, SiteNumbering

_ROWS_AT_ONCE = 1 << 16
_MOST_SHOWN = 60
_MOST_NAMES_SHOWN = 400
_ID_DIGITS = 16
_SITE, _REVERSED = "site", "host_rev"
_TRANCO = re.compile(rb"[0-9]+,[^,\s]+")
_BOM = b"\xef\xbb\xbf"
_FIELD_OF_RECORDS = "clock"
"""Records of importance have the moment of the estimate: a file with this field is a stream, in which newer records
replace older ones. In a file without it every page is expected once."""

_DIGITS = np.full(256, 255, np.uint8)
_DIGITS[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
_DIGITS[np.frombuffer(b"ABCDEF", np.uint8)] = np.arange(10, 16)


@dataclass(frozen=True, eq=False)
class Ranks:
    """One rank of all pages of a file. Pages ascend, each is there once.

    `rows` were read: one for each page here, `repeated` ones that later ones replaced, and `gone` ones that removed a
    page. `is_stream`: the rows are records of importance, in which pages are usually repeated.
    """

    pages: Ids
    values: Floats
    rows: int
    repeated: int
    gone: int
    is_stream: bool
    row_of: Ints
    parts: tuple[_UrlPart, ...]
    columns: tuple[str, ...] = ()
    """The names of all columns."""
    of_sites: bool = False
    """Whether the rows are sites: names instead of URLs, and hashes of the names instead of page ids."""
    by_position: bool = False
    """Whether the file has positions only: the rank of a site is 1 / position."""

    def sites(self, by: SiteKind) -> SiteSums:
        """Return the ranks added up by host or domain. The names of a list of sites count as hosts."""
        numbering = SiteNumbering(by)
        site_of_row = [np.empty(0, np.int32)]
        for part in self.parts:
            if part.packed is None:
                site_of_row.append(np.full(part.rows, -1, np.int32))
            else:
                texts = _starts_and_text(_unpacked(part.packed), part.rows)
                first = texts.starts[0]
                site_of_row.append(numbering.number(texts.text[first : texts.starts[-1]], texts.starts - first))
        site_of = np.concatenate(site_of_row)[self.row_of]
        known = site_of >= 0
        sums = np.bincount(site_of[known], self.values[known], numbering.sites).astype(np.float64, copy=False)
        counts = np.bincount(site_of[known], minlength=numbering.sites)
        here = counts > 0  # of a row that a later one replaced or removed, the site may have no other
        names = [name for name, is_here in zip(numbering.names(), here.tolist(), strict=True) if is_here]
        above_0 = np.bincount(site_of[known & (self.values > 0.0)], minlength=numbering.sites)
        without = int(len(known) - known.sum())
        return SiteSums(names, sums[here], counts[here].astype(np.int64), above_0[here].astype(np.int64), without)

    def urls(self, pages: Sequence[int]) -> dict[int, str]:
        """Return the known URLs of pages."""
        ids = np.array(pages, np.uint64)
        at = np.searchsorted(self.pages, ids)
        at[at == len(self.pages)] = 0
        here = self.pages[at] == ids
        ids, rows = ids[here], self.row_of[at[here]]
        ends = np.cumsum([part.rows for part in self.parts])
        part_of = np.searchsorted(ends, rows, side="right")
        found: dict[int, str] = {}
        for number in np.unique(part_of).tolist():  # each is unpacked once, however many of its pages are requested
            part, some = self.parts[number], part_of == number
            if part.packed is not None:
                texts = _unpacked(part.packed).take(pa.array(rows[some] - (ends[number] - part.rows))).to_pylist()
                found.update((page, url) for page, url in zip(ids[some].tolist(), texts, strict=True) if url)
        return found


class SiteSums(NamedTuple):
    """Sites with the sums of the ranks of their rows, the number of rows, and the number of rows without a site."""

    names: list[str]
    values: Floats
    rows: Ints
    rows_above_0: Ints
    rows_without_site: int


class _UrlPart(NamedTuple):
    """The URLs of consecutive rows, compressed: few are ever shown."""

    rows: int
    packed: Any


class _Batch(NamedTuple):
    """Consecutive rows. The rank of a page that is gone is NaN."""

    pages: Ids
    values: Floats
    urls: Any


class _Layout(NamedTuple):
    """The rows of a file, and its columns; whether it is a stream, or a list of sites, perhaps with positions only."""

    is_stream: bool
    batches: Iterator[_Batch]
    columns: Collection[str]
    of_sites: bool = False
    by_position: bool = False


class _BadRow(Exception):
    """A row of a batch, counted from 0, that is none: why, and what to do."""

    def __init__(self, row: int, why: str) -> None:
        super().__init__(why)
        self.row = row


def read_ranks(name: str, rank: str) -> Ranks:
    """The rank of this name of all pages of a file, of standard input ("-"), or of the folder that a replay wrote.

    What cannot be read is an `InputRefused`: no such file, column or number. Nothing is passed over.
    """
    files = _files_of(name)
    name = files[0] if len(files) == 1 else name
    ids: list[Ids] = [np.zeros(0, np.uint64)]
    values: list[Floats] = [np.zeros(0)]
    parts = []
    for file in files:
        with ExitStack() as opened:
            layout = _layout(file, rank, opened)
            for batch in layout.batches:
                ids.append(batch.pages)
                values.append(batch.values)
                parts.append(_UrlPart(len(batch.pages), None if batch.urls is None else _packed(batch.urls)))
    every, ranks = np.concatenate(ids), np.concatenate(values)
    del ids, values
    order = np.argsort(every, kind="stable")
    every = every[order]
    last = np.ones(len(every), np.bool_)
    np.not_equal(every[1:], every[:-1], out=last[:-1])
    row_of, pages = order[last], every[last]
    there = ~np.isnan(ranks[row_of])
    if not there.any():
        raise InputRefused(f"{name}: {'all its pages are gone' if len(every) else 'no page is in it'}: name another")
    return Ranks(
        pages[there],
        ranks[row_of][there],
        rows=len(every),
        repeated=len(every) - len(pages),
        gone=int(len(there) - there.sum()),
        is_stream=layout.is_stream,
        row_of=row_of[there],
        parts=tuple(parts),
        columns=tuple(layout.columns),
        of_sites=layout.of_sites,
        by_position=layout.by_position,
    )


def _files_of(name: str) -> list[str]:
    """Return the name; for a folder that a replay wrote, its file of importance, or all parts of that file."""
    if name == STDIN or not Path(name).is_dir():
        return [name]
    found = [
        paths for ending in ("jsonl", "avro", "parquet") if (paths := found_paths(Path(name), "importance", ending))
    ]
    if not found:
        raise InputRefused(f"{name}: no file of importance in this folder: name one that replay --out wrote, or a file")
    if len(found) > 1:
        raise InputRefused(f"{name}: {' and '.join(paths[0].name for paths in found)} are in it: name one file")
    some = [str(path) for path in found[0] if path.stat().st_size]  # a part of JSON lines may have no lines
    return some or [str(found[0][0])]


def _layout(name: str, rank: str, opened: ExitStack) -> _Layout:
    """Open a file, which stays open as long as `opened`, and return its layout."""
    pieces: Iterator[bytes] = opened.enter_context(closing(pieces_of(name)))
    first = next(pieces, b"")
    if first.startswith((b"PAR1", b"Obj\x01")):
        if name == STDIN:
            raise InputRefused(
                "standard input: Parquet and Avro are read from files only: name one, or send JSON lines"
            )
        file = opened.enter_context(open_bytes(name))
        return (_parquet if first.startswith(b"PAR1") else _avro)(name, file, rank)
    pieces = chain((first.removeprefix(_BOM),), pieces)
    if first.removeprefix(_BOM).lstrip().startswith(b"{"):
        return _json_lines(name, whole_lines(name, pieces), rank)
    return _csv(name, whole_lines(name, pieces), rank)


# -- lines -------------------------------------------------------------------------------------------------------------


def _json_lines(name: str, lines: Iterator[LineBlock], rank: str) -> _Layout:
    first = next(lines)  # there is one: the format was detected by it
    begun = json_objects(name, first)
    is_stream = any(_FIELD_OF_RECORDS in row or "gone" in row for row in begun)
    key = _key_of(begun[0])
    objects = ((some, json_objects(name, some)) for some in lines)

    def batches() -> Iterator[_Batch]:
        for some, rows in chain([(first, begun)], objects):
            try:
                yield _batch_of_rows(rows, rank, key)
            except _BadRow as bad:
                raise InputRefused(f"{name}, line {some.line_of(bad.row)}: {bad}") from None

    return _Layout(is_stream, batches(), begun[0], key == _SITE)


def _csv(name: str, lines: Iterator[LineBlock], rank: str) -> _Layout:
    first = next(lines, LineBlock(1, b""))
    if not first.text:
        raise InputRefused(f"{name}: it is empty: name another file")
    head, _, rest = first.text.partition(b"\n")
    names = _cells(head)
    if names is None or b"\0" in head:
        raise InputRefused(f"{name}: neither CSV nor JSON lines, Parquet or Avro: name a file of ranks")
    if head.startswith(b"#") and b"\t" in head:
        return _common_crawl(name, head, chain([LineBlock(2, rest)] if rest.strip() else [], lines), rank)
    if _TRANCO.fullmatch(head.rstrip(b"\r")):
        return _tranco(name, chain([first], lines), rank)
    _check_names(name, names, rank)
    for column in ("url", "page", _SITE, rank):
        if names.count(column) > 1:
            raise InputRefused(f"{name}: several columns {column}: keep one")
    lines = chain([LineBlock(2, rest)] if rest.strip() else [], lines)
    table = _Table(tuple(names), _key_of(names), rank)
    batches = (_csv_batch(name, some, table) for some in lines)
    return _Layout(_FIELD_OF_RECORDS in names, batches, names, table.key == _SITE)


class _Table(NamedTuple):
    """The layout of a file of CSV: its columns, that of the URLs or sites, and that of the ranks."""

    names: tuple[str, ...]
    key: str
    rank: str
    delimiter: str = ","


def _common_crawl(name: str, head: bytes, lines: Iterator[LineBlock], rank: str) -> _Layout:
    names = [column.removeprefix("#") for column in head.decode("utf-8").strip().split("\t")]
    if _REVERSED not in names or "pr_val" not in names:
        raise InputRefused(
            f"{name}, line 1: no head of a file of ranks of Common Crawl: it has #pr_val and #host_rev, with tabs"
        )
    column = "pr_val" if rank == "importance" else rank
    if column not in names or column == _REVERSED:
        raise InputRefused(f"{name}: no column of ranks {_shown(rank)}: {_instead(names[: names.index(_REVERSED)])}")
    table = _Table(tuple(names), _REVERSED, column, "\t")

    def batches() -> Iterator[_Batch]:
        for some in lines:
            batch = _csv_batch(name, some, table)
            hosts = pa.array([reversed_host(host) for host in batch.urls.to_pylist()], pa.string())
            yield batch._replace(pages=_ids(hosts, None, len(hosts)), urls=hosts)

    return _Layout(False, batches(), names, of_sites=True)


def _tranco(name: str, lines: Iterator[LineBlock], rank: str) -> _Layout:
    if rank != "importance":
        raise InputRefused(
            f"{name}: no column of ranks {_shown(rank)}: a list of positions and sites has none: omit it"
        )
    table = _Table(("position", _SITE), _SITE, "position")

    def batches() -> Iterator[_Batch]:
        for some in lines:
            batch = _csv_batch(name, some, table)
            wrong = batch.values < 1.0
            if wrong.any():
                at = some.line_of(int(np.argmax(wrong)))
                raise InputRefused(f"{name}, line {at}: no position from 1: write lines such as 1,example.org")
            yield batch._replace(values=1.0 / batch.values)

    return _Layout(False, batches(), table.names, of_sites=True, by_position=True)


def _csv_batch(name: str, lines: LineBlock, file: _Table) -> _Batch:
    names, rank = file.names, file.rank
    columns = {column: pa.string() for column in (file.key, "page") if column in names} | {rank: pa.float64()}
    text = lines.text
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
            pa_csv.ParseOptions(delimiter=file.delimiter),
            pa_csv.ConvertOptions(
                column_types=columns, include_columns=list(columns), null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as problem:
        _say_what_is_wrong(name, lines, file)
        raise InputRefused(f"{name}, from line {lines.number}: {_shown(str(problem))}: write it as CSV") from None
    if table.num_rows != text.count(b"\n") and table.num_rows != sum(bool(line.strip()) for line in text.split(b"\n")):
        raise InputRefused(f"{name}, from line {lines.number}: a line break within a value: write a row a line")
    urls, pages = (table[column].combine_chunks() if column in columns else None for column in (file.key, "page"))
    values = table[rank].to_numpy()
    try:
        none_is_gone = np.zeros(len(values), np.bool_)
        return _checked(values, lambda row: str(values[row]), none_is_gone, urls, pages, rank, file.key)
    except _BadRow as bad:
        raise InputRefused(f"{name}, line {lines.line_of(bad.row)}: {bad}") from None


def _say_what_is_wrong(name: str, lines: LineBlock, file: _Table) -> None:
    """Refuse the first line that is no row."""
    names, rank = file.names, file.rank
    for number, line in enumerate(lines.text.split(b"\n"), lines.number):
        cells = _cells(line, file.delimiter)
        if cells is None:
            raise InputRefused(f"{name}, line {number}: not UTF-8: write it again")
        if line.strip() and len(cells) != len(names):
            raise InputRefused(f"{name}, line {number}: {len(cells)} columns, not {len(names)}: write it again")
        try:
            if line.strip():
                float(cells[names.index(rank)])
        except ValueError:
            problem = _no_rank(rank, cells[names.index(rank)])
            raise InputRefused(f"{name}, line {number}: {problem}") from None


def _cells(line: bytes, delimiter: str = ",") -> list[str] | None:
    """The cells of a line of CSV; None if it is none."""
    try:
        return next(csv.reader([line.decode("utf-8").rstrip("\r\n")], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        return None


# -- Parquet and Avro --------------------------------------------------------------------------------------------------


def _parquet(name: str, file: BinaryIO, rank: str) -> _Layout:
    damaged = (pa.ArrowException, OSError, ValueError)
    try:
        table = pq.ParquetFile(file)
    except damaged as problem:
        raise InputRefused(f"{name}: damaged ({_shown(str(problem))}): write it again") from None
    types = {field.name: field.type for field in table.schema_arrow}
    _check_names(name, list(types), rank)
    numeric = [column for column, kind in types.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)]
    if rank not in numeric:
        raise InputRefused(f"{name}: column {rank} holds {types[rank]}, no numbers: {_instead(numeric)}")
    key = _key_of(types)
    for column in {key, "page"} & types.keys():
        if not _is_text(types[column]):
            raise InputRefused(f"{name}: column {column} holds {types[column]}, no texts: name a file of ranks")
    columns = [column for column in (key, "page", rank) if column in types]

    def batches() -> Iterator[_Batch]:
        row = 1
        parts = table.iter_batches(_ROWS_AT_ONCE, columns=columns, use_threads=False)
        while True:
            try:
                part = next(parts, None)
                if part is None:
                    return
                values = part.column(rank).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
                urls, pages = (
                    part.column(column).cast(pa.string()) if column in columns else None for column in (key, "page")
                )
            except damaged as problem:
                raise InputRefused(
                    f"{name}, from row {row}: damaged ({_shown(str(problem))}): write it again"
                ) from None
            try:
                none_is_gone = np.zeros(len(values), np.bool_)
                yield _checked(values, _teller(part.column(rank)), none_is_gone, urls, pages, rank, key)
            except _BadRow as bad:
                raise InputRefused(f"{name}, row {row + bad.row}: {bad}") from None
            row += len(values)

    return _Layout(_FIELD_OF_RECORDS in types, batches(), types, key == _SITE)


def _teller(column: Any) -> Callable[[int], str]:
    return lambda row: str(column[row])


def _is_text(type_: Any) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_null(type_))


def _avro(name: str, file: BinaryIO, rank: str) -> _Layout:
    """Read records one by one: fastavro skips the fields that are not requested."""

    def damaged(row: int, problem: Exception) -> InputRefused:
        detail = _shown(str(problem)) or type(problem).__name__
        return InputRefused(f"{name}, from row {row}: damaged ({detail}): write it again")

    try:
        written: Any = fastavro.reader(file).writer_schema
        file.seek(0)
    except Exception as problem:  # fastavro has no errors of its own for bytes that make no sense
        raise damaged(1, problem) from None
    is_record = isinstance(written, dict) and written.get("type") == "record"
    fields = {field["name"]: field for field in written["fields"]} if is_record else {}
    _check_names(name, list(fields), rank)
    key = _key_of(fields)
    requested = {**written, "fields": [fields[column] for column in (key, "page", rank) if column in fields]}

    def batches() -> Iterator[_Batch]:
        row = 1
        records: Any = None
        while True:
            try:
                records = records or fastavro.reader(file, requested)
                rows = list(islice(records, _ROWS_AT_ONCE))
            except Exception as problem:
                raise damaged(row, problem) from None
            if not rows:
                return
            try:
                yield _batch_of_rows(rows, rank, key)
            except _BadRow as bad:
                raise InputRefused(f"{name}, row {row + bad.row}: {bad}") from None
            row += len(rows)

    return _Layout(_FIELD_OF_RECORDS in fields, batches(), fields, key == _SITE)


# -- rows --------------------------------------------------------------------------------------------------------------


def _check_names(name: str, names: list[str], rank: str) -> None:
    keys = ("url", "page", _SITE)
    if not set(keys) & set(names):
        found = f"none of {_listed(names)} is" if names else "nothing in it is"
        raise InputRefused(f"{name}: {found} a column url, page or site: name a file of ranks")
    if rank not in names or rank in keys:
        others = [other for other in names if other not in keys]
        raise InputRefused(f"{name}: no column of ranks {_shown(rank)}: {_instead(others)}")


def _key_of(names: Collection[str]) -> str:
    """Return the column with the names of rows: their URLs, or their sites."""
    return _SITE if _SITE in names and not {"url", "page"} & set(names) else "url"


def _batch_of_rows(rows: list[dict[str, Any]], rank: str, key: str = "url") -> _Batch:
    """Columns of rows with names."""
    given = _column(rows, rank)
    if not set(map(type, given)) <= {float, int, NoneType}:  # True and "1" are no ranks either
        given = [value if type(value) in (float, int) else None for value in given]
    values = np.array(given, np.float64)
    gone = np.isnan(values)
    for row in np.flatnonzero(gone).tolist():
        gone[row] = rank not in rows[row] and rows[row].get("gone") is True

    def say(row: int) -> str:
        value = rows[row].get(rank)
        if rank in rows[row]:
            return str(value) if isinstance(value, float) else orjson.dumps(value, default=str).decode()
        numbers = [name for name, value in rows[row].items() if type(value) in (int, float)]
        raise _BadRow(row, f"no {_shown(rank)}: {_instead(numbers)}")

    pages = None if key == _SITE else _texts(rows, "page")
    return _checked(values, say, gone, _texts(rows, key), pages, rank, key)


def _column(rows: list[dict[str, Any]], name: str) -> list[Any]:
    try:
        return list(map(itemgetter(name), rows))
    except KeyError:  # of a row that is gone, or wrong
        return [row.get(name) for row in rows]


def _texts(rows: list[dict[str, Any]], name: str) -> Any:
    texts = _column(rows, name)
    try:
        return pa.array(texts, pa.string())
    except (pa.ArrowException, TypeError, UnicodeError):
        row = next((row for row, text in enumerate(texts) if not isinstance(text, str | None)), 0)
        raise _BadRow(row, f"{name} is no text: write it as one") from None


def _checked(
    values: Floats, rank_text: Callable[[int], str], gone: Any, urls: Any, pages: Any, rank: str, key: str
) -> _Batch:
    """Check rows and return them as a batch. `rank_text` returns the rank of a row as it was written."""
    ids = _ids(urls, pages, len(values), "neither url nor page" if key == "url" else f"no {key}")
    wrong = ~(np.isfinite(values) & (values >= 0.0)) & ~gone
    if wrong.any():
        row = int(np.argmax(wrong))
        raise _BadRow(row, _no_rank(rank, rank_text(row)))
    return _Batch(ids, np.where(gone, np.nan, values) if gone.any() else values, urls)


def _no_rank(rank: str, written: str) -> str:
    return f"{rank} {_shown(written) or 'is empty'}: a rank is a number from 0: mend it, or name another column"


def _ids(urls: Any, pages: Any, rows: int, missing: str = "") -> Ids:
    """Return the page id of every row: that of its URL by the default rules, or its own where it has none.

    Streams have page ids by keys of their own: so two files are compared by URLs.
    """
    hashed = _starts_and_text(urls, rows)
    named = _starts_and_text(pages, rows)
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
    if len(wrong):
        row = int(wrong.min())
        raise _BadRow(row, f"page {_shown(pages[row].as_py())} is no page id: give 16 hexadecimal digits")
    empty = ~has_url & (lengths == 0)
    if empty.any():
        raise _BadRow(int(np.argmax(empty)), f"{missing}: give one")
    return ids


class _Texts(NamedTuple):
    """Texts as the kernels take them: text i is `text[starts[i]:starts[i + 1]]`."""

    starts: Ints
    text: Bytes


def _starts_and_text(array: Any, rows: int) -> _Texts:
    if array is None:
        return _Texts(np.zeros(rows + 1, np.int64), np.zeros(0, np.uint8))
    if array.null_count:
        array = array.fill_null("")
    _, offsets, text = array.buffers()
    starts = np.frombuffer(offsets, np.int32)[array.offset : array.offset + rows + 1].astype(np.int64)
    return _Texts(starts, np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8))


def _packed(urls: Any) -> Any:
    sink = pa.BufferOutputStream()
    some = pa.record_batch([urls], names=["url"])
    with pa.ipc.new_stream(sink, some.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(some)
    return sink.getvalue()


def _unpacked(packed: Any) -> Any:
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_next_batch().column(0)


def _instead(ranks: Sequence[str]) -> str:
    return f"name one of {_listed(ranks)}" if ranks else "name a file of ranks"


def _listed(names: Sequence[str]) -> str:
    return _shown(", ".join(names), _MOST_NAMES_SHOWN)


def _shown(text: str, most: int = _MOST_SHOWN) -> str:
    """Return a text of a file as one short line without control characters."""
    text = printable(" ".join(text[: 2 * most].split()))
    return text if len(text) <= most else text[:most] + "…"
