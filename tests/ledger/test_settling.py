"""Importance that has settled: transfers of other shards arrived in time for a whole window."""

from __future__ import annotations

import numpy as np
import pytest

from opicflow.pipelines.lab.web.crawl import announcements, visits
from opicflow.pipelines.lab.web.visit_orders import CycleOrder
from opicflow.pipelines.lab.web.webs import page_ids, power_law_web
from opicflow.pipelines.ledger import Certified, Fixed, History, Interpolation, Ledger, LedgerConfig, TickEntry
from opicflow.pipelines.ledger.entries import CrawlEntry, TransfersEntry
from opicflow.pipelines.ranks.graph.csr import Graph
from opicflow.schemas.shards import ShardRanges
from support.crawls import Crawl, Errors, exact_ranks

PAGES, SHARDS, BATCH = 600, 4, 12


class Stream:
    """Shards whose logs have a tick after every batch of visits. A ledger may be far behind the end of its log."""

    def __init__(self, web: Graph, history: History) -> None:
        self.web, self.ids = web, page_ids(web.pages, 1)
        self.ledgers = [Ledger(LedgerConfig(history=history), shard, SHARDS) for shard in range(SHARDS)]
        self._logs: list[list[CrawlEntry | TransfersEntry | TickEntry]] = [[] for _ in self.ledgers]
        self._order = CycleOrder(web.pages, 1, BATCH)
        self._second = self._offset = 0
        self._ends, self._sent = [announcements(self.ids).start] * SHARDS, [0] * SHARDS
        self._write(announcements(self.ids))

    def _write(self, entry: CrawlEntry) -> None:
        owners = ShardRanges.equal(SHARDS).of(entry.items.page)
        for shard, log in enumerate(self._logs):
            items = entry.items.take(np.flatnonzero(owners == shard))
            self._sent[shard] += int((items.kind == 1).sum())
            log.append(CrawlEntry(entry.source, self._ends[shard], entry.end, items))
            self._ends[shard] = entry.end
            log.append(TickEntry(self._second))
        self._second += 1
        self._offset = entry.end.offset

    def crawl(self, rounds: float, behind: int = 0) -> Stream:
        """Visit pages; every ledger applies its log, except so many of the last entries."""
        for _ in range(round(rounds * self.web.pages / BATCH)):
            self._write(visits(self.web, self.ids, self._order.next(lambda: self.ids), self._offset))
            self.apply(behind)
        return self

    def apply(self, behind: int = 0) -> None:
        for shard, log in enumerate(self._logs):
            while len(log) > behind:
                for other, transfers in self.ledgers[shard].apply(log.pop(0)).sealed:
                    self._logs[other].append(transfers)

    def errors(self) -> Errors:
        rates = np.zeros(len(self.ids))
        for ledger, owned in zip(self.ledgers, self._owned(), strict=True):
            rates[owned] = ledger.estimate(self.ids[owned]).rate
        return Errors.of(rates / rates.sum(), exact_ranks(self.web))

    def _owned(self) -> list[np.ndarray]:
        owners = ShardRanges.equal(SHARDS).of(self.ids)
        return [np.flatnonzero(owners == shard) for shard in range(SHARDS)]

    @property
    def settled(self) -> set[bool]:
        return {ledger.is_settled for ledger in self.ledgers}


@pytest.fixture(scope="module")
def web() -> Graph:
    return power_law_web(PAGES, 1)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("history", [Interpolation(), Fixed(8)])
def test_a_stream_that_keeps_up_settles_after_a_window(web: Graph, history: History) -> None:
    stream = Stream(web, history).crawl(2)
    assert stream.settled == {False}
    assert stream.crawl(4).settled == {True}


@pytest.mark.slow
def test_a_backlog_is_not_settled_until_its_pages_were_visited_again(web: Graph) -> None:
    stream = Stream(web, Interpolation()).crawl(3, behind=1 << 30)
    stream.apply()
    assert stream.settled == {False}
    wrong = stream.errors()
    stream.crawl(2)
    assert stream.settled == {False}
    stream.crawl(4)
    assert stream.settled == {True}
    assert stream.errors().everywhere < wrong.everywhere / 5


@pytest.mark.slow
def test_a_settled_stream_that_falls_behind_is_not_settled(web: Graph) -> None:
    """Cuts still come one after the other, but each is of a time that this shard has left far behind."""
    stream = Stream(web, Interpolation()).crawl(6)
    assert stream.settled == {True}
    stream.crawl(2, behind=60)
    assert stream.settled == {False}


@pytest.mark.slow
def test_without_visits_nothing_becomes_unsettled(web: Graph) -> None:
    stream = Stream(web, Interpolation()).crawl(6)
    for ledger in stream.ledgers:
        ledger.apply(TickEntry(1_000_000))
    assert stream.settled == {True}


def test_one_ledger_settles_after_a_window(web: Graph) -> None:
    ledger = Ledger()
    crawl = Crawl(ledger, web, "cycle").run(2)
    assert not ledger.is_settled
    crawl.run(4)
    assert ledger.is_settled


def test_a_certified_ledger_is_settled_by_its_certificate(web: Graph) -> None:
    ledger = Ledger(LedgerConfig(history=Certified()))
    crawl, found = Crawl(ledger, web, "cycle"), set()
    for _ in range(20):
        crawl.run(0.1)
        found.add(ledger.is_settled)
        assert ledger.is_settled == ((ledger.certificate() or 0) <= 0.1)
    assert found == {False, True}


@pytest.mark.slow
def test_a_restored_ledger_settles_at_the_same_moment(web: Graph) -> None:
    stream = Stream(web, Interpolation()).crawl(1, behind=40)
    stream.ledgers = [Ledger.restore(chunk.data for chunk in ledger.snapshot()) for ledger in stream.ledgers]
    other = Stream(web, Interpolation()).crawl(1, behind=40)
    for _ in range(12):
        assert stream.crawl(0.5).settled == other.crawl(0.5).settled
    prints = [[chunk.data for one in streams.ledgers for chunk in one.snapshot()] for streams in (stream, other)]
    assert prints[0] == prints[1] and stream.settled == {True}
