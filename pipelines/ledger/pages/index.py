"""The id index: an open-addressing table from page id to slot.

An entry is 8 bytes: 32 bits of the id's hash (a tag) and slot + 1. A probe compares tags, and a matching tag is
verified against the page's own row, which a transfer needs anyway: two cache misses a transfer, and no false match.

Eight entries are a line of the processor's cache. A page's search begins at the first entry of a line; a new page takes
the first free entry from there on. So the entries of a line are filled from its beginning, and a line whose last entry
is free ends a search. A probe compares all tags of a line, without a branch for each: which of them it is cannot be
predicted.

The hash is made of multiplications. The multiplier is stored behind the last entry: who chooses page ids must not know
it, or could make all ids collide (docs/decisions/page-ids.md). Where a page is in the index decides nothing
else.

It grows by moving entries a few at a time: while `index_old` has rows, a page may be found in either, and every
batch moves more entries than it can add, so no batch waits for the whole table.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opicflow.pipelines.ledger.pages.layout import Table
from opicflow.schemas.arrays import Array, Int, Word, Words, words_in_lines
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_AHEAD = 16  # rows between a prefetch and the use
_LINE_BITS = 3
_LINE = 1 << _LINE_BITS  # entries

FULLEST = 0.8
"""The load at which the index grows."""


def empty(capacity: int, multiplier: int) -> Array:
    """An index without pages, of this capacity or a little more. The multiplier is any odd number of 64 bits."""
    index = words_in_lines(-(-capacity // _LINE) * _LINE + 1)
    index[-1] = multiplier
    return index


@inlined_kernel
def hashed(page: Int, multiplier: Int | Word) -> Word:
    """A hash of a page id. With fewer multiplications, some ids in regular rows or grids would collide."""
    factor = np.uint64(multiplier)
    mixed = np.uint64(page) * factor
    mixed = (mixed ^ (mixed >> _HALF)) * factor
    return (mixed ^ (mixed >> _HALF)) * factor


@inlined_kernel
def first_entry(word: Word, capacity: Int) -> Word:
    """The position at which the search for a page with this hash begins: that of a line."""
    return ((word >> _HALF) * np.uint64(capacity >> _LINE_BITS) >> _HALF) << np.uint64(_LINE_BITS)


@inlined_kernel
def home(index: Array, page: Int) -> Int:
    """The position at which the search for a page begins."""
    capacity = index.shape[0] - 1
    return np.int64(first_entry(hashed(page, index[capacity]), capacity))


@inlined_kernel
def probe(index: Words, hot: Array, page: Int, verified: bool) -> Int:
    """The slot of the first entry with the page's tag (and, `verified`, its id), or -1."""
    capacity = index.shape[0] - 1
    word = hashed(page, index[capacity])
    tag = word & _LOW
    line = first_entry(word, capacity)
    while True:
        found = np.uint64(0)
        for k in range(_LINE):
            entry = index[line + np.uint64(_LINE - 1 - k)]  # backwards: the first one is left
            if entry >> _HALF == tag:
                found = entry
        if found != np.uint64(0):
            slot: Int = np.int64(found & _LOW) - 1
            if not verified or hot[slot, 0] == page:
                return slot
            slot = _second_match(index, hot, page, line, tag)
            if slot >= 0:
                return slot
        if index[line + np.uint64(_LINE - 1)] == np.uint64(0):
            return -1
        line += np.uint64(_LINE)
        if line >= np.uint64(capacity):
            line = np.uint64(0)


@inlined_kernel
def _second_match(index: Words, hot: Array, page: Int, line: Word, tag: Word) -> Int:
    """The slot of a page among the entries of a line, whose first one with its tag is another page's; or -1."""
    for k in range(_LINE):
        entry = index[line + np.uint64(k)]
        if entry != np.uint64(0) and entry >> _HALF == tag:
            slot = np.int64(entry & _LOW) - 1
            if hot[slot, 0] == page:
                return slot
    return -1


@inlined_kernel
def search(index: Array, hot: Array, page: Int) -> Int:
    """The slot of a page in one index, or -1."""
    return probe(index, hot, page, True)


@inlined_kernel
def guess(index: Array, hot: Array, page: Int) -> Int:
    """The slot that a page probably has, from its tag alone: enough to prefetch its row."""
    return probe(index, hot, page, False)


@inlined_kernel
def find(index: Array, index_old: Array, hot: Array, page: Int) -> Int:
    """The slot of a page, or -1."""
    slot = search(index, hot, page)
    if slot < 0 and index_old.shape[0] > 0:
        slot = search(index_old, hot, page)
    return slot


@lean_kernel
def insert(index: Array, page: Int, slot: Int) -> None:
    """Add a page that is not there. The caller keeps the load below `FULLEST`."""
    capacity = index.shape[0] - 1
    word = hashed(page, index[capacity])
    at = np.int64(first_entry(word, capacity))
    while index[at] != np.uint64(0):
        at = at + 1 if at + 1 < capacity else np.int64(0)
    index[at] = ((word & _LOW) << _HALF) | np.uint64(slot + 1)


@lean_kernel
def remove(index: Array, hot: Array, page: Int) -> None:
    """Remove a page and close the gap. Its row and those of its neighbours must still be there."""
    capacity = index.shape[0] - 1
    gap = home(index, page)
    while hot[np.int64(index[gap] & _LOW) - 1, 0] != page:
        gap = (gap + 1) % capacity
    at = gap
    while True:
        at = (at + 1) % capacity
        entry = index[at]
        if entry == np.uint64(0):
            break
        wants = home(index, hot[np.int64(entry & _LOW) - 1, 0])
        if (at - wants) % capacity >= (at - gap) % capacity:
            index[gap] = entry
            gap = at
    index[gap] = np.uint64(0)


@lean_kernel
def move(index: Array, index_old: Array, hot: Array, first: Int, last: Int) -> None:
    """Copy the entries at [first, last) of the old index to the new one."""
    for at in range(first, last):
        entry = index_old[at]
        if entry != np.uint64(0):
            slot = np.int64(entry & _LOW) - 1
            insert(index, hot[slot, 0], slot)


@lean_kernel
def fill(index: Array, hot: Array, pages: Any, slots: Int) -> Int:
    """Insert every live page of the first `slots` slots into an empty index. Returns how many are there twice."""
    twice = np.int64(0)
    for slot in range(slots):
        if slot + _AHEAD < slots:
            prefetch(index, home(index, hot[slot + _AHEAD, 0]))
        if pages[slot].flags != 0:
            if search(index, hot, hot[slot, 0]) >= 0:
                twice += 1
            insert(index, hot[slot, 0], slot)
    return twice


@inlined_kernel
def guess_early(table: Table, page: Int) -> Int:
    """The slot that a page probably has, or -1. Prefetches its cash, and its id, by which to verify it."""
    slot = guess(table.id_index, table.hot, page)
    if slot >= 0:
        prefetch(table.hot, slot)
    return slot


@inlined_kernel
def look_up_early(table: Table, pages: Array, i: Int) -> None:
    """Prefetch the memory for the pages after row i: index entries first, then rows."""
    rows = pages.shape[0]
    if i + 2 * _AHEAD < rows:
        prefetch(table.id_index, home(table.id_index, pages[i + 2 * _AHEAD]))
    if i + _AHEAD < rows:
        guess_early(table, pages[i + _AHEAD])


@lean_kernel
def find_all(table: Table, pages: Array, slots: Array) -> None:
    """The slot of each page id, or NOWHERE."""
    for i in range(pages.shape[0]):
        look_up_early(table, pages, i)
        slots[i] = find(table.id_index, table.id_index_old, table.hot, pages[i])
