"""The balance of a ledger, and the laws of its totals that hold under every history policy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages import observations
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.pipelines.ledger.pages.refresh_rows import are_apart
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.pages import SITE_BITS

Laws = dict[str, bool]
"""Laws as sentences, and whether each holds."""


@dataclass(frozen=True)
class Balance:
    """The conservation law, counted from the columns. All in units of cash."""

    minted: int
    cash: int
    uncollected: int
    virtual: int
    absorbed: int
    sent: int
    received: int

    @property
    def drift(self) -> int:
        """The cash that is missing; anything but 0 is a bug."""
        return self.minted - (self.cash + self.uncollected + self.virtual + self.absorbed + self.sent - self.received)


def laws_of_pages(table: Table, book: Book) -> Laws:
    """Return the laws of pages, classes, shares and domains."""
    counts, rows = book.counts[0], table.pages[: int(book.counts[0].slots)]
    live, hops = rows["flags"] != 0, rows["seen"] == at.HOP
    classes = np.bincount(rows["class_"][live & ~hops], minlength=len(book.class_pages))
    return {
        "pages equal the sum of their classes": np.array_equal(classes, book.class_pages)
        and live.sum() == counts.pages == counts.slots - counts.free,
        "minted cash is a whole number of births": int(counts.minted) == UNITS_PER_PAGE * int(counts.births),
        "shares equal their sum": observations.sum_shares(table, book) == counts.shares,
        "every page has a refresh row of its own, or the empty one": are_apart(table, book),
        **_laws_of_domains(table, book),
    }


def _laws_of_domains(table: Table, book: Book) -> Laws:
    """Return what holds where unread pages of a domain are limited."""
    if not len(book.domains):
        return {}
    slots = int(book.counts[0].slots)
    rows = table.pages[:slots]
    unread = (rows["flags"] != 0) & ((rows["class_"] & 1) == 0)
    numbers = rows_of_domains(table.hot[:slots, 0][unread].view(np.uint64), book)
    counted = np.bincount(numbers, minlength=len(book.domains))
    return {"unread pages of domains equal their count": np.array_equal(counted, book.domains[:, at.UNREAD])}


def rows_of_domains(pages: Ids, book: Book) -> Ints:
    """Return the row of `Book.domains` of each page."""
    shift = np.uint64(64 - SITE_BITS)
    first = np.array([book.modes[0].first_id], np.int64).view(np.uint64) >> shift
    rows: Ints = ((pages >> shift) - first).astype(np.int64)
    return rows
