"""Reads files of ranks: a page a row, as replays, `simulate --ranks`, `rank` and `subscribe importance` write them.

Rows have a `url`, a `page` (the page id, 16 hexadecimal digits) or both, and a number for each rank. Lists of sites,
as `rank --by` writes them, have a `site` instead; or they have the form of Common Crawl or of Tranco (site_lists.py).
The format is detected by the content: Parquet, Avro, JSON lines or CSV, the last two plain, gzip or zstd. If a page has
several rows, the last one counts; a JSON line with `"gone": true` and no rank removes a page. Whole columns are read, a
batch of rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from opicflow.connectors.files.csv_tables import whole_rows
from opicflow.connectors.files.divided_files import files_of_result
from opicflow.connectors.files.line_blocks import pieces_of, whole_lines
from opicflow.connectors.files.opening import STDIN, InputRefused, open_bytes
from opicflow.connectors.files.rank_rows import (
    RankLayout,
    read_avro,
    read_csv,
    read_json_lines,
    read_parquet,
    starts_and_text,
)
from opicflow.connectors.files.record_files import AVRO, PARQUET
from opicflow.schemas.arrays import Floats, Ids, Ints
from opicflow.schemas.sites import SiteKind, SiteNumbering


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
                texts = starts_and_text(_unpacked(part.packed), part.rows)
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
    packed: pa.Buffer | None


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
    found = files_of_result(Path(name), "importance")
    return [path for path in found if Path(path).stat().st_size] or found[:1]  # a part of JSON lines may have no lines


def _layout(name: str, rank: str, opened: ExitStack) -> RankLayout:
    """Open a file, which stays open as long as `opened`, and return its layout."""
    pieces: Iterator[bytes] = opened.enter_context(closing(pieces_of(name)))
    first = next(pieces, b"")
    if first.startswith((PARQUET, AVRO)):
        if name == STDIN:
            raise InputRefused(
                "standard input: Parquet and Avro are read from files only: name one, or send JSON lines"
            )
        file = opened.enter_context(open_bytes(name))
        return (read_parquet if first.startswith(PARQUET) else read_avro)(name, file, rank)
    pieces = chain((first,), pieces)
    if first.lstrip().startswith(b"{"):
        return read_json_lines(name, whole_lines(name, pieces), rank)
    head = first.partition(b"\n")[0].decode("utf-8", "replace")
    if "\0" in head or "\ufffd" in head:
        raise InputRefused(f"{name}: neither CSV nor JSON lines, Parquet or Avro: name a file of ranks")
    divider = "\t" if head.startswith("#") and "\t" in head else ","
    return read_csv(name, whole_rows(name, pieces, divider), rank)


def _packed(urls: pa.Array) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    some = pa.record_batch([urls], names=["url"])
    with pa.ipc.new_stream(sink, some.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(some)
    return sink.getvalue()


def _unpacked(packed: pa.Buffer) -> pa.Array:
    with pa.ipc.open_stream(packed) as reader:
        return reader.read_next_batch().column(0)
