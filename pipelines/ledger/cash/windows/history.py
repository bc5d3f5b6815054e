"""The history policies (docs/reference/ledger.md): the measures that a page keeps, and the rate read from them.

A *measure* is what a page earned at one spending and the turn clock at that moment. A rate is in pages' worth of cash
a turn: the average page's is near 1. `keep` is called when a page spends, `rate_and_span` may be called at any moment.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.pages.layout import (
    P_ABSORBING,
    P_ALL,
    P_FIXED,
    P_INTERPOLATION,
    P_PAPER,
    SPENT,
    Book,
    Table,
)
from opicflow.schemas.arrays import Array, Int
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_PER_TURN = 1.0 / float(1 << 40)
_PER_UNIT = 1.0 / float(UNITS_PER_PAGE)
ONE_TURN = np.uint64(1 << 40)


@inlined_kernel
def turns(later: Int, earlier: Int) -> float:
    """The turns between two readings of the turn clock, modulo its size."""
    return np.float64(np.uint64(later - earlier)) * _PER_TURN


@inlined_kernel
def early_window(book: Book) -> float:
    """The window, shorter while the ledger is young: the history of its first turns is worse than none."""
    return min(book.rules[0].window, max(0.5 * turns(book.clocks[0].theta, book.clocks[0].theta_start), 4.0))


@inlined_kernel
def interpolate(rate: float, span: float, cash: float, gap: float, window: float, gaps: float) -> tuple[float, float]:
    """A rate over a span, and `cash` that came in over the `gap` after it, as a rate over a span."""
    new_span = max(gap, min(span + gap, max(window, gaps * gap)))
    if new_span <= 0.0:
        return rate, 0.0
    return rate * (1.0 - gap / new_span) + cash / new_span, new_span


@inlined_kernel
def interpolate_paper(held: float, cash: float, gap: float, window: float) -> float:
    """The paper's interpolation (figure 1): the cash received over the last window."""
    if gap < window:
        return held * (window - gap) / window + cash
    return cash * window / gap if gap > 0.0 else 0.0


@inlined_kernel
def keep(table: Table, book: Book, slot: Int, earned: Int, amount: Int, theta: Int) -> None:
    """A page spends: `earned` without its opening balance, `amount` with it. Its own clock is not yet moved."""
    policy = book.modes[0].policy
    cash = np.float64(earned) * _PER_UNIT
    gap = turns(theta, table.pages[slot].theta)
    if policy == P_INTERPOLATION:
        rate, span = interpolate(
            np.float64(table.spans[slot, 0]),
            np.float64(table.spans[slot, 1]),
            cash,
            gap,
            early_window(book),
            book.rules[0].min_gaps,
        )
        table.spans[slot, 0] = rate
        table.spans[slot, 1] = span
    elif policy == P_ALL:
        table.totals[slot] += earned
    elif policy == P_ABSORBING:
        table.totals[slot] += amount
    elif policy == P_PAPER:
        table.held[slot] = interpolate_paper(table.held[slot], cash, gap, book.rules[0].window)
    else:
        keep_measure(table, book, slot, cash, theta)


@lean_kernel
def keep_measure(table: Table, book: Book, slot: Int, cash: float, theta: Int) -> None:
    """Append a measure. Measures outside the window are removed; where there is no room, two neighbours are merged."""
    kept = table.measure_cash[slot]
    when = table.measure_theta[slot]
    count = np.int64(table.pages[slot].measures)
    most = book.modes[0].measures
    gone = expired(table, book, slot, theta, 1)
    if book.modes[0].policy != P_FIXED and count - gone == most:
        gone += 1
    if gone > 0:
        table.before_theta[slot] = when[gone - 1]
        for i in range(gone, count):
            kept[i - gone] = kept[i]
            when[i - gone] = when[i]
        count -= gone
    if count == most:
        merge_closest(kept, when, table.before_theta[slot], count)
        count -= 1
    kept[count] = cash
    when[count] = theta
    table.pages[slot].measures = count + 1


@lean_kernel
def expired(table: Table, book: Book, slot: Int, theta: Int, more: Int) -> Int:
    """The number of the oldest measures that a fixed window no longer reaches, when `more` are about to be added."""
    if book.modes[0].policy != P_FIXED:
        return 0
    when = table.measure_theta[slot]
    count = np.int64(table.pages[slot].measures)
    window = book.rules[0].window
    gone = 0
    while gone < count and count - gone + more > book.modes[0].fewest and turns(theta, when[gone]) > window:
        gone += 1
    return gone


@lean_kernel
def merge_closest(kept: Array, when: Array, before: Int, count: Int) -> None:
    """Merge the two neighbours that together span the least: cash adds up, the later clock stays."""
    best = 1
    least = np.uint64(0xFFFFFFFFFFFFFFFF)
    for i in range(1, count):
        span = np.uint64(when[i] - (before if i == 1 else when[i - 2]))
        if span < least:
            least = span
            best = i
    kept[best] += kept[best - 1]
    for i in range(best, count):
        kept[i - 1] = kept[i]
        when[i - 1] = when[i]


@lean_kernel
def keep_newcomer(table: Table, book: Book, slot: Int, rate: float, theta: Int) -> None:
    """A page's default history: a pseudo-measure over the turn before its birth. Nothing if rate is negative."""
    policy = book.modes[0].policy
    known = rate >= 0.0
    if policy == P_INTERPOLATION:
        table.spans[slot, 0] = rate if known else 0.0
        table.spans[slot, 1] = 1.0 if known else 0.0
    elif policy in (P_ALL, P_ABSORBING):
        table.totals[slot] = 0
    elif policy == P_PAPER:
        table.held[slot] = interpolate_paper(0.0, rate, 1.0, book.rules[0].window) if known else 0.0
    else:
        table.pages[slot].measures = 1 if known else 0
        table.before_theta[slot] = theta
        if known:
            table.before_theta[slot] = np.uint64(theta - ONE_TURN)
            table.measure_cash[slot, 0] = rate
            table.measure_theta[slot, 0] = theta


@inlined_kernel
def rate_and_span(table: Table, book: Book, slot: Int, unread: Int, theta: Int) -> tuple[float, float]:
    """The rate of a page now, and the turns of evidence it rests on.

    `unread` is the cash it has not spent, dividends included, without the opening balance of a page that never
    spent; the history policy `absorbing` wants it with.
    """
    policy = book.modes[0].policy
    cash = np.float64(unread) * _PER_UNIT
    page_theta = table.pages[slot].theta
    gap = turns(theta, page_theta)
    if policy == P_INTERPOLATION:
        rate = np.float64(table.spans[slot, 0])
        newer, span = interpolate(
            rate, np.float64(table.spans[slot, 1]), cash, gap, early_window(book), book.rules[0].min_gaps
        )
        if (table.pages[slot].flags & SPENT) != 0:
            return 0.5 * (rate + newer), span
        return newer, span
    if policy in (P_ALL, P_ABSORBING):
        return np.float64(table.totals[slot]) * _PER_UNIT + cash, turns(theta, book.clocks[0].theta_start)
    if policy == P_PAPER:
        window = book.rules[0].window
        held = interpolate_paper(table.held[slot], cash, gap, window)
        return held / window, min(window, turns(theta, book.clocks[0].theta_start))
    count = np.int64(table.pages[slot].measures)
    gone = expired(table, book, slot, theta, 0)
    if gone == count:
        return (cash / gap if gap > 0.0 else 0.0), gap
    before = table.before_theta[slot] if gone == 0 else table.measure_theta[slot, gone - 1]
    total = cash
    for i in range(gone, count):
        total += np.float64(table.measure_cash[slot, i])
    span = turns(theta, before)
    return (total / span if span > 0.0 else 0.0), span
