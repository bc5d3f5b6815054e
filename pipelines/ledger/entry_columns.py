"""The columns of an entry as few bytes, and back. The layout is that of encoding.py.

Who writes gives an array with room for everything, and a word more: numbers are written as whole words, and the next
number overwrites the surplus bytes. Readers believe no byte: they return -1 for bytes that no writer produces.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.schemas.arrays import Array, Bytes, ColumnTuple, Ids, Int, Ints, Word
from opicflow.schemas.hashing import byte_at, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.pages import SITE_BITS
from opicflow.schemas.varint import MOST_BYTES, put_bytes, put_signed, read_signed

MARK_BYTES = 2
"""The bits that say which columns are there."""
ID_BYTES = 8
LOW_BYTES = 6
"""The part of a page id that is the page's own, the hash of its URL; the rest is that of its site."""
MOST_HEAD_BYTES = 2 + 2 * MOST_BYTES
"""The bytes of a column apart from its numbers."""

_LOW_BITS = 64 - SITE_BITS
_LOW = np.uint64((1 << _LOW_BITS) - 1)
_ALL = np.uint64((1 << 64) - 1)
_MOST = np.uint64((1 << 63) - 1)


@ColumnTuple.register
class ItemColumns(NamedTuple):
    """The columns of `CrawlItems`, for kernels that read or write them all."""

    kind: Bytes
    page: Ids
    time_ms: Ints
    outcome: Bytes
    digest: Ids
    modified_ms: Ints
    category: Bytes
    offset: Ints
    within: Ints
    links_known: Bytes
    quality: Bytes
    link_starts: Ints
    link_pages: Ids
    link_weights: npt.NDArray[np.uint16]
    link_categories: Bytes
    url_starts: Ints
    url_bytes: Bytes


@lean_kernel
def write_items(items: ItemColumns, start: Int, weight: Int, category: Int, out: Bytes) -> Int:
    """Write the columns of a crawl entry that begins at offset `start`, and return their end.

    `weight` and `category` are those of most links and pages.
    """
    for i in range(MARK_BYTES):
        out[i] = 0
    at: Int = np.int64(MARK_BYTES)
    for i in range(items.page.shape[0]):
        _put_word(out, at, items.page[i])
        at += ID_BYTES
    at = _put_digests(out, at, items.digest, 0)
    at = _put_column(out, at, items.kind, 0, False, 1)
    at = _put_column(out, at, items.time_ms, 0, True, 2)
    at = _put_column(out, at, items.outcome, 0, False, 3)
    at = _put_column(out, at, items.modified_ms, 0, False, 4)
    at = _put_column(out, at, items.category, category, False, 5)
    at = _put_column(out, at, items.offset, start, True, 6)
    at = _put_column(out, at, items.within, 0, False, 7)
    at = _put_column(out, at, items.links_known, 0, False, 8)
    at = _put_column(out, at, items.quality, 0, False, 9)
    at = _put_column(out, at, items.link_starts, 0, True, 10)
    at = _put_column(out, at, items.link_weights, weight, False, 11)
    at = _put_column(out, at, items.link_categories, category, False, 12)
    at = _put_column(out, at, items.url_starts, 0, True, 13)
    at = _put_ids(out, at, items.link_pages, items.page, items.link_starts)
    return put_bytes(out, at, items.url_bytes, 0, items.url_bytes.shape[0])


@lean_kernel
def read_items(data: Bytes, at: Int, start: Int, weight: Int, category: Int, items: ItemColumns) -> Int:
    """Read what `write_items` wrote, from `at` to the end of the data, into columns of the right lengths.

    Returns 0, or -1 if these are other bytes.
    """
    rows, end = items.page.shape[0], data.shape[0]
    marks = at
    at += MARK_BYTES
    if at + ID_BYTES * rows > end or data[marks + 1] >> 6 != 0:
        return -1
    for i in range(rows):
        items.page[i] = word_at(data, at)
        at += ID_BYTES
    at = _read_digests(data, at, end, items.digest, marks, 0)
    at = _read_column(data, at, end, items.kind, 0, False, marks, 1)
    at = _read_column(data, at, end, items.time_ms, 0, True, marks, 2)
    at = _read_column(data, at, end, items.outcome, 0, False, marks, 3)
    at = _read_column(data, at, end, items.modified_ms, 0, False, marks, 4)
    at = _read_column(data, at, end, items.category, category, False, marks, 5)
    at = _read_column(data, at, end, items.offset, start, True, marks, 6)
    at = _read_column(data, at, end, items.within, 0, False, marks, 7)
    at = _read_column(data, at, end, items.links_known, 0, False, marks, 8)
    at = _read_column(data, at, end, items.quality, 0, False, marks, 9)
    at = _read_column(data, at, end, items.link_starts, 0, True, marks, 10)
    at = _read_column(data, at, end, items.link_weights, weight, False, marks, 11)
    at = _read_column(data, at, end, items.link_categories, category, False, marks, 12)
    at = _read_column(data, at, end, items.url_starts, 0, True, marks, 13)
    at = _read_ids(data, at, end, items.link_pages, items.page, items.link_starts)
    if at + items.url_bytes.shape[0] != end:
        return -1
    put_bytes(items.url_bytes, 0, data, at, end)
    return 0


@lean_kernel
def write_transfers(pages: Ids, amounts: Ints, flows: Ints, none: Ids, out: Bytes) -> Int:
    """Write transfers and the flows between shards, and return their end. `none` is a column without a page."""
    at = _put_ids(out, np.int64(0), pages, none, amounts)
    for i in range(amounts.shape[0]):
        at = put_signed(out, at, amounts[i])
    return _put_distances(out, at, flows, 0, False)


@lean_kernel
def read_transfers(data: Bytes, at: Int, pages: Ids, amounts: Ints, flows: Ints, none: Ids) -> Int:
    """Read what `write_transfers` wrote, from `at` to the end of the data; -1 if these are other bytes, or else 0."""
    end = data.shape[0]
    at = _read_ids(data, at, end, pages, none, amounts)
    for i in range(amounts.shape[0]):
        amounts[i], at = _read_number(data, at, end)
    at = _read_distances(data, at, end, flows, 0, False)
    return 0 if at == end else -1


# -- a column of whole numbers -----------------------------------------------------------------------------------------


@lean_kernel
def _put_column(out: Bytes, at: Int, column: Array, default: Int, is_rising: bool, bit: Int) -> Int:
    """Write a column, if any of its numbers is not the default, and mark that it is there."""
    if _is_all(column, default):
        return at
    out[bit >> 3] |= np.uint8(1 << (bit & 7))
    if is_rising:
        at = put_signed(out, at, _less(column[0], default))
    return _put_distances(out, at, column, default, is_rising)


@lean_kernel
def _read_column(
    data: Bytes, at: Int, end: Int, column: Array, default: Int, is_rising: bool, marks: Int, bit: Int
) -> Int:
    """Read a column, and return its end; `end + 1` for anything that `_put_column` does not write."""
    if data[marks + (bit >> 3)] >> (bit & 7) & 1 == 0:
        for i in range(column.shape[0]):
            column[i] = default
        return at
    if column.shape[0] == 0 or at >= end:
        return end + 1
    if is_rising:
        step, at = _read_number(data, at, end)
        column[0] = _more(default, step)
    at = _read_distances(data, at, end, column, default, is_rising)
    return end + 1 if at > end or _is_all(column, default) else at


@inlined_kernel
def _is_all(column: Array, default: Int) -> bool:
    is_all = True
    for i in range(column.shape[0]):
        is_all &= np.int64(column[i]) == default
    return is_all


@lean_kernel
def _put_distances(out: Bytes, at: Int, column: Array, default: Int, is_rising: bool) -> Int:
    """Write the least number and the distances of all from it; of a column that rises, those of the steps."""
    rows, first = column.shape[0], 1 if is_rising else 0
    if first >= rows:
        return at
    least = most = _number_of(column, first, is_rising)
    for i in range(first + 1, rows):
        number = _number_of(column, i, is_rising)
        least, most = min(least, number), max(most, number)
    width = _width_of(np.uint64(most) - np.uint64(least))
    out[at] = np.uint8(width)
    at = put_signed(out, at + 1, least if is_rising else _less(least, default))
    if width == 0:
        return at
    for i in range(first, rows):
        _put_word(out, at, np.uint64(_number_of(column, i, is_rising)) - np.uint64(least))
        at += width
    return at


@lean_kernel
def _read_distances(data: Bytes, at: Int, end: Int, column: Array, default: Int, is_rising: bool) -> Int:
    """Read numbers, and return their end; `end + 1` for anything that `_put_distances` does not write."""
    rows, first = column.shape[0], 1 if is_rising else 0
    if first >= rows:
        return at
    if at >= end:
        return end + 1
    width = np.int64(byte_at(data, at))
    least, at = _read_number(data, at + 1, end)
    if width > 8 or at + width * (rows - first) > end:
        return end + 1
    if not is_rising:
        least = _more(least, default)
    lowest, most, mask = _ALL, np.uint64(0), _mask_of(width)
    value = np.int64(column[0])
    for i in range(first, rows):
        more = _little(data, at, end, mask)
        at += width
        lowest, most = min(lowest, more), max(most, more)
        number = _more(least, more)
        value = _more(value, number) if is_rising else number
        column[i] = value
    if lowest != np.uint64(0) or _width_of(most) != width or most > _MOST - np.uint64(least):
        return end + 1
    if column.itemsize < 8 and (least < 0 or _more(least, most) >> (8 * column.itemsize) != 0):
        return end + 1
    return at


@inlined_kernel
def _number_of(column: Array, row: Int, is_rising: bool) -> np.int64:
    """The number that is stored for a row: the value, or its difference from the one before."""
    return _less(column[row], column[row - 1]) if is_rising else np.int64(column[row])


@inlined_kernel
def _put_digests(out: Bytes, at: Int, digests: Ids, bit: Int) -> Int:
    """Write the digests, if any is known."""
    is_default = True
    for i in range(digests.shape[0]):
        is_default &= digests[i] == np.uint64(0)
    if is_default:
        return at
    out[bit >> 3] |= np.uint8(1 << (bit & 7))
    for i in range(digests.shape[0]):
        _put_word(out, at, digests[i])
        at += ID_BYTES
    return at


@inlined_kernel
def _read_digests(data: Bytes, at: Int, end: Int, digests: Ids, marks: Int, bit: Int) -> Int:
    """Read the digests, and return their end; `end + 1` for anything that `_put_digests` does not write."""
    is_there, is_default = data[marks + (bit >> 3)] >> (bit & 7) & 1 != 0, True
    if is_there and at + ID_BYTES * digests.shape[0] > end:
        return end + 1
    for i in range(digests.shape[0]):
        digests[i] = np.uint64(0)
        if is_there:
            digests[i] = word_at(data, at)
            at += ID_BYTES
        is_default &= digests[i] == np.uint64(0)
    return end + 1 if is_there and is_default else at


# -- page ids ----------------------------------------------------------------------------------------------------------


@lean_kernel
def _put_ids(out: Bytes, at: Int, ids: Ids, pages: Ids, starts: Ints) -> Int:
    """Write a bit for each id: whether its site is another one than that of its neighbour; these sites; the pages.

    The neighbour is the page in whose row the id is; without rows it is the id before.
    """
    count, bits, near = ids.shape[0], at, np.uint64(0)
    row: Int = 0
    at += (count + 7) >> 3
    for i in range(bits, at):
        out[i] = 0
    for i in range(count):
        row, near = _neighbour(ids, pages, starts, i, row, near)
        site = ids[i] >> np.uint64(_LOW_BITS)
        if site != near:
            out[bits + (i >> 3)] |= np.uint8(1 << (i & 7))
            out[at], out[at + 1] = np.uint8(site & np.uint64(255)), np.uint8(site >> np.uint64(8))
            at += 2
    for i in range(count):
        _put_word(out, at, ids[i] & _LOW)
        at += LOW_BYTES
    return at


@lean_kernel
def _read_ids(data: Bytes, at: Int, end: Int, ids: Ids, pages: Ids, starts: Ints) -> Int:
    """Read ids, and return their end; `end + 1` for anything that `_put_ids` does not write."""
    count, bits, near = ids.shape[0], at, np.uint64(0)
    row: Int = 0
    at += (count + 7) >> 3
    if at + LOW_BYTES * count > end:
        return end + 1
    if count & 7 and data[at - 1] >> (count & 7) != 0:
        return end + 1
    for i in range(count):
        row, near = _neighbour(ids, pages, starts, i, row, near)
        site = near
        if data[bits + (i >> 3)] >> (i & 7) & 1 != 0:
            if at + 2 > end:
                return end + 1
            site = np.uint64(byte_at(data, at)) | np.uint64(byte_at(data, at + 1)) << np.uint64(8)
            at += 2
            if site == near:
                return end + 1
        ids[i] = site << np.uint64(_LOW_BITS)
    if at + LOW_BYTES * count > end:
        return end + 1
    for i in range(count):
        ids[i] |= _little(data, at, end, _LOW)
        at += LOW_BYTES
    return at


@inlined_kernel
def _neighbour(ids: Ids, pages: Ids, starts: Ints, i: Int, row: Int, near: Word) -> tuple[Int, Word]:
    """The row of the id `i`, which is not before `row`, and the site of the neighbour. The starts may be anything."""
    rows = pages.shape[0]
    if rows == 0:
        return row, ids[i - 1] >> np.uint64(_LOW_BITS) if i > 0 else near
    while row + 1 < rows and i >= starts[row + 1]:
        row += 1
    return row, pages[row] >> np.uint64(_LOW_BITS)


# -- words -------------------------------------------------------------------------------------------------------------

# Numbers may be anything, so sums wrap around. LLVM believes that those of signed numbers never do.


@inlined_kernel
def _more(number: Int | Word, step: Int | Word) -> np.int64:
    return np.int64(np.uint64(number) + np.uint64(step))


@inlined_kernel
def _less(number: Int | Word, step: Int | Word) -> np.int64:
    return np.int64(np.uint64(number) - np.uint64(step))


@inlined_kernel
def _put_word(out: Bytes, at: Int, word: Word) -> None:
    """Write eight bytes, little endian. LLVM joins them to one store, like the loads of `word_at`."""
    i = np.uint64(at)
    out[i] = np.uint8(word)
    out[i + np.uint64(1)] = np.uint8(word >> np.uint64(8))
    out[i + np.uint64(2)] = np.uint8(word >> np.uint64(16))
    out[i + np.uint64(3)] = np.uint8(word >> np.uint64(24))
    out[i + np.uint64(4)] = np.uint8(word >> np.uint64(32))
    out[i + np.uint64(5)] = np.uint8(word >> np.uint64(40))
    out[i + np.uint64(6)] = np.uint8(word >> np.uint64(48))
    out[i + np.uint64(7)] = np.uint8(word >> np.uint64(56))


@inlined_kernel
def _little(data: Bytes, at: Int, end: Int, mask: Word) -> Word:
    """The number at `at`, of the bytes that the mask covers."""
    if at + 8 <= end:
        return word_at(data, at) & mask
    word, shift = np.uint64(0), np.uint64(0)
    while at < end:
        word |= np.uint64(byte_at(data, at)) << shift
        shift += np.uint64(8)
        at += 1
    return word & mask


@inlined_kernel
def _read_number(data: Bytes, at: Int, end: Int) -> tuple[np.int64, Int]:
    """The varint at `at`, and its end; `end + 1` if it is cut off, or longer than it need be."""
    begin = at
    number, at = read_signed(data, at, end)
    if at <= end:
        size, last = at - begin, byte_at(data, at - 1)
        if (size > 1 and last == 0) or (size == MOST_BYTES and last > 1):
            at = end + 1
    return number, at


@inlined_kernel
def _width_of(word: Word) -> Int:
    """The number of bytes that a number takes; 0 of 0."""
    width = np.int64(0)
    while word != np.uint64(0):
        word >>= np.uint64(8)
        width += 1
    return width


@inlined_kernel
def _mask_of(width: Int) -> Word:
    """The word whose lowest bytes, so many, are ones."""
    return _ALL >> np.uint64(64 - 8 * width) if width > 0 else np.uint64(0)
