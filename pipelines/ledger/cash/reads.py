"""Rates, estimates and totals over the columns of a ledger; what was published is written, too."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.certified.importance_window import (
    certified_rate,
    keep_importance,
    window_importance,
)
from opicflow.pipelines.ledger.cash.certified.payments import waiting_payment
from opicflow.pipelines.ledger.cash.windows.dividends import cash_of, dividends_due, unread_cash
from opicflow.pipelines.ledger.cash.windows.history import rate_and_span
from opicflow.pipelines.ledger.estimates import Estimates
from opicflow.pipelines.ledger.pages.layout import P_CERTIFIED, SPENT, UNSETTLED_RECORD, Book, Table
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import lean_kernel

_SMALLEST_MOVE = 1e-300


@lean_kernel
def read_estimates(
    table: Table,
    book: Book,
    slots: Array,
    scale: float,
    per_rate: float,
    pages: Int,
    window_days: float,
    out: Estimates,
) -> None:
    """Fill the columns of `Estimates` for the pages at `slots`; rows of slot NOWHERE stay as they are, zero."""
    theta = book.clocks[0].theta
    certified = book.modes[0].policy == P_CERTIFIED
    for i in range(slots.shape[0]):
        slot = slots[i]
        if slot < 0:
            continue
        row = table.pages[slot]
        if certified:
            rate, span = certified_rate(table, slot, scale), np.inf
            cash = table.hot[slot, 1]
            waiting = waiting_payment(table, slot)
        else:
            rate, span = rate_and_span(table, book, slot, unread_cash(table, book, slot), theta)
            cash = cash_of(table.hot[slot, 1]) + dividends_due(table, book, slot)
            waiting = cash + row.aside
        importance = rate * per_rate
        out.rate[i] = rate
        out.importance[i] = importance
        out.score[i] = importance * pages
        out.window_importance[i] = window_importance(table, book, slot, importance) if certified else importance
        out.trend_per_day[i] = (importance - out.window_importance[i]) / window_days
        out.error_factor[i] = 1.0 / span
        out.cash[i] = cash
        out.waiting[i] = waiting
        out.visits[i] = row.visits
        out.last_visit_ms[i] = row.last_visit_ms
        out.last_outcome[i] = row.outcome
        out.measured[i] = certified or (row.flags & SPENT) != 0


@lean_kernel
def read_all_rates(table: Table, book: Book, scale: float, rates: Array) -> float:
    """The rate of every slot (0 for free ones), and their sum in slot order."""
    theta = book.clocks[0].theta
    certified = book.modes[0].policy == P_CERTIFIED
    total = 0.0
    for slot in range(book.counts[0].slots):
        if table.pages[slot].flags == 0:
            rates[slot] = 0.0
        elif certified:
            rates[slot] = certified_rate(table, slot, scale)
            total += rates[slot]
        else:
            rate, _ = rate_and_span(table, book, slot, unread_cash(table, book, slot), theta)
            rates[slot] = rate
            total += rate
    return total


@lean_kernel
def read_waiting(table: Table, book: Book, slots: Array, waiting: Array) -> None:
    """The waiting cash at these slots, -1 at free ones: what the page received since its last visit, spent or not."""
    for i in range(slots.shape[0]):
        slot = slots[i]
        row = table.pages[slot]
        if row.flags == 0:
            waiting[i] = -1
        elif book.modes[0].policy == P_CERTIFIED:
            waiting[i] = waiting_payment(table, slot)
        else:
            waiting[i] = cash_of(table.hot[slot, 1]) + dividends_due(table, book, slot) + row.aside


@lean_kernel
def read_movements(
    table: Table,
    rates: Array,
    per_rate: float,
    pages: Int,
    is_settled: bool,
    least: float,
    true_within: float,
    out: Array,
) -> Int:
    """Fill in how far the importance (rate * per_rate) of each mover is from its newest record; 0 for other pages.

    A mover is a page with a URL whose importance or score (importance * pages) has moved by more than the share
    `least`, which has no record, or whose record says that importance has not settled although it has. Returns the
    number of pages that are movers where the share is `true_within`, which is no more than `least`.
    """
    off = 0
    for slot in range(out.shape[0]):
        row = table.pages[slot]
        out[slot] = 0.0
        if row.flags != 0 and table.url_start[slot] != 0:
            importance = rates[slot] * per_rate
            moved = abs(importance - row.published_importance)
            score_moved = abs(importance * pages - row.published_score)
            is_old = is_settled and (row.flags & UNSETTLED_RECORD) != 0
            by, of_score = row.published_importance, row.published_score
            off += is_old or moved > true_within * by or score_moved > true_within * of_score
            if is_old or moved > least * by or score_moved > least * of_score:
                out[slot] = max(moved, score_moved / pages, _SMALLEST_MOVE)
    return off


@lean_kernel
def mark_published(table: Table, book: Book, slots: Array, importance: Array, scores: Array, is_settled: bool) -> None:
    """Keep what the records of these pages say, and update the windows of the pages."""
    for i in range(slots.shape[0]):
        if slots[i] >= 0:
            row = table.pages[slots[i]]
            row.published_importance = importance[i]
            row.published_score = scores[i]
            if is_settled:
                row.flags &= ~UNSETTLED_RECORD
            else:
                row.flags |= UNSETTLED_RECORD
            if book.modes[0].policy == P_CERTIFIED:
                keep_importance(table, book, slots[i], importance[i])
