"""Removes pages from a ledger: dropped, forgotten, gone, or evicted. Their cash goes to the virtual page."""

from __future__ import annotations

import numpy as np

from opicflow.pipelines.ledger.cash import births
from opicflow.pipelines.ledger.cash.reader import Reader
from opicflow.pipelines.ledger.config import LedgerConfig
from opicflow.pipelines.ledger.entries import CrawlItems, Kind, Outcome, RemovalReason
from opicflow.pipelines.ledger.ledger_state import Reviews
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages import observations, url_arena
from opicflow.pipelines.ledger.pages.room import Room
from opicflow.pipelines.ledger.plan.qualities import Qualities
from opicflow.pipelines.refresh.orders import rank_within
from opicflow.pipelines.refresh.policies import Prefixes, matches_ragged
from opicflow.schemas.arrays import Bytes, Ids, Ints
from opicflow.schemas.shards import Shard

FOR_EVER = (1 << 63) - 1
"""Pages that are forgotten until this second are never learnt again."""

_VISIT, _GONE = int(Kind.VISIT), int(Outcome.GONE)
_EVICTED_SHARE = 64
"""Above `max_pages`, one page in so many is evicted at least: then most ticks need not search."""


class Removal:
    """Removes pages, and keeps the removed ones since `begin` for the result of an entry."""

    def __init__(
        self,
        config: LedgerConfig,
        room: Room,
        reader: Reader,
        shard: Shard,
        url_generation: int,
        reviews: Reviews,
        qualities: Qualities,
    ) -> None:
        self.url_generation = url_generation
        self._gone: list[Ids] | None = None
        """Pages that visits found gone since the last tick; None before the first one of this object."""
        self.removed: list[tuple[RemovalReason, Ids]] = []
        self.removed_urls: list[tuple[Ints, Bytes]] = []
        self._config = config
        self._room = room
        self._reader = reader
        self._shard = shard
        self._reviews = reviews
        self._qualities = qualities

    def begin(self) -> None:
        """Start the lists of removed pages for another entry."""
        self.removed, self.removed_urls = [], []

    # -- dropping and forgetting -----------------------------------------------------------------------------------

    def drop(self, pages: Ids, reason: RemovalReason = RemovalReason.DROPPED) -> None:
        """Remove pages. Pages that are not known are skipped."""
        if len(pages) == 0:
            return
        room = self._room
        room.finish_moving()
        room.make_free(len(pages))
        known = pages[self._reader.slots_of(pages) >= 0]
        if room.book.modes[0].remember and len(known):
            room.make_numbers(0, len(known), begin=True)
        if len(known):
            self.removed.append((reason, known))
            self.removed_urls.append(self._reader.urls(known))
        ids, done = np.ascontiguousarray(pages).view(np.int64), 0
        slots = self._reader.slots_of(known)
        self._leave_discovery(slots)
        self._qualities.leave(slots)
        while True:
            done = int(births.drop_pages(room.table, room.book, ids, done))
            if done == len(ids):
                break
            room.make_to_pay(int(room.book.modes[0].longest))

    def _leave_discovery(self, slots: Ints) -> None:
        """Pages at these slots are not known any longer as finders or as read: other pages will have the slots."""
        table, slots = self._room.table, np.unique(slots)
        self._reviews.read -= int(((table.pages["flags"][slots] & at.READ_BEFORE) != 0).sum())
        slots = slots[table.pages["visits"][slots] > 0]  # pages that were never visited have found none
        if len(slots) and len(table.found_by):
            is_removed = np.zeros(len(table.found_by) + 1, np.bool_)
            is_removed[slots + 1] = True
            table.found_by[is_removed[table.found_by]] = 0

    def forget(self, pages: Ids, until: int) -> None:
        """Remove pages and their URLs, and refuse to learn them again before the second `until`."""
        self.drop(pages, RemovalReason.FORGOTTEN)
        self._bar(pages, np.full(len(pages), max(until, 0), np.int64))
        self._compact_urls(0)

    def readmit(self, second: int) -> None:
        """Pages that were forgotten until this second, or an earlier one, may be learnt again."""
        book = self._room.book
        stays = book.forgotten_until > second
        if not stays.all():
            self._room.book = book._replace(
                forgotten=book.forgotten[stays], forgotten_until=book.forgotten_until[stays]
            )

    def is_forgotten(self, page: int) -> bool:
        """Whether a page must not be learnt now."""
        return bool(births.is_forgotten(self._room.book, np.array([page], np.uint64).view(np.int64)[0]))

    def forget_rows(self, items: CrawlItems, forgetting: list[tuple[Prefixes, int]]) -> list[tuple[int, int, int]]:
        """Find the pages whose URLs in these rows have a forgotten prefix; each pair gives prefixes and until when.

        A page that no earlier row names is barred at once. The others are returned in the order of their rows: the row
        of the URL, the page, and until when it is forgotten. The caller forgets them before it applies that row.
        """
        if not forgetting:
            return []
        until = np.full(len(items), -1, np.int64)
        for prefixes, second in forgetting:
            found = matches_ragged(prefixes, items.url_bytes, items.url_starts)
            until[found] = np.maximum(until[found], second)
        rows = np.flatnonzero(until >= 0)
        if len(rows) == 0:
            return []
        pages, first = np.unique(items.page[rows], return_index=True)
        first = rows[first]
        slots, named = self._reader.slots_of(pages), first.copy()
        naming = np.concatenate((np.arange(len(items)), np.repeat(np.arange(len(items)), np.diff(items.link_starts))))
        names = np.concatenate((items.page, items.link_pages))
        positions = np.minimum(np.searchsorted(pages, names), len(pages) - 1)
        here = pages[positions] == names
        np.minimum.at(named, positions[here], naming[here])
        later = ((slots >= 0) | (named < first)) & ~np.isin(pages.view(np.int64), self._room.book.forgotten)
        self._bar(pages[~later], until[first[~later]])
        return sorted(
            zip(first[later].tolist(), pages[later].tolist(), until[first[later]].tolist(), strict=True),
        )

    def _bar(self, pages: Ids, until: Ints) -> None:
        """Refuse to learn pages before a second; of two seconds for one page the later one counts."""
        book = self._room.book
        ids = np.concatenate((book.forgotten, pages.view(np.int64)))
        seconds = np.concatenate((book.forgotten_until, until))
        order = np.lexsort((seconds, ids))
        ids, seconds = ids[order], seconds[order]
        last = np.append(ids[1:] != ids[:-1], np.ones(min(len(ids), 1), np.bool_))
        self._room.book = book._replace(forgotten=ids[last], forgotten_until=seconds[last])

    # -- at ticks --------------------------------------------------------------------------------------------------

    def note_gone(self, items: CrawlItems, first: int, last: int) -> None:
        """Note which pages the visits in the rows [first, last) found gone.

        It does nothing if no page was found gone often enough since the last tick.
        """
        if self._gone is not None and self._room.book.counts[0].long_gone > 0:
            rows = slice(first, last)
            self._gone.append(items.page[rows][(items.kind[rows] == _VISIT) & (items.outcome[rows] == _GONE)])

    def drop_gone(self) -> None:
        """Drop pages that were found gone in `gone_visits` visits in a row, over the time that these take by plan.

        Only visits make a page one of them: none but those noted since the last tick are read. After a restart all are.
        """
        counts, config = self._room.book.counts[0], self._config.refresh
        noted, self._gone = self._gone, []
        if counts.long_gone == 0:
            return
        counts.long_gone = 0
        pages = self._reader.live()[0] if noted is None else np.concatenate(noted)
        slots = np.empty(len(pages), np.int64)
        limits = config.gone_visits, config.seconds_to_be_gone
        found = int(observations.find_long_gone(self._room.table, pages.view(np.int64), *limits, slots))
        if found:
            self.drop(self._reader.ids_at(np.unique(slots[:found])), RemovalReason.GONE)

    def evict(self) -> None:
        """Drop the unread pages with the least waiting cash where the ledger, or a host, has too many pages."""
        config, room = self._config, self._room
        counts = room.book.counts[0]
        too_many = 0 if config.max_pages is None else int(counts.pages) - config.max_pages
        if too_many > 0 or config.max_unread_per_host is not None:
            ids, slots = self._reader.live()
            unread = (room.table.pages["class_"][slots] & 1) == 0
            ids, slots = ids[unread], slots[unread]
            poorest_last = np.lexsort((ids, -self._reader.waiting(slots)))
            ids, slots = ids[poorest_last], slots[poorest_last]
            goes = np.zeros(len(ids), np.bool_)
            if config.max_unread_per_host is not None:
                hosts = np.zeros(len(slots), np.uint64)
                url_arena.hash_hosts(room.table, room.book, slots, self._shard.page_ids.rules.key, hosts)
                names, numbers = np.unique(hosts, return_inverse=True)
                most = np.ceil(config.max_unread_per_host * self._shard.parts_of_hosts(ids)[0])
                goes = (rank_within(numbers, len(names)) >= most) & (hosts != 0)
            left = np.flatnonzero(~goes)
            more = too_many - int(goes.sum())
            if more > 0:
                goes[left[-(more + config.max_pages // _EVICTED_SHARE if config.max_pages else more) :]] = True
            counts.evicted += int(goes.sum())
            self.drop(ids[goes], RemovalReason.LIMIT)
        self._compact_urls(int(counts.url_end) // 2)

    def _compact_urls(self, most_stale_bytes: int) -> None:
        """Rewrite the arena of URLs without those of removed pages, if they take more bytes than this."""
        if self._room.book.counts[0].url_stale > most_stale_bytes:
            self._room.compact_urls()
            self.url_generation += 1
