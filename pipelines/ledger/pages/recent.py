"""Recent visits, so that a duplicate is not counted as a late visit.

The time of a page's latest visit is in its row. Of all recent visits a hash of page and time is kept in a table with
two sides: one takes new visits until it is full; then it becomes the older side, and the oldest visits are forgotten.
So at least the last `remembered_visits` visits are found, whatever their times, in memory of a fixed size.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.pages.index import hashed
from opicflow.pipelines.ledger.pages.layout import Book
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import inlined_kernel, lean_kernel


@inlined_kernel
def visit_key(page: Int, time_ms: Int) -> Int:
    """A hash of a visit, never 0."""
    x = np.uint64(page) ^ (np.uint64(time_ms) * np.uint64(0x9E3779B97F4A7C15))
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return np.int64(x) if x != np.uint64(0) else np.int64(1)


@inlined_kernel
def has_room_for_a_visit(book: Book) -> bool:
    """Whether another visit can be kept: a side is at most half full."""
    return 2 * (book.counts[0].recent + 1) <= book.recent.shape[1] or book.modes[0].most_recent == 0


@inlined_kernel
def _position(side: Array, key: Int, multiplier: Int) -> Int:
    """The position of a key, or the free one where it would be stored."""
    mask = side.shape[0] - 1
    at = np.int64(hashed(key, multiplier) >> np.uint64(32)) & mask
    while side[at] != 0 and side[at] != key:
        at = (at + 1) & mask
    return at


@inlined_kernel
def is_recent(book: Book, key: Int) -> bool:
    """Whether the visit was kept and is not forgotten yet."""
    if book.modes[0].most_recent == 0:
        return False
    multiplier = book.store[0].multiplier
    one, other = _position(book.recent[0], key, multiplier), _position(book.recent[1], key, multiplier)
    return book.recent[0, one] == key or book.recent[1, other] == key


@inlined_kernel
def keep_visit(book: Book, key: Int) -> None:
    """Keep a visit. When the side is full, the older side is cleared and takes the next visits."""
    most = book.modes[0].most_recent
    if most == 0:
        return
    side = book.counts[0].recent_side
    at = _position(book.recent[side], key, book.store[0].multiplier)
    if book.recent[side, at] == key:
        return
    book.recent[side, at] = key
    book.counts[0].recent += 1
    if book.counts[0].recent >= most:
        book.counts[0].recent_side = 1 - side
        book.counts[0].recent = 0
        for i in range(book.recent.shape[1]):
            book.recent[1 - side, i] = 0


@lean_kernel
def fill_side(side: Array, keys: Array, multiplier: Int) -> None:
    """Put keys into an empty side."""
    for i in range(keys.shape[0]):
        side[_position(side, keys[i], multiplier)] = keys[i]
