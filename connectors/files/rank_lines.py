"""Files of ranks that are lines: JSON lines, CSV, and the lists of sites of Common Crawl and Tranco.

orjson reads JSON lines: pyarrow takes no less time, and crashes at a line `null`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from opicflow.connectors.files.line_blocks import LineBlock, json_objects
from opicflow.connectors.files.opening import InputRefused
from opicflow.connectors.files.rank_rows import (
    FIELD_OF_RECORDS,
    SITE,
    BadRow,
    RankBatch,
    RankLayout,
    batch_of_rows,
    check_names,
    checked_batch,
    ids_of,
    instead,
    key_of,
    no_rank,
    shown,
)
from opicflow.connectors.files.site_lists import reversed_host

_REVERSED = "host_rev"
_TRANCO = re.compile(rb"[0-9]+,[^,\s]+")


def read_json_lines(name: str, lines: Iterator[LineBlock], rank: str) -> RankLayout:
    """The layout of a file of JSON lines. Lines that are no rows are refused while batches are read."""
    first = next(lines)  # there is one: the format was detected by it
    begun = json_objects(name, first)
    is_stream = any(FIELD_OF_RECORDS in row or "gone" in row for row in begun)
    key = key_of(begun[0])
    objects = ((some, json_objects(name, some)) for some in lines)

    def batches() -> Iterator[RankBatch]:
        for some, rows in chain([(first, begun)], objects):
            try:
                yield batch_of_rows(rows, rank, key)
            except BadRow as bad:
                raise InputRefused(f"{name}, line {some.line_of(bad.row)}: {bad}") from None

    return RankLayout(is_stream, batches(), begun[0], key == SITE)


def read_csv(name: str, lines: Iterator[LineBlock], rank: str) -> RankLayout:
    """The layout of a file of CSV, or of a list of sites. Lines that are no rows are refused while batches are read."""
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
    check_names(name, names, rank)
    for column in ("url", "page", SITE, rank):
        if names.count(column) > 1:
            raise InputRefused(f"{name}: several columns {column}: keep one")
    lines = chain([LineBlock(2, rest)] if rest.strip() else [], lines)
    table = _Table(tuple(names), key_of(names), rank)
    batches = (_csv_batch(name, some, table) for some in lines)
    return RankLayout(FIELD_OF_RECORDS in names, batches, names, table.key == SITE)


class _Table(NamedTuple):
    """The layout of a file of CSV: its columns, that of the URLs or sites, and that of the ranks."""

    names: tuple[str, ...]
    key: str
    rank: str
    delimiter: str = ","


def _common_crawl(name: str, head: bytes, lines: Iterator[LineBlock], rank: str) -> RankLayout:
    names = [column.removeprefix("#") for column in head.decode("utf-8").strip().split("\t")]
    if _REVERSED not in names or "pr_val" not in names:
        raise InputRefused(
            f"{name}, line 1: no head of a file of ranks of Common Crawl: it has #pr_val and #host_rev, with tabs"
        )
    column = "pr_val" if rank == "importance" else rank
    if column not in names or column == _REVERSED:
        raise InputRefused(f"{name}: no column of ranks {shown(rank)}: {instead(names[: names.index(_REVERSED)])}")
    table = _Table(tuple(names), _REVERSED, column, "\t")

    def batches() -> Iterator[RankBatch]:
        for some in lines:
            batch = _csv_batch(name, some, table)
            hosts = pa.array([reversed_host(host) for host in batch.urls.to_pylist()], pa.string())
            yield batch._replace(pages=ids_of(hosts, None, len(hosts)), urls=hosts)

    return RankLayout(False, batches(), names, of_sites=True)


def _tranco(name: str, lines: Iterator[LineBlock], rank: str) -> RankLayout:
    if rank != "importance":
        raise InputRefused(f"{name}: no column of ranks {shown(rank)}: a list of positions and sites has none: omit it")
    table = _Table(("position", SITE), SITE, "position")

    def batches() -> Iterator[RankBatch]:
        for some in lines:
            batch = _csv_batch(name, some, table)
            wrong = batch.values < 1.0
            if wrong.any():
                at = some.line_of(int(np.argmax(wrong)))
                raise InputRefused(f"{name}, line {at}: no position from 1: write lines such as 1,example.org")
            yield batch._replace(values=1.0 / batch.values)

    return RankLayout(False, batches(), table.names, of_sites=True, by_position=True)


def _csv_batch(name: str, lines: LineBlock, file: _Table) -> RankBatch:
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
        raise InputRefused(f"{name}, from line {lines.number}: {shown(str(problem))}: write it as CSV") from None
    if table.num_rows != text.count(b"\n") and table.num_rows != sum(bool(line.strip()) for line in text.split(b"\n")):
        raise InputRefused(f"{name}, from line {lines.number}: a line break within a value: write a row a line")
    urls, pages = (table[column].combine_chunks() if column in columns else None for column in (file.key, "page"))
    values = table[rank].to_numpy()
    try:
        none_is_gone = np.zeros(len(values), np.bool_)
        return checked_batch(values, lambda row: str(values[row]), none_is_gone, urls, pages, rank, file.key)
    except BadRow as bad:
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
            problem = no_rank(rank, cells[names.index(rank)])
            raise InputRefused(f"{name}, line {number}: {problem}") from None


def _cells(line: bytes, delimiter: str = ",") -> list[str] | None:
    """The cells of a line of CSV; None if it is none."""
    try:
        return next(csv.reader([line.decode("utf-8").rstrip("\r\n")], delimiter=delimiter), [])
    except (UnicodeDecodeError, csv.Error):
        return None
