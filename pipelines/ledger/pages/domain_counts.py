"""The number and the cash of unread pages of each domain, by the hash of its site (docs/decisions/domain-limits.md).

`book.domains` has a row for each hash of a site, as page ids begin with it. It has no rows where nothing is limited.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.pages.layout import (
    ANNOUNCED_LEFT,
    BASES_LEFT,
    NOT_LEARNT,
    UNREAD,
    UNREAD_MOST,
    Book,
    Table,
)
from opicflow.schemas.arrays import Array, Ids, Int
from opicflow.schemas.hashing import byte_at
from opicflow.schemas.kernel import inlined_kernel, lean_kernel
from opicflow.schemas.pages import SITE_BITS, HostMemo, IdRules, site_hash

_SHIFT = np.uint64(64 - SITE_BITS)


@inlined_kernel
def has_limits(book: Book) -> bool:
    """Whether unread pages of a domain are limited."""
    return book.domains.shape[0] > 0


@inlined_kernel
def domain_row(book: Book, page: Int) -> Int:
    """The row of the hash of a page's site."""
    return np.int64((np.uint64(page) >> _SHIFT) - (np.uint64(book.modes[0].first_id) >> _SHIFT))


@inlined_kernel
def may_be_born(book: Book, page: Int, announced: bool) -> bool:
    """Whether an unread page may enter the ledger; one that may not is counted."""
    if not has_limits(book):
        return True
    domains, row = book.domains, domain_row(book, page)
    if domains[row, UNREAD] < domains[row, UNREAD_MOST] and (not announced or domains[row, ANNOUNCED_LEFT] > 0):
        domains[row, ANNOUNCED_LEFT] -= np.int64(announced)
        return True
    domains[row, NOT_LEARNT] += 1
    return False


@inlined_kernel
def count_unread(book: Book, page: Int, more: Int) -> None:
    """A page becomes one of the unread pages of its domain (1), or is none any more (-1)."""
    if has_limits(book):
        book.domains[domain_row(book, page), UNREAD] += more


@inlined_kernel
def take_base(book: Book, page: Int, base: Int) -> Int:
    """Take the base of an unread page from the rest that its domain has. Returns the base that it gets."""
    row = domain_row(book, page)
    taken = min(base, max(book.domains[row, BASES_LEFT], 0))
    book.domains[row, BASES_LEFT] -= taken
    return taken


@inlined_kernel
def give_base_back(book: Book, page: Int, base: Int) -> None:
    """The base of a page that is no unread page any more is left to its domain again."""
    book.domains[domain_row(book, page), BASES_LEFT] += base


@lean_kernel
def hash_domains(table: Table, book: Book, slots: Array, rules: IdRules, memo: HostMemo, out: Ids) -> None:
    """A hash of the domain of every page at `slots`; 0 where the URL is not known."""
    for i in range(slots.shape[0]):
        start = table.url_start[slots[i]]
        out[i] = 0
        if start != 0:
            begin = start + 1
            end = begin + np.int64(book.urls[start - 1]) + (np.int64(book.urls[start]) << 8)
            host = begin
            while host < end and byte_at(book.urls, host) != 47:  # behind ://
                host += 1
            host = min(host + 2, end)
            last = host
            while last < end and byte_at(book.urls, last) != 47:
                last += 1
            out[i] = site_hash(rules, memo, book.urls, begin, host, last)
