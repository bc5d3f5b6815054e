"""Changes of pages, as visits observe them: every visit updates the page's refresh row and the sum of shares.

A page has no row of its own before its first visit or order, and then keeps it, as does its slot after it. Until then
it reads row 0, which nobody may write to.

An observation needs two visits that answered and a way to compare them: the digests of their content, "not modified",
or dates of change that are believed. Content from before a redirect, or from before a page was gone, is not compared
with later content. A date is false if it is in the future, equals the moment of the fetch (servers that generate pages
send that), stays while the content changes, or moves while it does not. A false date adds two to the page's mistrust, a
right one takes one away.

A visit is late if the page has a later one. It is an observation only if it is later than all visits that answered: the
later ones failed. It answers no order, and counts in no row of failures. The digest of a page is that of the latest
visit that brought content, in whatever order visits arrive; a redirect, or a page that is gone, has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opicflow.pipelines.ledger.pages.announcements import count_visit, note_announcement
from opicflow.pipelines.ledger.pages.index import find
from opicflow.pipelines.ledger.pages.layout import (
    ALIASED,
    BUSY,
    CHANGE_ANNOUNCED,
    FETCHED,
    GONE,
    MISTRUST,
    RATE_SET,
    REDIRECTED,
    UNCHANGED,
    Book,
    Table,
)
from opicflow.pipelines.refresh.rates import pushed, pushed_content, pushed_run, rate_of
from opicflow.pipelines.refresh.strategies import quantised_share
from opicflow.schemas.arrays import Array, Int, Ints
from opicflow.schemas.kernel import inlined_kernel, lean_kernel

_SLACK_SECONDS = 300  # the clocks of crawler and server may differ by so much
_NOW_SECONDS = 2
_LIE, _MOST_LIES = 2, 8
_LAST_SECOND = 0xFFFFFFFF
BELIEVED = 1
"""Dates are believed up to this mistrust."""
WAS_GONE = np.uint8(32)
"""A note of a page: the last visit found it gone, and its failures count how many visits in a row did."""
NO_CHANGE = np.int64(-1)
"""The result of `observe` if the content is as before, or is not compared."""
MOST_SHARE = 65536.0
"""The limit of a page's share: the sum of all fits into 64 bits."""


@inlined_kernel
def believes(notes: Int) -> bool | np.bool_:
    """Whether a page's dates of change are believed."""
    return (notes & MISTRUST) <= BELIEVED


@inlined_kernel
def own_row(table: Table, book: Book, slot: Int) -> Int:
    """Which refresh row a page has; it gets one if it has none. There must be room for one."""
    if table.refresh_row[slot] == 0:
        book.store[0].refresh_rows += 1
        table.refresh_row[slot] = book.store[0].refresh_rows
    return table.refresh_row[slot]


@inlined_kernel
def has_room_for_refreshing(table: Table, book: Book) -> bool:
    """Whether there is room for one more refresh row."""
    return book.store[0].refresh_rows + 1 < table.refresh.shape[0]


@inlined_kernel
def rate_now(book: Book, row: Any) -> float:
    """The change rate of a page as observed, a day, from its refresh row."""
    rate, _, _ = rate_of(
        row.intervals, row.dated, believes(row.notes), book.modes[0].estimator, book.rules[0].default_rate
    )
    return rate


@inlined_kernel
def be_born_unseen(table: Table, slot: Int) -> None:
    """Reset the refresh row that the slot of a page had before its birth, if any, and its interval."""
    table.interval[slot] = 0
    if table.refresh_row[slot] == 0:
        return
    row = table.refresh[table.refresh_row[slot]]
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
    row.earlier = 0
    row.run_length = 0
    row.run = 0
    row.returned = 0
    row.links_ms = 0
    row.content_ms = 0


@inlined_kernel
def set_share(table: Table, book: Book, slot: Int, share: float) -> None:
    """Set a page's part of the sum by which bandwidth is shared, and update the sum."""
    if share == 0.0 and table.refresh_row[slot] == 0:
        return
    row = table.refresh[own_row(table, book, slot)]
    book.counts[0].shares -= quantised_share(np.float64(row.share))
    row.share = np.float32(min(share, MOST_SHARE))
    book.counts[0].shares += quantised_share(np.float64(row.share))


@inlined_kernel
def announce_change(table: Table, book: Book, slot: Int, modified_ms: Int) -> None:
    """A date of change was announced: note it if it is after the fetch."""
    row = table.refresh[table.refresh_row[slot]]
    if row.checked != 0 and modified_ms // 1000 > row.checked:
        row.notes |= CHANGE_ANNOUNCED
        note_announcement(book, table.hot[slot, 0])


@inlined_kernel
def forget_content(row: Any, time_ms: Int) -> None:
    """A page has other content from this time on: later visits are not compared with earlier ones."""
    keep_content(row, time_ms, 0, 0)
    row.earlier = 0


@inlined_kernel
def keep_content(row: Any, time_ms: Int, digest: Int, modified: Int) -> None:
    """Keep the digest and the date of the latest content, and the time of the visit that brought it."""
    row.content_ms = time_ms
    row.digest = digest
    row.modified = modified


@inlined_kernel
def brings_links(row: Any, time_ms: Int) -> bool:
    """Whether links that were found at this time are newer than those of the page, whose refresh row is `row`.

    Notes the time. Visits without a time hold in the order of the log.
    """
    if time_ms == 0:
        return True
    if time_ms <= row.links_ms:
        return False
    row.links_ms = time_ms
    return True


@inlined_kernel
def forget_times_after(row: Any, latest_ms: Int) -> Int:
    """Forget the times in a refresh row after `latest_ms`, which a wrong clock made. Returns the latest one left."""
    if row.links_ms > latest_ms:
        row.links_ms = 0
    if row.content_ms > latest_ms:
        row.content_ms = 0
        row.modified = 0
    if 1000 * np.int64(row.checked) > latest_ms:
        row.checked = 0
    return max(row.links_ms, row.content_ms)


@inlined_kernel
def folded_digest(digest: Int) -> Int:
    """Return the digest that a page keeps of its content, 32 bits; 0 = not known."""
    return (digest ^ (digest >> 32)) & 0xFFFFFFFF


@lean_kernel
def observe(
    table: Table, book: Book, slot: Int, outcome: Int, time_ms: Int, digest: Int, modified_ms: Int, late: bool
) -> Int:
    """Update the refresh row of a page for a visit.

    Returns the digest of the content before, if the visit has found that the content has changed since; else -1.
    """
    row = table.refresh[own_row(table, book, slot)]
    if not late:
        row.ordered = 0
    if outcome == BUSY:  # the host was busy: no information about the page
        return NO_CHANGE
    second = time_ms // 1000
    is_newer = row.content_ms < time_ms and second <= _LAST_SECOND
    is_later = is_newer and row.checked < second
    was_gone = (row.notes & WAS_GONE) != 0
    was_announced = (row.notes & CHANGE_ANNOUNCED) != 0
    if not (outcome == UNCHANGED or (FETCHED <= outcome <= ALIASED)):
        if not late:
            is_same = (outcome == GONE) == was_gone  # gone, or failing, like the visit before
            row.failures = min(np.int64(row.failures) + 1, 255) if is_same else 1
            row.notes &= ~WAS_GONE
            if outcome == GONE:
                row.notes = (row.notes | WAS_GONE) & ~CHANGE_ANNOUNCED
                if row.failures >= book.modes[0].gone_visits:
                    book.counts[0].long_gone += 1
        if outcome == GONE and is_newer:
            forget_content(row, time_ms)
            if is_later and (not was_gone or row.checked == 0):
                row.checked = second  # gone from now on
        return NO_CHANGE
    if not late:
        row.failures = 0
        row.notes &= ~WAS_GONE
    if not late or is_later:
        row.notes &= ~CHANGE_ANNOUNCED
    length = second - np.int64(row.checked)
    seen_before = row.checked != 0
    if is_later:
        row.checked = second
    folded = folded_digest(digest)
    dated: Int = min(max(modified_ms // 1000, 0), _LAST_SECOND) if outcome != UNCHANGED else np.int64(0)
    if outcome == REDIRECTED:
        if is_newer:
            forget_content(row, time_ms)
        return NO_CHANGE
    if not is_later:
        if is_newer and outcome != UNCHANGED:
            keep_content(row, time_ms, folded, dated)
        return NO_CHANGE
    is_counted = row.share > 0 and (row.notes & RATE_SET) == 0
    before = rate_now(book, row) if is_counted else 0.0

    compared = True  # whether this visit can be compared with the one before
    changed = returned = False
    if outcome != UNCHANGED:
        compared = seen_before and folded != 0 and row.digest != 0
        changed = compared and folded != row.digest
        if changed:
            row.earlier, returned = pushed_content(np.int64(row.earlier), np.int64(row.digest), folded)
    lied: bool | np.bool_ = dated != 0 and (
        dated > second + _SLACK_SECONDS or -_NOW_SECONDS <= second - dated <= _NOW_SECONDS
    )
    if dated != 0 and not lied and row.modified != 0 and compared:
        lied = changed != (dated != row.modified) or (changed and dated <= second - length)
        if not lied and (row.notes & MISTRUST) != 0:
            row.notes -= 1
    if lied:
        row.notes = (row.notes & ~MISTRUST) | min((row.notes & MISTRUST) + _LIE, _MOST_LIES)
    is_believed = dated != 0 and not lied and believes(row.notes)
    if not compared and seen_before and is_believed and row.modified != 0 and (folded == 0 or row.digest == 0):
        compared = True
        changed = dated != row.modified

    is_dated_since = is_believed and not compared and dated > second - length
    found = np.int64(row.digest) if seen_before and (changed or is_dated_since) else NO_CHANGE
    if compared and seen_before:
        if was_announced or changed:
            expected = rate_now(book, row) * np.float64(length) / 86_400
            count_visit(book, table.hot[slot, 0], was_announced, changed, expected)
        row.run, row.run_length = pushed_run(row.run, row.run_length, row.intervals, changed)
        row.returned = (np.int64(row.returned) << 1 & 255) | np.int64(returned)
        row.intervals = pushed(row.intervals, np.float64(length), changed)
    if is_believed and not compared:  # the content before is not known, but the date of its change is
        changed = row.dated == 0 or bool(dated > second - length)
        compared = True
    if is_believed and (changed or row.dated == 0):
        row.dated = pushed(row.dated, np.float64(max(second - dated, 0)), True)
    elif compared and not changed and row.dated != 0:
        row.dated = pushed(row.dated, np.float64(length), False)
    elif outcome != UNCHANGED and not is_believed:
        row.dated = np.uint64(0)  # a change without a date: the dated intervals are no longer complete
    if is_counted:
        power = book.rules[0].share_power
        set_share(table, book, slot, np.float64(row.share) * (rate_now(book, row) / before) ** power)
    if outcome != UNCHANGED:
        keep_content(row, time_ms, folded, dated)
    return found


@lean_kernel
def set_all_shares(table: Table, book: Book, slots: Array, shares: Array, rate_set: Array) -> None:
    """Set the shares of all pages, and whether a policy sets their change rate. There must be room for their rows."""
    for i in range(slots.shape[0]):
        set_share(table, book, slots[i], shares[i])
        if rate_set[i]:
            table.refresh[own_row(table, book, slots[i])].notes |= RATE_SET
        elif table.refresh_row[slots[i]] != 0:
            table.refresh[table.refresh_row[slots[i]]].notes &= ~RATE_SET


@lean_kernel
def sum_shares(table: Table, book: Book) -> Int:
    """The sum of all shares, counted from the rows."""
    total = np.int64(0)
    for slot in range(book.counts[0].slots):
        if table.pages[slot].flags != 0:
            total += quantised_share(np.float64(table.refresh[table.refresh_row[slot]].share))
    return total


@lean_kernel
def find_long_gone(table: Table, pages: Ints, least_visits: Int, least_seconds: float, slots: Ints) -> Int:
    """Find pages that so many visits in a row, over so many seconds, found gone. Returns the number of slots."""
    found: Int = np.int64(0)
    for i in range(pages.shape[0]):
        slot = find(table.id_index, table.id_index_old, table.hot, pages[i])
        if slot < 0:
            continue
        row = table.refresh[table.refresh_row[slot]]
        if (row.notes & WAS_GONE) == 0 or row.failures < least_visits or row.checked == 0:
            continue
        if table.pages[slot].last_visit_ms // 1000 - np.int64(row.checked) >= least_seconds:
            slots[found] = slot
            found += 1
    return found
