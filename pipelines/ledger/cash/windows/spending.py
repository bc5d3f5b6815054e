"""Cash in motion under the history policies with a window: spending, paying along links, the round.

These kernels change one page at a time and keep the conservation law at every step:

    minted == cash + uncollected dividends + virtual + absorbed + sent - received
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.amounts import damped, put_in_outbox
from opicflow.pipelines.ledger.cash.births import has_links, learn_linked, learn_page
from opicflow.pipelines.ledger.cash.windows.dividends import ONE_READ, cash_of, collect, credit, pay_virtual
from opicflow.pipelines.ledger.cash.windows.history import keep, rate_and_span
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.entries import KernelItems
from opicflow.pipelines.ledger.pages.layout import (
    ALIASED,
    BLOCKED,
    BUSY,
    CIRCULATED,
    ELSEWHERE,
    FAILED,
    GONE,
    HOP,
    LINKS_KNOWN,
    NOWHERE,
    P_ABSORBING,
    P_ALL,
    SPENT,
    UNCHANGED,
    Book,
    Scratch,
    Table,
)
from opicflow.pipelines.ledger.pages.links import find_slots, forget_links, gather_links, recall_links, remember_links
from opicflow.schemas.arrays import Int
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
    table: Table,
    book: Book,
    scratch: Scratch,
    slot: Int,
    amount: Int,
    links: Int,
    fresh: bool | np.bool_,
    refund: Int,
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
def note_visit(book: Book) -> None:
    """The first reads of before fade by one visit: `first_reads` is about those of the last pages / 16 visits."""
    counts = book.counts[0]
    fading = counts.first_reads // max(counts.pages >> 4, 1)
    counts.first_reads -= fading + 1 if counts.first_reads > 0 else fading


@inlined_kernel
def reaches_unread(book: Book) -> bool | np.bool_:
    """Whether the crawl is on its way to all unread pages: at its present pace it reads them within eight passes."""
    unread = np.int64(0)
    for class_ in range(0, book.class_pages.shape[0], 2):
        unread += book.class_pages[class_]
    return book.counts[0].first_reads * (8 * 16) >= unread * ONE_READ


@inlined_kernel
def pass_cursor(table: Table, book: Book, scratch: Scratch) -> None:
    """The round moves on by one slot. A page that cannot spend by itself, and has not since the last pass, spends now.

    A page that was never tried does not while the crawl is on its way to it. The cash that the round takes still counts
    as the page's waiting cash, by which crawls choose.
    """
    counts = book.counts[0]
    slot = counts.cursor if counts.cursor < counts.slots else 0
    counts.cursor = slot + 1
    note_visit(book)
    row = table.pages[slot]
    if row.flags == 0:
        return
    if (row.flags & CIRCULATED) != 0:
        row.flags &= ~CIRCULATED
        return
    links_known = (row.flags & LINKS_KNOWN) != 0
    if links_known and book.modes[0].remember == 0:
        return
    if row.visits == 0 and reaches_unread(book):
        return
    collect(table, book, slot)
    amount = spend(table, book, slot)
    row.aside += amount
    if links_known:
        pay_links(table, book, scratch, slot, amount, recall_links(table, book, scratch, slot), False, 0)
    else:
        pay_dangling(book, amount)


@lean_kernel
def spend_visit(
    table: Table,
    book: Book,
    scratch: Scratch,
    items: KernelItems,
    i: Int,
    slot: Int,
    brings_links: bool | np.bool_,
    last_outcome: Int,
) -> None:
    """A page that was visited spends its cash along the links that it has now. Failures may only end its wait.

    These are the links of the visit if it `brings_links`; if older ones are not remembered, those of any visit.
    """
    collect(table, book, slot)
    row, outcome = table.pages[slot], items.outcome[i]
    had_links = (row.flags & LINKS_KNOWN) != 0
    failed_before = last_outcome in (FAILED, BUSY)
    is_late = 0 < items.time_ms[i] < row.last_visit_ms

    remembers = book.modes[0].remember != 0 and had_links
    pays: Int = np.int64(-1)  # the number of links to pay along; -1: the visit moves nothing by itself
    found_links = has_links(items, i)
    is_fresh = found_links and (brings_links or book.modes[0].remember == 0)
    if found_links and not is_fresh:
        learn_linked(table, book, scratch, slot, gather_links(book, scratch, items, i))
    if brings_links and outcome == GONE:
        row.flags &= ~LINKS_KNOWN
        forget_links(table, book, slot)
        pays = 0
    elif is_fresh:
        if brings_links:
            row.flags |= LINKS_KNOWN
        pays = gather_links(book, scratch, items, i)
    elif remembers and (outcome == UNCHANGED or found_links):
        pays = recall_links(table, book, scratch, slot)
    elif not (remembers or is_late) and (
        outcome == BLOCKED or (outcome >= FAILED and failed_before) or outcome <= ALIASED
    ):
        row.flags &= ~LINKS_KNOWN  # its links are out of reach: its cash must not wait for them

    if pays < 0:
        row.aside = -cash_of(table.hot[slot, 1])
        return
    is_hop = row.seen == HOP
    # The round took the votes of a page that becomes a hop, too: it gets no refund.
    refund = refund_due(book, row.aside) if brings_links and not (had_links or is_hop) else np.int64(0)
    minted = UNITS_PER_PAGE if is_hop and (row.flags & SPENT) == 0 else 0
    amount = spend(table, book, slot) - minted
    if minted > 0:  # a hop passes on its income, not the units minted with it
        pay_dangling(book, minted)
    row.aside = 0
    row.flags |= CIRCULATED
    if pays == 0:
        pay_dangling(book, amount)
    else:
        pay_links(table, book, scratch, slot, amount, pays, is_fresh, refund)
    if is_fresh and book.modes[0].remember != 0:
        remember_links(table, book, scratch, slot, pays)


@inlined_kernel
def receive_cash(table: Table, book: Book, page: Int, slot: Int, amount: Int) -> None:
    """A page receives cash from another shard; its slot is below 0 if it is not known."""
    if slot < 0:
        slot = learn_page(table, book, page, 0, 0.0, NOWHERE, False)
    if slot < 0:
        book.counts[0].virtual += amount
    else:
        credit(table, book, slot, amount)
