"""The unread pages that a ledger would read next, by the discovery `learnt`.

A review begins at a tick, when a cycle has passed since the last one, and at least one in 64 of the pages known was
read for the first time since then: the log alone decides when. A review learns from the pages that were read, and marks
the pages that may be explored until the next one. Plans read the marks and the worth of pages, and change nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from opicflow.pipelines.discovery import DiscoveryPages, page_worth
from opicflow.pipelines.discovery.limits import sample_of
from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import LedgerConfig
from opicflow.pipelines.ledger.ledger_state import Reviews, Times
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages import url_order
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.ledger.plan.policies_in_force import PoliciesInForce
from opicflow.pipelines.refresh.policies import directives
from opicflow.schemas.arrays import Array, Bools, Floats, Ids, Ints
from opicflow.schemas.shards import Shard

_PAGES_A_READ = 64
"""A review reads all known pages, so it waits until one page in so many was read since the last review."""
_FLOOR_SHARE = 100
"""One in so many pages is less important than a page to which next to nothing leads."""


class Worth(NamedTuple):
    """The worth of the pages of a survey, a row for each; logarithms of importance."""

    siblings: Array
    """The mean of its siblings minus the value of the page; 0 where its URL is not known. Single precision."""
    unread: Array
    """The share of the other pages of its host that were not read."""
    marked: Bools
    """Whether it may be explored."""
    domain: Array
    """The number of its registrable domain, from 1 on; 0 where its URL is not known."""
    siblings_weight: float
    share: float
    """The share of orders that explore."""
    bonus: float
    at_once: float
    """The share of the other orders that one domain may have while there are others."""

    def rise(self, rows: Ints | slice) -> Floats:
        """Return the worth of pages minus their importance."""
        rise: Floats = self.siblings_weight * self.siblings[rows].astype(np.float64)
        return rise

    def exploring(self, rows: Ints | slice) -> Floats:
        """By how much it does where they are read to explore."""
        return self.rise(rows) + self.bonus * self.unread[rows]


class _InOrder(NamedTuple):
    """Columns of the pages in the order of URLs."""

    importance: Floats
    host: Array
    is_read: Bools


class UnreadPages:
    """The order of URLs, the reviews, and the worth of unread pages."""

    def __init__(
        self,
        config: LedgerConfig,
        room: Room,
        reader: Reader,
        policies: PoliciesInForce,
        times: Times,
        reviews: Reviews,
        shard: Shard,
    ) -> None:
        self.reviews = reviews
        self._config = config
        self._room = room
        self._reader = reader
        self._policies = policies
        self._times = times
        self._shard = shard
        self._dropped = -1
        """The number of pages removed when the order of URLs was updated; -1: it was not."""

    def change_options(self, config: LedgerConfig) -> None:
        """Go on with another configuration. Learnt values are forgotten if it does not learn."""
        self._config = config
        if not config.learns_discovery:
            self.reviews.forget_all()

    # -- reviews ----------------------------------------------------------------------------------------------------

    def is_review_due(self, second: int) -> bool:
        """Whether a review begins at a tick."""
        if not self._config.learns_discovery:
            return False
        begun = self.reviews.second >= 0
        if begun and second - self.reviews.second < self._config.refresh.cycle_hours * 3600:
            return False
        read = self._room.pages_read - self.reviews.read
        return read * _PAGES_A_READ >= max(int(self._room.book.counts[0].pages), 1)

    def begin_review(self, second: int) -> None:
        """Learn from the pages that were read since the last review, and mark those that may be explored."""
        reviews, pages = self.reviews, self._room.table.pages
        rates, _ = self._reader.rates()
        known, rows, row_of = self._columns(rates)
        del rates
        slots = rows.slots
        known.is_tried[self._forbidden(known.page, slots)] = True
        read = np.flatnonzero(rows.is_new)
        since = reviews.second if reviews.second >= 0 else self._times.first_tick_second
        cycle = self._config.refresh.cycle_hours * 3600
        about = len(read) if reviews.second >= 0 else int(len(read) * min(cycle / max(second - since, 1), 1.0))

        def rows_of(ids: Ids) -> Ints:
            found = self._reader.slots_of(ids)
            rows: Ints = row_of[1 + np.maximum(found, -1)].astype(np.int64)
            return rows

        explored = reviews.discovery.begin_review(known, read, rows_of, about)
        no_more = np.flatnonzero(known.explored & ~known.is_read)
        pages["flags"][slots[no_more]] &= ~at.EXPLORED
        pages["flags"][slots[explored]] |= at.EXPLORED
        pages["flags"][slots[read]] |= at.READ_BEFORE
        if len(slots) < int(self._room.book.counts[0].pages):  # the URL of some is not known
            pages["flags"][((pages["class_"] & 1) != 0) & (pages["flags"] != 0)] |= at.READ_BEFORE
        reviews.second, reviews.read = second, self._room.pages_read

    # -- columns ---------------------------------------------------------------------------------------------------

    def worth(self, importance: Floats, slots: Ints) -> Worth | None:
        """Return the worth of pages at these slots, which are all, by their importance; None if it is not learnt."""
        if not self._config.learns_discovery:
            return None
        pages = self._room.table.pages
        end = int(self._room.book.counts[0].slots)
        has_gaps = len(slots) < end
        by_slot = importance
        if has_gaps:
            by_slot = np.zeros(end)
            by_slot[slots] = importance
        self.update_order()
        order = self._room.book.url_order
        is_first = order < 0  # of a host
        ordered, host = np.where(is_first, ~order, order), np.cumsum(is_first, dtype=np.int32) - np.int32(1)
        known = _InOrder(self._in_floors(by_slot[ordered]), host, (pages["class_"][ordered] & 1) != 0)
        discovery = self.reviews.discovery
        worth = page_worth(known, discovery.siblings_weight, discovery.rule, np.float32)
        del known  # there may be very many pages

        def by_page(values: Array, kind: type) -> Array:
            column: Array = np.zeros(end, kind)
            column[ordered] = values
            return column[slots] if has_gaps else column

        _, domains = np.unique(self._reader.domain_hashes(ordered[is_first].astype(np.int64)), return_inverse=True)
        return Worth(
            by_page(worth.siblings, np.float32),
            by_page(worth.unread, np.float32),
            (pages["flags"][at.taken_of(slots)] & at.EXPLORED) != 0,
            by_page((domains.astype(np.int32) + 1)[host], np.int32),
            discovery.siblings_weight,
            discovery.share,
            discovery.rule.bonus,
            discovery.rule.ordered_at_once,
        )

    def update_order(self) -> None:
        """Merge the pages whose URL has become known into the order of URLs, and leave out those that were removed."""
        room = self._room
        table, book = room.table, room.book
        order, dropped = book.url_order, int(book.counts[0].dropped)
        left = len(order)
        if dropped != self._dropped:
            order = order.copy()  # the old one stays as it is if memory does not suffice below
            left = int(url_order.leave_out_removed(table, order))
        end = int(book.counts[0].slots)
        flags = table.pages["flags"][:end]
        is_new = (flags != 0) & ((flags & at.IN_URL_ORDER) == 0) & (table.url_start[:end] != 0)
        newcomers = np.flatnonzero(is_new)
        if not len(newcomers) and left == len(order):
            self._dropped = dropped
            return
        words, stack = np.zeros(len(newcomers), np.uint64), np.zeros((len(newcomers) // 2 + 2, 4), np.int64)
        url_order.sort_by_url(table, book, newcomers, words, stack)
        merged = np.empty(left + len(newcomers), np.int32)
        bounds = np.empty(url_order.BOUNDS, np.int64)
        url_order.merge_by_url(table, book, order[:left], newcomers, bounds, merged)
        room.book = book._replace(url_order=merged)
        self._dropped = dropped

    def _columns(self, importance: Floats) -> tuple[DiscoveryPages, url_order.OrderedPages, Array]:
        """Return the rule's columns of all pages with a URL, these pages in URL order, and the row at 1 + each slot.

        `importance` is that of every slot. A slot without such a page has the row -1, and so has the slot -1.
        """
        self.update_order()
        table, order = self._room.table, self._room.book.url_order
        rows = url_order.OrderedPages.of(len(order))
        end = int(self._room.book.counts[0].slots)
        row_of = np.full(end + 1, -1, np.int32)
        url_order.read_pages(table, order, importance, rows, row_of, np.empty(end, np.uint8))
        page = rows.page.view(np.uint64)
        columns = DiscoveryPages(
            page=page,
            host=rows.host,
            domain=self._shard.page_ids.sites_of(page).astype(np.int32),
            importance=self._in_floors(rows.importance),
            is_read=rows.is_read,
            explored=rows.is_explored,
            is_tried=rows.is_tried,
            found_by=rows.found_by,
        )
        return columns, rows, row_of

    def _in_floors(self, importance: Floats) -> Floats:
        """Return importance in such units that a page to which next to nothing leads has what the rule calls floor.

        It is changed without a copy: there may be very many pages.

        Pages without any importance yet, which some history policies know, do not count.
        """
        some = sample_of(importance)
        some = some[some > 0.0]
        if not len(some):
            return importance
        number = len(some) // _FLOOR_SHARE
        some.partition(number)
        importance *= self.reviews.discovery.rule.floor / float(some[number])
        return importance

    def _forbidden(self, pages: Ids, slots: Ints) -> Bools:
        """Return which pages may not be read, by the policies that hold."""
        stated, room = self._policies.stated, self._room
        if not len(stated):
            return np.zeros(len(pages), np.bool_)
        categories = room.table.pages["class_"][slots] >> 1
        rules = directives(stated, room.book.urls, room.table.url_start[slots], pages, categories)
        forbidden: Bools = (rules.forbidden != 0) | (rules.factor == 0)
        return forbidden
