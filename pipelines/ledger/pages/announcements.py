"""The worth of announcements of changes by sitemaps and feeds, learnt for each site from the visits that follow.

A row of `book.announced` belongs to the pages of a site, or to all pages, if ids do not keep sites together. It counts
visits that could be compared with the one before, from the first announcement of the site on:

- `CHANGED`, `UNCHANGED`: how visits after an announcement found the page;
- `EXPECTED`: how many visits would have found it unchanged without an announcement, by its change rate;
- `SURPRISES`: visits without an announcement that found a change;
- `IN_USE`: 1.

All are halved when they are large, so the latest hundreds of visits decide.
"""

from __future__ import annotations

import math

import numpy as np

from opicflow.pipelines.ledger.pages.layout import Book
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.pages import SITE_BITS

CHANGED, UNCHANGED, EXPECTED, SURPRISES, IN_USE = range(5)
_SITE_SHIFT = np.uint64(64 - SITE_BITS)
MOST_COUNTED = 200


@inlined_kernel
def row_of(book: Book, page: Int) -> Int:
    """The row of a page's site."""
    if book.announced.shape[0] == 1:
        return 0
    first = np.uint64(book.modes[0].first_id) >> _SITE_SHIFT
    return np.int64((np.uint64(page) >> _SITE_SHIFT) - first)


@lean_kernel
def find_rows(book: Book, pages: Array, rows: Array) -> None:
    """Fill in the row of the site of each page id."""
    for i in range(pages.shape[0]):
        rows[i] = row_of(book, pages[i])


@inlined_kernel
def note_announcement(book: Book, page: Int) -> None:
    """Begin to count for the site of a page."""
    book.announced[row_of(book, page), IN_USE] = 1


@inlined_kernel
def count_visit(book: Book, page: Int, was_announced: bool, changed: bool, expected_changes: float) -> None:
    """Count a visit of a page whose change was announced, or not, where so many changes were expected anyhow."""
    row = row_of(book, page)
    counts = book.announced[row]
    if counts[IN_USE] == 0 or not (was_announced or changed):
        return
    if counts[CHANGED] + counts[UNCHANGED] + counts[SURPRISES] >= MOST_COUNTED:
        for column in range(IN_USE):
            counts[column] *= np.float32(0.5)
    if not was_announced:
        counts[SURPRISES] += 1
        return
    counts[CHANGED if changed else UNCHANGED] += 1
    counts[EXPECTED] += np.float32(math.exp(-expected_changes))
