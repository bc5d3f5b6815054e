"""The residuals of a `certified` ledger: pushing them on, and the certificate that their sums give.

With C the sum of all bases, Σr and Σ|r| of the residuals, Σp of all payments, and t = C / (C - Σr), importance is
proportional to c + t (p + r - c), and its L1 distance from the exact ranks of the graph seen is at most

    (d (t Σ|r| + |1 - t| C + links + pages) + 2 t u) / ((1 - d) t Σp)

Links and pages are there for the roundings: less than a unit each. What residuals carry one link further may stand for
d (t Σ|r| + |1 - t| C): it is much less, but takes a pass over all links (`closer_bound`). With several shards the sums
are over the newest reports of all; u is the size of all amounts between them that have not arrived yet
(docs/decisions/certified.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from opicflow.pipelines.ledger.cash import reads
from opicflow.pipelines.ledger.cash.certified import payments
from opicflow.pipelines.ledger.cash.certified.payment_laws import bases_of
from opicflow.pipelines.ledger.cash.peers import Peers
from opicflow.pipelines.ledger.entries import ResidualSums
from opicflow.pipelines.ledger.entry_checks import SHARD_SOURCE, exact_sum
from opicflow.pipelines.ledger.ledger_state import Mark
from opicflow.pipelines.ledger.pages.layout import LINKS_KNOWN, P_CERTIFIED, Book, link_numbers
from opicflow.pipelines.ledger.pages.room import Room, set_rules
from opicflow.schemas.arrays import Floats, Ids, Ints

LARGEST_DISTANCE = 2.0
"""The largest L1 distance between two distributions."""
_MOST_PUSHES_PER_PAGE = 1000
_LEAST_MULTIPLE = 2
"""Pages with a residual of at least so many times the mean are pushed first."""


@dataclass(frozen=True)
class Settled:
    """The exact ranks of the graph seen, within the certificate, which is a bound of the sum of all differences."""

    pages: Ids
    importance: Floats
    certificate: float


def residual_sums(book: Book, sent: tuple[int, ...] = (), received: tuple[int, ...] = ()) -> ResidualSums:
    """The sums of a book."""
    sums = book.sums[0]
    return ResidualSums(
        int(sums.bases),
        int(sums.paid),
        int(sums.residual),
        int(sums.residual_size),
        int(sums.links),
        sent,
        received,
    )


def largest_distance(
    sums: ResidualSums, everywhere: ResidualSums, pages: int, damping: float, under_way: int = 0
) -> float:
    """The bound of the distance that these sums of one shard, or of all, prove; `everywhere` are those of all."""
    if pages == 0:
        return 0.0
    if everywhere.bases <= everywhere.residual or sums.bases <= 0 or sums.paid <= 0:
        return LARGEST_DISTANCE
    scale = everywhere.scale
    off = scale * sums.residual_size + abs(1 - scale) * sums.bases + sums.links + pages
    bound = (damping * off + 2 * scale * under_way) / ((1 - damping) * scale * sums.paid)
    return float(min(bound, LARGEST_DISTANCE))


def closer_bound(room: Room) -> float:
    """A closer bound than that of the sums, in one pass over all links of a ledger that has no other shards.

    It carries every residual one link further, where residuals of both signs meet and mostly cancel.
    """
    book = room.book
    sums, damping = residual_sums(book), _damping_of(book)
    if sums.bases <= sums.residual or sums.paid <= 0:
        return LARGEST_DISTANCE
    carried = np.zeros(int(book.counts[0].slots), np.float64)
    payments.carry_residuals(room.table, book, sums.scale, carried)
    off = float(np.abs(carried).sum()) + damping * (sums.links + int(book.counts[0].pages))
    return float(min(off / ((1 - damping) * sums.scale * sums.paid), LARGEST_DISTANCE))


class Residuals:
    """Pushes the residuals of a ledger's pages."""

    def __init__(self, room: Room, peers: Peers, marks: Mapping[str, Mark]) -> None:
        self._room = room
        self._peers = peers
        self._marks = marks

    def own(self) -> ResidualSums:
        """The sums of this shard's residuals, with all that it has sent to each shard and received from it."""
        self._room.sum_outbox()
        book = self._room.book
        waiting = exact_sum(np.abs(book.outbox_amounts[: int(book.counts[0].outbox)]))
        shards, peers, marks = range(self._peers.shard.ranges.count), self._peers.by_shard, self._marks
        sent = tuple(peers[other].sent_total if other in peers else waiting for other in shards)
        received = tuple(marks.get(f"{SHARD_SOURCE}{other}", Mark()).total for other in shards)
        return residual_sums(book, sent, received)

    def certificate(self, own: ResidualSums) -> float:
        """A bound of the L1 distance between importance and the exact ranks of the graph that all shards have seen.

        `own` are the sums of this shard now, with all amounts sent and received.
        """
        room, peers = self._room, self._peers
        if peers.silent:
            return LARGEST_DISTANCE
        sums = peers.residual_sums(own)
        under_way = peers.under_way(own) if peers.by_shard else 0
        return largest_distance(
            sums, sums, peers.pages(int(room.book.counts[0].pages)), _damping_of(room.book), under_way
        )

    def push(self, tolerance: float, most: int) -> None:
        """Push at most so many pages, while this shard's part of the certificate is above its part of the tolerance."""
        push_residuals(self._room, self._peers, tolerance, most)

    def settle(self, tolerance: float, pages: Ids, slots: Ints) -> Settled:
        """Push on a copy of the columns that pushing changes, until the certificate is below the tolerance."""
        copy = self._room.copy_for_pushing()
        if copy.book.modes[0].policy != P_CERTIFIED:
            convert_to_payments(copy)
        push_residuals(copy, self._peers, tolerance, _MOST_PUSHES_PER_PAGE * len(pages))
        scale = residual_sums(copy.book).scale
        rates = np.zeros(int(copy.book.counts[0].slots), np.float64)
        total = float(reads.read_all_rates(copy.table, copy.book, scale, rates))
        importance = rates[slots] / total if total > 0 else np.zeros(len(slots))
        certificate = Residuals(copy, self._peers, self._marks).certificate(residual_sums(copy.book))
        return Settled(pages, importance, min(certificate, closer_bound(copy)))


def change_rules(
    room: Room,
    damping: float | None,
    class_weights: tuple[int, ...] | None,
    link_bonus_per_1024: tuple[int, ...] | None,
) -> None:
    """Set rules of any history policy; None leaves a rule unchanged. Bases and payments of `certified` follow them."""
    old_damping_q20, old_weights = int(room.book.modes[0].damping_q20), room.book.class_weights.copy()
    set_rules(room.book, damping, class_weights, link_bonus_per_1024)
    is_changed = old_damping_q20 != room.book.modes[0].damping_q20 or (old_weights != room.book.class_weights).any()
    if room.book.modes[0].policy != P_CERTIFIED or not is_changed:
        return
    slot = 0
    while True:
        slot = int(payments.apply_rules(room.table, room.book, old_damping_q20, slot))
        if slot == int(room.book.counts[0].slots):
            return
        room.make_to_pay(int(room.book.modes[0].longest))


def convert_to_payments(room: Room) -> None:
    """Begin the payments of `certified` in a room of another policy: no page has paid along its links yet."""
    table, book = room.table, room.book
    slots = int(book.counts[0].slots)
    known = (table.pages["flags"][:slots] & LINKS_KNOWN) != 0
    link_counts = np.where(known, table.link_count[:slots], 0).astype(table.link_count.dtype)
    bases, pays = bases_of(table, book), link_counts != 0
    table.hot[:slots, 1] = np.where(pays, bases, 0)
    totals = np.where(pays, 0, bases)
    pages = table.pages.copy()
    pages["opening"][:slots] = bases
    room.table = table._replace(totals=totals, link_count=link_counts, pages=pages)
    room.book = book._replace(modes=book.modes.copy(), domains=book.domains[:0])
    room.book.modes[0].policy = P_CERTIFIED
    sums = room.book.sums[0]
    sums.bases, sums.paid = bases.sum(), totals.sum()
    sums.residual = sums.residual_size = table.hot[:slots, 1].sum()
    sums.links = link_numbers(link_counts).sum(dtype=np.int64)


def push_residuals(room: Room, peers: Peers, tolerance: float, most: int) -> None:
    """Push at most so many pages, while this shard's part of the certificate is above its part of the tolerance.

    The parts are its share of all payments. Pages whose residual is below twice the mean wait: pushed now, they would
    soon have to be pushed again. When no other pages are left, those with the mean or more are pushed.
    """
    longest = int(room.book.modes[0].longest)
    multiple = _LEAST_MULTIPLE
    while most > 0:
        own, pages = residual_sums(room.book), int(room.book.counts[0].pages)
        if largest_distance(own, peers.residual_sums(own), pages, _damping_of(room.book)) <= tolerance:
            return
        least = max(multiple * own.residual_size // max(pages, 1), 1)
        before, slots = most, int(room.book.counts[0].slots)
        while slots > 0:
            room.make_to_pay(longest)
            pushed, left = payments.push_pages(room.table, room.book, room.scratch, least, most, slots)
            most, slots = most - int(pushed), int(left)
        if most == before:
            if multiple == 1:
                return
            multiple = 1


def _damping_of(book: Book) -> float:
    return int(book.modes[0].damping_q20) / (1 << 20)
