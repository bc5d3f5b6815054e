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
_NO_NUMBER = -(1 << 63)


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
    the end of the block, and whether a text of the record is not ASCII (1 = yes, -1 = not checked).
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
    """The next whole number; `_NO_NUMBER` if there is none, and then `at` stays the same."""
    value, end = read_signed(text, at[0], at[1])
    if end > at[1]:
        return np.int64(_NO_NUMBER)
    at[0] = end
    return value


@inlined_kernel
def _length(text: Bytes, at: Ints) -> Int:
    """The length of the text that comes next; -1 if it does not fit."""
    length = _number(text, at)
    if length < 0 or length > at[1] - at[0]:
        return np.int64(-1)
    if at[2] == 0 and not is_ascii(text, at[0], at[0] + length):
        at[2] = 1
    return length


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
def _put_url(text: Bytes, at: Ints, out: Scan, url: Int) -> bool:
    """Read a text as a URL; False if it does not fit."""
    length = _length(text, at)
    if length < 0:
        return False
    out.begins[url] = at[0]
    at[0] += length
    out.ends[url] = at[0]
    out.weights[url] = 0
    out.nofollow[url] = 0
    return True


@inlined_kernel
def _take_time(text: Bytes, at: Ints) -> Int:
    """A time or null: its milliseconds, 0, -1 if it does not fit, -2 if it is none of the web's."""
    branch = _number(text, at)
    if branch == 0:
        return np.int64(0)
    if branch != 1:
        return np.int64(_DAMAGED)
    begin = at[0]
    time_ms = _number(text, at)
    if at[0] == begin:
        return np.int64(_DAMAGED)
    return time_ms if EARLIEST_MS <= time_ms < LATEST_MS else np.int64(_ODD)


@inlined_kernel
def _array_block(text: Bytes, at: Ints) -> Int:
    """The number of items that come next, 0 at the end of an array, -1 if it does not fit."""
    items = _number(text, at)
    if items < 0 and items != _NO_NUMBER:
        items = -items
        if _number(text, at) < 0:
            return np.int64(-1)
    return items if 0 <= items <= text.shape[0] else np.int64(-1)


@lean_kernel
def _scan_record(text: Bytes, at: Ints, out: Scan, row: Int, first_url: Int) -> Int:
    """Decode one record. Returns where its URLs end, or that it is damaged or odd, or that there is no room."""
    odd = False
    if first_url + FIRST_HOP > out.begins.shape[0]:
        return _FULL
    kind = _number(text, at)
    if kind == _NO_NUMBER:
        return _DAMAGED
    odd |= not 0 <= kind <= 1
    out.announce[row] = kind == 1
    url = first_url
    if not _put_url(text, at, out, url):
        return _DAMAGED
    time_ms = _take_time(text, at)
    if time_ms == _DAMAGED:
        return _DAMAGED
    odd |= time_ms == _ODD
    out.time_ms[row] = time_ms
    out.status[row] = 0
    branch = _number(text, at)
    if branch == 1:
        begin = at[0]
        status = _number(text, at)
        if at[0] == begin:
            return _DAMAGED
        odd |= not 100 <= status < 1000
        out.status[row] = status if 0 <= status < 1000 else 0
    elif branch != 0:
        return _DAMAGED
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        status = failure_status(text, at[0], at[0] + length)
        odd |= bool(status > 0)
        out.status[row] = status
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    url = first_url + FIRST_HOP
    while True:
        items = _array_block(text, at)
        if items < 0:
            return _DAMAGED
        if items == 0:
            break
        for _ in range(items):
            if url >= out.begins.shape[0]:
                return _FULL
            if not _put_url(text, at, out, url):
                return _DAMAGED
            if url - first_url - FIRST_HOP <= MOST_REDIRECTS:  # one too many is enough to refuse the record
                url += 1
    hops = url - first_url - FIRST_HOP
    odd |= bool(hops > MOST_REDIRECTS)
    out.hops[row] = hops
    out.begins[first_url + 1] = -1
    out.ends[first_url + 1] = -1
    out.weights[first_url + 1] = 0
    out.nofollow[first_url + 1] = 0
    branch = _number(text, at)
    if branch == 1:
        if not _put_url(text, at, out, first_url + 1):
            return _DAMAGED
    elif branch != 0:
        return _DAMAGED
    out.media[row] = UNKNOWN_MEDIA
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        out.media[row] = media_of(text, at[0], at[0] + length)
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    out.digest[row] = np.uint64(0)
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        if length > 0:
            out.digest[row] = hash_bytes(text, at[0], at[0] + length)
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    time_ms = _take_time(text, at)
    if time_ms == _DAMAGED:
        return _DAMAGED
    out.modified_ms[row] = max(time_ms, 0)
    branch = _number(text, at)
    out.links_known[row] = branch == 1 and kind == 0
    if branch == 1:
        first_link = url
        while True:
            items = _array_block(text, at)
            if items < 0:
                return _DAMAGED
            if items == 0:
                break
            for _ in range(items):
                if url >= out.begins.shape[0]:
                    return _FULL
                state = _scan_link(text, at, out, url)
                if state == _DAMAGED:
                    return _DAMAGED
                odd |= state == _ODD
                if url - first_link <= MOST_LINKS:
                    url += 1
        odd |= bool(url - first_link > MOST_LINKS)
    elif branch != 0:
        return _DAMAGED
    out.retry_seconds[row] = 0
    branch = _number(text, at)
    if branch == 1:
        begin = at[0]
        seconds = _number(text, at)
        if at[0] == begin:
            return _DAMAGED
        out.retry_seconds[row] = min(max(seconds, 0), LONGEST_RETRY_SECONDS)
    elif branch != 0:
        return _DAMAGED
    out.quality[row] = 0
    branch = _number(text, at)
    if branch == 1:
        if at[1] - at[0] < 8:
            return _DAMAGED
        out.quality[row] = step_of_number(word_at(text, at[0]).view(np.float64))
        at[0] += 8
    elif branch != 0:
        return _DAMAGED
    return _ODD if odd else url


@inlined_kernel
def _scan_link(text: Bytes, at: Ints, out: Scan, url: Int) -> Int:
    """Decode a link. Returns 0, or that it is damaged or odd."""
    if not _put_url(text, at, out, url):
        return _DAMAGED
    out.weights[url] = ORDINARY_WEIGHT
    odd = False
    branch = _number(text, at)
    if branch == 1:
        if at[1] - at[0] < 8:
            return _DAMAGED
        weight = word_at(text, at[0]).view(np.float64)
        at[0] += 8
        if weight >= 0.0 and weight < np.inf:
            out.weights[url] = min(np.rint(weight * ORDINARY_WEIGHT), float(HEAVIEST_WEIGHT))
        else:
            odd = True
    elif branch != 0:
        return _DAMAGED
    branch = _number(text, at)
    if branch == 1:
        length = _length(text, at)
        if length < 0:
            return _DAMAGED
        out.nofollow[url] = says_nofollow(text, at[0], at[0] + length)
        at[0] += length
    elif branch != 0:
        return _DAMAGED
    return _ODD if odd else 0
