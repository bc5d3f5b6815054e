"""Loops over the rows of a batch, in log order.

A kernel stops before a row for which it needs room or a cut, and returns the row and the reason. The caller provides it
and calls again from that row.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.births import change_class, change_hop, give_birth, has_links, learn_page
from opicflow.pipelines.ledger.cash.certified.visits import pay_visit, receive_payment
from opicflow.pipelines.ledger.cash.windows.dividends import announce, declare_dividend
from opicflow.pipelines.ledger.cash.windows.spending import pass_cursor, receive_cash, spend_visit
from opicflow.pipelines.ledger.entries import NO_CATEGORY, KernelItems
from opicflow.pipelines.ledger.pages.index import FULLEST, find, guess, guess_early, home, look_up_early
from opicflow.pipelines.ledger.pages.layout import FAILED, GONE, NOWHERE, P_CERTIFIED, REDIRECTED, Book, Scratch, Table
from opicflow.pipelines.ledger.pages.links import guess_slots, has_room_for_links, most_words
from opicflow.pipelines.ledger.pages.observations import (
    NO_CHANGE,
    announce_change,
    brings_links,
    folded_digest,
    forget_times_after,
    has_room_for_refreshing,
    observe,
    own_row,
)
from opicflow.pipelines.ledger.pages.recent import has_room_for_a_visit, is_recent, keep_visit, visit_key
from opicflow.pipelines.ledger.pages.url_arena import has_other_url, keep_url
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import inlined_kernel, lean_kernel, prefetch

DONE = 0
NEEDS_ROOM = 1
NEEDS_CUT = 2

_VISIT, _ANNOUNCEMENT = 0, 2
_LATE, _DUPLICATE, _REFUSED, _COLLIDED = 1, 2, 3, 4


@inlined_kernel
def has_room(table: Table, book: Book, births: Int, outgoing: Int, words: Int, url_bytes: Int) -> bool | np.bool_:
    """Whether there is room for everything that a row may add; `words` are those of its links."""
    counts = book.counts[0]
    return (
        counts.slots - counts.free + births <= table.hot.shape[0]
        and np.float64(counts.pages + births) <= FULLEST * np.float64(table.id_index.shape[0] - 1)
        and counts.outbox + outgoing <= book.outbox_pages.shape[0]
        and has_room_for_links(book, words, births)
        and counts.url_end + url_bytes + 2 <= book.urls.shape[0]
        and has_room_for_a_visit(book)
    )


@lean_kernel
def apply_items(
    table: Table, book: Book, scratch: Scratch, items: KernelItems, first: Int, last: Int, least_visits: Int
) -> tuple[Int, Int]:
    """Apply the rows [first, last) of a crawl entry. Returns the row it stopped before, and why.

    A cut has at least `least_visits` visits, or a twentieth of a visit a page: more would slow down circulation.
    """
    counts = book.counts[0]
    alone = book.modes[0].alone != 0
    certified = book.modes[0].policy == P_CERTIFIED
    if first < last:
        guess_slots(table, scratch, items, first)
    for i in range(first, last):
        links = items.link_starts[i + 1] - items.link_starts[i]
        outgoing = np.int64(0) if alone else links + most_recalled(table, book)
        if not alone:
            outgoing *= 2  # a link may carry a bonus as well
        if not has_room_for_refreshing(table, book) or not has_room(
            table,
            book,
            links + 1,
            outgoing,
            most_words(links, alone),
            items.url_starts[i + 1] - items.url_starts[i],
        ):
            return i, NEEDS_ROOM
        look_ahead(table, book, scratch, items, i)
        if items.kind[i] != _VISIT:
            sight(table, book, items, i)
            continue
        if not visit(table, book, scratch, items, i):
            continue
        counts.visits += 1
        counts.visits_since_sweep += 1
        counts.visits_since_cut += 1
        if not certified:
            pass_cursor(table, book, scratch)
        if counts.broken != 0:
            return i + 1, DONE
        is_due = counts.visits_since_cut * 1000 >= counts.pages * book.modes[0].cut_per_1000
        if is_due and counts.visits_since_cut >= min(least_visits, counts.pages // 20):
            if certified or not alone:
                return i + 1, NEEDS_CUT
            counts.visits_since_cut = 0
            counts.virtual = declare_dividend(book, counts.virtual)
    return last, DONE


@inlined_kernel
def look_ahead(table: Table, book: Book, scratch: Scratch, items: KernelItems, i: Int) -> None:
    """Prefetch the memory of the rows after row i: index entries, then what they lead to, then what that leads to."""
    rows = items.kind.shape[0]
    if i + 3 < rows:
        prefetch(table.id_index, home(table.id_index, items.page[i + 3]))
    if i + 2 < rows:
        slot = guess_early(table, items.page[i + 2])
        if slot >= 0:
            prefetch(table.pages, slot)
            prefetch(table.pages, slot + 1)  # a row is in two lines of the cache, mostly
            prefetch(table.refresh_row, slot)
            if items.url_starts[i + 3] > items.url_starts[i + 2]:
                prefetch(table.url_start, slot)
            if table.spans.shape[0] > 0:
                prefetch(table.spans, slot)
            if table.window.shape[0] > 0:
                prefetch(table.window, slot)
        for j in range(items.link_starts[i + 2], items.link_starts[i + 3]):
            prefetch(table.id_index, home(table.id_index, items.link_pages[j]))
    if i + 1 < rows:
        slot = guess(table.id_index, table.hot, items.page[i + 1])
        if slot >= 0:
            prefetch(table.refresh, np.int64(table.refresh_row[slot]))
            if items.url_starts[i + 2] > items.url_starts[i + 1]:
                prefetch(book.urls, np.int64(table.url_start[slot]))
        guess_slots(table, scratch, items, i + 1)


@inlined_kernel
def most_recalled(table: Table, book: Book) -> Int:
    """The most remembered links that the next visit and the round after it may pay."""
    if book.modes[0].remember == 0:
        return 0
    return 2 * book.modes[0].longest


@inlined_kernel
def sight(table: Table, book: Book, items: KernelItems, i: Int) -> None:
    """Apply a sighting or an announcement: a page is born, or its URL or category becomes known."""
    page, category = items.page[i], items.category[i]
    announced = items.kind[i] == _ANNOUNCEMENT
    slot = find(table.id_index, table.id_index_old, table.hot, page)
    if announced and slot >= 0 and collides(table, book, items, i, slot):
        return
    if announced:
        book.counts[0].announcements += 1
    else:
        book.counts[0].sightings += 1
    if slot < 0:
        known_category = np.int64(0) if category == NO_CATEGORY else np.int64(category)
        slot = learn_page(table, book, page, known_category, 0.0, NOWHERE, announced)
        if slot < 0:
            return
    elif category != NO_CATEGORY and (announced or table.pages[slot].class_ == 0):
        change_class(table, book, slot, 2 * category + (table.pages[slot].class_ & 1))
    if announced:
        if book.modes[0].policy != P_CERTIFIED:
            announce(table, slot)
        if items.modified_ms[i] != 0:
            announce_change(table, book, slot, items.modified_ms[i])
    keep_url(table, book, slot, items.url_bytes, items.url_starts[i], items.url_starts[i + 1])


@inlined_kernel
def collides(table: Table, book: Book, items: KernelItems, i: Int, slot: Int) -> bool:
    """Whether the page at this slot has another URL than the row: two URLs have one page id. Notes it as its fate."""
    if has_other_url(table, book, slot, items.url_bytes, items.url_starts[i], items.url_starts[i + 1]):
        items.fates[i] = _COLLIDED
        return True
    return False


@inlined_kernel
def visit(table: Table, book: Book, scratch: Scratch, items: KernelItems, i: Int) -> bool:
    """Apply a visit (docs/reference/ledger.md). False if it does not count: a duplicate, or a forgotten page."""
    counts = book.counts[0]
    page, outcome, category, time_ms = items.page[i], items.outcome[i], items.category[i], items.time_ms[i]
    slot = find(table.id_index, table.id_index_old, table.hot, page)
    if slot < 0:
        slot = give_birth(table, book, page, 0 if category == NO_CATEGORY else category, 0.0, NOWHERE)
        if slot < 0:
            counts.refused_visits += 1
            items.fates[i] = _REFUSED
            return False
    elif collides(table, book, items, i, slot):
        return False
    keep_url(table, book, slot, items.url_bytes, items.url_starts[i], items.url_starts[i + 1])
    row = table.pages[slot]
    if time_ms != 0 and time_ms <= book.store[0].latest_ms < row.last_visit_ms:
        forget_last_time(table, book, slot)
    if time_ms != 0 and row.visits > 0:
        if time_ms == row.last_visit_ms:
            counts.duplicates += 1
            items.fates[i] = _DUPLICATE
            return False
        if time_ms < row.last_visit_ms:
            if is_recent(book, visit_key(page, time_ms)):
                counts.duplicates += 1
                items.fates[i] = _DUPLICATE
                return False
            counts.late += 1
            items.fates[i] = _LATE
    late = items.fates[i] == _LATE
    content_ms = table.refresh[table.refresh_row[slot]].content_ms
    before = observe(table, book, slot, outcome, time_ms, items.digest[i], items.modified_ms[i], late)
    if before != NO_CHANGE and items.changed.shape[0] != 0:
        items.changed[i, 0], items.changed[i, 1] = 1 + before, folded_digest(items.digest[i])
    refresh = table.refresh[table.refresh_row[slot]]
    if time_ms != 0:
        keep_visit(book, visit_key(page, time_ms))
    class_ = np.int64(row.class_)
    if category != NO_CATEGORY and (not late or class_ < 2 or refresh.content_ms != content_ms):
        class_ = 2 * np.int64(category) + (class_ & 1)
    change_class(table, book, slot, class_ | 1 if outcome < FAILED else class_)
    last_outcome = row.outcome
    keep_outcome(table, slot, outcome, time_ms, late)
    brings = (outcome == GONE or has_links(items, i)) and brings_links(refresh, time_ms)
    if brings:
        change_hop(table, book, slot, outcome == REDIRECTED)
    if book.modes[0].policy == P_CERTIFIED:
        pay_visit(table, book, scratch, items, i, slot, brings)
    else:
        spend_visit(table, book, scratch, items, i, slot, brings, last_outcome)
    return True


@inlined_kernel
def forget_last_time(table: Table, book: Book, slot: Int) -> None:
    """The page's last visit has a time that is not yet: a wrong clock made it. The latest possible time is the last."""
    refresh = table.refresh[own_row(table, book, slot)]
    table.pages[slot].last_visit_ms = forget_times_after(refresh, book.store[0].latest_ms)


@inlined_kernel
def keep_outcome(table: Table, slot: Int, outcome: Int, time_ms: Int, late: bool | np.bool_) -> None:
    """Keep the time of a visit, and its outcome if no visit of the page is later."""
    row = table.pages[slot]
    row.visits += 1
    if not late:
        row.outcome = outcome
    row.last_visit_ms = max(row.last_visit_ms, time_ms)


@lean_kernel
def apply_transfers(table: Table, book: Book, pages: Array, amounts: Array, first: Int) -> tuple[Int, Int]:
    """Credit cash from another shard, from row `first` on. Returns the row it stopped before, and why."""
    for i in range(first, pages.shape[0]):
        if not has_room(table, book, 1, 0, 0, 0):
            return i, NEEDS_ROOM
        look_up_early(table, pages, i)
        slot = find(table.id_index, table.id_index_old, table.hot, pages[i])
        if book.modes[0].policy == P_CERTIFIED:
            receive_payment(table, book, pages[i], slot, amounts[i])
        else:
            receive_cash(table, book, pages[i], slot, amounts[i])
    return pages.shape[0], DONE
