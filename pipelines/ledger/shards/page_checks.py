"""Checks of every page of a snapshot in one pass."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.births import is_forgotten
from opicflow.pipelines.ledger.cash.certified.payments import base_of
from opicflow.pipelines.ledger.cash.windows.dividends import cash_of, dividends_due
from opicflow.pipelines.ledger.config import MOST_CASH
from opicflow.pipelines.ledger.entries import Outcome
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.pipelines.ledger.pages.numbers import is_local
from opicflow.pipelines.ledger.pages.observations import MOST_SHARE, WAS_GONE
from opicflow.pipelines.refresh.rates import ALL_CHANGED, MOST_CODE, MOST_EARLIER
from opicflow.schemas.arrays import Int
from opicflow.schemas.kernel import lean_kernel

_NOTES = int(at.MISTRUST | at.RATE_SET | at.CHANGE_ANNOUNCED | WAS_GONE)
_FLAGS = int(at.OF_THE_LEDGER | at.EXPLORED | at.IN_URL_ORDER | at.READ_BEFORE)
_MOST_OUTCOME = int(max(Outcome))

PAGE_PROBLEMS = (
    "its free slots are not those without a page",
    "a page is where a slot should be free",
    "a page has unknown flags",
    "a page is of another shard",
    "a page is there that was forgotten",
    "its cash is out of bounds",
    "a page has no class",
    "a page has no outcome",
    "a page has more measures than are kept",
    "a page has seen dividends that never were",
    "a page was visited before 1970",
    "a page has an opening balance, or a base, out of bounds",
    "a page has spent before its first transfer",
    "a page was published with an importance or a score out of bounds",
    "a page has a share out of bounds",
    "a page has unknown notes",
    "a page has a run of changes out of bounds",
    "a page has earlier contents out of bounds",
    "a page redirects that was never read",
)


@lean_kernel
def find_page_problem(table: Table, book: Book, most_measures: Int) -> Int:
    """The number of the first problem of any page, or -1: one pass, where a dozen of numpy's would take ten times."""
    live, certified = np.int64(0), book.modes[0].policy == at.P_CERTIFIED
    total = 0.0
    # An overdraft of the virtual account is on pages, too. Residuals follow bases, which may be more than is minted.
    limit = book.counts[0].minted + book.counts[0].received + max(-book.counts[0].virtual, 0)
    if certified:
        limit = np.int64(MOST_CASH)
    for slot in range(table.pages.shape[0]):
        row = table.pages[slot]
        cash = cash_of(table.hot[slot, 1])
        total += np.float64(cash)
        if row.flags == 0:
            if table.hot[slot, 0] != 0 or table.hot[slot, 1] != 0:
                return 1
            continue
        live += 1
        if (row.flags & at.LIVE) == 0 or row.flags > _FLAGS:
            return 2
        if not is_local(book, table.hot[slot, 0]):
            return 3
        if is_forgotten(book, table.hot[slot, 0]):
            return 4
        if cash > limit or total > 1.000001 * np.float64(limit):
            return 5
        if row.class_ >= book.dividends.shape[0]:
            return 6
        if row.outcome > _MOST_OUTCOME:
            return 7
        if row.measures > most_measures:
            return 8
        due = dividends_due(table, book, slot)  # both may have run over: only the difference counts
        if not 0 <= due <= (np.int64(0) if certified else limit):
            return 9
        refresh = table.refresh[table.refresh_row[slot]]
        if min(row.last_visit_ms, refresh.links_ms, refresh.content_ms) < 0:
            return 10
        most = limit if not certified else np.int64(0) if row.seen == at.HOP else base_of(book, row.class_)
        if (row.flags & at.SPENT) == 0 and not 0 <= row.opening <= most:
            return 11
        if (row.flags & at.SPENT) != 0 and table.hot[slot, 1] < 0:
            return 12
        if not (0.0 <= row.published_importance < np.inf and 0.0 <= row.published_score < np.inf):
            return 13
        if not 0.0 <= refresh.share <= MOST_SHARE:
            return 14
        if refresh.notes & ~_NOTES:
            return 15
        if refresh.run_length >= (MOST_CODE + 1) << 8 or (refresh.run > 0 and refresh.run_length < 1 << 8):
            return 16
        if refresh.run > 0 and (refresh.intervals & ALL_CHANGED) != ALL_CHANGED:
            return 16
        if refresh.earlier > MOST_EARLIER:
            return 17
        if row.seen == at.HOP and (row.class_ & 1) == 0:
            return 18
    return -1 if live == table.pages.shape[0] - table.free.shape[0] else 0
