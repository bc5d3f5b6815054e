"""Visits and transfers under the history policy `certified`: which payments begin, change and end."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash.births import has_links, learn_linked, learn_page
from opicflow.pipelines.ledger.cash.certified.importance_window import certified_importance, keep_importance
from opicflow.pipelines.ledger.cash.certified.payments import lose, pay_all, push, receive, take_back
from opicflow.pipelines.ledger.entries import KernelItems
from opicflow.pipelines.ledger.pages.layout import GONE, LINKS_KNOWN, NOWHERE, Book, Scratch, Table
from opicflow.pipelines.ledger.pages.links import forget_links, gather_links, has_same_links, links_of, remember_links
from opicflow.pipelines.ledger.pages.numbers import absent_row, add_absent
from opicflow.schemas.arrays import Int
from opicflow.schemas.kernel import lean_kernel


@lean_kernel
def pay_visit(
    table: Table, book: Book, scratch: Scratch, items: KernelItems, i: Int, slot: Int, brings_links: bool | np.bool_
) -> None:
    """A page that was visited pays along the links that it has now: those of the visit only if it `brings_links`.

    Links of a visit that is older than the page's links only make pages known.
    """
    sums, row = book.sums[0], table.pages[slot]
    outcome = items.outcome[i]
    had = links_of(table, slot)
    if brings_links and outcome == GONE:
        row.flags &= ~LINKS_KNOWN
        if had > 0:
            take_back(table, book, slot)
            forget_links(table, book, slot)
            sums.links -= had
    elif brings_links:
        row.flags |= LINKS_KNOWN
        links = gather_links(book, scratch, items, i)
        if links == had and has_same_links(table, book, scratch, slot):
            push(table, book, slot)
        else:
            if had > 0:
                take_back(table, book, slot)
            sums.links += links - had
            learn_linked(table, book, scratch, slot, links)
            remember_links(table, book, scratch, slot, links)
            pay_all(table, book, slot)
    else:
        if has_links(items, i):
            learn_linked(table, book, scratch, slot, gather_links(book, scratch, items, i))
        if had > 0:
            push(table, book, slot)
    keep_importance(table, book, slot, certified_importance(table, book, slot))


@lean_kernel
def receive_payment(table: Table, book: Book, page: Int, slot: Int, amount: Int) -> None:
    """A page receives an amount from another shard; its slot is below 0 if it is not known.

    An unknown page is learnt when links begin to carry something to it. For a page that was removed, the amounts
    carried until then are kept: later payments along the same links do not bring it back.
    """
    book.sums[0].received += amount
    if slot < 0:
        row = absent_row(book, page)
        before = book.absent_amounts[row] if row >= 0 else np.int64(0)
        if before <= 0 < before + amount:
            slot = learn_page(table, book, page, 0, 0.0, NOWHERE, False)
    if slot >= 0:
        receive(table, book, slot, amount)
    else:
        lose(book, add_absent(book, page), amount)
