"""Crawl events from Avro container files to Avro of the published schema, without an object for each.

A record that was written as `encode_event` writes it is copied. Others are encoded one by one, with the same result:
those with numbers or arrays in a longer form, with texts that are not ASCII, or with values that `encode_event` omits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opicflow.connectors.files.avro import decode_avro, records_at, records_with_offset
from opicflow.connectors.files.avro_container import AvroBlock, Container
from opicflow.connectors.files.avro_scan import LEAST_RECORD_BYTES, is_ascii
from opicflow.connectors.files.decoded import with_rejects
from opicflow.connectors.files.event_encoding import EncodedEvents, encode_items, merge
from opicflow.schemas.arrays import Ints
from opicflow.schemas.columns import Texts
from opicflow.schemas.crawl_events import EARLIEST_MS, LATEST_MS, LONGEST_RETRY_SECONDS
from opicflow.schemas.hashing import byte_at, hash_bytes
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.varint import MOST_BYTES, put_bytes, read_signed


def encode_avro(container: Container, blocks: Sequence[AvroBlock], source: str, prefix: bytes) -> EncodedEvents:
    """Encode the events of blocks."""
    decoded = decode_avro(container, blocks, source)
    wanted = decoded.events.offset
    copied = _copy(container, [block for block in blocks if not block.detail], prefix, wanted, decoded.events.time_ms)
    left = np.setdiff1d(wanted, copied.offset, assume_unique=True)
    others = encode_items(with_rejects(records_at(container, blocks, left, source), decoded), prefix)
    return merge(copied, others, others.rejects)


def _copy(
    container: Container, blocks: Sequence[AvroBlock], prefix: bytes, wanted: Ints, times_ms: Ints
) -> EncodedEvents:
    """Copy those of the wanted records that can be copied. `times_ms` are those of all wanted records."""
    text = np.frombuffer(b"".join(block.data for block in blocks), np.uint8)
    sizes = np.array([len(block.data) for block in blocks], np.int64)
    records = np.array([records_with_offset(block) for block in blocks], np.int64)
    rows = int(np.minimum(records, sizes // LEAST_RECORD_BYTES + 1).sum()) if container.is_plain else 0
    columns = np.empty((5, rows), np.int64)
    hashes = np.empty(rows, np.uint64)
    out = np.empty(len(text) + rows * len(prefix), np.uint8)
    if rows:
        ends = np.cumsum(sizes)
        offsets = np.array([block.offset for block in blocks], np.int64)
        before = np.frombuffer(prefix, np.uint8)
        at = np.zeros(4, np.int64)
        rows = copy_records(text, ends - sizes, ends, offsets, records, before, at, columns, hashes, out)
    found = columns[:, :rows]
    kept = np.isin(found[0], wanted, assume_unique=True)
    offset, url_starts, url_lengths, starts, lengths = found[:, kept]
    out.setflags(write=False)
    return EncodedEvents(
        offset=offset,
        time_ms=times_ms[np.searchsorted(wanted, offset)],
        urls=Texts(text, url_starts, url_lengths),
        hashes=hashes[:rows][kept],
        values=Texts(out, starts, lengths),
        rejects=[],
    )


_OTHER, _DAMAGED = 1, 2


@lean_kernel
def copy_records(
    text: Any,
    block_begins: Any,
    block_ends: Any,
    block_offsets: Any,
    records: Any,
    prefix: Any,
    at: Any,
    columns: Any,
    hashes: Any,
    out: Any,
) -> Any:
    """Copy the records that are as `encode_event` writes them; returns how many.

    `columns` receive the offset of each, begin and length of its URL, and begin and length of its JSON. `at` has
    the position, whether the record is another one or damaged, and begin and length of its URL.
    """
    row = np.int64(0)
    end = np.int64(0)
    for block in range(block_ends.shape[0]):
        at[0] = block_begins[block]
        for number in range(records[block]):
            begin = at[0]
            at[1] = 0
            _pass_record(text, at, block_ends[block])
            if at[1] >= _DAMAGED or row >= columns.shape[1]:
                break
            if at[1] == 0:
                columns[0, row] = block_offsets[block] + number
                columns[1, row] = at[2]
                columns[2, row] = at[3]
                columns[3, row] = end
                hashes[row] = hash_bytes(text, at[2], at[2] + at[3])
                end = put_bytes(out, end, prefix, 0, prefix.shape[0])
                end = put_bytes(out, end, text, begin, at[0])
                columns[4, row] = end - columns[3, row]
                row += 1
    return row


@lean_kernel
def _pass_record(text: Any, at: Any, end: Any) -> None:
    """Pass a record, and note whether it is another one than `encode_event` writes."""
    kind = _next_number(text, at, end)
    _expect(at, 0 <= kind <= 1)
    at[3] = _pass_text(text, at, end)
    at[2] = at[0] - at[3]
    if _next_branch(text, at, end):
        _next_number(text, at, end)
    if _next_branch(text, at, end):
        status = _next_number(text, at, end)
        _expect(at, -(1 << 31) <= status < 1 << 31)
    if _next_branch(text, at, end):
        _pass_text(text, at, end)
    lists = 0
    while True:
        items = _next_items(text, at, end)
        if items == 0:
            break
        lists += 1
        for _ in range(items):
            _pass_text(text, at, end)
            if at[1] >= _DAMAGED:
                return
    _expect(at, lists <= 1)
    for _ in range(3):  # canonical, content_type, digest
        if _next_branch(text, at, end):
            _pass_text(text, at, end)
    if _next_branch(text, at, end):
        time_ms = _next_number(text, at, end)
        _expect(at, EARLIEST_MS <= time_ms < LATEST_MS)
    if _next_branch(text, at, end):
        lists = 0
        while True:
            items = _next_items(text, at, end)
            if items == 0:
                break
            lists += 1
            for _ in range(items):
                _pass_text(text, at, end)
                if _next_branch(text, at, end):
                    if end - at[0] < 8:
                        at[1] = _DAMAGED
                    else:
                        at[0] += 8
                if _next_branch(text, at, end):
                    _pass_text(text, at, end)
                if at[1] >= _DAMAGED:
                    return
        _expect(at, lists <= 1)
    if _next_branch(text, at, end):
        seconds = _next_number(text, at, end)
        _expect(at, 0 < seconds <= LONGEST_RETRY_SECONDS)
    if _next_branch(text, at, end):
        if end - at[0] < 8:
            at[1] = _DAMAGED
        else:
            at[0] += 8


@inlined_kernel
def _expect(at: Any, is_so: Any) -> None:
    if not is_so:
        at[1] = max(at[1], _OTHER)


@inlined_kernel
def _next_number(text: Any, at: Any, end: Any) -> Any:
    """Return the next number; 0 if it is damaged."""
    begin = at[0]
    number, after = read_signed(text, begin, end)
    if after > end:
        at[1] = _DAMAGED
        return np.int64(0)
    size = after - begin
    _expect(at, size == 1 or (size < MOST_BYTES and byte_at(text, after - 1) != 0))
    at[0] = after
    return number


@inlined_kernel
def _next_branch(text: Any, at: Any, end: Any) -> Any:
    """Return whether a value comes next, and no null."""
    branch = _next_number(text, at, end)
    if not 0 <= branch <= 1:
        at[1] = _DAMAGED
    return branch == 1


@inlined_kernel
def _next_items(text: Any, at: Any, end: Any) -> Any:
    """Return how many items of an array come next; 0 at its end, or if it is damaged."""
    items = _next_number(text, at, end)
    if items < 0:  # with a size in bytes
        _expect(at, False)
        items = -items
        _next_number(text, at, end)
    if not 0 <= items <= text.shape[0]:
        at[1] = _DAMAGED
    return items if at[1] < _DAMAGED else np.int64(0)


@inlined_kernel
def _pass_text(text: Any, at: Any, end: Any) -> Any:
    """Pass a text, and return its length."""
    length = _next_number(text, at, end)
    if not 0 <= length <= end - at[0]:
        at[1] = _DAMAGED
        return np.int64(0)
    _expect(at, is_ascii(text, at[0], at[0] + length))
    at[0] += length
    return length
