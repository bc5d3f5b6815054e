"""Files of ranks that are lines: JSON lines, CSV, and the lists of sites of Common Crawl and Tranco.

orjson reads JSON lines: pyarrow takes no less time, and crashes at a line `null`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from opicflow.connectors.files.csv_tables import RowBlock, read_columns
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


def read_csv(name: str, blocks: Iterator[RowBlock], rank: str) -> RankLayout:
    """The layout of a file of CSV, or of a list of sites. Rows that are wrong are refused while batches are read."""
    first = next(blocks, None)
    if first is None:
        raise InputRefused(f"{name}: it is empty: name another file")
    names, rest = first.split_head()
    if first.divider == "\t":
        return _common_crawl(name, names, _filled(rest, blocks), rank)
    if len(names) == 2 and names[0].isdecimal() and names[1].strip():
        return _tranco(name, _filled(first, blocks), rank)
    check_names(name, names, rank)
    for column in ("url", "page", SITE, rank):
        if names.count(column) > 1:
            raise InputRefused(f"{name}: several columns {column}: keep one")
    table = _Table(tuple(names), key_of(names), rank)
    batches = (_csv_batch(name, some, table) for some in _filled(rest, blocks))
    return RankLayout(FIELD_OF_RECORDS in names, batches, names, table.key == SITE)


def _filled(first: RowBlock, others: Iterator[RowBlock]) -> Iterator[RowBlock]:
    """Yield the blocks that have something in them."""
    return (block for block in chain([first], others) if block.text.strip())


class _Table(NamedTuple):
    """The layout of a file of CSV: its columns, that of the URLs or sites, and that of the ranks."""

    names: tuple[str, ...]
    key: str
    rank: str


def _common_crawl(name: str, head: list[str], blocks: Iterator[RowBlock], rank: str) -> RankLayout:
    names = [column.removeprefix("#") for column in head]
    if _REVERSED not in names or "pr_val" not in names:
        raise InputRefused(
            f"{name}, line 1: no head of a file of ranks of Common Crawl: it has #pr_val and #host_rev, with tabs"
        )
    column = "pr_val" if rank == "importance" else rank
    if column not in names or column == _REVERSED:
        raise InputRefused(f"{name}: no column of ranks {shown(rank)}: {instead(names[: names.index(_REVERSED)])}")
    table = _Table(tuple(names), _REVERSED, column)

    def batches() -> Iterator[RankBatch]:
        for some in blocks:
            batch = _csv_batch(name, some, table)
            assert batch.urls is not None
            hosts = pa.array([reversed_host(host) for host in batch.urls.to_pylist()], pa.string())
            yield batch._replace(pages=ids_of(hosts, None, len(hosts)), urls=hosts)

    return RankLayout(False, batches(), names, of_sites=True)


def _tranco(name: str, blocks: Iterator[RowBlock], rank: str) -> RankLayout:
    if rank != "importance":
        raise InputRefused(f"{name}: no column of ranks {shown(rank)}: a list of positions and sites has none: omit it")
    table = _Table(("position", SITE), SITE, "position")

    def batches() -> Iterator[RankBatch]:
        for some in blocks:
            batch = _csv_batch(name, some, table)
            wrong = batch.values < 1.0
            if wrong.any():
                at = some.line_of(int(np.argmax(wrong)))
                raise InputRefused(f"{name}, line {at}: no position from 1: write lines such as 1,example.org")
            yield batch._replace(values=1.0 / batch.values)

    return RankLayout(False, batches(), table.names, of_sites=True, by_position=True)


def _csv_batch(name: str, some: RowBlock, file: _Table) -> RankBatch:
    names, rank = file.names, file.rank
    types = {column: pa.string() for column in (file.key, "page") if column in names} | {rank: pa.float64()}

    def problem_of(cells: list[str]) -> str:
        cell = cells[names.index(rank)]
        try:
            float(cell)
        except ValueError:
            return no_rank(rank, cell)
        return ""

    table = read_columns(name, some, names, types, problem_of)
    urls, pages = (table[column].combine_chunks() if column in types else None for column in (file.key, "page"))
    values = table[rank].to_numpy()
    try:
        none_is_gone = np.zeros(len(values), np.bool_)
        return checked_batch(values, lambda row: str(values[row]), none_is_gone, urls, pages, rank, file.key)
    except BadRow as bad:
        raise InputRefused(f"{name}, line {some.line_of(bad.row)}: {bad}") from None
