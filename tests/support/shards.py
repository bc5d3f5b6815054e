"""Several shards joined by faulty queues: a seeded simulation in one process.

Crawl rows go to the shard of their page. What a shard seals goes into one queue for each pair of shards. Queues
lose nothing and keep the order of a pair; apart from that they do what at-least-once queues do: messages wait
for any time, come in pieces, come again long after, whole after a piece of them, and now and then a later one
comes before an earlier one, which its receiver must refuse. Crawl entries and ticks lag and come again, too.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
import pytest

from opicflow.pipelines.ledger.balance import Balance
from opicflow.pipelines.ledger.config import LedgerConfig
from opicflow.pipelines.ledger.entries import (
    ITEM_COLUMNS,
    START,
    CrawlEntry,
    CrawlItems,
    Kind,
    LogPosition,
    TickEntry,
    TransfersEntry,
)
from opicflow.pipelines.ledger.errors import EntryRefused
from opicflow.pipelines.ledger.ledger import Applied, Ledger
from opicflow.schemas.arrays import Ids, Ints
from opicflow.schemas.pages import shard_of


@dataclass(frozen=True)
class Faults:
    """How often, of a thousand chances, something waits, is split, comes again, or comes too early.

    Something waits after each that is taken, so with `wait` at 500 or more a queue takes less than one entry for
    each that comes: it grows as long as the crawl runs, and the order chooses by cash of long ago.
    """

    wait: int = 300
    split: int = 300
    again: int = 60
    early: int = 20


NO_FAULTS = Faults(0, 0, 0, 0)


@dataclass
class Happened:
    """How often each fault happened in a run, so that a test can check that it did."""

    waited: int = 0
    split: int = 0
    again: int = 0
    overlapped: int = 0
    early: int = 0


@dataclass
class Feed:
    """The crawl entries for one shard: they touch, whatever is sent to the others."""

    end: LogPosition = START
    visits: int = 0
    waiting: deque[CrawlEntry | TickEntry] = field(default_factory=deque)
    applied: deque[CrawlEntry | TickEntry] = field(default_factory=lambda: deque(maxlen=8))


@dataclass
class Queue:
    """The messages of one shard to another: each as it travels, and as it was sealed."""

    waiting: deque[tuple[TransfersEntry, TransfersEntry]] = field(default_factory=deque)
    applied: deque[TransfersEntry] = field(default_factory=lambda: deque(maxlen=8))


class Shards:
    """The ledgers of all shards of a web, to be used like a single one (`crawls.Books`)."""

    def __init__(self, config: LedgerConfig | None, shards: int, seed: int, faults: Faults = NO_FAULTS) -> None:
        self.ledgers = [Ledger(config, shard, shards) for shard in range(shards)]
        self.happened = Happened()
        self._faults = faults
        self._random = random.Random(seed)
        self._feeds = [Feed() for _ in self.ledgers]
        self._queues = {(a, b): Queue() for a in range(shards) for b in range(shards) if a != b}

    # -- input ----------------------------------------------------------------------------------------------

    def apply(self, entry: CrawlEntry) -> None:
        """Route a crawl entry, and let some of what waits happen."""
        owners = shard_of(entry.items.page, len(self.ledgers))
        for shard, feed in enumerate(self._feeds):
            items = entry.items.take(np.flatnonzero(owners == shard))
            feed.visits += int((items.kind == Kind.VISIT).sum())
            feed.waiting.append(CrawlEntry(entry.source, feed.end, entry.end, items, feed.visits))
            feed.end = entry.end
        self._go_on()

    def tick(self, second: int) -> None:
        """The same second for all shards, behind whatever waits for each."""
        for feed in self._feeds:
            feed.waiting.append(TickEntry(second))
        self._go_on()

    def drain(self, second: int) -> None:
        """Let everything arrive; a tick on the way sees to it that no outbox holds anything back."""
        for feed in self._feeds:
            feed.waiting.append(TickEntry(second))
        for shard, feed in enumerate(self._feeds):
            while feed.waiting:
                self._feed(shard)
        for pair, queue in self._queues.items():
            while queue.waiting:
                self._receive(pair)

    # -- reading ------------------------------------------------------------------------------------------

    def waiting_cash(self, pages: Ids) -> Ints:
        """The cash that each page received since its last visit."""
        return self._gather(pages, lambda ledger, ids: ledger.waiting_cash(ids), np.int64)

    def importance(self, pages: Ids) -> np.ndarray:
        """Importance as each page's shard computes it, with the latest gossip of the others."""
        return self._gather(pages, lambda ledger, ids: ledger.estimate(ids).importance, np.float64)

    def shares(self, pages: Ids) -> np.ndarray:
        """Importance straight from the rates of all shards at this moment."""
        rates = self._gather(pages, lambda ledger, ids: ledger.estimate(ids).rate, np.float64)
        return rates / sum(ledger.rate_sum() for ledger in self.ledgers)

    def balance(self) -> Balance:
        """The books of all shards together, each audited."""
        books = [ledger.audit() for ledger in self.ledgers]
        return Balance(*(sum(getattr(book, column.name) for book in books) for column in fields(Balance)))

    def travelling(self) -> int:
        """The cash in messages that have not been applied."""
        cash = 0
        for (sender, receiver), queue in self._queues.items():
            mark = self.ledgers[receiver].mark(f"shard/{sender}")
            for message, _ in queue.waiting:
                if message.end > mark:
                    cash += int(message.amounts.sum()) + message.virtual
        return cash

    # -- inside ----------------------------------------------------------------------------------------------------

    def _gather(self, pages: Ids, read: Callable[[Ledger, Ids], np.ndarray], dtype: type) -> np.ndarray:
        values = np.zeros(len(pages), dtype)
        owners = shard_of(pages, len(self.ledgers))
        for shard, ledger in enumerate(self.ledgers):
            values[owners == shard] = read(ledger, pages[owners == shard])
        return values

    def _chance(self, of_1000: int) -> bool:
        return self._random.randrange(1000) < of_1000

    def _go_on(self) -> None:
        """Shards, then pairs of shards, in any order: each takes all, some or none of its waiting entries."""
        for shard in self._random.sample(range(len(self.ledgers)), len(self.ledgers)):
            while self._feeds[shard].waiting and not self._chance(self._faults.wait):
                self._feed(shard)
        pairs = [pair for pair, queue in self._queues.items() if queue.waiting]
        for pair in self._random.sample(pairs, len(pairs)):
            waiting = self._queues[pair].waiting
            while waiting and not self._chance(self._faults.wait):
                self._receive(pair)
            self.happened.waited += bool(waiting)

    def _feed(self, shard: int) -> None:
        """The next entry of a shard's log. It may come again, alone or as the beginning of the next one."""
        feed, ledger = self._feeds[shard], self.ledgers[shard]
        entry = feed.waiting.popleft()
        for other, sealed in ledger.apply(entry).sealed:
            size = len(sealed.pages)
            split = size > 1 and self._chance(self._faults.split)
            messages = sealed.split(self._random.randint(1 + size // 4, size - 1)) if split else [sealed]
            self.happened.split += split
            self._queues[shard, other].waiting.extend((message, sealed) for message in messages)
        feed.applied.append(entry)
        if self._chance(self._faults.again):
            assert ledger.apply(self._random.choice(feed.applied)) == Applied()
            self.happened.again += 1
        following = feed.waiting[0] if feed.waiting else None
        if isinstance(entry, CrawlEntry) and isinstance(following, CrawlEntry) and self._chance(self._faults.again):
            feed.waiting[0] = joined(entry, following)
            self.happened.overlapped += 1

    def _receive(self, pair: tuple[int, int]) -> None:
        """The next message of a pair: a later one may be tried before it, and an earlier one after it."""
        queue, ledger, source = self._queues[pair], self.ledgers[pair[1]], f"shard/{pair[0]}"
        if self._chance(self._faults.early) and len(queue.waiting) > 1:
            later = self._random.choice(list(queue.waiting)[1:])[0]
            if later.start > ledger.mark(source):
                before = ledger.balance(), ledger.mark(source), ledger.turns
                with pytest.raises(EntryRefused, match="send the entries between them first"):
                    ledger.apply(later)
                assert (ledger.balance(), ledger.mark(source), ledger.turns) == before
                self.happened.early += 1
        message, sealed = queue.waiting.popleft()
        if message.first > 0 and self._chance(5 * self._faults.again):
            # The writer began again and sends the whole cut. Later pieces of it then change nothing.
            message = sealed
            self.happened.overlapped += 1
        assert ledger.apply(message).sealed == (), "a transfer never causes a transfer"
        queue.applied.append(message)
        if self._chance(self._faults.again):
            assert ledger.apply(self._random.choice(queue.applied)) == Applied()
            self.happened.again += 1


def joined(first: CrawlEntry, second: CrawlEntry) -> CrawlEntry:
    """Two entries that touch, as one."""
    columns = {}
    for column in ITEM_COLUMNS:
        one, two = getattr(first.items, column.name), getattr(second.items, column.name)
        columns[column.name] = np.concatenate((one, two[1:] + one[-1]) if column.is_starts else (one, two))
    items = CrawlItems(**columns)
    return CrawlEntry(first.source, first.start, second.end, items, second.visits_total)
