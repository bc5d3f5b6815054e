"""The residuals of a `certified` ledger: pushing them on, and the certificate that their sums give.

With C the sum of all bases, Σr and Σ|r| of the residuals, Σp of all payments, and t = C / (C - Σr), importance is
proportional to c + t (p + r - c), and its L1 distance from the exact ranks of the graph seen is at most

    d (t Σ|r| + |1 - t| C + links + pages) / ((1 - d) t Σp)

Links and pages are there for the roundings: less than a unit each.
"""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.kernels import certified, reads
from opicflow.pipelines.ledger.layout import Book
from opicflow.pipelines.ledger.room import Room
from opicflow.pipelines.ledger.settlement import Settled
from opicflow.schemas.arrays import Array, Ids, Ints

LARGEST_DISTANCE = 2.0
"""The largest L1 distance between two distributions."""
_MOST_PUSHES_PER_PAGE = 1000


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
        push_residuals(copy, tolerance, _MOST_PUSHES_PER_PAGE * len(pages))
        rates = np.zeros(int(copy.book.counts[0].slots), np.float64)
        total = float(reads.read_all_rates(copy.table, copy.book, rates))
        importance = rates[slots] / total if total > 0 else np.zeros(len(slots))
        return Settled(pages, importance, certificate_of(copy.book))


def push_residuals(room: Room, tolerance: float, most: int) -> None:
    """Push at most so many pages, those with a residual above the mean, while the certificate is above a tolerance."""
    room.make_scratch(int(room.book.modes[0].longest))
    while most > 0 and certificate_of(room.book) > tolerance:
        room.make_lost(int(room.book.modes[0].longest))
        counts, sums = room.book.counts[0], room.book.sums[0]
        least = int(sums.residual_size) // max(int(counts.pages), 1)
        pushed = int(certified.push_pages(room.table, room.book, room.scratch, least, most))
        if pushed == 0:
            return
        most -= pushed
