"""Reads numbered edge lists, and the names of their vertices.

    vertices    number<TAB>name                    names are URLs, hosts, or hosts with their labels reversed
    edges       number<TAB>number[<TAB>weight]     a link from the first vertex to the second

Common Crawl writes such files, with reversed hosts (`com.example.www`). Whether hosts are reversed is decided for the
whole file, by its first megabyte: by the end at which more names have a top-level domain. Further columns of a file of
vertices are ignored. Files are plain, gzip or zstd.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from opicflow.connectors.files.csv_tables import RowBlock, read_columns, whole_rows
from opicflow.connectors.files.line_blocks import pieces_of
from opicflow.connectors.files.opening import InputRefused
from opicflow.schemas.arrays import Bools, Bytes, Floats, Int, Ints
from opicflow.schemas.errors import printable
from opicflow.schemas.hashing import byte_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.public_suffixes import installed_suffixes

MOST_VERTICES = 2**31 - 1
_MOST_SHOWN = 60
_SCHEME = np.frombuffer(b"https://", np.uint8).copy()


class Vertices(NamedTuple):
    """Some vertices: their numbers, and their URLs `text[starts[i]:starts[i + 1]]`; a host becomes its home page."""

    rows: RowBlock
    numbers: Ints
    text: Bytes
    starts: Ints


class NumberedEdges(NamedTuple):
    """Some edges by the numbers of their vertices; `weights` is empty if the file has none."""

    rows: RowBlock
    sources: Ints
    targets: Ints
    weights: Floats


class VertexFile:
    """A file of vertices. `is_reversed`: its hosts are reversed."""

    def __init__(self, name: str) -> None:
        """Open a file, and find out how its hosts are written."""
        self.name = name
        first = next(_blocks(name), None)
        if first is None:
            raise InputRefused(f"{name}: it is empty: name a file of vertices, with lines such as 0<TAB>example.org")
        self._columns = first.columns
        self.is_reversed = _is_reversed(first)

    def read(self) -> Iterator[Vertices]:
        """Yield all vertices. Raises `InputRefused` with the line of a wrong one."""
        for rows in _blocks(self.name):
            names = ["number", "name", *map(str, range(2, self._columns))]
            table = read_columns(self.name, rows, names, {"number": pa.int64(), "name": pa.string()}, _wrong_vertex)
            numbers = table["number"].to_numpy()
            _check(self.name, rows, (numbers < 0) | (numbers >= MOST_VERTICES), f"no number below {MOST_VERTICES:,}")
            column = table["name"].combine_chunks()
            _, offsets, text = column.buffers()
            starts = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
            _check(self.name, rows, np.diff(starts) == 0, "no name")
            given = np.frombuffer(text, np.uint8).copy()
            urls = np.empty(len(given) + 9 * len(numbers), np.uint8)
            url_starts = np.zeros(len(numbers) + 1, np.int64)
            _write_urls(given, starts, self.is_reversed, _SCHEME, urls, url_starts)
            yield Vertices(rows, numbers, urls[: url_starts[-1]], url_starts)

    def line_of_second(self, number: int) -> int:
        """Return the line on which a number occurs for the second time."""
        found = 0
        for block in self.read():
            for row in np.flatnonzero(block.numbers == number).tolist():
                found += 1
                if found == 2:
                    return block.rows.line_of(row)
        raise ValueError(f"{number} does not occur twice")


def read_numbered_edges(name: str) -> Iterator[NumberedEdges]:
    """Yield the edges of a file. Raises `InputRefused` with the line of a wrong one."""
    columns = 0
    for rows in _blocks(name):
        columns = columns or min(max(rows.columns, 2), 3)
        types = {"source": pa.int64(), "target": pa.int64(), "weight": pa.float64()}
        names = list(types)[:columns]
        table = read_columns(name, rows, names, {column: types[column] for column in names}, _wrong_edge)
        weights = table["weight"].to_numpy() if columns == 3 else np.empty(0)
        if columns == 3:
            wrong = ~(np.isfinite(weights) & (weights >= 0.0))
            _check(name, rows, wrong, "the weight is not a number from 0")
        yield NumberedEdges(rows, table["source"].to_numpy(), table["target"].to_numpy(), weights)


def _blocks(name: str) -> Iterator[RowBlock]:
    return (block for block in whole_rows(name, pieces_of(name), "\t") if block.text.strip())


def _wrong_vertex(cells: list[str]) -> str:
    if _is_whole(cells[0]):
        return ""
    return f"{_shown(cells[0])} is no number of a vertex: write lines such as 0<TAB>example.org"


def _wrong_edge(cells: list[str]) -> str:
    for cell in cells[:2]:
        if not _is_whole(cell):
            return f"{_shown(cell)} is no number of a vertex: write lines such as 0<TAB>1"
    try:
        float(cells[2]) if len(cells) > 2 else 0.0
    except ValueError:
        return f"{_shown(cells[2])} is no weight: write a number from 0, or omit the column"
    return ""


def _is_whole(cell: str) -> bool:
    return cell.strip().removeprefix("-").isdecimal() and len(cell.strip()) < 19


def _check(name: str, rows: RowBlock, wrong: Bools, why: str) -> None:
    if wrong.any():
        at = rows.line_of(int(np.argmax(wrong)))
        raise InputRefused(f"{name}, line {at}: {why}: correct the line, or remove it")


def _shown(text: str) -> str:
    return repr(printable(" ".join(text.split()))[:_MOST_SHOWN])


@cache
def _top_level_domains() -> frozenset[str]:
    return frozenset(rule.decode() for rule in installed_suffixes().rules.splitlines() if b"." not in rule)


def _is_reversed(some: RowBlock) -> bool:
    """Return whether more hosts in these rows begin with a top-level domain than end with one."""
    known, votes = _top_level_domains(), 0
    for _, (_, *names) in some.rows():
        name = "".join(names[:1])
        if "." in name and "://" not in name:
            votes += (name.partition(".")[0] in known) - (name.rpartition(".")[2].partition(":")[0] in known)
    return votes > 0


@lean_kernel
def _write_urls(text: Bytes, starts: Ints, is_reversed: bool, scheme: Bytes, urls: Bytes, url_starts: Ints) -> None:
    """Write the URL of each name; there is room for a scheme and a slash more."""
    to: Int = np.int64(0)
    for row in range(starts.shape[0] - 1):
        begin, end = starts[row], starts[row + 1]
        if _has_scheme(text, begin, end):
            for at in range(begin, end):
                urls[to] = byte_at(text, at)
                to += 1
        else:
            for at in range(scheme.shape[0]):
                urls[to] = scheme[at]
                to += 1
            to = _write_host(text, begin, end, is_reversed and not _is_all_digits(text, begin, end), urls, to)
            urls[to] = np.uint8(47)  # /
            to += 1
        url_starts[row + 1] = to


@inlined_kernel
def _has_scheme(text: Bytes, begin: Int, end: Int) -> bool:
    at = begin
    while at + 2 < end and byte_at(text, at) != 58:  # :
        at += 1
    return bool(at + 2 < end and byte_at(text, at + 1) == 47 and byte_at(text, at + 2) == 47)


@inlined_kernel
def _is_all_digits(text: Bytes, begin: Int, end: Int) -> bool:
    """Return whether a name is an IP address: digits and dots, or brackets."""
    if byte_at(text, begin) == 91:  # [
        return True
    only = True
    for at in range(begin, end):
        only &= bool(byte_at(text, at) == 46 or 48 <= byte_at(text, at) <= 57)
    return only


@inlined_kernel
def _write_host(text: Bytes, begin: Int, end: Int, is_reversed: bool, urls: Bytes, to: Int) -> Int:
    """Write a host, its labels in the opposite order if `is_reversed`. Return where it ends."""
    if not is_reversed:
        for at in range(begin, end):
            urls[to] = byte_at(text, at)
            to += 1
        return to
    last = end
    while last >= begin:
        first = last
        while first > begin and byte_at(text, first - 1) != 46:  # .
            first -= 1
        for at in range(first, last):
            urls[to] = byte_at(text, at)
            to += 1
        if first > begin:
            urls[to] = np.uint8(46)
            to += 1
        last = first - 1
    return to
