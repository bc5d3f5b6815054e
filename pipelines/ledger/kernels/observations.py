"""What visits tell of change: the row of a page's refresh column moves with every visit, and the sum of shares with it.

An observation needs two visits that answered and a way to compare them: the digests of what came, "not modified", or
dates of change that can be believed. Late visits and duplicates are none, nor do they answer an order. What came before
a redirect, or before a page was gone, is not compared with what comes after it. A date is a lie if it lies in the
future, is the moment of the fetch (servers that make pages up say so always), stays while the content changes, or moves
while it does not. A lie counts two, and every date that is right takes one away.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.layout import (
    DEFAULT_RATE,
    ESTIMATOR,
    GONE_VISITS,
    LIES,
    LONG_GONE,
    RATE_SET,
    SHARE_POWER,
    SHARES,
    SLOTS,
    TOLD,
    Array,
    Book,
    Bool,
    Float,
    Int,
    Table,
)
from opicflow.pipelines.refresh.rates import pushed, rate_of
from opicflow.pipelines.refresh.strategies import quantised_share
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_FETCHED, _REDIRECTED, _ALIASED, _GONE, _UNCHANGED = 1, 2, 3, 4, 5
_SLACK_SECONDS = 300  # how far the clocks of crawler and server may be apart
_NOW_SECONDS = 2
_LIE, _MOST_LIES = 2, 8
_LAST_SECOND = 0xFFFFFFFF
BELIEVED = 1
"""Dates that lied are believed while no more than this is held against them."""
WAS_GONE = np.uint8(32)
"""Among a page's notes: the last visit found it gone, and its failures count how often in a row."""
MOST_SHARE = 65536.0
"""No page's share goes above this, so that their sum stays within 64 bits."""


@inlined_kernel
def believes(notes: Int) -> Bool:
    """Whether a page's dates of change are believed."""
    return (notes & LIES) <= BELIEVED


@inlined_kernel
def rate_now(table: Table, book: Book, slot: Int) -> Float:
    """The change rate of a page as observed, a day."""
    row = table.refresh[slot]
    rate, _, _ = rate_of(row.intervals, row.dated, believes(row.notes), book.modes[ESTIMATOR], book.rules[DEFAULT_RATE])
    return rate


@inlined_kernel
def be_born_unseen(table: Table, slot: Int) -> None:
    """Nothing is known of a page's changes at its birth."""
    row = table.refresh[slot]
    row.intervals = np.uint64(0)
    row.dated = np.uint64(0)
    row.digest = 0
    row.checked = 0
    row.modified = 0
    row.share = np.float32(0.0)
    row.ordered = 0
    row.interval = 0
    row.failures = 0
    row.notes = 0


@inlined_kernel
def set_share(table: Table, book: Book, slot: Int, share: Float) -> None:
    """A page's part of the sum that bandwidth is shared by becomes another one, and the sum follows."""
    row = table.refresh[slot]
    book.counts[SHARES] -= quantised_share(np.float64(row.share))
    row.share = np.float32(min(share, MOST_SHARE))
    book.counts[SHARES] += quantised_share(np.float64(row.share))


@inlined_kernel
def announce_change(table: Table, slot: Int, modified_ms: Int) -> None:
    """Somebody says when a page has changed last: if that was after it was fetched, it is due."""
    row = table.refresh[slot]
    if row.checked != 0 and modified_ms // 1000 > row.checked and believes(row.notes):
        row.notes |= TOLD


@inlined_kernel
def forget_content(table: Table, slot: Int, second: Int) -> None:
    """From this second on there is something else: nothing that comes later is compared with what was there."""
    row = table.refresh[slot]
    row.checked = second
    row.digest = 0
    row.modified = 0


@lean_kernel
def observe(
    table: Table, book: Book, slot: Int, outcome: Int, time_ms: Int, digest: Int, modified_ms: Int, late: Bool
) -> None:
    """A visit as far as change is concerned."""
    if late:
        return
    row = table.refresh[slot]
    row.ordered = 0
    second = time_ms // 1000
    is_later = row.checked < second <= _LAST_SECOND
    was_gone = (row.notes & WAS_GONE) != 0
    was_told = (row.notes & TOLD) != 0
    if not (outcome == _UNCHANGED or (_FETCHED <= outcome <= _ALIASED)):
        goes_on = (outcome == _GONE) == was_gone  # gone, or failing, as before
        row.failures = min(np.int64(row.failures) + 1, 255) if goes_on else 1
        if outcome != _GONE:
            row.notes &= ~WAS_GONE
            return
        row.notes = (row.notes | WAS_GONE) & ~TOLD
        if row.failures >= book.modes[GONE_VISITS]:
            book.counts[LONG_GONE] += 1
        if is_later and (not was_gone or row.checked == 0):
            forget_content(table, slot, second)  # from now on it is gone
        return
    row.failures = 0
    row.notes &= ~(WAS_GONE | TOLD)
    if not is_later:
        return
    length = second - np.int64(row.checked)
    seen_before = row.checked != 0
    if outcome == _REDIRECTED:
        forget_content(table, slot, second)
        return
    row.checked = second
    is_counted = row.share > 0 and (row.notes & RATE_SET) == 0
    before = rate_now(table, book, slot) if is_counted else 0.0
    folded = (digest ^ (digest >> 32)) & 0xFFFFFFFF
    dated = min(max(modified_ms // 1000, 0), _LAST_SECOND) if outcome != _UNCHANGED else np.int64(0)

    compared = True  # whether it is known if the page has changed
    changed = False
    if outcome != _UNCHANGED:
        compared = seen_before and folded != 0 and row.digest != 0
        changed = compared and folded != row.digest
    lied = dated != 0 and (dated > second + _SLACK_SECONDS or abs(second - dated) <= _NOW_SECONDS)
    if dated != 0 and not lied and row.modified != 0 and compared:
        lied = changed != (dated != row.modified) or (changed and dated <= second - length)
        if not lied and (row.notes & LIES) != 0:
            row.notes -= 1
    if lied or (was_told and compared and not changed):
        row.notes = (row.notes & ~LIES) | min((row.notes & LIES) + _LIE, _MOST_LIES)
    is_believed = dated != 0 and not lied and believes(row.notes)
    if not compared and seen_before and is_believed and row.modified != 0 and (folded == 0 or row.digest == 0):
        compared = True
        changed = dated != row.modified

    if compared and seen_before:
        row.intervals = pushed(row.intervals, np.float64(length), changed)
    if is_believed and not compared:  # what it was is not known, but when it changed
        changed = row.dated == 0 or dated > second - length
        compared = True
    if is_believed and (changed or row.dated == 0):
        row.dated = pushed(row.dated, np.float64(max(second - dated, 0)), True)
    elif compared and not changed and row.dated != 0:
        row.dated = pushed(row.dated, np.float64(length), False)
    elif outcome != _UNCHANGED and not is_believed:
        row.dated = np.uint64(0)  # a change without a date: what was known of dates is no longer all
    if is_counted:
        power = book.rules[SHARE_POWER]
        set_share(table, book, slot, np.float64(row.share) * (rate_now(table, book, slot) / before) ** power)
    if outcome != _UNCHANGED:
        row.digest = folded
        row.modified = dated


@lean_kernel
def set_all_shares(table: Table, book: Book, slots: Array, shares: Array, rate_set: Array) -> None:
    """These are the shares of all pages from now on, and these the pages whose change rate people have set."""
    for i in range(slots.shape[0]):
        set_share(table, book, slots[i], shares[i])
        row = table.refresh[slots[i]]
        row.notes = (row.notes | RATE_SET) if rate_set[i] else (row.notes & ~RATE_SET)


@lean_kernel
def sum_shares(table: Table, book: Book) -> Int:
    """The sum of all shares, counted afresh."""
    total = np.int64(0)
    for slot in range(book.counts[SLOTS]):
        if table.pages[slot].flags != 0:
            total += quantised_share(np.float64(table.refresh[slot].share))
    return total
