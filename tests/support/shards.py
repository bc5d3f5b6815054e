"""Several shards connected by faulty queues: a seeded simulation in one process.

Crawl rows go to the shard of their page. Sealed transfers go into one queue for each pair of shards. The queues lose
nothing and keep the order of a pair. Otherwise they behave like at-least-once queues: messages wait for any time, are
split, are repeated much later, also whole after a piece, and sometimes a later message arrives before an earlier one
and must be refused. Crawl entries and ticks are delayed and repeated, too.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields

import numpy as np
import pytest

from opicflow.pipelines.ledger.cash.balance import Balance
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
from support.ranges import any_ranges


@dataclass(frozen=True)
class Faults:
    """How many of a thousand messages wait, are split, are repeated, or come too early.

    With `wait` at 500 or more, less than one message is received for each one sent: queues grow during the whole
    crawl, and the order chooses pages by outdated cash.
    """

    wait: int = 300
    split: int = 300
    again: int = 60
    early: int = 20


NO_FAULTS = Faults(0, 0, 0, 0)


@dataclass
class FaultCounts:
    """How often each fault happened in a run, so that a test can check that it did."""

    waited: int = 0
    split: int = 0
    again: int = 0
    overlapped: int = 0
    early: int = 0


@dataclass
class Feed:
    """The crawl entries for one shard. They are contiguous."""

    end: LogPosition = START
    visits: int = 0
    waiting: deque[CrawlEntry | TickEntry] = field(default_factory=deque)
    applied: deque[CrawlEntry | TickEntry] = field(default_factory=lambda: deque(maxlen=8))


@dataclass
class Queue:
    """The messages of one shard to another: each as it is sent, and the whole sealed entry."""

    waiting: deque[tuple[TransfersEntry, TransfersEntry]] = field(default_factory=deque)
    applied: deque[TransfersEntry] = field(default_factory=lambda: deque(maxlen=8))


class Shards:
    """The ledgers of all shards of a web, used like a single one (`crawls.CrawlLedger`)."""

    def __init__(self, config: LedgerConfig | None, shards: int, seed: int, faults: Faults = NO_FAULTS) -> None:
        self.ranges = any_ranges(shards, seed)
        self.ledgers = [Ledger(config, shard, self.ranges) for shard in range(shards)]
        self.happened = FaultCounts()
        self._faults = faults
        self._random = random.Random(seed)
        self._feeds = [Feed() for _ in self.ledgers]
        self._queues = {(a, b): Queue() for a in range(shards) for b in range(shards) if a != b}

    # -- input ----------------------------------------------------------------------------------------------

    def apply(self, entry: CrawlEntry) -> None:
        """Route a crawl entry, and apply some of the waiting entries."""
        owners = self.ranges.of(entry.items.page)
        for shard, feed in enumerate(self._feeds):
            items = entry.items.take(np.flatnonzero(owners == shard))
            feed.visits += int((items.kind == Kind.VISIT).sum())
            feed.waiting.append(CrawlEntry(entry.source, feed.end, entry.end, items, feed.visits))
            feed.end = entry.end
        self._work()

    def tick(self, second: int) -> None:
        """Send a tick to all shards, behind the waiting entries."""
        for feed in self._feeds:
            feed.waiting.append(TickEntry(second))
        self._work()

    def drain(self, second: int) -> None:
        """Apply all waiting entries, with a tick that seals all outboxes."""
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
        """Return the cash that each page received since its last visit."""
        return self._gather(pages, lambda ledger, ids: ledger.waiting_cash(ids), np.int64)

    def importance(self, pages: Ids) -> np.ndarray:
        """Return importance as the shard of each page estimates it, with the latest gossip of the others."""
        return self._gather(pages, lambda ledger, ids: ledger.estimate(ids).importance, np.float64)

    def shares(self, pages: Ids) -> np.ndarray:
        """Return the share of each page in the rates of all shards."""
        rates = self._gather(pages, lambda ledger, ids: ledger.estimate(ids).rate, np.float64)
        return rates / sum(ledger.rate_sum() for ledger in self.ledgers)

    def balance(self) -> Balance:
        """Add the balances of all shards, after an audit of each."""
        balances = [ledger.audit() for ledger in self.ledgers]
        return Balance(*(sum(getattr(one, column.name) for one in balances) for column in fields(Balance)))

    def travelling(self) -> int:
        """Return the cash in messages that are not applied yet."""
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
        owners = self.ranges.of(pages)
        for shard, ledger in enumerate(self.ledgers):
            values[owners == shard] = read(ledger, pages[owners == shard])
        return values

    def _chance(self, of_1000: int) -> bool:
        return self._random.randrange(1000) < of_1000

    def _work(self) -> None:
        """Let shards, then pairs of shards, apply all, some or none of their waiting entries, in any order."""
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
        """Apply the next entry of a shard. It may be repeated, alone or as the beginning of the next one."""
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
        """Apply the next message of a pair: a later one may come before it, and an earlier one after it."""
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
            # The sender restarted and sends the whole cut. Its later pieces then change nothing.
            message = sealed
            self.happened.overlapped += 1
        assert ledger.apply(message).sealed == (), "a transfer never causes a transfer"
        queue.applied.append(message)
        if self._chance(self._faults.again):
            assert ledger.apply(self._random.choice(queue.applied)) == Applied()
            self.happened.again += 1


def joined(first: CrawlEntry, second: CrawlEntry) -> CrawlEntry:
    """Join two contiguous entries."""
    columns = {}
    for column in ITEM_COLUMNS:
        one, two = getattr(first.items, column.name), getattr(second.items, column.name)
        columns[column.name] = np.concatenate((one, two[1:] + one[-1]) if column.is_starts else (one, two))
    items = CrawlItems(**columns)
    return CrawlEntry(first.source, first.start, second.end, items, second.visits_total)
