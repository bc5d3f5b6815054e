"""The cash of a page that spends: its opening balance, credits, and its part of the virtual page's dividends."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.windows.history import keep_newcomer
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.pages.layout import HOP, P_ABSORBING, P_ALL, SPENT, Book, Table
from opicflow.schemas.arrays import Array, Int, Ints
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

ONE_READ = 1 << 16
"""A page in `first_reads`, which holds fractions of pages."""


@inlined_kernel
def cash_of(raw: Int) -> Int:
    """The cash in a row of `hot`: a page that has had no transfer yet holds it inverted."""
    return raw if raw >= 0 else ~raw


@inlined_kernel
def dividends_due(table: Table, book: Book, slot: Int) -> Int:
    """The dividends that a page has not collected. A hop has none."""
    row = table.pages[slot]
    return np.int64(0) if row.seen == HOP else book.dividends[row.class_] - row.seen


def all_dividends_due(rows: Array, book: Book) -> Ints:
    """The dividends that rows of `Table.pages` have not collected."""
    due: Ints = np.where(rows["seen"] == HOP, 0, book.dividends[rows["class_"]] - rows["seen"])
    return due


@inlined_kernel
def unread_cash(table: Table, book: Book, slot: Int) -> Int:
    """The cash that a page has not spent, dividends included; the opening balance only where its policy counts it."""
    row = table.pages[slot]
    unread = cash_of(table.hot[slot, 1]) + dividends_due(table, book, slot)
    if (row.flags & SPENT) == 0 and book.modes[0].policy != P_ABSORBING:
        unread -= row.opening
    return unread


@lean_kernel
def newcomer_rate(book: Book) -> float:
    """The expected earnings per turn of a page without a known parent: its part of the virtual page's income."""
    if book.counts[0].clock == 0:
        return 1.0 - book.rules[0].damping
    return np.float64(book.counts[0].virtual_income) / np.float64(book.counts[0].clock)


@inlined_kernel
def collect(table: Table, book: Book, slot: Int) -> None:
    """Add a page's uncollected dividends to its cash."""
    due = dividends_due(table, book, slot)
    if due != 0:
        table.pages[slot].seen += due
        book.counts[0].uncollected -= due
        raw = table.hot[slot, 1]
        table.hot[slot, 1] = raw + due if raw >= 0 else raw - due  # ~(cash + due)


@inlined_kernel
def change_dividends(table: Table, book: Book, slot: Int, is_hop: bool | np.bool_) -> None:
    """A page that becomes a hop has no part of dividends from now on, and no default history; others have both."""
    row = table.pages[slot]
    collect(table, book, slot)
    row.seen = HOP if is_hop else book.dividends[row.class_]
    if is_hop and (row.flags & SPENT) == 0:
        keep_newcomer(table, book, slot, 0.0 if book.rules[0].newcomers != 0.0 else -1.0, row.theta)


@inlined_kernel
def begin_spending(table: Table, book: Book, slot: Int, parent_rate: float) -> None:
    """A page is born: all that it has is its opening balance. Its history begins with the default rate.

    `parent_rate` is what its first link adds to that.
    """
    row = table.pages[slot]
    book.counts[0].first_reads -= ONE_READ
    row.seen = book.dividends[row.class_]
    row.opening = UNITS_PER_PAGE
    table.hot[slot, 1] = ~np.int64(UNITS_PER_PAGE)
    book.counts[0].openings += UNITS_PER_PAGE
    rate = -1.0
    if book.rules[0].newcomers != 0.0:
        rate = newcomer_rate(book) + parent_rate
    keep_newcomer(table, book, slot, rate, book.clocks[0].theta)


@inlined_kernel
def end_spending(table: Table, book: Book, slot: Int) -> None:
    """A page is removed. Its cash goes to the virtual page; the cash minted at its birth stays."""
    counts, row = book.counts[0], table.pages[slot]
    collect(table, book, slot)
    counts.virtual += cash_of(table.hot[slot, 1])
    if (row.flags & SPENT) == 0:
        counts.openings -= row.opening
    policy = book.modes[0].policy
    if policy in (P_ALL, P_ABSORBING):
        counts.earned -= table.totals[slot]
        table.totals[slot] = 0


@inlined_kernel
def announce(table: Table, slot: Int) -> None:
    """A page that was announced earns from its first transfer on: that one is no part of its opening balance."""
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
def pay_virtual(book: Book, amount: Int) -> None:
    """Cash goes to this shard's account of the virtual page."""
    book.counts[0].virtual += amount
    book.counts[0].virtual_income += amount


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
