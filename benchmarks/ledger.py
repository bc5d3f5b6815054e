"""The ledger alone: visits and transfers, births, look-ups, scans, snapshots, memory, and whether growth pauses.

The web is made up: every page is announced, visits come in random order with 30 links each, and most links go to
few pages. The page of rank r is linked r^-0.91 times as often as the first, as where in-degrees follow a power law of
2.1; a random permutation assigns ranks to pages, so that popular pages are scattered over the table.

The ledger is that of the class, with the history `interpolation` and without remembered links, unless a figure says "by
default": this one has the settings that replays and streams have without options.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from benchmarks.harness import Figure, Scale, check, race, say, touch_memory, versus
from opicflow.pipelines.lab.web.crawl import SOURCE, announcements
from opicflow.pipelines.lab.web.webs import page_ids
from opicflow.pipelines.ledger import (
    UNITS_PER_PAGE,
    Chunk,
    CrawlEntry,
    CrawlItems,
    Gossip,
    Kind,
    Ledger,
    LogPosition,
    Outcome,
    TransfersEntry,
)
from opicflow.pipelines.ledger.entries import transfer_digest
from opicflow.pipelines.stages.rules import Rules
from opicflow.pipelines.stages.settings import LedgerOptions, default_ledger
from opicflow.schemas.arrays import Ids, Ints

LINKS = 30
SEED = 1
TOP = 100
_TAIL = 1 - 1 / 1.1  # ranks with P(rank) ~ rank^-(1 - _TAIL): what in-degrees with exponent 2.1 come to


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    pages: int = 10_000_000
    fewer_pages: int = 1_000_000
    pages_in_dicts: int = 100_000
    births_per_batch: int = 100_000
    visits_per_batch: int = 20_000
    visits_per_batch_with_dicts: int = 2_000
    lookups_per_batch: int = 500_000
    received_per_batch: int = 200_000
    checked_visits: int = 1_000
    rounds: int = 10
    heavy_rounds: int = 3


TINY = Sizes(20_000, 5_000, 2_000, 1_000, 200, 100, 1_000, 1_000, 50, 2, 1)


def measure(scale: Scale) -> Iterator[Figure]:
    """All figures of the group."""
    sizes = scale.pick(TINY, Sizes())
    say("ledger: against the obvious ledger with dicts")
    yield from against_dicts(sizes)
    for pages in (sizes.fewer_pages, sizes.pages):
        at = "" if pages == sizes.pages else f"_at_{_short(pages)}_pages"
        ids = page_ids(pages, SEED)
        touch_memory(2 * 110 * pages)
        say(f"ledger: growing to {pages:,} pages")
        grown = Growth(ids, sizes.births_per_batch, sizes.heavy_rounds)
        yield from grown.figures(at)
        say(f"ledger: visits among {pages:,} pages")
        yield from visits(grown.ledger, ids, sizes, at)
        say(f"ledger: visits among {pages:,} pages, by default")
        yield from visits(announced_by_default(ids, sizes), ids, sizes, f"_by_default{at}")
    say("ledger: look-ups")
    yield from lookups(grown.ledger, ids, sizes)
    say("ledger: scans")
    yield from scans(grown.ledger, sizes)
    say("ledger: snapshots")
    yield from snapshots(grown.ledger, sizes)
    del grown
    say("ledger: transfers from another shard")
    yield from received(sizes)


# Visits


class DictLedger:
    """The obvious ledger: cash and history in dicts, integers and rules as in ours, for as long as the round rests.

    It sums up history, the least that a policy can do. The round takes nothing before the second visit of an average
    page.
    """

    def __init__(self, known: Iterable[int], pages: int) -> None:
        self.cash = dict.fromkeys(known, UNITS_PER_PAGE)
        self.history = dict.fromkeys(self.cash, 0)
        self.seen = dict.fromkeys(self.cash, 0)
        self.pages = pages
        self.virtual = 0
        self.dividend = 0
        self.visits_since_cut = 0
        self.damping_q20 = round(0.85 * (1 << 20))

    def visit(self, page: int, links: list[int]) -> None:
        """Collect, spend, pay every link its share, and the rest to the virtual page."""
        cash = self.cash
        amount = cash[page] + self.dividend - self.seen[page]
        self.seen[page] = self.dividend
        cash[page] = 0
        self.history[page] += amount
        share = (amount * self.damping_q20 >> 20) // len(links)
        for link in links:
            cash[link] += share
        self.virtual += amount - share * len(links)
        self.visits_since_cut += 1
        if self.visits_since_cut * 100 >= self.pages:
            self.visits_since_cut = 0
            each = self.virtual // (16 * self.pages) * 16
            self.dividend += each
            self.virtual -= each * self.pages

    def cash_now(self) -> dict[int, int]:
        """The cash of every page, dividends included."""
        return {page: cash + self.dividend - self.seen[page] for page, cash in self.cash.items()}


class Visits:
    """Batches of visits that follow one another, and the page numbers that they link to."""

    def __init__(self, ids: Ids, seed: int) -> None:
        self._ids = ids
        self._random = np.random.default_rng(seed)
        self._page_of_rank = self._random.permutation(len(ids)).astype(np.int32)
        self._order = self._random.permutation(len(ids)).astype(np.int32)
        self._at = 0

    def next(self, rows: int) -> tuple[CrawlEntry, Ints, Ints]:
        """So many visits as an entry, the pages visited, and a row of links for each."""
        start, self._at = self._at, self._at + rows
        pages = np.take(self._order, np.arange(start, self._at), mode="wrap").astype(np.int64)
        links = self._links(pages)
        offset = len(self._ids) + start  # after the announcements
        items = CrawlItems.filled(
            rows,
            kind=np.full(rows, Kind.VISIT, np.uint8),
            page=self._ids[pages],
            outcome=np.full(rows, Outcome.FETCHED, np.uint8),
            offset=np.arange(offset, offset + rows),
            links_known=np.ones(rows, np.uint8),
            link_starts=np.arange(0, LINKS * rows + 1, LINKS),
            link_pages=self._ids[links.ravel()],
        )
        return CrawlEntry(SOURCE, LogPosition(offset, 0), LogPosition(offset + rows, 0), items), pages, links

    def _links(self, pages: Ints) -> Ints:
        """Distinct pages other than the page itself: the ledger would merge or drop the other links."""
        links = self._draw(LINKS * len(pages)).reshape(-1, LINKS)
        while True:
            links.sort(axis=1)
            again = links == pages[:, None]
            again[:, 1:] |= links[:, 1:] == links[:, :-1]
            if not again.any():
                return self._random.permuted(links, axis=1)
            links[again] = self._draw(int(again.sum()))

    def _draw(self, count: int) -> Ints:
        """Page numbers by their popularity."""
        pages = len(self._page_of_rank)
        ranks = (1 + self._random.random(count) * ((pages + 1) ** _TAIL - 1)) ** (1 / _TAIL)
        positions: Ints = np.minimum(ranks.astype(np.int64), pages) - 1
        return self._page_of_rank[positions].astype(np.int64)


def against_dicts(sizes: Sizes) -> Iterator[Figure]:
    """The same visits by the ledger and by dicts; at the end every page must have the same cash in both."""
    ids = page_ids(sizes.pages_in_dicts, SEED)
    ours, obvious = Ledger(), DictLedger(ids.tolist(), len(ids))
    ours.apply(announcements(ids))
    crawl = Visits(ids, SEED)
    first, *batches = [crawl.next(sizes.visits_per_batch_with_dicts) for _ in range(sizes.rounds + 2)]
    batches.append(first)
    lists = [(ids[pages].tolist(), ids[links].tolist()) for _, pages, links in batches]

    def by_ledger(number: int) -> float:
        before = ours.transfers
        ours.apply(batches[number][0])
        return ours.transfers - before

    def by_dicts(number: int) -> float:
        for page, links in zip(*lists[number], strict=True):
            obvious.visit(page, links)
        return len(lists[number][0]) * LINKS

    by_ledger(-1)
    by_dicts(-1)
    check_cash(ours, obvious)
    value, baseline = race(sizes.rounds, by_ledger, by_dicts)
    check_cash(ours, obvious)
    how = f"against cash and history in Python dicts, {len(ids):,} pages, {LINKS} links a visit"
    yield versus("ledger.transfers_vs_python_dicts", value, "transfers/s", baseline, how)


def check_cash(ledger: Ledger, obvious: DictLedger) -> None:
    """The books balance, and every page that the dicts know has the same cash in the ledger."""
    check(ledger.audit().drift == 0, "the ledger's books balance")
    cash = obvious.cash_now()
    ours = ledger.estimate(np.fromiter(cash, np.uint64, len(cash))).cash
    check(ours.tolist() == list(cash.values()), "ledger and dicts agree on the cash of every page")


@numba.njit(nogil=True)
def add_at_random(sums: Any, targets: Any) -> None:
    """The least that a transfer can be: one addition somewhere in memory. Unsigned, so that no index wraps."""
    for i in range(targets.shape[0]):
        sums[targets[i]] += 7


@numba.njit(nogil=True)
def place_ids(cells: Any, ids: Any) -> None:
    """Fill an empty hash table of ids, each with its sum beside it; its size is a power of two."""
    last = np.uint64(cells.shape[0] - 1)
    for i in range(ids.shape[0]):
        at = (ids[i] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & last
        while cells[at, 0]:
            at = (at + np.uint64(1)) & last
        cells[at, 0] = ids[i]


@numba.njit(nogil=True)
def look_up_and_add(cells: Any, ids: Any) -> None:
    """The least that a transfer to a page id can be: to find its slot in a hash table, and to add there."""
    last = np.uint64(cells.shape[0] - 1)
    for i in range(ids.shape[0]):
        at = (ids[i] * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(20)) & last
        while cells[at, 0] != ids[i]:
            at = (at + np.uint64(1)) & last
        cells[at, 1] += np.uint64(7)


def announced_by_default(ids: Ids, sizes: Sizes) -> Ledger:
    """Return a ledger with these pages and the settings of a replay without options."""
    ledger = Ledger(default_ledger(LedgerOptions(), None, Rules().categories))
    for first in range(0, len(ids), sizes.births_per_batch):
        ledger.apply(announcements(ids[first : first + sizes.births_per_batch], start=first))
    return ledger


def visits(ledger: Ledger, ids: Ids, sizes: Sizes, at: str) -> Iterator[Figure]:
    """Visits and transfers a second in a table of this size, against bare additions in the order of the transfers."""
    crawl = Visits(ids, SEED)
    entry, pages, links = crawl.next(sizes.checked_visits)
    ledger.apply(entry)
    if not ledger.is_certified:  # which pushes cash on, as dicts do not
        obvious = DictLedger(ids[np.union1d(pages, links)].tolist(), len(ids))
        for page, targets in zip(ids[pages].tolist(), ids[links].tolist(), strict=True):
            obvious.visit(page, targets)
        check_cash(ledger, obvious)

    batches = [crawl.next(sizes.visits_per_batch) for _ in range(sizes.rounds + 1)]
    flat = [links.ravel().astype(np.uint64) for _, _, links in batches]
    sums = np.zeros(len(ids), np.int64)
    add_at_random(sums, np.arange(len(ids), dtype=np.uint64))

    def by_ledger(number: int) -> float:
        before = ledger.transfers
        ledger.apply(batches[number][0])
        return ledger.transfers - before

    def bare(number: int) -> float:
        add_at_random(sums, flat[number])
        return len(flat[number])

    cells = np.zeros((1 << (len(ids) * 3 // 2).bit_length(), 2), np.uint64)
    place_ids(cells, ids)
    linked = [entry.items.link_pages for entry, _, _ in batches]

    def bare_with_ids(number: int) -> float:
        look_up_and_add(cells, linked[number])
        return len(linked[number])

    value, baseline, with_ids = race(sizes.rounds, by_ledger, bare, bare_with_ids)
    check(ledger.audit().drift == 0, "the ledger's books balance")
    check(int(sums.sum()) == 7 * (len(ids) + sum(map(len, flat))), "bare additions add up")
    check(int(cells[:, 1].sum()) == 7 * sum(map(len, linked)), "bare additions with look-ups add up")
    history = "the history of replays, certified" if ledger.is_certified else "history interpolation; 96 are allowed"
    how = f"{len(ids):,} pages, after these visits, without URLs and remembered links; {history}"
    yield Figure(f"ledger.bytes_per_page{at}", ledger.bytes_per_page(), "bytes", how)
    history = "certified, with remembered links" if ledger.is_certified else "interpolation"
    against = f"{len(ids):,} pages, {LINKS} links a visit; history {history}"
    yield Figure(f"ledger.visits_per_second{at}", value / LINKS, "visits/s", against)
    yield Figure(f"ledger.transfers_per_second{at}", value, "transfers/s", against)
    how = f"against bare additions at the same positions of an array, in the same order, {against}"
    yield versus(f"ledger.transfers_vs_random_adds{at}", value, "transfers/s", baseline, how)
    how = f"against a bare hash table of page ids, with a sum beside each, {against}"
    yield versus(f"ledger.transfers_vs_lookup_and_add{at}", value, "transfers/s", with_ids, how)


# Growth


class Growth:
    """Ledgers that grow from nothing, all in the same way: of each batch the least time counts.

    A batch that pauses does so every time; a batch that somebody else delays does not.
    """

    def __init__(self, ids: Ids, births_per_batch: int, times: int) -> None:
        self.batches = [
            announcements(ids[first : first + births_per_batch], start=first)
            for first in range(0, len(ids), births_per_batch)
        ]
        self.births_per_batch = births_per_batch
        self.seconds = np.full(len(self.batches), np.inf)
        for _ in range(times + 1):
            self._grow()
        check(self.ledger.pages == len(ids), "every page announced is known")
        check(self.ledger.audit().drift == 0, "the ledger's books balance")

    def _grow(self) -> None:
        self.ledger = Ledger()
        self.bytes_per_page = np.zeros(len(self.batches))
        for i, batch in enumerate(self.batches):
            begun = time.process_time()
            self.ledger.apply(batch)
            self.seconds[i] = min(self.seconds[i], time.process_time() - begun)
            self.bytes_per_page[i] = self.ledger.bytes_per_page()

    def figures(self, at: str) -> Iterator[Figure]:
        """Births a second, memory a page, and how much longer than others the longest batch took."""
        of = f"to {self.ledger.pages:,} pages, {self.births_per_batch:,} announced in a batch"
        births = self.ledger.pages / float(self.seconds.sum())
        yield Figure(f"ledger.births_per_second{at}", births, "births/s", of)
        most = float(self.bytes_per_page[len(self.batches) // 10 :].max())
        how = "the most after any batch of the later nine tenths of the growth: while the index moves there are two"
        yield Figure(f"ledger.bytes_per_page_growing{at}", most, "bytes", how)
        longest, median = float(self.seconds.max()), float(np.median(self.seconds))
        where = (int(self.seconds.argmax()) + 1) * self.births_per_batch
        how = f"the longest batch ({1000 * longest:.0f} ms, up to page {where:,}) over the median, {of}"
        yield Figure(f"ledger.growth_pause{at}", longest / median, "times", how)


# Reading


def lookups(ledger: Ledger, ids: Ids, sizes: Sizes) -> Iterator[Figure]:
    """From page ids to slots, against a binary search among the sorted ids."""
    random = np.random.default_rng(SEED)
    order = np.argsort(ids, kind="stable")
    in_order = ids[order]
    requested = [ids[random.integers(0, len(ids), sizes.lookups_per_batch)] for _ in range(sizes.rounds + 1)]
    find = ledger._reader.slots_of  # slots are numbered in the order in which pages came in
    found = order[np.searchsorted(in_order, requested[0])]
    check(np.array_equal(find(requested[0]), found), "index and binary search agree")

    def by_index(number: int) -> float:
        return len(find(requested[number]))

    def by_search(number: int) -> float:
        return len(np.searchsorted(in_order, requested[number]))

    value, baseline = race(sizes.rounds, by_index, by_search)
    how = f"against numpy.searchsorted in sorted ids; random known ids, {len(ids):,} pages"
    yield versus("ledger.lookups_per_second", value, "look-ups/s", baseline, how)


def scans(ledger: Ledger, sizes: Sizes) -> Iterator[Figure]:
    """All estimates against a copy of their columns, and the top pages against a selection from ready rates."""
    everything = ledger.estimate_all()
    columns = [column for column in vars(everything).values() if isinstance(column, np.ndarray)]
    rates = everything.rate.copy()
    best = np.argsort(-rates, kind="stable")[:TOP]
    check(abs(float(everything.importance.sum()) - 1) < 1e-9, "importance sums to 1")
    check(np.array_equal(ledger.top(TOP).rate, rates[best]), "the top pages are those of a full sort")

    def estimate(_: int) -> float:
        return len(ledger.estimate_all().pages)

    def copy(_: int) -> float:
        copies = [column.copy() for column in columns]
        return len(copies[0])

    def top(_: int) -> float:
        ledger.top(TOP)
        return ledger.pages

    def partition(_: int) -> float:
        found = np.argpartition(rates, len(rates) - TOP)[len(rates) - TOP :]
        found[np.argsort(-rates[found])]
        return len(rates)

    value, baseline = race(sizes.heavy_rounds, estimate, copy)
    how = f"estimate_all() of {len(rates):,} pages, against copying the columns that it returns"
    yield versus("ledger.estimates_per_second", value, "pages/s", baseline, how)
    value, baseline = race(sizes.heavy_rounds, top, partition)
    how = f"top({TOP}) of {len(rates):,} pages, against numpy.argpartition of ready rates"
    yield versus("ledger.top_pages_per_second", value, "pages/s", baseline, how)


def snapshots(ledger: Ledger, sizes: Sizes) -> Iterator[Figure]:
    """Snapshot and restore, each against a copy of as many bytes: in such chunks, and in one piece."""
    chunks = ledger.snapshot()
    data = [chunk.data for chunk in chunks]
    megabytes = sum(map(len, data)) / 1e6
    check_snapshot(ledger, chunks)
    whole = np.ones(int(megabytes * 1e6) // 8, np.int64)

    def snapshot(_: int) -> float:
        ledger.snapshot()
        return megabytes

    def restore(_: int) -> float:
        Ledger.restore(data)
        return megabytes

    def copy_chunks(_: int) -> float:
        copies = [bytes(memoryview(chunk)) for chunk in data]
        return sum(map(len, copies)) / 1e6

    def copy_whole(_: int) -> float:
        return whole.copy().nbytes / 1e6

    written, copied = race(sizes.heavy_rounds, snapshot, copy_chunks)
    how = f"{megabytes:,.0f} MB, against copying its chunks to fresh memory"
    yield versus("ledger.snapshot_mb_per_second", written, "MB/s", copied, how)
    read, copied = race(sizes.heavy_rounds, restore, copy_whole)
    how = f"{megabytes:,.0f} MB, against copying as many bytes to fresh memory in one piece"
    yield versus("ledger.restore_mb_per_second", read, "MB/s", copied, how)


def check_snapshot(ledger: Ledger, chunks: list[Chunk]) -> None:
    """The restored ledger has the same snapshot, byte for byte."""
    restored = Ledger.restore(chunk.data for chunk in chunks)
    check(restored.balance() == ledger.balance(), "a restored ledger has the same balance")
    check(restored.snapshot() == chunks, "a restored ledger has the same snapshot")


# Another shard


def received(sizes: Sizes) -> Iterator[Figure]:
    """Cash from another shard, summed up per page and sorted as it comes, against bare additions at these positions."""
    ids = np.unique(page_ids(2 * sizes.pages, SEED) >> np.uint64(1))[: sizes.pages]  # the lower half of all ids
    ids = np.random.default_rng(SEED).permutation(ids)
    ledger = Ledger(shard=0, shards=2)
    for first in range(0, len(ids), sizes.births_per_batch):
        ledger.apply(announcements(ids[first : first + sizes.births_per_batch], start=first))
    random = np.random.default_rng(SEED)
    messages, positions = [], []
    total = digest = 0
    for cut in range(sizes.rounds + 1):
        chosen = random.choice(len(ids), sizes.received_per_batch, replace=False, shuffle=False)
        chosen = chosen[np.argsort(ids[chosen])]
        amounts = random.integers(1, UNITS_PER_PAGE, len(chosen))
        total += int(amounts.sum())
        digest = (digest + transfer_digest(ids[chosen], amounts, 0, cut)) % (1 << 64)
        gossip = Gossip(advance=0, minted=UNITS_PER_PAGE, pages=1, weighted_pages=16, rate_sum=0.0)
        messages.append(TransfersEntry(1, cut, 0, True, ids[chosen], amounts, 0, total, digest, gossip))
        positions.append(chosen.astype(np.uint64))
    sums = np.zeros(len(ids), np.int64)
    add_at_random(sums, np.arange(len(ids), dtype=np.uint64))
    expected = np.full(len(ids), UNITS_PER_PAGE, np.int64)
    for message, chosen_positions in zip(messages, positions, strict=True):
        expected[chosen_positions] += message.amounts

    def receive(number: int) -> float:
        ledger.apply(messages[number])
        return len(messages[number].pages)

    def bare(number: int) -> float:
        add_at_random(sums, positions[number])
        return len(positions[number])

    value, baseline = race(sizes.rounds, receive, bare)
    check(ledger.audit().received == total, "all cash sent was received")
    check(np.array_equal(ledger.waiting_cash(), expected), "each page has the cash sent to it")
    how = f"against bare additions at the same positions; {len(ids):,} pages, {sizes.received_per_batch:,} in a message"
    yield versus("ledger.transfers_received_per_second", value, "transfers/s", baseline, how)


def _short(number: int) -> str:
    for size, letter in ((1_000_000, "m"), (1_000, "k")):
        if number % size == 0:
            return f"{number // size}{letter}"
    return str(number)
