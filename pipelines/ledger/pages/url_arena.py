"""The URL arena: the URL of each page once, length first (2 bytes, little endian), in the order of arrival."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.schemas.arrays import Array, Ids, Int, Word, Words
from opicflow.schemas.hashing import byte_at, copy_bytes, find_byte, is_same, keyed_hash
from opicflow.schemas.kernel import inlined_kernel, lean_kernel


@inlined_kernel
def keep_url(table: Table, book: Book, slot: Int, url_bytes: Array, first: Int, last: Int) -> None:
    """Append a page's URL to the arena, unless it is known."""
    if last <= first or table.url_start[slot] != 0:
        return
    at = book.counts[0].url_end
    table.url_start[slot] = at + 1
    length = last - first
    book.urls[at] = length & 0xFF
    book.urls[at + 1] = length >> 8
    copy_bytes(url_bytes, first, book.urls, at + 2, length)
    book.counts[0].url_end = at + 2 + length


def url_at(book: Book, start: int) -> bytes:
    """Return the URL of a page by its `url_start`, which is not 0."""
    length = int(book.urls[start - 1]) + (int(book.urls[start]) << 8)
    return bytes(book.urls[start + 1 : start + 1 + length])


@inlined_kernel
def has_other_url(table: Table, book: Book, slot: Int, url_bytes: Array, first: Int, last: Int) -> bool:
    """Whether a URL is given, and another one is known of the page."""
    start = np.int64(table.url_start[slot])
    if last <= first or start == 0:
        return False
    length = last - first
    if length != np.int64(book.urls[start - 1]) + (np.int64(book.urls[start]) << 8):
        return True
    return not is_same(book.urls, start + 1, url_bytes, first, length)


@lean_kernel
def compact_urls(table: Table, book: Book, fresh: Array) -> Int:
    """Copy every page's URL to a fresh arena in slot order. Returns its length."""
    end = np.int64(0)
    for slot in range(book.counts[0].slots):
        start = table.url_start[slot] - 1
        if start >= 0:
            size = 2 + np.int64(book.urls[start]) + (np.int64(book.urls[start + 1]) << 8)
            copy_bytes(book.urls, start, fresh, end, size)
            table.url_start[slot] = end + 1
            end += size
    return end


@lean_kernel
def measure_urls(table: Table, book: Book, slots: Array, starts: Array) -> None:
    """Compute where the URL of each slot starts in one column; unknown ones are empty."""
    starts[0] = 0
    for i in range(slots.shape[0]):
        start = table.url_start[slots[i]] - 1 if slots[i] >= 0 else np.int64(-1)
        length = np.int64(0)
        if start >= 0:
            length = np.int64(book.urls[start]) + (np.int64(book.urls[start + 1]) << 8)
        starts[i + 1] = starts[i] + length


@lean_kernel
def gather_urls(table: Table, book: Book, slots: Array, starts: Array, out: Array) -> None:
    """Copy the URLs of some slots to one column, whose size `measure_urls` has measured."""
    urls = book.urls
    for i in range(slots.shape[0]):
        first, last = starts[i], starts[i + 1]
        if first < last:
            copy_bytes(urls, np.int64(table.url_start[slots[i]]) + 1, out, first, last - first)


@inlined_kernel
def host_of(table: Table, book: Book, key: Words, slot: Int) -> Word:
    """A hash of the host, with its port if it has one, of the page at a slot; 0 where its URL is not known."""
    start = np.int64(table.url_start[slot]) if slot >= 0 else np.int64(0)
    if start == 0:
        return np.uint64(0)
    end = start + 1 + np.int64(book.urls[start - 1]) + (np.int64(book.urls[start]) << 8)
    if end - start < 10:  # too short for a host: what follows belongs to other pages
        return np.uint64(0)
    first = start + 1 + 7 + (byte_at(book.urls, start + 1 + 4) == 115)  # past http:// or https://
    return keyed_hash(key, book.urls, first, find_byte(book.urls, first, end, 47))


@lean_kernel
def hash_hosts(table: Table, book: Book, slots: Array, key: Words, out: Ids) -> None:
    """A hash of the host of every page at `slots`, as `host_of` makes it."""
    for i in range(slots.shape[0]):
        out[i] = host_of(table, book, key, np.int64(slots[i]))
