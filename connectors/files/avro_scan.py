"""Kernels that decode records of the published Avro schema of crawl events into columns."""

from __future__ import annotations

import numpy as np

from opicflow.connectors.files.scan import Scan, new_scan
from opicflow.schemas.arrays import Bytes, Int, Ints
from opicflow.schemas.crawl_events import (
    EARLIEST_MS,
    LATEST_MS,
    LONGEST_RETRY_SECONDS,
    MOST_EVENT_BYTES,
    MOST_LINKS,
    MOST_REDIRECTS,
)
from opicflow.schemas.event_columns import (
    FIRST_HOP,
    HEAVIEST_WEIGHT,
    ORDINARY_WEIGHT,
    UNKNOWN_MEDIA,
    failure_status,
    media_of,
    says_nofollow,
    step_of_number,
)
from opicflow.schemas.hashing import byte_at, hash_bytes, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.varint import read_signed

LEAST_RECORD_BYTES, _USUAL_LINK_BYTES = 11, 12
_DAMAGED, _ODD, _FULL = -1, -2, -3


def scan_avro(
    text: Bytes, begins: Ints, ends: Ints, offsets: Ints, records: Ints, ascii_only: bool
) -> tuple[Scan, Ints, Ints]:
    """Decode blocks of records of a published schema; also returns the end and the number of records read of each.

    `ascii_only` leaves records with texts that are not ASCII to fastavro, which checks UTF-8.
    """
    sizes = ends - begins
    rows = int(np.minimum(records, sizes // LEAST_RECORD_BYTES + 1).sum())
    read_to, done = np.zeros(len(offsets), np.int64), np.zeros(len(offsets), np.int64)
    at = np.array([0, 0, 0 if ascii_only else -1], np.int64)
    size = int(sizes.sum())
    for links in (size // _USUAL_LINK_BYTES, size):
        scan = new_scan(rows, FIRST_HOP * rows + links)
        scan_records(text, begins, ends, offsets, records, read_to, done, at, scan)
        if not scan.counts[3]:
            break
    return scan, read_to, done


@lean_kernel
def scan_records(
    text: Bytes,
    block_begins: Ints,
    block_ends: Ints,
    block_offsets: Ints,
    records: Ints,
    read_to: Ints,
    done_of: Ints,
    at: Ints,
    out: Scan,
) -> None:
    """Decode records into rows. Records with unsupported values are listed; a block ends at a damaged one.

    `read_to` and `done_of` receive the end of reading of every block, in bytes and in records. `at` has the position,
    the end of the block, and whether a text of the record is not ASCII (1 = yes, -1 = not checked). A record is damaged
    if the position is behind the end: from then on all that is read is 0 or empty.
    """
    rows = np.int64(0)
    urls: Int = np.int64(0)
    odd = np.int64(0)
    out.counts[3] = 0
    for block in range(block_ends.shape[0]):
        at[0] = block_begins[block]
        at[1] = block_ends[block]
        done = np.int64(0)
        while done < records[block] and rows + odd < out.offset.shape[0]:
            begin = at[0]
            at[2] = min(at[2], 0)
            used = _scan_record(text, at, out, rows, urls)
            if used == _FULL:
                out.counts[3] = 1
                return
            if used == _DAMAGED:
                at[0] = begin
                break
            if used == _ODD or at[2] > 0 or at[0] - begin > MOST_EVENT_BYTES:
                out.odd_offsets[odd] = block_offsets[block] + done
                out.odd_begins[odd] = begin
                out.odd_ends[odd] = at[0]
                odd += 1
            else:
                out.offset[rows] = block_offsets[block] + done
                rows += 1
                urls = used
                out.url_starts[rows] = urls
            done += 1
        read_to[block] = at[0]
        done_of[block] = done
    out.counts[0] = rows
    out.counts[1] = urls
    out.counts[2] = odd


@inlined_kernel
def _number(text: Bytes, at: Ints) -> Int:
    """The next whole number."""
    value, at[0] = read_signed(text, at[0], at[1])
    return value


@inlined_kernel
def _double(text: Bytes, at: Ints) -> float:
    """The next number of 64 bits."""
    begin = at[0]
    at[0] = begin + 8
    return word_at(text, begin).view(np.float64) if at[0] <= at[1] else 0.0


@inlined_kernel
def _is_there(text: Bytes, at: Ints) -> bool:
    """Whether a value comes next that may be null."""
    branch = _number(text, at)
    if not 0 <= branch <= 1:
        at[0] = at[1] + 1
    return bool(branch == 1)


@inlined_kernel
def _text(text: Bytes, at: Ints) -> tuple[Int, Int]:
    """The begin and the end of the text that comes next."""
    length = _number(text, at)
    begin = at[0]
    if length < 0 or length > at[1] - begin:
        at[0] = at[1] + 1
        return at[1], at[1]
    at[0] = begin + length
    if at[2] == 0 and not is_ascii(text, begin, at[0]):
        at[2] = 1
    return begin, at[0]


@inlined_kernel
def is_ascii(text: Bytes, begin: Int, end: Int) -> bool:
    bits = np.uint64(0)
    while begin + 8 <= end:
        bits |= word_at(text, begin)
        begin += 8
    while begin < end:
        bits |= np.uint64(byte_at(text, begin))
        begin += 1
    return bool(bits & np.uint64(0x8080808080808080) == 0)


@inlined_kernel
def _put_url(text: Bytes, at: Ints, out: Scan, url: Int) -> None:
    """Read a text as a URL."""
    out.begins[url], out.ends[url] = _text(text, at)
    out.weights[url] = 0
    out.nofollow[url] = 0


@inlined_kernel
def _time(text: Bytes, at: Ints) -> Int:
    """A time or null: its milliseconds, 0, or `_ODD` if it is none of the web's."""
    if not _is_there(text, at):
        return np.int64(0)
    time_ms = _number(text, at)
    return time_ms if EARLIEST_MS <= time_ms < LATEST_MS else np.int64(_ODD)


@inlined_kernel
def _items_left(text: Bytes, at: Ints, left: Int) -> Int:
    """The number of items of an array that come next, 0 at its end. `left`: of its block before, not read yet."""
    if left == 0:
        left = _number(text, at)
        if left < 0:
            left = -left
            if _number(text, at) < 0:
                at[0] = at[1] + 1
        if not 0 <= left <= text.shape[0]:
            at[0] = at[1] + 1
    return left if at[0] <= at[1] else np.int64(0)


@lean_kernel
def _scan_record(text: Bytes, at: Ints, out: Scan, row: Int, first_url: Int) -> Int:
    """Decode one record. Returns where its URLs end, or that it is damaged or odd, or that there is no room."""
    if first_url + FIRST_HOP > out.begins.shape[0]:
        return _FULL
    kind = _number(text, at)
    odd = not 0 <= kind <= 1
    out.announce[row] = kind == 1
    _put_url(text, at, out, first_url)
    time_ms = _time(text, at)
    odd |= time_ms == _ODD
    out.time_ms[row] = time_ms
    out.status[row] = 0
    if _is_there(text, at):
        status = _number(text, at)
        odd |= not 100 <= status < 1000
        out.status[row] = status if 0 <= status < 1000 else 0
    if _is_there(text, at):
        begin, end = _text(text, at)
        status = failure_status(text, begin, end)
        odd |= bool(status > 0)
        out.status[row] = status
    url = first_url + FIRST_HOP
    left = _items_left(text, at, 0)
    while left > 0:
        if url >= out.begins.shape[0]:
            return _FULL
        _put_url(text, at, out, url)
        if url - first_url - FIRST_HOP <= MOST_REDIRECTS:  # one too many is enough to refuse the record
            url += 1
        left = _items_left(text, at, left - 1)
    hops = url - first_url - FIRST_HOP
    odd |= bool(hops > MOST_REDIRECTS)
    out.hops[row] = hops
    out.begins[first_url + 1] = -1
    out.ends[first_url + 1] = -1
    out.weights[first_url + 1] = 0
    out.nofollow[first_url + 1] = 0
    if _is_there(text, at):
        _put_url(text, at, out, first_url + 1)
    out.media[row] = UNKNOWN_MEDIA
    if _is_there(text, at):
        begin, end = _text(text, at)
        out.media[row] = media_of(text, begin, end)
    out.digest[row] = np.uint64(0)
    if _is_there(text, at):
        begin, end = _text(text, at)
        if end > begin:
            out.digest[row] = hash_bytes(text, begin, end)
    out.modified_ms[row] = max(_time(text, at), 0)
    are_known = _is_there(text, at)
    out.links_known[row] = are_known and kind == 0
    first_link = url
    if are_known:
        left = _items_left(text, at, 0)
    while left > 0:
        if url >= out.begins.shape[0]:
            return _FULL
        odd |= not _scan_link(text, at, out, url)
        if url - first_link <= MOST_LINKS:
            url += 1
        left = _items_left(text, at, left - 1)
    odd |= bool(url - first_link > MOST_LINKS)
    out.retry_seconds[row] = 0
    if _is_there(text, at):
        out.retry_seconds[row] = min(max(_number(text, at), 0), LONGEST_RETRY_SECONDS)
    out.quality[row] = 0
    if _is_there(text, at):
        out.quality[row] = step_of_number(_double(text, at))
    return _DAMAGED if at[0] > at[1] else _ODD if odd else url


@inlined_kernel
def _scan_link(text: Bytes, at: Ints, out: Scan, url: Int) -> bool:
    """Decode a link; False if its weight is odd."""
    _put_url(text, at, out, url)
    out.weights[url] = ORDINARY_WEIGHT
    is_good = True
    if _is_there(text, at):
        weight = _double(text, at)
        is_good = bool(weight >= 0.0 and weight < np.inf)
        out.weights[url] = min(np.rint(weight * ORDINARY_WEIGHT), float(HEAVIEST_WEIGHT)) if is_good else 0
    if _is_there(text, at):
        begin, end = _text(text, at)
        out.nofollow[url] = says_nofollow(text, begin, end)
    return is_good
