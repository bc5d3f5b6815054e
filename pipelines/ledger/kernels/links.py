"""The links of a visit, and the remembered links of pages (docs/decisions/remembered-links.md)."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.config import ORDINARY_LINK_WEIGHT
from opicflow.pipelines.ledger.layout import (
    Book,
    Bool,
    Int,
    Scratch,
    Table,
)
from opicflow.schemas.arrays import Array
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

MOST_LINK_WEIGHT = 65535


@inlined_kernel
def gather_links(
    book: Book,
    scratch: Scratch,
    page: Int,
    link_pages: Array,
    link_weights: Array,
    link_categories: Array,
    first: Int,
    last: Int,
) -> Int:
    """Copy a visit's links to `scratch`: without links to the page itself or of weight 0; duplicates are added up."""
    book.counts[0].generation += 1
    generation = book.counts[0].generation
    keys, marks, where = scratch.keys, scratch.marks, scratch.where
    mask = np.int64(keys.shape[0] - 1)
    count = 0
    for i in range(first, last):
        to = link_pages[i]
        weight = np.int64(link_weights[i])
        if to == page or weight == 0:
            continue
        at = np.int64((np.uint64(to) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
        while marks[at] == generation and keys[at] != to:
            at = (at + 1) & mask
        if marks[at] == generation:
            j = where[at]
            scratch.weights[j] = min(scratch.weights[j] + weight, MOST_LINK_WEIGHT)
            if scratch.categories[j] == 255:
                scratch.categories[j] = link_categories[i]
        else:
            marks[at] = generation
            keys[at] = to
            where[at] = count
            scratch.pages[count] = to
            scratch.weights[count] = weight
            scratch.categories[count] = link_categories[i]
            count += 1
    return count


@inlined_kernel
def words_for(count: Int, weighted: Bool) -> Int:
    """The 8-byte words that `count` remembered links take: ids, and packed weights unless all are ordinary."""
    return count + (count + 3) // 4 if weighted else count


@lean_kernel
def remembered_words(table: Table, slot: Int) -> Int:
    """The words of the link arena that a page's remembered links take."""
    count = np.int64(table.link_count[slot])
    return words_for(count, False) if count >= 0 else words_for(-1 - count, True)


@inlined_kernel
def links_of(table: Table, slot: Int) -> Int:
    """How many links of a page are remembered."""
    count = np.int64(table.link_count[slot])
    return count if count >= 0 else -1 - count


@inlined_kernel
def stored_weight(book: Book, start: Int, count: Int, weighted: Bool, i: Int) -> Int:
    """The weight of a page's remembered link."""
    if not weighted:
        return np.int64(ORDINARY_LINK_WEIGHT)
    packed = np.uint64(book.links[start + count + i // 4])
    return np.int64((packed >> np.uint64(16 * (i % 4))) & np.uint64(0xFFFF))


@lean_kernel
def has_same_links(table: Table, book: Book, scratch: Scratch, slot: Int) -> Bool:
    """Whether the links in `scratch`, which are as many as the page's remembered ones, are the same."""
    count, weighted = links_of(table, slot), table.link_count[slot] < 0
    start = table.link_start[slot]
    for i in range(count):
        if book.links[start + i] != scratch.pages[i]:
            return False
        if stored_weight(book, start, count, weighted, i) != scratch.weights[i]:
            return False
    return True


@lean_kernel
def remember_links(table: Table, book: Book, scratch: Scratch, slot: Int, links: Int) -> None:
    """Remember the links in `scratch`; they overwrite the page's earlier ones where they fit."""
    counts = book.counts[0]
    book.modes[0].longest = max(book.modes[0].longest, links)
    weighted = False
    for i in range(links):
        weighted |= scratch.weights[i] != ORDINARY_LINK_WEIGHT
    words = words_for(links, weighted)
    had = remembered_words(table, slot)
    if words > had:
        counts.link_stale += had
        table.link_start[slot] = counts.link_end
        counts.link_end += words
    else:
        counts.link_stale += had - words
    start = table.link_start[slot]
    table.link_count[slot] = -1 - links if weighted else links
    for i in range(links):
        book.links[start + i] = scratch.pages[i]
    if weighted:
        for word in range((links + 3) // 4):
            packed = np.uint64(0)
            for lane in range(min(4, links - 4 * word)):
                packed |= np.uint64(scratch.weights[4 * word + lane]) << np.uint64(16 * lane)
            book.links[start + links + word] = np.int64(packed)


@lean_kernel
def forget_links(table: Table, book: Book, slot: Int) -> None:
    """Forget a page's links."""
    if book.modes[0].remember != 0:
        book.counts[0].link_stale += remembered_words(table, slot)
        table.link_count[slot] = 0


@lean_kernel
def recall_links(table: Table, book: Book, scratch: Scratch, slot: Int) -> Int:
    """Copy a page's remembered links to `scratch`."""
    count = np.int64(table.link_count[slot])
    start = table.link_start[slot]
    weighted = count < 0
    if weighted:
        count = -1 - count
    for i in range(count):
        scratch.pages[i] = book.links[start + i]
        scratch.categories[i] = 255
        if weighted:
            packed = np.uint64(book.links[start + count + i // 4])
            scratch.weights[i] = np.int64((packed >> np.uint64(16 * (i % 4))) & np.uint64(0xFFFF))
        else:
            scratch.weights[i] = ORDINARY_LINK_WEIGHT
    return count


@lean_kernel
def measure_links(table: Table, slots: Array, starts: Array) -> None:
    """Compute where the remembered links of each slot start in one column; slot -1 has none."""
    starts[0] = 0
    for i in range(slots.shape[0]):
        count = np.int64(table.link_count[slots[i]]) if slots[i] >= 0 else np.int64(0)
        starts[i + 1] = starts[i] + (count if count >= 0 else -1 - count)


@lean_kernel
def gather_remembered(table: Table, book: Book, slots: Array, starts: Array, pages: Array, weights: Array) -> None:
    """Copy the remembered links of these slots to one column, as `measure_links` has measured."""
    for i in range(slots.shape[0]):
        count = starts[i + 1] - starts[i]
        if count == 0:
            continue
        start = table.link_start[slots[i]]
        weighted = table.link_count[slots[i]] < 0
        for j in range(count):
            pages[starts[i] + j] = book.links[start + j]
            weights[starts[i] + j] = ORDINARY_LINK_WEIGHT
            if weighted:
                packed = np.uint64(book.links[start + count + j // 4])
                weights[starts[i] + j] = np.int64((packed >> np.uint64(16 * (j % 4))) & np.uint64(0xFFFF))


@lean_kernel
def compact_links(table: Table, book: Book, fresh: Array) -> Int:
    """Copy every page's remembered links to a fresh arena in slot order. Returns its length."""
    end = np.int64(0)
    for slot in range(book.counts[0].slots):
        words = remembered_words(table, slot)
        start = table.link_start[slot]
        for i in range(words):
            fresh[end + i] = book.links[start + i]
        table.link_start[slot] = end if words > 0 else 0
        end += words
    return end
