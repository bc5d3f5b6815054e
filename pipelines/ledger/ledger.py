"""The ledger of one shard: cash, history and importance of its pages, a pure function of the shard log.

`apply` takes the entries of the log one by one. It drops what it has had, trims what it has half had, and refuses what
would leave a hole or break the books; after an `EntryRefused` the ledger is exactly as it was. The same entries give
the same bytes (`snapshot`) in whatever batches they come.

No clock, no files, no randomness: time comes as `TickEntry`, and what it owes to other shards it returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.ledger import layout as at
from opicflow.pipelines.ledger import planning
from opicflow.pipelines.ledger import snapshot as snapshots
from opicflow.pipelines.ledger.checks import (
    SHARD_SOURCE,
    check_crawl,
    check_kind,
    check_policy,
    check_range,
    check_source,
    check_tick,
    check_transfers,
    exact_sum,
)
from opicflow.pipelines.ledger.config import (
    MOST_CASH,
    UNITS_PER_PAGE,
    LedgerConfig,
    RefreshConfig,
    check_shard,
    check_theta,
    shown,
)
from opicflow.pipelines.ledger.entries import (
    START,
    Bytes,
    CrawlEntry,
    CrawlItems,
    Gossip,
    Ids,
    Ints,
    Kind,
    LogEntry,
    LogPosition,
    Outcome,
    PolicyEntry,
    RemovalReason,
    TickEntry,
    TransfersEntry,
    sum_transfers,
)
from opicflow.pipelines.ledger.errors import ConfigRefused, EntryRefused, LedgerBroken, SnapshotRefused
from opicflow.pipelines.ledger.estimates import Estimates, Floats, richest
from opicflow.pipelines.ledger.kernels import batches, index, links, observations, reads, spending, urls
from opicflow.pipelines.ledger.layout import Array, Book, Columns, Table
from opicflow.pipelines.ledger.planning import Budget, Orders, Shared, Survey
from opicflow.pipelines.ledger.room import Room, new_book, new_table, set_rules
from opicflow.pipelines.ledger.settle import Settled, settle_links
from opicflow.pipelines.ledger.soundness import BUDGET_WORDS, column_problem, recent_problem, state_problem
from opicflow.pipelines.refresh import policies
from opicflow.pipelines.refresh.orders import packed_intervals, rank_within, unpacked_intervals
from opicflow.pipelines.refresh.policies import Policies
from opicflow.pipelines.refresh.strategies import SHARE_UNITS
from opicflow.schemas.pages import page_id, shard_bounds
from opicflow.schemas.policy_json import PolicyRefused, policy_from_json, policy_to_json
from opicflow.schemas.records import Policy

_SECONDS_PER_DAY = 86400
_SECONDS_PER_MINUTE = 60
_WRAP = 1 << 64
_VISITS_A_MESSAGE = 64  # of a cut; fewer would cost more to send and to take than the visits themselves
_ASKED_FOR_SECONDS = 30 * _SECONDS_PER_DAY  # after which those who asked for pages at once no longer do
_EVICTED_AT_LEAST = 64  # one in so many pages goes when there are too many, so that not every tick has to look
FOR_EVER = (1 << 63) - 1
"""The second from which what is forgotten for ever may be learnt again."""


@dataclass
class Mark:
    """How far a source has been applied, and what it has sent: visits, or cash and its digest."""

    place: LogPosition = START
    total: int = 0
    digest: int = 0


@dataclass
class Peer:
    """Another shard as this one knows it. `gossip` is None until it has first spoken."""

    sent_total: int = 0
    sent_digest: int = 0
    gossip: Gossip | None = None


@dataclass(frozen=True)
class Applied:
    """What an entry did: how many rows of each kind counted, and what must now go to other shards.

    `fates` holds a `Fate` for each of the last rows of a crawl entry, from the first that the ledger did not have.
    """

    visits: int = 0
    announcements: int = 0
    sightings: int = 0
    births: int = 0
    duplicates: int = 0
    late: int = 0
    sealed: tuple[tuple[int, TransfersEntry], ...] = ()
    refused: tuple[tuple[Policy, str], ...] = ()
    """Policies that were not taken, and why."""
    removed: tuple[tuple[RemovalReason, Ids], ...] = field(default=(), compare=False)
    """Pages that are no longer there, and why: what was published of them no longer holds."""
    removed_urls: tuple[tuple[Ints, Bytes], ...] = field(default=(), compare=False)
    """For each of `let_go` where their URLs start, and the URLs: who was told of a page knows it by its URL."""
    fates: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8), compare=False)


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
        """What is missing from the books; anything but 0 is a bug."""
        return self.minted - (self.cash + self.uncollected + self.virtual + self.absorbed + self.sent - self.received)


@dataclass
class Times:
    """What the ledger remembers of time, so that a window can be given in days and movement seen."""

    tick_second: int = -1
    sweep_second: int = -1
    sweep_rate_sum: float = 0.0
    days: list[tuple[int, int]] = field(default_factory=list)
    first_tick_second: int = -1
    planned_second: int = -1
    sweep_received: int = 0


@dataclass
class Credits:
    """Fetches that the bandwidth allows and nobody has got yet: parts of one, which the next cycle has on top."""

    refresh: float = 0.0
    discovery: float = 0.0


@dataclass(frozen=True)
class Planned:
    """A plan: what is known of all pages, how they share the bandwidth, who is fetched, what is to be published."""

    survey: Survey
    shared: Shared
    orders: Orders
    publish: Ints
    """Rows of the survey whose schedule is to be published."""


class Ledger:
    """One shard's ledger. `theta_start` is where its turn clock begins: any value gives the same importance."""

    def __init__(
        self, config: LedgerConfig | None = None, shard: int = 0, shards: int = 1, theta_start: int = 0
    ) -> None:
        config = config or LedgerConfig()
        check_shard(shard, shards)
        check_theta(theta_start)
        self.config = config
        self.shard = shard
        self.shards = shards
        self._ids = shard_bounds(shard, shards)
        self._first_ids = np.array([shard_bounds(one, shards)[0] for one in range(shards)], np.uint64)
        self._room = Room(config, new_table(config), new_book(config, self._ids, theta_start))
        self._room.book.modes[at.LIKE_US] = shards
        self._marks: dict[str, Mark] = {}
        self._peers: dict[int, Peer] = {s: Peer() for s in range(shards) if s != shard}
        self._times = Times()
        self._cut = 0
        self._url_generation = 0
        self._fates: Bytes = np.zeros(0, np.uint8)
        self._policies = Policies()
        self._forgetting: list[tuple[policies.Prefixes, int]] = []
        self._published_budget: dict[str, Any] = {}
        self._credits = Credits()
        self._refused: list[tuple[Policy, str]] = []
        self._removed: list[tuple[RemovalReason, Ids]] = []
        self._removed_urls: list[tuple[Ints, Bytes]] = []

    # -- applying the log ------------------------------------------------------------------------------------------

    def apply(self, entry: LogEntry) -> Applied:
        """Apply one entry of the log; what it holds below its source's mark is dropped.

        `EntryRefused` if it would leave a hole or break the books: the ledger is then as it was before.
        """
        self._go_on()
        check_kind(entry)
        before = self._room.book.counts.copy()
        self._fates = np.zeros(0, np.uint8)
        self._refused, self._removed, self._removed_urls = [], [], []
        try:
            sealed = self._apply(entry)
        except EntryRefused:
            raise
        except BaseException:  # no memory, an interrupt: what was done is not known
            self._room.book.counts[at.BROKEN] = 2
            raise
        self._go_on()
        grown = self._room.book.counts - before
        return Applied(
            visits=int(grown[at.VISITS]),
            announcements=int(grown[at.ANNOUNCEMENTS]),
            sightings=int(grown[at.SIGHTINGS]),
            births=int(grown[at.BIRTHS]),
            duplicates=int(grown[at.DUPLICATES]),
            late=int(grown[at.LATE]),
            sealed=tuple(sealed),
            refused=tuple(self._refused),
            removed=tuple(self._removed),
            removed_urls=tuple(self._removed_urls),
            fates=self._fates,
        )

    def mark(self, source: str) -> LogPosition:
        """How far a source has been applied: the next entry of it may not begin above."""
        return self._marks[source].place if source in self._marks else START

    def _apply(self, entry: LogEntry) -> list[tuple[int, TransfersEntry]]:
        if isinstance(entry, CrawlEntry):
            return self._apply_crawl(entry)
        if isinstance(entry, TransfersEntry):
            return self._apply_transfers(entry)
        if isinstance(entry, PolicyEntry):
            return self._apply_policy(entry)
        assert isinstance(entry, TickEntry)  # check_kind has refused the others
        return self._apply_tick(entry)

    def _apply_crawl(self, entry: CrawlEntry) -> list[tuple[int, TransfersEntry]]:
        check_source(entry)
        mark = self._marks.get(entry.source, Mark())
        if not check_range(entry.source, entry.start, entry.end, mark.place):
            return []
        check_crawl(entry, self.config.categories, *self._ids)
        items = entry.items
        known = (items.offset < mark.place.offset) | (
            (items.offset == mark.place.offset) & (items.within < mark.place.within)
        )
        if known.any():
            items = items.rows(int(known.sum()), len(items))
        total = mark.total + int((items.kind == Kind.VISIT).sum())
        if entry.visits_total is not None and entry.visits_total != total:
            raise EntryRefused(
                f"{entry.source}: it counts {entry.visits_total} visits sent to this shard, the ledger {total}: "
                "the audit does not fit, send the missing entries again"
            )
        sealed: list[tuple[int, TransfersEntry]] = []
        self._fates = np.zeros(len(items), np.uint8)
        first = 0
        for row, page, until in self._forget_new(items):
            sealed += self._apply_rows(items.rows(first, row), self._fates[first:row])
            self._forget(np.array([page], np.uint64), until)
            first = row
        sealed += self._apply_rows(items.rows(first, len(items)), self._fates[first:])
        self._compact_links(max(int(self._room.book.counts[at.LINK_END]) // 2, 1 << 15))
        self._marks[entry.source] = Mark(entry.end, total)
        return sealed

    def _apply_rows(self, items: CrawlItems, fates: Bytes) -> list[tuple[int, TransfersEntry]]:
        sealed: list[tuple[int, TransfersEntry]] = []
        rows = _kernel_columns(items, fates)
        room = self._room
        most_links = int(np.diff(items.link_starts).max()) if len(items) else 0
        room.make_scratch(max(most_links, int(room.book.modes[at.LONGEST])))
        done, least_visits = 0, _VISITS_A_MESSAGE * (self.shards - 1)
        while True:
            done, why = batches.apply_items(room.table, room.book, room.scratch, rows, done, least_visits)
            if why == batches.NEEDS_CUT:
                sealed += self._seal_cut()
            elif why == batches.NEEDS_ROOM:
                row_links = int(items.link_starts[done + 1] - items.link_starts[done])
                url_bytes = int(items.url_starts[done + 1] - items.url_starts[done])
                outgoing = 0 if self.shards == 1 else 2 * (row_links + 2 * int(room.book.modes[at.LONGEST]))
                room.make(row_links + 1, outgoing, links.words_for(row_links, True), url_bytes)
            else:
                break
        room.move_index(8 * (len(items) + len(items.link_pages)))
        return sealed

    def _apply_transfers(self, entry: TransfersEntry) -> list[tuple[int, TransfersEntry]]:
        sums = check_transfers(entry, self.shard, self.shards, *self._ids)
        source = f"{SHARD_SOURCE}{entry.source_shard}"
        mark = self._marks.get(source, Mark())
        if not check_range(source, entry.start, entry.end, mark.place):
            return []
        known = mark.place.within - entry.first if entry.cut == mark.place.offset else 0
        pages, amounts = entry.pages[known:], entry.amounts[known:]
        if known:
            sums = sum_transfers(pages, amounts, entry.virtual, entry.cut)
        cash = sums.cash + entry.virtual
        total = mark.total + cash
        digest = (mark.digest + sums.digest) % _WRAP
        if (total, digest) != (entry.sent_total, entry.sent_digest):
            raise EntryRefused(
                f"{source}, cut {entry.cut}: it says it has sent {entry.sent_total} units in all, the ledger counts "
                f"{total}: the audit does not fit, send the cut again or rebuild"
            )
        room = self._room
        counts = room.book.counts
        if int(counts[at.RECEIVED]) + cash > MOST_CASH:
            raise EntryRefused(f"{source}, cut {entry.cut}: the cash received would overflow: rebuild with more shards")
        counts[at.RECEIVED] += cash
        ids, done = np.require(pages, requirements=["C", "A", "W"]).view(np.int64), 0
        amounts = np.require(amounts, requirements=["C", "A", "W"])
        while True:
            done, why = batches.apply_transfers(room.table, room.book, ids, amounts, done)
            if why == batches.DONE:
                break
            room.make(births=1)
        room.move_index(8 * len(pages))
        if entry.gossip is not None:
            counts[at.VIRTUAL] += spending.declare_dividend(room.book, entry.virtual)
            self._hear(entry.source_shard, entry.gossip)
        self._marks[source] = Mark(entry.end, total, digest)
        return []

    def _apply_policy(self, entry: PolicyEntry) -> list[tuple[int, TransfersEntry]]:
        check_source(entry)
        check_policy(entry, self.config.categories)
        mark = self._marks.get(entry.source, Mark())
        if check_range(entry.source, entry.start, entry.end, mark.place):
            if entry.start < mark.place:
                raise EntryRefused(f"{entry.source}: a policy entry overlaps what the ledger has; send it whole")
            set_rules(self._room.book, entry.damping, entry.class_weights, entry.link_bonus_per_1024)
            self._drop(np.array(entry.drop, np.uint64), RemovalReason.DROPPED)
            self._forget_ids(entry.forget)
            for policy in entry.policies:
                self._take_up(policy)
            self._marks[entry.source] = Mark(entry.end, mark.total)
        return []

    def _apply_tick(self, entry: TickEntry) -> list[tuple[int, TransfersEntry]]:
        check_tick(entry)
        times = self._times
        if entry.second <= times.tick_second:
            return []
        times.tick_second = entry.second
        if times.first_tick_second < 0:
            times.first_tick_second = entry.second
        self._set_window(entry.second)
        self._expire(entry.second)
        self._let_gone_go()
        self._evict()
        if self._is_time_to_sweep(entry.second):
            self._sweep(entry.second)
        return self._seal_cut()

    # -- cuts and shards -------------------------------------------------------------------------------------------

    def _seal_cut(self) -> list[tuple[int, TransfersEntry]]:
        """Seal outgoing transfers and settle the virtual account among all shards."""
        book = self._room.book
        counts = book.counts
        counts[at.VISITS_SINCE_CUT] = 0
        if self.shards == 1:
            counts[at.VIRTUAL] = spending.declare_dividend(book, counts[at.VIRTUAL])
            return []
        pages, amounts = self._take_outbox()
        own = int(counts[at.WEIGHTED_PAGES])
        weighted = {s: p.gossip.weighted_pages if p.gossip else own for s, p in self._peers.items()}
        everywhere = own + sum(weighted.values())
        virtual = int(counts[at.VIRTUAL])
        quotient, rest = divmod(max(virtual, 0), everywhere) if everywhere else (0, 0)
        sealed = []
        gossip = Gossip(
            advance=int(book.clocks[at.OWN_ADVANCE]),
            minted=int(counts[at.MINTED]),
            pages=int(counts[at.PAGES]),
            weighted_pages=own,
            rate_sum=self._times.sweep_rate_sum,
            shares=int(counts[at.SHARES]),
        )
        left = virtual
        edges = [*np.searchsorted(pages, self._first_ids).tolist(), len(pages)]
        for other, peer in self._peers.items():
            here = slice(edges[other], edges[other + 1])
            part = quotient * weighted[other] + (rest * weighted[other] // everywhere if everywhere else 0)
            left -= part
            sums = sum_transfers(pages[here], amounts[here], part, self._cut)
            peer.sent_total += sums.cash + part
            peer.sent_digest = (peer.sent_digest + sums.digest) % _WRAP
            sealed.append(
                (
                    other,
                    TransfersEntry(
                        source_shard=self.shard,
                        cut=self._cut,
                        first=0,
                        last=True,
                        pages=pages[here].copy(),
                        amounts=amounts[here].copy(),
                        virtual=part,
                        sent_total=peer.sent_total,
                        sent_digest=peer.sent_digest,
                        gossip=gossip,
                    ),
                )
            )
        counts[at.SENT] += virtual - left
        counts[at.VIRTUAL] = spending.declare_dividend(book, left)
        self._cut += 1
        return sealed

    def _take_outbox(self) -> tuple[Ids, Ints]:
        """What waits for other shards, summed per page, sorted by page id. The outbox is empty afterwards."""
        book = self._room.book
        size = int(book.counts[at.OUTBOX])
        book.counts[at.OUTBOX] = 0
        pages = book.outbox_pages[:size].view(np.uint64)
        order = np.argsort(pages)  # of one page in any order: whole numbers are summed
        pages = pages[order]
        firsts = np.flatnonzero(np.concatenate((np.ones(min(size, 1), bool), pages[1:] != pages[:-1])))
        sums = np.add.reduceat(book.outbox_amounts[:size][order], firsts) if size else np.zeros(0, np.int64)
        return pages[firsts], sums

    def _hear(self, other: int, gossip: Gossip) -> None:
        """Another shard's news: the turn clock and the totals that everything is measured by move on."""
        book = self._room.book
        peer = self._peers[other]
        known = peer.gossip.advance if peer.gossip else 0
        book.clocks[at.THETA] = (int(book.clocks[at.THETA]) + gossip.advance - known) % _WRAP
        peer.gossip = gossip
        heard = [p.gossip.minted for p in self._peers.values() if p.gossip]
        book.modes[at.LIKE_US] = self.shards - len(heard)
        own = int(book.counts[at.MINTED])
        book.counts[at.MINTED_EVERYWHERE] = min(sum(heard) + own * (self.shards - len(heard)), MOST_CASH)

    # -- time ------------------------------------------------------------------------------------------------------

    def _set_window(self, second: int) -> None:
        """A window given in days is as many turns as the clock made in them."""
        window_days = getattr(self.config.history, "window_days", None)
        if window_days is None:
            return
        book, days = self._room.book, self._times.days
        theta = int(book.clocks[at.THETA])
        if not days or second // _SECONDS_PER_DAY > days[-1][0] // _SECONDS_PER_DAY:
            days.append((second, theta))
        begins = second - window_days * _SECONDS_PER_DAY
        while len(days) > 1 and days[1][0] <= begins:
            days.pop(0)
        since_start = _turns(theta - int(book.clocks[at.THETA_START]))
        if begins < days[0][0]:
            window = max(since_start, 4.0)
        else:
            (second_0, theta_0), (second_1, theta_1) = days[0], days[1] if len(days) > 1 else (second, theta)
            share = (begins - second_0) / (second_1 - second_0) if second_1 > second_0 else 0.0
            window = _turns(theta - theta_0) - share * _turns(theta_1 - theta_0)
        book.rules[at.WINDOW] = max(window, 2.0**-20)

    def _is_time_to_sweep(self, second: int) -> bool:
        """Whether enough has happened: visits here, or cash from other shards, which goes on when visits have ended."""
        counts, times = self._room.book.counts, self._times
        past = second - times.sweep_second
        if past >= _SECONDS_PER_DAY or counts[at.VISITS_SINCE_SWEEP] * 64 >= counts[at.PAGES]:
            return True
        if self.shards == 1:
            return False
        received = int(counts[at.RECEIVED]) - times.sweep_received
        visits = int(counts[at.VISITS_SINCE_SWEEP])
        return received * 64 >= int(counts[at.MINTED]) or (past >= _SECONDS_PER_MINUTE and received + visits > 0)

    def _sweep(self, second: int) -> None:
        """Sum all rates and let the anchors, from which trends are read, follow."""
        room, times = self._room, self._times
        rates = np.zeros(int(room.book.counts[at.SLOTS]), np.float64)
        times.sweep_rate_sum = float(reads.read_all_rates(room.table, room.book, rates))
        everywhere = self._rate_sum_everywhere(times.sweep_rate_sum)
        if everywhere > 0:
            past = 0.0 if times.sweep_second < 0 else (second - times.sweep_second) / _SECONDS_PER_DAY
            share = 1.0 - float(np.exp(-past / self.config.trend_days))
            reads.smooth_anchors(room.table, room.book, rates, 1.0 / everywhere, share)
        times.sweep_second = second
        times.sweep_received = int(room.book.counts[at.RECEIVED])
        room.book.counts[at.VISITS_SINCE_SWEEP] = 0

    # -- letting pages go ------------------------------------------------------------------------------------------

    def _drop(self, pages: Ids, why: RemovalReason) -> None:
        """Let pages go for good: their cash goes to the virtual page. Pages that are not here are passed over."""
        if len(pages) == 0:
            return
        room = self._room
        room.finish_moving()
        room.make_free(len(pages))
        known = pages[self._slots_of(pages) >= 0]
        if len(known):
            self._removed.append((why, known))
            self._removed_urls.append(self.urls(known))
        spending.drop_pages(room.table, room.book, np.ascontiguousarray(pages).view(np.int64))

    def _forget(self, pages: Ids, until: int) -> None:
        """Let pages go, remove their URLs from the arena, and do not learn them again until a second has come."""
        self._drop(pages, RemovalReason.FORGOTTEN)
        self._refuse(pages, np.full(len(pages), max(until, 0), np.int64))
        self._compact_stale_urls(0)

    def _forget_ids(self, pages: tuple[int, ...]) -> None:
        """Forget pages for ever, and what people said of their URLs."""
        if not pages:
            return
        taken, ids = self._policies, frozenset(pages)
        for one in taken:
            if one.policy.url is not None and page_id(one.policy.url) in ids:
                taken = taken.add(Policy(url=one.policy.url, forget=True), 0)
        self._put_in_force(taken)
        self._forget(np.array(pages, np.uint64), FOR_EVER)

    def _refuse(self, pages: Ids, until: Ints) -> None:
        """Do not learn pages until their second has come, or a later one that was said before."""
        book = self._room.book
        ids = np.concatenate((book.forgotten, pages.view(np.int64)))
        seconds = np.concatenate((book.forgotten_until, until))
        order = np.lexsort((seconds, ids))
        ids, seconds = ids[order], seconds[order]
        last = np.append(ids[1:] != ids[:-1], np.ones(min(len(ids), 1), np.bool_))
        self._room.book = book._replace(forgotten=ids[last], forgotten_until=seconds[last])

    def _compact_urls(self) -> None:
        """Rewrite the arena of URLs in the order of the slots, without those of pages that are no longer there."""
        room = self._room
        fresh = np.zeros(int(room.book.counts[at.URL_END]), np.uint8)
        end = int(urls.compact_urls(room.table, room.book, fresh))
        room.book = room.book._replace(urls=fresh[:end].copy())
        room.book.counts[at.URL_END] = end
        room.book.counts[at.URL_STALE] = 0
        self._url_generation += 1

    def _compact_stale_urls(self, most_stale_bytes: int) -> None:
        if self._room.book.counts[at.URL_STALE] > most_stale_bytes:
            self._compact_urls()

    def _forget_new(self, items: CrawlItems) -> list[tuple[int, int, int]]:
        """Pages of hosts and prefixes that were forgotten are so from the row on where their URLs become known.

        Of a page that nothing names before that row this is done at once; others are returned: the row, the page, and
        until when it is forgotten.
        """
        until = np.full(len(items), -1, np.int64)
        for prefixes, second in self._forgetting:
            found = policies.matches_ragged(prefixes, items.url_bytes, items.url_starts)
            until[found] = np.maximum(until[found], second)
        rows = np.flatnonzero(until >= 0)
        if len(rows) == 0:
            return []
        pages, first = np.unique(items.page[rows], return_index=True)
        first = rows[first]
        book = self._room.book
        slots, named = self._slots_of(pages), first.copy()
        naming = np.concatenate((np.arange(len(items)), np.repeat(np.arange(len(items)), np.diff(items.link_starts))))
        names = np.concatenate((items.page, items.link_pages))
        places = np.minimum(np.searchsorted(pages, names), len(pages) - 1)
        here = pages[places] == names
        np.minimum.at(named, places[here], naming[here])
        later = ((slots >= 0) | (named < first)) & ~np.isin(pages.view(np.int64), book.forgotten)
        self._refuse(pages[~later], until[first[~later]])
        return sorted(
            zip(first[later].tolist(), pages[later].tolist(), until[first[later]].tolist(), strict=True),
        )

    def _let_gone_go(self) -> None:
        """Drop pages that were found gone again and again, for as long as it would take the plans to do so."""
        counts, table, config = self._room.book.counts, self._room.table, self.config.refresh
        if counts[at.LONG_GONE] == 0:
            return
        counts[at.LONG_GONE] = 0
        ids, slots = self._live()
        rows, refresh = table.pages[slots], table.refresh[slots]
        is_gone = ((refresh["notes"] & observations.WAS_GONE) != 0) & (refresh["failures"] >= config.gone_visits)
        since = rows["last_visit_ms"] // 1000 - refresh["checked"]
        is_long = (refresh["checked"] != 0) & (since >= config.seconds_to_be_gone)
        self._drop(ids[is_gone & is_long], RemovalReason.GONE)

    def _evict(self) -> None:
        """Let the poorest unread pages go where there are too many; what they hold goes to the virtual page."""
        config, room = self.config, self._room
        counts = room.book.counts
        too_many = 0 if config.max_pages is None else self.pages - config.max_pages
        if too_many > 0 or config.max_unread_per_host is not None:
            ids, slots = self._live()
            unread = (room.table.pages["class_"][slots] & 1) == 0
            ids, slots = ids[unread], slots[unread]
            waiting = np.zeros(int(counts[at.SLOTS]), np.int64)
            reads.read_waiting(room.table, room.book, waiting)
            poorest_last = np.lexsort((ids, -waiting[slots]))
            ids, slots = ids[poorest_last], slots[poorest_last]
            goes = np.zeros(len(ids), np.bool_)
            if config.max_unread_per_host is not None:
                hosts = np.zeros(len(slots), np.uint64)
                urls.hash_hosts(room.table, room.book, slots, hosts)
                names, numbers = np.unique(hosts, return_inverse=True)
                goes = (rank_within(numbers, len(names)) >= config.max_unread_per_host) & (hosts != 0)
            left = np.flatnonzero(~goes)
            more = too_many - int(goes.sum())
            if more > 0:
                goes[left[-(more + config.max_pages // _EVICTED_AT_LEAST if config.max_pages else more) :]] = True
            counts[at.EVICTED] += int(goes.sum())
            self._drop(ids[goes], RemovalReason.LIMIT)
        self._compact_stale_urls(int(counts[at.URL_END]) // 2)

    # -- policies ----------------------------------------------------------------------------------------------

    def _take_up(self, given: Policy) -> None:
        """A policy holds from now on; one that is impossible is refused with a reason."""
        try:
            policy = policy_from_json(policy_to_json(given))  # as a snapshot gives it back
            policies.check(policy, self.config.categories)
            self._check_not_forgotten(policy)
            taken = self._policies.add(policy, max(self._times.tick_second, 0))
            self._check_pins(policy, taken)
        except PolicyRefused as problem:
            self._refused.append((given, str(problem)))
            return
        self._put_in_force(taken)
        for name in BUDGET_WORDS:
            if getattr(policy, name) is not None:
                self._published_budget[name] = getattr(policy, name)
        set_rules(self._room.book, policy.damping, policy.class_weights, policy.link_bonus_per_1024)
        if policy.drop or policy.forget:
            pages = self._pages_named(policy)
            if policy.forget:
                self._forget(pages, _until(policy))
            else:
                self._drop(pages, RemovalReason.DROPPED)

    def _put_in_force(self, taken: Policies) -> None:
        self._policies = taken
        self._forgetting = [
            (policies.prefixes_of((one.policy,)), _until(one.policy))
            for one in taken
            if one.policy.forget and one.policy.url is None
        ]

    def _pages_named(self, policy: Policy) -> Ids:
        """The page of a policy's URL, known or not; the known pages of its host or prefix."""
        if policy.url is not None:
            return np.array([page_id(policy.url)], np.uint64)
        ids, slots = self._live()
        room = self._room
        prefixes = policies.prefixes_of((policy,))
        return ids[policies.matches(prefixes, room.book.urls, room.table.url_start[slots])]

    def _check_not_forgotten(self, policy: Policy) -> None:
        """Refuse words about a page that must not be learnt: they would bring its URL back."""
        if policy.url is None or policy.forget:
            return
        page = np.array([page_id(policy.url)], np.uint64).view(np.int64)[0]
        if spending.is_forgotten(self._room.book, page):
            raise PolicyRefused("url is a page that was forgotten: publish for pages that may be known")

    def _check_pins(self, policy: Policy, taken: Policies) -> None:
        """Refuse a pin that does not fit into the bandwidth with those there are."""
        if policy.refresh_interval_seconds is None or self._bandwidth() is None:
            return
        budget = self.budget()
        ids, slots = self._live()
        rows = self._room.table.pages[slots]
        read = (rows["class_"] & 1) == 1
        categories = (rows["class_"] >> 1).astype(np.uint8)
        said = policies.directives(
            taken, self._room.book.urls, self._room.table.url_start[slots], ids, categories
        ).interval_seconds
        pinned = float((_SECONDS_PER_DAY / said[(said > 0) & read]).sum())
        most = budget.per_day * (1 - budget.discovery_share)
        if pinned > most:
            raise PolicyRefused(
                f"pins would take {pinned:.6g} of the {most:.6g} fetches a day that there are for refreshing: give a "
                "longer interval, fewer pages or more bandwidth"
            )

    def _expire(self, second: int) -> None:
        """What people published for a time ends; what had to be forgotten until now may be learnt again."""
        left = self._policies.expire(1000 * second).without_requests_before(second - _ASKED_FOR_SECONDS)
        if left is not self._policies:
            self._put_in_force(left)
        book = self._room.book
        stays = book.forgotten_until > second
        if not stays.all():
            self._room.book = book._replace(
                forgotten=book.forgotten[stays], forgotten_until=book.forgotten_until[stays]
            )

    # -- refreshing ------------------------------------------------------------------------------------------------

    def budget(self) -> Budget:
        """What there is to share among the pages of this shard, as configured and as published."""
        refresh, published = self.config.refresh, self._published_budget
        per_day = self._bandwidth()
        if per_day is None:
            times = self._times
            days = (times.tick_second - times.first_tick_second) / _SECONDS_PER_DAY
            per_day = self.visits / max(days, 1.0)
        else:
            per_day *= self._part_of_bandwidth()
        host_most = policies.default_host_cap(self._policies) or refresh.host_fetches_per_day
        return Budget(
            strategy=published.get("refresh_policy", refresh.strategy),
            per_day=per_day,
            discovery_share=published.get("discovery_share", refresh.discovery_share),
            host_most=np.inf if host_most is None else host_most,
            shard=self.shard,
            shards=self.shards,
        )

    def preview(
        self, refresh: RefreshConfig | None = None, budget: Budget | None = None, coming: Iterable[Policy] = ()
    ) -> Planned:
        """The plan for the cycle that begins now, with other options or another budget if they are given.

        What the policies that are `coming` say of pages holds too, where it is possible. Nothing is remembered:
        asked again, it is the same. To be published is the schedule of every page.
        """
        in_force = self._policies
        for policy in coming:
            with suppress(PolicyRefused):
                policies.check(policy, self.config.categories)
                in_force = in_force.add(policy, FOR_EVER)
        config = refresh or self.config.refresh
        budget = budget or self.budget()
        surveyed = self._survey(config, budget, in_force)
        planned = planning.shared(surveyed, config, budget)
        days = config.cycle_hours / 24
        most = int(planned.refresh_per_day * days), int(planned.discovery_per_day * days)
        cycle = int(config.cycle_hours * 3600)
        ordered = planning.orders(surveyed, planned, config, in_force, budget, *most, cycle)
        return Planned(surveyed, planned, ordered, np.flatnonzero(surveyed.known))

    def plan(self, most_moved: int, least_move: float) -> Planned:
        """Share the bandwidth for the cycle that begins now, and order. Who was ordered and what is told is remembered.

        To be published are the schedules of pages that were visited since the last plan, and at most `most_moved` of
        others whose interval moved by more than the share `least_move`: those that moved most.
        """
        config, times, table = self.config.refresh, self._times, self._room.table
        surveyed = self._survey(config, self.budget(), self._policies)
        self._set_shares(surveyed)
        budget = self.budget()
        planned = planning.shared(surveyed, config, budget)
        cycle = int(config.cycle_hours * 3600)
        passed = cycle if times.planned_second < 0 else min(max(surveyed.second - times.planned_second, 0), cycle)
        refresh = self._credits.refresh + planned.refresh_per_day * passed / _SECONDS_PER_DAY
        discovery = self._credits.discovery + planned.discovery_per_day * passed / _SECONDS_PER_DAY
        most = max(int(refresh), 0), int(discovery)
        ordered = planning.orders(surveyed, planned, config, self._policies, budget, *most, passed)
        overdrawn = min(refresh - ordered.refreshed, 0.0)  # by pages that people asked for
        self._credits = Credits(overdrawn or refresh % 1.0, discovery % 1.0)
        publish = self._to_publish(surveyed, planned, most_moved, least_move)
        slots = surveyed.slots
        table.refresh["ordered"][slots[ordered.rows]] = min(max(surveyed.second, 1), (1 << 32) - 1)
        table.refresh["interval"][slots[publish]] = packed_intervals(planned.intervals[publish])
        times.planned_second = surveyed.second
        return Planned(surveyed, planned, ordered, publish)

    def _survey(self, config: RefreshConfig, budget: Budget, in_force: Policies) -> Survey:
        room = self._room
        rates, own = self._all_rates()
        rate_sum = self._rate_sum_everywhere(own)
        waiting = np.zeros(int(room.book.counts[at.SLOTS]), np.int64)
        reads.read_waiting(room.table, room.book, waiting)
        ids, slots = self._live()
        latest = int(room.table.pages["last_visit_ms"][slots].max()) // 1000 if len(slots) else 0
        if self._times.tick_second >= 0:  # a visit far beyond the clock has another clock
            latest = min(latest, self._times.tick_second + _SECONDS_PER_DAY)
        return planning.survey(
            room.table,
            room.book,
            config,
            in_force,
            budget,
            (ids, slots),
            rates,
            1.0 / rate_sum if rate_sum > 0 else 0.0,
            self._pages_everywhere(),
            waiting,
            max(self._times.tick_second, latest, 0),
        )

    @property
    def policies(self) -> Policies:
        """What is in force of what people published."""
        return self._policies

    @property
    def planned_second(self) -> int:
        """The second of the last plan; -1 before the first."""
        return self._times.planned_second

    @property
    def shares(self) -> float:
        """S: what bandwidth is shared by, summed over the pages of this shard."""
        return int(self._room.book.counts[at.SHARES]) / SHARE_UNITS

    @property
    def evicted(self) -> int:
        """Pages let go because there were too many."""
        return int(self._room.book.counts[at.EVICTED])

    def _bandwidth(self) -> float | None:
        """Fetches a day for all shards, if somebody said so."""
        per_second = self._published_budget.get("fetches_per_second")
        return self.config.refresh.bandwidth_per_day if per_second is None else per_second * _SECONDS_PER_DAY

    def _part_of_bandwidth(self) -> float:
        """The part that this shard has: as its shares are to those of all, or its pages while shares are not known."""
        if self.shards == 1:
            return 1.0
        gossips = [peer.gossip for peer in self._peers.values()]
        own = int(self._room.book.counts[at.SHARES])
        told = [gossip.shares if gossip else 0 for gossip in gossips]
        if own and all(told):
            return own / (own + sum(told))
        return self.pages / max(self.pages + sum(g.pages if g else self.pages for g in gossips), 1)

    def _set_shares(self, surveyed: Survey) -> None:
        """Count everybody's share anew: importance and policies have moved on since the last plan."""
        rows = surveyed.sharing
        alpha = self.config.refresh.alpha
        shares = np.zeros(len(surveyed))
        wanted = surveyed.wanted
        shares[rows] = (wanted.weights * wanted.changes_per_day**alpha) ** (1 / (alpha + 1))
        if wanted.pinned is not None:
            shares[rows[wanted.pinned > 0]] = 0.0
        rate_set = np.zeros(len(surveyed), np.bool_)
        rate_set[rows] = surveyed.known_from[rows] == planning.BY_POLICY
        observations.set_all_shares(self._room.table, self._room.book, surveyed.slots, shares, rate_set)

    def _to_publish(self, surveyed: Survey, planned: Shared, most_moved: int, least_move: float) -> Ints:
        known = surveyed.known
        told = unpacked_intervals(self._room.table.refresh["interval"][surveyed.slots])
        intervals = unpacked_intervals(packed_intervals(planned.intervals))  # as they can be told
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = np.abs(np.log(intervals / told))
        moved = np.where(np.isnan(moved), 0.0, moved)  # never again, as before
        visited = known & (surveyed.fetched >= max(self._times.planned_second, 1))
        movers = np.flatnonzero(known & ~visited & (moved > np.log1p(least_move)))
        best = movers[richest(surveyed.pages[movers], moved[movers], most_moved)]
        publish: Ints = np.sort(np.concatenate((np.flatnonzero(visited), best)))
        return publish

    def _compact_links(self, most_stale_words: int) -> None:
        """Rewrite the arena of remembered links in the order of the slots, if more of it than this is stale."""
        room = self._room
        counts = room.book.counts
        if self.config.remember_links and counts[at.LINK_STALE] > most_stale_words:
            fresh = np.zeros(int(counts[at.LINK_END] - counts[at.LINK_STALE]), np.int64)
            counts[at.LINK_END] = links.compact_links(room.table, room.book, fresh)
            counts[at.LINK_STALE] = 0
            room.book = room.book._replace(links=fresh)

    # -- reading ---------------------------------------------------------------------------------------------------

    @property
    def pages(self) -> int:
        """Pages in this shard."""
        return int(self._room.book.counts[at.PAGES])

    @property
    def pages_read(self) -> int:
        """Pages that were visited and answered."""
        return int(self._room.book.class_pages[1::2].sum())

    @property
    def tick_second(self) -> int:
        """The second of the last tick; -1 before the first."""
        return self._times.tick_second

    @property
    def sweep_second(self) -> int:
        """The tick at which all rates were last summed; -1 before the first."""
        return self._times.sweep_second

    @property
    def cut(self) -> int:
        """The number of the cut that comes next."""
        return self._cut

    @property
    def turns(self) -> float:
        """Turns of the clock since the ledger began."""
        clocks = self._room.book.clocks
        return _turns(int(clocks[at.THETA]) - int(clocks[at.THETA_START]))

    @property
    def clock(self) -> int:
        """G: the cash that spending has put into circulation, in units."""
        return int(self._room.book.counts[at.CLOCK])

    @property
    def minted(self) -> int:
        """Cash minted so far, in units. `balance` counts all else beside it."""
        return int(self._room.book.counts[at.MINTED])

    @property
    def visits(self) -> int:
        """Visits applied so far; duplicates and visits of forgotten pages are not among them."""
        return int(self._room.book.counts[at.VISITS])

    @property
    def transfers(self) -> int:
        """Transfers along links so far, to this shard and to others."""
        return int(self._room.book.counts[at.TRANSFERS])

    def balance(self) -> Balance:
        """The conservation law, counted afresh from the columns."""
        room = self._room
        counts = room.book.counts
        cash, uncollected, _ = reads.sum_cash(room.table, room.book)
        return Balance(
            minted=int(counts[at.MINTED]),
            cash=int(cash),
            uncollected=int(uncollected),
            virtual=int(counts[at.VIRTUAL]),
            absorbed=int(counts[at.ABSORBED]),
            sent=int(counts[at.SENT]),
            received=int(counts[at.RECEIVED]),
        )

    def audit(self) -> Balance:
        """The balance, after checking it and everything the ledger keeps a running total of. `LedgerBroken` if not."""
        self._go_on()
        room = self._room
        counts, table, slots = room.book.counts, room.table, int(room.book.counts[at.SLOTS])
        balance = self.balance()
        _, uncollected, openings = reads.sum_cash(table, room.book)
        rows = table.pages[:slots]
        live = rows["flags"] != 0
        classes = np.bincount(rows["class_"][live], minlength=len(room.book.class_pages))
        waiting_outside = exact_sum(room.book.outbox_amounts[: int(counts[at.OUTBOX])])
        totals = int(table.totals[:slots].sum()) if len(table.totals) else 0
        laws = {
            "cash is conserved": balance.drift == 0,
            "no account but the virtual one is negative": min(balance.cash, balance.uncollected, balance.absorbed) >= 0,
            "the virtual account is not overdrawn beyond its limit": balance.virtual >= -balance.minted,
            "uncollected dividends are what their account says": uncollected == counts[at.UNCOLLECTED],
            "opening balances are what their account says": openings == counts[at.OPENINGS],
            "history is what its account says": totals == counts[at.EARNED],
            "pages are what their classes say": np.array_equal(classes, room.book.class_pages)
            and classes.sum() == counts[at.PAGES] == counts[at.SLOTS] - counts[at.FREE],
            "minted cash is a whole number of births": balance.minted == UNITS_PER_PAGE * int(counts[at.BIRTHS]),
            "shares are what their sum says": observations.sum_shares(table, room.book) == counts[at.SHARES],
            "cash in the outbox was sent": waiting_outside <= balance.sent,
        }
        broken = [law for law, holds in laws.items() if not holds]
        if broken:
            raise LedgerBroken(f"the books of shard {self.shard} do not balance: not so: {'; '.join(broken)}")
        return balance

    def estimate(self, pages: Ids | Iterable[int], rate_sum: float | None = None) -> Estimates:
        """What the ledger knows of these pages now.

        Rates are read at this moment; they are put in proportion by the sum of all rates, counted afresh unless it is
        given: whoever asks for many pages in parts asks for `rate_sum` once.
        """
        ids = np.asarray(pages if isinstance(pages, np.ndarray) else list(pages), np.uint64)
        slots = self._slots_of(ids)
        own = self.rate_sum() if rate_sum is None else rate_sum
        return self._estimates(ids, slots, self._rate_sum_everywhere(own))

    def ranked(self) -> Ids:
        """All pages, the most important first; equal ones by page id."""
        rates = self._all_rates()[0]
        ids, slots = self._live()
        order = np.lexsort((ids, -rates[slots]))
        return ids[order]

    def estimate_all(self) -> Estimates:
        """What the ledger knows of every page, in the order in which pages came in."""
        ids, slots = self._live()
        return self._estimates(ids, slots, self._rate_sum_everywhere(self.rate_sum()))

    def top(self, k: int) -> Estimates:
        """The `k` most important pages, most important first; equal ones by page id."""
        rates = self._all_rates()[0]
        ids, slots = self._live()
        rows = richest(ids, rates[slots], k)
        return self._estimates(ids[rows], slots[rows], self._rate_sum_everywhere(float(rates.sum())))

    def rate_sum(self) -> float:
        """The sum of the rates of all pages of this shard, now. O(1) where history is a plain total."""
        book = self._room.book
        counts = book.counts
        if book.modes[at.POLICY] in (at.P_ALL, at.P_ABSORBING):
            idle = (
                int(counts[at.MINTED] - counts[at.VIRTUAL] - counts[at.ABSORBED])
                - int(counts[at.SENT])
                + int(counts[at.RECEIVED])
            )
            if book.modes[at.POLICY] == at.P_ALL:
                idle -= int(counts[at.OPENINGS])
            return (int(counts[at.EARNED]) + idle) / UNITS_PER_PAGE
        return self._all_rates()[1]

    def waiting_cash(self, pages: Ids | None = None) -> Ints:
        """What each page received since its last visit, spent by the round or not: greedy crawls choose by it.

        For the pages given (-1 where one is not known), or for all in the order in which they came in.
        """
        room = self._room
        waiting = np.zeros(int(room.book.counts[at.SLOTS]), np.int64)
        reads.read_waiting(room.table, room.book, waiting)
        if pages is None:
            return waiting[waiting >= 0]
        slots = self._slots_of(pages)
        return np.where(slots >= 0, waiting[slots] if len(waiting) else -1, -1)

    def idle_cash(self) -> dict[Outcome, int]:
        """Cash that waits on pages, by their last outcome. Much on UNCHANGED: remembering links would help."""
        room = self._room
        slots = int(room.book.counts[at.SLOTS])
        rows = room.table.pages[:slots]
        raw = room.table.hot[:slots, 1]
        cash = np.where(raw >= 0, raw, ~raw) + room.book.dividends[rows["class_"]] - rows["seen"]
        live = rows["flags"] != 0
        return {outcome: int(cash[live & (rows["outcome"] == outcome)].sum()) for outcome in Outcome}

    def url(self, page: int) -> bytes | None:
        """The URL of a page, if the log has told it."""
        slot = int(self._slots_of(np.array([page], np.uint64))[0])
        start = int(self._room.table.url_start[slot]) - 1 if slot >= 0 else -1
        if start < 0:
            return None
        urls = self._room.book.urls
        length = int(urls[start]) + (int(urls[start + 1]) << 8)
        return bytes(urls[start + 2 : start + 2 + length])

    def urls(self, pages: Ids) -> tuple[Ints, Bytes]:
        """The URLs of pages, one after the other, and where each starts; empty where it is not known."""
        slots = self._slots_of(pages)
        starts = np.zeros(len(pages) + 1, np.int64)
        urls.measure_urls(self._room.table, self._room.book, slots, starts)
        out = np.empty(int(starts[-1]), np.uint8)
        urls.gather_urls(self._room.table, self._room.book, slots, starts, out)
        return starts, out

    def categories(self, pages: Ids) -> Bytes:
        """The category of each page; 0 where pages are not told apart, or this one is not known."""
        slots = self._slots_of(pages)
        classes: Bytes = self._room.table.pages["class_"][np.maximum(slots, 0)]
        return np.where(slots >= 0, classes >> 1, 0).astype(np.uint8)

    def remembered(self, pages: Ids) -> tuple[Ints, Ids, npt.NDArray[np.uint16]]:
        """The remembered links of pages, one after the other, and where those of each start."""
        slots = self._slots_of(pages)
        starts = np.zeros(len(pages) + 1, np.int64)
        if not self.config.remember_links:
            return starts, np.empty(0, np.uint64), np.empty(0, np.uint16)
        links.measure_links(self._room.table, slots, starts)
        targets, weights = np.empty(int(starts[-1]), np.int64), np.empty(int(starts[-1]), np.uint16)
        links.gather_remembered(self._room.table, self._room.book, slots, starts, targets, weights)
        return starts, targets.view(np.uint64), weights

    def publish(self, pages: Ids) -> Estimates:
        """What is to be published of pages that were visited: those with a URL, put in proportion by the last sweep.

        Empty before the first sweep. What is returned counts as published.
        """
        slots = self._slots_of(pages)
        known = slots >= 0
        known[known] = self._room.table.url_start[slots[known]] != 0
        rate_sum = self._rate_sum_everywhere(self._times.sweep_rate_sum) if self._times.sweep_rate_sum > 0 else 0.0
        if rate_sum <= 0:
            known[:] = False
        return self._published(pages[known], slots[known], rate_sum)

    def publish_movers(self, most: int, least_move: float) -> Estimates:
        """The pages whose score moved by more than the share `least_move` since it was published: biggest moves first.

        At most `most` of them, all at this moment: importance is put in proportion by the sum of all rates now.
        """
        room = self._room
        rates, own = self._all_rates()
        rate_sum = self._rate_sum_everywhere(own)
        per_rate = self._pages_everywhere() / rate_sum if rate_sum > 0 else 0.0
        moves = np.zeros(len(rates), np.float64)
        reads.read_movements(room.table, rates, per_rate, least_move, moves)
        slots = np.flatnonzero(moves > 0)
        ids = room.table.hot[slots, 0].view(np.uint64)
        best = richest(ids, moves[slots], most)
        return self._published(ids[best], slots[best], rate_sum)

    def measures_per_page(self) -> float:
        """How many measures the history keeps of a page, in the mean; 1 where it keeps sums or rates instead."""
        _, slots = self._live()
        measures = self._room.table.pages["measures"][slots]
        return float(measures.mean()) if len(slots) and self._room.book.modes[at.MEASURES] > 0 else 1.0

    def bytes_per_page(self) -> float:
        """Memory of the columns and the index a page, room to grow included; without refreshing, URLs and links."""
        return self._room.bytes_in_use() / max(self.pages, 1)

    def refresh_bytes_per_page(self) -> float:
        """Memory that refreshing takes a page, room to grow included."""
        return float(self._room.table.refresh.nbytes) / max(self.pages, 1)

    def settle(self, rounds: int) -> Settled:
        """Let the round run alone `rounds` times on a copy, along remembered links: the ranks of the graph as known.

        What was earned in the later half of the rounds is the answer. The ledger itself does not change.
        """
        if not self.config.remember_links or self.shards != 1:
            raise ConfigRefused("settle needs remember_links=True and one shard: replay the log with them")
        if rounds < 1:
            raise ConfigRefused(f"settle takes a positive number of rounds, not {rounds!r}")
        ids, slots = self._live()
        return settle_links(self._room.table, self._room.book, ids, slots, rounds)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def snapshot(self) -> list[snapshots.Chunk]:
        """The whole state in chunks of at most 4 MiB. Full chunks of URLs stay as they are until one is forgotten."""
        self._go_on()
        self._compact_links(-1)  # where links lie depends on how the log came in batches: here it must not
        self._room.turn_recent()
        counts = self._room.book.counts.copy()
        counts[list(at.TRANSIENT_COUNTS)] = 0
        table, book = self._room.table, self._room.book._replace(counts=counts)
        state = {
            "config": self.config.to_json(),
            "shard": self.shard,
            "shards": self.shards,
            "cut": self._cut,
            "marks": [[s, *m.place, m.total, m.digest] for s, m in sorted(self._marks.items())],
            "peers": [
                [s, p.sent_total, p.sent_digest, p.gossip and list(vars(p.gossip).values())]
                for s, p in sorted(self._peers.items())
            ],
            "times": vars(self._times),
            "credits": vars(self._credits),
            "publications": self._policies.to_json(),
            "published_budget": self._published_budget,
            "url_generation": self._url_generation,
        }
        return snapshots.write(state, self.config, table, book)

    @classmethod
    def restore(cls, chunks: Iterable[bytes]) -> Ledger:
        """The ledger whose chunks these are, in their order. `SnapshotRefused` if one is missing, moved or altered."""
        state, config, columns = snapshots.read(chunks)
        try:
            ledger = cls(config, state["shard"], state["shards"])
            snapshots.refuse(state_problem(state, config, ledger.shard, ledger.shards))
            ledger._take(state, columns)
            ledger.audit()
        except (KeyError, TypeError, ValueError, LedgerBroken) as problem:
            raise SnapshotRefused(f"the snapshot makes no ledger: {shown(problem)}: take an older one") from None
        return ledger

    # -- inside ----------------------------------------------------------------------------------------------------

    def _take(self, state: dict[str, Any], columns: dict[str, Array]) -> None:
        """Become the ledger of a snapshot."""
        self._cut = state["cut"]
        self._marks = {s: Mark(LogPosition(o, w), total, digest) for s, o, w, total, digest in state["marks"]}
        self._peers = {
            s: Peer(total, digest, Gossip(*gossip) if gossip else None) for s, total, digest, gossip in state["peers"]
        }
        self._times = Times(**state["times"])
        self._times.days = [(second, theta) for second, theta in self._times.days]
        self._credits = Credits(**state["credits"])
        self._put_in_force(Policies.from_json(state["publications"]))
        self._published_budget = dict(state["published_budget"])
        self._url_generation = state["url_generation"]
        room = self._room
        room.book = room.book._replace(**{name: column for name, column in columns.items() if name in Book._fields})
        room.table = room.table._replace(**{name: column for name, column in columns.items() if name in Table._fields})
        latest, before = (columns[name] for name in snapshots.RECENT_COLUMNS)
        snapshots.refuse(recent_problem(self.config, room.book, latest, before))
        room.set_recent(latest, before)
        unheard = 1 + sum(peer.gossip is None for peer in self._peers.values())
        snapshots.refuse(column_problem(self.config, room.table, room.book, self._ids, unheard))
        snapshots.refuse("a page is there twice" if room.rebuild_index() else "")

    def _go_on(self) -> None:
        broken = self._room.book.counts[at.BROKEN]
        if broken:
            why = f"the clock of shard {self.shard} would overflow 64 bits" if broken == 1 else "an entry was cut short"
            raise LedgerBroken(f"the ledger cannot go on: {why}: restore its last snapshot and go on from there")

    def _slots_of(self, pages: Ids) -> Ints:
        slots = np.zeros(len(pages), np.int64)
        index.find_all(self._room.table, np.ascontiguousarray(pages, np.uint64).view(np.int64), slots)
        return slots

    def _live(self) -> tuple[Ids, Ints]:
        """Ids and slots of all pages, in slot order."""
        table = self._room.table
        slots = np.flatnonzero(table.pages["flags"][: int(self._room.book.counts[at.SLOTS])])
        return table.hot[slots, 0].view(np.uint64), slots

    def _all_rates(self) -> tuple[Floats, float]:
        room = self._room
        rates = np.zeros(int(room.book.counts[at.SLOTS]), np.float64)
        return rates, float(reads.read_all_rates(room.table, room.book, rates))

    def _rate_sum_everywhere(self, own: float) -> float:
        """The sum of rates of all shards, as they last told it; one that has not swept yet is taken to be like this."""
        told = (peer.gossip.rate_sum if peer.gossip else 0.0 for peer in self._peers.values())
        return own + sum(rate_sum if rate_sum > 0 else own for rate_sum in told)

    def _pages_everywhere(self) -> int:
        return self.pages + sum(p.gossip.pages for p in self._peers.values() if p.gossip)

    def _published(self, pages: Ids, slots: Ints, rate_sum: float) -> Estimates:
        estimates = self._estimates(pages, slots, rate_sum)
        reads.mark_published(self._room.table, slots, estimates.score)
        return estimates

    def _estimates(self, pages: Ids, slots: Ints, rate_sum: float) -> Estimates:
        room, rows = self._room, len(slots)
        estimates = Estimates(
            pages=pages,
            known=slots >= 0,
            importance=np.zeros(rows),
            score=np.zeros(rows),
            rate=np.zeros(rows),
            trend_per_day=np.zeros(rows),
            error_factor=np.zeros(rows),
            cash=np.zeros(rows, np.int64),
            waiting=np.zeros(rows, np.int64),
            visits=np.zeros(rows, np.int64),
            last_visit_ms=np.zeros(rows, np.int64),
            last_outcome=np.zeros(rows, np.uint8),
            measured=np.zeros(rows, np.bool_),
        )
        per_rate = 1.0 / rate_sum if rate_sum > 0 else 0.0
        reads.read_estimates(
            room.table,
            room.book,
            slots,
            per_rate,
            self._pages_everywhere(),
            self.config.trend_days,
            estimates.columns(),
        )
        return estimates


def _kernel_columns(items: CrawlItems, fates: Bytes) -> Columns:
    """The columns as one kind of array each, so that kernels are compiled once: contiguous, aligned, writable."""
    given = (name for name in Columns._fields if name != "fates")
    plain = {name: np.require(getattr(items, name), requirements=["C", "A", "W"]) for name in given}
    ids = ("page", "link_pages", "digest")
    return Columns(**{name: c.view(np.int64) if name in ids else c for name, c in plain.items()}, fates=fates)


def _until(policy: Policy) -> int:
    """The second from which what a policy has forgotten may be learnt again."""
    return FOR_EVER if policy.expires_at_ms is None else -(-policy.expires_at_ms // 1000)


def _turns(units: int) -> float:
    return (units % _WRAP) / (1 << 40)
