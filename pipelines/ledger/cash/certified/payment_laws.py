"""The laws of `certified`, counted from the columns: what every page has paid and holds, and the totals of that."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opicflow.pipelines.ledger.cash.balance import Balance, Laws
from opicflow.pipelines.ledger.cash.certified import payments
from opicflow.pipelines.ledger.entry_checks import exact_sum
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.layout import Book, Table
from opicflow.schemas.arrays import Ints


class _Carried(NamedTuple):
    """The amounts that links carry to every slot, to every row of the absent pages, and to pages of other shards."""

    to_slots: Ints
    to_absent: Ints
    sent: int

    @property
    def total(self) -> int:
        return exact_sum(self.to_slots) + exact_sum(self.to_absent) + self.sent


def balance_of(table: Table, book: Book) -> Balance:
    """Count the balance from the columns."""
    return _balance(table, book, recount(table, book))


def audit(table: Table, book: Book) -> tuple[Balance, Laws]:
    """Return the balance, counted from the columns, and what must hold of it and of every running total."""
    counts, sums = book.counts[0], book.sums[0]
    slots = int(counts.slots)
    residual, paid = table.hot[:slots, 1], table.totals[:slots]
    bases = bases_of(table, book)
    carried = recount(table, book)
    balance = _balance(table, book, carried)
    lost = book.absent_amounts[: int(book.store[0].absent)]
    link_counts = table.link_count[:slots].astype(np.int64)
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
        "every page has the base of its class, a hop none": _fit_classes(table, book, bases),
        "bases equal their sum": exact_sum(bases) == sums.bases,
        "payments equal their sum": exact_sum(paid) == sums.paid,
        "residuals equal their sums": exact_sum(residual) == sums.residual
        and exact_sum(np.abs(residual)) == sums.residual_size,
        "lost amounts equal their sum": exact_sum(lost) == sums.lost,
        "links equal their number": int(at.link_numbers(link_counts).sum()) == sums.links,
    }
    return balance, laws


def _balance(table: Table, book: Book, carried: _Carried) -> Balance:
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
    """Sum what the links of all pages carry."""
    to_slots, to_absent = (np.zeros(int(rows), np.int64) for rows in (book.counts[0].slots, book.store[0].absent))
    return _Carried(to_slots, to_absent, int(payments.recount(table, book, to_slots, to_absent)))


def bases_of(table: Table, book: Book) -> Ints:
    """The base of every slot, 0 where no page is: the cash that the small edge gives under `certified`."""
    if book.modes[0].policy != at.P_CERTIFIED:
        return _bases_by_class(table, book)
    rows = table.pages[: int(book.counts[0].slots)]
    kept: Ints = np.where(rows["flags"] != 0, rows["opening"], 0)
    return kept


def _bases_by_class(table: Table, book: Book) -> Ints:
    """The base that the class of each page gives, and none to a hop."""
    rows = table.pages[: int(book.counts[0].slots)]
    has_base = (rows["flags"] != 0) & (rows["seen"] != at.HOP)
    bases: Ints = np.where(has_base, class_bases(book)[rows["class_"]], 0)
    return bases


def _fit_classes(table: Table, book: Book, bases: Ints) -> bool:
    """Whether the bases are those of the classes; unread pages have less where their domain is limited."""
    most = _bases_by_class(table, book)
    limited = (table.pages["class_"][: len(most)] & 1 == 0) & (len(book.domains) > 0)
    return bool((bases == np.where(limited, np.clip(bases, 0, most), most)).all())


def class_bases(book: Book) -> Ints:
    """The base of each class."""
    bases: Ints = ((1 << 20) - int(book.modes[0].damping_q20)) * book.class_weights
    return bases
