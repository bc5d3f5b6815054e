"""Limits what unread pages of one registrable domain may be and hold (docs/decisions/domain-limits.md).

Whoever owns a domain can make any number of URLs, on any number of hosts, at no cost. So the unit is the domain.

Kernels know the hash of the site with which a page id begins, of 16 bits, and decide by it at once. Where a crawl has
more domains than there are hashes, some share one. At ticks and sweeps they are distinguished by their URLs: a hash
then has as much as all its domains together.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from opicflow.pipelines.ledger.cash.balance import rows_of_domains
from opicflow.pipelines.ledger.cash.certified import payments
from opicflow.pipelines.ledger.cash.certified.payment_laws import class_bases
from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import SECONDS_PER_DAY, DomainLimits
from opicflow.pipelines.ledger.entries import RemovalReason
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.ledger.plan.removal import Removal
from opicflow.pipelines.refresh.orders import rank_within
from opicflow.schemas.arrays import Bools, Floats, Ids, Ints
from opicflow.schemas.pages import SITE_BITS
from opicflow.schemas.shards import Shard


class Domains:
    """The limits of domains in one shard."""

    def __init__(self, limits: DomainLimits, room: Room, reader: Reader, removal: Removal, shard: Shard) -> None:
        self._limits = limits
        self._room = room
        self._reader = reader
        self._removal = removal
        self._shard = shard

    def begin(self) -> None:
        """Fill the limits of a new ledger, which has no pages."""
        domains = self._room.book.domains
        if not len(domains):
            return
        domains[:, at.UNREAD_MOST] = self._allowed(self._limits.most_unread)
        domains[:, at.ANNOUNCED_LEFT] = self._allowed(self._limits.most_announced)
        domains[:, at.BASES_LEFT] = self._most_held()

    @property
    def not_learnt(self) -> int:
        """How often a page was not added because of the limits."""
        return int(self._room.book.domains[:, at.NOT_LEARNT].sum())

    # -- at ticks --------------------------------------------------------------------------------------------------

    def limit_unread(self) -> None:
        """Remove the unread pages with the least waiting cash where a domain has too many."""
        domains, limits = self._room.book.domains, self._limits
        if limits.most_unread is None:
            return
        fewest = self._allowed(limits.most_unread)
        is_near = domains[:, at.UNREAD] >= (fewest + 1) // 2  # no domain of another hash can have too many
        if not is_near.any():
            return
        ids, slots, numbers, names = self._domains_of(is_near)
        unread = self._is_unread(slots)
        domains[:, at.UNREAD_MOST] = self._allowed(limits.most_unread, _domains_in(numbers, names, len(domains)))
        poorest_last = np.lexsort((ids[unread], -self._reader.waiting(slots[unread])))
        ids, numbers, names = ids[unread][poorest_last], numbers[unread][poorest_last], names[unread][poorest_last]
        _, of = np.unique(names, return_inverse=True)
        goes = (rank_within(of, int(of.max(initial=-1)) + 1) >= fewest[numbers]) & (names != 0)
        if goes.any():
            self._room.book.counts[0].evicted += int(goes.sum())
            self._removal.drop(ids[goes], RemovalReason.LIMIT)

    def begin_day(self, before: int, second: int) -> None:
        """Allow the announcements of another day, if one began since the second `before`."""
        domains, most = self._room.book.domains, self._limits.most_announced
        if most is not None and before // SECONDS_PER_DAY != second // SECONDS_PER_DAY:
            _, _, numbers, names = self._domains_of()
            domains[:, at.ANNOUNCED_LEFT] = self._allowed(most, _domains_in(numbers, names, len(domains)))

    def share_bases(self) -> None:
        """Give unread pages their bases, those of one domain together no more than they may have.

        Read pages have R together. With a share of s, a domain may have R s / (1 - s), or the base of a page if that is
        more: then it has at most the share s of all bases, whatever other domains have. Within a domain, all unread
        pages of a class get the same part of their base.
        """
        room, domains = self._room, self._room.book.domains
        if self._limits.most_share is None:
            return
        _, slots, numbers, names = self._domains_of()
        most, of_one = self._most_held(_domains_in(numbers, names, len(domains))), self._most_held()
        unread = self._is_unread(slots)
        slots, numbers, names = slots[unread], numbers[unread], names[unread]
        bases = class_bases(room.book)[room.table.pages["class_"][slots]]
        names = np.where(names == 0, numbers.astype(np.uint64), names)  # unknown ones of a row count as one domain
        _, first, of = np.unique(names, return_index=True, return_inverse=True)
        wanted = np.bincount(of, bases, len(first))
        part = np.minimum(of_one[numbers[first]] / np.maximum(wanted, 1.0), 1.0)
        bases = np.minimum(np.floor(bases * part[of]).astype(np.int64), bases)
        differs = bases != room.table.pages["opening"][slots]
        payments.set_bases(room.table, room.book, slots[differs], bases[differs])
        held = np.zeros(len(domains), np.int64)
        np.add.at(held, numbers, bases)
        domains[:, at.BASES_LEFT] = np.maximum(most - held, 0)

    # -- domains ---------------------------------------------------------------------------------------------------

    def _domains_of(self, which: Bools | None = None) -> tuple[Ids, Ints, Ints, Ids]:
        """Return the pages of domains with these rows, or of all: ids, slots, the row of each, a hash of its domain.

        Pages whose URL is not known have the hash 0.
        """
        ids, slots = self._reader.live()
        numbers = rows_of_domains(ids, self._room.book)
        if which is not None:
            here = which[numbers]
            ids, slots, numbers = ids[here], slots[here], numbers[here]
        return ids, slots, numbers, self._reader.domain_hashes(slots)

    def _is_unread(self, slots: Ints) -> Bools:
        unread: Bools = (self._room.table.pages["class_"][slots] & 1) == 0
        return unread

    @cached_property
    def _parts(self) -> Floats:
        """Return which part of the pages of each row's domain this shard has."""
        domains, book = self._room.book.domains, self._room.book
        shift = np.uint64(64 - SITE_BITS)
        first = np.array([book.modes[0].first_id], np.int64).view(np.uint64) >> shift
        rows: Ids = np.arange(len(domains), dtype=np.uint64)
        pages: Ids = (rows + first) << shift
        return self._shard.parts_of_hosts(pages)[0]

    def _allowed(self, most: int | None, named: Ints | int = 1) -> Ints:
        """Return how many pages each row may have, with so many domains."""
        if most is None:
            return np.full(len(self._parts), at.UNLIMITED)
        allowed: Ints = np.ceil(np.minimum(most * self._parts * named, at.UNLIMITED)).astype(np.int64)
        return allowed

    def _most_held(self, named: Ints | int = 1) -> Ints:
        """Return the sum of bases that unread pages of each row may have together, with so many domains."""
        book, share = self._room.book, self._limits.most_share
        if share is None:
            return np.full(len(self._parts), at.UNLIMITED)
        bases = class_bases(book)
        read = float(bases[1::2] @ book.class_pages[1::2]) * self._shard.ranges.count
        of_one = max(read * share / (1.0 - share), float(bases.max()))
        held: Ints = np.floor(np.minimum(of_one * self._parts * named, at.UNLIMITED)).astype(np.int64)
        return held


def _domains_in(numbers: Ints, names: Ids, rows: int) -> Ints:
    """Return how many domains each row has: at least one."""
    _, first = np.unique(names[names != 0], return_index=True)
    return np.maximum(np.bincount(numbers[names != 0][first], minlength=rows), 1)
