"""The ledger of one shard: cash, history and importance of its pages, a pure function of the shard log.

`apply` takes the entries of the log one by one. It skips the part of an entry that it has applied before, and refuses
an entry that would leave a hole or break the books; after an `EntryRefused` the ledger is exactly as it was. The same
entries give the same bytes (`snapshot`), in whatever batches they come.

There is no clock, no file and no randomness: time comes as `TickEntry`, and cash for other shards is returned.

`Ledger` applies entries; `_adopt` makes its parts, which do the rest, each in a module of its own:

- the columns of pages, and reading them: `Room`, `Reader`;
- other shards: `Peers`, `Cuts`, `Settling`, and under `certified` `Residuals`;
- pages that are removed, and limits of domains: `Removal`, `Domains`;
- what is published: `Sweeps`;
- what is planned: `Planner`, with `PoliciesInForce`, `BusyHosts`, `Qualities` and `UnreadPages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from opicflow.pipelines.discovery import Discovery
from opicflow.pipelines.ledger.cash import batches
from opicflow.pipelines.ledger.cash.audits import audit, balance_of
from opicflow.pipelines.ledger.cash.balance import Balance
from opicflow.pipelines.ledger.cash.certified.residuals import Residuals, Settled, change_rules
from opicflow.pipelines.ledger.cash.peers import Peers
from opicflow.pipelines.ledger.cash.reader import Payers, Reader, SeenChanges
from opicflow.pipelines.ledger.cash.sweeps import Movers, Sweeps
from opicflow.pipelines.ledger.cash.windows.dividends import declare_dividend
from opicflow.pipelines.ledger.cash.windows.window import Settling, turns, window_turns
from opicflow.pipelines.ledger.config import (
    MOST_CASH,
    SECONDS_PER_DAY,
    Certified,
    LedgerConfig,
    RefreshConfig,
    check_shard,
    check_theta,
    shown,
)
from opicflow.pipelines.ledger.entries import (
    START,
    CheckedEntry,
    CrawlEntry,
    CrawlItems,
    Gossip,
    KernelItems,
    Kind,
    LogEntry,
    LogPosition,
    Outcome,
    PolicyEntry,
    RemovalReason,
    TickEntry,
    TransfersEntry,
    kernel_items,
    sum_transfers,
)
from opicflow.pipelines.ledger.entry_checks import (
    SHARD_SOURCE,
    check_crawl,
    check_kind,
    check_policy,
    check_range,
    check_source,
    check_tick,
    check_transfers,
)
from opicflow.pipelines.ledger.errors import ConfigRefused, EntryRefused, LedgerBroken, SnapshotRefused
from opicflow.pipelines.ledger.estimates import Estimates
from opicflow.pipelines.ledger.ledger_state import (
    LedgerState,
    Mark,
    decode_state,
    encode_state,
    judged_columns,
    new_state,
    take_judged,
)
from opicflow.pipelines.ledger.pages import layout as at
from opicflow.pipelines.ledger.pages import links
from opicflow.pipelines.ledger.pages.room import Room, new_book, new_table
from opicflow.pipelines.ledger.pages.space import Space, in_memory
from opicflow.pipelines.ledger.plan.busy_hosts import BusyHosts
from opicflow.pipelines.ledger.plan.domain_limits import Domains
from opicflow.pipelines.ledger.plan.planner import Plan, Planner
from opicflow.pipelines.ledger.plan.policies_in_force import PoliciesInForce
from opicflow.pipelines.ledger.plan.qualities import Qualities
from opicflow.pipelines.ledger.plan.removal import Removal
from opicflow.pipelines.ledger.plan.survey import MOST_AHEAD_DAYS, Budget
from opicflow.pipelines.ledger.plan.trap_search import TrapFigures
from opicflow.pipelines.ledger.plan.unread_pages import UnreadPages
from opicflow.pipelines.ledger.shards import snapshot as snapshots
from opicflow.pipelines.ledger.shards.cuts import ITEMS_PER_MESSAGE, Cuts
from opicflow.pipelines.ledger.shards.snapshot_checks import (
    announced_problem,
    column_problem,
    discovery_problem,
    judged_problem,
    lost_problem,
    quality_problem,
    recent_problem,
    state_problem,
    window_problem,
)
from opicflow.pipelines.refresh.policies import Policies, Subscribers
from opicflow.pipelines.refresh.strategies import SHARE_UNITS
from opicflow.schemas.arrays import Bools, Bytes, Floats, Ids, Ints, for_kernel
from opicflow.schemas.pages import PageIds
from opicflow.schemas.policy_json import PolicyRefused
from opicflow.schemas.records import Policy
from opicflow.schemas.shards import Shard, ShardRanges

_WRAP = 1 << 64
_SETTLING = 0.1  # with a larger certificate scores move because residuals of other shards arrive
_LEAST_SLIDE = 1 << 14  # words of remembered links that an entry moves at most, besides some for each of its links
_VISIT = int(Kind.VISIT)
_EFFECTS = ("visits", "announcements", "sightings", "births", "duplicates", "late")


class FoundChanges(NamedTuple):
    """Changes of the content of pages, as visits found them, in the order of the log. 0 = a digest is not known."""

    pages: Ids
    time_ms: Ints
    digest_before: Ints
    digest: Ints


NO_CHANGES: FoundChanges = FoundChanges(np.zeros(0, np.uint64), *(np.zeros(0, np.int64),) * 3)


@dataclass(frozen=True)
class Applied:
    """The effect of an entry: how many rows of each kind counted, and the transfers to send to other shards.

    `fates` holds a `Fate` for each of the last rows of a crawl entry, from the first that was not applied before.
    """

    visits: int = 0
    announcements: int = 0
    sightings: int = 0
    births: int = 0
    duplicates: int = 0
    late: int = 0
    sealed: tuple[tuple[int, TransfersEntry], ...] = ()
    refused: tuple[tuple[Policy, str], ...] = ()
    """Policies that were refused, and why."""
    removed: tuple[tuple[RemovalReason, Ids], ...] = field(default=(), compare=False)
    """Pages that were removed, and why: their publications no longer hold."""
    removed_urls: tuple[tuple[Ints, Bytes], ...] = field(default=(), compare=False)
    """For each group of `removed`: where their URLs start, and the URLs. Records on topics have URLs as keys."""
    fates: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8), compare=False)
    changes: FoundChanges = field(default_factory=lambda: NO_CHANGES, compare=False)
    """All changes that visits of a crawl entry found, if there is any subscription."""


class LedgerParts(NamedTuple):
    """The parts of a ledger."""

    state: LedgerState
    table: at.Table
    book: at.Book
    quality: Bytes
    """The column of a snapshot."""


class Ledger:
    """One shard's ledger."""

    def __init__(
        self,
        config: LedgerConfig | None = None,
        shard: int = 0,
        shards: int | ShardRanges = 1,
        theta_start: int = 0,
        page_ids: PageIds | None = None,
        multiplier: int | None = None,
        space: Space = in_memory,
    ) -> None:
        """Begin an empty ledger.

        `shards` are the ranges of all shards, or how many of equal width there are. `theta_start` is where the turn
        clock begins: any value gives the same importance. `page_ids` are the rules that gave the pages of the log
        their ids: policies name pages by URL. `multiplier`, odd and of 64 bits, is that of the hash tables and changes
        nothing but the speed: give one that cannot be guessed if the key of page ids is public; None = one made from
        that key (docs/decisions/page-ids.md). `space` is where URLs and remembered links are.
        """
        config = config or LedgerConfig()
        check_shard(shard, shards.count if isinstance(shards, ShardRanges) else shards)
        check_theta(theta_start)
        self.config = config
        self.shard = shard
        self.ranges = shards if isinstance(shards, ShardRanges) else ShardRanges.equal(shards)
        self.shards = shards = self.ranges.count
        self.page_ids = page_ids or PageIds()
        self._place = Shard(shard, self.ranges, self.page_ids)
        self._ids = self.ranges.bounds(shard)
        multiplier = self.page_ids.multiplier if multiplier is None else multiplier | 1
        book = new_book(config, self._ids, theta_start, multiplier)
        self._room = Room(config, new_table(config, multiplier), book, space)
        self._room.book.modes[0].like_us = shards
        self._fates: Bytes = np.zeros(0, np.uint8)
        self._refused: list[tuple[Policy, str]] = []
        self._changes: list[FoundChanges] = []
        self._adopt(new_state(shard, shards, self.page_ids))
        self._domains.begin()

    def _adopt(self, state: LedgerState) -> None:
        """Make the parts of the ledger from its state."""
        self._marks = state.marks
        self._times = state.times
        self._credits = state.credits
        self._peers = Peers(self._place, state.peers)
        self._reader = Reader(self._room, self._peers, getattr(self.config.history, "window_days", None) or 1.0)
        self._qualities = Qualities(self._reader)
        self._removal = Removal(
            self.config,
            self._room,
            self._reader,
            self._place,
            state.url_generation,
            state.reviews,
            self._qualities,
        )
        self._residuals = Residuals(self._room, self._peers, self._marks)
        self._cuts = Cuts(self.config, self._room, self._peers, self._times, state.whole_cut, self._residuals)
        self._settling = Settling(self.config, self._room, self._peers, self._times)
        self._domains = Domains(self.config.domains, self._room, self._reader, self._removal, self._place)
        self._sweeps = Sweeps(self.config, self._room, self._reader, self._times, self.shards)
        self._policies = PoliciesInForce(
            state.policies, state.budget, self.config.categories, self._room, self._reader, self._removal
        )
        self._busy = BusyHosts(state.busy_hosts, self._room, self._place)
        self._unread = UnreadPages(
            self.config, self._room, self._reader, self._policies, self._times, state.reviews, self._place
        )
        self._planner = Planner(
            self.config,
            self._room,
            self._reader,
            self._peers,
            self._policies,
            self._times,
            self._credits,
            self._busy,
            self._unread,
            self._qualities,
        )

    # -- applying the log ------------------------------------------------------------------------------------------

    def apply(self, entry: LogEntry) -> Applied:
        """Apply one entry of the log; rows below its source's mark are skipped.

        Raises `EntryRefused` if it would leave a hole or break the books: the ledger is then as it was before.
        """
        self._check_not_broken()
        check_kind(entry)
        before = self._effects()
        self._fates = np.zeros(0, np.uint8)
        self._refused = []
        self._changes = []
        self._removal.begin()
        try:
            sealed = self._apply(entry)
        except EntryRefused:
            raise
        except BaseException:  # no memory, an interrupt: the entry may be half applied
            self._room.book.counts[0].broken = 2
            raise
        self._check_not_broken()
        effects = zip(_EFFECTS, self._effects(), before, strict=True)
        return Applied(
            **{name: after - earlier for name, after, earlier in effects},
            sealed=tuple(sealed),
            refused=tuple(self._refused),
            removed=tuple(self._removal.removed),
            removed_urls=tuple(self._removal.removed_urls),
            fates=self._fates,
            changes=FoundChanges(*map(np.concatenate, zip(*self._changes, strict=True)))
            if self._changes
            else NO_CHANGES,
        )

    def checked(self, entry: CrawlEntry) -> CheckedEntry:
        """Return an entry whose rows were checked: it may be applied in parts, and none is checked again.

        Raises `EntryRefused`.
        """
        if isinstance(entry, CheckedEntry):
            return entry
        check_crawl(entry, self.config.categories, *self._ids)
        return CheckedEntry(**vars(entry))

    def _effects(self) -> list[int]:
        """Return the counts that an entry reports.

        A copy of all counts would take numpy, which copies field by field, as long as a kernel takes for hundreds of
        transfers.
        """
        counts = self._room.book.counts
        return [int(counts[name][0]) for name in _EFFECTS]

    def mark(self, source: str) -> LogPosition:
        """How far a source has been applied: its next entry may not begin above."""
        return self._marks[source].position if source in self._marks else START

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
        if not check_range(entry.source, entry.start, entry.end, mark.position):
            return []
        checked = self.checked(entry)
        items, below = checked.items, _rows_below(mark.position, checked.items)
        items = items.rows(below, len(items))
        total, uncounted = mark.total + int(np.count_nonzero(items.kind == _VISIT)), mark.uncounted
        if entry.counted_from != mark.counted_from and entry.visits_total is not None:
            uncounted = total - entry.visits_total
        if entry.visits_total is not None and entry.visits_total + uncounted != total:
            raise EntryRefused(
                f"{entry.source}: it counts {entry.visits_total} visits sent to this shard, the ledger "
                f"{total - uncounted}: the audit does not fit, send the missing entries again"
            )
        self._fates = np.zeros(len(items), np.uint8)
        new_rows = mark.new_rows(items)
        if checked.ticks:
            assert new_rows is None and not len(self._policies.stated)
            ticks = [(max(row - below, 0), second) for row, second in checked.ticks]
            sealed = self._apply_rows(items, self._fates, ticks)
        elif new_rows is None:
            sealed = self._apply_new_rows(items, self._fates)
        else:
            fates = np.zeros(len(new_rows), np.uint8)
            sealed = self._apply_new_rows(items.take(new_rows), fates)
            self._fates[new_rows] = fates
        self._room.slide_links(_LEAST_SLIDE + 32 * len(entry.items.link_pages))
        ahead = mark.ahead_of(entry.end)
        self._marks[entry.source] = Mark(entry.end, total, 0, entry.counted_from, uncounted, ahead)
        if self._has_transfers and total > mark.total:
            self._settling.note_visits()
        return sealed

    def _apply_new_rows(self, items: CrawlItems, fates: Bytes) -> list[tuple[int, TransfersEntry]]:
        sealed: list[tuple[int, TransfersEntry]] = []
        first = 0
        for row, page, until in self._removal.forget_rows(items, self._policies.forgetting):
            sealed += self._apply_rows(items.rows(first, row), fates[first:row])
            self._removal.forget(np.array([page], np.uint64), until)
            first = row
        return sealed + self._apply_rows(items.rows(first, len(items)), fates[first:])

    def _apply_rows(
        self, items: CrawlItems, fates: Bytes, ticks: Sequence[tuple[int, int]] = ()
    ) -> list[tuple[int, TransfersEntry]]:
        """Apply rows, and the ticks that come before some of them."""
        sealed: list[tuple[int, TransfersEntry]] = []
        changed = np.zeros((len(items) if self._policies.has_subscriptions else 0, 2), np.int64)
        rows = kernel_items(items, fates, changed)
        most_links = int(np.diff(items.link_starts).max()) if len(items) else 0
        self._room.make_scratch(max(most_links, int(self._room.book.modes[0].longest)))
        first = 0
        for row, second in ticks:
            if first < row:
                sealed += self._apply_part(items, rows, first, row)
            sealed += self._apply_tick(TickEntry(second))
            first = row
        sealed += self._apply_part(items, rows, first, len(items))
        if len(found := np.flatnonzero(changed[:, 0])):
            before, after = changed[found, 0] - 1, changed[found, 1]
            self._changes.append(FoundChanges(items.page[found], items.time_ms[found], before, after))
        return sealed

    def _apply_part(
        self, items: CrawlItems, rows: KernelItems, first: int, last: int
    ) -> list[tuple[int, TransfersEntry]]:
        """Apply the rows [first, last) of items, of which `rows` are the columns for kernels."""
        sealed: list[tuple[int, TransfersEntry]] = []
        room, done, least_visits = self._room, first, ITEMS_PER_MESSAGE * (self.shards - 1)
        if self.is_certified:
            least_visits = max(least_visits, ITEMS_PER_MESSAGE)
        while True:
            row, why = batches.apply_items(room.table, room.book, room.scratch, rows, done, last, least_visits)
            done = int(row)
            if why == batches.NEEDS_CUT:
                sealed += self._seal_cut()
            elif why == batches.NEEDS_ROOM:
                row_links = int(items.link_starts[done + 1] - items.link_starts[done])
                url_bytes = int(items.url_starts[done + 1] - items.url_starts[done])
                outgoing = 0 if self.shards == 1 else 2 * (row_links + 2 * int(room.book.modes[0].longest))
                words = int(links.most_words(row_links, self.shards == 1))
                room.make(row_links + 1, outgoing, words, url_bytes, last - done)
            else:
                break
        self._busy.note(rows, first, last)
        self._removal.note_gone(items, first, last)
        self._qualities.note(items, rows.fates, first, last)
        room.move_index(8 * (last - first + int(items.link_starts[last] - items.link_starts[first])))
        return sealed

    def _apply_transfers(self, entry: TransfersEntry) -> list[tuple[int, TransfersEntry]]:
        sums = check_transfers(entry, self.shard, self.shards, self._ids, self.is_certified)
        source = f"{SHARD_SOURCE}{entry.source_shard}"
        mark = self._marks.get(source, Mark())
        if not check_range(source, entry.start, entry.end, mark.position):
            return []
        known = mark.position.within - entry.first if entry.cut == mark.position.offset else 0
        pages, amounts = entry.pages[known:], entry.amounts[known:]
        if known:
            sums = sum_transfers(pages, amounts, entry.virtual, entry.cut)
        cash = sums.size + entry.virtual
        total = mark.total + cash
        digest = (mark.digest + sums.digest) % _WRAP
        if (total, digest) != (entry.sent_total, entry.sent_digest):
            raise EntryRefused(
                f"{source}, cut {entry.cut}: it counts {entry.sent_total} units sent in all, the ledger {total}: "
                "the audit does not fit, send the cut again or rebuild"
            )
        room = self._room
        counts = room.book.counts[0]
        if int(counts.received) + cash > MOST_CASH:
            raise EntryRefused(f"{source}, cut {entry.cut}: the cash received would overflow: rebuild with more shards")
        counts.received += cash
        ids, done = for_kernel(pages).view(np.int64), 0
        amounts = for_kernel(amounts)
        while True:
            row, why = batches.apply_transfers(room.table, room.book, ids, amounts, done)
            done = int(row)
            if why == batches.DONE:
                break
            room.make(births=1)
        room.move_index(8 * len(pages))
        if entry.gossip is not None:
            if entry.virtual:
                counts.virtual += declare_dividend(room.book, entry.virtual)
            self._receive_gossip(entry.source_shard, entry.gossip)
        if self.config.cut_seconds and (len(pages) or entry.virtual):
            self._peers.by_shard[entry.source_shard].awaits_answer = True
        self._marks[source] = Mark(entry.end, total, digest)
        return []

    def _apply_policy(self, entry: PolicyEntry) -> list[tuple[int, TransfersEntry]]:
        check_source(entry)
        check_policy(entry, self.config.categories, self.is_certified)
        mark = self._marks.get(entry.source, Mark())
        if check_range(entry.source, entry.start, entry.end, mark.position):
            stated = self._policies.stated
            if entry.start < mark.position:
                raise EntryRefused(f"{entry.source}: a policy entry overlaps the one before; send it whole")
            change_rules(self._room, entry.damping, entry.class_weights, entry.link_bonus_per_1024)
            self._removal.drop(np.array(entry.drop, np.uint64))
            self._policies.forget_pages(entry.forget)
            for policy in entry.policies:
                try:
                    self._policies.accept(policy, max(self._times.tick_second, 0), self._planner.refresh_per_day)
                except PolicyRefused as problem:
                    self._refused.append((policy, str(problem)))
            self._times.policies_changed |= self._policies.stated is not stated
            self._marks[entry.source] = Mark(entry.end, mark.total)
        return []

    def _apply_tick(self, entry: TickEntry) -> list[tuple[int, TransfersEntry]]:
        check_tick(entry)
        times = self._times
        if entry.second <= times.tick_second:
            return []
        before = times.tick_second
        times.tick_second = entry.second
        self._note_latest()
        if times.first_tick_second < 0:
            times.first_tick_second = entry.second
        self._set_window(entry.second)
        stated = self._policies.stated
        self._policies.expire(entry.second)
        times.policies_changed |= self._policies.stated is not stated
        self._busy.expire(entry.second)
        self._removal.readmit(entry.second)
        self._removal.drop_gone()
        self._removal.evict()
        self._domains.limit_unread()
        self._domains.begin_day(before, entry.second)
        if self._has_transfers:
            self._settling.note_tick(entry.second)
        if self._sweeps.is_due(entry.second):
            self._sweeps.sweep(entry.second)
            self._domains.share_bases()
        sealed = self._seal_cut(at_tick=True)
        if self._unread.is_review_due(entry.second):
            self._unread.begin_review(entry.second)
        return sealed

    # -- cuts and gossip -------------------------------------------------------------------------------------------

    def seal(self) -> tuple[tuple[int, TransfersEntry], ...]:
        """Seal all that waits for other shards now, as at a cut."""
        self._check_not_broken()
        return tuple(self._seal_cut())

    def _seal_cut(self, at_tick: bool = False) -> list[tuple[int, TransfersEntry]]:
        """Push residuals, and seal the cuts that are due."""
        counts, history = self._room.book.counts[0], self.config.history
        if isinstance(history, Certified):
            if self.shards == 1:
                self._residuals.push(history.tolerance, int(counts.visits_since_cut) * history.pushes_per_visit)
            elif at_tick:  # residuals come without visits, too; pushed more often, they would be sent in more parts
                self._residuals.push(history.tolerance, int(counts.pages) + 1)
        elif self.shards == 1:
            counts.virtual = declare_dividend(self._room.book, counts.virtual)
        if self.shards == 1:
            counts.visits_since_cut = 0
            return []
        return self._cuts.seal_at_tick() if at_tick else self._cuts.seal_whole()

    def _receive_gossip(self, other: int, gossip: Gossip) -> None:
        """Advance the turn clock by another shard's part, and update the totals over all shards."""
        book = self._room.book
        advance = self._peers.receive_gossip(other, gossip)
        book.clocks[0].theta = (int(book.clocks[0].theta) + advance) % _WRAP
        book.modes[0].like_us = 1 + self._peers.silent
        book.counts[0].minted_everywhere = min(self._peers.minted(int(book.counts[0].minted)), MOST_CASH)
        self._note_sums_elsewhere()

    # -- time ------------------------------------------------------------------------------------------------------

    def _note_latest(self) -> None:
        """Note for kernels when the last tick was, and which times of visits are possible."""
        second = self._times.tick_second
        self._room.book.now[0].second = max(second, 0)
        self._room.book.store[0].latest_ms = 1000 * (second + MOST_AHEAD_DAYS * SECONDS_PER_DAY) if second >= 0 else 0

    def _note_sums_elsewhere(self) -> None:
        """Note for kernels what the sums of other shards are."""
        if self.is_certified and self._peers.by_shard:
            sums, now = self._peers.sums_elsewhere(), self._room.book.now[0]
            now.bases_elsewhere, now.residual_elsewhere = sums.bases, sums.residual
            now.carried_elsewhere = sums.paid + sums.residual - sums.bases

    def _set_window(self, second: int) -> None:
        """Convert a window given in days to turns of the clock."""
        window_days = None if self.is_certified else getattr(self.config.history, "window_days", None)
        if window_days is not None:
            book = self._room.book
            theta, theta_start = int(book.clocks[0].theta), int(book.clocks[0].theta_start)
            book.rules[0].window = window_turns(self._times.days, window_days, second, theta, theta_start)

    # -- publishing and planning -----------------------------------------------------------------------------------

    def publish(self, pages: Ids) -> Estimates:
        """Return the estimates to publish of visited pages that have a URL, relative to the last sweep.

        Empty before the first sweep. The estimates returned count as published.
        """
        return self._sweeps.publish(pages, self.is_settled)

    def publish_movers(self, most: int, least_move: float, true_within: float = 0.0) -> Movers:
        """Estimates to publish of at most `most` movers, those that moved most first.

        Movers are pages whose importance or score moved by more than the share `least_move` since it was published, and
        those whose newest record says that importance has not settled although it has. Importance is relative to all
        rates now. Also returns how many pages then still have a record that is off by more than `true_within`.
        """
        return self._sweeps.publish_movers(most, least_move, true_within, self.is_settled)

    def forget_published(self) -> None:
        """Treat all pages as if they had never been published."""
        self._sweeps.forget_published()

    def change_refreshing(self, refresh: RefreshConfig) -> None:
        """Plan fetches with other options from now on. Earlier counts do not change."""
        config = replace(self.config, refresh=refresh)
        if not self.config.counts_alike(config):
            raise ConfigRefused("estimator, alpha, gone_days and gone_visits hold for as long as a ledger does")
        self.config = config
        self._room.change_columns(config)
        self._unread.change_options(config)
        self._planner.change_options(refresh)

    def budget(self) -> Budget:
        """The fetches that this shard may plan now, as configured and as policies have changed it."""
        return self._planner.budget()

    def preview(
        self,
        refresh: RefreshConfig | None = None,
        budget: Budget | None = None,
        coming: Iterable[Policy] = (),
        importance: Floats | None = None,
        second: int = 0,
        least: int = 0,
        among: Ids | None = None,
        limits_traps: bool = True,
    ) -> Plan:
        """The plan for the cycle that begins now, with other options or another budget where they are given.

        Policies that are `coming` hold too, except impossible ones. `importance`: of all pages in slot order, if it is
        not to be the ledger's own. `second`: when the cycle begins, if that is after the last tick and the last visit.
        `least`: so many unread pages are ordered, and so many that are due in the cycle, if there are, whatever the
        bandwidth is.
        `among`: no other pages are ordered. `limits_traps`: traps and twins get few orders, as in `plan`.
        The ledger does not change, so the same call gives the same plan. The schedules to publish are those of all
        pages with a URL, or only of the pages `among`.
        """
        return self._planner.preview(refresh, budget, coming, importance, second, least, among, limits_traps)

    def traps(self, importance: Floats | None = None) -> list[TrapFigures]:
        """The traps and twins among the pages (plan/trap_search.py), those that were fetched most first.

        `importance`: of all pages in slot order, if it is not to be the ledger's own.
        """
        return self._planner.traps(importance)

    def plan(self, most_moved: int, least_move: float) -> Plan:
        """Plan the cycle that begins now. The ledger keeps who was ordered and which intervals are published.

        The schedules to publish are those of pages that were visited since the last plan, and at most `most_moved` of
        others whose interval moved most, by more than the share `least_move`.
        """
        return self._planner.plan(most_moved, least_move)

    def settle(self, tolerance: float | None = None) -> Settled:
        """Push cash along remembered links until the certificate is below a tolerance: the exact ranks of the graph.

        It works on a copy: the ledger does not change. Without a tolerance it is that of `certified`.
        """
        history = self.config.history
        if not self.config.remember_links or self.shards != 1:
            raise ConfigRefused("settle needs remembered links and one shard: replay the log with --remember-links")
        if int(self._room.book.modes[0].damping_q20) == 1 << 20:
            raise ConfigRefused("settle needs a damping below 1: without the small edge ranks have no certificate")
        if tolerance is None:
            tolerance = history.tolerance if isinstance(history, Certified) else Certified().tolerance
        ids, slots = self._reader.live()
        return self._residuals.settle(tolerance, ids, slots)

    # -- snapshots -------------------------------------------------------------------------------------------------

    def move_urls(self, space: Space) -> None:
        """Keep URLs and remembered links in another space from here on."""
        self._room.move_urls(space)

    def all_bytes(self) -> int:
        """The bytes of all columns in memory and in files, with their room to grow."""
        return self._room.all_bytes()

    def put_aside(self) -> None:
        """Move all columns of pages to where URLs are, if that is not memory: results take memory of their own."""
        self._room.put_aside()

    def take_up(self) -> None:
        """Move columns that were put aside back to memory, as a ledger does before one grows."""
        self._room.take_up()

    @property
    def is_in_memory(self) -> bool:
        """Whether all columns are in memory."""
        return self._room.is_in_memory

    def snapshot(self) -> list[snapshots.Chunk]:
        """The whole ledger in chunks of at most 4 MiB. Full chunks of URLs keep their bytes until one is forgotten."""
        return list(self.snapshot_chunks())

    def snapshot_chunks(self) -> Iterator[snapshots.Chunk]:
        """The chunks of `snapshot`, each made when it is taken. The ledger must not change until the last one is."""
        self._check_not_broken()
        if self.is_certified:
            self._room.sum_outbox()
        self._room.turn_recent()
        if self.config.learns_discovery:
            self._unread.update_order()
        state, table, book, quality = self.parts()
        counts = book.counts.copy()
        for name in at.TRANSIENT_COUNTS:
            counts[name] = 0
        values, judged = encode_state(state, self.config, self.shard, self.ranges), judged_columns(state.reviews)
        return snapshots.write(values, self.config, table, book._replace(counts=counts), judged, quality)

    def parts(self) -> LedgerParts:
        """The columns of the ledger themselves, for readers of all pages, which must not change them."""
        state = LedgerState(
            marks=self._marks,
            peers=self._peers.by_shard,
            times=self._times,
            credits=self._credits,
            policies=self._policies.stated,
            budget=self._policies.budget,
            url_generation=self._removal.url_generation,
            busy_hosts=self._busy.waits,
            reviews=self._unread.reviews,
            whole_cut=self._cuts.last_whole,
        )
        quality = self._qualities.column(int(self._room.book.counts[0].slots))
        return LedgerParts(state, self._room.table, self._room.book, quality)

    @classmethod
    def restore(
        cls,
        chunks: Iterable[bytes],
        page_ids: PageIds | None = None,
        multiplier: int | None = None,
        space: Space = in_memory,
    ) -> Ledger:
        """The ledger of a snapshot's chunks, in their order. `SnapshotRefused` if one is missing, moved or altered.

        `page_ids` are those that the ledger was made with; `multiplier` and `space` are any (see `Ledger`).
        """
        return cls.of_content(snapshots.read(chunks, space), page_ids, multiplier, space)

    @classmethod
    def of_content(
        cls,
        contents: snapshots.SnapshotContent,
        page_ids: PageIds | None = None,
        multiplier: int | None = None,
        space: Space = in_memory,
        finish: Callable[[Ledger], None] = lambda ledger: None,
    ) -> Ledger:
        """The ledger of the content of a snapshot, which is checked. `finish` may change it before its audit."""
        values, config, columns = contents.state, contents.config, contents.columns
        try:
            ledger = cls(config, values["shard"], ShardRanges.of_stored(values), 0, page_ids, multiplier, space)
            snapshots.refuse(state_problem(values, config, ledger.shard, ledger.shards))
            ledger._adopt(decode_state(values, ledger.page_ids))
            if config.learns_discovery:
                judged = {name: columns.pop(name) for name in snapshots.JUDGED_COLUMNS}
                sizes = values["reviews"]["waiting"]
                snapshots.refuse(judged_problem(judged, sizes))
                take_judged(ledger._unread.reviews, judged, sizes)
            ledger._adopt_columns(contents)
            ledger._note_latest()
            ledger._note_sums_elsewhere()
            finish(ledger)
            ledger.audit()
            ledger._room.take_up()
        except SnapshotRefused:
            raise
        except snapshots.WRONG_VALUES as problem:
            raise SnapshotRefused(f"the snapshot makes no ledger: {shown(problem)}: take an older one") from None
        return ledger

    def _adopt_columns(self, contents: snapshots.SnapshotContent) -> None:
        room, columns = self._room, contents.columns
        columns = {
            **columns,
            "urls": contents.urls.resized(contents.url_bytes),
            **{name: columns[name].view(kind) for name, kind in at.ACCOUNTS.items() if name in columns},
        }
        stored = columns.pop("links")
        sites, counts = (columns.pop(name) for name in snapshots.ANNOUNCED_COLUMNS)
        snapshots.refuse(announced_problem(room.book, sites, counts))
        room.book.announced[sites] = counts
        quality = columns.pop(snapshots.QUALITY_COLUMN)
        room.adopt_columns(columns, contents.urls)
        latest, before = (columns[name] for name in snapshots.RECENT_COLUMNS)
        snapshots.refuse(recent_problem(self.config, room.book, latest, before))
        room.set_recent(latest, before)
        if self.is_certified:
            lost = columns["lost_ids"], columns["lost_amounts"]
            snapshots.refuse(lost_problem(room.book, *lost))
        like_us = 1 + self._peers.silent
        snapshots.refuse(column_problem(self.config, room.table, room.book, stored, self._ids, like_us))
        snapshots.refuse(window_problem(room.table, self._times.tick_second))
        snapshots.refuse(discovery_problem(room.table, room.book, self._unread.reviews, self._times.tick_second))
        snapshots.refuse(quality_problem(room.table, room.book, quality))
        self._qualities.adopt(quality)
        snapshots.refuse("a page is there twice" if room.rebuild_index() else "")
        if self.is_certified:
            room.take_lost(*lost)
        if self.config.remember_links:
            room.take_links(stored)

    @property
    def is_certified(self) -> bool:
        """Whether the history policy is `certified`."""
        return isinstance(self.config.history, Certified)

    @property
    def is_settled(self) -> bool:
        """Whether importance rests on a whole window in which transfers of other shards arrived in time.

        While it does not, it changes because the crawl begins, or because visits were applied ahead of transfers. Under
        `certified`: whether the certificate is below 0.1.
        """
        return self.certainty()[1]

    def certainty(self) -> tuple[float | None, bool]:
        """Return `certificate()` and `is_settled`, which take the same sums."""
        certificate = self.certificate()
        return certificate, self._settling.is_settled() if certificate is None else certificate <= _SETTLING

    @property
    def _has_transfers(self) -> bool:
        """Whether importance depends on transfers of other shards that arrive in time."""
        return self.shards > 1 and not self.is_certified

    def certificate(self) -> float | None:
        """A bound of the L1 distance between importance and the exact ranks of the graph seen; None if there is none.

        2 is the largest distance that there can be. With several shards the graph is that of all shards, as far as
        their gossip has arrived; 2 until every shard has sent some.
        """
        return self._residuals.certificate(self._residuals.own()) if self.is_certified else None

    def _check_not_broken(self) -> None:
        broken = self._room.book.counts["broken"][0]  # for every entry, twice: faster than by the row
        if broken:
            why = f"the clock of shard {self.shard} would overflow 64 bits" if broken == 1 else "an entry was cut short"
            raise LedgerBroken(f"the ledger cannot go on: {why}: restore its last snapshot and go on from there")

    # -- reading pages (see `Reader`) ------------------------------------------------------------------------------

    def host_hashes(self, pages: Ids) -> Ids:
        """A hash of the host of each page; 0 where its URL is not known."""
        return self._reader.host_hashes(self._reader.slots_of(pages))

    def busy_hosts(self, second: int) -> dict[int, int]:
        """The hosts that ask to wait at a second, by their hashes, and until which second each does."""
        hosts, until = self._busy.waiting(second)
        return dict(zip(hosts.tolist(), until.tolist(), strict=True))

    def estimate(self, pages: Ids | Iterable[int], rate_sum: float | None = None) -> Estimates:
        """Return the present estimates of pages. For many parts, call `rate_sum()` once and pass its result."""
        return self._reader.estimate(pages, rate_sum)

    def estimate_all(self) -> Estimates:
        """Estimates of all pages, in the order in which they were born."""
        return self._reader.estimate_all()

    def importance(self) -> tuple[Ids, Floats]:
        """All pages and their importance, in the order in which they were born: for less time than all estimates."""
        return self._reader.importance()

    def top(self, k: int) -> Estimates:
        """Estimates of the `k` most important pages, most important first; equal ones in slot order."""
        return self._reader.top(k)

    def ranked(self) -> Ids:
        """All pages, the most important first; equal ones in slot order."""
        return self._reader.ranked()

    def payers(self, pages: Ids, importance: Floats, most: int) -> Payers:
        """For each page, the pages that pay it most along remembered links. `pages` are all, with their importance."""
        return self._reader.payers(pages, importance, most)

    def payers_of(self, page: int, importance: Floats) -> list[tuple[int, float]]:
        """All pages that pay a page along remembered links, and the part of its importance from each, most first.

        `importance` is that of all pages in slot order.
        """
        return self._reader.payers_of(page, importance)

    def payers_elsewhere(self, page: int, importance: float) -> list[tuple[int, float]]:
        """All pages of this shard that pay a page of another one, and the part of its importance from each.

        `importance` is that of the page, by the ledger that has it.
        """
        return self._reader.payers_elsewhere(page, importance)

    def alike_part(self, page: int) -> float | None:
        """The part of a page's importance that all pages receive alike; None if the history does not keep it apart."""
        return self._reader.alike_part(page)

    def finders(self, page: int, most: int) -> list[int]:
        """The page in which a page was found first, the one in which that was found, and so on, at most so many."""
        return self._reader.finders(page, most)

    def quality(self, page: int) -> float:
        """The last quality that an event gave of a page; 1 without any."""
        values = self._qualities.of(self._reader.slots_of(np.array([page], np.uint64)))
        return 1.0 if values is None else float(values[0])

    def seen_changes(self, page: int) -> SeenChanges:
        """The observations of visits to a page of the ledger, and its changes."""
        return self._reader.seen_changes(page)

    def rate_sum(self) -> float:
        """The sum of the rates of all pages of this shard, now."""
        return self._reader.rate_sum()

    def waiting_cash(self, pages: Ids | None = None) -> Ints:
        """The cash that each page received since its last visit, spent by the round or not: greedy crawls choose by it.

        -1 for a page that is not known; without `pages`, that of all pages in the order in which they were born.
        """
        return self._reader.waiting_cash(pages)

    def idle_cash(self) -> dict[Outcome, int]:
        """Cash that waits on pages, by their last outcome. Much on UNCHANGED: remembering links would help."""
        return self._reader.idle_cash()

    def url(self, page: int) -> bytes | None:
        """The URL of a page; None where it is not known."""
        return self._reader.url(page)

    def urls(self, pages: Ids) -> tuple[Ints, Bytes]:
        """The starts of the URLs of pages, and the URLs, one after the other; empty where one is not known."""
        return self._reader.urls(pages)

    def subscribers(self, pages: Ids) -> Subscribers:
        """Return the subscribers to the changes of pages; pages that are not known have none."""
        return self._policies.subscribers(pages)

    def swept_estimates(self, pages: Ids) -> Estimates:
        """Return the estimates of pages relative to the last sweep, as visited pages are published; 0 before the first.

        They do not count as published.
        """
        return self._reader.estimate(pages, self._times.sweep_rate_sum)

    def has_url(self, pages: Ids) -> Bools:
        """Whether the URL of each page is known."""
        return self._reader.has_url(pages)

    def order_of_births(self, pages: Ids) -> Ints:
        """Return the rows of pages in the order in which they were added, which is that of columns and URLs."""
        return self._reader.order_of_births(pages)

    def categories(self, pages: Ids) -> Bytes:
        """The category of each page; 0 where there is one category only, or the page is not known."""
        return self._reader.categories(pages)

    def hops(self, pages: Ids) -> Bools:
        """Whether the last known links of each page are those of a redirect: then it has no base and no dividends."""
        return self._reader.hops(pages)

    def remembered(self, pages: Ids) -> tuple[Ints, Ids, npt.NDArray[np.uint16]]:
        """The starts of the remembered links of pages, and their targets and weights."""
        return self._reader.remembered(pages)

    def measures_per_page(self) -> float:
        """The mean number of measures that the history keeps of a page; 1 where it keeps sums or rates."""
        return self._reader.measures_per_page()

    # -- totals ----------------------------------------------------------------------------------------------------

    def balance(self) -> Balance:
        """The conservation law, counted from the columns."""
        return balance_of(self._room.table, self._room.book)

    def audit(self) -> Balance:
        """The balance, after checking it and every running total. Raises `LedgerBroken` for what does not hold."""
        self._check_not_broken()
        return audit(self._room.table, self._room.book, self.shard)

    def bytes_per_page(self) -> float:
        """Memory of the columns and the index a page, room to grow included; without refreshing, URLs and links."""
        return self._room.bytes_in_use() / max(self.pages, 1)

    def link_bytes(self) -> float:
        """Memory a remembered link, room to grow included; without the columns that lead to those of a page."""
        return self._room.link_bytes()

    def content_bytes(self) -> int:
        """The bytes of pages, URLs and remembered links without room to grow: a function of the log alone."""
        return self._room.content_bytes()

    @property
    def policies(self) -> Policies:
        """The policies that hold."""
        return self._policies.stated

    @property
    def discovery(self) -> Discovery:
        """The values that discovery has learnt: the initial ones if it does not learn."""
        return self._unread.reviews.discovery

    @property
    def pages(self) -> int:
        """Pages of this shard."""
        return int(self._counts.pages)

    @property
    def pages_everywhere(self) -> int:
        """Pages of all shards, by their newest gossip."""
        return self._reader.pages_everywhere()

    @property
    def pages_read(self) -> int:
        """Pages that were visited and answered."""
        return self._room.pages_read

    @property
    def not_learnt(self) -> int:
        """How often a link or an announcement made no page, because its domain had as many as it may."""
        return self._domains.not_learnt

    @property
    def evicted(self) -> int:
        """Pages removed because there were too many."""
        return int(self._counts.evicted)

    @property
    def visits(self) -> int:
        """Visits applied; duplicates and visits of forgotten pages are not counted."""
        return int(self._counts.visits)

    @property
    def transfers(self) -> int:
        """Transfers along links, to this shard and to others."""
        return int(self._counts.transfers)

    @property
    def minted(self) -> int:
        """Cash minted, in units."""
        return int(self._counts.minted)

    @property
    def clock(self) -> int:
        """G: the cash that spending has put into circulation, in units."""
        return int(self._counts.clock)

    @property
    def turns(self) -> float:
        """Turns of the clock since the ledger began."""
        clocks = self._room.book.clocks[0]
        return turns(int(clocks.theta) - int(clocks.theta_start))

    @property
    def shares(self) -> float:
        """S: the sum over this shard's pages by which bandwidth is shared among shards."""
        return int(self._counts.shares) / SHARE_UNITS

    @property
    def cut(self) -> int:
        """The number of the next cut; where shards differ, the largest one."""
        return self._cuts.number

    @property
    def tick_second(self) -> int:
        """The second of the last tick; -1 before the first."""
        return self._times.tick_second

    @property
    def sweep_second(self) -> int:
        """The second of the last sweep, which sums all rates; -1 before the first."""
        return self._times.sweep_second

    @property
    def planned_second(self) -> int:
        """The second of the last plan; -1 before the first."""
        return self._times.planned_second

    def is_plan_due(self, second: int) -> bool:
        """Whether the cycle of the last plan is over."""
        return self._planner.is_due(second)

    @property
    def _counts(self) -> Any:
        return self._room.book.counts[0]


def _rows_below(mark: LogPosition, items: CrawlItems) -> int:
    """Return the number of rows, which are in the order of positions, that are below a mark."""
    if len(items) and (items.offset[0], items.within[0]) >= mark:  # as a rule
        return 0
    first, last = (int(np.searchsorted(items.offset, mark.offset, side)) for side in ("left", "right"))
    return first + int(np.searchsorted(items.within[first:last], mark.within))
