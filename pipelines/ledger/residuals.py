"""The residuals of a `certified` ledger: pushing them on, and the certificate that their sums give.

With C the sum of all bases, Σr and Σ|r| of the residuals, Σp of all payments, and t = C / (C - Σr), importance is
proportional to c + t (p + r - c), and its L1 distance from the exact ranks of the graph seen is at most

    d (t Σ|r| + |1 - t| C + links + pages) / ((1 - d) t Σp)

Links and pages are there for the roundings: less than a unit each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ledger.balance import bases_of
from opicflow.pipelines.ledger.kernels import certified, reads
from opicflow.pipelines.ledger.layout import LINKS_KNOWN, P_CERTIFIED, Book, link_numbers
from opicflow.pipelines.ledger.room import Room
from opicflow.schemas.arrays import Array, Floats, Ids, Ints

LARGEST_DISTANCE = 2.0
"""The largest L1 distance between two distributions."""
_MOST_PUSHES_PER_PAGE = 1000


@dataclass(frozen=True)
class Settled:
    """The exact ranks of the graph seen, as near as the certificate says: a bound of the sum of all differences."""

    pages: Ids
    importance: Floats
    certificate: float


def certificate_of(book: Book) -> float:
    """The certificate of a book."""
    counts, sums = book.counts[0], book.sums[0]
    pages, base, paid = int(counts.pages), int(sums.bases), int(sums.paid)
    rest = base - int(sums.residual)
    if pages == 0:
        return 0.0
    if base <= 0 or rest <= 0 or paid <= 0:
        return LARGEST_DISTANCE
    scale = base / rest
    damping = int(book.modes[0].damping_q20) / (1 << 20)
    off = scale * int(sums.residual_size) + abs(1 - scale) * base + int(sums.links) + pages
    return float(min(damping * off / ((1 - damping) * scale * paid), LARGEST_DISTANCE))


class Residuals:
    """Pushes the residuals of a ledger's pages."""

    def __init__(self, room: Room) -> None:
        self._room = room

    def certificate(self) -> float:
        """A bound of the L1 distance between importance and the exact ranks of the graph seen."""
        return certificate_of(self._room.book)

    def push(self, tolerance: float, most: int) -> None:
        """Push at most so many pages, while the certificate is above the tolerance."""
        push_residuals(self._room, tolerance, most)

    def apply_rules(self, damping_q20: int, class_weights: Array) -> None:
        """Change all bases and payments from these rules to those that hold now."""
        room, slot = self._room, 0
        room.make_scratch(int(room.book.modes[0].longest))
        while True:
            slot = int(certified.apply_rules(room.table, room.book, room.scratch, damping_q20, class_weights, slot))
            if slot == int(room.book.counts[0].slots):
                return
            room.make_lost(int(room.book.modes[0].longest))

    def settle(self, tolerance: float, pages: Ids, slots: Ints) -> Settled:
        """Push on a copy of the columns that pushing changes, until the certificate is below the tolerance."""
        copy = self._room.copy_for_pushing()
        if copy.book.modes[0].policy != P_CERTIFIED:
            begin_payments(copy)
        push_residuals(copy, tolerance, _MOST_PUSHES_PER_PAGE * len(pages))
        rates = np.zeros(int(copy.book.counts[0].slots), np.float64)
        total = float(reads.read_all_rates(copy.table, copy.book, rates))
        importance = rates[slots] / total if total > 0 else np.zeros(len(slots))
        return Settled(pages, importance, certificate_of(copy.book))


def begin_payments(room: Room) -> None:
    """Begin the payments of `certified` in a room of another policy: no page has paid along its links yet."""
    table, book = room.table, room.book
    slots = int(book.counts[0].slots)
    known = (table.pages["flags"][:slots] & LINKS_KNOWN) != 0
    link_counts = np.where(known, table.link_count[:slots], 0).astype(table.link_count.dtype)
    bases, pays = bases_of(table, book), link_counts != 0
    table.hot[:slots, 1] = np.where(pays, bases, 0)
    totals = np.where(pays, 0, bases)
    room.table = table._replace(totals=totals, link_count=link_counts)
    room.book = book._replace(modes=book.modes.copy())
    room.book.modes[0].policy = P_CERTIFIED
    sums = room.book.sums[0]
    sums.bases, sums.paid = bases.sum(), totals.sum()
    sums.residual = sums.residual_size = table.hot[:slots, 1].sum()
    sums.links = link_numbers(link_counts).sum(dtype=np.int64)


def push_residuals(room: Room, tolerance: float, most: int) -> None:
    """Push at most so many pages, while the certificate is above a tolerance.

    Those whose residual is below the mean of all wait: pushed now, they would soon have to be pushed again.
    """
    room.make_scratch(int(room.book.modes[0].longest))
    while most > 0 and certificate_of(room.book) > tolerance:
        room.make_lost(int(room.book.modes[0].longest))
        counts, sums = room.book.counts[0], room.book.sums[0]
        least = max(int(sums.residual_size) // max(int(counts.pages), 1), 1)
        pushed = int(certified.push_pages(room.table, room.book, room.scratch, least, most))
        if pushed == 0:
            return
        most -= pushed
