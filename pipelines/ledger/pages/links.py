"""The links of a visit, and the remembered links of pages (docs/decisions/memory.md).

The remembered links of a page are a block of 4-byte words in one array:

    slot | a word for each link | weights, two to a word, unless all are ordinary | ids of pages of other shards

A link to a page of this shard is the page's number (pages/numbers.py). A link to a page of another shard is `~k`, for
the k-th of the 8-byte ids at the end. The block of a page that has other links now begins with `~n`, where n words
follow, until `slide_links` has moved the later blocks down over it.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.config import ORDINARY_LINK_WEIGHT
from opicflow.pipelines.ledger.entries import KernelItems
from opicflow.pipelines.ledger.pages.index import find, guess_early, hashed, home
from opicflow.pipelines.ledger.pages.layout import (
    ELSEWHERE,
    NOWHERE,
    Book,
    Scratch,
    Table,
)
from opicflow.pipelines.ledger.pages.numbers import (
    follow,
    has_room_for_absent,
    has_room_for_numbers,
    is_local,
    number_of,
    number_of_absent,
)
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch

MOST_LINK_WEIGHT = 65535
_LOW_WORD = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


@inlined_kernel
def guess_slots(table: Table, scratch: Scratch, items: KernelItems, i: Int) -> None:
    """Guess the slots of the links of row i, and prefetch their rows. Two rows, in turn, have a place for guesses."""
    first, last = items.link_starts[i], items.link_starts[i + 1]
    place = place_of_guesses(scratch, i)
    for j in range(first, last):
        scratch.guesses[place + j - first] = guess_early(table, items.link_pages[j])


@inlined_kernel
def place_of_guesses(scratch: Scratch, i: Int) -> Int:
    """The beginning of the guesses of row i."""
    return (i & 1) * scratch.pages.shape[0]


@inlined_kernel
def gather_links(book: Book, scratch: Scratch, items: KernelItems, i: Int) -> Int:
    """Copy the links of a visit, row i, and the guesses of their slots, from `guess_slots`, to `scratch`.

    Links to the page itself or of weight 0 are left out; duplicates are added up.
    """
    page, link_pages = items.page[i], items.link_pages
    link_weights, link_categories = items.link_weights, items.link_categories
    first, last = items.link_starts[i], items.link_starts[i + 1]
    guesses, place = scratch.guesses, place_of_guesses(scratch, i)
    book.counts[0].generation += 1
    generation = book.counts[0].generation
    keys, marks, where = scratch.keys, scratch.marks, scratch.where
    multiplier = book.store[0].multiplier
    mask = np.int64(keys.shape[0] - 1)
    count = 0
    for link in range(first, last):
        to = link_pages[link]
        weight = np.int64(link_weights[link])
        if to == page or weight == 0:
            continue
        at = np.int64(hashed(to, multiplier) >> np.uint64(32)) & mask
        while marks[at] == generation and keys[at] != to:
            at = (at + 1) & mask
        if marks[at] == generation:
            j = where[at]
            scratch.weights[j] = min(scratch.weights[j] + weight, MOST_LINK_WEIGHT)
            if scratch.categories[j] == 255:
                scratch.categories[j] = link_categories[link]
        else:
            marks[at] = generation
            keys[at] = to
            where[at] = count
            scratch.pages[count] = to
            scratch.weights[count] = weight
            scratch.categories[count] = link_categories[link]
            scratch.slots[count] = guesses[place + link - first]
            count += 1
    return count


@lean_kernel
def find_slots(table: Table, book: Book, scratch: Scratch, links: Int) -> bool:
    """Find the slots of the first `links` links in `scratch`, of which it has guesses: any slot that exists, or -1.

    Returns whether a page of this shard is not known.
    """
    hot, index, index_old = table.hot, table.id_index, table.id_index_old
    pages, slots = scratch.pages, scratch.slots
    alone, some_new = book.modes[0].alone != 0, False
    for i in range(links):
        if not alone and not is_local(book, pages[i]):
            slots[i] = ELSEWHERE
        elif slots[i] < 0 or hot[slots[i], 0] != pages[i]:
            slots[i] = find(index, index_old, hot, pages[i])
            some_new |= slots[i] < 0
    return some_new


# -- reading -----------------------------------------------------------------------------------------------------------


@inlined_kernel
def links_of(table: Table, slot: Int) -> Int:
    """The number of links of a page that are remembered."""
    count = np.int64(table.link_count[slot])
    return count if count >= 0 else -1 - count


@inlined_kernel
def weight_words(count: Int, weighted: bool) -> Int:
    """The words that the weights of so many links take."""
    return (count + 1) // 2 if weighted else np.int64(0)


@inlined_kernel
def most_words(links: Int, alone: bool) -> Int:
    """The words that so many links take at most."""
    return 1 + links + (links + 1) // 2 + (0 if alone else 2 * links)


@inlined_kernel
def stored_weight(book: Book, start: Int, count: Int, weighted: bool, i: Int) -> Int:
    """The weight of a page's remembered link."""
    if not weighted:
        return np.int64(ORDINARY_LINK_WEIGHT)
    packed = np.uint32(book.links[start + count + i // 2])
    return np.int64((packed >> np.uint32(16 * (i % 2))) & np.uint32(0xFFFF))


@inlined_kernel
def total_weight(book: Book, start: Int, count: Int, weighted: bool) -> Int:
    """The weights of a page's remembered links together."""
    if not weighted:
        return count * np.int64(ORDINARY_LINK_WEIGHT)
    total = np.int64(0)
    for i in range(count):
        total += stored_weight(book, start, count, weighted, i)
    return total


@inlined_kernel
def id_elsewhere(book: Book, start: Int, count: Int, weighted: bool, link: Int) -> Int:
    """The id of the page of another shard that a link leads to; `link` is its word."""
    at = start + count + weight_words(count, weighted) + 2 * ~np.int64(link)
    low, high = np.uint64(np.uint32(book.links[at])), np.uint64(np.uint32(book.links[at + 1]))
    return np.int64(low | (high << _HALF))


@inlined_kernel
def page_of_link(table: Table, book: Book, start: Int, count: Int, weighted: bool, i: Int) -> Int:
    """The id of the page that a link leads to."""
    link = book.links[start + i]
    if link < 0:
        return id_elsewhere(book, start, count, weighted, link)
    to = follow(book, link)
    return table.hot[to, 0] if to >= 0 else book.absent_ids[~to]


@lean_kernel
def has_same_links(table: Table, book: Book, scratch: Scratch, slot: Int) -> bool:
    """Whether the links in `scratch`, which are as many as the page's remembered ones, are the same."""
    count, weighted = links_of(table, slot), table.link_count[slot] < 0
    start = table.link_start[slot]
    for i in range(count):
        if page_of_link(table, book, start, count, weighted, i) != scratch.pages[i]:
            return False
        if stored_weight(book, start, count, weighted, i) != scratch.weights[i]:
            return False
    return True


@lean_kernel
def recall_links(table: Table, book: Book, scratch: Scratch, slot: Int) -> Int:
    """Copy a page's remembered links to `scratch`, with the slots of their pages."""
    count, weighted = links_of(table, slot), table.link_count[slot] < 0
    start = table.link_start[slot]
    for i in range(count):
        link = book.links[start + i]
        if link < 0:
            scratch.slots[i] = ELSEWHERE
            scratch.pages[i] = id_elsewhere(book, start, count, weighted, link)
        else:
            to = follow(book, link)
            scratch.slots[i] = to if to >= 0 else NOWHERE
            if to >= 0:
                prefetch(table.hot, to)
        scratch.categories[i] = 255
        scratch.weights[i] = stored_weight(book, start, count, weighted, i)
    return count


@lean_kernel
def measure_links(table: Table, slots: Array, starts: Array) -> None:
    """Compute where the remembered links of each slot start in one column; slot -1 has none."""
    starts[0] = 0
    for i in range(slots.shape[0]):
        starts[i + 1] = starts[i] + (links_of(table, slots[i]) if slots[i] >= 0 else np.int64(0))


@lean_kernel
def copy_links(table: Table, book: Book, slots: Array, starts: Array, pages: Array, weights: Array) -> None:
    """Copy the remembered links of some slots to one column, whose size `measure_links` has measured."""
    for i in range(slots.shape[0]):
        if starts[i + 1] == starts[i]:
            continue
        slot = slots[i]
        count, weighted = links_of(table, slot), table.link_count[slot] < 0
        start = table.link_start[slot]
        for j in range(count):
            pages[starts[i] + j] = page_of_link(table, book, start, count, weighted, j)
            weights[starts[i] + j] = stored_weight(book, start, count, weighted, j)


# -- writing -----------------------------------------------------------------------------------------------------------


@inlined_kernel
def has_room_for_links(book: Book, words: Int, links: Int) -> bool:
    """Whether so many links, of so many words together, can be remembered; their pages may all be new, or absent."""
    if book.modes[0].remember == 0:
        return True
    return (
        book.counts[0].link_end + words <= book.links.shape[0]
        and has_room_for_numbers(book, links)
        and has_room_for_absent(book, links)
    )


@lean_kernel
def renumber_links(table: Table, book: Book, rows: Array) -> Int:
    """Let all links refer to slots: to `slots + k` for the k-th absent page, in the order of the links.

    Fills in k for the row of each such page, and -1 for the others. Returns how many there are.
    """
    slots, found = book.counts[0].slots, np.int64(0)
    rows[:] = -1
    for slot in range(slots):
        start = table.link_start[slot]
        for i in range(start, start + links_of(table, slot)):
            if book.links[i] >= 0:
                to = follow(book, book.links[i])
                if to < 0:
                    if rows[~to] < 0:
                        rows[~to] = found
                        found += 1
                    to = slots + rows[~to]
                book.links[i] = to
    return found


@lean_kernel
def remembered_words(table: Table, book: Book, slot: Int) -> Int:
    """The words of a page's block, without the first."""
    count, weighted = links_of(table, slot), table.link_count[slot] < 0
    elsewhere = np.int64(0)
    if book.modes[0].alone == 0:
        for i in range(count):
            elsewhere += np.int64(book.links[table.link_start[slot] + i] < 0)
    return count + weight_words(count, weighted) + 2 * elsewhere


@lean_kernel
def remember_links(table: Table, book: Book, scratch: Scratch, slot: Int, links: Int) -> None:
    """Remember the links in `scratch`, whose slots are known, instead of the page's earlier ones.

    They overwrite these where they fit. The caller has seen to room.
    """
    counts = book.counts[0]
    book.modes[0].longest = max(book.modes[0].longest, links)
    weighted, elsewhere = False, np.int64(0)
    for i in range(links):
        weighted |= scratch.weights[i] != ORDINARY_LINK_WEIGHT
        elsewhere += np.int64(scratch.slots[i] == ELSEWHERE)
    words = links + weight_words(links, weighted) + 2 * elsewhere
    had = remembered_words(table, book, slot)
    start = table.link_start[slot]
    if words == 0 or words > had:
        forget_links(table, book, slot)
        if words == 0:
            return
        book.links[counts.link_end] = slot
        start = counts.link_end + 1
        counts.link_end = start + words
    elif words < had:
        book.links[start + words] = ~(had - words - 1)
        counts.link_stale += had - words
    table.link_start[slot] = start
    table.link_count[slot] = -1 - links if weighted else links
    ids_at, elsewhere = start + links + weight_words(links, weighted), np.int64(0)
    for i in range(links):
        to = scratch.slots[i]
        if to >= 0:
            book.links[start + i] = number_of(table, book, to)
        elif to == NOWHERE:
            book.links[start + i] = number_of_absent(book, scratch.pages[i])
        else:
            page = np.uint64(scratch.pages[i])
            book.links[start + i] = ~elsewhere
            book.links[ids_at + 2 * elsewhere] = np.int64(page & _LOW_WORD)
            book.links[ids_at + 2 * elsewhere + 1] = np.int64(page >> _HALF)
            elsewhere += 1
    if weighted:
        for word in range((links + 1) // 2):
            packed = scratch.weights[2 * word]
            if 2 * word + 1 < links:
                packed |= scratch.weights[2 * word + 1] << 16
            book.links[start + links + word] = packed


@lean_kernel
def forget_links(table: Table, book: Book, slot: Int) -> None:
    """Forget a page's links."""
    if book.modes[0].remember != 0 and table.link_count[slot] != 0:
        words = remembered_words(table, book, slot)
        book.links[table.link_start[slot] - 1] = ~words
        book.counts[0].link_stale += 1 + words
        table.link_count[slot] = 0


@lean_kernel
def slide_links(table: Table, book: Book, words: Int) -> None:
    """Move blocks down over those without use, among the next `words` words at least; at the end, begin again."""
    counts, store = book.counts[0], book.store[0]
    links = book.links
    last = min(store.slide_from + words, counts.link_end)
    while store.slide_from < last:
        at = store.slide_from
        slot = np.int64(links[at])
        if slot < 0:
            store.slide_from = at + 1 + ~slot
            continue
        block = 1 + remembered_words(table, book, slot)
        to = store.slide_to
        if to < at:
            for i in range(block):
                links[to + i] = links[at + i]
            table.link_start[slot] = to + 1
        store.slide_from = at + block
        store.slide_to = to + block
    if store.slide_from >= counts.link_end:
        counts.link_stale -= counts.link_end - store.slide_to
        counts.link_end = store.slide_to
        store.slide_from = 0
        store.slide_to = 0


# -- snapshots ---------------------------------------------------------------------------------------------------------


@inlined_kernel
def stored_words(count: Int, weighted: bool) -> Int:
    """The 8-byte words that so many links take in a snapshot: ids, then weights, four to a word."""
    return count + (count + 3) // 4 if weighted else count


@lean_kernel
def store_links(table: Table, book: Book, first: Int, last: Int, end: Int, starts: Array, stored: Array) -> Int:
    """Write the links of the slots from `first` to `last` in a snapshot's form, and where those of each start.

    `end` is where the links of earlier slots end. Returns the number of words. With no rows in `stored` it only
    measures.
    """
    words_before = np.int64(0)
    for slot in range(first, last):
        count, weighted = links_of(table, slot), table.link_count[slot] < 0
        words = stored_words(count, weighted)
        starts[slot - first] = end + words_before if words > 0 else np.int64(0)
        if stored.shape[0] > 0 and words > 0:
            start = table.link_start[slot]
            for i in range(count):
                stored[words_before + i] = page_of_link(table, book, start, count, weighted, i)
            for word in range(words - count):
                packed = np.uint64(0)
                for lane in range(min(np.int64(4), count - 4 * word)):
                    weight = stored_weight(book, start, count, weighted, 4 * word + lane)
                    packed |= np.uint64(weight) << np.uint64(16 * lane)
                stored[words_before + count + word] = np.int64(packed)
        words_before += words
    return words_before


@lean_kernel
def take_links(
    table: Table, book: Book, scratch: Scratch, counts: Array, starts: Array, stored: Array, first: Int
) -> Int:
    """Remember the links of a snapshot, from a slot on. Returns the slot that it has no room or no number for.

    `counts` and `starts` are the snapshot's columns; the ledger's have no links yet.
    """
    for slot in range(first, book.counts[0].slots):
        count, weighted = np.int64(counts[slot]), counts[slot] < 0
        if weighted:
            count = -1 - count
        if not has_room_for_links(book, 0, count):
            return slot
        start = starts[slot]
        for i in range(count):
            prefetch(table.id_index, home(table.id_index, stored[start + i]))
        for i in range(count):
            scratch.pages[i] = stored[start + i]
            scratch.slots[i] = guess_early(table, stored[start + i])
            scratch.weights[i] = ORDINARY_LINK_WEIGHT
            if weighted:
                packed = np.uint64(stored[start + count + i // 4])
                scratch.weights[i] = np.int64((packed >> np.uint64(16 * (i % 4))) & np.uint64(0xFFFF))
        if find_slots(table, book, scratch, count) and book.named.shape[0] == 0:
            return slot
        remember_links(table, book, scratch, slot, count)
    return book.counts[0].slots


@lean_kernel
def copy_spans(column: Array, begins: Array, sizes: Array, to: Array, first: int) -> None:
    """Copy pieces of a column, one after the other, to another one from the row `first` on."""
    end = first
    for i in range(begins.shape[0]):
        for row in range(sizes[i]):
            to[end + row] = column[begins[i] + row]
        end += sizes[i]
