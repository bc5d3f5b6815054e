"""The accounts of a ledger: their balance, and the check of every total that the ledger keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger.cash import certified, reads
from opicflow.pipelines.ledger.config import UNITS_PER_PAGE
from opicflow.pipelines.ledger.entry_checks import exact_sum
from opicflow.pipelines.ledger.errors import LedgerBroken
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages import observations
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.pipelines.ledger.pages.refresh_rows import are_apart
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.pages import SITE_BITS


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
    if book.modes[0].policy == at.P_CERTIFIED:
        return _certified_balance(table, book, recount(table, book))
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
    if book.modes[0].policy == at.P_CERTIFIED:
        return _audit_certified(table, book, shard)
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
        "every page has a refresh row of its own, or the empty one": are_apart(table, book),
        **_laws_of_domains(table, book),
    }
    _refuse_broken(laws, shard)
    return balance


def _refuse_broken(laws: dict[str, bool], shard: int) -> None:
    broken = [law for law, holds in laws.items() if not holds]
    if broken:
        raise LedgerBroken(f"the books of shard {shard} do not balance: not so: {'; '.join(broken)}")


class _Carried(NamedTuple):
    """The amounts that links carry to every slot, to every row of the absent pages, and to pages of other shards."""

    to_slots: Ints
    to_absent: Ints
    sent: int

    @property
    def total(self) -> int:
        return exact_sum(self.to_slots) + exact_sum(self.to_absent) + self.sent


def _certified_balance(table: Table, book: Book, carried: _Carried) -> Balance:
    """The law of `certified`, summed over all pages. A page is minted like any other, and keeps its base of that.

    Cash is the sum that pages hold, which may be negative. Absorbed is the rest of the minted units, and the payments
    that no link carries to a page. Sent and received are sizes, which never fall. The virtual account holds the amounts
    in the outbox, and the difference between signed amounts and their sizes.
    """
    counts, sums = book.counts[0], book.sums[0]
    slots = int(counts.slots)
    paid = exact_sum(table.totals[:slots])
    return Balance(
        minted=int(counts.minted),
        cash=exact_sum(table.hot[:slots, 1]),
        uncollected=0,
        virtual=carried.sent - int(counts.sent) - int(sums.received) + int(counts.received),
        absorbed=int(counts.minted) - int(sums.bases) + paid - carried.total + int(sums.lost),
        sent=int(counts.sent),
        received=int(counts.received),
    )


def recount(table: Table, book: Book) -> _Carried:
    to_slots, to_absent = (np.zeros(int(rows), np.int64) for rows in (book.counts[0].slots, book.store[0].absent))
    return _Carried(to_slots, to_absent, int(certified.recount(table, book, to_slots, to_absent)))


def bases_of(table: Table, book: Book) -> Ints:
    """The base of every slot, 0 where no page is: the cash that the small edge gives under `certified`."""
    rows = table.pages[: int(book.counts[0].slots)]
    if len(book.domains) and book.modes[0].policy == at.P_CERTIFIED:
        limited: Ints = np.where(rows["flags"] != 0, rows["opening"], 0)
        return limited
    bases: Ints = np.where(rows["flags"] != 0, class_bases(book)[rows["class_"]], 0)
    return bases


def class_bases(book: Book) -> Ints:
    """The base of each class."""
    bases: Ints = ((1 << 20) - int(book.modes[0].damping_q20)) * book.class_weights
    return bases


def _audit_certified(table: Table, book: Book, shard: int) -> Balance:
    counts, sums = book.counts[0], book.sums[0]
    slots = int(counts.slots)
    rows, residual, paid = table.pages[:slots], table.hot[:slots, 1], table.totals[:slots]
    live = rows["flags"] != 0
    bases = bases_of(table, book)
    carried = recount(table, book)
    balance = _certified_balance(table, book, carried)
    lost = book.absent_amounts[: int(book.store[0].absent)]
    link_counts = table.link_count[:slots].astype(np.int64)
    classes = np.bincount(rows["class_"][live], minlength=len(book.class_pages))
    if book.modes[0].alone:
        laws = {
            "every page has paid and holds its base and what links carry to it": np.array_equal(
                paid + residual, bases + carried.to_slots
            ),
            "what links carry to pages that are not here is kept": np.array_equal(lost, carried.to_absent),
        }
    else:  # what links of other shards carry to a page is known in all only
        laws = {
            "pages have paid and hold their bases and what links carry to them": balance.drift == 0,
            "what links carry to other shards was sent": carried.sent == sums.sent,
        }
    laws |= {
        "pages that pay nobody hold nothing": not residual[link_counts == 0].any(),
        "no page has paid less than nothing": not (paid < 0).any(),
        "bases equal their sum": exact_sum(bases) == sums.bases,
        "payments equal their sum": exact_sum(paid) == sums.paid,
        "residuals equal their sums": exact_sum(residual) == sums.residual
        and exact_sum(np.abs(residual)) == sums.residual_size,
        "lost amounts equal their sum": exact_sum(lost) == sums.lost,
        "links equal their number": int(at.link_numbers(link_counts).sum()) == sums.links,
        "pages equal the sum of their classes": np.array_equal(classes, book.class_pages)
        and classes.sum() == counts.pages == counts.slots - counts.free,
        "minted cash is a whole number of births": int(counts.minted) == UNITS_PER_PAGE * int(counts.births),
        "shares equal their sum": observations.sum_shares(table, book) == counts.shares,
        "every page has a refresh row of its own, or the empty one": are_apart(table, book),
        **_laws_of_domains(table, book),
    }
    _refuse_broken(laws, shard)
    return balance


def _laws_of_domains(table: Table, book: Book) -> dict[str, bool]:
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
