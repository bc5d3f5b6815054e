"""Entries of a shard log as bytes, for the log itself and for shuffles.

    mark "OE", XXH64 of all that follows (8 bytes), version (1 byte), kind (1 byte)
    numbers, a varint each (schemas/varint.py), in the order of the functions below
    name of the source, as UTF-8, of crawl entries
    columns

No field has a name: the version defines their order. A new field is a new version, which older code refuses by name.

**Columns of whole numbers** are a byte with a width, the least number, and of each number its distance from the least
in so many bytes: a column whose numbers are all the same has width 0. A column that rises is its first number and the
steps between the others. The least number is a varint, less the column's default. The columns of a crawl entry begin
with a bit for each that has anything but its default; the others take no byte.

**Page ids** are a bit for each, whether its site (the first two bytes of an id) is another one than that of the page
with the links, or of the id before; these sites; and the other six bytes of every id. Most links stay on their site,
and the ids of transfers are sorted. Amounts are varints.

An entry has one form, and other bytes are refused. Policies and controls are rare: they are packed columns
(packed_entries.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from operator import mul
from typing import Any, NamedTuple

import numpy as np
import xxhash

from opicflow.pipelines.ledger.config import ORDINARY_LINK_WEIGHT, shown
from opicflow.pipelines.ledger.entries import (
    ENTRY_VERSION,
    ITEM_COLUMNS,
    NO_CATEGORY,
    ControlEntry,
    CrawlEntry,
    CrawlItems,
    Gossip,
    LogEntry,
    LogPosition,
    PolicyEntry,
    ResidualSums,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.entry_columns import (
    ID_BYTES,
    LOW_BYTES,
    MARK_BYTES,
    MOST_HEAD_BYTES,
    ItemColumns,
    read_items,
    read_transfers,
    write_items,
    write_transfers,
)
from opicflow.pipelines.ledger.errors import EntryUnknown
from opicflow.pipelines.ledger.packed_entries import pack_entry, unpack_entry
from opicflow.schemas.arrays import Array, ColumnSpec, Ids, for_kernel
from opicflow.schemas.columns import MAGIC, ColumnsRefused
from opicflow.schemas.varint import MOST_BYTES, decode_numbers, encode_numbers

_MARK = b"OE"
_START = struct.Struct("<2sQBB")
_CHECKED_FROM = 10
_DIGEST, _REAL = struct.Struct("<Q"), struct.Struct("<d")
_DEFAULTS = (ORDINARY_LINK_WEIGHT, NO_CATEGORY)
_NO_PAGES: Ids = np.zeros(0, np.uint64)


class _Kind(IntEnum):
    """The kinds of entries, as stored."""

    CRAWL = 1
    TRANSFERS = 2
    TICK = 3


class _Body(NamedTuple):
    """The numbers of an entry, and where in its bytes the columns begin, or the name of the source."""

    numbers: list[int]
    at: int
    data: bytes


def encode_entry(entry: LogEntry) -> bytes:
    """The bytes of an entry.

    Raises `OverflowError` or `ValueError` for numbers and columns that no ledger would apply.
    """
    if isinstance(entry, PolicyEntry | ControlEntry):
        return pack_entry(entry)
    match entry:
        case CrawlEntry():
            kind, (numbers, *parts) = _Kind.CRAWL, _encode_crawl(entry)
        case TransfersEntry():
            kind, (numbers, *parts) = _Kind.TRANSFERS, _encode_transfers(entry)
        case TickEntry():
            kind, numbers, parts = _Kind.TICK, [entry.second], []
    head = bytes((ENTRY_VERSION, kind)) + encode_numbers(numbers)
    digest = xxhash.xxh64(head)
    for part in parts:
        digest.update(part)
    return b"".join((_MARK, _DIGEST.pack(digest.intdigest()), head, *parts))


def decode_entry(data: bytes) -> LogEntry:
    """The entry that `encode_entry` was given; `ColumnsRefused` for anything else.

    The values are not checked here; the ledger does that. `EntryUnknown` for kinds and versions of newer code.
    """
    if data.startswith(MAGIC):
        return unpack_entry(data)
    if len(data) < _START.size or not data.startswith(_MARK):
        raise ColumnsRefused("this is no entry of a log")
    _, digest, version, kind = _START.unpack_from(data)
    if xxhash.xxh64_intdigest(memoryview(data)[_CHECKED_FROM:]) != digest:
        raise ColumnsRefused("the entry was damaged: its checksum does not fit")
    if version != ENTRY_VERSION or kind not in _DECODERS:
        raise EntryUnknown(f"an entry of kind {kind} and version {version}: update opicflow")
    try:
        return _DECODERS[kind](_Body(*decode_numbers(data, _START.size), data))
    except (EOFError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as problem:
        raise ColumnsRefused(f"this is no entry of a log ({shown(problem)})") from None


def _decode_tick(body: _Body) -> TickEntry:
    (second,) = body.numbers
    _refuse_more(body.data[body.at :])
    return TickEntry(second)


def _refuse_more(left_over: bytes) -> None:
    if left_over:
        raise ValueError("it has more than an entry of its kind")


# -- crawl entries -----------------------------------------------------------------------------------------------------


def _encode_crawl(entry: CrawlEntry) -> tuple[Any, ...]:
    items, source = entry.items, entry.source.encode()
    numbers = [
        len(source),
        entry.start.offset,
        entry.start.within,
        entry.end.offset - entry.start.offset,
        entry.end.within,
        0 if entry.visits_total is None else entry.visits_total + 1,
        entry.counted_from,
        len(items),
        len(items.link_pages),
        len(items.url_bytes),
    ]
    return numbers, source, _encode_items(items, entry.start.offset)


def _decode_crawl(body: _Body) -> CrawlEntry:
    named, offset, within, length, end_within, visits, counted_from, *lengths = body.numbers
    begin = body.at + named
    return CrawlEntry(
        source=body.data[body.at : begin].decode(),
        start=LogPosition(offset, within),
        end=LogPosition(offset + length, end_within),
        items=_decode_items(body.data, begin, offset, *lengths),
        visits_total=visits - 1 if visits else None,
        counted_from=counted_from,
    )


def _encode_items(items: CrawlItems, start: int) -> memoryview:
    if start >> 63:
        raise OverflowError("an offset of more than 63 bits")
    lengths = _lengths(len(items), len(items.link_pages), len(items.url_bytes))
    columns = ItemColumns(
        *(
            _checked(getattr(items, one.name), one.dtype, lengths[group])
            for one, group in zip(ITEM_COLUMNS, _GROUPS, strict=True)
        )
    )
    out = np.empty(sum(map(mul, lengths, _ROOM)) + _MOST_HEAD_BYTES, np.uint8)
    return out[: write_items(columns, start, *_DEFAULTS, out)].data


def _decode_items(data: bytes, at: int, start: int, rows: int, links: int, urls: int) -> CrawlItems:
    if start >> 63 or ID_BYTES * rows + LOW_BYTES * links + urls > len(data) - at:
        raise ValueError("its columns are longer than the bytes that follow")
    lengths = _lengths(rows, links, urls)
    columns = ItemColumns(
        *(np.empty(lengths[group], one.dtype) for one, group in zip(ITEM_COLUMNS, _GROUPS, strict=True))
    )
    if read_items(_readable(data), at, start, *_DEFAULTS, columns) != 0:
        raise ValueError("its columns are written in another way")
    return CrawlItems(*columns)


def _lengths(rows: int, links: int, urls: int) -> tuple[int, ...]:
    """The lengths of the columns of each group."""
    return rows, rows + 1, links, urls


def _group_of(column: ColumnSpec) -> int:
    return 1 if column.is_starts else {"": 0, "link_starts": 2, "url_starts": 3}[column.starts]


_GROUPS = tuple(map(_group_of, ITEM_COLUMNS))
"""The length that each column of a crawl entry has."""
_ROOM = tuple(
    1 + sum(np.dtype(one.dtype).itemsize for one, of in zip(ITEM_COLUMNS, _GROUPS, strict=True) if of == group)
    for group in range(4)
)
"""The most bytes that the columns of a group take for each row, link or byte."""
_MOST_HEAD_BYTES = MARK_BYTES + len(ITEM_COLUMNS) * MOST_HEAD_BYTES + ID_BYTES


# -- transfers ---------------------------------------------------------------------------------------------------------


def _encode_transfers(entry: TransfersEntry) -> tuple[Any, ...]:
    pages, amounts, gossip = entry.pages, entry.amounts, entry.gossip
    sums = None if gossip is None else gossip.residuals
    numbers = [
        entry.source_shard,
        entry.cut,
        entry.first,
        int(entry.last),
        entry.virtual,
        entry.sent_total,
        entry.sent_digest,
        len(pages),
        *(() if gossip is None else _gossip_numbers(gossip)),
        *(() if sums is None else _residual_numbers(sums)),
    ]
    flows = _NO_PAGES if sums is None else np.array((*sums.sent, *sums.received), np.uint64)
    if not (len(pages) or len(amounts) or len(flows)):
        return (numbers,)
    columns = _checked(pages, np.uint64, len(pages)), _checked(amounts, np.int64, len(pages)), flows.view(np.int64)
    room = len(pages) * (1 + ID_BYTES + MOST_BYTES) + len(flows) * ID_BYTES + MOST_HEAD_BYTES + ID_BYTES
    out = np.empty(room, np.uint8)
    return numbers, out[: write_transfers(*columns, _NO_PAGES, out)].data


def _decode_transfers(body: _Body) -> TransfersEntry:
    source_shard, cut, first, last, virtual, total, digest, rows, *gossip = body.numbers
    sent, received = gossip[-2:] if len(gossip) > _GOSSIP_NUMBERS else (0, 0)
    room = len(body.data) - body.at
    if last > 1 or rows * (LOW_BYTES + 1) > room or sent + received > _MOST_FLOWS:
        raise ValueError("its columns are longer than the bytes that follow")
    pages, amounts = np.empty(rows, np.uint64), np.empty(rows, np.int64)
    flows = np.empty(sent + received, np.int64)
    if rows == 0 and len(flows) == 0:
        _refuse_more(body.data[body.at :])
    elif read_transfers(_readable(body.data), body.at, pages, amounts, flows, _NO_PAGES) != 0:
        raise ValueError("its columns are written in another way")
    sizes = tuple(flows.view(np.uint64).tolist())
    return TransfersEntry(
        source_shard,
        cut,
        first,
        bool(last),
        pages,
        amounts,
        virtual,
        total,
        digest,
        _gossip_of(*gossip, sent=sizes[:sent], received=sizes[sent:]) if gossip else None,
    )


def _gossip_numbers(gossip: Gossip) -> tuple[int, ...]:
    (rate_bits,) = _DIGEST.unpack(_REAL.pack(gossip.rate_sum))
    return (
        gossip.advance,
        gossip.minted,
        gossip.pages,
        gossip.weighted_pages,
        rate_bits,
        gossip.shares,
        gossip.second + 1,
    )


def _residual_numbers(sums: ResidualSums) -> tuple[int, ...]:
    signed = sums.residual << 1 if sums.residual >= 0 else ~(sums.residual << 1)
    return sums.bases, sums.paid, signed, sums.residual_size, sums.links, len(sums.sent), len(sums.received)


def _gossip_of(
    advance: int,
    minted: int,
    pages: int,
    weighted_pages: int,
    rate_bits: int,
    shares: int,
    second: int,
    *totals: int,
    sent: tuple[int, ...],
    received: tuple[int, ...],
) -> Gossip:
    (rate_sum,) = _REAL.unpack(_DIGEST.pack(rate_bits))
    residuals = None
    if totals:
        bases, paid, signed, residual_size, links, _, _ = totals
        residual = (signed >> 1) ^ -(signed & 1)
        residuals = ResidualSums(bases, paid, residual, residual_size, links, sent, received)
    return Gossip(advance, minted, pages, weighted_pages, rate_sum, shares, residuals, second - 1)


_GOSSIP_NUMBERS = 7
_MOST_FLOWS = 1 << 20
"""Flows that are all the same take few bytes: a few bytes must not become gigabytes."""
_DECODERS: dict[int, Callable[[_Body], LogEntry]] = {
    _Kind.CRAWL: _decode_crawl,
    _Kind.TRANSFERS: _decode_transfers,
    _Kind.TICK: _decode_tick,
}


def _checked(column: Array, dtype: type[np.generic], length: int) -> Array:
    """The column, for a kernel that believes its type and its length."""
    if column.dtype != dtype or column.shape != (length,):
        raise ValueError("a column of the entry has another type, or another length than the others")
    return for_kernel(column)


def _readable(data: bytes) -> Array:
    """The bytes for a kernel. They cannot be written, as those of all entries: so it is compiled once."""
    return np.frombuffer(data, np.uint8)
