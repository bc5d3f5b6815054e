"""Cash in motion: births, collecting, spending, paying along links, the round, the virtual page's dividends.

These kernels change one page at a time and keep the conservation law at every step:

    minted == cash + uncollected dividends + virtual + absorbed + sent - received
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.certified import (
    base_of,
    change_base,
    change_limited_base,
    damped,
    has_room_to_pay,
    lose,
    page_base,
    pays,
    put_in_outbox,
    regain,
    take_back,
)
from opicflow.pipelines.ledger.cash.history import keep, keep_newcomer, rate_and_span
from opicflow.pipelines.ledger.config import MOST_CASH, UNITS_PER_PAGE
from opicflow.pipelines.ledger.pages.domain_counts import (
    count_unread,
    give_base_back,
    has_limits,
    may_be_born,
    take_base,
)
from opicflow.pipelines.ledger.pages.index import find, insert, remove
from opicflow.pipelines.ledger.pages.layout import (
    CIRCULATED,
    ELSEWHERE,
    LINKS_KNOWN,
    LIVE,
    NOWHERE,
    P_ABSORBING,
    P_ALL,
    P_CERTIFIED,
    SPENT,
    Book,
    Bool,
    Float,
    Int,
    Scratch,
    Table,
)
from opicflow.pipelines.ledger.pages.links import find_slots, forget_links, links_of, recall_links
from opicflow.pipelines.ledger.pages.numbers import absent_row, add_absent, give_number, keep_number
from opicflow.pipelines.ledger.pages.observations import be_born_unseen, set_share
from opicflow.schemas.arrays import Array
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_MOST = np.int64(0x7FFFFFFFFFFFFFFF)


@inlined_kernel
def advance_clock(book: Book, amount: Int) -> None:
    """G grows by `amount`, the turn clock by amount / minted everywhere; the remainder is carried."""
    counts = book.counts[0]
    if counts.clock > _MOST - amount:
        counts.broken = 1
        return
    counts.clock += amount
    minted = counts.minted_everywhere
    whole = amount // minted
    rest = amount - whole * minted
    # rest < minted, so rest << step stays below 2^63 where minted < 2^(63 - step)
    step = 1
    if minted < 1 << 43:
        step = 20
    elif minted < 1 << 49:
        step = 14
    elif minted < 1 << 55:
        step = 8
    fraction = np.int64(0)
    left = 40
    while left > 0:
        bits = min(step, left)
        rest <<= bits
        digit = rest // minted
        rest -= digit * minted
        fraction = (fraction << bits) | digit
        left -= bits
    rest += counts.theta_carry
    if rest >= minted:  # often by little; by much after gossip lowered the estimate of all minted cash
        fraction += rest // minted
        rest %= minted
    counts.theta_carry = rest
    advance = (np.uint64(whole) << np.uint64(40)) + np.uint64(fraction)
    book.clocks[0].theta += advance
    book.clocks[0].own_advance += advance


@inlined_kernel
def cash_of(raw: Int) -> Int:
    """The cash in a row of `hot`: a page that has had no transfer yet holds it inverted."""
    return raw if raw >= 0 else ~raw


@lean_kernel
def newcomer_rate(book: Book) -> Float:
    """The expected earnings per turn of a page without a known parent: its part of the virtual page's income."""
    if book.counts[0].clock == 0:
        return 1.0 - book.rules[0].damping
    return np.float64(book.counts[0].virtual_income) / np.float64(book.counts[0].clock)


@lean_kernel
def is_forgotten(book: Book, page: Int) -> Bool:
    """Whether a page was forgotten and must not be learnt again yet."""
    forgotten = book.forgotten
    low, high = 0, forgotten.shape[0]
    while low < high:
        middle = (low + high) // 2
        if forgotten[middle] < page:
            low = middle + 1
        else:
            high = middle
    return low < forgotten.shape[0] and forgotten[low] == page


@lean_kernel
def give_birth(table: Table, book: Book, page: Int, category: Int, parent_rate: Float, finder: Int) -> Int:
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
    table.hot[slot, 1] = ~np.int64(UNITS_PER_PAGE)
    row = table.pages[slot]
    row.seen = book.dividends[class_]
    row.opening = UNITS_PER_PAGE
    row.aside = 0
    row.last_visit_ms = 0
    row.theta = book.clocks[0].theta
    row.visits = 0
    row.published = 0.0
    row.class_ = class_
    row.flags = LIVE | CIRCULATED  # the crawl has one round's time to read it before the round spends for it
    row.outcome = 0
    row.measures = 0
    absent = absent_row(book, page)
    if book.modes[0].policy == P_CERTIFIED:
        base = base_of(book, class_)
        row.opening = 0
        table.window[slot, 0] = table.window[slot, 1] = 0.0
        if has_limits(book):
            base = take_base(book, page, base)
            row.opening = base
        table.hot[slot, 1] = 0
        table.totals[slot] = base + regain(book, absent)
        book.sums[0].bases += base
        book.sums[0].paid += table.totals[slot]
    else:
        counts.openings += UNITS_PER_PAGE
        rate = -1.0
        if book.rules[0].newcomers != 0.0:
            rate = newcomer_rate(book) + parent_rate
        keep_newcomer(table, book, slot, rate, book.clocks[0].theta)
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
    table: Table, book: Book, page: Int, category: Int, parent_rate: Float, finder: Int, announced: Bool
) -> Int:
    """Enter an unread page as `give_birth` does, if its domain may have another one; return NOWHERE if not."""
    if not may_be_born(book, page, announced):
        return NOWHERE
    return give_birth(table, book, page, category, parent_rate, finder)


@inlined_kernel
def announce(table: Table, book: Book, slot: Int) -> None:
    """A page that was announced earns from its first transfer on: that one is no part of its opening balance."""
    if book.modes[0].policy != P_CERTIFIED:
        table.hot[slot, 1] = cash_of(table.hot[slot, 1])


@inlined_kernel
def credit(table: Table, book: Book, slot: Int, amount: Int) -> None:
    """Credit a transfer. The first one before a page spends is part of its opening balance."""
    raw = table.hot[slot, 1]
    if raw >= 0:
        table.hot[slot, 1] = raw + amount
    elif amount > 0:
        table.hot[slot, 1] = ~raw + amount
        table.pages[slot].opening += amount
        book.counts[0].openings += amount


@inlined_kernel
def collect(table: Table, book: Book, slot: Int) -> None:
    """Add a page's uncollected dividends to its cash."""
    row = table.pages[slot]
    total = book.dividends[row.class_]
    due = total - row.seen
    if due != 0:
        row.seen = total
        book.counts[0].uncollected -= due
        raw = table.hot[slot, 1]
        table.hot[slot, 1] = raw + due if raw >= 0 else raw - due  # ~(cash + due)


@inlined_kernel
def change_class(table: Table, book: Book, slot: Int, class_: Int) -> None:
    """Move a page that has just collected to another class, and to the dividends of that class."""
    row = table.pages[slot]
    old = np.int64(row.class_)
    if old == class_:
        return
    book.class_pages[old] -= 1
    book.class_pages[class_] += 1
    book.counts[0].weighted_pages += book.class_weights[class_] - book.class_weights[old]
    row.class_ = class_
    row.seen = book.dividends[class_]
    was_unread = (old & 1) == 0
    if was_unread and (class_ & 1) != 0:
        count_unread(book, table.hot[slot, 0], -1)
    if book.modes[0].policy == P_CERTIFIED:
        if has_limits(book):
            change_limited_base(table, book, slot, was_unread, base_of(book, class_))
        else:
            change_base(table, book, slot, base_of(book, old), base_of(book, class_))


@inlined_kernel
def spend(table: Table, book: Book, slot: Int) -> Int:
    """Take all cash of a page that has just collected; the clock and its history advance. Returns the amount."""
    counts = book.counts[0]
    row = table.pages[slot]
    amount = cash_of(table.hot[slot, 1])
    table.hot[slot, 1] = 0
    advance_clock(book, amount)
    earned = amount
    if (row.flags & SPENT) == 0:
        earned -= row.opening
        counts.openings -= row.opening
    theta = book.clocks[0].theta
    keep(table, book, slot, earned, amount, theta)
    policy = book.modes[0].policy
    if policy == P_ALL:
        counts.earned += earned
    elif policy == P_ABSORBING:
        counts.earned += amount
    row.theta = theta
    row.flags |= SPENT
    return amount


@inlined_kernel
def pay_virtual(book: Book, amount: Int) -> None:
    """Cash goes to this shard's account of the virtual page."""
    book.counts[0].virtual += amount
    book.counts[0].virtual_income += amount


@inlined_kernel
def pay_dangling(book: Book, amount: Int) -> None:
    """A page without links pays everything to the virtual page; under absorbing, all but the small edge."""
    if book.modes[0].policy == P_ABSORBING:
        kept = damped(amount, book.modes[0].damping_q20)
        pay_virtual(book, kept)
        book.counts[0].absorbed += amount - kept
    else:
        pay_virtual(book, amount)


@inlined_kernel
def refund_due(book: Book, aside: Int) -> Int:
    """The refund to a page whose links have become known, out of the cash `aside` that the round took.

    The part that belongs to the links: the small edge was rightly paid. The account may be overdrawn for this, by so
    much that it has its own back within a few turns.
    """
    limit = book.counts[0].minted // (1 if book.modes[0].policy == P_ABSORBING else 4)
    return max(min(damped(max(aside, 0), book.modes[0].damping_q20), book.counts[0].virtual + limit), 0)


@inlined_kernel
def pay_links(
    table: Table, book: Book, scratch: Scratch, slot: Int, amount: Int, links: Int, fresh: Bool, refund: Int
) -> None:
    """Pay `amount` along the first `links` links in `scratch`, the small edge and all remainders to the virtual page.

    Links of a visit (`fresh`) bring unknown pages into the ledger; remembered ones, whose slots are known, do not: a
    page that was dropped is not born again by a memory, its share goes to the virtual page. `refund` comes from the
    virtual account.
    """
    total = np.int64(0)
    for i in range(links):
        total += scratch.weights[i]
    if total == 0:
        pay_dangling(book, amount)
        return
    pages, weights, slots = scratch.pages, scratch.weights, scratch.slots
    if fresh and find_slots(table, book, scratch, links):
        rate, _ = rate_and_span(table, book, slot, 0, book.clocks[0].theta)
        rate *= book.rules[0].damping / np.float64(total)
        for i in range(links):
            if slots[i] == NOWHERE:
                category = scratch.categories[i]
                earned = rate * np.float64(weights[i])
                slots[i] = learn_page(table, book, pages[i], 0 if category == 255 else category, earned, slot, False)
    pay_virtual(book, -refund)
    out = damped(amount, book.modes[0].damping_q20) + refund
    paid = np.int64(0)
    per_weight, rest = out // total, out % total
    weight, share = np.int64(-1), np.int64(0)
    for i in range(links):
        if weights[i] != weight:
            weight = weights[i]
            share = per_weight * weight + rest * weight // total
        if slots[i] >= 0:
            credit(table, book, slots[i], share)
            paid += share
        elif slots[i] == ELSEWHERE:
            send(book, pages[i], share)
            paid += share
    if book.modes[0].policy == P_ABSORBING:
        book.counts[0].absorbed += amount + refund - out
        pay_virtual(book, out - paid)
    else:
        pay_virtual(book, amount + refund - paid)
    book.counts[0].transfers += links
    if fresh and book.modes[0].bonus != 0:
        pay_bonus(table, book, scratch, out, links, total)


@lean_kernel
def pay_bonus(table: Table, book: Book, scratch: Scratch, out: Int, links: Int, total: Int) -> None:
    """Links to pages of a focus class carry a bonus, taken from the virtual account while it lasts."""
    for i in range(links):
        category = scratch.categories[i]
        if category == 255 or book.link_bonus[category] == 0 or scratch.slots[i] == NOWHERE:
            continue
        extra = (out >> 10) * book.link_bonus[category] + (((out & 1023) * book.link_bonus[category]) >> 10)
        weight = scratch.weights[i]
        bonus = min(extra // total * weight + extra % total * weight // total, max(book.counts[0].virtual, 0))
        book.counts[0].virtual -= bonus
        if scratch.slots[i] == ELSEWHERE:
            send(book, scratch.pages[i], bonus)
        else:
            credit(table, book, scratch.slots[i], bonus)


@inlined_kernel
def send(book: Book, page: Int, amount: Int) -> None:
    """Cash leaves for a page of another shard: it waits in the outbox for the next cut."""
    if amount > 0:
        put_in_outbox(book, page, amount)
        book.counts[0].sent += amount


@inlined_kernel
def pass_cursor(table: Table, book: Book, scratch: Scratch) -> None:
    """The round moves on by one slot. A page that cannot spend by itself, and has not since the last pass, spends now.

    The cash it takes still counts as the page's waiting cash, by which crawls choose.
    """
    counts = book.counts[0]
    slot = counts.cursor if counts.cursor < counts.slots else 0
    counts.cursor = slot + 1
    row = table.pages[slot]
    if row.flags == 0:
        return
    if (row.flags & CIRCULATED) != 0:
        row.flags &= ~CIRCULATED
        return
    links_known = (row.flags & LINKS_KNOWN) != 0
    if links_known and book.modes[0].remember == 0:
        return
    collect(table, book, slot)
    amount = spend(table, book, slot)
    row.aside += amount
    counts.round_spends += 1
    if links_known:
        pay_links(table, book, scratch, slot, amount, recall_links(table, book, scratch, slot), False, 0)
    else:
        pay_dangling(book, amount)


@lean_kernel
def declare_dividend(book: Book, amount: Int) -> Int:
    """Pay `amount` to every page by the weight of its class: O(1) for any number of pages. Returns the rest."""
    counts = book.counts[0]
    weighted = counts.weighted_pages
    if weighted <= 0 or amount < weighted:
        return amount
    quotient = amount // weighted
    for class_ in range(book.dividends.shape[0]):
        book.dividends[class_] += quotient * book.class_weights[class_]
    counts.uncollected += quotient * weighted
    return amount - quotient * weighted


@lean_kernel
def drop_certified(table: Table, book: Book, scratch: Scratch, slot: Int) -> None:
    """A page takes back its payments and its base. What links carry to it is kept for when it is learnt again."""
    sums = book.sums[0]
    if pays(table, slot):
        take_back(table, book, scratch, slot)
        sums.links -= links_of(table, slot)
    base = page_base(table, book, slot)
    if has_limits(book) and (table.pages[slot].class_ & 1) == 0:
        give_base_back(book, table.hot[slot, 0], base)
    paid = table.totals[slot]
    lose(book, add_absent(book, table.hot[slot, 0]), paid - base)
    sums.bases -= base
    sums.paid -= paid
    table.totals[slot] = 0


@lean_kernel
def drop_pages(table: Table, book: Book, scratch: Scratch, pages: Array, first: Int) -> Int:
    """Remove pages from row `first` on; unknown ones are skipped. Returns the row that it has no room for.

    The index is not growing, and there is room for free slots, page numbers and absent pages.
    """
    for i in range(first, pages.shape[0]):
        if not has_room_to_pay(book, book.modes[0].longest):
            return i
        slot = find(table.id_index, table.id_index_old, table.hot, pages[i])
        if slot >= 0:
            remove(table.id_index, table.hot, pages[i])
            drop_page(table, book, scratch, slot)
            book.counts[0].dropped += 1
    return pages.shape[0]


@lean_kernel
def drop_page(table: Table, book: Book, scratch: Scratch, slot: Int) -> None:
    """Remove a page. Its cash goes to the virtual page; the cash minted at its birth stays.

    The caller has taken it out of the index.
    """
    counts = book.counts[0]
    row = table.pages[slot]
    policy = book.modes[0].policy
    if policy == P_CERTIFIED:
        drop_certified(table, book, scratch, slot)
    else:
        collect(table, book, slot)
        counts.virtual += cash_of(table.hot[slot, 1])
        if (row.flags & SPENT) == 0:
            counts.openings -= row.opening
    if policy in (P_ALL, P_ABSORBING):
        counts.earned -= table.totals[slot]
        table.totals[slot] = 0
    forget_links(table, book, slot)
    if book.modes[0].remember != 0:
        keep_number(table, book, slot)
    set_share(table, book, slot, 0.0)
    be_born_unseen(table, slot)
    class_ = np.int64(row.class_)
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
