"""The accounts of a ledger: their balance, and the check of every total that the ledger keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.entry_checks import exact_sum
from opicflow.pipelines.ledger.errors import LedgerBroken
from opicflow.pipelines.ledger.kernels import observations, reads
from opicflow.pipelines.ledger.layout import Book, Table


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


def balance_of(table: Table, book: Book) -> Balance:
    """Count the balance from the columns."""
    counts = book.counts[0]
    cash, uncollected, _ = reads.sum_cash(table, book)
    return Balance(
        minted=int(counts.minted),
        cash=int(cash),
        uncollected=int(uncollected),
        virtual=int(counts.virtual),
        absorbed=int(counts.absorbed),
        sent=int(counts.sent),
        received=int(counts.received),
    )


def audit(table: Table, book: Book, shard: int) -> Balance:
    """The balance, after checking it and every running total. Raises `LedgerBroken` for what does not hold."""
    counts = book.counts[0]
    slots = int(counts.slots)
    balance = balance_of(table, book)
    _, uncollected, openings = reads.sum_cash(table, book)
    rows = table.pages[:slots]
    live = rows["flags"] != 0
    classes = np.bincount(rows["class_"][live], minlength=len(book.class_pages))
    waiting_outside = exact_sum(book.outbox_amounts[: int(counts.outbox)])
    totals = int(table.totals[:slots].sum()) if len(table.totals) else 0
    laws = {
        "cash is conserved": balance.drift == 0,
        "no account but the virtual one is negative": min(balance.cash, balance.uncollected, balance.absorbed) >= 0,
        "the virtual account is not overdrawn beyond its limit": balance.virtual >= -balance.minted,
        "uncollected dividends equal their account": uncollected == counts.uncollected,
        "opening balances equal their account": openings == counts.openings,
        "history equals its account": totals == counts.earned,
        "pages equal the sum of their classes": np.array_equal(classes, book.class_pages)
        and classes.sum() == counts.pages == counts.slots - counts.free,
        "minted cash is a whole number of births": balance.minted == UNITS_PER_PAGE * int(counts.births),
        "shares equal their sum": observations.sum_shares(table, book) == counts.shares,
        "cash in the outbox was sent": waiting_outside <= balance.sent,
    }
    broken = [law for law, holds in laws.items() if not holds]
    if broken:
        raise LedgerBroken(f"the books of shard {shard} do not balance: not so: {'; '.join(broken)}")
    return balance
