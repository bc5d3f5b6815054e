"""The order of URLs: by the host read from its end, then by path and query; http before https; at last by page id.

So the pages of a host follow one another, and hosts of a domain are close. An order is a column of slots; the first
page of every host has ~slot instead. It is kept up to date by merging newcomers.

Logs may hold URLs that are none: any bytes, or the same ones for many pages. They have an order, too.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger.pages.layout import EXPLORED, IN_URL_ORDER, READ_BEFORE, Book, Table
from opicflow.schemas.arrays import Array, ColumnTuple, Floats, Int, Ints, Word, Words
from opicflow.schemas.hashing import byte_at, find_byte, is_same, word_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch, reversed_bytes

_FEW = 16  # rows that are sorted by inserting
_AHEAD = 16  # rows between a prefetch and the use
BOUNDS = (32, 8)
"""The shape of the bounds of newcomers that look for their place at the same time: see `place_together`."""
_SLASH, _S = 47, 115
_BY_ID = -1  # the depth of parts whose keys are equal
_MIX = np.uint64(0x9E3779B97F4A7C15)


@ColumnTuple.register
class OrderedPages(NamedTuple):
    """Columns of the pages in the order of URLs."""

    slots: Array  # int32
    page: Array  # int64: page ids
    host: Array  # int32, from 0 on
    is_read: Array  # bool
    is_tried: Array  # bool: visited, but not read
    is_explored: Array  # bool
    is_new: Array  # bool: read, and not read before the last review
    importance: Array  # float64
    found_by: Array  # int32: a row, -1 = none

    @classmethod
    def of(cls, rows: int) -> OrderedPages:
        """Return columns of so many rows, which nothing has been written to."""
        kinds = (np.int32, np.int64, np.int32, np.bool_, np.bool_, np.bool_, np.bool_, np.float64, np.int32)
        return cls(*(np.empty(rows, kind) for kind in kinds))


@inlined_kernel
def url_bounds(table: Table, book: Book, slot: Int) -> tuple[Int, Int, Int, Int]:
    """Return where the host of the URL at a slot begins and ends in the arena, where the URL ends, and if it is https.

    The last number is 1 for https, or 0.
    """
    start = np.int64(table.url_start[slot])
    end = start + 1 + np.int64(book.urls[start - 1]) + (np.int64(book.urls[start]) << 8)
    is_https = np.int64(start + 5 < end and byte_at(book.urls, start + 5) == _S)
    first = min(start + 8 + is_https, end)  # past http:// or https://
    return first, find_byte(book.urls, first, end, _SLASH), end, is_https


@inlined_kernel
def page_word(table: Table, slot: Int) -> Word:
    """Return the page id at a slot, by which pages are ordered whose keys are equal."""
    return np.uint64(table.hot[slot, 0])


@inlined_kernel
def key_word(book: Book, first: Int, last: Int, end: Int, is_https: Int, depth: Int) -> Word:
    """Return eight bytes, from `depth` on, of what a URL is ordered by: its key.

    These are the host from its end, a byte that is lower than any of a host, the rest of the URL, and whether it is
    https. Then zeros follow: eight zeros end a key.
    """
    host = last - first
    if depth + 8 <= host:
        return word_at(book.urls, last - depth - 8)  # little endian: the last byte counts most
    if depth > host and last + depth - host + 7 <= end:
        return reversed_bytes(word_at(book.urls, last + depth - host - 1))
    word, size = np.uint64(0), host + 1 + end - last
    for i in range(depth, depth + 8):
        byte = np.uint64(0)
        if i < host:
            byte = np.uint64(byte_at(book.urls, last - 1 - i))
        elif i == host:
            byte = np.uint64(1)
        elif i < size:
            byte = np.uint64(byte_at(book.urls, last + i - host - 1))
        elif i == size:
            byte = np.uint64(1 + is_https)
        word = (word << np.uint64(8)) | byte
    return word


@lean_kernel
def comes_before(table: Table, book: Book, one: Int, other: Int, depth: Int) -> bool | np.bool_:
    """Whether the page at a slot comes before another, whose keys are equal up to `depth`."""
    first, last, end, is_https = url_bounds(table, book, one)
    return compared(table, book, one, first, last, end, is_https, other, depth) > 0


@inlined_kernel
def compared(
    table: Table, book: Book, one: Int, first: Int, last: Int, end: Int, is_https: Int, other: Int, depth: Int
) -> Int:
    """Compare a page, the bounds of whose URL are given, with another one. Their keys are equal up to `depth`.

    Returns 1 plus the depth up to which they are equal, negative if the page does not come before the other one.
    """
    other_first, other_last, other_end, other_is_https = url_bounds(table, book, other)
    while True:
        word = key_word(book, first, last, end, is_https, depth)
        other_word = key_word(book, other_first, other_last, other_end, other_is_https, depth)
        if word != other_word:
            return depth + 1 if word < other_word else -1 - depth
        if word == np.uint64(0):
            return depth + 1 if page_word(table, one) < page_word(table, other) else -1 - depth
        depth += 8


@lean_kernel
def is_same_host(table: Table, book: Book, one: Int, other: Int) -> bool:
    """Whether the pages at two slots are of one host."""
    first, last, _, _ = url_bounds(table, book, one)
    other_first, other_last, _, _ = url_bounds(table, book, other)
    if last - first != other_last - other_first:
        return False
    return is_same(book.urls, first, book.urls, other_first, last - first)


@lean_kernel
def sort_by_url(table: Table, book: Book, slots: Array, words: Array, stack: Array) -> None:
    """Sort slots by the URLs of their pages: a quicksort by eight bytes at a time.

    Slots whose eight bytes are equal are sorted by the next eight, and by page id where keys end. `words` has a row for
    each slot, `stack` has half as many, and one more, of four numbers: where a part begins and ends, how many bytes are
    equal, and whether `words` holds the next ones. No order of the slots makes it slow, but by chance.
    """
    top: Int = 0
    stack[0, 0], stack[0, 1], stack[0, 2], stack[0, 3] = 0, slots.shape[0], 0, 0
    while top >= 0:
        low, high, depth, is_read = stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3]
        top -= 1
        if is_read == 0:
            for row in range(low, high):
                if row + 2 * _AHEAD < high:
                    prefetch(table.url_start, np.int64(slots[row + 2 * _AHEAD]))
                if row + _AHEAD < high:
                    prefetch(book.urls, table.url_start[np.int64(slots[row + _AHEAD])])
                slot = np.int64(slots[row])
                if depth == _BY_ID:
                    words[row] = page_word(table, slot)
                else:
                    first, last, end, is_https = url_bounds(table, book, slot)
                    words[row] = key_word(book, first, last, end, is_https, depth)
        if high - low <= _FEW:
            insert_by_url(table, book, slots, words, low, high, depth)
            continue
        pivot = pivot_of(words, low, high, page_word(table, np.int64(slots[low])))
        below, at, above = low, low, high
        while at < above:
            word = words[at]
            if word == pivot:
                at += 1
                continue
            to = below if word < pivot else above - 1
            slots[to], slots[at] = slots[at], slots[to]
            words[to], words[at] = words[at], words[to]
            if word < pivot:
                below += 1
                at += 1
            else:
                above -= 1
        top = push(stack, top, low, below, depth, 1)
        top = push(stack, top, above, high, depth, 1)
        if depth != _BY_ID:
            top = push(stack, top, below, above, _BY_ID if pivot == np.uint64(0) else depth + 8, 0)


@inlined_kernel
def push(stack: Array, top: Int, low: Int, high: Int, depth: Int, is_read: Int) -> Int:
    """Put a part on the stack, unless there is nothing to sort in it. Returns where the stack ends."""
    if high - low < 2:
        return top
    top += 1
    stack[top, 0], stack[top, 1], stack[top, 2], stack[top, 3] = low, high, depth, is_read
    return top


@inlined_kernel
def pivot_of(words: Words, low: Int, high: Int, page: Word) -> Word:
    """Return the median of three rows that a page id selects: so no URLs can be made up whose sort takes long."""
    mixed, rows = page * _MIX, np.uint64(high - low)
    one, two, three = (mixed >> np.uint64(32)), (mixed >> np.uint64(16)), mixed
    return median(
        words[low + place_in(one, rows)], words[low + place_in(two, rows)], words[low + place_in(three, rows)]
    )


@inlined_kernel
def place_in(mixed: Word, rows: Word) -> Int:
    """Return a row, from 0 on, by the lower 32 bits of a number."""
    return np.int64(((mixed & np.uint64(0xFFFFFFFF)) * rows) >> np.uint64(32))


@inlined_kernel
def median(one: Word, two: Word, three: Word) -> Word:
    """Return the middle one of three numbers."""
    return max(min(one, two), min(max(one, two), three))


@lean_kernel
def insert_by_url(table: Table, book: Book, slots: Array, words: Array, low: Int, high: Int, depth: Int) -> None:
    """Sort a few slots by the URLs of their pages, whose keys are equal up to `depth` and go on with `words`."""
    for row in range(low + 1, high):
        slot, word, at = np.int64(slots[row]), words[row], row
        while at > low:
            if word > words[at - 1]:
                break
            if word == words[at - 1] and not comes_before(table, book, slot, np.int64(slots[at - 1]), depth + 8):
                break
            slots[at], words[at] = slots[at - 1], words[at - 1]
            at -= 1
        slots[at], words[at] = slot, word


@lean_kernel
def leave_out_removed(table: Table, order: Array) -> Int:
    """Move rows up to where those of removed pages were. Returns how many are left."""
    at, is_first = np.int64(0), False
    for row in range(order.shape[0]):
        slot = slot_in(order[row])
        is_first = is_first or order[row] < 0
        if (table.pages[slot].flags & IN_URL_ORDER) != 0:
            order[at] = ~slot if is_first else slot
            at, is_first = at + 1, False
    return at


@lean_kernel
def merge_by_url(table: Table, book: Book, order: Array, newcomers: Array, bounds: Ints, merged: Array) -> None:
    """Merge sorted newcomers into the order, of which no page was removed. They get the flag that they are in it.

    `bounds` has the shape `BOUNDS`, and nothing that counts.
    """
    at: Int = np.int64(0)
    row: Int = np.int64(0)
    before: Int = np.int64(-1)
    for first in range(0, newcomers.shape[0], bounds.shape[0]):
        last = min(first + bounds.shape[0], newcomers.shape[0])
        place_together(table, book, order, row, newcomers, first, last, bounds)
        for number in range(first, last):
            newcomer, until = np.int64(newcomers[number]), bounds[number - first, 1]
            if row < until:
                merged[at] = first_of_host(table, book, before, order[row])
                for more in range(1, until - row):
                    merged[at + more] = order[row + more]
                at += until - row
                before = slot_in(order[until - 1])
                row = until
            merged[at] = first_of_host(table, book, before, ~newcomer)
            at, before = at + 1, newcomer
            table.pages[newcomer].flags |= IN_URL_ORDER
    if row < order.shape[0]:
        merged[at] = first_of_host(table, book, before, order[row])
        for more in range(1, order.shape[0] - row):
            merged[at + more] = order[row + more]


@lean_kernel
def place_together(
    table: Table, book: Book, order: Array, row: Int, newcomers: Array, first: Int, last: Int, bounds: Ints
) -> None:
    """Find the place of each of some sorted newcomers, which is not before a row: the second number of its bounds.

    Each step of the searches requests the URLs of all of them, and then compares: so all wait for memory together. What
    a key has in common with those at both bounds, it has in common with all between: no step compares it again. Bounds
    are the rows, to what depth the keys there are equal to the newcomer's, and the bounds of its URL.
    """
    for number in range(first, last):
        request_url(table, book, newcomers, number)
        prefetch(table.pages, np.int64(newcomers[number]))
    for k in range(last - first):
        bounds[k, 0], bounds[k, 1], bounds[k, 2], bounds[k, 3] = row, order.shape[0], 0, 0
        begin, end_of_host, end, is_https = url_bounds(table, book, np.int64(newcomers[first + k]))
        bounds[k, 4], bounds[k, 5], bounds[k, 6], bounds[k, 7] = begin, end_of_host, end, is_https
    widest: Int = order.shape[0] - row
    while widest > 0:
        for k in range(last - first):
            if bounds[k, 0] < bounds[k, 1]:
                prefetch(table.url_start, slot_in(order[(bounds[k, 0] + bounds[k, 1]) // 2]))
        for k in range(last - first):
            if bounds[k, 0] < bounds[k, 1]:
                request_url(table, book, order, (bounds[k, 0] + bounds[k, 1]) // 2)
        widest = np.int64(0)
        for k in range(last - first):
            low, high = bounds[k, 0], bounds[k, 1]
            if low < high:
                middle = (low + high) // 2
                newcomer, depth = np.int64(newcomers[first + k]), min(bounds[k, 2], bounds[k, 3])
                begin, end_of_host, end, is_https = bounds[k, 4], bounds[k, 5], bounds[k, 6], bounds[k, 7]
                other = slot_in(order[middle])
                found = compared(table, book, newcomer, begin, end_of_host, end, is_https, other, depth)
                if found > 0:
                    bounds[k, 1], bounds[k, 3] = middle, found - 1
                else:
                    bounds[k, 0], bounds[k, 2] = middle + 1, -1 - found
                widest = max(widest, bounds[k, 1] - bounds[k, 0])


@inlined_kernel
def request_url(table: Table, book: Book, order: Array, row: Int) -> None:
    """Have the URL of the page at a row of the order, if there is one, fetched from memory."""
    if row < order.shape[0]:
        prefetch(book.urls, np.int64(table.url_start[slot_in(order[row])]))


@inlined_kernel
def first_of_host(table: Table, book: Book, before: Int, stored: Int) -> Int:
    """Return the row of a page after the page at the slot `before`; it was stored as `stored` after another one."""
    slot = slot_in(stored)
    is_first = stored < 0 and (before < 0 or not is_same_host(table, book, before, slot))
    return ~slot if is_first else slot


@inlined_kernel
def slot_in(stored: Int) -> Int:
    """Return the slot at a row of the order."""
    value = np.int64(stored)
    return value if value >= 0 else ~value


@lean_kernel
def is_url_order(table: Table, book: Book, order: Array) -> bool:
    """Whether each page of an order comes after the one before, and the first page of every host is marked as such."""
    for row in range(order.shape[0]):
        slot, before = slot_in(order[row]), slot_in(order[max(row - 1, 0)])
        if (order[row] < 0) != (row == 0 or not is_same_host(table, book, before, slot)):
            return False
        if row > 0 and not comes_before(table, book, before, slot, np.int64(0)):
            return False
    return True


@lean_kernel
def read_pages(
    table: Table, order: Array, importance: Floats, rows: OrderedPages, row_of: Array, states: Array
) -> None:
    """Read what discovery looks at of the pages in the order of URLs.

    `importance` is that of each slot. `row_of` has room for one more than all slots, `states` for all: rows of pages
    are long, and read one after the other.
    """
    for i in range(states.shape[0]):
        page = table.pages[i]
        is_read = (page.class_ & 1) != 0
        is_tried = not is_read and page.visits > 0
        is_new = is_read and (page.flags & READ_BEFORE) == 0
        states[i] = is_read | is_tried << 1 | ((page.flags & EXPLORED) != 0) << 2 | is_new << 3
    for row in range(order.shape[0]):
        row_of[1 + slot_in(order[row])] = row
    host = np.int64(-1)
    for row in range(order.shape[0]):
        if row + _AHEAD < order.shape[0]:
            coming = slot_in(order[row + _AHEAD])
            prefetch(table.hot, coming)
            prefetch(table.found_by, coming)
            prefetch(importance, coming)
        slot = slot_in(order[row])
        host += order[row] < 0
        state = states[slot]
        rows.slots[row] = slot
        rows.page[row] = table.hot[slot, 0]
        rows.host[row] = host
        rows.is_read[row] = (state & 1) != 0
        rows.is_tried[row] = (state & 2) != 0
        rows.is_explored[row] = (state & 4) != 0
        rows.is_new[row] = (state & 8) != 0
        rows.importance[row] = importance[slot]
        rows.found_by[row] = row_of[table.found_by[slot]]
