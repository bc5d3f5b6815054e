"""Pages come, change their class, and go: what every history policy does, and where the two kinds part.

Under `certified` a page begins and ends payments; under the other history policies it begins and ends spending.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.certified.payments import (
    begin_payments,
    end_payments,
    has_room_to_pay,
    renew_base,
)
from opicflow.pipelines.ledger.cash.windows.dividends import (
    ONE_READ,
    begin_spending,
    change_dividends,
    collect,
    end_spending,
)
from opicflow.pipelines.ledger.config import MOST_CASH, UNITS_PER_PAGE
from opicflow.pipelines.ledger.entries import NO_CATEGORY, KernelItems
from opicflow.pipelines.ledger.pages.domain_counts import count_unread, may_be_born
from opicflow.pipelines.ledger.pages.index import find, insert, remove
from opicflow.pipelines.ledger.pages.layout import (
    CIRCULATED,
    FAILED,
    GONE,
    HOP,
    LIVE,
    NOWHERE,
    P_CERTIFIED,
    Book,
    Scratch,
    Table,
)
from opicflow.pipelines.ledger.pages.links import find_slots, forget_links
from opicflow.pipelines.ledger.pages.numbers import absent_row, give_number, keep_number
from opicflow.pipelines.ledger.pages.observations import be_born_unseen, set_share
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.hashing import find_number
from opicflow.schemas.kernel import inlined_kernel, lean_kernel


@lean_kernel
def is_forgotten(book: Book, page: Int) -> bool:
    """Whether a page was forgotten and must not be learnt again yet."""
    return bool(find_number(book.forgotten, page) >= 0)


@lean_kernel
def give_birth(table: Table, book: Book, page: Int, category: Int, parent_rate: float, finder: Int) -> Int:
    """A page enters the ledger with newly minted cash. `parent_rate` is what its first link adds to its default rate.

    `finder` is the slot of the page with that link, or NOWHERE.
    Returns its slot, or NOWHERE if it is never to be learnt again. The caller has seen to room.
    """
    counts = book.counts[0]
    if book.forgotten.shape[0] > 0 and is_forgotten(book, page):
        return NOWHERE
    if counts.free > 0:
        counts.free -= 1
        slot = table.free[counts.free]
    else:
        slot = counts.slots
        counts.slots += 1
    class_ = 2 * category
    table.hot[slot, 0] = page
    row = table.pages[slot]
    row.aside = 0
    row.last_visit_ms = 0
    row.theta = book.clocks[0].theta
    row.visits = 0
    row.published_importance = 0.0
    row.published_score = 0.0
    row.class_ = class_
    row.flags = LIVE | CIRCULATED  # the crawl has one round's time to read it before the round spends for it
    row.outcome = 0
    row.measures = 0
    absent = absent_row(book, page)
    if book.modes[0].policy == P_CERTIFIED:
        begin_payments(table, book, slot, absent)
    else:
        begin_spending(table, book, slot, parent_rate)
    be_born_unseen(table, slot)
    table.url_start[slot] = 0
    if table.found_by.shape[0] > 0:
        table.found_by[slot] = 1 + finder
    if book.modes[0].remember != 0:
        table.link_start[slot] = 0
        table.link_count[slot] = 0
        give_number(table, book, slot, absent)
    insert(table.id_index, page, slot)
    counts.pages += 1
    counts.births += 1
    counts.minted += UNITS_PER_PAGE
    counts.minted_everywhere = min(counts.minted_everywhere + UNITS_PER_PAGE * book.modes[0].like_us, MOST_CASH)
    counts.weighted_pages += book.class_weights[class_]
    book.class_pages[class_] += 1
    count_unread(book, page, 1)
    return slot


@lean_kernel
def learn_page(
    table: Table, book: Book, page: Int, category: Int, parent_rate: float, finder: Int, announced: bool
) -> Int:
    """Enter an unread page as `give_birth` does, if its domain may have another one; return NOWHERE if not."""
    if not may_be_born(book, page, announced):
        return NOWHERE
    return give_birth(table, book, page, category, parent_rate, finder)


@inlined_kernel
def has_links(items: KernelItems, i: Int) -> bool | np.bool_:
    """Whether row i is a visit whose links are known."""
    return items.links_known[i] != 0 and items.outcome[i] < FAILED and items.outcome[i] != GONE


@inlined_kernel
def learn_linked(table: Table, book: Book, scratch: Scratch, slot: Int, links: Int) -> None:
    """Find the slots of the first `links` links in `scratch`, of a visit of the page at `slot`, and enter new pages."""
    if not find_slots(table, book, scratch, links):
        return
    for j in range(links):
        if scratch.slots[j] == NOWHERE:
            category = scratch.categories[j]
            known_category = np.int64(0) if category == NO_CATEGORY else np.int64(category)
            scratch.slots[j] = learn_page(table, book, scratch.pages[j], known_category, 0.0, slot, False)


@inlined_kernel
def change_class(table: Table, book: Book, slot: Int, class_: Int) -> None:
    """Move a page to another class, with all that follows from its class."""
    row = table.pages[slot]
    old = np.int64(row.class_)
    if old == class_:
        return
    if row.seen == HOP:  # it was read, and stays so
        row.class_ = class_
        return
    book.class_pages[old] -= 1
    book.class_pages[class_] += 1
    book.counts[0].weighted_pages += book.class_weights[class_] - book.class_weights[old]
    was_unread = (old & 1) == 0
    if book.modes[0].policy != P_CERTIFIED:
        collect(table, book, slot)
        row.seen = book.dividends[class_]
        if was_unread and (class_ & 1) != 0:
            book.counts[0].first_reads += ONE_READ
    row.class_ = class_
    if was_unread and (class_ & 1) != 0:
        count_unread(book, table.hot[slot, 0], -1)
    if book.modes[0].policy == P_CERTIFIED:
        renew_base(table, book, slot, was_unread)


@inlined_kernel
def change_hop(table: Table, book: Book, slot: Int, is_hop: bool | np.bool_) -> None:
    """A page has other links: it is a hop from now on if they are those of a redirect, and no hop if not.

    A visit has one vote, that of the page that answered. So a hop has no base and no dividends.
    """
    row = table.pages[slot]
    if (row.seen == HOP) == is_hop:
        return
    pages = -1 if is_hop else 1
    book.class_pages[row.class_] += pages
    book.counts[0].weighted_pages += pages * book.class_weights[row.class_]
    if book.modes[0].policy == P_CERTIFIED:
        row.seen = HOP if is_hop else np.int64(0)
        renew_base(table, book, slot, False)
    else:
        change_dividends(table, book, slot, is_hop)


@lean_kernel
def drop_pages(table: Table, book: Book, pages: Array, first: Int) -> Int:
    """Remove pages from row `first` on; unknown ones are skipped. Returns the row that it has no room for.

    The index is not growing, and there is room for free slots, page numbers and absent pages.
    """
    for i in range(first, pages.shape[0]):
        if not has_room_to_pay(book, book.modes[0].longest):
            return i
        slot = find(table.id_index, table.id_index_old, table.hot, pages[i])
        if slot >= 0:
            remove(table.id_index, table.hot, pages[i])
            drop_page(table, book, slot)
            book.counts[0].dropped += 1
    return pages.shape[0]


@lean_kernel
def drop_page(table: Table, book: Book, slot: Int) -> None:
    """Remove a page, which the caller has taken out of the index."""
    counts = book.counts[0]
    row = table.pages[slot]
    if book.modes[0].policy == P_CERTIFIED:
        end_payments(table, book, slot)
    else:
        end_spending(table, book, slot)
    forget_links(table, book, slot)
    if book.modes[0].remember != 0:
        keep_number(table, book, slot)
    set_share(table, book, slot, 0.0)
    be_born_unseen(table, slot)
    class_ = np.int64(row.class_)
    if row.seen != HOP:
        book.class_pages[class_] -= 1
        counts.weighted_pages -= book.class_weights[class_]
    if (class_ & 1) == 0:
        count_unread(book, table.hot[slot, 0], -1)
    row.flags = 0
    table.hot[slot, 0] = 0
    table.hot[slot, 1] = 0
    start = table.url_start[slot]
    if start != 0:
        counts.url_stale += 2 + np.int64(book.urls[start - 1]) + (np.int64(book.urls[start]) << 8)
    table.url_start[slot] = 0
    table.free[counts.free] = slot
    counts.free += 1
    counts.pages -= 1
