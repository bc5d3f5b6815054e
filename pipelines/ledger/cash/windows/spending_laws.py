"""The laws of the policies with a window, counted from the columns: no unit of cash is lost, and its accounts agree."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.balance import Balance, Laws
from opicflow.pipelines.ledger.cash.windows.dividends import cash_of, dividends_due
from opicflow.pipelines.ledger.entry_checks import exact_sum
from opicflow.pipelines.ledger.pages.layout import SPENT, Book, Table
from opicflow.schemas.arrays import Int
from opicflow.schemas.kernel import lean_kernel


def balance_of(table: Table, book: Book) -> Balance:
    """Count the balance from the columns."""
    counts = book.counts[0]
    cash, uncollected, _ = sum_cash(table, book)
    return Balance(
        minted=int(counts.minted),
        cash=int(cash),
        uncollected=int(uncollected),
        virtual=int(counts.virtual),
        absorbed=int(counts.absorbed),
        sent=int(counts.sent),
        received=int(counts.received),
    )


def audit(table: Table, book: Book) -> tuple[Balance, Laws]:
    """Return the balance, counted from the columns, and what must hold of it and of every running total."""
    counts = book.counts[0]
    slots = int(counts.slots)
    balance = balance_of(table, book)
    _, uncollected, openings = sum_cash(table, book)
    waiting_outside = exact_sum(book.outbox_amounts[: int(counts.outbox)])
    totals = int(table.totals[:slots].sum()) if len(table.totals) else 0
    laws = {
        "cash is conserved": balance.drift == 0,
        "no account but the virtual one is negative": min(balance.cash, balance.uncollected, balance.absorbed) >= 0,
        "the virtual account is not overdrawn beyond its limit": balance.virtual >= -balance.minted,
        "uncollected dividends equal their account": uncollected == counts.uncollected,
        "opening balances equal their account": openings == counts.openings,
        "history equals its account": totals == counts.earned,
        "cash in the outbox was sent": waiting_outside <= balance.sent,
    }
    return balance, laws


@lean_kernel
def sum_cash(table: Table, book: Book) -> tuple[Int, Int, Int]:
    """Return the cash of all pages, their uncollected dividends, and opening balances of pages that never spent."""
    cash, uncollected, openings = np.int64(0), np.int64(0), np.int64(0)
    for slot in range(book.counts[0].slots):
        row = table.pages[slot]
        if row.flags != 0:
            cash += cash_of(table.hot[slot, 1])
            uncollected += dividends_due(table, book, slot)
            if (row.flags & SPENT) == 0:
                openings += row.opening
    return cash, uncollected, openings
